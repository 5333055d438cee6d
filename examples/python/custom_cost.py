"""
A cost matrix of one's own
==========================

Delivery along the streets of a town, where a river has bridges at both ends alone. Infinite costs forbid a pair.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse.csgraph import shortest_path

import monge

# %%
# A town on a grid of 20 x 20 corners; a river without a bridge but at both ends.
size = 20
corners = np.stack(np.meshgrid(np.arange(size), np.arange(size), indexing="ij"), -1).reshape(-1, 2)
steps = np.abs(corners[:, None] - corners[None]).sum(-1) == 1
river = (corners[:, None, 0] < 10) != (corners[None, :, 0] < 10)
bridges = np.isin(corners[:, 1], (0, size - 1))
streets = steps & (~river | (bridges[:, None] & bridges[None]))
cost = shortest_path(streets.astype(float), unweighted=True)

random = np.random.default_rng(0)
stores, homes = random.choice(len(corners), 12, replace=False), random.choice(len(corners), 60, replace=False)
prices = cost[np.ix_(stores, homes)]
prices[0, :] = np.where(prices[0] > 15, np.inf, prices[0])  # the first store does not go further than that
result = monge.solve(prices, reg=0.2)

# %%
# The picture.
figure, ax = plt.subplots(figsize=(5, 5), layout="constrained")
ax.axvline(9.5, color="C0", lw=4, alpha=0.4)
for home, store in enumerate(result.topk(1, axis=0)[0][:, 0]):
    ax.plot(*corners[[homes[home], stores[store]]].T, color="0.7", lw=1, zorder=0)
ax.plot(*corners[homes].T, "k.", ms=4)
ax.plot(*corners[stores].T, "C1s")
ax.set_title(f"{result.value_linear:.2f} blocks a delivery")
figure.savefig("custom_cost.png", dpi=120)
