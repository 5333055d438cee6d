"""
Flows of shapes
===============

A curve flows to another down the gradient of the Sinkhorn divergence. Down the gradient of OT alone it ends short of
it, nearer to its mean: that is the bias of the entropy, which the divergence takes away.
"""

import matplotlib.pyplot as plt
import numpy as np

import monge

# %%
# A circle, a star, and two losses.
angle = np.linspace(0, 2 * np.pi, 200, endpoint=False)
circle = np.stack([np.cos(angle), np.sin(angle)], 1)
star = circle * (1 + 0.4 * np.cos(5 * angle))[:, None] + [2.0, 0.5]
losses = {"with debias": monge.sinkhorn_divergence, "without": monge.solve_sample}

# %%
# The flows, each with the picture of its steps.
figure, axes = plt.subplots(1, 2, figsize=(11, 4), sharey=True, layout="constrained")
ends, values = {}, {}
for ax, (name, loss) in zip(axes, losses.items()):
    points, values[name] = circle.copy(), []
    for step in range(40):
        if step % 5 == 0:
            ax.plot(*points.T, ".", ms=2, color=plt.cm.viridis(step / 40))
        made = loss(points, star, reg=0.1, tol=1e-4)
        values[name].append(made.value)
        points -= 0.2 * len(points) * made.gradients().x  # Weights are 1 / n: so a step is 40 % of the way.
    ends[name] = points
    ax.plot(*star.T, "k.", ms=1)
    ax.set_aspect("equal")
    ax.set_title(f"{name}: {values[name][0]:.2f} -> {values[name][-1]:.1e}")
figure.savefig("registration.png", dpi=120)
