"""Optimal transport with sparse and grouped plans: ``solve_regularized`` and its like."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from ._arrays import Array, framework_of, kept_optional, on_host, read, read_index, read_optional
from ._costs import split_costs
from ._names import REGULARIZED, calls, number, refuse_gradient, shown
from ._plan_result import SparsePlanResult, attached
from ._problem import (
    Problem,
    ProgressFunction,
    costs,
    each_problem,
    library_options,
    matrix_problem,
    matrix_problems,
    one_each,
    pair_of_potentials,
    points_problem,
    warn_if_short,
    watching,
)
from ._result import BatchResult

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._costs import RegularizedSampleOptions
    from ._options import RegularizedOptions

Start = tuple[Array | None, Array | None, Array | None]
"""A warm start: u, v and a plan."""
_COLD: Start = (None, None, None)
_ALWAYS_ITERATIONS = 20000
_BLOCK = 1 << 16  # The number of entries of a block of rows, which fits into a cache.
_READ_BY = {
    "groups": "group_lasso",
    "group_weights": "group_lasso",
    "l1_weights": "l1",
    "hypentropy_width": "hypentropy",
}
"""The weight without which a field has no meaning."""
TERM_ARRAYS = ("groups", "group_weights", "l1_weights", "mask")
"""The fields of a Regularizer that are arrays; the others are numbers."""


@dataclass(frozen=True)
class SeparableTerm:
    """A term that the caller defines, for :func:`solve_regularized`: sum_ij phi(X_ij), with phi convex, phi(0) = 0 and
    phi >= 0 on x >= 0.

    Each function takes a float64 vector and returns a vector of its length. One thread at a time calls them, but not
    always the same one. An exception ends the solve.

    Args:
        prox: ``prox(v, step)`` is argmin_{x >= 0} (x - v)^2 / 2 + step phi(x), for masses v > 0.
        value: ``value(x)`` is phi, in units of M times mass, of masses x >= 0.
        conjugate: ``conjugate(z)`` is sup_{x >= 0} z x - phi(x), for z >= 0 in units of M; it may be inf. Without it
            there is no certificate: the dual value and the gap are nan, and `criterion` must be "residual".

    >>> import monge, numpy as np
    >>> most = 0.3  # No pair may have more mass.
    >>> term = monge.SeparableTerm(
    ...     prox=lambda v, step: np.minimum(v, most), value=lambda x: 0 * x, conjugate=lambda z: most * z
    ... )
    >>> monge.solve_regularized([[0.0, 1.0], [1.0, 0.0]], separable=term, tol=1e-6).plan.round(3)
    array([[0.3, 0.2],
           [0.2, 0.3]])
    """

    prox: Callable[[np.ndarray[Any, Any], float], Any]
    value: Callable[[np.ndarray[Any, Any]], Any]
    conjugate: Callable[[np.ndarray[Any, Any]], Any] | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            given = getattr(self, field.name)
            if not callable(given) and (field.name != "conjugate" or given is not None):
                raise TypeError(f"{field.name}: is {shown(given)}; must be a function")


@dataclass(frozen=True)
class Regularizer:
    """The terms of h. A term with weight 0 is not there."""

    quadratic: float = 0.0
    group_lasso: float = 0.0
    groups: Array | None = None
    group_weights: Array | None = None
    l1: float = 0.0
    l1_weights: Array | None = None
    mask: Array | None = None
    hypentropy: float = 0.0
    hypentropy_width: float = 1.0
    separable: SeparableTerm | None = None
    slopes: Array | None = None

    @staticmethod
    def read(*terms: Any, **named: Any) -> Regularizer:
        """Reads the caller's arguments, in the order of the fields or by their names; None is a missing one."""
        named |= zip([field.name for field in fields(Regularizer)], terms)
        given = {field: value for field, value in named.items() if value is not None}
        for field, value in given.items():
            if field == "groups":
                given[field] = on_host(kept_optional(field, value, read_index))
            elif field in TERM_ARRAYS or field == "slopes":
                refuse_gradient(field, value)
                given[field] = kept_optional(field, value)
            elif field == "separable":
                if not isinstance(value, SeparableTerm):
                    raise TypeError(f"separable: is {shown(value)}; must be a SeparableTerm")
            else:
                given[field] = number(field, value)
        for field, term in _READ_BY.items():
            if field in given and term not in given:
                raise ValueError(f"{field}: is given without {term}, the weight of its term")
        return Regularizer(**given)

    @functools.cached_property
    def core(self) -> _core.Regularizer:
        return _core.regularizer(
            self.quadratic,
            self.group_lasso,
            self.groups,
            self.group_weights,
            self.l1,
            self.l1_weights,
            self.mask,
            self.hypentropy,
            self.hypentropy_width,
            self.separable,
            self.slopes,
        )

    @property
    def beyond_quadratic(self) -> str:
        """The name of a term that is not the quadratic one; empty if there is none."""
        own = [name for name in ("separable", "slopes") if getattr(self, name) is not None]
        weighted = [name for name in ("group_lasso", "l1", "hypentropy") if getattr(self, name) > 0]
        return (own + weighted + [""])[0]


def quadratic_term(reg: Any) -> Regularizer:
    """The term of POT's reg_type "L2"."""
    weight = number("reg", reg)
    if not weight >= 0:
        raise ValueError(f"reg: is {weight}; must be >= 0")
    return Regularizer(quadratic=weight)


def regularized_options(own: Mapping[str, Any], max_iter: int | None, tol: float | None) -> dict[str, Any]:
    """Options of a regularised solve; two have the names that they have in :func:`monge.solve`, too."""
    return library_options(own, iterations=("max_iter", max_iter), tolerance=("tol", tol))


class RegularizedResult(SparsePlanResult):
    """The result of :func:`monge.solve_regularized` and its like, with the attributes of POT's ``OTResult`` and more.

    X minimises <M, X> + h(X) over the plans. The potentials u and v, in units of the cost, are feasible for the dual
    problem, so ``gap``, ``value`` minus the dual value, is a certificate. ``value`` is <M, X> + h(X), plus the least
    cost of a pair for each unit of mass that X lacks. Arrays have the framework, dtype and device of M or X_a. On CUDA
    they are ready on the stream of the solve. A pickle holds the problem; the plan of a pickled result is computed by
    a new solve.
    """

    def __init__(
        self,
        problem: Problem,
        regularizer: Regularizer,
        options: dict[str, Any],
        start: Start,
        plan: _core.RegularizedPlan | None,
        report: _core.RegularizedReport,
    ) -> None:
        super().__init__(problem, options, report)
        self._regularizer = regularizer
        self._start = start
        self._made = plan

    @property
    def report(self) -> _core.RegularizedReport:
        """The report of the solve: values, certificate, counts, times, history."""
        return self._report  # type: ignore[no-any-return]

    @property
    def n_iter(self) -> int:
        """The number of iterations of splitting, or of passes of Newton's method over all pairs."""
        return int(self._report.iterations)

    @property
    def value(self) -> Array:
        """<M, X> + h(X).

        If tensors of PyTorch that require gradients were given, the value has the first derivatives of the optimum.
        """
        return self._value_with_gradients()

    @functools.cached_property
    def sparse_plan(self) -> Array:
        """X as a CSR array of its nonzero entries (SciPy, PyTorch or CuPy)."""
        place = self._place
        row_begin = place.empty_index(self.shape[0] + 1)
        count = self._plan.nonzeros(row_begin)
        columns, values = place.empty_index(count), place.empty(count)
        self._plan.entries(row_begin, columns, values)
        (values,) = attached(self, "sparse_plan", (values,))
        return place.framework.csr(row_begin, columns, values, self.shape)

    def transform(self, points: Any = None, weights: Any = None) -> Array:
        """The average target of each of `points` (k x d), by default of the sources.

        A new point x of weight w has the row [u(x) + v_j - c(x, y_j)]_+ / quadratic of a plan, where u(x) makes the
        total w. Without a term the row is the nearest target by c(x, y_j) - v_j.

        Args:
            points: Points (k x d), of the dimension of the sources.
            weights: w (k), > 0; by default the mean weight of the sources. Only a quadratic term needs it.

        Raises:
            ValueError: Points or weights have a wrong shape or value.
            NotImplementedError: For a cost matrix, which has no points, for labels, which new points do not have, and
                for terms other than a quadratic one.

        The host computes the rows of new points, in float64.

        Source: Blondel, Seguy, Rolet 2018, section 3.
        """
        if points is None:
            return self._average_of_targets()
        to = on_host(self._problem.y).astype(np.float64) if self._problem.y is not None else None
        found = np.concatenate([shares @ to for _, shares in self._rows("transform", points, weights)])
        return self._at_points("transform", found, points, weights)

    def potential(self, points: Any, weights: Any = None) -> Array:
        """u at `points` (k x d) of these weights, in units of the cost: the smooth c-transform of v.

        Arguments and errors are those of :meth:`transform`.
        """
        found = np.concatenate([u for u, _ in self._rows("potential", points, weights)])
        return self._at_points("potential", found, points, weights)

    @property
    def inverse(self) -> RegularizedResult:
        """The same plan seen from the targets: a result for (X_b, X_a), or the transpose of M. Nothing is solved."""
        # The inverse keeps this result alive. The reverse would be a cycle of references.
        return _Inverse(self)

    @functools.cached_property
    def _entries(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """i, j and X_ij of the nonzero entries, on the host, row by row."""
        row_begin = np.empty(self.shape[0] + 1, np.int64)
        count = self._plan.nonzeros(row_begin)
        columns, values = np.empty(count, np.int64), np.empty(count)
        self._plan.entries(row_begin, columns, values)
        return np.repeat(np.arange(self.shape[0]), np.diff(row_begin)), columns, values

    def _at_points(self, name: str, found: np.ndarray[Any, Any], *others: Any) -> Array:
        return attached(self, name, (self._place.array(found),), tuple(v for v in others if v is not None))[0]

    def _rows(
        self, asked: str, points: Any, weights: Any
    ) -> Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
        """Blocks of u at `points` with these weights and of their rows of the plan, divided by their totals."""
        problem, m = self._problem, self.shape[1]
        for given, what in (
            (problem.cost is not None, "is a cost matrix, which has"),
            (problem.labels_x is not None, "has labels, and so has"),
            (term := self._regularizer.beyond_quadratic, f"has the term {term}, and so has"),
        ):
            if given:
                raise NotImplementedError(f"{asked}: the problem {what} no costs of new points")
        x = read("points", points)
        d = problem.x.shape[1]  # type: ignore[union-attr]
        if x.ndim != 2 or x.shape[1] != d:
            raise ValueError(f"points: has shape {tuple(x.shape)}; must be (k, {d})")
        wrong = np.argwhere(~np.isfinite(on_host(x)))
        if len(wrong):
            raise ValueError(f"points: row {wrong[0][0]}, column {wrong[0][1]} is not finite; coordinates must be")
        if weights is None:
            w = np.full(len(x), self._report.mass / self.shape[0])
        else:
            w = on_host(read("weights", weights)).astype(np.float64)
        if w.shape != (len(x),) or not (w > 0).all():
            raise ValueError(f"weights: must be {len(x)} numbers > 0, one for each point")
        v = np.empty(m)
        self._held.potentials(np.empty(self.shape[0]), v)
        block = max(1, _BLOCK // m)
        for begin in range(0, len(x), block):
            some = slice(begin, begin + block)
            cost = costs(x[some], problem.y, problem.cost_function, problem.norm_p, problem.scale)
            yield _smooth_transform(cost - v, self._regularizer.quadratic * w[some])

    @property
    def _held(self) -> _core.RegularizedPlan:
        if self._made is None:  # From a pickle.
            self._made = _solve(self._problem, self._regularizer, self._options, self._start, None, None)
        return self._made

    def _value(self) -> float:
        return float(self._report.primal)

    def __reduce__(self) -> Any:
        problem, regularizer = self._problem.for_pickle(), replace(self._regularizer)  # Without its core.
        return RegularizedResult, (problem, regularizer, self._options, self._start, None, self._report)

    def __repr__(self) -> str:
        n, m = self.shape
        report = self._report
        return (
            f"<RegularizedResult {n} x {m}: {report.status} after {report.iterations} iterations of {report.method}, "
            f"value {report.primal:.6g}, |gap| {abs(report.gap):.2e}, {report.nonzeros} entries, "
            f"marginal error {report.marginal_error:.2e}>"
        )


class _FromTargets:
    """A plan of the library with its sides swapped."""

    def __init__(self, plan: _core.RegularizedPlan) -> None:
        self.apply, self.apply_transpose = plan.apply_transpose, plan.apply
        self.average, self.average_transpose = plan.average_transpose, plan.average
        self.potentials = lambda u, v: plan.potentials(v, u)
        self.marginals = lambda row, column: plan.marginals(column, row)
        self.transport_cost = plan.transport_cost


class _Inverse(RegularizedResult):
    """A result seen from the targets. The library has no problems with groups of columns, so all attributes are made of
    those of the original result."""

    def __init__(self, result: RegularizedResult) -> None:
        problem = result._problem.transposed()
        super().__init__(problem, result._regularizer, result._options, _COLD, None, result._report)
        self._result = result

    @property
    def inverse(self) -> RegularizedResult:
        return self._result

    def _make_plan(self) -> Array:
        return self._result._make_plan().T

    @functools.cached_property
    def sparse_plan(self) -> Array:
        rows, columns, values = self._entries
        row_begin = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=self.shape[0]))))
        index, place = self._place.index_array, self._place
        (entries,) = attached(self, "sparse_plan", (place.array(values),))
        return place.framework.csr(index(row_begin), index(columns), entries, self.shape)

    @functools.cached_property
    def _entries(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        rows, columns, values = self._result._entries
        order = np.argsort(columns, kind="stable")
        return columns[order], rows[order], values[order]

    @property
    def _held(self) -> Any:
        return _FromTargets(self._result._held)

    def __reduce__(self) -> Any:
        return _Inverse, (self._result,)


def _smooth_transform(
    slack: np.ndarray[Any, Any], total: np.ndarray[Any, Any]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """u with sum_j [u - slack_j]_+ = total for each row, and the terms over their sum; for total 0 the least slack."""
    least = slack.min(1)
    ascending = np.sort(slack - least[:, None], 1)
    sums, count = np.cumsum(ascending, 1), np.arange(1, slack.shape[1] + 1)
    used = np.maximum((count * ascending - sums < total[:, None]).sum(1), 1)
    u = least + (total + sums[np.arange(len(slack)), used - 1]) / used
    terms = np.where(total[:, None] > 0, np.maximum(u[:, None] - slack, 0), slack == least[:, None])
    return u, terms / terms.sum(1, keepdims=True)


def _solve(
    problem: Problem,
    regularizer: Regularizer,
    options: dict[str, Any],
    start: Start,
    n_threads: int | None,
    watch: ProgressFunction | None,
) -> _core.RegularizedPlan:
    session = problem.place.session(n_threads)
    return _core.solve_regularized(
        session, problem.geometry, problem.a, problem.b, regularizer.core, *start, options, watch
    )


def _watching(
    progress: bool | ProgressFunction | None, options: Mapping[str, Any]
) -> AbstractContextManager[ProgressFunction | None]:
    def text(state: _core.RegularizedProgress) -> str:
        return f"weight {state.weight:.3g}, residual {state.primal_residual:.2e}"

    return watching(progress, options.get("iterations", _ALWAYS_ITERATIONS), "iteration", text)


def _result(
    problem: Problem,
    regularizer: Regularizer,
    options: dict[str, Any],
    start: Start,
    plan: _core.RegularizedPlan,
) -> RegularizedResult:
    report = plan.report
    warn_if_short(report, "Newton's method" if report.method == "newton" else "splitting")
    return RegularizedResult(problem, regularizer, options, start, plan, report)


def _starting_plan(given: Any) -> Array | None:
    """`plan_init` as an array with checked entries. The library checks an array that it alone can read."""
    if hasattr(given, "potentials") and hasattr(given, "plan"):
        raise TypeError(f"plan_init: is a {type(given).__name__}; must be an array (n x m), as its `plan`")
    plan = read_optional("plan_init", given)
    if plan is None or framework_of(plan).root == "foreign" or plan.min() >= 0 and plan.max() < math.inf:
        return plan
    values = on_host(plan)
    at = tuple(map(int, np.argwhere(~((values >= 0) & (values < math.inf)))[0]))
    raise ValueError(f"plan_init: entry {at} is {values[at]:g}; must be finite and >= 0")


def run(
    problem: Problem,
    regularizer: Regularizer,
    options: dict[str, Any],
    potentials_init: Any = None,
    n_threads: int | None = None,
    progress: bool | ProgressFunction | None = None,
    plan_init: Any = None,
) -> RegularizedResult:
    """Solves a problem with the library's options."""
    start = (*pair_of_potentials(potentials_init), _starting_plan(plan_init))
    with _watching(progress, options) as watch:
        plan = _solve(problem, regularizer, options, start, n_threads, watch)
    return _result(problem, regularizer, options, start, plan)


def run_batch(
    problems: Sequence[Problem],
    regularizers: Sequence[Regularizer],
    options: dict[str, Any],
    potentials_init: Any = None,
    n_threads: int | None = None,
    progress: bool | ProgressFunction | None = None,
) -> BatchResult[RegularizedResult]:
    """:func:`run` for many problems at once."""
    if not problems:
        raise ValueError("batch: has no problems; must have at least one")
    if potentials_init is not None:
        raise NotImplementedError("potentials_init: is given; must not be for a batch of regularised plans")
    views = each_problem(lambda p, h: (p.geometry, p.a, p.b, h.core), problems, regularizers)
    session = problems[0].place.session(n_threads)
    with _watching(progress, options) as watch:
        plans = _core.solve_regularized_batch(session, views, options, watch)
    return BatchResult([_result(p, h, options, _COLD, plan) for p, h, plan in zip(problems, regularizers, plans)])


def run_each(
    problems: Sequence[Problem], regularizers: Sequence[Regularizer], options: dict[str, Any]
) -> BatchResult[RegularizedResult]:
    """:func:`run_batch`, but messages about a single problem do not number it."""
    if len(problems) == 1:
        return BatchResult([run(problems[0], regularizers[0], options)])
    return run_batch(problems, regularizers, options)


@calls(**REGULARIZED)
def solve_regularized(
    M: Any,
    a: Any = None,
    b: Any = None,
    *,
    quadratic: float | None = None,
    group_lasso: float | None = None,
    groups: Any = None,
    group_weights: Any = None,
    l1: float | None = None,
    l1_weights: Any = None,
    mask: Any = None,
    hypentropy: float | None = None,
    hypentropy_width: float | None = None,
    separable: SeparableTerm | None = None,
    slopes: Any = None,
    potentials_init: tuple[Any, Any] | None = None,
    plan_init: Any = None,
    n_threads: int | None = None,
    max_iter: int | None = None,
    tol: float | None = None,
    device: Any = None,
    progress: bool | ProgressFunction | None = None,
    **options: Unpack[RegularizedOptions],
) -> RegularizedResult:
    r"""Solves min_X <M, X> + h(X) over X >= 0 with X 1 = p and X^T 1 = q, for an h that keeps plans sparse or grouped.

    h(X) = quadratic / 2 sum X_ij^2
         + group_lasso sum_j sum_g w_g |(X_ij), i in group g|_2
         + l1 sum W_ij X_ij
         + hypentropy sum X_ij asinh(X_ij / width) - sqrt(X_ij^2 + width^2) + width
         + sum phi(X_ij)

    Args:
        M: Costs (n x m); inf forbids a pair. Changes of M are as for :func:`monge.solve`.
        a, b: p (n) and q (m), non-negative, with equal totals. By default uniform, with total 1 or that of the other
            side.
        quadratic: Weight >= 0 of the quadratic term, in units of M over mass.
        group_lasso: Weight >= 0 of the group lasso, in units of M. It needs `groups`.
        groups: The group of each row (n), whole numbers from 0 to n - 1. Or, on the CPU and without hypentropy, the
            group of each pair (n x m), whole numbers from 0 to n m - 1, or -1 for a pair in none. The term is then
            group_lasso sum_g w_g |(X_ij), (i, j) in group g|. Groups need `group_lasso`, which may be 0.
        group_weights: w (groups), >= 0, by default 1.
        l1, l1_weights: Weight >= 0, in units of M, and W (n x m), >= 0. Each needs the other.
        mask: (n x m); X_ij = 0 where it is 0 or False.
        hypentropy, hypentropy_width: Weight >= 0, in units of M, and width > 0, of mass, by default 1.
        separable: phi, a :class:`SeparableTerm` that the caller defines, with l1 and a mask alone, on the CPU.
        slopes: phi as a table (k x 2) in place of `separable`, on every device: rows of a mass and the slope of phi
            there, in units of M, which is linear in between. Masses begin at 0, slopes are >= 0, and neither decreases.
            Two rows of equal mass make a step. Beyond the last mass the slope keeps its last value. If the last slope
            is inf, at the mass of the row before, no entry exceeds that mass.
        potentials_init: (u, v) in units of M, a warm start.
        plan_init: X (n x m) in units of mass, a warm start of splitting. Newton's method begins with potentials alone:
            method "newton" refuses a plan, and "auto" ignores the plan where it takes Newton's method.
        n_threads: Threads on the CPU, by default one for each core.
        device: Where to solve, as for :func:`monge.solve`.
        progress: True shows a bar (tqdm). A function is called with a :class:`RegularizedProgress` at each check, and
            stops the solve by returning False.
        max_iter, tol: The largest number of iterations (20000), and the relative residual and relative gap at which to
            stop (1e-4). The library's names, `iterations` and `tolerance`, may take their place.
        options: `method` ("auto", "splitting", "newton") and the others of :class:`monge.RegularizedOptions`.

    Without a term the problem is optimal transport itself. Method "auto" is Newton's method for a quadratic term alone
    or no term, and Douglas-Rachford splitting otherwise.

    Returns:
        :class:`RegularizedResult`. A solve that does not converge has a status and makes a
        :class:`ConvergenceWarning`.

    Raises:
        ValueError, TypeError: An argument is wrong; the message begins with its name.
        NotImplementedError: The terms cannot be combined, or the method does not take them.
        MemoryError, RuntimeError: Memory ran out; the device failed.

    Source: Lindback, Wang, Johansson 2023.

    >>> import monge
    >>> result = monge.solve_regularized([[0.0, 1.0], [1.0, 0.0]], quadratic=1.0)
    >>> result.plan.round(3), result.nonzeros
    (array([[0.5, 0. ],
           [0. , 0.5]]), 2)
    """
    regularizer = Regularizer.read(
        quadratic,
        group_lasso,
        groups,
        group_weights,
        l1,
        l1_weights,
        mask,
        hypentropy,
        hypentropy_width,
        separable,
        slopes,
    )
    problem = matrix_problem(M, a, b, device)
    translated = regularized_options(options, max_iter, tol)
    return run(problem, regularizer, translated, potentials_init, n_threads, progress, plan_init)


@calls(**REGULARIZED)
def solve_regularized_sample(
    X_a: Any,
    X_b: Any,
    a: Any = None,
    b: Any = None,
    metric: str = "sqeuclidean",
    *,
    quadratic: float | None = None,
    group_lasso: float | None = None,
    groups: Any = None,
    group_weights: Any = None,
    l1: float | None = None,
    l1_weights: Any = None,
    mask: Any = None,
    hypentropy: float | None = None,
    hypentropy_width: float | None = None,
    separable: SeparableTerm | None = None,
    slopes: Any = None,
    potentials_init: tuple[Any, Any] | None = None,
    plan_init: Any = None,
    n_threads: int | None = None,
    max_iter: int | None = None,
    tol: float | None = None,
    device: Any = None,
    progress: bool | ProgressFunction | None = None,
    **options: Unpack[RegularizedSampleOptions],
) -> RegularizedResult:
    """:func:`solve_regularized` with the costs of points.

    Newton's method, for a quadratic term or none, stores the active pairs of two plans, at first about half of all
    pairs: on a CPU as lists of up to 7 n m bytes, on a GPU as bits. Splitting, for all terms, stores the plan and the
    costs. `report.peak_bytes` has the sum. A mask is for cost matrices alone. Points, metric and options of the costs,
    :class:`monge.CostOptions`, are as for :func:`monge.solve_sample`; other arguments and errors are as for
    :func:`solve_regularized`.

    >>> import monge, numpy as np
    >>> x = np.arange(4.0)[:, None]
    >>> monge.solve_regularized_sample(x, x + 10).transform().ravel().round(3)
    array([10., 11., 12., 13.])
    """
    costs, own = split_costs(options)
    problem = points_problem(X_a, X_b, a, b, metric, device, **costs)
    regularizer = Regularizer.read(
        quadratic,
        group_lasso,
        groups,
        group_weights,
        l1,
        l1_weights,
        mask,
        hypentropy,
        hypentropy_width,
        separable,
        slopes,
    )
    translated = regularized_options(own, max_iter, tol)
    return run(problem, regularizer, translated, potentials_init, n_threads, progress, plan_init)


@calls(**REGULARIZED)
def solve_regularized_batch(
    M: Any,
    a: Any = None,
    b: Any = None,
    *,
    quadratic: float | None = None,
    group_lasso: float | None = None,
    groups: Any = None,
    group_weights: Any = None,
    l1: float | None = None,
    l1_weights: Any = None,
    mask: Any = None,
    hypentropy: float | None = None,
    hypentropy_width: float | None = None,
    separable: SeparableTerm | None = None,
    slopes: Any = None,
    n_threads: int | None = None,
    max_iter: int | None = None,
    tol: float | None = None,
    device: Any = None,
    progress: bool | ProgressFunction | None = None,
    **options: Unpack[RegularizedOptions],
) -> BatchResult[RegularizedResult]:
    """:func:`solve_regularized` for many cost matrices at once: (B, n, m), or a list of matrices of any shapes.

    a, b, groups, group_weights, l1_weights and mask are lists, arrays with one more dimension, or one for all problems.
    Groups of pairs are a list or an array (B, n, m).
    Other arguments are as for :func:`solve_regularized`, the same for all problems. Each problem stops by itself and
    has the same bits as that of :func:`solve_regularized`.

    On CUDA all problems share the launches of an iteration of splitting. Problems too small for two threads run in
    parallel on the CPU, one thread each; Newton's method takes small problems of a GPU there, too
    (`report.newton_on_host`). Calls of `progress` for different problems then have no order.

    Errors are those of :func:`solve_regularized`. A message begins with the number of its problem: "problem 3: a: ...".
    """
    problems = matrix_problems(M, a, b, device)
    size = len(problems)
    arrays = (
        one_each("groups", groups, size, 2 if getattr(groups, "ndim", 1) == 3 else 1, read_index),
        one_each("group_weights", group_weights, size, 1),
        one_each("l1_weights", l1_weights, size, 2),
        one_each("mask", mask, size, 2),
    )
    of_all = dict(
        quadratic=quadratic,
        group_lasso=group_lasso,
        l1=l1,
        hypentropy=hypentropy,
        hypentropy_width=hypentropy_width,
        separable=separable,
        slopes=slopes,
    )
    regularizers = each_problem(lambda *each: Regularizer.read(**of_all, **dict(zip(TERM_ARRAYS, each))), *arrays)
    translated = regularized_options(options, max_iter, tol)
    return run_batch(problems, regularizers, translated, None, n_threads, progress)
