"""Unbalanced matching: mass that has no near partner is left over, so outliers drag nothing along."""

import matplotlib.pyplot as plt
import numpy as np

import monge
import monge.plot

random = np.random.default_rng(1)
x = random.normal(scale=0.4, size=(80, 2))
y = np.concatenate([x + [1.0, 0.0], random.normal(scale=0.2, size=(15, 2)) + [3.0, 4.0]])  # the last 15: outliers

balanced = monge.solve_sample(x, y, reg=0.02)
unbalanced = monge.solve_sample(x, y, reg=0.02, unbalanced=5.0)
error = [np.abs(result.transform() - x - [1.0, 0.0]).mean() for result in (balanced, unbalanced)]

figure, axes = plt.subplots(1, 2, figsize=(9, 4))
for ax, result, title in zip(axes, (balanced, unbalanced), ("balanced", "unbalanced, penalty 5")):
    monge.plot.displacement(result, ax)
    ax.set_title(f"{title}: {result.report.transported_mass:.2f} of the mass travels")
figure.savefig("outliers.png", dpi=120, bbox_inches="tight")
