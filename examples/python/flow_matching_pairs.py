"""
Pairs for flow matching
=======================

Straight paths from noise to data cross less where the pairs of a mini-batch are drawn from its plan.

.. image:: /docs/images/flow_matching_pairs.jpg
   :alt: paths of independent pairs, which cross, and of pairs from the plan
"""

# sphinx_gallery_thumbnail_path = "docs/images/flow_matching_pairs.jpg"
import matplotlib.pyplot as plt
import torch

import monge.torch

generator = torch.Generator().manual_seed(0)
noise = torch.randn(256, 2, generator=generator)
angle = 6.283 * torch.rand(256, generator=generator)
data = 3 * torch.stack([angle.cos(), angle.sin()], 1) + 0.1 * torch.randn(256, 2, generator=generator)

pairs = monge.torch.OTPairs(reg=0.05)
start, end = pairs(noise, data)
length = [(b - a).norm(dim=1).mean().item() for a, b in ((noise, data), (start, end))]

# %%
# The picture.
figure, axes = plt.subplots(1, 2, figsize=(8, 4), layout="constrained")
for ax, (a, b), title in zip(axes, ((noise, data), (start, end)), ("independent", "from the plan")):
    ax.plot(*torch.stack([a, b], 1).permute(2, 1, 0).numpy(), color="0.8", lw=0.5)
    ax.plot(*b.T, "C1.", ms=2)
    ax.set_title(f"{title}: {(b - a).norm(dim=1).mean():.2f}")
figure.savefig("flow_matching_pairs.png", dpi=120)
