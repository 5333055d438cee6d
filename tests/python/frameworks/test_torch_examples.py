"""The examples that need PyTorch."""

import runpy
from pathlib import Path

import matplotlib

matplotlib.use("agg")

EXAMPLES = Path(__file__).parents[3] / "examples" / "python"


def test_flow_matching_pairs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = runpy.run_path(str(EXAMPLES / "flow_matching_pairs.py"), run_name="__main__")
    assert values["length"][1] < 0.7 * values["length"][0]
    assert (tmp_path / "flow_matching_pairs.png").stat().st_size > 5000


def test_learned_cost(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = runpy.run_path(str(EXAMPLES / "learned_cost.py"), run_name="__main__")
    assert (values["learned"] / values["truth"] - 1).abs().max() < 0.05
    assert (tmp_path / "learned_cost.png").stat().st_size > 5000
