"""Arrays on a GPU: PyTorch, CuPy and JAX, streams, and devices that do not go together. Skipped where there is none."""

import functools
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import monge
import monge.torch

usable = torch.cuda.is_available() and not monge.cuda_unavailable_reason()
pytestmark = pytest.mark.skipif(not usable and "MONGE_REQUIRE_CUDA" not in os.environ, reason="no usable GPU")


@pytest.fixture
def clouds():
    random = np.random.default_rng(0)
    return random.normal(size=(300, 8)).astype("f4"), random.normal(size=(200, 8)).astype("f4") + 0.5


def cuda(arrays):
    return [torch.tensor(v, device="cuda") for v in arrays]


# Two backends: both reach the tolerance, and potentials are float64. Plans of float32 sweeps differ by the marginal
# errors, 1e-6 of the mass, over the rate of convergence.
CLOSE = {"rtol": 1e-3, "atol": 1e-8}


def test_tensors(clouds):
    x, y = cuda(clouds)
    result, expected = monge.solve_sample(x, y, reg=1.0), monge.solve_sample(*clouds, reg=1.0)
    for tensor in (
        result.plan,
        result.value,
        *result.potentials,
        *result.marginals,
        result.transform(),
        *result.topk(3),
    ):
        assert tensor.device == x.device
    np.testing.assert_allclose(result.plan.cpu(), expected.plan, **CLOSE)
    assert float(result.value) == pytest.approx(float(expected.value), rel=1e-5)
    np.testing.assert_allclose(result.apply(y).cpu(), expected.apply(clouds[1]), rtol=1e-3, atol=1e-6)
    assert result.sparse_plan.device == x.device
    i, j = result.sample(100, seed=1)
    assert i.device == x.device and i.dtype == torch.int64
    matrix = monge.solve(torch.cdist(x, y) ** 2, reg=1.0)
    np.testing.assert_allclose(matrix.plan.cpu(), expected.plan, rtol=1e-2, atol=1e-7)
    batch = monge.solve_sample_batch([x, x[:50]], [y, y[:70]], 1.0)
    np.testing.assert_allclose(batch.plan[0].cpu(), expected.plan, **CLOSE)


def test_multiscale():
    random = np.random.default_rng(44)
    clouds = random.random((2300, 3)).astype("f4"), random.random((2100, 3)).astype("f4") ** 1.5
    x, y = cuda(clouds)
    result = monge.solve_sample(x, y, reg=0.05, method="multiscale", tol=1e-6)
    expected = monge.solve_sample(*clouds, reg=0.05, method="sinkhorn", tol=1e-6)
    assert result.converged and 0 < result.report.left_out <= 1e-6 / 8
    assert float(result.value) == pytest.approx(float(expected.value), rel=1e-5)
    np.testing.assert_allclose(result.plan.cpu(), expected.plan, rtol=1e-2, atol=1e-8)
    # Averages of points of the unit cube: plans of these errors differ by far less than 1e-3 of a row's mass.
    np.testing.assert_allclose(result.apply(y).cpu(), expected.apply(clouds[1]), atol=1e-3 / 2300)
    new = torch.rand(50, 3, device="cuda")
    np.testing.assert_allclose(result.transform(new).cpu(), expected.transform(new.cpu().numpy()), atol=1e-3)
    losses, gradients = [], []
    for method in ("multiscale", "sinkhorn"):
        points = x.clone().requires_grad_()
        loss = monge.torch.SamplesLoss(blur=0.1, method=method, tol=1e-6)(points, y)
        gradients.append(torch.autograd.grad(loss, points)[0])
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-4, abs=1e-7)
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-3 / 2300)


def test_multiscale_with_labels():
    random = np.random.default_rng(45)
    clouds = random.random((2300, 3)).astype("f4"), random.random((2100, 3)).astype("f4") ** 1.5
    labels = [np.arange(len(points)) ** 2 % 7 % 4 for points in clouds]
    costs = [[0.0, 0.1, 0.3, 0.2], [0.05, 0.0, 0.2, 0.1], [0.3, -0.1, 0.0, 0.2], [0.2, 0.2, 0.2, 0.0]]
    given = {"reg": 0.02, "tol": 1e-6, "label_cost": costs}
    x, y = cuda(clouds)
    on_device = [torch.tensor(each, device="cuda") for each in labels]
    result = monge.solve_sample(x, y, method="multiscale", labels_x=on_device[0], labels_y=on_device[1], **given)
    expected = monge.solve_sample(*clouds, method="sinkhorn", labels_x=labels[0], labels_y=labels[1], **given)
    assert result.converged and 0 < result.report.left_out <= 1e-6 / 8
    assert float(result.value) == pytest.approx(float(expected.value), rel=1e-5)
    np.testing.assert_allclose(result.apply(y).cpu(), expected.apply(clouds[1]), atol=1e-3 / 2300)
    np.testing.assert_allclose(result.gradients().x.cpu(), expected.gradients().x, atol=1e-3 / 2300)


def test_the_callers_stream(clouds):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x, y = (torch.tensor(v, device="cuda") for v in clouds)
        torch.cuda._sleep(50_000_000)  # What follows must wait for this on the stream.
        x = 2 * x
        result = monge.solve_sample(x, y, reg=1.0)
        doubled = 2 * result.transform()
    stream.synchronize()
    expected = monge.solve_sample(2 * clouds[0], clouds[1], reg=1.0).transform()
    np.testing.assert_allclose(doubled.cpu(), 2 * expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_results_keep_their_answers_when_tensors_change(clouds, monkeypatch, library):
    if library == "cupy":
        give = pytest.importorskip("cupy").asarray
    else:
        give = functools.partial(torch.tensor, device="cuda")
    x, y = map(give, clouds)
    cost = give(((clouds[0][:, None] - clouds[1]) ** 2).sum(-1))
    of_points, of_costs = monge.solve_sample(x, y, reg=1.0), monge.solve(cost, reg=1.0)
    uses = (
        lambda: of_points.transform(),
        lambda: of_points.inverse.plan,
        lambda: of_costs.plan,
        lambda: of_costs.apply(give(np.ones(200))),
        lambda: of_costs.inverse.plan,
    )
    expected = [of_points.transform(), of_points.inverse.plan, of_costs._make_plan(), *(use() for use in uses[3:])]
    of_points, of_costs = monge.solve_sample(x, y, reg=1.0), monge.solve(cost, reg=1.0)
    monkeypatch.setattr(monge._problem, "MOST_COPIED", 0)
    large = monge.solve(cost, reg=1.0)
    for array in (x, y, cost):
        array *= 3
    for use, wanted in zip(uses, expected):
        found = use()
        assert float(abs(found - wanted).max()) <= 1e-6 * float(abs(wanted).max())
    for use in (lambda: large.plan, lambda: large.apply(give(np.ones(200))), lambda: large.inverse.plan):
        with pytest.raises(RuntimeError, match="^M: was changed in place since the solve"):
            use()
    assert len(large.potentials[0]) == 300


def test_weights_may_lie_in_host_memory(clouds):
    x, y = cuda(clouds)
    a = np.linspace(1, 2, 300) / np.linspace(1, 2, 300).sum()
    result = monge.solve_sample(x, y, a, reg=1.0)
    np.testing.assert_allclose(result.marginal_a.cpu(), a, atol=1e-6)


def test_host_arrays_are_solved_where_the_caller_says(clouds):
    x, y = clouds
    a = np.linspace(1, 2, 300) / np.linspace(1, 2, 300).sum()
    given = torch.tensor(x), torch.tensor(y)
    for result in (
        monge.solve_sample(x, y, a, reg=1.0, device="cuda"),
        monge.solve(((x[:, None] - y) ** 2).sum(-1), a, reg=1.0, device="cuda:0"),
        monge.solve_sample(*given, a, reg=1.0, device=torch.device("cuda")),
        monge.solve_sample_batch([x], [y], 1.0, [a], reg_type="KL", device="cuda")[0],
    ):
        assert result._plan.session.device == "cuda:0"
        for array in (result.plan, *result.potentials, result.transform() if result._problem.x is not None else a):
            assert isinstance(array, np.ndarray) or array.device.type == "cpu"
        expected = monge.solve_sample(x, y, a, reg=1.0)
        np.testing.assert_allclose(result.plan, expected.plan, rtol=1e-2, atol=1e-7)
        for own, other in zip(result.topk(2), expected.topk(2)):
            np.testing.assert_allclose(own, other, rtol=1e-2)
    sparse = monge.solve_regularized_sample(x, y, quadratic=100.0, device="cuda")
    assert isinstance(sparse.plan, np.ndarray) and sparse.sparse_plan.nnz == sparse.nonzeros
    on_device = monge.solve_regularized_sample(*cuda(clouds), quadratic=100.0)
    for tensor in (*on_device.topk(2), *on_device.sample(10), on_device.transform(cuda(clouds)[0][:3])):
        assert tensor.device.type == "cuda"
    np.testing.assert_array_equal(on_device.topk(2)[0].cpu(), sparse.topk(2)[0])
    with pytest.raises(ValueError, match="^device: is 'cpu'; must be 'cuda:0', where the arrays lie"):
        monge.solve_sample(*cuda(clouds), reg=1.0, device="cpu")


def test_device_memory_is_that_of_pytorch(clouds):
    x, y = cuda(clouds)
    monge.solve_sample(x, y, reg=1.0)  # What a session keeps is allocated.
    before = torch.cuda.memory_allocated()
    result = monge.solve_sample(x, y, reg=1.0)
    held = torch.cuda.memory_allocated()
    assert held - before >= 4 * (x.numel() + y.numel())  # The packed points of the plan.
    del result
    assert torch.cuda.memory_allocated() < held
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    peak = monge.solve_sample(x, y, reg=1.0).report.peak_bytes
    assert peak >= 4 * (x.numel() + y.numel())
    # PyTorch rounds up to 512 bytes, and a session has a little before.
    assert abs(torch.cuda.max_memory_allocated() - before - peak) <= 0.1 * peak + 65536


COLLECTS_IN_THE_ALLOCATOR = """
import gc, torch, monge
from monge import _arrays

collections = 0

def collecting(function):
    def work(self, *arguments):
        global collections
        before = function(self, *arguments)
        collections += gc.collect() > 0
        return before
    return work

kind = type(_arrays.framework_named("torch"))
kind._allocate, kind._release = collecting(kind._allocate), collecting(kind._release)
gc.disable()
gc.freeze()  # Collections then look at the objects of the test alone.
x = torch.randn(3000, 8, device="cuda")
expected = float(monge.solve_sample(x, x + 1, reg=1.0).value)
for _ in range(20):
    cycle = [monge.solve_sample(x, x + 1, reg=1.0)]
    cycle.append(cycle)
    del cycle
    assert float(monge.solve_sample(x, x + 1, reg=1.0).value) == expected
small = [torch.randn(200, 8, device="cuda") for _ in range(16)]
batch = dict(method="newton")  # Between sweeps on the GPU, on threads of the CPU.
values = [float(result.value) for result in monge.solve_sample_batch(small, small[::-1], 1.0, **batch)]
cycle = [monge.solve_sample_batch(small, small, 1.0, **batch)]
cycle.append(cycle)
del cycle
assert [float(result.value) for result in monge.solve_sample_batch(small, small[::-1], 1.0, **batch)] == values
assert collections > 0
print("done")
"""


def test_plans_may_be_collected_within_the_allocator():
    """In a process of its own, which a deadlock would not end."""
    done = subprocess.run(
        [sys.executable, "-c", COLLECTS_IN_THE_ALLOCATOR], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.strip() == "done", done.stderr


def test_calls_from_threads_and_within_a_progress_function(clouds):
    x, y = cuda(clouds)

    def value(**options):
        return float(monge.solve_sample(x, y, reg=1.0, **options).value)

    expected, within = value(), []

    def progress(state):
        within.append(value())
        return True

    assert value(progress=progress) == expected
    assert within and set(within) == {expected}
    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(lambda _: value(), range(16))) == {expected}


def test_arrays_may_lie_in_any_way(clouds):
    x, y = (torch.tensor(v) for v in clouds)
    cost = torch.cdist(x, y).square()
    expected = float(monge.solve_sample(x, y, reg=1.0, device="cuda").value)
    of_cost = float(monge.solve(cost, reg=1.0, device="cuda").value)
    wide = torch.zeros(300, 20)
    wide[:, 3:11] = x
    read_only = clouds[0].copy()
    read_only.flags.writeable = False
    for given in (x.pin_memory(), x.T.contiguous().T, wide[:, 3:11], wide.pin_memory()[:, 3:11], read_only):
        other = y if isinstance(given, torch.Tensor) else clouds[1]
        assert float(monge.solve_sample(given, other, reg=1.0, device="cuda").value) == expected
        if isinstance(given, torch.Tensor):
            assert float(monge.solve_sample(given.cuda(), y.cuda(), reg=1.0).value) == expected
    for given in (cost.pin_memory(), cost.T.contiguous().T):
        assert float(monge.solve(given, reg=1.0, device="cuda").value) == pytest.approx(of_cost, rel=1e-6)
        assert float(monge.solve(given.cuda(), reg=1.0).value) == pytest.approx(of_cost, rel=1e-6)
    same = x[:1].expand(300, 8)  # One row in memory.
    assert float(monge.solve_sample(same.cuda(), y.cuda(), reg=1.0).value) == pytest.approx(
        float(monge.solve_sample(same.contiguous(), y, reg=1.0).value), rel=1e-5
    )


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus_do_not_go_together(clouds):
    x, y = torch.tensor(clouds[0], device="cuda:0"), torch.tensor(clouds[1], device="cuda:1")
    with pytest.raises(ValueError, match="lies on cuda:1"):
        monge.solve_sample(x, y, reg=1.0)


def test_cupy(clouds):
    cupy = pytest.importorskip("cupy")
    x, y = (cupy.asarray(v) for v in clouds)
    result = monge.solve_sample(x, y, reg=1.0)
    assert isinstance(result.plan, cupy.ndarray)
    np.testing.assert_allclose(result.plan.get(), monge.solve_sample(*clouds, reg=1.0).plan, **CLOSE)
    assert isinstance(monge.project(cupy.zeros((3, 4, 4), "f4"), "mhc_paper"), cupy.ndarray)


def test_jax(clouds):
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX has no GPU")
    x, y = (jax.numpy.asarray(v) for v in clouds)
    result = monge.solve_sample(x, y, reg=1.0)
    assert result.plan.devices() == x.devices()
    np.testing.assert_allclose(np.asarray(result.plan), monge.solve_sample(*clouds, reg=1.0).plan, **CLOSE)


def test_derivatives(clouds):
    x, y = cuda(clouds)
    x.requires_grad_()
    value = monge.torch.SamplesLoss(blur=1.0)(x, y)
    (gradient,) = torch.autograd.grad(value, x)
    on_cpu = torch.tensor(clouds[0], requires_grad=True)
    (expected,) = torch.autograd.grad(monge.torch.SamplesLoss(blur=1.0)(on_cpu, torch.tensor(clouds[1])), on_cpu)
    torch.testing.assert_close(gradient.cpu(), expected, rtol=1e-3, atol=1e-6)


# The entries of a plan pass in blocks of 256 MiB, and have as much beside them.
def test_the_loss_of_distances_has_no_matrix():
    n = 20000
    x, y = (torch.randn(n, 3, device="cuda", generator=torch.Generator("cuda").manual_seed(k)) for k in (1, 2))
    x.requires_grad_()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    monge.torch.SamplesLoss(p=1, blur=0.5)(x, y).backward()
    assert torch.cuda.max_memory_allocated() - before < 0.5 * 4 * n * n
    assert x.grad.norm(dim=1).max() <= 3 / n  # Two slopes of a distance, each of length 1, and rounding.


@pytest.mark.parametrize("p", [1, 2])
def test_losses_of_either_power_on_either_device(clouds, p):
    found = []
    for device in ("cuda", "cpu"):
        x, y = (torch.tensor(v, device=device, requires_grad=True) for v in clouds)
        found.append(
            [v.cpu() for v in torch.autograd.grad(monge.torch.SamplesLoss(p=p, blur=0.5, tol=1e-6)(x, y), (x, y))]
        )
    for own, expected in zip(*found):
        torch.testing.assert_close(own, expected, rtol=0, atol=1e-4 * expected.abs().max().item())


@pytest.mark.parametrize("metric", ["sqeuclidean", "cosine", "euclidean", "cityblock"])
@pytest.mark.parametrize("name", ["value", "value_linear", "plan", "potentials"])
def test_derivatives_of_results(clouds, name, metric):
    found = []
    for device in ("cuda", "cpu"):
        x, y = (torch.tensor(v, dtype=torch.float64, device=device, requires_grad=True) for v in clouds)
        a = torch.linspace(1, 2, 300, dtype=torch.float64).softmax(0).requires_grad_()  # In host memory.
        result = monge.solve_sample(x, y, a, metric=metric, reg=1.0, tol=1e-11)
        output = result.plan.square() if name == "plan" else getattr(result, name)
        loss = (output[0][:, None] + output[1]).square().sum() if name == "potentials" else output.sum()
        by_x, by_y, by_a = (v.cpu() for v in torch.autograd.grad(loss, (x, y, a)))
        found.append([by_x, by_y, by_a - by_a.mean()])  # By weights up to a constant: their total stays.
    for own, expected in zip(*found):
        torch.testing.assert_close(own, expected, rtol=0, atol=1e-7 * expected.abs().max().item())


def test_derivatives_by_costs_in_float32(clouds):
    found = []
    for device in ("cuda", "cpu"):
        cost = (torch.cdist(*(torch.tensor(v, dtype=torch.float64) for v in clouds)) / 4).float().to(device)
        cost.requires_grad_()
        loss = monge.sinkhorn(None, None, cost, 0.5, stopThr=1e-7).square().sum()
        found.append(torch.autograd.grad(loss, cost)[0].cpu())
    torch.testing.assert_close(*found, rtol=0, atol=1e-3 * found[1].abs().max().item())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_mhc_mapping(dtype):
    module = monge.torch.MHCMapping()
    mixes = torch.randn(1000, 24, generator=torch.Generator().manual_seed(0)).to(dtype)
    on_cpu = module(mixes)
    for own, expected in zip(module.cuda()(mixes.cuda()), on_cpu):
        assert own.dtype == dtype
        torch.testing.assert_close(own.cpu(), expected, rtol=2 * torch.finfo(dtype).eps, atol=1e-5)


@pytest.mark.parametrize("terms", ["none", "quadratic", "group_lasso", "l1", "mask"])
def test_regularised_plans(clouds, terms):
    cost = torch.cdist(*(torch.tensor(v) for v in clouds))
    generator = torch.Generator().manual_seed(0)
    matrix = torch.rand(300, 200, generator=generator)
    given = {
        "none": {},
        "quadratic": {"quadratic": 10.0},
        "group_lasso": {"group_lasso": 0.1, "groups": torch.arange(300) % 4},
        "l1": {"l1": 1.0, "l1_weights": matrix},
        "mask": {"quadratic": 10.0, "mask": matrix > 0.1},
    }[terms]
    on_gpu = {name: value.cuda() if isinstance(value, torch.Tensor) else value for name, value in given.items()}
    result = monge.solve_regularized(cost.cuda(), **on_gpu)
    expected = monge.solve_regularized(cost, **given)
    assert result.converged
    for tensor in (
        result.plan,
        *result.potentials,
        *result.marginals,
        result.sparse_plan,
        result.average(cost.cuda().T),
    ):
        assert tensor.device.type == "cuda"
    # Each is good to the tolerance of 1e-4, of the gap and, at up to the range of the costs, of the marginals.
    spread = float(cost.max() - cost.min())
    off = abs(result.gap) + abs(expected.gap) + spread * (result.marginal_error + expected.marginal_error)
    assert float(result.value) == pytest.approx(float(expected.value), abs=off)
    torch.testing.assert_close(result.sparse_plan.to_dense(), result.plan, rtol=0, atol=0)
    on_device = cost.cuda().requires_grad_()
    value, plan = monge.torch.regularized_transport(on_device, **on_gpu)
    value.backward()
    torch.testing.assert_close(on_device.grad, plan, rtol=0, atol=0)
    torch.testing.assert_close(plan, result.plan, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_projection(dtype):
    logits = torch.randn(1000, 4, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    on_gpu = logits.cuda().requires_grad_()
    on_cpu = logits.clone().requires_grad_()
    direction = torch.arange(16.0).reshape(4, 4)
    module = monge.torch.SinkhornProjection()
    for given in (on_gpu, on_cpu):
        (module(given).float() * direction.to(given.device)).sum().backward()
    torch.testing.assert_close(module(on_gpu).cpu(), module(on_cpu), rtol=2 * torch.finfo(dtype).eps, atol=1e-5)
    torch.testing.assert_close(on_gpu.grad.cpu(), on_cpu.grad, rtol=0, atol=max(256 * torch.finfo(dtype).eps, 1e-3))


def test_a_thousand_calls_keep_no_device_memory():
    logits = torch.randn(8, 4, 4, device="cuda")
    x = torch.randn(40, 2, device="cuda")
    for count in (100, 1000):
        for _ in range(count):
            monge.torch.project(logits, "mhc_paper")
            monge.solve_sample(x, x, reg=1.0).plan
        torch.cuda.synchronize()
        free = torch.cuda.mem_get_info()[0]
        if count == 100:
            first = free
    assert first - free < 32 << 20


@pytest.mark.parametrize("reg", [None, 5.0])
def test_gromov_wasserstein(clouds, reg):
    x, y = clouds[0][:, :3], clouds[1][:, :2]
    expected = monge.solve_gromov_sample(x, y, reg=reg)
    on_gpu, other = cuda((x, y))
    on_gpu.requires_grad_()
    # From one end: searches from other starts may end at another optimum.
    result = monge.solve_gromov_sample(on_gpu, other, reg=reg, plan_init=expected)
    assert result.converged
    assert float(result.value) == pytest.approx(float(expected.value), rel=1e-5)
    for tensor in (result.value, result.plan, *result.potentials, *result.marginals, result.transform()):
        assert tensor.device == on_gpu.device
    np.testing.assert_allclose(result.plan.detach().cpu(), expected.plan, rtol=1e-2, atol=1e-7)
    result.value.backward()
    np.testing.assert_allclose(on_gpu.grad.cpu(), expected.gradients().x, rtol=1e-2, atol=1e-3)
