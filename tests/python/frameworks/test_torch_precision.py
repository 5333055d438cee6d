"""Derivatives in a precision that has digits enough, for plans near a matching, whose linear systems amplify rounding."""

import warnings

import pytest
import torch

import monge
import monge.torch

GENERATOR = torch.Generator().manual_seed(0)


def randn(*shape):
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


# A small reg matches points of a grid one to one with the targets close by.
GRID = torch.cartesian_prod(torch.arange(3.0, dtype=torch.float64), torch.arange(4.0, dtype=torch.float64))
N = len(GRID)
NEAR, ALONG, OF_POINTS, OF_SOURCES = GRID + 0.02 * randn(N, 2), randn(N, 2), randn(N, 2), randn(N)
OF_SOURCES -= OF_SOURCES.mean()
OUTPUTS = {
    "potentials": lambda r: r.potentials[0] @ OF_SOURCES,
    "transform": lambda r: (r.transform() * OF_POINTS).sum(),
    "new points": lambda r: (r.transform(NEAR + 0.3) * OF_POINTS).sum(),
    "apply": lambda r: (r.apply(OF_POINTS) * OF_POINTS).sum(),
    "gram": lambda r: r.apply_gram(OF_SOURCES.exp(), OF_SOURCES) @ OF_POINTS[:, 0],
    "plan": lambda r: OF_POINTS[:, 0] @ r.plan @ OF_POINTS[:, 1],
    "value_linear": lambda r: r.value_linear,
}


def solve(x, reg, precision="float64", metric="sqeuclidean"):
    """A result with potentials of float64; another precision is that of its plan alone, as after a solve that ends
    there."""
    problem = {"reg": reg, "metric": metric}
    result = monge.solve_sample(x, NEAR, precision="float64", tol=1e-13, max_iter=100000, **problem)
    if precision != "float64":
        potentials = [v.detach() for v in result.potentials]
        other = monge.plan_of_sample(*potentials, x.detach(), NEAR, precision="float32", **problem)
        result._made, result._report = other._plan, other.report
        result._options["precision"] = precision
    return result


def slope(output, reg, metric):
    step = 1e-3
    aside = [solve(GRID + k * step * ALONG, reg, metric=metric) for k in (-2, -1, 1, 2)]
    return sum(c * float(output(one)) for c, one in zip((1, -8, 8, -1), aside)) / (12 * step)


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("reg", [0.3, 0.15, 0.1, 0.08, 0.07])
def test_by_points(reg, name):
    """The system's condition number is 1e6 at 0.07: float32 leaves 10 %, and float64 1e-7 of the potentials that the
    differences take, with 1e-13 of the marginals. Float32 is trusted to a residual of 1e-4 of the right side: 0.1 % of
    a slope at 0.15, at which machines round differently."""
    x = GRID.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(OUTPUTS[name](solve(x, reg, "auto")), x)
    assert float((gradient * ALONG).sum()) == pytest.approx(slope(OUTPUTS[name], reg, "sqeuclidean"), rel=5e-3)


@pytest.mark.parametrize("name", ["potentials", "apply", "value_linear"])
def test_by_points_of_distances(name):
    x = GRID.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(OUTPUTS[name](solve(x, 0.08, "auto", "euclidean")), x)
    assert float((gradient * ALONG).sum()) == pytest.approx(slope(OUTPUTS[name], 0.08, "euclidean"), rel=1e-3)


@pytest.mark.parametrize("name", ["potentials", "plan", "value_linear"])
def test_by_costs(name):
    """A cost matrix has the gradients of its points, by the chain rule."""
    x, reg = GRID.clone().requires_grad_(), 0.07
    (expected,) = torch.autograd.grad(OUTPUTS[name](solve(x, reg)), x)
    exact = solve(x.detach(), reg)
    cost = torch.cdist(x, NEAR).square()
    result = monge.solve(cost, reg=reg, tol=1e-13, max_iter=100000)
    plan = monge.plan_of(*exact.potentials, cost.detach(), reg=reg, precision="float32")
    result._made, result._report = plan._plan, plan.report
    (gradient,) = torch.autograd.grad(OUTPUTS[name](result), x)
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


def test_constants():
    """The marginals of a balanced problem are given: terms of size 1 cancel."""
    x = GRID.clone().requires_grad_()
    for reg in (0.3, 0.07, 0.02):
        (gradient,) = torch.autograd.grad(solve(x, reg, "auto").marginals[0] @ OF_SOURCES, x)
        assert gradient.abs().max() <= 1e-12


def test_precisions_that_do_not_suffice():
    def gradient(reg, precision):
        x = GRID.clone().requires_grad_()
        return torch.autograd.grad(OUTPUTS["potentials"](solve(x, reg, precision)), x)[0]

    with pytest.raises(RuntimeError, match="^gradient: .* in float32; a larger reg, or precision='float64', makes it "):
        gradient(0.07, "float32")
    for precision in ("auto", "float64"):
        with pytest.raises(RuntimeError, match="^gradient: .* float64.*; a larger reg makes it "):
            gradient(0.02, precision)


def second_derivative(loss, precision, reg=0.01):
    """Along a direction, of clouds that are no matching."""
    generator = torch.Generator().manual_seed(1)
    x, y, v = (torch.randn(300, 2, generator=generator, dtype=torch.float64) for _ in range(3))
    x.requires_grad_()
    value = loss(x, 1.3 * y, reg=reg, tol=1e-3, precision=precision)
    (gradient,) = torch.autograd.grad(value, x, create_graph=True)
    return torch.autograd.grad((gradient * v).sum(), x)[0]


def test_second_derivatives_of_losses():
    """Both precisions end at errors of 1e-3, which move derivatives by some percent; float32's were 30 % off."""
    for loss in (monge.torch.transport, monge.torch.sinkhorn_divergence):
        exact, found = second_derivative(loss, "float64"), second_derivative(loss, "auto")
        assert (found - exact).norm() <= 0.05 * exact.norm()
        with pytest.raises(RuntimeError, match="^hessian_product: its linear system is not solved: .* in float32; a "):
            second_derivative(loss, "float32")


def exact(cost, of_f, reg, rho=(float("inf"), float("inf"))):
    """dL/dC for L = <of_f, f> of the optimum by Newton's method on dense matrices, for equal weights. At a condition
    number of 1e10 of the system 1e-6 of it is right."""
    n, m = cost.shape
    a, b = torch.full((n,), 1 / n, dtype=torch.float64), torch.full((m,), 1 / m, dtype=torch.float64)
    of_a, of_b = (reg / r for r in rho)
    gauge = torch.cat([torch.ones(n), -torch.ones(m)]).double() / n * (max(of_a, of_b) == 0)
    f, g = cost.min(1).values / 2, cost.min(0).values / 2

    def plan_of(f, g):
        return a[:, None] * b * ((f[:, None] + g - cost) / reg).exp()

    def solved(plan, left, right, of_f, of_g):
        top = torch.cat([torch.diag(plan.sum(1) + of_a * left), plan], 1)
        bottom = torch.cat([plan.T, torch.diag(plan.sum(0) + of_b * right)], 1)
        return torch.linalg.solve(torch.cat([top, bottom]) + gauge[:, None] * gauge, torch.cat([of_f, of_g])).split([n, m])

    for _ in range(2000):  # A start for Newton's method.
        f = -reg / (1 + of_a) * torch.logsumexp((g - cost) / reg + b.log(), 1)
        g = -reg / (1 + of_b) * torch.logsumexp((f[:, None] - cost) / reg + a.log()[:, None], 0)
    for _ in range(40):
        plan, left, right = plan_of(f, g), a * (-f / rho[0]).exp(), b * (-g / rho[1]).exp()
        df, dg = solved(plan, left, right, left - plan.sum(1), right - plan.sum(0))
        step = reg / max(1.0, float(df.abs().max()), float(dg.abs().max()))
        f, g = f + step * df, g + step * dg
    plan = plan_of(f, g)
    u, w = solved(plan, plan.sum(1), plan.sum(0), of_f, torch.zeros_like(b))
    return plan * (u[:, None] + w)


def two_groups():
    x, y = (torch.cat([0.3 * randn(5, 2), 0.3 * randn(5, 2) + 3]) for _ in range(2))
    return x, y


def matched():
    x = randn(10, 2)
    return x, x + 0.05 * randn(10, 2)


NEAR_PARTS = {"groups": two_groups(), "grid": (GRID, NEAR), "matching": matched()}
OF_F = {len(x): randn(len(x)) for x, _ in NEAR_PARTS.values()}
OF_F = {n: v - v.mean() for n, v in OF_F.items()}
SPREAD = [
    ("groups", 1.0, {}),
    ("groups", 0.7, {}),
    ("groups", 1.0, {"precision": "float64"}),
    ("groups", 1.0, {"unbalanced": (float("inf"), 1e4)}),
    ("groups", 1.0, {"tol": 0, "max_iter": 10}),
    ("grid", 0.07, {}),
    ("grid", 0.05, {}),
    ("grid", 0.05, {"precision": "float64", "tol": 1e-12}),
    ("matching", 0.08, {"tol": 1e-9}),
]


@pytest.mark.filterwarnings("error", "ignore:potentials. the error of this output")
@pytest.mark.parametrize("costs", ["points", "matrix", "labels", "batch"])
@pytest.mark.parametrize(("name", "reg", "options"), SPREAD)
def test_potentials_at_the_optimum(name, reg, options, costs):
    """Marginals to the tolerance leave a shift of up to some reg between parts of these plans, and derivatives at such
    potentials are up to 80 % off."""
    x, y = (v.clone() for v in NEAR_PARTS[name])
    of_f = OF_F[len(x)]
    x.requires_grad_()
    cost = torch.cdist(x, y).square()
    penalties = options.get("unbalanced", (float("inf"),) * 2)
    (expected,) = torch.autograd.grad(cost, x, exact(cost.detach(), of_f, reg, penalties), retain_graph=True)
    if costs == "points":
        result = monge.solve_sample(x, y, reg=reg, **options)
    elif costs == "labels":
        labels = torch.zeros(len(x), dtype=torch.int64)
        of_labels = {"labels_x": labels, "labels_y": labels, "label_cost": torch.zeros(1, 1, dtype=torch.float64)}
        result = monge.solve_sample(x, y, reg=reg, **of_labels, **options)
    elif costs == "matrix":
        result = monge.solve(cost, reg=reg, **options)
    else:
        result = monge.solve_sample_batch(x[None], y[None], reg=reg, **options)[0]
    (gradient,) = torch.autograd.grad(result.potentials[0] @ of_f, x)
    assert (gradient - expected).norm() <= 1e-3 * expected.norm()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("reg", [1.0, 0.3, 0.1, 0.03])
def test_other_plans_are_not_solved_again(reg):
    x, y = randn(40, 2).requires_grad_(), randn(50, 2)
    result = monge.solve_sample(x, y, reg=max(reg, 0.1), tol=1e-6 if reg > 0.1 else 1e-9)
    (result.potentials[0] @ (x[:, 0].detach() - x[:, 0].detach().mean())).backward()
    assert "_refined" not in vars(result)


@pytest.mark.filterwarnings("error")
def test_refined_potentials_have_the_time_to_converge():
    """Newton's method takes 65 iterations from these potentials. The terms of dL/dg cancel to 1e-10 of their size."""
    random = torch.Generator().manual_seed(15)
    x = torch.randn(500, 64, generator=random, dtype=torch.float64)
    y = x + 0.05 * torch.randn(500, 64, generator=random, dtype=torch.float64)
    a = torch.rand(500, generator=random, dtype=torch.float64) + 0.2
    a /= a.sum()
    y.requires_grad_()

    def derivative(tol):
        (gradient,) = torch.autograd.grad(
            monge.solve_sample(x, y, a, reg=3.2, tol=tol).transform(x[:3] + 0.01).square().sum(), y
        )
        return gradient

    expected = derivative(1e-13)
    assert (derivative(1e-4) - expected).norm() <= 1e-3 * expected.norm()


@pytest.mark.filterwarnings("ignore::monge.ConvergenceWarning")
def test_what_is_far_from_the_optimum_is_said():
    def derive(name, **options):
        x, y = (v.clone() for v in NEAR_PARTS[name])
        x.requires_grad_()
        (monge.solve_sample(x, y, **options).potentials[0] @ OF_F[len(x)]).backward()

    # At 0.06 the rounding of products decides which of two limits the derivative meets first.
    far = "^gradient: (is off by some .*, for float64 has no potentials nearer to the |its linear system is not solved: )"
    with pytest.raises(RuntimeError, match=far):
        derive("matching", reg=0.06, precision="float64")
    with pytest.warns(monge.ConvergenceWarning, match="^gradient: is off by some .*, for float64 has no potentials "):
        derive("matching", reg=0.067)
    with pytest.raises(RuntimeError, match="^gradient: is off by some .*, for the potentials are too far from the "):
        derive("groups", reg=2.0, precision="float32", tol=1e-3)


@pytest.mark.filterwarnings("error")
def test_slow_parts_that_a_function_hardly_meets():
    """The function amplifies little, so its own estimate is 4e-5; the potentials are off by more than reg / 1000."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 2, generator=generator, dtype=torch.float64)
    y = x + 0.05 * torch.randn(60, 2, generator=generator, dtype=torch.float64)
    w = torch.randn(60, generator=generator, dtype=torch.float64)

    def gradient(tol):
        to = x.clone().requires_grad_()
        result = monge.solve_sample(to, y, reg=0.05, tol=tol, max_iter=100000)
        return torch.autograd.grad(result.apply(y)[:, 0] @ w, to)[0]

    found, expected = gradient(1e-4), gradient(1e-13)
    assert (found - expected).norm() <= 1e-6 * expected.norm()


NOT_LINEAR = {
    "potentials": lambda r, y: (r.potentials[0] - r.potentials[0].mean()).square().sum(),
    "potential": lambda r, y: r.potential(y[:3]).square().sum(),
    "plan": lambda r, y: r.plan.square().sum(),
    "marginals": lambda r, y: (50 * r.marginals[0]).exp().sum(),
    "apply": lambda r, y: r.apply(y, transpose=False).square().sum(),
    "average": lambda r, y: r.average(y).square().sum(),
    "transform": lambda r, y: r.transform(y[:3]).square().sum(),
    "apply_hadamard": lambda r, y: r.apply_hadamard(y, y, y).square().sum(),
    "apply_gram": lambda r, y: r.apply_gram(y[:, 0], y[:, 1]).square().sum(),
    "value_linear": lambda r, y: r.value_linear.square(),
}


@pytest.mark.parametrize("name", NOT_LINEAR)
def test_functions_of_loose_outputs_that_are_not_linear(name):
    """Autograd takes dL/d(output) at the potentials of the solve, which refined ones do not mend."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(20, 2, generator=generator, dtype=torch.float64) for _ in range(2))

    def gradient(tol):
        to = x.clone().requires_grad_()
        result = monge.solve_sample(to, y, reg=0.2, tol=tol, precision="float64", method="sinkhorn")
        return torch.autograd.grad(NOT_LINEAR[name](result, y), to)[0]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = gradient(1e-7)
    with pytest.warns(monge.ConvergenceWarning, match=f"^{name}: the error of this output is .* not linear may be"):
        found = gradient(3e-2)
    assert (found - expected).norm() >= 1e-3 * expected.norm()


def test_functions_of_potentials_that_rounding_moves():
    x, y = NEAR_PARTS["groups"]
    for derive in (lambda r: r.potentials[0].square().sum(), lambda r: r.potential(x[:3]).square().sum()):
        result = monge.solve_sample(x.clone().requires_grad_(), y, reg=1.0)
        with pytest.warns(monge.ConvergenceWarning, match="^potentials?: the error of this output is some "):
            derive(result).backward()
