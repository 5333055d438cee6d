"""Derivatives of what a result has, for tensors that were given to the functions of monge.

Each is a matrix W with dL = sum_ij W_ij dC_ij at fixed weights, of which derivatives by points are products:

  value          W = P
  potentials     W = P o (u + w)
  plan           W = P o (u + w - G / eps),        G = dL/dP
  value_linear   W = P o (u + w + 1 - C / eps)

u (n) and w (m) solve the system of Plan::potential_gradients() for dL/df and dL/dg: of the plan the sums over rows and
over columns of P o G / eps, of <C, P> those with G = C. There C = l r^T with narrow l and r, so that of points no n x m
matrix is made.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._problem import ConvergenceWarning, Problem
from ._operands import first_only

Wanted = tuple[bool, ...]
Found = list[Tensor | None]
"""By the costs, X_a, X_b, a and b."""


class _Attached(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, result: Any, name: str, count: int, *tensors: Tensor | None) -> Any:  # type: ignore[override]
        ctx.result, ctx.name, ctx.count = result, name, count
        ctx.save_for_backward(*tensors)
        return tensors[:count]

    @staticmethod
    def backward(ctx: Any, *by: Tensor) -> Any:  # type: ignore[override]
        result, name, skipped = ctx.result, ctx.name, 3 + ctx.count
        wanted = ctx.needs_input_grad[skipped:]
        if any(wanted[1:3]) and not result._has_point_derivatives:
            raise NotImplementedError(
                f"{name}: has derivatives by the points for sqeuclidean and dot; detach the points"
            )
        of, given = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        with torch.no_grad():
            found = _DERIVATIVES[name](result, wanted, of, by)
        return *[None] * skipped, *(first_only(name, v, *by, *given) for v in found)


def attach(result: Any, name: str, of: tuple[Tensor, ...], given: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """`of`, which autograd knows to depend on the tensors of `given`: costs, X_a, X_b, a and b."""
    if not isinstance(of[0], Tensor):
        raise TypeError(f"{name}: depends on a tensor that requires a gradient; M, or X_a, must be one, too")
    tensors = [v if isinstance(v, Tensor) else None for v in given]
    return _Attached.apply(result, name, len(of), *of, *tensors)  # type: ignore[no-any-return, no-untyped-call]


def together(parts: list[Any]) -> Any:
    """Tensors stacked where they have one shape, else their list; of tuples, one of each entry."""
    if isinstance(parts[0], tuple):
        return tuple(together(list(each)) for each in zip(*parts))
    return torch.stack(parts) if len({part.shape for part in parts}) == 1 else parts


class _Dense:
    """A matrix that is there, entry by entry."""

    def __init__(self, entries: Tensor) -> None:
        self.entries = entries

    def times(self, v: Tensor) -> Tensor:
        return self.entries.double() @ v

    def transposed_times(self, v: Tensor) -> Tensor:
        return self.entries.T.double() @ v


class _OfPlan:
    """P o l r^T, as products."""

    def __init__(self, result: Any, left: Tensor, right: Tensor) -> None:
        self._result, self._left, self._right = result, left.contiguous(), right.contiguous()

    @property
    def entries(self) -> Tensor:
        plan: Tensor = self._result._dense_plan
        return plan * (self._left @ self._right.T).to(plan.dtype)

    def times(self, v: Tensor) -> Tensor:
        to = v.new_empty(len(self._left), v.shape[1])
        self._result._plan.apply_hadamard(self._left, self._right, v.contiguous(), to)
        return to

    def transposed_times(self, v: Tensor) -> Tensor:
        to = v.new_empty(len(self._right), v.shape[1])
        self._result._plan.apply_hadamard_transpose(self._left, self._right, v.contiguous(), to)
        return to


def _weights(result: Any) -> list[Tensor]:
    return [
        torch.full((size,), 1 / size, dtype=torch.float64, device=result._place.device)
        if given is None
        else torch.as_tensor(given, device=result._place.device).double()
        for given, size in zip(result._weights(), result.shape)
    ]


class _Response:
    """How a function of the potentials answers to costs and weights."""

    def __init__(self, result: Any, by_f: Tensor, by_g: Tensor) -> None:
        self._result = result
        self._weights = _weights(result)
        self.by_weights = [torch.empty_like(by) for by in (by_f, by_g)]
        single = result._place.dtype == "float32"
        tolerance = 1e-5 if single else 1e-10  # Rounding of the products bounds what can be reached.
        report = result._plan.potential_gradients(by_f, by_g, None, None, *self.by_weights, tolerance=tolerance)
        if not report.residual <= 100 * tolerance:
            warnings.warn(
                f"gradient: {report.status} after {report.iterations} steps, residual {report.residual:.2e}",
                ConvergenceWarning,
                stacklevel=2,
            )
        marginals = [torch.empty_like(by) for by in (by_f, by_g)]
        result._plan.marginals(*marginals)
        # dL/da = -eps (P w) / a, and k (P 1) u + P w = dL/df with k = 1 + eps / rho.
        self.u, self.w = (
            torch.where(mass > 0, (by + a * by_a / result.reg) / ((1 + result.reg / rho) * mass), 0)
            for mass, by, a, by_a, rho in zip(
                marginals, (by_f, by_g), self._weights, self.by_weights, result._penalties()
            )
        )

    def found(self, wanted: Wanted, tilted: _Dense | _OfPlan, linear: tuple[Tensor, Tensor] | None = None) -> Found:
        """`tilted` is W. `linear` are dL/dlog a and dL/dlog b at fixed potentials."""
        by_cost, by_x, by_y, *by_weights = wanted
        found: Found = [tilted.entries if by_cost else None]
        found += _by_points(self._result._problem, tilted, by_x, by_y)
        for side, one in enumerate(by_weights):
            if one and linear is not None and not self._weights[side].all():
                raise NotImplementedError(
                    f"{'ab'[side]}: has entries of 0, by which there are no derivatives; detach it"
                )
            direct = 0 if linear is None else linear[side] / self._weights[side]
            found.append(self.by_weights[side] + direct if one else None)
        return found


def _by_points(problem: Problem, tilted: _Dense | _OfPlan, by_x: bool, by_y: bool) -> Found:
    if not (by_x or by_y):
        return [None, None]
    x, y = problem.x.double(), problem.y.double()  # type: ignore[union-attr]
    if problem.cost_function == "dot":
        return [
            -problem.scale * tilted.times(y) if by_x else None,
            -problem.scale * tilted.transposed_times(x) if by_y else None,
        ]

    def of_squares(times: Callable[[Tensor], Tensor], own: Tensor, other: Tensor) -> Tensor:
        products = times(_with_ones(other))
        return 2 * problem.scale * (products[:, :1] * own - products[:, 1:])

    x, y = x - y.mean(0), y - y.mean(0)  # Offsets would be what is rounded.
    return [
        of_squares(tilted.times, x, y) if by_x else None,
        of_squares(tilted.transposed_times, y, x) if by_y else None,
    ]


def _with_ones(v: Tensor) -> Tensor:
    return torch.cat([torch.ones_like(v[:, :1]), v], 1)


def _cost_factors(problem: Problem) -> tuple[Tensor, Tensor]:
    """l (n x k) and r (m x k) with C = l r^T."""
    x, y, scale = problem.x.double(), problem.y.double(), problem.scale  # type: ignore[union-attr]
    if problem.cost_function == "sqeuclidean":
        x, y = x - y.mean(0), y - y.mean(0)
        squares, far_squares = x.square().sum(1, keepdim=True), y.square().sum(1, keepdim=True)
        left = scale * torch.cat([squares, torch.ones_like(squares), -2 * x], 1)
        right = torch.cat([torch.ones_like(far_squares), far_squares, y], 1)
    elif problem.cost_function == "dot":
        left, right = -scale * x, y
    elif problem.cost_function == "cosine":
        x, y = (v / v.norm(dim=1, keepdim=True) for v in (x, y))
        left, right = scale * _with_ones(-x), _with_ones(y)
    else:
        raise NotImplementedError(f"value_linear: has no derivatives for the metric {problem.cost_function}")
    if problem.label_cost is None:
        return left, right
    labels_x, labels_y, table = (
        torch.as_tensor(v, device=x.device) for v in (problem.labels_x, problem.labels_y, problem.label_cost)
    )
    classes = torch.eye(table.shape[1], dtype=torch.float64, device=x.device)
    return (
        torch.cat([left, problem.label_weight * table.double()[labels_x]], 1),
        torch.cat([right, classes[labels_y]], 1),
    )


def _of_value(result: Any, wanted: Wanted, of: Any, by: tuple[Tensor, ...]) -> Found:
    by_cost, *others = wanted
    gradients = result.gradients() if any(others) else None
    found = [result._dense_plan if by_cost else None]
    found += [getattr(gradients, name) if one else None for name, one in zip("xyab", others)]
    if getattr(result, "_reg_type", "kl") == "entropy":  # The other reference measure: sum P log a = sum a log a.
        for k, weights in zip((3, 4), _weights(result)):
            if (by_weights := found[k]) is not None:
                found[k] = by_weights + result.reg * weights.log()
    return [None if gradient is None else gradient * by[0] for gradient in found]


def _of_potentials(result: Any, wanted: Wanted, of: Any, by: tuple[Tensor, ...]) -> Found:
    by_f, by_g = by[0].double(), by[1].double()
    if min(result._penalties()) == math.inf:
        # (f + t, g - t) is as good. Parts of a function that does not change with t may come one by one, so that of
        # each is taken which keeps the mean of f + g.
        excess = (by_f.sum() - by_g.sum()) / 2
        by_f, by_g = (by - sign * excess * w / w.sum() for by, sign, w in zip((by_f, by_g), (1, -1), _weights(result)))
    response = _Response(result, by_f, by_g)
    tilted = _OfPlan(result, _with_ones(response.u[:, None]), _with_ones(response.w[:, None]).flip(1))
    return response.found(wanted, tilted)


def _of_plan(result: Any, wanted: Wanted, of: tuple[Tensor, ...], by: tuple[Tensor, ...]) -> Found:
    return _of_entries(result, wanted, of[0], of[0] * by[0], 0)


def _of_entries(result: Any, wanted: Wanted, plan: Tensor, weighted: Tensor, direct: float) -> Found:
    """`weighted` is P o G, and W = P o (u + w + direct - G / eps)."""
    rows, columns = weighted.sum(1, dtype=torch.float64), weighted.sum(0, dtype=torch.float64)
    response = _Response(result, rows / result.reg, columns / result.reg)
    tilt = (response.u + direct)[:, None] + response.w
    return response.found(wanted, _Dense(plan * tilt - weighted / result.reg), (rows, columns))


def _of_value_linear(result: Any, wanted: Wanted, of: Any, by: tuple[Tensor, ...]) -> Found:
    problem = result._problem
    if problem.cost is not None:
        plan = result._dense_plan
        found = _of_entries(result, wanted, plan, torch.where(plan > 0, plan * problem.cost, 0), 1)
    else:
        left, right = _cost_factors(problem)
        cost = _OfPlan(result, left, right)
        rows, columns = (
            cost.times(torch.ones_like(right[:, :1]))[:, 0],
            cost.transposed_times(torch.ones_like(left[:, :1]))[:, 0],
        )
        response = _Response(result, rows / result.reg, columns / result.reg)
        tilt = torch.cat([_with_ones(response.u[:, None] + 1).flip(1), left], 1)
        far_tilt = torch.cat([_with_ones(response.w[:, None]), -right / result.reg], 1)
        found = response.found(wanted, _OfPlan(result, tilt, far_tilt), (rows, columns))
    return [None if gradient is None else gradient * by[0] for gradient in found]


_DERIVATIVES: dict[str, Callable[..., Found]] = {
    "value": _of_value,
    "value_linear": _of_value_linear,
    "plan": _of_plan,
    "potentials": _of_potentials,
}
