"""The measurement: all solvers of a case in turns, so that a change of the machine's speed meets each of them."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from cases import MEMORY, PACKAGES, Case, Solver, cases, version_of

MOST_RUNS, LEAST_RUNS = 15, 3
SECONDS = {"full": 1.0, "small": 0.25, "cuda": 0.1}
"""How long each solver runs in a case, unless its few runs take longer."""
LONG = 5.0
"""A first call of more seconds is the only one, and counts."""


class Yardstick:
    """A product and exponentials of NumPy, one thread's work that no change of Monge alters. Times of two machines, or
    of two loads of one, are compared over its own."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        self.x, self.y = random.normal(size=(2, 700, 64))

    def __call__(self) -> Any:
        return np.exp(np.einsum("id,jd->ij", self.x, self.y, optimize=False) * 1e-3).sum()


class Busy:
    """The cores that other processes keep busy."""

    def __init__(self) -> None:
        self.begin = self._now()

    def _now(self) -> tuple[float, float, float]:
        own = os.times()
        with open("/proc/stat") as file:
            user, nice, system, _idle, _wait, irq, soft, steal, *_ = map(float, file.readline().split()[1:])
        ticks = os.sysconf("SC_CLK_TCK")
        return time.perf_counter(), (user + nice + system + irq + soft + steal) / ticks, sum(own[:4])

    def others(self) -> float:
        wall, busy, own = (now - then for now, then in zip(self._now(), self.begin))
        return round(max(0.0, (busy - own) / max(wall, 1e-9)), 2)


def synchronize(device: str) -> None:
    if device != "cpu":
        import torch

        torch.cuda.synchronize()


def seconds_of(call: Any, device: str) -> tuple[float, Any]:
    synchronize(device)
    begin = time.perf_counter()
    result = call()
    synchronize(device)
    return time.perf_counter() - begin, result


def row_of(solver: Solver, times: list[float], error: float | None) -> dict[str, Any]:
    low, _, high = statistics.quantiles(times, n=4) if len(times) > 1 else (times[0],) * 3
    found = {"solver": solver.name, "group": solver.group, "ms": 1e3 * statistics.median(times)}
    found |= {"quartiles": [1e3 * low, 1e3 * high], "runs": len(times)}
    return found | ({} if error is None else {"error": error})


def is_absent(error: Exception) -> bool:
    """Whether another package than Monge is missing, as PyTorch is for monge.torch."""
    return isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("monge")


def measure(
    case: Case, sizes: str, device: str, absent: dict[str, str], failed: dict[str, str]
) -> list[dict[str, Any]]:
    """A row for each solver. First each solver is called once, which may compile; then all take turns. `absent` gets
    the peers that are missing or fail, `failed` the case if Monge fails."""
    solvers: list[tuple[str, Solver, float | None]] = []
    took: dict[str, float] = {}
    busy, load = Busy(), os.getloadavg()[0]
    for package, yields in case.packages.items():
        try:
            for solver in yields():
                seconds, result = seconds_of(solver.call, device)
                if seconds > LONG and device != "cpu":  # Kernels were compiled.
                    seconds, result = seconds_of(solver.call, device)
                took[solver.name] = seconds
                solvers.append((package, solver, solver.error(result) if solver.error else None))
        except Exception as error:
            why = f"{type(error).__name__}: {error}".splitlines()[0]
            if package == "monge" and not is_absent(error):
                failed[case.key] = why
            else:
                absent[package] = why
    yardstick, times = Yardstick(), {name: [seconds] if seconds > LONG else [] for name, seconds in took.items()}
    measures: list[float] = []
    going = True
    while going:
        measures.append(seconds_of(yardstick, "cpu")[0])
        going = False
        for _, solver, _ in solvers:
            runs = times[solver.name]
            if took[solver.name] > LONG:
                continue
            if len(runs) < LEAST_RUNS or (
                sum(runs) < SECONDS[sizes if device == "cpu" else "cuda"] and len(runs) < MOST_RUNS
            ):
                runs.append(seconds_of(solver.call, device)[0])
                going = True
    about = {"case": case.key, "table": case.table, "given": case.given}
    about |= {"load": round(max(load, os.getloadavg()[0]), 2), "others": busy.others()}
    about |= {"yardstick_ms": 1e3 * statistics.median(measures)}
    return [
        about | {"package": package} | row_of(solver, times[solver.name], error) for package, solver, error in solvers
    ]


_OF_MEMORY = """
import sys
import numpy as np
def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
n = int(sys.argv[1])
x, y = np.random.default_rng(0).normal(size=(2, n, 16))
eps = 0.05 * 32
{imports}
before = peak()
{call}
print((peak() - before) / 1024)
"""


def memory(sizes: str, failed: dict[str, str]) -> list[dict[str, Any]]:
    """The growth of the peak of a process over a call, in MiB, each in a process of its own."""
    rows = []
    for n in (1000, 2000, 5000, 10000) if sizes == "full" else (1000,):
        for name, program in MEMORY.items():
            imports, call = program.split("; ")
            code = _OF_MEMORY.format(imports=imports, call=call)
            load = round(os.getloadavg()[0], 2)
            run = subprocess.run([sys.executable, "-W", "ignore", "-c", code, str(n)], capture_output=True, text=True)
            given, key = {"n": n, "d": 16}, f"memory, n {n}, d 16"
            if run.returncode != 0 and name.startswith("Monge"):
                failed[key] = f"{name}: {(run.stderr.splitlines() or ['no message'])[-1]}"
            elif run.returncode == 0:
                found = {"solver": name, "mib": float(run.stdout)}
                rows.append({"case": key, "table": "memory", "given": given, "load": load, **found})
    return rows


def processor() -> str:
    with open("/proc/cpuinfo") as file:
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return names[0] if names else platform.machine()


def commit() -> dict[str, Any]:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "src", "include", "python")
    given = os.environ.get("MONGE_COMMIT")  # Of a copy of a clean tree, without its history.
    return {"commit": given or git("rev-parse", "--short", "HEAD"), "changed": bool(changed) and not given}


def again(run: dict[str, Any], sizes: str, keys: set[str]) -> None:
    """Measures these cases once more; the faster row of each solver stays."""
    for case in cases(sizes, run["device"]):
        if case.key in keys:
            found = {row["solver"]: row for row in measure(case, sizes, run["device"], {}, {})}
            for k, row in enumerate(run["rows"]):
                new = found.get(row["solver"]) if row["case"] == case.key else None
                if new and new["ms"] / new["yardstick_ms"] < row["ms"] / row["yardstick_ms"]:
                    run["rows"][k] = new


def report(sizes: str, device: str, kept: Path, goes_on: bool = False) -> dict[str, Any]:
    """A run. Its rows so far are in `kept`, from which a run that was broken off goes on at the same commit; with
    `goes_on` also at another, where each earlier row says at which commit it was measured."""
    import monge

    warnings.simplefilter("ignore")
    at = commit()
    broken = json.loads(kept.read_text()) if kept.exists() else {}
    is_same = broken.get("at") == at or (goes_on and bool(broken))
    if is_same and broken["at"] != at:
        broken["rows"] = [{"commit": broken["at"]["commit"]} | row for row in broken["rows"]]
    rows: list[dict[str, Any]] = broken["rows"] if is_same else []
    absent: dict[str, str] = broken["absent"] if is_same else {}
    failed: dict[str, str] = broken.get("failed", {}) if is_same else {}
    begin = time.perf_counter()
    for case in cases(sizes, device):
        if any(row["case"] == case.key for row in rows):
            continue
        rows += measure(case, sizes, device, absent, failed)
        kept.write_text(json.dumps({"at": at, "rows": rows, "absent": absent, "failed": failed}))
        print(f"{time.perf_counter() - begin:6.0f} s  {case.key}", file=sys.stderr, flush=True)
    if device == "cpu":
        rows += memory(sizes, failed)
    absent = {name: why for name, why in absent.items() if all(row.get("package") != name for row in rows)}
    versions = {"monge": monge.__version__, "python": platform.python_version(), "numpy": np.__version__}
    for package in PACKAGES:
        if package not in absent:
            versions[package] = version_of(package)
    found = {
        "command": f"./dev speed {sizes if device == 'cpu' else 'cuda'}",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        **at,
        "device": device,
        "processor": processor(),
        "threads": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "components": dict(monge.component_versions()),
        "versions": versions,
        "absent": absent,
        "failed": failed,
        "seconds": round(time.perf_counter() - begin),
        "rows": rows,
    }
    if device != "cpu":
        import torch

        found["gpu"] = torch.cuda.get_device_name()
    return found


def rounded(run: dict[str, Any]) -> str:
    """The run in JSON, with four digits."""
    return json.dumps(json.loads(json.dumps(run), parse_float=lambda text: float(f"{float(text):.4g}")), indent=1)
