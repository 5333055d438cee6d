"""Monge beside regot (PyPI; SPLR and SSNS of the same papers) on the CPU: `python bench/beside_regot.py [--size N]`.

Both solve the problems of the papers, n = m, eps = 1e-3 of the largest cost, float64 costs, to an L2 gradient of 1e-8,
taking turns on the same cores. Of regot the call alone counts, in Fortran order as it wants its costs; of Monge the
whole process `monge solve --cost`, reading of the file included. regot is no dependency of Monge: it is taken from the
Python that runs this. The L2 gradient is of the plan that each returns, by NumPy, or by Monge's certificate. Medians of
--runs calls; JSON on stdout.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from provenance import provenance

try:
    import regot
except ImportError:
    sys.exit("regot: is not installed for this Python; pip install regot==0.0.3, in an environment of its own")

EPS = 1e-3
TOLERANCE = 1e-8


def gaussians(size, offset):
    random = np.random.default_rng(1)
    x, y = random.standard_normal((size, 20)), random.standard_normal((size, 20)) + offset
    costs = (x**2).sum(1)[:, None] + (y**2).sum(1) - 2 * x @ y.T
    return np.maximum(costs, 0), np.ones(size), np.ones(size)


def mixture(size):
    x = np.linspace(0, 5, size)

    def density(mean, deviation):
        return np.exp(-0.5 * ((x - mean) / deviation) ** 2) / deviation

    return (x[:, None] - x) ** 2, np.exp(-x), 0.2 * density(1, 0.2) + 0.8 * density(3, 0.5)


PROBLEMS = {"Synthetic I iid": lambda size: gaussians(size, 0), "Synthetic I diff": lambda size: gaussians(size, 2),
            "Synthetic II": mixture}


class Regot:
    def __init__(self, method, costs, a, b):
        self.solve = getattr(regot, f"sinkhorn_{method}")
        self.costs, self.a, self.b = np.asfortranarray(costs), a, b

    def run(self):
        wall, cpu = time.perf_counter(), time.process_time()
        result = self.solve(self.costs, self.a, self.b, EPS, tol=TOLERANCE, max_iter=3000)
        seconds = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        difference = np.concatenate([result.plan.sum(1) - self.a, result.plan.sum(0) - self.b])
        return seconds | {"iterations": result.niter, "l2": float(np.linalg.norm(difference))}


class Monge:
    def __init__(self, program, method, folder):
        self.command = [program, "solve", "--cost", folder / "costs.npy", "--a", folder / "a.npy", "--b",
                        folder / "b.npy", "--eps", str(EPS), "--method", method, "--criterion", "gradient",
                        "--tolerance", str(TOLERANCE), "--device", "cpu", "--out", folder / "result", "--json"]

    def run(self):
        def children():
            usage = resource.getrusage(resource.RUSAGE_CHILDREN)
            return usage.ru_utime + usage.ru_stime

        wall, cpu = time.perf_counter(), children()
        output = subprocess.run(self.command, check=True, capture_output=True, text=True).stdout
        seconds = {"wall": time.perf_counter() - wall, "cpu": children() - cpu}
        report = json.loads(output)
        return seconds | {"iterations": report["iterations"], "l2": report["gradient_norm"]}


def median(runs):
    """Of each number; three digits of those that are not counts."""
    middle = {key: statistics.median_low([run[key] for run in runs]) for key in runs[0]}
    return {key: value if isinstance(value, int) else float(f"{value:.3g}") for key, value in middle.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--monge", default="build/cli/monge", help="the program")
    parser.add_argument("--size", default=2000, type=int, help="n = m")
    parser.add_argument("--runs", default=3, type=int, help="of each solver, whose median counts")
    arguments = parser.parse_args()
    program = Path(arguments.monge).resolve()
    about = provenance("regot")
    rows = []
    for name, make in PROBLEMS.items():
        costs, a, b = make(arguments.size)
        costs, a, b = costs / costs.max(), a / a.sum(), b / b.sum()
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            for file, array in {"costs": costs, "a": a, "b": b}.items():
                np.save(folder / f"{file}.npy", array)
            solvers = {f"regot {method}": Regot(method, costs, a, b) for method in ("splr", "ssns")}
            solvers |= {f"monge {method}": Monge(program, method, folder) for method in ("auto", "splr")}
            runs = {solver: [] for solver in solvers}
            for _ in range(arguments.runs):
                for solver, one in solvers.items():
                    runs[solver].append(one.run())
        medians = {solver: median(all_runs) for solver, all_runs in runs.items()}
        best = {clock: min(medians[f"regot {method}"][clock] for method in ("splr", "ssns")) for clock in ("wall", "cpu")}
        shares = {clock: float(f"{medians['monge auto'][clock] / best[clock]:.3g}") for clock in best}
        rows.append({"problem": name, "solvers": medians, "auto_over_best_of_regot": shares})
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    info = json.loads(subprocess.run([program, "info", "--json"], check=True, capture_output=True, text=True).stdout)
    about["versions"]["monge"] = info["versions"]["monge"]
    print(json.dumps(about | {
        "n": arguments.size, "m": arguments.size, "eps": EPS, "tolerance": TOLERANCE,
        "runs": arguments.runs, "problems": rows}, indent=1))


if __name__ == "__main__":
    main()
