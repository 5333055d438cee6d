"""The predictions of bench/scale.py: within 15 % of what was measured; names and lists of ranks."""

import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def scale():
    path = Path(__file__).parents[2] / "bench" / "scale.py"
    spec = importlib.util.spec_from_file_location("scale", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["scale"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["scale"]


def test_predictions_are_near_measurements(scale):
    measured = scale.measurements()
    rows = scale.rows_of({name: scale.work_of(name) for name in measured}, [1, 2, 4], measured)
    off = {(row["work"], row["ranks"]): row["off"] for row in rows if row["measured"]}
    assert len(off) >= 45
    assert {key: value for key, value in off.items() if abs(value) > scale.FAIR} == {}


def test_names_say_the_work(scale):
    for name, work in {
        "points 200000 x 64, 10 sweeps": scale.Work(200000, 64, 10),
        "matrix 60000, 50 sweeps and certificate": scale.Work(60000, 0, 50, True),
        "Hessian product 100000 x 64, 10 steps of conjugate gradients": scale.Work(100000, 64, steps=10),
        "64 problems of 1000 x 64, 200 sweeps and certificate": scale.Work(1000, 64, 200, True, problems=64),
    }.items():
        assert scale.work_of(name) == work


def test_more_ranks_wait_longer_for_each_other(scale):
    work = scale.work_of("points 200000 x 64, 10 sweeps")
    messages = [scale.predicted(work, ranks)[1] for ranks in scale.ranks_of("1..1024")]
    assert messages[0] == 0 and messages == sorted(messages) and len(messages) == 11
    alone = scale.work_of("points 1000 x 64, 10 sweeps")  # Its passes are not shared.
    assert scale.predicted(alone, 8)[0] == pytest.approx(scale.predicted(alone, 1)[0] + scale.MEETINGS)
