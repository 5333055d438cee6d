"""Processes of torch.distributed share the work of a solve, with the bits of one process."""

import subprocess
import sys

import pytest

pytest.importorskip("torch")

PROGRAM = """
import sys
import numpy as np
import torch
from torch import distributed as dist
import monge

rank, store = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
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


def test_processes_have_the_bits_of_one(tmp_path):
    command = [sys.executable, "-c", PROGRAM]
    ranks = [
        subprocess.Popen([*command, str(rank), str(tmp_path / "store")], stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    for rank in ranks:
        _, errors = rank.communicate(timeout=120)
        assert rank.returncode == 0, errors
