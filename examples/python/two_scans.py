"""
Two scans of one surface
========================

A knotted tube is scanned twice: other points, turned by 50 degrees and moved. Each step solves for the plan at a smaller
blur and moves one scan by the rigid motion that fits the plan's map best. The size is an argument: 1,000,000 points a
scan suit a GPU.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import monge

n = int(sys.argv[1]) if len(sys.argv) > 1 else 30000
random = np.random.default_rng(0)


def scan():
    """Points on a tube around a trefoil, thicker along the way, so no rotation but one fits."""
    along, around = random.uniform(0, 2 * np.pi, (2, n))
    radius = 0.25 + 0.12 * np.sin(along)

    def knot(t):
        return np.stack([np.sin(t) + 2 * np.sin(2 * t), np.cos(t) - 2 * np.cos(2 * t), -np.sin(3 * t)], 1)

    tangent = knot(along + 1e-4) - knot(along - 1e-4)
    first = np.cross(tangent, [0.3, 0.2, 1.0])
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    second = np.cross(tangent, first)
    second /= np.linalg.norm(second, axis=1, keepdims=True)
    return knot(along) + radius[:, None] * (np.cos(around)[:, None] * first + np.sin(around)[:, None] * second)


turn = np.deg2rad(50)
rotation = np.array([[np.cos(turn), -np.sin(turn), 0], [np.sin(turn), np.cos(turn), 0], [0, 0, 1]])
x, y = scan(), scan() @ rotation.T + [0.5, -0.3, 0.2]


def best_motion(points, images):
    """The rotation and the shift that take points nearest to their images (Kabsch)."""
    middle, goal = points.mean(0), images.mean(0)
    u, _, v = np.linalg.svd((points - middle).T @ (images - goal))
    turn = (u * [1, 1, np.linalg.det(u @ v)]) @ v
    return turn, goal - middle @ turn


# %%
# From a blur of the size of the shape to one near the distance of neighbours.
moved, found, angles = x, np.eye(3), []
for blur in [1.0] * 3 + [0.5] * 5 + [0.25] * 4 + [0.12] * 4:
    result = monge.solve_sample(moved, y, reg=blur**2, tol=1e-2)
    own, shift = best_motion(moved, result.transform())
    moved, found = moved @ own + shift, found @ own
    cosine = (np.trace(found @ rotation) - 1) / 2
    angles.append(np.rad2deg(np.arccos(np.clip(cosine, -1, 1))))
print(f"{n} points, off by {angles[0]:.1f} degrees after a step, {angles[-1]:.2f} at the end")

# %%
# The picture.
figure = plt.figure(figsize=(11, 4), layout="constrained")
some = slice(None, None, max(1, n // 5000))
for place, (points, title) in enumerate(((x, "two scans"), (moved, "registered")), 1):
    ax = figure.add_subplot(1, 3, place, projection="3d")
    ax.scatter(*y[some].T, s=1, color="C1")
    ax.scatter(*points[some].T, s=1, color="C0")
    ax.set_box_aspect((1, 1, 1))
    ax.set_title(title)
ax = figure.add_subplot(133)
ax.semilogy(range(1, len(angles) + 1), angles, "o-")
ax.set(xlabel="step", title="rotation off, degrees")
figure.savefig("two_scans.png", dpi=120)
