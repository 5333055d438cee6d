"""Pictures: what they show is what the result has."""

import os
import subprocess
import sys

import numpy as np
import pytest

import monge

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")

import matplotlib.pyplot as plt  # noqa: E402

import monge.plot  # noqa: E402


@pytest.fixture
def result(rng):
    x = rng.normal(size=(30, 2))
    return monge.solve_sample(x, x[:20] + 3, reg=0.05)


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


def test_the_package_has_it():
    code = (
        "import sys, monge; assert 'matplotlib' not in sys.modules;"
        "monge.plot.convergence(monge.solve([[0.0, 1.0], [1.0, 0.0]], reg=0.1))"
    )
    backend = {"MPLBACKEND": "agg", **os.environ}
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env=backend)


def test_convergence(result, ax):
    monge.plot.convergence(result, ax)
    line = ax.get_lines()[0]
    np.testing.assert_array_equal(line.get_xdata(), [check.iteration for check in result.report.history])
    np.testing.assert_array_equal(line.get_ydata(), [check.marginal_error for check in result.report.history])
    assert ax.get_xlabel() == "sweeps" and monge.plot.convergence(result, ax, by_time=True).get_xlabel() == "seconds"


def test_plan(result, ax):
    np.testing.assert_array_equal(monge.plot.plan(result, ax).get_images()[0].get_array(), result.plan)
    dots = monge.plot.plan(result, ax, top=2).collections[-1].get_offsets()
    np.testing.assert_array_equal(dots[:, 0].reshape(30, 2), result.topk(2)[0])


def test_displacement(result, ax):
    monge.plot.displacement(result, ax, most=10)
    assert len(ax.collections[-1].get_offsets()) == 10
    with pytest.raises(ValueError, match="^result: is of "):
        monge.plot.displacement(monge.solve(np.ones((2, 2)), reg=1.0), ax)


def test_regularised_results(rng, ax):
    x = rng.normal(size=(30, 2))
    result = monge.solve_regularized_sample(x, x[:20] + 3, quadratic=0.5)
    monge.plot.convergence(result, ax)
    line = ax.get_lines()[0]
    np.testing.assert_array_equal(line.get_ydata(), [check.primal_residual for check in result.report.history])
    assert ax.get_xlabel() == "iterations" and ax.get_ylabel() == "relative residual"
    monge.plot.displacement(result, ax, most=10)
    assert len(ax.collections[-1].get_offsets()) == 10
    ax.clear()
    dots = monge.plot.plan(result, ax, top=2).collections[-1].get_offsets()
    np.testing.assert_array_equal(dots[:, 0].reshape(30, 2), result.topk(2)[0])


def test_exact_results(rng, ax):
    x = rng.normal(size=(30, 2))
    result = monge.solve_sample(x, x[:20] + 3)
    np.testing.assert_array_equal(monge.plot.plan(result, ax).get_images()[0].get_array(), result.plan)
    ax.clear()
    dots = monge.plot.plan(result, ax, top=2).collections[-1].get_offsets()
    np.testing.assert_array_equal(dots[:, 0].reshape(30, 2), result.topk(2)[0])
    monge.plot.displacement(result, ax, most=10)
    assert len(ax.collections[-1].get_offsets()) == 10
    why = "^result: is of the class ExactResult; must be OTResult or RegularizedResult$"
    with pytest.raises(TypeError, match=why):
        monge.plot.convergence(result, ax)
