"""
SamplesLoss in a training loop
==============================

A generator maps normal noise to two half moons. Its loss is the Sinkhorn divergence of a batch of its points to a batch
of data: :class:`monge.torch.SamplesLoss`, which has GeomLoss's arguments. The divergence is 0 for equal clouds, and its
gradient by a point leads to where the plan takes the point.

.. image:: /docs/images/samples_loss.jpg
   :alt: points of the generator before, during and after training, and the loss along the steps
"""

# sphinx_gallery_thumbnail_path = "docs/images/samples_loss.jpg"
import matplotlib.pyplot as plt
import torch

import monge.torch

# %%
# Data and generator. The batches are new ones at each step, as of a data loader.
random = torch.Generator().manual_seed(0)
torch.manual_seed(0)  # of the first weights


def moons(n):
    side = 2 * torch.randint(2, (n,), generator=random) - 1
    angle = torch.pi * torch.rand(n, generator=random)
    arcs = torch.stack([side * (angle.cos() + 0.5), side * (angle.sin() - 0.25)], 1)
    return arcs + 0.05 * torch.randn(n, 2, generator=random)


generator = torch.nn.Sequential(
    torch.nn.Linear(2, 128), torch.nn.ReLU(), torch.nn.Linear(128, 128), torch.nn.ReLU(), torch.nn.Linear(128, 2)
)

# %%
# The loop. blur is a length: the loss does not tell points apart that are much closer. Each solve starts from the
# potentials of the step before.
loss = monge.torch.SamplesLoss("sinkhorn", p=2, blur=0.05, tol=1e-3, warm_start=True)
optimiser = torch.optim.Adam(generator.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 400)
noise = torch.randn(1000, 2, generator=random)
seen, values = [], []
for step in range(400):
    if step in (0, 50):
        seen.append((step, generator(noise).detach()))
    value = loss(generator(torch.randn(400, 2, generator=random)), moons(400))
    optimiser.zero_grad()
    value.backward()
    optimiser.step()
    schedule.step()
    values.append(value.item())
seen.append((400, generator(noise).detach()))

# %%
# The picture.
figure, axes = plt.subplots(1, 4, figsize=(12, 3), layout="constrained")
data = moons(1000)
for axis, (step, points) in zip(axes, seen):
    axis.scatter(*data.T, s=2, color="silver")
    axis.scatter(*points.T, s=2, color="tab:blue")
    axis.set(title=f"step {step}", xlim=(-1.9, 1.9), ylim=(-1.4, 1.4), xticks=[], yticks=[])
axes[3].semilogy(values)
axes[3].set(title="loss", xlabel="step")
figure.savefig("samples_loss.png")
