"""Sparse and grouped plans: their certificates by the formulas, linear programs, POT's smooth plans, errors."""

import gc
import os
import pickle
import signal
import threading
import time
import warnings
import weakref
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, linprog

import monge
from conftest import EPSILON, squared_distances, weights
from monge import _core
from monge._options import RegularizedOptions
from monge._problem import costs

GROUPS = np.array([0, 2, 1, 1, 0, 2, 2, 1, 0, 0, 1])
SHAPE = (len(GROUPS), 9)
PAIR_GROUPS = np.arange(99).reshape(SHAPE) * 7 % 11 % 4 - 1


def problem(rng, zeros=1):
    n, m = SHAPE
    return rng.random((n, m)) + 0.3, weights(rng, n, zeros), weights(rng, m, zeros)


def terms(name, rng):
    return {
        "none": {},
        "quadratic": {"quadratic": 2.0},
        "group_lasso": {"group_lasso": 0.05, "groups": GROUPS, "group_weights": [1.0, 0.5, 2.0]},
        "l1": {"l1": 0.5, "l1_weights": rng.random(SHAPE)},
        "mask": {"mask": rng.random(SHAPE) > 0.2, "quadratic": 2.0},
        "hypentropy": {"hypentropy": 0.05, "hypentropy_width": 0.01},
        "hypentropy_groups": {"hypentropy": 0.05, "hypentropy_width": 0.01, "group_lasso": 0.05, "groups": GROUPS},
        "sum": {"group_lasso": 0.02, "groups": GROUPS, "l1": 0.5, "l1_weights": rng.random(SHAPE), "quadratic": 1.0},
        "pair_groups": {"group_lasso": 0.1, "groups": PAIR_GROUPS, "group_weights": [1.0, 0.5, 2.0]},
        "pair_groups_sum": {
            "group_lasso": 0.2,
            "groups": PAIR_GROUPS,
            "l1": 0.5,
            "l1_weights": rng.random(SHAPE),
            "mask": rng.random(SHAPE) > 0.2,
            "quadratic": 1.0,
        },
    }[name]


NAMES = ["none", "quadratic", "group_lasso", "l1", "mask", "hypentropy", "hypentropy_groups", "sum"]
NAMES += ["pair_groups", "pair_groups_sum"]


def pair_groups(h):
    """The group of each pair, and lambda w of each group. A group of rows is one for each column; pairs in none are the
    last group, of weight 0."""
    labels, weights = np.asarray(h["groups"]), np.asarray(h.get("group_weights", np.ones(3)))
    if labels.ndim == 1:
        labels, weights = labels[:, None] + 3 * np.arange(SHAPE[1]), np.tile(weights, SHAPE[1])
    return np.where(labels < 0, len(weights), labels), h["group_lasso"] * np.append(weights, 0)


def group_norms(matrix, labels, limits):
    return np.sqrt(np.bincount(labels.ravel(), (matrix**2).ravel(), len(limits)))


def regularization(x, h):
    value = h.get("quadratic", 0) / 2 * (x**2).sum()
    if "group_lasso" in h:
        labels, limits = pair_groups(h)
        value += limits @ group_norms(x, labels, limits)
    if "l1" in h:
        value += h["l1"] * (h["l1_weights"] * x).sum()
    if "hypentropy" in h:
        width = h["hypentropy_width"]
        value += h["hypentropy"] * (x * np.arcsinh(x / width) - np.hypot(x, width) + width).sum()
    return value


def grouped_conjugate(z, limit, h):
    """sup over x >= 0 of <x, z> - limit |x| - the hypentropy of x: where its derivatives by x are 0."""
    z = z[z > 0]
    norm = np.linalg.norm(z)
    if norm <= limit:
        return 0.0
    weight, width = h["hypentropy"], h["hypentropy_width"]
    exact = {"xtol": 1e-18, "rtol": 4 * EPSILON}

    def equation(x, slope, v):
        return x * slope + weight * np.arcsinh(x / width) - v

    def entries(root):
        slope = limit / root
        return np.array([brentq(equation, 0, v / slope, args=(slope, v), **exact) for v in z])

    most = width * np.sinh(norm / weight) * np.sqrt(len(z))
    least = (norm - limit) * width / weight
    root = brentq(lambda n: n / np.linalg.norm(entries(n)) - 1, least * (1 - 1e-12), most * (1 + 1e-12), **exact)
    return weight * (np.hypot(entries(root), width) - width).sum()


def conjugate(y, h):
    """sup over x >= 0 of <x, y> - h(x); infinite by more than rounding fails here."""
    y = np.maximum(np.where(h.get("mask", True), y - h.get("l1", 0) * h.get("l1_weights", 0), 0), 0)
    if "group_lasso" in h:
        labels, limits = pair_groups(h)
        excess = np.maximum(group_norms(y, labels, limits) - limits, 0)
        if "quadratic" in h:
            return (excess**2).sum() / (2 * h["quadratic"])
        if "hypentropy" in h:
            return sum(grouped_conjugate(y[labels == g], limit, h) for g, limit in enumerate(limits))
        assert excess.max() < 64 * EPSILON
        return 0.0
    if "quadratic" in h:
        return (y**2).sum() / (2 * h["quadratic"])
    if "hypentropy" in h:
        return h["hypentropy"] * h["hypentropy_width"] * (np.cosh(y / h["hypentropy"]) - 1).sum()
    assert y.max() < 64 * EPSILON
    return 0.0


@pytest.mark.parametrize("name", NAMES)
def test_the_certificate_is_that_of_the_formulas(rng, name):
    cost, a, b = problem(rng)
    h = terms(name, rng)
    tolerance = 1e-6
    result = monge.solve_regularized(cost, a, b, tolerance=tolerance, **h)
    x, (u, v) = result.plan, result.potentials
    assert result.converged and (x >= 0).all()
    rounding = 16 * x.size * EPSILON * (abs(cost).max() + abs(u).max() + abs(v).max())
    linear = (cost * x).sum()
    # Mass that X lacks counts at the least cost, so that the gap is that of costs without their offset.
    allowed = np.broadcast_to(h.get("mask", True), SHAPE) & (a[:, None] > 0) & (b > 0)
    primal = linear + regularization(x, h) + cost[allowed].min() * (a.sum() - x.sum())
    dual = a @ u + b @ v - conjugate(u[:, None] + v[None, :] - cost, h)
    assert result.value_linear == pytest.approx(linear, abs=rounding)
    assert result.value == pytest.approx(primal, abs=rounding)
    assert result.report.dual == pytest.approx(dual, abs=rounding)
    assert result.gap == pytest.approx(primal - dual, abs=2 * rounding)
    # The criterion, as the header says it.
    residual = np.linalg.norm(np.concatenate((x.sum(1) - a, x.sum(0) - b)))
    assert residual <= tolerance * np.linalg.norm(np.concatenate((a, b))) + rounding
    least = cost[allowed].min()
    assert abs(result.gap) <= tolerance * max(abs(primal - least), 1e-3 * np.ptp(cost[allowed])) + rounding
    assert result.marginal_error == pytest.approx(abs(x.sum(1) - a).sum() + abs(x.sum(0) - b).sum(), abs=rounding)
    assert (x[~np.broadcast_to(h.get("mask", True), SHAPE)] == 0).all()
    assert result.nonzeros == np.count_nonzero(x)


SOLVES = {
    "newton": {"quadratic": 0.5},
    "quadratic": {"quadratic": 0.5, "method": "splitting"},
    "group_lasso": {"group_lasso": 0.01, "groups": np.arange(8) // 4},
    "l1": {"quadratic": 0.5, "l1": 0.1, "l1_weights": np.arange(48).reshape(8, 6) % 7 / 7},
    "hypentropy": {"hypentropy": 0.1},
}


@pytest.mark.parametrize("name", SOLVES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_dear_pair_is_as_good_as_forbidden(rng, name, dtype):
    cost = rng.random((8, 6)).astype(dtype)
    forbidden = cost.copy()
    forbidden[0, 0] = np.inf
    expected = monge.solve_regularized(forbidden, **SOLVES[name])
    for dear in (1e3, 1e6, 1e9, 1e12, 1e30, *([1e300] if dtype == np.float64 else [])):
        cost[0, 0] = dear
        result = monge.solve_regularized(cost, **SOLVES[name])
        assert result.converged and expected.converged
        assert abs(result.gap) <= 1e-4 * result.value
        assert result.value == pytest.approx(expected.value, rel=1e-12)
        assert result.plan[0, 0] == 0


@pytest.mark.parametrize("name", SOLVES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_points_without_mass_may_have_any_costs(rng, name, dtype):
    cost = rng.random((8, 6)).astype(dtype)
    a = weights(rng, 8, 0)
    a[3] = 0
    a /= a.sum()
    expected = monge.solve_regularized(cost, a, **SOLVES[name])
    for padding in (-1e3, -1e6, -1e15, 1e6, 1e15):
        cost[3] = padding
        result = monge.solve_regularized(cost, a, **SOLVES[name])
        assert result.converged and expected.converged
        assert abs(result.gap) <= 1e-4 * result.value
        assert result.value == pytest.approx(expected.value, rel=2e-4)


@settings(deadline=None, max_examples=30, derandomize=True)
@given(st.integers(1, 25), st.integers(1, 25), st.integers(0, 2**32 - 1))
def test_without_a_term_it_is_the_linear_program(n, m, seed):
    optimize = pytest.importorskip("scipy.optimize")
    rng = np.random.default_rng(seed)
    cost, a, b = rng.normal(size=(n, m)), weights(rng, n), weights(rng, m)
    sums = np.concatenate((np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))))
    exact = optimize.linprog(cost.ravel(), A_eq=sums[:-1], b_eq=np.concatenate((a, b))[:-1]).fun
    result = monge.solve_regularized(cost, a, b, tolerance=1e-6)
    # u and v are feasible, and X is a plan but for its marginals: to move that mass costs at most the range of C.
    rounding = 1e-10 * abs(cost).max()
    spread = np.ptp(cost) + abs(cost).max()
    assert result.report.dual - rounding <= exact <= result.value + spread * result.marginal_error + rounding
    assert result.converged and abs(result.gap) <= 1e-6 * abs(cost).max()


def smooth_distance(ours, theirs, potentials, other, reg):
    """A bound of |X - Y|_F for X = [u + v - C]_+ / reg and Y of other potentials, from their marginals.

    reg |X - Y|^2 <= <X - Y, (u + v) - (u' + v')> = <(X - Y) 1, u - u'> + <(X - Y)^T 1, v - v'>, as [.]_+ is monotone.
    """
    du, dv = (p - q for p, q in zip(potentials, other))
    shift = np.median(du)
    difference = ours - theirs
    bound = abs(difference.sum(1)) @ abs(du - shift) + abs(difference.sum(0)) @ abs(dv + shift)
    return np.sqrt((bound + 64 * EPSILON) / reg)


@settings(deadline=None, max_examples=20, derandomize=True)
@given(st.integers(2, 30), st.integers(2, 30), st.floats(0.05, 5.0), st.booleans(), st.integers(0, 2**32 - 1))
def test_smooth_plans_are_those_of_pot(n, m, reg, uniform, seed):
    ot = pytest.importorskip("ot")
    rng = np.random.default_rng(seed)
    x, y = rng.random((n, 3)), rng.random((m, 3)) + 0.2
    cost = squared_distances(x, y)
    a, b = (np.full(n, 1 / n), np.full(m, 1 / m)) if uniform else (weights(rng, n), weights(rng, m))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = ot.solve(cost, a, b, reg, reg_type="L2", tol=1e-12, max_iter=20000)
    for ours, other in (
        (monge.solve(cost, a, b, reg, reg_type="L2", tol=1e-10), theirs),
        (monge.solve_sample(x, y, a, b, reg=reg, reg_type="L2", tol=1e-10), theirs),
    ):
        bound = smooth_distance(ours.plan, other.plan, ours.potentials, other.potentials, reg)
        assert np.linalg.norm(ours.plan - other.plan) <= bound
        assert bound < 1e-3 / np.sqrt(reg)  # So it says something.
        linear = np.linalg.norm(cost) * bound
        assert ours.value_linear == pytest.approx(other.value_linear, abs=linear)
        # POT's value counts the term twice, which its plan counts once.
        assert ours.value == pytest.approx(
            other.value - reg / 2 * (other.plan**2).sum(), abs=linear + 2 * reg * bound * np.linalg.norm(other.plan)
        )
    # What POT's solve() returns is what its smooth_ot_dual() does.
    own, log = monge.smooth_ot_dual(a, b, cost, reg, stopThr=1e-10, log=True)
    bound = smooth_distance(own, theirs.plan, (log["alpha"], log["beta"]), theirs.potentials, reg)
    assert np.linalg.norm(own - theirs.plan) <= bound
    np.testing.assert_array_equal(monge.smooth_ot_dual(a, b, cost, reg, stopThr=1e-10), log["res"].plan)


def test_points_and_their_costs_have_one_plan(rng):
    x, y = rng.normal(size=(21, 3)), rng.normal(size=(17, 3))
    cost = 0.5 * squared_distances(x, y)
    result = monge.solve_regularized_sample(x, y, quadratic=3.0, scale=0.5, tolerance=1e-10)
    other = monge.solve_regularized(cost, quadratic=3.0, tolerance=1e-10)
    bound = smooth_distance(result.plan, other.plan, result.potentials, other.potentials, 3.0)
    assert np.linalg.norm(result.plan - other.plan) <= bound
    np.testing.assert_allclose(result.transform(), result.average(y), rtol=0)
    direction = rng.normal(size=x.shape)
    step = 1e-5
    ahead, behind = (
        monge.solve_regularized_sample(x + s * direction, y, quadratic=3.0, scale=0.5, tolerance=1e-12).value
        for s in (step, -step)
    )
    # Central differences: the third derivative is of the order of the costs, values are good to 1e-12 of themselves.
    assert (result.gradients().x * direction).sum() == pytest.approx((ahead - behind) / (2 * step), abs=1e-6)


@pytest.mark.parametrize("name", ["quadratic", "group_lasso", "l1", "hypentropy", "hypentropy_groups"])
def test_points_have_the_plan_of_their_costs(rng, name):
    x, y = rng.random((SHAPE[0], 2)), rng.random((SHAPE[1], 2))
    a, b = weights(rng, SHAPE[0], 1), weights(rng, SHAPE[1], 1)
    how = dict(terms(name, rng), method="splitting", tolerance=1e-6)
    result = monge.solve_regularized_sample(x, y, a, b, scale=0.5, **how)
    expected = monge.solve_regularized(costs(x, y, "sqeuclidean", None, 0.5), a, b, **how)
    assert result.converged and result.report.method == "splitting"
    assert result.value == pytest.approx(expected.value, rel=3e-6)
    assert result.report.dual <= expected.value * (1 + 2e-6)
    assert result.nonzeros == np.count_nonzero(result.plan)
    if name != "quadratic":
        term = "group_lasso" if name == "hypentropy_groups" else name
        with pytest.raises(NotImplementedError, match=f"^transform: the problem has the term {term}, and so has"):
            result.transform(x)


@pytest.mark.parametrize("name", ["quadratic", "group_lasso"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_operators_are_those_of_the_plan(rng, name, dtype):
    cost, a, b = problem(rng)
    result = monge.solve_regularized(cost.astype(dtype), a, b, **terms(name, rng))
    x = result.plan.astype("f8")
    assert result.plan.dtype == result.potentials[0].dtype == dtype
    v, w = rng.normal(size=(9, 4)), rng.normal(size=11)
    rounding = np.finfo(dtype).eps
    close = {"rtol": 20 * rounding, "atol": 20 * rounding}
    np.testing.assert_allclose(result.apply(v), x @ v, **close)
    np.testing.assert_allclose(result.apply(w, transpose=True), x.T @ w, **close)
    rows, columns = x.sum(1), x.sum(0)
    np.testing.assert_allclose(result.marginals[0], rows, **close)
    np.testing.assert_allclose(result.push(rows), columns, **close)
    np.testing.assert_allclose(result.pull(columns), rows, **close)
    used = rows > 0
    np.testing.assert_allclose(result.average(v)[used], (x @ v)[used] / rows[used, None], **close)
    assert (result.average(v)[~used] == 0).all() and not used.all()
    mean = result.average(w, transpose=True)
    np.testing.assert_allclose(mean[columns > 0], (x.T @ w)[columns > 0] / columns[columns > 0], **close)
    np.testing.assert_allclose(result.lazy_plan[2:4], x[2:4], **close)
    sparse = result.sparse_plan
    assert sparse.nnz == result.nonzeros and sparse.dtype == dtype
    np.testing.assert_array_equal(sparse.toarray(), result.plan)
    with pytest.raises(NotImplementedError, match="^transform: the problem is a cost matrix"):
        result.transform()
    again = pickle.loads(pickle.dumps(result))
    np.testing.assert_array_equal(again.plan, result.plan)
    assert repr(again.report) == repr(result.report) and len(again.report.history) == len(result.report.history)
    assert "entries" in repr(result)


@pytest.mark.parametrize("name", ["none", "group_lasso"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_largest_entries(rng, name, dtype):
    cost, a, b = problem(rng)
    cost = cost.astype(dtype)
    result = monge.solve_regularized(cost, a, b, **terms(name, rng))
    dense = np.empty(SHAPE)
    result._plan.dense(dense)
    for axis, matrix in ((1, dense), (0, dense.T)):
        for k in (1, 4, matrix.shape[1]):
            indices, values = result.topk(k, axis)
            order = np.argsort(-matrix, 1, kind="stable")[:, :k]
            np.testing.assert_array_equal(indices, order)
            np.testing.assert_array_equal(values, np.take_along_axis(matrix, order, 1).astype(dtype))
            assert values.dtype == dtype and indices.dtype == np.int64
    equal = monge.solve_regularized(np.ones((4, 5)), quadratic=1.0)
    assert len(np.unique(equal.plan)) == 1
    np.testing.assert_array_equal(equal.topk(3)[0], np.tile([0, 1, 2], (4, 1)))
    for k, axis, match in ((0, 1, "^k: is 0; must be from 1 to 9"), (12, 0, "^k: is 12"), (1, 2, "^axis: is 2")):
        with pytest.raises(ValueError, match=match):
            result.topk(k, axis)


def test_pairs_are_drawn_from_the_plan(rng):
    cost, a, b = problem(rng)
    result = monge.solve_regularized(cost, a, b, quadratic=5.0)
    i, j = result.sample(100_000, seed=3)
    again = result.sample(1000, seed=3)
    np.testing.assert_array_equal(np.stack(again), np.stack((i, j))[:, :1000])
    assert (result.sample(1000, seed=4)[0] != again[0]).any()
    count = np.zeros(SHAPE)
    np.add.at(count, (i, j), 1)
    share = result.plan / result.plan.sum()
    assert (count[share == 0] == 0).all()
    # Five standard deviations of a binomial count, for one of 99 entries to be off once in 10,000 seeds.
    assert (abs(count - 1e5 * share) <= 5 * np.sqrt(1e5 * share) + 5).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_inverse_is_the_plan_seen_from_the_targets(rng, name):
    cost, p, q = problem(rng)
    result = monge.solve_regularized(cost, p, q, **terms(name, rng))
    inverse, (n, m) = result.inverse, SHAPE
    assert inverse.shape == (m, n) and inverse.inverse is result and inverse.value == result.value
    np.testing.assert_array_equal(inverse.plan, result.plan.T)
    np.testing.assert_array_equal(inverse.sparse_plan.toarray(), result.plan.T)
    for own, other in (
        (inverse.potentials, result.potentials[::-1]),
        (inverse.marginals, result.marginals[::-1]),
        ((inverse.value_linear, inverse.gap), (result.value_linear, result.gap)),
    ):
        for found, expected in zip(own, other):
            np.testing.assert_array_equal(found, expected)
    v, w = rng.random((n, 3)), rng.random(m)
    np.testing.assert_array_equal(inverse.apply(v), result.apply(v, transpose=True))
    np.testing.assert_array_equal(inverse.apply(w, transpose=True), result.apply(w))
    np.testing.assert_array_equal(inverse.average(v), result.average(v, transpose=True))
    np.testing.assert_array_equal(inverse.average(w, transpose=True), result.average(w))
    np.testing.assert_array_equal(inverse.push(w), result.pull(w))
    for axis in (0, 1):
        for found, expected in zip(inverse.topk(3, axis), result.topk(3, 1 - axis)):
            np.testing.assert_array_equal(found, expected)
    i, j = inverse.sample(100, seed=3)
    assert (result.plan[j, i] > 0).all()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(inverse)).plan, inverse.plan)


def test_the_inverse_of_points_takes_new_ones(rng):
    x, y = rng.normal(size=(11, 2)), rng.normal(size=(9, 2)) + 1
    p, q = weights(rng, 11), weights(rng, 9)
    solve = monge.solve_regularized_sample
    inverse, other = (
        solve(x, y, p, q, quadratic=1.0, tolerance=1e-12).inverse,
        solve(y, x, q, p, quadratic=1.0, tolerance=1e-12),
    )
    # Plans of two solves: the tolerance, by a term of weight 1 whose plan is strongly convex.
    close = {"rtol": 1e-6, "atol": 1e-8}
    np.testing.assert_allclose(inverse.plan, other.plan, **close)
    new = rng.normal(size=(4, 2)) + 1
    np.testing.assert_allclose(inverse.transform(), other.transform(), **close)
    np.testing.assert_allclose(inverse.transform(new), other.transform(new), **close)
    assert not np.allclose(inverse.transform(new), inverse.inverse.transform(new))
    for name in "xy":
        np.testing.assert_allclose(getattr(inverse.gradients(), name), getattr(other.gradients(), name), **close)


def test_weights_of_terms_may_come_down_to_0(rng):
    cost, a, b = problem(rng)
    data = {
        "group_lasso": {"groups": GROUPS, "group_weights": np.ones(3)},
        "l1": {"l1_weights": cost},
        "hypentropy": {"hypentropy_width": 2.0},
    }
    plain = monge.solve_regularized(cost, a, b, quadratic=1.0).plan
    for term, own in data.items():
        found = monge.solve_regularized(cost, a, b, quadratic=1.0, **{term: 0.0}, **own)
        np.testing.assert_array_equal(found.plan, plain)
        (batched,) = monge.solve_regularized_batch([cost], a, b, quadratic=1.0, **{term: 0}, **own)
        np.testing.assert_array_equal(batched.plan, plain)


def test_the_inverse_has_the_labels_of_the_other_side(rng):
    x, y = rng.normal(size=(11, 2)), rng.normal(size=(9, 2))
    given = {
        "labels_x": rng.integers(2, size=11),
        "labels_y": rng.integers(3, size=9),
        "label_cost": rng.random((3, 3)),
    }
    entropic = monge.solve_sample(x, y, reg=1.0, tol=1e-12, label_weight=2.0, **given)
    # Potentials are the same, and rows of the plan are added up in another order.
    np.testing.assert_allclose(entropic.inverse.plan, entropic.plan.T, rtol=1e-12)
    sparse = monge.solve_regularized_sample(x, y, quadratic=1.0, label_weight=2.0, **given)
    assert sparse.inverse.shape == (9, 11)
    np.testing.assert_array_equal(sparse.inverse.apply(x), sparse.apply(x, transpose=True))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(sparse.inverse)).plan, sparse.plan.T)


@pytest.mark.parametrize("solve", [lambda cost: monge.solve(cost, reg=0.1), monge.solve_regularized])
def test_results_end_with_their_last_name(rng, solve):
    collects = gc.isenabled()
    gc.disable()
    try:
        result = solve(rng.random(SHAPE))
        assert result.inverse.plan.shape == result.inverse.inverse.plan.T.shape
        ends = weakref.ref(result)
        del result
        assert ends() is None
    finally:
        if collects:
            gc.enable()


@pytest.mark.parametrize(
    "metric, scale",
    [("sqeuclidean", 0.5), ("dot", 1.0), ("cityblock", 2.0), ("euclidean", 1.0), ("cosine", 3.0), ("chebyshev", 1.0)],
)
def test_new_points_get_the_rows_they_would_have(rng, metric, scale):
    x, y = rng.normal(size=(21, 3)) + 100, rng.normal(size=(17, 3)) + 100
    a, q = weights(rng, 21), 3.0
    result = monge.solve_regularized_sample(x, y, a, metric=metric, scale=scale, quadratic=q, tolerance=1e-10)
    # [.]_+ grows with u, so a row of the plan differs from that of its weight by the error of its marginal, entry by
    # entry to one side.
    error = abs(result.marginal_a - a)
    moved = result.transform(x, a)
    assert (abs(moved - result.transform()).max(1) <= 2 * np.ptp(y) * error / a + 1e-10).all()
    new, w = rng.normal(size=(5, 3)) + 100, rng.random(5) + 0.1
    u, v = result.potential(new, w), result.potentials[1]
    difference = new[:, None] - y
    cost = {
        "sqeuclidean": lambda: (difference**2).sum(-1),
        "dot": lambda: -(new @ y.T),
        "cityblock": lambda: abs(difference).sum(-1),
        "chebyshev": lambda: abs(difference).max(-1),
        "euclidean": lambda: np.sqrt((difference**2).sum(-1)),
        "cosine": lambda: 1 - (new @ y.T) / np.outer(np.linalg.norm(new, axis=1), np.linalg.norm(y, axis=1)),
    }[metric]()
    rows = np.maximum(u[:, None] + v - scale * cost, 0) / q
    # Costs are rounded to a few EPSILON of the largest.
    rounding = 100 * EPSILON * abs(scale * cost).max() / q
    np.testing.assert_allclose(rows.sum(1), w, atol=17 * rounding)
    np.testing.assert_allclose(
        result.transform(new, w), rows @ y / w[:, None], atol=17 * rounding / w.min() * abs(y).max()
    )
    np.testing.assert_array_equal(result.potential(new), result.potential(new, np.full(5, a.sum() / 21)))
    exact = monge.solve_regularized_sample(x, y, a, metric=metric, scale=scale)
    slack = scale * cost - exact.potentials[1]
    np.testing.assert_allclose(exact.potential(new), slack.min(1), atol=q * rounding)
    np.testing.assert_allclose(exact.transform(new), y[slack.argmin(1)], rtol=1e-15)
    one = monge.solve_regularized_sample(x.astype("f4"), y.astype("f4"), a, metric=metric, quadratic=q)
    assert one.transform(new).dtype == one.potential(new).dtype == np.float32


@pytest.mark.parametrize("p", [1, 1.5, 2, 300.0, np.inf])
def test_costs_of_norms(rng, p):
    x, y = 1e3 * rng.normal(size=(6, 3)), 1e3 * rng.normal(size=(5, 3))  # 1e3^300 is no float64,
    x[1] = y[1] + 1e-3 * rng.normal(size=3)  # and nor is 1e-6^300.
    largest = abs(x[:, None] - y).max(-1)
    expected = largest * np.linalg.norm((x[:, None] - y) / largest[..., None], p, axis=-1)
    # A logarithm's rounding, p times over where powers are small beside the largest.
    np.testing.assert_allclose(costs(x, y, "p-norm", p, 2.0), 2 * expected, rtol=1e-13)
    np.testing.assert_array_equal(costs(x[:1], x[:1], "p-norm", p), [[0.0]])


def test_costs_do_not_round_an_offset(rng):
    x, y = 1e7 + rng.normal(size=(6, 3)), 1e7 + rng.normal(size=(5, 3))
    # Points are 1e7 to EPSILON of it, and the mean that is taken off is rounded as much for both.
    np.testing.assert_allclose(costs(x, y, "sqeuclidean"), squared_distances(x, y), atol=1e7 * 64 * EPSILON)


def test_what_new_points_need(rng):
    x, y = rng.normal(size=(6, 2)), rng.normal(size=(5, 2))
    labelled = {"labels_x": [0, 1, 0, 1, 0, 1], "labels_y": [0, 1, 0, 1, 0], "label_cost": np.eye(2)}
    for result, reason in (
        (monge.solve_regularized(rng.random((6, 5)), quadratic=1.0), "the problem is a cost matrix"),
        (monge.solve_regularized_sample(x, y, quadratic=1.0, **labelled), "the problem has labels"),
    ):
        with pytest.raises(NotImplementedError, match=f"^transform: {reason}"):
            result.transform(x)
        with pytest.raises(NotImplementedError, match=f"^potential: {reason}"):
            result.potential(x)
    with pytest.raises(ValueError, match="^points: one has length 0"):
        monge.solve_regularized_sample(x, y, metric="cosine", quadratic=1.0).transform(0 * x)
    result = monge.solve_regularized_sample(x, y, quadratic=1.0)
    for points, w, match in (
        (x[0], None, r"^points: has shape \(2,\); must be \(k, 2\)"),
        (np.ones((3, 4)), None, r"^points: has shape \(3, 4\); must be \(k, 2\)"),
        (x * np.nan, None, "^points: row 0, column 0 is not finite"),
        (x, np.ones(5), "^weights: must be 6 numbers > 0"),
        (x, np.zeros(6), "^weights: must be 6 numbers > 0"),
    ):
        with pytest.raises(ValueError, match=match):
            result.transform(points, w)


def test_batches_have_the_bits_of_each_solve(rng):
    cost = [rng.random((n, m)) for n, m in ((6, 5), (9, 4), (1, 3))]
    groups = [np.arange(len(c)) % 2 if len(c) > 1 else np.zeros(1, int) for c in cost]
    batch = monge.solve_regularized_batch(cost, group_lasso=0.05, groups=groups, quadratic=0.5)
    assert batch.converged and len(batch) == 3
    for k, result in enumerate(batch):
        alone = monge.solve_regularized(cost[k], group_lasso=0.05, groups=groups[k], quadratic=0.5)
        np.testing.assert_array_equal(result.plan, alone.plan)
        np.testing.assert_array_equal(batch.potentials[0][k], alone.potentials[0])
        assert batch.value[k] == alone.value and batch.n_iter[k] == alone.n_iter
    stacked = monge.solve_regularized_batch(rng.random((3, 6, 5)), quadratic=1.0, mask=np.eye(6, 5) == 0)
    assert stacked.plan.shape == (3, 6, 5) and (stacked.plan[:, range(5), range(5)] == 0).all()
    with pytest.raises(ValueError, match="^problem 1: .*quadratic|^problem 1: a: "):
        monge.solve_regularized_batch(cost[:2], [None, np.full(9, -1.0)], quadratic=1.0)
    with pytest.raises(ValueError, match="^M: has no problems"):
        monge.solve_regularized_batch([])


def test_batches_of_reg_type_l2(rng):
    cost = rng.random((3, 6, 5))
    x, y = rng.normal(size=(2, 6, 2)), rng.normal(size=(2, 5, 2))
    a = weights(rng, 6)
    batch = monge.solve_batch(cost, 0.5, a, tol=1e-9, reg_type="L2")
    assert batch.plan.shape == cost.shape and isinstance(batch[0], monge.RegularizedResult)
    points = monge.solve_sample_batch(list(x), list(y), 0.5, a, tol=1e-9, method="newton", reg_type="l2")
    for result, alone in (
        *((batch[k], monge.solve(cost[k], a, reg=0.5, tol=1e-9, reg_type="L2")) for k in range(3)),
        *((points[k], monge.solve_sample(x[k], y[k], a, reg=0.5, tol=1e-9, reg_type="L2")) for k in range(2)),
    ):
        np.testing.assert_array_equal(result.plan, alone.plan)
        assert result.value == alone.value
    for keywords, error, match in (
        ({"reg": "auto"}, TypeError, "^reg: is 'auto'; must be a number"),
        ({"reg": 1.0, "potentials_init": [None] * 3}, NotImplementedError, "^potentials_init: is given; must not be"),
        ({"reg": 1.0, "tol": 1e-3, "tolerance": 1e-3}, ValueError, "^tol: is given with tolerance"),
    ):
        with pytest.raises(error, match=match):
            monge.solve_batch(cost, reg_type="L2", **keywords)
    with pytest.warns(monge.ConvergenceWarning) as caught:
        monge.solve_batch(cost, 0.01, max_iter=1, reg_type="L2")
    assert caught[0].filename == __file__


def test_every_option_of_the_library_is_an_argument(rng):
    cost = rng.random((6, 7))
    listed = _core.regularized_option_list()
    assert [option[0] for option in listed] == list(RegularizedOptions.__annotations__)
    given = {name: default for name, _, default, *_ in listed}
    np.testing.assert_array_equal(
        monge.solve_regularized(cost, quadratic=1.0, **given).plan, monge.solve_regularized(cost, quadratic=1.0).plan
    )


def test_tol_and_max_iter_are_the_librarys_tolerance_and_iterations(rng):
    cost, x, y = rng.random((6, 7)), rng.random((6, 2)), rng.random((7, 2))
    for solve, problem_of in (
        (monge.solve_regularized, (cost,)),
        (monge.solve_regularized_sample, (x, y)),
        (lambda *batch, **options: monge.solve_regularized_batch(*batch, **options)[0], ([cost],)),
    ):
        by_name = solve(*problem_of, quadratic=0.1, tolerance=1e-10)
        np.testing.assert_array_equal(solve(*problem_of, quadratic=0.1, tol=1e-10).plan, by_name.plan)
        assert solve(*problem_of, quadratic=0.1).n_iter < by_name.n_iter
        with pytest.warns(monge.ConvergenceWarning):
            assert solve(*problem_of, quadratic=0.1, tol=1e-10, max_iter=2).status == "iteration_limit"


def test_warm_starts_need_fewer_passes(rng):
    cost = rng.random((40, 30))
    cold = monge.solve_regularized(cost, quadratic=0.1, tolerance=1e-9)
    warm = monge.solve_regularized(cost, quadratic=0.1, tolerance=1e-9, potentials_init=cold.potentials)
    assert warm.n_iter < cold.n_iter


@pytest.mark.parametrize("name", ["group_lasso", "hypentropy"])
def test_splitting_starts_from_a_result(rng, name):
    cost, a, b = problem(rng)
    h = terms(name, rng)
    cold = monge.solve_regularized(cost, a, b, tolerance=1e-6, **h)
    warm = monge.solve_regularized(
        cost, a, b, tolerance=1e-6, potentials_init=cold.potentials, plan_init=cold.plan, **h
    )
    assert warm.converged and warm.n_iter <= 20 < cold.n_iter
    again = pickle.loads(pickle.dumps(warm))
    np.testing.assert_array_equal(again.plan, warm.plan)


def test_the_history_has_the_number_of_entries(rng):
    cost, a, b = problem(rng)
    for h in (terms("group_lasso", rng), {"quadratic": 0.1}):
        result = monge.solve_regularized(cost, a, b, **h)
        assert result.report.history[-1].nonzeros == result.nonzeros == np.count_nonzero(result.plan)
        assert all(0 < check.nonzeros <= cost.size for check in result.report.history)


def test_terms_in_disguise_have_the_values_of_the_docs(rng):
    cost, a, b = problem(rng)
    near, weight, gamma = np.outer(a, b), 0.8, 0.3
    result = monge.solve_regularized(cost - weight * near, a, b, quadratic=weight, tol=1e-9)
    expected = (cost * result.plan).sum() + weight / 2 * ((result.plan - near) ** 2).sum()
    assert result.value + weight / 2 * (near**2).sum() == pytest.approx(expected, abs=1e-8)
    result = monge.solve_regularized(cost, a, b, quadratic=2 * gamma, tol=1e-9)
    expected = (cost * result.plan).sum() + gamma * (result.plan * (result.plan - 1)).sum()
    assert result.value - gamma * a.sum() == pytest.approx(expected, abs=1e-8)


MOST = 0.03
CAPACITY = monge.SeparableTerm(
    prox=lambda v, step: np.minimum(v, MOST), value=lambda x: np.zeros_like(x), conjugate=lambda z: MOST * z
)


def test_a_term_of_ones_own_has_a_certificate(rng):
    n, m = 12, 10
    cost = rng.random((n, m))
    result = monge.solve_regularized(cost, separable=CAPACITY, tol=1e-5)
    assert result.converged and result.plan.max() <= MOST * (1 + 1e-6)
    # The same linear program by SciPy.
    rows = np.kron(np.eye(n), np.ones(m))
    columns = np.kron(np.ones(n), np.eye(m))
    totals = np.concatenate((np.full(n, 1 / n), np.full(m, 1 / m)))
    program = linprog(cost.ravel(), A_eq=np.vstack((rows, columns)), b_eq=totals, bounds=(0, MOST))
    assert result.value == pytest.approx(program.fun, rel=3e-5)
    assert result.report.dual <= program.fun * (1 + 1e-9)
    # float32 results and strided ones are read as they are.
    other = monge.SeparableTerm(
        prox=lambda v, step: np.minimum(v, MOST).astype(np.float32),
        value=lambda x: np.zeros((len(x), 2))[:, 0],
        conjugate=lambda z: MOST * z,
    )
    assert monge.solve_regularized(cost, separable=other, tol=1e-5).value == pytest.approx(result.value, rel=3e-5)
    batch = monge.solve_regularized_batch([cost, cost[:, ::-1]], separable=CAPACITY, tol=1e-5)
    np.testing.assert_array_equal(batch[0].plan, result.plan)


def test_a_table_of_slopes_has_the_plan_of_its_functions(rng):
    cost = rng.random((12, 10))
    capacity = np.array([[0, 0], [MOST, 0], [MOST, np.inf]])
    expected = monge.solve_regularized(cost, separable=CAPACITY, tol=1e-5)
    result = monge.solve_regularized(cost, slopes=capacity, tol=1e-5)
    assert result.converged and result.value == pytest.approx(expected.value, rel=3e-5)
    np.testing.assert_array_equal(
        monge.solve_regularized_batch([cost, cost.T], slopes=capacity, tol=1e-5)[0].plan, result.plan
    )
    # A line is a quadratic term; float32 and strided tables are read as they are.
    line = np.asfortranarray([[0, 0], [1, 0.25]], dtype=np.float32)
    quadratic = monge.solve_regularized(cost, quadratic=0.25, tol=1e-6, method="splitting")
    assert monge.solve_regularized(cost, slopes=line, tol=1e-6).value == pytest.approx(quadratic.value, rel=3e-6)
    x = rng.random((12, 2))
    of_points = monge.solve_regularized_sample(x, x[:10], slopes=capacity)
    assert of_points.converged and of_points.plan.max() <= MOST * (1 + 1e-6)


def test_functions_of_ones_own_may_fail(rng):
    cost = rng.random((12, 10))

    def solve(**functions):
        return monge.solve_regularized(cost, separable=replace(CAPACITY, **functions), tol=1e-5)

    def divide(z):
        return 1 / 0

    with pytest.raises(ZeroDivisionError):
        solve(conjugate=divide)
    with pytest.raises(ZeroDivisionError):
        solve(prox=lambda v, step: divide(v))
    with pytest.raises(ValueError, match=r"^separable: prox: returned 1 numbers on cpu; must return one on the host"):
        solve(prox=lambda v, step: np.zeros(1))
    with pytest.raises(ValueError, match=r"^separable: conjugate is 0 at z = .*; must be at least z x - value"):
        solve(conjugate=lambda z: 0 * z)
    with pytest.raises(ValueError, match=r"^separable: prox: returned 0 numbers on cpu"):
        solve(prox=lambda v, step: None)
    with pytest.raises(ValueError, match=r"^criterion: is gap; must be residual"):
        solve(conjugate=None)
    with pytest.raises(TypeError, match=r"^value: is 3; must be a function"):
        solve(value=3)
    loose = monge.solve_regularized(
        cost, separable=replace(CAPACITY, conjugate=None), criterion="residual", tol=1e-5
    )
    assert np.isnan(loose.gap) and np.isnan(loose.report.dual)


def test_a_group_of_pairs_has_the_optimum_of_its_formula():
    """A plan of 2 x 2 has one number t = X_00 = X_11, and the diagonal is a group."""
    c, weight, quadratic = 0.5, 0.3, 2.0
    t = 1 / 4 + (2 * c - np.sqrt(2) * weight) / (4 * quadratic)  # The derivative of the objective by t is 0.
    h = {"group_lasso": weight, "groups": [[0, -1], [-1, 0]], "quadratic": quadratic, "tol": 1e-9, "max_iter": 10**5}
    result = monge.solve_regularized([[0, c], [c, 0]], **h)
    # The objective is strongly convex: a gap d moves t by at most sqrt(d / (2 quadratic)).
    assert result.plan[0, 0] == pytest.approx(t, abs=np.sqrt(1e-9))
    batch = monge.solve_regularized_batch(
        np.array([[[0, c], [c, 0]]] * 2), **dict(h, groups=np.array([[[0, -1], [-1, 0]], [[-1, -1], [-1, -1]]]))
    )
    np.testing.assert_array_equal(batch[0].plan, result.plan)
    without = 1 / 4 + 2 * c / (4 * quadratic)
    assert batch[1].plan[0, 0] == pytest.approx(without, abs=np.sqrt(1e-9))


def test_bad_arguments_say_what_they_may_be(rng):
    cost, a, b = problem(rng)
    for keywords, error, match in (
        ({"quadratic": -1.0}, ValueError, r"^quadratic: is -1; must be"),
        ({"group_lasso": 1.0}, ValueError, r"^groups: is missing"),
        ({"group_lasso": 1.0, "groups": GROUPS[1:]}, ValueError, r"^groups: has 10 entries; must have 11"),
        ({"group_lasso": 1.0, "groups": GROUPS - 1}, ValueError, r"^groups: entry 0 is -1"),
        ({"group_lasso": 1.0, "groups": PAIR_GROUPS.T}, ValueError, r"^groups: is 9 x 11; must be 11 x 9"),
        ({"group_lasso": 1.0, "groups": PAIR_GROUPS - 1}, ValueError, r"^groups: row 0, column 0 is -2; must be from"),
        (
            {"group_lasso": 1.0, "groups": PAIR_GROUPS, "hypentropy": 0.1},
            NotImplementedError,
            r"^hypentropy: is 0.1; must be 0 with groups of pairs",
        ),
        ({"group_lasso": 1.0, "groups": GROUPS / 2}, TypeError, r"^groups: is of dtype float64; must be whole numbers"),
        ({"group_lasso": 1.0, "groups": GROUPS, "group_weights": [1.0]}, ValueError, r"^group_weights: has 1 entries"),
        ({"l1": 1.0}, ValueError, r"^l1_weights: is missing"),
        ({"mask": np.ones((2, 2))}, ValueError, r"^mask: "),
        ({"mask": np.zeros(SHAPE)}, ValueError, r"."),
        ({"separable": np.sqrt}, TypeError, r"^separable: is .*; must be a SeparableTerm"),
        ({"separable": CAPACITY, "quadratic": 1.0}, NotImplementedError, r"^separable: is given with quadratic"),
        ({"slopes": [[0.0, 1.0], [1.0, 0.0]]}, ValueError, r"^slopes: row 1 has the slope 0; must be at least 1"),
        ({"slopes": [0.0, 1.0]}, ValueError, r"^slopes: "),
        ({"slopes": [[0.0, 1.0]], "quadratic": 1.0}, NotImplementedError, r"^slopes: is given with quadratic"),
        ({"slopes": [[0.0, 1.0]], "separable": CAPACITY}, ValueError, r"^slopes: is given with separable"),
        ({"plan_init": monge.solve_regularized(cost, a, b)}, TypeError, r"^plan_init: is a RegularizedResult; must be"),
        ({"plan_init": np.ones((2, 2))}, ValueError, r"^plan_init: is 2 x 2; must be 11 x 9"),
        ({"plan_init": np.full(SHAPE, np.nan)}, ValueError, r"^plan_init: entry \(0, 0\) is nan; must be finite"),
        ({"plan_init": 98 / 99 - np.arange(99).reshape(SHAPE) / 98}, ValueError, r"^plan_init: entry \(10, 8\) is -0"),
        ({"plan_init": np.ones(SHAPE), "method": "newton"}, ValueError, r"^plan_init: is given; must not be"),
        ({"group_lasso": 1.0, "groups": GROUPS, "method": "newton"}, NotImplementedError, r"^group_lasso: is 1"),
        ({"method": "magic"}, ValueError, r"^method: is 'magic'; must be auto, splitting or newton"),
        ({"nonsense": 1}, TypeError, r"^nonsense: is no option; options are method, "),
    ):
        with pytest.raises(error, match=match):
            monge.solve_regularized(cost, a, b, **keywords)
    for keywords, error, match in (
        ({"reg": "auto"}, TypeError, r"^reg: is 'auto'; must be a number"),
        ({"reg": -1.0}, ValueError, r"^reg: is -1.0; must be >= 0"),
        ({"reg": 1.0, "tol": 1e-3, "tolerance": 1e-3}, ValueError, r"^tol: is given with tolerance"),
        ({"reg": 1.0, "unbalanced": 1.0}, NotImplementedError, r"^unbalanced: is given"),
    ):
        with pytest.raises(error, match=match):
            monge.solve(cost, a, b, reg_type="L2", **keywords)
    for keywords in ({"reg_type": "sparsity_constrained"}, {"max_nz": 2}):
        with pytest.raises(NotImplementedError, match=f"^{next(iter(keywords))}: is"):
            monge.smooth_ot_dual(a, b, cost, 1.0, **keywords)


def test_ending_short_is_a_warning_and_a_status(rng):
    cost, a, b = problem(rng)
    for keywords, solver in ((terms("group_lasso", rng), "splitting"), ({"quadratic": 0.1}, "Newton's method")):
        with pytest.warns(monge.ConvergenceWarning, match=f"^{solver} did not converge: ") as caught:
            result = monge.solve_regularized(cost, a, b, tolerance=1e-12, iterations=2, **keywords)
        assert result.status == "iteration_limit" and not result.converged
        assert caught[0].filename == __file__
    with pytest.warns(monge.ConvergenceWarning) as caught:
        monge.solve(cost, a, b, 0.1, reg_type="L2", max_iter=2)
    assert caught[0].filename == __file__


def test_progress_sees_each_check_and_stops(rng):
    cost, a, b = problem(rng)
    seen = []
    h = terms("group_lasso", rng)
    result = monge.solve_regularized(cost, a, b, tolerance=1e-9, check_every=10, progress=seen.append, **h)
    # A check at which the solve ends is none of those that may end it.
    assert len(result.report.history) - 2 <= len(seen) <= len(result.report.history)
    assert isinstance(seen[0], monge.RegularizedProgress) and seen[0].iteration == 10
    stopped = monge.solve_regularized(cost, a, b, tolerance=1e-9, progress=lambda state: state.iteration < 40, **h)
    assert stopped.status == "stopped" and stopped.n_iter < result.n_iter

    def fail(state):
        raise KeyError("from the progress function")

    with pytest.raises(KeyError, match="from the progress function"):
        monge.solve_regularized_batch([cost, cost], progress=fail, **h)


def test_an_interrupt_stops_a_batch():
    cost = np.random.default_rng(0).random((20, 300, 300))
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    begin = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        monge.solve_regularized_batch(cost, method="splitting", tolerance=0, iterations=10**5, n_threads=1)
    # All would take a minute or more; the signal stops the one that runs, and those that follow.
    assert time.perf_counter() - begin < 20


def test_the_text_has_no_sign_of_the_gap():
    random = np.random.default_rng(0)
    results = [
        monge.solve_regularized_sample(random.normal(size=(30, 2)), random.normal(size=(25, 2)) + 1, quadratic=5.0)
        for _ in range(10)
    ]
    assert min(result.gap for result in results) < 0
    assert all(f"|gap| {abs(result.gap):.2e}," in repr(result) for result in results)
