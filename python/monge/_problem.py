"""Problems and options of the library, from arguments by POT's names and by its own."""

from __future__ import annotations

import functools
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, Literal, TypeVar

import numpy as np

from . import _core
from ._arrays import (
    MOST_COPIED,
    Array,
    Fingerprint,
    Place,
    framework_of,
    kept,
    kept_optional,
    kept_pair,
    on_host,
    read,
    read_index,
    read_matrix,
    read_optional,
    stack_of,
)
from ._costs import LABELS
from ._followed import Followed
from ._names import lower_name, number, refuse_gradient, rename, shown, truth
from ._sparse import SparseCosts, read_sparse

ProgressFunction = Callable[[Any], object]
"""Called with a Progress, or a RegularizedProgress, at each check."""

_Made = TypeVar("_Made")


class ConvergenceWarning(UserWarning):
    """A solve ended short of its tolerance. The message is that of its report, which says what would help."""


METRICS: dict[str, tuple[str, float]] = {
    "sqeuclidean": ("sqeuclidean", 2.0),
    "euclidean": ("euclidean", 2.0),
    "cosine": ("cosine", 2.0),
    "dot": ("dot", 2.0),
    "p-norm": ("p-norm", 2.0),
    "minkowski": ("p-norm", 2.0),
    "cityblock": ("p-norm", 1.0),
    "chebyshev": ("p-norm", math.inf),
}
"""The cost function and the p of each metric, by the library's names and by SciPy's, which POT uses."""

WITH_P = ("p-norm", "minkowski")
"""The metrics whose p is an argument."""

_POT_METHODS = {
    "sinkhorn": "sinkhorn",
    "sinkhorn_log": "auto",
    "sinkhorn_stabilized": "auto",
    "sinkhorn_epsilon_scaling": "auto",
    "sinkhorn_translation_invariant": "auto",
    "sinkhorn_reg_scaling": "auto",
    "greenkhorn": "auto",
    "log_sinkhorn": "auto",
    **{f"geomloss{kind}": "auto" for kind in ("", "_auto", "_tensorized", "_online", "_multiscale")},
}


@dataclass(frozen=True)
class Problem:
    """The inputs of a solve, by which a result can solve again. Its arrays are copies, except for large costs."""

    place: Place
    a: Array | None
    b: Array | None
    cost: Array | SparseCosts | None = None
    x: Array | None = None
    y: Array | None = None
    cost_function: str = "sqeuclidean"
    norm_p: float = 2.0
    scale: float = 1.0
    labels_x: Array | None = None
    labels_y: Array | None = None
    label_cost: Array | None = None
    label_weight: float = 1.0
    followed: Followed | None = None
    fingerprint: Fingerprint | None = None

    @functools.cached_property
    def geometry(self) -> _core.Geometry:
        if isinstance(self.cost, SparseCosts):
            return self.cost.geometry()  # type: ignore[no-any-return]
        if self.cost is not None:
            return _core.cost_matrix(self.cost)
        return _core.point_cloud(
            self.x,
            self.y,
            self.cost_function,
            self.scale,
            self.norm_p,
            self.labels_x,
            self.labels_y,
            self.label_cost,
            self.label_weight,
        )

    @functools.cached_property
    def weights(self) -> tuple[Array, Array]:
        """a and b. Missing weights are uniform, as in the library: with the total of the other side, or 1 if both are
        missing. Where penalties let totals differ, :func:`with_weights` has set both."""
        self.require_sizes()
        given = [side for side in (self.a, self.b) if side is not None]
        total = float(on_host(given[0]).sum(dtype=np.float64)) if len(given) == 1 else 1.0
        a, b = (
            np.full(size, total / size) if side is None else side
            for side, size in zip((self.a, self.b), (self.geometry.rows, self.geometry.columns))
        )
        return a, b

    def transposed(self) -> Problem:
        """The same problem seen from the targets."""
        return replace(
            self,
            a=self.b,
            b=self.a,
            x=self.y,
            y=self.x,
            labels_x=self.labels_y,
            labels_y=self.labels_x,
            cost=None if self.cost is None else self.cost.T,
            label_cost=None if self.label_cost is None else read("label_cost", self.label_cost.T),
            followed=None if self.followed is None else self.followed.transposed(),
        )

    def of_side(self, side: int) -> Problem:
        """The problem of the sources (0), or of the targets (1), with themselves."""
        points, labels = (self.x, self.y)[side], (self.labels_x, self.labels_y)[side]
        weights = self.weights[side]
        followed = None if self.followed is None else self.followed.of_side(side)
        return replace(
            self, x=points, y=points, a=weights, b=weights, labels_x=labels, labels_y=labels, followed=followed
        )

    def for_pickle(self) -> Problem:
        """The problem without its geometry, which is a view of memory, and without tensors that require gradients."""
        self.require_unchanged()
        return replace(self, followed=None, fingerprint=None)

    def require_sizes(self) -> None:
        """The library's errors about sizes, where weights are used before a solve."""
        n, m = self.geometry.rows, self.geometry.columns
        side, rows, columns = (
            ("row and column", "row of C", "column of C")
            if self.x is None
            else ("point and dimension", "row of x", "row of y")
        )
        for field, given in (("cost", self.cost), ("x", self.x), ("y", self.y)):
            if given is not None and 0 in (shape := tuple(getattr(given, "shape", ()))):
                raise ValueError(f"{field}: is {shape[0]} x {shape[1]}; must have at least one {side}")
        for field, weights, size, line in (("a", self.a, n, rows), ("b", self.b, m, columns)):
            shape = tuple(getattr(weights, "shape", (size,)))
            if len(shape) != 1:
                raise ValueError(f"{field}: has shape {shape}; must be a vector")
            if shape != (size,):
                raise ValueError(f"{field}: has {shape[0]} entries; must have {size}, one for each {line}")

    def require_unchanged(self) -> None:
        """RuntimeError if the caller has changed costs that were too large for a copy."""
        if self.fingerprint is not None:
            self.fingerprint.require_unchanged()


def costs(x: Array, y: Array, cost_function: str, norm_p: float = 2.0, scale: float = 1.0) -> Array:
    """scale c(x_i, y_j) (n x m) on the host, in float64."""
    x, y = (on_host(points).astype(np.float64) for points in (x, y))
    if cost_function == "cosine":
        lengths = [np.linalg.norm(points, axis=1, keepdims=True) for points in (x, y)]
        if not all(length.all() for length in lengths):
            raise ValueError("points: one has length 0; must be positive for the metric cosine")
        x, y = x / lengths[0], y / lengths[1]
    if cost_function in ("cosine", "dot"):
        return scale * ((cost_function == "cosine") - x @ y.T)
    if cost_function == "sqeuclidean":
        x, y = x - y.mean(0), y - y.mean(0)  # A common offset would take the digits of the differences.
        return scale * np.maximum((x**2).sum(1)[:, None] + (y**2).sum(1) - 2 * x @ y.T, 0)
    largest, total = np.zeros((2, len(x), len(y)))
    for u, v in zip(x.T, y.T):
        largest = np.maximum(largest, abs(u[:, None] - v))
    if math.isinf(norm_p):
        return scale * largest
    unit = np.where(largest > 0, largest, 1)  # Powers of differences may overflow or underflow.
    for u, v in zip(x.T, y.T):
        total += (abs(u[:, None] - v) / unit) ** norm_p
    return scale * largest * total ** (1 / norm_p)


def matrix_problem(
    M: Any,
    a: Any,
    b: Any,
    device: Any = None,
    *,
    field: str = "M",
    most: int | None = None,
    may_be_sparse: bool = False,
) -> Problem:
    """Costs of more than `most` bytes, by default MOST_COPIED, are read where they lie. Sparse costs are copied."""
    if may_be_sparse and (found := read_sparse(field, M, device)) is not None:
        costs, place = found
        followed = Followed.of(M, None, None, a, b)
        return Problem(place, kept_optional("a", a), kept_optional("b", b), cost=costs, followed=followed)
    cost = read_matrix(field, M, "(n, m)", column_major=True)
    place = Place.of(M, cost, device=device)
    is_small = getattr(cost, "nbytes", 0) <= (MOST_COPIED if most is None else most)
    return Problem(
        place,
        kept_optional("a", a),
        kept_optional("b", b),
        cost=kept(M, cost) if is_small else cost,
        followed=Followed.of(M, None, None, a, b),
        fingerprint=None if is_small else Fingerprint.of(field, M, cost),
    )


def cost_of_metric(metric: Any, norm_p: Any = None) -> tuple[str, float]:
    """The cost function of a metric, and its p, which is `norm_p` for the metric "p-norm"."""
    if not isinstance(metric, str) or metric not in METRICS:
        raise ValueError(f"metric: is {shown(metric)}; must be {', '.join(METRICS)}, or its costs go to solve()")
    cost_function, p = METRICS[metric]
    if norm_p is None:
        return cost_function, p
    if metric not in WITH_P:
        raise ValueError(f"norm_p: is {shown(norm_p)}; is for the metric p-norm")
    return cost_function, number("norm_p", norm_p)


def names_of_columns(points: Any) -> list[str] | None:
    """The names of a data frame's columns."""
    names = getattr(points, "columns", None)
    return None if names is None or callable(names) else [str(name) for name in names]


def weight_of_labels(labels_x: Any, labels_y: Any, label_cost: Any, label_weight: Any) -> float:
    """`label_weight` as a number. An error unless labels and their costs are all given, or all left out."""
    refuse_gradient("label_cost", label_cost)
    weight = number("label_weight", label_weight)
    parts = (("labels_x", labels_x), ("labels_y", labels_y), ("label_cost", label_cost))
    missing = [field for field, given in parts if given is None]
    if len(missing) == len(parts) and weight != 1:
        raise ValueError(f"label_weight: is {weight}; must be 1 without labels")
    if 0 < len(missing) < len(parts):
        raise ValueError(f"{missing[0]}: is missing; labels_x, labels_y and label_cost go together")
    return weight


def points_problem(
    X_a: Any,
    X_b: Any,
    a: Any,
    b: Any,
    metric: str,
    device: Any = None,
    *,
    norm_p: float | None = None,
    scale: float = 1.0,
    labels_x: Any = None,
    labels_y: Any = None,
    label_cost: Any = None,
    label_weight: float = 1.0,
) -> Problem:
    cost_function, p = cost_of_metric(metric, norm_p)
    names_x, names_y = names_of_columns(X_a), names_of_columns(X_b)
    if names_x != names_y and names_x is not None and names_y is not None and sorted(names_x) == sorted(names_y):
        raise ValueError(f"X_b: has the columns {shown(names_y)}; must have them in the order of X_a, {shown(names_x)}")
    x, y = read_matrix("X_a", X_a, "(n, d)"), read_matrix("X_b", X_b, "(m, d)")
    label_weight = weight_of_labels(labels_x, labels_y, label_cost, label_weight)
    place = Place.of(X_a, x, y, device=device)
    x, y = kept_pair(X_a, x, X_b, y)
    of_x, of_y = read_index("labels_x", labels_x), read_index("labels_y", labels_y)
    if of_x is not None and of_y is not None:
        of_x, of_y = kept_pair(labels_x, of_x, labels_y, of_y)
    return Problem(
        place,
        kept_optional("a", a),
        kept_optional("b", b),
        x=x,
        y=y,
        cost_function=cost_function,
        norm_p=p,
        scale=number("scale", scale),
        labels_x=of_x,
        labels_y=of_y,
        label_cost=kept_optional("label_cost", label_cost),
        label_weight=label_weight,
        followed=Followed.of(None, X_a, X_b, a, b),
    )


def kl_costs(X_a: Any, X_b: Any) -> Array:
    """KL(y_j | x_i) = sum_d y_jd log(y_jd / x_id) (n x m), with 1e-10 added under each logarithm, as in POT."""
    sides = []
    for field, given, shape in (("X_a", X_a, "(n, d)"), ("X_b", X_b, "(m, d)")):
        points = read_matrix(field, given, shape)
        if (points < 0).any():
            raise ValueError(f"{field}: has a negative coordinate; must be >= 0 for the metric kl")
        sides.append(given if getattr(given, "requires_grad", False) else points)
    x, y = sides
    log = framework_of(x).log
    return (y * log(y + 1e-10)).sum(1) - log(x + 1e-10) @ y.T


def is_balanced(options: Mapping[str, Any]) -> bool:
    """Whether both marginals are constraints, so that totals must be equal."""
    return all(options.get(name, math.inf) == math.inf for name in ("penalty_a", "penalty_b"))


def with_weights(problem: Problem, options: Mapping[str, Any]) -> Problem:
    """The problem, with uniform weights of total 1 for a missing side where penalties let the totals differ. The
    library would give that side the total of the other."""
    if (problem.a is None) == (problem.b is None) or is_balanced(options):
        return problem
    problem.require_sizes()
    n, m, place = problem.geometry.rows, problem.geometry.columns, problem.place
    return replace(problem, a=uniform(place, n)) if problem.a is None else replace(problem, b=uniform(place, m))


def uniform(place: Place, size: int) -> Array:
    """Weights of total 1."""
    weights = place.empty(size)
    weights[:] = 1 / size
    return place.finish(weights)


_OF_POT: dict[str, tuple[tuple[Any, ...], str]] = {
    "c": ((None,), "only solve() with an entropy has a reference measure; other functions get its costs"),
    "plan_init": ((None,), "potentials_init takes a warm start"),
    "max_nz": ((None,), "belongs to reg_type 'sparsity_constrained', which is not supported"),
    "rank": ((100,), "belongs to plans of low rank; plans here have full rank, and solve_sample() stores no costs"),
    "scaling": ((0.95,), "belongs to method 'geomloss'; here the option annealing is the factor between values of reg"),
    "X_init": ((None,), "belongs to plans of low rank; potentials_init takes a warm start"),
    "random_state": ((None,), "belongs to random methods; solves are deterministic"),
    "debias": ((False,), "sinkhorn_divergence() is the debiased value"),
    "n_projections": ((50,), "belongs to sliced transport; solve_sample() takes points as they are"),
    "projections": ((None,), "belongs to sliced transport; solve_sample() takes points as they are"),
    "inner_iter": ((1,), "belongs to the proximal method; without reg plans are exact"),
    "inner_reg": ((1e-3,), "belongs to the proximal method; without reg plans are exact"),
}
"""POT's arguments that have no effect here: the values that are allowed, POT's defaults, and a hint for others."""


_OTHER_METHODS = {
    **dict.fromkeys(("1d", "bsp", "mm", "lbfgsb", "proximal"), "another algorithm"),
    **dict.fromkeys(("gaussian", "gaussian_hd"), "transport of normal distributions"),
    **dict.fromkeys(("lowrank", "nystroem", "factored"), "plans of low rank"),
    **dict.fromkeys(("sliced", "max_sliced"), "sliced transport"),
}
"""POT's methods that solve another problem, or in another way that has its own arguments."""

_GRADS = ("autodiff", "envelope", "last_step", "detach")


def with_grad(problem: Problem, grad: Any) -> Problem:
    """The problem, whose results have no gradients if `grad` is "detach"."""
    if not isinstance(grad, str) or grad not in _GRADS:
        raise ValueError(f"grad: is {shown(grad)}; must be {', '.join(_GRADS)}")
    return replace(problem, followed=None) if grad == "detach" else problem


def scaled(scaler: Any, *points: Any) -> tuple[Any, ...]:
    """Points by POT's `scaler`: a function, or an object with transform()."""
    scale = getattr(scaler, "transform", scaler)
    if scale is not None and not callable(scale):
        raise ValueError(f"scaler: is {shown(scaler)}; must be a function, or have transform()")
    return points if scale is None else tuple(map(scale, points))


def refuse_unsupported(**given: Any) -> None:
    """NotImplementedError for an argument of POT that has no effect here, unless its value is allowed."""
    for name, value in given.items():
        allowed, instead = _OF_POT[name]
        if value is not allowed[0] and not (isinstance(value, (str, int, float)) and value in allowed):
            raise NotImplementedError(f"{name}: is given; {instead}")


def one_each(
    field: str, given: Any, size: int, dimensions: int, reader: Callable[[str, Any], Any] = read
) -> Sequence[Any]:
    """An array for each problem of a batch, from a list, an array with one more dimension, or one array for all."""
    if given is None:
        return [None] * size
    if isinstance(given, (list, tuple)) and not all(isinstance(v, (int, float)) for v in given):
        parts: Sequence[Any] = given
    else:
        stacked = given if getattr(given, "requires_grad", False) else reader(field, given)  # Reading detaches.
        if stacked.ndim == dimensions:
            return [stacked] * size
        if stacked.ndim != dimensions + 1:
            raise ValueError(
                f"{field}: has shape {tuple(stacked.shape)}; must have {dimensions + 1} dimensions, "
                f"or {dimensions} for all problems"
            )
        parts = stacked
    if len(parts) != size:
        raise ValueError(f"{field}: has {len(parts)} entries; must have {size}, one for each problem")
    return parts


def all_of(field: str, given: Any, what: str) -> list[Any]:
    """The problems of a batch as a list, which must not be empty."""
    try:
        parts = list(given) if not isinstance(given, str) else None
    except TypeError:
        parts = None
    if parts is None:
        raise TypeError(f"{field}: is {shown(given)}; must be {what}")
    if not parts:
        raise ValueError(f"{field}: has no problems; must have at least one")
    return parts


_OF_ALL = ("device:", "metric:", "norm_p:", "scale:")


def each_problem(make: Callable[..., _Made], *columns: Sequence[Any]) -> list[_Made]:
    """make(*each) for each problem of a batch; an error message begins with the number of its problem."""
    problems = []
    for k, each in enumerate(zip(*columns)):
        try:
            problems.append(make(*each))
        except (ValueError, TypeError) as error:
            if not str(error).startswith(_OF_ALL):
                rename(error, {}, problem=k)
            raise
    return problems


def _requires_gradient(given: Any) -> bool:
    """Whether an array, or any array of a list, requires a gradient."""
    parts = given if isinstance(given, (list, tuple)) else [given]
    return any(getattr(v, "requires_grad", False) for v in parts)


def matrix_problems(M: Any, a: Any, b: Any, device: Any) -> list[Problem]:
    """:func:`matrix_problem` for each of a batch."""
    matrices = all_of("M", stack_of("M", M), "costs (B, n, m), or a list of matrices")
    weights_a, weights_b = one_each("a", a, len(matrices), 1), one_each("b", b, len(matrices), 1)
    make = functools.partial(matrix_problem, device=device, most=MOST_COPIED // len(matrices))
    return each_problem(make, matrices, weights_a, weights_b)


def kl_problems(X_a: Any, X_b: Any, a: Any, b: Any, scale: float, device: Any) -> list[Problem]:
    """Problems of a batch with the costs :func:`kl_costs`, which are stored."""
    clouds = all_of("X_a", stack_of("X_a", X_a), "points (B, n, d), or a list of clouds")
    costs = each_problem(kl_costs, clouds, list(one_each("X_b", X_b, len(clouds), 2)))
    return matrix_problems([number("scale", scale) * cost for cost in costs], a, b, device)


def points_problems(X_a: Any, X_b: Any, a: Any, b: Any, metric: str, device: Any, **costs: Any) -> list[Problem]:
    """:func:`points_problem` for each of a batch."""
    labels_x, labels_y, label_cost = (costs.pop(name) for name in LABELS)
    weight_of_labels(labels_x, labels_y, label_cost, costs["label_weight"])
    stacks, X_a, X_b = [], stack_of("X_a", X_a), stack_of("X_b", X_b)
    if all(getattr(v, "ndim", 0) == 3 for v in (X_a, X_b)):
        stacks = [list(kept(v, read(field, v))) for field, v in (("X_a", X_a), ("X_b", X_b))]
    follows = any(map(_requires_gradient, (X_a, X_b, a, b)))
    x, y = stacks if stacks and not follows else (X_a, X_b)  # Splitting a stack takes 1 us a part.
    clouds = all_of("X_a", x, "points (B, n, d), or a list of clouds")
    columns = [
        clouds,
        list(one_each("X_b", y, len(clouds), 2)),
        one_each("a", a, len(clouds), 1),
        one_each("b", b, len(clouds), 1),
        one_each("labels_x", labels_x, len(clouds), 1, read_index),
        one_each("labels_y", labels_y, len(clouds), 1, read_index),
        one_each("label_cost", label_cost, len(clouds), 2),
    ]

    def make(x: Any, y: Any, a: Any, b: Any, *labels: Any) -> Problem:
        return points_problem(x, y, a, b, metric, device, **costs, **dict(zip(LABELS, labels)))

    if not stacks:
        return each_problem(make, *columns)
    # Clouds of a stack have one shape, dtype and place, so only the first are checked.
    (first,) = each_problem(make, *(column[:1] for column in columns))
    place = Place.of(X_a, first.x, first.y, device=device)

    def alike(x: Array, y: Array, *given: Any) -> Problem:
        followed = Followed.of(None, *given[:4]) if follows else None
        weights = kept_optional("a", given[2]), kept_optional("b", given[3])
        return Problem(
            place,
            *weights,
            x=x,
            y=y,
            cost_function=first.cost_function,
            norm_p=first.norm_p,
            scale=first.scale,
            labels_x=kept_optional("labels_x", given[4], read_index),
            labels_y=kept_optional("labels_y", given[5], read_index),
            label_cost=kept_optional("label_cost", given[6]),
            label_weight=first.label_weight,
            followed=followed,
        )

    return each_problem(alike, *stacks, *columns)


def require_potentials(given: Any, what: str, *lengths: int) -> None:
    """TypeError unless potentials_init is a tuple or a list of one of these lengths."""
    if not isinstance(given, (tuple, list)):
        raise TypeError(f"potentials_init: is {shown(given)}; must be {what}")
    if len(given) not in lengths:
        raise TypeError(f"potentials_init: has {len(given)} entries; must be {what}")


def pair_of_potentials(given: Any) -> tuple[Array | None, Array | None]:
    """A warm start, from a result or a pair: a pair of arrays, or two times None."""
    if given is None:
        return None, None
    if hasattr(given, "_write_potentials"):  # A result.
        n, m = given.shape
        f, g = np.empty(n), np.empty(m)
        given._write_potentials(f, g)
        return f, g
    require_potentials(given, "a pair of arrays (n) and (m), or a result", 2)
    return read_optional("potentials_init: f", given[0]), read_optional("potentials_init: g", given[1])


def pairs_of_potentials(given: Any, size: int) -> list[tuple[Array | None, Array | None]]:
    """Warm starts of a batch, from a pair for each problem, or a pair of stacks or lists as BatchResult has them."""
    if given is None:
        return [(None, None)] * size
    if isinstance(given, tuple):
        given = tuple(v if isinstance(v, (list, tuple)) else stack_of("potentials_init", v) for v in given)
    if (
        isinstance(given, tuple)
        and len(given) == 2
        and all(isinstance(v, list) or getattr(v, "ndim", 0) == 2 for v in given)
    ):
        given = zip(*(one_each(f"potentials_init: {name}", side, size, 1) for name, side in zip("fg", given)))
    starts = all_of("potentials_init", given, "a list of pairs, or the pair of stacks (B, n) and (B, m)")
    if len(starts) != size:
        raise ValueError(f"potentials_init: has {len(starts)} entries; must have {size}, one for each problem")
    return each_problem(pair_of_potentials, starts)


def pair_of_penalties(value: Any) -> tuple[float, float]:
    """`unbalanced` as one penalty for each side."""
    is_one = isinstance(value, (float, int)) or (not isinstance(value, (list, tuple)) and getattr(value, "ndim", 0) != 1)
    values = [value] if is_one else list(value)
    if len(values) not in (1, 2):
        raise ValueError(f"unbalanced: has {len(values)} numbers; must be one, or one for each side")
    return number("unbalanced", values[0]), number("unbalanced", values[-1])


def library_options(own: Mapping[str, Any], **given: tuple[str, Any]) -> dict[str, Any]:
    """The library's options: those of `own`, and `ours` for each ours=(theirs, value) whose value is not None.

    The caller's name of an option is `theirs`.
    """
    options = dict(own)
    for ours, (theirs, value) in given.items():
        if value is None:
            continue
        if ours in options:
            raise ValueError(f"{theirs}: is given with {ours}, which is the same; must be one of them")
        options[ours] = value
    for name, value in options.items():
        refuse_gradient(name, value)
    return options


def require_kl(unbalanced_type: Any, has_penalties: bool) -> None:
    """POT's other penalties are an error only where there are any. Penalties of "TV" are for exact plans."""
    if lower_name("unbalanced_type", unbalanced_type, "'KL'") not in ("kl", *([] if has_penalties else ["l2", "tv"])):
        raise NotImplementedError(f"unbalanced_type: is {unbalanced_type!r}; must be 'KL' with reg")


Reg = float | Literal["auto"]
"""eps, or "auto" for 5 % of the mean cost."""


def method_of_pot(method: Any) -> Any:
    """The library's name of a method by POT's; other names, and other things, are as they were."""
    if not isinstance(method, str):
        return method
    if method.lower() in _OTHER_METHODS:
        raise NotImplementedError(f"method: is {method!r}, POT's for {_OTHER_METHODS[method.lower()]}")
    return _POT_METHODS.get(method.lower(), method)


def names_eps(own: Mapping[str, Any]) -> bool:
    """Whether options by the library's names have eps in the place of `reg`."""
    return "eps" in own or "eps_relative" in own


def solve_options(
    own: Mapping[str, Any],
    reg: Reg | None,
    reg_type: str = "KL",
    unbalanced: Any = None,
    unbalanced_type: str = "KL",
    method: str | None = None,
    max_iter: int | None = None,
    tol: float | None = None,
) -> dict[str, Any]:
    """The library's options of an entropic solve, from POT's arguments and those by the library's names (`own`)."""
    kind = lower_name("reg_type", reg_type, "'KL' or 'entropy'")
    if kind not in ("kl", "entropy"):
        raise NotImplementedError(
            f"reg_type: is {reg_type!r}; must be 'KL' or 'entropy'; 'L2' is solve()'s and solve_sample()'s"
        )
    if isinstance(reg, str) and reg != "auto":
        raise TypeError(f"reg: is {reg!r}; must be a number or 'auto'")
    if reg is None and not names_eps(own):
        raise ValueError("reg: is None; must be > 0, or 'auto' for 5 % of the mean cost")
    eps = None if reg is None or isinstance(reg, str) else number("reg", reg)
    if eps == 0:
        raise NotImplementedError("reg: is 0; must be > 0; solve_exact() finds a plan without entropy")
    if eps is not None and not eps > 0:
        raise ValueError(f"reg: is {eps}; must be > 0")
    penalty_a, penalty_b = (None, None) if unbalanced is None else pair_of_penalties(unbalanced)
    require_kl(unbalanced_type, unbalanced is not None or not is_balanced(own))
    options = library_options(
        own,
        eps=("reg", eps),
        iterations=("max_iter", max_iter),
        tolerance=("tol", tol),
        method=("method", method_of_pot(method)),
        penalty_a=("unbalanced", penalty_a),
        penalty_b=("unbalanced", penalty_b),
    )
    if "eps" in options and "eps_relative" in options:
        raise ValueError(f"eps_relative: is given with {'eps' if eps is None else 'reg'}; must be one of them")
    if options.get("eps") == 0:
        raise ValueError("eps: is 0; must be > 0, or left out for 5 % of the mean cost")
    return options  # Without eps it is the library's default, 5 % of the mean cost.


def at_the_end(options: dict[str, Any], report: _core.Report) -> dict[str, Any]:
    """The options of a solve with the eps and the precision in which it ended."""
    own = {"eps": report.eps, "precision": report.precision}
    return {name: value for name, value in options.items() if name != "eps_relative"} | own


def _of_sweeps(state: _core.Progress) -> str:
    return f"eps {state.eps:.3g}, error {state.marginal_error:.2e}"


def shows(progress: Any, verbose: Any) -> Any:
    """`progress`, or a bar where POT's `verbose` asks for one."""
    bar = truth("verbose", verbose)
    return bar if progress is None or progress is False else progress


@contextmanager
def _shown(total: int, unit: str, text: Callable[[Any], str]) -> Iterator[ProgressFunction]:
    """A progress function that shows a bar, or prints a line where tqdm is not installed."""
    try:
        from tqdm.auto import tqdm
    except ModuleNotFoundError:
        tqdm = None
    if tqdm is None:
        yield lambda state: print(f"{unit} {state.iteration} of {total}: {text(state)}", file=sys.stderr)
        return
    with tqdm(total=total, unit=unit, leave=False) as bar:

        def show(state: Any) -> None:
            bar.set_postfix_str(text(state), refresh=False)
            bar.update(state.iteration - bar.n)

        yield show


@contextmanager
def watching(
    progress: bool | ProgressFunction | None, total: int, unit: str = "sweep", text: Callable[[Any], str] = _of_sweeps
) -> Iterator[ProgressFunction | None]:
    """A progress function: the caller's, or for True one that shows a bar."""
    if progress is None or progress is False:
        yield None
    elif progress is True:
        with _shown(total, unit, text) as show:
            yield show
    elif callable(progress):
        yield progress
    else:
        raise TypeError(f"progress: is {shown(progress)}; must be True, False or a function")


def warn_if_short(
    report: _core.Report | _core.RegularizedReport | _core.GromovReport,
    solver: str = "Sinkhorn",
    of_zero: bool = False,
) -> None:
    """A ConvergenceWarning if the solve ended short of its tolerance. `of_zero`: also of a tolerance of 0, which asks
    for a number of iterations."""
    if report.status in ("iteration_limit", "precision_limit", *(["completed"] if of_zero else [])):
        warn(f"{solver} did not converge: {report.message}")


def warn(message: str) -> None:
    """A ConvergenceWarning at the caller's line: the one that called this package, or PyTorch's autograd."""
    frame: FrameType | None = sys._getframe()
    depth = outermost = 0
    while frame is not None:
        depth += 1
        root = frame.f_globals.get("__name__", "").partition(".")[0]
        if root == "monge" or root == "torch" and outermost == depth - 1:
            outermost = depth
        frame = frame.f_back
    warnings.warn(message, ConvergenceWarning, stacklevel=outermost + 1)
