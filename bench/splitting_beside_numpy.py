"""An iteration of splitting beside a copy of its bytes and NumPy's recursion, on the CPU, as JSON.

usage: bench/splitting_beside_numpy.py [--program build/bench/splitting_cpu] [--sizes 1000 2000]

The program's table (random costs, float32 storage), and for its quadratic and group terms the same recursion [RDROT,
equations 6 and 8 to 10] in NumPy, with buffers that are made once. Microseconds an iteration, the least of many.
"""

import argparse
import json
import os
import subprocess
import time
from pathlib import Path

import numpy as np
from provenance import provenance


def numpy_iterations(n, dtype, groups=None):
    """A function that does one iteration."""
    costs = np.random.default_rng(0).random((n, n), dtype=np.float32).astype(dtype)
    p = q = np.full(n, 1 / n, dtype)
    step = 2 / (2 * n)
    scaled = costs * dtype(step)
    x = np.outer(p, q)
    phi, psi, a, b = (np.zeros(n, dtype) for _ in range(4))
    ends = None if groups is None else [n * g // groups for g in range(groups + 1)]
    alpha = 0.0

    def iterate():
        nonlocal phi, psi, a, b, alpha
        np.add(x, phi[:, None], out=x)
        np.add(x, psi, out=x)
        np.subtract(x, scaled, out=x)
        np.maximum(x, 0, out=x)
        if ends is None:
            np.multiply(x, dtype(1 / (1 + step)), out=x)
        else:
            for begin, end in zip(ends, ends[1:]):
                part = x[begin:end]
                norm = np.sqrt(np.einsum("ij,ij->j", part, part))
                part *= np.maximum(1 - dtype(0.01 * step) / np.maximum(norm, dtype(1e-30)), 0)
        row, column = x.sum(1) - p, x.sum(0) - q
        mass = float(row.sum()) + 1
        mean = (2 * (mass - 1) - alpha) / (2 * n)
        a, b = a - row, b - column
        phi, psi = ((a - row + mean) / n).astype(dtype), ((b - column + mean) / n).astype(dtype)
        alpha += 1 - mass

    return iterate


def microseconds(function):
    least, end = np.inf, time.perf_counter() + 2
    while time.perf_counter() < end:
        begin = time.perf_counter()
        function()
        least = min(least, time.perf_counter() - begin)
    return 1e6 * least


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/bench/splitting_cpu")
    parser.add_argument("--sizes", default=[1000, 2000], type=int, nargs="+")
    given = parser.parse_args()
    about = {"program": "bench/splitting_beside_numpy.py"} | provenance("numpy")
    table = subprocess.run(
        [Path(given.program).resolve(), *map(str, given.sizes)],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_WAIT_POLICY": "passive"},
    ).stdout.splitlines()
    about["versions"]["monge"] = json.loads(table[0].removeprefix("# "))["versions"]["monge"]
    rows = []
    for line in table[2:]:
        n, terms, precision, ours, copy, _, evaluation = line.split("\t")
        row = {"n": int(n), "terms": terms, "precision": precision, "us": float(ours), "us_of_copy": float(copy)}
        row |= {"over_copy": round(row["us"] / row["us_of_copy"], 2), "ms_of_evaluation": float(evaluation)}
        groups = int(terms.rpartition("_")[2]) if terms.startswith("group_lasso") else None
        if terms == "quadratic" or groups:
            row["us_of_numpy"] = round(microseconds(numpy_iterations(int(n), np.dtype(precision).type, groups)), 1)
            row["numpy_over_ours"] = round(row["us_of_numpy"] / row["us"], 1)
        rows.append(row)
    print(json.dumps(about | {"runs": rows}, indent=1))


if __name__ == "__main__":
    main()
