"""The experiments of the four papers run at their small sizes, and their numbers are what the papers claim in kind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[3] / "bench" / "papers"


def run(folder, *arguments):
    environment = os.environ | {"OMP_NUM_THREADS": "2"}
    call = [sys.executable, str(PROGRAM), *arguments, "--out", str(folder)]
    return subprocess.run(call, capture_output=True, text=True, env=environment)


def tables(folder, paper, *only):
    done = run(folder, paper, "--only", *only)
    assert done.returncode == 0, done.stderr
    held = json.loads((folder / f"{paper}_cpu.json").read_text())
    assert [table["name"] for table in held["tables"]] == list(only)
    return {table["name"]: table["rows"] for table in held["tables"]}


def test_hessian_products_are_those_of_the_pseudo_inverse(tmp_path):
    rows = tables(tmp_path, "flash", "hessian_parity")["hessian_parity"]
    for eps, precision, undamped, *_ in rows:
        # Rounding of entries is 2^-24 (float32) of logits of size C / eps; the system is solved to 1e-7.
        assert undamped < (1e-4 if precision == "float32" else 1e-5), (eps, precision)


def test_sets_with_labels_and_the_saddle(tmp_path):
    found = tables(tmp_path, "flash", "data_sets", "saddle_escape")
    assert all(all(time > 0 for time in row[1:4]) for row in found["data_sets"])
    losses = [row[1] for row in found["saddle_escape"]]
    assert losses[-1] < losses[0] / 2
    assert (tmp_path / "flash_data_sets.png").stat().st_size > 0


def test_projections_have_quantiles(tmp_path):
    for row in tables(tmp_path, "mhc", "batches")["batches"]:
        low, median, high = row[2:5]
        assert 0 < low <= median <= high


def test_second_order_reaches_small_errors(tmp_path):
    rows = tables(tmp_path, "curegot", "convergence")["convergence"]
    reached = {(problem, method): error for problem, method, *_, error in rows}
    assert all(error <= 1e-6 for (_, method), error in reached.items() if method in ("SPLR", "Newton", "auto"))


def test_the_support_settles(tmp_path):
    rows = tables(tmp_path, "rdrot", "support", "adapted_domains")["support"]
    assert rows[-1][1] < 1e-12
    assert rows[-1][2] == rows[-2][2]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["flush"], "no paper 'flush'"),
        (["flash", "--only", "table_3"], "no experiment 'table_3'"),
    ],
)
def test_wrong_arguments(tmp_path, arguments, message):
    done = run(tmp_path, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
