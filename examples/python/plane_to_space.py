"""
A picture of a shape in space
=============================

A leaf in space and a flat picture of it, taken from an unknown side: clouds of two and of three dimensions have no cost
between them, but distances within. The plan matches each point of the picture, and its cross moment is the camera.
"""

import matplotlib.pyplot as plt
import numpy as np

import monge

random = np.random.default_rng(0)
n = 400
angle = random.uniform(0, 2 * np.pi, n)
radius = np.sqrt(random.uniform(0, 1, n)) * (1 + 0.3 * np.cos(angle) + 0.15 * np.sin(2 * angle))
flat = radius[:, None] * np.stack([1.6 * np.cos(angle), np.sin(angle)], 1)
leaf = np.column_stack([flat, 0.25 * flat[:, 0] ** 2 - 0.35 * flat[:, 1] ** 2])
pose = np.linalg.qr(random.normal(size=(3, 3)))[0]
truth = random.permutation(n)
shape, picture = leaf @ pose.T, (flat + 0.01 * random.normal(size=flat.shape))[truth]

result = monge.solve_gromov_sample(shape, picture)
partner = result.topk(1)[0][:, 0]
off = np.linalg.norm(shape - shape[truth[partner]], axis=1)
left, _, right = np.linalg.svd(result.cross_moment, full_matrices=False)
camera = left @ right  # Of all maps to a plane the one that agrees best with the plan.
tilt = np.rad2deg(np.arcsin(np.linalg.norm(np.cross(*camera.T) - np.cross(*pose[:, :2].T)) / 2)) * 2
print(result)
print(
    f"{(truth[partner] == np.arange(n)).mean():.0%} of the points are matched to themselves, all within {off.max():.2f}; "
    f"the camera is off by {tilt:.1f} degrees"
)

# %%
# The picture: a point and its match have one colour.
figure = plt.figure(figsize=(9, 4), layout="constrained")
colour = (flat - flat.min(0)) / np.ptp(flat, axis=0)
colour = np.column_stack([colour, 1 - colour[:, 0]])
ax = figure.add_subplot(1, 2, 1, projection="3d")
ax.scatter(*shape.T, c=colour, s=8)
ax.set_box_aspect(np.ptp(shape, axis=0))
ax.set_title("a leaf in space")
ax = figure.add_subplot(1, 2, 2)
ax.scatter(*picture[partner].T, c=colour, s=8)
ax.set(title="its picture, coloured by the match", aspect="equal")
figure.savefig("plane_to_space.png", dpi=120)
