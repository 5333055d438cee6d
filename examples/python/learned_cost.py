"""
A cost learned from flows
=========================

How many go from group to group is known, not who goes where: the derivatives of the plan fit a metric to it.

.. image:: /docs/images/learned_cost.jpg
   :alt: the flows between nine groups, those of equal weights and those that were fitted, and the weights by step
"""

# sphinx_gallery_thumbnail_path = "docs/images/learned_cost.jpg"
import matplotlib.pyplot as plt
import torch

import monge

generator = torch.Generator().manual_seed(0)
x, y = (torch.randn(n, 2, generator=generator, dtype=torch.float64) for n in (300, 250))
ends = torch.tensor([-0.4, 0.4], dtype=torch.float64)
cells = [torch.bucketize(v, ends) @ torch.tensor([3, 1]) for v in (x, y)]
in_cells = [torch.eye(9, dtype=torch.float64)[cell] for cell in cells]


def flows(weights):
    """Mass from each of nine cells to each other, where a step along an axis costs its weight."""
    cost = ((x[:, None] - y) ** 2 * weights).sum(2)
    return in_cells[0].T @ monge.solve(cost, reg=0.3, tol=1e-8).plan @ in_cells[1]


truth = torch.tensor([0.5, 3.0], dtype=torch.float64)
observed = flows(truth)
logarithms = torch.zeros(2, dtype=torch.float64, requires_grad=True)
optimiser = torch.optim.Adam([logarithms], lr=0.1)
path = []
for _ in range(80):
    optimiser.zero_grad()
    loss = (flows(logarithms.exp()) - observed).square().sum()
    loss.backward()
    optimiser.step()
    path.append(logarithms.detach().exp())
learned = path[-1]

# %%
# The picture.
figure, axes = plt.subplots(1, 4, figsize=(12, 3), layout="constrained")
titles = ("observed", "equal weights", "learned")
for ax, weights, title in zip(axes, (truth, torch.ones(2, dtype=torch.float64), learned), titles):
    ax.imshow(flows(weights).sqrt().numpy(), vmin=0, vmax=observed.max().sqrt().item())
    ax.set_title(title)
axes[3].plot(torch.stack(path).numpy())
for weight in truth:
    axes[3].axhline(weight.item(), color="0.6", lw=0.8)
axes[3].set_title("weights, by step")
figure.savefig("learned_cost.png", dpi=120)
