"""
Accurate plans at tiny eps
==========================

Newton's method goes to an error of 1e-10 where sweeps alone would take tens of thousands of passes. At this eps the
plan is all but the best assignment, which SciPy finds.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import linear_sum_assignment

import monge
import monge.plot

random = np.random.default_rng(0)
cost = random.random((200, 200))
exact = cost[linear_sum_assignment(cost)].mean()

# %%
# The picture.
figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
for method, iterations, color in (("sinkhorn", 3000, "C0"), ("auto", 10000, "C1")):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", monge.ConvergenceWarning)  # 3000 sweeps are not enough.
        result = monge.solve(cost, reg=2e-4, tol=1e-10, method=method, max_iter=iterations)
    monge.plot.convergence(result, ax, color=color).get_lines()[-1].set_label(f"{method}: {result.status}")
ax.set_ylim(1e-11, 10)
ax.legend()
ax.set_title(f"<C, P> - exact = {result.value_linear - exact:.1e}")
figure.savefig("accurate_plan.png", dpi=120)
