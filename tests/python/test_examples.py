"""The examples run, leave their pictures, and show what they say."""

import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

pyplot = pytest.importorskip("matplotlib.pyplot")
pyplot.switch_backend("agg")

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"
SHOWS = {
    "accurate_plan": lambda v: v["result"].converged and 0 <= v["result"].value_linear - v["exact"] < 1e-3,
    "adaptation": lambda v: v["accuracy"]["moved"] > v["accuracy"]["as it is"] + 0.05,
    # Noise receives little mass, and nearly all digits receive more than any of it.
    "attribute_transfer": lambda v: (
        v["accuracy"] > 0.9
        and np.mean(v["received"][v["is_digit"]] > v["received"][~v["is_digit"]].max()) > 0.95
        and np.ptp(v["recoloured"], axis=(0, 1)).min() > 0.5
    ),
    # The gradient of the divergence is off by what the solve is, the map by more with each blur.
    "blur": lambda v: max(v["debiased"]) < 1e-6 and (np.diff(v["bias"]) > 0).all() and v["bias"][-1] > 0.2,
    "color_transfer": lambda v: (
        np.abs(v["painted"].mean((0, 1)) - v["flower"].mean((0, 1))).max()
        < np.abs(v["china"].mean((0, 1)) - v["flower"].mean((0, 1))).max() / 4
    ),
    "conventions": lambda v: (
        max(v["error"].values()) < 1e-8 and np.ptp(v["result"].log_scalings[0] - np.log(v["log"]["u"])) < 1e-8
    ),
    "convergence": lambda v: (
        [result.converged for result in v["results"].values()] == [False, True, True]
        and v["results"]["auto"].n_iter < v["results"]["overrelaxed"].n_iter / 4
        and all(result.marginal_error <= tolerance for result, tolerance in zip(v["short"], v["tolerances"]))
    ),
    "custom_cost": lambda v: v["result"].converged and (v["result"].plan[np.isinf(v["prices"])] == 0).all(),
    # Copies are lost before classes.
    "embeddings": lambda v: (
        v["stay"][0] > 0.99 and v["copies"][0] > 0.99 and v["copies"][-1] < 0.1 and 0.5 < v["stay"][-1] < 0.9
    ),
    "every_colour": lambda v: (
        v["result"].converged
        and np.abs(v["painted"].mean((0, 1)) - v["flower"].mean((0, 1)) / 255).max() < 0.02
        and v["a"].sum() == len(v["place"]) == v["china"].shape[0] * v["china"].shape[1]
    ),
    # Each pixel is used once, and the permuted flower is closer to the temple than the flower itself.
    "every_pixel_once": lambda v: (
        (np.sort(v["goal"]) == range(54 * 80)).all()
        and abs(v["painted"] - v["china"].reshape(-1, 3)).mean() < 0.8 * abs(v["flower"] - v["china"]).mean()
    ),
    # The gradient by the shift is linear, so twelve steps leave 0.4^12 = 2e-5 of the way of 4.
    "first_steps": lambda v: v["error"] < 1e-3 and v["result"].converged,
    # The bounds meet, and the product plan alone leads to no optimum.
    "global_optimum": lambda v: (
        v["result"].converged
        and v["result"].report.gap <= 1e-3
        and (np.diff(v["lower"]) >= 0).all()
        and v["result"].starts[0].value > 1.001 * v["result"].value
    ),
    # The flow finds what rests and what drives, and a start from the frame before saves sweeps.
    "lidar_frames": lambda v: (
        v["result"].converged
        and np.max(v["error"], axis=0)[1] < 0.05
        and np.linalg.norm(v["motion"][v["drives"]], axis=1).mean() > 0.5 > np.max(v["error"], axis=0)[0]
        and max(v["passes"]["warm"]) < min(v["passes"]["cold"])
    ),
    "labelled_distance": lambda v: (
        np.allclose(v["table"], v["table"].T, rtol=1e-2) and (v["table"].argmin(1) == range(4)).all()
    ),
    # With classes each blob ends on the blob of its own spread; without, on the nearest one.
    "labelled_flow": lambda v: all(
        (
            np.allclose(path[-1].reshape(3, 40, 2).mean(1), v["y"].reshape(3, 40, 2).mean(1), atol=0.3)
            == (title == "points and classes")
        )
        for title, path in v["paths"].items()
    ),
    # Smaller blurs serve more equally than the nearest sites do.
    "many_cells": lambda v: (
        v["off"][-1] < v["off"][0] / 2 < 0.1
        and v["off"][-1] < abs(np.bincount(v["nearest"], v["density"], v["sites"]) * v["sites"] - 1).mean() / 10
    ),
    # The same bits, and a ring: all of its points about as far from its middle.
    "many_problems": lambda v: (
        all(v["same"])
        and (radii := np.hypot(*(v["ring"] - v["ring"].mean(0)).T)).min() > 0.7 * radii.max()
        and (v["distance"][np.arange(24), (np.arange(24) + 1) % 24] < v["distance"].max() / 2).all()
    ),
    "mhc_projection": lambda v: v["gains"]["projected"][-1] < 1.01 < v["gains"]["softmax of rows"][-1],
    # Each step of Newton's more than doubles the digits, at last, and the six numbers are found.
    "newton_registration": lambda v: (
        v["norms"][-1] < 1e-9
        and v["norms"][-2] < v["norms"][-3] ** 1.5
        and np.allclose(v["parameters"], v["truth"], atol=1e-6)
    ),
    "outliers": lambda v: (
        max(v["error"]["both relaxed"], v["error"]["targets relaxed"]) < v["error"]["balanced"] / 4
        and (np.diff([result.report.transported_mass for result in v["kept"]]) > 0).all()
        and v["results"]["both relaxed"].report.transported_mass < 0.95
        and np.isclose(v["results"]["targets relaxed"].report.transported_mass, 1, atol=1e-5)
    ),
    # SciPy's distance, up to the rounding of 1000 costs; the long intervals of the noisy function are all found.
    "persistence_diagrams": lambda v: (
        np.isclose(v["distance"], v["by_assignment"], rtol=1e-10)
        and (v["plan"][:-1, :-1].sum(1) == 1).all()
        and (np.diff(v["distances"]) < 0).all()
        and v["distances"][-1] < v["bound"]
    ),
    "quickstart": lambda v: v["result"].converged,
    # The noise exchanges near points alone.
    # The plan is a permutation, and maps of smaller blurs are nearer.
    "many_points": lambda v: (
        v["exact"].converged
        and (np.sort(v["partner"]) == range(v["n"])).all()
        and (np.diff(v["off"]) < 0).all()
        and v["off"][-1] < 0.02
    ),
    "plane_to_space": lambda v: (
        v["result"].converged and v["off"].max() < 0.1 and (v["off"] == 0).mean() > 0.9 and v["tilt"] < 15
    ),
    "poses": lambda v: (
        v["result"].converged and v["distance"].max() < 0.2 and v["result"].lower_bound <= v["result"].value
    ),
    # Without debias the curve ends inside of the star.
    "registration": lambda v: (
        v["values"]["with debias"][-1] < 1e-5 * v["values"]["with debias"][0]
        and np.allclose(v["ends"]["with debias"].std(0), v["star"].std(0), rtol=0.01)
        and (v["ends"]["without"].std(0) < 0.98 * v["star"].std(0)).all()
    ),
    "regularizers": lambda v: (
        v["entries"]["group lasso"] < v["entries"]["quadratic"] < v["entries"]["entropy"] / 2
        and v["mixed"]["group lasso"] < v["mixed"]["quadratic"] < v["mixed"]["entropy"]
        and min(v["accuracy"].values()) > 0.9
    ),
    "semi_discrete": lambda v: abs(60 * v["served"][1] - 1).max() < 0.05 and abs(60 * v["served"][0] - 1).max() > 1,
    "shell_to_torus": lambda v: v["result"].converged and np.median(abs(v["off"])) < 0.05,
    "tissue_slices": lambda v: (
        v["error"]["both"] < 0.3 * min(v["error"]["genes"], v["error"]["positions"])
        and v["same_layer"]["both"] > 0.1 + max(v["same_layer"]["genes"], v["same_layer"]["positions"])
    ),
    "top_partners": lambda v: v["result"].converged and v["partners"].shape == (4000, 5),
    "two_scans": lambda v: v["angles"][-1] < 2 < 20 < v["angles"][0],
    "tutorial": lambda v: v["result"].converged and v["divergence"].value < 0.02,
}
SIZES = {  # Arguments for sizes of a test.
    "every_colour": ["4"],
    "lidar_frames": ["20", "360", "4"],
    "many_cells": ["120", "300"],
    "two_scans": ["4000"],
}
LISTINGS = {"quickstart", "tutorial"}  # Of documents; they have no pictures.
WITH_FRAMEWORKS = {
    "detector_matcher",
    "entropic_map_loss",
    "flow_matching_pairs",
    "jax_gradient",
    "learned_cost",
    "samples_loss",
    "sinkhorn_attention",
    "straighter_paths",
}


def test_each_example_is_here():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SHOWS) | WITH_FRAMEWORKS


@pytest.mark.parametrize("name", SHOWS)
def test_example(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, *SIZES.get(name, [])])
    values = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    pyplot.close("all")
    assert name in LISTINGS or (tmp_path / f"{name}.png").stat().st_size > 5000
    assert SHOWS[name](values)


def test_the_readme_has_the_first():
    assert (EXAMPLES / "quickstart.py").read_text() in (EXAMPLES.parents[1] / "README.md").read_text()


def test_the_tutorial_is_its_program():
    document = (EXAMPLES.parents[1] / "docs" / "tutorial.md").read_text()
    assert (EXAMPLES / "tutorial.py").read_text() == "\n".join(re.findall("```python\n(.*?)```", document, re.DOTALL))


def test_each_example_has_a_row():
    document = (EXAMPLES.parents[1] / "docs" / "examples.md").read_text()
    rows = re.findall(r"^\| (\w+)\.py \|", document, re.MULTILINE)
    assert sorted(rows) == sorted({path.stem for path in EXAMPLES.glob("*.py")} - LISTINGS)
