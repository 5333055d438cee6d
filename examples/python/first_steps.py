"""
First steps
===========

A solve and what it says of itself; then a loss, the Sinkhorn divergence, whose gradient finds by how much one cloud has
moved. With squared distances that gradient is 2 (shift - shift*), so steps of 0.3 leave 40 % of the error each.
"""

import matplotlib.pyplot as plt
import numpy as np

import monge

# %%
# Two normal clouds; y lies at (4, 2).
random = np.random.default_rng(0)
shape = np.array([[1.0, 0.3], [0.0, 0.5]])
x, y = random.normal(size=(600, 2)) @ shape, random.normal(size=(500, 2)) @ shape + [4.0, 2.0]

# %%
# The solve, and what its result says.
result = monge.solve_sample(x, y, reg="auto")  # eps is 5 % of the mean cost
f, g = result.potentials
rows, columns = result.marginals
moved = result.transform()
print(result)
print(f"<C, P> = {result.value_linear:.3f}, of {result.value:.3f}; f in [{f.min():.2f}, {f.max():.2f}]")
print(f"|P 1 - a|_1 + |P^T 1 - b|_1 = {abs(rows - 1 / 600).sum() + abs(columns - 1 / 500).sum():.1e}")

# %%
# The loss, whose gradient moves x as a whole.
shift, values = np.zeros(2), []
for _ in range(12):
    divergence = monge.sinkhorn_divergence(x + shift, y, reg=0.1)
    values.append(divergence.value)
    shift = shift - 0.3 * divergence.gradients().x.sum(0)
error = abs(shift - (y.mean(0) - x.mean(0))).max()

# %%
# The picture.
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for points, label in ((x, "x"), (y, "y"), (moved, "x, moved by the plan"), (x + shift, "x, moved by the loss")):
    axes[0].plot(*points.T, ".", ms=3, label=label)
axes[0].legend()
axes[1].semilogy(values, "o-")
axes[1].set_xlabel("step")
axes[1].set_title("Sinkhorn divergence")
figure.savefig("first_steps.png", dpi=120)
