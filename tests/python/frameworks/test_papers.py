"""The experiments of the four papers run at their small sizes, and their numbers are what the papers claim in kind."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[3] / "bench" / "papers"


def start(folder, *arguments):
    environment = os.environ | {"OMP_NUM_THREADS": "2"}
    call = [sys.executable, str(PROGRAM), *arguments, "--out", str(folder)]
    return subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def run(folder, *arguments):
    process = start(folder, *arguments)
    _, errors = process.communicate()
    return process.returncode, errors


def read(folder, paper):
    return json.loads((folder / f"{paper}_cpu.json").read_text())


def tables(folder, paper, *only):
    code, errors = run(folder, paper, "--only", *only)
    assert code == 0, errors
    held = read(folder, paper)
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


def test_terms_by_splitting_and_newton(tmp_path):
    found = tables(tmp_path, "rdrot", "group_lasso", "quadratic")
    assert {row[0] for row in found["group_lasso"]} == {"Monge", "POT sinkhorn_lpl1_mm"}
    assert all(time > 0 for row in found["quadratic"] for time in row[3:5])


def test_a_table_ends_in_time(tmp_path):
    code, errors = run(tmp_path, "flash", "--size", "paper", "--only", "ten_iterations", "--seconds", "2")
    assert code == 0, errors
    (table,) = read(tmp_path, "flash")["tables"]
    assert table["cut_after_seconds"] == 2
    assert all(len(row) == len(table["columns"]) for row in table["rows"])
    assert "cut after 2 s: ten_iterations" in errors


def test_a_run_that_is_killed_keeps_its_rows(tmp_path):
    process = start(tmp_path, "rdrot", "--size", "paper", "--only", "iterations")
    while not (tmp_path / "rdrot_cpu.json").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.communicate()
    (table,) = read(tmp_path, "rdrot")["tables"]
    assert table["rows"][0][0] == 100 and all(milliseconds is not None for milliseconds in table["rows"][0][2:])


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["flush"], "no paper 'flush'"),
        (["flash", "--only", "table_3"], "no experiment 'table_3'"),
        (["flash", "--seconds", "0"], "--seconds: is 0; must be > 0"),
    ],
)
def test_wrong_arguments(tmp_path, arguments, message):
    code, errors = run(tmp_path, *arguments)
    assert code == 2
    assert message in errors
