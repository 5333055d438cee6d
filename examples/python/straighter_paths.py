"""
Straighter paths of flow matching
=================================

Flow matching fits a velocity to the straight lines between pairs of two samples. Where lines of independent pairs
cross, the velocity is their mean, so its paths bend, and following them takes many steps. The lines of the exact pairs
of a mini-batch cross much less: the paths are straighter, and few steps of Euler's method follow them.

.. image:: /docs/images/straighter_paths.jpg
   :alt: paths of both velocities from eight blobs to two moons, and the error of few steps
"""

# sphinx_gallery_thumbnail_path = "docs/images/straighter_paths.jpg"
import functools

import matplotlib.pyplot as plt
import numpy as np
import torch

import monge

generator = torch.Generator().manual_seed(0)
np.random.seed(0)  # The sampler's random numbers are NumPy's.


def draw(n):
    """Eight blobs on a ring, and two half moons."""
    corner = torch.pi / 4 * torch.randint(8, (n,), generator=generator)
    blobs = 4 * torch.stack([corner.cos(), corner.sin()], 1) + 0.3 * torch.randn(n, 2, generator=generator)
    side = 2 * torch.randint(2, (n,), generator=generator) - 1
    angle = torch.pi * torch.rand(n, generator=generator)
    moons = 2 * torch.stack([side * (angle.cos() + 0.5), side * (angle.sin() - 0.25)], 1)
    return blobs, moons + 0.1 * torch.randn(n, 2, generator=generator)


def velocity_of(pairs, steps=800, size=128):
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(3, 64), torch.nn.SiLU(), torch.nn.Linear(64, 64), torch.nn.SiLU(), torch.nn.Linear(64, 2)
    )
    optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        x, y = pairs(*draw(size))
        t = torch.rand(size, 1, generator=generator)
        loss = (net(torch.hstack([(1 - t) * x + t * y, t])) - (y - x)).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return lambda x, t: net(torch.hstack([x, x.new_full((len(x), 1), t)])).detach()


def follow(velocity, x, steps):
    """The path (steps + 1, n, 2) by Euler's method."""
    path = [x]
    for k in range(steps):
        path.append(path[-1] + velocity(path[-1], k / steps) / steps)
    return torch.stack(path)


def bend(path):
    """The mean square of velocity less displacement, over that of the displacement: 0 for straight, even paths."""
    moved = path[-1] - path[0]
    steps = (path[1:] - path[:-1]) * (len(path) - 1)
    return ((steps - moved).square().sum(-1).mean() / moved.square().sum(-1).mean()).item()


exact_pairs = functools.partial(monge.OTPlanSampler("exact").sample_plan, replace=False)
start, data = draw(500)
counts = (1, 2, 4, 8, 16)
paths, error, bends = {}, {}, {}
for name, pairs in {"independent pairs": lambda x, y: (x, y), "exact pairs": exact_pairs}.items():
    velocity = velocity_of(pairs)
    path = paths[name] = follow(velocity, start, 100)
    ends = [follow(velocity, start, count)[-1] for count in counts]
    error[name] = [(end - path[-1]).square().sum(1).mean().sqrt().item() for end in ends]
    bends[name] = bend(path)

# %%
# The picture.
figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
for ax, (name, path) in zip(axes, paths.items()):
    ax.plot(*path[:, :100].permute(2, 0, 1), color="0.6", lw=0.6)
    ax.plot(*start.T, ".", color="0.6", ms=2)
    ax.plot(*data.T, "C1.", ms=2)
    ax.plot(*path[-1].T, "C0.", ms=2)
    ax.set(title=f"{name}: bend {bends[name]:.3f}", aspect="equal")
for name, found in error.items():
    axes[2].loglog(counts, found, "o-", label=name)
axes[2].set_xscale("log", base=2)
axes[2].set(title="distance from the end of 100 steps", xlabel="steps of Euler's method")
axes[2].legend()
figure.savefig("straighter_paths.png", dpi=120)
