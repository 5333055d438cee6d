"""The operators of PyTorch under torch.func, vmap and forward mode: right numbers, or an error, never a silent zero."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

import monge
import monge.torch


def random(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


Y, MIXING = random(5, 2, seed=1), random(2, 24)
LOSSES = {
    "transport": lambda x: monge.torch.transport(x, Y, reg=0.5, tol=1e-13),
    "samples_loss": lambda x: monge.torch.SamplesLoss(blur=0.7, tol=1e-13)(x, Y),
    "unbalanced": lambda x: monge.torch.transport(x, Y, reg=0.5, unbalanced=2.0, tol=1e-13),
    "divergence": lambda x: monge.torch.sinkhorn_divergence(x, Y, reg=0.5, unbalanced=2.0, tol=1e-13),
    "euclidean": lambda x: monge.torch.SamplesLoss(p=1, blur=0.7, tol=1e-13)(x, Y),
    "regularized": lambda x: monge.torch.regularized_transport((x[:, None] - Y).square().sum(2), quadratic=1.0)[0],
    "project": lambda x: monge.torch.project((x @ Y.T).float().expand(2, 6, 5), "mhc_paper").square().sum(),
    "mhc_mapping": lambda x: (
        monge.torch.hc_split_sinkhorn((x @ MIXING).float(), torch.ones(3), torch.zeros(24))[2].square().sum()
    ),
}
TWICE = ("transport", "samples_loss", "unbalanced", "divergence", "euclidean")


def gradient(loss, x):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(loss(x), x)[0]


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_those_of_backward(name):
    loss, x = LOSSES[name], random(6, 2)
    expected = gradient(loss, x)
    assert expected.abs().max() > 0.01
    # The same arithmetic, once for one problem and once for one of a batch.
    close = {"rtol": 1e-12, "atol": 1e-14} if name not in ("project", "mhc_mapping") else {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(torch.func.grad(loss)(x), expected, **close)
    torch.testing.assert_close(torch.func.jacrev(loss)(x), expected, **close)
    batch = torch.stack([x, x + 1, 2 * x])
    each = torch.stack([gradient(loss, v) for v in batch])
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(loss))(batch), each, **close)
    torch.testing.assert_close(torch.func.vmap(loss, 2)(batch.permute(1, 2, 0)), torch.stack([loss(v) for v in batch]))
    # Batched values, differentiated as one.
    torch.testing.assert_close(gradient(lambda v: torch.func.vmap(loss)(v).sum(), batch), each, **close)


@pytest.mark.parametrize("name", TWICE)
def test_second_derivatives(name):
    loss, x = LOSSES[name], random(6, 2)
    expected = torch.autograd.functional.hessian(loss, x)
    assert expected.abs().max() > 0.01
    for found in (
        torch.func.hessian(loss)(x),
        torch.func.jacrev(torch.func.jacrev(loss))(x),
        torch.func.jacrev(torch.func.jacfwd(loss))(x),
        torch.func.vmap(torch.func.hessian(loss))(x[None])[0],
    ):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
    operator = "transport" if name in ("transport", "unbalanced") else "sinkhorn_divergence"
    with pytest.raises(NotImplementedError, match=f"^{operator}: has no forward mode in forward mode"):
        torch.func.jacfwd(torch.func.jacfwd(loss))(x)


@pytest.mark.parametrize("name", [*TWICE, "regularized"])
def test_forward_mode(name):
    loss, x, v = LOSSES[name], random(6, 2), random(6, 2, seed=2)
    expected = (gradient(loss, x) * v).sum()
    value, tangent = torch.func.jvp(loss, (x,), (v,))
    with forward_ad.dual_level():
        dual = forward_ad.unpack_dual(loss(forward_ad.make_dual(x, v)))
    for found in (tangent, dual.tangent):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
    assert value == loss(x)


def test_forward_mode_by_weights():
    x, a, v = random(6, 2), random(6).softmax(0), random(6, seed=2)
    v = v - v.mean()

    def loss(a):
        return monge.torch.transport(x, Y, a, reg=0.5, tol=1e-13)

    torch.testing.assert_close(torch.func.jvp(loss, (a,), (v,))[1], (gradient(loss, a) * v).sum())
    with pytest.raises(NotImplementedError, match="^transport: second derivatives are by the points only"):
        torch.func.hessian(loss)(a)


def test_forward_over_reverse():
    x, v = random(6, 2), random(6, 2, seed=2)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.clone().requires_grad_(), v)
        (found,) = torch.autograd.grad(LOSSES["transport"](dual), dual)
        found = forward_ad.unpack_dual(found).tangent
    _, expected = torch.autograd.functional.vhp(LOSSES["transport"], x, v)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["project", "mhc_mapping"])
def test_what_forward_mode_has_not_is_refused(name):
    loss, x = LOSSES[name], random(6, 2)
    with pytest.raises(NotImplementedError, match=f"^{name}: has no derivatives of forward mode"):
        torch.func.jvp(loss, (x,), (x,))
    for given in (x, x.clone().requires_grad_()):
        with pytest.raises(NotImplementedError, match=f"^{name}: has no derivatives of forward mode"):
            with forward_ad.dual_level():
                loss(forward_ad.make_dual(given, x))


@pytest.mark.parametrize("name", ["project", "mhc_mapping", "regularized"])
def test_second_derivatives_that_there_are_not_are_refused(name):
    loss, x = LOSSES[name], random(6, 2)
    operator = {"regularized": "regularized_transport"}.get(name, name)
    with pytest.raises(NotImplementedError, match=f"^{operator}: has no second derivatives"):
        torch.func.grad(lambda x: torch.func.grad(loss)(x).square().sum())(x)


@pytest.mark.parametrize("rows", [6, 9])
def test_jacobians_of_projections(rows):
    def project(v):
        return monge.torch.project(v, "mhc_paper")

    logits = random(rows, 4, dtype=torch.float32)
    expected = torch.autograd.functional.jacobian(project, logits)
    for found in (
        torch.func.jacrev(project)(logits),
        torch.autograd.functional.jacobian(project, logits, vectorize=True),
    ):
        torch.testing.assert_close(found, expected)


def test_gradients_of_each_sample():
    """By parameters that all samples share."""
    module, mixes = monge.torch.MHCMapping(), random(5, 24, dtype=torch.float32)
    parameters = dict(module.named_parameters())

    def loss(parameters, mixes):
        return sum(v.square().sum() for v in torch.func.functional_call(module, parameters, (mixes,)))

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, mixes)
    for k, row in enumerate(mixes):
        for name, found in torch.func.grad(loss)(parameters, row).items():
            torch.testing.assert_close(each[name][k], found)


def test_batches_share_what_is_not_mapped():
    batch, cost = random(3, 6, 2), random(3, 6, 5).square()
    transported = torch.func.vmap(lambda x, y: monge.torch.transport(x, y, reg=0.5), in_dims=(0, None))(batch, Y)
    for value, x in zip(transported, batch):
        torch.testing.assert_close(value, monge.torch.transport(x, Y, reg=0.5))
    # Batches of batches, by a dimension that is not the first.
    for function, given in (
        (lambda x: monge.torch.transport(x, Y.expand(3, 5, 2), reg=0.5), torch.stack([batch, batch + 1], 2)),
        (lambda c: monge.torch.regularized_transport(c, quadratic=1.0)[0], torch.stack([cost, cost + 1], 2)),
        (lambda v: monge.torch.project(v, "mhc_paper"), torch.stack([cost, 2 * cost], 2).float()),
    ):
        expected = torch.stack([function(v) for v in given.unbind(2)], 1)
        torch.testing.assert_close(torch.func.vmap(function, 2, 1)(given), expected)
    mask = torch.ones(6, 5)
    with pytest.raises(NotImplementedError, match="^regularized_transport: vmap goes over costs and weights"):
        torch.func.vmap(lambda m: monge.torch.regularized_transport(cost[0], mask=m, quadratic=1.0)[0])(mask[None])


def test_functions_of_numbers_refuse_what_they_would_not_follow():
    x = random(6, 2)
    message = "^X_a: is under torch.func or in forward mode"
    with pytest.raises(NotImplementedError, match=message):
        torch.func.grad(lambda x: monge.solve_sample(x, Y, reg=0.5).value)(x)
    with forward_ad.dual_level():
        with pytest.raises(NotImplementedError, match=message):
            monge.solve_sample(forward_ad.make_dual(x, x), Y, reg=0.5)
        assert monge.solve_sample(x, Y, reg=0.5).converged  # Without a tangent there is none to lose.


def of_potentials(x):
    return monge.torch.SamplesLoss(blur=0.7, potentials=True)(x, Y)[0].sum()


def of_plan(x):
    return monge.torch.regularized_transport((x[:, None] - Y).square().sum(2), quadratic=1.0)[1].square().sum()


@pytest.mark.parametrize(("function", "name"), [(of_potentials, "sinkhorn_divergence"), (of_plan, "regularized_transport")])
def test_what_has_no_derivatives_is_no_constant(function, name):
    x = random(6, 2)
    for transform in (lambda f: f, lambda f: torch.compile(f, backend="aot_eager")):
        with pytest.raises(NotImplementedError, match=f"^{name}: .* no derivatives; must be detached"):
            transform(torch.func.grad(function))(x)
    # A tangent cannot wait until someone asks for it.
    assert torch.func.jvp(function, (x,), (x,))[1].isnan()
    assert torch.func.vmap(function)(x[None])[0] == function(x)


@pytest.mark.parametrize("name", LOSSES)
def test_dispatch_sees_the_operators(name):
    """Of fake tensors, which are a subclass, there is nothing that a kernel could read; make_fx is a mode."""
    loss, x = LOSSES[name], random(6, 2)
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = mode.from_tensor(x)
    found, expected = loss(fake), loss(x)
    assert isinstance(found, torch._subclasses.FakeTensor)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert "torch.ops.monge." in make_fx(loss)(x).code


def test_compiled_transforms():
    loss, x, v = LOSSES["transport"], random(6, 2), random(6, 2, seed=2)

    def tangent(x):
        return torch.func.jvp(loss, (x,), (v,))[1]

    for function in (torch.func.grad(loss), torch.func.hessian(loss), tangent):
        found = torch.compile(function, backend="aot_eager")(x)
        torch.testing.assert_close(found, function(x), rtol=1e-9, atol=1e-11)
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(tangent, backend="aot_eager", fullgraph=True)(x)
