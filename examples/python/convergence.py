"""
Sweeps to a tolerance
=====================

At a small eps plain sweeps crawl. Overrelaxed ones, after some at larger eps (grey), are the default, and where these
would take long, too, Newton's method takes over. The tolerance is on the marginal error, evaluated in float64 at the
end. What it leaves of the error of the value is to the right, beside the gap that the report has.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

import monge
import monge.plot

random = np.random.default_rng(0)
x, y = random.normal(size=(400, 2)), random.uniform(-2, 2, size=(400, 2))
ways = {
    "plain sweeps": {"method": "sinkhorn", "schedule": "alternating", "annealing": 1.0},
    "overrelaxed": {"method": "sinkhorn"},
    "auto": {},
}
warnings.simplefilter("ignore", monge.ConvergenceWarning)  # 3000 plain sweeps are not enough.
results = {
    name: monge.solve_sample(x, y, reg=0.01, tol=1e-8, max_iter=3000, precision="float64", **options)
    for name, options in ways.items()
}
exact = results["auto"].value

tolerances = 10.0 ** -np.arange(1, 8)
short = [monge.solve_sample(x, y, reg=0.01, tol=tolerance, method="sinkhorn") for tolerance in tolerances]

# %%
# The picture.
figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
for k, (name, result) in enumerate(results.items()):
    monge.plot.convergence(result, axes[0], color=f"C{k}").get_lines()[-1].set_label(f"{name}: {result.status}")
axes[0].set_xscale("log")
axes[0].set_ylim(1e-9, 10)
axes[0].legend(loc="lower left")
axes[1].loglog(tolerances, [result.marginal_error for result in short], "o-", label="marginal error")
axes[1].loglog(tolerances, [abs(result.value - exact) for result in short], "s-", label="error of the value")
axes[1].loglog(tolerances, [abs(result.gap) for result in short], "x--", label="gap")
axes[1].set_xlabel("tolerance")
axes[1].legend()
figure.savefig("convergence.png", dpi=120)
