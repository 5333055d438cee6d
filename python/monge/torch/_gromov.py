"""Derivatives of the value of Gromov-Wasserstein transport, by the tensors that were given."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._arrays import on_host
from ._operands import first_only
from ._operator import under_transforms


class _Followed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, result: Any, name: str, count: int, *tensors: Tensor | None) -> Any:  # type: ignore[override]
        ctx.result, ctx.name = result, name
        ctx.save_for_backward(*tensors[count:])
        return tuple(v.detach() for v in tensors[:count] if v is not None)

    @staticmethod
    def backward(ctx: Any, *by: Tensor) -> Any:  # type: ignore[override]
        if ctx.name != "value" or under_transforms():
            raise NotImplementedError(f"{ctx.name}: has no derivatives here; must be detached")
        given, wanted = ctx.saved_tensors, ctx.needs_input_grad[3 + len(by) :]
        with torch.no_grad():
            found = ctx.result.gradients()
            parts = (found.x, found.y, found.s, found.t, found.a, found.b)
            if any(one and part is None for part, one in zip(parts, wanted)):
                raise NotImplementedError("value: has no derivatives by weights, since marginals are open; detach them")
            sides = [
                by[0].to(to.device) * torch.as_tensor(on_host(part), dtype=to.dtype, device=to.device) if one else None
                for part, to, one in zip(parts, given, wanted)
            ]
        return (None,) * (3 + len(by)) + tuple(first_only("value", v, *by, *given) for v in sides)


def follow(result: Any, name: str, of: tuple[Any, ...], given: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """Arrays `of` the attribute `name` as outputs of an autograd function of x, y, s, t, a and b (`given`). The value
    has first derivatives; a backward pass through another attribute raises NotImplementedError."""
    if not all(isinstance(v, Tensor) for v in of):
        raise TypeError(f"{name}: depends on a tensor that requires a gradient; X_a or Ca must be a tensor, too")
    tensors = [v if isinstance(v, Tensor) else None for v in given]
    return _Followed.apply(result, name, len(of), *of, *tensors)  # type: ignore[no-any-return, no-untyped-call]
