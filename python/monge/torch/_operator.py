"""Operators of torch.library that also work under the transforms of torch.func, in forward mode, and quickly.

torch.func.grad refuses the autograd.Function that `register_autograd` makes, and forward mode takes an operator for a
constant. So each operator has a second Function with the same rules, for calls under transforms and in forward mode.
torch.compile keeps the operator itself in its graph; dispatch modes and subclasses of tensors see the operator, too.
Its dispatch takes longer than a small projection, so plain tensors go directly to the kernel, by a third Function if
they require gradients.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import TransformType, get_interpreter_stack
from torch.autograd import forward_ad

Rule = Callable[..., Any]


def under_transforms() -> bool:
    """Whether torch.func or forward mode is active, so that tensors may be wrapped or have tangents."""
    return bool(torch._C._are_functorch_transforms_active()) or bool(forward_ad._current_level >= 0)


def no_derivative(name: str, what: str) -> Rule:
    """A rule for a missing derivative: a NotImplementedError, since zeros would be wrong."""

    def refuse(ctx: Any, *given: Any) -> Any:
        raise NotImplementedError(f"{name}: has no {what}")

    return refuse


def without_derivatives(ctx: Any, *outputs: Tensor) -> None:
    """Marks outputs of a Function as not differentiable. The rules make a derivative by them an error.

    torch.func gives marked outputs zero derivatives. There they stay unmarked, so that the rules see them.
    """
    if not under_transforms():
        ctx.mark_non_differentiable(*outputs)


def refuse_others(name: str, what: str, by_others: Any) -> None:
    """NotImplementedError if there are derivatives by these outputs."""
    if any(v is not None for v in by_others):
        raise NotImplementedError(f"{name}: {what} no derivatives; must be detached")


def differentiable(
    name: str,
    operator: Any,
    *,
    backward: Rule,
    save: Rule | None = None,
    solve: Rule | None = None,
    forward_mode: Rule | None = None,
    batched: Rule,
) -> Rule:
    """A function that calls `operator` and works with autograd, torch.compile and torch.func; errors begin with `name`.

    `save` and `backward` are as for `register_autograd`. `solve`, if given, returns the outputs of `operator` and an
    object that the context of a plain backward has as its attribute `solved`. `forward_mode` is the jvp of an
    autograd.Function; without it forward mode is an error. `batched` is the rule of vmap: it takes this function, the
    size, the dimensions and the arguments, and returns as the vmap of an autograd.Function does.
    """
    operator.register_autograd(backward, setup_context=save)
    kernel, save = operator._init_fn, save or (lambda ctx, inputs, output: None)

    def forward_mode_once(ctx: Any, *tangents: Any) -> Any:
        # The rule of the inner level does not see the tangents of the outer one.
        if sum(level.key() == TransformType.Jvp for level in get_interpreter_stack() or ()) > 1:
            raise NotImplementedError(f"{name}: has no forward mode in forward mode; jacfwd takes jacrev")
        return (forward_mode or no_derivative(name, "derivatives of forward mode"))(ctx, *tangents)

    def vmap(info: Any, dimensions: Any, *given: Any) -> Any:
        return batched(call, info.batch_size, dimensions, given)

    function: Any = type(
        name,
        (torch.autograd.Function,),
        {
            "forward": staticmethod(lambda *given: operator(*given)),
            "setup_context": staticmethod(save),
            "backward": staticmethod(backward),
            "jvp": staticmethod(forward_mode_once),
            "vmap": staticmethod(vmap),
        },
    )

    def forward(ctx: Any, *given: Any) -> Any:
        if solve is None:
            found = kernel(*given)
        else:
            found, ctx.solved = solve(*given)
        save(ctx, given, found)
        return found

    plain: Any = type(
        name, (torch.autograd.Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    )

    def call(*given: Any) -> Any:
        if torch.compiler.is_compiling():
            if forward_ad._current_level >= 0:
                torch._dynamo.graph_break("forward mode goes through an operator as through a constant")
            return operator(*given)
        if under_transforms():
            return function.apply(*given)
        tensors = [v for v in given if isinstance(v, Tensor)]
        if torch._C._len_torch_dispatch_stack() > 0 or not all(map(_is_plain, tensors)):
            return operator(*given)
        followed = torch.is_grad_enabled() and any(v.requires_grad for v in tensors)
        return plain.apply(*given) if followed else kernel(*given)

    return call


def _is_plain(tensor: Tensor) -> bool:
    """Whether PyTorch's dispatcher would only call the kernel for this tensor."""
    is_batched = torch._C._functorch.is_legacy_batchedtensor(tensor)  # is_grads_batched makes these.
    return type(tensor) in (Tensor, torch.nn.Parameter) and not is_batched


def leading(tensor: Tensor, dimension: int | None, size: int) -> Tensor:
    """The tensor with the dimension of vmap as its first."""
    return tensor.expand(size, *tensor.shape) if dimension is None else tensor.movedim(dimension, 0)


def as_problems(call: Rule, size: int, dimensions: Any, given: Any) -> Any:
    """The vmap rule of an operator whose tensors all count problems first: vmap's dimension joins that one."""
    flat = [leading(v, at, size).flatten(0, 1) if isinstance(v, Tensor) else v for v, at in zip(given, dimensions)]
    found = [v.reshape(size, v.shape[0] // size, *v.shape[1:]) for v in call(*flat)]
    return tuple(found), (0,) * len(found)


def one_by_one(call: Rule, size: int, dimensions: Any, given: Any) -> Any:
    """The vmap rule of any other operator: one call for each index of vmap's dimension."""
    found = [call(*(v if at is None else v.select(at, k) for v, at in zip(given, dimensions))) for k in range(size)]
    return tuple(torch.stack(each) for each in zip(*found)), (0,) * len(found[0])
