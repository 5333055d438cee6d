"""Gradients of the value of a result, for tensors that were given to monge.solve and monge.solve_sample."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._operands import first_only


class _Value(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, result: Any, value: Tensor, *given: Tensor | None) -> Tensor:  # type: ignore[override]
        ctx.result = result
        ctx.save_for_backward(*given)
        return value

    @staticmethod
    def backward(ctx: Any, by_value: Tensor) -> Any:  # type: ignore[override]
        with torch.no_grad():
            found = derivatives(ctx.result, ctx.needs_input_grad[2:], by_value)
        return None, None, *(first_only("value", v, by_value, *ctx.saved_tensors) for v in found)


def derivatives(result: Any, wanted: tuple[bool, ...], by_value: Tensor) -> list[Tensor | None]:
    """By the costs, X_a, X_b, a and b, of the dual value at the result's potentials."""
    by_cost, by_x, by_y, by_a, by_b = wanted
    if (by_x or by_y) and not result._has_point_derivatives:
        raise NotImplementedError("value: has derivatives by the points for sqeuclidean and dot; detach the points")
    gradients = result.gradients() if any((by_x, by_y, by_a, by_b)) else None
    found = [result.plan if by_cost else None]
    found += [getattr(gradients, name) if by else None for name, by in zip("xyab", (by_x, by_y, by_a, by_b))]
    return [None if gradient is None else gradient * by_value for gradient in found]


def attach(result: Any, value: Tensor, given: tuple[Any, ...]) -> Tensor:
    """`value`, which autograd knows to depend on the tensors of `given`: costs, X_a, X_b, a and b."""
    tensors = [v if isinstance(v, Tensor) else None for v in given]
    return _Value.apply(result, value, *tensors)  # type: ignore[no-any-return, no-untyped-call]
