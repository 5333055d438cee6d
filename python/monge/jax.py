"""Monge for JAX: a loss and the projection, with derivatives that jax.grad and jax.jit know.

Work is done in host memory by a callback, whatever JAX's device is; shapes and dtypes are those of the inputs.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import _core
from ._problem import points_problem, solve_options
from ._projection import project_with, projection_options
from ._solve import run

__all__ = ["project", "transport"]

_Options = tuple[tuple[str, Any], ...]
_Shape: Any = jax.ShapeDtypeStruct  # Which has no types.


def _solve(x: Any, y: Any, a: Any, b: Any, metric: str, scale: float, options: _Options) -> Any:
    """The result, and its value and gradients of it by all four."""
    arrays = [np.asarray(v) for v in (x, y, a, b)]
    problem = points_problem(arrays[0], arrays[1], arrays[2], arrays[3], metric, scale=scale)
    result = run(problem, dict(options))
    gradients = result.gradients()
    by_points = [np.full_like(v, np.nan) if g is None else g for v, g in zip(arrays, (gradients.x, gradients.y))]
    values = [np.asarray(result.report.dual), *by_points, gradients.a, gradients.b]
    return tuple(v.astype(arrays[0].dtype) for v in values)


def _call(x: Any, y: Any, a: Any, b: Any, metric: str, scale: float, options: _Options) -> Any:
    shapes = tuple(_Shape(v.shape, x.dtype) for v in (jnp.zeros(()), x, y, a, b))
    solve = functools.partial(_solve, metric=metric, scale=scale, options=options)
    return jax.pure_callback(solve, shapes, x, y, a, b, vmap_method="sequential")


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5, 6))
def _transport(x: Any, y: Any, a: Any, b: Any, metric: str, scale: float, options: _Options) -> Any:
    return _call(x, y, a, b, metric, scale, options)[0]


def _forward(x: Any, y: Any, a: Any, b: Any, metric: str, scale: float, options: _Options) -> Any:
    value, *gradients = _call(x, y, a, b, metric, scale, options)
    return value, gradients


def _backward(metric: str, scale: float, options: _Options, gradients: Any, by_value: Any) -> Any:
    return tuple(by_value * g for g in gradients)


_transport.defvjp(_forward, _backward)


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
    """OT_reg of weighted clouds x (n x d) and y (m x d), with its first derivatives by points and weights.

    Arguments are those of :func:`monge.solve_sample`. Derivatives by the points are NaN for costs that have none
    ("euclidean", "p-norm", "cosine"). Reverse mode only; a second derivative is an error of JAX.
    """
    x, y = jnp.asarray(x), jnp.asarray(y)
    a = jnp.full(x.shape[0], 1 / x.shape[0], x.dtype) if a is None else jnp.asarray(a)
    b = jnp.full(y.shape[0], 1 / y.shape[0], x.dtype) if b is None else jnp.asarray(b)
    translated = solve_options(
        reg=reg, reg_type="KL", unbalanced=unbalanced, unbalanced_type="KL", method=None, max_iter=max_iter, tol=tol,
        own=options,
    )  # fmt: skip
    return _transport(x, y, a, b, metric, scale, tuple(translated.items()))


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
    """:func:`monge.project` with its gradient, for float16 and float32."""
    return _project(jnp.asarray(logits), preset or "", tuple(options.items()))
