"""Derivatives of attributes of results by tensors that were given to the functions of monge.

Each derivative is a matrix W with dL = sum_ij W_ij dC_ij at fixed weights; derivatives by points are products with W:

  value          W = P
  potentials     W = P o (u + w)
  plan           W = P o (u + w - G / eps),        G = dL/dP
  value_linear   W = P o (u + w + 1 - C / eps)

u (n) and w (m) solve the system of Plan::potential_gradients() for dL/df and dL/dg. For the plan these are the sums
over rows and over columns of P o G / eps; for <C, P> they are the same with G = C. For costs of points W is not formed:
products, or blocks of its rows, are enough (_points.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor

from .. import _core
from .._problem import warn
from ._operands import first_only
from ._operator import under_transforms
from ._points import Dense, OfPlan, cost_factors, cost_sums, weights_of, with_ones

_UNSOLVED = 1e-3
"""The relative residual above which a gradient is an error."""

Wanted = tuple[bool, ...]
Found = list[Tensor | None]
"""Gradients by the costs, X_a, X_b, a and b."""


class _Attached(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, result: Any, name: str, count: int, *tensors: Tensor | None) -> Any:  # type: ignore[override]
        ctx.result, ctx.name = result, name
        of, given = tensors[:count], tensors[count:]
        # Detached: a tensor that is an input and an output could not be changed in place.
        found = tuple(v.detach() for v in of if v is not None)
        ctx.save_for_backward(*given, *(found if name == "plan" else ()))
        return found

    @staticmethod
    def backward(ctx: Any, *by: Tensor) -> Any:  # type: ignore[override]
        if under_transforms() or any(is_legacy_batchedtensor(v) for v in by):
            raise NotImplementedError(f"{ctx.name}: has no derivatives under vmap; monge.torch.transport has")
        saved = ctx.saved_tensors
        given, of = saved[:5], saved[5:]
        wanted = ctx.needs_input_grad[-5:]
        with torch.no_grad():
            # Gradients that are not finite give NaN: those by values in a product, the others here.
            if ctx.name in ("value", "value_linear") or all(bool(v.isfinite().all()) for v in by):
                found = _DERIVATIVES[ctx.name](ctx.result, wanted, of, by)
            else:
                found = [None if v is None else torch.full_like(v, math.nan) for v in given]
            # Weights may lie in host memory.
            found = [v.to(to.device) if one and v is not None else None for v, to, one in zip(found, given, wanted)]
        none = [None] * (len(ctx.needs_input_grad) - 5)
        return *none, *(first_only(ctx.name, v, *by, *given) for v in found)


def _require_tensor(name: str, found: Any) -> None:
    if not isinstance(found, Tensor):
        raise TypeError(f"{name}: depends on a tensor that requires a gradient; M, or X_a, must be one, too")


def attach(result: Any, name: str, of: tuple[Tensor, ...], given: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """`of` as outputs of an autograd function of `given`: costs, X_a, X_b, a and b."""
    _require_tensor(name, of[0])
    tensors = [v if isinstance(v, Tensor) else None for v in given]
    return _Attached.apply(result, name, len(of), *of, *tensors)  # type: ignore[no-any-return, no-untyped-call]


def together(name: str, parts: list[Any]) -> Any:
    """The attributes `name` of the results of a batch: a stack where all have one shape, else a list of tensors of one
    dtype. Tuples give a tuple of these."""
    if isinstance(parts[0], tuple):
        return tuple(together(name, list(each)) for each in zip(*parts))
    _require_tensor(name, parts[0])
    in_float32 = all(isinstance(part, Tensor) and part.dtype == torch.float32 for part in parts)
    dtype = torch.float32 if in_float32 else torch.float64
    tensors = [torch.as_tensor(part, dtype=dtype) for part in parts]
    return torch.stack(tensors) if len({tensor.shape for tensor in tensors}) == 1 else tensors


class _Response:
    """The derivatives of a function of the potentials by costs and weights."""

    def __init__(self, result: Any, by_f: Tensor, by_g: Tensor) -> None:
        self._result = result
        self._weights = weights_of(result._problem)
        self.by_weights = [torch.empty_like(by) for by in (by_f, by_g)]
        plan, eps = result._plan, result.reg
        # The rounding of the products bounds the residual.
        tolerance = 1e-10 if result.report.precision == "float64" else 1e-5
        report = plan.potential_gradients(by_f, by_g, None, None, *self.by_weights, tolerance=tolerance)
        marginals = [torch.empty_like(by) for by in (by_f, by_g)]
        plan.marginals(*marginals)
        # dL/da = -eps (P w) / a, and k (P 1) u + P w = dL/df with k = 1 + eps / rho.
        diagonals = [(1 + eps / rho) * mass for mass, rho in zip(marginals, result._penalties())]
        self.u, self.w = (
            torch.where(diagonal > 0, (by + a * by_a / eps) / diagonal, 0)
            for diagonal, by, a, by_a in zip(diagonals, (by_f, by_g), self._weights, self.by_weights)
        )
        # The report has the residual of the system with one side eliminated, whose right side may be rounding alone.
        product = torch.empty_like(by_g)[:, None]
        plan.apply_transpose(self.u[:, None], product)
        residual = (diagonals[1] * self.w + product[:, 0] - by_g * (diagonals[1] > 0)).norm()
        size = by_f.norm() + by_g.norm()
        if not residual <= _UNSOLVED * size:
            raise RuntimeError(
                f"gradient: its linear system is not solved: the residual is {residual / size:.1e} of the right side "
                f"after {report.iterations} steps; a larger reg, or precision='float64', makes it easier"
            )
        if residual > 100 * tolerance * size:
            warn(f"gradient: has an error: its linear system has the residual {residual / size:.1e}")

    def found(self, wanted: Wanted, tilted: Dense | OfPlan, linear: tuple[Tensor, Tensor] | None = None) -> Found:
        """`tilted` is W. `linear` are dL/dlog a and dL/dlog b at fixed potentials."""
        by_cost, by_x, by_y, *by_weights = wanted
        found: Found = [tilted.entries if by_cost else None]
        found += tilted.by_points() if by_x or by_y else [None, None]
        for side, one in enumerate(by_weights):
            if one and linear is not None and not self._weights[side].all():
                raise NotImplementedError(
                    f"{'ab'[side]}: has entries of 0, by which there are no derivatives; detach it"
                )
            direct = 0 if linear is None else linear[side] / self._weights[side]
            found.append(self.by_weights[side] + direct if one else None)
        return found


def _of_value(result: Any, wanted: Wanted, of: Any, by: tuple[Tensor, ...]) -> Found:
    by_cost, by_x, by_y, *by_weights = wanted
    by_points, of_library = by_x or by_y, result._has_point_derivatives
    letters = "".join(letter for letter, one in zip("xyab", wanted[1:]) if one)
    gradients = result._gradients(letters) if any(by_weights) or by_points and of_library else None
    found: Found = [result._make_plan() if by_cost else None, None, None]
    if by_points and not of_library:
        found[1:] = _value_by_points(result)
    elif gradients is not None:
        found[1:] = gradients.x, gradients.y
    found += [getattr(gradients, name) if one else None for name, one in zip("ab", by_weights)]
    if (entropy := result._entropy_weight()) > 0:
        # These gradients belong to eps KL(P | a b^T). For eps sum P log P, sum_ij P_ij log a_i = sum_i a_i log a_i.
        for k, weights in enumerate(weights_of(result._problem), 3):
            if (gradient := found[k]) is not None:
                found[k] = gradient + entropy * weights.log()
    return [None if gradient is None else gradient * by[0] for gradient in found]


def _value_by_points(result: Any) -> tuple[Tensor, Tensor]:
    parts = [_plan_of(part).by_points() for part in result._solves]
    if len(parts) == 1:
        return parts[0]
    (by_x, by_y), of_a, of_b = parts  # Of a divergence.
    return by_x - (of_a[0] + of_a[1]) / 2, by_y - (of_b[0] + of_b[1]) / 2


def _plan_of(result: Any) -> OfPlan | Dense:
    """W = P; only plans of entropic transport have products with P o (l r^T)."""
    if isinstance(result._plan, _core.Plan):
        return OfPlan.itself(result._problem, result._plan)
    return Dense(result._problem, result._make_plan())


def _of_potentials(result: Any, wanted: Wanted, of: Any, by: tuple[Tensor, ...]) -> Found:
    by_f, by_g = by[0].double(), by[1].double()
    masses = [torch.empty_like(v) for v in (by_f, by_g)]
    result._plan.marginals(*masses)
    if any(bool(((mass == 0) & (v != 0)).any()) for mass, v in zip(masses, (by_f, by_g))):
        raise NotImplementedError("potentials: have no derivatives at points whose mass is 0; leave these out")
    if min(result._penalties()) == math.inf:
        # (f + t, g - t) are optimal, too. Autograd may split a function that does not depend on t into parts that do,
        # so the part of each gradient that changes with t is removed.
        excess = (by_f.sum() - by_g.sum()) / 2
        a, b = weights_of(result._problem)
        by_f, by_g = by_f - excess * a / a.sum(), by_g + excess * b / b.sum()
    response = _Response(result, by_f, by_g)
    tilted = OfPlan(
        result._problem, result._plan, with_ones(response.u[:, None]), with_ones(response.w[:, None]).flip(1)
    )
    return response.found(wanted, tilted)


def _of_plan(result: Any, wanted: Wanted, of: tuple[Tensor, ...], by: tuple[Tensor, ...]) -> Found:
    return _of_entries(result, wanted, of[0], of[0] * by[0], 0)


def _of_entries(result: Any, wanted: Wanted, plan: Tensor, weighted: Tensor, direct: float) -> Found:
    """`weighted` is P o G, and W = P o (u + w + direct - G / eps)."""
    rows, columns = weighted.sum(1, dtype=torch.float64), weighted.sum(0, dtype=torch.float64)
    response = _Response(result, rows / result.reg, columns / result.reg)
    tilt = (response.u + direct)[:, None] + response.w
    return response.found(wanted, Dense(result._problem, plan * tilt - weighted / result.reg), (rows, columns))


def _of_value_linear(result: Any, wanted: Wanted, of: Any, by: tuple[Tensor, ...]) -> Found:
    problem = result._problem
    if problem.cost is not None:
        plan = result._make_plan()
        found = _of_entries(result, wanted, plan, torch.where(plan > 0, plan * problem.cost, 0), 1)
    else:
        rows, columns = cost_sums(problem, result._plan)
        response = _Response(result, rows / result.reg, columns / result.reg)
        left, right = with_ones(response.u[:, None] + 1).flip(1), with_ones(response.w[:, None])
        factor, factors = -1 / result.reg, cost_factors(problem)
        if factors is not None:
            left, right = torch.cat([left, factor * factors[0]], 1), torch.cat([right, factors[1]], 1)
        tilted = OfPlan(problem, result._plan, left, right, factor if factors is None else 0)
        found = response.found(wanted, tilted, (rows, columns))
    return [None if gradient is None else gradient * by[0] for gradient in found]


_DERIVATIVES: dict[str, Callable[..., Found]] = {
    "value": _of_value,
    "value_linear": _of_value_linear,
    "plan": _of_plan,
    "potentials": _of_potentials,
}
