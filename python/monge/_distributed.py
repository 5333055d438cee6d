"""Several processes that share the work: see docs/scale.md."""

import contextlib
import functools
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from . import _core
from ._arrays import NumPy, as_numpy, asked_device, cuda_place, framework_of
from ._shared import Shared, shared
from ._versions import imported

Gather = Callable[[memoryview, memoryview, Sequence[int]], None]


class Ranks:
    """The processes of :func:`distributed`, with functions for arrays whose rows are spread over them.

    Args:
        rank: The number of this process, from 0; an attribute too.
        size: The number of processes; an attribute too.
        gather: Gathers the bytes of all processes, as `all_gather` of a group does.
    """

    def __init__(self, rank: int, size: int, gather: Gather) -> None:
        self.rank, self.size, self._gather = rank, size, gather

    def rows(self, n: int) -> slice:
        """The rows, of n in all, that belong to this rank.

        Args:
            n: The rows of all ranks.
        """
        return slice(n * self.rank // self.size, n * (self.rank + 1) // self.size)

    def gather_rows(self, own: Any) -> tuple[Any, slice]:
        """The rows of all ranks, in the order of the ranks, and the slice of them that this rank gave.

        All ranks call it. If `own` is a tensor of PyTorch that requires gradients, it receives the gradients of its
        rows of the result. The rows of other ranks are constants.

        >>> x, own = ranks.gather_rows(x_own)                           # doctest: +SKIP
        >>> result = monge.solve_sample(x, y, reg=0.5)                  # doctest: +SKIP
        >>> f_own = result.potential_a[own]                             # doctest: +SKIP

        Args:
            own: An array with any number of rows, even 0.

        Raises:
            ValueError: Ranks differ in the shape of a row or in the type of a number, or one of them has no array.
        """
        framework = framework_of(own)
        counts, kinds = np.empty((self.size, 1), np.int64), np.empty((self.size, 1), "S96")
        try:
            own, name, mine = _rows_of(framework, own)
        except Exception:  # The other ranks wait for this one, and learn of it.
            self._all(np.array([-1], np.int64), counts, [1] * self.size)
            raise
        self._all(np.array([len(mine)], np.int64), counts, [1] * self.size)
        for rank, count in enumerate(counts[:, 0]):
            if count < 0:
                raise ValueError(f"own: rank {rank} has no array with rows; must be one on all ranks")
        self._all(np.array([f"{mine.shape[1:]} of {name}"], "S96"), kinds, [1] * self.size)
        for rank, other in enumerate(kinds[:, 0]):
            if other != kinds[0, 0]:
                first = kinds[0, 0].decode()
                raise ValueError(f"own: rank {rank} has rows {other.decode()}; must be {first} as rank 0")
        places = _places(counts[:, 0].tolist())
        rows = slice(places[self.rank], places[self.rank + 1])
        found = np.empty((places[-1], *mine.shape[1:]), mine.dtype)
        self._all(mine, found, counts[:, 0].tolist())
        whole = framework.array(found, name, framework.device(own))
        if getattr(own, "requires_grad", False):
            torch = sys.modules["torch"]
            whole = torch.cat([whole[: rows.start], own, whole[rows.stop :]])
        return whole, rows

    def _all(self, mine: np.ndarray[Any, Any], every: np.ndarray[Any, Any], counts: list[int]) -> None:
        """Gathers rows of numbers, `counts` of each rank."""
        size = every.itemsize * math.prod(every.shape[1:])
        self._gather(_bytes_of(mine), _bytes_of(every), [count * size for count in counts])


def _rows_of(framework: NumPy, own: Any) -> tuple[Any, str, np.ndarray[Any, Any]]:
    """The array, the name of its dtype, and its numbers in host memory: float32 for bfloat16, which NumPy has not."""
    own = as_numpy("own", own) if framework.root == "numpy" else own
    if own.ndim == 0:
        raise ValueError("own: is a number; must have rows")
    name = framework.dtype_name(own)
    if name == "object":
        raise TypeError("own: is of dtype object; must be numbers")
    bfloat16 = name == "bfloat16"
    numbers = framework.on_host(framework.cast(own, "float32") if bfloat16 else own)
    return own, name, np.ascontiguousarray(numbers, np.float32 if bfloat16 else name)


def _bytes_of(array: np.ndarray[Any, Any]) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]


@contextlib.contextmanager
def distributed(group: Any = None, n_threads: int = 1, limit: float = 60.0, device: Any = "cpu") -> Iterator[Ranks]:
    """A context in which the processes of `group`, the ranks, share the work of every call on CPUs, or on a GPU each.

    Every rank makes the same calls with the same arguments and gets the same results, with equal bits. A rank that has
    other arguments, is in another call or raises ends the call on all ranks with one error. A `progress` function is given
    on all ranks or on none; the answer of rank 0 counts, and an exception of the function stops the solve on all ranks.
    Attributes and methods of a result that compute something, such as potentials, are calls too, also after the `with`
    block.

    >>> from mpi4py import MPI                                          # doctest: +SKIP
    >>> with monge.distributed(MPI.COMM_WORLD, n_threads=8):            # doctest: +SKIP
    ...     result = monge.solve_sample(x, y, reg=0.5)

    The `with` statement gives the ranks. If each has only some of the rows, `gather_rows` makes the whole array:

    >>> with monge.distributed(MPI.COMM_WORLD) as ranks:                # doctest: +SKIP
    ...     x, own = ranks.gather_rows(x_own)

    Args:
        group: A communicator of mpi4py; a process group of torch.distributed (gloo or, with `device`, NCCL), or None
            for its default group; or an object with `rank`, `size` and `all_gather(mine, every, sizes)`, which writes
            the bytes of all ranks, `sizes` of them, into the memoryview `every`.
        n_threads: Threads of each rank on the CPU; 0: all cores that it may use.
        limit: Seconds, > 0 and <= 1e6, that a rank waits for the others before it raises. `limit` must exceed the time
            by which ranks differ in their work between calls. It has no effect on the `all_gather` of an object of the
            caller's.
        device: "cpu", or the rank's "cuda:0", "cuda:1", ...; "cuda" is PyTorch's current device if PyTorch uses CUDA,
            otherwise "cuda:0". Arrays lie there or in host memory. Work goes to PyTorch's current stream if PyTorch
            uses CUDA; calls on another stream are refused.

    Raises:
        ValueError: Ranks differ in n_threads, in the kind of device, or in the version or the instruction set of the
            library; or `limit` is out of range.
        RuntimeError: A rank does not come within `limit` seconds, or has ended. Make a new session then.
        NotImplementedError: This build has no CUDA, or the machine no such device.
    """
    index = asked_device(device, None)
    stream, allocate, release = 0, None, None
    if index is not None:
        index, stream, allocate, release = cuda_place(None if str(device) == "cuda" else index)
    rank, size, all_gather = _communicator(group, limit)
    session = _core.distributed_session(rank, size, all_gather, limit, n_threads, index, stream, allocate, release)
    token = shared.set(Shared(session, index, stream, rank))
    try:
        yield Ranks(rank, size, all_gather)
    finally:
        shared.reset(token)


T = TypeVar("T")


def on_devices(
    work: Callable[[str], T], devices: str | Sequence[str] = "cuda:all", n_threads: int = 1, limit: float = 60.0
) -> T:
    """Runs work(device) on several devices of this process, which share the work of all calls: a thread and rank each.

    Each thread runs `work` within `distributed`, which says what ranks must keep to. For one device `work` runs in the
    caller's thread. Results of the library belong to their rank: everything that they compute must be taken from them
    within `work`.

    >>> f = monge.on_devices(                                           # doctest: +SKIP
    ...     lambda device: monge.solve_sample(x.to(device), y.to(device), reg=0.5).potential_a
    ... )

    Args:
        work: A function of a device, such as "cuda:1". Arrays that it gives to the library lie there or in host memory.
        devices: "cuda:all"; or devices, one a rank, as a list or separated by commas: "cuda:0,cuda:1".
        n_threads: Threads of each rank on the CPU; 0: all cores.
        limit: Seconds, > 0 and <= 1e6, that a rank waits for the others before it raises.

    Returns:
        The result of `work` on the first device.

    Raises:
        Exception: The error of the device that raises first; the others then end their calls.
        KeyboardInterrupt: After Ctrl-C, once `work` has ended on all devices: the next message raises on each of them.
        ValueError: `devices` names no device, or `limit` is out of range.
        NotImplementedError: This build has no CUDA, or the machine no such device.
    """
    names = [name.strip() for name in devices.split(",")] if isinstance(devices, str) else list(devices)
    if names == ["cuda:all"]:
        names = [info.device for info in _core.devices() if info.device != "cpu"]
        if not names:
            raise NotImplementedError(f"devices: is 'cuda:all'; {_core.cuda_unavailable_reason()}")
    if not names:
        raise ValueError("devices: is empty; must name at least one device")
    ranks = _core.local_communicators(len(names), limit)
    if len(names) == 1:  # Without messages; Ctrl-C stops the calls of the main thread.
        with distributed(ranks[0], n_threads, limit, names[0]):
            return work(names[0])
    results: dict[int, T] = {}
    errors: list[BaseException] = []
    begun: list[int] = []
    ended = [threading.Event() for _ in names]

    def run(rank: int) -> None:
        begun.append(rank)
        try:
            with distributed(ranks[rank], n_threads, limit, names[rank]):
                results[rank] = work(names[rank])
        except BaseException as error:
            errors.append(error)
        finally:
            ranks[rank].close()
            ended[rank].set()

    try:
        for rank in range(len(names)):
            threading.Thread(target=run, args=(rank,)).start()
        for event in ended:  # Thread.join(), once interrupted, takes its thread for ended.
            while not event.wait(0.1):  # A wait without a limit may miss a Ctrl-C that comes just before it.
                pass
    except BaseException:  # Ctrl-C reaches the main thread alone. Ranks that begin after it end at their first message.
        for communicator in ranks:
            communicator.close()
        for rank in begun:
            ended[rank].wait()
        raise
    if errors:
        raise errors[0]
    return results[0]


def _communicator(group: Any, limit: float) -> tuple[int, int, Gather]:
    if hasattr(group, "all_gather"):
        return group.rank, group.size, group.all_gather
    if hasattr(group, "Iallgatherv"):
        return group.Get_rank(), group.Get_size(), _mpi_gather(group.Dup(), limit)
    return _torch_communicator(group, limit)


def _places(sizes: Sequence[int]) -> list[int]:
    places = [0]
    for size in sizes:
        places.append(places[-1] + size)
    return places


_abandoned: list[Any] = []


def _wait(done: Callable[[], bool], memory: Any, size: int, limit: float) -> None:
    """Waits until a collective operation is done. It cannot be cancelled, so its memory stays after an error."""
    start = time.monotonic()
    while not done():
        waited = time.monotonic() - start
        if waited > limit:
            _abandoned.append(memory)
            raise RuntimeError(f"ranks: not all of the {size} ranks came within {limit:g} s (limit)")
        if waited > 1e-2:
            time.sleep(1e-4)


def _mpi_gather(communicator: Any, limit: float) -> Gather:
    from mpi4py import MPI

    def gather(mine: memoryview, every: memoryview, sizes: Sequence[int]) -> None:
        sent, received = bytearray(mine), bytearray(len(every))
        request = communicator.Iallgatherv([sent, MPI.BYTE], [received, sizes, _places(sizes)[:-1], MPI.BYTE])
        _wait(request.Test, (request, sent, received), len(sizes), limit)
        every[:] = received

    return gather


@functools.cache
def _gloo_group(group: Any) -> Any:
    """The group, or one of its processes whose messages are between hosts, so that a wait can end."""
    from torch import distributed as dist

    if dist.get_backend(group) != "nccl":
        return group
    return dist.new_group(dist.get_process_group_ranks(group), backend="gloo", use_local_synchronization=True)


def _torch_communicator(group: Any, limit: float) -> tuple[int, int, Gather]:
    torch = imported("torch", "monge.distributed")
    from torch import distributed as dist

    host_group = _gloo_group(dist.group.WORLD if group is None else group)

    def gather(mine: memoryview, every: memoryview, sizes: Sequence[int]) -> None:
        most = max(sizes)
        if most == 0:
            return
        own = torch.zeros(most, dtype=torch.uint8)
        if len(mine) > 0:
            own[: len(mine)] = torch.frombuffer(bytearray(mine), dtype=torch.uint8)
        found = [torch.empty(most, dtype=torch.uint8) for _ in sizes]
        work = dist.all_gather(found, own, group=host_group, async_op=True)
        _wait(work.is_completed, (work, own, found), len(sizes), limit)
        try:
            work.wait()
        except RuntimeError as error:
            raise RuntimeError(f"ranks: a message failed, as when a rank has ended: {error}") from error
        for place, size, part in zip(_places(sizes), sizes, found, strict=False):
            every[place : place + size] = part.numpy()[:size].tobytes()

    return dist.get_rank(group), dist.get_world_size(group), gather
