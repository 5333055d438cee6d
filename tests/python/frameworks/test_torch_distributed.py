"""Processes of torch.distributed share the work of a solve, with the bits of one process on CPUs."""

import signal
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

PROGRAM = """
import sys
import numpy as np
import torch
from torch import distributed as dist
import monge

rank, store, backend = int(sys.argv[1]), sys.argv[2], sys.argv[3]
"""
ON_CPU = """
dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=2)
random = np.random.default_rng(5)
x, y = torch.tensor(random.normal(size=(905, 3))), torch.tensor(random.normal(size=(801, 3)))
alone = monge.solve_sample(x, y, reg=0.5, n_threads=2)
with monge.distributed():
    shared = monge.solve_sample(x, y, reg=0.5)
    assert shared.report.ranks == 2
    assert torch.equal(shared.potential_a, alone.potential_a)
    assert torch.equal(shared.plan, alone.plan)

# Each rank has the gradient of its own rows of a global batch.
x.requires_grad_()
(expected,) = torch.autograd.grad(monge.solve_sample(x, y, reg=0.5, n_threads=2).value, x)
own_x = x.detach()[400 * rank : 400 + 505 * rank].clone().requires_grad_()
with monge.distributed() as ranks:
    whole, own = ranks.gather_rows(own_x)
    monge.solve_sample(whole, y, reg=0.5).value.backward()
    assert torch.equal(own_x.grad, expected[own])
    halves, own = ranks.gather_rows(own_x.detach().bfloat16())
    assert halves.dtype is torch.bfloat16 and torch.equal(halves[own], own_x.bfloat16())
dist.destroy_process_group()
"""
# Passes that the ranks share. Potentials agree as far as float32 and the tolerance tell.
ON_CUDA = """
device = torch.device("cuda", rank % torch.cuda.device_count())
torch.cuda.set_device(device)
dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=2)
random = np.random.default_rng(5)
x, y = (torch.tensor(random.normal(size=(n, 3)), dtype=torch.float32, device=device) for n in (9001, 8200))
alone = monge.solve_sample(x, y, reg=0.5, tol=1e-5)
with monge.distributed(device=device):
    shared = monge.solve_sample(x, y, reg=0.5, tol=1e-5)
    assert shared.report.ranks == 2
    value = float(shared.value)
    assert shared.potential_a.device == device
    a = shared.potential_a
    x.requires_grad_()
    loss = monge.solve_sample(x, y, reg=0.5, tol=1e-5).value
    loss.backward()
    other = torch.cuda.Stream()
    with torch.cuda.stream(other):
        try:
            monge.solve_sample(x, y, reg=0.5)
            raise AssertionError("another stream was taken")
        except ValueError as error:
            assert "stream" in str(error)
assert abs(value - float(alone.value)) < 1e-4 * abs(value)
assert torch.allclose(a, alone.potential_a, atol=1e-3)
bits = [torch.empty_like(a, device="cpu") for _ in range(2)]
gathered = [torch.empty_like(a) for _ in range(2)] if backend == "nccl" else bits
dist.all_gather(gathered, a if backend == "nccl" else a.cpu())
assert torch.equal(gathered[0], gathered[1])
assert x.grad is not None and bool(torch.isfinite(x.grad).all())
dist.destroy_process_group()
"""
# One rank ends or stops in a solve; the other has an error within the limit.
IN_TROUBLE = """
import os
import signal
import time
device = "cuda" if on_cuda else "cpu"
if on_cuda:
    torch.cuda.set_device(rank)
dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=2)
random = np.random.default_rng(5)
x, y = (torch.tensor(random.normal(size=(n, 3)), dtype=torch.float32, device=device) for n in (9001, 8200))
def progress(state):
    if rank == 1 and state.iteration > 5:
        os.kill(os.getpid(), trouble)
with monge.distributed(limit=3, device=device):
    start = time.monotonic()
    try:
        monge.solve_sample(x, y, reg=0.5, tol=0, max_iter=10**6, progress=progress)
    except RuntimeError as error:
        message = str(error)
assert message.startswith("ranks: "), message
assert time.monotonic() - start < 60
print(message, flush=True)
os._exit(0)
"""


def start(program, backend, tmp_path):
    command = [sys.executable, "-c", PROGRAM + program]
    return [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store"), backend],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]


def run(program, backend, tmp_path):
    ranks = start(program, backend, tmp_path)
    for rank in ranks:
        _, errors = rank.communicate(timeout=120)
        assert rank.returncode == 0, errors


def test_processes_have_the_bits_of_one(tmp_path):
    run(ON_CPU, "gloo", tmp_path)


@pytest.mark.parametrize("trouble", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_a_rank_in_trouble_ends_the_call(trouble, backend, tmp_path):
    on_cuda = torch.cuda.device_count() > 1
    if backend == "nccl" and not on_cuda:
        pytest.skip("needs two CUDA devices")
    program = f"trouble, on_cuda = {int(trouble)}, {on_cuda}\n" + IN_TROUBLE
    ranks = start(program, backend, tmp_path)
    try:
        message, errors = ranks[0].communicate(timeout=40)
    finally:
        for rank in ranks:
            rank.kill()
    assert ranks[0].returncode == 0, errors
    assert "ranks: " in message


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_processes_with_a_device(tmp_path):
    run(ON_CUDA, "gloo", tmp_path)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_processes_with_a_device_each(tmp_path):
    run(ON_CUDA, "nccl", tmp_path)
