"""What a call from Python costs over C++: microseconds of whole calls and of the bound call inside, as JSON.

usage: bench/python_overhead.py [--repeats 40]

Problems are tiny (4 x 4), so that a call is little but overhead, and run on one thread. "whole" is the public function,
"core" the call of the library that it comes down to, with arrays and options ready; the difference is what reading of
arrays, options and the result object take. Both are timed by turns, 200 calls at a time, and the least of all turns
counts.
"""

import argparse
import json
import time

import numpy as np
from provenance import provenance


def least(functions, repeats, calls=200):
    """Microseconds of one call of each."""
    best = [float("inf")] * len(functions)
    for _ in range(repeats):
        for k, function in enumerate(functions):
            begin = time.perf_counter()
            for _ in range(calls):
                function()
            best[k] = min(best[k], (time.perf_counter() - begin) / calls)
    return [1e6 * seconds for seconds in best]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=40)
    given = parser.parse_args()
    about = provenance("numpy")

    import monge
    from monge import _core

    rng = np.random.default_rng(0)
    x, y, cost = rng.normal(size=(4, 2)), rng.normal(size=(4, 2)), rng.random((4, 4))
    logits = rng.normal(size=(1, 4, 4)).astype(np.float32)
    session, points, matrix = _core.cpu_session(1), _core.point_cloud(x, y), _core.cost_matrix(cost)
    eps, tolerance = {"eps": 1.0}, {"tolerance": 1e-4}
    quadratic = _core.regularizer(quadratic=1.0)
    held, to = _core.ProjectionOptions("mhc_paper", {}, None, None), np.empty_like(logits)
    calls = {
        "solve": (
            lambda: monge.solve(cost, reg=1.0, n_threads=1),
            lambda: _core.solve(session, matrix, None, None, None, None, eps, None),
        ),
        "solve_sample": (
            lambda: monge.solve_sample(x, y, reg=1.0, n_threads=1),
            lambda: _core.solve(session, points, None, None, None, None, eps, None),
        ),
        "solve_regularized": (
            lambda: monge.solve_regularized(cost, quadratic=1.0, n_threads=1),
            lambda: _core.solve_regularized(session, matrix, None, None, quadratic, None, None, None, tolerance, None),
        ),
        "project": (
            lambda: monge.project(logits, "mhc_paper", n_threads=1),
            lambda: _core.project(session, logits, to, held),
        ),
    }
    about["versions"]["monge"] = monge.__version__
    try:
        import torch

        import monge.torch
    except ImportError:
        pass
    else:
        about["versions"]["torch"] = torch.__version__
        tensors = [torch.tensor(v) for v in (x, y)]
        tensor, out = torch.tensor(logits), torch.empty(1, 4, 4)
        cloud = _core.point_cloud(*tensors)
        everything = _core.cpu_session(0)  # As monge.torch has it; a matrix is one thread's work.
        calls["solve_sample, torch"] = (
            lambda: monge.solve_sample(*tensors, reg=1.0, n_threads=1),
            lambda: _core.solve(session, cloud, None, None, None, None, eps, None),
        )
        calls["project, torch"] = (
            lambda: monge.torch.project(tensor, "mhc_paper"),
            lambda: _core.project(everything, tensor, out, held),
        )
    found = {}
    for name, functions in calls.items():
        whole, core = least(functions, given.repeats)
        found[name] = {"whole": round(whole, 2), "core": round(core, 2), "overhead": round(whole - core, 2)}
    print(json.dumps(about | {"microseconds": found}, indent=1))


if __name__ == "__main__":
    main()
