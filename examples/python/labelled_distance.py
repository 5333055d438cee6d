"""
A distance of labelled data sets
================================

OTDD: going from the class of one point to that of another costs what these classes are apart, which is a transport
cost of its own. The sets of digits that have some in common are nearest.
"""

import itertools

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import monge

images, digits = load_digits(return_X_y=True)
images = images / 16.0
groups = {"0-4": (0, 1, 2, 3, 4), "5-9": (5, 6, 7, 8, 9), "even": (0, 2, 4, 6, 8), "odd": (1, 3, 5, 7, 9)}


def classes(group):
    return [images[digits == digit][:60] for digit in group]


def distance(left, right):
    parts = list(itertools.product(classes(left), classes(right)))
    between = monge.solve_sample_batch([p for p, _ in parts], [q for _, q in parts], 1.0, tol=1e-3).value_linear
    labels = np.repeat(np.arange(5), 60)
    result = monge.solve_sample(
        np.concatenate(classes(left)), np.concatenate(classes(right)), reg=1.0, tol=1e-3,
        labels_x=labels, labels_y=labels, label_cost=between.reshape(5, 5),
    )  # fmt: skip
    return result.value_linear


table = np.array([[distance(left, right) for right in groups.values()] for left in groups.values()])
figure, ax = plt.subplots(figsize=(4, 4), layout="constrained")
ax.imshow(table, cmap="viridis")
ax.set_xticks(range(4), groups)
ax.set_yticks(range(4), groups)
for i, j in np.ndindex(4, 4):
    ax.text(j, i, f"{table[i, j]:.1f}", ha="center", va="center", color="w")
figure.savefig("labelled_distance.png", dpi=120)
