"""Derivatives of products with plans, of averages, marginals and maps, by the problem and by their own arguments."""

import math

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

import monge
import monge.torch
from monge.torch import _points

N, M = 7, 6
GENERATOR = torch.Generator().manual_seed(3)


def rand(*shape):
    return torch.rand(*shape, generator=GENERATOR, dtype=torch.float64)


X, Y, COST = rand(N, 3), rand(M, 3) + 0.3, rand(N, M)
LOGS_A, LOGS_B = rand(N), rand(M)
U, V, NEW = rand(N, 2) - 0.5, rand(M, 2) - 0.5, rand(4, 3)
OF_F, OF_G = rand(N) - 0.5, rand(M) - 0.5
OF_G += (OF_F.sum() - OF_G.sum()) / M  # (f + t, g - t) are potentials, too.
TIGHT = {"reg": 0.3, "tol": 1e-14, "precision": "float64", "iterations": 3000}
OUTPUTS = {
    "apply": lambda r, u, v: r.apply(v),
    "apply_transpose": lambda r, u, v: r.apply(u, transpose=True),
    "apply_vector": lambda r, u, v: r.apply(v[:, 0]),
    "average": lambda r, u, v: r.average(v),
    "average_transpose": lambda r, u, v: r.average(u, transpose=True),
    "average_vector": lambda r, u, v: r.average(v[:, 1]),
    "marginals": lambda r, u, v: torch.cat(r.marginals),
    "marginal_b": lambda r, u, v: r.marginal_b,
    "push": lambda r, u, v: r.push(u),
    "pull": lambda r, u, v: r.pull(v),
    "lazy_plan": lambda r, u, v: torch.cat([(u.T @ r.lazy_plan).ravel(), (r.lazy_plan @ v).ravel()]),
    "lazy_plan_rows": lambda r, u, v: r.lazy_plan[1:3, 2:],
    "log_scalings": lambda r, u, v: r.log_scalings[0] @ OF_F + r.log_scalings[1] @ OF_G,
    "apply_hadamard": lambda r, u, v: r.apply_hadamard(u + 1, v, v + 2),
    "apply_hadamard_transpose": lambda r, u, v: r.apply_hadamard(u + 1, v, u[:, :1], transpose=True),
    "apply_gram": lambda r, u, v: r.apply_gram(u[:, 0], v[:, 1]),
    "apply_gram_transpose": lambda r, u, v: r.apply_gram(v[:, 0], u[:, 1], transpose=True),
    "inverse": lambda r, u, v: r.inverse.apply(u),
}
OF_POINTS = {
    "transform": lambda r, u, v: r.transform(),
    "transform_at": lambda r, u, v: r.transform(torch.cat([u, u[:, :1]], 1)),
    "potential_at": lambda r, u, v: r.potential(torch.cat([u, u[:, :1]], 1)).diff(),
}
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
    "labels": LABELS,
    "euclidean_labels": {"metric": "euclidean", **LABELS},
}
PENALTIES = {"balanced": None, "unbalanced": 1.0, "semi": (0.7, math.inf)}


def weights(logs, unbalanced):
    return logs.softmax(0) if unbalanced is None else logs.exp()


def slope_and_derivative(function, inputs, step=1e-4):
    """The derivative of a random linear function of the outputs along a random direction, twice: by differences of the
    fourth order, whose error is step^4 / 30 of a fifth derivative and 1e-14 / step of the solves, and by autograd."""
    generator = torch.Generator().manual_seed(5)
    directions = [torch.rand(v.shape, generator=generator, dtype=torch.float64) - 0.5 for v in inputs]
    weight = None

    def value(t, given=None):
        nonlocal weight
        out = function(*(given or [v + t * d for v, d in zip(inputs, directions)]))
        if weight is None:
            weight = torch.rand(out.shape, generator=generator, dtype=torch.float64) - 0.5
        return (out.double() * weight).sum()

    slope = (8 * (value(step) - value(-step)) - (value(2 * step) - value(-2 * step))) / (12 * step)
    given = [v.clone().requires_grad_() for v in inputs]
    gradients = torch.autograd.grad(value(0, given), given, allow_unused=True)
    parts = [torch.zeros_like(d) if g is None else g * d for g, d in zip(gradients, directions)]
    size = sum(part.norm() for part in parts)
    return float(slope), float(sum(part.sum() for part in parts)), float(size)


def right(function, *inputs):
    slope, derivative, size = slope_and_derivative(function, inputs)
    assert size > 0 and abs(slope - derivative) <= 1e-8 * max(size, 1), (slope, derivative)


@pytest.mark.parametrize("unbalanced", PENALTIES.values(), ids=PENALTIES)
@pytest.mark.parametrize("name", OUTPUTS)
def test_of_cost_matrices(name, unbalanced):
    def output(cost, p, q, u, v):
        a, b = weights(p, unbalanced), weights(q, unbalanced)
        return OUTPUTS[name](monge.solve(cost, a, b, unbalanced=unbalanced, **TIGHT), u, v)

    right(output, COST, LOGS_A, LOGS_B, U, V)


@pytest.mark.parametrize("unbalanced", PENALTIES.values(), ids=PENALTIES)
@pytest.mark.parametrize("metric", ["sqeuclidean", "dot"])
@pytest.mark.parametrize("name", [*OUTPUTS, *OF_POINTS])
def test_of_points(name, metric, unbalanced):
    def output(x, y, p, q, u, v):
        a, b = weights(p, unbalanced), weights(q, unbalanced)
        result = monge.solve_sample(x, y, a, b, metric=metric, unbalanced=unbalanced, **TIGHT)
        return (OUTPUTS | OF_POINTS)[name](result, u, v)

    offset = 100.0 if metric == "sqeuclidean" and name not in ("transform_at", "potential_at") else 0.0
    right(output, X + offset, Y + offset, LOGS_A, LOGS_B, U, V)


@pytest.mark.parametrize("block", [1 << 15, 2 * M], ids=["one_block", "blocks"])
@pytest.mark.parametrize("name", ["apply", "average_transpose", "apply_hadamard", "marginals", *OF_POINTS])
@pytest.mark.parametrize("cost", COSTS)
def test_of_other_costs(cost, name, block, monkeypatch):
    monkeypatch.setitem(_points._BLOCK, "cpu", block)
    if "labels_x" in COSTS[cost] and name.endswith("_at"):
        with pytest.raises(NotImplementedError, match="^points: new ones have no labels"):
            OF_POINTS[name](monge.solve_sample(X.clone().requires_grad_(), Y, reg=0.3, **COSTS[cost]), U, V)
        return

    def output(x, y, p, u, v):
        result = monge.solve_sample(x, y, p.softmax(0), scale=1.3, unbalanced=2.0, **COSTS[cost], **TIGHT)
        return (OUTPUTS | OF_POINTS)[name](result, u + 0.1, v)

    right(output, X, Y, LOGS_A, U, V)


@pytest.mark.parametrize("name", ["apply", "average", "marginals", "apply_hadamard", "apply_gram", "transform"])
def test_jacobians(name):
    """Every entry, through gradcheck."""

    def output(x, y, p, u, v):
        return (OUTPUTS | OF_POINTS)[name](monge.solve_sample(x, y, p.softmax(0), **TIGHT), u, v)

    inputs = [v.clone().requires_grad_() for v in (X[:4], Y[:3], LOGS_A[:4], U[:4], V[:3])]
    assert gradcheck(output, inputs, eps=1e-4, atol=1e-6)


@pytest.mark.parametrize("unbalanced", PENALTIES.values(), ids=PENALTIES)
@pytest.mark.parametrize("name", [*OUTPUTS, *OF_POINTS])
def test_float32(name, unbalanced):
    if name == "log_scalings":
        return  # float64 alone: potentials of float32 solves are compared in test_torch_results.py.
    found = []
    for dtype in (torch.float32, torch.float64):
        given = [v.to(dtype, copy=True).requires_grad_() for v in (X, Y, LOGS_A, U, V)]
        a = weights(given[2], unbalanced)
        how = TIGHT if dtype == torch.float64 else {"reg": 0.3, "tol": 1e-6, "precision": "float32"}
        result = monge.solve_sample(given[0], given[1], a / a.sum(), unbalanced=unbalanced, **how)
        assert result.report.precision == str(dtype).removeprefix("torch.")
        output = (OUTPUTS | OF_POINTS)[name](result, *given[3:])
        assert output.dtype == dtype
        weight = torch.linspace(-1, 2, output.numel(), dtype=dtype).reshape(output.shape)
        found.append(torch.autograd.grad((output * weight).sum(), given, allow_unused=True))
    for narrow, wide in zip(*found):
        if wide is None or wide.abs().max() < 1e-9:  # As marginals of a balanced problem by points.
            continue
        assert narrow.dtype == torch.float32
        # The potentials end within 1e-6 of the mass; entries change by that over the least weight.
        assert (narrow - wide).norm() <= 2e-5 * wide.norm()


def test_averages_of_points_without_weight():
    a = torch.tensor([0.0, *[1 / 6] * 6], dtype=torch.float64)
    names = {"average": OUTPUTS["average"], **OF_POINTS}
    for name, seen in names.items():
        right(lambda x, y, u, v: seen(monge.solve_sample(x, y, a, **TIGHT), u, v), X, Y, U, V)  # noqa: B023
        right(
            lambda x, y, u, v: seen(monge.solve_sample(x, y, a, unbalanced=1.0, **TIGHT), u, v),  # noqa: B023
            X,
            Y,
            U,
            V,
        )
        assert name
    right(lambda cost, v: monge.solve(cost, a, **TIGHT).average(v), COST, V)
    right(lambda cost, u: monge.solve(cost.T, None, a, **TIGHT).average(u, transpose=True), COST, V)


@pytest.mark.parametrize("unbalanced", PENALTIES.values(), ids=PENALTIES)
@pytest.mark.parametrize("cost", ["matrix", "sqeuclidean", "dot", *COSTS])
def test_by_weights_of_0(cost, unbalanced):
    """One-sided differences of the fourth order, since weights are not negative. Their error is step^4 / 5 of a fifth
    derivative and 1e-13 / step of the solves."""
    outputs = {
        **{name: OUTPUTS[name] for name in ("apply", "average_transpose", "marginals", "apply_hadamard", "apply_gram")},
        "plan": lambda r, u, v: r.plan,
        "value": lambda r, u, v: r.value,
        "value_linear": lambda r, u, v: r.value_linear,
    }
    if cost != "matrix":
        outputs["transform"] = OF_POINTS["transform"]
        if "labels_x" not in COSTS.get(cost, {}):
            outputs |= {name: OF_POINTS[name] for name in ("transform_at", "potential_at")}
    a, b = (torch.tensor([0.0, *[1 / k] * k, 0.0], dtype=torch.float64) for k in (N - 2, M - 2))
    by_a, by_b = (torch.tensor([2.0, *[-3.0 / k] * k, 1.0], dtype=torch.float64) for k in (N - 2, M - 2))
    how = {"unbalanced": unbalanced, **TIGHT}

    def solve(a, b):
        if cost == "matrix":
            return monge.solve(COST, a, b, **how)
        return monge.solve_sample(X, Y, a, b, **COSTS.get(cost, {"metric": cost}), **how)

    step = 1e-4
    ahead = [solve(a + k * step * by_a, b + k * step * by_b) for k in range(5)]
    for name, output in outputs.items():
        p, q = a.clone().requires_grad_(), b.clone().requires_grad_()
        here = output(solve(p, q), U, V)
        weight = torch.linspace(-1, 2, here.numel(), dtype=torch.float64).reshape(here.shape)
        gradients = torch.autograd.grad((here * weight).sum(), (p, q))
        values = [float((output(result, U, V) * weight).sum()) for result in ahead]
        slope = sum(f * value for f, value in zip((-25, 48, -36, 16, -3), values)) / (12 * step)
        assert float(gradients[0] @ by_a + gradients[1] @ by_b) == pytest.approx(slope, rel=1e-6, abs=1e-7), name


@pytest.mark.parametrize("unbalanced", PENALTIES.values(), ids=PENALTIES)
@pytest.mark.parametrize("precision", ["auto", "float64"])
def test_by_tiny_weights(precision, unbalanced):
    """Derivatives are those at a weight of 0, which test_by_weights_of_0 has by differences, but for the share of the
    weight and the distance of both solves to their optima: 1e-6 of the mass, over the least weight."""
    outputs = {
        **{name: OUTPUTS[name] for name in ("apply", "average", "average_transpose", "marginals", "apply_gram")},
        "transform": OF_POINTS["transform"],
        "plan": lambda r, u, v: r.plan,
        "value_linear": lambda r, u, v: r.value_linear,
    }
    b = torch.tensor([0.5, *[0.5 / (M - 1)] * (M - 1)], dtype=torch.float64)

    def gradients(least, name):
        a = torch.tensor([least, *[1 / (N - 1)] * (N - 1)], dtype=torch.float64, requires_grad=True)
        result = monge.solve_sample(X, Y, a, b, reg=0.3, precision=precision, unbalanced=unbalanced)
        found = outputs[name](result, U, V)
        weight = torch.linspace(-1, 2, found.numel(), dtype=found.dtype).reshape(found.shape)
        return torch.autograd.grad((found * weight).sum(), a)[0]

    for name in outputs:
        wanted = gradients(0.0, name)
        for least in (1e-16, 1e-20, 1e-100, 1e-310):
            found = gradients(least, name)
            assert (found - wanted).norm() <= 2e-5 * wanted.norm(), (name, least, found, wanted)


def test_constants_have_no_gradient():
    """The right side of the linear system is rounding alone."""
    for precision in ("float32", "float64"):
        x = (X + 3).requires_grad_()
        result = monge.solve_sample(x, Y, reg=0.05, tol=1e-6, precision=precision)
        for output in (
            result.average(torch.full((M, 2), 7.0)),
            result.marginals[0],
            result.apply(torch.ones(M)),
            result.average(torch.zeros(M)),
        ):
            (gradient,) = torch.autograd.grad(output.sum(), x, retain_graph=True)
            assert gradient.abs().max() <= (1e-10 if precision == "float64" else 1e-3)


@pytest.mark.parametrize("name", ["marginals", "potentials", "plan"])
def test_batches(name):
    logs, clouds, targets = torch.stack([LOGS_A, -LOGS_A]), rand(2, N, 3), rand(2, M, 3)

    def together(x, y, p):
        batch = monge.solve_sample_batch(x, y, a=p.softmax(1), reg_type="KL", unbalanced=1.0, **TIGHT)
        found = getattr(batch, name)
        return torch.cat([v.ravel() for v in found]) if isinstance(found, tuple) else found.ravel()

    right(together, clouds, targets, logs)
    right(
        lambda x, y: torch.cat([r.apply(V).ravel() for r in monge.solve_sample_batch([x, x[:3]], [y, y], **TIGHT)]),
        X,
        Y,
    )
    right(
        lambda c: torch.cat(monge.solve_batch([c, c[:3]], unbalanced=1.0, reg_type="KL", **TIGHT).marginals[0]), COST
    )


def test_arguments_alone():
    """Gradients by the arguments of products with a plan of a problem without gradients, and of a regularised one."""
    plain, sparse = monge.solve_sample(X, Y, **TIGHT), monge.solve_regularized_sample(X, Y, quadratic=1.0)
    for seen in (OUTPUTS | OF_POINTS).values():
        out = seen(plain, U, V)
        assert not out.requires_grad
    for name in ("apply", "apply_transpose", "average", "average_transpose", "apply_hadamard", "transform_at"):
        right(lambda u, v: (OUTPUTS | OF_POINTS)[name](plain, u, v), U, V)  # noqa: B023
    for name in ("apply", "apply_transpose", "average", "average_transpose", "push", "pull"):
        right(lambda u, v: OUTPUTS[name](sparse, u, v), U, V)  # noqa: B023
        right(lambda u, v: OUTPUTS[name](sparse.inverse, v, u), U, V)  # noqa: B023
    v = V.float().requires_grad_()
    plain.apply(v).sum().backward()
    assert v.grad.dtype == torch.float32 and v.grad.shape == V.shape
    row = monge.solve_sample(X.numpy(), Y.numpy(), reg=0.3)
    with pytest.raises(TypeError, match="^apply: depends on a tensor that requires a gradient; M, or X_a, must be"):
        row.apply(v)
    with torch.no_grad():
        assert not plain.apply(v).requires_grad


def refused(name, output):
    with pytest.raises(NotImplementedError, match=f"^{name}: has no derivatives"):
        output.sum().backward()


def test_what_there_is_not_is_said():
    x = X.clone().requires_grad_()
    result = monge.solve_sample(x, Y, reg=0.3)
    (indices, values), pairs = result.topk(2), result.sample(3)
    assert not indices.requires_grad and not pairs[0].requires_grad
    refused("topk", values)
    refused("sparse", result.sparse(1e-3).values())
    refused("sparse", result.sparse_plan.values())
    refused("gradients", result.gradients().x)
    refused("gradients", monge.sinkhorn_divergence(x, Y, reg=0.3).gradients().a)
    refused("hessian_product", result.hessian_product(U @ U.T[:, :3])[0])
    refused("inverse_hessian_product", result.inverse_hessian_product(X, 1.0)[0])
    quadratic = monge.solve_regularized_sample(x, Y, quadratic=1.0)
    for name, output in {
        "plan": quadratic.plan,
        "potentials": quadratic.potentials[0],
        "value_linear": quadratic.value_linear,
        "marginals": quadratic.marginals[1],
        "topk": quadratic.topk(1)[1],
        "sparse_plan": quadratic.sparse_plan.values(),
        "gradients": quadratic.gradients().x,
        "transform": quadratic.transform(NEW),
        "potential": quadratic.potential(NEW),
        "apply": quadratic.apply(V),
        "average": quadratic.transform(),
    }.items():
        refused(name, output)
    refused("sparse_plan", quadratic.inverse.sparse_plan.values())
    batch = monge.solve_regularized_batch(COST[None].clone().requires_grad_(), quadratic=1.0)
    refused("plan", batch.plan)
    v = V.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(result.apply(v).sum(), v, create_graph=True)
    with pytest.raises(NotImplementedError, match="^apply: has no second derivatives"):
        gradient.square().sum().backward()
    with pytest.raises(NotImplementedError, match="^v: is under torch.func"):
        torch.func.grad(lambda v: result.apply(v).sum())(V)
    product = monge.solve_sample(x, Y, reg=0.3)
    with torch.no_grad():
        x.add_(1.0)
    with pytest.raises(RuntimeError, match="^X_a: was changed in place since the solve; apply has no gradients now"):
        product.apply(V)


@pytest.mark.parametrize("cost", ["sqeuclidean", "dot", *COSTS])
def test_c_transforms(cost):
    how = {"scale": 1.3, **COSTS.get(cost, {"metric": cost})}
    right(lambda x, y, g: monge.c_transform(x, y, g, **how)[0], X, Y, LOGS_B)
    x, g = X.float().requires_grad_(), LOGS_B.clone().requires_grad_()
    f, argmin = monge.c_transform(x, Y.float(), g, **how)
    assert f.dtype == torch.float32 and not argmin.requires_grad
    f.sum().backward()
    assert (g.grad == -torch.bincount(argmin, minlength=M)).all() and x.grad.dtype == torch.float32
    with pytest.raises(NotImplementedError, match="^f: requires a gradient"):
        monge.semi_dual_value(f, g)
    with pytest.raises(TypeError, match="^c_transform: depends on a tensor that requires a gradient; X_a must be one"):
        monge.c_transform(X.numpy(), Y.numpy(), g)


def test_training_steps():
    """Gradient descent on the keys and values of one layer of attention lowers its loss in each of ten steps."""
    keys, values = Y.clone().requires_grad_(), V.clone().requires_grad_()
    target = torch.stack([X.sum(1).sin(), X[:, 0] - X[:, 1]], 1)
    losses = []
    for _ in range(10):
        out = monge.solve_sample(X, keys, metric="dot", reg=0.5).average(values)
        loss = (out - target).square().mean()
        losses.append(float(loss.detach()))
        by = torch.autograd.grad(loss, (keys, values))
        with torch.no_grad():
            keys, values = ((v - 0.3 * g).requires_grad_() for v, g in zip((keys, values), by))
    assert all(later < sooner for sooner, later in zip(losses, losses[1:]))
