"""What torch.library lacks: its operators under torch.func's transforms and in forward mode, and in a hurry.

PyTorch makes of `register_autograd` an autograd.Function that torch.func.grad refuses, and forward mode goes through an
operator as if it were constant. So each operator has a Function of its own beside it, of the same rules, for calls
under these. The operator itself is what torch.compile keeps in its graph, and what dispatch modes and subclasses of
tensors see. Its dispatch takes longer than a small projection, so that plain tensors go to its kernel straight away, by
another Function where autograd follows them.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import TransformType, get_interpreter_stack
from torch.autograd import forward_ad

Rule = Callable[..., Any]


def under_transforms() -> bool:
    """Whether torch.func or forward mode is at work, where tensors are wrapped or have tangents."""
    return bool(torch._C._are_functorch_transforms_active()) or bool(forward_ad._current_level >= 0)


def no_derivative(name: str, what: str) -> Rule:
    """A rule of what has none: a NotImplementedError, since zeros would be a wrong number."""

    def refuse(ctx: Any, *given: Any) -> Any:
        raise NotImplementedError(f"{name}: has no {what}")

    return refuse


def without_derivatives(ctx: Any, *outputs: Tensor) -> None:
    """Marks outputs of a Function that have none: by the rules, a derivative of them is an error.

    torch.func takes what is marked for constant, with zeros for derivatives, so there the rules have to see it.
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
    forward_mode: Rule | None = None,
    batched: Rule,
) -> Rule:
    """`operator` as a function that autograd, torch.compile and torch.func know; errors begin with `name`.

    `save` and `backward` are as for `register_autograd`, `forward_mode` is the jvp of an autograd.Function, or without
    one an error. `batched` is the rule of vmap: (the function itself, size, dimensions, arguments) to what
    autograd.Function's vmap returns.
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
        found = kernel(*given)
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
    """Whether PyTorch's dispatcher would do no more with it than call the kernel."""
    is_batched = torch._C._functorch.is_legacy_batchedtensor(tensor)  # Those of is_grads_batched.
    return type(tensor) in (Tensor, torch.nn.Parameter) and not is_batched


def leading(tensor: Tensor, dimension: int | None, size: int) -> Tensor:
    """The tensor with the dimension of vmap first."""
    return tensor.expand(size, *tensor.shape) if dimension is None else tensor.movedim(dimension, 0)


def as_problems(call: Rule, size: int, dimensions: Any, given: Any) -> Any:
    """The rule of an operator whose tensors all have their first dimension of problems: more of them."""
    flat = [leading(v, at, size).flatten(0, 1) if isinstance(v, Tensor) else v for v, at in zip(given, dimensions)]
    found = [v.reshape(size, v.shape[0] // size, *v.shape[1:]) for v in call(*flat)]
    return tuple(found), (0,) * len(found)


def one_by_one(call: Rule, size: int, dimensions: Any, given: Any) -> Any:
    """The rule of an operator that has other tensors beside those of its problems: a call for each."""
    found = [call(*(v if at is None else v.select(at, k) for v, at in zip(given, dimensions))) for k in range(size)]
    return tuple(torch.stack(each) for each in zip(*found)), (0,) * len(found[0])
