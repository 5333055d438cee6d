"""Two kinds of labelled data for the program domain_adaptation, and a picture of what its plans do with them.

Blobs: Gaussian classes around random centres; the target goes through a random affine map (Lindback, Wang, Johansson,
2023, section 5). Images: clothes of Fashion-MNIST (the Debian and Ubuntu package dataset-fashion-mnist); those of the
target are others of the same classes, turned, with less contrast and on a brighter ground. Writes
domain_adaptation.png.
"""

import argparse
import gzip
import subprocess
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # needs no display
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

CLASSES = 10
SIDE = 28  # of an image
PLANS = {"none": "none", "entropy": "entropy", "quadratic": "quadratic", "group_lasso": "group lasso"}
COLOURS = np.array(["#d1603d", "#1f5f8b"])  # of the classes of blobs
BARS = ["#999999", "#c9a227", "#1f5f8b", "#d1603d"]  # of the plans


def blobs(size_x, size_y, random):
    centres = random.uniform(-10, 10, (len(COLOURS), 2))
    labels_x, labels_y = (np.sort(np.arange(size) % len(centres)) for size in (size_x, size_y))
    x, y = (centres[labels] + random.normal(0, 2**0.5, (len(labels), 2)) for labels in (labels_x, labels_y))
    root = random.normal(size=(2, 2))
    return x, labels_x, y @ (0.3 * np.eye(2) + 0.35 * root.T @ root) + 5 * random.normal(size=2), labels_y


def clothes(folder, per_class):
    def read(name, offset):
        with gzip.open(folder / name) as file:
            return np.frombuffer(file.read(), dtype=np.uint8, offset=offset)

    labels = read("train-labels-idx1-ubyte.gz", 8)
    images = read("train-images-idx3-ubyte.gz", 16).reshape(len(labels), SIDE, SIDE)
    of_class = [np.flatnonzero(labels == label) for label in range(CLASSES)]
    source = np.concatenate([some[:per_class] for some in of_class])
    target = np.concatenate([some[per_class:2 * per_class] for some in of_class])
    turned = [np.asarray(Image.fromarray(image).rotate(20, Image.BILINEAR)) for image in images[target]]
    x, y = images[source] / 255, 0.2 + 0.6 * np.stack(turned) / 255
    return x.reshape(len(x), -1), labels[source], y.reshape(len(y), -1), labels[target]


def run(program, folder, data, weights):
    """The table: accuracy, classes a target, entries a row and W2 of each plan."""
    folder.mkdir(parents=True, exist_ok=True)
    x, labels_x, y, labels_y = data
    arrays = {"x": x.astype(np.float32), "labels_x": labels_x.astype(np.int64),
              "y": y.astype(np.float32), "labels_y": labels_y.astype(np.int64)}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    command = [program, str(folder), *map(str, weights)]
    print("$", " ".join(command), flush=True)
    subprocess.run(command, check=True)
    return np.load(folder / "table.npy")


def show_map(axes, folder, data, name):
    """Source points in the colours of their classes, grey targets, the plan between them, and the mapped source."""
    x, labels, y, _ = data
    plan, mapped = np.load(folder / f"{name}_plan.npy"), np.load(folder / f"{name}_map.npy")
    shares = plan / plan.sum(axis=1, keepdims=True)
    for i, j in zip(*np.nonzero(shares > 0.01)):
        axes.plot([x[i, 0], y[j, 0]], [x[i, 1], y[j, 1]], color=COLOURS[labels[i]], lw=0.4,
                  alpha=min(1, 0.05 + shares[i, j]), zorder=1)
    axes.scatter(*y.T, s=14, color="#999999", zorder=2)
    axes.scatter(*x.T, s=14, color=COLOURS[labels], zorder=2)
    axes.scatter(*mapped.T, s=22, facecolor="white", edgecolor=COLOURS[labels], lw=1, zorder=3)
    axes.set(title=PLANS[name], xticks=[], yticks=[])
    axes.set_aspect("equal", "datalim")


def show_plan(axes, folder, name, per_class):
    plan = np.load(folder / f"{name}_plan.npy")
    axes.imshow(np.sqrt(plan), cmap="Greys", vmax=np.sqrt(plan).max() / 2, interpolation="antialiased")
    borders = per_class * np.arange(1, CLASSES) - 0.5
    for border in borders:
        axes.axhline(border, color="#1f5f8b", lw=0.3)
        axes.axvline(border, color="#1f5f8b", lw=0.3)
    axes.set(xticks=[], yticks=[], xlabel="targets by class")


def show_bars(axes, values, title):
    axes.bar(range(len(PLANS)), values, color=BARS)
    for k, value in enumerate(values):
        axes.text(k, value, f"{value:.2f}", ha="center", va="bottom")
    axes.set_xticks(range(len(PLANS)), list(PLANS.values()), rotation=30, ha="right")
    axes.set(title=title)
    axes.margins(y=0.12)
    axes.spines[["top", "right"]].set_visible(False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/examples/domain_adaptation", help="the program")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist", type=Path, help="Fashion-MNIST")
    parser.add_argument("--per-class", default=30, type=int, help="images of each class and set")
    parser.add_argument("--blobs", default=20, type=int, help="sets of 300 and 200 points, for the table")
    parser.add_argument("--out", default="result/domain_adaptation", type=Path, help="folder for what is written")
    arguments = parser.parse_args()
    if not (arguments.data / "train-images-idx3-ubyte.gz").exists():
        sys.exit(f"domain_adaptation: {arguments.data} has no Fashion-MNIST: install the package dataset-fashion-mnist")
    program, folder = arguments.program, arguments.out

    blob_weights = [0.02, 30, 0.02]
    few = blobs(60, 60, np.random.default_rng(0))
    run(program, folder / "few", few, blob_weights)
    tables = [run(program, folder / "blobs", blobs(300, 200, np.random.default_rng(seed)), blob_weights)
              for seed in range(arguments.blobs)]
    of_blobs = np.median(tables, axis=0)
    of_images = run(program, folder / "images", clothes(arguments.data, arguments.per_class), [0.01, 100, 1])
    print(f"median of {arguments.blobs} sets of blobs: accuracy, classes a target, entries a row, W2")
    for name, row in zip(PLANS.values(), of_blobs):
        print(f"{name:11}", *(f"{value:.3f}" for value in row))

    plt.rcParams.update({"font.size": 9, "axes.titlesize": 10, "figure.facecolor": "white"})
    figure = plt.figure(figsize=(15, 7.2), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[2.1, 1])
    maps, plans = left.subplots(2, len(PLANS), height_ratios=[1.1, 1])
    for axes, name in zip(maps, PLANS):
        show_map(axes, folder / "few", few, name)
    for axes, name in zip(plans, PLANS):
        show_plan(axes, folder / "images", name, arguments.per_class)
    plans[0].set_ylabel("images: sources by class")
    bars = right.subplots(2, 2)
    show_bars(bars[0, 0], of_blobs[:, 3], "Blobs: class-wise W2, median")
    show_bars(bars[0, 1], of_images[:, 3], "Images: class-wise W2")
    show_bars(bars[1, 0], of_images[:, 0], "Images: accuracy")
    show_bars(bars[1, 1], of_images[:, 1], "Images: classes a target")
    picture = folder / "domain_adaptation.png"
    figure.savefig(picture, dpi=110)
    print(f"picture: {picture.resolve()}")


if __name__ == "__main__":
    main()
