"""Pairs for flow matching, drawn from the plan of a mini-batch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ._arrays import Array, framework_of, on_host, read
from ._assignment import linear_sum_assignment
from ._exact import run as run_exact
from ._names import calls, number, shown, truth, whole
from ._problem import costs, matrix_problem, solve_options
from ._result import OTResult
from ._solve import run

_METHODS = ("exact", "sinkhorn", "unbalanced", "partial")
_EXACT = ("exact", "partial")
_OF_DRAWS = {"tolerance": 1e-3, "certificate": False}
"""Options of an entropic solve whose plan is drawn from: no value is asked for."""
_ASSIGNED = 512
"""The largest equal sizes for which linear sum assignment is faster than the network simplex (measured, d = 784)."""
_COSTS = dict.fromkeys(("M", "cost", "cost_matrix"), "x0, x1: costs")

Entries = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]
"""i, j and P_ij."""


class OTPlanSampler:
    """Draws pairs of a mini-batch from its plan: ``x0, x1 = OTPlanSampler("exact").sample_plan(x0, x1)``.

    Arguments and methods are as in torchcfm's class of this name. The cost is |x - y|^2 of flattened points with
    uniform weights. One product makes all costs, in float64 for NumPy and in float32 or float64 for PyTorch; the
    rounding of each is that of the largest. :func:`monge.solve_exact_sample` has no such limit. Batches are arrays of
    NumPy or PyTorch, (n, ...) and (m, ...); the drawn points and labels have their framework, dtype and device. Exact
    plans are made in host memory. Random numbers are those of NumPy's global generator, which ``numpy.random.seed``
    sets.

    Args:
        method: "exact", "sinkhorn", "unbalanced", where points may send less than their mass, or "partial", the exact
            plan of the fraction `mass`.
        reg: eps > 0 of "sinkhorn" and "unbalanced", in units of the cost. Their plans have marginals to 1e-3 of the
            mass.
        reg_m: The penalty of both marginals for "unbalanced", in units of the cost.
        normalize_cost: Whether the costs are divided by the largest, so that `reg` and `reg_m` have no units.
        num_threads: Threads on the CPU; "max" takes all cores.
        warn: Whether a solve that ends short makes a :class:`ConvergenceWarning`.
        mass: The fraction of the mass that "partial" transports, in (0, 1]. torchcfm's "partial" transports all,
            with an entropy.

    Raises:
        ValueError, TypeError: An argument is wrong; the message begins with its name.

    Source: Tong et al. 2024; Pooladian et al. 2023.

    >>> import monge, numpy as np
    >>> x = np.arange(4.0)[:, None]
    >>> x0, x1 = monge.OTPlanSampler("exact").sample_plan(x, x[::-1] + 10, replace=False)
    >>> (x1 - x0).ravel()
    array([10., 10., 10., 10.])
    """

    @calls()
    def __init__(
        self,
        method: str,
        reg: float = 0.05,
        reg_m: float = 1.0,
        normalize_cost: bool = False,
        num_threads: int | str = 1,
        warn: bool = True,
        mass: float = 1.0,
    ) -> None:
        if method not in _METHODS:
            raise ValueError(f"method: is {shown(method)}; must be {', '.join(_METHODS)}")
        self.mass = number("mass", mass)
        if not 0 < self.mass <= 1 or method != "partial" and self.mass != 1:
            rule = "in (0, 1]" if method == "partial" else "1, unless the method is 'partial'"
            raise ValueError(f"mass: is {self.mass}; must be {rule}")
        self.method = method
        self.reg, self.reg_m = number("reg", reg), number("reg_m", reg_m)
        self.normalize_cost, self.warn = truth("normalize_cost", normalize_cost), truth("warn", warn)
        self.num_threads = None if num_threads == "max" else whole("num_threads", num_threads, 1)

    def get_map(self, x0: Any, x1: Any) -> np.ndarray[Any, Any]:
        """The plan (n x m) of the batches `x0` (n, ...) and `x1` (m, ...), in host memory."""
        cost = self._costs(x0, x1)
        if self.method not in _EXACT:
            return on_host(self._entropic(cost).plan)
        i, j, mass = self._exact(cost)
        plan = np.zeros(cost.shape)
        plan[i, j] = mass
        return plan

    def sample_map(
        self, pi: Any, batch_size: int, replace: bool = True
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """`batch_size` pairs (i, j) drawn from the plan `pi` (n x m) over its total, without `replace` each once."""
        plan = on_host(read("pi", pi))
        entries = _draw(plan.ravel(), whole("batch_size", batch_size), truth("replace", replace))
        i, j = np.divmod(entries, plan.shape[1])
        return i, j

    def sample_plan(self, x0: Any, x1: Any, replace: bool = True) -> tuple[Array, Array]:
        """Pairs of points of `x0` (n, ...) and `x1` (m, ...), n of them, drawn from the plan: two arrays, pair by pair.

        Without `replace` no pair is drawn twice: equal numbers of points have an exact plan that takes each point once.
        """
        i, j = self._pairs(x0, x1, replace)
        return x0[i], x1[j]

    def sample_plan_with_labels(
        self, x0: Any, x1: Any, y0: Any = None, y1: Any = None, replace: bool = True
    ) -> tuple[Array, Array, Array | None, Array | None]:
        """:meth:`sample_plan` of `x0`, `x1` and `replace`, and the labels of the points that are drawn.

        `y0` (n, ...) and `y1` (m, ...) are arrays of labels; None gives None.
        """
        i, j = self._pairs(x0, x1, replace)
        return x0[i], x1[j], None if y0 is None else y0[i], None if y1 is None else y1[j]

    def sample_trajectory(self, X: Any) -> Array:
        """Paths (n, times, ...) through the points `X` (n, times, ...).

        Each path begins at a point of the first time. The next point is drawn from the row of the last in the plan
        between the two times.
        """
        if getattr(X, "ndim", 0) < 3 or 0 in X.shape:
            raise ValueError(f"X: is {shown(X)}; must be an array (n, times, ...), not empty")
        n, times = X.shape[:2]
        at = [np.arange(n)]
        for time in range(times - 1):
            rows = np.cumsum(self.get_map(X[:, time], X[:, time + 1]), axis=1, dtype=np.float64)[at[-1]]
            if not (rows[:, -1] > 0).all():
                raise ValueError(f"X: a point of time {time} sends no mass by the method {self.method!r}; all must")
            drawn = np.random.random(n) * rows[:, -1]
            at.append((rows > drawn[:, None]).argmax(1))
        return X[np.stack(at, 1), np.arange(times)]

    def _pairs(self, x0: Any, x1: Any, replace: bool) -> tuple[Array, Array]:
        cost, count, replace = self._costs(x0, x1), len(x0), truth("replace", replace)
        if self.method in _EXACT:
            i, j, mass = self._exact(cost)
            entries = _draw(mass, count, replace)
            return i[entries], j[entries]
        result = self._entropic(cost)
        if replace:
            return result.sample(count, seed=np.random.randint(1 << 31))
        return self.sample_map(result.plan, count, replace)

    @calls(**_COSTS)
    def _exact(self, cost: Array) -> Entries:
        host, (n, m) = on_host(cost), cost.shape
        if n != m or n > _ASSIGNED or self.mass < 1:
            share: Any = {"mass": self.mass} if self.mass < 1 else {}
            problem = matrix_problem(host, None, None)
            i, j, mass = run_exact(problem, share, n_threads=self.num_threads, warns=self.warn).pairs
            return i, j, mass
        i, j = linear_sum_assignment(host, n_threads=self.num_threads)
        return i, j, np.full(n, 1 / n)

    @calls(**_COSTS, unbalanced="reg_m", penalty_a="reg_m", eps="reg")
    def _entropic(self, cost: Array) -> OTResult:
        penalty = self.reg_m if self.method == "unbalanced" else None
        options = solve_options(dict(_OF_DRAWS), self.reg, unbalanced=penalty)
        return run(matrix_problem(cost, None, None), "kl", options, None, self.num_threads, warn=self.warn)

    def _costs(self, x0: Any, x1: Any) -> Array:
        """|x - y|^2 (n x m), where the points lie; of arrays other than tensors in host memory."""
        x, y = (_flat(name, given) for name, given in (("x0", x0), ("x1", x1)))
        if x.shape[1] != y.shape[1]:
            raise ValueError(f"x1: has points of {y.shape[1]} coordinates; must be {x.shape[1]}, as x0")
        if framework_of(x).root == framework_of(y).root == "torch":
            from .torch._pairs import squared_distances

            cost = squared_distances(x, y)
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                cost = costs(x, y, "sqeuclidean")
        largest = float(cost.max())
        if not math.isfinite(largest) and all(np.isfinite(on_host(points)).all() for points in (x, y)):
            raise ValueError("x0, x1: the squares of coordinates overflow; the points must lie closer together")
        return cost / largest if self.normalize_cost and largest > 0 else cost


def _flat(name: str, given: Any) -> Array:
    if not hasattr(given, "shape"):
        raise TypeError(f"{name}: is {shown(given)}; must be an array (n, ...)")
    points = read(name, given)
    if points.ndim < 2 or 0 in points.shape:
        raise ValueError(f"{name}: has shape {tuple(points.shape)}; must be (n, ...), not empty")
    return points.reshape(len(points), -1)


def _draw(mass: np.ndarray[Any, Any], count: int, replace: bool) -> np.ndarray[Any, Any]:
    entries = np.count_nonzero(mass)
    if not replace and entries < count:
        raise ValueError(f"replace: is False; must be True to draw {count} pairs from a plan of {entries} entries")
    return np.random.choice(len(mass), count, replace, mass / mass.sum(dtype=np.float64))
