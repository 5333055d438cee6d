"""
A flow of labelled points
=========================

OTDD as a loss: classes cost what they are apart. Its gradient moves a labelled data set onto another, class by class,
where the distance of the points alone would mix the classes.
"""

import itertools

import matplotlib.pyplot as plt
import numpy as np

import monge

rng = np.random.default_rng(0)
size, classes = 40, 3
angle = 2 * np.pi * np.arange(classes) / classes
centres = np.stack([np.cos(angle), np.sin(angle)], 1)
spread = np.array([0.05, 0.12, 0.25])  # What tells the classes apart, wherever they lie.
x, y = (
    np.concatenate([c + s * rng.normal(size=(size, 2)) for c, s in zip(places, spread)])
    for places in (3 * centres[[1, 2, 0]] - [6, 0], 2 * centres)
)
labels_x, labels_y = np.repeat(np.arange(2 * classes), size).reshape(2, -1)


def between_classes(x):
    """The divergence of the centred classes of x and y, each from each: what their shapes are apart."""
    parts = np.concatenate([x, y]).reshape(2 * classes, size, 2)
    parts = parts - parts.mean(1, keepdims=True)
    pairs = np.array(list(itertools.product(range(2 * classes), repeat=2)))
    costs = monge.solve_sample_batch(parts[pairs[:, 0]], parts[pairs[:, 1]], 0.01, tol=1e-4).value_linear
    costs = costs.reshape(2 * classes, 2 * classes)
    own = np.diagonal(costs)
    apart = costs - (own[:, None] + own) / 2
    return (apart + apart.T) / 2


def step(x, label_weight):
    given = dict(labels_x=labels_x, labels_y=labels_y, label_cost=between_classes(x), label_weight=label_weight)
    return monge.sinkhorn_divergence(x, y, reg=0.1, tol=1e-4, **given).gradients().x


def flow(label_weight):
    """Gradient descent in the points, whose weights are 1 / n each."""
    path = [x]
    for _ in range(20):
        path.append(path[-1] - 0.25 * len(x) * step(path[-1], label_weight))
    return path


paths = {"points and classes": flow(1e3), "points alone": flow(0.0)}
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for ax, (title, path) in zip(axes, paths.items()):
    for k, colour in enumerate(("C0", "C1", "C2")):
        of_class = slice(k * size, (k + 1) * size)
        ax.scatter(*y[of_class].T, s=30, marker="o", facecolors="none", edgecolors=colour, lw=0.6)
        ax.plot(*np.stack(path)[:, of_class][:, ::4].transpose(2, 0, 1), color=colour, lw=0.4)
        ax.scatter(*path[-1][of_class].T, s=6, color=colour)
    ax.set(title=title, aspect="equal")
figure.savefig("labelled_flow.png", dpi=120)
