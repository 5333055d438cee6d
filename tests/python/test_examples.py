"""The examples run, leave their pictures, and show what they say."""

import runpy
from pathlib import Path

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"
SHOWS = {
    "accurate_plan": lambda v: v["result"].converged and 0 <= v["result"].value_linear - v["exact"] < 1e-3,
    "adaptation": lambda v: v["accuracy"]["moved"] > v["accuracy"]["as it is"] + 0.05,
    "color_transfer": lambda v: (
        np.abs(v["painted"].mean((0, 1)) - v["flower"].mean((0, 1))).max()
        < np.abs(v["china"].mean((0, 1)) - v["flower"].mean((0, 1))).max() / 4
    ),
    "custom_cost": lambda v: v["result"].converged and (v["result"].plan[np.isinf(v["prices"])] == 0).all(),
    "labelled_distance": lambda v: (
        np.allclose(v["table"], v["table"].T, rtol=1e-2) and (v["table"].argmin(1) == range(4)).all()
    ),
    "mhc_projection": lambda v: v["gains"]["projected"][-1] < 1.01 < v["gains"]["softmax of rows"][-1],
    "outliers": lambda v: v["error"][1] < v["error"][0] / 4,
    "quickstart": lambda v: v["result"].converged,
    "registration": lambda v: v["values"][-1] < 1e-3 * v["values"][0],
    "regularizers": lambda v: (
        v["entries"]["group lasso"] < v["entries"]["quadratic"] < v["entries"]["entropy"] / 2
        and v["mixed"]["group lasso"] < v["mixed"]["quadratic"] < v["mixed"]["entropy"]
        and min(v["accuracy"].values()) > 0.9
    ),
    "top_partners": lambda v: v["result"].converged and v["partners"].shape == (4000, 5),
}
WITH_FRAMEWORKS = {"flow_matching_pairs"}


def test_each_example_is_here():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SHOWS) | WITH_FRAMEWORKS


@pytest.mark.parametrize("name", SHOWS)
def test_example(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    matplotlib.pyplot.close("all")
    assert name == "quickstart" or (tmp_path / f"{name}.png").stat().st_size > 5000
    assert SHOWS[name](values)


def test_the_readme_has_the_first():
    assert (EXAMPLES / "quickstart.py").read_text() in (EXAMPLES.parents[1] / "README.md").read_text()
