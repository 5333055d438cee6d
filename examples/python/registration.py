"""Registration of shapes: a curve flows to another down the gradient of the Sinkhorn divergence."""

import matplotlib.pyplot as plt
import numpy as np

import monge

angle = np.linspace(0, 2 * np.pi, 200, endpoint=False)
circle = np.stack([np.cos(angle), np.sin(angle)], 1)
star = circle * (1 + 0.4 * np.cos(5 * angle))[:, None] + [2.0, 0.5]

points, values = circle.copy(), []
figure, ax = plt.subplots(figsize=(6, 4))
for step in range(40):
    if step % 5 == 0:
        ax.plot(*points.T, ".", ms=2, color=plt.cm.viridis(step / 40))
    divergence = monge.sinkhorn_divergence(points, star, reg=0.01, tol=1e-4)
    values.append(divergence.value)
    points -= 0.06 * len(points) * divergence.gradients().x  # Weights are 1 / n: so a step is an eighth of the way.
ax.plot(*star.T, "k.", ms=1)
ax.set_aspect("equal")
ax.set_title(f"divergence {values[0]:.2f} -> {values[-1]:.1e}")
figure.savefig("registration.png", dpi=120, bbox_inches="tight")
