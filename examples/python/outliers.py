"""
Outliers are left behind
========================

With a penalty instead of a marginal, mass that has no near partner does not travel, so outliers drag nothing along.
Where the targets alone are relaxed all sources travel, to what is near. The penalty is a price of mass in units of the
cost, so its root is about how far mass goes.
"""

import matplotlib.pyplot as plt
import numpy as np

import monge
import monge.plot

# %%
# 80 sources, their images, and 15 outliers.
random = np.random.default_rng(1)
x = random.normal(scale=0.4, size=(80, 2))
y = np.concatenate([x + [1.0, 0.0], random.normal(scale=0.2, size=(15, 2)) + [3.0, 4.0]])  # the last 15: outliers

# %%
# Three ways to treat the marginals: constraints on both, penalties on both, a penalty on the targets.
settings = {"balanced": None, "both relaxed": 5.0, "targets relaxed": (np.inf, 5.0)}
results = {name: monge.solve_sample(x, y, reg=0.02, unbalanced=penalty) for name, penalty in settings.items()}
error = {name: np.abs(result.transform() - x - [1.0, 0.0]).mean() for name, result in results.items()}

# %%
# The mass that travels, by the reach.
reaches = np.geomspace(0.3, 30, 12)
kept = [monge.solve_sample(x, y, reg=0.02, unbalanced=reach**2) for reach in reaches]

# %%
# The picture.
figure, axes = plt.subplots(1, 4, figsize=(16, 3.5), layout="constrained")
for ax, (name, result) in zip(axes, results.items()):
    monge.plot.displacement(result, ax)
    ax.set_title(f"{name}: {result.report.transported_mass:.2f} of the mass travels")
axes[3].semilogx(reaches, [result.report.transported_mass for result in kept], "o-", label="all")
axes[3].semilogx(reaches, [result.marginal_b[-15:].sum() for result in kept], "o-", label="to the outliers")
axes[3].set_xlabel("reach, the root of the penalty")
axes[3].set_title("mass that travels")
axes[3].legend()
figure.savefig("outliers.png", dpi=120)
