"""The session of monge.distributed, in this thread."""

import contextvars
from typing import NamedTuple

from . import _core


class Shared(NamedTuple):
    """The session and, on CUDA, its device and stream; and which of the ranks this process is."""

    session: _core.Session
    cuda_index: int | None
    stream: int
    rank: int


shared: contextvars.ContextVar[Shared | None] = contextvars.ContextVar("monge_shared", default=None)
