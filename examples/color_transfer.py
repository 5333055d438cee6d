"""Gives one photograph the colours of another, by optimal transport between their colours.

Every pixel counts: pixels are gathered in small cubes of the colour space, each cube becomes a point at the mean of its
pixels with their number as its weight, `monge solve` transports one weighted cloud to the other, and each pixel moves
with its cube. Writes demo.png, with both photographs, both transfers, the colour clouds and the convergence.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # needs no display
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image, ImageOps

CUBES = 64  # a side: 4 of 256 levels
EPS = 0.01  # in units of squared colour difference, channels in [0, 1]; smaller is sharper and slower
TOLERANCE = 1e-5  # of all pixels, that may end up with too much or too little of a colour
SIZE = (960, 640)  # photographs are cropped and scaled to this


def packaged_photographs():
    """Two photographs of the Debian and Ubuntu package mate-backgrounds: by Sergey Nazarov, and by Charles Barbin and
    Hylke Bons. They are under GPL-2+, and so is a picture made of them (docs/images/ATTRIBUTION.md)."""
    folder = Path("/usr/share/backgrounds/mate/nature")
    paths = [folder / "Storm.jpg", folder / "TwoWings.jpg"]
    if not all(path.exists() for path in paths):
        sys.exit("color_transfer: needs two photographs: name them, or install the package mate-backgrounds")
    return paths


def load(path):
    image = ImageOps.fit(Image.open(path).convert("RGB"), SIZE)
    return np.asarray(image, dtype=np.float64) / 255


class Palette:
    """The colours of a photograph as a weighted cloud: points (k x 3), weights (k), and the cube of each pixel."""

    def __init__(self, image):
        self.pixels = image.reshape(-1, 3)
        cubes = np.minimum((self.pixels * CUBES).astype(int), CUBES - 1) @ [CUBES * CUBES, CUBES, 1]
        _, self.cube_of_pixel, counts = np.unique(cubes, return_inverse=True, return_counts=True)
        self.cube_of_pixel = self.cube_of_pixel.ravel()
        sums = [np.bincount(self.cube_of_pixel, channel) for channel in self.pixels.T]
        self.points = np.stack(sums, axis=1) / counts[:, None]
        self.weights = counts / counts.sum()

    def moved(self, new_points, shape):
        """The photograph with each cube at its new point; pixels keep their offset within the cube."""
        pixels = self.pixels + (new_points - self.points)[self.cube_of_pixel]
        return pixels.clip(0, 1).reshape(shape)


def transport(monge, folder, source, target, start=None):
    """Runs `monge solve`; returns the folder with its results."""
    folder.mkdir(parents=True, exist_ok=True)
    inputs = {"x": source.points, "y": target.points, "a": source.weights, "b": target.weights}
    for name, array in inputs.items():
        np.save(folder / f"{name}.npy", array)
    command = [monge, "solve", folder / "x.npy", folder / "y.npy", "--a", folder / "a.npy", "--b", folder / "b.npy",
               "--eps", EPS, "--tolerance", TOLERANCE, "--out", folder]
    if start is not None:  # the way back has the same potentials, exchanged
        command += ["--f", start / "g.npy", "--g", start / "f.npy"]
    command = [str(word) for word in command]
    print("$", " ".join(command), flush=True)
    status = subprocess.run(command).returncode
    if status not in (0, 3):  # 3: short of the tolerance, which the picture shows
        sys.exit(status)
    return folder


def show(axes, image, title):
    axes.imshow(image)
    axes.set_title(title)
    axes.axis("off")


def show_cloud(axes, points, weights, title):
    """The cloud seen along the green axis, each cube in its colour, the larger the more pixels it has."""
    order = np.argsort(points[:, 1])  # what is nearer, that is brighter in green, in front
    points, weights = points[order], weights[order]
    axes.scatter(points[:, 0], points[:, 2], s=2 + 3000 * weights, c=points.clip(0, 1), linewidths=0)
    axes.set(title=title, xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xticks=[0, 1], yticks=[0, 1], aspect="equal")
    axes.set(xlabel="red", ylabel="blue")


def show_convergence(axes, report):
    history = report["history"]
    sweeps = [check["iteration"] for check in history]
    errors = [check["marginal_error"] for check in history]
    tolerance = report["options"]["tolerance"]
    axes.semilogy(sweeps, errors, "o-", color="#1f5f8b", lw=1.5, ms=3)
    axes.axhline(tolerance, color="#d1603d", lw=1, ls="--")
    axes.text(0.02, tolerance * 1.15, "tolerance", color="#d1603d", ha="left", va="bottom",
              transform=axes.get_yaxis_transform())
    axes.set(title=f"Convergence: {report['seconds']['sweeps']:.1f} s on {report['device']}", xlabel="sweeps",
             ylabel="marginal error", xlim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photographs", nargs="*", help="two photographs; else those of the package mate-backgrounds")
    parser.add_argument("--monge", default="monge", help="the program")
    parser.add_argument("--out", default="result", type=Path, help="folder for demo.png and what the program writes")
    arguments = parser.parse_args()
    if len(arguments.photographs) not in (0, 2):
        parser.error("give two photographs, or none")

    images = [load(path) for path in arguments.photographs or packaged_photographs()]
    palettes = [Palette(image) for image in images]
    there = transport(arguments.monge, arguments.out / "there", *palettes)
    back = transport(arguments.monge, arguments.out / "back", *palettes[::-1], start=there)
    maps = [np.load(folder / "map.npy") for folder in (there, back)]
    moved = [palette.moved(new, image.shape) for palette, new, image in zip(palettes, maps, images)]
    report = json.loads((there / "report.json").read_text())

    plt.rcParams.update({"font.size": 10, "axes.titlesize": 12, "figure.facecolor": "white"})
    figure = plt.figure(figsize=(14, 14), layout="constrained")
    rows = figure.add_gridspec(2, 1, height_ratios=[2.5, 1])
    photographs = rows[0].subgridspec(2, 2)
    show(figure.add_subplot(photographs[0, 0]), images[0], "Photograph A")
    show(figure.add_subplot(photographs[0, 1]), images[1], "Photograph B")
    show(figure.add_subplot(photographs[1, 0]), moved[0], "A in the colours of B")
    show(figure.add_subplot(photographs[1, 1]), moved[1], "B in the colours of A")
    plots = rows[1].subgridspec(1, 4, width_ratios=[1, 1, 1, 1.4])
    a, b = palettes
    show_cloud(figure.add_subplot(plots[0]), a.points, a.weights, f"Colours of A: {len(a.points)}")
    show_cloud(figure.add_subplot(plots[1]), maps[0], a.weights, "A's, transported")
    show_cloud(figure.add_subplot(plots[2]), b.points, b.weights, f"Colours of B: {len(b.points)}")
    show_convergence(figure.add_subplot(plots[3]), report)
    picture = arguments.out / "demo.png"
    figure.savefig(picture, dpi=110)
    print(f"\npicture: {picture.resolve()}")


if __name__ == "__main__":
    main()
