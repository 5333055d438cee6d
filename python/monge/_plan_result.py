"""The common part of all results: a plan that is an operator, its potentials and its report."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from . import _core
from ._arrays import Array, Place, framework_of, on_host, read
from ._followed import Followed, requires_gradient
from ._names import whole
from ._problem import Problem


@dataclass(frozen=True)
class Gradients:
    """Derivatives of the dual value at fixed potentials.

    Attributes:
        x, y: Derivatives by the points, with the shapes of X_a and X_b, in units of the cost over units of the points.
            None for a cost matrix, and for costs whose derivatives the library does not have.
        a, b: Derivatives by the weights. In a balanced problem only directions that keep sum a = sum b are feasible.
        report: The distance of these derivatives to those at the optimum; for a regularised plan the solve's report.
    """

    x: Array | None
    y: Array | None
    a: Array | None
    b: Array | None
    report: _core.GradientReport | _core.DivergenceGradient | _core.RegularizedReport | _core.ExactReport


def attached(
    result: Any, name: str, of: tuple[Array, ...], others: tuple[Any, ...] = (), how: tuple[Any, ...] = ()
) -> tuple[Array, ...]:
    """Arrays `of` an attribute or method `name` of a result, with gradients by two kinds of tensors: those that its
    problem follows, and `others`, the array arguments of the method. `how` are its other arguments. A missing
    derivative is an error when it is asked for."""
    if result._followed is None and not any(map(requires_gradient, others)):
        return of
    from .torch._result import attach

    given = (None,) * 5 if result._followed is None else result._followed.unchanged(name)
    return attach(result, name, of, given, others, how)


def without_second(result: Any, found: Gradients) -> Gradients:
    """The same gradients. A second derivative, by any tensor, is an error."""
    given = {name: v for name in "xyab" if (v := getattr(found, name)) is not None}
    return replace(found, **dict(zip(given, attached(result, "gradients", tuple(given.values())))))


class LazyPlan:
    """The plan, whose rows are computed on demand: ``lazy[i]``, ``lazy[i:j]``, ``lazy[i:j, k]``, ``lazy @ v``,
    ``u @ lazy``, ``lazy.T @ u``. ``numpy.asarray(lazy)`` is the dense plan."""

    __array_ufunc__ = None  # NumPy then leaves u @ lazy to this class.

    def __init__(self, result: PlanResult, transposed: bool = False) -> None:
        self._result = result
        self._transposed = transposed

    @property
    def shape(self) -> tuple[int, int]:
        """(n, m), or transposed (m, n)."""
        n, m = self._result.shape
        return (m, n) if self._transposed else (n, m)

    @property
    def T(self) -> LazyPlan:
        """The transpose."""
        return LazyPlan(self._result, not self._transposed)

    def __matmul__(self, v: Array) -> Array:
        return self._result.apply(v, transpose=self._transposed)

    def __rmatmul__(self, u: Array) -> Array:
        given = u if requires_gradient(u) else read("u", u)
        return self.T @ given if given.ndim == 1 else (self.T @ given.T).T

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("copy: is False; must be True or None, since the plan is computed from its potentials")
        plan = on_host(self._result._make_plan())
        return (plan.T if self._transposed else plan).astype(dtype or plan.dtype, copy=False)

    def __getitem__(self, key: Any) -> Array:
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        picked = np.arange(self.shape[0])[rows]
        chosen = np.atleast_1d(picked)
        unit = np.zeros((self.shape[0], len(chosen)))
        unit[chosen, np.arange(len(chosen))] = 1
        block = self._result.apply(unit, transpose=not self._transposed).T
        return block[:, columns] if np.ndim(picked) else block[0, columns]

    def __repr__(self) -> str:
        return f"<LazyPlan {self.shape[0]} x {self.shape[1]}>"


class PlanResult:
    """The result of any solver: a plan with its problem and its report.

    Arrays have the framework, dtype and device of M or X_a. On CUDA they are ready on the stream of the solve.
    """

    def __init__(self, problem: Problem, options: dict[str, Any], report: Any) -> None:
        self._problem = problem
        self._options = options
        self._report = report

    # The problem and how it went.

    @property
    def report(self) -> Any:
        """All that is known of the solve."""
        return self._report

    @property
    def n_iter(self) -> int:
        """Iterations, as the report counts them."""
        return int(self._report.iterations)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, m)."""
        geometry = self._problem.geometry
        return geometry.rows, geometry.columns

    @property
    def status(self) -> str:
        """ "converged", "completed" (a tolerance of 0), "iteration_limit", "precision_limit" or "stopped"; for exact
        transport "optimal", "precision_limit", "round_limit" or "stopped"."""
        return str(self._report.status)

    @property
    def converged(self) -> bool:
        """Whether the solve reached its tolerance, or its proof."""
        return self.status in ("converged", "optimal")

    @property
    def marginal_error(self) -> float:
        """The L1 error of both marginals, in float64; with penalties, that of the optimality conditions instead."""
        return float(self._report.marginal_error)

    @property
    def gap(self) -> float:
        """Primal minus dual value. Its size is the error of the value, to first order in the marginal error and up to
        rounding. For exact transport it is a bound, rounding included."""
        return float(self._report.gap)

    @property
    def log(self) -> dict[str, Any]:
        """The report as a dictionary."""
        return dict(self._report.to_dict())

    # Values.

    @property
    def value_linear(self) -> Array:
        """<C, P>."""
        return attached(self, "value_linear", (self._place.scalar(self._transport_cost()),))[0]

    @property
    def value_quad(self) -> None:
        """None: there is no quadratic part, as in POT's results of linear problems."""
        return None

    # The plan.

    @property
    def potentials(self) -> tuple[Array, Array]:
        """The dual potentials (n) and (m), in units of the cost."""
        f, g = attached(self, "potentials", self._make_potentials())
        return f, g

    @property
    def potential_a(self) -> Array:
        """f (n), in units of the cost."""
        return self.potentials[0]

    @property
    def potential_b(self) -> Array:
        """g (m), in units of the cost."""
        return self.potentials[1]

    @property
    def plan(self) -> Array:
        """P (n x m), dense, computed in the precision of the solve, `report.precision`."""
        if self._followed is None:
            return self._dense_plan
        return attached(self, "plan", (self._make_plan(),))[0]

    @functools.cached_property
    def sparse_plan(self) -> Array:
        """The plan as a CSR array (SciPy, PyTorch or CuPy)."""
        raise NotImplementedError

    @property
    def lazy_plan(self) -> LazyPlan:
        """The plan, whose rows are computed on demand."""
        return LazyPlan(self)

    @property
    def marginals(self) -> tuple[Array, Array]:
        """P 1 (n) and P^T 1 (m), computed in the precision of the solve, `report.precision`."""
        if self._followed is None:
            row, column = self._kept_marginals
            return self._place.framework.copy(row), self._place.framework.copy(column)
        row, column = attached(self, "marginals", self._make_marginals())
        return row, column

    @property
    def marginal_a(self) -> Array:
        """P 1 (n)."""
        return self.marginals[0]

    @property
    def marginal_b(self) -> Array:
        """P^T 1 (m)."""
        return self.marginals[1]

    def apply(self, v: Any, transpose: bool = False) -> Array:
        """P v for `v` of shape (m,) or (m, p); with `transpose` P^T v for (n,) or (n, p). P is not formed."""
        multiply = self._plan.apply_transpose if transpose else self._plan.apply
        return self._product("apply", multiply, v, int(not transpose), how=(transpose,))

    def push(self, mass: Any) -> Array:
        """`mass` on the sources, (n,) or (n, p), moved to the targets: P^T diag(1 / P 1) mass. Its total is kept."""
        return self.apply(self._shares(mass, 0), transpose=True)

    def pull(self, mass: Any) -> Array:
        """`mass` on the targets, (m,) or (m, p), moved back to the sources: P diag(1 / P^T 1) mass."""
        return self.apply(self._shares(mass, 1))

    def average(self, values: Any, transpose: bool = False) -> Array:
        """sum_j P_ij v_j / sum_j P_ij for `values` v (m,) or (m, p) of the targets. With `transpose` averages
        over columns, for values (n,) or (n, p) of the sources."""
        raise NotImplementedError

    def transform(self, points: Any = None) -> Array:
        """The map of the plan at `points` (k x d), by default at the sources."""
        raise NotImplementedError

    def _average_of_targets(self) -> Array:
        """The average target of each source."""
        if self._problem.y is None:
            raise NotImplementedError("transform: the problem is a cost matrix; average() takes values of the targets")
        y = None if self._followed is None else self._followed.unchanged("transform")[2]
        return self.average(self._problem.y if y is None else y)

    def gradients(self) -> Gradients:
        """Derivatives of the value by points and weights. The derivative by the costs is the plan."""
        raise NotImplementedError

    # The implementation.

    def _gradients_at_fixed_plan(self) -> Gradients:
        """Derivatives of an optimum: by points at the fixed plan; by weights the potentials."""
        u, v = self._make_potentials()
        problem = self._problem
        if not self._has_point_derivatives:
            return Gradients(None, None, u, v, self._report)
        own = self._place.framework
        x, y = (v if framework_of(v) is own else self._place.array(on_host(v)) for v in (problem.x, problem.y))
        from_y, from_x = self.apply(y), self.apply(x, transpose=True)
        if problem.cost_function == "dot":
            return Gradients(-problem.scale * from_y, -problem.scale * from_x, u, v, self._report)
        row, column = self._make_marginals()
        by_x, by_y = row[:, None] * x - from_y, column[:, None] * y - from_x
        return Gradients(2 * problem.scale * by_x, 2 * problem.scale * by_y, u, v, self._report)

    def _gradients(self, wanted: str) -> Gradients:
        """The derivatives by the arguments in `wanted`, letters of "xyab", and maybe by others."""
        return self.gradients()

    @property
    def _plan(self) -> Any:
        """The library's plan, which may read the costs of the problem."""
        self._problem.require_unchanged()
        return self._held

    @property
    def _held(self) -> Any:
        """The library's plan, for its potentials alone."""
        raise NotImplementedError

    def _transport_cost(self) -> float:
        return float(self._plan.transport_cost())

    def _value(self) -> float:
        raise NotImplementedError

    _has_gradients: tuple[str, ...] = ("value",)
    """The attributes and methods that have derivatives by the tensors of the problem."""
    _is_constant: tuple[str, ...] = ()
    """Attributes whose derivatives by costs and points are 0."""

    @property
    def _followed(self) -> Followed | None:
        return self._problem.followed

    @property
    def _solves(self) -> tuple[PlanResult, ...]:
        """The results whose values make up the value: itself, or the three solves of a divergence."""
        return (self,)

    def _entropy_weight(self) -> float:
        """eps where the value has eps sum P log P in the place of eps KL(P | a b^T), else 0."""
        return 0.0

    def _value_with_gradients(self) -> Array:
        return attached(self, "value", (self._place.scalar(self._value()),))[0]

    def _make_potentials(self) -> tuple[Array, Array]:
        f, g = self._place.empty(self.shape[0]), self._place.empty(self.shape[1])
        self._write_potentials(f, g)
        return self._place.finish(f), self._place.finish(g)

    def _write_potentials(self, f: Array, g: Array) -> None:
        self._held.potentials(f, g)

    @functools.cached_property
    def _kept_marginals(self) -> tuple[Array, Array]:
        return self._make_marginals()

    def _make_marginals(self) -> tuple[Array, Array]:
        row, column = self._place.empty(self.shape[0]), self._place.empty(self.shape[1])
        self._plan.marginals(row, column)
        return self._place.finish(row), self._place.finish(column)

    @functools.cached_property
    def _dense_plan(self) -> Array:
        """The dense plan. It is kept for the caller, who may change it: nothing else reads it."""
        return self._make_plan()

    def _by_costs(self) -> Array:
        """The derivative of the value by the costs that the caller has given."""
        return self._make_plan()

    def _make_plan(self) -> Array:
        to = self._place.empty(*self.shape)
        self._plan.dense(to)
        return self._place.finish(to)

    @property
    def _place(self) -> Place:
        return self._problem.place

    @property
    def _backend(self) -> Any:
        """POT's backend of the arrays, as its own results have it; None where POT is not imported."""
        backend = sys.modules.get("ot.backend")
        return None if backend is None else backend.get_backend(self._place.array([0.0]))

    @property
    def _has_point_derivatives(self) -> bool:
        """Whether :meth:`gradients` has derivatives by points."""
        return self._problem.cost is None and self._problem.cost_function in ("sqeuclidean", "dot")

    def _points_like(self) -> tuple[Array, Array]:
        problem = self._problem
        if problem.x is None or problem.y is None:
            raise NotImplementedError("gradients: the problem is a cost matrix, which has no points; must be points")
        return self._place.empty(*problem.x.shape), self._place.empty(*problem.y.shape)

    def _gradients_by(self, wanted: str, differentiate: Callable[..., Any]) -> Gradients:
        """differentiate(x, y, a, b) writes the derivatives that are wanted, as far as the library has them, and returns
        a report."""
        letters = wanted if self._has_point_derivatives else wanted.translate({ord("x"): None, ord("y"): None})
        shapes = zip("xyab", (self._problem.x, self._problem.y, *self.shape))
        x, y, a, b = (
            self._place.empty(*(getattr(like, "shape", None) or (like,))) if letter in letters else None
            for letter, like in shapes
        )
        report = differentiate(x, y, a, b)
        x, y, a, b = (None if v is None else self._place.finish(v) for v in (x, y, a, b))
        return Gradients(x, y, a, b, report)

    def _product(
        self,
        name: str,
        multiply: Any,
        v: Any,
        side: int,
        field: str = "v",
        others: tuple[Any, ...] = (),
        how: tuple[Any, ...] = (),
    ) -> Array:
        """The product of the method `name` with v, of the sources (side 0) or of the targets (1). `others` and `how`
        are the method's other arguments."""
        given = self._read_of_side(field, v, side)
        columns = given[:, None] if given.ndim == 1 else given
        to = self._place.empty(self.shape[1 - side], columns.shape[1] if columns.ndim == 2 else 1)
        multiply(columns, to)
        to = self._place.finish(to)
        given_v = v if requires_gradient(v) else given
        return attached(self, name, (to[:, 0] if given.ndim == 1 else to,), (*others, given_v), how)[0]

    def _read_of_side(self, field: str, values: Any, side: int) -> Array:
        """Values (n,) or (n, p) of the sources (side 0), or (m,) or (m, p) of the targets (side 1)."""
        given, size = read(field, values), self.shape[side]
        shape = tuple(given.shape)
        if len(shape) not in (1, 2) or shape[0] != size:
            raise ValueError(f"{field}: has shape {shape}; must be ({size},) or ({size}, p)")
        return given

    def _shares(self, mass: Any, side: int) -> Array:
        given, marginal, place = self._read_of_side("mass", mass, side), self.marginals[side], self._place
        framework = framework_of(given)
        if requires_gradient(mass):
            given = mass
        elif framework is not place.framework or framework.device(given) != place.device:
            given = place.array(on_host(given))
        reciprocal = (marginal > 0) / (marginal + (marginal == 0))
        return given * (reciprocal if given.ndim == 1 else reciprocal[:, None])


class SparsePlanResult(PlanResult):
    """The common part of results whose plans have few entries."""

    @property
    def nonzeros(self) -> int:
        """The number of positive entries of the plan."""
        return int(self._report.nonzeros)

    def average(self, values: Any, transpose: bool = False) -> Array:
        """sum_j P_ij v_j / sum_j P_ij for `values` v (m,) or (m, p) of the targets. With `transpose` averages
        over columns, for values (n,) or (n, p) of the sources. The average is 0 for a point without mass."""
        multiply = self._plan.average_transpose if transpose else self._plan.average
        return self._product("average", multiply, values, int(not transpose), "values", how=(transpose,))

    def topk(self, k: int, axis: int = 1) -> tuple[Array, Array]:
        """(indices, values) of the `k` largest entries of each row (`axis` 1: n x k) or column (0: m x k), the largest
        first; equal entries, those of 0 among them, are in order of their index."""
        axis = whole("axis", axis, 0, 1)
        size, most = self.shape if axis == 1 else self.shape[::-1]
        k = whole("k", k, 1, most)
        rows, columns, values = self._entries if axis == 1 else (self._entries[i] for i in (1, 0, 2))
        order = np.lexsort((columns, -values, rows))
        rows, columns, values = rows[order], columns[order], values[order]
        count = np.bincount(rows, minlength=size)
        rank = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        indices, largest = np.empty((size, k), np.int64), np.zeros((size, k))
        taken = np.zeros((size, k), bool)
        taken[rows[columns < k], columns[columns < k]] = True
        # A row of c < k nonzero entries gets its first k - c zeros, which are among its first k columns.
        zeros, missing = np.argsort(taken, axis=1, kind="stable"), np.arange(k) >= count[:, None]
        begin = np.minimum(count, k)[:, None]
        indices[missing] = np.take_along_axis(zeros, np.maximum(np.arange(k) - begin, 0), 1)[missing]
        kept = rank < k
        indices[rows[kept], rank[kept]], largest[rows[kept], rank[kept]] = columns[kept], values[kept]
        return self._place.index_array(indices), attached(self, "topk", (self._place.array(largest),))[0]

    def sample(self, k: int, seed: int = 0) -> tuple[Array, Array]:
        """`k` pairs drawn independently from P / sum P: their i and their j.

        The same `seed` gives the same pairs on every device, and a larger k begins with them. The generator is Philox
        of NumPy.
        """
        k, seed = whole("k", k), whole("seed", seed)
        rows, columns, values = self._entries
        total = np.cumsum(values)
        drawn = np.random.Generator(np.random.Philox(seed)).random(k) * total[-1]
        entries = np.minimum(np.searchsorted(total, drawn, side="right"), len(total) - 1)
        return self._place.index_array(rows[entries]), self._place.index_array(columns[entries])

    def gradients(self) -> Gradients:
        """Derivatives of the value by points ("sqeuclidean", "dot") and weights. The derivative by the costs is the
        plan."""
        return without_second(self, self._gradients("xyab"))

    def _gradients(self, wanted: str) -> Gradients:
        return self._gradients_at_fixed_plan()

    @property
    def _entries(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """i, j and P_ij of the nonzero entries, on the host, row by row."""
        raise NotImplementedError
