"""Weights of any total, and those that are left out: uniform, with the total of the other side."""

import pickle

import numpy as np
import pytest
from scipy.special import logsumexp

import monge
from conftest import squared_distances

REG, TOTAL, SHAPE = 0.2, 3.0, (5, 7)
COSTS = {
    "sqeuclidean": squared_distances,
    "euclidean": lambda x, y: np.sqrt(squared_distances(x, y)),
    "cosine": lambda x, y: 1 - x @ y.T / np.outer(np.linalg.norm(x, axis=1), np.linalg.norm(y, axis=1)),
}
CLOSE = {"rtol": 1e-9, "atol": 1e-11}  # The solves end at 1e-13 of the mass, and costs are of size 1.
TIGHT = {"reg": REG, "tol": 1e-13}


def oracle(cost, a, b):
    """The plan of dense sweeps, which here contract by tanh(range / 4 reg)^2 < 0.9 each."""
    f, g = np.zeros(len(a)), np.zeros(len(b))
    for _ in range(500):
        f = -REG * logsumexp((g - cost) / REG, axis=1, b=b)
        g = -REG * logsumexp((f[:, None] - cost) / REG, axis=0, b=a[:, None])
    return np.outer(a, b) * np.exp((f[:, None] + g - cost) / REG)


@pytest.fixture(params=["a", "b"])
def left_out(request):
    return request.param


@pytest.fixture
def one_side(rng, left_out):
    """Points, weights with None for the side that is left out, and what these are."""
    x, y = rng.random((SHAPE[0], 2)) + 0.1, rng.random((SHAPE[1], 2)) + 0.1
    weights = {name: rng.random(size) + 0.1 for name, size in zip("ab", SHAPE)}
    weights = {name: TOTAL * w / w.sum() for name, w in weights.items()}
    given = weights | {left_out: None}
    weights[left_out] = np.full_like(weights[left_out], TOTAL / len(weights[left_out]))
    return x, y, given, weights


@pytest.mark.parametrize("metric", COSTS)
def test_results_are_those_of_dense_sweeps(one_side, metric):
    x, y, given, weights = one_side
    cost = COSTS[metric](x, y)
    a, b = weights["a"], weights["b"]
    plan = oracle(cost, a, b)
    linear, entropy = (cost * plan).sum(), (plan * np.log(plan)).sum()
    kl = (plan * np.log(plan / np.outer(a, b)) - plan + np.outer(a, b)).sum()
    for solve in (
        lambda **own: monge.solve(cost, **given, **TIGHT, **own),
        lambda **own: monge.solve_sample(x, y, **given, metric=metric, **TIGHT, **own),
        lambda **own: monge.solve_batch([cost, cost], **given, reg_type="KL", **TIGHT, **own)[1],
        lambda **own: monge.solve_sample_batch([x, x], [y, y], **given, metric=metric, **TIGHT, **own)[1],
    ):
        result = solve()
        for each in (result, pickle.loads(pickle.dumps(result)), result.inverse):
            u, v = each.log_scalings
            if each.shape != SHAPE:
                u, v = v, u
            np.testing.assert_allclose(np.exp(u[:, None] + v - cost / REG), plan, **CLOSE)
        np.testing.assert_allclose(result.plan, plan, **CLOSE)
        np.testing.assert_allclose(result.value_linear, linear, **CLOSE)
    np.testing.assert_allclose(monge.solve(cost, **given, **TIGHT).value, linear + REG * kl, **CLOSE)
    for value in (
        monge.solve_sample(x, y, **given, metric=metric, reg_type="entropy", **TIGHT).value,
        pickle.loads(pickle.dumps(monge.solve(cost, **given, reg_type="entropy", **TIGHT))).value,
        *monge.solve_batch([cost, cost], **given, **TIGHT).value,
        *monge.solve_sample_batch([x, x], [y, y], **given, metric=metric, **TIGHT).value,
    ):
        np.testing.assert_allclose(value, linear + REG * entropy, **CLOSE)


def test_classic_functions(one_side):
    x, y, given, weights = one_side
    cost = squared_distances(x, y)
    plan = oracle(cost, weights["a"], weights["b"])
    a, b = given["a"], given["b"]
    found, log = monge.sinkhorn(a, b, cost, REG, stopThr=1e-13, log=True)
    np.testing.assert_allclose(found, plan, **CLOSE)
    np.testing.assert_allclose(log["u"][:, None] * np.exp(-cost / REG) * log["v"], plan, **CLOSE)
    u, v = monge.empirical_sinkhorn(x, y, REG, a, b, stopThr=1e-13, isLazy=True)
    np.testing.assert_allclose(np.exp(u[:, None] + v - cost / REG), plan, **CLOSE)
    # What is solved already takes no sweep.
    warm = {"stopThr": 1e-9, "log": True, "warmstart": (u, v)}
    assert monge.sinkhorn(a, b, cost, REG, **warm)[1]["niter"] == 0
    assert monge.empirical_sinkhorn(x, y, REG, a, b, **warm)[1]["niter"] == 0
    assert monge.sinkhorn2(a, b, cost, REG, stopThr=1e-13) == pytest.approx((cost * plan).sum(), rel=1e-9)
    for function in (monge.empirical_sinkhorn2, monge.empirical_sinkhorn_divergence):
        own = function(x, y, REG, a, b, stopThr=1e-13)
        assert own == pytest.approx(function(x, y, REG, **weights, stopThr=1e-13), rel=1e-9)


def test_a_warm_start_where_totals_may_differ(one_side):
    x, y, given, _ = one_side
    cost = squared_distances(x, y)
    penalties = {"penalty_a": 1.0, "penalty_b": 1.0, "stopThr": 1e-9, "log": True}
    log = monge.sinkhorn(given["a"], given["b"], cost, REG, **penalties)[1]
    start = log["log_u"], log["log_v"]
    assert monge.sinkhorn(given["a"], given["b"], cost, REG, warmstart=start, **penalties)[1]["niter"] == 0


@pytest.mark.parametrize("metric", COSTS)
def test_divergences(one_side, metric):
    x, y, given, weights = one_side
    costs = [COSTS[metric](p, q) for p, q in ((x, y), (x, x), (y, y))]
    expected = monge.sinkhorn_divergence(x, y, **weights, metric=metric, **TIGHT)
    for own in (
        monge.sinkhorn_divergence(x, y, **given, metric=metric, **TIGHT),
        monge.sinkhorn_divergence_of_costs(*costs, **given, reg=REG, tolerance=1e-13),
    ):
        np.testing.assert_allclose(own.value, expected.value, **CLOSE)
        for name, cost, (p, q) in zip(("ab", "aa", "bb"), costs, ("ab", "aa", "bb")):
            plan = oracle(cost, weights[p], weights[q])
            for part in (getattr(own, name), pickle.loads(pickle.dumps(getattr(own, name)))):
                u, v = part.log_scalings
                np.testing.assert_allclose(part.plan, plan, **CLOSE)
                np.testing.assert_allclose(np.exp(u[:, None] + v - cost / REG), plan, **CLOSE)
        # By the weights up to a constant, which may go from those of a to those of b.
        assert np.ptp(own.gradients().a - expected.gradients().a) <= 1e-9
