"""The Sinkhorn divergence and the c-transform."""

import pickle

import numpy as np
import pytest

import monge
from conftest import squared_distances, weights
from monge._problem import cost_of_metric, costs


def test_it_is_made_of_three_duals(rng):
    x, y, a, b = rng.normal(size=(20, 2)), rng.normal(size=(25, 2)) + 1, weights(rng, 20), weights(rng, 25)
    divergence = monge.sinkhorn_divergence(x, y, a, b, reg=0.5, tol=1e-10)

    def dual(x, y, a, b):
        return monge.solve_sample(x, y, a, b, reg=0.5, tol=1e-12).report.dual

    expected = dual(x, y, a, b) - (dual(x, x, a, a) + dual(y, y, b, b)) / 2
    assert divergence.converged
    assert divergence.value == pytest.approx(expected, abs=1e-9)
    costs = monge.sinkhorn_divergence_of_costs(
        squared_distances(x, y), squared_distances(x, x), squared_distances(y, y), a, b, 0.5, tolerance=1e-10
    )
    assert costs.value == pytest.approx(expected, abs=1e-9)
    assert divergence.ab.plan.shape == (20, 25) and divergence.aa.plan.shape == (20, 20)


def test_equal_measures_have_none(rng):
    x = rng.normal(size=(30, 3))
    wide = np.zeros((30, 5))
    wide[:, :3] = x
    for y in (x, x.copy(), wide[:, :3]):
        divergence = monge.sinkhorn_divergence(x, y, reg=0.2, tol=0.01)
        again = pickle.loads(pickle.dumps(divergence))
        assert divergence.value == again.value == 0 and divergence.converged
        for found in (divergence.gradients(), again.gradients()):
            assert all(not getattr(found, name).any() for name in "xyab")
    assert monge.sinkhorn_divergence(x.astype(np.float32), x.astype(np.float32), reg=0.2).value == 0
    assert 0 < monge.sinkhorn_divergence(x, x + 1e-3, reg=0.2, tol=1e-10).value < 1e-5


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine", "chebyshev"])
def test_gradients(rng, metric):
    x, y = rng.normal(size=(8, 2)), rng.normal(size=(9, 2)) + 1
    given = {"reg": 0.5, "tol": 1e-13, "metric": metric}
    gradient = monge.sinkhorn_divergence(x, y, **given).gradients()
    step, shift = 1e-4, np.zeros_like(x)
    shift[3, 1] = step
    plus, minus = (monge.sinkhorn_divergence(x + s * shift, y, **given).value for s in (1, -1))
    assert gradient.x[3, 1] == pytest.approx((plus - minus) / (2 * step), abs=40 * step**2 + 1e-8)
    assert gradient.y.shape == y.shape and gradient.a.shape == (8,)


@pytest.mark.parametrize("costs", [False, True])
def test_pickles(rng, costs):
    x, y, a = rng.normal(size=(8, 2)), rng.normal(size=(9, 2)) + 1, weights(rng, 8)
    if costs:
        pairs = ((x, y), (x, x), (y, y))
        result = monge.sinkhorn_divergence_of_costs(*(squared_distances(*pair) for pair in pairs), a, reg=0.5)
    else:
        result = monge.sinkhorn_divergence(x, y, a, reg=0.5)
    again = pickle.loads(pickle.dumps(result))
    assert (again.value, again.gap, again.status, repr(again)) == (
        result.value,
        result.gap,
        result.status,
        repr(result),
    )
    found, expected = again.gradients(), result.gradients()
    for name in "xyab"[2 if costs else 0 :]:
        # Potentials are rounded on the way. An entry in float32 may change by 1e-7 (1 + range of C / eps), here 4e-6.
        size = abs(getattr(expected, name)).max()
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=0, atol=1e-5 * size)
    assert (found.x is None) == costs and found.report.scale == pytest.approx(expected.report.scale, nan_ok=True)


def test_c_transform(rng):
    x, y, g = rng.normal(size=(20, 2)), rng.normal(size=(30, 2)), rng.normal(size=30)
    cost = squared_distances(x, y)
    f, argmin = monge.c_transform(x, y, g)
    np.testing.assert_allclose(f, (cost - g).min(1), atol=1e-13)
    np.testing.assert_array_equal(argmin, (cost - g).argmin(1))
    assert monge.semi_dual_value(f, g) == pytest.approx(f.mean() + g.mean(), rel=1e-14)
    assert monge.semi_dual_value(f, g) <= monge.solve_sample(x, y, reg=0.01).value_linear + 1e-6


@pytest.mark.parametrize("metric", ["sqeuclidean", "cosine", "dot"])
def test_c_transform_of_labels(rng, metric):
    x, y, g = rng.normal(size=(15, 3)), rng.normal(size=(12, 3)), rng.random(12)
    of_x, of_y, table = rng.integers(4, size=15), rng.integers(3, size=12), rng.random((4, 3))
    labels = {"labels_x": of_x, "labels_y": of_y, "label_cost": table, "label_weight": 0.7}
    f, argmin = monge.c_transform(x, y, g, metric, scale=1.3, **labels)
    slack = costs(x, y, *cost_of_metric(metric), scale=1.3) + 0.7 * table[of_x][:, of_y] - g
    np.testing.assert_allclose(f, slack.min(1), atol=1e-12)
    np.testing.assert_array_equal(argmin, slack.argmin(1))
