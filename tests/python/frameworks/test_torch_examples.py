"""The examples that need PyTorch or JAX."""

import runpy
from pathlib import Path

import matplotlib
import torch

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


def test_sinkhorn_attention(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = runpy.run_path(str(EXAMPLES / "sinkhorn_attention.py"), run_name="__main__")
    assert values["losses"]["plan"][-1] < 0.8 * values["losses"]["softmax"][-1] < 0.5 * values["losses"]["plan"][0]
    assert (values["seen"]["plan"].sum(0) - 1).abs().max() < 1e-2 < (values["seen"]["softmax"].sum(0) - 1).abs().max()
    assert (tmp_path / "sinkhorn_attention.png").stat().st_size > 5000


def test_entropic_map_loss(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = runpy.run_path(str(EXAMPLES / "entropic_map_loss.py"), run_name="__main__")
    assert values["losses"][-1] < 0.1 * values["losses"][0]
    assert values["path"][-1][0] > 3 * values["path"][-1][1]
    assert (tmp_path / "entropic_map_loss.png").stat().st_size > 5000


def test_detector_matcher(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = runpy.run_path(str(EXAMPLES / "detector_matcher.py"), run_name="__main__")
    for matrix, *both in zip(values["matrices"], *values["pairs"].values()):
        assert all(len(query) == matrix.shape[1] for query, _ in both)
        assert all(torch.equal(scipy, monge) for scipy, monge in zip(*both))
    assert (tmp_path / "detector_matcher.png").stat().st_size > 5000


def test_straighter_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = runpy.run_path(str(EXAMPLES / "straighter_paths.py"), run_name="__main__")
    bends, errors = values["bends"], values["error"]
    assert bends["exact pairs"] < 0.1 * bends["independent pairs"]
    assert errors["exact pairs"][0] < errors["independent pairs"][2]  # One step is better than four.
    assert (tmp_path / "straighter_paths.png").stat().st_size > 5000


def test_samples_loss(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = runpy.run_path(str(EXAMPLES / "samples_loss.py"), run_name="__main__")
    assert sum(values["values"][-20:]) / 20 < 0.1 * values["values"][0]
    assert (tmp_path / "samples_loss.png").stat().st_size > 5000


def test_jax_gradient(tmp_path, monkeypatch):
    """Angle, scale and translation are found up to the difference of two samples of the arrow: some 1 / sqrt(300)."""
    monkeypatch.chdir(tmp_path)
    values = runpy.run_path(str(EXAMPLES / "jax_gradient.py"), run_name="__main__")
    assert abs(values["parameters"] - values["TRUTH"]).max() < 2 / 300**0.5
    assert (tmp_path / "jax_gradient.png").stat().st_size > 5000
