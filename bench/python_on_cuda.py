"""Whole calls from Python with PyTorch's tensors on a CUDA device, as users write them: float32 points (exact plans:
float64), default options, certificates included.

usage: bench/python_on_cuda.py [--seconds 0.2] [--only WORD]...

Clouds of solves are N(0, I) and 0.8 N(0, I) + 0.3, eps a share of the mean cost; clouds of losses N(0, I) and
0.9 N(0, I) + 0.2. Each row has the first call's time, and the median and the quartiles of further ones, for `seconds`
or three calls, whichever is longer. Prints JSON, a line each row: milliseconds, and the launches and waits of one call.
Rows of solves also have the number of passes, of passes in float64 and of passes of Newton's method. `--only` keeps the
rows whose name has a word.
"""

import argparse
import json
import os
import statistics
import time

import torch
from provenance import provenance

import monge
from monge.torch import OTPairs, SamplesLoss

X2, DISTANCE = "sqeuclidean", "euclidean"
LAUNCHES = ("cudaLaunch", "cuLaunch", "cudaGraphLaunch")
WAITS = ("cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize", "cudaMemcpy")


def seconds_of(call):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    result = call()
    torch.cuda.synchronize()
    return time.perf_counter() - begin, result


def counts(call):
    """Launches and waits of one call, from PyTorch's profiler."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        seconds_of(call)
    of = {event.key: event.count for event in profile.key_averages()}
    waits = {name: n for name, n in of.items() if name.startswith(WAITS) and name != "cudaMemcpyAsync"}
    return {"launches": sum(n for name, n in of.items() if name.startswith(LAUNCHES)), "waits": sum(waits.values()) - 1}


def work_of(result):
    """Passes of a solve, or of the solves of a batch."""
    report = getattr(result, "report", None)
    if hasattr(report, "pivots"):
        return {"status": report.status, "pivots": report.pivots, "seconds_search": report.seconds_search}
    if not hasattr(report, "iterations"):
        return {}
    kept = {"passes": report.iterations, "in_float64": report.refinement_iterations, "newton": report.newton_iterations}
    return kept | {"status": report.status, "error": report.marginal_error}


def clouds(n, d, shape=()):
    torch.manual_seed(0)
    x, y = torch.randn(*shape, n, d, device="cuda"), torch.randn(*shape, n, d, device="cuda")
    return x, 0.8 * y + 0.3


def solve(n, d, metric, share, tol, **more):
    x, y = clouds(n, d)
    mean = float(torch.cdist(x[:4000].double(), y[:4000].double()).pow(2 if metric == X2 else 1).mean())
    return lambda: monge.solve_sample(x, y, reg=share * mean, metric=metric, tol=tol, **more)


def matrix(n, share, tol):
    x, y = clouds(n, 3)
    cost = torch.cdist(x, y).square()
    return lambda: monge.solve(cost, reg=share * float(cost.mean()), tol=tol)


def loss(n, d, p, tol):
    torch.manual_seed(0)
    x, y = torch.randn(n, d, device="cuda"), 0.9 * torch.randn(n, d, device="cuda") + 0.2
    mean = float((torch.cdist(x[:4000], y[:4000]) ** p / p).mean())
    x.requires_grad_()
    of = SamplesLoss(p=p, blur=(0.05 * mean) ** (1 / p), tol=tol)

    def call():
        x.grad = None
        of(x, y).backward()

    return call


def newton_batch(problems, n):
    torch.manual_seed(0)
    costs = torch.rand(problems, n, n, device="cuda", dtype=torch.float64)
    return lambda: monge.solve_batch(costs, reg=0.01, method="newton", tol=1e-6)


def batch(problems, n, d):
    x, y = clouds(n, d, (problems,))
    return lambda: monge.solve_sample_batch(x, y, reg="auto", tol=1e-3)


def exact(n, d, uniform):
    x, y = (points.double() for points in clouds(n, d))
    a, b = torch.rand(2, n, device="cuda", dtype=torch.float64) + 0.1
    return lambda: monge.solve_exact_sample(x, y, *(() if uniform else (a / a.sum(), b / b.sum())))


def rows():
    """Names, and functions that make the calls."""
    for n, d in ((1000, 64), (2000, 3), (10000, 3), (10000, 64), (10000, 512), (50000, 64)):
        for share in (0.05, 0.01):
            for tol in (1e-3, 1e-6):
                name = f"solve_sample, {n} x {d}, eps {100 * share:g} %, {tol:g}"
                yield name, lambda n=n, d=d, e=share, t=tol: solve(n, d, X2, e, t)
                if n == 10000:
                    yield name + ", euclidean", lambda n=n, d=d, e=share, t=tol: solve(n, d, DISTANCE, e, t)
                if share == 0.01 and tol == 1e-6:
                    for method in ("sinkhorn", "newton"):
                        more = {"method": method}
                        yield f"{name}, {method}", lambda n=n, d=d, m=more: solve(n, d, X2, 0.01, 1e-6, **m)
    for tol in (1e-3, 1e-6):
        yield f"solve, matrix of 10000 x 10000, eps 5 %, {tol:g}", lambda t=tol: matrix(10000, 0.05, t)
    for n, d in ((1000, 64), (2000, 3), (10000, 3), (10000, 64)):
        for p in (1, 2):
            for tol in (1e-3, 1e-6):
                name = f"SamplesLoss and backward, p = {p}, {n} x {d}, {tol:g}"
                yield name, lambda n=n, d=d, p=p, t=tol: loss(n, d, p, t)
    for problems, n, d in ((64, 1000, 64), (1000, 128, 64), (1000, 128, 8)):
        yield f"solve_sample_batch, {problems} of {n} x {d}, 0.001", lambda k=problems, n=n, d=d: batch(k, n, d)
    yield "solve_batch, newton, 64 of 200 x 200, 1e-06", lambda: newton_batch(64, 200)
    for n, d, uniform in ((2000, 16, True), (20000, 64, True), (20000, 64, False), (50000, 16, True), (100000, 16, True)):
        name = f"solve_exact_sample, {n} x {d}, {'uniform' if uniform else 'random'} weights"
        yield name, lambda n=n, d=d, u=uniform: exact(n, d, u)
    x, y = clouds(256, 784)
    pairs = OTPairs()
    yield "OTPairs, 256 x 784", lambda: lambda: pairs(x, y)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--only", action="append", default=[])
    given = parser.parse_args()
    about = {"program": "bench/python_on_cuda.py", **provenance("torch"), "device": torch.cuda.get_device_name()}
    about["versions"]["monge"] = monge.__version__
    print(json.dumps(about), flush=True)
    for name, make in rows():
        if given.only and not any(word in name for word in given.only):
            continue
        row = {"call": name}
        try:
            call = make()
            first, result = seconds_of(call)
            times = []
            while len(times) < 3 or (sum(times) < given.seconds and len(times) < 50):
                times.append(1e3 * seconds_of(call)[0])
            low, median, high = statistics.quantiles(times, n=4)
            row |= {
                "ms": round(median, 3),
                "quartiles": [round(low, 3), round(high, 3)],
                "first_ms": round(1e3 * first, 2),
            }
            row |= work_of(result) | counts(call)
        except Exception as error:
            row["failed"] = f"{type(error).__name__}: {error}".splitlines()[0]
        print(json.dumps(row | {"load": round(os.getloadavg()[0], 2)}), flush=True)


if __name__ == "__main__":
    main()
