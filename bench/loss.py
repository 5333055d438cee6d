"""SamplesLoss, forward and backward, and one solve of the same problem, beside GeomLoss and flash-sinkhorn, in
milliseconds, as JSON.

usage: bench/loss.py [--device cpu|cuda] [--sizes n,d,blur ...] [--tolerances 1e-3 1e-6] [--runs 9]

Normal clouds of tensors in float32, the second 1.1 times as wide and moved by 0.3 in each coordinate; costs are
|x - y|^2 / 2, and eps = blur^2. "solve" is monge.solve_sample to the same tolerance, "forward" the loss without
gradients, "loss" the loss and its gradient by x. "warm" is "loss" from its own potentials, as in a training loop that
hardly moves. Times are medians of the runs after one that is not counted. "sweeps" are those of OT(a, b), OT(a, a) and
OT(b, b), "core" the seconds in their reports. GeomLoss has no tolerance: it takes one sweep at each blur of its ladder,
and its value has an error that depends on `scaling`. What is not installed is listed with its reason.
"""

import argparse
import json
import os
import platform
import statistics
import time
import warnings
from importlib import metadata

import torch

SIZES = {"cpu": ["1000,64,2.5", "2000,3,0.1", "2000,16,0.6"], "cuda": ["10000,64,2.5", "10000,3,0.1", "10000,16,0.6"]}


def milliseconds(function, device, runs):
    times = []
    for _ in range(runs + 1):
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        function()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return round(1e3 * statistics.median(times[1:]), 3)


def with_gradient(loss, x, y):
    x = x.clone().requires_grad_()

    def step():
        x.grad = None
        value = loss(x, y)
        value.backward()
        return value.item(), x.grad

    return step


def of_monge(x, y, blur, tolerance, device, runs):
    import monge
    import monge.torch

    given = {"reg": blur**2, "scale": 0.5, "tol": tolerance}
    loss = monge.torch.SamplesLoss(blur=blur, tol=tolerance)
    warm = monge.torch.SamplesLoss(blur=blur, tol=tolerance, warm_start=True)
    divergence = monge.sinkhorn_divergence(x, y, **given)
    reports = [part.report for part in (divergence.ab, divergence.aa, divergence.bb)]
    entry = {
        "tolerance": tolerance,
        "solve_ms": milliseconds(lambda: monge.solve_sample(x, y, **given), device, runs),
        "forward_ms": milliseconds(lambda: loss(x, y), device, runs),
        "loss_ms": milliseconds(with_gradient(loss, x, y), device, runs),
        "warm_ms": milliseconds(with_gradient(warm, x, y), device, runs),
        "value": divergence.value.item(),
        "status": divergence.status,
        "sweeps": [report.iterations for report in reports],
        "sweeps_in_float64": [report.refinement_iterations for report in reports],
        "core": [round(report.seconds, 6) for report in reports],
    }
    return entry | {"loss_over_solve": round(entry["loss_ms"] / entry["solve_ms"], 3)}


def of_geomloss(x, y, blur, device, runs):
    from geomloss import SamplesLoss

    for scaling in (0.5, 0.9):
        step = with_gradient(SamplesLoss(blur=blur, scaling=scaling, backend="tensorized"), x, y)
        value, _ = step()
        yield {"name": f"geomloss, scaling={scaling}", "loss_ms": milliseconds(step, device, runs), "value": value}


def of_flash(x, y, blur, device, runs):
    from flash_sinkhorn import SamplesLoss

    if device == "cpu":
        raise RuntimeError("needs a GPU")
    step = with_gradient(SamplesLoss(loss="sinkhorn", blur=blur, half_cost=True, debias=True), x, y)
    value, _ = step()
    yield {"name": "flash-sinkhorn", "loss_ms": milliseconds(step, device, runs), "value": value}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sizes", nargs="+", metavar="n,d,blur")
    parser.add_argument("--tolerances", nargs="+", type=float, default=[1e-3, 1e-6])
    parser.add_argument("--runs", type=int, default=9)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    import monge

    report = {
        "program": "bench/loss.py",
        "device": given.device,
        "machine": [info.name for info in monge.devices() if info.device.startswith(given.device)],
        "threads": len(os.sched_getaffinity(0)),
        "load_average": os.getloadavg()[0],
        "processor": platform.processor() or platform.machine(),
        "versions": {"monge": monge.__version__, "torch": torch.__version__},
        "runs": [],
        "absent": {},
    }
    for size in given.sizes or SIZES[given.device]:
        n, d, blur = (kind(v) for kind, v in zip((int, int, float), size.split(",")))
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(n, d, generator=generator).to(given.device)
        y = (1.1 * torch.randn(n, d, generator=generator) + 0.3).to(given.device)
        run = {"n": n, "d": d, "blur": blur, "monge": [], "peers": []}
        run["monge"] = [of_monge(x, y, blur, tolerance, given.device, given.runs) for tolerance in given.tolerances]
        for package, peer in (("geomloss", of_geomloss), ("flash-sinkhorn", of_flash)):
            try:
                report["versions"][package] = metadata.version(package)
                run["peers"] += peer(x, y, blur, given.device, given.runs)
            except Exception as error:  # A peer that is missing or fails is a line of the report.
                report["absent"][package] = f"{type(error).__name__}: {error}"
        report["runs"].append(run)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
