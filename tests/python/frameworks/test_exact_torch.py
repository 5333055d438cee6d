"""Derivatives of exact values in PyTorch."""

import numpy as np
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
