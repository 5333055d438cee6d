"""Entropic transport between clouds as operators of PyTorch, and SamplesLoss of GeomLoss, which is made of them.

``monge::transport`` gives values and float64 potentials. Its derivative is ``monge::transport_gradients``, the
derivatives of the values at these potentials, whose own derivative is ``monge::transport_hessian_product``. Both are
exact at the optimum (docs/math.md, section 11). The passes share nothing but the potentials.
"""

# torch.library reads the annotations, so they must not be strings.
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .. import _core
from .._arrays import Place, read
from .._names import CLOUDS, ROWS_OF_CLOUDS, UNEQUAL_TOTALS, calls, number, rename, say_rounding, shown
from .._problem import (
    WITH_POINT_DERIVATIVES,
    Problem,
    cost_of_metric,
    is_balanced,
    library_options,
    plan_options,
    solve_options,
    warn_if_short,
    with_weights,
)
from ._operands import floating, require_problems, require_tensors, require_weights
from ._operator import as_problems, differentiable, no_derivative, refuse_others, without_derivatives
from ._options import from_text, to_text
from ._points import OfPlan

_Plans = list[_core.Plan]

_OF_GEOMLOSS = {
    **ROWS_OF_CLOUDS,
    "eps": "blur",
    "annealing": "scaling",
    "penalty_a": "reach",
    "penalty_b": "reach",
    UNEQUAL_TOTALS: "reach",
    "tolerance": "tol",
    "iterations": "max_iter",
}


def _problems(
    x: Tensor, y: Tensor, a: Tensor | None, b: Tensor | None, geometry: str, options: dict[str, Any]
) -> list[Problem]:
    place = Place.of(x, x, y)
    costs = from_text(geometry)
    problems = [
        Problem(
            place,
            None if a is None else read("a", a[k]),
            None if b is None else read("b", b[k]),
            x=read("x", x[k]),
            y=read("y", y[k]),
            **costs,
        )
        for k in range(x.shape[0])
    ]
    return [with_weights(problem, options) for problem in problems]


def _solve(problems: list[Problem], starts: list[tuple[Any, Any]], options: dict[str, Any]) -> _Plans:
    given = [(p.geometry, p.a, p.b, f, g) for p, (f, g) in zip(problems, starts)]
    if not given:
        raise ValueError("x: has no problems; must have at least one")
    session = problems[0].place.session(None)
    if len(given) == 1:  # Messages then do not number the problem.
        return [_core.solve(session, *given[0], options, None)]
    return _core.solve_batch(session, given, options, None)


def _found(
    x: Tensor,
    y: Tensor,
    a: Tensor | None,
    b: Tensor | None,
    f: Tensor,
    g: Tensor,
    in_float64: Tensor,
    geometry: str,
    options: str,
) -> list[tuple[Problem, _core.Plan]]:
    """The problems, and the plans of potentials f and g, with products in the precision in which the solve ended."""
    own = plan_options(from_text(options))
    if bool(in_float64.any()):
        own["precision"] = "float64"
    problems = _problems(x, y, a, b, geometry, own)
    return list(zip(problems, _solve(problems, [(f[k], g[k]) for k in range(len(problems))], own)))


@torch.library.custom_op("monge::transport", mutates_args=())
def _transport_operator(
    x: Tensor, y: Tensor, a: Tensor | None, b: Tensor | None, geometry: str, options: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Values, f, g, and whether the solves ended in float64."""
    own = from_text(options)
    plans = _solve(_problems(x, y, a, b, geometry, own), [(None, None)] * x.shape[0], own)
    f = torch.empty(x.shape[:2], dtype=torch.float64, device=x.device)
    g = torch.empty(y.shape[:2], dtype=torch.float64, device=x.device)
    for k, plan in enumerate(plans):
        plan.potentials(f[k], g[k])
        warn_if_short(plan.report)
    values = torch.tensor([plan.report.dual for plan in plans], dtype=x.dtype, device=x.device)
    return values, f, g, torch.tensor([plan.report.precision == "float64" for plan in plans])


@_transport_operator.register_fake
def _(x, y, a, b, geometry, options):  # type: ignore[no-untyped-def]
    return (
        x.new_empty(x.shape[0]),
        x.new_empty(x.shape[:2], dtype=torch.float64),
        x.new_empty(y.shape[:2], dtype=torch.float64),
        torch.empty(x.shape[0], dtype=torch.bool),
    )


@torch.library.custom_op("monge::transport_gradients", mutates_args=())
def _gradients_operator(
    x: Tensor,
    y: Tensor,
    a: Tensor | None,
    b: Tensor | None,
    f: Tensor,
    g: Tensor,
    in_float64: Tensor,
    geometry: str,
    options: str,
    by_points: bool,
    by_weights: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Derivatives by x, y, a and b. Those that are not wanted are empty."""
    by_x, by_y = (v.new_empty(v.shape if by_points else (len(x), 0)) for v in (x, y))
    by_a, by_b = (x.new_empty(v.shape[:2] if by_weights else (len(x), 0)) for v in (x, y))
    for k, (problem, plan) in enumerate(_found(x, y, a, b, f, g, in_float64, geometry, options)):
        of_library = problem.cost_function in WITH_POINT_DERIVATIVES
        points = (by_x[k], by_y[k]) if by_points and of_library else (None, None)
        weights = (by_a[k], by_b[k]) if by_weights else (None, None)
        if by_weights or by_points and of_library:
            plan.gradients(*points, *weights)
        if by_points and not of_library:
            by_x[k], by_y[k] = OfPlan.itself(problem, plan).by_points()
    return by_x, by_y, by_a, by_b


@_gradients_operator.register_fake
def _(x, y, a, b, f, g, in_float64, geometry, options, by_points, by_weights):  # type: ignore[no-untyped-def]
    points = tuple(v.new_empty(v.shape if by_points else (x.shape[0], 0)) for v in (x, y))
    weights = tuple(x.new_empty(v.shape[:2] if by_weights else (x.shape[0], 0)) for v in (x, y))
    return points + weights


@torch.library.custom_op("monge::transport_hessian_product", mutates_args=())
def _hessian_product_operator(
    x: Tensor,
    y: Tensor,
    a: Tensor | None,
    b: Tensor | None,
    f: Tensor,
    g: Tensor,
    in_float64: Tensor,
    geometry: str,
    options: str,
    v_x: Tensor,
    v_y: Tensor,
) -> tuple[Tensor, Tensor]:
    to_x, to_y = torch.empty_like(x), torch.empty_like(y)
    # The rounding of the products bounds the residual.
    tolerance = 1e-10 if x.dtype == torch.float64 else 1e-5
    for k, (_, plan) in enumerate(_found(x, y, a, b, f, g, in_float64, geometry, options)):
        report = plan.hessian_product(read("v", v_x[k]), read("v", v_y[k]), to_x[k], to_y[k], tolerance=tolerance)
        if report.status not in ("converged", "stagnation"):
            raise RuntimeError(
                f"hessian_product: {report.status} after {report.iterations} steps, residual {report.residual:.2e}"
            )
    return to_x, to_y


@_hessian_product_operator.register_fake
def _(x, y, a, b, f, g, in_float64, geometry, options, v_x, v_y):  # type: ignore[no-untyped-def]
    return torch.empty_like(x), torch.empty_like(y)


def _save_transport(ctx: Any, inputs: Any, output: Any) -> None:
    x, y, a, b, ctx.geometry, ctx.options = inputs
    _, f, g, in_float64 = output
    ctx.save_for_backward(x, y, a, b, f, g, in_float64)
    ctx.save_for_forward(x, y, a, b, f, g, in_float64)
    without_derivatives(ctx, f, g, in_float64)
    ctx.set_materialize_grads(False)


def _transport_backward(ctx: Any, by_value: Any, *by_others: Any) -> Any:
    refuse_others("transport", "potentials have", by_others)
    if by_value is None:
        return None, None, None, None, None, None
    x, y, a, b, *found = ctx.saved_tensors
    points, weights = any(ctx.needs_input_grad[:2]), any(ctx.needs_input_grad[2:4])
    by_x, by_y, by_a, by_b = _gradients(x, y, a, b, *found, ctx.geometry, ctx.options, points, weights)
    each, row = by_value[:, None, None], by_value[:, None]
    return (
        by_x * each if points else None,
        by_y * each if points else None,
        by_a * row if weights and a is not None else None,
        by_b * row if weights and b is not None else None,
        None,
        None,
    )


def _transport_forward_mode(ctx: Any, v_x: Any, v_y: Any, v_a: Any, v_b: Any, *others: Any) -> Any:
    points, weights = v_x is not None or v_y is not None, v_a is not None or v_b is not None
    by = _gradients(*ctx.saved_tensors, ctx.geometry, ctx.options, points, weights)
    parts = [(g * v).flatten(1).sum(1) for g, v in zip(by, (v_x, v_y, v_a, v_b)) if v is not None]
    f, g = ctx.saved_tensors[4:6]
    return sum(parts), torch.full_like(f, math.nan), torch.full_like(g, math.nan), None


def _save_gradients(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, ctx.geometry, ctx.options, _, ctx.by_weights = inputs
    ctx.save_for_backward(*tensors)
    ctx.save_for_forward(*tensors)
    ctx.set_materialize_grads(False)


def _second(ctx: Any, v_x: Any, v_y: Any, weights: bool) -> tuple[Tensor, Tensor]:
    """The product of the Hessian, which is symmetric, and a direction."""
    if weights:
        raise NotImplementedError("transport: second derivatives are by the points only; detach the weights")
    if from_text(ctx.geometry)["cost_function"] not in WITH_POINT_DERIVATIVES:
        raise NotImplementedError("transport: has second derivatives for the metrics sqeuclidean and dot alone")
    x, y, a, b, *found = ctx.saved_tensors
    v_x, v_y = (torch.zeros_like(p) if v is None else v for v, p in ((v_x, x), (v_y, y)))
    return _hessian_product(x, y, a, b, *found, ctx.geometry, ctx.options, v_x, v_y)  # type: ignore[no-any-return]


def _gradients_backward(ctx: Any, v_x: Any, v_y: Any, v_a: Any, v_b: Any) -> Any:
    weights = any(ctx.needs_input_grad[2:4]) or v_a is not None or v_b is not None
    return *_second(ctx, v_x, v_y, weights), *[None] * 9


def _gradients_forward_mode(ctx: Any, v_x: Any, v_y: Any, v_a: Any, v_b: Any, *others: Any) -> Any:
    weights = ctx.by_weights or v_a is not None or v_b is not None
    by_x, by_y = _second(ctx, v_x, v_y, weights)
    none = by_x.new_zeros(by_x.shape[0], 0)
    return by_x, by_y, none, none


_transport = differentiable(
    "transport",
    _transport_operator,
    save=_save_transport,
    backward=_transport_backward,
    forward_mode=_transport_forward_mode,
    batched=as_problems,
)
_gradients = differentiable(
    "transport",
    _gradients_operator,
    save=_save_gradients,
    backward=_gradients_backward,
    forward_mode=_gradients_forward_mode,
    batched=as_problems,
)
_hessian_product = differentiable(
    "transport",
    _hessian_product_operator,
    backward=no_derivative("transport", "third derivatives"),
    forward_mode=no_derivative("transport", "third derivatives"),
    batched=as_problems,
)


def _transport_batch(
    x: Tensor,
    y: Tensor,
    a: Tensor | None,
    b: Tensor | None,
    metric: str,
    scale: float,
    norm_p: float | None,
    options: dict[str, Any],
) -> tuple[Tensor, Tensor, Tensor]:
    cost_function, p = cost_of_metric(metric, norm_p)
    geometry = {"cost_function": cost_function, "norm_p": p, "scale": number("scale", scale)}
    require_problems(x.shape[0], 2, x=x, y=y)
    require_problems(x.shape[0], 1, a=a, b=b)
    value, f, g, _ = _transport(x, y, a, b, to_text(geometry), to_text(options))
    return value, f, g


@calls(**CLOUDS)
def transport(
    x: Tensor,
    y: Tensor,
    a: Tensor | None = None,
    b: Tensor | None = None,
    *,
    reg: float,
    metric: str = "sqeuclidean",
    scale: float = 1.0,
    norm_p: float | None = None,
    unbalanced: Any = None,
    max_iter: int | None = None,
    tol: float | None = None,
    **options: Any,
) -> Tensor:
    """OT_reg of weighted clouds, differentiable: by x and y twice ("sqeuclidean", "dot"), by a and b once.

    Args:
        x, y: (n, d) and (m, d), or batches (B, n, d) and (B, m, d).
        a, b: (n) and (m), or (B, n) and (B, m). In a balanced problem only directions that keep sum a = sum b are
            feasible.
        reg: eps > 0, in units of the cost.
        metric, scale, norm_p: As for :func:`monge.solve_sample`.
        unbalanced, max_iter, tol, options: As for :func:`monge.solve`.

    Returns:
        The dual value, or B of them. The gradients are its derivatives.

    Raises:
        NotImplementedError: A derivative that is not supported. ValueError: An argument is wrong.

    Source: Cuturi 2013; docs/math.md, section 11, for the second derivative.

    >>> import monge.torch, torch
    >>> x = torch.zeros(1, 2, requires_grad=True)
    >>> monge.torch.transport(x, torch.ones(1, 2), reg=0.1).backward()
    >>> x.grad
    tensor([[-2., -2.]])
    """
    translated = solve_options(options, reg, unbalanced=unbalanced, max_iter=max_iter, tol=tol)
    require_tensors(x=x, y=y)
    require_tensors(True, a=a, b=b)
    batched = x.ndim == 3
    x, y = floating(x), floating(y)
    x, y, a, b = (v if v is None or batched else v.unsqueeze(0) for v in (x, y, a, b))  # type: ignore[assignment]
    value, _, _ = _transport_batch(x, y, a, b, metric, scale, norm_p, translated)
    return value if batched else value[0]


def _power(name: str, length: Any, p: int) -> float:
    value = number(name, length)
    if not value > 0:
        raise ValueError(f"{name}: is {length}; must be > 0")
    try:
        power = value**p
    except OverflowError:
        power = math.inf
    if power == 0 or (math.isinf(power) and math.isfinite(value)):
        raise ValueError(f"{name}: is {length}; its power {p} must be a number > 0")
    return power


def _uniform(points: Tensor, other: Tensor) -> Tensor:
    """Weights of a missing side of a balanced problem: uniform, with the total of the other side."""
    return other.detach().sum(1, keepdim=True).expand(points.shape[:2]) / points.shape[1]


class SamplesLoss(torch.nn.Module):
    """``SamplesLoss("sinkhorn")`` of GeomLoss, solved to a tolerance: the Sinkhorn divergence of samples.

    Costs are |x - y|^2 / 2 for p = 2 and |x - y| for p = 1. eps is blur^p, and the penalty of unbalanced transport is
    reach^p. Values are those of GeomLoss in the limit of scaling 1: here the last sweeps are at eps itself and go on to
    the tolerance. First derivatives are exact, and for p = 2 second ones. For p = 1 the derivative of a distance 0 is
    taken as 0.

    Args:
        loss: "sinkhorn" alone.
        p, blur, reach, debias: As in GeomLoss. Without debias the value is OT_eps(a, b), where (m_a + m_b) / 2 replaces
            the product m_a m_b of the masses in KL(P | a b^T).
        scaling: The factor between successive blurs, for problems that are solved at larger blurs first.
        potentials: Whether to return the dual potentials (F, G) instead of the value.
        diameter, truncate, cluster_scale, kernel, backend, verbose: Arguments of GeomLoss without effect.
        cost: An argument of GeomLoss, which must be None.
        tol, max_iter, options: As for :func:`monge.solve`.

    Called as ``loss(x, y)`` or ``loss(a, x, b, y)`` with (n, d) or (B, n, d) points.
    """

    def __init__(
        self,
        loss: str = "sinkhorn",
        p: int = 2,
        blur: float = 0.05,
        reach: float | None = None,
        diameter: float | None = None,
        scaling: float = 0.5,
        truncate: float | None = 5,
        cost: Callable[..., Any] | None = None,
        kernel: Callable[..., Any] | None = None,
        cluster_scale: float | None = None,
        debias: bool = True,
        potentials: bool = False,
        verbose: bool = False,
        backend: str = "auto",
        *,
        tol: float | None = None,
        max_iter: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        del diameter, truncate, kernel, cluster_scale, verbose, backend
        if not isinstance(loss, str) or loss != "sinkhorn":
            raise NotImplementedError(f"loss: is {shown(loss)}; must be 'sinkhorn'")
        if number("p", p) not in (1, 2):
            raise NotImplementedError(f"p: is {p}; must be 1 or 2")
        if cost is not None:
            raise NotImplementedError("cost: is given; must be one of the costs of p = 1 and 2")
        eps, penalty = _power("blur", blur, p), math.inf if reach is None else _power("reach", reach, p)
        if not 0 < number("scaling", scaling) <= 1:
            raise ValueError(f"scaling: is {scaling}; must be in (0, 1]")
        self.p, self.blur, self.reach, self.debias, self.potentials = p, blur, reach, debias, potentials
        self.options = {
            "eps": eps,
            "annealing": float(scaling) ** p,
            "penalty_a": penalty,
            "penalty_b": penalty,
            **library_options(options, tolerance=("tol", tol), iterations=("max_iter", max_iter)),
        }
        self._names = {field: name for field, name in _OF_GEOMLOSS.items() if field not in options}

    def forward(self, *args: Tensor) -> Any:
        """The value, or B of them, or the potentials: `args` are x, y or a, x, b, y, points (n, d) or (B, n, d)."""
        if len(args) == 2:
            x, y = args
            a = b = None
        elif len(args) == 4:
            a, x, b, y = args
        else:
            raise TypeError(f"SamplesLoss: takes (x, y) or (a, x, b, y); was given {len(args)} tensors")
        require_tensors(x=x, y=y)
        require_tensors(True, a=a, b=b)
        batched = x.ndim == 3
        if x.ndim not in (2, 3):
            raise ValueError(f"x: has shape {tuple(x.shape)}; must be (n, d) or (B, n, d)")
        if y.ndim != x.ndim:
            raise ValueError(f"y: has shape {tuple(y.shape)}; must have {x.ndim} dimensions, as x has")
        require_weights(a=(a, x), b=(b, y))
        given = a, b
        shape_a, shape_b = x.shape[:-1] if a is None else a.shape, y.shape[:-1] if b is None else b.shape
        lead = x.shape[0] if batched else 1
        x, y = floating(x), floating(y)
        x, y = (v if batched else v.unsqueeze(0) for v in (x, y))
        a, b = (None if v is None else floating(v).reshape(lead, -1) for v in (a, b))
        value, f, g = self._solve(x, y, a, b, given)
        balanced = is_balanced(self.options)
        if balanced and a is None and b is not None:
            a = _uniform(x, b)
        elif balanced and b is None and a is not None:
            b = _uniform(y, a)
        if self.debias:
            value_x, f_x, g_x = self._solve(x, x, a, a)
            value_y, f_y, g_y = self._solve(y, y, b, b)
            value = value - (value_x + value_y) / 2
            f, g = f - (f_x + g_x) / 2, g - (f_y + g_y) / 2
        if (a is not None or b is not None) and not (balanced and self.debias):
            value = value + self._of_masses(a, b).to(value.dtype)
        if self.potentials:
            return f.to(x.dtype).reshape(shape_a), g.to(x.dtype).reshape(shape_b)
        return value if batched else value[0]

    def _of_masses(self, a: Tensor | None, b: Tensor | None) -> Any:
        """GeomLoss's value minus that of the solves. KL(P | a b^T) has the term m_a m_b - mass of P, in the place of
        which GeomLoss has (m_a + m_b) / 2 - mass of P. With debias the terms of three solves sum to (m_a - m_b)^2 / 2.
        """
        mass_a, mass_b = (1 if v is None else v.sum(1) for v in (a, b))
        excess = (mass_a - mass_b) ** 2 / 2 if self.debias else (mass_a + mass_b) / 2 - mass_a * mass_b
        return self.options["eps"] * excess

    def _solve(
        self, x: Tensor, y: Tensor, a: Tensor | None, b: Tensor | None, given: tuple[Tensor | None, ...] = ()
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`given`: the weights in the caller's dtype, for messages."""
        metric, scale = ("sqeuclidean", 0.5) if self.p == 2 else ("euclidean", 1.0)
        try:
            return _transport_batch(x, y, a, b, metric, scale, None, self.options)
        except (ValueError, TypeError, NotImplementedError) as error:
            rename(error, self._names)
            say_rounding(error, given)
            raise
