"""Derivatives of what results have, and of POT's functions, by tensors that were given to monge."""

import math
import subprocess
import sys

import numpy as np
import ot
import pytest
import torch
from torch.autograd import gradcheck

import monge
import monge.torch
from monge.torch import _points

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


@pytest.mark.parametrize("order", [1, -1])
def test_batches_of_several_dtypes(order):
    clouds = [X.float().requires_grad_(), X.clone().requires_grad_()][::order]
    batch = monge.solve_sample_batch(clouds, [Y.to(x.dtype) for x in clouds], **TIGHT)
    for found in (batch.value, batch.plan, *batch.potentials):
        assert found.dtype == torch.float64 and found.requires_grad
    gradients = torch.autograd.grad(batch.value.sum(), clouds)
    assert [v.dtype for v in gradients] == [x.dtype for x in clouds]
    torch.testing.assert_close(gradients[0].double(), gradients[1].double(), rtol=1e-4, atol=1e-5)


LABELS = {
    "labels_x": np.array([0, 1, 0, 1, 2, 2, 0]),
    "labels_y": np.array([0, 1, 2, 1, 0, 1]),
    "label_cost": np.arange(9.0).reshape(3, 3) / 9,
    "label_weight": 0.7,
}
METRICS = {
    **{name: {"metric": name} for name in ("sqeuclidean", "dot", "cosine", "euclidean", "cityblock", "chebyshev")},
    "p-norm": {"metric": "p-norm", "norm_p": 3.0},
}
WITHOUT_WEIGHT = {"p": torch.tensor([0, *[1 / (N - 1)] * (N - 1)], dtype=torch.float64), "unbalanced": (0.7, math.inf)}


@pytest.mark.parametrize("block", [1 << 15, 2 * M], ids=["one_block", "blocks"])
@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("labels", [{}, LABELS], ids=["points", "labels"])
@pytest.mark.parametrize("metric", METRICS)
def test_costs_of_points(metric, labels, name, block, monkeypatch):
    monkeypatch.setitem(_points._BLOCK, "cpu", block)

    def output(x, y, p, unbalanced=None):
        costs = {"scale": 1.3, **METRICS[metric], **labels}
        result = monge.solve_sample(x, y, p, unbalanced=unbalanced, **costs, **TIGHT)
        return OUTPUTS[name](result)

    assert right(lambda x, y, p: output(x, y, soft(p)), X, Y, LOGS_A)
    if name != "potentials":  # They have no derivatives at a point without mass.
        assert right(lambda x, y: output(x, y, **WITHOUT_WEIGHT), X, Y)


@pytest.mark.parametrize("labels", [{}, LABELS], ids=["points", "labels"])
def test_ties_share_the_slope_of_the_largest_difference(labels):
    """The mean of the one-sided differences is the equal share of two tied coordinates, and 0 where points coincide:
    each such distance has a kink. Two steps of 1e-5 leave 1e-10 of a third derivative each."""
    x = torch.tensor([[0.0, 0, 0], [3, 1, 2], *X[2:].tolist()], dtype=torch.float64)
    y = torch.tensor([[1.0, -1, 0.3], [3, 1, 2], *Y[2:].tolist()], dtype=torch.float64)

    def solve(x):
        return monge.solve_sample(x, y, metric="chebyshev", **labels, **{**TIGHT, "reg": 1.0})

    for name, output in OUTPUTS.items():
        point = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(output(solve(point)), point)
        for i, k in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 2)):
            step = torch.zeros_like(x)
            step[i, k] = 1e-5
            ahead, behind = (float(output(solve((x + sign * step).requires_grad_())).detach()) for sign in (1, -1))
            assert float(gradient[i, k]) == pytest.approx((ahead - behind) / 2e-5, abs=1e-6), (name, i, k)
    for output in (  # The first point goes to the first target.
        lambda x: monge.solve_exact_sample(x[:1], y[:1], metric="chebyshev").value,
        lambda x: monge.c_transform(x, y[:1], torch.zeros(1, dtype=torch.float64), metric="chebyshev")[0][0],
    ):
        point = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(output(point), point)
        assert gradient[0].tolist() == [-0.5, 0.5, 0]


@pytest.mark.parametrize("size", [1e9, 1e-9])
def test_powers_of_differences_neither_overflow_nor_underflow(size):
    """Where reg has the size of the points, derivatives do not depend on this size."""

    def gradients(size):
        x, y = (size * X).requires_grad_(), size * Y
        how = {"metric": "p-norm", "norm_p": 60.0}
        result = monge.solve_sample(x, y, **how, **{**TIGHT, "reg": 0.3 * size})
        outputs = (result.value, result.value_linear, size * OUTPUTS["plan"](result))
        exact = monge.solve_sample(x, y, **how).value
        nearest = monge.c_transform(x, y, torch.zeros(M, dtype=torch.float64), **how)[0].sum()
        return [torch.autograd.grad(output, x)[0] for output in (*outputs, exact, nearest)]

    for found, expected in zip(gradients(size), gradients(1.0)):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


MEMORY = """
import sys
import torch
import monge

def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name)) << 10

def growth(n):
    x, y = (torch.rand(n, 3, dtype=torch.float64) for _ in range(2))
    metric, how = sys.argv[1], {"reg": 0.3, "tol": 1e-3, "n_threads": 2}
    if metric == "regularized":
        result = monge.solve_regularized_sample(x[:50], y, quadratic=1.0)
        call = lambda: result.transform(x)
    else:
        call = monge.solve_sample(x.requires_grad_(), y, metric=metric, **how).value_linear.backward
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # The peak begins anew.
    before = status("VmRSS")
    call()
    return status("VmHWM") - before

torch.set_num_threads(2)
growth(50)
print(growth(3000))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "chebyshev", "minkowski", "regularized"])
def test_blocks_take_little_memory(metric):
    """Derivatives of value_linear, or a regularised map at new points. An n x m array of float64 has 72 MB."""
    done = subprocess.run([sys.executable, "-c", MEMORY, metric], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 30e6


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
    a = torch.full((7,), 1 / 7, dtype=torch.float64, requires_grad=True)
    with pytest.raises(TypeError, match="^plan: depends on a tensor that requires a gradient; M, or X_a, must be"):
        monge.solve(COST.numpy(), a, reg=0.3).plan  # noqa: B018
    for name in OUTPUTS:
        batch = monge.solve_sample_batch([X.numpy(), X.clone().requires_grad_()], [Y, Y], **TIGHT)
        with pytest.raises(TypeError, match=f"^{name}: depends on a tensor that requires a gradient; M, or X_a, must"):
            getattr(batch, name)
    with pytest.raises(NotImplementedError, match="^potentials: have no derivatives at points whose mass is 0"):
        monge.solve(cost, torch.eye(N, dtype=torch.float64)[0], reg=0.3).potentials[0].sum().backward()
    for field in ("reg", "unbalanced"):
        given = {"reg": 0.3, field: torch.tensor(0.3, requires_grad=True)}
        with pytest.raises(NotImplementedError, match=f"^{field}: requires a gradient; results have no derivatives"):
            monge.solve(COST, **given)
    with pytest.raises(NotImplementedError, match="^M_ab: requires a gradient"):
        monge.sinkhorn_divergence_of_costs(cost, COST[:, :1] * 0 + COST @ COST.T, COST.T @ COST, reg=0.3)
    with pytest.raises(NotImplementedError, match="^value: has no derivatives under vmap"):
        torch.autograd.functional.jacobian(lambda c: monge.solve(c, reg=0.3).value[None], COST, vectorize=True)
    for output in OUTPUTS.values():
        (gradient,) = torch.autograd.grad(output(monge.solve(cost, reg=0.3)), cost, create_graph=True)
        with pytest.raises(NotImplementedError, match="has no second derivatives"):
            gradient.square().sum().backward()


def test_what_is_changed_in_place():
    cost, x = COST.clone().requires_grad_(), X.clone().requires_grad_()
    result = monge.solve(cost, reg=0.3)
    expected = torch.autograd.grad(result.value, cost)[0]
    result.plan.detach().mul_(2)
    result.potentials[0].detach().mul_(2)
    assert (torch.autograd.grad(result.value, cost)[0] == expected).all()
    assert (torch.autograd.grad(result.plan.sum(), cost)[0].isfinite()).all()
    loss = result.value
    loss += result.value_linear  # As of any output of an operator.
    loss.backward()
    (expected,) = torch.autograd.grad(2 * (result.plan * OF_PLAN).sum(), cost)
    plan = result.plan
    plan.mul_(2)  # Derivatives do not read it.
    assert (torch.autograd.grad((plan * OF_PLAN).sum(), cost)[0] == expected).all()
    result = monge.solve_sample(x, Y, reg=0.3)
    with torch.no_grad():
        x.mul_(2)
    with pytest.raises(RuntimeError, match="^X_a: was changed in place since the solve; value has no gradients now"):
        result.value  # noqa: B018


def test_gradients_are_followed_where_they_are_at_the_solve():
    cost = COST.clone().requires_grad_()
    with torch.no_grad():
        result = monge.solve(cost, reg=0.3)
    assert not result.value.requires_grad and not result.plan.requires_grad
    result = monge.solve(cost, reg=0.3)
    with torch.no_grad():
        assert not result.plan.requires_grad
    x = X.clone().requires_grad_()
    monge.solve_sample(x, Y.numpy(), reg=0.3).value.backward()
    expected = torch.autograd.grad(monge.solve_sample(x, Y, reg=0.3).value, x)[0]
    assert (x.grad == expected).all()
    assert (monge.empirical_sinkhorn_divergence(x, x, 0.3) == 0).all()
    assert (torch.autograd.grad(monge.empirical_sinkhorn_divergence(x, x, 0.3), x)[0] == 0).all()

    def checkpointed(x):
        result = monge.solve_sample(x, Y, reg=0.3)
        return result.value + result.plan.square().sum()

    again = torch.utils.checkpoint.checkpoint(checkpointed, x, use_reentrant=False)
    own, expected = (torch.autograd.grad(loss, x)[0] for loss in (again, checkpointed(x)))
    torch.testing.assert_close(own, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", OUTPUTS)
def test_overflow_from_above_is_passed_on(name):
    x, a = X.clone().requires_grad_(), soft(LOGS_A).requires_grad_()
    output = OUTPUTS[name](monge.solve_sample(x, Y, a, reg=0.3))
    for gradient in torch.autograd.grad(output * math.inf, (x, a)):
        assert not gradient.isfinite().any()


def test_weights_left_out_have_total_1_where_totals_may_differ():
    a = soft(LOGS_A) * 5
    uniform = torch.full((M,), 1 / M, dtype=torch.float64)
    for left_out, given in (
        (monge.solve(COST, a, unbalanced=0.5, reg=0.1), monge.solve(COST, a, uniform, unbalanced=0.5, reg=0.1)),
        (
            monge.sinkhorn_divergence(X, Y, a, unbalanced=0.5, reg=0.1),
            monge.sinkhorn_divergence(X, Y, a, uniform, unbalanced=0.5, reg=0.1),
        ),
        (
            monge.solve_batch(COST[None], a=a[None], unbalanced=0.5, reg=0.1, reg_type="KL")[0],
            monge.solve(COST, a, uniform, unbalanced=0.5, reg=0.1),
        ),
    ):
        assert left_out.value == given.value
    own = monge.torch.transport(X, Y, a, unbalanced=0.5, reg=0.1)
    assert own == monge.torch.transport(X, Y, a, uniform, unbalanced=0.5, reg=0.1)
    loss = monge.torch.SamplesLoss(blur=0.3, reach=0.5, tol=1e-12)
    for one, other in (((a, X, None, Y), (a, X, uniform, Y)), ((None, Y, a, X), (uniform, Y, a, X))):
        assert loss(*one) == loss(*other)
    # POT counts both marginals' penalties without their masses: plans are to be compared.
    plan = ot.unbalanced.sinkhorn_unbalanced(a.numpy(), [], COST.numpy(), 0.1, 0.5, stopThr=1e-12, numItermax=20000)
    np.testing.assert_allclose(
        monge.sinkhorn_unbalanced(a.numpy(), [], COST.numpy(), 0.1, 0.5, stopThr=1e-12), plan, rtol=1e-6
    )


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("costs", ["matrix", "sqeuclidean", "euclidean", "cosine"])
@pytest.mark.parametrize("side", ["a", "b"])
def test_weights_left_out_have_the_total_of_the_other_side(side, costs, name):
    logs = LOGS_B if side == "a" else LOGS_A

    def given(logs):
        return {"a": None, "b": None} | {"b" if side == "a" else "a": 3 * logs.softmax(0)}

    def of_matrix(cost, logs):
        return OUTPUTS[name](monge.solve(cost, **given(logs), **TIGHT))

    def of_points(x, y, logs):
        return OUTPUTS[name](monge.solve_sample(x, y, **given(logs), metric=costs, **TIGHT))

    if costs == "matrix":
        assert right(of_matrix, COST, logs)
        assert right(lambda c, w: monge.sinkhorn2(*given(w).values(), c, 0.3, stopThr=1e-13), COST, logs)
        entropy = lambda c, w: monge.solve_batch(c[None], **given(w), **TIGHT).value  # noqa: E731
        assert right(entropy, COST, logs)
    else:
        assert right(of_points, X, Y, logs)


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine"])
@pytest.mark.parametrize("side", ["a", "b"])
def test_losses_where_weights_are_left_out(side, metric):
    logs, size = (LOGS_B, N) if side == "a" else (LOGS_A, M)
    uniform = torch.full((size,), 3 / size, dtype=torch.float64)

    def weights_of(logs, left_out=None):
        a, b = (left_out, 3 * logs.softmax(0)) if side == "a" else (3 * logs.softmax(0), left_out)
        return a, b

    geomloss = monge.torch.SamplesLoss(p=1 if metric == "euclidean" else 2, blur=0.5, tol=1e-13)
    for loss in (
        lambda x, y, a, b: monge.torch.transport(x, y, a, b, metric=metric, **TIGHT),
        lambda x, y, a, b: monge.solve_sample(x, y, a, b, metric, **TIGHT).value,
        lambda x, y, a, b: monge.sinkhorn_divergence(x, y, a, b, metric, reg=0.3, tol=1e-13).value,
        lambda x, y, a, b: geomloss(a, x, b, y),
        lambda x, y, a, b: geomloss(*(v if v is None else v[None] for v in (a, x, b, y)))[0],
    ):
        assert right(lambda x, y, w: loss(x, y, *weights_of(w)), X, Y, logs)  # noqa: B023
        torch.testing.assert_close(loss(X, Y, *weights_of(logs)), loss(X, Y, *weights_of(logs, uniform)))


def test_log_scalings_of_weights_of_another_framework():
    result = monge.solve(COST, soft(LOGS_A).numpy(), **TIGHT)
    u, v = result.log_scalings
    torch.testing.assert_close((u[:, None] + v - COST / 0.3).exp(), result.plan, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("left", [0.9995, 0.0], ids=["almost", "unsolved"])
def test_gradients_whose_system_is_not_solved(left):
    x = X.clone().requires_grad_()
    for seed in range(5):  # Float32 sweeps of float64 points: products are float32's, too.
        monge.solve_sample(x + seed, Y, reg=0.1).plan.square().sum().backward()
    result = monge.solve_sample(x, Y, precision="float64", **TIGHT)

    class Unsolved:
        """The plan, of whose systems a part of the solution is left."""

        def __init__(self, plan):
            self.plan = plan

        def __getattr__(self, name):
            return getattr(self.plan, name)

        def potential_gradients(self, of_f, of_g, x, y, a, b, tolerance):
            report = self.plan.potential_gradients(of_f, of_g, x, y, a, b, tolerance=tolerance)
            a.mul_(left), b.mul_(left)
            return report

    result._made = Unsolved(result._plan)
    if left == 0:
        with pytest.raises(RuntimeError, match="^gradient: its linear system is not solved: the residual is "):
            result.plan.square().sum().backward()
        return
    with pytest.warns(monge.ConvergenceWarning, match="^gradient: has an error: its linear system has ") as caught:
        result.plan.square().sum().backward()
    assert caught[0].filename == __file__


@pytest.mark.parametrize("name", OUTPUTS)
def test_the_inverse_follows_what_the_result_follows(name):
    def of_matrix(cost, p, q):
        return monge.solve(cost, p.softmax(0), q.softmax(0), **TIGHT)

    def of_points(x, y, p, q):
        return monge.solve_sample(x, y, p.softmax(0), q.softmax(0), **TIGHT)

    outputs = {
        "plan": lambda r: (r.plan * OF_PLAN.T).sum(),
        "potentials": lambda r: r.potentials[0] @ OF_G + r.potentials[1] @ OF_F,
    }
    for solve, given in ((of_matrix, (COST, LOGS_A, LOGS_B)), (of_points, (X, Y, LOGS_A, LOGS_B))):
        tensors = [v.clone().requires_grad_() for v in given]
        result = solve(*tensors)
        with torch.no_grad():
            inverse = result.inverse
        seen = outputs.get(name, OUTPUTS[name])
        found = torch.autograd.grad(seen(inverse), tensors, retain_graph=True)
        for own, other in zip(found, torch.autograd.grad(OUTPUTS[name](result), tensors)):
            torch.testing.assert_close(own, other, rtol=1e-8, atol=1e-9)  # Two linear systems, each to 1e-10.


def test_the_inverse_of_a_regularised_result_follows_what_it_follows():
    def of_points(x, y, p, q):
        return monge.solve_regularized_sample(x, y, p.softmax(0), q.softmax(0), quadratic=1.0, tolerance=1e-10)

    def of_matrix(cost, p, q):
        return monge.solve_regularized(cost, p.softmax(0), q.softmax(0), quadratic=1.0, tolerance=1e-10)

    for solve, given in ((of_matrix, (COST, LOGS_A, LOGS_B)), (of_points, (X, Y, LOGS_A, LOGS_B))):
        tensors = [v.clone().requires_grad_() for v in given]
        result = solve(*tensors)
        found = torch.autograd.grad(result.inverse.value, tensors, retain_graph=True)
        for own, other in zip(found, torch.autograd.grad(result.value, tensors)):
            torch.testing.assert_close(own, other, rtol=1e-12, atol=1e-14)
    cost = COST.clone().requires_grad_()
    inverse = of_matrix(cost, LOGS_A, LOGS_B).inverse
    with torch.no_grad():
        cost.add_(1.0)
    with pytest.raises(RuntimeError, match="^M: was changed in place"):
        inverse.value


REFERENCE = rand(N, M) + 0.1
REFERENCE[0, 0] = 0
REFERENCES = {"c": {"c": REFERENCE}, "entropy": {"reg_type": "entropy"}}


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("unbalanced", [0.8, (0.7, math.inf)], ids=["unbalanced", "semi"])
@pytest.mark.parametrize("reference", REFERENCES)
def test_reference_measures(reference, unbalanced, name):
    how = {"unbalanced": unbalanced, **REFERENCES[reference], **TIGHT}
    assert right(lambda cost, p, q: OUTPUTS[name](monge.solve(cost, p.exp(), q.exp(), **how)), COST, LOGS_A, LOGS_B)
    if reference == "entropy":
        assert right(lambda x, y, p: OUTPUTS[name](monge.solve_sample(x, y, p.exp(), **how)), X, Y, LOGS_A)
        batch = monge.solve_batch([COST.clone().requires_grad_()] * 2, **how)
        assert getattr(batch, name)[0].requires_grad


def test_the_value_with_a_reference_of_a_balanced_problem():
    assert right(lambda cost, p: monge.solve(cost, p.softmax(0), c=REFERENCE, **TIGHT).value, COST, LOGS_A)


@pytest.mark.parametrize("grad", ["detach", "autodiff", "envelope", "last_step"])
def test_grad(grad):
    given = COST.clone().requires_grad_()
    results = [
        monge.solve(given, reg=0.3, grad=grad),
        monge.solve_sample(X.clone().requires_grad_(), Y, reg=0.3, grad=grad),
        monge.solve_batch(given[None], 0.3, grad=grad),
        monge.solve_sample_batch(X.clone().requires_grad_()[None], Y[None], 0.3, grad=grad),
        monge.solve_sample_batch(X.clone().requires_grad_()[None], Y[None], 0.3, metric="kl", grad=grad),
    ]
    for result in results:
        assert all(v.requires_grad == (grad != "detach") for v in (result.value, result.plan))
    (other,) = torch.autograd.grad(monge.solve(given, reg=0.3).value, given)
    if grad != "detach":
        (own,) = torch.autograd.grad(results[0].value, given)
        torch.testing.assert_close(own, other, rtol=0, atol=0)


@pytest.mark.parametrize("field", ["l1_weights", "group_weights", "mask"])
def test_data_of_terms_have_no_derivatives(field):
    M = torch.rand(4, 3, dtype=torch.float64, requires_grad=True)
    given = {
        "l1_weights": torch.ones(4, 3, dtype=torch.float64),
        "group_weights": torch.ones(2, 3, dtype=torch.float64),
        "mask": torch.ones(4, 3, dtype=torch.float64),
    }
    given[field].requires_grad_()
    groups = np.array([0, 0, 1, 1])
    with pytest.raises(NotImplementedError, match=f"^{field}: requires a gradient"):
        monge.solve_regularized(M, l1=0.1, group_lasso=0.1, groups=groups, **given)


def test_products_of_a_batch_have_the_derivatives_of_its_results():
    x, y, values = (torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True) for _ in range(3))
    batch = monge.solve_sample_batch(x, y, 0.5, precision="float64", tol=1e-10)
    singles = [monge.solve_sample(u, v, reg=0.5, precision="float64", tol=1e-10) for u, v in zip(x, y)]
    for name in ("apply", "average"):
        found = getattr(batch, name)(values)
        expected = torch.stack([getattr(one, name)(v) for one, v in zip(singles, values)])
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)
        for own, other in zip(*(torch.autograd.grad(v.square().sum(), (x, y, values)) for v in (found, expected))):
            torch.testing.assert_close(own, other, rtol=1e-9, atol=1e-11)
    assert batch.transform().shape == x.shape and batch.transform().requires_grad


@pytest.mark.parametrize("how", [{}, {"reg": 0.5}, {"reg": 0.5, "reg_type": "L2"}, {"unbalanced": 1.0}], ids=str)
def test_gradients_of_points_of_two_frameworks(how):
    x, y = np.random.default_rng(0).random((2, 5, 2))
    how = how | ({"unbalanced_type": "TV"} if "unbalanced" in how else {})
    wanted = monge.solve_sample(x, y, **how).gradients()
    for given in ((x, torch.tensor(y)), (torch.tensor(x), y)):
        found = monge.solve_sample(*given, **how).gradients()
        for name in ("x", "y"):
            assert isinstance(getattr(found, name), type(given[0]))
            np.testing.assert_allclose(np.asarray(getattr(found, name)), getattr(wanted, name), atol=1e-12)
