"""Derivatives by points of sum_ij W_ij C_ij, for matrices W that a plan makes.

Where costs are products of narrow matrices, C = l r^T, the derivatives are products with W, which the library computes
without forming W. For norms they are computed from one block of rows of W and C at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _core
from .._problem import Problem

_PRODUCTS = ("sqeuclidean", "dot", "cosine")
_BLOCK = {"cpu": 1 << 15, "cuda": 1 << 22}
"""Entries of a block of rows, of which about eight arrays are in memory. They fit into a cache of a CPU, and PyTorch
computes with up to 2^15 entries on one thread, without waiting for others. A GPU needs large arrays."""
LEAST_MASS = torch.finfo(torch.float64).tiny
"""A point of less mass counts as a point without mass: reciprocals of such numbers overflow."""


def with_ones(v: Tensor) -> Tensor:
    """A column of ones, and the columns of v."""
    return torch.cat([torch.ones_like(v[:, :1]), v], 1)


def filled(problem: Problem, value: float) -> tuple[Tensor, Tensor]:
    """A number for each source and for each target, in float64."""
    n, m = problem.geometry.rows, problem.geometry.columns
    rows, columns = (torch.full((k,), value, dtype=torch.float64, device=problem.place.device) for k in (n, m))
    return rows, columns


def weights_of(problem: Problem) -> tuple[Tensor, Tensor]:
    """a and b in float64."""
    a, b = (torch.as_tensor(side, device=problem.place.device).double() for side in problem.weights)
    return a, b


def dense(problem: Problem, plan: _core.Plan) -> Tensor:
    """P, in float64 if the plan's products are."""
    to: Tensor = problem.place.empty(plan.rows, plan.columns)
    if plan.report.precision == "float64":
        to = to.double()
    plan.dense(to)
    return to


class Dense:
    """W, entry by entry."""

    def __init__(self, problem: Problem, entries: Tensor) -> None:
        self._problem, self.entries = problem, entries

    def by_points(self) -> tuple[Tensor, Tensor]:
        if self._problem.cost_function not in _PRODUCTS:
            return _by_blocks(self._problem, lambda block: self.entries[block.rows].double())
        wide = self.entries.double()
        return _by_products(self._problem, lambda v: wide @ v, lambda v: wide.T @ v)


class OfEntries:
    """W of few entries: their i, j and W_ij."""

    def __init__(self, problem: Problem, entries: tuple[Any, Any, Any]) -> None:
        self._problem = problem
        self._rows, self._columns, self._values = (torch.as_tensor(v, device=problem.place.device) for v in entries)

    def by_points(self) -> tuple[Tensor, Tensor]:
        x, y = (v.detach().requires_grad_() for v in _points(self._problem))
        by_x, by_y = torch.zeros_like(x), torch.zeros_like(y)
        step = _rows_of_block(x, x.shape[1])
        for begin in range(0, len(self._values), step):
            rows, columns, values = (v[begin : begin + step] for v in (self._rows, self._columns, self._values))
            with torch.enable_grad():
                total = (values * _pair_costs(self._problem, x[rows], y[columns])).sum()
            for to, found in zip((by_x, by_y), torch.autograd.grad(total, (x, y))):
                to += self._problem.scale * found
        return by_x, by_y


class OfPlan:
    """W = P o (l r^T + factor C), not formed."""

    def __init__(self, problem: Problem, plan: _core.Plan, left: Tensor, right: Tensor, factor: float = 0.0) -> None:
        self._problem, self._plan, self._factor = problem, plan, factor
        self._left, self._right = left.contiguous(), right.contiguous()

    @property
    def entries(self) -> Tensor:
        """P o (l r^T), dense, without the term of the factor."""
        plan = dense(self._problem, self._plan)
        return plan * (self._left @ self._right.T).to(plan.dtype)

    def times(self, v: Tensor) -> Tensor:
        to = v.new_empty(len(self._left), v.shape[1])
        self._plan.apply_hadamard(self._left, self._right, v.contiguous(), to)
        return to

    def transposed_times(self, v: Tensor) -> Tensor:
        to = v.new_empty(len(self._right), v.shape[1])
        self._plan.apply_hadamard_transpose(self._left, self._right, v.contiguous(), to)
        return to

    def by_points(self) -> tuple[Tensor, Tensor]:
        if self._problem.cost_function in _PRODUCTS:
            return _by_products(self._problem, self.times, self.transposed_times)
        if self._factor == 0:
            x, y = _points(self._problem)
            by_x, by_y = torch.empty_like(x), torch.empty_like(y)
            self._plan.cost_gradients(self._left, self._right, by_x, by_y)
            return by_x, by_y
        plan_of = _plan_blocks(self._problem, self._plan)

        def tilted(block: _Block) -> Tensor:
            factors = self._left[block.rows] @ self._right.T
            return plan_of(block) * factors.add_(block.cost, alpha=self._factor)

        return _by_blocks(self._problem, tilted)


def cost_factors(problem: Problem) -> tuple[Tensor, Tensor] | None:
    """l (n x k) and r (m x k) with C = l r^T; None if there are none."""
    if problem.cost_function not in _PRODUCTS:
        return None
    x, y = _points(problem)
    if problem.cost_function == "sqeuclidean":
        left = torch.cat([x.square().sum(1, keepdim=True), torch.ones_like(x[:, :1]), -2 * x], 1)
        right = torch.cat([torch.ones_like(y[:, :1]), y.square().sum(1, keepdim=True), y], 1)
    elif problem.cost_function == "dot":
        left, right = -x, y
    else:
        left, right = with_ones(-_directions(x)), with_ones(_directions(y))
    left = problem.scale * left
    if problem.label_cost is None:
        return left, right
    labels_x, labels_y, table = _labels(problem)
    one_hot = torch.eye(table.shape[1], dtype=x.dtype, device=x.device)
    return torch.cat([left, table[labels_x]], 1), torch.cat([right, one_hot[labels_y]], 1)


def _labels(problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """The labels of sources and of targets, and the term of the cost for each pair of labels, in float64."""
    x, y, table = (
        torch.as_tensor(v, device=problem.place.device)
        for v in (problem.labels_x, problem.labels_y, problem.label_cost)
    )
    return x, y, problem.label_weight * table.double()


def cost_sums(problem: Problem, plan: _core.Plan) -> tuple[Tensor, Tensor]:
    """Over the rows and over the columns of P o C."""
    factors = cost_factors(problem)
    if factors is not None:
        of_cost, (of_rows, of_columns) = OfPlan(problem, plan, *factors), filled(problem, 1)
        return of_cost.times(of_columns[:, None])[:, 0], of_cost.transposed_times(of_rows[:, None])[:, 0]
    rows, columns = filled(problem, 0)
    plan_of = _plan_blocks(problem, plan)
    for block in _blocks(problem):
        weighted = plan_of(block) * block.cost
        rows[block.rows] = weighted.sum(1)
        columns += weighted.sum(0)
    return rows, columns


def _points(problem: Problem) -> tuple[Tensor, Tensor]:
    """X_a and X_b in float64, for squared distances centred: a common offset would take digits."""
    x, y = (torch.as_tensor(v, device=problem.place.device).double() for v in (problem.x, problem.y))
    return (x - y.mean(0), y - y.mean(0)) if problem.cost_function == "sqeuclidean" else (x, y)


def slope_of(problem: Problem) -> float:
    """The size of the terms that make a derivative of the cost by a point; 0 for a cost matrix."""
    if problem.cost is not None:
        return 0.0
    if problem.cost_function not in ("sqeuclidean", "dot"):
        return float(problem.scale)
    radius = max(float(v.square().sum(1).mean().sqrt()) for v in _points(problem))
    return float(problem.scale) * radius * (2 if problem.cost_function == "sqeuclidean" else 1)


def _directions(x: Tensor) -> Tensor:
    return torch.nn.functional.normalize(x, dim=1)


class _Block(NamedTuple):
    """Some rows of the distances, and of C."""

    rows: slice
    distance: Tensor
    cost: Tensor


def _rows_of_block(x: Tensor, width: int) -> int:
    """The number of rows of this width in a block."""
    return max(1, _BLOCK[x.device.type] // width)


def _blocks(problem: Problem) -> Iterator[_Block]:
    """All rows, for norms."""
    x, y = _points(problem)
    step = _rows_of_block(x, len(y))
    labels = None if problem.label_cost is None else _labels(problem)
    for begin in range(0, len(x), step):
        rows = slice(begin, begin + step)
        distance = _distances(x[rows], y, _norm(problem))
        cost = problem.scale * distance
        if labels is not None:
            labels_x, labels_y, table = labels
            cost += table[labels_x[rows, None], labels_y]
        yield _Block(rows, distance, cost)


def _differences(x: Tensor, y: Tensor) -> Iterator[Tensor]:
    """x_ik - y_jk (rows x m) for each coordinate k."""
    return (of_x[:, None] - of_y for of_x, of_y in zip(x.T, y.T))


def _distances(x: Tensor, y: Tensor, p: float) -> Tensor:
    if p in (1, 2, math.inf):
        # Distances by products of matrices would lose the digits of small ones.
        return torch.cdist(x, y, p, compute_mode="donot_use_mm_for_euclid_dist")
    largest = torch.cdist(x, y, math.inf)
    unit, total = _or_one(largest), torch.zeros_like(largest)  # Powers of differences may overflow or underflow.
    for difference in _differences(x, y):
        total += difference.abs_().div_(unit).pow_(p)
    return total.pow_(1 / p).mul_(largest)


def _or_one(distance: Tensor) -> Tensor:
    return torch.where(distance > 0, distance, 1)


def _norm(problem: Problem) -> float:
    return 2.0 if problem.cost_function == "euclidean" else problem.norm_p


def _plan_blocks(problem: Problem, plan: _core.Plan) -> Callable[[_Block], Tensor]:
    """A function that makes the rows of P of a block."""
    (a, b), (f, g) = weights_of(problem), filled(problem, 0)
    plan.potentials(f, g)

    def rows_of(block: _Block) -> Tensor:
        exponent = f[block.rows, None] + g
        return exponent.sub_(block.cost).div_(plan.report.eps).exp_().mul_(a[block.rows, None]).mul_(b)

    return rows_of


def _by_blocks(problem: Problem, rows_of: Callable[[_Block], Tensor]) -> tuple[Tensor, Tensor]:
    """For norms: `rows_of` makes the rows of W of a block. The slopes of distances are in docs/math.md, section 11."""
    x, y = _points(problem)
    by_x, by_y, p = torch.zeros_like(x), torch.zeros_like(y), _norm(problem)
    for block in _blocks(problem):
        own, weights, unit = x[block.rows], problem.scale * rows_of(block), _or_one(block.distance)
        if p == math.inf:
            ties = torch.zeros_like(weights)
            for difference in _differences(own, y):
                ties += difference.abs_() == block.distance
            weights /= ties
        for k, difference in enumerate(_differences(own, y)):
            size = difference.abs()
            share = size == block.distance if p == math.inf else size.div_(unit).pow_(p - 1)
            slope = difference.sign_().mul_(share).mul_(weights)
            by_x[block.rows, k] = slope.sum(1)
            by_y[:, k] -= slope.sum(0)
    return by_x, by_y


def _by_products(
    problem: Problem, times: Callable[[Tensor], Tensor], transposed_times: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    x, y = _points(problem)
    if problem.cost_function == "sqeuclidean":
        of_x, of_y = times(with_ones(y)), transposed_times(with_ones(x))
        return (
            2 * problem.scale * (of_x[:, :1] * x - of_x[:, 1:]),
            2 * problem.scale * (of_y[:, :1] * y - of_y[:, 1:]),
        )
    if problem.cost_function == "dot":
        return -problem.scale * times(y), -problem.scale * transposed_times(x)

    def across(of_direction: Tensor, points: Tensor) -> Tensor:
        """The part of a derivative by unit vectors that is orthogonal to them, over the norms of the points."""
        direction = _directions(points)
        turning = of_direction - (of_direction * direction).sum(1, keepdim=True) * direction
        return torch.div(turning, points.norm(dim=1, keepdim=True))

    by_x, by_y = -problem.scale * times(_directions(y)), -problem.scale * transposed_times(_directions(x))
    return across(by_x, x), across(by_y, y)


def _pair_costs(problem: Problem, x: Tensor, y: Tensor) -> Tensor:
    """c(x_k, y_k) up to a constant."""
    if problem.cost_function == "sqeuclidean":
        return (x - y).square().sum(1)
    if problem.cost_function in ("dot", "cosine"):
        x, y = (x, y) if problem.cost_function == "dot" else (_directions(x), _directions(y))
        return -(x * y).sum(1)
    difference = x - y
    unit = _or_one(difference.detach().abs().amax(1))  # Powers of differences may overflow or underflow.
    distances: Tensor = unit * torch.linalg.vector_norm(difference / unit[:, None], _norm(problem), dim=1)
    return distances


def of_nearest(problem: Problem, f: Tensor, nearest: Tensor, x: Any, y: Any, g: Any) -> Tensor:
    """f_i = c(x_i, y_j) - g_j for the j = `nearest` of each i, with its derivatives by tensors x, y and g."""
    if not isinstance(f, Tensor):
        raise TypeError("c_transform: depends on a tensor that requires a gradient; X_a must be one, too")
    x, y, g = (torch.as_tensor(v).to(f.device, torch.float64) for v in (x, y, g))
    changing = problem.scale * _pair_costs(problem, x, y[nearest]) - g[nearest]
    found: Tensor = f + (changing - changing.detach()).to(f.dtype)
    return found
