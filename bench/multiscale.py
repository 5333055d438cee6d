"""Draws docs/images/multiscale.png: seconds of `multiscale` over n at blur n^(-1/d), from the table of
`build/bench/multiscale cpu multiscale 1e-3 1 N D BLUR...` in bench/results, beside n log n."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

ROOT = Path(__file__).parents[1]


def main():
    lines = (ROOT / "bench/results/epyc_2_cores_multiscale.tsv").read_text().splitlines()
    names, *rows = [line.split("\t") for line in lines if not line.startswith("#")]
    column = {name: np.array([row[k] for row in rows]) for k, name in enumerate(names)}
    n, d, seconds = (column[name].astype(float) for name in ("n", "d", "cpu s"))
    figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
    for dimension, color in ((2, "C0"), (3, "C1")):
        own = d == dimension
        label = f"d = {dimension}, blur n$^{{-1/{dimension}}}$"
        ax.loglog(n[own], seconds[own], "o-", color=color, label=label)
        line = n[own] * np.log(n[own])
        ax.loglog(n[own], line * seconds[own][0] / line[0], ":", color=color)
    ax.set(xlabel="points a cloud", ylabel="seconds of the processor", title="to a certified 1e-3; dotted: n log n")
    ax.legend()
    figure.savefig(ROOT / "docs/images/multiscale.png", dpi=100)


if __name__ == "__main__":
    main()
