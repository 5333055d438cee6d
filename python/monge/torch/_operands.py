"""Checks and conversions of the arguments of this package's functions."""

from typing import Any

import torch
from torch import Tensor

from .._names import shown


def require_tensors(optional: bool = False, /, **given: Any) -> None:
    """TypeError unless each is a tensor of real numbers. An optional tensor may be None, but not empty."""
    for name, value in given.items():
        if optional and value is None:
            continue
        if not isinstance(value, Tensor):
            raise TypeError(f"{name}: is {shown(value)}; must be a tensor of PyTorch")
        if value.is_complex():
            raise TypeError(f"{name}: is of dtype {value.dtype}; must be real numbers")
        if optional and value.numel() == 0:
            raise ValueError(f"{name}: has shape {tuple(value.shape)}; must not be empty")


def floating(tensor: Tensor) -> Tensor:
    """The tensor in float32 or float64: half precision in float32, whole numbers and bool in float64."""
    if not tensor.dtype.is_floating_point:
        return tensor.double()
    return tensor.float() if tensor.dtype.itemsize < 4 else tensor


def require_problems(size: int, dimensions: int, **tensors: Tensor | None) -> None:
    """ValueError unless each has `size` problems, each of `dimensions`."""
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if tensor.ndim != dimensions + 1:
            expected = f"{dimensions + 1} dimensions, the first of the {size} problems"
            raise ValueError(f"{name}: has shape {tuple(tensor.shape)}; must have {expected}")
        if tensor.shape[0] != size:
            raise ValueError(f"{name}: has {tensor.shape[0]} problems; must have {size}, as the first argument has")


def require_weights(**given: tuple[Tensor | None, Tensor]) -> None:
    """ValueError unless there is a weight for each point. Weights may be columns, as in GeomLoss."""
    for name, (weights, points) in given.items():
        shape = tuple(points.shape[:-1])
        if weights is not None and tuple(weights.shape) not in (shape, (*shape, 1)):
            raise ValueError(f"{name}: has shape {tuple(weights.shape)}; must be {shape}")


class _First(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str, gradient: Tensor, *sources: Tensor) -> Tensor:  # type: ignore[override]
        ctx.name = name
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *by: Tensor) -> Any:  # type: ignore[override]
        raise NotImplementedError(f"{ctx.name}: has no second derivatives")


def first_only(name: str, gradient: Tensor | None, *sources: Tensor | None) -> Tensor | None:
    """The gradient, whose own derivatives by `sources` are a NotImplementedError instead of zeros."""
    followed = [v for v in sources if v is not None and v.requires_grad]
    if gradient is None or not followed or not torch.is_grad_enabled():
        return gradient
    return _First.apply(name, gradient, *followed)  # type: ignore[no-any-return, no-untyped-call]


class _Refusing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, message: str, tensor: Tensor) -> Tensor:  # type: ignore[override]
        ctx.message = message
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *by: Tensor) -> Any:  # type: ignore[override]
        raise NotImplementedError(ctx.message)


def refusing(message: str, tensor: Tensor) -> Tensor:
    """The tensor, a derivative by which is a NotImplementedError, but only where a backward pass asks for it."""
    if not tensor.requires_grad or not torch.is_grad_enabled():
        return tensor
    return _Refusing.apply(message, tensor)  # type: ignore[no-any-return, no-untyped-call]


def is_refusing(tensor: Tensor) -> bool:
    """Whether no derivative by this tensor can go unnoticed."""
    return not tensor.requires_grad or isinstance(tensor.grad_fn, _Refusing._backward_cls)
