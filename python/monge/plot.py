"""Pictures of results, with matplotlib. Each function draws on the axes that it is given, or on the current ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._arrays import on_host
from ._exact import ExactResult
from ._names import whole
from ._regularized import RegularizedResult
from ._result import OTResult
from ._versions import imported

__all__ = ["convergence", "displacement", "plan"]


_WITH_HISTORY = (OTResult, RegularizedResult)
_WITH_PLAN = (*_WITH_HISTORY, ExactResult)


def _require(result: Any, *classes: type) -> None:
    if not isinstance(result, classes):
        names = " or ".join(known.__name__ for known in classes)
        raise TypeError(f"result: is of the class {type(result).__name__}; must be {names}")


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    return imported("matplotlib.pyplot", "monge.plot").gca()


def convergence(
    result: OTResult | RegularizedResult, ax: Any = None, *, by_time: bool = False, color: str = "C0"
) -> Any:
    """The marginal error at each check, over sweeps or seconds; checks at an eps above the target are grey.

    Args:
        result: An :class:`monge.OTResult` or a :class:`monge.RegularizedResult`.
        ax: Axes of matplotlib, which are returned; by default the current ones.
        by_time: Whether the axis is in seconds.
        color: A colour of matplotlib.

    A regularised result has the relative residual instead, and its checks at a weight above the target are grey.
    """
    _require(result, *_WITH_HISTORY)
    ax = _axes(ax)
    history: Any = result.report.history
    x = [check.seconds if by_time else check.iteration for check in history]
    if isinstance(result, RegularizedResult):
        steps, what = "iterations", "relative residual"
        errors = [check.primal_residual for check in history]
        annealing = [check.weight > result.report.weight * (1 + 1e-9) for check in history]
    else:
        steps, what = "sweeps", "marginal error"
        errors = [check.marginal_error for check in history]
        annealing = [check.eps > result.reg * (1 + 1e-9) for check in history]
    ax.semilogy(x, errors, color=color, lw=1)
    ax.scatter(x, errors, c=["0.6" if early else color for early in annealing], s=14, zorder=3)
    ax.set_xlabel("seconds" if by_time else steps)
    ax.set_ylabel(what)
    return ax


def plan(
    result: OTResult | RegularizedResult | ExactResult, ax: Any = None, *, top: int | None = None, **keywords: Any
) -> Any:
    """The plan as an image, or with `top`, for large plans, the largest entries of each row as dots.

    Args:
        result: An :class:`monge.OTResult`, :class:`monge.RegularizedResult` or :class:`monge.ExactResult`.
        ax: Axes of matplotlib, which are returned; by default the current ones.
        top: The number of entries of each row, from 1 to m; by default all, as an image.
        keywords: Arguments of matplotlib's imshow, or with `top` of scatter.
    """
    _require(result, *_WITH_PLAN)
    n, m = result.shape
    top = None if top is None else whole("top", top, 1, m)
    ax = _axes(ax)
    if top is None:
        ax.imshow(on_host(result.plan), **{"aspect": "auto", "interpolation": "nearest", **keywords})
    else:
        indices, values = (on_host(array) for array in result.topk(top))
        rows = np.repeat(np.arange(n), top)
        largest = max(float(values.max()), 1e-300)
        ax.scatter(indices.ravel(), rows, **{"s": 20 * values.ravel() / largest, "color": "C0", **keywords})
        ax.set_xlim(-0.5, m - 0.5)
        ax.set_ylim(n - 0.5, -0.5)
    ax.set_xlabel("j")
    ax.set_ylabel("i")
    return ax


def displacement(
    result: OTResult | RegularizedResult | ExactResult, ax: Any = None, *, most: int = 500, seed: int = 0
) -> Any:
    """Points of the plane, and arrows by which the map moves up to `most` of the sources.

    Args:
        result: An :class:`monge.OTResult`, :class:`monge.RegularizedResult` or :class:`monge.ExactResult`, of points
            (n x 2) and (m x 2).
        ax: Axes of matplotlib, which are returned; by default the current ones.
        most: The largest number of arrows.
        seed: The seed by which sources are drawn that have arrows.
    """
    _require(result, *_WITH_PLAN)
    problem = result._problem
    if problem.x is None or problem.x.shape[1] != 2:
        what = "a cost matrix" if problem.x is None else f"points of {problem.x.shape[1]} dimensions"
        raise ValueError(f"result: is of {what}; must be of points in the plane")
    most, seed = whole("most", most), whole("seed", seed)
    ax = _axes(ax)
    x, y, moved = on_host(problem.x), on_host(problem.y), on_host(result.transform())
    ax.scatter(*y.T, s=8, color="C1", label="targets")
    ax.scatter(*x.T, s=8, color="C0", label="sources")
    picked = np.random.default_rng(seed).permutation(len(x))[:most]
    ax.quiver(
        *x[picked].T, *(moved - x)[picked].T, angles="xy", scale_units="xy", scale=1, width=0.002, color="0.5", zorder=0
    )
    ax.legend(loc="best", frameon=False)
    ax.set_aspect("equal")
    return ax
