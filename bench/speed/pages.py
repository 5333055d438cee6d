"""Tables of documents and the picture, from the JSON of a run.

A table stands between the lines <!-- speed: NAME --> and <!-- end --> of a document; names of a GPU's run begin with
"cuda".
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

from gate import is_busy

Run = dict[str, Any]
BUSY = "*"
"""The mark of a time that was measured beside other work."""


def number(value: float) -> str:
    """Three digits, with commas between thousands."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:,.{digits}f}"


def of_table(run: Run, table: str) -> list[dict[str, Any]]:
    return [row for row in run["rows"] if row["table"] == table]


def cell(run: Run, row: dict[str, Any] | None) -> str:
    """A time in ms, the mark of a busy machine, and in brackets the error that was reached."""
    if row is None:
        return ""
    text = number(row["ms"]) + (BUSY if is_busy(row, run["threads"]) else "")
    return f"{text} ({row['error']:.0e})".replace("e-0", "e-") if "error" in row else text


def grid(run: Run, table: str, title: str, name_of: Any, columns: list[str], with_error: bool = True) -> str:
    """A line for each case, a column for each solver."""
    cases: dict[str, dict[str, Any]] = {}
    for row in of_table(run, table):
        cases.setdefault(name_of(row["given"]), {})[row["solver"]] = (
            row if with_error else {name: v for name, v in row.items() if name != "error"}
        )
    used = [name for name in columns if any(name in found for found in cases.values())]
    lines = [f"| {title} | " + " | ".join(used) + " |", "|---" * (len(used) + 1) + "|"]
    for case, found in cases.items():
        lines.append(f"| {case} | " + " | ".join(cell(run, found.get(name)) for name in used) + " |")
    return "\n".join(lines)


def about(run: Run) -> str:
    """Where and when the run was, in sentences."""
    versions = run["versions"]
    packages = {"POT": "pot", "GeomLoss": "geomloss", "OTT-JAX": "ott", "SciPy": "scipy", "flash-sinkhorn": "flash"}
    peers = ", ".join(f"{name} {versions[key]}" for name, key in packages.items() if key in versions)
    loads = [row["load"] for row in run["rows"] if "load" in row]
    busy = sum("ms" in row and is_busy(row, run["threads"]) for row in run["rows"])
    machine = run.get("gpu") or f"{run['threads']} threads of {run['processor']}"
    changed = " with changes that are not committed" if run["changed"] else ""
    text = f"One run, `{run['command']}`, of {run['date']}, on {machine}, at commit {run['commit']}{changed}, beside "
    text += f"{peers}. The load was {min(loads):.1f} to {max(loads):.1f}."
    earlier: dict[str, list[str]] = {}
    for row in run["rows"]:
        if "commit" in row and row["table"] not in earlier.setdefault(row["commit"], []):
            earlier[row["commit"]].append(row["table"])
    for commit, names in earlier.items():
        text += f" Tables measured at commit {commit}, before the run was broken off: {', '.join(names)}."
    if busy:
        text += f" {busy} times, marked {BUSY}, were measured while other work took the cores: they are upper bounds."
    return textwrap.fill(text, 120)


ENTROPIC = ["Monge, float64", "Monge, float32", "OTT-JAX, float64", "OTT-JAX, float32", "POT, float64"]
ENTROPIC += ["GeomLoss, float32, scaling 0.98", "flash-sinkhorn, TF32"]


def tables(run: Run) -> dict[str, str]:
    def of_loss(given: dict[str, Any]) -> str:
        return f"{given['n']}, {given['d']}, {given['blur']:g}, {given['tolerance']:.0e}".replace("e-0", "e-")

    memory: dict[int, dict[str, float]] = {}
    for row in of_table(run, "memory"):
        memory.setdefault(row["given"]["n"], {})[row["solver"]] = row["mib"]
    programs = list(dict.fromkeys(row["solver"] for row in of_table(run, "memory")))
    of_memory = ["| n | " + " | ".join(programs) + " |", "|---" * (len(programs) + 1) + "|"]
    for n, found in memory.items():
        of_memory.append(f"| {n} | " + " | ".join(f"{found.get(p, float('nan')):,.0f}" for p in programs) + " |")
    points = of_table(run, "over d")[0]["given"]["n"]
    made = {
        "about": about(run),
        "over n": grid(run, "over n", "n, d = 32", lambda given: str(given["n"]), ENTROPIC),
        "over d": grid(run, "over d", f"d, n = {points}", lambda given: str(given["d"]), ENTROPIC),
        "loss": grid(
            run, "loss", "n, d, blur, tolerance", of_loss,
            ["Monge", "Monge, warm", "GeomLoss, scaling 0.5", "GeomLoss, scaling 0.9", "flash-sinkhorn"],
        ),
        "exact": grid(
            run, "exact", "n, d, weights", lambda given: f"{given['n']}, {given['d']}, {given['weights']}",
            ["Monge", "POT", "SciPy, assignment"], with_error=False,
        ),
        "assignment": grid(
            run, "assignment", "problems", lambda given: "{problems} of {rows} x {columns}".format(**given),
            ["Monge, a batch", "Monge, one by one", "SciPy"], with_error=False,
        ),
        "multiscale": grid(
            run, "multiscale", "n, blur", lambda given: f"{given['n']}, {given['blur']:g}",
            ["Monge", "flash-sinkhorn, multiscale"],
        ),
        "memory": "\n".join(of_memory),
        "readme": readme(run),
    }  # fmt: skip
    on_cpu = run["device"] == "cpu"
    there = {row["table"] for row in run["rows"]} | {"about"} | ({"readme"} if on_cpu else set())
    return {name if on_cpu else f"cuda {name}": text for name, text in made.items() if name in there}


def readme(run: Run) -> str:
    """The largest problem of one table, in seconds, with the errors that were reached."""
    rows = of_table(run, "over n")
    n = max(row["given"]["n"] for row in rows)
    found = {row["solver"]: row for row in rows if row["given"]["n"] == n}
    versions = run["versions"]
    columns = [("Monge, float64", "Monge, float64"), ("OTT-JAX, float32", f"OTT-JAX {versions.get('ott')}, float32")]
    columns += [("POT, float64", f"POT {versions.get('pot')}, float64")]
    there = [(name, title) for name, title in columns if name in found]

    def seconds(row: dict[str, Any]) -> str:
        mark = BUSY if is_busy(row, run["threads"]) else ""
        return f"{row['ms'] / 1e3:.2g} s{mark} ({row['error']:.0e})".replace("e-0", "e-")

    titles, cells = (" | ".join(texts) for texts in zip(*((title, seconds(found[name])) for name, title in there)))
    note = "\n\n\\* other work took the cores, too" if BUSY in cells else ""
    return f"| {titles} |\n|{'---|' * len(there)}\n| {cells} |{note}"


def write(run: Run, paths: list[Path]) -> list[str]:
    """Puts the tables into documents; returns the names of those that were written."""
    made, written = tables(run), []
    for path in paths:
        text = path.read_text()

        def put(found: re.Match[str]) -> str:
            if found[1] not in made:
                return found[0]
            written.append(found[1])
            return f"<!-- speed: {found[1]} -->\n{made[found[1]]}\n<!-- end -->"

        path.write_text(re.sub(r"<!-- speed: ([\w ]+) -->\n.*?<!-- end -->", put, text, flags=re.DOTALL))
    return written


STYLES = {
    "Monge": "#1f5f8b",
    "OTT-JAX": "#d1603d",
    "POT": "#8a8a8a",
    "GeomLoss": "#d9a441",
    "flash-sinkhorn": "#5a9367",
}


def draw(run: Run, picture: Path) -> None:
    """Time over n and over d, error over time, and memory over n on a CPU, time over blur on a GPU."""
    import matplotlib

    matplotlib.use("Agg")  # Needs no display.
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 9, "axes.titlesize": 10, "figure.facecolor": "white"})
    figure, ((over_n, over_d), (error, last)) = plt.subplots(2, 2, figsize=(9.6, 7.2), layout="constrained")

    drawn: dict[str, Any] = {}

    def curve(axes: Any, name: str, points: list[tuple[float, float]]) -> None:
        package = name.partition(",")[0]
        line = ":" if "exact" in name else "--" if "float32" in name and package != "GeomLoss" else "-"
        x, y = zip(*sorted(points))
        (drawn[name],) = axes.loglog(x, y, color=STYLES[package], ls=line, marker="o", ms=3.5, lw=1.5)

    def curves(axes: Any, table: str, x: Any, y: Any, key: str) -> None:
        found: dict[str, list[tuple[float, float]]] = {}
        for row in of_table(run, table):
            if y(row) and y(row) > 0:
                found.setdefault(row[key], []).append((x(row), y(row)))
        for name, points in found.items():
            curve(axes, name, points)
        axes.grid(alpha=0.25, lw=0.4)
        if axes is not error:
            sizes = sorted({x(row) for row in of_table(run, table)})
            axes.set_xticks(sizes, list(map(str, sizes)))
            axes.set_xticks([], minor=True)

    curves(over_n, "over n", lambda row: row["given"]["n"], lambda row: row["ms"], "group")
    over_n.set(title="Time over n: d = 32, to an error of 1e-6", xlabel="n = m", ylabel="milliseconds")
    curves(over_d, "over d", lambda row: row["given"]["d"], lambda row: row["ms"], "group")
    n_of = {table: of_table(run, table)[0]["given"]["n"] for table in ("over d", "error over time")}
    over_d.set(title=f"Time over d: n = m = {n_of['over d']}, to an error of 1e-6", xlabel="d", ylabel="milliseconds")
    curves(error, "error over time", lambda row: row["ms"], lambda row: row.get("error"), "group")
    title = f"Error over time: n = m = {n_of['error over time']}, d = 3"
    error.set(title=title, xlabel="milliseconds", ylabel="marginal error that was reached")
    if run["device"] == "cpu":
        curves(last, "memory", lambda row: row["given"]["n"], lambda row: max(row["mib"], 0.1), "solver")
        last.set(title="Memory over n: growth of the process, d = 16", xlabel="n = m", ylabel="MiB")
    elif not of_table(run, "multiscale"):
        last.set_axis_off()
    else:
        n = min(row["given"]["n"] for row in of_table(run, "multiscale"))
        time = lambda row: row["ms"] if row["given"]["n"] == n else 0.0  # noqa: E731
        curves(last, "multiscale", lambda row: row["given"]["blur"], time, "solver")
        last.set(title=f"Many points: n = m = {n}, d = 3, to 1e-3", xlabel="blur", ylabel="milliseconds")
    figure.legend(drawn.values(), drawn, loc="outside lower center", ncols=4)
    figure.savefig(picture, dpi=110)
