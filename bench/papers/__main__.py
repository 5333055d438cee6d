"""The headline tables and figures of the four papers, measured on this machine beside the published numbers.

usage: python bench/papers [flash] [mhc] [curegot] [rdrot] [--device cpu|cuda] [--size small|paper] [--only NAME...]
                           [--seconds N] [--data FOLDER] [--out FOLDER]

Without a name all four papers run. Each experiment prints a table in Markdown, row by row; the numbers go to the folder
of --out as JSON with each row, pictures at the end of the experiment. With --seconds a table ends after so many
seconds, and each peer has a fifth of them. A peer that is not installed, fails or is out of time leaves a dash. Cheap
rows and experiments come first; where one fails the others still run, and the exit status is 1. Published numbers are
of the papers' own hardware, which the head of each file names: compare ratios, not times.

Real data are read from --data where the paper used them, and replaced by synthetic data of the same shape elsewhere:
  flash    otdd_x.npy, otdd_y.npy (n x d embeddings), otdd_labels_x.npy, otdd_labels_y.npy (classes from 0);
           cytometry.npy (n x 5)
  curegot  features_x.npy, features_y.npy (n x d features of two classes)
"""

import argparse
import sys
from pathlib import Path

import curegot
import flash
import mhc
import rdrot
from sheet import Sheet

PAPERS = {module.__name__: module for module in (flash, mhc, curegot, rdrot)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("papers", nargs="*", metavar="PAPER", help=f"of {', '.join(PAPERS)}; all if none is given")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--size", choices=("small", "paper"), default="small", help="small sizes take a few minutes on two cores"
    )
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="experiments to run, by the names of the functions"
    )
    parser.add_argument("--seconds", type=float, metavar="N", help="of a table; without it each runs to its end")
    parser.add_argument("--data", type=Path, help="folder of the data sets above")
    parser.add_argument("--out", type=Path, default=Path("result/papers"))
    arguments = parser.parse_args()
    for paper in arguments.papers:
        if paper not in PAPERS:
            parser.error(f"no paper '{paper}'; the papers are {', '.join(PAPERS)}")
    known = {experiment.__name__ for module in PAPERS.values() for experiment in module.EXPERIMENTS}
    for name in arguments.only:
        if name not in known:
            parser.error(f"--only: no experiment '{name}'; the experiments are {', '.join(sorted(known))}")
    if arguments.data is not None and not arguments.data.is_dir():
        parser.error(f"--data: '{arguments.data}' is no folder")
    if arguments.seconds is not None and not arguments.seconds > 0:
        parser.error(f"--seconds: is {arguments.seconds:g}; must be > 0")
    done = True
    for paper in arguments.papers or PAPERS:
        sheet = Sheet(paper, arguments.device, arguments.size, arguments.data, arguments.out, arguments.seconds)
        for experiment in PAPERS[paper].EXPERIMENTS:
            if not arguments.only or experiment.__name__ in arguments.only:
                done &= sheet.run(experiment)
    return 0 if done else 1


sys.exit(main())
