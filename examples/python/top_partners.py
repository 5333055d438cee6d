"""
The most likely partners
========================

The five largest entries of each row for 4000 cells, and pairs drawn from the plan, which is never in memory.
"""

import matplotlib.pyplot as plt
import numpy as np

import monge

# %%
# Cells of six types at two times.
random = np.random.default_rng(0)
types = random.integers(0, 6, size=4000)  # a cell's type decides where it is in the 20 dimensions of expression
centres = 3 * random.normal(size=(6, 20))
early = (centres[types] + random.normal(size=(4000, 20))).astype(np.float32)
late = (centres[types] + random.normal(size=(4000, 20)) + 0.5).astype(np.float32)[random.permutation(4000)]

# %%
# A plan of 4000 x 4000 entries, of which five a row are made, and 1000 pairs are drawn.
result = monge.solve_sample(early, late, reg="auto", tol=1e-3)
partners, shares = result.topk(5)
i, j = result.sample(1000, seed=0)

# %%
# The picture.
figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
axes[0].hist(shares.sum(1) * len(early), bins=40)
axes[0].set_xlabel("share of a cell that its five partners hold")
axes[1].plot(early[i, 0], late[j, 0], ".", ms=2)
axes[1].set_xlabel("first coordinate of a cell ...")
axes[1].set_ylabel("... and of a partner drawn for it")
figure.savefig("top_partners.png", dpi=120)
