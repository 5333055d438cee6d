"""Distances on the CPU: losses with p = 1 beside GeomLoss, and exact transport of points beside that of their matrix.

usage: bench/distances.py

Solvers of a case take turns, as in `./dev speed`, whose rows these are. Losses: float32 tensors, forward and backward
by x, blur about 5 % of the mean distance, to 1e-3. Exact transport: x normal, y normal times 0.8 plus 0.5, random
weights; "points" makes the plan from points, "matrix" and POT's `emd2` take a matrix that is there. Prints JSON.
"""

import sys
from pathlib import Path

import numpy as np
from provenance import provenance
from scipy.spatial.distance import cdist

import monge

sys.path.append(str(Path(__file__).parent / "speed"))
from cases import Case, Solver, losses
from measure import measure, rounded


def exact(n, d, metric):
    random = np.random.default_rng(0)
    x, y = random.normal(size=(n, d)), random.normal(size=(n, d)) * 0.8 + 0.5
    a, b = random.random((2, n)) + 0.1
    a, b = a / a.sum(), b / b.sum()
    cost = cdist(x, y, metric)
    value = monge.solve_exact_sample(x, y, a, b, metric=metric).value

    def off(found):
        return abs(getattr(found, "value", found) / value - 1)

    def of_monge():
        yield Solver("points", lambda: monge.solve_exact_sample(x, y, a, b, metric=metric), off)
        yield Solver("matrix", lambda: monge.emd2(a, b, cost), off)

    def of_pot():
        import ot

        yield Solver("POT, matrix", lambda: ot.emd2(a, b, cost), off)

    return {"monge": of_monge, "pot": of_pot}


def main():
    about = provenance("torch", "geomloss", "POT")
    about["versions"]["monge"] = monge.__version__
    cases = [
        Case("loss, p = 1", {"n": n, "d": d, "blur": blur}, losses(n, d, blur, 1e-3, "cpu", p=1))
        for n, d, blur in ((2000, 3, 0.1), (2000, 3, 0.05), (2000, 64, 0.5), (1000, 64, 0.5))
    ]
    cases += [
        Case("exact", {"n": n, "d": 50, "metric": metric}, exact(n, 50, metric))
        for metric in ("euclidean", "cityblock")
        for n in (100, 300)
    ]
    absent, failed, rows = {}, {}, []
    for case in cases:
        rows += measure(case, "full", "cpu", absent, failed)
        print(case.key, file=sys.stderr, flush=True)
    print(rounded({"program": "bench/distances.py", **about, "absent": absent, "failed": failed, "rows": rows}))


if __name__ == "__main__":
    main()
