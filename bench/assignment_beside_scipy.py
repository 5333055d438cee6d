"""Linear sum assignment on the CPU: Monge beside SciPy's function, whole calls, the best of a few, milliseconds.

SciPy solves one matrix after the other. Monge does the same with one thread, and solves the batch in one call with one
thread and with all. Costs are uniform random numbers; the pairs must be SciPy's.

usage: assignment_beside_scipy.py OUTPUT.json
"""

import json
import os
import sys
import time

import numpy as np
import scipy
from scipy.optimize import linear_sum_assignment

import monge

CASES = [(512, 16, 16, "f8"), (512, 32, 32, "f8"), (512, 64, 64, "f8"), (512, 64, 64, "f4"), (512, 100, 20, "f8")]
CASES += [(32, 256, 256, "f8"), (1, 256, 256, "f8"), (8, 512, 512, "f4"), (1, 1000, 1000, "f8"), (1, 1000, 3000, "f8")]


def best_of(call, seconds=0.5):
    times = []
    while not times or (sum(times) < seconds and len(times) < 50):
        start = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - start)
    return round(1e3 * min(times), 4), result


def measure(problems, rows, columns, dtype):
    costs = np.random.default_rng(0).random((problems, rows, columns)).astype(dtype)
    row = {"problems": problems, "rows": rows, "columns": columns, "dtype": dtype}
    row["scipy"], expected = best_of(lambda: [linear_sum_assignment(cost) for cost in costs])
    row["one_by_one"], found = best_of(lambda: [monge.linear_sum_assignment(cost, n_threads=1) for cost in costs])
    row["batch_one_thread"], _ = best_of(lambda: monge.linear_sum_assignment(costs, n_threads=1))
    row["batch"], batch = best_of(lambda: monge.linear_sum_assignment(costs))
    pairs = np.array(expected)
    row["same_pairs"] = bool((pairs == np.array(found)).all() and (pairs == np.stack(batch, 1)).all())
    print(json.dumps(row), flush=True)
    return row


rows = [measure(*case) for case in CASES]
about = {"command": "bench/assignment_beside_scipy.py", "threads": os.cpu_count(), "scipy": scipy.__version__}
with open(sys.argv[1], "w") as file:
    json.dump({**about, "versions": dict(monge.component_versions()), "rows": rows}, file, indent=1)
