"""
Cells of equal mass
===================

Semi-discrete transport: each point of the plane goes to one of 60 sites, and each site serves the same share of the
population. The potential of the sites is all that is to be found: its c-transform is the other, and the argmin of that
says who goes where. The gradient of the semi-dual value is what the cells have too little.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import monge

# %%
# A density on a grid, and 60 sites.
random = np.random.default_rng(0)
size = 150
axis = (np.arange(size) + 0.5) / size
grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
population = 0.2 + np.exp(-20 * ((grid - [0.3, 0.6]) ** 2).sum(1)) + np.exp(-40 * ((grid - [0.75, 0.3]) ** 2).sum(1))
population /= population.sum()
sites, share = random.uniform(size=(60, 2)), np.full(60, 1 / 60)


# %%
# The semi-dual value and its gradient, for a method of SciPy.
def semi_dual(g):
    f, cell = monge.c_transform(grid, sites, g)
    served = np.bincount(cell, population, len(sites))
    return -monge.semi_dual_value(f, g, population, share), served - share


found = minimize(semi_dual, np.zeros(60), jac=True, method="L-BFGS-B", options={"maxiter": 80})
cells = [monge.c_transform(grid, sites, g)[1] for g in (np.zeros(60), found.x)]
served = [np.bincount(cell, population, len(sites)) for cell in cells]

# %%
# The picture.
figure, axes = plt.subplots(1, 2, figsize=(10, 5), layout="constrained")
colors = random.permutation(60)
for ax, cell, mass, title in zip(axes, cells, served, ("nearest site", "equal shares")):
    ax.imshow(colors[cell].reshape(size, size).T, origin="lower", extent=(0, 1, 0, 1), cmap="tab20", alpha=0.6)
    ax.contour(axis, axis, population.reshape(size, size).T, colors="k", linewidths=0.5)
    ax.plot(*sites.T, "k.", ms=3)
    ax.set_title(f"{title}: sites serve {60 * mass.min():.2f} to {60 * mass.max():.2f} of theirs")
figure.savefig("semi_discrete.png", dpi=120)
