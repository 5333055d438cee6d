"""One solve: its result, options, progress, interruption, threads, memory."""

import functools
import gc
import os
import pickle
import signal
import threading
import time
import tracemalloc
import warnings

import numpy as np
import pytest

import monge
from conftest import EPSILON, assert_optimal, dense_plan, resident, squared_distances, weights
from monge import _core


def problem(rng, n=23, m=31, d=3, zeros=0):
    x, y = rng.normal(size=(n, d)), rng.normal(size=(m, d)) + 0.5
    return x, y, weights(rng, n, zeros), weights(rng, m, zeros)


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (23, 31), (130, 65)])
@pytest.mark.parametrize("zeros", [0, 1])
def test_the_plan_is_the_optimal_one(rng, shape, zeros):
    n, m = shape
    zeros = min(zeros, n - 1, m - 1)
    x, y, a, b = problem(rng, n, m, zeros=zeros)
    cost = squared_distances(x, y)
    for result in (monge.solve(cost, a, b, 0.3, tol=1e-10), monge.solve_sample(x, y, a, b, reg=0.3, tol=1e-10)):
        assert result.converged and result.status == "converged"
        assert_optimal(result, cost, a, b, 1e-10)


def test_values(rng):
    x, y, a, b = problem(rng, zeros=2)
    cost = squared_distances(x, y)
    result = monge.solve(cost, a, b, 0.3, tol=1e-12)
    plan = result.plan
    linear = (cost * plan).sum()
    kl = np.where(plan > 0, plan * np.log(np.where(plan > 0, plan, 1) / np.maximum(np.outer(a, b), 1e-300)), 0).sum()
    entropy = np.where(plan > 0, plan * np.log(np.where(plan > 0, plan, 1)), 0).sum()
    rounding = 100 * plan.size * EPSILON * (abs(linear) + abs(kl) + abs(entropy))
    assert result.value_linear == pytest.approx(linear, abs=rounding)
    assert result.value == pytest.approx(linear + 0.3 * kl, abs=rounding + 1e-11)
    by_entropy = monge.solve(cost, a, b, 0.3, reg_type="entropy", tol=1e-12)
    assert by_entropy.value == pytest.approx(linear + 0.3 * entropy, abs=rounding + 1e-11)
    assert result.gap == pytest.approx(0, abs=1e-10)


def test_reg_auto_is_five_percent_of_the_mean_cost(rng):
    x, y, a, b = problem(rng)
    cost = squared_distances(x, y)
    for result in (monge.solve(cost, a, b, "auto"), monge.solve_sample(x, y, a, b, reg="auto")):
        assert result.report.eps_relative == pytest.approx(0.05, rel=1e-12)
        assert result.reg == pytest.approx(0.05 * a @ cost @ b, rel=1e-6)
    assert "0.05 of the mean cost" in repr(result)


@pytest.mark.parametrize("metric, p", [("euclidean", 2), ("cityblock", 1), ("chebyshev", np.inf), ("p-norm", 3)])
def test_norms(rng, metric, p):
    x, y, a, b = problem(rng)
    cost = np.linalg.norm(x[:, None] - y[None], ord=p, axis=-1)
    result = monge.solve_sample(x, y, a, b, metric, "auto", norm_p=3.0 if metric == "p-norm" else None, tol=1e-9)
    assert result.reg == pytest.approx(0.05 * a @ cost @ b, rel=1e-14 * len(x))
    assert_optimal(result, cost, a, b, 1e-9)
    if metric != "p-norm":
        (of_batch,) = monge.solve_sample_batch([x], [y], "auto", a=[a], b=[b], metric=metric, tol=1e-9)
        assert of_batch.reg == result.reg


@pytest.mark.parametrize("method", ["auto", "newton", "splr"])
def test_exchanging_the_sides_exchanges_the_potentials(rng, method):
    x, y, a, b = problem(rng)
    y = y + 100.0
    result = monge.solve_sample(x, y, a, b, reg=0.3, tol=1e-11, method=method)
    f, g = result.potentials
    assert a @ f == pytest.approx(b @ g, abs=1e-12 * abs(f).max())
    other = monge.solve_sample(y, x, b, a, reg=0.3, tol=1e-11, method=method)
    np.testing.assert_allclose(other.potential_b, f, atol=1e-8)
    np.testing.assert_allclose(other.potential_a, g, atol=1e-8)
    # Given potentials stay as they are, and so do iterates.
    kept = monge.plan_of_sample(f + 1, g - 1, x, y, a, b, reg=0.3)
    np.testing.assert_allclose(kept.potential_a, f + 1, rtol=1e-14)


@pytest.mark.parametrize("method", ["newton", "splr"])
def test_a_tolerance_of_0_runs_the_iterations_of_the_method(rng, method):
    x, y, a, b = problem(rng)
    result = monge.solve_sample(x, y, a, b, reg=0.3, tol=0, max_iter=3, method=method)
    assert result.report.status == "completed" and result.report.newton_steps == 3
    assert not result.report.newton_on_host  # The problem lies there.


def test_operators_are_those_of_the_plan(rng):
    x, y, a, b = problem(rng)
    result = monge.solve_sample(x, y, a, b, reg=0.3, tol=1e-12)
    plan = result.plan
    v, u = rng.normal(size=(31, 4)), rng.normal(size=23)
    close = {"rtol": 1e-11, "atol": 1e-13}
    np.testing.assert_allclose(result.apply(v), plan @ v, **close)
    np.testing.assert_allclose(result.apply(v[:, 0]), plan @ v[:, 0], **close)
    np.testing.assert_allclose(result.apply(u, transpose=True), plan.T @ u, **close)
    np.testing.assert_allclose(result.push(u), plan.T @ (u / plan.sum(1)), **close)
    np.testing.assert_allclose(result.pull(v), plan @ (v / plan.sum(0)[:, None]), **close)
    np.testing.assert_allclose(result.average(v), plan @ v / plan.sum(1)[:, None], **close)
    np.testing.assert_allclose(result.transform(), plan @ y / plan.sum(1)[:, None], **close)
    np.testing.assert_allclose(result.transform(x[:5]), result.transform()[:5], rtol=1e-8)
    np.testing.assert_allclose(result.potential(x[:5]), result.potential_a[:5], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(result.marginal_a, plan.sum(1), **close)
    np.testing.assert_allclose(result.marginal_b, plan.sum(0), **close)
    lazy = result.lazy_plan
    assert lazy.shape == plan.shape and lazy.T.shape == plan.T.shape
    np.testing.assert_allclose(lazy[3], plan[3], **close)
    np.testing.assert_allclose(lazy[-4:, 2], plan[-4:, 2], **close)
    np.testing.assert_allclose(lazy.T[1:3], plan.T[1:3], **close)
    np.testing.assert_allclose(lazy @ v, plan @ v, **close)
    np.testing.assert_allclose(lazy.T @ u, plan.T @ u, **close)
    np.testing.assert_allclose(u @ lazy, u @ plan, **close)
    np.testing.assert_allclose(v.T @ lazy.T, v.T @ plan.T, **close)
    with pytest.raises(ValueError, match="^v: has shape "):
        v @ lazy
    np.testing.assert_array_equal(np.asarray(lazy), plan)
    np.testing.assert_array_equal(np.array(lazy.T, np.float32), plan.T.astype(np.float32))
    with pytest.raises(ValueError, match="^copy: is False"):
        np.array(lazy, copy=False)


def test_entries(rng):
    x, y, a, b = problem(rng)
    result = monge.solve_sample(x, y, a, b, reg=0.3, tol=1e-12)
    plan = result.plan
    indices, values = result.topk(3)
    order = np.argsort(-plan, axis=1, kind="stable")[:, :3]
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_allclose(values, np.take_along_axis(plan, order, 1), rtol=1e-11)
    np.testing.assert_array_equal(result.topk(1, axis=0)[0][:, 0], plan.argmax(0))
    # Between two entries: a threshold equal to one would be decided by the rounding of its logarithm.
    threshold = np.sort(plan, axis=None)[plan.size // 2 : plan.size // 2 + 2].mean()
    sparse = result.sparse(threshold)
    np.testing.assert_allclose(sparse.toarray(), np.where(plan > threshold, plan, 0), rtol=1e-11)
    assert plan.sum() - result.sparse_plan.sum() < 1e-6
    i, j = result.sample(20000, seed=3)
    again = result.sample(20000, seed=3)
    assert (i == again[0]).all() and (j == again[1]).all()
    counts = np.zeros_like(plan)
    np.add.at(counts, (i, j), 1)
    # Five standard deviations of each count.
    assert (abs(counts - 20000 * plan) <= 5 * np.sqrt(20000 * plan) + 5).all()


def test_unbalanced(rng):
    x, y, a, b = problem(rng)
    b = 1.7 * b
    cost = squared_distances(x, y)
    result = monge.solve(cost, a, b, 0.3, unbalanced=(0.8, np.inf), tol=1e-11)
    f, _ = result.potentials
    plan = result.plan
    assert abs(plan.sum(0) - b).sum() < 1e-10
    np.testing.assert_allclose(plan.sum(1), a * np.exp(-f / 0.8), rtol=1e-8)
    kl = (plan * np.log(plan / np.outer(a, b)) - plan + np.outer(a, b)).sum()
    row = plan.sum(1)
    objective = (cost * plan).sum() + 0.3 * kl + 0.8 * (row * np.log(row / a) - row + a).sum()
    assert result.value == pytest.approx(objective, rel=1e-9)


def test_gradients_are_those_of_finite_differences(rng):
    x, y, a, b = problem(rng, 9, 8)
    gradient = monge.solve_sample(x, y, a, b, reg=0.5, tol=1e-13).gradients()
    step = 1e-4

    def dual(x, a):
        return monge.solve_sample(x, y, a, b, reg=0.5, tol=1e-13).report.dual

    for i, k in ((0, 0), (4, 2)):
        shift = np.zeros_like(x)
        shift[i, k] = step
        difference = (dual(x + shift, a) - dual(x - shift, a)) / (2 * step)
        # The third derivative is some 10 / eps^2 here; values are right to 1e-13 over the step.
        assert gradient.x[i, k] == pytest.approx(difference, abs=40 * step**2 + 1e-8)
    shift = np.zeros_like(a)
    shift[1], shift[3] = step * 0.01, -step * 0.01
    difference = (dual(x, a + shift) - dual(x, a - shift)) / (2 * step * 0.01)
    assert gradient.a[1] - gradient.a[3] == pytest.approx(difference, abs=1e-6)
    with pytest.raises(NotImplementedError, match="cost matrix"):
        monge.solve(squared_distances(x, y), reg=0.5).hessian_product(x)


def test_hessian_product(rng):
    x, y, a, b = problem(rng, 9, 8)
    v = rng.normal(size=x.shape)
    product, other, report = monge.solve_sample(x, y, a, b, reg=0.5, tol=1e-13).hessian_product(v, tolerance=1e-10)
    assert report.status == "converged" and other.shape == y.shape
    step = 1e-5
    plus, minus = (monge.solve_sample(x + s * v, y, a, b, reg=0.5, tol=1e-13).gradients().x for s in (step, -step))
    np.testing.assert_allclose(product, (plus - minus) / (2 * step), atol=1e-6)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("metric", ["sqeuclidean", "dot"])
@pytest.mark.parametrize("mass", [1.0, 1e-200])
@pytest.mark.parametrize("d", [3, 500])
def test_where_each_point_goes_to_itself_potentials_change_by_rounding_alone(rng, metric, mass, d):
    # The right side of the system is 0 but for rounding, which no step reduces.
    x = rng.normal(size=(40, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    weights = np.full(40, mass / 40)
    result = monge.solve_sample(x, x, weights, weights, reg=1e-5, metric=metric, precision="float64")
    v = rng.normal(size=x.shape)
    product, _, report = result.hessian_product(v)
    assert (report.status, report.iterations) == ("converged", 0)
    expected = 2 * mass / 40 * v if metric == "sqeuclidean" else 0 * v
    # Terms of the sums are of the size of |v| |x| / eps, of which d roundings remain.
    np.testing.assert_allclose(product, expected, rtol=0, atol=mass / 40 * 1e5 * (d + 40) * 2.0**-52 * abs(v).max())


def test_inverse_hessian_product(rng):
    x, y, a, b = problem(rng, 9, 8)
    v = rng.normal(size=x.shape)
    result = monge.solve_sample(x, y, a, b, reg=0.5, tol=1e-13)
    step, report = result.inverse_hessian_product(v, 1.0, tolerance=1e-9)
    assert report.status == "converged" and step.shape == x.shape
    back, _, _ = result.hessian_product(step, tolerance=1e-12)
    # The residual is relative to v. Products within the solve have a tenth of its tolerance.
    assert np.linalg.norm(back + step - v) <= 2e-9 * np.linalg.norm(v)


def test_short_linear_systems_warn(rng):
    x, y, a, b = problem(rng, 9, 8)
    result = monge.solve_sample(x, y, a, b, reg=0.5)
    with pytest.warns(monge.ConvergenceWarning, match="^conjugate gradients did not converge: iteration_"):
        result.inverse_hessian_product(x, 1.0, iterations=1)
    with pytest.warns(monge.ConvergenceWarning, match="negative_curvature after"):
        result.inverse_hessian_product(x, -100.0, tolerance=0)
    with pytest.warns(monge.ConvergenceWarning, match="iteration_limit after 1 "):
        result.hessian_product(x, iterations=1)
    assert result.hessian_product(x, tolerance=0, iterations=1)[2].status == "iteration_limit"


def test_hadamard_and_gram_products(rng):
    x, y, a, b = problem(rng, 9, 8)
    result = monge.solve_sample(x, y, a, b, reg=0.5, precision="float64")
    plan = result.plan
    left, right = rng.normal(size=(9, 3)), rng.normal(size=(8, 3))
    v, u, w = rng.normal(size=(8, 2)), rng.normal(size=9), rng.random(9)
    # Sums of at most 9 terms of size 1, each rounded a few times.
    close = functools.partial(np.testing.assert_allclose, rtol=0, atol=1e-13)
    close(result.apply_hadamard(left, right, v), (plan * (left @ right.T)) @ v)
    close(result.apply_hadamard(left, right, u, transpose=True), (plan * (left @ right.T)).T @ u)
    close(result.apply_gram(w, v[:, 0]), plan.T @ (w * (plan @ v[:, 0])))
    close(result.apply_gram(v[:, 1], u, transpose=True), plan @ (v[:, 1] * (plan.T @ u)))


def test_every_option_of_the_library_is_an_argument(rng):
    cost = rng.random((6, 7))
    types = {"float": float, "int": int, "bool": bool, "str": str}
    listed = _core.solve_option_list()
    assert {name for name, *_ in listed} == monge.SolveOptions.__optional_keys__
    for name, kind, default, choices, *_ in listed:
        assert isinstance(default, types[kind])
        if name.startswith("eps"):
            continue
        for value in choices or (default,):
            if value in ("tf32", "multiscale"):
                with pytest.raises(NotImplementedError, match=value):
                    monge.solve(cost, reg=0.5, **{name: value})
            else:
                assert monge.solve(cost, reg=0.5, **{name: value}).status in ("converged", "completed")


def test_bad_options_say_what_they_may_be(rng):
    cost = rng.random((6, 7))
    for keywords, error, match in (
        ({"reg": -1.0}, ValueError, r"^reg: is -1.0; must be > 0"),
        ({"reg": None}, TypeError, r"^criterion: is no option without reg; options are tol"),
        ({"reg": 1.0, "eps": 1.0}, ValueError, r"^reg: is given with eps"),
        ({"tolerance": -1.0}, ValueError, r"^tolerance: is -1; must be"),
        ({"method": "magic"}, ValueError, r"^method: is 'magic'; must be auto, sinkhorn, newton, splr or multiscale"),
        ({"nonsense": 1}, TypeError, r"^nonsense: is no option; options are reg, "),
        ({"iterations": "many"}, TypeError, r"^iterations: is 'many'; must be int, >= 1"),
        ({"reg_type": "L1"}, NotImplementedError, r"^reg_type: is 'L1'"),
        ({"unbalanced": 1.0, "unbalanced_type": "TV"}, NotImplementedError, r"^unbalanced_type"),
        ({"plan_init": cost}, NotImplementedError, r"^plan_init: "),
    ):
        with pytest.raises(error, match=match):
            monge.solve(cost, **{"reg": "auto", "criterion": "l1", **keywords})


def test_ending_short_is_a_warning_and_a_status(rng):
    cost = rng.random((30, 30))
    with pytest.warns(monge.ConvergenceWarning, match="did not converge: .*3 sweeps"):
        result = monge.solve(cost, reg=1e-3, tol=1e-12, max_iter=3, method="sinkhorn")
    assert not result.converged and result.status == "iteration_limit"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert monge.solve(cost, reg=1e-3, tol=0, max_iter=3, method="sinkhorn").status == "completed"


@pytest.mark.parametrize("reg_type", ["KL", "entropy"])
def test_progress_has_potentials_to_start_from(rng, reg_type):
    cost = rng.random((30, 20))
    a = np.append(rng.random(29), 0)
    kept = []

    def see(state):
        kept.append((state, state.potentials()))
        return len(kept) < 3

    how = {"reg": 0.02, "reg_type": reg_type, "unbalanced": (5.0, 7.0), "b": np.full(20, a.sum() / 20), "annealing": 1}
    stopped = monge.solve(cost, a, progress=see, tol=1e-10, method="sinkhorn", **how)
    assert stopped.status == "stopped"
    _, potentials = kept[-1]
    for ours, expected, mass in zip(potentials, stopped.potentials, (a, how["b"]), strict=True):
        assert ours.dtype == np.float64
        np.testing.assert_allclose(ours[mass > 0], expected[mass > 0], rtol=0, atol=1e-12)
    warm = monge.solve(cost, a, potentials_init=potentials, tol=1e-6, **how)
    assert warm.report.iterations <= monge.solve(cost, a, tol=1e-6, **how).report.iterations
    with pytest.raises(RuntimeError, match="potentials: the progress function has returned"):
        monge.Progress.potentials(kept[0][0])


def test_checkpoints_are_a_start(rng, tmp_path):
    cost = rng.random((30, 20))
    folder, seen = tmp_path / "a" / "kept", []
    kept = monge.Checkpoint(folder, every=2, progress=lambda state: seen.append(state) or len(seen) < 5)
    how = {"reg": 0.01, "method": "sinkhorn", "annealing": 1}
    assert monge.solve(cost, progress=kept, **how).status == "stopped"
    assert len(seen) == 5
    assert sorted(os.listdir(folder)) == ["f.npy", "g.npy"]
    start = np.load(folder / "f.npy"), np.load(folder / "g.npy")
    warm, cold = monge.solve(cost, potentials_init=start, **how), monge.solve(cost, **how)
    assert warm.converged and warm.report.iterations < cold.report.iterations


def test_checkpoints_that_cannot_be(rng, tmp_path):
    cost = rng.random((30, 20))
    with pytest.raises(ValueError, match="every: is 0; must be >= 1"):
        monge.Checkpoint(tmp_path, every=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        monge.solve(cost, reg=0.01, progress=monge.Checkpoint(tmp_path / "file", every=1))
    with pytest.raises(NotImplementedError, match="a solve of a single problem"):
        monge.solve_batch([cost, cost], reg=0.01, progress=monge.Checkpoint(tmp_path))


@pytest.mark.parametrize("no", [False, np.False_, np.array(False)])
def test_any_false_stops(rng, no):
    cost = rng.random((40, 30))
    answers = [True, np.True_, None, 0, no]
    for solve in (
        lambda see: monge.solve(cost, reg=1e-3, progress=see),
        lambda see: monge.solve_batch(cost[None], reg=1e-3, progress=see)[0],
        lambda see: monge.solve_regularized(cost, group_lasso=0.01, groups=np.arange(40) // 10, progress=see),
    ):
        seen = []
        result = solve(lambda state, seen=seen: seen.append(state) or answers[min(len(seen), len(answers)) - 1])
        assert (result.status, len(seen)) == ("stopped", len(answers))


@pytest.mark.parametrize("answer", [np.zeros(2, bool), np.zeros((0, 3), bool)])
def test_an_array_is_no_answer_of_progress(rng, answer):
    cost = rng.random((40, 30))
    for solve in (
        lambda see: monge.solve(cost, reg=1e-3, progress=see),
        lambda see: monge.solve_exact(cost, progress=see),
        lambda see: monge.solve_regularized(cost, quadratic=0.1, progress=see),
    ):
        with pytest.raises(TypeError, match="^progress: returned an array of bools; must return one bool or None$"):
            solve(lambda state: answer)


@pytest.mark.parametrize("cost, weight", [(np.eye(2), 1e-170), (np.eye(2), 1e155), (1e300 * np.eye(2), 1e5)])
def test_a_mean_cost_beyond_float64(cost, weight):
    """eps as a share of it is an answer, or an error that names reg."""
    weights = [weight, weight]
    for solve in (
        lambda: monge.solve(cost, weights, weights, reg="auto").plan,
        lambda: monge.solve(cost, weights, weights, reg="auto", unbalanced=1.0).plan,
        lambda: monge.solve_batch(cost[None], a=weights, b=weights, reg="auto").plan,
    ):
        try:
            plan = solve()
        except ValueError as error:
            assert "reg: 'auto', eps_relative: is 0.05, but sums for the mean cost are beyond" in str(error)
        else:
            np.testing.assert_allclose(plan.sum(), 2 * weight, rtol=1e-4)


def test_progress_sees_each_check_and_stops(rng):
    cost = rng.random((30, 30))
    seen = []
    monge.solve(cost, reg=0.05, progress=seen.append)
    history = monge.solve(cost, reg=0.05).report.history
    assert [(state.iteration, state.kind) for state in seen] == [(check.iteration, check.kind) for check in history]
    stopped = monge.solve(cost, reg=0.05, progress=lambda state: False)
    assert stopped.status == "stopped" and stopped.report.history[-1].iteration == seen[0].iteration

    def use(state):
        other.apply(np.ones(30))

    other = monge.solve(cost, reg=0.05)
    assert monge.solve(cost, reg=0.05, progress=use).converged

    def fail(state):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        monge.solve(cost, reg=0.05, progress=fail)
    assert monge.solve(cost, reg=0.05, progress=True).converged


def long_solve(progress=None):
    x = np.random.default_rng(0).normal(size=(3000, 8)).astype("f4")
    return monge.solve_sample(x, x + 1, reg=1e-3, tol=0, max_iter=100000, method="sinkhorn", progress=progress)


def test_an_interrupt_stops_a_solve():
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    begin = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        long_solve()
    # 100,000 sweeps would take minutes; one check is some 10 sweeps.
    assert time.perf_counter() - begin < 20


def test_other_threads_run_while_one_solves():
    x = np.random.default_rng(0).normal(size=(3000, 8))
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.01)

    thread = threading.Thread(target=tick)
    thread.start()
    begin = time.perf_counter()
    # One check, at the end: until then nothing calls Python, which would let others run.
    monge.solve_sample(x, x + 1, reg=1.0, tol=0, max_iter=60, check_every=60, method="sinkhorn", annealing=1.0)
    end = time.perf_counter()
    done.set()
    thread.join()
    assert sum(begin < t < end for t in ticks) > (end - begin) / 0.1


def test_threads_share_a_result(rng):
    x = rng.normal(size=(200, 3))
    result = monge.solve_sample(x, x, reg=0.1)
    v = rng.normal(size=(200, 5))
    expected = result.apply(v)
    found = []
    threads = [
        threading.Thread(target=lambda: found.append((result.apply(v), monge.solve_sample(x, x, reg=0.1).plan)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for product, plan in found:
        np.testing.assert_array_equal(product, expected)
        np.testing.assert_array_equal(plan, result.plan)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pickles_have_the_same_plan_to_rounding(rng, dtype):
    x, y, a, b = problem(rng)
    x, y = x.astype(dtype), y.astype(dtype)
    for result in (
        monge.solve_sample(x, y, a, b, reg=0.3, tol=1e-9),
        monge.solve(squared_distances(x, y), a, b, 0.3, unbalanced=1.0),
        monge.solve(squared_distances(x, y), a, b, 0.001, tol=0, max_iter=2, method="sinkhorn"),
    ):
        again = pickle.loads(pickle.dumps(result))
        assert again.report.to_dict() == pytest.approx(result.report.to_dict(), nan_ok=True)
        assert len(again.report.history) == len(result.report.history)
        # The same potentials; the log-sum-exps of the rows come from another pass.
        rounding = 16 * np.finfo(result.plan.dtype).eps * (1 + squared_distances(x, y).max() / result.reg)
        np.testing.assert_allclose(again.plan, result.plan, rtol=rounding)
        np.testing.assert_array_equal(again.potentials[0], result.potentials[0])
        assert again.value == result.value


def test_a_result_keeps_its_matrix_alive(rng):
    cost = rng.random((50, 60))
    result = monge.solve(cost.copy(), reg=0.1)
    plan = result.plan
    gc.collect()
    f, g = result.potentials
    np.testing.assert_allclose(plan, dense_plan(f, g, cost, 0.1, np.full(50, 1 / 50), np.full(60, 1 / 60)), rtol=1e-5)


def test_a_plan_keeps_what_it_reads(rng):
    cost = rng.random((50, 60))
    plan = _core.solve(_core.cpu_session(1), _core.cost_matrix(cost.copy()), None, None, None, None, {"eps": 0.1}, None)
    before, after = np.empty((50, 60)), np.empty((50, 60))
    plan.dense(before)
    gc.collect()
    [np.full((50, 60), 7.0) for _ in range(20)]  # Would take the memory of the matrix, if that were free.
    plan.dense(after)
    np.testing.assert_array_equal(before, after)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
def test_ten_thousand_calls_leave_nothing_behind(rng):
    x, y = rng.normal(size=(20, 2)), rng.normal(size=(30, 2))
    logits = rng.normal(size=(4, 4, 4)).astype("f4")

    def calls(count):
        for _ in range(count):
            result = monge.solve_sample(x, y, reg=0.5, n_threads=1)
            result.plan
            monge.project(logits, "mhc_paper")
            try:
                monge.solve_sample(x, y[:, :1], reg=0.5)
            except ValueError:
                pass

    tracemalloc.start()
    calls(1000)
    gc.collect()
    objects, memory, traced = len(gc.get_objects()), resident(), tracemalloc.get_traced_memory()[0]
    calls(10000)
    gc.collect()
    growth = tracemalloc.get_traced_memory()[0] - traced
    tracemalloc.stop()
    assert len(gc.get_objects()) - objects < 100
    # 10,000 leaks of one plan would be 48 MB, of one array of 20 doubles 1.6 MB, of one float 240 kB.
    assert resident() - memory < 1.5e6
    assert growth < 10e3


def test_warnings_are_of_the_line_that_called(rng):
    x, y, cost = rng.normal(size=(9, 2)), rng.normal(size=(8, 2)), rng.random((9, 8))
    few = {"max_iter": 1, "tol": 1e-12, "method": "sinkhorn"}
    for call in (
        lambda: monge.solve(cost, reg=0.01, **few),
        lambda: monge.solve_sample(x, y, reg=0.01, **few),
        lambda: monge.solve_batch([cost, cost], 0.01, **few),
        lambda: monge.sinkhorn([], [], cost, 0.01, numItermax=1),
        lambda: monge.sinkhorn2([], weights(rng, 8)[:, None], cost, 0.01, numItermax=1, warn=True),
        lambda: monge.empirical_sinkhorn(x, y, 0.01, numIterMax=1),
        lambda: monge.sinkhorn_divergence(x, y, reg=0.01, **few),
        lambda: monge.sinkhorn_unbalanced([], [], cost, 0.01, 1.0, numItermax=1),
    ):
        with pytest.warns(monge.ConvergenceWarning, match="^Sinkhorn did not converge: ") as caught:
            call()
        assert {warning.filename for warning in caught} == {__file__}


@pytest.mark.parametrize("reg", [1.0, 0.1, 0.01])
def test_a_plan_is_as_good_as_its_precision(rng, reg):
    """In float32 the exponent's three terms and their sum, of at most (1 + range of C / reg), are rounded by 2^-24."""
    cost = squared_distances(rng.random((60, 3)), rng.random((70, 3)))
    logit = 1 + np.ptp(cost) / reg
    for precision, unit in (("float32", 2**-24), ("float64", EPSILON / 2)):
        result = monge.solve(cost, reg=reg, precision=precision, tol=1e-4, method="sinkhorn")
        assert result.report.precision == precision
        exact = dense_plan(*result.potentials, cost, reg, np.full(60, 1 / 60), np.full(70, 1 / 70))
        bound = (4 * unit + 8 * EPSILON) * logit
        np.testing.assert_allclose(result.plan, exact, rtol=bound, atol=1e-12)
        np.testing.assert_allclose(result.marginal_a, exact.sum(1), rtol=bound)
        assert abs((result.plan * cost).sum() - result.value_linear) <= bound * result.value_linear
