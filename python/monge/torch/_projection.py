"""The batched projection and the mappings of mHC layers as operators of PyTorch."""

from typing import Any

import torch
from torch import Tensor

from .. import _core
from .._arrays import Place, read
from .._projection import projection_options
from ._operands import first_only
from ._options import from_text, to_text

# Annotations are read by torch.library, so they are no strings here.


def _session(tensor: Tensor) -> _core.Session:
    return _core.cpu_session(0) if tensor.is_cpu else Place.of(tensor, tensor).session(None)


def _batch(tensor: Tensor) -> Tensor:
    """(B, n, m), its rows without gaps."""
    flat = tensor if tensor.ndim == 3 else tensor.reshape(-1, *tensor.shape[-2:])
    fits = flat.is_contiguous() or (flat.stride(-1) == 1 and flat.stride(-2) >= flat.shape[-1])
    return (flat if fits else flat.contiguous()).detach()


def _held(preset: str, options: str) -> _core.ProjectionOptions:
    return projection_options(preset or None, from_text(options))


def _forward(logits: Tensor, held: _core.ProjectionOptions) -> Tensor:
    if logits.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise TypeError(f"logits: is of dtype {logits.dtype}; must be float16, bfloat16 or float32")
    if logits.ndim < 2:
        raise ValueError(f"logits: has shape {tuple(logits.shape)}; must be (..., n, m)")
    if held.dustbin:
        to = logits.new_empty(*logits.shape[:-2], logits.shape[-2] + 1, logits.shape[-1] + 1)
    else:
        to = torch.empty_like(logits, memory_format=torch.contiguous_format)
    _core.project(_session(logits), _batch(logits), _batch(to), held)
    return to


def _backward(logits: Tensor, by_out: Tensor, held: _core.ProjectionOptions) -> Tensor:
    to = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    _core.project_backward(_session(logits), _batch(logits), _batch(by_out.to(logits.dtype)), _batch(to), None, held)
    return to


@torch.library.custom_op("monge::project", mutates_args=())
def _project(logits: Tensor, preset: str, options: str) -> Tensor:
    return _forward(logits, _held(preset, options))


@_project.register_fake
def _(logits, preset, options):  # type: ignore[no-untyped-def]
    extra = int(_held(preset, options).dustbin)
    return logits.new_empty(*logits.shape[:-2], logits.shape[-2] + extra, logits.shape[-1] + extra)


@torch.library.custom_op("monge::project_backward", mutates_args=())
def _project_backward(logits: Tensor, by_out: Tensor, preset: str, options: str) -> Tensor:
    return _backward(logits, by_out, _held(preset, options))


@_project_backward.register_fake
def _(logits, by_out, preset, options):  # type: ignore[no-untyped-def]
    return logits.new_empty(logits.shape)


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    logits, ctx.preset, ctx.options = inputs
    ctx.save_for_backward(logits)


def _differentiate(ctx: Any, by_out: Tensor) -> Any:
    (logits,) = ctx.saved_tensors
    return _project_backward(logits, by_out, ctx.preset, ctx.options), None, None


def _no_second(ctx: Any, *given: Any) -> Any:
    raise NotImplementedError("project: has no second derivatives")


_project.register_autograd(_differentiate, setup_context=_save)
_project_backward.register_autograd(_no_second)


class _Eager(torch.autograd.Function):
    """The same outside torch.compile, where a dispatch of an operator of Python would take longer than the work."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, held: _core.ProjectionOptions) -> Tensor:  # type: ignore[override]
        ctx.held = held
        ctx.save_for_backward(logits)
        return _forward(logits, held)

    @staticmethod
    def backward(ctx: Any, by_out: Tensor) -> Any:  # type: ignore[override]
        (logits,) = ctx.saved_tensors
        with torch.no_grad():
            by_logits = _backward(logits, by_out, ctx.held)
        return first_only("project", by_logits, logits, by_out), None


def project(logits: Tensor, preset: str | None = None, **options: Any) -> Tensor:
    """:func:`monge.project` of `logits` (..., n, m) with its gradient: that of the iterations that were done, or with
    gradient="implicit" of their limit. float16, bfloat16 and float32, in and out.

    Errors are those of :func:`monge.project`; a second derivative is a NotImplementedError.

    >>> import monge.torch, torch
    >>> monge.torch.project(torch.zeros(2, 2), "mhc_paper")
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]])
    """
    if torch.compiler.is_compiling():
        return _project(logits, preset or "", to_text(options))  # type: ignore[no-any-return]
    held = projection_options(preset, options)
    if logits.requires_grad and torch.is_grad_enabled():
        return _Eager.apply(logits, held)  # type: ignore[no-any-return]
    return _forward(logits, held)


class SinkhornProjection(torch.nn.Module):
    """:func:`project` as a module: ``SinkhornProjection("mhc_paper", iterations=10)(logits)``."""

    def __init__(self, preset: str | None = "mhc_paper", **options: Any) -> None:
        super().__init__()
        projection_options(preset, options)  # Bad names and values are said here.
        self.preset, self.options = preset, options

    def forward(self, logits: Tensor) -> Tensor:
        return project(logits, self.preset, **self.options)

    def extra_repr(self) -> str:
        return ", ".join([repr(self.preset), *(f"{name}={value!r}" for name, value in self.options.items())])


def fused_sinkhorn(logits: Tensor, num_iterations: int = 20, eps: float = 1e-6) -> Tensor:
    """Megatron-LM's fused Sinkhorn, by its arguments: `logits` (..., n, m), in float32, float16 or bfloat16, iterations
    and the least sum that it divides by. :func:`project` with the preset "megatron", and its errors."""
    return project(logits, "megatron", iterations=num_iterations, epsilon=eps)


@torch.library.custom_op("monge::mhc_mapping", mutates_args=())
def _mhc(
    mixes: Tensor, scale: Tensor, base: Tensor, preset: str, options: str, pre_epsilon: float, post_factor: float
) -> tuple[Tensor, Tensor, Tensor]:
    tokens = mixes.shape[0]
    pre, post, res = mixes.new_empty(tokens, 4), mixes.new_empty(tokens, 4), mixes.new_empty(tokens, 4, 4)
    given = (read("mixes", mixes), read("scale", scale), read("base", base))
    _core.mhc_mapping(_session(mixes), *given, pre, post, res, _held(preset, options), pre_epsilon, post_factor)
    return pre, post, res


@_mhc.register_fake
def _(mixes, scale, base, preset, options, pre_epsilon, post_factor):  # type: ignore[no-untyped-def]
    tokens = mixes.shape[0]
    return mixes.new_empty(tokens, 4), mixes.new_empty(tokens, 4), mixes.new_empty(tokens, 4, 4)


@torch.library.custom_op("monge::mhc_mapping_backward", mutates_args=())
def _mhc_backward(
    mixes: Tensor,
    scale: Tensor,
    base: Tensor,
    by_pre: Tensor,
    by_post: Tensor,
    by_res: Tensor,
    preset: str,
    options: str,
    pre_epsilon: float,
    post_factor: float,
) -> tuple[Tensor, Tensor, Tensor]:
    by_mixes = torch.empty(mixes.shape, dtype=mixes.dtype, device=mixes.device)
    by_scale, by_base = torch.empty_like(scale), torch.empty_like(base)
    given = (read("mixes", mixes), read("scale", scale), read("base", base))
    of = (by_pre.contiguous(), by_post.contiguous(), by_res.contiguous())
    held = _held(preset, options)
    _core.mhc_mapping_backward(
        _session(mixes), *given, *of, by_mixes, by_scale, by_base, held, pre_epsilon, post_factor
    )
    return by_mixes, by_scale, by_base


@_mhc_backward.register_fake
def _(mixes, scale, base, by_pre, by_post, by_res, preset, options, pre_epsilon, post_factor):  # type: ignore[no-untyped-def]
    return mixes.new_empty(mixes.shape), torch.empty_like(scale), torch.empty_like(base)


def _save_mhc(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:3])
    ctx.rest = inputs[3:]


def _differentiate_mhc(ctx: Any, *by: Tensor) -> Any:
    return *_mhc_backward(*ctx.saved_tensors, *by, *ctx.rest), None, None, None, None


_mhc.register_autograd(_differentiate_mhc, setup_context=_save_mhc)
_mhc_backward.register_autograd(_no_second)


def mhc_mapping(
    mixes: Tensor,
    scale: Tensor,
    base: Tensor,
    preset: str = "mhc_paper",
    *,
    pre_epsilon: float = 0.0,
    post_factor: float = 2.0,
    **options: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """:func:`monge.mhc_mapping` with its gradients by `mixes` (..., 24), `scale` (3) and `base` (24), all float32.

    Errors are those of :func:`monge.mhc_mapping`; a second derivative is a NotImplementedError.
    """
    lead = mixes.shape[:-1]
    pre, post, res = _mhc(
        mixes.reshape(-1, mixes.shape[-1]), scale, base, preset, to_text(options), pre_epsilon, post_factor
    )
    return pre.view(*lead, 4), post.view(*lead, 4), res.view(*lead, 4, 4)


def hc_split_sinkhorn(
    mixes: Tensor, hc_scale: Tensor, hc_base: Tensor, hc_mult: int = 4, sinkhorn_iters: int = 20, eps: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor]:
    """SGLang's ``hc_split_sinkhorn``, by its arguments: mixes (..., 24), hc_scale (3) and hc_base (24), float32.

    Returns pre (..., 4), post (..., 4) and comb (..., 4, 4), with gradients. `hc_mult` is 4, else a
    NotImplementedError.

    Source: DeepSeek's release of mHC, as SGLang has it.
    """
    if hc_mult != 4:
        raise NotImplementedError(f"hc_mult: is {hc_mult}; must be 4")
    return mhc_mapping(mixes, hc_scale, hc_base, "deepseek", pre_epsilon=eps, iterations=sinkhorn_iters, epsilon=eps)
