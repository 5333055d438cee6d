"""Runs the program shuffled_regression and draws its two descents. Writes shuffled_regression.png."""

import argparse
import subprocess
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # needs no display
import matplotlib.pyplot as plt
import numpy as np

CONVEX = 1e-3  # the smallest eigenvalue from which Newton's method takes over, as in the program


def show(axes, title, histories, column, against):
    """Both descents; against=None counts steps, else names the column of the seconds."""
    for name, history, colour in histories:
        along = np.arange(len(history)) if against is None else history[:, against]
        values = history[:, column] - (min(h[:, 0].min() for _, h, _ in histories) - 1e-12 if column == 0 else 0)
        axes.semilogy(along, values, color=colour, lw=1.5, label=name)
    axes.set(title=title, xlabel="steps" if against is None else "seconds")
    axes.grid(alpha=0.25)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/examples/shuffled_regression", help="the program")
    parser.add_argument("--points", default=500, type=int)
    parser.add_argument("--eps", default=0.25, type=float)
    parser.add_argument("--seed", default=2, type=int)
    parser.add_argument("--out", default="result/shuffled_regression", type=Path, help="folder for what is written")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    numbers = [arguments.points, arguments.eps, arguments.seed]
    command = [arguments.program, *map(str, numbers), str(arguments.out)]
    print("$", " ".join(command), flush=True)
    subprocess.run(command, check=True)

    newton, adam = np.load(arguments.out / "newton.npy"), np.load(arguments.out / "adam.npy")
    histories = [("Adam alone", adam, "#d1603d"), ("Adam, then Newton", newton, "#1f5f8b")]
    plt.rcParams.update({"font.size": 9, "axes.titlesize": 10, "figure.facecolor": "white"})
    figure, axes = plt.subplots(1, 4, figsize=(15, 3.6), layout="constrained")
    show(axes[0], "L above the least that was found", histories, 0, None)
    show(axes[1], "|grad L|", histories, 1, None)
    show(axes[2], "|grad L| against time", histories, 1, 4)
    axes[0].legend(frameon=False)
    measured = np.flatnonzero(~np.isnan(newton[:, 2]))
    axes[3].plot(measured, newton[measured, 2], "o-", color="#1f5f8b", lw=1.5, ms=3)
    axes[3].axhline(CONVEX, color="black", lw=1, ls="--")
    axes[3].set(title="Smallest eigenvalue of the Hessian, by Lanczos", xlabel="steps")
    axes[3].set_yscale("symlog", linthresh=1e-3)
    axes[3].grid(alpha=0.25)
    for step in np.flatnonzero(np.diff(newton[:, 3]) > 0):
        for panel in (axes[0], axes[1], axes[3]):
            panel.axvline(step + 1, color="#1f5f8b", lw=1, ls=":")
    picture = arguments.out / "shuffled_regression.png"
    figure.savefig(picture, dpi=110)
    print(f"picture: {picture.resolve()}")


if __name__ == "__main__":
    main()
