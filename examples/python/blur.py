"""
What blur does
==============

The targets are the sources, moved to the right. The entropic map of a wider blur takes each source to the average of
more targets, and so all of them towards the mean. The gradient of the Sinkhorn divergence has no such bias: for a
translation it is exact at every blur. As in GeomLoss eps is blur^2, and costs are half of the squared distance.
"""

import matplotlib.pyplot as plt
import numpy as np

import monge

# %%
# A disc of points, and the same points moved by 2.5.
random = np.random.default_rng(0)
x = random.uniform(-1, 1, size=(400, 2))
x = x[(x**2).sum(1) < 1]
y = x + [2.5, 0.0]

# %%
# For each blur: the displacement by the map, and by the gradient of the divergence.
blurs, bias, debiased, fields = np.geomspace(0.02, 2, 9), [], [], []
for blur in blurs:
    divergence = monge.sinkhorn_divergence(x, y, reg=blur**2, scale=0.5, tol=1e-8)
    fields.append(divergence.ab.transform() - x)
    bias.append(abs(fields[-1] - [2.5, 0.0]).mean())
    debiased.append(abs(-len(x) * divergence.gradients().x - [2.5, 0.0]).mean())

# %%
# The picture.
figure, axes = plt.subplots(1, 4, figsize=(14, 3), layout="constrained")
for ax, k in zip(axes, (0, 5, 8)):
    ax.quiver(*x.T, *fields[k].T, angles="xy", scale_units="xy", scale=1, width=0.003, color="0.6")
    ax.plot(*x.T, ".", ms=2)
    ax.plot(*(x + fields[k]).T, ".", ms=2)
    ax.set_title(f"blur {blurs[k]:.2g}")
    ax.set_aspect("equal")
axes[3].loglog(blurs, bias, "o-", label="entropic map")
axes[3].loglog(blurs, debiased, "o-", label="gradient of the divergence")
axes[3].set_xlabel("blur")
axes[3].set_title("error of the displacement")
axes[3].legend()
figure.savefig("blur.png", dpi=120)
