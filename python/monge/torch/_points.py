"""Costs of points in PyTorch, and derivatives by points of sum_ij W_ij C_ij.

Squared distances and dot products are products of narrow matrices, C = l r^T, so theirs are products by W. Those of the
other costs are PyTorch's own, of a block of rows of C at a time: memory is that of the block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from .._problem import Problem

PRODUCTS = ("sqeuclidean", "dot")
_BLOCK = 1 << 22  # Entries.


def with_ones(v: Tensor) -> Tensor:
    """1, and the columns of v."""
    return torch.cat([torch.ones_like(v[:, :1]), v], 1)


def points(problem: Problem) -> tuple[Tensor, Tensor]:
    """In float64. Squared distances are of points near the origin: offsets would be what is rounded."""
    x, y = (torch.as_tensor(v, device=problem.place.device).double() for v in (problem.x, problem.y))
    return (x - y.mean(0), y - y.mean(0)) if problem.cost_function == "sqeuclidean" else (x, y)


def cost_factors(problem: Problem) -> tuple[Tensor, Tensor] | None:
    """l (n x k) and r (m x k) with C = l r^T, where the costs have them."""
    x, y = points(problem)
    if problem.cost_function == "sqeuclidean":
        left = torch.cat([x.square().sum(1, keepdim=True), torch.ones_like(x[:, :1]), -2 * x], 1)
        right = torch.cat([torch.ones_like(y[:, :1]), y.square().sum(1, keepdim=True), y], 1)
    elif problem.cost_function == "dot":
        left, right = -x, y
    else:
        return None
    left = problem.scale * left
    if problem.label_cost is None:
        return left, right
    labels_x, labels_y, table = _labels(problem, x)
    one_hot = torch.eye(table.shape[1], dtype=x.dtype, device=x.device)
    return torch.cat([left, table[labels_x]], 1), torch.cat([right, one_hot[labels_y]], 1)


def _labels(problem: Problem, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    labels_x, labels_y, table = (
        torch.as_tensor(v, device=like.device) for v in (problem.labels_x, problem.labels_y, problem.label_cost)
    )
    return labels_x, labels_y, problem.label_weight * table.double()


def cost_blocks(problem: Problem, follow: bool = False) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
    """Rows, their costs, and the points that these were made of; with `follow` autograd knows it."""
    x, y = points(problem)
    step = max(1, _BLOCK // len(y))
    for begin in range(0, len(x), step):
        rows = slice(begin, begin + step)
        own, other = (v.detach().requires_grad_(follow) for v in (x[rows], y))
        with torch.set_grad_enabled(follow):
            cost = problem.scale * _distances(problem, own, other)
            if problem.label_cost is not None:
                labels_x, labels_y, table = _labels(problem, x)
                cost = cost + table[labels_x[rows]][:, labels_y]
        yield rows, cost, own, other


def _distances(problem: Problem, x: Tensor, y: Tensor) -> Tensor:
    if problem.cost_function == "cosine":
        return 1 - torch.nn.functional.normalize(x, dim=1) @ torch.nn.functional.normalize(y, dim=1).T
    p = 2.0 if problem.cost_function == "euclidean" else problem.norm_p
    return torch.cdist(x, y, p, compute_mode="donot_use_mm_for_euclid_dist")


def plan_rows(f: Tensor, g: Tensor, a: Tensor, b: Tensor, eps: float) -> Callable[[slice, Tensor], Tensor]:
    """Rows of P in float64, given their numbers and their costs."""
    return lambda rows, cost: a[rows, None] * b * ((f[rows, None] + g - cost) / eps).exp()


def by_products(
    problem: Problem, times: Callable[[Tensor], Tensor], transposed_times: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """By x and y, given products by W and by its transpose."""
    x, y = points(problem)
    if problem.cost_function == "dot":
        return -problem.scale * times(y), -problem.scale * transposed_times(x)
    of_x, of_y = times(with_ones(y)), transposed_times(with_ones(x))
    return (
        2 * problem.scale * (of_x[:, :1] * x - of_x[:, 1:]),
        2 * problem.scale * (of_y[:, :1] * y - of_y[:, 1:]),
    )


def by_blocks(problem: Problem, rows_of: Callable[[slice, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """By x and y, given W's rows by their numbers and their costs. Where a distance is 0 its derivative counts as 0."""
    by_x, by_y = (torch.zeros_like(v) for v in points(problem))
    for rows, cost, own, other in cost_blocks(problem, follow=True):
        by_x[rows], part = torch.autograd.grad(cost, (own, other), rows_of(rows, cost.detach()))
        by_y += part
    return by_x, by_y
