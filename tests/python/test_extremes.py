"""Results far from 1: clouds far from the origin, totals and masses near the ends of float64, eps far above the costs."""

import itertools

import numpy as np
import pytest

import monge

OFFSETS = [0, 1e4, 1e6, 1e8]


def drawn_clouds(offset=0.0):
    random = np.random.default_rng(0)
    return random.uniform(0, 1, (60, 2)) + offset, random.uniform(0, 1, (50, 2)) + offset


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("unbalanced", [None, 1.0])
def test_maps_keep_their_digits_under_an_offset(offset, unbalanced):
    x, y = drawn_clouds(offset)
    result = monge.solve_sample(x, y, reg=0.05, unbalanced=unbalanced)
    assert result.report.precision == "float32"
    # Shares are rounded to 1e-7, averages of numbers of size 1 as much, and the sum with the offset to its own rounding.
    error = 1e-6 + 4e-16 * offset
    for plan, found, values in (
        (result.plan, result.transform(), y),
        (result.plan, result.average(y), y),
        (result.plan.T, result.inverse.transform(), x),
        (result.plan.T, result.average(x, transpose=True), x),
    ):
        centre = values.mean(0)
        wanted = plan / plan.sum(1, keepdims=True) @ (values - centre) + centre
        np.testing.assert_allclose(found, wanted, rtol=0, atol=error)
    if unbalanced is None:
        batch = monge.solve_sample_batch([x], [y], 0.05)
        np.testing.assert_allclose(batch.transform()[0], result.transform(), rtol=0, atol=error)
    np.testing.assert_allclose(result.average(y[:, 0]), result.average(y)[:, 0], rtol=0, atol=error)


def test_points_of_no_weight_are_no_offset():
    x, y = drawn_clouds()
    y[25:] = 1e9  # Padding.
    b = np.repeat([1 / 25, 0], 25)
    result = monge.solve_sample(x, y, None, b, reg=0.05)
    wanted = result.plan / result.plan.sum(1, keepdims=True) @ y
    np.testing.assert_allclose(result.transform(), wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("eps", [1e12, 1e20, 1e30, 1e40, 1e100, 1e200])
def test_values_where_eps_is_far_above_the_costs(eps):
    random = np.random.default_rng(0)
    costs, a, b = random.random((4, 3)), np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.3, 0.3, 0.4])
    result = monge.solve(costs, a, b, reg=eps)
    # The plan is a b^T up to 1 / eps.
    assert result.converged and abs(result.value - a @ costs @ b) <= 1e-12 and abs(result.gap) <= 1e-12
    x, y = random.random((7, 2)), random.random((5, 2))
    divergence = monge.sinkhorn_divergence(x, y, reg=eps)
    assert divergence.value == pytest.approx(((x.mean(0) - y.mean(0)) ** 2).sum(), abs=1e-11)


@pytest.mark.parametrize("precision", ["auto", "float64"])
@pytest.mark.parametrize("total", [1e-280, 1e-200, 1e-156, 1e150])
def test_hessian_products_scale_with_the_mass(precision, total):
    random = np.random.default_rng(0)
    x, y, v = (random.normal(size=(n, 2)) for n in (6, 5, 6))

    def product(total):
        result = monge.solve_sample(x, y, np.full(6, total / 6), np.full(5, total / 5), reg=0.3, precision=precision)
        found, _, report = result.hessian_product(v)
        assert str(report.status).endswith("converged") and report.iterations > 0
        return found / total

    wanted = product(1.0)
    np.testing.assert_allclose(product(total), wanted, rtol=0, atol=1e-5 * abs(wanted).max())


def test_inverse_hessian_products_scale_with_the_mass():
    random = np.random.default_rng(0)
    x, y, v = (random.normal(size=(n, 2)) for n in (6, 5, 6))

    def product(total):
        result = monge.solve_sample(x, y, np.full(6, total / 6), np.full(5, total / 5), reg=3.0)
        found, report = result.inverse_hessian_product(v)
        assert str(report.status).endswith("converged")
        return found * total

    wanted = product(1.0)
    np.testing.assert_allclose(product(1e-200), wanted, rtol=0, atol=1e-5 * abs(wanted).max())


def test_a_quadratic_plan_whose_value_overflows_is_refused():
    costs = np.random.default_rng(0).normal(size=(9, 8)) ** 2 * 4
    a, b = np.full(9, 1e307 / 9), np.full(8, 1e307 / 8)
    with pytest.raises(ValueError, match="^a: totals 1e.307, where the value is beyond float64; must be less"):
        monge.solve_regularized(costs, a, b, quadratic=1e-307)


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean"])
@pytest.mark.parametrize("clusters", [False, True])
def test_the_history_of_mixed_sweeps_falls(metric, clusters):
    # Rows of mixed potentials are far off between clusters.
    random = np.random.default_rng(397)
    if clusters:
        centres = random.normal(size=(6, 2)) * 10
        x = centres[random.integers(0, 6, 60)] + 0.1 * random.normal(size=(60, 2))
        y = centres[random.integers(0, 5, 50)] + 0.1 * random.normal(size=(50, 2))
    else:
        x, y = random.normal(size=(200, 3)), random.normal(size=(150, 3)) * 0.8 + 0.3
    history = monge.solve_sample(x, y, metric=metric, eps_relative=0.02, tol=1e-5).report.history
    assert "mixed" in [check.kind for check in history]
    plain = [check for check in history if check.relaxation == 1]
    assert len(plain) > 5
    for last, now in zip(plain, plain[1:]):
        # A first plain sweep after mixed ones may rise by a fraction.
        assert now.eps != last.eps or now.marginal_error <= 1.5 * last.marginal_error


def test_splr_ends_where_the_mass_has_no_digits():
    y = np.array([[-984.0], [-976.0], [1.0], [1.0], [1.0]])
    result = monge.solve_sample(np.zeros((1, 1)), y, [8e-310], np.full(5, 1.6e-310), reg=0.1, method="splr", max_iter=20)
    # The one row takes all mass of each column. Subnormal numbers of this size have 44 bits.
    assert result.converged
    np.testing.assert_allclose(result.plan[0], 1.6e-310, rtol=1e-6)


@pytest.mark.parametrize("precision", ["auto", "float64"])
@pytest.mark.parametrize("p", [1e3, 1e5, 1e8, 1e17, 1e300])
def test_derivatives_of_large_norms(p, precision):
    """They are the derivatives of chebyshev where the two largest differences of each pair are far enough apart."""
    gap = 2e-3
    for seed in itertools.count():
        random = np.random.default_rng(seed)
        x, y, motion = random.normal(size=(13, 3)), random.normal(size=(17, 3)), random.normal(size=(13, 3))
        differences = np.sort(np.abs(x[:, None] - y))
        if (differences[..., 1] <= (1 - gap) * differences[..., 2]).all():
            break
    options = {"reg": 0.3, "tol": 1e-6, "precision": precision}
    norm = monge.solve_sample(x, y, metric="p-norm", norm_p=p, **options)
    limit = monge.solve_sample(x, y, metric="chebyshev", **options)
    # The slope of another difference is at most (1 - gap)^(p - 1), and log(3) / p is the difference of both distances.
    error = 1e-5 + 4 * (1 - gap) ** (p - 1) + 10 / p
    np.testing.assert_allclose(norm.gradients().x, limit.gradients().x, rtol=0, atol=error / 13)
    if p >= 1e5:
        found, wanted = (r.hessian_product(motion, 0 * y)[0] for r in (norm, limit))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-3 * np.abs(wanted).max())


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_equal_differences_share_the_slope_of_chebyshev(precision):
    """Also where centring rounds coordinates: 1 / 3 is the mean of the first cloud's."""
    x, y = np.array([[1.0, 0], [1, 3], [0, 0]]), np.array([[3.0, 1]])
    result = monge.solve_sample(x, y, metric="chebyshev", reg=1, precision=precision)
    wanted = [[-1 / 3, 0], [-1 / 6, 1 / 6], [-1 / 3, 0]]
    np.testing.assert_allclose(result.gradients().x, wanted, rtol=0, atol=1e-6)
