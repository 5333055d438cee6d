"""Monge beside POT, GeomLoss, OTT-JAX and flash-sinkhorn on entropic OT of two point clouds: milliseconds of a solve
from points to potentials, and the marginal error that each reached, as JSON.

usage: bench/beside_peers.py [--device cpu|cuda] [--n 5000] [--d 32] [--tolerance 1e-6] [--eps-relative 0.05]
                             [--only NAME...]

Normal clouds, one moved by 1/2 in each coordinate; costs |x - y|^2; eps is a share of their mean. The marginal error is
|P 1 - a|_1 + |P^T 1 - b|_1 of the potentials that each returns, evaluated in float64 and outside the clock. Each stops
by its own rule, which is set so that this error comes to the tolerance where the rule can: OTT's is the same sum, POT's
the 2-norm of one marginal. GeomLoss has none, and is run at several `scaling`; flash-sinkhorn stops by how far
potentials move, and is run at several thresholds. A first call, which may compile, is not counted; of the next ones the
least counts. Each of the peers is an option: what is not installed, or fails, is listed with its reason.
"""

import argparse
import json
import os
import platform
import time
import warnings
from importlib import metadata

import numpy as np


class Problem:
    def __init__(self, n, d, tolerance, eps_relative, device):
        random = np.random.default_rng(0)
        self.x, self.y = random.normal(size=(2, n, d))
        self.y += 0.5
        self.n, self.tolerance, self.device = n, tolerance, device
        squares = (self.x**2).sum(1).mean() + (self.y**2).sum(1).mean()
        self.eps = eps_relative * float(squares - 2 * self.x.mean(0) @ self.y.mean(0))

    def tensors(self, dtype):
        import torch

        return [torch.tensor(v, dtype=getattr(torch, dtype), device=self.device) for v in (self.x, self.y)]

    def marginal_error(self, f, g):
        """Of potentials in units of |x - y|^2, P_ij = exp((f_i + g_j - |x_i - y_j|^2) / eps) / n^2."""
        if self.device == "cpu":
            xp, x, y, f, g = np, self.x, self.y, *(np.asarray(v, np.float64).ravel() for v in (f, g))
        else:
            import torch as xp

            x, y, f, g = (xp.tensor(np.asarray(v), device=self.device).double() for v in (self.x, self.y, f, g))
            f, g = f.ravel(), g.ravel()
        error, column = 0.0, 0.0
        for begin in range(0, self.n, 500):
            part = slice(begin, begin + 500)
            cost = (x[part] ** 2).sum(1)[:, None] + (y**2).sum(1) - 2 * x[part] @ y.T
            plan = xp.exp((f[part, None] + g - cost) / self.eps) / self.n**2
            error += float(abs(plan.sum(1) - 1 / self.n).sum())
            column += plan.sum(0)
        return error + float(abs(column - 1 / self.n).sum())


def host(tensor):
    return tensor.detach().cpu().double().numpy()


# Each yields (name, function of no arguments, from what that returns to f and g in units of the cost, or None).


def monge_runs(problem):
    import monge

    def potentials(result):
        return (np.asarray(v if problem.device == "cpu" else host(v)) for v in result.potentials)

    for dtype in ("float64", "float32"):
        if problem.device == "cpu":
            points = [v.astype(dtype) for v in (problem.x, problem.y)]
        else:
            points = problem.tensors(dtype)
        yield (
            f"monge.solve_sample, {dtype}",
            lambda points=points: monge.solve_sample(*points, reg=problem.eps, tol=problem.tolerance),
            potentials,
        )


def pot_runs(problem):
    import ot

    points = (problem.x, problem.y) if problem.device == "cpu" else problem.tensors("float64")
    yield (
        "ot.solve_sample, float64",
        lambda: ot.solve_sample(
            *points, reg=problem.eps, tol=problem.tolerance / np.sqrt(problem.n), max_iter=10000, grad="detach"
        ),
        lambda result: (
            problem.eps * (np.asarray(v if problem.device == "cpu" else host(v)) + np.log(problem.n))
            for v in result.potentials
        ),
    )


def geomloss_runs(problem):
    from geomloss import SamplesLoss

    # Its cost is half of ours: blur^2 = eps / 2.
    blur = float(np.sqrt(problem.eps / 2))
    points = problem.tensors("float32")
    for scaling in (0.5, 0.9, 0.98):
        loss = SamplesLoss(blur=blur, scaling=scaling, debias=False, potentials=True, backend="tensorized")
        yield (
            f"geomloss tensorized, float32, scaling={scaling}",
            lambda loss=loss: loss(*points),
            lambda result: (2 * host(v) for v in result),
        )


def ott_runs(problem):
    import jax
    import jax.numpy as jnp
    from ott.geometry import pointcloud
    from ott.problems.linear import linear_problem
    from ott.solvers.linear import sinkhorn

    for dtype in ("float64", "float32"):
        jax.config.update("jax_enable_x64", dtype == "float64")
        x, y = (jnp.asarray(v, dtype) for v in (problem.x, problem.y))

        @jax.jit
        def solve(x, y):
            geometry = pointcloud.PointCloud(x, y, epsilon=problem.eps)
            solver = sinkhorn.Sinkhorn(threshold=problem.tolerance, max_iterations=10000)
            return solver(linear_problem.LinearProblem(geometry))

        def run(solve=solve, x=x, y=y):
            return jax.block_until_ready(solve(x, y))

        # Its plan has no weights in it: exp((f + g - C) / eps).
        yield (
            f"ott-jax, {dtype}",
            run,
            lambda result: (np.asarray(v, np.float64) + problem.eps * np.log(problem.n) for v in (result.f, result.g)),
        )


def flash_runs(problem):
    if problem.device == "cpu":
        raise RuntimeError("needs a GPU")
    from flash_sinkhorn import SamplesLoss

    points = problem.tensors("float32")
    for tf32 in (True, False):
        for threshold in (1e-3, 1e-5):
            loss = SamplesLoss(
                eps=problem.eps,
                n_iters=10000,
                use_epsilon_scaling=False,
                debias=False,
                potentials=True,
                normalize=False,
                allow_tf32=tf32,
                threshold=threshold,
            )
            yield (
                f"flash-sinkhorn, {'tf32' if tf32 else 'float32'}, threshold={threshold:g}",
                lambda loss=loss: loss(*points),
                lambda result: (host(v) for v in result),
            )


PEERS = {
    "monge": ("monge", monge_runs),
    "pot": ("POT", pot_runs),
    "geomloss": ("geomloss", geomloss_runs),
    "ott": ("ott-jax", ott_runs),
    "flash": ("flash-sinkhorn", flash_runs),
}


def synchronize(device):
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def milliseconds(function, device):
    """Least of the runs that a few seconds hold, seven at most, after one that is not counted."""
    result, times = None, []
    synchronize(device)
    while len(times) < 2 or (len(times) < 8 and sum(times) < 5):
        begin = time.perf_counter()
        result = function()
        synchronize(device)
        times.append(time.perf_counter() - begin)
    return 1e3 * min(times[1:]), result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--n", type=int, default=5000)
    parser.add_argument("--d", type=int, default=32)
    parser.add_argument("--tolerance", type=float, default=1e-6)
    parser.add_argument("--eps-relative", type=float, default=0.05, help="eps over the mean cost")
    parser.add_argument("--only", nargs="+", choices=PEERS, default=list(PEERS))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    problem = Problem(given.n, given.d, given.tolerance, given.eps_relative, given.device)
    report = {
        "program": "bench/beside_peers.py",
        "device": given.device,
        "n": given.n,
        "d": given.d,
        "tolerance": given.tolerance,
        "eps": problem.eps,
        "threads": len(os.sched_getaffinity(0)),
        "load_average": os.getloadavg()[0],
        "processor": platform.processor() or platform.machine(),
        "runs": [],
        "absent": {},
    }
    if given.device == "cuda":
        import torch

        report["gpu"] = torch.cuda.get_device_name()
    for name in given.only:
        package, runs = PEERS[name]
        try:
            version = metadata.version(package) if name != "monge" else __import__("monge").__version__
            for label, function, potentials in runs(problem):
                taken, result = milliseconds(function, given.device)
                error = float(problem.marginal_error(*potentials(result)))
                report["runs"].append(
                    {"name": label, "version": version, "ms": round(taken, 3), "marginal_error": error}
                )
        except Exception as error:  # A peer that is missing or fails is a line of the report.
            report["absent"][name] = f"{type(error).__name__}: {error}"
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
