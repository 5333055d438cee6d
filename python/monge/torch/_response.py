"""Derivatives of functions of the plan and of the potentials, by implicit differentiation.

Each derivative by the costs is a matrix W with dL = sum_ij W_ij dC_ij at fixed weights; derivatives by points are
products with W. For costs of points W is not formed: products, or blocks of its rows, are enough (_points.py). u (n)
and w (m) solve the system of Plan::potential_gradients() for dL/df and dL/dg:

  L of the potentials    W = P o (u + w)
  dL = <G, dP>           W = P o (u + w - G / eps),  dL/df and dL/dg the sums over rows and over columns of P o G / eps
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .. import _core
from .._hessian import TRUSTED, require_solved
from .._problem import Problem, at_the_end, warn
from ._points import LEAST_MASS, Dense, OfPlan, filled, slope_of, weights_of, with_ones

_UNIT = {"tf32": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}
"""The unit roundoff of the products."""
_LOST = 1e-3
"""The relative rounding of a right side, or of a derivative, above which float32 does not do."""
_NEAR = {"tf32": 1e-2, "float32": 1e-4, "float64": 1e-4}
"""The relative error by the distance of the potentials to the optimum above which a derivative is that of refined
potentials, or else has a warning."""
_AMPLIFIED, _LOOSE = 3, 3e-4
"""An error of at most so many errors of the marginals, and of at most the second number, is as small as the tolerance of
the solve lets it be."""
_UNSURE = 3e-6
"""The estimate above which the distance is solved for: functions that hardly meet the slowest part of the system have
estimates up to 200 times too small."""
_FAR = 1e-2
"""The same error above which a derivative is an error."""

Wanted = tuple[bool, ...]
Found = list[Tensor | None]
"""Gradients by the costs, X_a, X_b, a and b."""
SumsOf = Callable[[Problem, _core.Plan, int], Tensor]
"""dL/dlog a at fixed potentials, the sums over the rows of P o G, or for side 1 dL/dlog b, those over the columns."""


class FallsShortError(Exception):
    """The derivative of refined potentials is needed: the products of a plan in float32 have too few digits, or the
    potentials are too far from the optimum."""


def _warn_of_distance(error: float, precision: str) -> None:
    """RuntimeError, or a warning, where the distance of the potentials to the optimum leaves this relative error."""
    if precision == "float64":
        found = "float64 has no potentials nearer to the optimum; a larger reg"
    else:
        found = "the potentials are too far from the optimum; a smaller tol, a larger reg or precision='auto'"
    message = f"gradient: is off by some {error:.0e}, for {found} makes it better"
    if not error <= _FAR:
        raise RuntimeError(message)
    warn(message)


def _norms(parts: tuple[Tensor, Tensor], masses: tuple[Tensor, Tensor], power: int) -> float:
    """The root of sum_i v_i^2 m_i^power over both sides, at the points of mass m_i."""
    squares = (
        torch.where(mass >= LEAST_MASS, (v * mass ** (power / 2)).square(), 0).sum() for v, mass in zip(parts, masses)
    )
    return math.sqrt(float(sum(squares)))


def _unit(parts: tuple[Tensor, Tensor]) -> float:
    """A power of two near the largest number where squares leave the range of float64, otherwise 1."""
    largest = max((float(v.abs().max()) for v in parts if v.numel()), default=0.0)
    usual = not (0 < largest < math.inf) or 2.0**-400 < largest < 2.0**400
    return 1.0 if usual else 2.0 ** math.frexp(largest)[1]


def _size(result: Any, u: Tensor, w: Tensor, masses: tuple[Tensor, Tensor]) -> float:
    """The norm of (u, w), weighted by the masses."""
    if min(result._penalties()) == math.inf:  # Without the part of (u + t, w - t), which has no effect.
        excess = ((masses[0] * u).sum() - (masses[1] * w).sum()) / (masses[0].sum() + masses[1].sum())
        u, w = u - excess, w + excess
    return _norms((u, w), masses, 1)


class Response:
    """The derivatives of a function of the potentials by costs and weights. `size` is that of the terms whose sums by_f
    and by_g are: a residual as small as their rounding is none.

    Where P nearly matches points one to one, or in groups, u and w are large and cancel in u_i + w_j. The rounding of
    products with them then decides the residual, and derivatives in float32 raise FallsShortError. The distance of the
    potentials to the optimum is amplified as much (docs/math.md, section 11).
    """

    def __init__(self, result: Any, by_f: Tensor, by_g: Tensor, size: Tensor | float = 0.0) -> None:
        self._problem = result._problem
        self._weights = weights_of(result._problem)
        plan, precision = result._plan, result._plan.report.precision
        marginals = torch.empty_like(by_f), torch.empty_like(by_g)
        plan.marginals(*marginals)
        # A function of the plan has derivatives of the size of the mass, which has few digits there.
        by_f, by_g = (torch.where(mass >= LEAST_MASS, by, 0) for mass, by in zip(marginals, (by_f, by_g)))
        scale = _unit((by_f, by_g))  # A function of a plan with hardly any mass has derivatives as small.
        by_f, by_g, size = by_f / scale, by_g / scale, size / scale
        # The rounding of the products bounds the residual.
        tolerance = 1e-10 if precision == "float64" else 1e-5
        diagonals = [(1 + result.reg / rho) * mass for mass, rho in zip(marginals, result._penalties())]
        u, w, by_weights, report = self._solve(result, (by_f, by_g), diagonals, tolerance)
        # The report has the residual of the system with one side eliminated, whose right side may be rounding alone.
        of_w = product(plan.apply, w[:, None], plan.rows)[:, 0]
        of_u = product(plan.apply_transpose, u[:, None], plan.columns)[:, 0]
        terms = [diagonal * v for diagonal, v in zip(diagonals, (u, w))]
        unsolved = [
            (by - term - of_other) * (diagonal >= LEAST_MASS)
            for by, term, of_other, diagonal in zip((by_f, by_g), terms, (of_w, of_u), diagonals)
        ]
        norm, of_terms, residual = (float(v.norm() + w.norm()) for v, w in ((by_f, by_g), terms, unsolved))
        # The products round the entries of the plan. The true residual may be larger by the rounding of the terms.
        unit, size = _UNIT[precision], float(size)
        residual += unit * of_terms
        asked = "float64" if result._is_refined else result._options.get("precision", "auto")
        is_free = precision == "float32" and asked == "auto"
        if is_free and not (residual <= TRUSTED[precision] * norm and unit * size <= _LOST * norm):
            raise FallsShortError
        self.u, self.w, self.by_weights = u * scale, w * scale, [v * scale for v in by_weights]
        self._rounding = unit * of_terms * scale if is_free else 0.0
        lacking = self._lacking(result, marginals)
        amplified, of_mass, of_marginals = self._estimate(result, (by_f, by_g), (u, w), marginals, lacking)
        # Terms that cancel leave their errors.
        cancelling = size / norm if norm > 0 else 0.0
        error = max(amplified, of_mass * cancelling) - 100 * unit * cancelling
        near = max(_NEAR[precision], min(_AMPLIFIED * of_marginals, _LOOSE))
        if _UNSURE < max(amplified, of_mass) and error <= near and norm > 0 and not result._is_refined:
            u, w, _, _ = self._solve(result, in_gauge(result, *lacking), diagonals, 0.1)
            distance = _size(result, u, w, marginals) / math.sqrt(float(marginals[0].sum() + marginals[1].sum()))
            error = min(_FAR, distance)  # A bound, which alone is no reason for an error.
            near = max(_NEAR[precision], _LOOSE)
        is_far = error > near
        if is_far and not result._is_refined and asked in ("auto", "float64"):
            raise FallsShortError
        require_solved("gradient", residual - 100 * unit * size, norm, report.iterations, precision)
        if is_far:
            _warn_of_distance(error, precision)

    def _solve(
        self, result: Any, by: tuple[Tensor, Tensor], diagonals: list[Tensor], tolerance: float
    ) -> tuple[Tensor, Tensor, list[Tensor], _core.LinearReport]:
        """u, w, and dL/da and dL/db through the potentials, for the right side `by`. `diagonals` are k P 1 and
        k P^T 1, k = 1 + eps / rho."""
        eps, by_weights = result.reg, [torch.empty_like(v) for v in by]
        report = result._plan.potential_gradients(*by, None, None, *by_weights, tolerance=tolerance)
        # dL/da = -eps (P w) / a, and k (P 1) u + P w = dL/df.
        u, w = (
            torch.where(diagonal >= LEAST_MASS, (v + a * by_a / eps) / diagonal, 0)
            for diagonal, v, a, by_a in zip(diagonals, by, self._weights, by_weights)
        )
        return u, w, by_weights, report

    def _lacking(self, result: Any, masses: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """The errors of the marginals: the right side of a Newton step for the potentials, in units of eps."""
        potentials = filled(self._problem, 0)
        result._plan.potentials(*potentials)
        lacking = [
            torch.where(mass >= LEAST_MASS, (weights if rho == math.inf else weights * (-f / rho).exp()) - mass, 0)
            for weights, rho, f, mass in zip(self._weights, result._penalties(), potentials, masses)
        ]
        return lacking[0], lacking[1]

    def _estimate(
        self,
        result: Any,
        by: tuple[Tensor, Tensor],
        response: tuple[Tensor, Tensor],
        masses: tuple[Tensor, Tensor],
        lacking: tuple[Tensor, Tensor],
    ) -> tuple[float, float, float]:
        """An estimate of the relative error that comes from the distance of the potentials to the optimum: the error of
        the marginals, as much amplified as the right side is by the system. Also the error of the marginals, relative
        to the mass of the plan and to that of the weights."""
        size = _norms(by, masses, -1)
        mass, given = (float(v.sum() + w.sum()) for v, w in (masses, self._weights))
        if not mass > 0:
            return 0.0, 0.0, 0.0
        of_mass = _norms(lacking, masses, -1) / math.sqrt(mass)
        amplified = of_mass * _size(result, *response, masses) / size if size > 0 else 0.0
        return amplified, of_mass, of_mass * mass / given

    @property
    def factors(self) -> tuple[Tensor, Tensor]:
        """u + w as a product l r^T."""
        return with_ones(self.u[:, None]).flip(1), with_ones(self.w[:, None])

    def found(self, wanted: Wanted, tilted: Dense | OfPlan, direct: Callable[[int], Tensor] | None = None) -> Found:
        """The derivatives that are `wanted`. `tilted` is W. `direct(side)` is dL/da, or dL/db, at fixed potentials."""
        by_cost, by_x, by_y, *by_weights = wanted
        found: Found = [tilted.entries if by_cost else None]
        found += tilted.by_points() if by_x or by_y else [None, None]
        slope = slope_of(self._problem)
        for one, of_one, gradient in zip(wanted, (1.0, slope, slope), found):
            # Where the terms of W cancel, their rounding may be all that is left.
            if one and gradient is not None and self._rounding > 0:
                if not self._rounding * of_one <= _LOST * float(gradient.norm()):
                    raise FallsShortError
        for side, one in enumerate(by_weights):
            own = self.by_weights[side]
            found.append(None if not one else own if direct is None else own + direct(side))
        return found


def with_equal_weights(
    result: Any, problem: Problem, side: int, potentials: tuple[Any, Any]
) -> tuple[Problem, _core.Plan]:
    """A problem with equal weights on one side, and its plan of these potentials."""
    size = len(potentials[side])
    weight = float(weights_of(result._problem)[1 - side].sum()) / size
    weights = torch.full((size,), weight, dtype=torch.float64, device=problem.place.device)
    problem = replace(problem, a=problem.a if side else weights, b=weights if side else problem.b, followed=None)
    views = (problem.geometry, problem.a, problem.b, *potentials)
    return problem, _core.plan_of(problem.place.session(None), *views, at_the_end(result._options, result._report))


def by_weights(
    result: Any, problem: Problem, plan: _core.Plan, sums: tuple[Tensor, Tensor], sums_of: SumsOf
) -> Callable[[int], Tensor]:
    """dL/da, or dL/db for side 1, at fixed potentials, from the `sums` of a plan P or P'. The plan of equal weights has
    entries for points whose weight is 0 or has few digits, too."""

    def of_side(side: int) -> Tensor:
        weights = weights_of(problem)[side]
        if bool((weights >= LEAST_MASS).all()):
            return sums[side] / weights
        f, g = filled(problem, 0)
        plan.potentials(f, g)
        # Where b_j is 0, P' has a g_j that follows from its own sources.
        g = torch.as_tensor(result._float64_potentials()[1], device=g.device)
        other, of_equal = with_equal_weights(result, problem, side, (f, g))
        return sums_of(other, of_equal, side) / weights_of(other)[side]

    return of_side


def in_gauge(result: Any, by_f: Tensor, by_g: Tensor) -> tuple[Tensor, Tensor]:
    """dL/df and dL/dg without the part that changes with t at (f + t, g - t), where both marginals are constraints.

    These are potentials, too. Autograd may split an L that does not depend on t into parts that do, and rounding may
    make it depend on t.
    """
    if min(result._penalties()) < math.inf:
        return by_f, by_g
    excess = (by_f.sum() - by_g.sum()) / 2
    a, b = weights_of(result._problem)
    return by_f - excess * a / a.sum(), by_g + excess * b / b.sum()


def product(multiply: Callable[[Tensor, Tensor], None], v: Tensor, size: int) -> Tensor:
    """The product of a method of a plan, of `size` rows, with v."""
    to = v.new_empty(size, v.shape[1])
    multiply(v.contiguous(), to)
    return to


def _column_sums(plan: Any, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """The sums over the columns of P o (left right^T), and the norm of the sums of their terms."""
    sums = product(plan.apply_transpose, torch.cat([left, left.abs()], 1), plan.columns)
    of_terms, of_sizes = sums.chunk(2, 1)
    return (of_terms * right).sum(1), (of_sizes * right.abs()).sum(1).norm()


def of_factors(result: Any, wanted: Wanted, left: Tensor, right: Tensor, of_g: bool = False) -> Found:
    """The gradients of L with dL = <left right^T, dP>, for left (n x k) and right (m x k) in float64.

    `of_g`: L depends on g alone, so the sums over the rows of P o (left right^T) are 0. Their rounding, over a small
    a_i, would be any number.
    """
    problem, plan, eps = result._problem, result._plan, result.reg

    def sums_of(problem: Problem, plan: _core.Plan, side: int) -> Tensor:
        if side:
            return _column_sums(plan, left, right)[0]
        return torch.zeros_like(left[:, 0]) if of_g else (left * product(plan.apply, right, plan.rows)).sum(1)

    rows = sums_of(problem, plan, 0)
    columns, size = _column_sums(plan, left, right)
    response = Response(result, *in_gauge(result, rows / eps, columns / eps), size / eps)
    of_rows, of_columns = response.factors
    factors = torch.cat([of_rows, -left / eps], 1), torch.cat([of_columns, right], 1)
    direct = by_weights(result, problem, plan, (rows, columns), sums_of)
    return response.found(wanted, OfPlan(problem, plan, *factors), direct)


def of_shares(
    result: Any, wanted: Wanted, problem: Problem, plan: Any, left: Tensor, right: Tensor
) -> tuple[Found, OfPlan]:
    """The gradients of L with dL = <left right^T, dP'> at fixed f', through g and the weights of the targets.

    P' is a plan of other sources and the same targets, with the potential g; L depends on its f' through g alone, or
    not at all. Returns the gradients through g, and dL/dC', the direct derivative by the costs of P'.
    """
    eps = result.reg
    direct = OfPlan(problem, plan, -left / eps, right)
    if not any(wanted):
        return [None] * len(wanted), direct
    columns, size = _column_sums(plan, left, right)
    none = columns.new_zeros(result.shape[0])
    response = Response(result, *in_gauge(result, none, columns / eps), size / eps)

    of_targets = by_weights(
        result, problem, plan, (none, columns), lambda _, plan, side: _column_sums(plan, left, right)[0]
    )
    tilted = OfPlan(result._problem, result._plan, *response.factors)
    return response.found(wanted, tilted, lambda side: of_targets(1) if side else none), direct
