"""Whole calls from Python with PyTorch's tensors on a CUDA device: milliseconds, and the synchronisation after each.

usage: bench/python_on_cuda.py [--repeats 200]

Points of a normal distribution in float32, eps = 5 % of the mean cost, tolerance 1e-3. Certificates are included but
for the pairs of a mini-batch, which have none. Prints JSON: the least, the median and the ninth decile of all calls.
"""

import argparse
import json
import time

import torch

import monge
from monge.torch import OTPairs


def times(call, repeats):
    """Milliseconds."""
    found = []
    for repeat in range(repeats + 10):
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        if repeat >= 10:
            found.append(1e3 * (time.perf_counter() - begin))
    found.sort()
    return {
        name: round(found[int(share * len(found))], 3) for name, share in (("least", 0), ("median", 0.5), ("p90", 0.9))
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=200)
    repeats = parser.parse_args().repeats
    torch.manual_seed(0)

    def clouds(*shape):
        return torch.randn(shape, device="cuda"), torch.randn(shape, device="cuda")

    one, batch, images, pairs = clouds(1000, 64), clouds(64, 1000, 64), clouds(256, 784), OTPairs()
    calls = {
        "solve_sample, 1000 x 64": lambda: monge.solve_sample(*one, reg="auto", tol=1e-3),
        "solve_sample_batch, 64 of 1000 x 64": lambda: monge.solve_sample_batch(*batch, reg="auto", tol=1e-3),
        "OTPairs, 256 x 784": lambda: pairs(*images),
    }
    rounds = [{name: times(call, repeats) for name, call in calls.items()} for _ in range(3)]
    print(
        json.dumps(
            {
                "device": torch.cuda.get_device_name(),
                "monge": monge.__version__,
                "torch": torch.__version__,
                "rounds": rounds,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
