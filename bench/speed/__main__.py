"""Monge beside its peers, in one run on one machine: the times of docs/speed.md and of the README.

usage: ./dev speed [full|small|cuda]      measures, writes result/speed.json and compares it with the committed run
       ./dev speed pages FILE             writes the tables and the picture of a run
       ./dev speed compare OLD NEW        names what is worse by more than its noise

"full" takes about half an hour on two cores, "small" a minute, and "cuda", with larger problems on a GPU, some minutes.
Solvers of a case take turns; a row has the median and the quartiles of its runs, the load, and the time of a yardstick
in the same turns. The committed runs are bench/results/speed_cpu.json and speed_cuda.json. `compare` fails with exit
code 1 if a row of Monge is slower, larger, less exact or missing, if a solver of Monge failed, or if the runs have no
row of Monge in common; --allow 3.0 is for another machine: a row may take four times as long and as much memory.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import gate

ROOT = Path(__file__).parents[2]


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def compare(old: dict[str, Any], new: dict[str, Any], allow: float) -> int:
    worse, count = gate.compare(old, new, allow)
    lines = [line for found in worse.values() for line in found]
    for line in lines:
        print(f"worse: {line}")
    print(f"{count} rows of Monge compared with the run of {old['date']}, {len(lines)} worse")
    return 1 if lines or not count else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="full", choices=("full", "small", "cuda", "pages", "compare"))
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--out", type=Path, default=Path("result/speed.json"))
    parser.add_argument("--allow", type=float, default=0.0, help="a share of time and memory that does not count")
    parser.add_argument("--go-on", action="store_true", help="take the rows of a run that another commit broke off")
    given = parser.parse_args()
    if given.what == "compare":
        old, new = map(read, given.files)
        return compare(old, new, given.allow)
    if given.what == "pages":
        import pages

        run = read(*given.files)
        written = pages.write(run, [ROOT / "docs/speed.md", ROOT / "README.md"])
        picture = f"docs/images/speed{'' if run['device'] == 'cpu' else '_cuda'}.png"
        pages.draw(run, ROOT / picture)
        print(f"tables written: {', '.join(written)}; picture: {picture}")
        return 0
    import measure

    device, sizes = ("cuda", "full") if given.what == "cuda" else ("cpu", given.what)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    kept = given.out.with_suffix(f".{given.what}.part")
    run = measure.report(sizes, device, kept, given.go_on)
    path = ROOT / f"bench/results/speed_{device}.json"
    committed = read(path) if path.exists() else None
    if committed is not None and (worse := gate.compare(committed, run, given.allow)[0]):
        measure.again(run, sizes, set(worse))  # A disturbance of the machine does not come twice.
    given.out.write_text(measure.rounded(run) + "\n")
    kept.unlink()
    print(f"written: {given.out}")
    return compare(run if committed is None else committed, run, given.allow)


if __name__ == "__main__":
    sys.exit(main())
