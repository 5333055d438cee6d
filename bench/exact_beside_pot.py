"""Exact transport: Monge beside POT's network simplex (ot.emd), cold whole calls, the best of a few.

POT gets the cost matrix from ot.dist, within its time, as its users make it. Sizes for which POT would take minutes run
Monge alone; memory is the growth of the peak of the process,
which the matrices of POT hide in later rows: a process of its own shows the memory of a shape.

usage: exact_beside_pot.py OUTPUT.json [SHAPE...]      SHAPE: n,d,uniform or n,d,random (weights)
"""

import json
import os
import resource
import sys
import time

import numpy as np
import ot

import monge

SHAPES = ["16,2,random", "32,2,random", "45,2,random", "64,2,random", "128,2,random"]
SHAPES += ["256,2,uniform", "256,2,random", "256,16,uniform", "256,16,random"]
SHAPES += ["1000,3,uniform", "2000,3,uniform", "2000,16,uniform", "2000,16,random", "5000,16,uniform"]
MOST_FOR_POT = 5000


def best_of(call, seconds=0.5):
    times, result = [], None
    while not times or (sum(times) < seconds and len(times) < 20):
        start = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - start)
    return min(times), result


def measure(shape):
    n, d, kind = shape.split(",")
    n, d = int(n), int(d)
    random = np.random.default_rng(0)
    x, y = random.normal(size=(n, d)), random.normal(size=(n, d)) * 0.8 + 0.5
    a, b = (np.full(n, 1 / n) if kind == "uniform" else random.random(n) + 0.1 for _ in "ab")
    a, b = a / a.sum(), b / b.sum()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds, result = best_of(lambda: monge.solve_exact_sample(x, y, a, b))
    report = result.report
    row = {"n": n, "d": d, "weights": kind, "monge_seconds": seconds, "status": report.status, "rounds": report.rounds}
    row |= {"pivots": report.pivots, "candidates": report.candidates, "gap": report.gap, "value": report.transport_cost}
    row |= {name: getattr(report, name) for name in ("seconds_start", "seconds_search", "seconds_pricing")}
    row["megabytes"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    if n <= MOST_FOR_POT:
        row["pot_seconds"], value = best_of(lambda: ot.emd2(a, b, ot.dist(x, y), numItermax=10**8))
        row["times_faster"] = row["pot_seconds"] / seconds
        row["relative_difference"] = abs(value - report.transport_cost) / value
    print(json.dumps(row), flush=True)
    return row


output, *shapes = sys.argv[1:]
rows = [measure(shape) for shape in shapes or SHAPES]
about = {"command": " ".join(["bench/exact_beside_pot.py", *shapes]), "threads": os.cpu_count(), "pot": ot.__version__}
with open(output, "w") as file:
    json.dump({**about, "versions": dict(monge.component_versions()), "rows": rows}, file, indent=1)
