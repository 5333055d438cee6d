"""Draws docs/images/multiscale.png: seconds of `multiscale` over n at blur n^(-1/d), beside n log n, from the tables of
`build/bench/multiscale cpu|cuda multiscale 1e-3 1 N D BLUR...` in bench/results: of the processor on two cores, by the
clock on a GPU."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

ROOT = Path(__file__).parents[1]


def rows(name):
    """The rows of a table whose blur is that of the picture, as arrays by column."""
    lines = (ROOT / "bench/results" / name).read_text().splitlines()
    names, *table = [line.split("\t") for line in lines if not line.startswith("#")]
    wanted = [r for r in table if abs(float(r[2]) * float(r[0]) ** (1 / float(r[1])) - 1) < 1e-3]
    return {name: np.array([row[k] for row in wanted]) for k, name in enumerate(names)}


def main():
    figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained", sharey=True)
    for ax, file, seconds, title in (
        (axes[0], "epyc_2_cores_multiscale.tsv", "cpu s", "two cores, seconds of the processor"),
        (axes[1], "h200_multiscale.tsv", "median s", "H200, seconds"),
    ):
        column = rows(file)
        for d, color in ((2, "C0"), (3, "C1")):
            own = column["d"] == str(d)
            n, own_seconds = column["n"][own].astype(float), column[seconds][own].astype(float)
            n, first = np.unique(n, return_index=True)  # Two parts of a table may have the same problem.
            own_seconds = own_seconds[first]
            ax.loglog(n, own_seconds, "o-", color=color, label=f"d = {d}, blur n$^{{-1/{d}}}$")
            line = n * np.log(n)
            ax.loglog(n, line * own_seconds[0] / line[0], ":", color=color)
        ax.set(xlabel="points a cloud", title=title)
        ax.legend()
    axes[0].set_ylabel("seconds to a certified 1e-3; dotted: n log n")
    figure.savefig(ROOT / "docs/images/multiscale.png", dpi=100)


if __name__ == "__main__":
    main()
