"""The gate: what became slower than in another run, by more than the noise of both.

Each time is divided by the time of the yardstick, which was measured in the same turns. The quotient does not depend on
the speed or the load of the machine. The noise of a row is three times half the distance of its quartiles, relative to
its median: one in 15 normal errors is larger. Rows of few runs, or of a busy machine, get more noise. Every row gets a
least noise for effects that all its runs share, such as another layout of memory.
"""

from __future__ import annotations

from typing import Any

LEAST_NOISE = 0.08
OF_BUSY = 0.25
"""The noise that is added for a row that was measured beside other work."""


def is_busy(row: dict[str, Any], threads: int) -> bool:
    """Whether other processes worked beside a row: a load above the cores, which the run itself fills."""
    return round(row.get("load", 0)) > threads


def _noise(row: dict[str, Any], threads: int) -> float:
    low, high = row["quartiles"]
    spread = 3 * (high - low) / 2 / row["ms"] if row["runs"] > 2 else OF_BUSY
    return spread + OF_BUSY * is_busy(row, threads)


def compare(old: dict[str, Any], new: dict[str, Any], allowance: float = 0.0) -> tuple[dict[str, list[str]], int]:
    """A line for each of Monge's rows that became slower by more than noise and `allowance`, by the case, and the
    number of rows that both runs have."""
    if old["device"] != new["device"]:
        raise SystemExit(f"dev: error: the runs are of {old['device']} and of {new['device']}; must be of one device")
    before = {(row["case"], row["solver"]): row for row in old["rows"] if "ms" in row}
    slower: dict[str, list[str]] = {}
    count = 0
    for row in new["rows"]:
        was = before.get((row["case"], row["solver"]))
        if was is None or row.get("package") != "monge":
            continue
        count += 1
        change = row["ms"] / row["yardstick_ms"] * was["yardstick_ms"] / was["ms"] - 1
        noise = LEAST_NOISE + _noise(row, new["threads"]) + _noise(was, old["threads"])
        if change > noise + allowance:
            slower.setdefault(row["case"], []).append(
                f"{row['case']}: {row['solver']}: {row['ms']:.4g} ms, {100 * change:.0f} % more than {was['ms']:.4g} "
                f"ms of {old['commit']}, both over the yardstick; noise {100 * noise:.0f} %"
            )
    return slower, count
