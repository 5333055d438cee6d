"""Exact transport beside POT's network simplex and SciPy's linear programs and assignments."""

import pickle
import signal

import numpy as np
import ot
import pytest
from scipy import sparse
from scipy.optimize import linear_sum_assignment, linprog
from scipy.spatial.distance import cdist

import monge

KINDS = ["normal", "lattice", "whole", "clusters", "copies"]


def points(kind: str, n: int, d: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    if kind == "lattice":
        side = int(np.ceil(n ** (1 / d)))
        return np.stack(np.meshgrid(*[np.arange(side)] * d), -1).reshape(-1, d)[:n] + 0.5 * (seed % 2)
    if kind == "whole":
        return random.integers(0, 5, (n, d)).astype(float)
    if kind == "clusters":
        return random.normal(size=(n, d)) * 0.1 + 10 * random.integers(0, 3, (n, 1))
    if kind == "copies":
        return random.normal(size=(max(n // 3, 1), d))[random.integers(0, max(n // 3, 1), n)]
    return random.normal(size=(n, d))


def weights(kind: str, n: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    if kind == "decades":
        w = 10 ** random.uniform(-12, 0, n)
    else:
        w = random.integers(0, 4, n).astype(float) if kind == "whole" else np.ones(n)
    w[0] += 1
    return w / w.sum()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("of", ["uniform", "decades", "whole"])
@pytest.mark.parametrize("n, m", [(1, 9), (8, 1), (40, 40), (60, 45), (380, 360)])
def test_the_value_is_pots(kind: str, of: str, n: int, m: int) -> None:
    x, y = points(kind, n, 2, 0), points(kind, m, 2, 1) + 0.1
    a, b = weights(of, n, 2), weights(of, m, 3)
    M = cdist(x, y, "sqeuclidean")
    expected = ot.emd2(a, b, M, numItermax=10**7)
    for result in (monge.solve_exact(M, a, b), monge.solve_exact_sample(x, y, a, b)):
        assert result.status == "optimal" and result.converged
        assert float(result.value) == pytest.approx(expected, rel=1e-12, abs=1e-14 * M.max())
        assert result.nonzeros <= n + m - 1
        f, g = result.potentials
        assert (M - f[:, None] - g >= -1e-12 * M.max()).all()
        np.testing.assert_allclose(result.marginals[0], a, atol=1e-15)
        np.testing.assert_allclose(result.marginals[1], b, atol=1e-15)
        assert a @ f + b @ g == pytest.approx(expected, rel=1e-11, abs=1e-13 * M.max())


@pytest.mark.parametrize("n", [2, 50, 300])
def test_equal_sizes_are_an_assignment(n: int) -> None:
    M = np.random.default_rng(n).random((n, n))
    row, column = linear_sum_assignment(M)
    i, j, mass = monge.solve_exact(M).pairs
    np.testing.assert_array_equal(i, row)
    np.testing.assert_array_equal(j, column)
    assert (mass == 1 / n).all()


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine", "cityblock", "chebyshev"])
def test_points_have_the_costs_of_their_metric(metric: str) -> None:
    x, y = points("normal", 220, 4, 0), points("normal", 200, 4, 1) + 0.5
    M = cdist(x, y, metric)
    assert float(monge.solve_exact_sample(x, y, metric=metric).value) == pytest.approx(
        ot.emd2([], [], M, numItermax=10**7), rel=1e-12
    )


def test_random_whole_problems_with_ties_and_forbidden_pairs() -> None:
    random = np.random.default_rng(7)
    for _ in range(200):
        n, m = random.integers(1, 9, 2)
        a, b = random.integers(0, 4, n) + 0.0, random.integers(0, 4, m) + 0.0
        a[0] += 100 + max(b.sum() - a.sum(), 0)
        b[0] += a.sum() - b.sum()
        M = random.integers(0, 3, (n, m)) + 0.0
        M[random.random((n, m)) < 0.3] = np.inf
        M[0], M[:, 0] = 2, 2
        result = monge.solve_exact(M, a, b)
        finite = np.where(np.isinf(M), 1e4, M)
        assert float(result.value) == pytest.approx(ot.emd2(a, b, finite), rel=1e-12)
        assert result.report.dual <= result.value and result.report.gap <= 1e-14 * M[np.isfinite(M)].max() * a.sum()
        assert (result.plan == np.floor(result.plan)).all() and np.isfinite(M[result.plan > 0]).all()


def linear_program(
    M: np.ndarray, a: np.ndarray, b: np.ndarray, penalties: tuple[float, float] | None = None, mass: float | None = None
) -> float:
    """The optimum by SciPy, with what each side lacks and has too much of, or with the mass, as further unknowns."""
    n, m = M.shape
    allowed = np.isfinite(M.ravel())
    of_plan = sparse.vstack([sparse.kron(sparse.eye(n), np.ones((1, m))), sparse.kron(np.ones((1, n)), sparse.eye(m))])
    of_plan = of_plan.tocsc()[:, allowed]
    costs, sides = M.ravel()[allowed], np.concatenate([a, b])
    if penalties is None:
        total = {"A_eq": np.ones((1, len(costs))), "b_eq": [mass]}
        return float(linprog(costs, A_ub=of_plan, b_ub=sides, **total).fun)
    prices = np.repeat(penalties, [n, m])
    keep = np.isfinite(prices)
    slack = sparse.eye(n + m).tocsc()[:, keep]
    every = sparse.hstack([of_plan, slack, -slack])
    return float(linprog(np.concatenate([costs, prices[keep], prices[keep]]), A_eq=every, b_eq=sides).fun)


def relaxed_problem(trial: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Costs and weights of any totals: whole numbers with ties and zeros, or random numbers; some pairs forbidden."""
    random = np.random.default_rng(trial)
    n, m = random.integers(1, 9, 2) if trial % 10 else (1, 1)
    if trial % 2:
        M, a, b = random.integers(0, 4, (n, m)) + 0.0, random.integers(0, 4, n) + 0.0, random.integers(0, 4, m) + 0.0
    else:
        M, a, b = random.random((n, m)), random.random(n), random.random(m)
    a[random.integers(n)] += 1
    b[random.integers(m)] += 1
    if trial % 3 == 0:
        M[random.random((n, m)) < 0.3] = np.inf
        M[0], M[:, 0] = 3, 3
    return M, a, b


@pytest.mark.parametrize("rho", [0.3, 1.0, (0.2, 2.0), (3.0, 0.5), (np.inf, 1.0), (0.7, np.inf)])
def test_penalties_beside_linear_programs(rho: float | tuple[float, float]) -> None:
    pair = rho if isinstance(rho, tuple) else (rho, rho)
    for trial in range(60):
        M, a, b = relaxed_problem(trial)
        result = monge.solve_exact(M, a, b, unbalanced=rho)
        scale = np.max(M[np.isfinite(M)]) * (a.sum() + b.sum())
        assert result.status == "optimal"
        assert float(result.value) == pytest.approx(linear_program(M, a, b, pair), rel=1e-9, abs=1e-9 * scale)
        # Potentials that are feasible in the dual and have the value of the plan prove that both are optimal.
        plan, (f, g) = result.plan, result.potentials
        off = np.abs(plan.sum(1) - a).sum(), np.abs(plan.sum(0) - b).sum()
        penalties = sum(price * left for price, left in zip(pair, off) if left > 1e-12)
        linear = (plan[plan > 0] * M[plan > 0]).sum()
        assert float(result.value_linear) == pytest.approx(linear, abs=1e-13 * scale)
        assert float(result.value) == pytest.approx(linear + penalties, abs=1e-12 * scale)
        slack = 1e-12 * result.report.cost_scale
        assert (np.abs(f) <= pair[0] + slack).all() and (np.abs(g) <= pair[1] + slack).all()
        assert (f[:, None] + g <= M + slack).all()
        assert a @ f + b @ g == pytest.approx(float(result.value), abs=1e-12 * scale)
        assert result.report.gap == pytest.approx(0, abs=1e-12 * scale) and result.marginal_error == 0
        if trial % 2:
            assert (plan == np.floor(plan)).all()


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_partial_transport_beside_linear_programs(share: float) -> None:
    for trial in range(60):
        M, a, b = relaxed_problem(trial)
        if trial % 3 == 0:  # The row and column without forbidden pairs have room for any mass.
            a[0] += 10
            b[0] += 10
        most = min(a.sum(), b.sum())
        mass = np.ceil(share * most) if trial % 2 else share * most
        result = monge.solve_exact(M, a, b, mass=mass)
        scale = np.max(M[np.isfinite(M)]) * (a.sum() + b.sum())
        expected = linear_program(M, a, b, mass=mass)
        assert result.status == "optimal"
        assert float(result.value) == pytest.approx(expected, rel=1e-9, abs=1e-9 * scale)
        plan, (f, g), price = result.plan, result.potentials, result.report.mass_price
        assert plan.sum() == pytest.approx(mass, rel=1e-14)
        assert (plan.sum(1) <= a * (1 + 1e-15)).all() and (plan.sum(0) <= b * (1 + 1e-15)).all()
        slack = 1e-12 * result.report.cost_scale
        assert (f[:, None] + g <= M + slack).all()
        if mass < most:
            assert (f <= price / 2 + slack).all() and (g <= price / 2 + slack).all()
        dual = a @ f + b @ g - price / 2 * (a.sum() + b.sum() - 2 * mass)
        assert dual == pytest.approx(float(result.value), abs=1e-12 * scale)
        assert result.report.dual == pytest.approx(dual, abs=1e-12 * scale)
        if trial % 2:
            assert (plan == np.floor(plan)).all()
        if trial % 3 and trial % 2 == 0:  # POT's large cost stands for a forbidden pair of its dustbin.
            np.testing.assert_allclose(monge.partial_wasserstein(a, b, M, mass), plan)
            assert ot.partial.partial_wasserstein2(a, b, M, mass) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_part_of_a_permutation() -> None:
    M = np.random.default_rng(0).random((40, 40))
    for mass in (0.3, 12 / 40, 1.0):
        plan = monge.solve_exact(M, mass=mass).plan
        assert set(np.unique(plan)) == {0, 1 / 40} and (plan > 0).sum() == 40 * mass
    wide = monge.solve_exact(M[:10], np.ones(10), np.ones(40), mass=10).plan
    row, column = linear_sum_assignment(M[:10])
    assert (wide[row, column] == 1).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", [{"unbalanced": 0.4}, {"unbalanced": (0.1, 3.0)}, {"mass": 0.35}, {"mass": 0.97}])
def test_relaxed_problems_of_points(kind: str, how: dict[str, float]) -> None:
    # Points are solved by candidates and passes. The oracle is POT on all pairs, with a dustbin.
    x, y = points(kind, 260, 2, 0), points(kind, 230, 2, 1) + 0.3
    a, b = weights("whole", 260, 2), weights("uniform", 230, 3)
    M = cdist(x, y, "sqeuclidean")
    result = monge.solve_exact_sample(x, y, a, b, **how)
    assert result.status == "optimal"
    if "mass" in how:
        left = 1 - how["mass"]
        dustbin = np.pad(M, (0, 1))
        dustbin[-1, -1] = 1e4 * M.max()
        a, b = np.append(a, left), np.append(b, left)
    else:
        rho_a, rho_b = np.broadcast_to(how["unbalanced"], 2)
        leave = np.minimum(rho_a, rho_b + M.min(1))
        lack = np.minimum(rho_b, rho_a + M.min(0))
        dustbin = np.block([[M, leave[:, None]], [lack, 0]])
        a, b = np.append(a, 1), np.append(b, 1)
    expected = ot.emd2(a, b, dustbin, numItermax=10**7)
    assert float(result.value) == pytest.approx(expected, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("n", [4, 240])
def test_points_without_a_partner_stay(n: int) -> None:
    M = np.random.default_rng(0).random((n, n))
    M[1], M[:, 2] = np.inf, np.inf
    for how in ({"unbalanced": 2.0}, {"mass": 1 - 1 / n}, {"unbalanced": (2.0, 3.0)}):
        plan = monge.solve_exact(M, **how).plan
        assert plan[1].sum() == 0 and plan[:, 2].sum() == 0
        np.testing.assert_allclose(np.delete(plan.sum(1), 1), 1 / n, rtol=1e-14)


def test_gradients_of_relaxed_problems_are_differences() -> None:
    M, random = np.random.default_rng(0).random((7, 5)), np.random.default_rng(1)
    a, b, h = random.random(7) + 0.1, random.random(5) + 0.2, 1e-6
    steps = random.normal(size=7), random.normal(size=5)
    for how in ({"unbalanced": 0.2}, {"mass": 0.7}):
        found = monge.solve_exact(M, a, b, **how).gradients()
        up, down = (float(monge.solve_exact(M, a + s * steps[0], b + s * steps[1], **how).value) for s in (h, -h))
        assert found.a @ steps[0] + found.b @ steps[1] == pytest.approx((up - down) / (2 * h), rel=1e-6)
    price = monge.solve_exact(M, a, b, mass=0.7).report.mass_price
    up, down = (float(monge.solve_exact(M, a, b, mass=0.7 + s).value) for s in (h, -h))
    assert price == pytest.approx((up - down) / (2 * h), rel=1e-6)


def test_attributes_of_a_result() -> None:
    x, y = points("normal", 30, 2, 0), points("normal", 20, 2, 1)
    result = monge.solve_exact_sample(x, y)
    plan = result.plan
    np.testing.assert_array_equal(result.sparse_plan.toarray(), plan)
    v = np.random.default_rng(0).random((20, 3))
    np.testing.assert_allclose(result.apply(v), plan @ v)
    np.testing.assert_allclose(result.apply(x, transpose=True), plan.T @ x)
    np.testing.assert_allclose(result.lazy_plan @ v, plan @ v)
    np.testing.assert_allclose(result.transform(), plan @ y / plan.sum(1, keepdims=True))
    np.testing.assert_allclose(result.average(x, transpose=True), plan.T @ x / plan.sum(0)[:, None])
    assert result.value_linear == result.value and result.marginal_error == pytest.approx(0, abs=1e-15)
    assert result.log["status"] == "optimal" and "optimal" in repr(result)
    again = pickle.loads(pickle.dumps(result))
    np.testing.assert_array_equal(again.plan, plan)
    assert again.report.gap == result.report.gap


def test_gradients_are_differences() -> None:
    x, y = points("normal", 12, 3, 0), points("normal", 9, 3, 1)
    a = weights("uniform", 12, 0)
    result = monge.solve_exact_sample(x, y, a)
    step, h = np.random.default_rng(2).normal(size=x.shape), 1e-5
    values = [float(monge.solve_exact_sample(x + s * h * step, y, a).value) for s in (1, -1)]
    assert (result.gradients().x * step).sum() == pytest.approx((values[0] - values[1]) / (2 * h), rel=1e-6)


def test_a_warm_start_and_progress() -> None:
    x, y = points("normal", 400, 3, 0), points("normal", 380, 3, 1)
    cold = monge.solve_exact_sample(x, y)
    warm = monge.solve_exact_sample(x + 1e-3, y, potentials_init=cold.potentials)
    assert warm.status == "optimal" and warm.report.pivots <= cold.report.pivots
    seen = []
    stopped = monge.solve_exact_sample(x, y, progress=lambda state: seen.append(state) or False)
    assert stopped.status == "stopped" and seen[0].iteration == 0 and seen[0].missing == 1
    assert stopped.report.dual <= float(cold.value) and stopped.marginal_error > 0


def test_an_interrupt_has_the_best_bound() -> None:
    x, y = points("normal", 1000, 3, 0), points("normal", 900, 3, 1)
    optimum, seen = float(monge.solve_exact_sample(x, y).value), []

    def interrupt(state: monge.ExactProgress) -> None:
        seen.append(state)
        if state.missing < 1:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught:
        monge.solve_exact_sample(x, y, progress=interrupt)
    result = caught.value.result
    f, g = result.potentials
    assert result.status == "stopped" and 0.9 * optimum < result.report.dual <= optimum * (1 + 1e-12)
    assert f.mean() + g.mean() == pytest.approx(result.report.dual, rel=1e-12)
    assert (cdist(x, y, "sqeuclidean") - f[:, None] - g).min() >= -1e-12


@pytest.mark.parametrize("moves", ["points", "weights"])
def test_a_sequence_starts_from_the_last_result(moves: str) -> None:
    random = np.random.default_rng(2)
    x, y = points("normal", 380, 2, 0), points("normal", 360, 2, 1)
    a, b = random.uniform(0.1, 1.1, 380), np.full(360, 1 / 360)
    a /= a.sum()
    last, pivots = monge.solve_exact_sample(x, y, a, b), []
    for _ in range(4):
        if moves == "points":
            x = x + 1e-3 * random.normal(size=x.shape)
        else:
            a = a * random.uniform(0.99, 1.01, a.shape)
            a /= a.sum()
        cold = monge.solve_exact_sample(x, y, a, b)
        last = monge.solve_exact_sample(x, y, a, b, start=pickle.loads(pickle.dumps(last)))
        assert last.status == "optimal" and float(last.value) == pytest.approx(float(cold.value), rel=1e-12)
        pivots.append((last.report.pivots, cold.report.pivots))
    warm, cold = np.sum(pivots, 0)
    assert warm < cold / 2
    M = cdist(x, y, "sqeuclidean")
    for result in (
        monge.solve_exact_sample(x, y, a, b, start=last),
        monge.solve_exact(M, a, b, start=last, potentials_init=last.potentials),
        monge.solve_exact(M.T, b, a, start=last.inverse),
    ):
        assert result.n_iter == 1 and result.report.pivots <= pivots[-1][1] / 100


def test_a_start_that_is_none_names_the_argument() -> None:
    start = monge.solve_exact(np.ones((2, 3)))
    with pytest.raises(ValueError, match="^start: is a plan of 2 x 3 points; must be one of 3 x 3"):
        monge.solve_exact(np.ones((3, 3)), start=start)
    with pytest.raises(TypeError, match="^start: is 3; must be an ExactResult"):
        monge.solve_exact_sample([[0.0]], [[0.0]], start=3)


@pytest.mark.parametrize("reg", [{}, {"reg": None}, {"reg": 0}, {"reg": 0.0, "reg_type": "L2"}])
def test_solve_without_reg_is_exact(reg: dict) -> None:
    x, y = points("normal", 30, 2, 0), points("normal", 20, 2, 1)
    a, b = weights("whole", 30, 2), weights("uniform", 20, 3)
    M = cdist(x, y, "sqeuclidean")
    expected = ot.solve(M, a, b, **reg)
    for result in (
        monge.solve(M, a, b, **reg),
        monge.solve_sample(x, y, a, b, **reg, lazy=True, n_threads=1),
        *monge.solve_batch([M, M], a=a, b=b, **reg),
        *monge.solve_sample_batch([x], [y], a=a, b=b, **reg),
    ):
        assert isinstance(result, monge.ExactResult) and result.status == "optimal"
        assert float(result.value) == pytest.approx(expected.value, rel=1e-12)
        np.testing.assert_allclose(result.plan, expected.plan, atol=1e-15)  # Costs in general position: one optimum.
    batch = monge.solve_batch(np.stack([M, 2 * M]))
    np.testing.assert_allclose(batch.value, float(monge.solve(M).value) * np.array([1, 2]), rtol=1e-12)
    assert batch.plan.shape == (2, 30, 20) and batch.converged
    warm = monge.solve_batch(np.stack([M, 2 * M]), potentials_init=batch.potentials)
    np.testing.assert_array_equal(warm.value, batch.value)


def test_max_iter_is_the_number_of_passes_without_reg() -> None:
    x, y = points("normal", 400, 16, 0), points("normal", 400, 16, 1)
    assert monge.solve_sample(x, y, candidates=1).n_iter > 1
    with pytest.warns(monge.ConvergenceWarning, match="^the exact solver has no proof") as caught:
        assert monge.solve_sample(x, y, candidates=1, max_iter=1).n_iter == 1
    assert caught[0].filename == __file__


def test_solve_with_penalties_of_total_variation() -> None:
    x, y = points("normal", 12, 2, 0), points("normal", 9, 2, 1)
    a, M = 2 * weights("whole", 12, 2), cdist(x, y, "sqeuclidean")
    for given in (0.7, (0.7, 2.0)):
        tv = {"unbalanced": given, "unbalanced_type": "TV"}
        # The side that is left out has total 1, as in POT.
        expected = monge.solve_exact(M, a, np.full(9, 1 / 9), unbalanced=given)
        for result in (
            monge.solve(M, a, **tv),
            monge.solve_sample(x, y, a, **tv),
            *monge.solve_batch([M, M], a=a, **tv),
        ):
            assert result.status == "optimal"
            assert float(result.value) == pytest.approx(float(expected.value), rel=1e-12)
        rho, (row, column) = np.broadcast_to(given, 2), result.marginals
        penalties = rho[0] * abs(row - a).sum() + rho[1] * abs(column - 1 / 9).sum()
        assert float(result.value) == pytest.approx((M * result.plan).sum() + penalties, rel=1e-12)
        # POT's L-BFGS ends above the optimum, whose objective has kinks, by 2 % in the first case.
        assert result.value <= ot.solve(M, a, **tv).value * (1 + 1e-12)


def test_arguments_of_entropies_are_errors_without_reg() -> None:
    M = np.ones((2, 3))
    for given, error, match in (
        ({"unbalanced": 1.0}, NotImplementedError, "^unbalanced: is given without reg, and unbalanced_type is 'KL'"),
        ({"penalty_a": 1.0}, NotImplementedError, "^penalty_a: is given without reg, and"),
        ({"unbalanced": 1.0, "unbalanced_type": "L2"}, NotImplementedError, "^unbalanced: is given without reg, and"),
        ({"unbalanced": -1.0, "unbalanced_type": "TV"}, ValueError, "^unbalanced: is -1; must be"),
        ({"c": M}, NotImplementedError, "^c: is given; only solve"),
        ({"method": "newton"}, ValueError, "^method: is 'newton', of transport with reg; must be left out"),
        ({"method": "lowrank"}, NotImplementedError, "^method: is 'lowrank', POT's for plans of low rank"),
        ({"precision": "float64"}, TypeError, "^precision: is no option without reg; options are tol, "),
        ({"max_iter": 0}, ValueError, "^max_iter: is 0; must be >= 1"),
        ({"tol": 0}, ValueError, "^tol: is 0"),
        ({"a": [1, 1], "b": [1, 1, 1]}, ValueError, "^b: the total is 3; must equal"),
        ({"plan_init": M}, NotImplementedError, "^plan_init: "),
        ({"reg": "exact"}, TypeError, "^reg: is 'exact'; must be a number or 'auto'"),
    ):
        with pytest.raises(error, match=match):
            monge.solve(M, **given)


def test_largest_entries_draws_and_the_inverse() -> None:
    x, y = points("normal", 30, 2, 0), points("normal", 20, 2, 1)
    result = monge.solve_sample(x, y, weights("whole", 30, 2))
    plan = result.plan
    for axis in (0, 1):
        indices, values = result.topk(3, axis)
        largest = -np.sort(-plan, axis=axis).take(range(3), axis=axis)
        np.testing.assert_array_equal(values, largest.T if axis == 0 else largest)
        at = plan.T if axis == 0 else plan
        np.testing.assert_array_equal(np.take_along_axis(at, indices, 1), values)
    i, j = result.sample(1000, seed=3)
    assert (plan[i, j] > 0).all() and len(set(zip(i, j))) > 15
    inverse = result.inverse
    np.testing.assert_array_equal(inverse.plan, plan.T)
    np.testing.assert_array_equal(inverse.sparse_plan.toarray(), plan.T)
    np.testing.assert_allclose(inverse.transform(), plan.T @ x / plan.sum(0)[:, None])
    np.testing.assert_array_equal(inverse.potentials[0], result.potentials[1])
    np.testing.assert_array_equal(inverse.inverse.plan, plan)


def test_costs_over_too_many_decades_are_not_called_optimal() -> None:
    """Passes over all pairs, from n m = 2^17 on, round by the largest cost; fewer pairs are all candidates."""
    random = np.random.default_rng(0)
    M = random.random((400, 400))
    M[random.random(M.shape) < 0.5] = 1e30
    with pytest.warns(monge.ConvergenceWarning, match="rounding hides up to .* above a millionth"):
        result = monge.solve_exact(M)
    assert result.status == "precision_limit" and not result.converged
    for n, large in ((300, 1e30), (400, 1e4)):
        costs = np.where(M > 1, large, M)[:n, :n]
        result = monge.solve_exact(costs)
        assert result.status == "optimal"
        assert float(result.value) == pytest.approx(costs[linear_sum_assignment(costs)].mean(), rel=1e-13)


def test_messages_name_the_argument() -> None:
    with pytest.raises(ValueError, match="^M: forbids too many pairs"):
        monge.solve_exact(np.array([[1, np.inf], [1, np.inf]]) * np.ones((2, 2)), [1, 1], [1, 1])
    with pytest.raises(ValueError, match="^tol: is 0"):
        monge.solve_exact(np.ones((2, 2)), tol=0)
    with pytest.raises(ValueError, match="^X_a: row 1, column 0 is nan"):
        monge.solve_exact_sample([[0.0], [np.nan]], [[0.0]])
    for solve in (monge.solve_exact, monge.solve):
        with pytest.raises(ValueError, match="^b: the total is 3.* need unbalanced or mass"):
            solve(np.ones((2, 2)), a=[1, 1], b=[1, 2])
    with pytest.raises(ValueError, match="^unbalanced: is 0"):
        monge.solve_exact(np.ones((2, 2)), unbalanced=0)
    with pytest.raises(ValueError, match="^mass: is 2.5; must be at most 2"):
        monge.solve_exact(np.ones((2, 2)), [1, 1], [1, 2], mass=2.5)
    with pytest.raises(ValueError, match="^mass: is given with a penalty"):
        monge.solve_exact(np.ones((2, 2)), unbalanced=1, mass=1)
    with pytest.raises(ValueError, match="^mass: is 2; must be at most 1, all that pairs of finite cost can take"):
        monge.solve_exact(np.array([[1, np.inf], [1, np.inf]]), [1, 1], [1, 1], mass=2)
    with pytest.raises(ValueError, match="^M: forbids all pairs of row 1"):
        monge.solve_exact(np.array([[1, 1], [np.inf, np.inf]]), unbalanced=(np.inf, 1))
    with pytest.raises(ValueError, match="mass would be made without end"):
        monge.solve_exact(-np.ones((2, 2)), unbalanced=0.4)
    with pytest.raises(TypeError, match="steps"):
        monge.solve_exact(np.ones((2, 2)), steps=3)


def test_emd_is_pots() -> None:
    random = np.random.default_rng(0)
    M = random.random((30, 20))
    a, b = weights("whole", 30, 0), weights("decades", 20, 1)
    plan, log = monge.emd(a, b, M, log=True)
    expected, of_pot = ot.emd(a, b, M, log=True)
    np.testing.assert_allclose(plan, expected, atol=1e-14)
    assert log["cost"] == pytest.approx(of_pot["cost"], rel=1e-12) and log["warning"] is None
    assert a @ log["u"] == pytest.approx(b @ log["v"], abs=1e-12)
    assert monge.emd2(a, b, M) == pytest.approx(of_pot["cost"], rel=1e-12)
    assert monge.emd2([], [], M) == pytest.approx(ot.emd2([], [], M), rel=1e-12)
    cost, log = monge.emd2(a, b, M, log=True, return_matrix=True)
    np.testing.assert_allclose(log["G"], plan)
    assert monge.emd2(a, 2 * b, M, check_marginals=False) == pytest.approx(cost, rel=1e-12)
    many = np.stack([b, np.full(20, 1 / 20)], 1)
    for columns in (many, many.tolist()):
        np.testing.assert_allclose(monge.emd2(a, columns, M), ot.emd2(a, many, M), rtol=1e-12)
    np.testing.assert_allclose(monge.emd(a, b, M, numThreads=1), plan, atol=1e-14)
    with pytest.raises(ValueError, match="check_marginals"):
        monge.emd(a, 2 * b, M)
    for threads in (0, "all"):
        with pytest.raises(ValueError, match="^numThreads: is"):
            monge.emd2(a, b, M, numThreads=threads)


INF = np.inf


@pytest.mark.parametrize(
    ("costs", "mass"),
    [
        (np.zeros((3, 3)), 0.5),
        ([[0.0]], 0.5),
        ([[0.0, 0], [0, INF]], 1.0),
        ([[1e-320, 1e-320], [1e-320, INF]], 1.0),
        ([[1e306, INF], [1e306, 1e306]], 1.0),
    ],
)
def test_costs_of_the_ends_of_the_range_end(costs, mass):
    """The price of unmatched mass, which grows by factors, starts above 0 and stays finite."""
    result = monge.solve_exact(costs, **({"mass": mass} if mass < 1 else {}))
    assert result.status == "optimal"
    assert result.plan.sum() == pytest.approx(mass, rel=1e-15)


@pytest.mark.parametrize("costs", [[[INF]], np.full((6, 6), INF), [[0, INF], [0, INF]], [[1e306, INF], [1e306, INF]]])
def test_small_costs_that_forbid_too_many_pairs(costs):
    with pytest.raises(ValueError, match="forbids too many pairs"):
        monge.solve_exact(costs)


def sparse_problem(n: int, m: int, density: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A dense matrix with inf at the missing pairs; weights of a plan over the pairs, some of them 0."""
    random = np.random.default_rng(seed)
    M = random.uniform(0, 2, (n, m))
    M[0, 0] = 0  # A pair of cost 0 that is stored.
    P = random.uniform(0, 1, (n, m)) * (random.uniform(size=(n, m)) < density)
    P[0, 0] = 1
    allowed = (P > 0) | (random.uniform(size=(n, m)) < density)
    P[min(n - 1, 1)] *= n == 1
    return np.where(allowed, M, np.inf), P.sum(1), P.sum(0)


def stored(M: np.ndarray) -> sparse.coo_array:
    i, j = np.isfinite(M).nonzero()
    return sparse.coo_array((M[i, j], (i, j)), shape=M.shape)


@pytest.mark.parametrize("n, m", [(1, 7), (30, 30), (120, 90)])
@pytest.mark.parametrize("make", [sparse.coo_array, sparse.csr_array, sparse.csc_matrix, sparse.coo_matrix])
def test_sparse_costs_are_dense_ones_with_forbidden_pairs(n: int, m: int, make: type) -> None:
    M, a, b = sparse_problem(n, m, 0.2, n)
    S = make(stored(M))
    dense = monge.solve_exact(M, a, b)
    for result in (monge.solve_exact(S, a, b), monge.solve(S, a, b)):
        assert result.status == "optimal"
        assert float(result.value) == pytest.approx(float(dense.value), rel=1e-12)
        assert type(result.plan) is make and result.plan.shape == M.shape
        P, (f, g) = result.plan.toarray(), result.potentials
        np.testing.assert_allclose(P.sum(1), a, atol=1e-14 * a.sum())
        np.testing.assert_allclose(P.sum(0), b, atol=1e-14 * a.sum())
        assert (M[P > 0] * P[P > 0]).sum() == pytest.approx(float(dense.value), rel=1e-12)
        with np.errstate(invalid="ignore"):
            reduced = M - f[:, None] - g
        assert not (reduced < -1e-12 * 2).any()
        np.testing.assert_array_equal(result.inverse.plan.toarray(), P.T)
        assert result.apply(np.ones(m)) == pytest.approx(a, abs=1e-14 * a.sum())
        assert pickle.loads(pickle.dumps(result)).plan.toarray() == pytest.approx(P)
    assert float(monge.emd2(a, b, S)) == pytest.approx(ot.emd2(a, b, sparse.coo_matrix(S)), rel=1e-9)
    G, log = monge.emd(a, b, S, log=True)
    assert type(G) is make and log["result_code"] == 1
    part = 0.5 * a.sum()
    value = monge.solve_exact(S, a, b, mass=part).value
    assert float(value) == pytest.approx(float(monge.solve_exact(M, a, b, mass=part).value), rel=1e-12)
    value = monge.solve_exact(S, a, b, unbalanced=(0.4, 0.3)).value
    assert float(value) == pytest.approx(float(monge.solve_exact(M, a, b, unbalanced=(0.4, 0.3)).value), rel=1e-12)


def test_sparse_costs_beside_linear_programs() -> None:
    for seed in range(20):
        M, a, b = sparse_problem(9, 8, 0.3, seed)
        S = stored(M)
        A = np.vstack([S.row == i for i in range(9)] + [S.col == j for j in range(8)]).astype(float)
        found = linprog(S.data, A_eq=A, b_eq=np.r_[a, b], method="highs")
        assert float(monge.solve_exact(S, a, b).value) == pytest.approx(found.fun, rel=1e-9)


def test_sparse_duplicates_are_added_and_empty_problems_are_errors() -> None:
    S = sparse.coo_array(([1.0, 2, 4, 1, 7], ([0, 0, 1, 1, 0], [0, 0, 0, 1, 1])), shape=(2, 2))
    assert monge.solve_exact(S).value == 2  # (3 + 1) / 2 for (7 + 4) / 2.
    with pytest.raises(ValueError, match="M: forbids too many pairs"):
        monge.solve_exact(sparse.csr_array((3, 2)))
    with pytest.raises(ValueError, match="M: row 1, column 0 is nan"):
        monge.emd([], [], sparse.csr_array([[1.0, 0], [np.nan, 1]]))
    with pytest.raises(TypeError, match="M: is sparse, of type csr_array; must be dense"):
        monge.solve(sparse.eye_array(3).tocsr(), reg=1.0)


@pytest.mark.parametrize("how", [{}, {"mass": 0.5}, {"mass": 1e-30}, {"unbalanced": (0.4, 0.3)}])
@pytest.mark.parametrize("n, m", [(8, 7), (380, 360)])
def test_points_of_next_to_no_mass_change_nothing(n: int, m: int, how: dict) -> None:
    random = np.random.default_rng(n)
    M, x, y = random.uniform(0, 1, (n, m)), random.normal(size=(n, 3)), random.normal(size=(m, 3))
    a, b = random.uniform(0.5, 1, n), random.uniform(0.5, 1, m)
    M[0], x[0], a[0] = 1e15, 1e8, 0  # Padding.
    a[1], b[0], b[1] = 1e-300, 1e-40, 0
    a, b = a / a.sum(), b / b.sum()
    few, some = a > 1e-30, b > 1e-30
    rest_of_mass = a[few], b[some]
    for all_points, rest in (
        (monge.solve_exact(M, a, b, **how), monge.solve_exact(M[few][:, some], *rest_of_mass, **how)),
        (monge.solve_exact_sample(x, y, a, b, **how), monge.solve_exact_sample(x[few], y[some], *rest_of_mass, **how)),
    ):
        assert all_points.status == rest.status == "optimal"
        assert float(all_points.value) == pytest.approx(float(rest.value), rel=1e-11)
        assert all_points.report.dual == pytest.approx(float(rest.value), rel=1e-9)


@pytest.mark.parametrize("kind", ["bsr", "dia"])
def test_sparse_formats_that_lose_their_pairs_are_refused(kind):
    """Blocks store zeros that no one set, and diagonals lose zeros that someone did."""
    with pytest.raises(TypeError, match=f"^M: is in the format {kind}; must be coo, csr, csc, lil or dok"):
        monge.solve(sparse.csr_array(np.array([[1.0, 0.0], [0.0, 2.0]])).asformat(kind))


@pytest.mark.parametrize("weights", [None, "some"])
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine", "cityblock"])
def test_new_points_go_to_the_target_that_their_potential_chooses(metric, weights):
    random = np.random.default_rng(3)
    x, y = random.normal(size=(2, 40, 3)) + 2
    b = np.full(40, 1 / 40)
    if weights is not None:  # Points of weight 0 have potentials, too.
        b[random.permutation(40)[:25]] = 0
        b /= b.sum()
    result = monge.solve_exact_sample(x, y, None, b, metric=metric)
    f, g = result.potentials
    # f_i + g_j = C_ij at the image of a source: ties are pairs without mass in the basis of the simplex method.
    chosen = (result.transform(x)[:, None] == y).all(2)
    assert (chosen.sum(1) == 1).all()
    np.testing.assert_allclose((cdist(x, y, metric) - g)[chosen], f, atol=1e-12 * abs(cdist(x, y, metric)).max())
    points = random.normal(size=(70, 3)).astype(np.float32) + 2
    costs = cdist(points.astype(float), y, metric)
    expected = y[np.where(b > 0, costs - result.potentials[1], np.inf).argmin(1)]
    np.testing.assert_array_equal(result.transform(points), expected)
    for wrong, message in (
        (points[:, :2], r"^points: has shape \(70, 2\); must be \(k, 3\)"),
        (np.full((1, 3), np.nan), "^points: row 0, column 0 is nan"),
    ):
        with pytest.raises(ValueError, match=message):
            result.transform(wrong)
    with pytest.raises(NotImplementedError, match="^transform: the problem is a cost matrix"):
        monge.solve_exact(np.eye(3)).transform(points)
    labels = {"labels_x": [0] * 40, "labels_y": [0] * 40, "label_cost": [[0.0]]}
    with pytest.raises(NotImplementedError, match="^transform: the problem has labels"):
        monge.solve_exact_sample(x, y, **labels).transform(points)
