"""Batches of small matrices projected onto given row and column sums, and the mappings of mHC layers."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

from . import _core, _signatures
from ._arrays import Array, Place, framework_of, read, read_optional
from ._names import calls, number, shown, whole
from ._signatures import typed

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._options import ProjectionOptions


def projection_options(
    preset: str | None, options: dict[str, Any], row_marginal: Any = None, column_marginal: Any = None
) -> _core.ProjectionOptions:
    """The options of a call. Options without marginals are kept for the next call with the same ones."""
    known = preset_name(preset)
    if row_marginal is None and column_marginal is None:
        try:
            return _without_marginals(known, tuple(options.items()))
        except TypeError:  # A value cannot be hashed, or has a wrong type; the library says which option is wrong.
            pass
    row, column = (
        read_optional(field, given)
        for field, given in (("row_marginal", row_marginal), ("column_marginal", column_marginal))
    )
    return _core.ProjectionOptions(known, options, row, column)


def preset_name(preset: Any) -> str:
    """The name of the preset for the library; the empty string stands for no preset."""
    if preset is not None and not isinstance(preset, str):
        raise TypeError(f"preset: is {shown(preset)}; must be a name")
    return preset or ""


@functools.lru_cache(maxsize=256)
def _without_marginals(preset: str, options: tuple[tuple[str, Any], ...]) -> _core.ProjectionOptions:
    return _core.ProjectionOptions(preset, dict(options), None, None)


@typed(_signatures.project)
@calls()
def project(
    logits: Any,
    preset: str | None = None,
    *,
    row_marginal: Any = None,
    column_marginal: Any = None,
    n_threads: int | None = None,
    **options: Unpack[ProjectionOptions],
) -> Array:
    """Each matrix of `logits` (..., n, m), scaled to given row and column sums by Sinkhorn's iteration.

    Args:
        logits: float16, bfloat16 (PyTorch) or float32; arithmetic is float32. Other numbers, float64 among them, are
            rounded to float32, and so is the result. n and m up to 2049, with the dustbin.
        preset: A convention in use: "mhc_paper", "deepseek", "megatron", "blog", "gumbel_sinkhorn" or "superglue".
            Without one, 20 iterations of exp, rows first.
        row_marginal, column_marginal: The sums of all matrices, instead of `row_sum`.
        n_threads: Threads on the CPU, by default one for each core.
        options: Options that differ from the preset: :class:`monge.ProjectionOptions`.

    Returns:
        The projections, of the shape and dtype of `logits`, float32 for float64; with `dustbin` one row and column
        more.

    Raises:
        ValueError, TypeError: An argument is wrong.

    Source: mHC (arXiv 2512.24880), eq. 8-9; docs/projection.md.

    >>> import monge, numpy as np
    >>> monge.project(np.zeros((2, 2), np.float32), "mhc_paper")
    array([[0.5, 0.5],
           [0.5, 0.5]], dtype=float32)
    """
    held = projection_options(preset, dict(options), row_marginal, column_marginal)
    return project_with(held, logits, n_threads)


def project_with(held: _core.ProjectionOptions, logits: Any, n_threads: int | None = None) -> Array:
    """:func:`project` with options that were made before."""
    framework = framework_of(logits)
    batch, shape = _batch_of(logits)
    place = Place(framework, framework.dtype_name(batch), framework.device(batch), framework.cuda_index(batch))
    extra = int(held.dustbin)
    to = place.empty(batch.shape[0], batch.shape[1] + extra, batch.shape[2] + extra)
    _core.project(place.session(n_threads), batch, to, held)
    return place.finish(to).reshape(*shape[:-2], *to.shape[1:])


def _batch_of(logits: Any, field: str = "logits") -> tuple[Array, tuple[int, ...]]:
    """The matrices as (B, n, m) with contiguous rows, and their original shape."""
    framework = framework_of(logits)
    batch = framework.read_small(field, logits)
    shape = tuple(batch.shape)
    if len(shape) < 2:
        raise ValueError(f"{field}: has shape {shape}; must be (..., n, m)")
    return (batch if len(shape) == 3 else batch.reshape(math.prod(shape[:-2]), *shape[-2:])), shape


@calls()
def projection_marginals(
    rows: int,
    columns: int,
    preset: str | None = None,
    *,
    row_marginal: Any = None,
    column_marginal: Any = None,
    **options: Unpack[ProjectionOptions],
) -> tuple[list[float], list[float]]:
    """The row sums and the column sums of :func:`project` for logits of `rows` x `columns`, from 1 to 2049.

    All else, and errors, as for :func:`project`.
    """
    held = projection_options(preset, dict(options), row_marginal, column_marginal)
    rows, columns = (whole(field, size, 1, 2049) for field, size in (("rows", rows), ("columns", columns)))
    return _core.projection_marginals(_core.cpu_session(0), rows, columns, held)


def streams_of(field: str, shape: tuple[int, ...]) -> int:
    """The number of streams of an mHC layer, from the shape of its mixes."""
    columns = shape[-1] if shape else 0
    streams = math.isqrt(columns + 1) - 1
    if columns == 0 or streams * (streams + 2) != columns:
        raise ValueError(f"{field}: has shape {shape}; must be (..., n (n + 2)) for n streams, (..., 24) for 4")
    return streams


@calls()
def mhc_mapping(
    mixes: Any,
    scale: Any,
    base: Any,
    preset: str | None = "mhc_paper",
    *,
    pre_epsilon: float = 0.0,
    post_factor: float = 2.0,
    n_threads: int | None = None,
    **options: Unpack[ProjectionOptions],
) -> tuple[Array, Array, Array]:
    """The three maps of an mHC layer with n streams from `mixes` (..., n (n + 2)), `scale` (3) and `base` (n (n + 2)).

    The layer has 8 mixes for 2 streams, 24 for 4 and 80 for 8; on a GPU 4 streams take one launch, others two. The
    inputs are float16, bfloat16 (PyTorch) or float32, and the maps have the dtype of `mixes`. The arithmetic is float32:
    inputs in half precision are converted, and the maps are rounded. Other numbers, float64 among them, count as
    float32.

    Returns pre (..., n) = sigmoid + `pre_epsilon`, post (..., n) = `post_factor` sigmoid, and res (..., n, n), the
    projection of the last n n columns, whose `preset`, `n_threads` and `options` are as for :func:`project`. DeepSeek's
    release has preset "deepseek" and pre_epsilon 1e-6.

    Raises:
        ValueError, TypeError: An argument is wrong; the message begins with its name.

    Source: mHC (arXiv 2512.24880), eq. 7-8.
    """
    held = projection_options(preset, dict(options))
    framework = framework_of(mixes)
    small = framework.read_small("mixes", mixes)
    place = Place(framework, "float32", framework.device(small), framework.cuda_index(small))
    shape = tuple(small.shape)
    n = streams_of("mixes", shape)
    tokens = read("mixes", small.reshape(math.prod(shape[:-1]), shape[-1]))
    scale, base = (read(name, framework_of(v).read_small(name, v)) for name, v in (("scale", scale), ("base", base)))
    count = tokens.shape[0]
    pre, post, res = place.empty(count, n), place.empty(count, n), place.empty(count, n, n)
    pre_epsilon, post_factor = number("pre_epsilon", pre_epsilon), number("post_factor", post_factor)
    session = place.session(n_threads)
    _core.mhc_mapping(session, tokens, scale, base, pre, post, res, held, pre_epsilon, post_factor)
    dtype = framework.dtype_name(small)
    maps = (framework.cast(place.finish(v).reshape(*shape[:-1], *v.shape[1:]), dtype) for v in (pre, post, res))
    return tuple(maps)
