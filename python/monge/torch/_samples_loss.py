"""SamplesLoss of GeomLoss, of the operators of transport and of its divergence."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .. import _core
from .._costs import LABELLED, LABELS, alone, split_costs
from .._names import UNEQUAL_TOTALS, number, rename, say_nearest, say_rounding, shown, truth
from .._problem import is_balanced, library_options
from ._loss_operators import divergence_operator, transport_operator
from ._losses import evaluate
from ._operands import floating, require_tensors, require_weights
from ._operator import under_transforms
from ._options import from_text, to_text

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._costs import LabelOptions

_OF_GEOMLOSS = {
    "eps": "blur",
    "annealing": "scaling",
    "penalty_a": "reach",
    "penalty_b": "reach",
    UNEQUAL_TOTALS: "reach",
    "tolerance": "tol",
    "iterations": "max_iter",
}


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _check(options: str) -> None:
    """Refuses wrong options; torch.compile calls it once, while it traces."""
    _core.check_solve_options(from_text(options))


def _power(name: str, length: Any, p: int) -> float:
    value = number(name, length)
    if not value > 0:
        raise ValueError(f"{name}: is {length}; must be > 0")
    try:
        power = value**p
    except OverflowError:
        power = math.inf
    if power == 0 or (power == math.inf and value < math.inf):
        raise ValueError(f"{name}: is {length}; its power {p} must be a number > 0")
    return power


class SamplesLoss(torch.nn.Module):
    """``SamplesLoss("sinkhorn")`` of GeomLoss, solved to a tolerance: the Sinkhorn divergence of samples.

    Costs are |x - y|^2 / 2 for p = 2 and |x - y| for p = 1. eps is blur^p, and the penalty of unbalanced transport is
    reach^p. Values are those of GeomLoss in the limit of scaling 1: here the last sweeps are at eps itself and go on to
    the tolerance. First and second derivatives are exact. For p = 1 those of a distance 0 are taken as 0.

    Args:
        loss: "sinkhorn" alone.
        p, blur, reach, debias: As in GeomLoss. Without debias the value is OT_eps(a, b), where (m_a + m_b) / 2 replaces
            the product m_a m_b of the masses in KL(P | a b^T).
        scaling: The factor between successive blurs, for problems that are solved at larger blurs first.
        potentials: Whether to return the dual potentials (F, G) instead of the value.
        diameter, truncate, cluster_scale, kernel, backend, verbose: Arguments of GeomLoss without effect.
        cost: An argument of GeomLoss, which must be None.
        tol, max_iter, options: As for :func:`monge.solve`.
        warm_start: Whether a call starts from the potentials of the last call, where these have the same sizes, as the
            steps of a training loop have. The module keeps them; :meth:`reset` forgets them. Calls under transforms of
            torch.func start anew.

    Called as ``loss(x, y)`` or ``loss(a, x, b, y)`` with (n, d) or (B, n, d) points.
    """

    def __init__(
        self,
        loss: str = "sinkhorn",
        p: int = 2,
        blur: float = 0.05,
        reach: float | None = None,
        diameter: float | None = None,
        scaling: float = 0.5,
        truncate: float | None = 5,
        cost: Callable[..., Any] | None = None,
        kernel: Callable[..., Any] | None = None,
        cluster_scale: float | None = None,
        debias: bool = True,
        potentials: bool = False,
        verbose: bool = False,
        backend: str = "auto",
        *,
        tol: float | None = None,
        max_iter: int | None = None,
        warm_start: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        del diameter, truncate, kernel, cluster_scale, verbose, backend
        if not isinstance(loss, str) or loss != "sinkhorn":
            like = "; p=1 with a blur far above all distances is GeomLoss's 'energy'" if loss == "energy" else ""
            raise NotImplementedError(f"loss: is {shown(loss)}; must be 'sinkhorn'{like}")
        if number("p", p) not in (1, 2):
            raise NotImplementedError(f"p: is {p}; must be 1 or 2")
        if cost is not None:
            raise NotImplementedError("cost: is given; must be one of the costs of p = 1 and 2")
        eps, penalty = _power("blur", blur, p), math.inf if reach is None else _power("reach", reach, p)
        if not 0 < number("scaling", scaling) <= 1:
            raise ValueError(f"scaling: is {scaling}; must be in (0, 1]")
        has_blur, has_reach, has_scaling = blur != 0.05, reach is not None, scaling != 0.5
        for name, is_given, ours in (
            ("blur", has_blur, "eps"),
            ("reach", has_reach, "penalty_a"),
            ("reach", has_reach, "penalty_b"),
            ("scaling", has_scaling, "annealing"),
        ):
            if is_given and ours in options:
                raise ValueError(f"{name}: is given with {ours}, which is the same; must be one of them")
        if "eps_relative" in options and "eps" not in options:
            raise ValueError(
                f"eps_relative: is {shown(options['eps_relative'])}; must be left out: eps is blur^p, {eps:g}"
            )
        self.p, self.blur, self.reach, self.debias, self.potentials = p, blur, reach, debias, potentials
        self._given: dict[str, Any] = {"reach": reach, "scaling": scaling, "debias": debias, "potentials": potentials}
        self._given |= {"tol": tol, "max_iter": max_iter, "warm_start": warm_start, **options}
        self.options = {
            "eps": eps,
            "annealing": float(scaling) ** p,
            "penalty_a": penalty,
            "penalty_b": penalty,
            **library_options(options, tolerance=("tol", tol), iterations=("max_iter", max_iter)),
        }
        self.warm_start = truth("warm_start", warm_start)
        self._last: tuple[Tensor, Tensor] | None = None
        self._names = {field: name for field, name in _OF_GEOMLOSS.items() if field not in options}
        try:
            _check(to_text(self.options))
        except (ValueError, TypeError, NotImplementedError) as error:
            say_nearest(error, SamplesLoss.__init__, options, self._names)
            rename(error, self._names)
            raise

    def extra_repr(self) -> str:
        """p, blur or eps, and the other arguments that have not their default values."""
        usual = inspect.signature(SamplesLoss).parameters
        shown_always = {"p": self.p} if "eps" in self._given else {"p": self.p, "blur": self.blur}
        others = {k: v for k, v in self._given.items() if k not in usual or v != usual[k].default}
        return ", ".join(f"{name}={value!r}" for name, value in {**shown_always, **others}.items())

    def reset(self) -> None:
        """Forgets the potentials that a warm start would take."""
        self._last = None

    def forward(
        self,
        *args: Tensor,
        **labels: Unpack[LabelOptions],
    ) -> Any:
        """The value, or B of them, or the potentials: `args` are x, y or a, x, b, y, points (n, d) or (B, n, d).

        `labels` (:class:`monge.LabelOptions`) are as for :func:`monge.torch.transport`.
        """
        costs, _ = split_costs(alone(labels, LABELLED))
        labels_x, labels_y, label_cost = (costs.pop(name) for name in LABELS)
        if len(args) == 2:
            x, y = args
            a = b = None
        elif len(args) == 4:
            a, x, b, y = args
        else:
            raise TypeError(f"SamplesLoss: takes (x, y) or (a, x, b, y); was given {len(args)} tensors")
        require_tensors(x=x, y=y)
        require_tensors(True, a=a, b=b, labels_x=labels_x, labels_y=labels_y, label_cost=label_cost)
        batched = x.ndim == 3
        if x.ndim not in (2, 3):
            raise ValueError(f"x: has shape {tuple(x.shape)}; must be (n, d) or (B, n, d)")
        if y.ndim != x.ndim:
            raise ValueError(f"y: has shape {tuple(y.shape)}; must have {x.ndim} dimensions, as x has")
        require_weights(a=(a, x), b=(b, y))
        given = a, b
        shape_a, shape_b = x.shape[:-1] if a is None else a.shape, y.shape[:-1] if b is None else b.shape
        lead = x.shape[0] if batched else 1
        x, y = floating(x), floating(y)
        x, y = (v if batched else v[None] for v in (x, y))
        labels_x, labels_y = (v if v is None or batched else v[None] for v in (labels_x, labels_y))
        a, b = (None if v is None else floating(v).reshape(lead, -1) for v in (a, b))
        costs |= {"metric": "sqeuclidean", "scale": 0.5} if self.p == 2 else {"metric": "euclidean"}
        operator = divergence_operator if self.debias else transport_operator
        try:
            value, f, g = evaluate(
                operator, x, y, a, b, costs, self.options, (labels_x, labels_y, label_cost), self._start(x, y)
            )
        except (ValueError, TypeError, NotImplementedError) as error:
            rename(error, self._names)
            say_rounding(error, given)
            raise
        if self.warm_start and not under_transforms():
            self._last = f.detach(), g.detach()
        if self.potentials:
            if self.debias:
                f, g = f[:, 0] - f[:, 1], g[:, 0] - g[:, 1]
            return f.to(x.dtype).reshape(shape_a), g.to(x.dtype).reshape(shape_b)
        if not self.debias and (a is not None or b is not None):
            value = value + self._of_masses(a, b).to(value.dtype)
        return value if batched else value.squeeze(0)

    def _start(self, x: Tensor, y: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """The last potentials, where they fit."""
        if not self.warm_start or self._last is None or under_transforms():
            return None, None
        dimensions = 3 if self.debias else 2
        fits = all(
            (v.ndim, v.shape[0], v.shape[-1], v.device) == (dimensions, *points.shape[:2], points.device)
            for v, points in zip(self._last, (x, y))
        )
        return self._last if fits else (None, None)

    def _of_masses(self, a: Tensor | None, b: Tensor | None) -> Any:
        """GeomLoss's value minus that of the solve. KL(P | a b^T) has the term m_a m_b - mass of P, in the place of
        which GeomLoss has (m_a + m_b) / 2 - mass of P. With debias both have the same terms."""
        if is_balanced(self.options):  # A missing side has the total of the other, as a constant.
            if a is None and b is not None:
                a = b.detach()
            elif b is None and a is not None:
                b = a.detach()
        mass_a, mass_b = (1 if v is None else v.sum(1) for v in (a, b))
        return self.options["eps"] * ((mass_a + mass_b) / 2 - mass_a * mass_b)
