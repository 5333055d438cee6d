"""Gromov-Wasserstein transport: clouds of different spaces, or matrices."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from . import _core
from ._arrays import Array, Place, kept, kept_optional, on_host, read_matrix
from ._exact import ExactResult, result_of
from ._followed import requires_gradient
from ._low_rank import features_of_costs, points_of_distances, squared_distances
from ._names import GROMOV, calls, lower_name, number, shown
from ._plan_result import PlanResult
from ._problem import (
    Problem,
    ProgressFunction,
    library_options,
    pair_of_penalties,
    shows,
    uniform,
    warn_if_short,
    watching,
)
from ._result import OTResult
from ._solve import plan_of_sample

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._options import GromovKeywordOptions, GromovOptions

_ALWAYS_ITERATIONS = 1000
_POT_METHODS = {"pgd": "alternating", "ppa": "proximal"}
_LOSSES = {"l2": "square", "kl": "kl"}
_MARGINALS = {"kl": "unbalanced", "semirelaxed": "semirelaxed", "partial": "partial"}


@dataclass(frozen=True)
class GromovGradients:
    """Derivatives of the value by points, features and weights, or by matrices and weights, at the plan as it is.
    Those by weights are None where marginals are open.

    Attributes:
        x, y: By the points, with the shapes of X_a and X_b; or by Ca and Cb.
        s, t: By the features; None where there are none. Beside M, s is by M and t is None.
        a, b: By the weights. Only directions that keep sum a = sum b are feasible.
    """

    x: Array | None
    y: Array | None
    s: Array | None
    t: Array | None
    a: Array | None
    b: Array | None


@dataclass(frozen=True)
class _Clouds:
    x: Array
    y: Array
    s: Array | None
    t: Array | None
    followed: tuple[Any, ...] | None = None
    """x, y, s, t, a and b as the caller has them, where a tensor of PyTorch among them requires a gradient."""
    kind: Literal["points", "distances", "matrices"] = "points"
    """distances: points, and features beside shifts, are those that :func:`solve_gromov` has found; matrices: x is Ca,
    y Cb and, where t is None, s is M."""
    loss: str = "square"
    """Of matrices."""
    shifts: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None = None
    """The terms of the caller's M_ij beyond |s_i - t_j|^2, by rows and by columns."""
    residual: float = 0.0
    """The largest difference of distances from the entries of Ca and Cb, as a fraction of the largest."""

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.x), len(self.y)


class GromovResult(PlanResult):
    """The result of :func:`monge.solve_gromov` and :func:`monge.solve_gromov_sample`, with the attributes of POT's ``OTResult`` and more.

    The plan is that of the last linear problem, :attr:`linear`, a result of :func:`monge.solve` or
    :func:`monge.solve_exact` with features in the place of points. Products, averages and entries are its methods.
    Values are those of the plan after its rows and columns were moved to the weights that are constraints. Arrays have the framework, dtype
    and device of X_a. A pickle has the plan and the values, but no derivatives and no map of new points.

    If tensors of PyTorch that require gradients were given, `value` has first derivatives by points, features, matrices
    and weights, those at the plan as it is. A backward pass through another attribute is a NotImplementedError.
    """

    def __init__(
        self,
        clouds: _Clouds,
        linear: OTResult | ExactResult,
        report: _core.GromovReport,
        cross_moment: np.ndarray[Any, Any],
        reg_type: str,
        made: _core.Gromov | None = None,
    ) -> None:
        super().__init__(linear._problem, {}, report)
        self._clouds = clouds
        self._linear = linear
        self._cross_moment = cross_moment
        self._reg_type = reg_type
        self._made = made

    # How it went.

    @property
    def linear(self) -> OTResult | ExactResult:
        """The last linear problem, with costs -<u_i, v_j> of the features u and v, and its plan: with `reg` an
        :class:`OTResult`, otherwise an :class:`ExactResult`."""
        return self._linear

    @property
    def reg(self) -> float:
        """The weight of the entropy; 0 without one."""
        return float(self._report.eps)

    @property
    def solved_as(self) -> str:
        """ "points" or "matrices". Where :func:`monge.solve_gromov` has found points, also their dimensions and the
        largest difference d of their squared distances from an entry: sqrt(E) differs by at most d times the mass."""
        clouds = self._clouds
        if clouds.kind != "distances":
            return clouds.kind
        p, q = clouds.x.shape[1], clouds.y.shape[1]
        return f"points of {p} and {q} dimensions, with the distances to {clouds.residual:.1e} of the largest"

    @property
    def starts(self) -> list[_core.GromovStart]:
        """`kind` (its name), `iterations`, `value` and `finished` of each start. This value is that of the report, with
        reg KL(P | a b^T) as its entropy."""
        return list(self._report.starts)

    @property
    def lower_bound(self) -> float:
        """No plan has value_quad + value_linear below it, whatever the start. With reg_type "entropy" `value` itself may
        be smaller, since reg sum P log P is negative at a total of 1."""
        return float(self._report.lower_bound) + self._shift

    @property
    def stationarity(self) -> float:
        """0 at a stationary plan, in units of the value: see :class:`GromovReport`."""
        return float(self._report.stationarity)

    @property
    def gap(self) -> float:
        """(value - lower_bound) / |value| of the report, whose value has reg KL(P | a b^T) >= 0 as its entropy: no plan
        is better by a larger share."""
        return float(self._report.gap)

    # Values.

    @property
    def value(self) -> Array:
        """value_linear + value_quad, and with `reg` reg sum P log P, or reg KL(P | a b^T) with reg_type "KL" and where
        columns are open. Unbalanced: with the divergences that :func:`monge.solve_gromov_sample` describes."""
        return self._attached("value", self._place.scalar(self._objective))

    @property
    def value_quad(self) -> Array:
        """alpha E(P), E(P) without features."""
        return self._attached("value_quad", self._place.scalar(self._value_quad))

    @property
    def value_linear(self) -> Array:
        """(1 - alpha) <M, P>, 0 without features."""
        return self._attached("value_linear", self._place.scalar(self._value_linear))

    # The plan.

    @property
    def plan(self) -> Array:
        """P (n x m), dense."""
        return self._attached("plan", self._linear.plan)

    @property
    def sparse_plan(self) -> Array:
        """The plan as a CSR array (SciPy, PyTorch or CuPy), as that of :attr:`linear`."""
        return self._attached("sparse_plan", self._linear.sparse_plan)

    @property
    def marginals(self) -> tuple[Array, Array]:
        """P 1 (n) and P^T 1 (m)."""
        row, column = self._linear.marginals
        return self._attached("marginals", row), self._attached("marginals", column)

    @property
    def cross_moment(self) -> Array:
        """sum_ij P_ij (x_i - mean) (y_j - mean)^T (p x q), or P (n x m) of matrices: a start (`plan_init`) of a problem
        like this one. Of points with open marginals it has more moments: (3 + p + q) x (2 + p + q)."""
        return self._attached("cross_moment", self._place.array(self._cross_moment))

    @property
    def potentials(self) -> Any:
        """f (n) and g (m). f_i + g_j is the derivative of the value by P_ij where P has entries, and without `reg` at
        most this derivative elsewhere. None where marginals are open, as in POT; those of the last step are
        `linear.potentials`. Not for the proximal method."""
        if not self._is_balanced:
            return None
        found, shift = self._derivatives("potentials"), self.reg * (self._report.mass - 1)
        return tuple(self._attached("potentials", self._place.array(found[name] - shift)) for name in "ab")

    @property
    def potential_a(self) -> Any:
        """f (n), or None."""
        return self.potentials and self.potentials[0]

    @property
    def potential_b(self) -> Any:
        """g (m), or None."""
        return self.potentials and self.potentials[1]

    def apply(self, v: Any, transpose: bool = False) -> Array:
        """P v for `v` of shape (m,) or (m, p); with `transpose` P^T v for (n,) or (n, p). P is not formed."""
        return self._attached("apply", self._linear.apply(v, transpose))

    def average(self, values: Any, transpose: bool = False) -> Array:
        """sum_j P_ij v_j / sum_j P_ij for `values` v (m,) or (m, p) of the targets. With `transpose` averages
        over columns, for values (n,) or (n, p) of the sources."""
        return self._attached("average", self._linear.average(values, transpose))

    def topk(self, k: int, axis: int = 1) -> tuple[Array, Array]:
        """(indices, values) of the `k` largest entries of each row (`axis` 1: n x k) or column (0: m x k), the largest
        first."""
        return self._linear.topk(k, axis)

    def sample(self, k: int, seed: int = 0) -> tuple[Array, Array]:
        """`k` pairs drawn independently from P / sum P: their i and their j. The same `seed` gives the same pairs."""
        return self._linear.sample(k, seed)

    def transform(self, points: Any = None, s: Any = None) -> Array:
        """The average point of X_b for each source, or for each of `points` (k x p), with features `s` (k x r) where the
        problem has them. For new points it is the average under the entropic map or, where the plan is exact, the
        target of the least reduced cost, at the costs of the last step."""
        if self._clouds.kind != "points":
            raise NotImplementedError("transform: the problem is matrices; average() takes values of the targets")
        if points is None:
            return self._attached("transform", self._linear.average(self._clouds.y))
        if self._made is None:
            raise RuntimeError("transform: the result was pickled, which keeps no map of new points")
        if (s is None) != (self._clouds.s is None):
            raise ValueError(f"s: is {'missing' if s is None else 'given'}; goes with features of the problem")
        given = read_matrix("points", points, "(k, p)")
        features = None if s is None else read_matrix("s", s, "(k, r)")
        problem = self._linear._problem
        u = np.empty((len(given), problem.x.shape[1]))  # type: ignore[union-attr]
        self._made.source_features(on_host(given), None if features is None else on_host(features), u)
        if isinstance(self._linear, OTResult):
            f, (_, g) = self._linear.potential(u), self._linear._float64_potentials()
            b = None if problem.b is None else on_host(problem.b)
            plan = plan_of_sample(on_host(f), g, u, problem.y, b=b, metric="dot", reg=self._linear.reg)
            mapped = self._place.array(on_host(plan.average(on_host(self._clouds.y))))
            return self._attached("transform", mapped)
        used = np.flatnonzero(on_host(problem.weights[1]) > 0)
        some = replace(problem, x=u, y=on_host(problem.y)[used], a=None, b=None)
        f, nearest = np.empty(len(u)), np.empty(len(u), np.int64)
        g = self._linear._made.g[used]
        _core.c_transform(self._place.session(None), some.geometry, g, f, nearest)
        return self._attached("transform", self._place.array(on_host(self._clouds.y)[used[nearest]]))

    def gradients(self) -> GromovGradients:  # type: ignore[override]
        """Derivatives of the value by points or matrices, features and weights. NotImplementedError for the proximal
        method, whose plan is no minimiser."""
        found, clouds = self._derivatives("gradients"), self._clouds
        if clouds.kind == "distances":
            plan, alpha = on_host(self._linear.plan).astype(np.float64), self._report.alpha
            row, column = plan.sum(1), plan.sum(0)
            c, d = squared_distances(clouds.x), squared_distances(clouds.y)
            found["x"] = 2 * alpha * (np.outer(row, row) * c - plan @ d @ plan.T)
            found["y"] = 2 * alpha * (np.outer(column, column) * d - plan.T @ c @ plan)
            if clouds.shifts is not None:
                found["s"] = (1 - alpha) * plan
        if self._has_entropy:
            for name, weights in zip("ab", self._weights):
                found[name] += self.reg * (_log(weights) + 1.5 - self._report.mass)
        return GromovGradients(**{name: None if v is None else self._place.array(v) for name, v in found.items()})

    def _derivatives(self, what: str) -> dict[str, Any]:
        """The derivatives of the value with KL(P | a b^T), on the host."""
        if self._made is None:
            raise RuntimeError(f"{what}: the result was pickled, which keeps no derivatives")
        clouds = self._clouds
        like = {"x": clouds.x, "y": clouds.y, "s": clouds.s, "t": clouds.t}
        found: dict[str, Any] = {name: None if v is None else np.empty(tuple(v.shape)) for name, v in like.items()}
        if clouds.kind == "distances":
            found |= dict.fromkeys("xy" if clouds.shifts is None else found)
        found |= {name: np.empty(size) if self._is_balanced else None for name, size in zip("ab", self.shape)}
        of_costs = found["s"] if clouds.kind == "matrices" and clouds.t is None else None
        self._made.gradients(**(found if of_costs is None else found | {"s": None}))
        if of_costs is not None:
            of_costs[:] = (1 - self._report.alpha) * on_host(self._linear.plan)
        for name, shift in zip("ab", clouds.shifts or ()):
            found[name] += (1 - self._report.alpha) * shift
        return found

    @property
    def _shift(self) -> float:
        """(1 - alpha) <M, P> less the linear term of the report, which has |s_i - t_j|^2 in the place of M_ij."""
        if self._clouds.shifts is None:
            return 0.0
        shifts = zip(self._weights, self._clouds.shifts)
        return float(1 - self._report.alpha) * sum(float(w @ v) for w, v in shifts)

    @property
    def _objective(self) -> float:
        report, value = self._report, self._report.value + self._shift
        if self._has_entropy:  # KL(P | a b^T) = sum P log P - <a, log a> - <b, log b> + (sum a)^2 - sum a.
            logs = sum(float(weights @ _log(weights)) for weights in self._weights)
            value += report.eps * (logs + report.mass - report.mass**2)
        return float(value)

    @property
    def _value_quad(self) -> float:
        return float(self._report.alpha * self._report.quadratic)

    @property
    def _value_linear(self) -> float:
        return float((1 - self._report.alpha) * self._report.linear) + self._shift

    @property
    def _is_balanced(self) -> bool:
        return bool(self._report.marginals == "balanced")

    @property
    def _has_entropy(self) -> bool:
        """Whether the value has sum P log P."""
        alternating = self._is_balanced and self._report.method == "alternating"
        return self._reg_type == "entropy" and self.reg > 0 and alternating

    @property
    def _weights(self) -> list[np.ndarray[Any, Any]]:
        """a and b in float64, of one total."""
        given = [on_host(weights).astype(np.float64) for weights in self._linear._problem.weights]
        return [weights * (self._report.mass / weights.sum()) for weights in given]

    @property
    def _held(self) -> Any:
        return self._linear._held

    def _attached(self, name: str, array: Array) -> Array:
        """The array with gradients, or an error where they are asked for."""
        followed = self._clouds.followed
        if followed is None:
            return array
        from .torch._gromov import follow

        return follow(self, name, (array,), followed)[0]

    def __reduce__(self) -> Any:
        clouds = replace(self._clouds, followed=None)
        return GromovResult, (clouds, self._linear, self._report, self._cross_moment, self._reg_type)

    def __repr__(self) -> str:
        (n, m), report = self.shape, self._report
        offset = self._objective - report.value  # The values of starts have reg KL(P | a b^T).
        starts = ", ".join(f"{start.kind} {start.value + offset:.6g}" for start in report.starts)
        return (
            f"<GromovResult {n} x {m}, {self.solved_as}: {report.status} after {report.iterations} steps, value "
            f"{self._objective:.6g}, value_quad + value_linear {self._value_quad + self._value_linear:.6g} >= "
            f"lower bound {self.lower_bound:.6g}, starts {starts}>"
        )


def _log(weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """log w, and 0 without weight."""
    return np.log(np.where(weights > 0, weights, 1))


def _start(plan_init: Any, clouds: _Clouds, a: Any, b: Any) -> np.ndarray[Any, Any] | None:
    """The start that a plan is: an array (n x m), or a result."""
    if plan_init is None:
        return None
    if clouds.kind == "matrices":
        return _plan("plan_init", getattr(plan_init, "plan", plan_init), clouds.shape)
    return _cross_moment(plan_init, clouds.x, clouds.y, a, b)


def _plan(field: str, given: Any, shape: tuple[int, int]) -> np.ndarray[Any, Any]:
    plan = on_host(read_matrix(field, given, "(n, m)")).astype(np.float64)
    if plan.shape != shape:
        raise ValueError(f"{field}: has shape {plan.shape}; must be {shape}")
    if not (np.isfinite(plan).all() and (plan >= 0).all()):
        raise ValueError(f"{field}: has an entry that is negative or not finite; must be >= 0 and finite")
    return plan


def _cross_moment(plan_init: Any, x: Array, y: Array, a: Any, b: Any) -> np.ndarray[Any, Any]:
    if hasattr(plan_init, "cross_moment"):
        return on_host(plan_init.cross_moment).astype(np.float64)
    sides = []
    for points, weights in ((x, a), (y, b)):
        given = on_host(points).astype(np.float64)
        sides.append(given - np.average(given, axis=0, weights=None if weights is None else on_host(weights)))
    if hasattr(plan_init, "apply") and hasattr(plan_init, "marginals"):
        return sides[0].T @ on_host(plan_init.apply(sides[1]))  # type: ignore[no-any-return]
    return sides[0].T @ _plan("plan_init", plan_init, (len(x), len(y))) @ sides[1]  # type: ignore[no-any-return]


def _library_options(
    options: Mapping[str, Any], reg: Any, reg_type: Any, unbalanced: Any, unbalanced_type: Any, max_iter: Any, tol: Any
) -> tuple[dict[str, Any], str]:
    """The library's options, and the kind of the entropy."""
    own = dict(options)
    if isinstance(unbalanced, str):  # As POT's documentation has it.
        unbalanced, unbalanced_type = None, unbalanced
    names = "'KL', 'semirelaxed' or 'partial'"
    marginals = _MARGINALS.get(lower_name("unbalanced_type", unbalanced_type, names))
    if marginals is None and unbalanced is not None:
        raise NotImplementedError(f"unbalanced_type: is {unbalanced_type!r}; must be {names}")
    if marginals == "semirelaxed":
        unbalanced = None
        if reg and own.get("method") is None:
            own["method"] = "proximal"
    elif unbalanced is None:
        if marginals == "partial":
            warnings.warn("unbalanced: is None, not a mass; marginals are constraints", stacklevel=4)
        marginals = None
    kind = lower_name("reg_type", reg_type, "'entropy' or 'KL'")
    if kind not in ("entropy", "kl"):
        raise NotImplementedError(f"reg_type: is {reg_type!r}; must be 'entropy' or 'KL'")
    if marginals is not None:  # The library may report partial plans of the whole mass as balanced.
        kind = "kl"
    if (method := own.pop("method", None)) is not None:
        own["method"] = _POT_METHODS.get(method.lower(), method) if isinstance(method, str) else method
    penalties = pair_of_penalties(unbalanced) if marginals == "unbalanced" else (None, None)
    translated = library_options(
        own,
        eps=("reg", None if reg is None else number("reg", reg)),
        iterations=("max_iter", max_iter),
        tolerance=("tol", tol),
        marginals=("unbalanced_type", marginals),
        penalty_a=("unbalanced", penalties[0]),
        penalty_b=("unbalanced", penalties[1]),
        mass=("unbalanced", number("unbalanced", unbalanced) if marginals == "partial" else None),
    )
    return translated, kind


def _run(
    place: Place,
    clouds: _Clouds,
    a: Array | None,
    b: Array | None,
    kind: str,
    options: dict[str, Any],
    plan_init: Any,
    n_threads: int | None,
    progress: bool | ProgressFunction | None,
) -> GromovResult:
    if options.get("marginals", "balanced") != "balanced" and (a is None) != (b is None):
        n, m = clouds.shape  # The library would give a missing side the total of the other.
        a, b = (uniform(place, n), b) if a is None else (a, uniform(place, m))
    start = _start(plan_init, clouds, a, b)
    of_matrices = clouds.kind == "matrices"
    x, y, s, t = clouds.x, clouds.y, clouds.s, clouds.t

    def result(made: _core.Gromov) -> GromovResult:
        report, (plan, exact), (u, v) = made.report, made.plans, made.features()
        costs: dict[str, Any] = dict(cost=u) if of_matrices else dict(x=u, y=v, cost_function="dot")
        problem = Problem(place, a, b, **costs)
        is_unbalanced = report.marginals == "unbalanced"
        penalties = {"penalty_a": report.penalty_a, "penalty_b": report.penalty_b} if is_unbalanced else {}
        linear = (
            result_of(problem, {}, exact)
            if plan is None
            else OTResult(problem, {"eps": plan.report.eps} | penalties, "kl", plan, plan.report)
        )
        p, q = x.shape[1], y.shape[1]
        rows = p if of_matrices or report.marginals == "balanced" else 3 + p + q
        return GromovResult(clouds, linear, report, made.cross_moment(rows), kind, made)

    def text(state: _core.GromovProgress) -> str:
        value = "" if math.isinf(state.value) else f"value {state.value:.6g} >= {state.lower_bound:.6g}, "
        return f"{value}change {state.change:.1e}"

    try:
        with watching(progress, options.get("iterations", _ALWAYS_ITERATIONS), "step", text) as watch:
            session = place.session(n_threads)
            if of_matrices:
                M, s = (s, None) if t is None else (None, s)
                made = _core.solve_gromov_matrices(session, x, y, M, s, t, a, b, start, clouds.loss, options, watch)
            else:
                made = _core.solve_gromov(session, x, y, s, t, a, b, start, options, watch)
    except KeyboardInterrupt as interrupt:
        if hasattr(interrupt, "result"):
            interrupt.result = result(interrupt.result)
        raise
    warn_if_short(made.report, "Gromov-Wasserstein transport")
    return result(made)


@calls(**GROMOV)
def solve_gromov_sample(
    X_a: Any,
    X_b: Any,
    s: Any = None,
    t: Any = None,
    a: Any = None,
    b: Any = None,
    *,
    metric: str = "sqeuclidean",
    reg: float | None = None,
    reg_type: str = "entropy",
    unbalanced: Any = None,
    unbalanced_type: str = "KL",
    plan_init: Any = None,
    n_threads: int | None = None,
    max_iter: int | None = None,
    tol: float | None = None,
    device: Any = None,
    progress: bool | ProgressFunction | None = None,
    **options: Unpack[GromovOptions],
) -> GromovResult:
    r"""Matches two clouds that lie in different spaces by the squared distances within each (Gromov-Wasserstein), and by
    features in a common space, if there are any (fused). No array has n x m entries.

    min_P  alpha E(P) + (1 - alpha) <M, P> + reg sum P log P,  P 1 = a,  P^T 1 = b,  P >= 0,
    E(P) = sum_ijkl (|x_i - x_k|^2 - |y_j - y_l|^2)^2 P_ij P_kl,  M_ij = |s_i - t_j|^2

    is POT's ``solve_gromov(dist(X_a, X_a), dist(X_b, X_b), dist(s, t))``. E is not convex: the result is a stationary
    plan, the best one from several starts, with a bound of its distance to the global one. With `gap` it is the global
    optimum.

    Args:
        X_a, X_b: Points (n x p) and (m x q).
        s, t: Features (n x r) and (m x r) of the points; both or neither.
        a, b: Weights (n) and (m), non-negative, with equal totals. By default uniform, with total 1 or that of the other
            side.
        metric: "sqeuclidean", the distances within the clouds. :func:`solve_gromov` takes matrices of others.
        reg: The weight of the entropy, in the units of E, squared distances squared. Without it, or with 0, the plan is
            exact. OTT's epsilon is half of `reg`. The library's name is `eps`.
        reg_type: "entropy" adds reg sum P log P to the value, as POT's solve_gromov; "KL", and open
            marginals always, add reg KL(P | a b^T). The plan is the same.
        alpha: The weight of E, in [0, 1], by default 0.5; 1 without features.
        method: "alternating", POT's "PGD", or "proximal", POT's "PPA", by which the entropy vanishes; it needs `reg`.
        starts: The number of starts; 1 is the product plan alone, as in POT. By default the product plan, descriptors (up
            to 4096 points), and all signs of up to three principal axes. Further starts are random rotations, drawn by
            `seed`.
        plan_init: A plan to start from instead: an array (n x m), or a result. Only its cross moment matters and, of a
            result with open marginals for such a problem, all its moments.
        gap: Asks for the global optimum, without `reg`: branch and bound goes on until (value - lower_bound) / value is at
            most this. The product of the dimensions of both clouds may be up to 9. 100 points in the plane take some 0.1 s
            for 0.01, in space from 1 s to minutes.
        seconds: The time of the solve at which branch and bound ends, by default never; the status is then
            "iteration_limit".
        unbalanced, unbalanced_type: The constraints on the marginals p and q of P, as in POT. "KL" with a number u, or
            a pair (u, v): none, but with `reg` the penalties u / 2 KL(p p^T | a a^T) and v / 2 KL(q q^T | b b^T), and
            reg / 2 times KL of the tensor products P P and a b^T a b^T as the entropy; the method "proximal" has no
            entropy in the limit. "partial" with a number: the mass of P, p <= a, q <= b. Points have exact partial plans
            alone. "semirelaxed", without a number: p = a alone; with `reg` the method is then "proximal" by
            default. b, scaled to the total of a, is its reference and start, and columns without weight stay empty.
            Totals of a and b may differ in all three. The lower bound is 0 for points.
        n_threads: Threads on the CPU, by default one for each core.
        max_iter: The largest number of steps of a start (1000). The library's name is `iterations`.
        tol: The relative change of the cross moment at which a search ends (1e-5). The marginal error of the plan is at
            most a tenth of it. The library's name is `tolerance`.
        device: Where to solve, as for :func:`monge.solve`.
        progress: True shows a bar (tqdm). A function is called with a :class:`GromovProgress`, and stops the solve by
            returning False.
        options: `alpha`, `method`, `starts`, `gap` and the others of :class:`monge.GromovOptions`.

    Returns:
        :class:`GromovResult`. A solve that does not converge has a status and makes a :class:`ConvergenceWarning`.

    Raises:
        ValueError, TypeError: An argument is wrong; the message begins with its name.
        NotImplementedError: "KL" without `reg`, "partial" with it (here, not in :func:`solve_gromov`), other metrics,
            `gap` in too many dimensions.
        MemoryError, RuntimeError: Memory ran out; the device failed.

    >>> import monge, numpy as np
    >>> x = np.random.default_rng(0).normal(size=(50, 3))
    >>> turned = x[::-1, [2, 0, 1]] + 5
    >>> result = monge.solve_gromov_sample(x, turned)
    >>> bool(abs(result.transform() - turned[::-1]).max() < 1e-12), bool(result.value < 1e-12)
    (True, True)
    """
    if metric != "sqeuclidean":
        must = "must be 'sqeuclidean'; solve_gromov takes matrices of any others"
        raise NotImplementedError(f"metric: is {shown(metric)}; {must}")
    translated, kind = _library_options(options, reg, reg_type, unbalanced, unbalanced_type, max_iter, tol)
    of_x, of_y = _features(s, t)
    x, y = read_matrix("X_a", X_a, "(n, p)"), read_matrix("X_b", X_b, "(m, q)")
    place = Place.of(X_a, x, y, device=device)
    given = (X_a, X_b, s, t, a, b)
    followed = given if any(map(requires_gradient, given)) else None
    clouds = _Clouds(kept(X_a, x), kept(X_b, y), of_x, of_y, followed)
    weights = kept_optional("a", a), kept_optional("b", b)
    return _run(place, clouds, *weights, kind, translated, plan_init, n_threads, progress)


@calls(**GROMOV)
def solve_gromov(
    Ca: Any,
    Cb: Any,
    M: Any = None,
    a: Any = None,
    b: Any = None,
    loss: str = "L2",
    symmetric: bool | None = None,
    alpha: float = 0.5,
    reg: float | None = None,
    reg_type: str = "entropy",
    unbalanced: Any = None,
    unbalanced_type: str = "KL",
    n_threads: int | None = None,
    method: str | None = None,
    max_iter: int | None = None,
    plan_init: Any = None,
    tol: float | None = None,
    verbose: bool = False,
    *,
    s: Any = None,
    t: Any = None,
    device: Any = None,
    progress: bool | ProgressFunction | None = None,
    **options: Unpack[GromovKeywordOptions],
) -> GromovResult:
    """POT's ``solve_gromov``: Gromov-Wasserstein transport of given matrices, of any numbers, symmetric or not.

    min_P  alpha sum_ijkl L(Ca_ik, Cb_jl) P_ij P_kl + (1 - alpha) <M, P> + reg sum P log P,  P 1 = a,  P^T 1 = b

    Squared distances, as those of POT's ``dist(x, x)``, beside features or an M of low rank are solved as points. Points
    with these distances are found by a pivoted Cholesky factorisation of rank p, at a cost of n p^2, and one pass over the
    matrix proves them, up to p = n / 2 (or 16). In float64 an entry may differ by 1.5e-11 of the largest, or else by
    2.4e-7, since points far from the origin cost digits, and in float32 by 5e-4; `solved_as` of the result has the
    largest difference. The problem is then that of :func:`solve_gromov_sample`: no step reads a matrix. M may be any sum of a
    matrix of rank up to 64, terms of rows and terms of columns, as squared distances are.

    For other matrices, Euclidean distances among them, a step takes O(n m (n + m)) on the CPU, and memory is
    O(n^2 + m^2 + n m). The objective need not be concave then. A step without `reg` ends at the least value
    between two plans, so the result may have more than n + m - 1 entries; the search then ends where the linearised
    objective falls by at most `tol` times the value. Starts are the product plan, descriptors, for symmetric
    matrices one between three coordinates of classical scaling ("axes"), and random plans. With open marginals this is
    so for every problem with M, whose terms of rows and columns are no constants then.

    Args:
        Ca, Cb: Matrices (n x n) and (m x m).
        M: Costs (n x m); None: those of the features, or alpha is 1.
        loss: "L2", the square (c - d)^2, or "KL", c log(c / d) - c + d of numbers >= 0. Both are taken 1e-18 larger for
            "KL", so 0 has a finite loss.
        symmetric: No effect: the entries show it.
        plan_init: As for :func:`solve_gromov_sample`; of matrices that are not solved as points all of the plan matters.
            With open marginals an array has the problem solved as matrices, so that no step leaves it for a worse plan.
        verbose: True shows a bar, as `progress` does.
        s, t: Features (n x r) and (m x r) in the place of M: M_ij = |s_i - t_j|^2.
        gap: As for :func:`solve_gromov_sample`, where the matrices are squared distances.

    Other arguments are as for :func:`solve_gromov_sample`.

    Returns:
        :class:`GromovResult`, without `transform`. Derivatives are by matrices, M or features, and weights.

    Raises:
        NotImplementedError: As for :func:`solve_gromov_sample`.

    >>> import monge, numpy as np
    >>> x = np.random.default_rng(0).normal(size=(50, 3))
    >>> C = ((x[:, None] - x) ** 2).sum(-1)
    >>> result = monge.solve_gromov(C, C[::-1, ::-1])
    >>> bool((result.linear.pairs[1] == np.arange(50)[::-1]).all()), bool(result.value < 1e-12)
    (True, True)
    """
    kind_of_loss = _LOSSES.get(lower_name("loss", loss, "'L2' or 'KL'"))
    if kind_of_loss is None:
        raise NotImplementedError(f"loss: is {loss!r}; must be 'L2' or 'KL'")
    given: dict[str, Any] = dict(options) | {"alpha": number("alpha", alpha), "method": method}
    translated, kind = _library_options(given, reg, reg_type, unbalanced, unbalanced_type, max_iter, tol)
    of_a, of_b = read_matrix("Ca", Ca, "(n, n)"), read_matrix("Cb", Cb, "(m, m)")
    of_s, of_t = _features(s, t)
    if M is not None and s is not None:
        raise ValueError("M: is given beside features; must be None, or s and t must be")
    costs = of_s if M is None else read_matrix("M", M, "(n, m)")
    place = Place.of(Ca, of_a, of_b, device=device)
    inputs = (Ca, Cb, s if M is None else M, t, a, b)
    follows = any(map(requires_gradient, inputs))
    # With open marginals the terms of rows and columns of M are no constants, and a plan is no start by its cross moment.
    is_open = translated.get("marginals", "balanced") != "balanced"
    is_start = plan_init is None or isinstance(plan_init, GromovResult)
    is_partial = translated.get("marginals") == "partial" and translated.get("eps", 0) > 0
    needs_matrices = is_open and (M is not None or not is_start or is_partial)
    is_general = needs_matrices or kind_of_loss != "square"
    clouds = None if is_general else _of_distances(of_a, of_b, costs, of_t)
    if clouds is None:
        sides = (kept(Ca, of_a), kept(Cb, of_b)) if follows else (of_a, of_b)
        clouds = _Clouds(*sides, costs, of_t, None, "matrices", kind_of_loss)
    clouds = replace(clouds, followed=inputs if follows else None)
    weights = kept_optional("a", a), kept_optional("b", b)
    return _run(place, clouds, *weights, kind, translated, plan_init, n_threads, shows(progress, verbose))


def _features(s: Any, t: Any) -> tuple[Array | None, Array | None]:
    """Features of both sides, or none."""
    if (s is None) != (t is None):
        raise ValueError(f"{'s' if s is None else 't'}: is missing; features need both s and t")
    if s is None:
        return None, None
    return read_matrix("s", s, "(n, r)"), read_matrix("t", t, "(m, r)")


def _of_distances(Ca: Array, Cb: Array, costs: Array | None, t: Array | None) -> _Clouds | None:
    """Points and features with these matrices, if there are any. `costs` is M, or the features s beside t."""
    x, y = points_of_distances("Ca", on_host(Ca)), points_of_distances("Cb", on_host(Cb))
    if t is None and costs is not None and tuple(costs.shape) != (len(Ca), len(Cb)):
        raise ValueError(f"M: has shape {tuple(costs.shape)}; must be {(len(Ca), len(Cb))}, the sizes of Ca and Cb")
    if x is None or y is None:
        return None
    points, residual = (x[0], y[0]), max(x[1], y[1])
    if costs is None or t is not None:
        return _Clouds(*points, costs, t, kind="distances", residual=residual)
    found = features_of_costs("M", on_host(costs))
    if found is None:
        return None
    s, t, *shifts = found
    return _Clouds(*points, s, t, kind="distances", shifts=(shifts[0], shifts[1]), residual=residual)
