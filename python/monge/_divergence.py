"""The Sinkhorn divergence and the c-transform."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import _core
from ._arrays import Array, read, read_optional
from ._costs import COSTS, alone, split_costs
from ._followed import Followed, requires_gradient
from ._hessian import views_of_divergence
from ._names import MATRIX, POINTS, calls, refuse_gradient, truth
from ._plan_result import Gradients, attached, without_second
from ._problem import (
    Problem,
    ProgressFunction,
    Reg,
    at_the_end,
    matrix_problem,
    pair_of_potentials,
    points_problem,
    require_potentials,
    solve_options,
    warn_if_short,
    watching,
    with_weights,
)
from ._result import OTResult

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._costs import CostOptions, SampleOptions
    from ._options import KeywordOptions


class DivergenceResult:
    """S(a, b) = OT(a, b) - OT(a, a) / 2 - OT(b, b) / 2 + eps / 2 (sum a - sum b)^2, and the results of its solves.

    A pickle holds these results; after it, :meth:`gradients` makes their plans from the potentials.

    Attributes:
        ab: The :class:`OTResult` of a and b.
        aa: The result of a with itself.
        bb: The result of b with itself.
        gap: A bound of the error of the value, up to rounding.
        status: The worst status of the three solves.
    """

    _has_gradients = ("value",)
    _is_constant = ()

    def __init__(
        self,
        ab: OTResult,
        aa: OTResult,
        bb: OTResult,
        numbers: tuple[float, float, str],
        made: _core.Divergence | None = None,
    ) -> None:
        self.ab, self.aa, self.bb = ab, aa, bb
        self._value, self.gap, self.status = numbers
        self._made = made

    @property
    def value(self) -> Array:
        """S(a, b), in units of the cost.

        If tensors of PyTorch that require gradients were given, it has first derivatives by points and weights.
        """
        return attached(self, "value", (self.ab._place.scalar(self._value),))[0]

    @property
    def converged(self) -> bool:
        """Whether all three solves converged."""
        return self.status == "converged"

    def gradients(self) -> Gradients:
        """Derivatives of the value by points and weights."""
        return without_second(self, self._gradients("xyab"))

    def _gradients(self, wanted: str, scale: bool = True) -> Gradients:
        for part in self._solves:
            part._problem.require_unchanged()
        if self._made is None:  # From a pickle.
            views = views_of_divergence(
                [part._problem for part in self._solves],
                [potential for part in self._solves for potential in part._float64_potentials()],
                [part.report.precision for part in self._solves],
            )
            options = at_the_end(self.ab._options, self.ab.report)
            (self._made,) = _core.divergences_of(self.ab._place.session(None), [views], options)
        return self.ab._gradients_by(wanted, functools.partial(self._made.gradients, scale=scale))

    @property
    def _followed(self) -> Followed | None:
        return self.ab._followed

    @property
    def _solves(self) -> tuple[OTResult, OTResult, OTResult]:
        return self.ab, self.aa, self.bb

    def _entropy_weight(self) -> float:
        return 0.0

    @property
    def _has_point_derivatives(self) -> bool:
        return self.ab._has_point_derivatives

    def __reduce__(self) -> Any:
        return DivergenceResult, (*self._solves, (self._value, self.gap, self.status))

    def __repr__(self) -> str:
        return f"<DivergenceResult: {self.status}, value {self._value:.6g}, gap {self.gap:.2e}>"


PARTS = ("f", "g", "f_aa", "f_bb")
STARTS = "a DivergenceResult, or arrays (f, g) or (f, g, f_aa, f_bb)"


def arrays_of_start(given: Any, is_divergence: bool) -> Any:
    """`potentials_init` of a loss, with arrays in the order of PARTS in place of a result."""
    if is_divergence and isinstance(given, DivergenceResult):
        return (*pair_of_potentials(given.ab), *(pair_of_potentials(own)[0] for own in (given.aa, given.bb)))
    return pair_of_potentials(given) if not is_divergence and isinstance(given, OTResult) else given


def _start(given: Any) -> Sequence[Array | None] | None:
    """A warm start: f and g of the three parts."""
    if given is None:
        return None
    if isinstance(given, DivergenceResult):
        return [potential for part in given._solves for potential in part._float64_potentials()]
    require_potentials(given, STARTS, 2, 4)
    f, g, *own = (read_optional(f"potentials_init: {name}", v) for name, v in zip(PARTS, given))
    f_aa, f_bb = own or (None, None)
    return f, g, f_aa, f_aa, f_bb, f_bb


@calls(**POINTS)
def sinkhorn_divergence(
    X_a: Any,
    X_b: Any,
    a: Any = None,
    b: Any = None,
    metric: str = "sqeuclidean",
    reg: Reg = "auto",
    unbalanced: float | Sequence[float] | None = None,
    method: str | None = None,
    n_threads: int | None = None,
    max_iter: int | None = None,
    tol: float | None = None,
    *,
    potentials_init: Any = None,
    device: Any = None,
    progress: bool | ProgressFunction | None = None,
    warn: bool = True,
    **options: Unpack[SampleOptions],
) -> DivergenceResult:
    """The Sinkhorn divergence of two weighted clouds, in units of the cost. It is symmetric and 0 for equal measures.
    For "sqeuclidean" it is positive, and convex in either measure. Where X_a and X_b, labels and weights are equal
    arrays, or on CUDA the same arrays, one solve serves all three parts, and value and gradients are exactly 0.

    Args:
        X_a, X_b, metric: Points (n x d) and (m x d) and their cost, as for :func:`monge.solve_sample`.
        potentials_init: A warm start, in units of the cost: a :class:`DivergenceResult` of the same sizes, or (f, g) or
            (f, g, f_aa, f_bb), potentials of OT(a, b), OT(a, a) and OT(b, b).
        warn: Whether a solve that ends short makes a :class:`monge.ConvergenceWarning`.

    The other arguments, and errors, are as for :func:`monge.solve`: a, b, reg, unbalanced, method, max_iter, tol,
    n_threads, device, progress and options, each for all three solves. Options may also be those of the costs,
    :class:`monge.CostOptions`, where `label_cost` is square and symmetric, as each cloud meets itself. reg "auto", the
    default, is 5 % of the mean cost between X_a and X_b.

    Source: Feydy et al. 2019; Sejourne et al. 2019.

    >>> import monge, numpy as np
    >>> x = np.random.default_rng(0).normal(size=(50, 2))
    >>> bool(monge.sinkhorn_divergence(x, x, reg=0.1).value == 0)
    True
    """
    costs, own = split_costs(options)
    problem = points_problem(X_a, X_b, a, b, metric, device, **costs)
    translated = solve_options(own, reg, "KL", unbalanced, "KL", method, max_iter, tol)
    ab = with_weights(problem, translated)
    parts = [ab, ab.of_side(0), ab.of_side(1)]
    return _divergence(parts, translated, potentials_init, n_threads, progress, warn)


@calls(**(MATRIX | {"C": "M_ab", "xy: cost": "M_ab", "xx: cost": "M_aa", "yy: cost": "M_bb"}))
def sinkhorn_divergence_of_costs(
    M_ab: Any,
    M_aa: Any,
    M_bb: Any,
    a: Any = None,
    b: Any = None,
    reg: Reg = "auto",
    unbalanced: float | Sequence[float] | None = None,
    method: str | None = None,
    n_threads: int | None = None,
    max_iter: int | None = None,
    tol: float | None = None,
    *,
    potentials_init: Any = None,
    device: Any = None,
    progress: bool | ProgressFunction | None = None,
    warn: bool = True,
    **options: Unpack[KeywordOptions],
) -> DivergenceResult:
    """:func:`sinkhorn_divergence` of cost matrices.

    Args:
        M_ab, M_aa, M_bb: Costs (n x m), (n x n) and (m x m), the last two symmetric.
        potentials_init: As for :func:`sinkhorn_divergence`.
        warn: Whether a solve that ends short makes a :class:`monge.ConvergenceWarning`.

    The other arguments, for all three solves, and errors are as for :func:`monge.solve`. reg "auto", the default, is
    5 % of the mean of M_ab. The value has no gradients: tensors that require them are a NotImplementedError.
    """
    translated = solve_options(dict(options), reg, "KL", unbalanced, "KL", method, max_iter, tol)
    for field, given in (("M_ab", M_ab), ("M_aa", M_aa), ("M_bb", M_bb), ("a", a), ("b", b)):
        refuse_gradient(field, given)
    ab = with_weights(matrix_problem(M_ab, a, b, device, field="M_ab"), translated)
    p, q = ab.weights
    aa, bb = matrix_problem(M_aa, p, p, device, field="M_aa"), matrix_problem(M_bb, q, q, device, field="M_bb")
    return _divergence([ab, aa, bb], translated, potentials_init, n_threads, progress, warn)


def _divergence(
    problems: Sequence[Problem],
    options: dict[str, Any],
    potentials_init: Any,
    n_threads: int | None,
    progress: bool | ProgressFunction | None,
    warn: bool,
) -> DivergenceResult:
    warns, ab = truth("warn", warn), problems[0]
    session = ab.place.session(n_threads)
    views = views_of_divergence(problems, _start(potentials_init))
    with watching(progress, options.get("iterations", 10000)) as watch:
        (made,) = _core.sinkhorn_divergences(session, [views], options, watch)
    of_ab, of_aa, of_bb = (
        OTResult(problem, options, "kl", plan, plan.report)
        for problem, plan in zip(problems, (made.ab, made.aa, made.bb))
    )
    if warns:
        for result in (of_ab, of_aa, of_bb):
            warn_if_short(result.report)
    return DivergenceResult(of_ab, of_aa, of_bb, (made.value, made.gap, made.status), made)


@calls(**POINTS, potential="g")
def c_transform(
    X_a: Any,
    X_b: Any,
    g: Any,
    metric: str = "sqeuclidean",
    *,
    n_threads: int | None = None,
    device: Any = None,
    **costs: Unpack[CostOptions],
) -> tuple[Array, Array]:
    """f_i = min_j (C_ij - g_j), and the j of each minimum: with g = 0 the nearest neighbours of X_a in X_b.

    g (m) is in units of the cost. X_a, X_b, `metric`, `costs` (:class:`monge.CostOptions`), `n_threads` and `device`
    are as for :func:`monge.solve_sample`. The arithmetic is float64. If tensors of PyTorch require gradients, f has
    first derivatives by the points and by g, which are those of the minimising pairs. A ValueError names the argument
    that is wrong.

    >>> import monge
    >>> monge.c_transform([[0.0], [2.0]], [[0.5], [1.9]], [0.0, 0.0])[1]
    array([0, 1])
    """
    problem = points_problem(X_a, X_b, None, None, metric, device, **alone(costs, COSTS))
    place = problem.place
    f, argmin = place.empty(problem.geometry.rows), place.empty_index(problem.geometry.rows)
    _core.c_transform(place.session(n_threads), problem.geometry, read("g", g), f, argmin)
    f, argmin = place.finish(f), place.finish(argmin)
    if any(map(requires_gradient, (X_a, X_b, g))):
        from .torch._points import of_nearest

        f = of_nearest(problem, f, argmin, X_a, X_b, g)
    return f, argmin


def semi_dual_value(f: Any, g: Any, a: Any = None, b: Any = None) -> float:
    """<a, f> + <b, g>: a lower bound of the transport cost where f is the c-transform of g.

    f (n) and g (m) are in units of the cost. Weights a (n) and b (m) are uniform by default. A ValueError names the
    argument that is wrong. The result is a number without gradients: tensors that require them are a
    NotImplementedError.
    """
    for field, given in (("f", f), ("g", g), ("a", a), ("b", b)):
        refuse_gradient(field, given)
    session = _core.cpu_session(0)
    return _core.semi_dual_value(session, read_optional("a", a), read_optional("b", b), read("f", f), read("g", g))
