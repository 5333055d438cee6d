"""
A shape in another pose
=======================

Two scans of one shell: the second is turned, moved, noisy and in another order. Their coordinates have nothing in common,
but the distances within do. Gromov-Wasserstein transport matches each point by these.
"""

import matplotlib.pyplot as plt
import numpy as np

import monge

random = np.random.default_rng(0)
n, noise = 600, 0.02
turn, around = random.uniform(0.5, 4 * np.pi, n), random.uniform(0, 2 * np.pi, n)
radius = np.exp(0.16 * turn)  # A tube that widens as it winds: a shell with no symmetry.
tube = 0.35 * radius
ring = radius + tube * np.cos(around)
shell = np.stack([ring * np.cos(turn), ring * np.sin(turn), tube * np.sin(around) - 0.9 * radius], 1) / radius.max()

rotation = np.linalg.qr(random.normal(size=(3, 3)))[0]
truth = random.permutation(n)
scan = (shell @ rotation.T + noise * random.normal(size=shell.shape))[truth] + 10

result = monge.solve_gromov_sample(shell, scan)
print(result)
for start in result.starts:
    print(f"  {start.kind}: {start.value:.2e} after {start.iterations} steps")

# %%
# Most points find themselves; the others find a neighbour that the noise has put in their place.
partner = result.topk(1)[0][:, 0]
distance = np.linalg.norm(shell - shell[truth[partner]], axis=1)
print(
    f"{(truth[partner] == np.arange(n)).mean():.0%} of the points are matched to themselves, {(distance < 0.1).mean():.0%} "
    f"within a tenth of the size; value {result.value:.2e}, no plan is below {result.lower_bound:.2e}"
)

# %%
# The picture: a point and its match have one colour.
colours = np.empty((n, 3))
colours[:] = (shell - shell.min(0)) / np.ptp(shell, axis=0)
of_scan = np.empty_like(colours)
of_scan[partner] = colours
figure = plt.figure(figsize=(9, 4.5), layout="constrained")
for k, (points, colour, title) in enumerate(
    [(shell, colours, "a shell"), (scan, of_scan, "its scan in another pose, coloured by the match")]
):
    ax = figure.add_subplot(1, 2, k + 1, projection="3d")
    ax.scatter(*points.T, s=8, c=colour)
    ax.set_box_aspect(np.ptp(points, axis=0))
    ax.set_title(title)
    ax.set_axis_off()
figure.savefig("poses.png", dpi=120)
