"""The measurement of bench/speed: turns, gate and tables. Its numbers are not tested."""

import copy
import importlib
import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "bench/results/speed_cpu.json"


@pytest.fixture(scope="module")
def speed():
    """A function that imports a module of the folder, which is a program and no package."""
    sys.path.insert(0, str(ROOT / "bench/speed"))
    yield importlib.import_module
    sys.path.remove(str(ROOT / "bench/speed"))


@pytest.fixture
def run():
    return json.loads(COMMITTED.read_text())


def test_solvers_take_turns_and_missing_packages_are_listed(speed):
    cases, measure = speed("cases"), speed("measure")
    order = []

    def one(name):
        def solvers():
            yield cases.Solver(name, lambda: order.append(name), lambda found: 0.5)

        return solvers

    def missing():
        raise ImportError("No module named 'peer'\nand more")
        yield

    case = cases.Case("over n", {"n": 3}, {"monge": one("Monge"), "pot": one("POT"), "ott": missing})
    absent, failed = {}, {}
    rows = measure.measure(case, "small", "cpu", absent, failed)
    assert not failed and absent == {"ott": "ImportError: No module named 'peer'"}
    assert [row["solver"] for row in rows] == ["Monge", "POT"]
    assert order == ["Monge", "POT"] * (1 + rows[0]["runs"]) and rows[0]["runs"] == measure.MOST_RUNS
    for row in rows:
        low, high = row["quartiles"]
        assert low <= row["ms"] <= high and row["error"] == 0.5 and row["case"] == "over n, n 3"
        assert row["yardstick_ms"] > 0 and row["load"] >= 0 and row["others"] >= 0


def test_a_run_that_was_broken_off_goes_on(speed, tmp_path, monkeypatch):
    measure, kept = speed("measure"), tmp_path / "speed.part"
    monkeypatch.setattr(measure, "cases", lambda sizes, device: iter(()))
    monkeypatch.setattr(measure, "memory", lambda sizes, failed: [])
    monkeypatch.setattr(measure, "PACKAGES", {})
    row = {"case": "exact, n 3", "table": "exact", "solver": "Monge"}
    kept.write_text(json.dumps({"at": {"commit": "0ld", "changed": False}, "rows": [row], "absent": {}, "failed": {}}))
    assert measure.report("small", "cpu", kept)["rows"] == []
    assert measure.report("small", "cpu", kept, goes_on=True)["rows"] == [{"commit": "0ld"} | row]
    kept.write_text(json.dumps({"at": measure.commit(), "rows": [row], "absent": {}, "failed": {}}))
    assert measure.report("small", "cpu", kept)["rows"] == [row]


def test_the_gate_names_what_became_slower(speed, run):
    gate = speed("gate")
    assert gate.compare(run, run) == ({}, sum(row["solver"].startswith("Monge") for row in run["rows"]))
    other = copy.deepcopy(run)
    for row in other["rows"]:  # Another machine: all takes twice as long, the yardstick too.
        for name in ("ms", "yardstick_ms"):
            if name in row:
                row[name] *= 2
    assert gate.compare(run, other)[0] == {}
    for row in other["rows"]:
        if row["case"].startswith("exact, n 256") and row["solver"] in ("Monge", "POT"):
            row["ms"] *= 20
    slower, _ = gate.compare(run, other)
    ((case, lines),) = slower.items()
    assert case == "exact, n 256, d 16, weights uniform" and len(lines) == 1
    assert lines[0].startswith(f"{case}: Monge: ") and "1900 % more than" in lines[0]
    assert gate.compare(run, other, 20.0)[0] == {}


def without(run, is_left_out):
    return run | {"rows": [row for row in run["rows"] if not is_left_out(row)]}


def test_the_gate_names_what_failed_or_is_missing(speed, run):
    gate, compare = speed("gate"), runpy.run_path(str(ROOT / "bench/speed/__main__.py"))["compare"]
    lines = lambda new: [line for found in gate.compare(run, new)[0].values() for line in found]  # noqa: E731
    assert compare(run, run, 0.0) == 0
    no_monge = without(run, gate.is_of_monge)
    assert compare(run, no_monge, 3.0) == 1  # All cases have peers.
    case = "over d, n 1000, d 8, tolerance 1e-06"
    one_less = without(run, lambda row: (row["case"], row["solver"]) == (case, "Monge, float32"))
    assert lines(one_less) == [f"{case}: Monge, float32: is missing"]
    all_fail = without(run, lambda row: row["case"] == case) | {"failed": {case: "ValueError: x: is"}}
    assert lines(all_fail) == [f"{case}: Monge: failed: ValueError: x: is"]
    small = without(run, lambda row: row["case"] != case)
    assert gate.compare(run, small) == ({}, 2) and compare(run, small, 0.0) == 0
    assert compare(run, small | {"rows": []}, 0.0) == 1  # Nothing was compared.


def test_the_gate_compares_errors_and_memory(speed, run):
    gate = speed("gate")

    def worse(solver, case, **changes):
        new = copy.deepcopy(run)
        (row,) = (row for row in new["rows"] if row["solver"] == solver and row["case"].startswith(case))
        row |= changes
        return [line.partition(": ")[2] for found in gate.compare(run, new)[0].values() for line in found]

    of_points = ("Monge, float64", "over d, n 1000, d 512,")  # It reached 9e-10; the tolerance is 1e-6.
    assert worse(*of_points, error=9.9e-7) == []
    assert worse(*of_points, error=0.5) == ["Monge, float64: error 0.5, before 9.1e-10; must be at most 1e-06"]
    assert worse(*of_points, error=float("nan")) != []
    of_rounding = ("Monge, float32", "error over time, n 1000, d 3, tolerance 1e-08")  # It reached 3.7e-7.
    assert worse(*of_rounding, error=7e-7) == [] and worse(*of_rounding, error=8e-7) != []
    assert worse("Monge", "exact, n 256", error=1e-12) == [] and worse("Monge", "exact, n 256", error=1e-6) != []
    of_memory = ("Monge, float64", "memory, n 1000,")  # It took 2 MiB; a matrix of n^2 in float64 takes 8.
    assert worse(*of_memory, mib=4.0) == []
    assert worse(*of_memory, mib=10.0) == ["Monge, float64: 10 MiB, before 2.055; must be at most 6.569"]
    assert worse("POT, float64", "memory, n 1000,", mib=1e4) == []


def test_failures_of_monge_are_no_absent_packages(speed, monkeypatch):
    cases, measure = speed("cases"), speed("measure")

    def failing(error):
        def solvers():
            raise error
            yield

        return solvers

    wrong, no_torch = ValueError("x: is wrong"), ModuleNotFoundError("needs torch", name="torch")
    no_part = ModuleNotFoundError("No module named 'monge.torch'", name="monge.torch")
    for error, is_failure in ((wrong, True), (no_torch, False), (no_part, True)):
        absent, failed = {}, {}
        case = cases.Case("loss", {"n": 3}, {"monge": failing(error)})
        assert measure.measure(case, "small", "cpu", absent, failed) == []
        why = f"{type(error).__name__}: {error}"
        assert failed == ({"loss, n 3": why} if is_failure else {})
        assert absent == ({} if is_failure else {"monge": why})
    monkeypatch.setattr(measure, "MEMORY", {"Monge, exact": "import monge; monge.nothing()", "POT": "import x; x"})
    assert measure.memory("small", failed := {}) == []
    assert list(failed) == ["memory, n 1000, d 16"] and "Monge, exact: AttributeError" in failed["memory, n 1000, d 16"]


def test_noise_is_that_of_both_rows(speed):
    gate = speed("gate")

    def run_of(ms, quartiles, load=0.0, runs=9):
        row = {"case": "c", "solver": "Monge", "package": "monge", "ms": ms, "quartiles": quartiles, "runs": runs}
        return {"device": "cpu", "threads": 2, "commit": "0", "rows": [row | {"load": load, "yardstick_ms": 1.0}]}

    quiet, noisy = run_of(10.0, [9.9, 10.1]), run_of(10.0, [8.0, 12.0])
    # 0.08 + 3 x 1 % of each; with 20 % in the place of one: 0.08 + 0.6 + 0.03.
    of_quiet, of_noisy = ((quiet, 1.13, False), (quiet, 1.15, True)), ((noisy, 1.70, False), (noisy, 1.72, True))
    for old, change, is_slower in (*of_quiet, *of_noisy):
        new = run_of(10.0 * change, [9.9 * change, 10.1 * change])
        assert bool(gate.compare(old, new)[0]) is is_slower
    busy = run_of(13.0, [12.87, 13.13], load=5.0)
    assert gate.compare(quiet, busy)[0] == {}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_documents_show_the_committed_runs(speed, device):
    pages, committed = speed("pages"), COMMITTED.with_name(f"speed_{device}.json")
    text = "\n".join((ROOT / name).read_text() for name in ("docs/speed.md", "README.md"))
    for name, table in pages.tables(json.loads(committed.read_text())).items():
        assert f"<!-- speed: {name} -->\n{table}\n<!-- end -->" in text, f"./dev speed pages {committed.name}: {name}"


def test_tables_and_picture(speed, run, tmp_path):
    pages = speed("pages")
    busy = copy.deepcopy(run)
    for row in busy["rows"]:
        row["load"] = 9.0 if row["table"] == "exact" else 0.0
    made = pages.tables(busy)
    assert "*" in made["exact"] and "*" not in made["over n"].replace("**", "")
    assert "were measured while other work took the cores" in " ".join(made["about"].split())
    document = tmp_path / "page.md"
    document.write_text("before\n<!-- speed: memory -->\nold\n<!-- end -->\nafter\n")
    assert pages.write(run, [document]) == ["memory"]
    assert document.read_text().startswith("before\n<!-- speed: memory -->\n| n |")
    pytest.importorskip("matplotlib")
    pages.draw(run, tmp_path / "speed.png")
    assert (tmp_path / "speed.png").stat().st_size > 20_000


@pytest.mark.parametrize("table", ["entropic", "exact", "assignment"])
def test_solvers_of_monge_reach_their_error(speed, table):
    cases = speed("cases")
    made = {
        "entropic": lambda: cases.entropic(cases.Clouds(60, 3, "cpu"), 1e-5),
        "exact": lambda: cases.exact(40, 2, "uniform", "cpu"),
        "assignment": lambda: cases.assignment(3, 7, 5, "cpu"),
    }[table]()
    most = {"entropic": 1e-5, "exact": 1e-9, "assignment": 0.0}[table]
    packages = {"entropic": ("monge",), "exact": ("monge", "scipy"), "assignment": ("scipy", "monge")}[table]
    for package in packages:
        for solver in made[package]():
            error = solver.error(solver.call())
            assert np.isfinite(error) and error <= most, solver.name
