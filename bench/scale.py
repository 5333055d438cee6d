"""Predicts the time of work on ranks with an H200 each, beside what bench/scale_cuda measured, and draws scale.png.

The work is alternating sweeps in float32, with arrays on the devices: a solve of points or of a cost matrix, a batch of
small problems, or a Hessian product. Constants come from bench/results, as the comment at each says. A prediction that
is further than 15 % from the measurement has a mark.
"""

import argparse
import json
import re
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
FAIR = 0.15

# scale_h200_x4.json: one device at work for seconds.
PRODUCTS = 4.35e14  # operations a second of the tensor cores on products of points,
LONG, LONG_PRODUCTS = 1024, 3.5e14  # and on points of more than 1024 numbers
EXPONENTIALS = 2.22e12  # a second, with the sums around them
BYTES = 3.25e12  # a second, of a matrix in a half-step
SURVEY = 1.3e11  # pairs a second, in the survey of a matrix
SMALL = 4.8e11  # pairs a second, in half-steps of problems whose scores stay in shared memory
# h200_passes.json: 10,000 points.
DIFFERENCES, DIFFERENCE, FEW = 2.3e-13, 7.25e-14, 15  # seconds a pair, and for each coordinate of at most 15
BYTES_OF_SWEEP, MOST_COLUMNS = 2.9e12, 49152  # of a matrix with at most so many columns: a sweep from one read
EVALUATION, EVALUATION_OF_POINTS, COORDINATE = 3e-12, 2e-12, 4.5e-14  # seconds a pair in float64
# scale_h200_x2.json and scale_h200_x4.json, in seconds.
LAUNCH = 9e-6  # of a half-step without pairs
POINT, PROBLEM = 7e-9, 2.85e-5  # to pack a point; to prepare and certify a problem of a batch
CALL, MEETINGS = 2e-4, 8e-4  # of a call, and what ranks add to it
PASSES, PASSES_OF_STEP = 15, 2  # of a Hessian product, each as long as a half-step
GATHER, STEP, LINK = 8.5e-6, 2.5e-6, 1.3e11  # NCCL: the first step of a ring, each further one; bytes a second
# Several hosts, assumed and not measured: a host has 8 devices, and each device a network link of 400 Gb/s. Messages
# are assumed to reach 80 % of this rate.
OF_HOST, STEP_OF_HOSTS, LINK_OF_HOSTS = 8, 6e-6, 4e10
# src/cuda: shorter passes are not shared; shares are blocks of rows.
LEAST_PASS, BLOCK = 4e-5, 128


@dataclass(frozen=True)
class Work:
    """n x n points of d numbers, or costs where d is 0. A Hessian product has steps of conjugate gradients."""

    n: int
    d: int = 0
    sweeps: int = 0
    certificate: bool = False
    steps: int = 0
    problems: int = 1


def work_of(name):
    """The work that bench/scale_cuda calls by this name."""
    numbers = [int(number) for number in re.findall(r"\d+", name)]
    if name.startswith("Hessian"):
        return Work(numbers[0], numbers[1], steps=numbers[2])
    problems = numbers.pop(0) if "problems" in name else 1
    d = 0 if name.startswith("matrix") else numbers[1]
    return Work(numbers[0], d, numbers[-1], name.endswith("certificate"), problems=problems)


def gather(size, ranks):
    """Seconds until all ranks have all `size` bytes, of which each has made a part."""
    if ranks == 1:
        return 0
    hosts = ceil(ranks / OF_HOST)
    between = hosts if hosts > 1 else 0
    link = LINK_OF_HOSTS if hosts > 1 else LINK
    return GATHER + (ranks - 1 - between) * STEP + between * STEP_OF_HOSTS + size * (ranks - 1) / ranks / link


def pair_of_points(d):
    """Seconds of a pair in a half-step. Points are in two fp16 numbers: a score takes three products of d numbers."""
    products = DIFFERENCES + d * DIFFERENCE if d <= FEW else 6 * d / (LONG_PRODUCTS if d > LONG else PRODUCTS)
    return max(products, 1 / EXPONENTIALS)


def predicted(work, ranks):
    """Seconds of the call, and how many of them are messages of the sweeps."""
    pairs = work.n**2
    rest = CALL + (MEETINGS if ranks > 1 else 0)
    if work.problems > 1:
        sweep = 2 * LAUNCH + ceil(work.problems / ranks) * 2 * pairs / SMALL
        return work.sweeps * sweep + work.problems * PROBLEM + rest, 0
    one_read = work.d == 0 and work.n <= MOST_COLUMNS
    if work.d:
        half, evaluation = pairs * pair_of_points(work.d), max(EVALUATION, EVALUATION_OF_POINTS + work.d * COORDINATE)
    else:
        half, evaluation = 4 * pairs / (2 * BYTES_OF_SWEEP if one_read else BYTES), EVALUATION
    if half < LEAST_PASS:
        ranks = 1
    blocks = ceil(work.n / BLOCK)
    share = ceil(blocks / ranks) / blocks  # of the rank with the most rows
    turns = (PASSES + PASSES_OF_STEP * work.steps) / 2 if work.steps else work.sweeps
    # A half-step gathers two float32 numbers for each output: a reference and a sum of exponentials. Where one read of
    # a matrix serves both half-steps, each rank has these numbers for all columns, and the second gather joins them.
    messages = turns * (gather(8 * work.n, ranks) + gather(8 * work.n * (ranks if one_read else 1), ranks))
    rest += 2 * work.n * POINT if work.d else pairs / SURVEY * share
    if work.certificate:
        rest += pairs * evaluation * share + gather(8 * work.n * ranks, ranks)
    return turns * 2 * (half * share + LAUNCH) + messages + rest, messages


def measured_rows():
    """Numbers of devices, and rows of bench/scale_cuda."""
    for file in ("scale_h200_x4.json", "scale_h200_x2.json"):
        for run in json.loads((RESULTS / file).read_text())["runs"]:
            yield from ((run["devices"], row) for row in run["measurements"] if "name" in row)


def measurements():
    """{name: {ranks: seconds of a call, the least of its runs}}"""
    found = {}
    for devices, row in measured_rows():
        times = found.setdefault(row["name"], {})
        for ranks, seconds in ((1, row["one"]), (devices, row["shared"])):
            times[ranks] = min(seconds, times.get(ranks, seconds))
    return found


def rows_of(named, ranks, measured):
    rows = []
    for name, work in named.items():
        alone = predicted(work, 1)[0]
        for count in ranks:
            seconds, messages = predicted(work, count)
            at = measured.get(name, {}).get(count)
            rows.append({"work": name, "ranks": count, "seconds": seconds, "messages": messages,
                         "times_one": alone / seconds, "measured": at, "off": at and seconds / at - 1})
    return rows


def print_table(rows):
    print(f"{'work':>62} {'ranks':>5} {'ms':>10} {'messages':>9} {'times one':>9} {'measured':>9} {'off':>6}")
    for row in rows:
        end = ""
        if row["measured"]:
            end = f" {1e3 * row['measured']:9.1f} {100 * row['off']:+5.0f}%{' !' if abs(row['off']) > FAIR else ''}"
        print(f"{row['work']:>62} {row['ranks']:5} {1e3 * row['seconds']:10.1f} {1e3 * row['messages']:9.1f} "
              f"{row['times_one']:9.2f}{end}")


def draw(picture, measured):
    """Strong and weak scaling: lines of the model, dots of the measurements."""
    import matplotlib

    matplotlib.use("Agg")  # needs no display
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 9, "axes.titlesize": 10, "figure.facecolor": "white"})
    figure, (strong, weak) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    ranks = [2**k for k in range(11)]
    names = {"points 1000000 x 64, 3 sweeps": "#1f5f8b", "points 200000 x 64, 10 sweeps": "#7fb2d6",
             "points 200000 x 3, 20 sweeps": "#d1603d", "matrix 60000, 50 sweeps": "#d9a441",
             "points 20000 x 64, 200 sweeps": "#8a8a8a"}
    for name, colour in names.items():
        work = work_of(name)
        strong.loglog(ranks, [predicted(work, 1)[0] / predicted(work, count)[0] for count in ranks], color=colour,
                      label=name[:name.index(",")])
        ratios = {1: 1} | {devices: row["ratio"] for devices, row in measured_rows() if row["name"] == name}
        strong.plot(list(ratios), list(ratios.values()), "o", color=colour, ms=4)
    strong.plot(ranks, ranks, color="#222222", lw=0.6, ls=":")
    strong.set(title="one problem: times as fast as one GPU", xlabel="GPUs")
    strong.legend(fontsize=8)
    for d, colour in ((64, "#1f5f8b"), (3, "#d1603d")):
        sweep = [predicted(Work(100000 * count, d, 10), count)[0] / 10 for count in ranks]
        weak.loglog(ranks, sweep, color=colour, label=f"100,000 points a GPU, d = {d}")
        for name, seconds in measured.items():
            work = work_of(name)
            for count, at in seconds.items():
                if work.n == 100000 * count and work.d == d and work.sweeps and not work.certificate:
                    weak.plot(count, at / work.sweeps, "o", color=colour, ms=4)
    weak.set(title="points in proportion to GPUs: seconds of a sweep", xlabel="GPUs")
    weak.legend(fontsize=8)
    for axes in (strong, weak):
        axes.axvspan(OF_HOST + 1, ranks[-1], color="#222222", alpha=0.05, lw=0)
        axes.grid(alpha=0.25)
        axes.set_xticks(ranks, [str(count) for count in ranks])
        axes.minorticks_off()
    title = "NVIDIA H200: measured (dots, up to 4), model (lines); grey: more than 8, several hosts, assumed"
    figure.suptitle(title, fontsize=11)
    figure.savefig(picture, dpi=110)
    print(f"picture: {picture.resolve()}")


def ranks_of(text):
    """'1,2,4', or by doubling '8..1024'."""
    if ".." not in text:
        return [int(part) for part in text.split(",")]
    first, last = (int(part) for part in text.split(".."))
    return [count for count in (first * 2**k for k in range(30)) if count <= last]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=ranks_of, default=[1, 2, 4], help="1,2,4 or, by doubling, 8..1024")
    parser.add_argument("--work", help="a name as in the table, such as 'points 500000 x 16, 100 sweeps'")
    parser.add_argument("--weak", action="store_true", help="n of the work is that of each rank")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--picture", type=Path, help="where the picture goes")
    arguments = parser.parse_args()
    measured = measurements()
    named = {name: work_of(name) for name in ([arguments.work] if arguments.work else measured)}
    rows = rows_of(named, arguments.ranks, measured)
    if arguments.weak:
        rows = [row for count in arguments.ranks for row in rows_of(
            {f"{name}, n times {count}": replace(work, n=work.n * count) for name, work in named.items()}, [count], {})]
    if arguments.json:
        print(json.dumps(rows, indent=1))
    else:
        print_table(rows)
    if arguments.picture:
        draw(arguments.picture, measured)


if __name__ == "__main__":
    main()
