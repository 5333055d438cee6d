"""Several processes that share the work: see docs/scale.md."""

import contextlib
import contextvars
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from . import _core

_session: contextvars.ContextVar[_core.Session | None] = contextvars.ContextVar("monge_session", default=None)


def session() -> _core.Session | None:
    """The session of `distributed`, in this thread."""
    return _session.get()


@contextlib.contextmanager
def distributed(group: Any = None, n_threads: int = 1, limit: float = 300.0) -> Iterator[None]:
    """Within it the processes of `group`, the ranks, share the work of every call on the CPU.

    Every rank makes the same calls with the same arguments and gets the same results, with equal bits. A rank that has
    other arguments, is in another call or raises ends the call on all ranks with one error. A `progress` function is given
    on all ranks or on none; the answer of rank 0 counts, and an exception of it stops the solve on all ranks. Attributes
    and methods of a result that compute something, such as potentials, are calls too, also after the `with` block.

    >>> from mpi4py import MPI                                          # doctest: +SKIP
    >>> with monge.distributed(MPI.COMM_WORLD, n_threads=8):            # doctest: +SKIP
    ...     result = monge.solve_sample(x, y, reg=0.5)

    Args:
        group: A communicator of mpi4py; a process group of torch.distributed whose backend has CPU tensors (gloo), or
            None for its default group; or an object with `rank`, `size` and `all_gather(mine, every, sizes)`, which
            writes the bytes of all ranks, `sizes` of them, into the memoryview `every`.
        n_threads: Threads of each rank; 0: all cores that it may use.
        limit: Seconds after which mpi4py's messages that not all ranks have reached raise. A process group has a limit
            of its own.

    Raises:
        ValueError: Ranks differ in n_threads, or in the version or the instruction set of the library.
    """
    rank, size, all_gather = _communicator(group, limit)
    token = _session.set(_core.distributed_session(rank, size, all_gather, n_threads))
    try:
        yield
    finally:
        _session.reset(token)


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

    def gather(mine: memoryview, every: memoryview, sizes: Sequence[int]) -> None:
        most = max(sizes)
        if most == 0:
            return
        own = torch.zeros(most, dtype=torch.uint8)
        if len(mine) > 0:
            own[: len(mine)] = torch.frombuffer(bytearray(mine), dtype=torch.uint8)
        found = [torch.empty(most, dtype=torch.uint8) for _ in sizes]
        dist.all_gather(found, own, group=group)
        for place, size, part in zip(_places(sizes), sizes, found, strict=False):
            every[place : place + size] = part.numpy()[:size].tobytes()

    return dist.get_rank(group), dist.get_world_size(group), gather
