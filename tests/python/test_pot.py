"""Parity with POT: values, plans and potentials. Bounds follow from the marginal errors that both report."""

import inspect
import pickle
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import monge
from conftest import plan_distance, squared_distances, weights

ot = pytest.importorskip("ot")


POT = {
    **{name: ot for name in ("solve", "solve_sample", "solve_batch", "solve_sample_batch", "sinkhorn", "sinkhorn2")},
    **{name: ot.bregman for name in dir(monge) if name.startswith("empirical_sinkhorn")},
    **{name: ot.unbalanced for name in ("sinkhorn_unbalanced", "sinkhorn_unbalanced2")},
    "smooth_ot_dual": ot.smooth,
    **{name: ot for name in ("emd", "emd2")},
    **{name: ot.partial for name in ("partial_wasserstein", "partial_wasserstein2")},
    **{name: ot.gromov for name in dir(monge) if "gromov_wasserstein" in name},
    "solve_gromov": ot,
    "solve_gromov_batch": ot.batch,
}
OTHER_DEFAULTS = {
    "n_threads": [(1, None)],  # All cores.
    "numThreads": [(1, "max")],  # All cores.
    "max_iter": [(1000, None)],  # 10,000, of a stopping rule that is another.
    # 1e-6, relative and of both marginals; one default for the plan and its value.
    "tol": [(1e-5, None), (1e-7, 1e-8)],
    "warn": [(False, True)],  # It has no effect.
}
"""POT's defaults and ours of each function that has POT's; the table of docs/from/pot.md has these rows."""


@pytest.mark.skipif(not ot.__version__.startswith("0.9.7"), reason="the signatures are those of POT 0.9.7")
@pytest.mark.parametrize("name", POT)
def test_signatures(name):
    """POT's arguments come first, in its order and with its defaults; ours after them are keywords."""
    theirs, ours = (
        [p for p in inspect.signature(getattr(module, name)).parameters.values() if p.kind is not p.VAR_KEYWORD]
        for module in (POT[name], monge)
    )
    ours, added = ours[: len(theirs)], ours[len(theirs) :]
    assert [p.name for p in ours] == [p.name for p in theirs]
    assert all(p.kind is p.POSITIONAL_OR_KEYWORD for p in ours)
    assert all(p.kind is p.KEYWORD_ONLY for p in added)
    for own, other in zip(ours, theirs):
        if own.default != other.default:
            assert (other.default, own.default) in OTHER_DEFAULTS[own.name]


def test_differences_are_documented():
    docs = (Path(__file__).parents[2] / "docs" / "from" / "pot.md").read_text()
    table = docs.partition("## Differences")[2]
    first_cells = " ".join(line.split(" | ")[0] for line in table.splitlines() if line.startswith("| "))
    for name in [*OTHER_DEFAULTS, *monge._problem._OF_POT]:
        assert f"`{name}`" in first_cells, name


problems = st.tuples(
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 6),
    st.floats(0.05, 2.0),
    st.booleans(),
    st.sampled_from(["float32", "float64"]),
    st.integers(0, 2**32 - 1),
)


def make(drawn):
    n, m, d, reg, uniform, dtype, seed = drawn
    rng = np.random.default_rng(seed)
    x, y = rng.random((n, d)), rng.random((m, d)) + 0.3
    a, b = (None, None) if uniform else (weights(rng, n), weights(rng, m))
    # POT computes in the type of its inputs: it gets float64 always, the same numbers.
    x, y = x.astype(dtype), y.astype(dtype)
    return x, y, a, b, reg


def quietly(function, *args, **keywords):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **keywords)


def as_float64(*arrays):
    return [None if v is None else np.asarray(v, dtype=np.float64) for v in arrays]


@settings(deadline=None, max_examples=40, derandomize=True)
@given(problems)
def test_solve(drawn):
    x, y, a, b, reg = make(drawn)
    cost = squared_distances(*as_float64(x, y))
    theirs = quietly(ot.solve, cost, a, b, reg, tol=1e-13, max_iter=20000)
    for ours in (
        monge.solve(cost, a, b, reg, tol=1e-12),
        monge.solve_sample(x, y, a, b, reg=reg, tol=1e-12),
    ):
        single = ours.plan.dtype == np.float32
        bound = plan_distance(ours.plan.astype(float), theirs.plan, ours.log_scalings, theirs.potentials)
        rounding = (cost.max() / reg + 10) * np.finfo(ours.plan.dtype).eps * (10 if single else 100)
        assert abs(ours.plan - theirs.plan).sum() <= bound + rounding
        spread = np.ptp(cost) + reg
        assert float(ours.value_linear) == pytest.approx(theirs.value_linear, abs=(bound + rounding) * spread)
        assert float(ours.value) == pytest.approx(theirs.value, abs=(bound + rounding) * spread * 10)


@settings(deadline=None, max_examples=25, derandomize=True)
@given(problems)
def test_potentials(drawn):
    x, y, a, b, reg = make(drawn)
    cost = squared_distances(*as_float64(x, y))
    theirs = quietly(ot.solve, cost, a, b, max(reg, 0.2), tol=1e-14, max_iter=20000)
    ours = monge.solve(cost, a, b, max(reg, 0.2), tol=1e-13)
    # Both are the logarithms of the scalings, up to one constant. At these reg the scalings converge by a factor of
    # tanh(range / 4 reg)^2 a sweep, so an error of 1e-13 of the mass is far below this in the potentials.
    for own, other in zip(ours.log_scalings, theirs.potentials):
        assert np.ptp(own - other) < 1e-7


@settings(deadline=None, max_examples=25, derandomize=True)
@given(problems)
def test_entropy_and_classic_functions(drawn):
    x, y, a, b, reg = make(drawn)
    x, y = as_float64(x, y)
    cost = squared_distances(x, y)
    rows, columns = ([], []) if a is None else (a, b)
    theirs = quietly(ot.sinkhorn, rows, columns, cost, reg, method="sinkhorn_log", stopThr=1e-13, numItermax=20000)
    own, log = monge.sinkhorn(rows, columns, cost, reg, stopThr=1e-12, log=True)
    # Both plans have marginals right to 1e-12 in the 2-norm: at most 1e-11 in the 1-norm with 80 of them. The distance
    # of such plans is the root of that times the spread of the log scalings.
    bound = np.sqrt(2e-11 * (np.ptp(cost) / reg + 1))
    assert abs(own - theirs).sum() <= bound
    spread = np.ptp(cost) + reg
    close = {"abs": bound * spread}
    assert monge.sinkhorn2(rows, columns, cost, reg, stopThr=1e-12) == pytest.approx((cost * theirs).sum(), **close)
    assert monge.empirical_sinkhorn2(x, y, reg, a, b, stopThr=1e-12) == pytest.approx((cost * theirs).sum(), **close)
    assert abs(monge.empirical_sinkhorn(x, y, reg, a, b, stopThr=1e-12) - theirs).sum() <= bound
    u, v = monge.empirical_sinkhorn(x, y, reg, a, b, stopThr=1e-12, isLazy=True)
    assert abs(np.exp(u[:, None] + v[None, :] - cost / reg) - theirs).sum() <= bound
    warm = monge.sinkhorn(rows, columns, cost, reg, stopThr=1e-9, log=True, warmstart=(log["log_u"], log["log_v"]))
    assert warm[1]["niter"] <= log["niter"]
    with_entropy = monge.solve(cost, a, b, reg, reg_type="entropy", tol=1e-12)
    other = quietly(ot.solve, cost, a, b, reg, reg_type="entropy", tol=1e-13, max_iter=20000)
    assert with_entropy.value == pytest.approx(other.value, abs=bound * spread * 10)


@pytest.mark.parametrize("lazy", [False, True])
def test_what_stops_a_classic_solve(rng, lazy):
    x, y = rng.random((40, 2)), rng.random((30, 2))
    criteria, how = {}, {"schedule": "alternating", "check_every": 1}
    for criterion in ("l1", "gradient"):
        result = monge.solve_sample(x, y, reg=0.02, tol=1e-5, criterion=criterion, **how)
        criteria[criterion] = result.n_iter
    assert criteria["l1"] != criteria["gradient"]
    log = monge.empirical_sinkhorn(x, y, 0.02, stopThr=1e-5, isLazy=lazy, log=True, **how)[-1]
    assert log["niter"] == criteria["l1" if lazy else "gradient"]


def error_of(plan, a, b, criterion):
    """As stopThr is: relative to the mass."""
    row, column = abs(plan.sum(1) - a), abs(plan.sum(0) - b)
    error = row.sum() + column.sum() if criterion == "l1" else np.sqrt((row**2).sum() + (column**2).sum())
    return error / a.sum()


@pytest.mark.parametrize("stopThr", [1e-4, 1e-9])
@pytest.mark.parametrize("reg", [0.2, 0.01])
def test_errors_of_a_log_are_on_the_scale_of_the_tolerance(rng, reg, stopThr):
    cost = squared_distances(rng.random((40, 2)), rng.random((30, 2)))
    a, b = 3 * weights(rng, 40), 3 * weights(rng, 30)
    both = np.stack([b, b[::-1]], 1)
    exact, rounding = {"precision": "float64"}, {"rel": 1e-6, "abs": 1e-15}
    for criterion in ("gradient", "l1"):
        plan, log = monge.sinkhorn(a, b, cost, reg, stopThr=stopThr, log=True, criterion=criterion, **exact)
        assert log["err"][-1] == pytest.approx(error_of(plan, a, b, criterion), **rounding)
        assert log["result"].converged and log["err"][-1] <= stopThr < log["err"][0]
        _, columns = monge.sinkhorn(a, both, cost, reg, stopThr=stopThr, log=True, criterion=criterion, **exact)
        worst = max(error_of(each.plan, a, q, criterion) for each, q in zip(columns["result"], both.T))
        assert columns["err"][-1] == pytest.approx(worst, **rounding)
        assert columns["err"][0] >= log["err"][0]
    plan, log = monge.sinkhorn_unbalanced(a, b, cost, reg, np.inf, stopThr=stopThr, log=True, **exact)
    assert log["err"][-1] == pytest.approx(error_of(plan, a, b, "l1"), **rounding)


@pytest.mark.parametrize("seed", range(4))
def test_float32_weights_at_the_tolerance_of_float64(seed):
    rng = np.random.default_rng(seed)
    cost = rng.random((70, 50))
    a, b = (rng.random(size).astype(np.float32) for size in cost.shape)
    a, b = a / a.sum(), b / b.sum()
    totals = (weight.astype(np.float64).sum() for weight in (a, b))
    assert abs(np.subtract(*totals)) > 1e-9, "unsuitable"
    plan = monge.sinkhorn(a, b, cost, 0.1)
    assert abs(plan.sum(1) - a).sum() <= 1e-8
    assert monge.solve_regularized(cost, a, b, quadratic=1, tol=1e-9).converged


def test_weights_that_were_rounded(rng):
    """Totals may differ by 1e-6, as in emd: b is scaled to the total of a."""
    x, y = rng.random((6, 2)), rng.random((5, 2))
    cost = ot.dist(x, y)
    a = rng.random(6)
    a, b = a / a.sum(), np.full(5, 0.2) * (1 + 9e-7)
    scaled = b * (a.sum() / b.sum())
    plan = monge.sinkhorn(a, scaled, cost, 0.1)
    np.testing.assert_allclose(monge.sinkhorn(a, b, cost, 0.1), plan, rtol=1e-12)
    np.testing.assert_allclose(monge.sinkhorn2(a, b, cost, 0.1), (plan * cost).sum(), rtol=1e-12)
    np.testing.assert_allclose(monge.empirical_sinkhorn(x, y, 0.1, a, b), plan, rtol=1e-6)
    np.testing.assert_allclose(monge.empirical_sinkhorn2(x, y, 0.1, a, b), (plan * cost).sum(), rtol=1e-6)
    for function in (monge.sinkhorn, monge.sinkhorn2):
        with pytest.raises(ValueError, match="^b: the total is 1.00000.*; divide each by its total; unequal totals"):
            function(a, b * (1 + 2e-7), cost, 0.1)


def test_logs_have_the_dtype_of_the_costs(rng):
    cost = rng.random((6, 5)).astype(np.float32)
    for _, log in (
        monge.emd([], [], cost, log=True),
        monge.emd2([], [], cost, log=True, return_matrix=True),
        monge.sinkhorn([], [], cost, 0.1, log=True),
        monge.sinkhorn_unbalanced([], [], cost, 0.1, 1.0, log=True),
        monge.smooth_ot_dual([], [], cost, 0.1, log=True),
        monge.smooth_ot_dual([], [], cost, 0.1, reg_type="kl", log=True),
        monge.partial_wasserstein([], [], cost, 0.5, log=True),
    ):
        for name, value in log.items():
            assert getattr(value, "dtype", np.float32) == np.float32, name


def test_many_histograms(rng):
    cost = rng.random((12, 15))
    a, b = weights(rng, 12), np.stack([weights(rng, 15) for _ in range(3)], 1)
    theirs = quietly(ot.sinkhorn, a, b, cost, 0.1, method="sinkhorn_log", stopThr=1e-12, numItermax=20000)
    np.testing.assert_allclose(monge.sinkhorn(a, b, cost, 0.1, stopThr=1e-11), theirs, atol=1e-6)
    np.testing.assert_allclose(monge.sinkhorn2(a, b, cost, 0.1, stopThr=1e-11), theirs, atol=1e-6)
    _, log = monge.sinkhorn(a, b, cost, 0.1, stopThr=1e-11, log=True)
    _, theirs = quietly(ot.sinkhorn, a, b, cost, 0.1, stopThr=1e-11, log=True)
    assert {"err", *theirs} <= {*log}
    for name in ("u", "v"):
        assert log[name].shape == theirs[name].shape
        np.testing.assert_array_equal(log[name], np.exp(log[f"log_{name}"]))
    np.testing.assert_allclose(
        log["u"][:, None] * np.exp(-cost / 0.1)[:, :, None] * log["v"],
        np.stack([result.plan for result in log["result"]], 2),
        rtol=1e-12,
    )


@pytest.mark.parametrize("reg_m", [0.5, (1.0, 0.3), (np.inf, 0.7)])
def test_unbalanced(rng, reg_m):
    cost = squared_distances(rng.random((12, 2)), rng.random((15, 2)))
    a, b = weights(rng, 12), 1.4 * weights(rng, 15)
    theirs, log = quietly(
        ot.unbalanced.sinkhorn_unbalanced, a, b, cost, 0.2, reg_m, stopThr=1e-15, numItermax=100000, log=True
    )
    own, own_log = monge.sinkhorn_unbalanced(a, b, cost, 0.2, reg_m, stopThr=1e-12, log=True)
    # The objective is strongly convex in log P where mass is not held by constraints alone: errors of the conditions of
    # 1e-12 move the plan by some (1 + rho / eps) of that.
    np.testing.assert_allclose(own, theirs, rtol=1e-8)
    assert own_log["cost"] == pytest.approx(log["cost"], rel=1e-8)
    assert monge.sinkhorn_unbalanced2(a, b, cost, 0.2, reg_m, stopThr=1e-12) == pytest.approx(log["cost"], rel=1e-8)
    # POT's total leaves out the masses in KL(p | q) = sum p log(p / q) - p + q.
    reg_a, reg_b = reg_m if isinstance(reg_m, tuple) else (reg_m, reg_m)
    masses = 0.2 * (a.sum() * b.sum() - own.sum())
    masses += sum(r * (w.sum() - own.sum()) for r, w in ((reg_a, a), (reg_b, b)) if np.isfinite(r))
    total = monge.sinkhorn_unbalanced2(a, b, cost, 0.2, reg_m, stopThr=1e-12, returnCost="total")
    assert total == pytest.approx(log["total_cost"] + masses, rel=1e-8)


def test_empirical_divergence(rng):
    x, y = rng.normal(size=(20, 3)), rng.normal(size=(25, 3)) + 1
    theirs = quietly(ot.bregman.empirical_sinkhorn_divergence, x, y, 1.0, stopThr=1e-12)
    assert monge.empirical_sinkhorn_divergence(x, y, 1.0, stopThr=1e-12) == pytest.approx(theirs, abs=1e-7)
    assert monge.empirical_sinkhorn_divergence(x, x, 1.0) == pytest.approx(0, abs=1e-7)
    _, log = monge.empirical_sinkhorn_divergence(x, y, 1.0, log=True)
    _, theirs = quietly(ot.bregman.empirical_sinkhorn_divergence, x, y, 1.0, log=True)
    assert {*theirs} <= {*log}
    for name in ("ab", "a", "b"):
        assert {*theirs[f"log_sinkhorn_{name}"]} - {"warning"} <= {*log[f"log_sinkhorn_{name}"]}
        assert log[f"sinkhorn_loss_{name}"] == pytest.approx(theirs[f"sinkhorn_loss_{name}"], rel=1e-7)


@pytest.mark.parametrize("reg_type", ["entropy", "kl"])
def test_batches(rng, reg_type):
    x, y = rng.normal(size=(4, 10, 2)), rng.normal(size=(4, 12, 2))
    cost = np.stack([squared_distances(p, q) for p, q in zip(x, y)])
    a = np.stack([weights(rng, 10) for _ in range(4)])
    theirs = quietly(ot.solve_batch, cost, 0.5, a, tol=1e-13, max_iter=50000, reg_type=reg_type)
    for ours in (
        monge.solve_batch(cost, 0.5, a, tol=1e-12, reg_type=reg_type),
        monge.solve_sample_batch(x, y, 0.5, a, tol=1e-12, reg_type=reg_type),
    ):
        assert ours.converged and ours.plan.shape == theirs.plan.shape
        np.testing.assert_allclose(ours.plan, theirs.plan, atol=1e-7)
        np.testing.assert_allclose(ours.value, theirs.value, atol=1e-6)
        np.testing.assert_allclose(ours.value_linear, theirs.value_linear, atol=1e-6)


def objective(plan, cost, a, b, reg, reg_m, c, reg_type):
    """<C, P> + reg KL(P | c), or reg sum P (log P - 1), plus the penalties: the formula, in float64."""

    def kl(p, q):
        held = p > 0
        return (p[held] * np.log(p[held] / q[held])).sum() - p.sum() + q.sum()

    entropy = kl(plan, c) if reg_type == "kl" else (plan * np.log(plan)).sum() - plan.sum()
    penalties = sum(rho * kl(p, w) for rho, p, w in zip(reg_m, (plan.sum(1), plan.sum(0)), (a, b)) if np.isfinite(rho))
    return (cost * plan).sum() + reg * entropy + penalties


REFERENCES = [("kl", False), ("kl", True), ("entropy", False)]


@pytest.mark.parametrize("reg_m", [(0.5, 0.5), (1.0, 0.3), (np.inf, 0.7), (0.7, np.inf)])
@pytest.mark.parametrize("reg_type, with_c", REFERENCES)
def test_reference_measures(rng, reg_m, reg_type, with_c):
    x, y = rng.random((12, 2)), rng.random((15, 2))
    cost, a, b, reg = squared_distances(x, y), weights(rng, 12), 1.4 * weights(rng, 15), 0.2
    c = rng.random(cost.shape) if with_c else None
    if with_c:
        c[0, :3] = 0
    reference = np.outer(a, b) if c is None else c
    how = {"reg_type": reg_type, "c": c, "log": True}
    theirs, their_log = quietly(
        ot.unbalanced.sinkhorn_unbalanced, a, b, cost, reg, reg_m, stopThr=1e-15, numItermax=100000, **how
    )
    own, log = monge.sinkhorn_unbalanced(a, b, cost, reg, reg_m, stopThr=1e-12, **how)
    # As in test_unbalanced: the conditions hold to 1e-12, which moves the plan by some (1 + rho / eps) of that.
    np.testing.assert_allclose(own, theirs, rtol=1e-8)
    assert log["cost"] == pytest.approx(their_log["cost"], rel=1e-8)
    expected = objective(theirs, cost, a, b, reg, reg_m, reference, reg_type)
    assert log["total_cost"] == pytest.approx(expected, rel=1e-10)
    for total in (False, True):
        given = {"returnCost": "total" if total else "linear", "stopThr": 1e-12, "reg_type": reg_type, "c": c}
        number = monge.sinkhorn_unbalanced2(a, b, cost, reg, reg_m, **given)
        assert number == log["total_cost" if total else "cost"]
    # P alone determines logu and logv up to a constant; a finite penalty determines the constant, too.
    for name in ("logu", "logv"):
        np.testing.assert_allclose(log[name], their_log[name], atol=1e-7)
    scalings = np.exp(log["logu"][:, None] + log["logv"] - cost / reg)
    np.testing.assert_allclose(scalings * (1 if reg_type == "entropy" else reference), own, rtol=1e-10)
    _, again = monge.sinkhorn_unbalanced(a, b, cost, reg, reg_m, warmstart=(log["logu"], log["logv"]), **how)
    assert again["result"].n_iter <= 1 < log["result"].n_iter

    options = {"reg_type": reg_type, "unbalanced": reg_m, "tol": 1e-12}
    result = monge.solve(cost, a, b, reg, c=c, **options)
    f, g = result.potentials
    plan = (reference if with_c else np.outer(a, b)) * np.exp((f[:, None] + g - cost) / reg)
    np.testing.assert_allclose(plan, own, rtol=1e-9)
    for other in (result.inverse.inverse, pickle.loads(pickle.dumps(result))):
        assert type(other) is type(result) and other.value == pytest.approx(expected, rel=1e-10)
        assert other.value_linear == pytest.approx(log["cost"], rel=1e-9)
        np.testing.assert_allclose(other.potentials[0], f, atol=1e-12)
    np.testing.assert_allclose(result.inverse.plan, own.T, rtol=1e-9)
    if with_c:
        return
    points = monge.solve_sample(x, y, a, b, reg=reg, **options)
    assert points.value == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(points.plan, own, rtol=1e-8)
    batch = monge.solve_batch([cost, cost.T], reg, [a, b], [b, a], **options)
    assert batch.value[0] == pytest.approx(expected, rel=1e-10)
    if reg_m[0] == reg_m[1]:
        np.testing.assert_allclose(batch.potentials[1][1], f, atol=1e-9)


def test_a_reference_of_a_balanced_problem(rng):
    cost, a, b = rng.random((8, 9)), weights(rng, 8, zeros=1), weights(rng, 9)
    c = rng.random(cost.shape) + 0.1
    result = monge.solve(cost, a, b, 0.2, c=c, tol=1e-12)
    # KL(P | c) = KL(P | a b^T) + <P, log(a b^T / c)> + constants.
    held = a > 0
    shifted = cost[held] - 0.2 * np.log(c[held] / np.outer(a, b)[held])
    theirs = quietly(ot.solve, shifted, a[held], b, 0.2, tol=1e-13, max_iter=20000).plan
    np.testing.assert_allclose(result.plan[held], theirs, rtol=1e-7)
    assert not result.plan[0].any()
    assert result.value == pytest.approx(objective(result.plan, cost, a, b, 0.2, (np.inf, np.inf), c, "kl"), rel=1e-9)
    plain = monge.solve(cost, a, b, 0.2, tol=1e-12)
    given = monge.solve(cost, a, b, 0.2, c=np.outer(a, b) + (np.outer(a, b) == 0), tol=1e-12)
    np.testing.assert_allclose(given.plan, plain.plan, rtol=1e-9)


@pytest.mark.parametrize("reg_type", ["kl", "entropy"])
def test_many_histograms_with_penalties(rng, reg_type):
    cost, a = rng.random((12, 15)), weights(rng, 12)
    b = np.stack([scale * weights(rng, 15) for scale in (1, 2, 0.5)], 1)
    how = {"reg": 0.3, "reg_m": 0.8, "reg_type": reg_type, "log": True}
    found, log = monge.sinkhorn_unbalanced(a, b, cost, stopThr=1e-11, **how)
    each = [monge.sinkhorn_unbalanced2(a, q, cost, stopThr=1e-11, **how) for q in b.T]
    np.testing.assert_allclose(found, [value for value, _ in each], rtol=1e-9)
    for name in ("logu", "logv"):
        np.testing.assert_allclose(log[name], np.stack([one[name] for _, one in each], 1), atol=1e-9)
    totals = monge.sinkhorn_unbalanced2(a, b, cost, stopThr=1e-11, returnCost="total", **how)[0]
    np.testing.assert_allclose(totals, [one["total_cost"] for _, one in each], rtol=1e-9)
    if reg_type == "entropy":  # With several b POT solves this one for "kl", too, and says so in a warning.
        theirs = quietly(ot.unbalanced.sinkhorn_unbalanced, a, b, cost, stopThr=1e-14, numItermax=20000, **how)[0]
        np.testing.assert_allclose(found, theirs, rtol=1e-7)


@pytest.mark.parametrize("function", [monge.sinkhorn, monge.sinkhorn2])
def test_a_solve_that_reaches_numitermax_warns(rng, function):
    cost, a, b = rng.random((5, 6)), weights(rng, 5), weights(rng, 6)
    for targets in (b, np.stack([b, b], 1)):
        for stopThr in (0, 1e-9):
            with pytest.warns(monge.ConvergenceWarning, match="after 1 sweep|ran 1 sweep"):
                function(a, targets, cost, 0.1, stopThr=stopThr, numItermax=1, warn=True)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                function(a, targets, cost, 0.1, stopThr=stopThr, numItermax=1, warn=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        function(a, b, cost, 0.1, warn=True)


@pytest.mark.parametrize("with_tqdm", [True, False])
def test_verbose(rng, monkeypatch, capsys, with_tqdm):
    if not with_tqdm:
        monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    monge.sinkhorn([], [], rng.random((5, 6)), 0.1, verbose=True)
    shown = capsys.readouterr()
    assert not shown.out and "sweep" in shown.err
    assert with_tqdm or shown.err.startswith("sweep ")


def test_options_of_single_methods_are_taken(rng):
    cost = rng.random((5, 6))
    plain = monge.sinkhorn([], [], cost, 0.1)
    given = monge.sinkhorn([], [], cost, 0.1, method="sinkhorn_stabilized", tau=1e3, print_period=20)
    np.testing.assert_array_equal(plain, given)


def test_lazy_plans_in_logs(rng):
    x, y = rng.random((10, 2)), rng.random((12, 2))
    plan = monge.empirical_sinkhorn(x, y, 0.3)
    _, log = monge.empirical_sinkhorn2(x, y, 0.3, isLazy=True, log=True)
    np.testing.assert_allclose(log["lazy_plan"][:], plan, rtol=1e-5)
    plain, own = (monge.empirical_sinkhorn_divergence(x, y, 0.3, isLazy=lazy, log=True) for lazy in (False, True))
    assert own[0] == pytest.approx(plain[0], abs=1e-7)
    np.testing.assert_allclose(own[1]["log_sinkhorn_ab"]["lazy_plan"][:], plan, rtol=1e-5)
    log = own[1]["log_sinkhorn_ab"]
    warm, again = monge.empirical_sinkhorn_divergence(x, y, 0.3, warmstart=(log["log_u"], log["log_v"]), log=True)
    assert warm == pytest.approx(plain[0], abs=1e-7)
    assert again["log_sinkhorn_ab"]["niter"] < log["niter"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_and_backend_are_those_of_the_arrays(rng, dtype):
    cost, x = rng.random((5, 6)).astype(dtype), rng.random((7, 2)).astype(dtype)
    result, regularized = monge.solve(cost, reg=0.1), monge.solve_regularized(cost, quadratic=0.1)
    numbers = (result.value, regularized.value_linear, monge.sinkhorn2([], [], cost, 0.1))
    for number in (*numbers, monge.empirical_sinkhorn_divergence(x, x + 1, 0.1), monge.sinkhorn_divergence(x, x).value):
        assert type(number) is dtype
    for made in (result, regularized, monge.solve_batch([cost], 0.1)):
        assert made._backend is ot.backend.get_backend(cost)


def test_scalers(rng):
    x, y = 100 * rng.random((9, 2)), 100 * rng.random((8, 2))
    scaler = ot.utils.DataScaler(norm="minmax").fit(x)
    for chosen in (scaler, scaler.transform):
        ours = monge.solve_sample(x, y, reg=0.1, scaler=chosen)
        np.testing.assert_array_equal(ours.plan, monge.solve_sample(*map(scaler.transform, (x, y)), reg=0.1).plan)


def test_the_kl_metric_of_batches(rng):
    x, y = rng.random((3, 6, 4)), rng.random((3, 5, 4))
    x[0, 0, 0] = 0
    cost = ot.batch.dist_batch(x, y, metric="kl")
    theirs = quietly(ot.solve_batch, cost, 0.5, tol=1e-13, max_iter=50000)
    for clouds in ((x, y), (list(x), list(y))):
        ours = monge.solve_sample_batch(*clouds, 0.5, metric="kl", tol=1e-12)
        np.testing.assert_allclose(ours.plan, theirs.plan, atol=1e-9)
        np.testing.assert_allclose(ours.value, theirs.value, atol=1e-9)


def test_smooth_with_the_kl_term(rng):
    cost, a, b = rng.random((8, 9)), weights(rng, 8), weights(rng, 9)
    theirs = quietly(ot.smooth.smooth_ot_dual, a, b, cost, 0.2, reg_type="kl", stopThr=1e-14, numItermax=5000)
    own, log = monge.smooth_ot_dual(a, b, cost, 0.2, reg_type="kl", stopThr=1e-12, log=True)
    np.testing.assert_allclose(own, theirs, atol=1e-6)  # L-BFGS stops where its steps do.
    duals = log["alpha"][:, None] + log["beta"]
    np.testing.assert_allclose(duals, cost + 0.2 * (np.log(own) + 1), rtol=1e-9)


@pytest.mark.parametrize("reg_type", ["KL", "L2"])
def test_penalties_of_other_types_have_no_effect_on_balanced_problems(rng, reg_type):
    cost = rng.random((5, 6))
    plain = monge.solve(cost, reg=0.1, reg_type=reg_type)
    np.testing.assert_array_equal(monge.solve(cost, reg=0.1, reg_type=reg_type, unbalanced_type="TV").plan, plain.plan)
