"""Runs the program convergence, or takes what it has measured, and draws error against time: convergence.png. Prints a
table, too.

A panel each problem and eps, of the largest size that was measured. A curve begins with the first check at that eps.
"""

import argparse
import json
import shutil
import subprocess
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # needs no display
import matplotlib.pyplot as plt
import numpy as np

STYLES = {  # of the methods: what the picture calls them, colour, line
    "sinkhorn": ("Sinkhorn", "#8a8a8a", "-"),
    "overrelaxed": ("overrelaxed", "#222222", "-"),
    "splr, neither": ("SPLR, neither", "#d9a441", ":"),
    "splr, no candidates": ("no candidates", "#d9a441", "--"),
    "splr, no reuse": ("no reuse", "#d9a441", "-."),
    "splr": ("SPLR", "#d1603d", "-"),
    "newton": ("Newton", "#7fb2d6", "-"),
    "auto": ("auto", "#1f5f8b", "-"),
}
LEAST, MOST = 3e-9, 2  # of the errors that are drawn


def show(axes, solves):
    """One problem; each name stands where its curve ends, below the ends of those that took longer."""
    ends = []
    for solve in solves:
        name, colour, line = STYLES[solve["method"]]
        history = np.array([[time, l1] for time, _, l1, _ in solve["history"] if l1], dtype=float)
        time, error = history[:, 0], history[:, 1].clip(LEAST, MOST)
        axes.loglog(time, error, color=colour, ls=line, lw=2 if name == "auto" else 1.3)
        axes.plot(time[-1], error[-1], "o", color=colour, ms=3)
        ends.append((time[-1], error[-1], name, colour))
    for rank, (time, error, name, colour) in enumerate(sorted(ends)):
        axes.annotate(name, (time, error), xytext=(1.02, 0.04 + 0.07 * rank), textcoords="axes fraction", color=colour,
                      fontsize=8, va="center",
                      arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.5, "alpha": 0.5, "shrinkB": 2})
    axes.set_ylim(0.5 * LEAST, 2 * MOST)
    axes.grid(alpha=0.25)


def draw(results, picture):
    n = max(solve["n"] for solve in results["solves"])
    solves = [solve for solve in results["solves"] if solve["n"] == n and "history" in solve]
    problems = list(dict.fromkeys(solve["problem"] for solve in solves))
    all_eps = list(dict.fromkeys(solve["eps"] for solve in solves))
    plt.rcParams.update({"font.size": 9, "axes.titlesize": 10, "figure.facecolor": "white"})
    figure, axes = plt.subplots(len(all_eps), len(problems), figsize=(4.1 * len(problems), 3.3 * len(all_eps)),
                                layout="constrained", squeeze=False)
    for i, eps in enumerate(all_eps):
        for j, problem in enumerate(problems):
            here = [solve for solve in solves if solve["problem"] == problem and solve["eps"] == eps]
            show(axes[i, j], here)
            axes[i, j].set_title(f"{problem}, {n} x {here[0]['m']}, eps = {eps:g}")
    for row in axes:
        row[0].set_ylabel("|P 1 - a|$_1$ + |P$^T$ 1 - b|$_1$")
    for below in axes[-1]:
        below.set_xlabel("seconds")
    figure.suptitle(f"Error against time, float64, {results['device']}", fontsize=11)
    figure.savefig(picture, dpi=110)
    print(f"picture: {picture.resolve()}")


def print_table(results):
    """Milliseconds (passes) to each tolerance on the L2 gradient, in Markdown; a dash where it was not met."""
    rows = {}
    for solve in results["solves"]:
        key = f"{solve['problem']}, {solve['n']} x {solve['m']} | {solve['eps']:g} | {solve['tolerance']:.0e}"
        time = f"{1e3 * solve['seconds']:{'.0f' if solve['seconds'] >= 0.1 else '.3g'}}"
        cell = f"{time} ({solve['passes']})" if solve["status"] == "converged" else "-"
        rows.setdefault(key, []).append(cell)
    print("| problem | eps | to | " + " | ".join(name for name in dict.fromkeys(
        STYLES[solve["method"]][0] for solve in results["solves"])) + " |")
    print("|---" * (3 + len(STYLES)) + "|")
    for key, cells in rows.items():
        print(f"| {key} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/bench/convergence", help="the program")
    parser.add_argument("--results", type=Path, help="what the program has printed before, instead of running it")
    parser.add_argument("--out", default="result/convergence", type=Path, help="folder for convergence.json and .png")
    parser.add_argument("arguments", nargs="*", help="of the program: cpu or cuda, and sizes")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    results = arguments.out / "convergence.json"
    if arguments.results:
        shutil.copyfile(arguments.results, results)
    else:
        command = [arguments.program, *arguments.arguments]
        print("$", " ".join(command), flush=True)
        with results.open("w") as file:
            subprocess.run(command, check=True, stdout=file)
    measured = json.loads(results.read_text())
    print_table(measured)
    draw(measured, arguments.out / "convergence.png")


if __name__ == "__main__":
    main()
