"""Derivatives of what results have by the tensors that were given to the functions of monge.

The matrix W of _response.py for the attributes:

  value          W = P
  potentials     W = P o (u + w)
  plan           W = P o (u + w - G / eps),        G = dL/dP
  value_linear   W = P o (u + w + 1 - C / eps),    u and w as for G = C

Those of products, averages and maps are in _products.py. An exact plan does not change with costs and points, except
where two plans are optimal, so its derivatives by them are 0 (`_is_constant`). All else has none, and raises where a
gradient is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor

from .. import _core
from .._arrays import on_host
from .._problem import Problem, warn
from ._operands import first_only
from ._operator import under_transforms
from ._points import LEAST_MASS, Dense, OfEntries, OfPlan, cost_factors, cost_sums, dense, weights_of, with_ones
from ._products import of_apply, of_average, of_gram, of_hadamard, of_marginals, of_potential, of_transform
from ._response import FallsShortError, Found, Response, Wanted, by_weights, in_gauge

_SHIFTED = 1e-3
"""The relative error of outputs above which derivatives of functions that are not linear have a warning."""


class _Attached(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, result: Any, name: str, how: tuple[Any, ...], count: int, *tensors: Tensor | None
    ) -> Any:
        ctx.result, ctx.name, ctx.how = result, name, how
        of, given = tensors[:count], tensors[count:]
        ctx.count = len(given)
        ctx.save_for_backward(*given)
        # Detached: a tensor that is an input and an output could not be changed in place.
        return tuple(v.detach() for v in of if v is not None)

    @staticmethod
    def backward(ctx: Any, *by: Tensor) -> Any:  # type: ignore[override]
        name = ctx.name
        if under_transforms() or any(is_legacy_batchedtensor(v) for v in by):
            raise NotImplementedError(f"{name}: has no derivatives under vmap; monge.torch.transport has")
        given = ctx.saved_tensors  # Once: under a checkpoint a second time is an error.
        wanted = ctx.needs_input_grad[-ctx.count :]
        others = given[_FOLLOWED:]
        is_constant, by_problem = name in ctx.result._is_constant, wanted[:_FOLLOWED]
        if is_constant:
            if any(wanted[3:_FOLLOWED]):
                raise NotImplementedError(f"{name}: has no derivatives by weights here; must be detached")
            by_problem = (False,) * _FOLLOWED
        elif name not in ctx.result._has_gradients and name not in _OF_VALUES:
            raise NotImplementedError(f"{name}: has no derivatives here; must be detached")
        with torch.no_grad():
            # Gradients that are not finite give NaN: those by values in a product, the others here.
            found: Found | None
            if is_constant and name not in _OF_OTHERS:
                found = [None] * len(given)
            elif name in ("value", "value_linear") or all(bool(v.isfinite().all()) for v in by):
                arguments = (others, *ctx.how) if name in _OF_OTHERS else ()
                derive = (_DERIVATIVES | _OF_OTHERS)[name]
                try:
                    found = derive(ctx.result, by_problem, by, *arguments)
                except FallsShortError:
                    found = None
                if found is None:  # Outside of the handler, so that errors are not chained to the first.
                    found = derive(ctx.result._refined, by_problem, by, *arguments)
                    _warn_of_shift(name, ctx.result, others if name in _OF_OTHERS else (), ctx.how)
            else:
                found = [None if v is None else math.nan * v for v in given]  # A sparse one, too.
            if is_constant:
                found = [torch.zeros_like(to) if one and v is None else v for v, to, one in zip(found, given, wanted)]
            # Weights may lie in host memory.
            found = [v.to(to.device) if one and v is not None else None for v, to, one in zip(found, given, wanted)]
        none = [None] * (len(ctx.needs_input_grad) - ctx.count)
        return *none, *(first_only(name, v, *by, *given) for v in found)


def _outputs(result: Any, name: str, others: tuple[Tensor, ...], how: tuple[Any, ...]) -> tuple[Tensor, ...]:
    found = getattr(result, name)
    if callable(found):
        found = found(*others, *how)
    return tuple(v.double() for v in (found if isinstance(found, tuple) else (found,)))


def _warn_of_shift(name: str, result: Any, others: tuple[Tensor, ...], how: tuple[Any, ...]) -> None:
    """A warning where the outputs at the refined potentials differ from those of the result, at which autograd computed
    dL/d(output): it is off by as much, relative to its size, if L is not linear. Potentials are relative to their
    spread, or to reg: a constant does not count."""
    of_potentials = name in ("potentials", "potential")
    for own, refined in zip(*(_outputs(of, name, others, how) for of in (result, result._refined))):
        sizes = refined - refined.mean() if of_potentials else refined
        least = result.reg * math.sqrt(refined.numel()) if of_potentials else 0.0
        change, size = float((own - refined).norm()), max(float(sizes.norm()), least)
        if change > _SHIFTED * size:
            warn(
                f"{name}: the error of this output is some {change / size:.0e}; a gradient of a function of it that is "
                "not linear may be off by as much, or more; a smaller tol makes it better"
            )
            return


def _require_tensor(name: str, found: Any) -> None:
    if not isinstance(found, Tensor):
        raise TypeError(f"{name}: depends on a tensor that requires a gradient; M, or X_a, must be one, too")


def attach(
    result: Any, name: str, of: tuple[Any, ...], given: tuple[Any, ...], others: tuple[Any, ...], how: tuple[Any, ...]
) -> tuple[Tensor, ...]:
    """Arrays `of` a result as outputs of an autograd function. Its inputs are `given`, which are costs, X_a, X_b, a and
    b, and `others`, the array arguments of the method `name`. `how` are the method's other arguments."""
    _require_tensor(name, of[0])
    tensors = [v if isinstance(v, Tensor) else None for v in given]
    tensors += [v if isinstance(v, Tensor) else torch.as_tensor(on_host(v)) for v in others]
    return _Attached.apply(result, name, how, len(of), *of, *tensors)  # type: ignore[no-any-return, no-untyped-call]


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


def _of_value(result: Any, wanted: Wanted, by: tuple[Tensor, ...]) -> Found:
    by_cost, by_x, by_y, *by_weights = wanted
    by_points, of_library = by_x or by_y, result._has_point_derivatives
    letters = "".join(letter for letter, one in zip("xyab", wanted[1:]) if one)
    gradients = result._gradients(letters) if any(by_weights) or by_points and of_library else None
    found: Found = [result._by_costs() if by_cost else None, None, None]
    if by_points and not of_library:
        found[1:] = _entries_of(result).by_points()
    elif gradients is not None:
        found[1:] = gradients.x, gradients.y
    found += [getattr(gradients, name) if one else None for name, one in zip("ab", by_weights)]
    if (entropy := result._entropy_weight()) > 0:
        # These gradients belong to eps KL(P | a b^T). For eps sum P log P, sum_ij P_ij log a_i = sum_i a_i log a_i.
        for k, weights in enumerate(weights_of(result._problem), 3):
            if (gradient := found[k]) is not None:
                found[k] = gradient + entropy * weights.log()
    return [None if gradient is None else gradient * by[0] for gradient in found]


def _entries_of(result: Any) -> OfEntries | Dense:
    """W = P, for plans whose gradients the library does not have."""
    if not result._problem.place.solves_on_cuda:
        return OfEntries(result._problem, result._entries)
    return Dense(result._problem, result._make_plan())


def _of_potentials(result: Any, wanted: Wanted, by: tuple[Tensor, ...]) -> Found:
    by_f, by_g = by[0].double(), by[1].double()
    masses = [torch.empty_like(v) for v in (by_f, by_g)]
    result._plan.marginals(*masses)
    if any(bool(((mass < LEAST_MASS) & (v != 0)).any()) for mass, v in zip(masses, (by_f, by_g))):
        raise NotImplementedError("potentials: have no derivatives at points whose mass is 0; leave these out")
    response = Response(result, *in_gauge(result, by_f, by_g))
    return response.found(wanted, OfPlan(result._problem, result._plan, *response.factors))


def _of_plan(result: Any, wanted: Wanted, by: tuple[Tensor, ...]) -> Found:
    return _of_entries(result, wanted, by[0], 0)


def _of_entries(result: Any, wanted: Wanted, by_plan: Tensor, direct: float) -> Found:
    """`by_plan` is G, and W = P o (u + w + direct - G / eps)."""

    def weigh(plan: Tensor) -> Tensor:
        return torch.where(plan > 0, plan * by_plan, 0)  # An infinite cost has no mass.

    def sums_of(problem: Problem, plan: _core.Plan, side: int) -> Tensor:
        return weigh(dense(problem, plan)).sum(1 - side, dtype=torch.float64)

    plan = dense(result._problem, result._plan)
    weighted = weigh(plan)
    rows, columns = weighted.sum(1, dtype=torch.float64), weighted.sum(0, dtype=torch.float64)
    size = weighted.abs().sum(1, dtype=torch.float64).norm()
    response = Response(result, rows / result.reg, columns / result.reg, size / result.reg)
    tilt = (response.u + direct)[:, None] + response.w
    of_weights = by_weights(result, result._problem, result._plan, (rows, columns), sums_of)
    return response.found(wanted, Dense(result._problem, plan * tilt - weighted / result.reg), of_weights)


def _of_value_linear(result: Any, wanted: Wanted, by: tuple[Tensor, ...]) -> Found:
    problem = result._problem
    if problem.cost is not None:
        found = _of_entries(result, wanted, problem.cost, 1)
    else:
        rows, columns = cost_sums(problem, result._plan)
        response = Response(result, rows / result.reg, columns / result.reg)
        left, right = with_ones(response.u[:, None] + 1).flip(1), with_ones(response.w[:, None])
        factor, factors = -1 / result.reg, cost_factors(problem)
        if factors is not None:
            left, right = torch.cat([left, factor * factors[0]], 1), torch.cat([right, factors[1]], 1)
        tilted = OfPlan(problem, result._plan, left, right, factor if factors is None else 0)
        of_weights = by_weights(
            result, problem, result._plan, (rows, columns), lambda other, plan, side: cost_sums(other, plan)[side]
        )
        found = response.found(wanted, tilted, of_weights)
    return [None if gradient is None else gradient * by[0] for gradient in found]


_FOLLOWED = 5
"""The number of tensors of a problem that have gradients: costs, X_a, X_b, a and b."""

_DERIVATIVES: dict[str, Callable[..., Found]] = {
    "value": _of_value,
    "value_linear": _of_value_linear,
    "plan": _of_plan,
    "potentials": _of_potentials,
}
_OF_OTHERS: dict[str, Callable[..., Found]] = {
    "apply": of_apply,
    "marginals": of_marginals,
    "average": of_average,
    "apply_hadamard": of_hadamard,
    "apply_gram": of_gram,
    "transform": of_transform,
    "potential": of_potential,
}
_OF_VALUES = ("apply", "average")
"""Linear maps, which have derivatives by their argument for any plan."""
