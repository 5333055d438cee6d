"""The types of :func:`monge.solve`, :func:`monge.solve_sample` and :func:`monge.project`: the class of a result depends
on the arguments.

Only type checkers and editors read these functions. No code calls them. Where the arguments leave the class open, as a
`reg` that may be None does, the type of the result is the union of the classes. Python has no type of the number 0.0,
so every float stands for reg > 0; None and the whole number 0 stand for exact transport.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, overload

import numpy as np

from ._costs import CostOptions
from ._options import ExactOptions, KeywordOptions, ProjectionOptions, RegularizedOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._exact import ExactResult
    from ._problem import ProgressFunction, Reg
    from ._regularized import RegularizedResult
    from ._result import OTResult

Signature = TypeVar("Signature")
ArrayOfPackage = TypeVar("ArrayOfPackage")
Entropy = Literal["KL", "kl", "entropy"]
Quadratic = Literal["L2", "l2"]


class Arguments(TypedDict, total=False):
    """The keyword arguments of solve() that do not choose the solver."""

    unbalanced: float | Sequence[float] | None
    unbalanced_type: str
    n_threads: int | None
    max_iter: int | None
    plan_init: Any
    potentials_init: tuple[Any, Any] | None
    tol: float | None
    verbose: bool
    grad: str
    device: Any
    progress: bool | ProgressFunction | None


class SampleArguments(Arguments, CostOptions, total=False):
    """The arguments of solve_sample()."""

    c: Any
    lazy: bool
    batch_size: int | None
    rank: int
    scaling: float
    X_init: Any
    random_state: Any
    debias: bool
    n_projections: int
    projections: Any
    scaler: Any


class Exact(Arguments, ExactOptions, total=False):
    """With the options of an exact solve."""


class ExactSample(SampleArguments, ExactOptions, total=False):
    """With the options of an exact solve."""


class Entropic(Arguments, KeywordOptions, total=False):
    """With the options of an entropic solve."""


class EntropicSample(SampleArguments, KeywordOptions, total=False):
    """With the options of an entropic solve."""


class Regularized(Arguments, RegularizedOptions, total=False):
    """With the options of a regularised solve."""


class RegularizedSample(SampleArguments, RegularizedOptions, total=False):
    """With the options of a regularised solve."""


@overload
def solve(
    M: Any, a: Any = None, b: Any = None, reg: Literal[0] | None = None, *, reg_type: str = "KL", **others: Unpack[Exact]
) -> ExactResult: ...
@overload
def solve(
    M: Any,
    a: Any = None,
    b: Any = None,
    *,
    reg: Reg,
    c: Any = None,
    reg_type: Entropy = "KL",
    method: str | None = None,
    **others: Unpack[Entropic],
) -> OTResult: ...
@overload
def solve(
    M: Any,
    a: Any,
    b: Any,
    reg: Reg,
    c: Any = None,
    reg_type: Entropy = "KL",
    *,
    method: str | None = None,
    **others: Unpack[Entropic],
) -> OTResult: ...
@overload
def solve(
    M: Any, a: Any = None, b: Any = None, *, reg: float, reg_type: Quadratic, **others: Unpack[Regularized]
) -> RegularizedResult: ...
@overload
def solve(
    M: Any,
    a: Any = None,
    b: Any = None,
    reg: Reg | None = None,
    c: Any = None,
    reg_type: str = "KL",
    *,
    method: str | None = None,
    **others: Unpack[Entropic],
) -> OTResult | ExactResult | RegularizedResult: ...
def solve(*arguments: Any, **keywords: Any) -> Any:
    raise NotImplementedError


@overload
def solve_sample(
    X_a: Any,
    X_b: Any,
    a: Any = None,
    b: Any = None,
    metric: str = "sqeuclidean",
    reg: Literal[0] | None = None,
    *,
    reg_type: str = "KL",
    **others: Unpack[ExactSample],
) -> ExactResult: ...
@overload
def solve_sample(
    X_a: Any,
    X_b: Any,
    a: Any = None,
    b: Any = None,
    metric: str = "sqeuclidean",
    *,
    reg: Reg,
    reg_type: Entropy = "KL",
    method: str | None = None,
    **others: Unpack[EntropicSample],
) -> OTResult: ...
@overload
def solve_sample(
    X_a: Any,
    X_b: Any,
    a: Any = None,
    b: Any = None,
    metric: str = "sqeuclidean",
    *,
    reg: float,
    reg_type: Quadratic,
    **others: Unpack[RegularizedSample],
) -> RegularizedResult: ...
@overload
def solve_sample(
    X_a: Any,
    X_b: Any,
    a: Any = None,
    b: Any = None,
    metric: str = "sqeuclidean",
    reg: Reg | None = None,
    *,
    reg_type: str = "KL",
    method: str | None = None,
    **others: Unpack[EntropicSample],
) -> OTResult | ExactResult | RegularizedResult: ...
def solve_sample(*arguments: Any, **keywords: Any) -> Any:
    raise NotImplementedError


@overload
def project(
    logits: np.ndarray[Any, Any] | list[Any] | tuple[Any, ...],
    preset: str | None = None,
    *,
    row_marginal: Any = None,
    column_marginal: Any = None,
    n_threads: int | None = None,
    **options: Unpack[ProjectionOptions],
) -> np.ndarray[Any, Any]: ...
@overload
def project(
    logits: ArrayOfPackage,
    preset: str | None = None,
    *,
    row_marginal: Any = None,
    column_marginal: Any = None,
    n_threads: int | None = None,
    **options: Unpack[ProjectionOptions],
) -> ArrayOfPackage: ...
def project(*arguments: Any, **keywords: Any) -> Any:
    raise NotImplementedError


def typed(signature: Signature) -> Callable[[Callable[..., Any]], Signature]:
    """Gives a function the signature of another for type checkers; nothing happens when it is called."""

    def decorate(function: Callable[..., Any]) -> Signature:
        return function  # type: ignore[return-value]

    return decorate
