"""Processes of torch.distributed share the work of a solve, with the bits of one process on CPUs."""

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


def run(program, backend, tmp_path):
    command = [sys.executable, "-c", PROGRAM + program]
    ranks = [
        subprocess.Popen([*command, str(rank), str(tmp_path / "store"), backend], stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    for rank in ranks:
        _, errors = rank.communicate(timeout=120)
        assert rank.returncode == 0, errors


def test_processes_have_the_bits_of_one(tmp_path):
    run(ON_CPU, "gloo", tmp_path)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_processes_with_a_device(tmp_path):
    run(ON_CUDA, "gloo", tmp_path)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_processes_with_a_device_each(tmp_path):
    run(ON_CUDA, "nccl", tmp_path)
