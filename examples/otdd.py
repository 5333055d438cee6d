"""Two labelled data sets for the program otdd, and pictures of what it finds.

Clothes of Fashion-MNIST (the Debian and Ubuntu package dataset-fashion-mnist) are the target. The source is synthetic:
digits in the typefaces that matplotlib brings along, turned, sheared, scaled and moved at random. Pixels are divided by
one number that makes the mean |x - y|^2 of the two sets 1. Writes otdd.png.
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
from PIL import Image, ImageDraw, ImageFont

CLASSES = 10
SIDE = 28  # of an image
CLOTHES = ["T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"]
FACES = ["DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSerif", "DejaVuSerif-Bold",
         "DejaVuSerif-Italic", "DejaVuSansMono", "DejaVuSansMono-Bold", "STIXGeneral", "STIXGeneralBol"]


def first_of_each_class(labels, count):
    return np.concatenate([np.flatnonzero(labels == label)[:count] for label in range(CLASSES)])


def clothes(folder, per_class):
    def read(name, offset):
        with gzip.open(folder / name) as file:
            return np.frombuffer(file.read(), dtype=np.uint8, offset=offset)

    labels = read("train-labels-idx1-ubyte.gz", 8)
    images = read("train-images-idx3-ubyte.gz", 16).reshape(len(labels), SIDE * SIDE)
    some = first_of_each_class(labels, per_class)
    return images[some] / 255, labels[some].astype(np.int64)


def digits(per_class, random):
    fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    faces = [ImageFont.truetype(str(fonts / f"{face}.ttf"), 4 * 24) for face in FACES]

    def draw(label):
        large = Image.new("L", (4 * SIDE, 4 * SIDE))
        centre = 2 * SIDE
        ImageDraw.Draw(large).text((centre, centre), str(label), fill=255, font=faces[random.integers(len(faces))],
                                   anchor="mm")
        angle, shear = random.normal(0, 0.12), random.normal(0, 0.12)
        stretch = np.diag(1 / random.uniform(0.8, 1.15, 2))
        turn = [[np.cos(angle), np.sin(angle) + shear], [-np.sin(angle), np.cos(angle)]]
        matrix = stretch @ turn
        move = centre - matrix @ (centre + random.normal(0, 5, 2))
        coefficients = [*matrix[0], move[0], *matrix[1], move[1]]
        small = large.transform(large.size, Image.AFFINE, coefficients, Image.BILINEAR).resize((SIDE, SIDE), Image.BOX)
        return np.asarray(small, dtype=float).ravel() / 255

    labels = np.repeat(np.arange(CLASSES), per_class)
    return np.stack([draw(label) for label in labels]), labels


def mean_squared_distance(x, y):
    return x.var(axis=0).sum() + y.var(axis=0).sum() + ((x.mean(axis=0) - y.mean(axis=0)) ** 2).sum()


def write_data(folder, data, per_class):
    x, labels_x = digits(per_class, np.random.default_rng(1))
    y, labels_y = clothes(data, per_class)
    size = mean_squared_distance(x, y) ** 0.5
    arrays = {"x": (x / size).astype(np.float32), "labels_x": labels_x,
              "y": (y / size).astype(np.float32), "labels_y": labels_y}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return size


def show_coupling(axes, coupling, title):
    shares = coupling / coupling.sum(axis=1, keepdims=True)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set(title=title, yticks=range(CLASSES), ylabel="digit")
    axes.set_xticks(range(CLASSES), CLOTHES, rotation=60, ha="right")


def show_path(axes, path, steps, size):
    """One digit of each class in a row of its own, as it goes."""
    rows = [np.concatenate([(path[step, label] * size).clip(0, 1).reshape(SIDE, SIDE) for step in steps], axis=1)
            for label in range(CLASSES)]
    axes.imshow(np.concatenate(rows), cmap="gray_r", interpolation="nearest", vmin=0, vmax=1)
    axes.set_xticks([SIDE * (k + 0.5) for k in range(len(steps))], [str(step) for step in steps])
    axes.set(title="The first digit of each class as it flows", xlabel="steps", yticks=[])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/examples/otdd", help="the program otdd")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist", type=Path, help="Fashion-MNIST")
    parser.add_argument("--per-class", default=200, type=int, help="images of each class and set")
    parser.add_argument("--steps", default=20, type=int, help="steps of the flow")
    parser.add_argument("--out", default="result/otdd", type=Path, help="folder for otdd.png and all that leads to it")
    arguments = parser.parse_args()
    if not (arguments.data / "train-images-idx3-ubyte.gz").exists():
        sys.exit(f"otdd: {arguments.data} has no Fashion-MNIST: install the package dataset-fashion-mnist")
    folder = arguments.out
    folder.mkdir(parents=True, exist_ok=True)
    size = write_data(folder, arguments.data, arguments.per_class)
    command = [arguments.program, str(folder), str(arguments.steps)]
    print("$", " ".join(command), flush=True)
    subprocess.run(command, check=True)

    values, path = np.load(folder / "values.npy"), np.load(folder / "path.npy")
    plt.rcParams.update({"font.size": 9, "axes.titlesize": 10, "figure.facecolor": "white"})
    figure = plt.figure(figsize=(12, 7.5), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1, 1.25])
    steps = np.unique(np.linspace(0, arguments.steps, 6).round().astype(int))
    show_path(left.subplots(), path, steps, size)
    axes = right.subplots(2, 2)
    show_coupling(axes[0, 0], np.load(folder / "coupling_without_labels.npy"), "Where each digit goes: pixels alone")
    show_coupling(axes[0, 1], np.load(folder / "coupling.npy"), "with the label cost")
    distances = np.load(folder / "W.npy")[:CLASSES, CLASSES:]
    drawn = axes[1, 0].imshow(distances, cmap="viridis")
    right.colorbar(drawn, ax=axes[1, 0])
    axes[1, 0].set(title="Class distances W", yticks=range(CLASSES), ylabel="digit")
    axes[1, 0].set_xticks(range(CLASSES), CLOTHES, rotation=60, ha="right")
    axes[1, 1].semilogy(values, "o-", color="#1f5f8b", lw=1.5, ms=3)
    axes[1, 1].set(title="OTDD along the flow", xlabel="steps")
    axes[1, 1].grid(alpha=0.25)
    picture = folder / "otdd.png"
    figure.savefig(picture, dpi=110)
    print(f"picture: {picture.resolve()}")


if __name__ == "__main__":
    main()
