"""Runs the program energy_distance and draws what its generator learns. Writes energy_distance.png."""

import argparse
import subprocess
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # needs no display
import matplotlib.pyplot as plt
import numpy as np

WINDOW = 100  # steps of the running mean


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/examples/energy_distance", help="the program")
    parser.add_argument("--batch", default=128, type=int, help="points of a batch")
    parser.add_argument("--steps", default=4000, type=int)
    parser.add_argument("--out", default="result/energy_distance", type=Path, help="folder for what is written")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    command = [arguments.program, str(arguments.batch), str(arguments.steps), str(arguments.out)]
    print("$", " ".join(command), flush=True)
    subprocess.run(command, check=True)

    data, snapshots, losses = (np.load(arguments.out / f"{name}.npy") for name in ("data", "snapshots", "losses"))
    plt.rcParams.update({"font.size": 9, "axes.titlesize": 10, "figure.facecolor": "white"})
    figure, axes = plt.subplots(1, len(snapshots) + 1, figsize=(15, 2.9), layout="constrained",
                                width_ratios=[1] * len(snapshots) + [1.3])
    steps = np.linspace(0, arguments.steps, len(snapshots)).round().astype(int)
    for panel, samples, step in zip(axes, snapshots, steps):
        panel.scatter(*data.T, s=3, color="#bbbbbb")
        panel.scatter(*samples.T, s=3, color="#d1603d")
        panel.set(title=f"step {step}", xlim=(-1.6, 1.6), ylim=(-1.6, 1.6), xticks=[], yticks=[])
        panel.set_aspect("equal")
    axes[-1].plot(losses, color="#cccccc", lw=0.5)
    axes[-1].plot(np.arange(WINDOW - 1, len(losses)), np.convolve(losses, np.full(WINDOW, 1 / WINDOW), "valid"),
                  color="#1f5f8b", lw=1.5)
    axes[-1].axhline(0, color="black", lw=0.5)
    axes[-1].set(title=f"Loss, and its mean over {WINDOW} steps", xlabel="steps", ylim=(-0.15, 0.4))
    axes[-1].grid(alpha=0.25)
    picture = arguments.out / "energy_distance.png"
    figure.savefig(picture, dpi=110)
    print(f"picture: {picture.resolve()}")


if __name__ == "__main__":
    main()
