"""Derivatives of exact values in PyTorch."""

import numpy as np
import pytest
import torch

import monge


def test_values_differentiate_by_points_weights_and_costs() -> None:
    random = np.random.default_rng(0)
    x, y = (torch.tensor(random.normal(size=(n, 3)), requires_grad=True) for n in (12, 9))
    result = monge.solve_exact_sample(x, y)
    result.value.backward()
    plan = result.plan.detach()
    torch.testing.assert_close(x.grad, 2 * (plan.sum(1)[:, None] * x - plan @ y).detach())
    M = torch.tensor(random.random((12, 9)), requires_grad=True)
    a = torch.full((12,), 1 / 12, dtype=torch.float64, requires_grad=True)
    value = monge.emd2(a, torch.full((9,), 1 / 9, dtype=torch.float64), M)
    value.backward()
    torch.testing.assert_close(M.grad, monge.emd(a.detach(), [], M.detach()))
    # By weights up to a constant: potentials of the optimum.
    f = monge.solve_exact(M.detach(), a.detach()).potentials[0]
    torch.testing.assert_close(a.grad - a.grad.mean(), f - f.mean())


def test_other_metrics_differentiate_too() -> None:
    x = torch.tensor(np.random.default_rng(1).normal(size=(10, 2)), requires_grad=True)
    y = torch.tensor(np.random.default_rng(2).normal(size=(10, 2)))
    result = monge.solve_exact_sample(x, y, metric="euclidean")
    result.value.backward()
    i, j, mass = result.pairs
    to = x.detach()[i] - y[j]
    torch.testing.assert_close(x.grad, mass[:, None] * to / to.norm(dim=1, keepdim=True))


def test_a_plan_is_constant_in_costs_and_points() -> None:
    random = np.random.default_rng(3)
    x, y, v = (torch.tensor(random.normal(size=(n, 2)), requires_grad=True) for n in (12, 9, 9))
    result = monge.solve_exact_sample(x, y)
    plan = result.plan.detach()
    for made in (result.plan, result.pairs[2], result.marginals[0], result.sparse_plan.to_dense()):
        gradients = torch.autograd.grad((made * made).sum(), (x, y))
        assert all(bool((gradient == 0).all()) for gradient in gradients)
    u = torch.tensor(random.normal(size=(12, 2)))
    shares = plan / plan.sum(1, keepdim=True)
    for made, through, by_targets in (
        (result.apply(v), plan.T @ u, 0 * y),
        (result.average(v), shares.T @ u, 0 * y),
        (result.transform(), 0 * v, shares.T @ u),
    ):
        found = torch.autograd.grad((u * made).sum(), (x, y, v), allow_unused=True)
        assert bool((found[0] == 0).all())
        torch.testing.assert_close(found[1], by_targets.detach())
        torch.testing.assert_close(torch.zeros_like(v) if found[2] is None else found[2], through.detach())
    # The envelope: the cost of the plan as it is has the derivative of the optimum.
    M = torch.cdist(x, y).detach().requires_grad_()
    (gradient,) = torch.autograd.grad((monge.emd([], [], M) * M).sum(), M)
    torch.testing.assert_close(gradient, monge.emd([], [], M.detach()))


def test_derivatives_that_there_are_not_are_errors() -> None:
    M = torch.tensor(np.random.default_rng(4).random((4, 5)), requires_grad=True)
    a = torch.full((4,), 0.25, dtype=torch.float64, requires_grad=True)
    by_costs, by_weights = monge.solve_exact(M), monge.solve_exact(M.detach(), a)
    with pytest.raises(NotImplementedError, match="^potentials: "):
        by_costs.potentials[0].sum().backward()
    for name, made in (("plan", by_weights.plan), ("apply", by_weights.apply(torch.ones(5)))):
        with pytest.raises(NotImplementedError, match=f"^{name}: has no derivatives by weights here"):
            made.sum().backward()
    (gradient,) = torch.autograd.grad(by_costs.value, M, create_graph=True)
    with pytest.raises(NotImplementedError, match="^value: has no second"):
        gradient.square().sum().backward()


def test_scaling_b_to_the_total_of_a_has_derivatives() -> None:
    random = np.random.default_rng(5)
    M = torch.tensor(random.random((4, 5)))
    a, b = (torch.tensor(random.random(n) + 0.5, requires_grad=True) for n in (4, 5))
    assert torch.autograd.gradcheck(lambda a, b: monge.emd2(a, b, M, check_marginals=False), (a, b))
