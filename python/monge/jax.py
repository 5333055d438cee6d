"""Monge for JAX: transport, the Sinkhorn divergence, Gromov-Wasserstein transport, regularised transport and the
projection, with derivatives for jax.grad, jax.jit and jax.vmap.

All work is done on the host, for any device of JAX; within jax.jit by a callback. Shapes and dtypes are those of the
inputs. Arguments that are known while JAX traces a call are checked then, so their errors are Python's own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from . import _versions

_versions.require("jax", "monge.jax")
import jax
import jax.numpy as jnp
import numpy as np

from . import _core
from ._costs import LABELS, split_costs
from ._divergence import PARTS, STARTS, arrays_of_start
from ._divergence import sinkhorn_divergence as monge_divergence
from ._gromov import solve_gromov, solve_gromov_sample
from ._hessian import Divergence, Transport, multiply_hessian
from ._names import CLOUDS, MATRIX, REGULARIZED, calls
from ._problem import (
    Reg,
    cost_of_metric,
    matrix_problem,
    points_problem,
    require_potentials,
    solve_options,
    weight_of_labels,
    with_weights,
)
from ._projection import project_with, projection_options
from ._regularized import TERM_ARRAYS, Regularizer, regularized_options, run_each
from ._solve import run

__all__ = [
    "gromov",
    "gromov_of_matrices",
    "project",
    "regularized_transport",
    "sinkhorn_divergence",
    "transport",
    "transport_of_costs",
]


def __dir__() -> list[str]:
    return [name for name in globals() if name.startswith("__")] + __all__


_COST = dict.fromkeys(("cost", "C", "M"), "cost")
_OF_COSTS, _OF_REGULARIZED = MATRIX | _COST, REGULARIZED | _COST
_Options = tuple[tuple[str, Any], ...]
_Shape: Any = jax.ShapeDtypeStruct  # JAX has no type for it.


# Checks while JAX traces a call.


def _array(field: str, given: Any) -> Any:
    try:
        array = given if isinstance(given, jax.Array) else jnp.asarray(given)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{field}: is of type {type(given).__name__}; must be an array of numbers") from error
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise TypeError(f"{field}: is of dtype {array.dtype}; must be real")
    return array


def _floating(field: str, given: Any) -> Any:
    """The array in float32 or float64: half precision in float32, whole numbers in JAX's default."""
    if given is None:
        return None
    array = _array(field, given)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        return array.astype(jnp.result_type(float))
    return array if array.dtype.itemsize >= 4 else array.astype(jnp.float32)


def _require_shape(field: str, array: Any, expected: tuple[Any, ...]) -> None:
    """ValueError unless the shape is as `expected`, in which a letter stands for any size but 0."""
    if array is None:
        return
    shape = array.shape
    if len(shape) != len(expected) or not all(s == e or isinstance(e, str) and s > 0 for s, e in zip(shape, expected)):
        text = ", ".join(map(str, expected)) + ("," if len(expected) == 1 else "")
        raise ValueError(f"{field}: has shape {shape}; must be ({text})")


def _known(given: dict[str, Any]) -> dict[str, Any]:
    """Numbers and names, which JAX must not trace: they are constants of a traced call."""
    known = {}
    for name, value in given.items():
        if isinstance(value, jax.core.Tracer):
            raise TypeError(f"{name}: is traced by JAX; must be known then, as by static_argnames of jax.jit")
        known[name] = value.item() if isinstance(value, (jax.Array, np.ndarray)) and value.ndim == 0 else value
        if not isinstance(known[name], (str, int, float, np.number, type(None))):
            raise TypeError(f"{name}: is of type {type(value).__name__}; must be a number or a name")
    return known


@functools.lru_cache(maxsize=256)
def _check(solve: Callable[..., Any], *given: Any) -> None:
    """Solves a problem of one pair with the options of a call, so that wrong options are errors while JAX traces it."""
    solve(*given)


# Callbacks and their derivatives.


def _on_host(function: Callable[..., Any], shapes: Any, *given: Any, vmap_method: str) -> Any:
    """function(*given) on the host: a callback while JAX traces a call, else the function itself, whose errors are
    Python's own."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(given)):
        return jax.pure_callback(function, shapes, *given, vmap_method=vmap_method)
    return jax.tree.map(jnp.asarray, function(*jax.tree.map(np.asarray, given)))


def _without_derivatives(message: str, call: Callable[..., Any], *given: Any) -> Any:
    """call(*given), a derivative of which is a NotImplementedError with this message."""

    def refuse(primals: Any, tangents: Any) -> Any:
        raise NotImplementedError(message)

    followed: Any = jax.custom_jvp(call)
    followed.defjvp(refuse)
    return followed(*given)


def _first_only(name: str, function: Callable[..., Any], shapes: Any, *given: Any, vmap_method: str) -> Any:
    """:func:`_on_host` for the value or the first derivative of an operator that has no second ones."""
    call = functools.partial(_on_host, function, shapes, vmap_method=vmap_method)
    return _without_derivatives(_no_second(name), call, *given)


def _of_given(gradients: Sequence[Any], given: Sequence[Any]) -> list[Any]:
    """The gradients, None for arguments that are None."""
    return [None if v is None else g for g, v in zip(gradients, given)]


def _scaled(gradients: Sequence[Any], by_value: Any) -> tuple[Any, ...]:
    return tuple(None if g is None else (by_value * g).astype(g.dtype) for g in gradients)


def _no_second(name: str) -> str:
    return f"{name}: has no second derivatives"


_is_zero = jax.custom_derivatives.SymbolicZero

# Entropic transport and its divergence.


_Given = dict[str, Any]
"""The arguments that have derivatives, by their letters: points x and y with features s and t, or costs c, and weights a
and b; of Gromov-Wasserstein transport of matrices x is Ca, y is Cb and s is M."""


def _found(
    loss: str, given: _Given, others: Sequence[Any], costs: _Options, options: _Options
) -> tuple[float, Callable[[str], Any]]:
    """The value, and a function that makes its gradients by arguments of these letters, on the host. `others`: labels
    of x and y, their costs, and the potentials of a warm start. For transport of points the letters may also be those
    of _STATE."""
    *labels, start = others
    if loss in _GROMOV:
        return _found_of_gromov(loss, given, start, options)
    if "c" in given:
        return _found_of_costs(given, start, options)
    x, y, a, b = (given[letter] for letter in "xyab")  # JAX sorts the keys of a dictionary.
    return _found_of_points(loss, x, y, a, b, dict(costs) | dict(zip(LABELS, labels)), start, options)


_STATE = "fgp"
"""What a plan is made of again: potentials f (k, n) and g (k, m), and which solves, (l), ended in float64. A divergence
has k = 2, the pair and the clouds with themselves, and l = 3; transport has neither dimension."""


def _state(solves: Sequence[Any]) -> _Given:
    """The potentials are whole numbers, the halves of float64, which JAX by default has not."""
    (f, g), *own = (solve._float64_potentials() for solve in solves)
    if own:
        f, g = (np.stack(v) for v in zip((f, g), (potentials[0] for potentials in own)))
    wide = np.array([solve.report.precision == "float64" for solve in solves])
    return {"f": f.view(np.uint32), "g": g.view(np.uint32), "p": wide if own else wide[0]}


def _by_letter(result: Any, solves: Sequence[Any], wanted: str) -> _Given:
    by: _Given = vars(result._gradients(wanted.rstrip(_STATE), scale=False))
    return by | _state(solves) if _STATE in wanted else by


@calls(**CLOUDS)
def _found_of_points(
    loss: str, x: Any, y: Any, a: Any, b: Any, of_cost: dict[str, Any], start: Any, options: _Options
) -> tuple[float, Callable[[str], Any]]:
    if loss == "sinkhorn_divergence":
        divergence = monge_divergence(x, y, a, b, **of_cost, potentials_init=start, **dict(options))
        return divergence.value, functools.partial(_by_letter, divergence, divergence._solves)
    result = run(points_problem(x, y, a, b, **of_cost), "kl", dict(options), start)
    return result.report.dual, functools.partial(_by_letter, result, (result,))


@calls(**_OF_COSTS)
def _found_of_costs(given: _Given, start: Any, options: _Options) -> tuple[float, Callable[[str], Any]]:
    result = run(matrix_problem(given["c"], given["a"], given["b"]), "kl", dict(options), start)

    def differentiate(wanted: str) -> Any:
        by = vars(result._gradients(wanted.replace("c", ""), scale=False)) if wanted != "c" else {}
        return by | ({"c": result.plan} if "c" in wanted else {})

    return result.report.dual, differentiate


@calls(X_a="x", X_b="y")
def _found_of_gromov(loss: str, given: _Given, start: Any, options: _Options) -> tuple[float, Callable[[str], Any]]:
    solve, names = _GROMOV[loss]
    result = solve(**{names[letter]: v for letter, v in given.items()}, plan_init=start, **dict(options))
    return float(result.value), lambda wanted: vars(result.gradients())


_GROMOV: dict[str, tuple[Callable[..., Any], dict[str, str]]] = {
    "gromov": (solve_gromov_sample, {"x": "X_a", "y": "X_b", "s": "s", "t": "t", "a": "a", "b": "b"}),
    "gromov_of_matrices": (solve_gromov, {"x": "Ca", "y": "Cb", "s": "M", "a": "a", "b": "b"}),
}
"""The solver of a function, and the names of its arguments."""


def _solve(given: _Given, others: Any, *, loss: str, costs: _Options, options: _Options, wanted: str) -> Any:
    """The value, and its gradients by the arguments that are `wanted`, each in the dtype of its argument."""
    given, others = jax.tree.map(np.asarray, (given, others))
    value, differentiate = _found(loss, given, others, costs, options)
    by = differentiate(wanted) if wanted else {}
    found = [value, *(by[letter] for letter in wanted)]
    return tuple(np.asarray(v, shape.dtype) for v, shape in zip(found, _shapes(loss, given, wanted)))


def _shapes(loss: str, given: _Given, wanted: str) -> list[Any]:
    value = np.result_type(*(given[letter].dtype for letter in "xyc" if letter in given))
    shapes = {letter: _Shape(v.shape, v.dtype) for letter, v in given.items() if v is not None}
    if loss in _TWICE:
        parts = _TWICE[loss].parts
        for letter, points in zip("fg", (given["x"], given["y"])):
            shapes[letter] = _Shape((*(2 for _ in parts), 2 * points.shape[0]), np.uint32)
        shapes["p"] = _Shape(parts, np.bool_)
    return [_Shape((), value), *(shapes[letter] for letter in wanted)]


def _call(given: _Given, others: Any, loss: str, costs: _Options, options: _Options, wanted: str) -> Any:
    solve = functools.partial(_solve, loss=loss, costs=costs, options=options, wanted=wanted)
    return _on_host(solve, _shapes(loss, given, wanted), given, others, vmap_method="sequential")


_TWICE: dict[str, Any] = {of.name: of for of in (Transport, Divergence)}
"""The losses that have second derivatives by the points."""


def _multiply(
    given: _Given, labels: Any, state: Any, direction: Any, *, loss: str, costs: _Options, options: _Options
) -> Any:
    """The product of the Hessian by the points and a direction (n + m, d), on the host."""
    given, labels, (f, g, in_float64), direction = jax.tree.map(np.asarray, (given, labels, state, direction))
    own, of_cost = dict(options), dict(costs) | dict(zip(LABELS, labels))
    problem = with_weights(points_problem(*(given[letter] for letter in "xyab"), **of_cost), own)
    to, n = problem.place.empty(*direction.shape), len(given["x"])
    f, g = f.view(np.float64), g.view(np.float64)
    halves = [(v[None, :n], v[None, n:]) for v in (direction, to)]
    multiply_hessian(_TWICE[loss], [problem], f[None], g[None], in_float64[None], own, *halves)
    return to.astype(direction.dtype)


def _product(
    given: _Given, labels: Any, state: Any, direction: Any, loss: str, costs: _Options, options: _Options
) -> Any:
    multiply = functools.partial(_multiply, loss=loss, costs=costs, options=options)

    def solve(_: Any, v: Any) -> Any:
        return jax.pure_callback(multiply, _Shape(v.shape, v.dtype), given, labels, state, v, vmap_method="sequential")

    # JAX batches this linear map, and transposes it to itself. The map that it inverts is not evaluated.
    return jax.lax.custom_linear_solve(lambda v: v, direction, solve, symmetric=True)


@functools.partial(jax.custom_jvp, nondiff_argnums=(2, 3, 4, 5))
def _transport(given: _Given, others: Any, loss: str, costs: _Options, options: _Options, wanted: str) -> Any:
    """The value, and its gradients by the arguments that are `wanted`."""
    return tuple(_call(given, others, loss, costs, options, wanted))


def _inner(v: Any, w: Any, dtype: Any) -> Any:
    """The sum of the products of the entries, as one operation: outside of jax.jit each takes some 0.1 ms."""
    axes = tuple(range(v.ndim))
    dot = jax.lax.dot_general(v, w, ((axes, axes), ((), ())), precision=jax.lax.Precision.HIGHEST)
    return dot if dot.dtype == dtype else dot.astype(dtype)


def _differentiate(loss: str, costs: _Options, options: _Options, wanted: str, primals: Any, tangents: Any) -> Any:
    """Outputs and tangents of :func:`_transport`."""
    (given, others), (directions, by_others) = primals, tangents
    if others[2] is not None and not isinstance(by_others[2], _is_zero):
        raise NotImplementedError(f"{loss}: has derivatives by points and weights, not by label_cost")
    directions = {letter: v for letter, v in directions.items() if v is not None and not isinstance(v, _is_zero)}
    how = given, others, loss, costs, options
    if wanted:
        value, by, products = _twice(directions, wanted, *how)
    else:
        asked = "".join(directions)
        value, *gradients = _transport(*how, asked)
        by, products = dict(zip(asked, gradients)), {}
    tangent = functools.reduce(jax.lax.add, (_inner(by[letter], v, value.dtype) for letter, v in directions.items()))
    return (value, *(by[letter] for letter in wanted)), (tangent, *(products[letter] for letter in wanted))


def _twice(
    directions: _Given, wanted: str, given: _Given, others: Any, loss: str, costs: _Options, options: _Options
) -> tuple[Any, _Given, _Given]:
    """The value, its gradients by the points, and the products of its Hessian with the directions."""
    if loss not in _TWICE:
        raise NotImplementedError(_no_second(loss))
    if not {*wanted, *directions} <= {"x", "y"}:
        raise NotImplementedError(f"{loss}: has second derivatives by points, not by weights")
    call = functools.partial(_call, loss=loss, costs=costs, options=options, wanted="xy" + _STATE)
    value, by_x, by_y, *state = _without_derivatives(f"{loss}: has no third derivatives", call, given, others)
    whole = jnp.concatenate([directions.get(letter, jnp.zeros_like(given[letter])) for letter in "xy"])
    product = _product(given, others[:3], state, whole, loss, costs, options)
    parts = jnp.split(product, [len(given["x"])])
    return value, {"x": by_x, "y": by_y}, {c: v.astype(given[c].dtype) for c, v in zip("xy", parts)}


_transport.defjvp(_differentiate, symbolic_zeros=True)


def _check_problem(loss: str, costs: _Options, dimensions: int, with_labels: bool, options: _Options) -> None:
    """Solves a problem of one pair: of points, or with 0 dimensions of costs."""
    points = np.ones((1, dimensions))
    geometry = {"x": points, "y": points} if dimensions > 0 else {"c": np.ones((1, 1))}
    labels = (np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros((1, 1))) if with_labels else (None,) * 3
    # eps as a share of the mean cost depends on the points; its value is checked with the options.
    given = dict(options)
    _core.check_solve_options(given)
    fixed = {name: value for name, value in given.items() if name != "eps_relative"} | {"eps": given.get("eps", 1.0)}
    _found(loss, {**geometry, "a": np.ones(1), "b": np.ones(1)}, (*labels, None), costs, tuple(fixed.items()))


def _labels(x: Any, y: Any, given: Sequence[Any], label_weight: Any) -> tuple[Any, ...]:
    """labels_x, labels_y and label_cost as arrays, or three times None."""
    labels_x, labels_y, label_cost = given
    weight_of_labels(labels_x, labels_y, label_cost, label_weight)
    labels = [None if v is None else _array(name, v) for name, v in zip(LABELS, given)]
    for name, of_points, points in zip(LABELS, labels, (x, y)):
        if of_points is not None and not jnp.issubdtype(of_points.dtype, jnp.integer):
            raise TypeError(f"{name}: is of dtype {of_points.dtype}; must be whole numbers")
        _require_shape(name, of_points, points.shape[:1])
    labels[2] = _floating("label_cost", labels[2])
    _require_shape("label_cost", labels[2], ("K", "L"))
    return tuple(labels)


def _start(loss: str, n: int, m: int, given: Any) -> tuple[Any, ...] | None:
    """The potentials of a warm start, by which values have no derivatives."""
    if given is None:
        return None
    is_divergence = loss == "sinkhorn_divergence"
    given = arrays_of_start(given, is_divergence)
    if is_divergence:
        require_potentials(given, STARTS, 2, 4)
    else:
        require_potentials(given, "a pair of arrays (f, g), or an OTResult", 2)
    found = []
    for name, v, size in zip(PARTS, given, (n, m, n, m)):
        potential = _floating(f"potentials_init: {name}", v)
        _require_shape(f"potentials_init: {name}", potential, (size,))
        found.append(jax.lax.stop_gradient(potential))
    return tuple(found)


def _loss(
    loss: str,
    x: Any,
    y: Any,
    a: Any,
    b: Any,
    metric: str,
    start: Any,
    unbalanced: Any,
    numbers: dict[str, Any],
    options: dict[str, Any],
) -> Any:
    x, y, a, b = (_floating(name, v) for name, v in (("x", x), ("y", y), ("a", a), ("b", b)))
    _require_shape("x", x, ("n", "d"))
    _require_shape("y", y, ("m", x.shape[1]))
    _require_shape("a", a, x.shape[:1])
    _require_shape("b", b, y.shape[:1])
    costs, own = split_costs(options)
    labels = [costs.pop(name) for name in LABELS]
    known = _known({"metric": metric, **costs})
    cost_of_metric(known["metric"], known["norm_p"])
    of_classes = _labels(x, y, labels, known["label_weight"])
    translated = tuple(solve_options(_known(own), **_known(numbers), unbalanced=unbalanced).items())
    known_costs = tuple(known.items())
    _check(_check_problem, loss, known_costs, x.shape[1], of_classes[0] is not None, translated)
    others = (*of_classes, _start(loss, len(x), len(y), start))
    return _transport({"x": x, "y": y, "a": a, "b": b}, others, loss, known_costs, translated, "")[0]


@calls(**CLOUDS)
def transport(
    x: Any,
    y: Any,
    a: Any = None,
    b: Any = None,
    *,
    reg: Reg = "auto",
    metric: str = "sqeuclidean",
    unbalanced: Any = None,
    max_iter: int | None = None,
    tol: float | None = None,
    potentials_init: Any = None,
    **options: Any,
) -> Any:
    """OT_reg of weighted clouds, in units of the cost: differentiable by x and y twice, by a and b once.

    Args:
        x, y: Points (n x d) and (m x d).
        a, b: Weights (n) and (m), by default uniform.
        reg: eps > 0, in units of the cost, or "auto", the default, for 5 % of the mean cost, which derivatives treat as
            a constant. The option `eps_relative`, another fraction of the mean cost, may take the place of `reg`.
        metric: As for :func:`monge.solve_sample`.
        unbalanced, max_iter, tol: As for :func:`monge.solve`.
        options: Options of the costs, :class:`monge.CostOptions`, and those of :func:`monge.solve`. Values have no
            derivatives by labels and their costs.
        potentials_init: A warm start, in units of the cost: arrays (f, g) of shapes (n) and (m), or an OTResult.

    Wrong shapes, dtypes and options are ValueError and TypeError, also under jax.jit. So are wrong numbers in arrays,
    such as NaN, outside of jax.jit; within it they are JAX's error of a callback, whose last line is ours. Derivatives
    are of reverse or forward mode, and second ones of any two of them: jax.hessian, or jax.grad of a function of a
    gradient. A second derivative by weights and a third one are a NotImplementedError. A second derivative solves a
    linear system for each direction. Where the system is not solved, it is a RuntimeError, JAX's error of a callback.

    Source: Cuturi 2013; docs/math.md, section 11, for the second derivative.

    >>> import jax, monge.jax
    >>> jax.grad(lambda x: monge.jax.transport(x, jax.numpy.ones((1, 2)), reg=0.1))(jax.numpy.zeros((1, 2)))
    Array([[-2., -2.]], dtype=float32)
    """
    numbers = {"reg": reg, "max_iter": max_iter, "tol": tol}
    return _loss("transport", x, y, a, b, metric, potentials_init, unbalanced, numbers, options)


@calls(**_OF_COSTS)
def transport_of_costs(
    cost: Any,
    a: Any = None,
    b: Any = None,
    *,
    reg: Reg = "auto",
    unbalanced: Any = None,
    max_iter: int | None = None,
    tol: float | None = None,
    potentials_init: Any = None,
    **options: Any,
) -> Any:
    """OT_reg for a matrix of costs, in their units, with its first derivatives by the costs and the weights.

    Args:
        cost: Costs (n x m); inf forbids a pair. The derivative by them is the plan.
        a, b, reg, unbalanced, max_iter, tol, potentials_init: As for :func:`transport`.
        options: As for :func:`monge.solve`.

    Errors are those of :func:`transport`. A second derivative is a NotImplementedError.

    >>> import jax, monge.jax
    >>> value, plan = jax.value_and_grad(monge.jax.transport_of_costs)(jax.numpy.array([[0.0, 9.0], [9.0, 0.0]]), reg=1.0)
    >>> plan.round(3)
    Array([[0.5, 0. ],
           [0. , 0.5]], dtype=float32)
    """
    cost, a, b = (_floating(name, v) for name, v in (("cost", cost), ("a", a), ("b", b)))
    _require_shape("cost", cost, ("n", "m"))
    _require_shape("a", a, cost.shape[:1])
    _require_shape("b", b, cost.shape[1:])
    numbers = _known({"reg": reg, "max_iter": max_iter, "tol": tol})
    translated = tuple(solve_options(_known(options), **numbers, unbalanced=unbalanced).items())
    _check(_check_problem, "transport_of_costs", (), 0, False, translated)
    n, m = cost.shape
    others = (None, None, None, _start("transport_of_costs", n, m, potentials_init))
    return _transport({"c": cost, "a": a, "b": b}, others, "transport_of_costs", (), translated, "")[0]


@calls(**CLOUDS)
def sinkhorn_divergence(
    x: Any,
    y: Any,
    a: Any = None,
    b: Any = None,
    *,
    reg: Reg = "auto",
    metric: str = "sqeuclidean",
    unbalanced: Any = None,
    max_iter: int | None = None,
    tol: float | None = None,
    potentials_init: Any = None,
    **options: Any,
) -> Any:
    """:func:`monge.sinkhorn_divergence` of weighted clouds: transport without the bias of the entropy. It is
    differentiable by x and y twice, by a and b once.

    Args:
        x, y, a, b, reg, options: As for :func:`transport`.
        metric: As for :func:`monge.solve_sample`.
        unbalanced, max_iter, tol: As for :func:`monge.solve`.
        potentials_init: A warm start: arrays (f, g) or (f, g, f_aa, f_bb) of shapes (n), (m), (n) and (m), or a
            :class:`monge.DivergenceResult`.

    GeomLoss's SamplesLoss and :class:`monge.torch.SamplesLoss` with p = 2 have reg=blur**2, scale=0.5 and
    unbalanced=reach**2. Derivatives and errors are those of :func:`transport`.

    Source: Feydy et al. 2019; Sejourne et al. 2019.

    >>> import jax, monge.jax
    >>> jax.grad(lambda x: monge.jax.sinkhorn_divergence(x, jax.numpy.ones((1, 2)), reg=0.1))(jax.numpy.zeros((1, 2)))
    Array([[-2., -2.]], dtype=float32)
    """
    numbers = {"reg": reg, "max_iter": max_iter, "tol": tol}
    return _loss("sinkhorn_divergence", x, y, a, b, metric, potentials_init, unbalanced, numbers, options)


# Gromov-Wasserstein transport.


def _check_gromov(loss: str, letters: str, options: _Options) -> None:
    """Solves a problem of one pair."""
    of_letter = {letter: np.ones(1) if letter in "ab" else np.ones((1, 1)) for letter in letters}
    _found_of_gromov(loss, of_letter, None, options)


def _gromov_of(loss: str, given: _Given, plan_init: Any, named: dict[str, Any], options: dict[str, Any]) -> Any:
    n, m = len(given["x"]), len(given["y"])
    start = _floating("plan_init", getattr(plan_init, "plan", plan_init))
    _require_shape("plan_init", start, (n, m))
    translated = tuple(_known({name: v for name, v in (named | options).items() if v is not None}).items())
    _check(_check_gromov, loss, "".join(letter for letter, v in given.items() if v is not None), translated)
    others = (None, None, None, None if start is None else jax.lax.stop_gradient(start))
    return _transport(given, others, loss, (), translated, "")[0]


@calls(X_a="x", X_b="y")
def _gromov_arrays(names: dict[str, str], arrays: Any, of_x: tuple[str, str], of_y: tuple[str, str]) -> dict[str, Any]:
    """The arrays by letters; the sides and the weights have the right shapes."""
    given = {letter: _floating(name, v) for (letter, name), v in zip(names.items(), arrays)}
    for letter, weights, shape in (("x", "a", of_x), ("y", "b", of_y)):
        _require_shape(names[letter], given[letter], shape)
        _require_shape(weights, given[weights], (len(given[letter]),))
    return given


def gromov(
    x: Any,
    y: Any,
    s: Any = None,
    t: Any = None,
    a: Any = None,
    b: Any = None,
    *,
    reg: float | None = None,
    reg_type: str = "entropy",
    max_iter: int | None = None,
    tol: float | None = None,
    plan_init: Any = None,
    **options: Any,
) -> Any:
    """The value of :func:`monge.solve_gromov_sample`, with its first derivatives by points, features and weights.

    Args:
        x, y: Points (n x p) and (m x q).
        s, t: Features (n x r) and (m x r); both or neither.
        a, b: Weights (n) and (m), by default uniform.
        reg: The weight of the entropy; None: exact plans. Derivatives by weights are then one-sided.
        reg_type, max_iter, tol, options: As for :func:`monge.solve_gromov_sample`.
        plan_init: A start: a plan (n x m) or a :class:`monge.GromovResult`. The value has no derivative by it.

    Derivatives are those at the plan as it is, and of first order: a second derivative is a NotImplementedError. Other
    errors and the rules of tracing are those of :func:`transport`.

    >>> import jax, monge.jax
    >>> jax.grad(monge.jax.gromov)(jax.numpy.array([[0.0], [1.0]]), jax.numpy.array([[0.0], [2.0]]))
    Array([[ 6.],
           [-6.]], dtype=float32)
    """
    given = _gromov_arrays(dict(zip("xystab", "xystab")), (x, y, s, t, a, b), ("n", "p"), ("m", "q"))
    n, m = len(given["x"]), len(given["y"])
    _require_shape("s", given["s"], (n, "r"))
    _require_shape("t", given["t"], (m, "r" if given["s"] is None else given["s"].shape[1]))
    named = {"reg": reg, "reg_type": reg_type, "max_iter": max_iter, "tol": tol}
    return _gromov_of("gromov", given, plan_init, named, options)


def gromov_of_matrices(
    Ca: Any,
    Cb: Any,
    M: Any = None,
    a: Any = None,
    b: Any = None,
    *,
    alpha: float = 0.5,
    reg: float | None = None,
    reg_type: str = "entropy",
    max_iter: int | None = None,
    tol: float | None = None,
    plan_init: Any = None,
    **options: Any,
) -> Any:
    """The value of :func:`monge.solve_gromov`, with its first derivatives by matrices and weights.

    Args:
        Ca, Cb: Matrices (n x n) and (m x m).
        M: Costs (n x m); None: alpha is 1.
        a, b: Weights (n) and (m), by default uniform.
        alpha: The weight of the matrices Ca and Cb beside M, in [0, 1].
        reg, plan_init: As for :func:`gromov`.
        reg_type, max_iter, tol, options: As for :func:`monge.solve_gromov_sample`.

    Derivatives and errors are those of :func:`gromov`.

    >>> import jax.numpy as jnp, monge.jax
    >>> C = jnp.array([[0.0, 1.0], [1.0, 0.0]])
    >>> monge.jax.gromov_of_matrices(C, 2 * C)
    Array(0.5, dtype=float32)
    """
    names = {"x": "Ca", "y": "Cb", "s": "M", "a": "a", "b": "b"}
    given = _gromov_arrays(names, (Ca, Cb, M, a, b), ("n", "n"), ("m", "m"))
    n, m = len(given["x"]), len(given["y"])
    for letter, shape in (("x", (n, n)), ("y", (m, m)), ("s", (n, m))):
        _require_shape(names[letter], given[letter], shape)
    named = {"alpha": alpha, "reg": reg, "reg_type": reg_type, "max_iter": max_iter, "tol": tol}
    return _gromov_of("gromov_of_matrices", given, plan_init, named, options)


# Regularised transport.


@calls(**_OF_REGULARIZED)
def _solve_regularized(cost: Any, a: Any, b: Any, regularizer: Any, weights: _Options, options: _Options) -> Any:
    """Values, plans and dual potentials of problems (..., n, m); the potentials have the dtypes of the weights."""
    lead = cost.shape[:-2]
    size = math.prod(lead)

    def each(v: Any) -> Any:
        return [None] * size if v is None else np.asarray(v).reshape((size, *v.shape[len(lead) :]))

    problems = [matrix_problem(*given) for given in zip(each(cost), each(a), each(b))]
    arrays = zip(*(each(v) for v in regularizer))
    terms = [Regularizer.read(**dict(weights), **dict(zip(TERM_ARRAYS, given))) for given in arrays]
    batch = run_each(problems, terms, dict(options))
    found = zip((batch.value, batch.plan, *batch.potentials), _regularized_shapes(cost, a, b))
    return tuple(np.asarray(v, shape.dtype).reshape((*lead, *np.shape(v)[1:])) for v, shape in found)


def _regularized_shapes(cost: Any, a: Any, b: Any) -> list[Any]:
    sides = ((cost.shape[:1], a), (cost.shape[1:], b))
    weights = (_Shape(shape, cost.dtype if w is None else w.dtype) for shape, w in sides)
    return [_Shape((), cost.dtype), _Shape(cost.shape, cost.dtype), *weights]


def _call_regularized(cost: Any, a: Any, b: Any, regularizer: Any, weights: _Options, options: _Options) -> Any:
    solve = functools.partial(_solve_regularized, weights=weights, options=options)
    shapes = _regularized_shapes(cost, a, b)
    return _first_only("regularized_transport", solve, shapes, cost, a, b, regularizer, vmap_method="broadcast_all")


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def _regularized(cost: Any, a: Any, b: Any, regularizer: Any, weights: _Options, options: _Options) -> Any:
    return tuple(_call_regularized(cost, a, b, regularizer, weights, options)[:2])


def _regularized_forward(cost: Any, a: Any, b: Any, regularizer: Any, weights: _Options, options: _Options) -> Any:
    if any(leaf.perturbed for leaf in jax.tree.leaves(regularizer)):
        raise NotImplementedError("regularized_transport: has derivatives by costs and weights, not by the regulariser")
    cost, a, b, regularizer = jax.tree.map(lambda leaf: leaf.value, (cost, a, b, regularizer))
    value, *by = _call_regularized(cost, a, b, regularizer, weights, options)
    return (value, by[0]), _of_given(by, (cost, a, b))


def _regularized_backward(weights: _Options, options: _Options, by: Any, directions: Any) -> Any:
    by_value, by_plan = directions
    if not isinstance(by_plan, _is_zero):
        raise NotImplementedError("regularized_transport: the plan has no derivatives; jax.lax.stop_gradient takes it")
    return *(_scaled(by, by_value) if not isinstance(by_value, _is_zero) else (None,) * 3), None


_regularized.defvjp(_regularized_forward, _regularized_backward, symbolic_zeros=True)


def _check_regularized(weights: _Options, options: _Options, given: tuple[bool, ...]) -> None:
    pair = (np.zeros(1, np.int64), np.ones(1), np.ones((1, 1)), np.ones((1, 1)))
    of_pair = {name: value if is_given else None for name, value, is_given in zip(TERM_ARRAYS, pair, given)}
    regularizer = Regularizer.read(**dict(weights), **of_pair)
    run_each([matrix_problem(np.ones((1, 1)), None, None)], [regularizer], dict(options))


def _count(groups: Any, rows: int) -> Any:
    """The number of groups, or "groups" while JAX traces them."""
    if groups is None or isinstance(groups, jax.core.Tracer):
        return "groups"
    known = np.asarray(groups)
    least, most = known.min(), known.max()
    if not 0 <= least <= most < rows:
        raise ValueError(f"groups: are from {least} to {most}; must be from 0 to {rows - 1}, the rows less one")
    return int(most) + 1


@calls(**_OF_REGULARIZED)
def regularized_transport(
    cost: Any,
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
    max_iter: int | None = None,
    tol: float | None = None,
    **options: Any,
) -> tuple[Any, Any]:
    """The value min_X <C, X> + h(X) of the costs C, `cost` (n x m), and the plan X.

    Other arguments are those of :func:`monge.solve_regularized`, with groups of rows alone. The value has first
    derivatives in reverse mode: by the costs the plan, by the weights the dual potentials. A derivative of the plan,
    one by the regulariser and a second derivative are a NotImplementedError. jax.vmap solves a batch at once. Other
    errors are as for :func:`transport`.

    Source: Lindback, Wang, Johansson 2023, section 3.3 and Appendix D.
    """
    cost, a, b = (_floating(name, v) for name, v in (("cost", cost), ("a", a), ("b", b)))
    _require_shape("cost", cost, ("n", "m"))
    _require_shape("a", a, cost.shape[:1])
    _require_shape("b", b, cost.shape[1:])
    arrays = zip(TERM_ARRAYS, (groups, group_weights, l1_weights, mask))
    regularizer = tuple(None if v is None else _array(name, v) for name, v in arrays)
    if regularizer[0] is not None and not jnp.issubdtype(regularizer[0].dtype, jnp.integer):
        raise TypeError(f"groups: is of dtype {regularizer[0].dtype}; must be whole numbers")
    _require_shape("groups", regularizer[0], cost.shape[:1])
    shapes = ((_count(groups, cost.shape[0]),), cost.shape, cost.shape)
    for name, array, shape in zip(TERM_ARRAYS[1:], regularizer[1:], shapes):
        _require_shape(name, array, shape)
    weights = dict(
        quadratic=quadratic, group_lasso=group_lasso, l1=l1, hypentropy=hypentropy, hypentropy_width=hypentropy_width
    )
    translated = regularized_options(_known(options), **_known({"max_iter": max_iter, "tol": tol}))
    terms, own = tuple(_known(weights).items()), tuple(translated.items())
    _check(_check_regularized, terms, own, tuple(v is not None for v in regularizer))
    value, plan = _regularized(cost, a, b, regularizer, terms, own)
    return value, plan


# The projection.


def _project_host(logits: Any, preset: str, options: _Options) -> Any:
    return np.asarray(project_with(projection_options(preset or None, dict(options)), np.asarray(logits)))


def _project_backward_host(logits: Any, by_out: Any, preset: str, options: _Options) -> Any:
    given, direction = (np.ascontiguousarray(v).reshape(-1, *v.shape[-2:]) for v in (logits, by_out))
    to = np.empty_like(given)
    held = projection_options(preset or None, dict(options))
    _core.project_backward(_core.cpu_session(0), given, direction, to, None, held)
    return to.reshape(logits.shape)


def _call_project(logits: Any, preset: str, options: _Options) -> Any:
    extra = int(projection_options(preset or None, dict(options)).dustbin)
    shape = (*logits.shape[:-2], logits.shape[-2] + extra, logits.shape[-1] + extra)
    project = functools.partial(_project_host, preset=preset, options=options)
    return _first_only("project", project, _Shape(shape, logits.dtype), logits, vmap_method="expand_dims")


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _project(logits: Any, preset: str, options: _Options) -> Any:
    return _call_project(logits, preset, options)


def _project_forward(logits: Any, preset: str, options: _Options) -> Any:
    return _call_project(logits, preset, options), logits


def _project_backward(preset: str, options: _Options, logits: Any, by_out: Any) -> Any:
    differentiate = functools.partial(_project_backward_host, preset=preset, options=options)
    shape = _Shape(logits.shape, logits.dtype)
    return (_first_only("project", differentiate, shape, logits, by_out, vmap_method="broadcast_all"),)


_project.defvjp(_project_forward, _project_backward)


@calls()
def project(logits: Any, preset: str | None = None, **options: Any) -> Any:
    """:func:`monge.project` of `logits` (..., n, m) with its gradient, in float16, bfloat16 and float32.

    `preset` and `options` are as for :func:`monge.project`; only that function takes marginals. The arithmetic is
    float32. float64 is a TypeError, since it would lose digits. Forward mode is a TypeError, too, and a second
    derivative a NotImplementedError. Other errors are those of :func:`monge.project`.

    >>> import jax.numpy as jnp, monge.jax
    >>> monge.jax.project(jnp.zeros((2, 2)), "mhc_paper")
    Array([[0.5, 0.5],
           [0.5, 0.5]], dtype=float32)
    """
    array = _array("logits", logits)
    if not jnp.issubdtype(array.dtype, jnp.floating) or array.dtype.itemsize not in (2, 4):
        raise TypeError(f"logits: is of dtype {array.dtype}; must be float16, bfloat16 or float32")
    if array.ndim < 2 or 0 in array.shape[-2:]:
        raise ValueError(f"logits: has shape {array.shape}; must be (..., n, m)")
    own, preset = tuple(_known(options).items()), _known({"preset": preset})["preset"]
    _check(_check_projection, preset or "", own)
    # NumPy has no bfloat16, and float32 holds each of its numbers.
    held = array if array.dtype != jnp.bfloat16 else array.astype(jnp.float32)
    return _project(held, preset or "", own).astype(array.dtype)


def _check_projection(preset: str, options: _Options) -> None:
    project_with(projection_options(preset or None, dict(options)), np.ones((1, 1), np.float32))
