"""SuperGlue's matching on CUDA beside its own loop in PyTorch, forward and with gradients, in milliseconds, as JSON.

usage: bench/superglue.py [--sizes batch,n ...] [--iterations 100] [--runs 5]

Scores are normal, of spread 3, with a dustbin: matrices of (n + 1) x (n + 1), 100 iterations in the log domain, whole
calls by the clock. "torch" is the loop of two logsumexp an iteration. "traffic" is one read of the matrix an iteration
at the rate of a copy of 1 GiB in the same run (reads and writes), the limit of a matrix that does not fit on chip;
where all matrices fit the L2 cache the time may be below it. "error" is the largest difference of entries of the plan,
whose corner is about n.
"""

import argparse
import json
import statistics
import time
from functools import partial

import torch
from provenance import provenance

import monge
import monge.torch


def milliseconds(function, runs):
    times = []
    for _ in range(runs + 1):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        function()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times[1:])


def in_torch(scores, iterations):
    """SuperGlue's plan, with column and row sums of 1 and a dustbin of score 1."""
    batch, n, m = scores.shape
    couplings = torch.ones(batch, n + 1, m + 1, device=scores.device)
    couplings[:, :n, :m] = scores
    log_a, log_b = torch.zeros(n + 1, device=scores.device), torch.zeros(m + 1, device=scores.device)
    log_a[-1], log_b[-1] = torch.log(torch.tensor(float(m))), torch.log(torch.tensor(float(n)))
    u, v = torch.zeros(batch, n + 1, device=scores.device), torch.zeros(batch, m + 1, device=scores.device)
    for _ in range(iterations):
        u = log_a - torch.logsumexp(couplings + v[:, None, :], dim=2)
        v = log_b - torch.logsumexp(couplings + u[:, :, None], dim=1)
    return torch.exp(couplings + u[:, :, None] + v[:, None, :])


def with_gradient(project, scores):
    given = scores.clone().requires_grad_()

    def step():
        given.grad = None
        (project(given) ** 2).sum().backward()

    return step


def measured(call, runs):
    try:
        return round(milliseconds(call, runs), 3)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return "out of memory"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["1,512", "1,1024", "8,1024", "64,1024", "1,2048", "16,2048"])
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    about = provenance("torch") | {"device": torch.cuda.get_device_name()}
    from_memory, to_memory = (torch.empty(1 << 28, device="cuda") for _ in range(2))
    copy = 2 * 4 * from_memory.numel() / (1e-3 * milliseconds(partial(to_memory.copy_, from_memory), 9))
    del from_memory, to_memory
    runs = []
    for size in options.sizes:
        batch, n = map(int, size.split(","))
        torch.manual_seed(0)
        scores = 3 * torch.randn(batch, n, n, device="cuda")
        iterations = options.iterations

        def ours(x):
            return monge.torch.project(x, "superglue", iterations=iterations)

        def loop(x):
            return in_torch(x, iterations)

        few = scores[:2]
        run = {"batch": batch, "n": n, "error": float((ours(few) - in_torch(few, iterations)).abs().max())}
        run["traffic_ms"] = round(1e3 * 4 * batch * (n + 1) ** 2 * (iterations + 3) / copy, 3)
        for name, project in (("monge", ours), ("torch", loop)):
            run[f"{name}_ms"] = measured(lambda: project(scores), options.runs)
            run[f"{name}_gradient_ms"] = measured(with_gradient(project, scores), options.runs)
        runs.append(run)
    about["versions"]["monge"] = monge.__version__
    print(json.dumps({"program": "bench/superglue.py", **about, "iterations": options.iterations,
                      "copy_bytes_per_s": copy, "runs": runs}, indent=1))


if __name__ == "__main__":
    main()
