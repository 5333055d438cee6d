"""Optimal transport without regularisation: ``solve_exact`` and its like."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from ._arrays import Array, framework_of, on_host, read_matrix
from ._costs import split_costs
from ._followed import requires_gradient
from ._names import MATRIX, POINTS, calls, shown
from ._plan_result import Gradients, SparsePlanResult, attached
from ._problem import (
    Problem,
    ProgressFunction,
    library_options,
    matrix_problem,
    pair_of_penalties,
    pair_of_potentials,
    points_problem,
    warn,
    watching,
)
from ._sparse import SparseCosts

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._costs import ExactSampleOptions
    from ._options import ExactOptions

_ALWAYS_ROUNDS = 100


@dataclass(frozen=True)
class _Made:
    """A plan of the library, copied to host memory. Unlike the library's object it can be pickled."""

    report: _core.ExactReport
    row_begin: np.ndarray[Any, Any]
    column_indices: np.ndarray[Any, Any]
    values: np.ndarray[Any, Any]
    f: np.ndarray[Any, Any]
    g: np.ndarray[Any, Any]

    @functools.cached_property
    def rows(self) -> np.ndarray[Any, Any]:
        return np.arange(len(self.f)).repeat(self.row_begin[1:] - self.row_begin[:-1])

    def transposed(self) -> _Made:
        """The same plan seen from the targets."""
        order = np.argsort(self.column_indices, kind="stable")
        begin = np.concatenate(([0], np.cumsum(np.bincount(self.column_indices, minlength=len(self.g)))))
        return _Made(self.report, begin, self.rows[order], self.values[order], self.g, self.f)

    def transport_cost(self) -> float:
        return float(self.report.transport_cost)

    # Results go to buffers, as from the library's plans.

    def potentials(self, f: Array, g: Array) -> None:
        _write(f, self.f)
        _write(g, self.g)

    def marginals(self, row: Array, column: Array) -> None:
        _write(row, np.bincount(self.rows, self.values, len(self.f)))
        _write(column, np.bincount(self.column_indices, self.values, len(self.g)))

    def dense(self, to: Array) -> None:
        plan = np.zeros((len(self.f), len(self.g)))
        plan[self.rows, self.column_indices] = self.values
        _write(to, plan)

    def apply(self, v: Array, to: Array) -> None:
        _write(to, self._sums(self.rows, self.column_indices, v, len(self.f)))

    def apply_transpose(self, v: Array, to: Array) -> None:
        _write(to, self._sums(self.column_indices, self.rows, v, len(self.g)))

    def average(self, v: Array, to: Array) -> None:
        mass = np.bincount(self.rows, self.values, len(self.f))[:, None]
        _write(to, self._sums(self.rows, self.column_indices, v, len(self.f)) / (mass + (mass == 0)))

    def average_transpose(self, v: Array, to: Array) -> None:
        mass = np.bincount(self.column_indices, self.values, len(self.g))[:, None]
        _write(to, self._sums(self.column_indices, self.rows, v, len(self.g)) / (mass + (mass == 0)))

    def _sums(self, onto: Any, of: Any, v: Array, size: int) -> np.ndarray[Any, Any]:
        values = on_host(v).astype(np.float64)
        sums = np.zeros((size, values.shape[1]))
        np.add.at(sums, onto, self.values[:, None] * values[of])
        return sums


_MADE = [field.name for field in fields(_Made)]


def _write(to: Array, values: np.ndarray[Any, Any]) -> None:
    framework = framework_of(to)
    if framework.root != "numpy":
        values = framework.array(values, framework.dtype_name(to), framework.device(to))
    to[...] = values


class ExactResult(SparsePlanResult):
    """The result of :func:`monge.solve_exact` and its like, with the attributes of POT's ``OTResult`` and more.

    P minimises <M, P>, or the objective with penalties, and has at most n + m - 1 entries (n + m with penalties).
    Status "optimal" is a proof: no pair of points has a cost below the sum of its potentials. With "precision_limit"
    the same holds to rounding of the largest cost, but the gap, with a bound of its rounding error, is above a
    millionth of the cost of P. Arrays have the framework, dtype and device of M or X_a. A pickle holds the result;
    nothing is solved again.

    If tensors of PyTorch that require gradients were given, ``value`` has the derivatives of the optimum. The plan is
    piecewise constant in costs and points, so plan, entries, marginals, products, averages and maps have derivatives of
    0 through it. Products and averages have derivatives by their arguments, and maps by X_b, the values that they
    average. Derivatives of plan and potentials by weights, and of potentials by costs, are a NotImplementedError
    where a backward pass asks for them.
    """

    _is_constant = ("plan", "pairs", "sparse_plan", "topk", "marginals", "apply", "average", "target")

    def __init__(self, problem: Problem, options: dict[str, Any], made: _Made) -> None:
        super().__init__(problem, options, made.report)
        self._made = made

    @property
    def report(self) -> _core.ExactReport:
        """The report of the solve: values, proof, counts, times."""
        return self._report  # type: ignore[no-any-return]

    @property
    def n_iter(self) -> int:
        """The number of passes over all pairs that looked for better ones."""
        return int(self._report.rounds)

    @property
    def marginal_error(self) -> float:
        """The mass that the plan lacks, counted on both sides: 0 unless the solve was stopped."""
        return float(2 * self._report.missing_mass)

    @property
    def value(self) -> Array:
        """<M, P>, plus the penalties of unbalanced transport.

        With status "stopped" the plan may lack mass. Then the value may be below the optimum, and the report's `gap` is
        NaN. The report's `dual` is a lower bound of the optimum.
        If tensors of PyTorch that require gradients were given, the value has the first derivatives of the optimum.
        """
        return self._value_with_gradients()

    @property
    def value_linear(self) -> Array:
        """<M, P>, which has the derivatives of :attr:`value` unless there are penalties."""
        return super().value_linear if self._has_penalties else self.value

    @functools.cached_property
    def pairs(self) -> tuple[Array, Array, Array]:
        """i, j and P_ij of the entries, row by row. Equal sizes with uniform weights have one j for each i."""
        index, made = self._place.index_array, self._made
        (values,) = attached(self, "pairs", (self._place.array(made.values),))
        return index(made.rows), index(made.column_indices), values

    @functools.cached_property
    def inverse(self) -> ExactResult:
        """The same plan seen from the targets: a result for (X_b, X_a), or the transpose of M. Nothing is solved."""
        return ExactResult(self._problem.transposed(), self._options, self._made.transposed())

    @property
    def plan(self) -> Array:
        """P (n x m): dense, or for sparse costs sparse, in the format and class of M."""
        return self._plan_like_costs if isinstance(self._problem.cost, SparseCosts) else super().plan

    @functools.cached_property
    def sparse_plan(self) -> Array:
        """P as a CSR array of its entries (SciPy, PyTorch or CuPy)."""
        return self._place.framework.csr(*self._csr_arrays(), self.shape)

    @functools.cached_property
    def _plan_like_costs(self) -> Array:
        return self._problem.cost.like(self._place, *self._csr_arrays())  # type: ignore[union-attr]

    def _csr_arrays(self) -> tuple[Array, Array, Array]:
        index, made = self._place.index_array, self._made
        (values,) = attached(self, "sparse_plan", (self._place.array(made.values),))
        return index(made.row_begin), index(made.column_indices), values

    @calls(x="points", y="X_b")
    def transform(self, points: Any = None) -> Array:
        """The average target of each source, or the target of each of `points` (k x d).

        The target of a point x is the y_j of the least c(x, y_j) - g_j among those with weight: the limit of the entropic
        map for small eps. A source that sends all its mass to one target goes there, up to ties. The average of a source
        that sends no mass is 0: give it as a new point. In PyTorch the target is constant in the points and the costs.

        Raises NotImplementedError for a cost matrix, which has no points, and for labels, which new points do not have.
        """
        if points is None:
            return self._average_of_targets()
        problem = self._problem
        if problem.cost is not None or problem.labels_x is not None:
            what = "is a cost matrix, which has" if problem.cost is not None else "has labels, and so has"
            raise NotImplementedError(f"transform: the problem {what} no costs of new points")
        given, d = read_matrix("points", points, "(k, d)"), problem.x.shape[1]  # type: ignore[union-attr]
        if given.shape[1] != d:
            raise ValueError(f"points: has shape {tuple(given.shape)}; must be (k, {d})")
        targets = np.flatnonzero(on_host(problem.weights[1]) > 0)
        y: Any = problem.y if len(targets) == len(problem.y) else on_host(problem.y)[targets]  # type: ignore[arg-type]
        some = replace(problem, x=given, y=y, a=None, b=None, followed=None)
        f, nearest = self._place.empty(given.shape[0]), self._place.empty_index(given.shape[0])
        _core.c_transform(self._place.session(None), some.geometry, on_host(self._made.g)[targets], f, nearest)
        chosen = targets[on_host(self._place.finish(nearest))]
        if self._followed is None and not requires_gradient(points):
            return self._place.array(on_host(problem.y)[chosen])
        y = problem.y if self._followed is None else self._followed.unchanged("transform")[2]
        images = y[chosen].to(f.dtype)  # By X_b the derivative is that of the choice, by all else it is 0.
        return images + attached(self, "target", (0 * images.detach(),), (points,))[0]

    @property
    def _entries(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        return self._made.rows, self._made.column_indices, self._made.values

    def _by_costs(self) -> Array:
        if isinstance(self._problem.cost, SparseCosts):
            return self._problem.cost.at_pairs(self._place, *self._entries)
        return super()._by_costs()

    @property
    def _plan(self) -> _Made:
        return self._made  # This plan reads no costs.

    @property
    def _held(self) -> _Made:
        return self._made

    def _value(self) -> float:
        return float(self._report.value)

    @property
    def _has_penalties(self) -> bool:
        return "penalty_a" in self._options or "penalty_b" in self._options

    def _gradients(self, wanted: str) -> Gradients:
        found, of_mass = super()._gradients(wanted), self._report.mass_price / 2
        if of_mass == 0 or found.a is None or found.b is None:
            return found
        return replace(found, a=found.a - of_mass, b=found.b - of_mass)

    def __reduce__(self) -> Any:
        return ExactResult, (self._problem.for_pickle(), self._options, self._made)

    def __repr__(self) -> str:
        n, m = self.shape
        report = self._report
        passes = "1 pass" if report.rounds == 1 else f"{report.rounds} passes"
        return (
            f"<ExactResult {n} x {m}: {report.status} after {passes}, value {report.value:.6g}, "
            f"gap {report.gap:.1e}, {report.nonzeros} entries>"
        )


def result_of(problem: Problem, options: dict[str, Any], plan: _core.ExactPlan) -> ExactResult:
    """The result for a plan of the library."""
    arrays = (np.array(getattr(plan, name)) for name in _MADE[1:])
    return ExactResult(problem, options, _Made(plan.report, *arrays))


def run(
    problem: Problem,
    options: dict[str, Any],
    potentials_init: Any = None,
    n_threads: int | None = None,
    progress: bool | ProgressFunction | None = None,
    start: ExactResult | None = None,
    warns: bool = True,
) -> ExactResult:
    """Solves a problem with the library's options."""

    def text(state: _core.ExactProgress) -> str:
        return f"{state.missing:.1e} of the mass left"

    if not (start is None or isinstance(start, ExactResult)):
        raise TypeError(f"start: is {shown(start)}; must be an ExactResult")
    potentials = pair_of_potentials(potentials_init)
    plan = None if start is None else _core.ExactPlan(*(getattr(start._made, name) for name in _MADE))

    try:
        with watching(progress, options.get("rounds", _ALWAYS_ROUNDS), "pass", text) as watch:
            session = problem.place.session(n_threads)
            made = _core.solve_exact(session, problem.geometry, problem.a, problem.b, *potentials, plan, options, watch)
    except KeyboardInterrupt as interrupt:
        if hasattr(interrupt, "result"):
            interrupt.result = result_of(problem, options, interrupt.result)
        raise
    if warns and made.report.status in ("round_limit", "precision_limit"):
        warn(f"the exact solver has no proof: {made.report.message}")
    return result_of(problem, options, made)


def exact_options(options: Mapping[str, Any], unbalanced: Any, tol: float | None) -> dict[str, Any]:
    """The library's options, from those by its names and by :func:`solve_exact`'s."""
    penalty_a, penalty_b = (None, None) if unbalanced is None else pair_of_penalties(unbalanced)
    return library_options(
        options, tolerance=("tol", tol), penalty_a=("unbalanced", penalty_a), penalty_b=("unbalanced", penalty_b)
    )


@calls(**MATRIX)
def solve_exact(
    M: Any,
    a: Any = None,
    b: Any = None,
    *,
    unbalanced: float | Sequence[float] | None = None,
    potentials_init: tuple[Any, Any] | None = None,
    start: ExactResult | None = None,
    n_threads: int | None = None,
    tol: float | None = None,
    device: Any = None,
    progress: bool | ProgressFunction | None = None,
    **options: Unpack[ExactOptions],
) -> ExactResult:
    """Solves min_P <M, P> over P >= 0 with P 1 = a and P^T 1 = b, and proves that the plan is optimal. With
    `unbalanced` or `mass` some of the mass stays where it is.

    Args:
        M: Costs (n x m); inf forbids a pair.
            Or a sparse matrix of SciPy, or of PyTorch (COO or CSR): a pair that it does not store is forbidden, one of
            cost 0 that it stores is allowed, and duplicate entries of COO are added. It is copied; `plan` is sparse,
            too, and the proof is over its pairs.
        a, b: Weights (n) and (m), non-negative, with equal totals unless `unbalanced` or `mass` is given. By default
            uniform, with total 1 or that of the other side. Integer weights give integer entries. n = m with uniform
            weights gives a permutation. Masses are multiples of about 1e-30 of the total: a weight below half of it
            counts as 0, and such a point has no mass in the plan.
        unbalanced: rho > 0, or (rho_a, rho_b), in units of M: penalties rho_a |P 1 - a|_1 and rho_b |P^T 1 - b|_1
            (total variation) replace the constraints; inf keeps one. With one rho and M >= 0 mass moves only over pairs
            of cost 2 rho or less, P 1 <= a and P^T 1 <= b. The library's names are `penalty_a` and `penalty_b`.
        mass: Partial transport: the total of P, at most the smaller total, with P 1 <= a and P^T 1 <= b.
            The report's `mass_price` is the derivative of the value by it, from below.
        potentials_init: (f, g) in units of M, a warm start: the potentials of this problem or of one like it. A start
            with entries above a thousand times the costs has no effect.
        start: A result of the same shape, a warm start: its pairs and, without `potentials_init`, its potentials. In a
            sequence of problems, give the result of the previous one; if the weights are the same, the search goes on
            from its plan.
        n_threads: Threads on the CPU, by default one for each core.
        tol: The largest violation of a reduced cost that counts as rounding, as a fraction of the largest cost or
            potential, whichever is smaller (1e-12). It also bounds the gap (docs/math.md, section 19). The library's
            name, `tolerance`, may take its place.
        device: Where passes over all pairs run, as for :func:`monge.solve`. The rest runs on the host.
        progress: True shows a bar (tqdm). A function is called with an :class:`ExactProgress` in each round and now and
            then within it, and stops the solve by returning False.
        options: Options of :class:`monge.ExactOptions`.

    Returns:
        :class:`ExactResult`. Without a proof after `rounds` passes, or with status "precision_limit", it makes a
        :class:`ConvergenceWarning`.

    Raises:
        ValueError, TypeError: An argument is wrong, or forbidden pairs leave no plan.
        NotImplementedError: The device does not offer what was asked.
        MemoryError, RuntimeError: Memory ran out; the device failed.
        KeyboardInterrupt: Ctrl-C. Its attribute `result` is the result so far, with status "stopped": potentials, and
            in the report their lower bound, `dual`.

    >>> import monge
    >>> result = monge.solve_exact([[0.0, 3.0, 1.0], [2.0, 1.0, 2.0]], a=[2, 2], b=[1, 1, 2])
    >>> result.plan, float(result.value), result.status
    (array([[1., 0., 1.],
           [0., 1., 1.]]), 4.0, 'optimal')
    >>> monge.solve_exact([[0.0, 3.0, 1.0], [2.0, 1.0, 2.0]], a=[2, 2], b=[1, 1, 2], mass=2).plan
    array([[1., 0., 1.],
           [0., 0., 0.]])
    """
    translated = exact_options(options, unbalanced, tol)
    problem = matrix_problem(M, a, b, device, may_be_sparse=True)
    return run(problem, translated, potentials_init, n_threads, progress, start)


@calls(**POINTS)
def solve_exact_sample(
    X_a: Any,
    X_b: Any,
    a: Any = None,
    b: Any = None,
    metric: str = "sqeuclidean",
    *,
    unbalanced: float | Sequence[float] | None = None,
    potentials_init: tuple[Any, Any] | None = None,
    start: ExactResult | None = None,
    n_threads: int | None = None,
    tol: float | None = None,
    device: Any = None,
    progress: bool | ProgressFunction | None = None,
    **options: Unpack[ExactSampleOptions],
) -> ExactResult:
    """:func:`solve_exact` with the costs of points, which are never stored: memory is O((n + m) d).

    Points, metric and options of the costs, :class:`monge.CostOptions`, are as for :func:`monge.solve_sample`; other
    arguments and errors are as for :func:`solve_exact`.

    >>> import monge, numpy as np
    >>> x = np.arange(4.0)[:, None]
    >>> monge.solve_exact_sample(x, x[::-1] + 10).pairs[1]
    array([3, 2, 1, 0])
    """
    costs, own = split_costs(options)
    problem = points_problem(X_a, X_b, a, b, metric, device, **costs)
    translated = exact_options(own, unbalanced, tol)
    return run(problem, translated, potentials_init, n_threads, progress, start)
