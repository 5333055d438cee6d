"""Results of entropic transport, and those of batches."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar, overload

import numpy as np

from . import _core
from ._arrays import Array, Place, framework_of, on_host, read, read_matrix, stack_of
from ._followed import requires_gradient
from ._names import MOST, calls, number, whole
from ._plan_result import Gradients, LazyPlan, PlanResult, attached, without_second
from ._problem import Problem, all_of, at_the_end, each_problem, warn

_OTHER_SIDE = {"penalty_a": "penalty_b", "penalty_b": "penalty_a"}

_OF_REFINING = {
    "method": "newton",
    "precision": "float64",
    "criterion": "l1",
    "tolerance": 1e-15,
    "iterations": 200,
    "certificate": True,
}


def _warn_if_short(report: _core.LinearReport, tolerance: float) -> None:
    """A ConvergenceWarning if a linear system ended short of `tolerance`. A tolerance of 0 asks for a number of steps.
    "stagnation" within the tolerance is the rounding of the products in float32."""
    is_done = {"converged": True, "stagnation": tolerance == 0 or report.residual <= tolerance}
    if not is_done.get(report.status, tolerance == 0 and report.status == "iteration_limit"):
        warn(
            f"conjugate gradients did not converge: {report.status} after {report.iterations} steps, residual "
            f"{report.residual:.1e}"
        )


class OTResult(PlanResult):
    """The result of :func:`monge.solve` and its like, with the attributes of POT's ``OTResult`` and more.

    The plan is P_ij = a_i b_j exp((f_i + g_j - C_ij) / eps); only ``plan`` forms it. Arrays have the framework, dtype
    and device of M or X_a. On CUDA they are ready on the stream of the solve.

    Potentials are in units of the cost. Potentials of a balanced problem have <a, f> = <b, g>, unless `tol` is 0, there
    is no certificate, or :func:`plan_of` was given others. The ``log_scalings`` are what POT calls potentials.

    Potentials, ``value``, ``value_linear`` and the certificate of the report are computed in float64. The plan, its
    marginals and its products are computed from the potentials in the precision in which the solve ended,
    ``report.precision``. With precision "auto" this is float32 where float32 reaches the tolerance, whatever the dtype
    of the inputs. An entry in float32 has a relative error of some 1e-7 (1 + range of C / eps).

    If tensors of PyTorch that require gradients were given, values, `plan`, potentials, `log_scalings`, marginals,
    products with the plan, averages and maps have first derivatives by M or the points and by the weights, and methods
    also by their arguments. These derivatives are those of the optimum, by implicit differentiation. With precision
    "auto" they are computed in float64 where float32 has too few digits. With "auto" or "float64", where the potentials
    of the result are too far from the optimum, the derivatives are computed at potentials that are solved further; the
    result keeps its potentials. A gradient with an estimated error above 1e-2, or whose linear system is not solved, is
    a RuntimeError. An estimated error above 1e-4 makes a ConvergenceWarning. Entries (`topk`, `sparse`, `sparse_plan`),
    :meth:`gradients` and products of the Hessian have no derivatives: a backward pass through them is a
    NotImplementedError.
    """

    _has_gradients = (
        "value",
        "value_linear",
        "plan",
        "potentials",
        "marginals",
        "apply",
        "average",
        "apply_hadamard",
        "apply_gram",
        "transform",
        "potential",
    )

    def __init__(
        self,
        problem: Problem,
        options: dict[str, Any],
        reg_type: str,
        plan: _core.Plan | None,
        report: _core.Report,
        saved: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None = None,
    ) -> None:
        super().__init__(problem, options, report)
        self._reg_type = reg_type
        self._made = plan
        self._saved = saved
        self._is_refined = False

    # The problem and how it went.

    @property
    def report(self) -> _core.Report:
        """The report of the solve: certificate, counts, times, history."""
        return self._report  # type: ignore[no-any-return]

    @property
    def reg(self) -> float:
        """eps in units of the cost; by default 5 % of the mean cost."""
        return float(self._report.eps)

    @property
    def n_iter(self) -> int:
        """The number of sweeps, each an update of f and g, and of other passes over all pairs."""
        return int(self._report.iterations)

    # Values.

    @property
    def value(self) -> Array:
        """<C, P> + eps KL(P | a b^T), plus the penalties of an unbalanced problem, with KL(p | q) = sum p log(p / q) -
        p + q. With reg_type "entropy", <C, P> + eps sum P log P.
        """
        return self._value_with_gradients()

    # The plan.

    @property
    def log_scalings(self) -> tuple[Array, Array]:
        """f / eps + log a and g / eps + log b, so that P = exp(u_i + v_j - C_ij / eps): what POT calls potentials of a
        balanced problem, up to a constant t: (u + t, v - t). -inf where there is no weight."""
        followed = self._followed_weights("log_scalings")

        def log(weights: Array, given: Any) -> Array:
            if requires_gradient(given):
                return given.log()
            with np.errstate(divide="ignore"):
                return self._place.array(np.log(on_host(weights), dtype=np.float64))

        u, v = (
            potential / self.reg + log(weights, given)
            for potential, weights, given in zip(self.potentials, self._weights, followed)
        )
        return u, v

    @functools.cached_property
    def sparse_plan(self) -> Array:
        """The entries above 1e-6 of the mean entry, as :meth:`sparse`; the others hold less than 1e-6 of the mass."""
        n, m = self.shape
        report = self._report
        mass = report.transported_mass if report.certified else float(self._host_marginals()[0].sum())
        return self.sparse(1e-6 * mass / (n * m))

    def sparse(self, threshold: float) -> Array:
        """The entries P_ij > `threshold` as a CSR array (SciPy, PyTorch or CuPy)."""
        n, m = self.shape
        place = self._place
        threshold = number("threshold", threshold)
        row_begin = place.empty_index(n + 1)
        count = self._plan.count_above(threshold, row_begin)
        columns, values = place.empty_index(count), place.empty(count)
        self._plan.entries_above(threshold, row_begin, columns, values)
        (values,) = attached(self, "sparse", (values,))
        return place.framework.csr(row_begin, columns, values, (n, m))

    def average(self, values: Any, transpose: bool = False) -> Array:
        """sum_j P_ij v_j / sum_j P_ij for `values` v (m,) or (m, p) of the targets. With `transpose` averages
        over columns, for values (n,) or (n, p) of the sources. Points without weight have averages, too."""
        if transpose:
            return self.inverse.average(values)
        return self._product("average", self._centred_average, values, 1, "values")

    def _centred_average(self, values: Array, to: Array) -> None:
        """Writes the averages of `values` (m x p). A common offset is added at the end: products in float32 have its
        rounding otherwise."""
        offset = self._common_offset(values)
        if offset is None:
            self._plan.average(values, to)
        else:
            place, framework = self._place, framework_of(values)
            if framework is not place.framework or framework.device(values) != place.device:
                values = place.array(on_host(values))
            common = place.array(offset)
            self._plan.average(values - common, to)
            to[...] = to + common

    def _common_offset(self, values: Array) -> np.ndarray[Any, Any] | None:
        """An offset (p,) that is far larger than the spread of the values at points of weight, 0 in columns without one;
        None if no column has one. Nine points are looked at."""
        weights = self._problem.b
        present = np.arange(self.shape[1]) if weights is None else np.flatnonzero(on_host(weights) > 0)
        if not len(present):
            return None
        some = on_host(values[present[np.linspace(0, len(present) - 1, 9).astype(int)]]).astype(np.float64)
        middle = np.median(some, axis=0)
        offset = np.where(np.abs(middle) > 8 * np.abs(some - middle).max(axis=0), middle, 0)
        return offset if offset.any() else None

    def transform(self, points: Any = None) -> Array:
        """The entropic map at `points` (k x d), by default at the sources.

        Raises NotImplementedError for a cost matrix, which has no points.
        """
        if points is None:
            return self._average_of_targets()
        given = read_matrix("points", points, "(k, d)")
        to = self._place.empty(*given.shape)
        self._plan.map(given, to)
        return attached(self, "transform", (self._place.finish(to),), (points,))[0]

    def potential(self, points: Any) -> Array:
        """The potential f at `points` (k x d), in units of the cost: -eps log sum_j b_j exp((g_j - c(x, y_j)) / eps).

        With a KL penalty on the sources, f of ``potentials`` is this value times penalty_a / (penalty_a + eps), for an
        entropy relative to a b^T.
        """
        given = read_matrix("points", points, "(k, d)")
        to = self._place.empty(given.shape[0])
        self._plan.potential(given, to)
        return attached(self, "potential", (self._place.finish(to),), (points,))[0]

    def topk(self, k: int, axis: int = 1) -> tuple[Array, Array]:
        """(indices, values) of the `k` largest entries of each row (`axis` 1: n x k) or column (0: m x k), the largest
        first."""
        axis = whole("axis", axis, 0, 1)
        k = whole("k", k, 1, self.shape[axis])
        size = self.shape[1 - axis]
        indices, values = self._place.empty_index(size, k), self._place.empty(size, k)
        (self._plan.top_k if axis == 1 else self._plan.top_k_transpose)(indices, values)
        return self._place.finish(indices), attached(self, "topk", (self._place.finish(values),))[0]

    def sample(self, k: int, seed: int = 0) -> tuple[Array, Array]:
        """`k` pairs drawn independently from P / sum P: their i and their j. The same `seed` gives the same pairs."""
        k, seed = whole("k", k), whole("seed", seed, 0, (1 << 64) - 1)
        pairs = self._place.empty_index(k, 2)
        self._plan.sample(seed, pairs)
        pairs = self._place.finish(pairs)
        return pairs[:, 0], pairs[:, 1]

    @functools.cached_property
    def inverse(self) -> OTResult:
        """The same plan seen from the targets: a result for (X_b, X_a), or the transpose of M."""
        options = {_OTHER_SIDE.get(name, name): value for name, value in self._options.items()}
        f, g = self._float64_potentials()
        return self._transposed(self._problem.transposed(), options, self._reg_type, None, self._report, (g, f))

    # Products with a changed plan. P is not formed.

    @calls(l="left", r="right")
    def apply_hadamard(self, left: Any, right: Any, v: Any, transpose: bool = False) -> Array:
        """(P o left right^T) v, o the product entry by entry, for `left` (n, k), `right` (m, k) and `v` (m,) or (m, p);
        with `transpose` (P o left right^T)^T v for `v` (n,) or (n, p). FlashSinkhorn, Algorithm 5."""
        multiply = self._plan.apply_hadamard_transpose if transpose else self._plan.apply_hadamard
        factors = read_matrix("left", left, "(n, k)"), read_matrix("right", right, "(m, k)")
        product = functools.partial(multiply, *factors)
        others = (left, right)
        return self._product("apply_hadamard", product, v, int(not transpose), others=others, how=(transpose,))

    @calls(u="v")
    def apply_gram(self, w: Any, v: Any, transpose: bool = False) -> Array:
        """P^T diag(w) P v (m) for `w` (n) and `v` (m); with `transpose` P diag(w) P^T v (n) for `w` (m) and `v` (n)."""
        to = self._place.empty(self.shape[0 if transpose else 1])
        multiply = self._plan.apply_gram_transpose if transpose else self._plan.apply_gram
        multiply(read("w", w), read("v", v), to)
        return attached(self, "apply_gram", (self._place.finish(to),), (w, v), (transpose,))[0]

    # Derivatives.

    def gradients(self, error_iterations: int = 0) -> Gradients:
        """Derivatives of the dual value by points and weights. The derivative by the costs is the plan.

        With `error_iterations` > 0, at most that many steps estimate the distance of these derivatives from those at
        the optimum (report.distance).
        """
        found = self._gradients("xyab", whole("error_iterations", error_iterations, 0, MOST))
        return without_second(self, found)

    @calls(**{"v.x": "x", "v.y": "y"})
    def hessian_product(
        self, x: Any = None, y: Any = None, *, damping: float = 0.0, tolerance: float = 1e-6, iterations: int = 1000
    ) -> tuple[Array, Array, _core.LinearReport]:
        """The Hessian of the value in the points, times directions x (n x d) and y (m x d), by default 0. The distance
        of two points that coincide has first and second derivatives of 0.

        The linear system is solved to a relative residual of `tolerance`, or for `iterations` steps. `damping` >= 0,
        relative to the mass, is added to its diagonal; 0 gives the Hessian itself.

        Returns the product's rows for X_a and for X_b, and a report of the linear system. A :class:`ConvergenceWarning`
        says that the system ended short of `tolerance`; a tolerance of 0 asks for all `iterations`.
        """
        to_x, to_y = self._points_like()
        report = self._plan.hessian_product(
            None if x is None else read("x", x),
            None if y is None else read("y", y),
            to_x,
            to_y,
            number("damping", damping),
            number("tolerance", tolerance),
            whole("iterations", iterations, 1, MOST),
        )
        _warn_if_short(report, tolerance)
        products = self._place.finish(to_x), self._place.finish(to_y)
        products = attached(self, "hessian_product", products, tuple(v for v in (x, y) if v is not None))
        return *products, report

    def inverse_hessian_product(
        self, v: Any, shift: float = 0.0, *, damping: float = 0.0, tolerance: float = 1e-6, iterations: int = 1000
    ) -> tuple[Array, _core.LinearReport]:
        """The solution s (n x d) of (H + `shift`) s = `v` (n x d), by conjugate gradients: a step of Newton's method.

        H is the Hessian of the value in X_a. `shift`, in units of the cost over squared units of the points, makes
        H + shift positive where H is not; else the status of the report is "negative_curvature". `damping` is that of
        :meth:`hessian_product`. The residual is at most `tolerance` of v, or `iterations` steps are done.

        Returns s and a report of the linear system. Warnings are those of :meth:`hessian_product`.
        """
        to, _ = self._points_like()
        report = self._plan.inverse_hessian_product(
            read("v", v),
            to,
            number("shift", shift),
            number("damping", damping),
            number("tolerance", tolerance),
            whole("iterations", iterations, 1, MOST),
        )
        _warn_if_short(report, tolerance)
        return attached(self, "inverse_hessian_product", (self._place.finish(to),), (v,))[0], report

    # The implementation.

    @property
    def _weights(self) -> tuple[Array, Array]:
        """The caller's a and b."""
        return self._problem.weights

    def _followed_weights(self, name: str) -> tuple[Any, Any]:
        """a and b as autograd follows them, for the attribute `name`. None: autograd does not follow this one."""
        if self._followed is None:
            return None, None
        a, b = self._followed.unchanged(name)[3:]
        return a, b

    def _transposed(self, *of: Any) -> OTResult:
        return OTResult(*of)

    def _gradients(self, wanted: str, error_iterations: int = 0, scale: bool = True) -> Gradients:
        differentiate = functools.partial(self._plan.gradients, error_iterations=error_iterations, scale=scale)
        return self._gradients_by(wanted, differentiate)

    @property
    def _has_point_derivatives(self) -> bool:
        return self._problem.cost is None

    @property
    def _held(self) -> _core.Plan:
        if self._made is None:  # A result from a pickle, or an inverse: it has potentials alone.
            assert self._saved is not None
            problem, options = self._problem, at_the_end(self._options, self._report)
            views = (problem.geometry, problem.a, problem.b, *self._saved)
            self._made = _core.plan_of(self._place.session(None), *views, options)
        return self._made

    @functools.cached_property
    def _refined(self) -> OTResult:
        """A plan in float64 for derivatives. Its potentials are as near to the optimum as float64 allows."""
        problem, options = self._problem, at_the_end(self._options, self._report) | _OF_REFINING
        # Unbalanced plans may have little of the mass of the weights.
        options["tolerance"] *= min(1.0, float(self._host_marginals()[0].sum()) / self._report.mass)
        views = (problem.geometry, problem.a, problem.b, *self._float64_potentials())
        plan = _core.solve(self._place.session(None), *views, options, None)
        refined = OTResult(problem, options, self._reg_type, plan, plan.report)
        refined._is_refined = True
        return refined

    def _transport_cost(self) -> float:
        return float(self._report.transport_cost if self._report.certified else self._plan.transport_cost())

    def _value(self) -> float:
        if self._reg_type != "entropy":
            return float(self._report.primal)
        # KL(P | a b^T) = sum P log P - <P 1, log a> - <P^T 1, log b> + sum a sum b - sum P.
        report = self._report
        logs = 0.0
        for marginal, weights in zip(self._host_marginals(), self._problem.weights):
            given = on_host(weights)
            logs += float(marginal @ np.log(np.where(given > 0, given, 1), dtype=np.float64))
        return float(report.primal + report.eps * (logs + report.transported_mass - report.mass * report.mass_b))

    def _float64_potentials(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        f, g = np.empty(self.shape[0]), np.empty(self.shape[1])
        self._held.potentials(f, g)
        return f, g

    def _host_marginals(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        row, column = np.empty(self.shape[0]), np.empty(self.shape[1])
        self._plan.marginals(row, column)
        return row, column

    def _entropy_weight(self) -> float:
        return self.reg if self._reg_type == "entropy" else 0.0

    def _penalties(self) -> tuple[float, float]:
        return self._options.get("penalty_a", math.inf), self._options.get("penalty_b", math.inf)

    def __reduce__(self) -> Any:
        problem, potentials = self._problem.for_pickle(), self._float64_potentials()
        # The plan of the copy leaves out pairs if this one does, whatever `auto` chooses.
        options = self._options | ({"method": "multiscale"} if self._report.left_out_of_row > 0 else {})
        return OTResult, (problem, options, self._reg_type, None, self._report, potentials)

    def __repr__(self) -> str:
        n, m = self.shape
        report = self._report
        relative = "" if math.isnan(report.eps_relative) else f" ({report.eps_relative:.3g} of the mean cost)"
        return (
            f"<OTResult {n} x {m}: {report.status} after {report.iterations} sweeps, value {self._value():.6g}, "
            f"eps {report.eps:.4g}{relative}, "
            f"marginal error {report.marginal_error:.2e}>"
        )


Result = TypeVar("Result", bound=PlanResult)


class BatchResult(Sequence[Result]):
    """The results of a batch: a sequence of results, one for each problem, and their attributes together.

    Arrays are stacked where all problems have one shape; otherwise they are lists of arrays. Arrays have the gradients
    of the single results.
    """

    def __init__(self, results: list[Result]) -> None:
        self._results = results

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> BatchResult[Result]: ...
    def __getitem__(self, index: int | slice) -> Result | BatchResult[Result]:
        return BatchResult(self._results[index]) if isinstance(index, slice) else self._results[index]

    def __len__(self) -> int:
        return len(self._results)

    def __iter__(self) -> Iterator[Result]:
        return iter(self._results)

    @property
    def value(self) -> Array:
        """The values of the problems (B)."""
        return self._either("value", lambda: self._numbers([result._value() for result in self]))

    @property
    def value_linear(self) -> Array:
        """<C, P> of each problem (B)."""
        return self._either("value_linear", lambda: self._numbers([result._transport_cost() for result in self]))

    @property
    def plan(self) -> Any:
        """Plans (B, n, m), computed in the precision of the solves."""
        return self._either(
            "plan", lambda: self._matrices(lambda result: result.shape, lambda result, to: result._plan.dense(to))
        )

    @property
    def potentials(self) -> tuple[Any, Any]:
        """Potentials (B, n) and (B, m), in units of the cost."""
        found: tuple[Any, Any] = self._either(
            "potentials", lambda: self._pairs(lambda result, f, g: result._write_potentials(f, g))
        )
        return found

    @property
    def potential_a(self) -> Any:
        """f (B, n), in units of the cost."""
        return self.potentials[0]

    @property
    def potential_b(self) -> Any:
        """g (B, m), in units of the cost."""
        return self.potentials[1]

    @property
    def lazy_plan(self) -> list[LazyPlan]:
        """The plan of each problem, whose rows are computed on demand."""
        return [result.lazy_plan for result in self]

    @property
    def sparse_plan(self) -> list[Array]:
        """The plan of each problem as a CSR array."""
        return [result.sparse_plan for result in self]

    @property
    def marginals(self) -> tuple[Any, Any]:
        """P 1 (B, n) and P^T 1 (B, m)."""
        found: tuple[Any, Any] = self._either(
            "marginals", lambda: self._pairs(lambda result, row, column: result._plan.marginals(row, column))
        )
        return found

    @property
    def marginal_a(self) -> Any:
        """P 1 (B, n)."""
        return self.marginals[0]

    @property
    def marginal_b(self) -> Any:
        """P^T 1 (B, m)."""
        return self.marginals[1]

    def apply(self, v: Any, transpose: bool = False) -> Any:
        """P v of each problem, for `v` (B, m) or (B, m, p), or a list of (m,) or (m, p), one for each; with `transpose`
        P^T v, with n in the place of m. No plan is formed."""
        return self._each("apply", "v", v, transpose)

    def average(self, values: Any, transpose: bool = False) -> Any:
        """The averages of each problem, as of a single result, for `values` (B, m) or (B, m, p), or a list of (m,) or
        (m, p), one for each; with `transpose` n takes the place of m."""
        return self._each("average", "values", values, transpose)

    def transform(self, points: Any = None) -> Any:
        """The map of each problem at `points` (B, k, d), or a list of (k, d), one for each; by default at its sources."""
        if points is None:
            return self._stacked([result.transform() for result in self])
        return self._each("transform", "points", points)

    @property
    def status(self) -> list[str]:
        """The status of each problem."""
        return [result.status for result in self]

    @property
    def converged(self) -> bool:
        """Whether all problems converged."""
        return all(result.converged for result in self)

    @property
    def n_iter(self) -> list[int]:
        """The iterations of each problem."""
        return [result.n_iter for result in self]

    @property
    def marginal_error(self) -> list[float]:
        """The L1 error of the marginals of each problem."""
        return [result.marginal_error for result in self]

    @property
    def report(self) -> list[Any]:
        """The report of each problem."""
        return [result.report for result in self]

    @property
    def log(self) -> list[dict[str, Any]]:
        """The report of each problem as a dictionary."""
        return [result.log for result in self]

    def __repr__(self) -> str:
        return f"<BatchResult of {len(self)}: {sum(result.converged for result in self)} converged>"

    @property
    def _backend(self) -> Any:
        """POT's backend of the arrays; None where POT is not imported."""
        return self._results[0]._backend

    @property
    def _place(self) -> Place:
        """The place of the first result, in float64 if any of the results is."""
        place = self._results[0]._place
        return replace(place, dtype="float64") if any(r._place.dtype == "float64" for r in self) else place

    def _either(self, name: str, make: Callable[[], Any]) -> Any:
        """make(), or where tensors of a result are followed, the attributes `name` of all results put together."""
        if all(result._followed is None for result in self):
            return make()
        from .torch._result import together

        return together(name, [getattr(result, name) for result in self])

    def _each(self, name: str, field: str, given: Any, *how: Any) -> Any:
        """The method `name` of each result with its part of the argument."""
        parts = all_of(field, stack_of(field, given), "a stack or a list with an array for each problem")
        if len(parts) != len(self):
            raise ValueError(f"{field}: has {len(parts)} entries; must have {len(self)}, one for each problem")
        return self._stacked(each_problem(lambda result, v: getattr(result, name)(v, *how), self._results, parts))

    def _stacked(self, parts: list[Array]) -> Any:
        return framework_of(parts[0]).stack(parts) if len({tuple(part.shape) for part in parts}) == 1 else parts

    def _numbers(self, values: list[float]) -> Array:
        return self._place.array(values)

    def _matrices(self, shape_of: Any, fill: Any) -> Any:
        shapes = {shape_of(result) for result in self}
        place = self._place
        if len(shapes) > 1:
            parts = [place.empty(*shape_of(result)) for result in self]
        else:
            parts = place.empty(len(self), *shapes.pop())
        for result, part in zip(self, parts):
            fill(result, part)
        return [place.finish(part) for part in parts] if isinstance(parts, list) else place.finish(parts)

    def _pairs(self, fill: Any) -> tuple[Any, Any]:
        place = self._place
        n, m = {result.shape[0] for result in self}, {result.shape[1] for result in self}
        rows = [place.empty(r.shape[0]) for r in self] if len(n) > 1 else place.empty(len(self), *n)
        columns = [place.empty(r.shape[1]) for r in self] if len(m) > 1 else place.empty(len(self), *m)
        for result, row, column in zip(self, rows, columns):
            fill(result, row, column)
        return tuple(  # type: ignore[return-value]
            [place.finish(part) for part in side] if isinstance(side, list) else place.finish(side)
            for side in (rows, columns)
        )
