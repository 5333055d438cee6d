"""
Many problems at once
=====================

All pairs of 24 clouds of different sizes, in one call: each problem stops by itself and has the bits that it would have
alone. On a GPU each step is one launch for all. The clouds are ellipses that turn, and their distances, put in the
plane, are a ring.
"""

import itertools

import matplotlib.pyplot as plt
import numpy as np
from sklearn.manifold import MDS

import monge

# %%
# 24 ellipses of 100 to 219 points, each turned further.
random = np.random.default_rng(0)
clouds = []
for angle in np.linspace(0, np.pi, 24, endpoint=False):
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    clouds.append(random.normal(size=(random.integers(100, 220), 2)) * [1.0, 0.2] @ turn)
pairs = list(itertools.combinations(range(24), 2))

# %%
# One call for 276 problems. The first 20 alone have the same bits.
batch = monge.solve_sample_batch([clouds[i] for i, _ in pairs], [clouds[j] for _, j in pairs], 0.05, tol=1e-4)
loop = [monge.solve_sample(clouds[i], clouds[j], reg=0.05, tol=1e-4) for i, j in pairs[:20]]
same = [one.value_linear == other.value_linear for one, other in zip(batch, loop)]

# %%
# A matrix of distances, and points of the plane at such distances.
distance = np.zeros((24, 24))
distance[tuple(np.transpose(pairs))] = np.sqrt(batch.value_linear)
distance += distance.T
ring = MDS(metric="precomputed", init="classical_mds", n_init=1, random_state=0).fit_transform(distance)

# %%
# The picture.
figure, axes = plt.subplots(1, 3, figsize=(12, 3.5), layout="constrained")
for cloud in clouds[::4]:
    axes[0].plot(*cloud.T, ".", ms=2)
axes[0].set_title("some of the clouds")
axes[1].imshow(distance)
axes[1].set_title(f"{len(pairs)} distances")
axes[2].scatter(*ring.T, c=range(24), cmap="twilight")
axes[2].set_title("all, by their distances")
figure.savefig("many_problems.png", dpi=120)
