"""Functions of POT that return a plan or a number instead of a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ._arrays import Array, on_host, read, read_optional, stack_of
from ._divergence import sinkhorn_divergence
from ._exact import ExactResult, exact_options
from ._exact import run as run_exact
from ._followed import requires_gradient
from ._names import (
    MATRIX,
    MOST,
    POINTS,
    UNEQUAL_TOTALS,
    UNEQUAL_TOTALS_OF_EXACT,
    calls,
    lower_name,
    number,
    shown,
    truth,
    whole,
)
from ._plan_result import PlanResult
from ._problem import (
    Problem,
    is_balanced,
    matrix_problem,
    points_problem,
    refuse_unsupported,
    shows,
    solve_options,
    warn_if_short,
    with_weights,
)
from ._regularized import quadratic_term
from ._regularized import run as run_regularized
from ._result import BatchResult, OTResult
from ._solve import run, run_batch

Log = dict[str, Any]

_START = {"f": "warmstart", "g": "warmstart"}
_STOP = {"tolerance": "stopThr", "tol": "stopThr"}
_MATRIX = {
    **MATRIX,
    **_START,
    **_STOP,
    UNEQUAL_TOTALS: "sinkhorn_unbalanced()",
    "iterations": "numItermax",
    "max_iter": "numItermax",
}
_UNBALANCED = {
    **_MATRIX,
    UNEQUAL_TOTALS: "a finite reg_m",
    "penalty_a": "reg_m",
    "penalty_b": "reg_m",
    "unbalanced": "reg_m",
}
_POINTS = {
    **POINTS,
    **_START,
    **_STOP,
    UNEQUAL_TOTALS: "sinkhorn_unbalanced()",
    "iterations": "numIterMax",
    "max_iter": "numIterMax",
    "x": "X_s",
    "X_a": "X_s",
    "y": "X_t",
    "X_b": "X_t",
}

_EMD = {**MATRIX, UNEQUAL_TOTALS_OF_EXACT: "check_marginals=False, which scales b"}

_PARTIAL = {**MATRIX, "mass": "m"}

_OF_ONE_METHOD = ("tau", "epsilon0", "numInnerItermax", "print_period", "translation_invariant")
"""Further options of POT's methods, which have no effect here: the solver is one, in the log domain."""
_OF_PLANS = ("greenkhorn", "sinkhorn_epsilon_scaling")
"""POT's methods of :func:`sinkhorn` that :func:`sinkhorn2` has not."""
_SMOOTH = {
    **dict.fromkeys(("l2", "squaredl2"), "l2"),
    **dict.fromkeys(("kl", "entropic", "negentropy"), "kl"),
}
"""POT's names of the terms of :func:`smooth_ot_dual`."""


def _weights(given: Any) -> Any:
    """Weights by POT's convention: None and empty are uniform."""
    empty = getattr(given, "shape", None) == (0,) or (isinstance(given, (list, tuple)) and not given)
    return None if empty else given


def _errors(result: OTResult) -> list[float]:
    """The errors that stopThr bounds: at each check, then of the plan. With the criterion gap: marginal errors."""
    report = result.report
    name = "gradient_norm" if result._options["criterion"] == "gradient" else "marginal_error"
    last = getattr(report, name) / max(report.mass, report.mass_b)
    return [*(getattr(check, name) for check in report.history), last]


def _log_of_columns(logs: list[Log], result: BatchResult[OTResult]) -> Log:
    """The log of a batch: arrays have a column for each problem. `err` has the largest error at each check, where a
    problem that has ended counts with its last."""
    errors = [log["err"] for log in logs]

    def columns(name: str) -> Array:
        to = result._place.empty(len(logs[0][name]), len(logs))
        for k, log in enumerate(logs):
            to[:, k] = log[name]
        return result._place.finish(to)

    return {
        "err": [max(each[min(k, len(each) - 1)] for each in errors) for k in range(max(map(len, errors)))],
        **{name: columns(name) for name, value in logs[0].items() if getattr(value, "ndim", 0) == 1},
        "result": result,
    }


def _log(result: OTResult | BatchResult[OTResult]) -> Log:
    """The log of POT's functions."""
    if isinstance(result, BatchResult):
        return {"niter": result.n_iter, **_log_of_columns([_log(each) for each in result], result)}
    framework = result._place.framework
    u, v = result.log_scalings
    exp = framework.exp
    return {
        "err": _errors(result),
        "niter": result.n_iter,
        "log_u": u,
        "log_v": v,
        "u": exp(u),
        "v": exp(v),
        "result": result,
    }


def _lazy_log(result: OTResult) -> Log:
    return _log(result) | {"lazy_plan": result.lazy_plan}


def _with_total(a: Any, b: Any, options: Mapping[str, Any]) -> Any:
    """b, scaled to the total of a where they differ by more than the tolerance allows and by 1e-6 at most: POT takes
    weights that were rounded."""
    if a is None or b is None or getattr(b, "ndim", 1) != 1 or not is_balanced(options):
        return b
    of_a, of_b = _total("a", a), _total("b", b)
    if not options["tolerance"] / 2 * of_a < abs(of_a - of_b) <= 1e-6 * of_a:
        return b
    return (b if requires_gradient(b) else read("b", b)) * (of_a / of_b)


def _start(
    warmstart: Any, problem: Problem, options: Mapping[str, Any], has_weights: bool
) -> tuple[Array, Array] | None:
    """Potentials in units of the cost from POT's scalings (log u, log v), which may contain the weights."""
    if warmstart is None:
        return None
    if not isinstance(warmstart, (tuple, list)) or len(warmstart) != 2:
        raise TypeError(f"warmstart: is {shown(warmstart)}; must be a pair of arrays (n) and (m)")
    if "eps" not in options:
        raise ValueError("warmstart: is given without reg, its unit; both must be given")
    sides = []
    for logs, weights, size in zip(warmstart, problem.weights, (problem.geometry.rows, problem.geometry.columns)):
        values = on_host(read("warmstart", logs)).astype(np.float64)
        if values.shape != (size,):
            raise ValueError(f"warmstart: has shape {values.shape}; must be ({size},)")
        if has_weights:
            given = on_host(weights)
            with np.errstate(divide="ignore", invalid="ignore"):
                values = np.where(given > 0, values - np.log(given), 0.0)
        sides.append(options["eps"] * values)
    return sides[0], sides[1]


def _warn(*results: OTResult) -> None:
    """POT's warning of solves that end short of stopThr, which may be 0."""
    for result in results:
        warn_if_short(result.report, of_zero=True)


def _options(
    own: dict[str, Any], reg: float, method: str, iterations: int, tolerance: float, criterion: str, reg_m: Any = None
) -> tuple[dict[str, Any], Any]:
    """The library's options, and the device, which POT's functions here take as an option."""
    own = {"criterion": criterion, **{name: value for name, value in own.items() if name not in _OF_ONE_METHOD}}
    device = own.pop("device", None)
    method = "auto" if isinstance(method, str) and method == "sinkhorn" else method
    return solve_options(own, reg, "KL", reg_m, "KL", method, iterations, tolerance), device


def _run(
    problem: Problem,
    options: dict[str, Any],
    warmstart: Any,
    has_weights: bool,
    verbose: bool,
    warn: bool = True,
    reg_type: str = "kl",
    c: Any = None,
) -> OTResult:
    """The result of a solve. `has_weights`: whether the scalings of the warm start contain the weights."""
    problem = with_weights(problem, options)
    start = _start(warmstart, problem, options, has_weights)
    warns = truth("warn", warn)
    result = run(problem, reg_type, options, start, None, shows(None, verbose), False, c)
    if warns:
        _warn(result)
    return result


def _of_matrix(
    a: Any,
    b: Any,
    M: Any,
    how: tuple[dict[str, Any], Any],
    verbose: bool,
    warn: bool,
    warmstart: Any,
    has_weights: bool = True,
    reg_type: str = "kl",
    c: Any = None,
) -> OTResult | BatchResult[OTResult]:
    """One problem, or one for each column of b."""
    options, device = how
    a, b = _weights(a), _weights(b)
    columns = read_optional("b", b)
    if columns is None or columns.ndim != 2:
        problem = matrix_problem(M, a, _with_total(a, b, options), device)
        return _run(problem, options, warmstart, has_weights, verbose, warn, reg_type, c)
    for field, given in (("c", c), ("warmstart", warmstart)):
        if given is not None:
            raise NotImplementedError(f"{field}: is given with several b; must be None")
    source = b if hasattr(b, "requires_grad") else columns
    problems = [matrix_problem(M, a, _with_total(a, source[:, k], options), device) for k in range(columns.shape[1])]
    warns = truth("warn", warn)
    result = run_batch(problems, reg_type, options, None, None, shows(None, verbose), False)
    if warns:
        _warn(*result)
    return result


def _of_points(
    X_s: Any,
    X_t: Any,
    reg: float,
    a: Any,
    b: Any,
    metric: str,
    iterations: int,
    tolerance: float,
    is_lazy: bool,
    verbose: bool,
    warn: bool,
    warmstart: Any,
    own: dict[str, Any],
) -> OTResult:
    method, criterion = own.pop("method", "sinkhorn"), "l1" if is_lazy else "gradient"
    options, device = _options(own, reg, method, iterations, tolerance, criterion)
    a, b = _weights(a), _weights(b)
    problem = points_problem(X_s, X_t, a, _with_total(a, b, options), metric, device=device)
    return _run(problem, options, warmstart, True, verbose, warn)


@calls(**_MATRIX)
def sinkhorn(
    a: Any,
    b: Any,
    M: Any,
    reg: float,
    method: str = "sinkhorn",
    numItermax: int = 1000,
    stopThr: float = 1e-9,
    verbose: bool = False,
    log: bool = False,
    warn: bool = True,
    warmstart: Any = None,
    **options: Any,
) -> Any:
    """The plan P (n x m) that minimises <M, P> + reg KL(P | a b^T), and with `log` a dictionary beside it.

    Args:
        a, b: Weights (n) and (m), with totals that are equal to 1e-6: b is scaled to the total of a. None and empty
            are uniform. If b is (m x K), the K numbers <M, P> are returned, as in POT.
        M: Costs (n x m), any finite numbers; inf forbids a pair.
        reg: eps > 0, in units of M.
        method: A method of POT. All are one solver here, which is stable at every reg.
        numItermax, stopThr: The largest number of sweeps, and the 2-norm of the errors of both marginals, relative to
            the mass, at which to stop.
        verbose, warn: Show a bar (tqdm); warn if the solve ends short of stopThr.
        log: Return the dictionary, too: `niter`, `log_u`, `log_v`, `u`, `v`, the :class:`OTResult` as `result`, and
            `err`, the errors that stopThr bounds, at each check and at last of the plan. With several b, arrays have a
            column for each, `err` has the largest of their errors, and `result` is a :class:`BatchResult`.
        warmstart: (log u, log v), as in the log.
        options: `device`, as for :func:`monge.solve`, and the library's options, :class:`monge.SolveOptions`.

    Raises:
        Errors are those of :func:`monge.solve`.

    Source: Cuturi 2013; the arguments are POT's.

    >>> import monge, numpy as np
    >>> monge.sinkhorn([], [], np.array([[0.0, 1.0], [1.0, 0.0]]), 0.1).round(4)
    array([[0.5, 0. ],
           [0. , 0.5]])
    """
    log = truth("log", log)
    how = _options(options, reg, method, numItermax, stopThr, "gradient")
    result = _of_matrix(a, b, M, how, verbose, warn, warmstart)
    found = result.plan if isinstance(result, OTResult) else result.value_linear
    return (found, _log(result)) if log else found


@calls(**_MATRIX)
def sinkhorn2(
    a: Any,
    b: Any,
    M: Any,
    reg: float,
    method: str = "sinkhorn",
    numItermax: int = 1000,
    stopThr: float = 1e-9,
    verbose: bool = False,
    log: bool = False,
    warn: bool = False,
    warmstart: Any = None,
    **options: Any,
) -> Any:
    """<M, P>, in units of M times mass, for the plan P of :func:`sinkhorn`, which is not formed.

    Arguments and errors are those of :func:`sinkhorn`, but `warn` is False by default.

    >>> import monge, numpy as np
    >>> print(monge.sinkhorn2([], [], np.array([[0.0, 1.0], [1.0, 0.0]]), 0.5).round(4))
    0.1192
    """
    log = truth("log", log)
    if isinstance(method, str) and method.lower() in _OF_PLANS:
        raise ValueError(f"method: is {method!r}, which is one of sinkhorn(); must be another of POT's")
    how = _options(options, reg, method, numItermax, stopThr, "gradient")
    result = _of_matrix(a, b, M, how, verbose, warn, warmstart)
    found = result.value_linear
    return (found, _log(result)) if log else found


@calls(**_POINTS)
def empirical_sinkhorn(
    X_s: Any,
    X_t: Any,
    reg: float,
    a: Any = None,
    b: Any = None,
    metric: str = "sqeuclidean",
    numIterMax: int = 10000,
    stopThr: float = 1e-9,
    isLazy: bool = False,
    batchSize: int | tuple[int, int] = 100,
    verbose: bool = False,
    log: bool = False,
    warn: bool = True,
    warmstart: Any = None,
    **options: Any,
) -> Any:
    """The plan (n x m) between points, or with `isLazy` its scalings (log u, log v), without n x m of memory.

    Args:
        X_s, X_t: Points (n x d) and (m x d).
        reg: eps > 0, in units of the cost.
        a, b: Weights (n) and (m); None and empty are uniform.
        metric: A metric of :func:`monge.solve_sample`.
        numIterMax, stopThr: The largest number of sweeps, and the 2-norm of the errors of both marginals, relative to
            the mass, at which to stop; with `isLazy` the 1-norm, as in POT.
        isLazy: Return (log u, log v), and with `log` a `lazy_plan`.
        batchSize: An argument of POT without effect.

    All else, and errors, as for :func:`sinkhorn`.
    """
    del batchSize
    log, isLazy = truth("log", log), truth("isLazy", isLazy)
    result = _of_points(X_s, X_t, reg, a, b, metric, numIterMax, stopThr, isLazy, verbose, warn, warmstart, options)
    if not isLazy:
        return (result.plan, _log(result)) if log else result.plan
    u, v = result.log_scalings
    return (u, v, _lazy_log(result)) if log else (u, v)


@calls(**_POINTS)
def empirical_sinkhorn2(
    X_s: Any,
    X_t: Any,
    reg: float,
    a: Any = None,
    b: Any = None,
    metric: str = "sqeuclidean",
    numIterMax: int = 10000,
    stopThr: float = 1e-9,
    isLazy: bool = False,
    batchSize: int | tuple[int, int] = 100,
    verbose: bool = False,
    log: bool = False,
    warn: bool = True,
    warmstart: Any = None,
    **options: Any,
) -> Any:
    """<C, P>, in units of the cost times mass, for the plan P of :func:`empirical_sinkhorn`, which is not formed.

    Args:
        X_s, X_t, reg, a, b, metric, numIterMax, stopThr: As for :func:`empirical_sinkhorn`.
        isLazy: Whether stopThr bounds the 1-norm, as there, and the log has a `lazy_plan`; the value is the same.
        batchSize: An argument of POT without effect.

    All else, and errors, as for :func:`sinkhorn`.
    """
    del batchSize
    log, isLazy = truth("log", log), truth("isLazy", isLazy)
    result = _of_points(X_s, X_t, reg, a, b, metric, numIterMax, stopThr, isLazy, verbose, warn, warmstart, options)
    made = _lazy_log if isLazy else _log
    return (result.value_linear, made(result)) if log else result.value_linear


@calls(**_POINTS)
def empirical_sinkhorn_divergence(
    X_s: Any,
    X_t: Any,
    reg: float,
    a: Any = None,
    b: Any = None,
    metric: str = "sqeuclidean",
    numIterMax: int = 10000,
    stopThr: float = 1e-9,
    verbose: bool = False,
    log: bool = False,
    warn: bool = True,
    warmstart: Any = None,
    **options: Any,
) -> Any:
    """POT's divergence of transport costs, max(0, <C, P_ab> - (<C, P_aa> + <C, P_bb>) / 2).

    :func:`monge.sinkhorn_divergence` has the entropy, too; that divergence is convex and positive (Feydy et al. 2019).
    The value is in units of the cost.

    Args:
        X_s, X_t, reg, a, b, metric: As for :func:`empirical_sinkhorn`.
        numIterMax, stopThr: The largest number of sweeps of each of the three solves, and the 2-norm of the errors of
            both marginals, relative to the mass, at which to stop.
        log: Return a dictionary, too: `sinkhorn_loss_ab`, `_a` and `_b`, the three costs; `log_sinkhorn_ab`, `_a` and
            `_b`, their logs; and the :class:`DivergenceResult` as `result`.
        warmstart: (log u, log v) of the solve between a and b, as in its log.
        options: As there, and `isLazy`: as for :func:`empirical_sinkhorn2`.

    All else, and errors, as for :func:`sinkhorn`.
    """
    log, warns = truth("log", log), truth("warn", warn)
    isLazy = truth("isLazy", options.pop("isLazy", False))
    for name in ("batchSize", *_OF_ONE_METHOD):
        options.pop(name, None)
    start = None
    if warmstart is not None:
        problem = points_problem(X_s, X_t, _weights(a), _weights(b), metric, device=options.get("device"))
        start = _start(warmstart, problem, {} if reg is None else {"eps": number("reg", reg)}, True)
    result = sinkhorn_divergence(
        X_s,
        X_t,
        _weights(a),
        _weights(b),
        metric=metric,
        reg=reg,
        max_iter=numIterMax,
        tol=stopThr,
        potentials_init=start,
        progress=shows(None, verbose),
        warn=False,
        **{"criterion": "l1" if isLazy else "gradient", **options},
    )
    if warns:
        _warn(*result._solves)
    parts = {"ab": result.ab, "a": result.aa, "b": result.bb}
    costs = {name: part._transport_cost() for name, part in parts.items()}
    difference = costs["ab"] - (costs["a"] + costs["b"]) / 2
    value = result.ab._place.scalar(max(0.0, difference))
    if result._followed is not None:  # In float32 the difference of three tensors would have few digits.
        ab, aa, bb = (part.value_linear for part in parts.values())
        followed = (ab - (aa + bb) / 2) * (difference > 0)
        value = value + (followed - followed.detach())
    if not log:
        return value
    return value, {
        **{f"sinkhorn_loss_{name}": result.ab._place.scalar(cost) for name, cost in costs.items()},
        **{f"log_sinkhorn_{name}": (_lazy_log if isLazy else _log)(part) for name, part in parts.items()},
        "result": result,
    }


@calls(**_UNBALANCED)
def sinkhorn_unbalanced(
    a: Any,
    b: Any,
    M: Any,
    reg: float,
    reg_m: float | Sequence[float],
    method: str = "sinkhorn",
    reg_type: str = "kl",
    c: Any = None,
    warmstart: Any = None,
    numItermax: int = 1000,
    stopThr: float = 1e-6,
    verbose: bool = False,
    log: bool = False,
    **options: Any,
) -> Any:
    """The plan that minimises <M, P> + reg KL(P | c) + reg_m KL(P 1 | a) + reg_m KL(P^T 1 | b).

    Args:
        a, b: Weights (n) and (m), with any totals; None and empty are uniform. If b is (m x K), the K numbers <M, P>
            are returned, as in POT.
        M, reg: Costs (n x m), and eps > 0 in their units.
        reg_m: A penalty > 0 in units of M, or a pair; inf is a marginal constraint.
        method: A method of POT. All are one solver here.
        reg_type: "kl", or "entropy" for reg sum P (log P - 1) in the place of reg KL(P | c).
        c: The reference measure (n x m) of "kl", by default a b^T. For "entropy", and with several b, it must be left
            out.
        numItermax, stopThr: The largest number of sweeps, and the 1-norm of the errors of the optimality conditions,
            relative to the mass, at which to stop.
        warmstart: (log u, log v), as in the log.
        verbose: Show a bar (tqdm), or print where tqdm is not installed.
        log: Return a dictionary, too: `err` as in :func:`sinkhorn`, `cost`, `total_cost`, the :class:`OTResult` as
            `result`, and `logu` and `logv`, with P_ij = c_ij exp(logu_i + logv_j - M_ij / reg); for "entropy" without
            the factor c_ij. With several b, arrays have a column for each, and `result` is a :class:`BatchResult`.
        options: `device`, as for :func:`monge.solve`, and the library's options, :class:`monge.SolveOptions`.

    Raises:
        NotImplementedError: Another reg_type; c or a warm start with several b. Other errors are those of
            :func:`monge.solve`.

    Source: Chizat et al. 2018; Sejourne, Vialard, Peyre 2022.
    """
    log = truth("log", log)
    how = _options(options, reg, method, numItermax, stopThr, "l1", reg_m)
    kind = lower_name("reg_type", reg_type, "'kl' or 'entropy'")
    result = _unbalanced(a, b, M, how, kind, c, warmstart, verbose)
    found = result.plan if isinstance(result, OTResult) else result.value_linear
    return (found, _unbalanced_log(result, kind)) if log else found


@calls(**_UNBALANCED)
def sinkhorn_unbalanced2(
    a: Any,
    b: Any,
    M: Any,
    reg: float,
    reg_m: float | Sequence[float],
    method: str = "sinkhorn",
    reg_type: str = "kl",
    c: Any = None,
    warmstart: Any = None,
    returnCost: str = "linear",
    numItermax: int = 1000,
    stopThr: float = 1e-6,
    verbose: bool = False,
    log: bool = False,
    **options: Any,
) -> Any:
    """<M, P> of the plan of :func:`sinkhorn_unbalanced`; with `returnCost` "total" instead of "linear" the objective.

    Other arguments and errors are those of :func:`sinkhorn_unbalanced`.
    """
    if not isinstance(returnCost, str) or returnCost not in ("linear", "total"):
        raise ValueError(f"returnCost: is {shown(returnCost)}; must be 'linear' or 'total'")
    log = truth("log", log)
    how = _options(options, reg, method, numItermax, stopThr, "l1", reg_m)
    kind = lower_name("reg_type", reg_type, "'kl' or 'entropy'")
    result = _unbalanced(a, b, M, how, kind, c, warmstart, verbose)
    cost = result.value_linear if returnCost == "linear" else result.value
    return (cost, _unbalanced_log(result, kind)) if log else cost


def _unbalanced(
    a: Any, b: Any, M: Any, how: tuple[dict[str, Any], Any], kind: str, c: Any, warmstart: Any, verbose: bool
) -> OTResult | BatchResult[OTResult]:
    if kind not in ("kl", "entropy"):
        raise NotImplementedError(f"reg_type: is {kind!r}; must be 'kl' or 'entropy'")
    return _of_matrix(a, b, M, how, verbose, True, warmstart, kind == "entropy", kind, c)


def _unbalanced_log(result: OTResult | BatchResult[OTResult], kind: str) -> Log:
    costs = {"cost": result.value_linear, "total_cost": result.value}
    if isinstance(result, BatchResult):
        return costs | _log_of_columns([_unbalanced_log(each, kind) for each in result], result)
    u, v = result.log_scalings if kind == "entropy" else (potential / result.reg for potential in result.potentials)
    return {"err": _errors(result), **costs, "logu": u, "logv": v, "result": result}


@calls(**_MATRIX)
def smooth_ot_dual(
    a: Any,
    b: Any,
    M: Any,
    reg: float,
    reg_type: str = "l2",
    method: str = "L-BFGS-B",
    stopThr: float = 1e-9,
    numItermax: int = 500,
    verbose: bool = False,
    log: bool = False,
    max_nz: int | None = None,
    **options: Any,
) -> Any:
    """The plan P (n x m) that minimises <M, P> + reg / 2 sum P^2, or with "kl" <M, P> + reg sum P log P.

    Args:
        a, b: Weights (n) and (m), with equal totals; None and empty are uniform.
        M, reg: Costs (n x m), and the weight >= 0 of the term, in units of M over mass.
        reg_type: "l2", or "kl" for the plan of :func:`sinkhorn`.
        method: An argument of POT without effect. The method of "l2" is Newton's.
        numItermax, stopThr: The largest number of passes, and the 2-norm of the errors of both marginals, relative to
            that of (a, b), at which to stop; with "kl" as for :func:`sinkhorn`.
        verbose: Show a bar (tqdm).
        max_nz: An argument of POT, which must be None.
        options: `device`, as for :func:`monge.solve`, and those of :class:`monge.RegularizedOptions`, with "kl" of
            :class:`monge.SolveOptions`.
        log: Return POT's `alpha` and `beta`, too, and the :class:`RegularizedResult`, with "kl" the :class:`OTResult`,
            as `res`.

    Raises:
        NotImplementedError: Another reg_type, or max_nz. Other errors are those of :func:`monge.solve_regularized`.

    Source: Blondel, Seguy, Rolet 2018.
    """
    del method
    log, kind = truth("log", log), lower_name("reg_type", reg_type, "'l2' or 'kl'")
    if kind not in _SMOOTH:
        raise NotImplementedError(f"reg_type: is {reg_type!r}; must be 'l2' or 'kl'")
    refuse_unsupported(max_nz=max_nz)
    if _SMOOTH[kind] == "kl":
        translated, device = _options(options, reg, "auto", numItermax, stopThr, "gradient")
        problem = matrix_problem(M, _weights(a), _weights(b), device)
        entropic = _run(problem, translated, None, True, verbose, reg_type="entropy")
        result: PlanResult = entropic
        # At the optimum alpha_i + beta_j = M_ij + reg (log P_ij + 1).
        alpha, beta = (entropic.reg * (scaling + 0.5) for scaling in entropic.log_scalings)
    else:
        device = options.pop("device", None)
        own = {"method": "newton", "criterion": "residual", "tolerance": stopThr, "iterations": numItermax, **options}
        problem = matrix_problem(M, _weights(a), _weights(b), device)
        result = run_regularized(problem, quadratic_term(reg), own, None, None, shows(None, verbose))
        alpha, beta = result.potentials
    return (result.plan, {"alpha": alpha, "beta": beta, "res": result}) if log else result.plan


def _total(field: str, weights: Any) -> float:
    return float(on_host(read(field, weights)).sum(dtype=np.float64))


def _emd(a: Any, b: Any, M: Any, check_marginals: Any, potentials_init: Any, threads: int | str) -> ExactResult:
    if isinstance(threads, str) and threads != "max":
        raise ValueError(f'numThreads: is {shown(threads)}; must be a number of threads or "max"')
    a, b = _weights(a), _weights(b)
    if not truth("check_marginals", check_marginals) and a is not None and b is not None:
        if any(map(requires_gradient, (a, b))):
            b = b * (a.sum() / b.sum())
        else:
            column = read("b", b)
            of_a, of_b = _total("a", a), _total("b", column)
            if not of_b > 0:
                raise ValueError(f"b: the total is {of_b:g}; must be > 0, so that b can be scaled to the total of a")
            b = column * (of_a / of_b)
    n_threads = None if isinstance(threads, str) else whole("numThreads", threads, 1, MOST)
    return run_exact(matrix_problem(M, a, b, may_be_sparse=True), {}, potentials_init, n_threads)


def _verdict(result: ExactResult) -> Log:
    """Whether the optimum is proved, in POT's words."""
    return {"warning": None if result.converged else result.report.message, "result_code": int(result.converged)}


def _emd_log(result: ExactResult, center_dual: Any) -> Log:
    """POT's log: `u` and `v` are the potentials, by `center_dual` with equal means under the weights."""
    u, v = result.potentials
    if truth("center_dual", center_dual):
        made, (row, column) = result._made, result.marginals
        finite = [np.where(np.isfinite(side), side, 0) for side in (made.f, made.g)]
        shift = float((finite[0] @ on_host(row) - finite[1] @ on_host(column)) / (2 * made.values.sum()))
        u, v = u - shift, v + shift
    return {"cost": result.value, "u": u, "v": v, **_verdict(result)}


@calls(**_EMD)
def emd(
    a: Any,
    b: Any,
    M: Any,
    numItermax: int = 100000,
    log: bool = False,
    center_dual: bool = True,
    numThreads: int | str = "max",
    check_marginals: bool = True,
    potentials_init: tuple[Any, Any] | None = None,
) -> Any:
    """POT's ``ot.emd``: the optimal plan (n x m) for the costs `M`, and with `log` also (plan, log).

    Args:
        a, b, M: Weights and costs, as for :func:`solve_exact`; empty weights are uniform. The plan of a sparse M is
            sparse.
        log: Adds a dictionary of `cost`, the potentials `u` and `v`, `warning` and `result_code`, 1 for a proved
            optimum.
        center_dual: Whether u and v get equal sums under the weights.
        check_marginals: False scales b to the total of a, whatever its total is.
        potentials_init: (u, v), a warm start.
        numItermax: Has no effect: the solve ends with a proof.
        numThreads: Threads on the CPU, or "max": one for each core.

    Errors are those of :func:`solve_exact`.
    """
    result = _emd(a, b, M, check_marginals, potentials_init, numThreads)
    return (result.plan, _emd_log(result, center_dual)) if truth("log", log) else result.plan


def _partial(a: Any, b: Any, M: Any, m: Any) -> tuple[ExactResult, Array]:
    """The result and its value. Without m the mass, and with it the value, depends on the weights of a side."""
    a, b = _weights(a), _weights(b)
    problem = matrix_problem(M, a, b, may_be_sparse=True)
    if m is not None:
        result = run_exact(problem, exact_options({"mass": m}, None, None))
        return result, result.value
    sides = (problem.a, problem.b)
    of_a, of_b = (1.0 if side is None else float(on_host(side).sum(dtype=np.float64)) for side in sides)
    result = run_exact(problem, exact_options({"mass": min(of_a, of_b)}, None, None))
    smaller = a if of_a <= of_b else b
    if not requires_gradient(smaller):
        return result, result.value
    mass = smaller.sum()
    return result, result.value + result.report.mass_price * (mass - mass.detach())


def _partial_log(result: ExactResult, value: Array) -> Log:
    u, v = result.potentials
    return {"cost": value, "partial_w_dist": value, "u": u, "v": v, **_verdict(result)}


@calls(**_PARTIAL)
def partial_wasserstein(a: Any, b: Any, M: Any, m: float | None = None, nb_dummies: int = 1, log: bool = False) -> Any:
    """POT's ``ot.partial.partial_wasserstein``: the plan (n x m) of least cost with mass `m`, P 1 <= a and P^T 1 <= b.

    Args:
        a, b, M: Weights and costs, as for :func:`solve_exact`; totals may differ, and empty weights are uniform.
        m: The mass, > 0. By default it is the smaller total, and derivatives by the weights include its change.
        nb_dummies: Has no effect: the dustbin is one point.
        log: Adds a dictionary of `cost` (also as `partial_w_dist`), the potentials `u` and `v`, `warning` and
            `result_code`, 1 for a proved optimum.

    Errors are those of :func:`solve_exact`.
    """
    result, value = _partial(a, b, M, m)
    return (result.plan, _partial_log(result, value)) if truth("log", log) else result.plan


@calls(**_PARTIAL)
def partial_wasserstein2(
    a: Any, b: Any, M: Any, m: float | None = None, nb_dummies: int = 1, log: bool = False
) -> Any:
    """POT's ``ot.partial.partial_wasserstein2``: the cost of the plan of :func:`partial_wasserstein`, with derivatives
    for tensors of PyTorch; with `log` (cost, log). The log has the plan, too, as `T`.

    Arguments and errors are those of :func:`partial_wasserstein`.
    """
    result, value = _partial(a, b, M, m)
    return (value, _partial_log(result, value) | {"T": result.plan}) if truth("log", log) else value


@calls(**_EMD)
def emd2(
    a: Any,
    b: Any,
    M: Any,
    processes: int = 1,
    numItermax: int = 100000,
    log: bool = False,
    return_matrix: bool = False,
    center_dual: bool = True,
    numThreads: int | str = "max",
    check_marginals: bool = True,
    potentials_init: tuple[Any, Any] | None = None,
) -> Any:
    """POT's ``ot.emd2``: the optimal cost, with derivatives for tensors of PyTorch; with `log` (cost, log).

    Its derivatives by a and b are the potentials, each with mean 0, as in POT. A matrix b (m, k) has k problems in its
    columns, and the result is a list. With `return_matrix` the log has the plan, too, as `G`. Other arguments are those
    of :func:`emd`; `processes` has no effect.
    """
    if isinstance(b, (list, tuple)):
        b = np.asarray(b)
    b = stack_of("b", b)
    columns = [b] if getattr(b, "ndim", 1) == 1 else [b[:, k] for k in range(b.shape[1])]

    def of(column: Any) -> Any:
        result = _emd(a, column, M, check_marginals, potentials_init, numThreads)
        value = result.value
        if check_marginals:  # Derivatives by a scaled b are those by the scaled weights.
            for weights, potential in ((a, result._made.f), (column, result._made.g)):
                if requires_gradient(weights):
                    total, mean = weights.sum(), float(potential[np.isfinite(potential)].mean())
                    value = value - mean * (total - total.detach()).to(value)
        if not truth("log", log) and not truth("return_matrix", return_matrix):
            return value
        entries = _emd_log(result, center_dual) | {"cost": value}
        return value, {**entries, "G": result.plan} if return_matrix else entries

    found = [of(column) for column in columns]
    return found[0] if getattr(b, "ndim", 1) == 1 else found
