"""Plans of a loss made of its potentials, and products of its Hessian by the points, for arrays of any framework."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _core
from ._arrays import Array, read
from ._problem import Problem, warn

TRUSTED = {"tf32": 1e-2, "float32": 1e-4, "float64": 1e-4}
"""The relative residual above which a derivative has a warning."""
_UNSOLVED = {"tf32": 1e-1, "float32": 1e-3, "float64": 1e-3}
"""The relative residual above which a derivative is an error."""

_Options = dict[str, Any]


def require_solved(name: str, residual: float, size: float, steps: int, precision: str) -> None:
    """RuntimeError, or a warning, where the linear system of a derivative has a large residual, relative to `size`."""
    if not residual <= _UNSOLVED[precision] * size:
        easier = "a larger reg" + ("" if precision == "float64" else ", or precision='float64',")
        raise RuntimeError(
            f"{name}: its linear system is not solved: the residual is {residual / size:.1e} of the right side after "
            f"{steps} steps in {precision}; {easier} makes it easier"
        )
    if residual > TRUSTED[precision] * size:
        warn(f"{name}: has an error: its linear system has the residual {residual / size:.1e}")


class Transport:
    """OT(a, b)."""

    name = "transport"
    parts = ()
    """The dimensions of the parts of a solve."""

    @staticmethod
    def of_potentials(
        problems: list[Problem], f: Array, g: Array, in_float64: Array, options: _Options
    ) -> list[_core.Plan]:
        given = [(p.geometry, p.a, p.b, f[k], g[k]) for k, p in enumerate(problems)]
        own = options | {"precision": "float64"} if bool(in_float64.any()) else options
        return _core.plans_of(problems[0].place.session(None), given, own)

    @staticmethod
    def hessian_product(
        plan: _core.Plan, v_x: Array, v_y: Array, to_x: Array, to_y: Array, tolerance: float
    ) -> list[tuple[_core.Plan, _core.LinearReport]]:
        return [(plan, plan.hessian_product(v_x, v_y, to_x, to_y, tolerance=tolerance))]


def views_of_divergence(
    problems: Sequence[Problem], potentials: Sequence[Any] | None = None, precisions: Sequence[str] | None = None
) -> Any:
    """The geometries, weights, potentials and precisions of a divergence. Cost matrices have a geometry for each part;
    points have one for a and b, from which the library makes the self terms.

    `potentials` are f and g of the three parts; `precisions` those of their plans.
    """
    ab = problems[0]
    geometries = (ab.geometry, None, None) if ab.cost is None else tuple(problem.geometry for problem in problems)
    return geometries, (ab.a, ab.b), tuple(potentials or (None,) * 6), tuple(precisions or ("auto",) * 3)


class Divergence:
    """S(a, b) = OT(a, b) - OT(a, a) / 2 - OT(b, b) / 2 + eps / 2 (sum a - sum b)^2."""

    name = "sinkhorn_divergence"
    parts = (3,)

    @staticmethod
    def views(problems: list[Problem], f: Array | None, g: Array | None, in_float64: Array | None) -> list[Any]:
        precisions = None if in_float64 is None else in_float64.tolist()
        views = []
        for k, problem in enumerate(problems):
            potentials = None
            if f is not None and g is not None:
                f_aa, f_bb = (v[k, 1] if v.shape[1] > 1 else None for v in (f, g))  # A start may lack them.
                potentials = f[k, 0], g[k, 0], f_aa, f_aa, f_bb, f_bb
            of_parts = None if precisions is None else ["float64" if wide else "auto" for wide in precisions[k]]
            views.append(views_of_divergence([problem], potentials, of_parts))
        return views

    @staticmethod
    def of_potentials(
        problems: list[Problem], f: Array, g: Array, in_float64: Array, options: _Options
    ) -> list[_core.Divergence]:
        views = Divergence.views(problems, f, g, in_float64)
        return _core.divergences_of(problems[0].place.session(None), views, options)

    @staticmethod
    def hessian_product(
        divergence: _core.Divergence, v_x: Array, v_y: Array, to_x: Array, to_y: Array, tolerance: float
    ) -> list[tuple[_core.Plan, _core.LinearReport]]:
        """Products for all terms. In OT(a, a) both arguments move alike: half of its derivative is that by one."""
        solved = [(divergence.ab, divergence.ab.hessian_product(v_x, v_y, to_x, to_y, tolerance=tolerance))]
        for plan, v, to in ((divergence.aa, v_x, to_x), (divergence.bb, v_y, to_y)):
            own = 0 * to
            solved.append((plan, plan.hessian_product(v, v, own, None, tolerance=tolerance)))
            to -= own
        return solved


def _is_solved(plan: _core.Plan, report: _core.LinearReport) -> bool:
    return report.status == "converged" or report.residual <= TRUSTED[plan.report.precision]


def multiply_hessian(
    of: Any,
    problems: list[Problem],
    f: Array,
    g: Array,
    in_float64: Array,
    options: _Options,
    directions: tuple[Array, Array],
    to: tuple[Array, Array],
) -> None:
    """Where float32 does not solve for a product, and the precision is free, a plan in float64 gives it."""
    (v_x, v_y), (to_x, to_y) = directions, to
    # The rounding of the products bounds the residual.
    tolerance = 1e-10 if problems[0].place.dtype == "float64" else 1e-5
    is_free = options.get("precision", "auto") == "auto"
    for k, made in enumerate(of.of_potentials(problems, f, g, in_float64, options)):
        arguments = read("v", v_x[k]), read("v", v_y[k]), to_x[k], to_y[k], tolerance
        solved = of.hessian_product(made, *arguments)
        if is_free and not all(_is_solved(*each) or each[0].report.precision == "float64" for each in solved):
            one = slice(k, k + 1)
            (made,) = of.of_potentials([problems[k]], f[one], g[one], in_float64[one] | True, options)
            solved = of.hessian_product(made, *arguments)
        for plan, report in solved:
            if not _is_solved(plan, report):
                require_solved("hessian_product", report.residual, 1.0, report.iterations, plan.report.precision)
