"""Ranks of mpi4py under mpirun: bits of one process, rows of each rank, one error on all ranks."""

import os
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("mpi4py")
PROGRAM = """
import numpy as np
from mpi4py import MPI
import monge
world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
random = np.random.default_rng(3)
x, y = (random.normal(size=(n, 3)) for n in (905, 801))
alone = monge.solve_sample(x, y, reg=0.5, n_threads=size)
with monge.distributed(world) as ranks:
    shared = monge.solve_sample(x, y, reg=0.5)
    assert shared.report.ranks == size
    assert np.array_equal(shared.potential_a, alone.potential_a)
    assert np.array_equal(shared.plan, alone.plan)
    first, last = 905 * rank * rank // size**2, 905 * (rank + 1) ** 2 // size**2  # Uneven shares.
    whole, own = ranks.gather_rows(x[first:last])
    assert np.array_equal(whole, x) and own == slice(first, last)
    try:
        monge.solve_sample(x + (rank == size - 1), y, reg=0.5)
        raise AssertionError("other points on the last rank were taken")
    except ValueError as error:
        assert "must be equal on all ranks" in str(error), error
half = world.Split(rank % 2)
with monge.distributed(half):
    assert monge.solve_sample(x, y, reg=0.5).report.ranks == half.Get_size()
"""
WITH_A_LATE_RANK = """
import time
import numpy as np
from mpi4py import MPI
import monge
world = MPI.COMM_WORLD
with monge.distributed(world, limit=1):
    if world.Get_rank() > 0:
        time.sleep(60)
    monge.solve_sample(np.ones((9, 2)), np.ones((8, 2)), reg=0.5)
"""


def run(ranks, program):
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        pytest.skip("needs mpirun")
    # Open MPI starts more ranks than cores, and starts as root, only where it is told to.
    allowed = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe")
    return subprocess.run(
        [mpirun, "-n", str(ranks), sys.executable, "-m", "mpi4py", "-c", program],
        env={**os.environ, **dict.fromkeys(allowed, "1")},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_processes_have_the_bits_of_one(ranks):
    done = run(ranks, PROGRAM)
    assert done.returncode == 0, done.stderr


def test_a_late_rank_ends_the_call_at_the_limit():
    done = run(2, WITH_A_LATE_RANK)
    assert done.returncode != 0
    assert "ranks: not all of the 2 ranks came within 1 s (limit)" in done.stderr
