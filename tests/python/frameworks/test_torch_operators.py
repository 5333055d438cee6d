"""The operators of PyTorch as its machinery uses them: opcheck, torch.compile, DistributedDataParallel, no leaks."""

import gc
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

import monge
import monge.torch
from conftest import resident

GEOMETRY = '{"cost_function": "sqeuclidean", "norm_p": 2.0, "scale": 1.0}'
OPTIONS = '{"eps": 0.5, "tolerance": 1e-12}'


def random(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def transport_arguments():
    x, y = random(2, 5, 3).requires_grad_(), random(2, 4, 3, seed=1).requires_grad_()
    return x, y, None, None, GEOMETRY, OPTIONS


def at_the_solution(name="transport"):
    x, y, a, b, geometry, options = transport_arguments()
    found = [v.detach() for v in getattr(torch.ops.monge, name)(x, y, a, b, geometry, options)[1:]]
    return x, y, a, b, *found, geometry, options


def plan_arguments():
    cost = random(2, 5, 4).requires_grad_()
    found = torch.ops.monge.regularized_transport(cost, None, None, None, None, None, None, '{"quadratic": 1.0}', "{}")
    value, *rest = (v.detach() for v in found)
    return value.requires_grad_(), *rest, cost, None, None


def mhc_arguments():
    given = [random(*shape, dtype=torch.float32, seed=k) for k, shape in enumerate(((5, 24), (3,), (24,)))]
    return [v.requires_grad_() for v in given]


def logits():
    return random(3, 4, 4, dtype=torch.float32).requires_grad_()


ARGUMENTS = {
    "linear_sum_assignment": lambda: (random(3, 5, 4), torch.tensor([5, 3, 2]), None, False, True),
    "mhc_mapping": lambda: (*mhc_arguments(), "mhc_paper", "{}", 0.0, 2.0),
    "mhc_mapping_backward": lambda: (
        *mhc_arguments(),
        *(random(5, *shape, dtype=torch.float32) for shape in ((4,), (4,), (4, 4))),
        *("mhc_paper", "{}", 0.0, 2.0),
    ),
    "project": lambda: (logits(), "mhc_paper", "{}"),
    "project_backward": lambda: (logits(), random(3, 4, 4, dtype=torch.float32), "mhc_paper", "{}"),
    "regularized_gradients": plan_arguments,
    "regularized_transport": lambda: (
        *(v.requires_grad_() for v in (random(2, 5, 4), random(2, 5).softmax(1), random(2, 4).softmax(1))),
        *(torch.arange(5) % 3, None, None, None, '{"group_lasso": 0.05}', '{"tolerance": 1e-6}'),
    ),
    "sinkhorn_divergence": transport_arguments,
    "sinkhorn_divergence_gradients": lambda: (*at_the_solution("sinkhorn_divergence"), "xb"),
    "sinkhorn_divergence_hessian_product": lambda: (
        *(*at_the_solution("sinkhorn_divergence"), random(2, 5, 3, seed=2), random(2, 4, 3, seed=3)),
    ),
    "transport": transport_arguments,
    "transport_gradients": lambda: (*at_the_solution(), "xyab"),
    "transport_hessian_product": lambda: (*at_the_solution(), random(2, 5, 3, seed=2), random(2, 4, 3, seed=3)),
}
# These refuse some derivative or other, which the last test of opcheck asks for.
ONCE = {
    "mhc_mapping_backward",
    "project_backward",
    "regularized_gradients",
    "sinkhorn_divergence_gradients",
    "sinkhorn_divergence_hessian_product",
    "transport_gradients",
    "transport_hessian_product",
}


def test_every_operator_is_here():
    names = torch._C._dispatch_get_all_op_names()
    assert set(ARGUMENTS) == {name.removeprefix("monge::") for name in names if name.startswith("monge::")}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_operators_are_sound(name):
    tests = ["test_schema", "test_faketensor", "test_autograd_registration"]
    if name not in ONCE:
        tests.append("test_aot_dispatch_dynamic")
    operator = getattr(torch.ops.monge, name).default
    torch.library.opcheck(operator, ARGUMENTS[name](), test_utils=tests)


def compiled_losses():
    x, y = random(9, 2), random(8, 2, seed=1)
    samples = monge.torch.SamplesLoss(blur=0.5, tol=1e-12)
    module = monge.torch.SinkhornProjection("mhc_paper")

    def mapping(mixes, scale, base):
        return sum(v.square().sum() for v in monge.torch.hc_split_sinkhorn(mixes, scale, base))

    return {
        "transport": (lambda x: monge.torch.transport(2 * x, y, reg=0.5, tol=1e-13), (x,)),
        "samples_loss": (lambda x, y: samples(2 * x, y), (x, y)),
        "projection": (lambda v: module(2 * v).square().sum(), (logits().detach(),)),
        "mhc": (mapping, tuple(v.detach() for v in mhc_arguments())),
        "regularized": (lambda c: monge.torch.regularized_transport(2 * c, quadratic=1.0)[0], (random(5, 4),)),
    }


@pytest.mark.parametrize("name", compiled_losses())
def test_compiled(name):
    loss, inputs = compiled_losses()[name]
    found = []
    for step in (loss, torch.compile(loss, backend="aot_eager", fullgraph=True)):
        given = [v.clone().requires_grad_() for v in inputs]
        value = step(*given)
        value.backward()
        found.append((value.detach(), *(v.grad for v in given)))
    torch.testing.assert_close(found[1], found[0])


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.encoder = torch.nn.Linear(3, 2)
        self.mixing = torch.nn.Linear(3, 16)
        self.project = monge.torch.SinkhornProjection("mhc_paper")
        self.loss = monge.torch.SamplesLoss(blur=0.3, tol=1e-6)

    def forward(self, x, y):
        matrices = self.project(self.mixing(x.mean(1)).unflatten(-1, (4, 4)))
        targets = torch.arange(16.0).view(4, 4)
        return self.loss(self.encoder(x), self.encoder(y)).mean() + (matrices * targets).sum((-2, -1)).mean()


def samples():
    return random(4, 12, 3, dtype=torch.float32), random(4, 10, 3, dtype=torch.float32, seed=1) + 0.5


def train_in_parallel(rank, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    model = DistributedDataParallel(Model())
    model(*(v[2 * rank : 2 * rank + 2] for v in samples())).backward()
    torch.save([p.grad for p in model.parameters()], f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


def test_data_parallel_gradients_are_those_of_one_process(tmp_path):
    torch.multiprocessing.spawn(train_in_parallel, (str(tmp_path),), nprocs=2)
    model = Model()
    model(*samples()).backward()
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt")
        # Float32, summed in another order.
        torch.testing.assert_close(found, [p.grad for p in model.parameters()], rtol=1e-5, atol=1e-6)
        assert all((g != 0).any() for g in found)


def test_threads_have_the_gradients_of_one():
    x, y = random(40, 3), random(30, 3, seed=1)
    loss, project = monge.torch.SamplesLoss(blur=0.3), monge.torch.SinkhornProjection("mhc_paper")
    matrices = logits().detach()

    def gradients():
        p, q = x.clone().requires_grad_(), matrices.clone().requires_grad_()
        (loss(p, y) + project(q).square().sum()).backward()
        return p.grad, q.grad

    expected = gradients()
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: gradients(), range(16)):
            torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
def test_ten_thousand_calls_leave_nothing_behind():
    x, cost, matrices = random(12, 2).requires_grad_(), random(12, 9).requires_grad_(), logits()
    y = random(9, 2, seed=1)
    losses = (
        lambda: monge.torch.transport(x, y, reg=0.5),
        lambda: monge.torch.project(matrices, "mhc_paper").square().sum(),
        lambda: monge.torch.regularized_transport(cost, quadratic=1.0)[0],
        lambda: monge.solve_sample(x, y, reg=0.5).value,
        lambda: monge.solve(cost, reg=1.0, reg_type="L2").value,
    )

    def calls(count):
        for _ in range(count // len(losses)):
            for loss in losses:
                loss().backward()
        gc.collect()

    calls(1000)
    objects, memory = len(gc.get_objects()), [resident()]
    for _ in range(2):
        calls(5000)
        memory.append(resident())
    assert len(gc.get_objects()) - objects < 100
    # A plan of each call of one loss would be 5 MB each time; what the allocator does once is not.
    assert min(after - before for before, after in zip(memory, memory[1:])) < 1e6
