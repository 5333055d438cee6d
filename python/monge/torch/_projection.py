"""The batched projection and the mappings of mHC layers as operators of PyTorch."""

import functools
import math
from typing import Any

import torch
from torch import Tensor

from .. import _core
from .._arrays import Place, read
from .._names import calls, number, truth, whole
from .._projection import preset_name, projection_options, streams_of
from ._assignment import linear_sum_assignment
from ._operands import require_tensors
from ._operator import differentiable, leading, no_derivative, one_by_one
from ._options import from_text, to_text

# torch.library reads the annotations, so they must not be strings.


def _require_half_or_single(name: str, dtype: torch.dtype) -> None:
    if dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise TypeError(f"{name}: is of dtype {dtype}; must be float16, bfloat16 or float32")


def _session(tensor: Tensor) -> _core.Session:
    return _core.cpu_session(0) if tensor.is_cpu else Place.of(tensor, tensor).session(None)


def _batch(tensor: Tensor) -> Tensor:
    """The matrices (B, n, m), with contiguous rows."""
    flat = tensor if tensor.ndim == 3 else tensor.reshape(math.prod(tensor.shape[:-2]), *tensor.shape[-2:])
    batch, row, column = flat.stride()
    gapped = column == 1 and row >= flat.shape[2] and batch >= row * flat.shape[1]
    fits = gapped or flat.is_contiguous()
    return (flat if fits else flat.contiguous()).detach()


@functools.lru_cache(maxsize=256)
@calls()
def _held(preset: str, options: str) -> _core.ProjectionOptions:
    return projection_options(preset or None, from_text(options))


def _forward(logits: Tensor, held: _core.ProjectionOptions) -> Tensor:
    _require_half_or_single("logits", logits.dtype)
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
def _project_operator(logits: Tensor, preset: str, options: str) -> Tensor:
    return _forward(logits, _held(preset, options))


@_project_operator.register_fake
def _(logits, preset, options):  # type: ignore[no-untyped-def]
    extra = int(_held(preset, options).dustbin)
    return logits.new_empty(*logits.shape[:-2], logits.shape[-2] + extra, logits.shape[-1] + extra)


@torch.library.custom_op("monge::project_backward", mutates_args=())
def _project_backward_operator(logits: Tensor, by_out: Tensor, preset: str, options: str) -> Tensor:
    return _backward(logits, by_out, _held(preset, options))


@_project_backward_operator.register_fake
def _(logits, by_out, preset, options):  # type: ignore[no-untyped-def]
    return logits.new_empty(logits.shape)


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    logits, ctx.preset, ctx.options = inputs
    ctx.save_for_backward(logits)


def _differentiate(ctx: Any, by_out: Tensor) -> Any:
    (logits,) = ctx.saved_tensors
    return _project_backward(logits, by_out, ctx.preset, ctx.options), None, None


def _batched(call: Any, size: int, dimensions: Any, given: Any) -> Any:
    """The vmap rule: matrices may have any number of leading dimensions, so vmap's is one more."""
    return call(*(leading(v, at, size) if isinstance(v, Tensor) else v for v, at in zip(given, dimensions))), 0


_project = differentiable("project", _project_operator, save=_save, backward=_differentiate, batched=_batched)
_project_backward = differentiable(
    "project", _project_backward_operator, backward=no_derivative("project", "second derivatives"), batched=_batched
)


def project(logits: Tensor, preset: str | None = None, **options: Any) -> Tensor:
    """:func:`monge.project` of `logits` (..., n, m), in float16, bfloat16 or float32, with its gradient. This is the
    gradient of the iterations, or with gradient="implicit" that of their limit.

    `preset` and `options` are as for :func:`monge.project`; only that function takes marginals. Errors are those of
    :func:`monge.project`; a second derivative is a NotImplementedError.

    >>> import monge.torch, torch
    >>> monge.torch.project(torch.zeros(2, 2), "mhc_paper")
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]])
    """
    require_tensors(logits=logits)
    return _project(logits, preset_name(preset), to_text(options))  # type: ignore[no-any-return]


class SinkhornProjection(torch.nn.Module):
    """:func:`project` as a module: ``SinkhornProjection("mhc_paper", iterations=10)(logits)``.

    `preset` and `options` are as for :func:`monge.project`.
    """

    def __init__(self, preset: str | None = "mhc_paper", **options: Any) -> None:
        super().__init__()
        project(torch.zeros(1, 1), preset, **options)  # Wrong names and values are errors here.
        self.preset, self.options = preset, options

    def forward(self, logits: Tensor) -> Tensor:
        """The projections of `logits` (..., n, m)."""
        return project(logits, self.preset, **self.options)

    def extra_repr(self) -> str:
        return ", ".join([repr(self.preset), *(f"{name}={value!r}" for name, value in self.options.items())])


def gumbel_sinkhorn(
    logits: Tensor,
    temperature: float = 1.0,
    *,
    noise: float = 1.0,
    generator: torch.Generator | None = None,
    hard: bool = False,
    **options: Any,
) -> Tensor:
    """Random doubly stochastic matrices near permutations: :func:`project` of (`logits` + `noise` G) / `temperature`,
    with independent G of the standard Gumbel distribution, and its gradient by `logits` at that G.

    Args:
        logits: (..., n, m), in float16, bfloat16 or float32. Noise, sum and projection are in float32; the result is
            rounded. For k samples of each matrix: ``logits.expand(k, *logits.shape)``.
        temperature: > 0; the lower, the nearer the matrices are to permutations.
        noise: Factor of G; 0 for the projection alone, such as in evaluation.
        generator: Of PyTorch, on the device of the logits; by default that device's own (torch.manual_seed). The same
            seed gives the same matrices on one device; PyTorch's numbers on a CPU and on a GPU differ.
        hard: Whether the result has the entries 0 and 1 of the permutation with the largest sum of `logits` + `noise`
            G, with the gradient of the doubly stochastic matrix (straight-through). Where n and m differ, min(n, m)
            entries are 1. -inf forbids an entry; a matrix without a permutation is NaN.
        options: As for :func:`monge.project`, with preset "gumbel_sinkhorn".

    Errors are those of :func:`project`, and of :func:`linear_sum_assignment` with `hard`, which takes no dustbin.

    Source: Mena et al. 2018, Learning Latent Permutations with Gumbel-Sinkhorn Networks.

    >>> import monge.torch, torch
    >>> monge.torch.gumbel_sinkhorn(torch.zeros(3, 3), 0.1, noise=0)[0]
    tensor([0.3333, 0.3333, 0.3333])
    >>> monge.torch.gumbel_sinkhorn(torch.tensor([[1.0, 2], [3, 5]]), noise=0, hard=True)
    tensor([[1., 0.],
            [0., 1.]])
    """
    require_tensors(logits=logits)
    _require_half_or_single("logits", logits.dtype)
    noise, hard = number("noise", noise), truth("hard", hard)
    if not 0 <= noise < math.inf:
        raise ValueError(f"noise: is {noise}; must be finite and >= 0")
    moved = logits.float()
    if noise > 0:  # An exponential number is positive, so that its logarithm is finite.
        moved = moved - noise * torch.empty_like(moved).exponential_(generator=generator).log()
    soft = project(moved, "gumbel_sinkhorn", temperature=temperature, **options)
    if hard:
        if soft.shape != moved.shape:
            raise ValueError("hard: is True with a dustbin; must be False, a dustbin is in no permutation")
        soft = _permutation(moved) + (soft - soft.detach())
    return soft.to(logits.dtype)


def _permutation(scores: Tensor) -> Tensor:
    """1 at the pairs with the largest sum of scores (..., n, m), 0 elsewhere; NaN for a matrix without such pairs."""
    row, column = linear_sum_assignment(scores, maximize=True, check=False)
    paired = row >= 0
    at = torch.where(paired, row * scores.shape[-1] + column, 0)
    matrices = torch.zeros_like(scores).flatten(-2).scatter(-1, at, paired.to(scores.dtype)).view(scores.shape)
    return matrices.masked_fill(~paired.all(-1)[..., None, None], math.nan)


@calls(iterations="num_iterations", epsilon="eps")
def fused_sinkhorn(logits: Tensor, num_iterations: int = 20, eps: float = 1e-6) -> Tensor:
    """The fused Sinkhorn of Megatron-LM, with its arguments: `logits` (..., n, m), in float32, float16 or bfloat16,
    `num_iterations`, and `eps`, a lower bound of the sums that it divides by. The function is :func:`project` with the
    preset "megatron", and has its errors."""
    return project(logits, "megatron", iterations=num_iterations, epsilon=eps)


def _empty_maps(mixes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    tokens, n = mixes.shape[0], streams_of("mixes", tuple(mixes.shape))
    return mixes.new_empty(tokens, n), mixes.new_empty(tokens, n), mixes.new_empty(tokens, n, n)


@torch.library.custom_op("monge::mhc_mapping", mutates_args=())
def _mhc_operator(
    mixes: Tensor, scale: Tensor, base: Tensor, preset: str, options: str, pre_epsilon: float, post_factor: float
) -> tuple[Tensor, Tensor, Tensor]:
    pre, post, res = _empty_maps(mixes)
    given = (read("mixes", mixes), read("scale", scale), read("base", base))
    _core.mhc_mapping(_session(mixes), *given, pre, post, res, _held(preset, options), pre_epsilon, post_factor)
    return pre, post, res


@_mhc_operator.register_fake
def _(mixes, scale, base, preset, options, pre_epsilon, post_factor):  # type: ignore[no-untyped-def]
    return _empty_maps(mixes)


@torch.library.custom_op("monge::mhc_mapping_backward", mutates_args=())
def _mhc_backward_operator(
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


@_mhc_backward_operator.register_fake
def _(mixes, scale, base, by_pre, by_post, by_res, preset, options, pre_epsilon, post_factor):  # type: ignore[no-untyped-def]
    return mixes.new_empty(mixes.shape), torch.empty_like(scale), torch.empty_like(base)


def _save_mhc(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:3])
    ctx.rest = inputs[3:]


def _differentiate_mhc(ctx: Any, *by: Tensor) -> Any:
    return *_mhc_backward(*ctx.saved_tensors, *by, *ctx.rest), None, None, None, None


_mhc = differentiable("mhc_mapping", _mhc_operator, save=_save_mhc, backward=_differentiate_mhc, batched=one_by_one)
_mhc_backward = differentiable(
    "mhc_mapping",
    _mhc_backward_operator,
    backward=no_derivative("mhc_mapping", "second derivatives"),
    batched=one_by_one,
)


def _require(name: str, tensor: Tensor, shape: tuple[int, ...], like: Tensor) -> None:
    """An error unless the tensor ends in this shape, has at most float32 and lies on the device of the mixes."""
    _require_half_or_single(name, tensor.dtype)
    if tensor.device != like.device:
        raise ValueError(f"{name}: lies on {tensor.device}; must be on {like.device}, where the mixes are")
    if tensor.shape[tensor.ndim - len(shape) if tensor is like else 0 :] != shape:
        raise ValueError(f"{name}: has shape {tuple(tensor.shape)}; must be {shape}")


def _mapping(
    given: dict[str, Tensor], preset: str, pre_epsilon: float, post_factor: float, options: dict[str, Any]
) -> tuple[Tensor, Tensor, Tensor]:
    """The maps of mixes, scale and base; `given` has these in this order, by the caller's names."""
    require_tensors(**given)
    pre_epsilon, post_factor = number("pre_epsilon", pre_epsilon), number("post_factor", post_factor)
    mixes, scale, base = given.values()
    streams_of(next(iter(given)), tuple(mixes.shape))
    columns = mixes.shape[-1]
    for (name, tensor), shape in zip(given.items(), ((columns,), (3,), (columns,))):
        _require(name, tensor, shape, mixes)
    flat = mixes.reshape(math.prod(mixes.shape[:-1]), columns).float()
    maps = _mhc(flat, scale.float(), base.float(), preset_name(preset), to_text(options), pre_epsilon, post_factor)
    lead = mixes.shape[:-1]
    pre, post, res = (v.to(mixes.dtype).view(*lead, *v.shape[1:]) for v in maps)
    return pre, post, res


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
    """:func:`monge.mhc_mapping` with its gradients by `mixes` (..., n (n + 2)), `scale` (3) and `base` (n (n + 2)), for
    n streams.

    The inputs are float32, float16 or bfloat16. Their gradients have their dtypes, and the maps have that of `mixes`.
    The arithmetic is float32: PyTorch converts inputs in half precision, and rounds the maps.

    pre is a sigmoid plus `pre_epsilon`, post is `post_factor` times a sigmoid, and res is the projection, whose
    `preset` and `options` are as for :func:`monge.project`.

    Errors are those of :func:`monge.mhc_mapping`. Second derivatives and forward mode are a NotImplementedError.
    """
    return _mapping({"mixes": mixes, "scale": scale, "base": base}, preset, pre_epsilon, post_factor, options)


class MHCMapping(torch.nn.Module):
    """The maps of an mHC layer with their parameters: ``pre, post, res = MHCMapping()(mixes)``.

    `mixes` (..., 24) is the linear projection of the layer's normalised streams, with 4 + 4 + 16 columns; for n streams
    n + n + n n. :func:`mhc_mapping` makes the maps of it.

    Args:
        preset: "mhc_paper", or "deepseek" with pre_epsilon=1e-6 for DeepSeek's release.
        pre_epsilon, post_factor: As for :func:`mhc_mapping`.
        streams: n, 4 in the paper.
        options: As for :func:`monge.project`.
        device, dtype: The device and dtype of the parameters.

    Attributes:
        scale: (3), the gating factors of pre, post and res. They start at 0.01, so that the maps depend little on the
            mixes.
        base: (n (n + 2)), the static part of the maps. It starts at 0, where pre is 1 / 2, post 1 and res 1 / n.

    Source: mHC (arXiv 2512.24880), eq. 7-8.

    >>> import monge.torch, torch
    >>> monge.torch.MHCMapping()(torch.zeros(1, 24))[0]
    tensor([[0.5000, 0.5000, 0.5000, 0.5000]], grad_fn=<ViewBackward0>)
    """

    def __init__(
        self,
        preset: str = "mhc_paper",
        *,
        pre_epsilon: float = 0.0,
        post_factor: float = 2.0,
        streams: int = 4,
        device: Any = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if dtype not in (None, torch.float16, torch.bfloat16, torch.float32):
            raise TypeError(f"dtype: is {dtype}; must be torch.float16, torch.bfloat16 or torch.float32")
        self.preset, self.options = preset, options
        self.pre_epsilon, self.post_factor = pre_epsilon, post_factor
        self.scale = torch.nn.Parameter(torch.empty(3, device=device, dtype=dtype))
        columns = whole("streams", streams, 1, 2049) * (streams + 2)
        self.base = torch.nn.Parameter(torch.empty(columns, device=device, dtype=dtype))
        self.reset_parameters()
        # Wrong names and values are errors here.
        mixes, scale, base = (torch.zeros(size, dtype=dtype) for size in ((1, columns), (3,), (columns,)))
        mhc_mapping(mixes, scale, base, preset, pre_epsilon=pre_epsilon, post_factor=post_factor, **options)

    def reset_parameters(self) -> None:
        """Sets the parameters to their initial values."""
        torch.nn.init.constant_(self.scale, 0.01)
        torch.nn.init.zeros_(self.base)

    def forward(self, mixes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """pre (..., n), post (..., n) and res (..., n, n) of `mixes` (..., n (n + 2))."""
        return mhc_mapping(
            mixes,
            self.scale,
            self.base,
            self.preset,
            pre_epsilon=self.pre_epsilon,
            post_factor=self.post_factor,
            **self.options,
        )

    def extra_repr(self) -> str:
        given = {"pre_epsilon": self.pre_epsilon, "post_factor": self.post_factor, **self.options}
        return ", ".join([repr(self.preset), *(f"{name}={value!r}" for name, value in given.items())])


@calls(iterations="sinkhorn_iters", epsilon="eps", pre_epsilon="eps")
def hc_split_sinkhorn(
    mixes: Tensor, hc_scale: Tensor, hc_base: Tensor, hc_mult: int = 4, sinkhorn_iters: int = 20, eps: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor]:
    """``hc_split_sinkhorn`` of SGLang, with its arguments: mixes (..., n (n + 2)), hc_scale (3) and
    hc_base (n (n + 2)) for n = `hc_mult` streams.

    `sinkhorn_iters` and `eps` are the iterations and the epsilon of preset "deepseek"; `eps` is the pre_epsilon, too.
    Returns pre (..., n), post (..., n) and comb (..., n, n) in the dtype of mixes, with gradients. SGLang's function
    takes float32; this one also takes half precision, as :func:`mhc_mapping` does.

    Source: DeepSeek's release of mHC, as SGLang has it.
    """
    given = {"mixes": mixes, "hc_scale": hc_scale, "hc_base": hc_base}
    require_tensors(**given)
    columns = whole("hc_mult", hc_mult, 1, 2049) * (hc_mult + 2)
    if mixes.shape[-1:] != (columns,):
        raise ValueError(f"mixes: has shape {tuple(mixes.shape)}; must be (..., {columns}) with hc_mult {hc_mult}")
    return _mapping(given, "deepseek", eps, 2.0, {"iterations": sinkhorn_iters, "epsilon": eps})
