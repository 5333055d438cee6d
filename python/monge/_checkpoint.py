"""Potentials of a running solve, in files from which another solve may start."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import _core
from ._shared import shared


class Checkpoint:
    """A progress function that writes the potentials to a folder, as f.npy and g.npy.

    >>> monge.solve_sample(x, y, reg=0.1, progress=monge.Checkpoint("kept"))           # doctest: +SKIP
    >>> start = np.load("kept/f.npy"), np.load("kept/g.npy")                           # doctest: +SKIP
    >>> monge.solve_sample(x, y, reg=0.1, potentials_init=start)                       # doctest: +SKIP

    A file is written under another name and then renamed, so no reader sees a part of it. Within
    :class:`monge.distributed` rank 0 writes, and the number of ranks may differ from one solve to the next. Potentials
    are in units of the cost, for the `potentials_init` of the same call.

    Args:
        folder: Where the files go; it is made if it is not there.
        every: Checks from one checkpoint to the next. A solve has a check every `check_every` sweeps or more often.
        progress: Another progress function to call at each check.

    Raises:
        ValueError: `every` is below 1.
        NotImplementedError: The solve is one of a batch or of a divergence.
        OSError: The files cannot be written. It ends the solve.
    """

    def __init__(
        self, folder: str | os.PathLike[str], every: int = 10, progress: Callable[[Any], object] | None = None
    ) -> None:
        if every < 1:
            raise ValueError(f"every: is {every}; must be >= 1")
        self._folder = Path(folder)
        self._every = every
        self._progress = progress
        self._checks = 0

    def __call__(self, state: _core.Progress) -> object:
        if state.problem > 0:
            raise NotImplementedError("progress: is a Checkpoint; must be given to a solve of a single problem")
        self._checks += 1
        if self._checks % self._every == 0:
            potentials = state.potentials()  # On every rank.
            ranks = shared.get()
            if ranks is None or ranks.rank == 0:
                self._write(potentials)
        return None if self._progress is None else self._progress(state)

    def _write(self, potentials: tuple[np.ndarray, np.ndarray]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for name, values in zip("fg", potentials):
            part = self._folder / f".{name}-{os.getpid()}.npy"
            np.save(part, values)
            os.replace(part, self._folder / f"{name}.npy")
