"""solve_gromov_sample and solve_gromov: beside POT, from the same start, and beside the dense formula."""

import pickle
import warnings

import numpy as np
import pytest

import monge
from conftest import assert_named, squared_distances


def energy_of_matrices(c, d, plan):
    """E(P) by products."""
    row, column = plan.sum(1), plan.sum(0)
    return row @ c**2 @ row + column @ d**2 @ column - 2 * ((c @ plan @ d.T) * plan).sum()


def energy(x, y, plan):
    return energy_of_matrices(squared_distances(x, x), squared_distances(y, y), plan)


@pytest.fixture
def clouds():
    """100 points in space, 80 in the plane, features and weights."""
    random = np.random.default_rng(100)
    x, y = random.normal(size=(100, 3)), random.normal(size=(80, 2)) * np.linspace(1, 2, 2)
    a, b = random.uniform(0.5, 1, 100), random.uniform(0.5, 1, 80)
    s, t = random.normal(size=(100, 4)), random.normal(size=(80, 4))
    return x, y, s, t, a / a.sum(), b / b.sum()


# Both alternations end within their tolerance, 1e-9 and 1e-11, over 1 - the rate of convergence of the same plan.
AS_POT = dict(rel=1e-6)
TIGHT = dict(max_iter=3000, tol=1e-11, numItermax=20000, stopThr=1e-12)


def pot():
    pytest.importorskip("ot")
    import ot

    return ot


@pytest.mark.parametrize("share", [0.3, 0.2])
def test_entropic_plans_are_those_of_pot(clouds, share):  # At .05 POT 0.9.7 returns a plan of zeros.
    ot, (x, y, s, t, a, b) = pot(), clouds
    c, d, reg = ot.dist(x, x), ot.dist(y, y), share * 16 * np.sqrt(np.var(x) * np.var(y))
    result = monge.solve_gromov_sample(x, y, a=a, b=b, reg=reg, starts=1, tol=1e-9)
    plan, log = ot.gromov.entropic_gromov_wasserstein(c, d, a, b, epsilon=reg, log=True, **TIGHT)
    assert result.value_quad == pytest.approx(log["gw_dist"], **AS_POT)
    assert result.value == pytest.approx(log["gw_dist"] + reg * (plan * np.log(plan)).sum(), **AS_POT)
    assert result.value_linear == 0
    np.testing.assert_allclose(result.plan, plan, atol=1e-6 * plan.max())

    fused = monge.solve_gromov_sample(x, y, s, t, a, b, reg=reg, alpha=0.4, starts=1, tol=1e-9)
    plan, log = ot.gromov.entropic_fused_gromov_wasserstein(
        ot.dist(s, t), c, d, a, b, epsilon=reg, alpha=0.4, log=True, **TIGHT
    )
    assert fused.value_quad + fused.value_linear == pytest.approx(log["fgw_dist"], **AS_POT)
    assert fused.value_linear == pytest.approx(0.6 * (ot.dist(s, t) * plan).sum(), **AS_POT)


def test_proximal_steps_are_those_of_pot(clouds):
    ot, (x, y, *_, a, b) = pot(), clouds
    reg = 0.2 * 16 * np.sqrt(np.var(x) * np.var(y))
    tight = TIGHT | dict(max_iter=30, tol=0)
    _, log = ot.gromov.entropic_gromov_wasserstein(
        ot.dist(x, x), ot.dist(y, y), a, b, epsilon=reg, solver="PPA", log=True, **tight
    )
    with pytest.warns(monge.ConvergenceWarning, match="more steps"):
        result = monge.solve_gromov_sample(x, y, a=a, b=b, reg=reg, method="PPA", starts=1, max_iter=30, tol=1e-9)
    assert result.value_quad == pytest.approx(log["gw_dist"], **AS_POT)
    assert result.value == result.value_quad


def test_exact_plans_are_no_worse_than_those_of_pot():
    ot, random = pot(), np.random.default_rng(3)
    for _ in range(4):
        x, y = random.normal(size=(40, 2)) ** 3, random.normal(size=(50, 3))
        result = monge.solve_gromov_sample(x, y)
        value = ot.gromov.gromov_wasserstein2(ot.dist(x, x), ot.dist(y, y))
        assert result.lower_bound <= result.value <= value * (1 + 1e-9)
        assert result.status == "converged" and result.stationarity <= 1e-9 * value
        assert result.value == pytest.approx(energy(x, y, result.plan), rel=1e-10)


def test_branch_and_bound_proves_the_optimum(clouds):
    x, y, s, t, a, b = clouds
    bounds = []

    def progress(state):
        bounds.append(state.lower_bound)

    options = dict(a=a[:40] / a[:40].sum(), b=b[:30] / b[:30].sum(), gap=0.02)
    for features in ((), (s[:40], t[:30])):
        bounds.clear()
        result = monge.solve_gromov_sample(x[:40, :2], y[:30], *features, **options, progress=progress)
        assert result.converged and result.lower_bound <= result.value
        assert result.value - result.lower_bound <= 0.02 * result.value
        assert result.report.gap == pytest.approx(1 - result.lower_bound / result.value, rel=1e-9)
        assert result.report.problems > 0 and "no plan has a value below" in result.report.message
        assert bounds == sorted(bounds) and bounds[-1] <= result.lower_bound
        local = monge.solve_gromov_sample(x[:40, :2], y[:30], *features, a=options["a"], b=options["b"])
        assert local.lower_bound <= result.lower_bound and result.value <= local.value
    # Matrices of squared distances are points.
    c, d = squared_distances(x[:40, :2], x[:40, :2]), squared_distances(y[:30], y[:30])
    of_matrices = monge.solve_gromov(c, d, **options)
    points = monge.solve_gromov_sample(x[:40, :2], y[:30], **options)
    assert of_matrices.converged and of_matrices.value == pytest.approx(points.value, rel=1e-9)

    with pytest.warns(monge.ConvergenceWarning, match="more seconds or a larger gap would help"):
        late = monge.solve_gromov_sample(x, x**3, gap=1e-9, seconds=0.3)
    assert late.status == "iteration_limit" and late.lower_bound <= late.value
    assert_named(
        monge.solve_gromov_sample,
        dict(X_a=s, X_b=t, gap=0.1),
        NotImplementedError,
        "gap: is given for clouds of 4 and 4 dimensions",
    )
    assert_named(
        monge.solve_gromov_sample,
        dict(X_a=x, X_b=y, gap=0.1, reg=1.0),
        ValueError,
        "gap: is 0.1 with entropy; must be infinity",
    )


def test_lower_bound_is_one_of_the_value_without_entropy(clouds):
    x, y, s, t, a, b = clouds
    for scale in (1, 3):  # The bound is positive where spreads differ; the entropy is some -8 reg.
        for features in ((), (s, t)):
            result = monge.solve_gromov_sample(x, scale * y, *features, a=a, b=b, reg=50.0)
            bounded = result.value_quad + result.value_linear
            assert 0 < result.lower_bound <= bounded
            assert result.value < result.lower_bound
            assert f"value_quad + value_linear {bounded:.6g} >= lower bound {result.lower_bound:.6g}" in repr(result)
            assert f"value {result.value:.6g}, " in repr(result)


def test_result_is_consistent_with_its_plan(clouds):
    x, y, s, t, a, b = clouds
    for reg in (None, 10.0):
        result = monge.solve_gromov_sample(x, y, s, t, a, b, reg=reg, alpha=0.3)
        plan, allowed = result.plan, 1e-4 if reg else 1e-12
        assert result.shape == (100, 80) and result.reg == (reg or 0) and result.converged
        np.testing.assert_allclose(result.marginals[0], a, atol=1e-5 * a.max())
        assert result.value_quad == pytest.approx(0.3 * energy(x, y, plan), rel=allowed)
        assert result.value_linear == pytest.approx(0.7 * (squared_distances(s, t) * plan).sum(), rel=allowed)
        assert result.lower_bound <= result.value_quad + result.value_linear
        entropy = (plan[plan > 0] * np.log(plan[plan > 0])).sum() if reg else 0
        assert result.value == pytest.approx(result.value_quad + result.value_linear + (reg or 0) * entropy, rel=1e-5)
        relative = monge.solve_gromov_sample(x, y, s, t, a, b, reg=reg, alpha=0.3, reg_type="KL")
        assert relative.value == pytest.approx(result.report.value, rel=1e-12)
        np.testing.assert_allclose(result.apply(y), plan @ y, atol=1e-5 * abs(plan @ y).max())
        np.testing.assert_allclose(result.transform(), (plan @ y) / plan.sum(1)[:, None], atol=1e-4)
        centred = x - a @ x, y - b @ y
        np.testing.assert_allclose(result.cross_moment, centred[0].T @ plan @ centred[1], atol=1e-5)
        assert [start.kind for start in result.starts][:3] == ["product", "descriptors", "axes"]
        assert result.topk(1)[0].shape == (100, 1) and result.sample(5)[0].shape == (5,)
        np.testing.assert_allclose(result.push(a).sum(), 1, rtol=1e-5)
        assert "lower bound" in repr(result) and result.log["alpha"] == 0.3


def test_potentials_are_slopes_of_the_value_by_the_plan(clouds):
    x, y, s, t, a, b = clouds
    c, d = squared_distances(x, x), squared_distances(y, y)
    for reg in (None, 20.0):
        result = monge.solve_gromov_sample(x, y, s, t, a, b, reg=reg, tol=1e-8)
        plan = result.plan
        slope = (c**2 @ plan.sum(1))[:, None] + d**2 @ plan.sum(0) - 2 * c @ plan @ d + 0.5 * squared_distances(s, t)
        if reg:
            slope += reg * np.log(plan / np.outer(a, b))
        f, g = result.potentials
        slack = 1e-5 * abs(slope).max()
        rest = slope - f[:, None] - g
        assert rest.min() >= -slack and abs(rest[plan > 0]).max() <= slack


def test_gradients_are_differences(clouds):
    x, y, s, t, a, b = clouds
    result = monge.solve_gromov_sample(x, y, s, t, a, b, reg=20.0, tol=1e-8, reg_type="KL")
    found, step = result.gradients(), 1e-4
    for name, given in (("x", x), ("y", y), ("s", s), ("t", t)):
        values = []
        for sign in (1, -1):
            moved = {"x": x, "y": y, "s": s, "t": t} | {
                name: given + sign * step * (np.arange(len(given)) == 3)[:, None]
            }
            values.append(
                monge.solve_gromov_sample(
                    *moved.values(), a, b, reg=20.0, tol=1e-8, plan_init=result, reg_type="KL"
                ).value
            )
        expected = (values[0] - values[1]) / (2 * step)
        # A value is off by the marginal error, 1e-9, times potentials of some 100, and the difference by that over 2e-4.
        assert getattr(found, name)[3].sum() == pytest.approx(expected, abs=1e-3)
    with pytest.raises(NotImplementedError, match="gradients: the method is proximal"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        monge.solve_gromov_sample(x, y, reg=20.0, method="proximal", max_iter=2).gradients()


@pytest.mark.parametrize("kind", ["entropy", "KL"])
def test_tensors_have_derivatives_of_the_value(clouds, kind):
    torch = pytest.importorskip("torch")
    tensors = [torch.tensor(v, requires_grad=True) for v in clouds]
    result = monge.solve_gromov_sample(*tensors, reg=20.0, tol=1e-8, reg_type=kind)
    result.value.backward()
    found = result.gradients()
    for name, tensor in zip("xystab", tensors):
        np.testing.assert_allclose(tensor.grad, getattr(found, name).detach(), rtol=1e-12)
    x, y, s, t, a, b = clouds
    step, change = 1e-5, np.zeros(100)
    change[[3, 7]] = 1, -1
    values = [
        monge.solve_gromov_sample(
            x, y, s, t, a + sign * step * change, b, reg=20.0, tol=1e-8, plan_init=result, reg_type=kind
        ).value
        for sign in (1, -1)
    ]
    expected = (values[0] - values[1]) / (2 * step)
    assert float(tensors[4].grad @ torch.tensor(change)) == pytest.approx(
        expected, abs=1e-2
    )  # As above, of a step of 1e-5.
    with pytest.raises(NotImplementedError, match="plan: has no derivatives here"):
        result.plan.sum().backward()
    with torch.no_grad():
        assert not monge.solve_gromov_sample(*tensors[:2], reg=20.0).value.requires_grad


def test_matrices_of_squared_distances_are_points(clouds):
    x, y, s, t, a, b = clouds
    x = x + 30  # dist() loses digits, as users' matrices do.
    ot = pot()
    c, d, costs = ot.dist(x, x), ot.dist(y, y), ot.dist(s, t) + np.arange(80) / 100
    reg = 0.2 * 16 * np.sqrt(np.var(x) * np.var(y))
    of_points = monge.solve_gromov_sample(x, y, a=a, b=b, reg=reg, tol=1e-9, starts=1)
    result = monge.solve_gromov(c, d, a=a, b=b, reg=reg, tol=1e-9, starts=1)
    assert result.value == pytest.approx(of_points.value, rel=1e-9)
    np.testing.assert_allclose(result.plan, of_points.plan, atol=1e-8)
    fused = monge.solve_gromov(c, d, costs, a, b, alpha=0.4, reg=reg, tol=1e-9, starts=1)
    plan, log = ot.gromov.entropic_fused_gromov_wasserstein(
        costs, ot.dist(x - 30, x - 30), d, a, b, epsilon=reg, alpha=0.4, log=True, **TIGHT
    )
    assert fused.value_linear == pytest.approx(0.6 * (costs * plan).sum(), **AS_POT)
    assert fused.value_linear + fused.value_quad == pytest.approx(log["fgw_dist"], **AS_POT)

    exact = monge.solve_gromov(c, d, costs, a, b)
    plan = exact.plan
    assert exact.value_linear == pytest.approx(0.5 * (costs * plan).sum(), rel=1e-9)
    assert exact.value_quad == pytest.approx(0.5 * energy(x, y, plan), rel=1e-9)
    assert exact.lower_bound <= exact.value
    slope = (c**2 @ a)[:, None] + d**2 @ b - 2 * c @ plan @ d + 0.5 * costs
    f, g = exact.potentials
    rest = slope - f[:, None] - g
    assert rest.min() >= -1e-9 * slope.max() and abs(rest[plan > 0]).max() <= 1e-9 * slope.max()
    by, (row, column) = exact.gradients(), (plan.sum(1), plan.sum(0))
    np.testing.assert_allclose(by.x, c * np.outer(row, row) - plan @ d @ plan.T, atol=1e-12 * c.max())
    np.testing.assert_allclose(by.y, d * np.outer(column, column) - plan.T @ c @ plan, atol=1e-12 * c.max())
    np.testing.assert_array_equal(by.s, 0.5 * plan)
    with pytest.raises(NotImplementedError, match="transform: the problem is matrices"):
        exact.transform()
    in_float32 = monge.solve_gromov(ot.dist(x - 30, x - 30).astype(np.float32), d.astype(np.float32), a=a, b=b, reg=reg)
    assert in_float32.report.value == pytest.approx(of_points.report.value, rel=1e-3)


def test_distances_are_squared_distances_of_more_dimensions(clouds):
    """Schoenberg: the root of a Euclidean distance embeds. So many dimensions do not pay."""
    x, y, *_, a, b = clouds
    c, d = np.sqrt(squared_distances(x, x)), np.sqrt(squared_distances(y, y))
    result = monge.solve_gromov(c, d, a=a, b=b)
    plan = result.plan
    assert result.value == pytest.approx(a @ c**2 @ a + b @ d**2 @ b - 2 * ((c @ plan @ d) * plan).sum(), rel=1e-9)
    value = pot().gromov.gromov_wasserstein2(c, d, a, b)
    assert result.lower_bound <= result.value <= value * (1 + 1e-9)
    assert result.solved_as == "matrices" and result.starts[2].kind == "axes"


def test_distances_of_points_far_from_the_origin_are_recognised():
    """|x|^2 + |y|^2 - 2 <x, y> has the rounding of |x|^2: 1e-10 of the largest distance here, and 2e-6 of it at 1e5."""
    ot, random = pot(), np.random.default_rng(0)
    x, y = random.normal(size=(50, 3)), random.normal(size=(40, 2))
    s, t = random.normal(size=(50, 2)), random.normal(size=(40, 2))
    expected = monge.solve_gromov_sample(x, y)
    assert expected.solved_as == "points"
    for offset in (0, 1e3, 1e5):
        c, d, costs = (ot.dist(u + offset, v + offset) for u, v in ((x, x), (y, y), (s, t)))
        result = monge.solve_gromov(c, d)
        scale, residual = c.max(), max(1e-16 * offset**2, 1e-14)
        assert result.value == pytest.approx(expected.value, abs=2 * np.sqrt(expected.value) * residual * scale)
        assert result.solved_as.startswith("matrices" if offset == 1e5 else "points of 3 and 2 dimensions")
        assert result.solved_as in repr(result)
        fused = monge.solve_gromov(c, d, costs)
        assert fused.solved_as.startswith(result.solved_as[:6])


@pytest.mark.parametrize("distance", ["root", "cityblock", "kernel"])
def test_axes_are_starts_of_symmetric_matrices(distance):
    """A cloud, and its noisy mirror image in another order."""
    of = {
        "root": lambda z: np.sqrt(squared_distances(z, z)),
        "cityblock": lambda z: abs(z[:, None] - z).sum(-1),
        "kernel": lambda z: np.exp(-squared_distances(z, z) / 10),
    }[distance]
    random = np.random.default_rng(7)
    x = random.normal(size=(60, 3)) * [3, 2, 1] + random.exponential(size=(60, 3))
    y = x[::-1, [2, 0, 1]] * [1, -1, 1] + 0.7 * random.normal(size=(60, 3))
    result = monge.solve_gromov(of(x), of(y))
    assert result.solved_as == "matrices" and result.starts[2].kind == "axes"
    assert result.starts[2].value == result.report.value < 0.98 * min(start.value for start in result.starts[:2])


def general(kind):
    """Ca, Cb, M, a and b that are no squared distances: a graph's adjacency, numbers without symmetry, a kernel."""
    random = np.random.default_rng(7)

    def side(n):
        if kind == "adjacency":
            upper = np.triu(random.random((n, n)) < 0.25, 1).astype(float)
            return upper + upper.T
        if kind == "kernel":
            points = random.normal(size=(n, 2))
            return np.exp(-squared_distances(points, points))
        return random.normal(size=(n, n))

    c, d = side(40), side(30)
    a, b = random.uniform(0.5, 1, 40), random.uniform(0.5, 1, 30)
    return c, d, random.random((40, 30)), a / a.sum(), b / b.sum()


KINDS = ("adjacency", "asymmetric", "kernel")


@pytest.mark.parametrize("kind", KINDS)
def test_plans_of_any_matrices_are_those_of_pot(kind):
    ot, (c, d, costs, a, b) = pot(), general(kind)
    start, symmetric = np.outer(a, b), kind != "asymmetric"
    reg = 0.3 * energy_of_matrices(c, d, start)
    result = monge.solve_gromov(c, d, a=a, b=b, reg=reg, tol=1e-9, plan_init=start)
    plan, log = ot.gromov.entropic_gromov_wasserstein(c, d, a, b, epsilon=reg, symmetric=symmetric, log=True, **TIGHT)
    assert result.converged and result.value_quad == pytest.approx(log["gw_dist"], **AS_POT)
    np.testing.assert_allclose(result.plan, plan, atol=1e-6 * plan.max())
    assert result.value == pytest.approx(log["gw_dist"] + reg * (plan * np.log(plan)).sum(), **AS_POT)
    assert result.lower_bound <= result.value_quad

    fused = monge.solve_gromov(c, d, costs, a, b, alpha=0.4, reg=reg, tol=1e-9, plan_init=start)
    plan, log = ot.gromov.entropic_fused_gromov_wasserstein(
        costs, c, d, a, b, epsilon=reg, alpha=0.4, symmetric=symmetric, log=True, **TIGHT
    )
    assert fused.value_linear == pytest.approx(0.6 * (costs * plan).sum(), **AS_POT)
    assert fused.value_linear + fused.value_quad == pytest.approx(log["fgw_dist"], **AS_POT)

    # Exact steps are POT's, up to ties. POT ends where a step lowers the value by 1e-9 of it.
    for given, alpha in ((None, 1.0), (costs, 0.4)):
        result = monge.solve_gromov(c, d, given, a, b, alpha=alpha, plan_init=start)
        value = (
            ot.gromov.gromov_wasserstein2(c, d, a, b, symmetric=symmetric)
            if given is None
            else ot.gromov.fused_gromov_wasserstein2(given, c, d, a, b, alpha=alpha, symmetric=symmetric)
        )
        assert result.converged and result.value == pytest.approx(value, **AS_POT)
        best = monge.solve_gromov(c, d, given, a, b, alpha=alpha)
        assert best.lower_bound <= best.value <= value * (1 + 1e-5)  # The tolerance.
        quad, plan = energy_of_matrices(c, d, best.plan), best.plan
        linear = 0 if given is None else (given * plan).sum()
        assert best.value == pytest.approx(alpha * quad + (1 - alpha) * linear, rel=1e-12)
        np.testing.assert_allclose(plan.sum(1), a, rtol=1e-12)


def test_proximal_steps_of_any_matrices_are_those_of_pot():
    ot, (c, d, _, a, b) = pot(), general("adjacency")
    reg = 0.5 * energy_of_matrices(c, d, np.outer(a, b))
    _, log = ot.gromov.entropic_gromov_wasserstein(
        c, d, a, b, epsilon=reg, solver="PPA", symmetric=True, log=True, **(TIGHT | dict(max_iter=20, tol=0))
    )
    with pytest.warns(monge.ConvergenceWarning, match="changed the plan by"):
        result = monge.solve_gromov(c, d, a=a, b=b, reg=reg, method="PPA", starts=1, max_iter=20, tol=1e-9)
    assert result.value_quad == pytest.approx(log["gw_dist"], **AS_POT)


def test_results_of_matrices(clouds):
    x, y, s, t, *_ = clouds
    c, d, costs, a, b = general("asymmetric")
    for reg in (None, 0.3):
        tol = 1e-8 if reg else 1e-4
        result = monge.solve_gromov(c, d, costs, a, b, alpha=0.4, reg=reg, tol=tol)
        plan = result.plan
        slope = 0.4 * ((c**2 + c.T**2) @ a)[:, None] + 0.4 * (d**2 + d.T**2) @ b + 0.6 * costs
        slope -= 0.8 * (c @ plan @ d.T + c.T @ plan @ d)
        if reg:
            slope += reg * np.log(plan / np.outer(a, b))
        f, g = result.potentials
        rest = slope - f[:, None] - g
        if reg:  # The plan changes by 1e-8 in the last step, over 1 - the rate of convergence.
            assert abs(rest).max() <= 1e-5
        else:  # The linearised objective falls by the tolerance at most.
            assert rest.min() >= -1e-12 and (rest * plan).sum() <= tol * result.value
            assert (rest * plan).sum() == pytest.approx(result.stationarity, abs=1e-12)
        np.testing.assert_allclose(result.apply(y[:30]), plan @ y[:30], atol=1e-6)
        np.testing.assert_allclose(result.cross_moment, plan, atol=1e-6)
        again = monge.solve_gromov(c, d, costs, a, b, alpha=0.4, reg=reg, tol=tol, plan_init=result)
        assert [start.kind for start in again.starts] == ["given"]
        assert -10 * tol <= (again.value - result.value) / abs(result.value) <= 1e-9
        copy = pickle.loads(pickle.dumps(result))
        np.testing.assert_allclose(copy.plan, plan, rtol=1e-11)
        with pytest.raises(NotImplementedError, match="transform: the problem is matrices"):
            result.transform()
    in_float32 = monge.solve_gromov(c.astype(np.float32), d.astype(np.float32), a=a, b=b)
    assert in_float32.plan.dtype == np.float32
    # A matrix M of full rank beside squared distances.
    fused = monge.solve_gromov(
        squared_distances(x, x), squared_distances(y, y), np.random.default_rng(0).random((100, 80))
    )
    assert fused.gradients().x.shape == (100, 100) and fused.converged


@pytest.mark.parametrize("kind", ["entropy", "KL"])
def test_tensors_have_derivatives_by_matrices(kind):
    torch = pytest.importorskip("torch")
    given = dict(zip(("Ca", "Cb", "M", "a", "b"), general("asymmetric")))
    tensors = {name: torch.tensor(v, requires_grad=True) for name, v in given.items()}
    options = dict(reg=0.5, alpha=0.4, tol=1e-9, reg_type=kind)
    result = monge.solve_gromov(**tensors, **options)
    result.value.backward()
    random, start = np.random.default_rng(1), result.plan.detach().numpy()
    for name, tensor in tensors.items():
        step = random.normal(size=given[name].shape) * given[name].mean()
        if name in "ab":
            step -= step.mean()
        values = [
            float(monge.solve_gromov(**given | {name: given[name] + h * step}, plan_init=start, **options).value)
            for h in (1e-4, -1e-4)
        ]
        # A difference is off by the third derivative times 1e-8, and by the rounding of the value, 1e-10, over 1e-4.
        expected = (values[0] - values[1]) / 2e-4
        assert float((tensor.grad * torch.tensor(step)).sum()) == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_gradients_do_not_change_the_plan():
    torch, random = pytest.importorskip("torch"), np.random.default_rng(20)
    x, y = random.normal(size=(30, 3)), random.normal(size=(25, 3))
    c, d, costs = squared_distances(x, x), squared_distances(y, y), squared_distances(x, y)
    for given, options in (
        (dict(Ca=c, Cb=d), {}),
        (dict(Ca=c, Cb=d, M=costs), dict(reg=10.0, alpha=0.3, tol=1e-10)),
        (dict(Ca=c, Cb=d), dict(reg=10.0, unbalanced=5.0, tol=1e-10)),
    ):
        expected = monge.solve_gromov(**given, **options)
        tensors = {name: torch.tensor(v, requires_grad=True) for name, v in given.items()}
        result = monge.solve_gromov(**tensors, **options)
        assert result.value.item() == expected.value and len(result.starts) == len(expected.starts)
        result.value.backward()
        plan, alpha = expected.plan, expected.report.alpha
        for name, tensor in tensors.items():
            step = random.normal(size=given[name].shape)

            def value(h):
                moved = given | {name: given[name] + h * step}
                quadratic = energy_of_matrices(moved["Ca"], moved["Cb"], plan)
                return alpha * quadratic + (1 - alpha) * (moved.get("M", 0) * plan).sum()

            expected_slope = (value(1e-3) - value(-1e-3)) / 2e-3  # A quadratic function of h.
            assert float((tensor.grad * torch.tensor(step)).sum()) == pytest.approx(expected_slope, rel=1e-7)


def test_bad_matrices_are_refused(clouds):
    x, y, s, t, a, b = clouds
    c, d = squared_distances(x, x), squared_distances(y, y)
    for given, error, message in (
        (dict(Cb=d[:5]), ValueError, "Cb: has shape (5, 80); must be square"),
        (dict(Ca=np.zeros((0, 0))), ValueError, "Ca: has shape (0, 0); must be square, of at least one row"),
        (dict(Ca=c + np.nan), ValueError, "Ca: row 0, column 0 is nan; entries must be finite"),
        (dict(Ca=c**2, M=np.full((100, 80), np.inf)), ValueError, "M: row 0, column 0 is inf; entries must be finite"),
        (dict(M=c), ValueError, "M: has shape (100, 100); must be (100, 80)"),
        (dict(Ca=c**2 * 1e160), ValueError, "Ca: has entries of up to"),
        (dict(Ca=c**2, plan_init=np.ones((3, 4))), ValueError, "plan_init: has shape (3, 4); must be (100, 80)"),
        (dict(loss="TV"), NotImplementedError, "loss: is 'TV'; must be 'L2' or 'KL'"),
        (dict(Ca=-c, loss="KL"), ValueError, "Ca: row"),
        (dict(s=s), ValueError, "t: is missing; features need both s and t"),
        (dict(M=np.ones((100, 80)), s=s, t=t), ValueError, "M: is given beside features; must be None"),
        (dict(s=s[:5], t=t), ValueError, "s: is 5 x 4; must be 100 x 4"),
    ):
        assert_named(monge.solve_gromov, dict(Ca=c, Cb=d) | given, error, message)


def test_maps_of_the_sources_are_their_averages(clouds):
    x, y, s, t, a, b = clouds
    for reg in (None, 10.0):
        for first, second, features in ((x, y, ()), (y, x, ()), (x, y, (s, t))):
            weights = (a, b) if first is x else (b, a)
            result = monge.solve_gromov_sample(first, second, *features, a=weights[0], b=weights[1], reg=reg)
            mapped = result.transform(first, *features[:1])
            if reg:
                np.testing.assert_allclose(mapped, result.transform(), atol=1e-3)
            else:  # The target of a source is one of those that have its mass.
                nearest = squared_distances(mapped, second).argmin(1)
                assert (result.plan[np.arange(len(first)), nearest] > 0).mean() > 0.95
    with pytest.raises(ValueError, match="s: is missing; goes with features"):
        result.transform(x)


def test_starts_may_be_plans_and_results(clouds):
    x, y, s, t, a, b = clouds
    best = monge.solve_gromov_sample(x, y, a=a, b=b)
    for start in (best, best.plan, best.linear):
        again = monge.solve_gromov_sample(x, y, a=a, b=b, plan_init=start)
        assert [s.kind for s in again.starts] == ["given"]
        assert again.value == pytest.approx(best.value, rel=1e-9)
    assert_named(
        monge.solve_gromov_sample,
        dict(X_a=x, X_b=y, plan_init=np.ones((3, 4))),
        ValueError,
        "plan_init: has shape (3, 4); must be (100, 80)",
    )


@pytest.fixture
def small():
    """60 points in the plane, 50 in space: the problem of the values below."""
    random = np.random.default_rng(5)
    return random.normal(size=(60, 2)) / 2, random.normal(size=(50, 3)) / 2


@pytest.mark.parametrize(
    "options, value, mass",
    [  # Of POT 0.9.7 and a dense alternation, from the product plan. POT's penalty and epsilon are half of these.
        (dict(reg=0.4, unbalanced=2.0), 0.3410619, 0.763838),
        (dict(reg=0.1, unbalanced=1.0), 0.1339908, 0.744767),
        (dict(reg=1.0, unbalanced_type="semirelaxed", iterations=5000), 0.0809563, 1.0),
        (dict(reg=0.3, unbalanced_type="semirelaxed", iterations=5000), 0.0804165, 1.0),
    ],
)
def test_open_marginals_have_the_known_values(small, options, value, mass):
    x, y = small
    c, d = squared_distances(x, x), squared_distances(y, y)
    shifted = c + 1e-7 * np.triu(np.ones_like(c), 1)  # No squared distances, so the problem is solved as matrices.
    for result in (
        monge.solve_gromov_sample(x, y, starts=1, tol=1e-9, **options),
        monge.solve_gromov(shifted, d, starts=1, tol=1e-9, **options),
    ):
        assert result.converged
        assert result.value_quad == pytest.approx(value, abs=1e-6)
        assert result.plan.sum() == pytest.approx(mass, abs=1e-6) == result.report.mass
        assert result.value_quad == pytest.approx(energy(x, y, result.plan), abs=1e-6)
        assert result.lower_bound == 0


@pytest.mark.parametrize(
    "given", [dict(unbalanced_type="semirelaxed"), dict(unbalanced_type="partial", unbalanced=0.7)]
)
def test_open_exact_plans_are_those_of_pot(small, given):  # Between the larger clouds POT 0.9.7 does not converge.
    ot, (x, y), random = pot(), small, np.random.default_rng(7)
    s, t, a = random.normal(size=(60, 4)), random.normal(size=(50, 4)), random.uniform(0.5, 1, 60)
    a /= a.sum()
    c, d, m = ot.dist(x, x), ot.dist(y, y), ot.dist(s, t)
    expected, fused = ot.solve_gromov(c, d, a=a, **given), ot.solve_gromov(c, d, m, a=a, alpha=0.4, **given)
    one = dict(starts=1, tol=1e-9)
    assert monge.solve_gromov_sample(x, y, a=a, **one, **given).value == pytest.approx(expected.value, rel=1e-8)
    assert monge.solve_gromov_sample(x, y, a=a, **given).value <= expected.value * (1 + 1e-8)
    points = monge.solve_gromov_sample(x, y, s, t, a, alpha=0.4, **one, **given)
    matrices = monge.solve_gromov(c, d, m, a, alpha=0.4, **one, **given)
    assert matrices.value == pytest.approx(fused.value, rel=1e-8)
    assert points.value == pytest.approx(fused.value, rel=1e-8)
    assert matrices.value_linear == pytest.approx(0.6 * (m * matrices.plan).sum(), rel=1e-12)
    np.testing.assert_allclose(matrices.plan, fused.plan, atol=1e-9)
    if "unbalanced" not in given:
        same = monge.solve_gromov(c, d, a=a, unbalanced="semirelaxed", **one)  # As POT's documentation has it.
        assert same.value == pytest.approx(expected.value, rel=1e-8)


def test_unbalanced_values_are_those_of_pot(small):
    ot, (x, y) = pot(), small
    random = np.random.default_rng(6)
    a, b, m = random.uniform(0.5, 1, 60), random.uniform(0.5, 1, 50) / 30, random.uniform(size=(60, 50))
    c, d = ot.dist(x, x), ot.dist(y, y)
    result = monge.solve_gromov(c, d, m, a, b, alpha=0.4, reg=0.5, unbalanced=0.7, starts=1, tol=1e-9)
    plan, _, log = ot.gromov.fused_unbalanced_gromov_wasserstein(  # As POT's solve_gromov calls it.
        c, d, a, b, reg_marginals=0.7 / 0.8, epsilon=0.5 / 0.8, divergence="kl", unbalanced_solver="sinkhorn_log",
        alpha=0.6 / 0.4, M=m, max_iter=500, tol=1e-12, max_iter_ot=5000, tol_ot=1e-12, log=True,
    )  # fmt: skip
    np.testing.assert_allclose(result.plan, plan, atol=1e-8 * plan.max())
    assert result.value == pytest.approx(0.4 * log["fugw_cost"], rel=1e-8)


def test_open_marginals_have_derivatives_by_points(small):
    torch = pytest.importorskip("torch")
    x, y = small
    step = np.random.default_rng(1).normal(size=x.shape)
    for given in (
        dict(reg=1.0, unbalanced=2.0),
        dict(unbalanced_type="semirelaxed"),
        dict(mass=0.5, marginals="partial"),
    ):
        tensor = torch.tensor(x, requires_grad=True)
        result = monge.solve_gromov_sample(tensor, y, tol=1e-9, **given)
        result.value.backward()
        up, down = (
            monge.solve_gromov_sample(x + h * step, y, tol=1e-9, plan_init=result, **given) for h in (1e-5, -1e-5)
        )
        expected = float(up.value - down.value) / 2e-5
        assert float((tensor.grad * torch.tensor(step)).sum()) == pytest.approx(expected, rel=1e-5)
        assert result.gradients().a is None
        weights = torch.full((60,), 1 / 60, dtype=torch.float64, requires_grad=True)
        with pytest.raises(NotImplementedError, match="value: has no derivatives by weights"):
            monge.solve_gromov_sample(torch.tensor(x), y, a=weights, **given).value.backward()
        assert result.potentials is result.potential_a is None
    x = torch.tensor(x)
    with pytest.warns(UserWarning, match="unbalanced: is None"):
        assert monge.solve_gromov_sample(x, y, unbalanced_type="partial").report.marginals == "balanced"


def test_open_marginals_map_and_pickle(small):
    x, y = small
    for given in (dict(reg=1.0, unbalanced=2.0), dict(unbalanced_type="semirelaxed")):
        result = monge.solve_gromov_sample(x, y, **given)
        np.testing.assert_allclose(result.transform(x), result.transform(), atol=1e-5)
        copy = pickle.loads(pickle.dumps(result))
        np.testing.assert_allclose(copy.plan, result.plan, rtol=1e-11)
        assert copy.value == result.value


def test_pickles_keep_the_plan(clouds):
    x, y, s, t, a, b = clouds
    for reg in (None, 10.0):
        result = monge.solve_gromov_sample(x, y, a=a, b=b, reg=reg)
        copy = pickle.loads(pickle.dumps(result))
        np.testing.assert_allclose(copy.plan, result.plan, rtol=1e-11)  # Potentials are rounded once more.
        assert copy.value == result.value and [s.value for s in copy.starts] == [s.value for s in result.starts]
        with pytest.raises(RuntimeError, match="gradients: the result was pickled"):
            copy.gradients()


def test_float32_and_frameworks(clouds):
    x, y, s, t, a, b = clouds
    result = monge.solve_gromov_sample(x.astype(np.float32), y.astype(np.float32), reg=10.0)
    assert result.plan.dtype == result.value.dtype == result.gradients().x.dtype == np.float32
    torch = pytest.importorskip("torch")
    tensors = monge.solve_gromov_sample(torch.tensor(x), torch.tensor(y), reg=10.0)
    assert isinstance(tensors.transform(), torch.Tensor) and isinstance(tensors.value, torch.Tensor)


def test_progress_stops_and_sees_the_search(clouds):
    x, y, s, t, a, b = clouds
    seen = []

    def progress(state):
        seen.append(state)
        return len(seen) < 8

    result = monge.solve_gromov_sample(x, y, reg=1.0, progress=progress)
    assert result.status == "stopped" and len(seen) == 8 and seen[-1].start >= seen[0].start


@pytest.mark.parametrize("loss", ["L2", "KL"])
@pytest.mark.parametrize("seed", range(3))
def test_unbalanced_steps_that_would_go_back_and_forth_converge(seed, loss):
    random = np.random.default_rng(seed)
    graphs = [np.triu(random.random((n, n)) < 0.4, 1).astype(float) for n in (8, 6)]
    given = [graph + graph.T for graph in graphs]
    size = (given[0] ** 2).mean()
    result = monge.solve_gromov(*given, loss=loss, reg=0.02 * size, unbalanced=size)
    assert result.converged, result.report.message


@pytest.mark.parametrize("seed", range(24, 29))
def test_a_plan_with_open_marginals_is_a_start_that_no_step_leaves_for_a_worse_one(seed):
    random = np.random.default_rng(seed)
    x, y = random.normal(size=(8, 3)), random.normal(size=(7, 2))
    costs = [((points[:, None] - points) ** 2).sum(-1) for points in (x, y)]
    for given in (dict(unbalanced=0.6, unbalanced_type="partial"), dict(unbalanced_type="semirelaxed")):
        first = monge.solve_gromov(*costs, starts=1, **given)
        again = monge.solve_gromov(*costs, plan_init=first.plan, **given)
        assert again.converged and again.value <= first.value * (1 + 1e-9)


def test_unbalanced_points_have_one_plan_beside_itself():
    random = np.random.default_rng(7)
    x, y = random.normal(size=(8, 2)), random.normal(size=(6, 3))
    size = (((x[:, None] - x) ** 2).sum(-1) ** 2).mean()
    result = monge.solve_gromov_sample(x, y, reg=0.02 * size, unbalanced=0.1 * size, starts=1)
    assert result.converged and result.value < 0.43  # Full steps alternate between two plans, of 1.82 and 0.56.


@pytest.mark.parametrize(
    "given, error, message",
    [
        (
            dict(metric="euclidean"),
            NotImplementedError,
            "metric: is 'euclidean'; must be 'sqeuclidean'; solve_gromov takes matrices",
        ),
        (dict(unbalanced=1.0), NotImplementedError, "reg: is 0 and marginals are unbalanced; must be > 0, the entropy"),
        (dict(unbalanced=-1.0, reg=1.0), ValueError, "unbalanced: is -1; must be finite and >= 0"),
        (dict(unbalanced=1.0, penalty_a=1.0), ValueError, "unbalanced: is given with penalty_a, which is the same"),
        (dict(unbalanced=0, unbalanced_type="partial"), ValueError, "unbalanced: is 0; must be > 0 and at most 1"),
        (dict(unbalanced=2, unbalanced_type="partial"), ValueError, "unbalanced: is 2; must be > 0 and at most 1"),
        (
            dict(unbalanced=0.5, unbalanced_type="partial", reg=1.0),
            NotImplementedError,
            "reg: is > 0 and marginals of points are partial",
        ),
        (dict(unbalanced=1.0, unbalanced_type="L2"), NotImplementedError, "unbalanced_type: is 'L2'; must be 'KL'"),
        (dict(reg_type="L2"), NotImplementedError, "reg_type: is 'L2'; must be 'entropy' or 'KL'"),
        (dict(reg=-1.0), ValueError, "reg: is -1; must be finite and >= 0"),
        (dict(method="proximal"), ValueError, "method: is proximal without entropy; must be alternating"),
        (dict(method="BAPG", reg=1.0), ValueError, "method: is 'BAPG'; must be alternating or proximal"),
        (dict(s=[[1.0]] * 3), ValueError, "t: is missing; features need both s and t"),
        (dict(X_a=[[np.nan]] * 3), ValueError, "X_a: row 0, column 0 is nan; coordinates must be finite"),
        (dict(tol=0), ValueError, "tol: is 0; must be finite and > 0"),
        (dict(starts=-1), ValueError, "starts: is -1; must be >= 0"),
        (dict(epsilon=1.0), TypeError, "epsilon: is no option; did you mean reg?"),
        (dict(certificate="global"), TypeError, "certificate: is no option; did you mean gap?"),
    ],
)
def test_refusals(given, error, message):
    assert_named(monge.solve_gromov_sample, dict(X_a=[[0.0], [1.0], [3.0]], X_b=[[0.0], [2.0]]) | given, error, message)


def frank_wolfe_gap(x, y, plan, semirelaxed):
    """<C, P> less its minimum over plans with the rows of P and, unless they are open, its columns; C = dE / dP."""
    c, d, row, column = squared_distances(x, x), squared_distances(y, y), plan.sum(1), plan.sum(0)
    slope = 2 * ((c**2 @ row)[:, None] + d**2 @ column - 2 * c @ plan @ d)
    least = slope.min(1) @ row if semirelaxed else monge.emd2(row, column * (row.sum() / column.sum()), slope)
    return (slope * plan).sum() - least, 1e-13 * abs(slope).max() * row.sum() * plan.size


@pytest.mark.filterwarnings("ignore::monge.ConvergenceWarning")
@pytest.mark.parametrize("semirelaxed", [True, False])
def test_stationarity_is_that_of_the_plan_wherever_a_search_ends(semirelaxed):
    open_columns = dict(unbalanced_type="semirelaxed") if semirelaxed else {}
    for seed in range(20):
        random = np.random.default_rng(seed)
        n, m = random.integers(2, 30, 2)
        x, y = random.integers(0, 4, (n, 2)).astype(float), random.normal(size=(m, 3))
        for steps in (1, 2, 4, 50):
            result = monge.solve_gromov_sample(x, y, starts=seed % 3, max_iter=steps, **open_columns)
            gap, rounding = frank_wolfe_gap(x, y, result.plan, semirelaxed)
            assert result.stationarity == pytest.approx(gap, abs=rounding)
            assert result.value == pytest.approx(energy(x, y, result.plan), abs=rounding)
            assert max(start.iterations for start in result.starts) <= steps
        result = monge.solve_gromov_sample(x, y, method="proximal", reg=5.0, max_iter=40, **open_columns)
        gap, rounding = frank_wolfe_gap(x, y, result.plan, semirelaxed)
        # The plan misses the columns by a tenth of the tolerance.
        assert result.stationarity == pytest.approx(gap, abs=rounding + 1e-5 * abs(result.value) + 1e-5)


def test_a_search_that_is_cut_off_returns_where_it_was():
    """Conditional gradients from the product plan, with steps of length 1 / k between two plans: 6.5 + O(1 / k^2)."""
    with pytest.warns(monge.ConvergenceWarning, match="more steps would help"):
        result = monge.solve_gromov_sample(
            [[0.0], [2.0]], [[0.0], [1.0], [3.0]], unbalanced_type="semirelaxed", starts=1
        )
    assert result.value == pytest.approx(6.5, abs=1e-3)


def test_semirelaxed_proximal_plans_converge_where_they_are_stationary():
    """Entries that are almost 0 grow slowly, so small changes alone may be those at a saddle point."""
    random = np.random.default_rng(3)
    x, y = random.normal(size=(25, 3)), random.normal(size=(20, 2))
    options = dict(reg=5.0, unbalanced_type="semirelaxed", starts=1)
    for tol in (1e-5, 1e-9):
        with pytest.warns(monge.ConvergenceWarning, match="another plan lowers the linearised objective by"):
            result = monge.solve_gromov_sample(x, y, tol=tol, **options)
        assert result.status == "iteration_limit" and result.stationarity > 0.01 * result.value
        exact = monge.solve_gromov_sample(x, y, unbalanced_type="semirelaxed", plan_init=result)
        assert exact.value < 0.95 * result.value
    x, y = np.random.default_rng(0).normal(size=(30, 3)), np.random.default_rng(0).normal(size=(30, 3))
    result = monge.solve_gromov_sample(x, y, reg=5.0, unbalanced_type="semirelaxed")
    assert result.converged and result.value < 1e-3


def test_a_plan_that_no_step_improves_may_be_a_saddle_point():
    x, y = [[0.0, 2], [1, 1], [0, 2], [1, 2]], [[1.0, 1], [0, 1], [0, 2], [0, 2]]
    result = monge.solve_gromov_sample(x, y, starts=1)
    assert result.converged and result.report.message == "no step lowers the value: a stationary plan"
    assert result.value > 0.4 and monge.solve_gromov_sample(x, y).value < 1e-12


@pytest.mark.parametrize("seed", [55, 96, 182])
def test_unbalanced_searches_go_on_while_no_plan_has_kept_its_mass(seed):
    """Three steps of a start are no end: the other starts are finished, too, and the error says what has happened."""
    random = np.random.default_rng(seed)
    x, y, penalty = random.normal(size=(8, 2)) * 3, random.normal(size=(7, 2)) * 3, random.uniform(0.3, 3)
    try:
        result = monge.solve_gromov_sample(x, y, reg=0.3, unbalanced=penalty)
    except ValueError as error:
        text = (
            f"unbalanced: is {penalty}; must be larger, or starts more, since plans from 6 of them have lost their mass"
        )
        assert str(error).startswith(text)
    else:
        assert result.converged and result.starts[result.report.best].finished


def test_the_error_of_a_plan_without_mass_has_the_number_that_was_given():
    x = np.random.default_rng(0).normal(size=(6, 2)) * 3
    given = dict(reg=0.05, unbalanced=0.05)
    with pytest.raises(
        ValueError, match=r"^unbalanced: is 0.05; must be larger, or starts more, since plans from 1 of"
    ):
        monge.solve_gromov_sample(x, x[::-1], **given, starts=1)
    assert monge.solve_gromov_sample(x, x[::-1], **given).report.mass > 0.5
    c = squared_distances(x, x)
    with pytest.raises(ValueError, match=r"^reg_marginals: is 0.15; must be larger, or starts more"):
        monge.fused_unbalanced_gromov_wasserstein(c, c[::-1, ::-1], reg_marginals=0.15, epsilon=0.025)


@pytest.mark.parametrize("weight", [0, 1e-200, 1e-300])
@pytest.mark.parametrize("options", [dict(unbalanced_type="semirelaxed"), dict(unbalanced=1.0)])
def test_constant_clouds_beside_a_weight_of_nearly_nothing(weight, options):
    options = dict(b=[weight, 1.0], reg=0.1, **options)
    result = monge.solve_gromov_sample(np.full((3, 1), 3.3), [[0.0], [1.0]], **options)
    assert abs(result.value) < 1e-15 and result.converged


def test_messages_have_the_words_of_python(clouds):
    x, y, *_ = clouds
    for options in (dict(unbalanced_type="semirelaxed"), dict(unbalanced=0.5, unbalanced_type="partial"), {}):
        with pytest.raises(ValueError, match="^reg: is 1e-16, too far below the objective"):
            monge.solve_gromov(squared_distances(x, x), squared_distances(y, y), reg=1e-16, **options)
    with pytest.raises(
        ValueError, match="^b: the total is 80; .* semi-relaxed, partial and unbalanced plans take any"
    ) as e:
        monge.solve_gromov_sample(x, y, a=np.ones(100), b=np.ones(80))
    assert str(e.value).count("equal") == 1
    with pytest.raises(ValueError, match="^X_a, X_b: the objective is up to inf"):
        monge.solve_gromov_sample([[0.0], [1e76]], [[0.0], [1e76]], a=[1e100, 1e100], b=[1e100, 1e100])
    result = monge.solve_gromov_sample(x, y, reg=20.0, starts=1)
    assert f"value {result.value:.6g}, " in repr(result) and f"starts product {result.value:.6g}>" in repr(result)


@pytest.mark.parametrize(
    "options", [{}, dict(unbalanced_type="semirelaxed"), dict(unbalanced=0.7, unbalanced_type="partial")]
)
@pytest.mark.parametrize("calls", [1, 2, 5])
def test_a_search_that_was_stopped_has_a_plan_and_no_stationarity(clouds, options, calls):
    x, y, *_ = clouds
    left = iter(range(calls - 1, -1, -1))
    result = monge.solve_gromov_sample(x, y, starts=1, progress=lambda _: next(left) > 0, **options)
    assert result.status == "stopped" and np.isnan(result.stationarity)
    assert result.plan.sum() == pytest.approx(options.get("unbalanced", 1), rel=1e-12)
    assert result.value == pytest.approx(energy(x, y, result.plan), rel=1e-9)
