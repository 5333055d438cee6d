"""PyTorch on the CPU: tensors in and out, derivatives, torch.compile, GeomLoss's loss, projections."""

import math
import pickle

import numpy as np
import ot
import pytest
import torch
from geomloss import SamplesLoss as GeomLoss
from torch.autograd import gradcheck, gradgradcheck

import monge
import monge.torch


def clouds(n=9, m=8, d=2, dtype=torch.float64, batch=(), seed=0):
    generator = torch.Generator().manual_seed(seed)
    make = lambda *shape: torch.randn(*batch, *shape, generator=generator, dtype=torch.float64).to(dtype)  # noqa: E731
    return make(n, d), make(m, d) + 0.5


def weights(n, seed=1):
    given = torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.2
    return given / given.sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_in_tensors_out(dtype):
    x, y = clouds(dtype=dtype)
    expected = monge.solve_sample(x.numpy(), y.numpy(), reg=0.5)
    x.requires_grad_()
    result = monge.solve_sample(x, y, reg=0.5)
    for tensor in (*result.marginals, result.transform(), *result.log_scalings):
        assert isinstance(tensor, torch.Tensor) and tensor.dtype == dtype and tensor.requires_grad
    for tensor in (result.value, result.value_linear, result.plan, *result.potentials):
        assert tensor.dtype == dtype and tensor.requires_grad
    np.testing.assert_array_equal(result.plan.detach().numpy(), expected.plan)
    indices, values = result.topk(2)
    assert indices.dtype == torch.int64
    np.testing.assert_array_equal(result.sparse(0.01).to_dense().detach().numpy() > 0, expected.plan > 0.01)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(result)).potentials[0], expected.potentials[0])
    np.testing.assert_allclose(result.lazy_plan[2:4].detach().numpy(), expected.plan[2:4], rtol=1e-5)
    batch = monge.solve_sample_batch(torch.stack([x, x]), torch.stack([y, y]), 0.5)
    assert batch.value.shape == (2,) and batch.plan.dtype == dtype
    assert monge.sinkhorn2([], [], torch.rand(4, 5, dtype=dtype), 0.1).dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_questions_to_a_result_may_be_in_arrays_of_others(dtype):
    x, y = clouds(dtype=dtype)
    result = monge.solve_sample(x, y, reg=0.5)
    rows, columns = torch.rand(len(x), 2, dtype=dtype), torch.rand(len(y), dtype=dtype)
    for ask in (
        lambda of: result.push(of(rows)),
        lambda of: result.push(of(rows)[:, 0]),
        lambda of: result.pull(of(columns)),
        lambda of: result.apply(of(columns)),
        lambda of: result.lazy_plan @ of(columns),
        lambda of: of(rows).T @ result.lazy_plan,
    ):
        torch.testing.assert_close(ask(lambda tensor: tensor.numpy()), ask(lambda tensor: tensor), rtol=0, atol=0)
    torch.testing.assert_close(rows.T @ result.lazy_plan, rows.T @ result.plan)
    np.testing.assert_array_equal(np.asarray(result.lazy_plan), result.plan)


def test_layouts_and_types():
    x, y = clouds(dtype=torch.float32)
    expected = monge.solve_sample(x, y, reg=0.5).plan
    wide = torch.zeros(9, 5)
    wide[:, 1:3] = x
    for layout in (wide[:, 1:3], x.T.contiguous().T):
        torch.testing.assert_close(monge.solve_sample(layout, y, reg=0.5).plan, expected, rtol=0, atol=0)
    half = monge.solve_sample(x.bfloat16(), y.bfloat16(), reg=0.5)
    assert half.plan.dtype == torch.float32
    with pytest.raises(TypeError, match="^X_a: is of dtype torch.complex64"):
        monge.solve_sample(x.to(torch.complex64), y, reg=0.5)


TIGHT = {"reg": 0.5, "tol": 1e-13}


@pytest.mark.parametrize("metric", ["sqeuclidean", "dot", "cosine", "euclidean", "cityblock", "chebyshev"])
def test_first_and_second_derivatives(metric):
    x, y = clouds()
    x.requires_grad_()
    y.requires_grad_()

    def value(x, y):
        return monge.torch.transport(x, y, weights(9), weights(8, 2), metric=metric, **TIGHT)

    assert gradcheck(value, (x, y), eps=1e-5, atol=1e-6)
    assert gradgradcheck(value, (x, y), eps=1e-5, atol=1e-5)


def test_derivatives_by_weights():
    x, y = clouds()
    logits_a, logits_b = (torch.randn(n, dtype=torch.float64, requires_grad=True) for n in (9, 8))

    def value(p, q):
        return monge.torch.transport(x, y, p.softmax(0), q.softmax(0), **TIGHT)

    assert gradcheck(value, (logits_a, logits_b), eps=1e-5, atol=1e-6)
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(value(logits_a, logits_b), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivatives are by the points only"):
        gradient.sum().backward()


def test_batches_and_penalties():
    x, y = clouds(batch=(3,))
    x.requires_grad_()
    values = monge.torch.transport(x, y, unbalanced=1.0, **TIGHT)
    each = torch.stack([monge.torch.transport(p, q, unbalanced=1.0, **TIGHT) for p, q in zip(x, y)])
    torch.testing.assert_close(values, each, rtol=0, atol=0)
    assert gradcheck(lambda v: monge.torch.transport(v, y, unbalanced=1.0, **TIGHT), (x,), eps=1e-5, atol=1e-6)


def test_the_value_of_a_result_has_gradients():
    x, y = clouds()
    a, b = weights(9), weights(8, 2)
    cost = torch.cdist(x, y).square()
    for tensor in (x, cost, a, b):
        tensor.requires_grad_()

    def by_points(x, p, q):
        return monge.solve_sample(x, y, p.softmax(0), q.softmax(0), tol=1e-13, reg=0.5).value

    assert gradcheck(by_points, (x, a, b), eps=1e-5, atol=1e-6)
    assert gradcheck(lambda c: monge.solve(c, tol=1e-13, reg=0.5, unbalanced=1.0).value, (cost,), eps=1e-5, atol=1e-6)
    ours, theirs = monge.solve(cost, a, b, 0.5, tol=1e-12), ot.solve(cost, a, b, 0.5, grad="envelope", tol=1e-12)
    own, other = (torch.autograd.grad(result.value, (cost, a, b)) for result in (ours, theirs))
    # POT's are those of the balanced problem, centred, and its values round P log P at 1e-15.
    torch.testing.assert_close(own[0], other[0], rtol=1e-6, atol=1e-9)
    with torch.no_grad():
        assert not monge.solve(cost, a, b, 0.5).value.requires_grad


@pytest.mark.parametrize("unbalanced", [None, 1.0])
def test_the_value_of_a_divergence_has_gradients(unbalanced):
    x, y = clouds()
    p = torch.randn(9, dtype=torch.float64)
    for tensor in (x, y, p):
        tensor.requires_grad_()

    def value(x, y, p):
        given = {"reg": 0.5, "tol": 1e-13, "unbalanced": unbalanced}
        return monge.sinkhorn_divergence(x, y, p.softmax(0), weights(8), **given).value

    assert gradcheck(value, (x, y, p), eps=1e-5, atol=1e-6)


def test_tensors_that_cannot_be_read():
    x, y = clouds()
    for tensor, error, match in (
        (x.to_sparse(), TypeError, "^X_b: is a tensor of layout torch.sparse_coo; must be strided"),
        (x.to("meta"), ValueError, "^X_b: lies on meta; must be on the CPU or on CUDA"),
    ):
        with pytest.raises(error, match=match):
            monge.solve_sample(y, tensor, reg=0.5)


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "cityblock"])
def test_other_metrics_have_first_derivatives(metric):
    x, y = clouds(batch=(2,))
    p, q = torch.stack([weights(9), weights(9, 2)]), torch.stack([weights(8, 3), weights(8, 4)])
    given = [v.requires_grad_() for v in (x, y, p.log(), q.log())]

    def value(x, y, p, q):
        return monge.torch.transport(x, y, p.softmax(1), q.softmax(1), metric=metric, scale=1.3, **TIGHT)

    assert gradcheck(value, given, eps=1e-5, atol=1e-6)
    (gradient,) = torch.autograd.grad(value(*given).sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError):
        gradient.sum().backward()


@pytest.mark.parametrize("debias", [True, False])
@pytest.mark.parametrize("reach", [None, 1.0])
def test_samples_loss_of_distances_is_that_of_geomloss(debias, reach):
    x, y = clouds(40, 50, 3)
    x.requires_grad_()
    given = {"p": 1, "blur": 0.3, "debias": debias, "reach": reach}
    ours = monge.torch.SamplesLoss(**given, tol=1e-12)
    assert gradcheck(lambda x: ours(x, y), (x[:6].detach().requires_grad_(),), eps=1e-5, atol=1e-6)
    value, errors = ours(x, y), []
    (own,) = torch.autograd.grad(value, x)
    for scaling in (0.99, 0.998):
        other = GeomLoss(**given, scaling=scaling, backend="tensorized")(x, y)
        (found,) = torch.autograd.grad(other, x)
        errors.append((abs(other - value).item(), (found - own).abs().max().item()))
    # It lags by what a step of its ladder changes, 1 - scaling, and takes each point for 1e-4 from itself; unbalanced,
    # its gradients are not those of its value.
    for coarse, fine in list(zip(*errors))[: 1 if reach is not None else 2]:
        assert fine < 0.5 * coarse + 1e-4


@pytest.mark.parametrize("debias", [True, False])
@pytest.mark.parametrize("reach", [None, 1.0])
def test_samples_loss_is_that_of_geomloss(debias, reach):
    x, y = clouds(40, 50, 3)
    a, b = weights(40), weights(50, 2)
    x.requires_grad_()
    a.requires_grad_()
    ours = monge.torch.SamplesLoss(blur=0.5, debias=debias, reach=reach, tol=1e-12)(a, x, b, y)

    def theirs(scaling):
        return GeomLoss(blur=0.5, debias=debias, reach=reach, scaling=scaling, backend="tensorized")(a, x, b, y)

    # GeomLoss takes one sweep at each step of its ladder, so it lags by what a step changes: some 1 - scaling.
    coarse, fine = theirs(0.99), theirs(0.998)
    assert abs(ours - fine).item() < 0.5 * abs(ours - coarse).item() < 1e-2 * abs(ours).item()
    if reach is not None:
        # Its unbalanced gradients are not those of its values: 10 % from its own finite differences here.
        return
    own, *others = (torch.autograd.grad(value, (x, a), retain_graph=True) for value in (ours, coarse, fine))
    for k in range(2):
        # By weights up to a constant.
        errors = [(p[k] - own[k] - (p[k] - own[k]).mean() * k).abs().max().item() for p in others]
        assert errors[1] < 0.5 * errors[0] < 0.1 * (own[k] - own[k].mean() * k).abs().max().item()


@pytest.mark.parametrize("debias", [True, False])
@pytest.mark.parametrize("reach, masses", [(None, (2.0, 2.0)), (0.5, (2.0, 2.0)), (0.5, (1.0, 1.6)), (0.5, (3.0, 0.4))])
@pytest.mark.parametrize("p", [1, 2])
def test_samples_loss_of_any_masses_is_that_of_geomloss(p, reach, masses, debias):
    x, y = clouds(20, 25, 2)
    logs = [weights(size).log() for size in (20, 25)]
    given = {"p": p, "blur": 0.5, "debias": debias, "reach": reach}
    loss = monge.torch.SamplesLoss(**given, tol=1e-13)

    def value(*logs, scale=1.0):
        a, b = (scale * mass * w.softmax(0) for w, mass in zip(logs, masses))
        return loss(a, x, b, y)

    a, b = (mass * w.softmax(0) for w, mass in zip(logs, masses))
    coarse, fine = (
        GeomLoss(**given, scaling=scaling, backend="tensorized")(a, x, b, y).item() for scaling in (0.99, 0.998)
    )
    own = value(*logs).item()
    # It lags by what a step of its ladder changes; for p = 1 each point is 1e-4 from itself.
    assert abs(own - fine) < 0.5 * abs(own - coarse) + 1e-4 * max(masses)
    assert abs(own - fine) < 2e-3 * abs(own)
    given = [v.clone().requires_grad_() for v in (*logs, torch.ones((), dtype=torch.float64))]
    # By the weights along directions that keep the masses, and by both masses together.
    assert gradcheck(lambda p, q, scale: value(p, q, scale=scale), given, eps=1e-5, atol=1e-6)
    if reach is not None:
        assert gradcheck(lambda a, b: loss(a, x, b, y), [a.requires_grad_(), b.requires_grad_()], eps=1e-6, atol=1e-6)


def test_samples_loss_in_batches_and_half():
    x, y = clouds(20, 25, 3, torch.float32, batch=(4,))
    loss = monge.torch.SamplesLoss(blur=0.3)
    values = loss(x, y)
    assert values.shape == (4,)
    for k in range(4):
        torch.testing.assert_close(values[k], loss(x[k], y[k]), rtol=0, atol=0)
    # bfloat16 rounds the points by 2^-9 of themselves, and values are smooth in them.
    torch.testing.assert_close(loss(x.bfloat16(), y.bfloat16()), values, rtol=0.05, atol=0.01)
    f, g = monge.torch.SamplesLoss(blur=0.3, potentials=True)(x, y)
    assert f.shape == x.shape[:2] and g.shape == y.shape[:2]
    with pytest.raises(NotImplementedError, match="^loss: is 'gaussian'"):
        monge.torch.SamplesLoss("gaussian")


def test_descent_reaches_the_target():
    x, y = clouds(30, 30)
    x.requires_grad_()
    loss = monge.torch.SamplesLoss(blur=0.05)
    optimiser = torch.optim.SGD([x], lr=20.0)
    begin = loss(x, y).item()
    for _ in range(30):
        optimiser.zero_grad()
        loss(x, y).backward()
        optimiser.step()
    assert loss(x, y).item() < 0.02 * begin


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_projection_modules(dtype):
    logits = torch.randn(2, 5, 4, 4, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    module = monge.torch.SinkhornProjection("mhc_paper", iterations=10)
    found = module(logits)
    assert found.shape == logits.shape and found.dtype == dtype

    def reference(logits):
        matrix = logits.exp()
        for _ in range(10):
            for axis in (-2, -1):
                matrix = matrix / matrix.sum(axis, keepdim=True)
        return matrix

    double = logits.detach().double().requires_grad_()
    direction = torch.randn(logits.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    found.backward(direction)
    reference(double).backward(direction.double())
    rounding = torch.finfo(dtype).eps
    torch.testing.assert_close(found.double(), reference(double.detach()), rtol=max(rounding, 1e-5), atol=rounding)
    # Gradients are sums of 16 terms of the size of the direction.
    torch.testing.assert_close(logits.grad.double(), double.grad, rtol=0, atol=max(16 * rounding, 1e-5))
    assert "iterations=10" in repr(module)
    with pytest.raises(TypeError, match="speed: is no option"):
        monge.torch.SinkhornProjection(speed=2)
    with pytest.raises((NotImplementedError, RuntimeError)):
        (gradient,) = torch.autograd.grad(module(logits).square().sum(), logits, create_graph=True)
        gradient.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gumbel_sinkhorn(dtype):
    logits = torch.randn(300, 5, 5, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()

    def sample(seed, **given):
        return monge.torch.gumbel_sinkhorn(logits, 0.7, generator=torch.Generator().manual_seed(seed), **given)

    found = sample(1)
    assert found.dtype == dtype
    torch.testing.assert_close(found, sample(1), rtol=0, atol=0)
    assert (found - sample(2)).abs().max() > 0.1
    wide = logits.detach().float()
    gumbel = -torch.empty_like(wide).exponential_(generator=torch.Generator().manual_seed(1)).log()
    # 7500 standard Gumbel numbers: mean 0.5772, variance pi^2 / 6, within four deviations of their estimates.
    assert abs(gumbel.mean() - 0.5772) < 4 * 1.283 / 7500**0.5
    assert abs(gumbel.var() - math.pi**2 / 6) < 4 * 1.645 * (4.4 / 7500) ** 0.5
    double = wide.double().requires_grad_()
    matrix = ((double + gumbel) / 0.7).exp()
    for _ in range(20):
        for axis in (-1, -2):
            matrix = matrix / matrix.sum(axis, keepdim=True)
    rounding = torch.finfo(dtype).eps
    torch.testing.assert_close(found.double(), matrix.detach(), rtol=max(rounding, 1e-5), atol=1e-6)
    direction = torch.randn(logits.shape, generator=torch.Generator().manual_seed(3)).to(dtype)
    (own,) = torch.autograd.grad(found, logits, direction)
    (other,) = torch.autograd.grad(matrix, double, direction.double())
    torch.testing.assert_close(own.double(), other, rtol=rounding, atol=max(16 * rounding * 0.1, 1e-5))
    torch.testing.assert_close(
        sample(1, noise=0), monge.torch.project(logits.float(), "gumbel_sinkhorn", temperature=0.7).to(dtype)
    )
    with pytest.raises(ValueError, match="^noise: is -1.0; must be finite and >= 0"):
        sample(1, noise=-1)
    with pytest.raises(ValueError, match="^temperature: is 0; must be finite and > 0"):
        monge.torch.gumbel_sinkhorn(logits, 0)
    with pytest.raises(TypeError, match="^logits: is of dtype torch.float64"):
        monge.torch.gumbel_sinkhorn(logits.double())


def deepseek(mixes, scale, base, iterations, eps):
    """DeepSeek's release, as its kernels define it: softmax + eps, then rows and columns by turns."""
    n = math.isqrt(len(base) + 1) - 1
    gates = mixes * scale.repeat_interleave(torch.tensor([n, n, n * n])) + base
    pre, post = gates[..., :n].sigmoid() + eps, 2 * gates[..., n : 2 * n].sigmoid()
    matrix = gates[..., 2 * n :].unflatten(-1, (n, n)).softmax(-1) + eps
    matrix = matrix / (matrix.sum(-2, keepdim=True) + eps)
    for _ in range(iterations - 1):
        for axis in (-1, -2):
            matrix = matrix / (matrix.sum(axis, keepdim=True) + eps)
    return pre, post, matrix


@pytest.mark.parametrize("iterations, streams", [(2, 4), (20, 4), (20, 2), (20, 8), (3, 1)])
def test_mhc_mapping_and_its_gradients(iterations, streams):
    generator, columns = torch.Generator().manual_seed(0), streams * (streams + 2)
    shapes = (2, 5, columns), (3,), (columns,)
    given = [torch.randn(*shape, generator=generator, requires_grad=True) for shape in shapes]
    double = [v.detach().double().requires_grad_() for v in given]
    found = monge.torch.hc_split_sinkhorn(*given, hc_mult=streams, sinkhorn_iters=iterations, eps=1e-6)
    expected = deepseek(*double, iterations, 1e-6)
    for own, other in zip(found, expected):
        torch.testing.assert_close(own.double(), other, rtol=1e-4, atol=1e-5)
    directions = [torch.randn(v.shape, generator=generator) for v in found]
    own = torch.autograd.grad(found, given, directions)
    other = torch.autograd.grad(expected, double, [v.double() for v in directions])
    for p, q in zip(own, other):
        torch.testing.assert_close(p.double(), q, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["mhc_mapping", "hc_split_sinkhorn", "module"])
def test_mhc_mappings_in_each_dtype(name, dtype):
    """Against the dense recursion in float64, from the same numbers: all that differs is rounding."""
    generator = torch.Generator().manual_seed(0)
    given = [torch.randn(*shape, generator=generator).to(dtype).requires_grad_() for shape in ((2, 5, 24), (3,), (24,))]
    mixes, scale, base = given
    if name == "module":
        module = monge.torch.MHCMapping("deepseek", pre_epsilon=1e-6, dtype=dtype)
        torch.nn.utils.vector_to_parameters(torch.cat((scale, base)).detach(), module.parameters())
        given = [mixes, *module.parameters()]
        found = module(mixes)
    elif name == "mhc_mapping":
        found = monge.torch.mhc_mapping(*given, "deepseek", pre_epsilon=1e-6)
    else:
        found = monge.torch.hc_split_sinkhorn(*given)
    assert all(v.dtype == dtype for v in found)
    double = [v.detach().double().requires_grad_() for v in given]
    expected = deepseek(*double, 20, 1e-6)
    half = torch.finfo(dtype).eps / 2  # Of one rounding; 1e-5 is what float32's iterations leave.
    for own, other in zip(found, expected):
        torch.testing.assert_close(own.double(), other.detach(), rtol=half + 1e-5, atol=half * 1e-3 + 1e-6)
    directions = [torch.randn(v.shape, generator=generator).to(dtype) for v in found]
    own = torch.autograd.grad(found, given, directions)
    other = torch.autograd.grad(expected, double, [v.double() for v in directions])
    for p, q, v in zip(own, other, given):
        assert p.dtype == dtype and p.shape == v.shape
        torch.testing.assert_close(p.double(), q, rtol=half + 1e-4, atol=half * 1e-3 + 1e-4)


def test_a_mapping_learns():
    module = monge.torch.MHCMapping()
    pre, post, res = module(torch.randn(7, 24, generator=torch.Generator().manual_seed(0)))
    # The scale is 0.01 at first, so the maps are near those of zeros.
    for found, expected in ((pre, 0.5), (post, 1.0), (res, 0.25)):
        assert 0 < (found - expected).abs().max() < 0.02
    assert {name: tuple(v.shape) for name, v in module.state_dict().items()} == {"scale": (3,), "base": (24,)}
    mixes = torch.randn(64, 24, generator=torch.Generator().manual_seed(1))
    target = monge.torch.mhc_mapping(mixes, torch.tensor([1.0, -1.0, 0.5]), torch.linspace(-1, 1, 24))
    optimiser = torch.optim.Adam(module.parameters(), lr=0.05)
    errors = []
    for _ in range(200):
        optimiser.zero_grad()
        error = sum((p - q).square().mean() for p, q in zip(module(mixes), target))
        error.backward()
        optimiser.step()
        errors.append(error.item())
    assert errors[-1] < 1e-3 * errors[0]
    assert "iterations=3" in repr(monge.torch.MHCMapping(iterations=3))
    pre, post, res = monge.torch.MHCMapping(streams=8)(torch.zeros(0, 80))
    assert pre.shape == post.shape == (0, 8) and res.shape == (0, 8, 8)
    with pytest.raises(TypeError, match="speed: is no option"):
        monge.torch.MHCMapping(speed=2)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({0: torch.zeros(2, 24).double()}, TypeError, "^mixes: is of dtype torch.float64; must be float16"),
        ({0: torch.zeros(2, 23)}, ValueError, r"^mixes: has shape \(2, 23\); must be \(..., 24\)"),
        ({0: torch.zeros(())}, ValueError, r"^mixes: has shape \(\); must be \(..., 24\)"),
        ({1: torch.zeros(2)}, ValueError, r"^hc_scale: has shape \(2,\); must be \(3,\)"),
        ({2: torch.zeros(24, dtype=torch.int64)}, TypeError, "^hc_base: is of dtype torch.int64"),
        ({1: torch.zeros(3, device="meta")}, ValueError, "^hc_scale: lies on meta; must be on cpu"),
    ],
)
def test_messages_of_mappings_name_the_argument(wrong, error, message):
    given = [wrong.get(k, torch.zeros(shape)) for k, shape in enumerate(((2, 24), (3,), (24,)))]
    with pytest.raises(error, match=message):
        monge.torch.hc_split_sinkhorn(*given)


@pytest.mark.parametrize("iterations", [1, 20])
def test_megatron(iterations):
    logits = 3 * torch.randn(6, 4, 4, generator=torch.Generator().manual_seed(0))
    matrix = (logits - logits.amax(-1, keepdim=True)).double().exp()
    for _ in range(iterations):
        for axis in (-1, -2):
            matrix = matrix / matrix.sum(axis, keepdim=True).clamp(min=0.2)
    torch.testing.assert_close(
        monge.torch.fused_sinkhorn(logits, iterations, eps=0.2).double(), matrix, rtol=1e-4, atol=1e-6
    )


def test_pairs_for_flow_matching():
    x0, x1 = clouds(64, 64, 12, torch.float32)
    pairs = monge.torch.OTPairs(seed=3)
    i, j = pairs.indices(x0.view(64, 3, 4), x1.view(64, 3, 4))
    assert i.dtype == torch.int64 and len(i) == 64
    again = monge.torch.OTPairs(seed=3)
    assert (again.indices(x0, x1)[0] == i).all()
    cost = (x0[i] - x1[j]).square().sum(1).mean()
    assert cost < 0.9 * (x0 - x1).square().sum(1).mean()
    p, q = pairs(x0, x1)
    assert p.shape == x0.shape and q.shape == x1.shape


@pytest.mark.parametrize("n", [1, 64])
@pytest.mark.parametrize("given", [{}, {"reg": 0.1}, {"eps_relative": 0.1}])
def test_pairs_of_points_in_one_place(n, given):
    x = torch.ones(n, 2)
    i, j = monge.torch.OTPairs(**given).indices(x, x)
    assert len(i) == len(j) == n and min(i.min(), j.min()) >= 0 and max(i.max(), j.max()) < n
    assert n == 1 or len(set(i.tolist())) > n / 3 < len(set(j.tolist()))  # Of 64 draws the expectation is 40.


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int64])
def test_costs_of_pairs(dtype):
    generator = torch.Generator().manual_seed(0)
    x, y = (((8 * torch.randn(n, 48, generator=generator)).round() + 4096).to(dtype) for n in (30, 40))
    costs = monge.torch._pairs.squared_distances(x, y)
    exact = (x.double()[:, None] - y.double()).square().sum(2)
    assert costs.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    # Sums of 48 products of each pair, whose terms are at most (|x - c| + |y - c|)^2, c the mean of y.
    size = ((x.double() - y.double().mean(0)).norm(dim=1)[:, None] + (y.double() - y.double().mean(0)).norm(dim=1)) ** 2
    assert ((costs - exact).abs() <= 52 * torch.finfo(costs.dtype).eps * size).all()


@pytest.mark.parametrize(
    "function",
    [
        lambda z: monge.solve(z, reg=0.3).value,
        lambda z: monge.solve_sample(z, z.detach() + 1, reg=0.3).value,
        lambda z: monge.solve_regularized(z, quadratic=0.3).value,
        lambda z: (monge.torch.project(z.float(), "mhc_paper") * torch.arange(16.0).view(4, 4)).sum(),
    ],
    ids=["solve", "solve_sample", "solve_regularized", "project"],
)
def test_second_derivatives_that_there_are_not_are_refused(function):
    z = torch.rand(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    (gradient,) = torch.autograd.grad(function(z), z, create_graph=True)
    (plain,) = torch.autograd.grad(function(z), z)
    assert (gradient == plain).all() and gradient.abs().max() > 0
    with pytest.raises(NotImplementedError, match="has no second derivatives"):
        gradient.square().sum().backward()


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.bfloat16])
def test_other_dtypes_keep_the_value(dtype):
    x, y = (3 * torch.rand(n, 2, generator=torch.Generator().manual_seed(n)) for n in (5, 6))
    x, y = x.to(dtype), y.to(dtype)
    wide = torch.float32 if dtype == torch.bfloat16 else torch.float64
    costs = (x.to(wide)[:, None] - y.to(wide)).square().sum(2).to(dtype)
    for function in (
        lambda x, y, c: monge.torch.transport(x, y, reg=0.5),
        lambda x, y, c: monge.torch.SamplesLoss(blur=0.5)(x, y),
        lambda x, y, c: monge.torch.regularized_transport(c, quadratic=0.3)[0],
    ):
        value = function(x, y, costs)
        assert value.dtype == wide and value == function(x.to(wide), y.to(wide), costs.to(wide))


def test_batches_of_unequal_lengths_are_refused():
    two, three = torch.rand(2, 4, 3), torch.rand(3, 5, 3)
    for x, y in ((two, three), (three, two)):
        for function in (lambda x, y: monge.torch.transport(x, y, reg=0.3), monge.torch.SamplesLoss()):
            with pytest.raises(ValueError, match=f"y: has {len(y)} problems; must have {len(x)}"):
                function(x, y)
    with pytest.raises(ValueError, match="a: has 3 problems; must have 2"):
        monge.torch.transport(two, two, torch.ones(3, 4) / 4, reg=0.3)
    with pytest.raises(ValueError, match="a: has 3 problems; must have 2"):
        monge.torch.regularized_transport(torch.rand(2, 3, 3), torch.ones(3, 3) / 3, quadratic=0.3)


@pytest.mark.parametrize("given", [{"blur": -1}, {"blur": 0}, {"reach": -1.0}, {"scaling": 1.5}])
def test_wrong_lengths_of_samples_loss(given):
    with pytest.raises(ValueError, match=f"{next(iter(given))}: is "):
        monge.torch.SamplesLoss(**given)


def test_samples_loss_says_that_blur_gives_eps():
    with pytest.raises(ValueError, match=r"^eps_relative: is 0.05; must be left out: eps is blur\^p, 0.01$"):
        monge.torch.SamplesLoss(blur=0.1, eps_relative=0.05)


def test_the_text_of_samples_loss_has_its_arguments():
    assert repr(monge.torch.SamplesLoss()) == "SamplesLoss(p=2, blur=0.05)"
    given = {"p": 1, "blur": 0.1, "reach": 2.0, "debias": False, "tol": 1e-3, "warm_start": True, "method": "newton"}
    text = repr(monge.torch.SamplesLoss(**given))
    assert text == f"SamplesLoss({', '.join(f'{name}={value!r}' for name, value in given.items())})"
    assert repr(monge.torch.SamplesLoss(eps=0.1)) == "SamplesLoss(p=2, eps=0.1)"


@pytest.mark.parametrize(
    "module, given, error, match",
    [
        (monge.torch.SinkhornProjection, {"iterations": -1}, ValueError, "^iterations: is -1; must be >= 1"),
        (monge.torch.SinkhornProjection, {"preset": "none"}, ValueError, "^preset: is 'none'; must be one of"),
        (monge.torch.MHCMapping, {"iterations": -1}, ValueError, "^iterations: is -1; must be >= 1"),
        (monge.torch.MHCMapping, {"pre_epsilon": "a"}, TypeError, "^pre_epsilon: is 'a'; must be a number"),
        (
            monge.torch.MHCMapping,
            {"dtype": torch.float64},
            TypeError,
            "^dtype: is torch.float64; must be torch.float16",
        ),
    ],
)
def test_modules_say_what_is_wrong_when_they_are_made(module, given, error, match):
    with pytest.raises(error, match=match):
        module(**given)


def test_classes_of_the_callers_are_tensors():
    class Named(torch.Tensor):
        pass

    x, y = clouds()
    named = x.as_subclass(Named).requires_grad_()
    monge.solve_sample(named, y, reg=0.5).value.backward()
    (expected,) = torch.autograd.grad(monge.solve_sample(x.requires_grad_(), y, reg=0.5).value, x)
    assert (named.grad == expected).all()


def test_tensors_with_the_negative_bit():
    """The imaginary part of a conjugate is a view whose numbers are negated as they are read."""
    x = torch.complex(torch.zeros(3, dtype=torch.float64), torch.tensor([1.0, 2, 4], dtype=torch.float64)).conj().imag
    assert x.is_neg()
    y = x.clone()[:, None]
    assert monge.solve_sample(x[:, None], y).value.item() == 0
    cost = (y - y.T) ** 2
    for negated, plain in (
        (monge.c_transform(y, y, x)[0], monge.c_transform(y, y, x.clone())[0]),
        (monge.plan_of(x, x, cost, reg=1.0).plan, monge.plan_of(x.clone(), x.clone(), cost, reg=1.0).plan),
        (monge.solve(cost, reg=1.0).apply(x), monge.solve(cost, reg=1.0).apply(x.clone())),
        (monge.torch.transport(x[:, None], y, reg=1.0), monge.torch.transport(y, y, reg=1.0)),
        (monge.project(x.float().reshape(1, 3).neg().neg()), monge.project(y.float().reshape(1, 3))),
    ):
        torch.testing.assert_close(negated, plain, rtol=1e-6, atol=1e-9)
    with pytest.raises(ValueError, match="^a: entry 0 is -1"):
        monge.emd(x, -x, cost)
