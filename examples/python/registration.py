"""
Flows of shapes
===============

A curve flows to another down the gradient of the Sinkhorn divergence. Down the gradient of OT alone it ends short of
it, nearer to its mean: that is the bias of the entropy, which the divergence takes away.
"""

import matplotlib.pyplot as plt
import numpy as np

import monge

angle = np.linspace(0, 2 * np.pi, 200, endpoint=False)
circle = np.stack([np.cos(angle), np.sin(angle)], 1)
star = circle * (1 + 0.4 * np.cos(5 * angle))[:, None] + [2.0, 0.5]


def with_debias(points):
    return monge.sinkhorn_divergence(points, star, reg=0.1, tol=1e-4)


def without(points):
    return monge.solve_sample(points, star, reg=0.1, tol=1e-4)


figure, axes = plt.subplots(1, 2, figsize=(11, 4), sharey=True, layout="constrained")
ends, values = {}, {}
for ax, loss in zip(axes, (with_debias, without)):
    points, values[loss.__name__] = circle.copy(), []
    for step in range(40):
        if step % 5 == 0:
            ax.plot(*points.T, ".", ms=2, color=plt.cm.viridis(step / 40))
        made = loss(points)
        values[loss.__name__].append(made.value)
        points -= 0.2 * len(points) * made.gradients().x  # Weights are 1 / n: so a step is 40 % of the way.
    ends[loss.__name__] = points
    ax.plot(*star.T, "k.", ms=1)
    ax.set_aspect("equal")
    ax.set_title(f"{loss.__name__.replace('_', ' ')}: {values[loss.__name__][0]:.2f} -> {values[loss.__name__][-1]:.1e}")
figure.savefig("registration.png", dpi=120)
