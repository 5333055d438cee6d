"""Hessian products by points, for each metric, beside PyTorch's own derivatives of the dense dual value."""

import math

import pytest
import torch

import monge
import monge.torch

N, M, EPS = 7, 5, 0.6
LABELS = {"labels_x": torch.arange(N) % 3, "labels_y": torch.arange(M) % 2, "label_cost": torch.arange(6.0).view(3, 2)}
COSTS = {
    **{metric: {"metric": metric} for metric in ("sqeuclidean", "dot", "cosine")},
    **{f"{metric}, labels": {"metric": metric, **LABELS} for metric in ("sqeuclidean", "dot", "cosine", "euclidean")},
    "euclidean": {"metric": "euclidean", "scale": 0.7},
    "cityblock": {"metric": "cityblock"},
    "chebyshev": {"metric": "chebyshev"},
    "norm 1.5": {"metric": "p-norm", "norm_p": 1.5},
    "norm 4": {"metric": "p-norm", "norm_p": 4.0},
    "norm 3, labels": {"metric": "p-norm", "norm_p": 3.0, **LABELS},
}
NORMS = {"euclidean": 2.0, "cityblock": 1.0, "chebyshev": math.inf}


def costs_of(x, y, metric, norm_p=2.0, scale=1.0, labels_x=None, labels_y=None, label_cost=None):
    """The distance of points that meet is left out of the graph: its derivatives are 0."""
    difference = x[:, None] - y
    if metric == "sqeuclidean":
        cost = difference.square().sum(2)
    elif metric == "dot":
        cost = -x @ y.T
    elif metric == "cosine":
        cost = 1 - (x / x.norm(dim=1, keepdim=True)) @ (y / y.norm(dim=1, keepdim=True)).T
    else:
        apart, p = (difference != 0).any(2), NORMS.get(metric, norm_p)
        sizes = torch.where(apart[:, :, None], difference, torch.ones_like(difference)).abs()
        cost = (sizes.amax(2) if math.isinf(p) else sizes.pow(p).sum(2).pow(1 / p)) * apart
    return scale * cost + (0 if labels_x is None else label_cost.double()[labels_x][:, labels_y])


def dense_hessian(result, x, y, a, b, unbalanced, costs):
    """Of the value in (x, y): the Schur complement of the potentials in the Hessian of the dual value."""
    f, g = (torch.as_tensor(v) for v in result.potentials)

    def phi(v):
        return v if unbalanced is None else unbalanced * (1 - (-v / unbalanced).exp())

    def dual(z):
        f, g, x_flat, y_flat = z.split([N, M, x.numel(), y.numel()])
        cost = costs_of(x_flat.view_as(x), y_flat.view_as(y), **costs)
        plan = a[:, None] * b * ((f[:, None] + g - cost) / EPS).exp()
        return a @ phi(f) + b @ phi(g) - EPS * plan.sum()

    whole = torch.autograd.functional.hessian(dual, torch.cat([f, g, x.flatten(), y.flatten()]), vectorize=True)
    of_points, of_both, of_potentials = whole[N + M :, N + M :], whole[N + M :, : N + M], whole[: N + M, : N + M]
    # Potentials of points without weight have no effect, nor has the constant of balanced ones.
    return of_points - of_both @ torch.linalg.pinv(of_potentials, rtol=1e-12, hermitian=True) @ of_both.T


def problem(d):
    """Uneven weights, also of 0; points that are equal, on one side and on both."""
    generator = torch.Generator().manual_seed(d)
    x, y = (torch.randn(k, d, generator=generator, dtype=torch.float64) / d**0.5 for k in (N, M))
    a, b = (torch.rand(k, generator=generator, dtype=torch.float64) + 0.2 for k in (N, M))
    a[2] = b[4] = 0
    x[1], y[0] = x[0], x[3]
    v = torch.randn((N + M) * d, generator=generator, dtype=torch.float64)
    return x, y, a / a.sum(), b / b.sum(), v


def assert_near(found, expected, relative):
    """In one dimension the products of the cosine are 0, and those expected are rounding."""
    assert (found - expected).norm() <= relative * expected.norm() + 1e-14


@pytest.mark.parametrize("unbalanced", [None, 1.3])
@pytest.mark.parametrize("d", [1, 2, 3, 17, 64])
@pytest.mark.parametrize("name", COSTS)
def test_products_are_those_of_the_dense_dual(name, d, unbalanced):
    x, y, a, b, v = problem(d)
    costs = COSTS[name]
    result = monge.solve_sample(x, y, a, b, reg=EPS, unbalanced=unbalanced, tol=1e-14, **costs)
    hessian = dense_hessian(result, x, y, a, b, unbalanced, costs)
    of_x = N * d
    by_x, by_y, report = result.hessian_product(v[:of_x].view(N, d), v[of_x:].view(M, d), tolerance=1e-12)
    assert report.status == "converged"
    assert_near(torch.cat([by_x.flatten(), by_y.flatten()]), hessian @ v, 1e-8)
    one = result.hessian_product(v[:of_x].view(N, d), tolerance=1e-12)[1].flatten()
    assert_near(one, hessian[of_x:, :of_x] @ v[:of_x], 1e-8)

    def value(x, y):
        return monge.torch.transport(x, y, a, b, reg=EPS, unbalanced=unbalanced, tol=1e-14, **costs)

    twice = torch.autograd.functional.vhp(value, (x, y), (v[:of_x].view(N, d), v[of_x:].view(M, d)))[1]
    assert_near(torch.cat([by.flatten() for by in twice]), hessian @ v, 1e-8)


@pytest.mark.parametrize("name", COSTS)
def test_products_in_float32_have_its_digits(name):
    """Costs and entries are off by some u / EPS of their size, and products of them likewise."""
    x, y, a, b, v = (v.float() for v in problem(3))
    result = monge.solve_sample(x, y, a, b, reg=EPS, tol=1e-6, precision="float32", **COSTS[name])
    wide = (v.double() for v in (x, y, a, b))
    hessian = dense_hessian(result, *wide, None, COSTS[name])
    by_x, by_y, report = result.hessian_product(v[: N * 3].view(N, 3), v[N * 3 :].view(M, 3))
    assert report.status == "converged" and by_x.dtype == torch.float32
    assert_near(torch.cat([by_x.flatten(), by_y.flatten()]).double(), hessian @ v.double(), 1e-5)
