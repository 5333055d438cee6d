"""Several processes that share the work: see docs/scale.md."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from . import _core
from ._arrays import asked_device, cuda_place
from ._shared import Shared, shared


@contextlib.contextmanager
def distributed(group: Any = None, n_threads: int = 1, limit: float = 300.0, device: Any = "cpu") -> Iterator[None]:
    """Within it the processes of `group`, the ranks, share the work of every call on the CPU, or on a GPU each.

    Every rank makes the same calls with the same arguments and gets the same results, with equal bits. A rank that has
    other arguments, is in another call or raises ends the call on all ranks with one error. A `progress` function is given
    on all ranks or on none; the answer of rank 0 counts, and an exception of it stops the solve on all ranks. Attributes
    and methods of a result that compute something, such as potentials, are calls too, also after the `with` block.

    >>> from mpi4py import MPI                                          # doctest: +SKIP
    >>> with monge.distributed(MPI.COMM_WORLD, n_threads=8):            # doctest: +SKIP
    ...     result = monge.solve_sample(x, y, reg=0.5)

    Args:
        group: A communicator of mpi4py; a process group of torch.distributed (gloo or, with `device`, NCCL), or None
            for its default group; or an object with `rank`, `size` and `all_gather(mine, every, sizes)`, which writes
            the bytes of all ranks, `sizes` of them, into the memoryview `every`.
        n_threads: Threads of each rank on the CPU; 0: all cores that it may use.
        limit: Seconds after which mpi4py's messages that not all ranks have reached raise. A process group has a limit
            of its own.
        device: "cpu", or the rank's "cuda:0", "cuda:1", ...; "cuda" is PyTorch's current device if PyTorch uses CUDA,
            otherwise "cuda:0". Arrays lie there or in host memory. Work goes to PyTorch's current stream if PyTorch uses
            CUDA; calls of another stream are refused.

    Raises:
        ValueError: Ranks differ in n_threads, in the kind of device, or in the version or the instruction set of the
            library.
        NotImplementedError: This build has no CUDA, or the machine no such device.
    """
    index = asked_device(device, None)
    stream, allocate, release = 0, None, None
    if index is not None:
        index, stream, allocate, release = cuda_place(None if str(device) == "cuda" else index)
    rank, size, all_gather = _communicator(group, limit)
    session = _core.distributed_session(rank, size, all_gather, n_threads, index, stream, allocate, release)
    token = shared.set(Shared(session, index, stream, rank))
    try:
        yield
    finally:
        shared.reset(token)


Gather = Callable[[memoryview, memoryview, Sequence[int]], None]


def _communicator(group: Any, limit: float) -> tuple[int, int, Gather]:
    if hasattr(group, "all_gather"):
        return group.rank, group.size, group.all_gather
    if hasattr(group, "Iallgatherv"):
        return group.Get_rank(), group.Get_size(), _mpi_gather(group.Dup(), limit)
    return _torch_communicator(group)


def _places(sizes: Sequence[int]) -> list[int]:
    places = [0]
    for size in sizes:
        places.append(places[-1] + size)
    return places


_abandoned: list[Any] = []


def _mpi_gather(communicator: Any, limit: float) -> Gather:
    from mpi4py import MPI

    def gather(mine: memoryview, every: memoryview, sizes: Sequence[int]) -> None:
        sent, received = bytearray(mine), bytearray(len(every))
        request = communicator.Iallgatherv([sent, MPI.BYTE], [received, sizes, _places(sizes)[:-1], MPI.BYTE])
        start = time.monotonic()
        while not request.Test():
            waited = time.monotonic() - start
            if waited > limit:
                _abandoned.append((request, sent, received))  # MPI cannot cancel it, so its memory must stay.
                raise RuntimeError(f"ranks: not all of the {len(sizes)} ranks came within {limit} s")
            if waited > 1e-2:
                time.sleep(1e-4)
        every[:] = received

    return gather


def _torch_communicator(group: Any) -> tuple[int, int, Gather]:
    import torch
    from torch import distributed as dist

    device = "cuda" if dist.get_backend(group) == "nccl" else "cpu"

    def gather(mine: memoryview, every: memoryview, sizes: Sequence[int]) -> None:
        most = max(sizes)
        if most == 0:
            return
        own = torch.zeros(most, dtype=torch.uint8)
        if len(mine) > 0:
            own[: len(mine)] = torch.frombuffer(bytearray(mine), dtype=torch.uint8)
        found = [torch.empty(most, dtype=torch.uint8, device=device) for _ in sizes]
        dist.all_gather(found, own.to(device), group=group)
        for place, size, part in zip(_places(sizes), sizes, found, strict=False):
            every[place : place + size] = part.cpu().numpy()[:size].tobytes()

    return dist.get_rank(group), dist.get_world_size(group), gather
