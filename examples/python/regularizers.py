"""
Three regularisers
==================

Domain adaptation by entropy, a quadratic term and a group lasso: what each makes of the plan and of the map.
"""

import matplotlib.pyplot as plt
import numpy as np

import monge

rng = np.random.default_rng(0)
classes = np.repeat(np.arange(3), 30)
centres = np.array([[0.0, 0.0], [2.2, 0.0], [1.1, 1.8]])
sheared = np.array([[0.9, 0.4], [-0.3, 1.1]])
source = centres[classes] + 0.45 * rng.normal(size=(90, 2))
target = (centres[classes] + 0.45 * rng.normal(size=(90, 2))) @ sheared + [4.0, 1.0]
cost = ((source[:, None] - target) ** 2).sum(-1)
cost /= cost.max()

results = {
    "entropy": monge.solve(cost, reg=0.02),
    "quadratic": monge.solve_regularized(cost, quadratic=20.0),
    "group lasso": monge.solve_regularized(cost, group_lasso=0.02, groups=classes),
}

# %%
# The picture.
figure, axes = plt.subplots(2, 3, figsize=(10, 6.5), layout="constrained")
entries, mixed, accuracy = {}, {}, {}
for (name, result), (above, below) in zip(results.items(), axes.T):
    shares = result.average(np.eye(3)[classes], transpose=True)  # Of each class in what a target receives.
    accuracy[name] = np.mean(shares.argmax(1) == classes)
    mixed[name] = np.mean((shares > 0.01).sum(1))
    entries[name] = np.mean((result.plan * len(source) > 1e-6).sum(1))
    above.imshow(result.plan, cmap="magma_r", vmax=np.quantile(result.plan.max(1), 0.5))
    above.set_title(f"{name}: {entries[name]:.0f} entries a row")
    moved = result.average(target)
    below.scatter(*target.T, c="0.8", s=14)
    below.scatter(*moved.T, c=classes, cmap="brg", s=9)
    below.set_title(f"{accuracy[name]:.0%} right, {mixed[name]:.2f} classes a target", fontsize=10)
figure.savefig("regularizers.png", dpi=120)
