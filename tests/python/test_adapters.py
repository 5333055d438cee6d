"""The programs of examples/adapters, each where the package that it serves is installed: `./dev adapters`."""

import runpy
import warnings
from pathlib import Path

import numpy as np
import pytest

import monge

ADAPTERS = Path(__file__).parents[2] / "examples" / "adapters"


def values(name, package):
    pytest.importorskip(package)
    return runpy.run_path(str(ADAPTERS / f"{name}.py"), run_name="__main__")


def test_moscot():
    """Both backends solve one problem to 1e-6, in one norm of one marginal or of both; costs are far below 20 eps."""
    plans = values("moscot_backend", "moscot")["plans"]
    assert abs(plans["ott"] - plans["monge"]).sum() < 20 * 1e-6


@pytest.mark.parametrize("tau_a", [1.0, 0.9])
@pytest.mark.parametrize("cost", ["sq_euclidean", "euclidean", "cosine"])
def test_moscot_costs(cost, tau_a):
    module = values("moscot_backend", "moscot")
    from moscot.costs import get_cost
    from moscot.utils.tagged_array import Tag, TaggedArray

    random = np.random.default_rng(0)
    x, y = random.normal(size=(20, 3)), random.normal(size=(25, 3))
    function = get_cost(cost, backend="ott")
    matrix = np.asarray(function.all_pairs(x, y))
    given = {"a": np.full(20, 1 / 20), "b": np.full(25, 1 / 25), "epsilon": 0.1, "tau_a": tau_a, "scale_cost": "mean"}
    of_points = module["MongeSolver"]()(xy=TaggedArray(x, y, tag=Tag.POINT_CLOUD, cost=function), **given)
    of_matrix = module["MongeSolver"]()(xy=TaggedArray(matrix, tag=Tag.COST_MATRIX), **given)
    np.testing.assert_allclose(of_points.transport_matrix, of_matrix.transport_matrix, atol=1e-5)
    f, g = of_matrix.potentials
    plan = np.exp((f[:, None] + g - matrix / matrix.mean()) / 0.1)
    np.testing.assert_allclose(of_matrix.transport_matrix, plan, rtol=1e-4)


@pytest.mark.parametrize("scale_cost", ["median", "max_cost", None])
def test_moscot_scales_that_are_not_there(scale_cost):
    solver = values("moscot_backend", "moscot")["MongeSolver"]()
    with pytest.raises(NotImplementedError, match=f"^scale_cost: is {scale_cost!r}; must be 'mean' or a number$"):
        solver._prepare(np.ones(2), np.ones(2), None, scale_cost=scale_cost)


def test_torchcfm():
    losses = values("torchcfm_sampler", "torchcfm")["losses"]
    assert np.mean(losses[-20:]) < 0.2 * np.mean(losses[:20])


def test_pertpy():
    module = values("pertpy_distance", "pertpy")
    data, table = module["data"], module["costs"].to_numpy()
    first, last = (data.obsm["X_pca"][np.asarray(data.obs["drug"] == drug)] for drug in ("none", "strong"))
    assert table[0, 2] == pytest.approx(monge.solve_sample(first, last, reg="auto").value_linear)
    divergences = module["divergences"].to_numpy()
    assert (np.diag(divergences) == 0).all() and divergences[0, 1] < divergences[1, 2] < divergences[0, 2]


def test_benchopt():
    solver = values("benchopt_solver", "benchopt")["Solver"].get_instance(reg=0.1)
    random = np.random.default_rng(0)
    x, y = random.normal(size=(30, 2)), random.normal(size=(31, 2))
    solver.set_objective(x, np.full(30, 1 / 30), y, np.full(31, 1 / 31))
    solver.run(20)
    plan = solver.get_result()["P"]
    assert plan.shape == (30, 31) and plan.sum(1) == pytest.approx(1 / 30, abs=1e-4)


def test_benchopt_installs_monge_by_pip():
    pytest.importorskip("benchopt")
    from benchopt.utils.conda_env_cmd import get_env_file_from_requirements

    found = values("benchopt_solver", "benchopt")["Solver"].requirements
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # benchopt deprecates other spellings.
        assert get_env_file_from_requirements(found).splitlines()[-1].strip() == "- monge"
