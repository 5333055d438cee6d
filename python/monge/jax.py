"""Monge for JAX: transport, regularised transport and the projection, with derivatives for jax.grad and jax.jit.

Work is done in host memory by a callback, whatever JAX's device is; shapes and dtypes are those of the inputs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import _core
from ._problem import matrix_problem, points_problem, solve_options
from ._projection import project_with, projection_options
from ._regularized import Regularizer, regularized_options, run_batch
from ._solve import run

__all__ = ["project", "regularized_transport", "transport"]

_Options = tuple[tuple[str, Any], ...]
_Shape: Any = jax.ShapeDtypeStruct  # Which has no types.


def _solve(x: Any, y: Any, a: Any, b: Any, metric: str, scale: float, options: _Options) -> Any:
    """The result, and its value and gradients of it by all four."""
    x, y, a, b = (None if v is None else np.asarray(v) for v in (x, y, a, b))
    problem = points_problem(x, y, a, b, metric, scale=scale)
    result = run(problem, dict(options))
    gradients = result.gradients()
    by_points = [np.full_like(v, np.nan) if g is None else g for v, g in ((x, gradients.x), (y, gradients.y))]
    values = [np.asarray(result.report.dual), *by_points, gradients.a, gradients.b]
    return tuple(v.astype(x.dtype) for v in values)


def _call(x: Any, y: Any, a: Any, b: Any, metric: str, scale: float, options: _Options) -> Any:
    shapes = tuple(_Shape(shape, x.dtype) for shape in ((), x.shape, y.shape, x.shape[:1], y.shape[:1]))
    solve = functools.partial(_solve, metric=metric, scale=scale, options=options)
    return jax.pure_callback(solve, shapes, x, y, a, b, vmap_method="sequential")


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5, 6))
def _transport(x: Any, y: Any, a: Any, b: Any, metric: str, scale: float, options: _Options) -> Any:
    return _call(x, y, a, b, metric, scale, options)[0]


def _forward(x: Any, y: Any, a: Any, b: Any, metric: str, scale: float, options: _Options) -> Any:
    value, *gradients = _call(x, y, a, b, metric, scale, options)
    return value, _of_given(gradients, (x, y, a, b))


def _of_given(gradients: Sequence[Any], given: Sequence[Any]) -> list[Any]:
    """What is left out has no gradient."""
    return [None if v is None else g for g, v in zip(gradients, given)]


def _scaled(gradients: Sequence[Any], by_value: Any) -> tuple[Any, ...]:
    return tuple(None if g is None else by_value * g for g in gradients)


def _backward(metric: str, scale: float, options: _Options, gradients: Any, by_value: Any) -> Any:
    return _scaled(gradients, by_value)


_transport.defvjp(_forward, _backward)


def _optional(given: Any) -> Any:
    return None if given is None else jnp.asarray(given)


def _floating(given: Any) -> Any:
    """float32 and float64 as they are, all else in JAX's default."""
    array = jnp.asarray(given)
    wide = jnp.issubdtype(array.dtype, jnp.floating) and array.dtype.itemsize >= 4
    return array if wide else array.astype(jnp.result_type(float))


def transport(
    x: Any,
    y: Any,
    a: Any = None,
    b: Any = None,
    *,
    reg: float,
    metric: str = "sqeuclidean",
    scale: float = 1.0,
    unbalanced: Any = None,
    max_iter: int | None = None,
    tol: float | None = None,
    **options: Any,
) -> Any:
    """OT_reg of weighted clouds x (n x d) and y (m x d), in units of the cost, with its first derivatives by points and
    weights.

    Arguments and errors are those of :func:`monge.solve_sample`; under jax.jit JAX raises them as its own. Derivatives
    by the points are NaN for costs that have none ("euclidean", "p-norm", "cosine"). Reverse mode only; a second
    derivative is an error of JAX.

    >>> import jax, monge.jax
    >>> jax.grad(lambda x: monge.jax.transport(x, jax.numpy.ones((1, 2)), reg=0.1))(jax.numpy.zeros((1, 2)))
    Array([[-2., -2.]], dtype=float32)
    """
    x, y, a, b = _floating(x), _floating(y), _optional(a), _optional(b)
    translated = solve_options(
        reg=reg, reg_type="KL", unbalanced=unbalanced, unbalanced_type="KL", method=None, max_iter=max_iter, tol=tol,
        own=options,
    )  # fmt: skip
    return _transport(x, y, a, b, metric, scale, tuple(translated.items()))


_FIELDS = ("groups", "group_weights", "l1_weights", "mask")


def _solve_regularized(cost: Any, a: Any, b: Any, regularizer: Any, weights: _Options, options: _Options) -> Any:
    """Values, plans and duals of problems (..., n, m)."""
    lead = cost.shape[:-2]

    size = math.prod(lead)

    def each(v: Any) -> Any:
        return [None] * size if v is None else np.asarray(v).reshape((size, *v.shape[len(lead) :]))

    problems = [matrix_problem(*given) for given in zip(each(cost), each(a), each(b))]
    terms = [
        Regularizer.read(**dict(weights), **dict(zip(_FIELDS, given))) for given in zip(*(each(v) for v in regularizer))
    ]
    batch = run_batch(problems, terms, dict(options), n_threads=None, progress=None)
    found = (batch.value, batch.plan, *batch.potentials)
    return tuple(np.asarray(v, cost.dtype).reshape((*lead, *np.shape(v)[1:])) for v in found)


def _call_regularized(cost: Any, a: Any, b: Any, regularizer: Any, weights: _Options, options: _Options) -> Any:
    shapes = tuple(_Shape(shape, cost.dtype) for shape in ((), cost.shape, cost.shape[:1], cost.shape[1:]))
    solve = functools.partial(_solve_regularized, weights=weights, options=options)
    return jax.pure_callback(solve, shapes, cost, a, b, regularizer, vmap_method="broadcast_all")


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def _regularized(cost: Any, a: Any, b: Any, regularizer: Any, weights: _Options, options: _Options) -> Any:
    return _call_regularized(cost, a, b, regularizer, weights, options)[:2]


def _regularized_forward(cost: Any, a: Any, b: Any, regularizer: Any, weights: _Options, options: _Options) -> Any:
    if any(leaf.perturbed for leaf in jax.tree.leaves(regularizer)):
        raise NotImplementedError("regularized_transport: has derivatives by costs and weights, not by the regulariser")
    cost, a, b, regularizer = jax.tree.map(lambda leaf: leaf.value, (cost, a, b, regularizer))
    value, *by = _call_regularized(cost, a, b, regularizer, weights, options)
    return (value, by[0]), _of_given(by, (cost, a, b))


def _regularized_backward(weights: _Options, options: _Options, by: Any, directions: Any) -> Any:
    by_value, by_plan = directions
    zero = jax.custom_derivatives.SymbolicZero
    if not isinstance(by_plan, zero):
        raise NotImplementedError("regularized_transport: the plan has no derivatives; jax.lax.stop_gradient takes it")
    return *(_scaled(by, by_value) if not isinstance(by_value, zero) else (None,) * 3), None


_regularized.defvjp(_regularized_forward, _regularized_backward, symbolic_zeros=True)


def regularized_transport(
    cost: Any,
    a: Any = None,
    b: Any = None,
    *,
    quadratic: float = 0.0,
    group_lasso: float = 0.0,
    groups: Any = None,
    group_weights: Any = None,
    l1: float = 0.0,
    l1_weights: Any = None,
    mask: Any = None,
    hypentropy: float = 0.0,
    hypentropy_width: float = 1.0,
    max_iter: int | None = None,
    tol: float | None = None,
    **options: Any,
) -> tuple[Any, Any]:
    """The value min_X <C, X> + h(X) of costs (n x m), and the plan X.

    Arguments are those of :func:`monge.solve_regularized`. The value has first derivatives, by the costs (the plan) and
    the weights (the duals), in reverse mode. The plan has none: a derivative of it, or by the regulariser, is a
    NotImplementedError, and a second one an error of JAX. jax.vmap solves a batch at once. Other errors are those of
    :func:`monge.solve_regularized`.

    Source: Lindback, Wang, Johansson 2023, section 3.3 and Appendix D.
    """
    cost, a, b = _floating(cost), _optional(a), _optional(b)
    weights = {
        "quadratic": quadratic,
        "group_lasso": group_lasso,
        "l1": l1,
        "hypentropy": hypentropy,
        "hypentropy_width": hypentropy_width,
    }
    regularizer = tuple(_optional(v) for v in (groups, group_weights, l1_weights, mask))
    translated = regularized_options(options, max_iter, tol)
    value, plan = _regularized(cost, a, b, regularizer, tuple(weights.items()), tuple(translated.items()))
    return value, plan


def _project_host(logits: Any, preset: str, options: _Options) -> Any:
    return np.asarray(project_with(projection_options(preset or None, dict(options)), np.asarray(logits)))


def _project_backward_host(logits: Any, by_out: Any, preset: str, options: _Options) -> Any:
    given, direction = (np.ascontiguousarray(v).reshape(-1, *v.shape[-2:]) for v in (logits, by_out))
    to = np.empty_like(given)
    held = projection_options(preset or None, dict(options))
    _core.project_backward(_core.cpu_session(0), given, direction, to, None, held)
    return to.reshape(logits.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _project(logits: Any, preset: str, options: _Options) -> Any:
    extra = int(projection_options(preset or None, dict(options)).dustbin)
    shape = (*logits.shape[:-2], logits.shape[-2] + extra, logits.shape[-1] + extra)
    project = functools.partial(_project_host, preset=preset, options=options)
    return jax.pure_callback(project, _Shape(shape, logits.dtype), logits, vmap_method="expand_dims")


def _project_forward(logits: Any, preset: str, options: _Options) -> Any:
    return _project(logits, preset, options), logits


def _project_backward(preset: str, options: _Options, logits: Any, by_out: Any) -> Any:
    differentiate = functools.partial(_project_backward_host, preset=preset, options=options)
    shape = _Shape(logits.shape, logits.dtype)
    return (jax.pure_callback(differentiate, shape, logits, by_out, vmap_method="expand_dims"),)


_project.defvjp(_project_forward, _project_backward)


def project(logits: Any, preset: str | None = None, **options: Any) -> Any:
    """:func:`monge.project` of `logits` (..., n, m) with its gradient, for float16 and float32; its errors, too.

    >>> import jax.numpy as jnp, monge.jax
    >>> monge.jax.project(jnp.zeros((2, 2)), "mhc_paper")
    Array([[0.5, 0.5],
           [0.5, 0.5]], dtype=float32)
    """
    return _project(jnp.asarray(logits), preset or "", tuple(options.items()))
