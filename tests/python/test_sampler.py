"""Pairs of mini-batches from plans, with torchcfm's arguments."""

import inspect
import warnings

import numpy as np
import ot
import pytest
from scipy.optimize import linear_sum_assignment

import monge
from conftest import squared_distances


def batches(rng, n, m=None):
    return rng.normal(size=(n, 2, 3)), rng.normal(size=(n if m is None else m, 2, 3)) + 0.5


@pytest.mark.parametrize("n, m", [(1, 1), (40, 40), (30, 43), (43, 30), (600, 600)])
def test_exact_plans_are_pots(rng, n, m):
    x0, x1 = batches(rng, n, m)
    cost = squared_distances(x0.reshape(n, 6), x1.reshape(m, 6))
    plan = monge.OTPlanSampler("exact").get_map(x0, x1)
    assert plan.shape == (n, m)
    np.testing.assert_allclose(plan.sum(1), 1 / n, rtol=1e-13)
    np.testing.assert_allclose(plan.sum(0), 1 / m, rtol=1e-13)
    assert (plan * cost).sum() == pytest.approx(ot.emd2([], [], cost, numItermax=10**7), rel=1e-12)


def test_equal_sizes_without_replacement_are_an_assignment(rng):
    x0, x1 = batches(rng, 50)
    labels = np.arange(50)
    for normalize_cost in (False, True):
        sampler = monge.OTPlanSampler("exact", normalize_cost=normalize_cost, num_threads=1)
        p, q, i, j = sampler.sample_plan_with_labels(x0, x1, labels, labels, replace=False)
        np.testing.assert_array_equal(p, x0[i])
        np.testing.assert_array_equal(q, x1[j])
        order = np.argsort(i)
        expected = linear_sum_assignment(squared_distances(x0.reshape(50, 6), x1.reshape(50, 6)))
        np.testing.assert_array_equal((i[order], j[order]), expected)
        assert (i != expected[0]).any()  # In random order.
    assert sampler.sample_plan_with_labels(x0, x1)[2:] == (None, None)


def test_partial_plans_are_pots(rng):
    x0, x1 = batches(rng, 30, 20)
    cost = squared_distances(x0.reshape(30, 6), x1.reshape(20, 6))
    sampler = monge.OTPlanSampler("partial", mass=0.6)
    plan = sampler.get_map(x0, x1)
    expected = ot.partial.partial_wasserstein(np.full(30, 1 / 30), np.full(20, 1 / 20), cost, m=0.6)
    assert plan.sum() == pytest.approx(0.6, rel=1e-13)
    assert (plan * cost).sum() == pytest.approx((expected * cost).sum(), rel=1e-9)
    assert sampler.sample_plan(x0, x1)[1].shape == x0.shape
    whole, exact = monge.OTPlanSampler("partial"), monge.OTPlanSampler("exact")
    np.testing.assert_array_equal(whole.get_map(x0, x1), exact.get_map(x0, x1))
    with pytest.raises(ValueError, match="^X: a point of time 0 sends no mass by the method 'partial'"):
        sampler.sample_trajectory(np.stack([x0, x0 + 1], 1))


def test_warn_is_for_exact_plans_too(rng):
    # Three clusters, so far apart that rounding of the costs between them hides those within them.
    x0, x1 = (np.repeat([[0.0], [1e6], [2e6]], size, 0) + 1e-3 * rng.random((3 * size, 1)) for size in (140, 133))
    with pytest.warns(monge.ConvergenceWarning, match="no proof"):
        plan = monge.OTPlanSampler("exact").get_map(x0, x1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(monge.OTPlanSampler("exact", warn=False).get_map(x0, x1), plan)


@pytest.mark.parametrize("normalize_cost", [False, True])
@pytest.mark.parametrize("method", ["sinkhorn", "unbalanced"])
def test_entropic_plans_are_pots(rng, method, normalize_cost):
    x0, x1 = batches(rng, 40, 30)
    cost = squared_distances(x0.reshape(40, 6), x1.reshape(30, 6))
    cost = cost / cost.max() if normalize_cost else cost
    plan = monge.OTPlanSampler(method, 0.3, 0.7, normalize_cost).get_map(x0, x1)
    a, b = np.full(40, 1 / 40), np.full(30, 1 / 30)
    if method == "sinkhorn":
        expected = ot.sinkhorn(a, b, cost, 0.3, stopThr=1e-12)
    else:
        expected = ot.unbalanced.sinkhorn_knopp_unbalanced(a, b, cost, 0.3, 0.7, stopThr=1e-12, numItermax=5000)
    assert abs(plan - expected).sum() < 3e-3 * expected.sum()  # Marginals to 1e-3, and the distance that they cause.


@pytest.mark.parametrize("method", ["exact", "sinkhorn", "unbalanced"])
def test_draws_have_the_shares_of_the_plan(rng, method):
    x0, x1 = batches(rng, 4, 3)
    sampler = monge.OTPlanSampler(method, reg=2.0, reg_m=2.0)
    plan = sampler.get_map(x0, x1)
    np.random.seed(0)
    counts = np.zeros((4, 3))
    for _ in range(1000):
        _, _, i, j = sampler.sample_plan_with_labels(x0, x1, np.arange(4), np.arange(3))
        np.add.at(counts, (i, j), 1)
    share = plan / plan.sum()
    # Five standard deviations of 4000 draws, and the rounding of float32.
    assert (abs(counts / 4000 - share) <= 5 * np.sqrt(share * (1 - share) / 4000) + 1e-6).all()
    np.random.seed(1)
    first = sampler.sample_plan(x0, x1)
    np.random.seed(1)
    np.testing.assert_array_equal(sampler.sample_plan(x0, x1), first)
    i, j = sampler.sample_map(plan, 5, replace=False)
    assert len(set(zip(i, j))) == 5 and (plan[i, j] > 0).all()


@pytest.mark.parametrize("method", ["exact", "sinkhorn"])
def test_trajectories_follow_the_plans(rng, method):
    start = 100 * rng.permutation(6)[:, None]  # So far apart that plans are permutations.
    X = np.stack([start[rng.permutation(6)] + t for t in range(4)], 1)
    paths = monge.OTPlanSampler(method, reg=1.0).sample_trajectory(X)
    assert paths.shape == (6, 4, 1)
    np.testing.assert_array_equal(paths[:, :, 0], X[:, :1, 0] + np.arange(4))


def test_bad_arguments_say_what_they_may_be(rng):
    x, nan = rng.normal(size=(4, 2)), np.full((4, 2), np.nan)
    for given, call, error, match in (
        ({"method": "emd"}, None, ValueError, "^method: is 'emd'; must be exact, sinkhorn, unbalanced"),
        ({"method": "partial", "mass": 0}, None, ValueError, r"^mass: is 0.0; must be in \(0, 1\]"),
        ({"method": "exact", "mass": 0.5}, None, ValueError, "^mass: is 0.5; must be 1, unless the method is 'partial'"),
        ({"method": "partial", "mass": 0.5}, (x, x, False), ValueError, "^replace: is False; .* 4 pairs .* 2 entries"),
        ({"method": "exact", "num_threads": 0}, None, ValueError, "^num_threads: is 0; must be >= 1"),
        ({"method": "sinkhorn", "reg": "a"}, None, TypeError, "^reg: is 'a'"),
        ({"method": "sinkhorn", "reg": -1}, (x, x), ValueError, "^reg: is -1.0; must be > 0"),
        ({"method": "unbalanced", "reg_m": -1}, (x, x), ValueError, "^reg_m: is -1; must be"),
        ({"method": "exact"}, (nan, x), ValueError, "^x0, x1: costs: "),
        ({"method": "exact"}, (nan, x[:3]), ValueError, "^x0, x1: costs: row 0, column 0 is nan"),
        ({"method": "sinkhorn"}, (nan, x), ValueError, "^x0, x1: costs: row 0, column 0 is nan"),
        ({"method": "unbalanced"}, (x, x + 100), ValueError, "^plan: has sum 0"),
        ({"method": "exact"}, (x * 1e160, x), ValueError, "^x0, x1: the squares of coordinates overflow; the points"),
        ({"method": "exact"}, (x * 1e160, x * 1e160), ValueError, "^x0, x1: the squares of coordinates overflow; the"),
        ({"method": "sinkhorn"}, (x, x[:3] * 1e160), ValueError, "^x0, x1: the squares of coordinates overflow; the"),
        ({"method": "exact"}, (x, x[:, :1]), ValueError, "^x1: has points of 1 coordinates; must be 2, as x0"),
        ({"method": "exact"}, (x, x[0]), ValueError, r"^x1: has shape \(2,\); must be \(n, ...\)"),
        ({"method": "exact"}, ([[1.0]], x), TypeError, "^x0: is .*; must be an array"),
        ({"method": "exact"}, (x, x, 2.5), TypeError, "^replace: is 2.5; must be True or False"),
    ):
        with pytest.raises(error, match=match):
            monge.OTPlanSampler(**given).sample_plan(*call)
    with pytest.raises(ValueError, match="^X: is an array of shape"):
        monge.OTPlanSampler("exact").sample_trajectory(x)


def test_warnings_are_as_asked(rng, monkeypatch):
    x0, x1 = batches(rng, 30)
    monkeypatch.setitem(monge._sampler._OF_DRAWS, "iterations", 1)
    with pytest.warns(monge.ConvergenceWarning) as caught:
        monge.OTPlanSampler("sinkhorn", 1e-2).sample_plan(x0, x1)
    assert caught[0].filename == __file__
    monge.OTPlanSampler("sinkhorn", 1e-2, warn=False).sample_plan(x0, x1)


def test_arguments_have_the_order_of_torchcfm() -> None:
    names = list(inspect.signature(monge.OTPlanSampler).parameters)
    assert names[:6] == ["method", "reg", "reg_m", "normalize_cost", "num_threads", "warn"]
