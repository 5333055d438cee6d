"""
A metric taught by a few pairs
==============================

The entropic map carries new points, too. Its derivatives fit a metric to the few points whose images are known.

.. image:: /docs/images/entropic_map_loss.jpg
   :alt: the images of 12 known points under the map before and after, and the weights of both axes by step
"""

# sphinx_gallery_thumbnail_path = "docs/images/entropic_map_loss.jpg"
import matplotlib.pyplot as plt
import torch

import monge

# %%
# The first coordinate moves by 2 and the second is drawn anew, so a good metric looks at the first alone.
generator = torch.Generator().manual_seed(0)
x = torch.randn(300, 2, generator=generator, dtype=torch.float64)
y = torch.stack([x[:, 0] + 2, torch.randn(300, generator=generator, dtype=torch.float64)], 1)
known = torch.linspace(-1.5, 1.5, 12, dtype=torch.float64)
points = torch.stack([known, 2 * torch.sin(5 * known)], 1)
images = known + 2


def mapped(weights):
    """The images of the known points, where distances along the axes have these weights."""
    result = monge.solve_sample(x * weights, y * weights, reg=0.1, tol=1e-7)
    return result.transform(points * weights) / weights


logarithms = torch.zeros(2, dtype=torch.float64, requires_grad=True)
optimiser = torch.optim.Adam([logarithms], lr=0.1)
losses, path = [], []
for _ in range(60):
    optimiser.zero_grad()
    loss = (mapped(logarithms.exp())[:, 0] - images).square().mean()
    loss.backward()
    optimiser.step()
    losses.append(loss.item())
    path.append(logarithms.detach().exp())

# %%
# The picture.
figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
for ax, weights, title in zip(axes, (torch.ones(2, dtype=torch.float64), path[-1]), ("equal weights", "learned")):
    found = mapped(weights)[:, 0]
    ax.plot(known, images, "k-", lw=0.8)
    ax.plot(known, found, "o")
    ax.set(title=title, xlabel="first coordinate", ylabel="that of the image")
axes[2].plot(torch.stack(path).numpy(), label=("first axis", "second axis"))
axes[2].set(title="weights, by step", xlabel="step")
axes[2].legend()
figure.savefig("entropic_map_loss.png", dpi=120)
