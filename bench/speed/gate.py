"""The gate: what of Monge is worse than in another run: slower by more than the noise of both, less exact, larger,
failed or missing.

Each time is divided by the time of the yardstick, which was measured in the same turns. The quotient does not depend on
the speed or the load of the machine. The noise of a row is three times half the distance of its quartiles, relative to
its median: one in 15 normal errors is larger. Rows of few runs, or of a busy machine, get more noise. Every row gets a
least noise for effects that all its runs share, such as another layout of memory.
"""

from __future__ import annotations

import math
from typing import Any

LEAST_NOISE = 0.08
OF_BUSY = 0.25
"""The noise that is added for a row that was measured beside other work."""
ERROR_FACTOR = 2.0
"""An error that no tolerance bounds, of rounding in float32, may grow by this factor: another order of sums does so."""
ROUNDING = 1e-9
"""The largest error of a case without a tolerance, whose solvers are exact."""
MEMORY_NOISE, MEMORY_OF_PROCESS = 0.25, 4.0
"""A share, and MiB: pages of the allocator and of libraries that a call loads first."""


def is_busy(row: dict[str, Any], threads: int) -> bool:
    """Whether other processes worked beside a row: a load above the cores, which the run itself fills."""
    return round(row.get("load", 0)) > threads


def _noise(row: dict[str, Any], threads: int) -> float:
    low, high = row["quartiles"]
    spread = 3 * (high - low) / 2 / row["ms"] if row["runs"] > 2 else OF_BUSY
    return spread + OF_BUSY * is_busy(row, threads)


def is_of_monge(row: dict[str, Any]) -> bool:
    return str(row["solver"]).startswith("Monge")


def _slower(
    was: dict[str, Any], old: dict[str, Any], row: dict[str, Any], new: dict[str, Any], allowance: float
) -> str:
    change = row["ms"] / row["yardstick_ms"] * was["yardstick_ms"] / was["ms"] - 1
    noise = LEAST_NOISE + _noise(row, new["threads"]) + _noise(was, old["threads"])
    if change <= noise + allowance:
        return ""
    return (
        f"{row['ms']:.4g} ms, {100 * change:.0f} % more than {was['ms']:.4g} ms of {old['commit']}, both over the "
        f"yardstick; noise {100 * noise:.0f} %"
    )


def _less_exact(was: dict[str, Any], row: dict[str, Any]) -> str:
    most = max(ERROR_FACTOR * was["error"], row["given"].get("tolerance", ROUNDING))
    found = row.get("error", math.nan)
    return "" if found <= most else f"error {found:.2g}, before {was['error']:.2g}; must be at most {most:.2g}"


def _larger(was: dict[str, Any], row: dict[str, Any], allowance: float) -> str:
    most = was["mib"] * (1 + MEMORY_NOISE + allowance) + MEMORY_OF_PROCESS
    return "" if row["mib"] <= most else f"{row['mib']:.4g} MiB, before {was['mib']:.4g}; must be at most {most:.4g}"


def compare(old: dict[str, Any], new: dict[str, Any], allowance: float = 0.0) -> tuple[dict[str, list[str]], int]:
    """What is worse of Monge, a line each, by the case, and the number of its rows that both runs have.

    Worse are a time or a memory above noise and `allowance`, an error above the tolerance, a solver that failed, and
    one that is missing in a case of the new run. The new run may have fewer cases."""
    if old["device"] != new["device"]:
        raise SystemExit(f"dev: error: the runs are of {old['device']} and of {new['device']}; must be of one device")
    found = {(row["case"], row["solver"]): row for row in new["rows"]}
    measured = {case for case, _ in found}
    worse = {case: [f"{case}: Monge: failed: {why}"] for case, why in new.get("failed", {}).items()}
    count = 0
    for was in filter(is_of_monge, old["rows"]):
        case, row = was["case"], found.get((was["case"], was["solver"]))
        lines = []
        if row is not None:
            count += 1
            lines += [_slower(was, old, row, new, allowance)] if "ms" in was else []
            lines += [_less_exact(was, row)] if "error" in was else []
            lines += [_larger(was, row, allowance)] if "mib" in was else []
        elif case in measured and case not in new.get("failed", {}):
            lines.append("is missing")
        if any(lines):
            worse.setdefault(case, []).extend(f"{case}: {was['solver']}: {line}" for line in lines if line)
    return worse, count
