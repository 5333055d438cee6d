"""Regularised transport as an operator of PyTorch, and RDROT's two functions.

``monge::regularized_transport`` gives values, plans and dual potentials. The derivative of a value by the costs is the
plan, by the weights the dual potentials (Lindback, Wang, Johansson 2023, section 3.3). So the backward pass only scales
outputs of the forward pass.
"""

# torch.library reads the annotations, so they must not be strings.
import math
from typing import Any

import torch
from torch import Tensor

from .._names import REGULARIZED, calls, number, whole
from .._problem import matrix_problem
from .._regularized import Regularizer, regularized_options, run_each, solve_regularized
from ._operands import floating, require_problems, require_tensors
from ._operator import as_problems, differentiable, no_derivative, refuse_others, without_derivatives
from ._options import from_text, to_text

_NOT_BY_REGULARISER = "regularized_transport: has derivatives by costs and weights; detach the regulariser"


@torch.library.custom_op("monge::regularized_transport", mutates_args=())
def _transport_operator(
    cost: Tensor,
    a: Tensor | None,
    b: Tensor | None,
    groups: Tensor | None,
    group_weights: Tensor | None,
    l1_weights: Tensor | None,
    mask: Tensor | None,
    weights: str,
    options: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Values (B), plans (B, n, m), u (B, n) and v (B, m)."""
    batch, n, m = cost.shape
    problems = [matrix_problem(cost[k], *(None if w is None else w[k] for w in (a, b))) for k in range(batch)]
    arrays = {"groups": groups, "group_weights": group_weights, "l1_weights": l1_weights, "mask": mask}
    # The backward refuses arrays that need gradients.
    detached = {name: None if v is None else v.detach() for name, v in arrays.items()}
    regularizer = Regularizer.read(**detached, **from_text(weights))
    results = run_each(problems, [regularizer] * batch, from_text(options))
    plan, u, v = cost.new_empty(batch, n, m), cost.new_empty(batch, n), cost.new_empty(batch, m)
    for k, result in enumerate(results):
        result._plan.dense(plan[k])
        result._plan.potentials(u[k], v[k])
    return cost.new_tensor([result.report.primal for result in results]), plan, u, v


@_transport_operator.register_fake
def _(cost, a, b, groups, group_weights, l1_weights, mask, weights, options):  # type: ignore[no-untyped-def]
    batch, n, m = cost.shape
    return cost.new_empty(batch), cost.new_empty(batch, n, m), cost.new_empty(batch, n), cost.new_empty(batch, m)


@torch.library.custom_op("monge::regularized_gradients", mutates_args=())
def _gradients_operator(
    by_value: Tensor, plan: Tensor, u: Tensor, v: Tensor, cost: Tensor, a: Tensor | None, b: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Derivatives by the costs, a and b, which are inputs so that autograd sees second derivatives by them."""
    return plan * by_value[:, None, None], u * by_value[:, None], v * by_value[:, None]


@_gradients_operator.register_fake
def _(by_value, plan, u, v, cost, a, b):  # type: ignore[no-untyped-def]
    return torch.empty_like(plan), torch.empty_like(u), torch.empty_like(v)


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    cost, a, b, *_ = inputs
    _, plan, u, v = output
    ctx.save_for_backward(plan, u, v, cost, a, b)
    ctx.save_for_forward(plan, u, v, cost, a, b)
    without_derivatives(ctx, plan, u, v)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, by_value: Any, *by_others: Any) -> Any:
    if any(ctx.needs_input_grad[3:7]):
        raise NotImplementedError(_NOT_BY_REGULARISER)
    refuse_others("regularized_transport", "the plan has", by_others)
    if by_value is None:
        return (None,) * 9
    by = _gradients(by_value, *ctx.saved_tensors)
    return *(g if wanted else None for g, wanted in zip(by, ctx.needs_input_grad[:3])), *[None] * 6


def _forward_mode(ctx: Any, *tangents: Any) -> Any:
    if any(v is not None for v in tangents[3:7]):
        raise NotImplementedError(_NOT_BY_REGULARISER)
    plan, u, v, *given = ctx.saved_tensors
    by = _gradients(torch.ones_like(u[:, 0]), plan, u, v, *given)
    parts = [(g * w).flatten(1).sum(1) for g, w in zip(by, tangents) if w is not None]
    return sum(parts), *(torch.full_like(w, math.nan) for w in (plan, u, v))


def _batched(call: Any, size: int, dimensions: Any, given: Any) -> Any:
    if any(at is not None for at in dimensions[3:7]):
        raise NotImplementedError("regularized_transport: vmap goes over costs and weights; the regulariser is one")

    def problems(cost: Tensor, a: Tensor | None, b: Tensor | None) -> Any:
        return call(cost, a, b, *given[3:])

    return as_problems(problems, size, dimensions[:3], given[:3])


_transport = differentiable(
    "regularized_transport",
    _transport_operator,
    save=_save,
    backward=_backward,
    forward_mode=_forward_mode,
    batched=_batched,
)
_gradients = differentiable(
    "regularized_transport",
    _gradients_operator,
    backward=no_derivative("regularized_transport", "second derivatives"),
    forward_mode=no_derivative("regularized_transport", "second derivatives"),
    batched=as_problems,
)


@calls(**(REGULARIZED | {"cost": "cost", "C": "cost", "M": "cost", "batch": "cost"}))
def regularized_transport(
    cost: Tensor,
    a: Tensor | None = None,
    b: Tensor | None = None,
    *,
    quadratic: float | None = None,
    group_lasso: float | None = None,
    groups: Tensor | None = None,
    group_weights: Tensor | None = None,
    l1: float | None = None,
    l1_weights: Tensor | None = None,
    mask: Tensor | None = None,
    hypentropy: float | None = None,
    hypentropy_width: float | None = None,
    max_iter: int | None = None,
    tol: float | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor]:
    """The value min_X <C, X> + h(X), differentiable by costs and weights, and the plan X.

    Args:
        cost: (n, m), or a batch (B, n, m).
        a, b: (n) and (m), or (B, n) and (B, m). Only directions that keep sum a = sum b are feasible.
        All else: as for :func:`monge.solve_regularized`; a batch has one regulariser.

    Returns:
        The value, or B of them, and the plan, which is the derivative of the value by the costs. The plan itself has no
        derivatives.

    Raises:
        NotImplementedError: A second derivative, or one by the regulariser. ValueError: An argument is wrong.

    Source: Lindback, Wang, Johansson 2023, section 3.3 and Appendix D.
    """
    weights = dict(
        quadratic=quadratic, group_lasso=group_lasso, l1=l1, hypentropy=hypentropy, hypentropy_width=hypentropy_width
    )
    weights = {name: number(name, weight) for name, weight in weights.items() if weight is not None}
    require_tensors(cost=cost)
    require_tensors(True, a=a, b=b, groups=groups, group_weights=group_weights, l1_weights=l1_weights, mask=mask)
    translated = regularized_options(options, max_iter, tol)
    batched = cost.ndim == 3
    cost = floating(cost)
    cost, a, b = (v if v is None or batched else v.unsqueeze(0) for v in (cost, a, b))  # type: ignore[assignment]
    require_problems(cost.shape[0], 2, cost=cost)
    require_problems(cost.shape[0], 1, a=a, b=b)
    value, plan, _, _ = _transport(
        cost, a, b, groups, group_weights, l1_weights, mask, to_text(weights), to_text(translated)
    )
    return (value, plan) if batched else (value[0], plan[0])


_RDROT = {
    "M": "c",
    "cost": "c: transposed",
    "row of M": "column of c",
    "column of M": "row of c",
    "a": "p",
    "b": "q",
    "tolerance": "eps",
    "iterations": "max_iter",
    "step": "rho",
    "quadratic": "r_weight",
    "group_lasso": "r_weight",
}


def _sizes(c: Tensor, p: Tensor, q: Tensor) -> tuple[int, int]:
    require_tensors(c=c, p=p, q=q)
    for name, values, dimensions in (("c", c, 2), ("p", p, 1), ("q", q, 1)):
        if values.ndim != dimensions:
            raise ValueError(f"{name}: has {values.ndim} dimensions; must have {dimensions}")
    return len(p), len(q)


def _drot(
    c: Tensor,
    p: Tensor,
    q: Tensor,
    rho: float,
    max_iter: int,
    eps: float,
    groups: Tensor | None = None,
    **weight: float,
) -> Tensor:
    """The iterations of RDROT with its criterion, an absolute residual. Its costs have a row for each entry of q."""
    size = float(torch.cat((p, q)).double().norm())
    result = solve_regularized(
        c.T,
        p,
        q,
        groups=groups,
        method="splitting",
        criterion="residual",
        tolerance=number("eps", eps) / size,
        iterations=max_iter,
        step=rho,
        **weight,  # type: ignore[arg-type]
    )
    plan: Tensor = result.plan
    return plan.T


@calls(**_RDROT)
def quadratic_drot(
    c: Tensor,
    p: Tensor,
    q: Tensor,
    rho: float = 2.0,
    r_weight: float = 0.0,
    max_iter: int = 20000,
    eps: float = 1e-4,
) -> Tensor:
    """RDROT's function of this name: the plan of h = (n + m) r_weight / 2 |X|^2, without derivatives.

    Args:
        c: Costs (m, n) with largest entry 1.
        p, q: Weights (n) and (m), with total 1.
        rho: The step is rho / (n + m).
        r_weight: Weight >= 0 of the term, in units of c over mass.
        max_iter, eps: The largest number of iterations, and the absolute residual of the marginals, |.|_2, at which to
            stop.

    Returns:
        X (m, n). :func:`regularized_transport` gives the value with its derivatives.
    """
    n, m = _sizes(c, p, q)
    return _drot(c, p, q, rho, max_iter, eps, quadratic=(n + m) * number("r_weight", r_weight))


@calls(**_RDROT)
def group_lasso_drot(
    c: Tensor,
    p: Tensor,
    q: Tensor,
    n_class: int,
    rho: float = 2.0,
    r_weight: float = 0.0,
    max_iter: int = 20000,
    eps: float = 1e-4,
) -> Tensor:
    """RDROT's function of this name: the plan of a group lasso, whose groups are `n_class` equal runs of the n entries
    of p.

    Its weight is `r_weight` (n + m) sqrt(n / n_class) / rho: in RDROT it depends on the step. All else is as in
    :func:`quadratic_drot`.
    """
    n, m = _sizes(c, p, q)
    n_class = whole("n_class", n_class, 1, n)
    begin = (n / n_class * torch.arange(1, n_class) + 0.49999).floor()
    groups = torch.bucketize(torch.arange(n), begin, right=True)
    if not number("rho", rho) > 0:
        raise ValueError(f"rho: is {rho}; must be > 0")
    weight = number("r_weight", r_weight) * (n + m) * (n / n_class) ** 0.5 / rho
    return _drot(c, p, q, rho, max_iter, eps, groups, group_lasso=weight)
