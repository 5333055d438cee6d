"""A solver that keeps its memory from one problem to the next."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import _core
from ._costs import LABELLED, alone
from ._names import MATRIX, POINTS, calls, truth
from ._problem import (
    Problem,
    ProgressFunction,
    Reg,
    matrix_problem,
    pair_of_potentials,
    points_problem,
    solve_options,
    warn_if_short,
    watching,
    with_weights,
)
from ._result import OTResult

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._costs import LabelOptions
    from ._options import KeywordOptions

_OF_ONE_SOLVER = ("_lock", "_is_solving", "_key", "_made", "_session")


class Solver:
    """Solves problems of one shape again and again, as in a training loop, with the same options.

    The first call prepares the problem, and so does each call with another shape, kind of costs or device. All other
    calls use the memory of the last one, unless its result is still in use, and on CUDA its recorded launches. Results
    have the same bits as those of :func:`monge.solve` and :func:`monge.solve_sample`.

    Threads may share a solver. It solves their problems one after another; to solve them at once, give each thread a
    solver of its own.
    A copy or a pickle has the options alone, and prepares memory of its own.

    Args:
        reg: eps > 0, in units of the cost. By default "auto", 5 % of the mean cost of each problem.
        unbalanced, method, max_iter, tol, n_threads, device, options: As for :func:`monge.solve`.
        metric, norm_p, scale: As for :func:`monge.solve_sample`; for points alone.
        warn: Whether a solve that ends short makes a :class:`monge.ConvergenceWarning`.

    Raises:
        TypeError: When the solver is made, an option that does not exist or is of a wrong kind.
        ValueError: When the solver is made, an option of a value that is not allowed.
        NotImplementedError: When the solver is made, an option that the method does not offer.
        RuntimeError: A progress function calls its own solver.

    >>> import monge, numpy as np
    >>> solver, x = monge.Solver(reg=0.1, tol=1e-3), np.random.default_rng(0).normal(size=(30, 2))
    >>> potentials = None
    >>> for step in range(3):
    ...     result = solver.solve_sample(x, x + step, potentials_init=potentials)
    ...     potentials = result.potentials
    >>> result.converged
    True
    """

    @calls(**POINTS)
    def __init__(
        self,
        reg: Reg = "auto",
        *,
        unbalanced: float | Sequence[float] | None = None,
        method: str | None = None,
        max_iter: int | None = None,
        tol: float | None = None,
        metric: str = "sqeuclidean",
        norm_p: float | None = None,
        scale: float = 1.0,
        n_threads: int | None = None,
        device: Any = None,
        warn: bool = True,
        **options: Unpack[KeywordOptions],
    ) -> None:
        self._options = solve_options(
            dict(options), reg, unbalanced=unbalanced, method=method, max_iter=max_iter, tol=tol
        )
        _core.check_solve_options(self._options)
        self._metric, self._norm_p, self._scale = metric, norm_p, scale
        self._n_threads, self._device = n_threads, device
        self._warn = truth("warn", warn)
        self._prepare()

    def _prepare(self) -> None:
        """Sets the attributes of this solver alone (_OF_ONE_SOLVER); copies and pickles start without them."""
        self._lock, self._is_solving = threading.RLock(), False
        self._key: tuple[Any, ...] | None = None
        self._made: _core.Solver | None = None
        self._session: _core.Session | None = None

    def __repr__(self) -> str:
        given = {"metric": self._metric, **self._options}
        return f"<Solver {', '.join(f'{name} {value}' for name, value in given.items())}>"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _OF_ONE_SOLVER}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._prepare()

    @calls(**MATRIX)
    def solve(
        self,
        M: Any,
        a: Any = None,
        b: Any = None,
        *,
        potentials_init: tuple[Any, Any] | None = None,
        progress: bool | ProgressFunction | None = None,
    ) -> OTResult:
        """:func:`monge.solve` of M (n x m), a (n) and b (m) with the options of this solver.

        `potentials_init`, `progress`, results and errors are as for :func:`monge.solve`.
        """
        return self._run(matrix_problem(M, a, b, self._device), potentials_init, progress)

    @calls(**POINTS)
    def solve_sample(
        self,
        X_a: Any,
        X_b: Any,
        a: Any = None,
        b: Any = None,
        *,
        potentials_init: tuple[Any, Any] | None = None,
        progress: bool | ProgressFunction | None = None,
        **labels: Unpack[LabelOptions],
    ) -> OTResult:
        """:func:`monge.solve_sample` of X_a (n x d), X_b (m x d), a (n) and b (m) with the options of this solver.

        `potentials_init`, `progress`, `labels` (:class:`monge.LabelOptions`), results and errors are as for
        :func:`monge.solve_sample`.
        """
        costs = {"norm_p": self._norm_p, "scale": self._scale, **alone(labels, LABELLED)}
        problem = points_problem(X_a, X_b, a, b, self._metric, self._device, **costs)
        return self._run(problem, potentials_init, progress)

    def _run(self, problem: Problem, potentials_init: Any, progress: Any) -> OTResult:
        problem, start = with_weights(problem, self._options), pair_of_potentials(potentials_init)
        with self._lock:
            if self._is_solving:
                raise RuntimeError("Solver: is solving; its progress function must call another solver")
            self._is_solving = True
            try:
                plan = self._solve(problem, start, progress)
            finally:
                self._is_solving = False
        if self._warn:
            warn_if_short(plan.report)
        return OTResult(problem, self._options, "kl", plan, plan.report)

    def _solve(self, problem: Problem, start: tuple[Any, Any], progress: Any) -> _core.Plan:
        """Solves a problem. The caller holds the lock."""
        place = problem.place
        stream = None if place.cuda_index is None else place.framework.stream(place.cuda_index)
        where = (place.cuda_index, stream)
        if self._session is None or self._key is None or self._key[0] != where:
            self._session = place.session(self._n_threads)
        options = self._options
        geometry = problem.geometry
        dimension = None if problem.x is None else problem.x.shape[1]
        table = None if problem.label_cost is None else tuple(problem.label_cost.shape)
        key = (where, geometry.rows, geometry.columns, dimension, problem.cost_function, problem.norm_p, table)
        if self._made is not None and key == self._key:
            self._made.set(geometry, problem.a, problem.b)
        else:
            self._made = None  # Its memory is free before the next is made.
            self._made = _core.Solver(self._session, geometry, problem.a, problem.b, options)
            self._key = key
        with watching(progress, options.get("iterations", 10000)) as watch:
            return self._made.solve(*start, options, watch)
