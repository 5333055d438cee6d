"""Derivatives in a precision that has digits enough, for plans near a matching, whose linear systems amplify rounding."""

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
    differences take, with 1e-13 of the marginals."""
    x = GRID.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(OUTPUTS[name](solve(x, reg, "auto")), x)
    assert float((gradient * ALONG).sum()) == pytest.approx(slope(OUTPUTS[name], reg, "sqeuclidean"), rel=1e-3)


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
    with pytest.warns(monge.ConvergenceWarning, match="^gradient: has an error: its linear system has the residual "):
        gradient(0.04, "auto")
    for precision in ("auto", "float64"):
        with pytest.raises(RuntimeError, match="^gradient: .* in float64; a larger reg makes it easier"):
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
