"""solve_sample beside POT and GeomLoss on the CPU: seconds, and the marginal error that each reached, as JSON.

usage: bench/beside_pot.py [--n 5000] [--d 32] [--threads N]

eps is 5 % of the mean cost. All get the same points in float64 (GeomLoss: float32, its usual type). The marginal error
is |P 1 - a|_1 + |P^T 1 - b|_1, evaluated in float64 from the potentials that each returns. POT stops on the 2-norm of
one marginal, which is asked to be 1e-6 / sqrt(n); GeomLoss has no tolerance, and is run at several `scaling`.
"""

import argparse
import json
import os
import platform
import time

import numpy as np


def marginal_error(f, g, x, y, eps):
    """From potentials in units of |x - y|^2, without a plan in memory."""
    n, m = len(x), len(y)
    row, column = np.zeros(n), np.zeros(m)
    for begin in range(0, n, 500):
        part = slice(begin, begin + 500)
        cost = (x[part] ** 2).sum(1)[:, None] + (y**2).sum(1) - 2 * x[part] @ y.T
        plan = np.exp((f[part, None] + g - cost) / eps) / (n * m)
        row[part] = plan.sum(1)
        column += plan.sum(0)
    return abs(row - 1 / n).sum() + abs(column - 1 / m).sum()


def timed(function, repeats):
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        result = function()
        seconds.append(time.perf_counter() - begin)
    return min(seconds), result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=5000)
    parser.add_argument("--d", type=int, default=32)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(given.threads)

    load = os.getloadavg()[0]

    import monge

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, given.n, given.d))
    y += 0.5
    runs = []

    def note(name, seconds, f, g, eps):
        runs.append(
            {"name": name, "seconds": round(seconds, 4), "marginal_error": float(marginal_error(f, g, x, y, eps))}
        )
        print(runs[-1], flush=True)

    seconds, result = timed(lambda: monge.solve_sample(x, y, tol=1e-6), 3)
    eps = result.reg
    note("monge.solve_sample, tol=1e-6", seconds, *result.potentials, eps)
    runs[-1]["sweeps"] = result.n_iter

    import ot

    def pot():
        return ot.solve_sample(x, y, reg=eps, tol=1e-6 / np.sqrt(given.n), max_iter=10000)

    seconds, theirs = timed(pot, 1)
    f, g = (eps * (u + np.log(given.n)) for u in theirs.potentials)
    note("ot.solve_sample", seconds, f, g, eps)

    import torch
    from geomloss import SamplesLoss

    torch.set_num_threads(given.threads)
    tensors = [torch.tensor(v, dtype=torch.float32) for v in (x, y)]
    for scaling in (0.5, 0.9, 0.98):
        # Its cost is half of ours: blur^2 = eps / 2.
        loss = SamplesLoss(
            blur=float(np.sqrt(eps / 2)), scaling=scaling, debias=False, potentials=True, backend="tensorized"
        )
        seconds, potentials = timed(lambda loss=loss: loss(*tensors), 1)
        f, g = (2 * v.double().numpy().ravel() for v in potentials)
        note(f"geomloss, scaling={scaling}", seconds, f, g, eps)

    print(
        json.dumps(
            {
                "program": "bench/beside_pot.py",
                "n": given.n,
                "d": given.d,
                "eps": eps,
                "threads": given.threads,
                "load_average_at_start": load,
                "machine": platform.processor() or platform.machine(),
                "versions": {"monge": monge.__version__, "pot": ot.__version__, "torch": torch.__version__},
                "runs": runs,
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
