"""Monge beside regot and POT on quadratically regularised plans, on the CPU: `python bench/quadratic_beside.py`.

2-D normal clouds, one moved by 1/2, n = m, squared distances over the largest, uniform masses, float64: the plan of
lambda / 2 |X|^2 to an L1 residual of 1e-8, in turns on the same cores. regot: qrot_grssn (the fastest of its methods
here), tightening its tolerance until the plan has that residual; POT: ot.smooth.smooth_ot_dual (l2), which may end
short of it. Threads that wait sleep (OMP_WAIT_POLICY), as on a machine that others use too. Of these the call alone
counts; of Monge, set-up, solve and evaluation of bench/regularized_solves. Neither is a dependency of Monge: they are
taken from the Python that runs this (pip install regot POT). Medians; JSON on stdout.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from provenance import provenance

try:
    import ot
    import regot
except ImportError as error:
    sys.exit(f"{error.name}: is not installed for this Python; pip install regot POT, in an environment of its own")

RESIDUAL = 1e-8


def clouds(size):
    random = np.random.default_rng(0)
    x, y = random.standard_normal((size, 2)), random.standard_normal((size, 2)) + 0.5
    costs = ((x[:, None] - y[None]) ** 2).sum(-1)
    return costs / costs.max(), np.full(size, 1 / size)


def timed(call):
    begin = time.perf_counter()
    plan = call()
    return plan, time.perf_counter() - begin


def residual(plan, mass):
    return float(np.abs(plan.sum(1) - mass).sum() + np.abs(plan.sum(0) - mass).sum())


def run_regot(costs, mass, weight):
    fortran = np.asfortranarray(costs)
    for tolerance in (1e-8, 1e-9, 1e-10, 1e-11):
        plan, seconds = timed(lambda: regot.qrot_grssn(fortran, mass, mass, weight, tol=tolerance, max_iter=2000).plan)
        if residual(plan, mass) <= RESIDUAL:
            break
    return {"seconds": seconds, "residual": residual(plan, mass)}


def run_pot(costs, mass, weight, iterations):
    plan, seconds = timed(lambda: ot.smooth.smooth_ot_dual(mass, mass, costs, weight, reg_type="l2", stopThr=1e-12,
                                                           numItermax=iterations))
    return {"seconds": seconds, "residual": residual(plan, mass)}


def run_monge(program, costs, weight):
    """The same costs, through a file."""
    file = Path("/tmp") / f"monge_costs_{os.getpid()}.bin"
    costs.tofile(file)
    try:
        run = subprocess.run([program, "--costs", file, str(len(costs)), str(weight)], check=True, capture_output=True,
                             text=True, env=os.environ | {"OMP_WAIT_POLICY": "passive"})
    finally:
        file.unlink()
    words = run.stdout.splitlines()[-1].split()
    values = dict(zip(words[::2], words[1::2]))
    seconds = sum(float(values[key]) for key in ("setup_ms", "solve_ms", "evaluate_ms")) / 1000
    return {"seconds": seconds, "residual": float(values["residual_l1"]), "passes": int(values["passes"])}


def median(runs):
    return sorted(runs, key=lambda run: run["seconds"])[(len(runs) - 1) // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/bench/regularized_solves")
    parser.add_argument("--sizes", default=[1000, 2000], type=int, nargs="+")
    parser.add_argument("--weights", default=[1.0], type=float, nargs="+")
    parser.add_argument("--runs", default=3, type=int)
    parser.add_argument("--pot-iterations", default=3000, type=int, help="of L-BFGS")
    arguments = parser.parse_args()
    program = Path(arguments.program).resolve()
    about = provenance("regot", "POT")
    header = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    about["versions"]["monge"] = json.loads(header.removeprefix("# "))["versions"]["monge"]
    rows = []
    for size in arguments.sizes:
        costs, mass = clouds(size)
        for weight in arguments.weights:
            runs = {"monge": [], "regot": [], "POT": []}
            for _ in range(arguments.runs):
                runs["monge"].append(run_monge(program, costs, weight))
                runs["regot"].append(run_regot(costs, mass, weight))
                runs["POT"].append(run_pot(costs, mass, weight, arguments.pot_iterations))
            best = {name: median(of_name) for name, of_name in runs.items()}
            rows.append({"n": size, "weight": weight} | best
                        | {f"over_{name}": round(best[name]["seconds"] / best["monge"]["seconds"], 1)
                           for name in ("regot", "POT")})
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    report = {"residual_l1": RESIDUAL, "runs": arguments.runs, "problems": rows}
    print(json.dumps(about | report, indent=1))


if __name__ == "__main__":
    main()
