"""PyTorch on the CPU: regularised plans, their values with derivatives, RDROT's functions."""

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

import monge
import monge.torch

N, M = 9, 8


def costs(*batch, dtype=torch.float64, seed=0):
    return torch.rand(*batch, N, M, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def logits(size, seed=1):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64, requires_grad=True)


GROUPS = torch.arange(N) % 3
QUADRATIC = {"quadratic": 1.0, "tolerance": 1e-12}
LASSO = {"group_lasso": 0.05, "groups": GROUPS, "quadratic": 0.2, "tolerance": 1e-11, "iterations": 10**6}


@pytest.mark.parametrize("terms", [QUADRATIC, LASSO], ids=["quadratic", "group_lasso"])
def test_derivatives(terms):
    def value(cost, p, q):
        return monge.torch.regularized_transport(cost, p.softmax(-1), q.softmax(-1), **terms)[0]

    # Values are good to 1e-11 of themselves, so their differences over eps to 1e-6; they are piecewise smooth.
    cost = costs().requires_grad_()
    assert gradcheck(value, (cost, logits(N), logits(M, 2)), eps=1e-5, atol=1e-5)
    batch = costs(2).requires_grad_()
    p, q = (torch.stack([logits(size, k) for k in (1, 2)]).detach().requires_grad_() for size in (N, M))
    assert gradcheck(value, (batch, p, q), eps=1e-5, atol=1e-5)
    each = torch.stack([value(batch[k], p[k], q[k]) for k in range(2)])
    torch.testing.assert_close(value(batch, p, q), each, rtol=0, atol=0)


def test_the_derivative_by_the_costs_is_the_plan():
    cost = costs().requires_grad_()
    value, plan = monge.torch.regularized_transport(cost, **QUADRATIC)
    result = monge.solve_regularized(cost.detach().numpy(), **QUADRATIC)
    assert float(value.detach()) == result.value and not plan.requires_grad
    np.testing.assert_array_equal(plan.numpy(), result.plan)
    (3 * value).backward()
    torch.testing.assert_close(cost.grad, 3 * plan, rtol=0, atol=0)


def test_tol_and_max_iter_are_those_of_solve():
    cost = costs()
    plans = [
        monge.torch.regularized_transport(cost, quadratic=1.0, **options)[1]
        for options in ({"tolerance": 1e-12}, {"tol": 1e-12}, {"tol": torch.tensor(1e-12, dtype=torch.float64)}, {})
    ]
    assert torch.equal(plans[0], plans[1]) and torch.equal(plans[0], plans[2])
    assert not torch.equal(plans[0], plans[3])
    with pytest.warns(monge.ConvergenceWarning):
        monge.torch.regularized_transport(cost, quadratic=0.01, tol=1e-12, max_iter=2)


def test_there_is_no_second_derivative():
    cost = costs().requires_grad_()
    (gradient,) = torch.autograd.grad(monge.torch.regularized_transport(cost, **QUADRATIC)[0], cost, create_graph=True)
    with pytest.raises(NotImplementedError, match="^regularized_transport: has no second derivatives"):
        gradient.square().sum().backward()
    weights = torch.rand(N, M, dtype=torch.float64, requires_grad=True)
    value, _ = monge.torch.regularized_transport(cost, l1=0.1, l1_weights=weights)
    with pytest.raises(NotImplementedError, match="detach the regulariser"):
        value.backward()


def test_the_value_of_a_result_has_gradients():
    x, y = torch.randn(2, N, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x, y = x.requires_grad_(), y.requires_grad_()

    def by_points(x, y, p):
        return monge.solve_regularized_sample(x, y, p.softmax(0), **QUADRATIC).value

    def by_dot(x, y, p):
        return monge.solve_regularized_sample(x, y, p.softmax(0), metric="dot", scale=0.5, **QUADRATIC).value

    def by_costs(cost, p):
        return monge.solve(cost, p.softmax(0), reg=1.0, reg_type="L2", tol=1e-12).value

    for value, given in (
        (by_points, (x, y, logits(N))),
        (by_dot, (x, y, logits(N))),
        (by_costs, (costs().requires_grad_(), logits(N))),
    ):
        assert gradcheck(value, given, eps=1e-5, atol=1e-5)


def test_tensors_in_tensors_out():
    cost = costs(dtype=torch.float32)
    result = monge.solve_regularized(cost, group_lasso=0.05, groups=GROUPS, mask=torch.eye(N, M) == 0)
    for tensor in (result.plan, result.value, *result.potentials, result.average(torch.ones(M))):
        assert isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float32
    torch.testing.assert_close(result.sparse_plan.to_dense(), result.plan, rtol=0, atol=0)
    indices, values = result.topk(3)
    torch.testing.assert_close(values, result.plan.topk(3).values, rtol=0, atol=0)
    assert (result.plan[result.sample(100)] > 0).all() and indices.dtype == torch.int64
    x, y = torch.randn(2, N, 3, generator=torch.Generator().manual_seed(0))
    points = monge.solve_regularized_sample(x, y, **QUADRATIC)
    for tensor in (points.transform(x[:2]), points.potential(x[:2], torch.ones(2))):
        assert isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float32
    # Costs of float32 points; the error of a marginal goes where the weight of the row says.
    torch.testing.assert_close(points.transform(x), points.transform(), rtol=1e-4, atol=1e-4)


def recursion(cost, p, q, rho, prox, iterations=20000):
    """Douglas-Rachford splitting of RDROT, dense: X = prox([Z - C rho / (n + m)]_+), then Z moves by the projection of
    2 X - Z on the marginals less X."""
    n, m = cost.shape
    step = rho / (n + m)
    z = np.outer(p, q)
    for _ in range(iterations):
        x = prox(np.maximum(z - step * cost, 0))
        reflected = 2 * x - z
        row, column = reflected.sum(1) - p, reflected.sum(0) - q
        z = z - x + reflected - row[:, None] / m - column[None, :] / n + row.sum() / (n * m)
    return x


@pytest.mark.parametrize("rho", [1.0, 2.0])
def test_rdrot(rho):
    """Their prox operators as their extension has them, w being r_weight: X / (1 + rho w), and the norms of the groups
    of a column less w sqrt(n / G)."""
    # Their costs have a row for each entry of q.
    cost = costs() / costs().max()
    p, q = logits(N).softmax(0).detach(), logits(M, 2).softmax(0).detach()
    weight, given = 0.5, (cost.T.contiguous(), p, q)
    c, a, b = (v.numpy() for v in (cost, p, q))
    smooth = monge.torch.quadratic_drot(*given, rho=rho, r_weight=weight, eps=1e-8, max_iter=10**6).T.numpy()
    # After residuals of 1e-8, the distance to the limit is 1e-8 over the rate of convergence, here above 0.02.
    theirs = recursion(c, a, b, rho, lambda x: x / (1 + rho * weight))
    np.testing.assert_allclose(smooth, theirs, atol=1e-6)
    weight = 0.02

    def shrink(x):
        norms = np.sqrt((x.reshape(3, 3, M) ** 2).sum(1, keepdims=True))
        factor = np.maximum(1 - weight * np.sqrt(N / 3) / np.maximum(norms, 1e-30), 0)
        return (factor * x.reshape(3, 3, M)).reshape(N, M)

    grouped = monge.torch.group_lasso_drot(*given, 3, rho=rho, r_weight=weight, eps=1e-8, max_iter=10**6).T.numpy()
    theirs = recursion(c, a, b, rho, shrink)
    np.testing.assert_allclose(grouped, theirs, atol=1e-6)
    plain = monge.torch.quadratic_drot(*given, rho=rho, eps=1e-8, max_iter=10**6).T.numpy()
    assert abs(plain - grouped).max() > 1e-3 and abs(plain - smooth).max() > 1e-3  # The terms do something.


@pytest.mark.parametrize("weight", [0.0, 0.1])
def test_a_sweep_of_weights_may_begin_at_0(weight):
    cost, groups = torch.rand(6, 5, dtype=torch.float64), torch.arange(6) % 2
    value, plan = monge.torch.regularized_transport(cost, quadratic=1.0, group_lasso=weight, groups=groups)
    expected = monge.solve_regularized(cost, quadratic=1.0, group_lasso=weight, groups=groups)
    assert value == expected.value and torch.equal(plan, expected.plan)
