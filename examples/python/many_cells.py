"""
A million points and ten thousand sites
=======================================

Semi-discrete transport at size: a density on a grid of 1000 x 1000, and 10,000 sites with equal shares. Entropic solves
from a large eps to a small one give the potential of the sites; its c-transform, a search of trees, gives the cells.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import monge

size, sites = (int(v) for v in sys.argv[1:]) if len(sys.argv) > 2 else (1000, 10000)
axis = (np.arange(size) + 0.5) / size
grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
density = 0.2 + np.exp(-20 * ((grid - [0.3, 0.6]) ** 2).sum(1)) + np.exp(-40 * ((grid - [0.75, 0.3]) ** 2).sum(1))
density /= density.sum()
random = np.random.default_rng(0)
y = random.uniform(size=(sites, 2))

# %%
# Each eps starts from the potentials of the one before. The last is far below the squared distance of two sites.
spacing = sites**-0.5
start, off, seconds = None, [], 0.0
for blur in spacing * np.array([0.5, 0.25, 0.125]):
    result = monge.solve_sample(grid, y, a=density, reg=blur**2, tol=1e-3, potentials_init=start)
    start = result.potentials
    cell = monge.c_transform(grid, y, start[1])[1]
    served = np.bincount(cell, density, sites) * sites
    off.append(abs(served - 1).mean())
    seconds += result.report.seconds
    print(f"blur {blur:.1e}: {result.report.seconds:.1f} s, cells off by {off[-1]:.1%} on average")

# %%
# The picture: the cells in a corner, and how unequal the shares are.
figure, axes = plt.subplots(1, 2, figsize=(10, 4.6), width_ratios=[1, 1.1], layout="constrained")
part = size // 4
colors = random.permutation(sites) % 20
axes[0].imshow(
    colors[cell].reshape(size, size)[:part, :part].T, origin="lower", extent=(0, 0.25, 0, 0.25), cmap="tab20"
)
axes[0].plot(*y[(y < 0.25).all(1)].T, "k.", ms=2)
axes[0].set_title("cells in a corner")
nearest = monge.c_transform(grid, y, np.zeros(sites))[1]
for of, title in ((nearest, "nearest site"), (cell, "equal shares")):
    axes[1].hist(np.bincount(of, density, sites) * sites, bins=np.linspace(0, 3, 61), alpha=0.6, label=title)
axes[1].set(xlabel="mass of a cell over its share", ylabel="cells", yscale="log")
axes[1].legend()
figure.savefig("many_cells.png", dpi=120)
