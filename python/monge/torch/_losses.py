"""Transport between clouds and its Sinkhorn divergence as losses of PyTorch."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._costs import LABELS, split_costs
from .._divergence import PARTS, STARTS, arrays_of_start
from .._names import CLOUDS, calls, number
from .._problem import Reg, cost_of_metric, require_potentials, solve_options, weight_of_labels
from ._loss_operators import divergence_operator, transport_operator
from ._operands import floating, require_problems, require_tensors
from ._options import to_text


def evaluate(
    operator: Callable[..., Any],
    x: Tensor,
    y: Tensor,
    a: Tensor | None,
    b: Tensor | None,
    costs: dict[str, Any],
    options: dict[str, Any],
    labels: tuple[Tensor | None, Tensor | None, Tensor | None],
    start: tuple[Tensor | None, Tensor | None] = (None, None),
) -> tuple[Tensor, Tensor, Tensor]:
    """Values and potentials of a batch. `costs`: metric, scale, norm_p and label_weight. `labels`: of x, of y, and one
    matrix of their costs."""
    cost_function, p = cost_of_metric(costs["metric"], costs["norm_p"])
    labels_x, labels_y, label_cost = labels
    label_weight = weight_of_labels(labels_x, labels_y, label_cost, costs["label_weight"])
    geometry = {"cost_function": cost_function, "norm_p": p, "scale": number("scale", costs["scale"])}
    require_problems(x.shape[0], 2, x=x, y=y)
    require_problems(x.shape[0], 1, a=a, b=b)
    if label_cost is not None:
        geometry["label_weight"] = label_weight
        require_problems(x.shape[0], 1, labels_x=labels_x, labels_y=labels_y)
        label_cost = floating(label_cost).expand(x.shape[0], *label_cost.shape)
    views = (x, y, a, b, to_text(geometry), to_text(options), labels_x, labels_y, label_cost, *start)
    value, f, g, _ = operator(*views)
    return value, f, g


def _start(
    given: Any, is_divergence: bool, x: Tensor, y: Tensor, batched: bool
) -> tuple[Tensor | None, Tensor | None]:
    """The start of an operator: float64 potentials (B, n) and (B, m), of a divergence (B, k, n) and (B, k, m).

    k is 2 with the potentials of the self terms, and 1 without.
    """
    if given is None:
        return None, None
    given = arrays_of_start(given, is_divergence)
    if is_divergence:
        require_potentials(given, STARTS, 2, 4)
    else:
        require_potentials(given, "a pair (f, g), or an OTResult", 2)

    def read(name: str, v: Any, points: Tensor) -> Tensor:
        wanted = tuple(points.shape[:2] if batched else points.shape[1:2])
        found = torch.as_tensor(v, dtype=torch.float64, device=points.device).detach()
        if tuple(found.shape) != wanted:
            raise ValueError(f"potentials_init: {name}: has shape {tuple(found.shape)}; must be {wanted}")
        return found if batched else found[None]

    parts = [read(name, v, points) for name, v, points in zip(PARTS, given, (x, y, x, y))]
    f, g = (torch.stack(parts[side::2], 1) if is_divergence else parts[side] for side in (0, 1))
    return f, g


def _loss(
    operator: Callable[..., Any],
    x: Tensor,
    y: Tensor,
    a: Tensor | None,
    b: Tensor | None,
    costs: dict[str, Any],
    options: dict[str, Any],
    potentials_init: Any,
) -> Tensor:
    labels_x, labels_y, label_cost = (costs.pop(name) for name in LABELS)
    require_tensors(x=x, y=y)
    require_tensors(True, a=a, b=b, labels_x=labels_x, labels_y=labels_y, label_cost=label_cost)
    batched = x.ndim == 3
    x, y = floating(x), floating(y)
    x, y = (v if batched else v.unsqueeze(0) for v in (x, y))
    a, b, labels_x, labels_y = (v if v is None or batched else v.unsqueeze(0) for v in (a, b, labels_x, labels_y))
    start = _start(potentials_init, operator is divergence_operator, x, y, batched)
    value, _, _ = evaluate(operator, x, y, a, b, costs, options, (labels_x, labels_y, label_cost), start)
    return value if batched else value.squeeze(0)


@calls(**CLOUDS)
def transport(
    x: Tensor,
    y: Tensor,
    a: Tensor | None = None,
    b: Tensor | None = None,
    *,
    reg: Reg = "auto",
    metric: str = "sqeuclidean",
    unbalanced: Any = None,
    max_iter: int | None = None,
    tol: float | None = None,
    potentials_init: Any = None,
    **options: Any,
) -> Tensor:
    """OT_reg of weighted clouds, differentiable: by x and y twice, by a and b once.

    Args:
        x, y: (n, d) and (m, d), or batches (B, n, d) and (B, m, d).
        a, b: (n) and (m), or (B, n) and (B, m). In a balanced problem only directions that keep sum a = sum b are
            feasible.
        reg: eps > 0, in units of the cost, or "auto", the default, for 5 % of the mean cost, a constant for
            derivatives.
        metric: As for :func:`monge.solve_sample`.
        unbalanced, max_iter, tol: As for :func:`monge.solve`.
        options: Options of the costs, :class:`monge.CostOptions`, and those of :func:`monge.solve`. Labels are (n) and
            (m), or (B, n) and (B, m), with one matrix of their costs. Values have no derivatives by them.
        potentials_init: A warm start, in units of the cost: an :class:`monge.OTResult`, or (f, g) of shapes (n) and
            (m), or (B, n) and (B, m). Values have no derivatives by it.

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
    costs, own = split_costs(options)
    translated = solve_options(own, reg, unbalanced=unbalanced, max_iter=max_iter, tol=tol)
    return _loss(transport_operator, x, y, a, b, {"metric": metric, **costs}, translated, potentials_init)


@calls(**CLOUDS)
def sinkhorn_divergence(
    x: Tensor,
    y: Tensor,
    a: Tensor | None = None,
    b: Tensor | None = None,
    *,
    reg: Reg = "auto",
    metric: str = "sqeuclidean",
    unbalanced: Any = None,
    max_iter: int | None = None,
    tol: float | None = None,
    potentials_init: Any = None,
    **options: Any,
) -> Tensor:
    """:func:`monge.sinkhorn_divergence` of weighted clouds: transport without the bias of the entropy.

    Args:
        x, y, a, b, metric, options: Clouds, weights and costs, as for :func:`transport`.
        reg: eps > 0, in units of the cost, or "auto", for all three parts.
        unbalanced: A penalty, the same on both sides.
        max_iter, tol: As for :func:`monge.solve`, for each of the three solves.
        potentials_init: A warm start, in units of the cost: a :class:`monge.DivergenceResult`, or (f, g) or (f, g,
            f_aa, f_bb), of shapes (n) and (m), or (B, n) and (B, m). Values have no derivatives by it.

    Derivatives and errors are those of :func:`transport`. ``SamplesLoss`` of p = 2 is reg=blur**2, scale=0.5 and
    unbalanced=reach**2.

    Returns:
        The value, or B of them, of the three dual values. Backward solves nothing.

    Source: Feydy et al. 2019; Sejourne et al. 2019.

    >>> import monge.torch, torch
    >>> x = torch.zeros(1, 2, requires_grad=True)
    >>> monge.torch.sinkhorn_divergence(x, torch.ones(1, 2), reg=0.1).backward()
    >>> x.grad
    tensor([[-2., -2.]])
    """
    costs, own = split_costs(options)
    translated = solve_options(own, reg, unbalanced=unbalanced, max_iter=max_iter, tol=tol)
    return _loss(divergence_operator, x, y, a, b, {"metric": metric, **costs}, translated, potentials_init)
