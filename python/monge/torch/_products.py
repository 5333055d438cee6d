"""Derivatives of products with a plan, of averages and of maps: functions L with dL = <l r^T, dP> for narrow l and r.

  P v              l = dL/d(P v),                    r = v
  P 1              l = dL/d(P 1),                    r = 1
  averages         l = (U, -<U, average>) / (P 1),   r = (v, 1),    U = dL/d(average)
  (P o L R^T) v    l = products of L and U,          r = products of R and v
  P^T diag(w) P v  l = w o (P v, P U),               r = (U, v)

Each function takes a result, whether gradients by the costs, X_a, X_b, a and b are wanted, dL by the outputs of the
operator, and the operator's other arguments. It returns the gradients of the five and of these arguments.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .. import _core
from .._arrays import read_matrix
from .._problem import Problem
from ._points import LEAST_MASS, filled
from ._response import Found, Wanted, of_factors, of_shares, product, with_equal_weights

_NONE: Found = [None] * 5


def _columns(v: Tensor, like: Tensor | None = None) -> Tensor:
    """v in float64 as a matrix, on the device of `like`."""
    v = v.double() if like is None else v.to(like.device, torch.float64)
    return v[:, None] if v.ndim == 1 else v


def _multiply(result: Any, side: int, v: Tensor) -> Tensor:
    """P v for side 0, P^T v for side 1."""
    plan = result._plan
    return product(plan.apply_transpose if side else plan.apply, v, result.shape[side])


def _through_plan(name: str, result: Any, wanted: Wanted, left: Tensor, right: Tensor) -> Found:
    if not any(wanted):
        return _NONE
    if name not in result._has_gradients:
        raise NotImplementedError(f"{name}: has no derivatives by the problem here; must be detached")
    return of_factors(result, wanted, left, right)


def of_apply(result: Any, wanted: Wanted, by: Any, others: Any, transpose: bool) -> Found:
    u, v = _columns(by[0]), _columns(others[0], by[0])
    left, right = (v, u) if transpose else (u, v)
    by_v = _multiply(result, 0 if transpose else 1, u)
    return [*_through_plan("apply", result, wanted, left, right), by_v.reshape(others[0].shape)]


def of_marginals(result: Any, wanted: Wanted, by: Any, others: Any) -> Found:
    rows, columns = (v.double()[:, None] for v in by)
    left, right = torch.cat([rows, torch.ones_like(rows)], 1), torch.cat([torch.ones_like(columns), columns], 1)
    return _through_plan("marginals", result, wanted, left, right)


def _of_deviations(plan: Any, mass: Tensor, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """l and r with l r^T = <u_i, v_j - average_i>, for averages over the targets."""
    v = v - v.mean(0)  # A common offset would take digits.
    average = torch.where(mass >= LEAST_MASS, product(plan.apply, v, len(u)) / mass, 0)
    return torch.cat([u, -(u * average).sum(1, keepdim=True)], 1), torch.cat([v, torch.ones_like(v[:, :1])], 1)


def of_average(result: Any, wanted: Wanted, by: Any, others: Any, transpose: bool = False) -> Found:
    """Derivatives of averages. Only results without derivatives by the problem have averages with `transpose`."""
    u, v = _columns(by[0]), _columns(others[0], by[0])
    side = 1 if transpose else 0
    plan, problem = result._plan, result._problem
    mass = _marginals(problem, plan)[side][:, None]
    empty = bool(((mass < LEAST_MASS) & (u != 0)).any())
    has_gradients = "average" in result._has_gradients
    if empty and has_gradients:
        # Points without mass have averages, too: rows of the plan of equal weights.
        problem, plan = _plan_of_sources(result, problem, result._float64_potentials()[0])
        mass = _marginals(problem, plan)[0][:, None]
    u = torch.where(mass >= LEAST_MASS, u / mass, 0)
    by_v = product(plan.apply if transpose else plan.apply_transpose, u, result.shape[1 - side])
    if not any(wanted) or not has_gradients:
        found = _through_plan("average", result, wanted, u, v)
    elif empty:
        found, direct = of_shares(result, wanted, problem, plan, *_of_deviations(plan, mass, u, v))
        parts: Found = [direct.entries if wanted[0] else None]
        parts += direct.by_points() if wanted[1] or wanted[2] else [None, None]
        found[:3] = [v if v is None or part is None else v + part for v, part in zip(found, parts)]
    else:
        found = of_factors(result, wanted, *_of_deviations(plan, mass, u, v), of_g=True)
    return [*found, by_v.reshape(others[0].shape)]


def of_hadamard(result: Any, wanted: Wanted, by: Any, others: Any, transpose: bool) -> Found:
    l, r, v = (_columns(w, by[0]) for w in others)
    own, far, u = (r, l, _columns(by[0])) if transpose else (l, r, _columns(by[0]))
    k, p = own.shape[1], v.shape[1]
    of_own, of_far = ((w[:, :, None] * t[:, None, :]).flatten(1) for w, t in ((own, u), (far, v)))
    side = 1 if transpose else 0
    on_own = _multiply(result, side, of_far).reshape(-1, k, p)
    on_far = _multiply(result, 1 - side, of_own).reshape(-1, k, p)
    by_own, by_far = (on_own * u[:, None, :]).sum(2), (on_far * v[:, None, :]).sum(2)
    by_v = (on_far * far[:, :, None]).sum(1).reshape(others[2].shape)
    left, right, by_l, by_r = (of_far, of_own, by_far, by_own) if transpose else (of_own, of_far, by_own, by_far)
    return [*_through_plan("apply_hadamard", result, wanted, left, right), by_l, by_r, by_v]


def of_gram(result: Any, wanted: Wanted, by: Any, others: Any, transpose: bool) -> Found:
    u, w, v = _columns(by[0]), _columns(others[0], by[0]), _columns(others[1], by[0])
    side = 1 if transpose else 0
    of_v, of_u = _multiply(result, side, torch.cat([v, u], 1)).chunk(2, 1)
    own, far = torch.cat([w * of_v, w * of_u], 1), torch.cat([u, v], 1)
    by_v = _multiply(result, 1 - side, w * of_u)
    left, right = (far, own) if transpose else (own, far)
    return [*_through_plan("apply_gram", result, wanted, left, right), (of_v * of_u)[:, 0], by_v[:, 0]]


def of_transform(result: Any, wanted: Wanted, by: Any, others: Any) -> Found:
    """Derivatives of the average targets of new points: averages by P', the plan of the new points."""
    problem, plan = _plan_at(result, others[0])
    mass = _marginals(problem, plan)[0][:, None]
    u = by[0].double() / mass
    y = torch.as_tensor(problem.y, device=u.device).double()
    found, direct = of_shares(result, wanted, problem, plan, *_of_deviations(plan, mass, u, y))
    by_points, by_y = direct.by_points()
    if found[2] is not None:
        found[2] = found[2] + by_y + product(plan.apply_transpose, u, len(y))
    return [*found, by_points]


def of_potential(result: Any, wanted: Wanted, by: Any, others: Any) -> Found:
    """Derivatives of the potential f' at new points. f' keeps the sums of the rows of their plan P':
    df'_i = -eps (P' 1)_i^-1 sum_j dP'_ij at fixed f'."""
    problem, plan = _plan_at(result, others[0])
    left = -result.reg * by[0].double()[:, None] / _marginals(problem, plan)[0][:, None]
    found, direct = of_shares(result, wanted, problem, plan, left, filled(problem, 1)[1][:, None])
    by_points, by_y = direct.by_points()
    if found[2] is not None:
        found[2] = found[2] + by_y
    return [*found, by_points]


def _marginals(problem: Problem, plan: Any) -> tuple[Tensor, Tensor]:
    masses = filled(problem, 0)
    plan.marginals(*masses)
    return masses


def _plan_of_sources(result: Any, problem: Problem, f: Any) -> tuple[Problem, _core.Plan]:
    """The plan of these sources with equal weights and potentials f, to the targets with their g."""
    return with_equal_weights(result, problem, 0, (f, result._float64_potentials()[1]))


def _plan_at(result: Any, points: Tensor) -> tuple[Problem, _core.Plan]:
    """The plan of new points to the targets, with potentials f by which each row has the mass of its weight."""
    given = read_matrix("points", points, "(k, d)")
    f = torch.empty(len(given), dtype=torch.float64, device=result._place.device)
    result._plan.potential(given, f)
    return _plan_of_sources(result, replace(result._problem, x=given), f)
