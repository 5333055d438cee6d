"""
Attention with a transport plan
===============================

Softmax lets many queries read the same key. A transport plan reads each key as much as any other, and it trains
through :meth:`monge.OTResult.average` like softmax does.

.. image:: /docs/images/sinkhorn_attention.jpg
   :alt: the loss of both kinds of attention by step, and their matrices of attention after training
"""

# sphinx_gallery_thumbnail_path = "docs/images/sinkhorn_attention.jpg"
import matplotlib.pyplot as plt
import torch

import monge

# %%
# Each of 60 items is seen twice, with noise, among features that say nothing. A query has to find its twin's value.
n, signal, noise, width = 60, 3, 8, 4
generator = torch.Generator().manual_seed(0)
item = torch.randn(n, signal, generator=generator)
values = torch.randn(n, width, generator=generator)


def view():
    seen = item + 0.3 * torch.randn(n, signal, generator=generator)
    return torch.cat([seen, torch.randn(n, noise, generator=generator)], 1)


queries, keys = view(), view()


def plan_attention(q, k, v):
    return monge.solve_sample(q, k, metric="dot", reg=1.0, tol=1e-5).average(v)


def softmax_attention(q, k, v):
    return torch.softmax(q @ k.T, 1) @ v


losses, seen = {}, {}
for name, attention in {"plan": plan_attention, "softmax": softmax_attention}.items():
    start = torch.Generator().manual_seed(1)
    weights = [(0.3 * torch.randn(signal + noise, width, generator=start)).requires_grad_() for _ in range(2)]
    optimiser = torch.optim.Adam(weights, lr=0.05)
    losses[name] = []
    for _ in range(80):
        optimiser.zero_grad()
        loss = (attention(queries @ weights[0], keys @ weights[1], values) - values).square().mean()
        loss.backward()
        optimiser.step()
        losses[name].append(loss.item())
    with torch.no_grad():
        seen[name] = attention(queries @ weights[0], keys @ weights[1], torch.eye(n))

# %%
# The picture.
figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
for name, path in losses.items():
    axes[0].plot(path, label=name)
axes[0].set(title="loss, by step", xlabel="step", yscale="log")
axes[0].legend()
for ax, (name, matrix) in zip(axes[1:], seen.items()):
    ax.imshow(matrix.sqrt().numpy(), vmin=0, vmax=1, cmap="magma")
    read = matrix.sum(0)
    ax.set_title(f"{name}: keys read {read.min():.2f} to {read.max():.2f} times")
    ax.set(xlabel="key", ylabel="query")
figure.savefig("sinkhorn_attention.png", dpi=120)
