"""Derivatives of what results have, and of POT's functions, by tensors that were given to monge."""

import math

import numpy as np
import ot
import pytest
import torch
from torch.autograd import gradcheck

import monge
import monge.torch

N, M = 7, 6
GENERATOR = torch.Generator().manual_seed(0)


def rand(*shape):
    return torch.rand(*shape, generator=GENERATOR, dtype=torch.float64)


X, Y, COST = rand(N, 3), rand(M, 3) + 0.3, rand(N, M)
LOGS_A, LOGS_B = rand(N), rand(M)
OF_PLAN, OF_F, OF_G = rand(N, M) - 0.5, rand(N) - 0.5, rand(M) - 0.5
OF_G += (OF_F.sum() - OF_G.sum()) / M  # (f + t, g - t) are potentials, too.
OUTPUTS = {
    "value": lambda r: r.value,
    "value_linear": lambda r: r.value_linear,
    "plan": lambda r: (r.plan * OF_PLAN).sum(),
    "potentials": lambda r: r.potentials[0] @ OF_F + r.potentials[1] @ OF_G,
}
TIGHT = {"reg": 0.3, "tol": 1e-13}


def right(function, *inputs):
    """Central differences of 1e-5 leave 1e-10 of a third derivative, and 1e-8 of what a solve leaves."""
    return gradcheck(function, tuple(v.clone().requires_grad_() for v in inputs), eps=1e-5, atol=1e-6)


def weights(logs, unbalanced):
    return logs.softmax(0) if unbalanced is None else logs.exp()


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("unbalanced", [None, 1.0, (0.7, math.inf)], ids=["balanced", "unbalanced", "semi"])
@pytest.mark.parametrize("costs", ["matrix", "sqeuclidean", "dot"])
def test_results(costs, unbalanced, name):
    def of_matrix(cost, p, q):
        a, b = weights(p, unbalanced), weights(q, unbalanced)
        return OUTPUTS[name](monge.solve(cost, a, b, unbalanced=unbalanced, **TIGHT))

    def of_points(x, y, p, q):
        a, b = weights(p, unbalanced), weights(q, unbalanced)
        return OUTPUTS[name](monge.solve_sample(x, y, a, b, metric=costs, unbalanced=unbalanced, **TIGHT))

    if costs == "matrix":
        assert right(of_matrix, COST, LOGS_A, LOGS_B)
    else:
        offset = 100.0 if costs == "sqeuclidean" else 0.0
        assert right(of_points, X + offset, Y + offset, LOGS_A, LOGS_B)


def soft(logs):
    return logs.softmax(0)


CLASSIC = {
    "sinkhorn": lambda c, p, q: (monge.sinkhorn(soft(p), soft(q), c, 0.3, stopThr=1e-13) * OF_PLAN).sum(),
    "sinkhorn2": lambda c, p, q: monge.sinkhorn2(soft(p), soft(q), c, 0.3, stopThr=1e-13),
    "sinkhorn2_of_columns": lambda c, p, q: monge.sinkhorn2(
        soft(p), torch.stack([soft(q), soft(-q)], 1), c, 0.3, stopThr=1e-13
    ),
    "sinkhorn_unbalanced": lambda c, p, q: (
        monge.sinkhorn_unbalanced(p.exp(), q.exp(), c, 0.3, 1.0, stopThr=1e-13) * OF_PLAN
    ).sum(),
    "sinkhorn_unbalanced2": lambda c, p, q: monge.sinkhorn_unbalanced2(p.exp(), q.exp(), c, 0.3, 1.0, stopThr=1e-13),
    "sinkhorn_unbalanced2_total": lambda c, p, q: monge.sinkhorn_unbalanced2(
        p.exp(), q.exp(), c, 0.3, 1.0, returnCost="total", stopThr=1e-13
    ),
    "entropy": lambda c, p, q: monge.solve(c, soft(p), soft(q), reg_type="entropy", **TIGHT).value,
}
EMPIRICAL = {
    "empirical_sinkhorn": lambda x, y, p, q: (
        monge.empirical_sinkhorn(x, y, 0.3, soft(p), soft(q), stopThr=1e-13) * OF_PLAN
    ).sum(),
    "empirical_sinkhorn2": lambda x, y, p, q: monge.empirical_sinkhorn2(x, y, 0.3, soft(p), soft(q), stopThr=1e-13),
    "empirical_sinkhorn_divergence": lambda x, y, p, q: monge.empirical_sinkhorn_divergence(
        x, y, 0.3, soft(p), soft(q), stopThr=1e-13
    ),
}


@pytest.mark.parametrize("name", [*CLASSIC, *EMPIRICAL])
def test_functions_of_pot(name):
    if name in CLASSIC:
        assert right(CLASSIC[name], COST, LOGS_A, LOGS_B)
    else:
        assert right(EMPIRICAL[name], X, Y, LOGS_A, LOGS_B)


def test_they_are_those_of_pots_sweeps():
    given = [v.clone().requires_grad_() for v in (COST, soft(LOGS_A), soft(LOGS_B))]
    for ours, theirs in (
        (monge.sinkhorn2, ot.sinkhorn2),
        (
            lambda c, a, b, reg, **rest: monge.solve(c, a, b, reg, reg_type="entropy", tol=1e-13).value,
            lambda c, a, b, reg, **rest: ot.solve(c, a, b, reg, reg_type="entropy", tol=1e-13).value,
        ),
    ):
        order = (1, 2, 0) if ours is monge.sinkhorn2 else (0, 1, 2)
        inputs = [given[k] for k in order]
        own = torch.autograd.grad(ours(*inputs, 0.3, stopThr=1e-13), given)
        found = torch.autograd.grad(theirs(*inputs, 0.3, stopThr=1e-13), given)
        for p, q in zip(own, found):
            difference = p - q if p.ndim == 2 else (p - q) - (p - q).mean()
            assert difference.abs().max() <= 1e-11


@pytest.mark.parametrize("name", ["value", "value_linear", "plan", "potentials"])
def test_batches(name):
    logs = torch.stack([LOGS_A, -LOGS_A])
    costs, clouds, targets = rand(2, N, M), rand(2, N, 3), rand(2, M, 3)

    def together(batch):
        found = getattr(batch, name)
        return found if name != "potentials" else found[0] @ OF_F + found[1] @ OF_G

    of_costs = lambda c, p: together(monge.solve_batch(c, a=p.softmax(1), reg_type="KL", **TIGHT))  # noqa: E731
    of_points = lambda x, y, p: together(monge.solve_sample_batch(x, y, a=p.softmax(1), **TIGHT))  # noqa: E731
    assert right(of_costs, costs, logs) and right(of_points, clouds, targets, logs)
    batch = monge.solve_batch(costs.clone().requires_grad_(), a=logs.softmax(1), reg_type="KL", **TIGHT)
    each = [monge.solve(cost, p, **TIGHT) for cost, p in zip(costs, logs.softmax(1))]
    if name == "potentials":
        assert all((batch.potentials[0][k] == each[k].potentials[0]).all() for k in range(2))
    else:
        assert (getattr(batch, name) == torch.stack([getattr(result, name) for result in each])).all()


def test_batches_of_several_shapes():
    def values(x, y):
        return monge.solve_sample_batch([x, x[:3]], [y, y], **TIGHT).value

    def plans(x, y):
        whole, part = monge.solve_sample_batch([x, x[:3]], [y, y], **TIGHT).plan
        return (whole * OF_PLAN).sum() + (part * OF_PLAN[:3]).sum()

    assert right(values, X, Y) and right(plans, X, Y)
    assert right(lambda c: monge.solve_batch(c, 0.3, reg_type="L2", tol=1e-12).value, rand(2, N, M))


LABELS = {
    "labels_x": np.array([0, 1, 0, 1, 2, 2, 0]),
    "labels_y": np.array([0, 1, 2, 1, 0, 1]),
    "label_cost": np.arange(9.0).reshape(3, 3) / 9,
    "label_weight": 0.7,
}
COSTS = {
    "euclidean": {"metric": "euclidean"},
    "cosine": {"metric": "cosine"},
    "cityblock": {"metric": "cityblock"},
    "chebyshev": {"metric": "chebyshev"},
    "p-norm": {"metric": "p-norm", "norm_p": 3.0},
    "sqeuclidean_labels": LABELS,
    "cosine_labels": {"metric": "cosine", **LABELS},
}


@pytest.mark.parametrize("block", [1 << 22, 2 * M], ids=["one_block", "blocks"])
@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("cost", COSTS)
def test_costs_of_points(cost, name, block, monkeypatch):
    monkeypatch.setattr(monge.torch._points, "_BLOCK", block)

    def output(x, y, p):
        return OUTPUTS[name](monge.solve_sample(x, y, soft(p), scale=1.3, **COSTS[cost], **TIGHT))

    assert right(output, X, Y, LOGS_A)


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "cityblock"])
def test_divergences_and_quadratic_plans_of_other_costs(metric):
    given = {"metric": metric, "tolerance": 1e-12}

    def divergence(x, y, p):
        return monge.sinkhorn_divergence(x, y, soft(p), reg=0.3, **given).value

    def quadratic(x, y, p):
        return monge.solve_regularized_sample(x, y, soft(p), quadratic=0.3, **given).value

    assert right(divergence, X, Y, LOGS_A) and right(quadratic, X, Y, LOGS_A)
    x = X.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(monge.sinkhorn_divergence(x, x, reg=0.3, **given).value, x)
    assert gradient.abs().max() <= 1e-9  # Least where both are equal; points on each other pull nowhere.


def test_forbidden_pairs_and_float32():
    cost = COST.clone()
    cost[0, 1] = math.inf
    cost.requires_grad_()
    (gradient,) = torch.autograd.grad(monge.solve(cost, **TIGHT).value_linear, cost)
    assert gradient[0, 1] == 0 and gradient.isfinite().all() and (gradient != 0).sum() == N * M - 1
    wide, narrow = COST.clone().requires_grad_(), COST.float().requires_grad_()
    for name, output in OUTPUTS.items():
        (own,) = torch.autograd.grad(output(monge.solve(wide, **TIGHT)), wide)
        double = lambda r: type("Doubles", (), {name: _doubled(getattr(r, name))})()  # noqa: B023, E731
        (single,) = torch.autograd.grad(output(double(monge.solve(narrow, reg=0.3, tol=1e-6))), narrow)
        # The potentials end within 1e-6 of the mass, and the entries change by that over eps at most.
        assert single.dtype == torch.float32 and (own - single).abs().max() <= 1e-4 * own.abs().max()


def _doubled(found):
    return tuple(v.double() for v in found) if isinstance(found, tuple) else found.double()


def test_what_there_is_not_is_said():
    cost = COST.clone().requires_grad_()
    a = torch.tensor([0.0, *[1 / 6] * 6], dtype=torch.float64, requires_grad=True)
    with pytest.raises(NotImplementedError, match="^a: has entries of 0"):
        monge.solve(COST, a, reg=0.3).plan.sum().backward()
    monge.solve(COST, a, reg=0.3).value.backward()
    with pytest.raises(TypeError, match="^plan: depends on a tensor that requires a gradient; M, or X_a, must be"):
        monge.solve(COST.numpy(), a, reg=0.3).plan  # noqa: B018
    for output in OUTPUTS.values():
        (gradient,) = torch.autograd.grad(output(monge.solve(cost, reg=0.3)), cost, create_graph=True)
        with pytest.raises(NotImplementedError, match="has no second derivatives"):
            gradient.square().sum().backward()


def test_plans_are_kept_without_their_graph():
    cost = COST.clone().requires_grad_()
    result = monge.solve(cost, reg=0.3)
    first, second = result.plan, result.plan
    assert first.requires_grad and not result._dense_plan.requires_grad
    assert first.data_ptr() == second.data_ptr()
    with torch.no_grad():
        assert not result.plan.requires_grad
    with pytest.warns(monge.ConvergenceWarning, match="^gradient: iteration_limit after"):
        tiny = monge.solve(rand(200, 200).requires_grad_(), reg=1e-5, method="newton", tol=1e-9)
        (tiny.plan * rand(200, 200)).sum().backward()
