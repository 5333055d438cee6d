"""Seconds of one iteration of POT's Sinkhorn solvers at the sizes of cpu_sweep, as JSON. Needs numpy and POT from PyPI."""
import json
import time

import numpy as np
import ot

N, SWEEPS = 10_000, 3


def seconds(method, cost, a, b):
    def run(iterations):
        start = time.perf_counter()
        ot.sinkhorn(a, b, cost, 0.1, method=method, numItermax=iterations, stopThr=0, warn=False)
        return time.perf_counter() - start

    run(1)
    return (run(1 + SWEEPS) - run(1)) / SWEEPS


results = []
for d in (3, 64):
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal((N, d), dtype=np.float32) / np.float32(np.sqrt(d)) for _ in range(2))
    cost = ot.dist(x, y)
    a = np.full(N, 1 / N, np.float32)
    for method in ("sinkhorn", "sinkhorn_log"):
        results.append({"solver": method, "n": N, "d": d, "seconds_per_iteration": seconds(method, cost, a, a)})
        print(results[-1], flush=True)
print(json.dumps({"pot": ot.__version__, "numpy": np.__version__, "results": results}))
