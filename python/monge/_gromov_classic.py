"""Functions of POT's module gromov that return a plan or a number instead of a result, and its batch."""

from __future__ import annotations

import functools
import inspect
import re
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec

import numpy as np

from ._arrays import on_host, read, stack_of
from ._gromov import GromovResult, solve_gromov
from ._named_starts import named_start
from ._names import GROMOV, calls, lower_name, number, shown, truth
from ._problem import all_of, each_problem, one_each
from ._result import BatchResult

Log = dict[str, Any]
_Arguments = ParamSpec("_Arguments")

_LOSSES = {"square_loss": "L2", "kl_loss": "KL"}
_OF_POT = ("armijo", "alpha_min", "alpha_max", "n_dummies", "numItermaxEmd", "numItermax", "stopThr", "warn")
"""POT's options of its inner solvers that have no effect here: the accuracy of a step follows from `tol`."""
_NAMES = {"Ca": "C1", "Cb": "C2", "a": "p", "b": "q", "plan_init": "G0", "method": "solver"}
_EXACT = calls(**_NAMES, tol="tol_rel")
_ENTROPIC = calls(**_NAMES, reg="epsilon")
_PARTIAL = calls(**_NAMES, unbalanced="m", mass="m", max_iter="numItermax")
_UNBALANCED = calls(Ca="Cx", Cb="Cy", a="wx", b="wy", plan_init="init_pi", unbalanced="reg_marginals", reg="epsilon")


_OF_VALUE = """POT's ``ot.gromov.{0}2``: the value, without entropy.

    It is that of the plan of :func:`{0}`. With `log` (value, log), whose log has the plan, too, as `T`.

"""


def _plan_and_value(
    solve: Callable[_Arguments, GromovResult], prefix: str = "", **of_value: Any
) -> tuple[Callable[_Arguments, Any], Callable[_Arguments, Any]]:
    """The functions of POT with the arguments of `solve` that return the plan, and the value, whose name ends with 2.
    `prefix` stands before "gw_dist" or "fgw_dist", the value's name in the log; `of_value` are defaults of the function
    for the value that differ."""
    solve.__name__ = solve.__qualname__ = solve.__name__.removeprefix("_")
    signature = inspect.signature(solve)

    def made(*arguments: _Arguments.args, **keywords: _Arguments.kwargs) -> tuple[GromovResult, Any, Log, bool]:
        given = signature.bind(*arguments, **keywords)
        given.apply_defaults()
        log = truth("log", given.arguments["log"])
        result = solve(*arguments, **keywords)
        is_fused = result._clouds.s is not None
        value = result.value if result.reg == 0 else result.value_linear + result.value_quad
        steps: Log = {"err": [result.report.change]} if result.reg > 0 else {"loss": [value]}
        if result.reg == 0 and result.potentials is not None:
            steps["u"], steps["v"] = result.potentials
        if given.arguments.get("marginal_loss") is False:
            steps["loss"] = value - _terms_of_marginals(result, given.arguments)
        terms = {"quad_loss": result.value_quad, "lin_loss": result.value_linear} if is_fused else {}
        return result, value, {**steps, prefix + ("fgw_dist" if is_fused else "gw_dist"): value, **terms}, log

    @functools.wraps(solve)
    def plan(*arguments: _Arguments.args, **keywords: _Arguments.kwargs) -> Any:
        result, _, entries, log = made(*arguments, **keywords)
        return (result.plan, entries | {"result": result}) if log else result.plan

    @functools.wraps(solve)
    def value(*arguments: _Arguments.args, **keywords: _Arguments.kwargs) -> Any:
        bound = signature.bind_partial(*arguments, **keywords).arguments
        left: Any = {name: default for name, default in of_value.items() if name not in bound}
        result, found, entries, log = made(*arguments, **keywords, **left)
        return (found, entries | {"T": result.plan, "result": result}) if log else found

    name = solve.__name__
    value.__name__ = value.__qualname__ = f"{name}2"
    value.__doc__ = _OF_VALUE.format(name) + (solve.__doc__ or "").partition("\n\n")[2]
    for function, defaults in ((plan, {}), (value, of_value)):
        parameters = [one.replace(default=defaults.get(one.name, one.default)) for one in signature.parameters.values()]
        function.__signature__ = inspect.Signature(parameters, return_annotation=Any)  # type: ignore[attr-defined]
    return plan, value


def _terms_of_marginals(result: GromovResult, given: dict[str, Any]) -> float:
    """The terms of alpha E(P) that depend on the marginals of P alone, as POT separates them."""
    c, d = (_host(name, given[name]) for name in ("C1", "C2"))
    row, column = (on_host(side).astype(float) for side in result.marginals)
    is_square = given["loss_fun"] == "square_loss"
    of_c, of_d = (c**2, d**2) if is_square else (c * np.log(c + 1e-15) - c, d)
    return float(result.report.alpha * (row @ of_c @ row + column @ of_d @ column))


def _solve(
    M: Any,
    C1: Any,
    C2: Any,
    p: Any,
    q: Any,
    loss_fun: str,
    alpha: float,
    G0: Any,
    max_iter: float,
    tol: float,
    options: dict[str, Any],
    **more: Any,
) -> GromovResult:
    """The result with POT's arguments, of which `options` are further ones, and `more`, arguments of solve_gromov()."""
    if loss_fun not in _LOSSES:
        raise ValueError(f"loss_fun: is {shown(loss_fun)}; must be 'square_loss' or 'kl_loss'")
    own = {name: value for name, value in options.items() if name not in _OF_POT}
    steps = number("max_iter", max_iter)  # POT's default is 1e4.
    return solve_gromov(
        C1,
        C2,
        M,
        p,
        q,
        _LOSSES[loss_fun],
        alpha=alpha,
        plan_init=G0,
        max_iter=int(steps) if steps.is_integer() else max_iter,  # type: ignore[arg-type]
        tol=tol,
        **({"starts": 1} if G0 is None else {}) | own | more,
    )


@_EXACT
def _gromov_wasserstein(
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    loss_fun: str = "square_loss",
    symmetric: bool | None = None,
    log: bool = False,
    armijo: bool = False,
    G0: Any = None,
    max_iter: float = 1e4,
    tol_rel: float = 1e-9,
    tol_abs: float = 1e-9,
    **options: Any,
) -> GromovResult:
    """POT's ``ot.gromov.gromov_wasserstein``: the plan (n x m) of :func:`solve_gromov` without entropy.

    Args:
        C1, C2: Matrices (n x n) and (m x m).
        p, q: Weights (n) and (m); by default uniform.
        loss_fun: "square_loss", or "kl_loss" of numbers >= 0.
        G0: The plan to start from (n x m), by default p q^T alone, as in POT. `starts=0` adds those of
            :func:`solve_gromov`.
        max_iter: The largest number of steps.
        tol_rel: The relative fall of the value in a step at which to stop: where a step ends between two plans, the
            search ends when the linearised objective falls by at most the root of it, times the value.
        log: Adds a dictionary: `gw_dist`, the value; `loss`, a list of it; the potentials `u` and `v`; the
            :class:`GromovResult` as `result`.
        symmetric, armijo, tol_abs: Have no effect: the entries show symmetry, and the step is the exact minimum.
        options: `starts`, `seed`, `device`, `verbose` and others of :func:`solve_gromov`.

    Errors are those of :func:`solve_gromov`, and a ValueError for another `loss_fun`.
    """
    del symmetric, log, armijo, tol_abs
    return _solve(None, C1, C2, p, q, loss_fun, 1.0, G0, max_iter, _gap(tol_rel), options)


@_EXACT
def _fused_gromov_wasserstein(
    M: Any,
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    loss_fun: str = "square_loss",
    symmetric: bool | None = None,
    alpha: float = 0.5,
    armijo: bool = False,
    G0: Any = None,
    log: bool = False,
    max_iter: float = 1e4,
    tol_rel: float = 1e-9,
    tol_abs: float = 1e-9,
    **options: Any,
) -> GromovResult:
    """POT's ``ot.gromov.fused_gromov_wasserstein``: the plan of least alpha E(P) + (1 - alpha) <M, P>.

    Args:
        M: Costs (n x m).
        alpha: The weight of E, in [0, 1].

    Other arguments, log and errors are those of :func:`gromov_wasserstein`; the value is `fgw_dist`.
    """
    del symmetric, log, armijo, tol_abs
    return _solve(M, C1, C2, p, q, loss_fun, alpha, G0, max_iter, _gap(tol_rel), options)


def _gap(tol_rel: float) -> float:
    """A step lowers the value by about the square of the Frank-Wolfe gap, relative to it."""
    value = number("tol_rel", tol_rel)
    return float(np.sqrt(value)) if value > 0 else value


@_ENTROPIC
def _entropic_gromov_wasserstein(
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    loss_fun: str = "square_loss",
    epsilon: float = 0.1,
    symmetric: bool | None = None,
    G0: Any = None,
    max_iter: float = 1000,
    tol: float = 1e-9,
    solver: str = "PGD",
    warmstart: bool = False,
    verbose: bool = False,
    log: bool = False,
    **options: Any,
) -> GromovResult:
    """POT's ``ot.gromov.entropic_gromov_wasserstein``: the plan of least E(P) + epsilon sum P log P.

    Args:
        epsilon: The weight of the entropy, > 0.
        tol: The relative change of the plan (for squared distances of its cross moment) at which to stop.
        solver: "PGD", the steps of mirror descent, or "PPA", proximal steps, by which the entropy vanishes.
        log: Adds a dictionary: `gw_dist`, the value without entropy; `err`, a list of the last change; the
            :class:`GromovResult` as `result`.
        symmetric, warmstart: Have no effect: each step starts at the potentials of the last one.
        verbose: True shows a bar.
        options: `sweeps`, the most of a step, `starts`, `seed`, `device` and others of :func:`solve_gromov`.

    Other arguments and errors are those of :func:`gromov_wasserstein`. A plan exists for every epsilon, as scalings are
    logarithms.
    """
    del symmetric, warmstart, log
    return _solve(
        None,
        C1,
        C2,
        p,
        q,
        loss_fun,
        1.0,
        G0,
        max_iter,
        tol,
        options,
        reg=_positive("epsilon", epsilon),
        method=_solver(solver),
        verbose=verbose,
    )


@_ENTROPIC
def _entropic_fused_gromov_wasserstein(
    M: Any,
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    loss_fun: str = "square_loss",
    epsilon: float = 0.1,
    symmetric: bool | None = None,
    alpha: float = 0.5,
    G0: Any = None,
    max_iter: float = 1000,
    tol: float = 1e-9,
    solver: str = "PGD",
    warmstart: bool = False,
    verbose: bool = False,
    log: bool = False,
    **options: Any,
) -> GromovResult:
    """POT's ``ot.gromov.entropic_fused_gromov_wasserstein``: the plan of least alpha E(P) + (1 - alpha) <M, P> +
    epsilon sum P log P.

    Args:
        M: Costs (n x m).
        alpha: The weight of E, in [0, 1].

    Other arguments, log and errors are those of :func:`entropic_gromov_wasserstein` and
    :func:`gromov_wasserstein`; the value is `fgw_dist`.
    """
    del symmetric, warmstart, log
    return _solve(
        M,
        C1,
        C2,
        p,
        q,
        loss_fun,
        alpha,
        G0,
        max_iter,
        tol,
        options,
        reg=_positive("epsilon", epsilon),
        method=_solver(solver),
        verbose=verbose,
    )


def _positive(field: str, weight: Any) -> float:
    value = number(field, weight)
    if not value > 0:
        raise ValueError(f"{field}: is {value:g}; must be > 0")
    return value


def _solver(solver: Any) -> str:
    if solver not in ("PGD", "PPA"):
        raise ValueError(f"solver: is {shown(solver)}; must be 'PGD' or 'PPA'")
    return str(solver)


@_ENTROPIC
def _BAPG_gromov_wasserstein(
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    loss_fun: str = "square_loss",
    epsilon: float = 0.1,
    symmetric: bool | None = None,
    G0: Any = None,
    max_iter: float = 1000,
    tol: float = 1e-9,
    marginal_loss: bool = False,
    verbose: bool = False,
    log: bool = False,
    **options: Any,
) -> GromovResult:
    """POT's ``ot.gromov.BAPG_gromov_wasserstein``, by proximal steps: :func:`entropic_gromov_wasserstein` with `solver`
    "PPA". POT's steps set one marginal at a time, and its plans miss the other one. Plans here have both.

    Args:
        marginal_loss: Has no effect on the plan: the terms of E that depend on marginals alone are constants. If it is
            False, `loss` in the log is the value without them.

    Other arguments, log and errors are those of :func:`entropic_gromov_wasserstein` and :func:`gromov_wasserstein`.
    """
    del symmetric, marginal_loss, log
    more = {"reg": _positive("epsilon", epsilon), "method": "PPA", "verbose": verbose}
    return _solve(None, C1, C2, p, q, loss_fun, 1.0, G0, max_iter, tol, options, **more)


@_ENTROPIC
def _BAPG_fused_gromov_wasserstein(
    M: Any,
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    loss_fun: str = "square_loss",
    epsilon: float = 0.1,
    symmetric: bool | None = None,
    alpha: float = 0.5,
    G0: Any = None,
    max_iter: float = 1000,
    tol: float = 1e-9,
    marginal_loss: bool = False,
    verbose: bool = False,
    log: bool = False,
    **options: Any,
) -> GromovResult:
    """POT's ``ot.gromov.BAPG_fused_gromov_wasserstein``, by proximal steps:
    :func:`entropic_fused_gromov_wasserstein` with `solver` "PPA".

    Other arguments, log and errors are those of :func:`BAPG_gromov_wasserstein`, :func:`fused_gromov_wasserstein`,
    :func:`entropic_gromov_wasserstein` and :func:`gromov_wasserstein`.
    """
    del symmetric, marginal_loss, log
    more = {"reg": _positive("epsilon", epsilon), "method": "PPA", "verbose": verbose}
    return _solve(M, C1, C2, p, q, loss_fun, alpha, G0, max_iter, tol, options, **more)


@_EXACT
def _semirelaxed_gromov_wasserstein(
    C1: Any,
    C2: Any,
    p: Any = None,
    loss_fun: str = "square_loss",
    symmetric: bool | None = None,
    log: bool = False,
    G0: Any = None,
    max_iter: float = 1e4,
    tol_rel: float = 1e-9,
    tol_abs: float = 1e-9,
    random_state: Any = 0,
    **options: Any,
) -> GromovResult:
    """POT's ``ot.gromov.semirelaxed_gromov_wasserstein``: the plan of least E(P) with the rows' masses p alone.

    Args:
        G0: The plan to start from (n x m), or its name: "product", the default, p times uniform weights;
            "random_product", "random"; "kmeans" and "spectral", which need scikit-learn, and "fluid", which needs
            networkx, partitions of the larger space; with "_soft" at their end their means with the product plan.
        random_state: The seed of these starts.

    Other arguments, log and errors are those of :func:`gromov_wasserstein`; the value is `srgw_dist`, and there are no
    potentials.
    """
    del symmetric, log, tol_abs
    return _semirelaxed(None, C1, C2, p, loss_fun, 1.0, G0, max_iter, _gap(tol_rel), options, random_state)


@_EXACT
def _semirelaxed_fused_gromov_wasserstein(
    M: Any,
    C1: Any,
    C2: Any,
    p: Any = None,
    loss_fun: str = "square_loss",
    symmetric: bool | None = None,
    alpha: float = 0.5,
    G0: Any = None,
    log: bool = False,
    max_iter: float = 1e4,
    tol_rel: float = 1e-9,
    tol_abs: float = 1e-9,
    random_state: Any = 0,
    **options: Any,
) -> GromovResult:
    """POT's ``ot.gromov.semirelaxed_fused_gromov_wasserstein``: :func:`semirelaxed_gromov_wasserstein` with costs M
    (n x m) of the weight 1 - `alpha`.

    Other arguments, log and errors are those of :func:`semirelaxed_gromov_wasserstein`, :func:`fused_gromov_wasserstein`
    and :func:`gromov_wasserstein`; the value is `srfgw_dist`.
    """
    del symmetric, log, tol_abs
    return _semirelaxed(M, C1, C2, p, loss_fun, alpha, G0, max_iter, _gap(tol_rel), options, random_state)


@_ENTROPIC
def _entropic_semirelaxed_gromov_wasserstein(
    C1: Any,
    C2: Any,
    p: Any = None,
    loss_fun: str = "square_loss",
    epsilon: float = 0.1,
    symmetric: bool | None = None,
    G0: Any = None,
    max_iter: float = 1e4,
    tol: float = 1e-9,
    log: bool = False,
    verbose: bool = False,
    random_state: Any = 0,
    **options: Any,
) -> GromovResult:
    """POT's ``ot.gromov.entropic_semirelaxed_gromov_wasserstein``: :func:`semirelaxed_gromov_wasserstein` by proximal
    steps of weight `epsilon`.

    Other arguments, log and errors are those of :func:`semirelaxed_gromov_wasserstein`,
    :func:`entropic_gromov_wasserstein` and :func:`gromov_wasserstein`; the value is `srgw_dist`.
    """
    del symmetric, log
    more = {"reg": _positive("epsilon", epsilon), "verbose": verbose}
    return _semirelaxed(None, C1, C2, p, loss_fun, 1.0, G0, max_iter, tol, options, random_state, **more)


@_ENTROPIC
def _entropic_semirelaxed_fused_gromov_wasserstein(
    M: Any,
    C1: Any,
    C2: Any,
    p: Any = None,
    loss_fun: str = "square_loss",
    symmetric: bool | None = None,
    epsilon: float = 0.1,
    alpha: float = 0.5,
    G0: Any = None,
    max_iter: float = 1e4,
    tol: float = 1e-9,
    log: bool = False,
    verbose: bool = False,
    random_state: Any = 0,
    **options: Any,
) -> GromovResult:
    """POT's ``ot.gromov.entropic_semirelaxed_fused_gromov_wasserstein``:
    :func:`entropic_semirelaxed_gromov_wasserstein` with costs M (n x m) of the weight 1 - `alpha`.

    Other arguments, log and errors are those of :func:`semirelaxed_gromov_wasserstein`,
    :func:`entropic_gromov_wasserstein`, :func:`fused_gromov_wasserstein` and :func:`gromov_wasserstein`; the value is
    `srfgw_dist`.
    """
    del symmetric, log
    more = {"reg": _positive("epsilon", epsilon), "verbose": verbose}
    return _semirelaxed(M, C1, C2, p, loss_fun, alpha, G0, max_iter, tol, options, random_state, **more)


def _semirelaxed(
    M: Any,
    C1: Any,
    C2: Any,
    p: Any,
    loss_fun: str,
    alpha: float,
    G0: Any,
    max_iter: float,
    tol: float,
    options: dict[str, Any],
    random_state: Any,
    **more: Any,
) -> GromovResult:
    if isinstance(G0, str):
        c, d = (_host(field, side) for field, side in (("C1", C1), ("C2", C2)))
        weights = np.full(len(c), 1 / len(c)) if p is None else _host("p", p)
        seed = 0 if random_state is None else random_state
        G0 = named_start(G0, c, d, weights, None if M is None else _host("M", M), alpha, seed)
    more["unbalanced_type"] = "semirelaxed"
    return _solve(M, C1, C2, p, None, loss_fun, alpha, G0, max_iter, tol, options, **more)


@_PARTIAL
def _partial_gromov_wasserstein(
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    m: float | None = None,
    loss_fun: str = "square_loss",
    nb_dummies: int = 1,
    G0: Any = None,
    thres: float = 1,
    numItermax: float = 1e4,
    tol: float = 1e-8,
    symmetric: bool | None = None,
    warn: bool = True,
    log: bool = False,
    verbose: bool = False,
    **options: Any,
) -> GromovResult:
    """POT's ``ot.gromov.partial_gromov_wasserstein``: the plan of least E(P) with mass `m`, P 1 <= p and P^T 1 <= q.

    Args:
        m: The mass, > 0 and at most the smaller total, which is the default.
        G0: The plan to start from (n x m), by default p q^T of mass m.
        numItermax, tol: As `max_iter` and `tol_rel` of :func:`gromov_wasserstein`.
        nb_dummies, thres, symmetric, warn: Have no effect.
        verbose: True shows a bar.

    Other arguments, log and errors are those of :func:`gromov_wasserstein`; the value is `partial_gw_dist`, and there
    are no potentials.
    """
    del nb_dummies, thres, symmetric, warn, log
    return _partial(None, C1, C2, p, q, m, loss_fun, 1.0, G0, numItermax, tol, options, verbose)


@_PARTIAL
def _partial_fused_gromov_wasserstein(
    M: Any,
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    m: float | None = None,
    loss_fun: str = "square_loss",
    alpha: float = 0.5,
    nb_dummies: int = 1,
    G0: Any = None,
    thres: float = 1,
    numItermax: float = 1e4,
    tol: float = 1e-8,
    symmetric: bool | None = None,
    warn: bool = True,
    log: bool = False,
    verbose: bool = False,
    **options: Any,
) -> GromovResult:
    """POT's ``ot.gromov.partial_fused_gromov_wasserstein``: :func:`partial_gromov_wasserstein` with costs M (n x m) of
    the weight 1 - `alpha`.

    Other arguments, log and errors are those of :func:`partial_gromov_wasserstein`, :func:`fused_gromov_wasserstein` and
    :func:`gromov_wasserstein`; the value is `partial_fgw_dist`.
    """
    del nb_dummies, thres, symmetric, warn, log
    return _partial(M, C1, C2, p, q, m, loss_fun, alpha, G0, numItermax, tol, options, verbose)


@_PARTIAL
def _entropic_partial_gromov_wasserstein(
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    reg: float = 1.0,
    m: float | None = None,
    loss_fun: str = "square_loss",
    G0: Any = None,
    numItermax: float = 1000,
    tol: float = 1e-7,
    symmetric: bool | None = None,
    log: bool = False,
    verbose: bool = False,
    **options: Any,
) -> GromovResult:
    """POT's ``ot.gromov.entropic_partial_gromov_wasserstein``: :func:`partial_gromov_wasserstein` with the entropy
    reg KL(P | p q^T), which for uniform weights is POT's reg sum P log P. A step takes O(n m (n + m)), of squared
    distances, too.

    Args:
        reg: The weight of the entropy, > 0.
        numItermax, tol: The largest number of steps, and the relative change of the plan at which to stop.

    Other arguments, log and errors are those of :func:`partial_gromov_wasserstein`,
    :func:`entropic_gromov_wasserstein` and :func:`gromov_wasserstein`.
    """
    del symmetric, log
    return _partial(None, C1, C2, p, q, m, loss_fun, 1.0, G0, numItermax, tol, options, verbose, _positive("reg", reg))


@_PARTIAL
def _entropic_partial_fused_gromov_wasserstein(
    M: Any,
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    reg: float = 1.0,
    m: float | None = None,
    loss_fun: str = "square_loss",
    alpha: float = 0.5,
    G0: Any = None,
    numItermax: float = 1000,
    tol: float = 1e-7,
    symmetric: bool | None = None,
    log: bool = False,
    verbose: bool = False,
    **options: Any,
) -> GromovResult:
    """POT's ``ot.gromov.entropic_partial_fused_gromov_wasserstein``: :func:`entropic_partial_gromov_wasserstein` with
    costs M (n x m) of the weight 1 - `alpha`.

    Other arguments, log and errors are those of :func:`entropic_partial_gromov_wasserstein`,
    :func:`partial_gromov_wasserstein`, :func:`entropic_gromov_wasserstein`, :func:`fused_gromov_wasserstein` and
    :func:`gromov_wasserstein`; the value is `partial_fgw_dist`.
    """
    del symmetric, log
    return _partial(M, C1, C2, p, q, m, loss_fun, alpha, G0, numItermax, tol, options, verbose, _positive("reg", reg))


def _partial(
    M: Any,
    C1: Any,
    C2: Any,
    p: Any,
    q: Any,
    m: float | None,
    loss_fun: str,
    alpha: float,
    G0: Any,
    steps: float,
    tol: float,
    options: dict[str, Any],
    verbose: bool,
    reg: float | None = None,
) -> GromovResult:
    if m is None:
        m = min(
            1.0 if side is None else float(on_host(read(field, side)).sum()) for field, side in (("p", p), ("q", q))
        )
    more = {"unbalanced": m, "unbalanced_type": "partial", "verbose": verbose, "reg": reg}
    return _solve(M, C1, C2, p, q, loss_fun, alpha, G0, steps, tol if reg else _gap(tol), options, **more)


gromov_wasserstein, gromov_wasserstein2 = _plan_and_value(_gromov_wasserstein)
fused_gromov_wasserstein, fused_gromov_wasserstein2 = _plan_and_value(_fused_gromov_wasserstein)
entropic_gromov_wasserstein, entropic_gromov_wasserstein2 = _plan_and_value(_entropic_gromov_wasserstein)
entropic_fused_gromov_wasserstein, entropic_fused_gromov_wasserstein2 = _plan_and_value(
    _entropic_fused_gromov_wasserstein
)
BAPG_gromov_wasserstein, BAPG_gromov_wasserstein2 = _plan_and_value(_BAPG_gromov_wasserstein)
BAPG_fused_gromov_wasserstein, BAPG_fused_gromov_wasserstein2 = _plan_and_value(_BAPG_fused_gromov_wasserstein)
semirelaxed_gromov_wasserstein, semirelaxed_gromov_wasserstein2 = _plan_and_value(_semirelaxed_gromov_wasserstein, "sr")
semirelaxed_fused_gromov_wasserstein, semirelaxed_fused_gromov_wasserstein2 = _plan_and_value(
    _semirelaxed_fused_gromov_wasserstein, "sr"
)
entropic_semirelaxed_gromov_wasserstein, entropic_semirelaxed_gromov_wasserstein2 = _plan_and_value(
    _entropic_semirelaxed_gromov_wasserstein, "sr"
)
entropic_semirelaxed_fused_gromov_wasserstein, entropic_semirelaxed_fused_gromov_wasserstein2 = _plan_and_value(
    _entropic_semirelaxed_fused_gromov_wasserstein, "sr"
)
partial_gromov_wasserstein, partial_gromov_wasserstein2 = _plan_and_value(
    _partial_gromov_wasserstein, "partial_", tol=1e-7, warn=False
)
partial_fused_gromov_wasserstein, partial_fused_gromov_wasserstein2 = _plan_and_value(
    _partial_fused_gromov_wasserstein, "partial_", tol=1e-7, warn=False
)
entropic_partial_gromov_wasserstein, entropic_partial_gromov_wasserstein2 = _plan_and_value(
    _entropic_partial_gromov_wasserstein, "partial_"
)
entropic_partial_fused_gromov_wasserstein, entropic_partial_fused_gromov_wasserstein2 = _plan_and_value(
    _entropic_partial_fused_gromov_wasserstein, "partial_"
)


@_UNBALANCED
def fused_unbalanced_gromov_wasserstein(
    Cx: Any,
    Cy: Any,
    wx: Any = None,
    wy: Any = None,
    reg_marginals: Any = 10,
    epsilon: float = 0,
    divergence: str = "kl",
    unbalanced_solver: str = "mm",
    alpha: float = 0,
    M: Any = None,
    init_duals: Any = None,
    init_pi: Any = None,
    max_iter: int = 100,
    tol: float = 1e-7,
    max_iter_ot: int = 500,
    tol_ot: float = 1e-7,
    log: bool = False,
    verbose: bool = False,
    **options: Any,
) -> Any:
    """POT's ``ot.gromov.fused_unbalanced_gromov_wasserstein``: the plan of least E(P) + alpha <M, P> + reg_marginals
    (KL(p p^T | a a^T) + KL(q q^T | b b^T)) + epsilon KL(P P | a b^T a b^T), with P 1 = p, P^T 1 = q, a = wx and b = wy.

    Args:
        Cx, Cy: Matrices (n x n) and (m x m).
        wx, wy: Weights (n) and (m), of any totals; by default uniform.
        reg_marginals: The weight of both penalties, > 0, or one for each.
        epsilon: The weight of the entropy. 0, the default: none, by proximal steps.
        alpha, M: The weight of M, and costs (n x m).
        init_pi: The plan to start from (n x m), by default of wx wy^T.
        max_iter, tol: The largest number of steps, and the relative change of the plan at which to stop.
        divergence: "kl"; for the solvers of Sinkhorn's method "l2" means "kl", with a warning, as in POT.
        log, verbose: Return a dictionary, too; show a bar.
        unbalanced_solver: One of POT's names; all solve the same problem by the same method.
        init_duals, max_iter_ot, tol_ot: Have no effect.
        options: `starts`, `seed`, `device` and others of :func:`solve_gromov`.

    Returns:
        (plan, plan): POT's two plans are one here. With `log` also a dictionary: `fugw_cost`, the value; `linear_cost`,
        E(P), as in POT; `error`, a list of the last change; the :class:`GromovResult` as `result`.

    Raises:
        NotImplementedError: `divergence` "l2". Other errors are those of :func:`solve_gromov`.
    """
    del init_duals, max_iter_ot, tol_ot
    if unbalanced_solver not in ("mm", "lbfgsb", "sinkhorn", "sinkhorn_log"):
        must = "'mm', 'lbfgsb', 'sinkhorn' or 'sinkhorn_log'"
        raise NotImplementedError(f"unbalanced_solver: is {shown(unbalanced_solver)}; must be {must}")
    if divergence == "l2" and unbalanced_solver.startswith("sinkhorn"):
        warnings.warn(f"divergence: is 'l2', which {unbalanced_solver} does not take; 'kl' is taken, as by POT", stacklevel=2)
        divergence = "kl"
    if divergence != "kl":
        raise NotImplementedError(f"divergence: is {shown(divergence)}; must be 'kl'")
    entropy = number("epsilon", epsilon)
    proximal = {"method": "proximal"} if entropy == 0 else {}
    if proximal:  # A few hundredths of the costs of a step, whatever their unit.
        entropy = 0.01 * (_typical("Cx", Cx, 2) + _typical("Cy", Cy, 2)) or 1.0
    penalties = reg_marginals if np.ndim(reg_marginals) else [reg_marginals]
    weight = 1 / (1 + alpha) if M is not None else 1.0
    try:
        result = solve_gromov(
            Cx,
            Cy,
            M,
            wx,
            wy,
            alpha=weight,
            reg=2 * weight * entropy,
            unbalanced=[2 * weight * number("reg_marginals", penalty) for penalty in penalties],
            plan_init=init_pi,
            max_iter=max_iter,
            tol=tol,
            verbose=verbose,
            **({"starts": 1} if init_pi is None else {}) | proximal | options,
        )
    except ValueError as error:
        scaled = re.match(r"unbalanced: is ([-+.\de]+);", str(error))
        if scaled is not None:
            error.args = (f"unbalanced: is {float(scaled[1]) / (2 * weight):g};{str(error)[scaled.end() :]}",)
        raise
    if not truth("log", log):
        return result.plan, result.plan
    costs = {"fugw_cost": result.value / weight, "linear_cost": result.value_quad / weight}
    return result.plan, result.plan, {"error": [result.report.change], **costs, "result": result}


def _typical(field: str, matrix: Any, power: int) -> float:
    """The mean of this power of the entries."""
    return float(np.mean(_host(field, matrix) ** power))


def _host(field: str, array: Any) -> Any:
    return on_host(read(field, getattr(array, "detach", lambda: array)())).astype(float)


@functools.wraps(fused_unbalanced_gromov_wasserstein)
def fused_unbalanced_gromov_wasserstein2(*arguments: Any, **keywords: Any) -> Any:
    signature = inspect.signature(fused_unbalanced_gromov_wasserstein)
    given = signature.bind(*arguments, **keywords)
    has_log = given.arguments.get("log", False)
    given.arguments["log"] = True
    *_, log = fused_unbalanced_gromov_wasserstein(*given.args, **given.kwargs)
    return (log["fugw_cost"], log) if has_log else log["fugw_cost"]


fused_unbalanced_gromov_wasserstein2.__name__ = "fused_unbalanced_gromov_wasserstein2"
fused_unbalanced_gromov_wasserstein2.__doc__ = """POT's ``ot.gromov.fused_unbalanced_gromov_wasserstein2``: the value of
    the plan; with `log` (value, log). Arguments, log and errors are those of
    :func:`fused_unbalanced_gromov_wasserstein`."""


def _together(name: str, what: str, is_pair: bool = False) -> Any:
    """The property of a batch that stacks those of its results."""

    def found(batch: GromovBatchResult) -> Any:
        each = [getattr(result, name) for result in batch]
        return tuple(map(batch._stacked, map(list, zip(*each)))) if is_pair else batch._stacked(each)

    return property(found, doc=what)


class GromovBatchResult(BatchResult[Any]):
    """The results of :func:`solve_gromov_batch`: a sequence of :class:`GromovResult`, and their attributes together.

    Arrays are stacked where all problems have one shape; otherwise they are lists of arrays.
    """

    value = _together("value", "The values (B).")
    value_linear = _together("value_linear", "(1 - alpha) <M, P> of each problem (B).")
    value_quad = _together("value_quad", "alpha E(P) of each problem (B).")
    lower_bound = property(lambda self: [result.lower_bound for result in self], doc="Bounds of value_quad + value_linear.")
    plan = _together("plan", "Plans (B, n, m).")
    potentials = _together("potentials", "Potentials (B, n) and (B, m).", True)
    marginals = _together("marginals", "P 1 (B, n) and P^T 1 (B, m).", True)


@calls(**GROMOV, sweeps="max_iter_inner")
def solve_gromov_batch(
    Ca: Any,
    Cb: Any,
    reg: float | None = 1e-2,
    a: Any = None,
    b: Any = None,
    loss: str = "sqeuclidean",
    symmetric: bool | None = None,
    M: Any = None,
    alpha: float | None = None,
    T_init: Any = None,
    max_iter: int = 50,
    tol: float = 1e-5,
    max_iter_inner: int = 50,
    tol_inner: float = 1e-5,
    grad: str = "envelope",
    logits: bool | None = None,
    **options: Any,
) -> GromovBatchResult:
    """POT's ``ot.batch.solve_gromov_batch``: proximal steps on many problems, each as by :func:`solve_gromov`.

    Args:
        Ca, Cb: Matrices (B, n, n) and (B, m, m), or lists of matrices of any sizes.
        reg: The weight of the entropy of a step, which vanishes in the limit. Without it, or with 0, plans are exact.
        a, b: Weights (B, n) and (B, m), lists of them, or (n) and (m) for all; by default uniform.
        loss: "sqeuclidean" or "L2". The loss "kl" of POT's batches is that of vectors, for which there is none here.
        M: Costs (B, n, m), or a list, with `alpha`.
        T_init: Plans to start from (B, n, m); by default a b^T alone.
        max_iter, tol: The largest number of steps, and the relative change of the plan at which to stop.
        symmetric, max_iter_inner, tol_inner, logits: Have no effect. A step is as accurate as `tol` needs.
        grad: "envelope", whose derivatives those of `value` are, or "detach".
        options: `starts`, `seed`, `device` and others of :func:`solve_gromov`.

    Returns:
        :class:`GromovBatchResult`.

    Raises:
        NotImplementedError: Vectors as entries (B, n, n, d), another loss, `grad` "autodiff". Other errors are those of
            :func:`solve_gromov`, after the number of the problem.
    """
    del symmetric, max_iter_inner, tol_inner, logits
    if grad not in ("envelope", "detach"):
        raise NotImplementedError(f"grad: is {shown(grad)}; must be 'envelope' or 'detach'")
    kind = lower_name("loss", loss, "'sqeuclidean'")
    if kind not in ("sqeuclidean", "l2"):
        raise NotImplementedError(f"loss: is {loss!r}; must be 'sqeuclidean'")
    if (M is None) != (alpha is None):
        raise ValueError(f"{'M' if M is None else 'alpha'}: is missing; a fused problem needs both M and alpha")
    sides = []
    for field, given in (("Ca", Ca), ("Cb", Cb)):
        if getattr(given, "ndim", 3) == 4:
            raise NotImplementedError(f"{field}: has entries that are vectors; must have 3 dimensions (B, n, n)")
        sides.append(all_of(field, stack_of(field, given), "a stack or a list of matrices"))
    size = len(sides[0])
    if len(sides[1]) != size:
        raise ValueError(f"Cb: has {len(sides[1])} matrices; must have {size}, as Ca has")
    rest = [
        one_each(*each)
        for each in (("M", M, size, 2), ("a", a, size, 1), ("b", b, size, 1), ("T_init", T_init, size, 2))
    ]
    of_alpha = {} if alpha is None else {"alpha": alpha}
    start = {"starts": 1} if T_init is None else {}

    def solved(*given: Any) -> GromovResult:
        Ca, Cb, M, a, b, T_init = (getattr(v, "detach", lambda v=v: v)() if grad == "detach" else v for v in given)
        return solve_gromov(
            Ca,
            Cb,
            M,
            a,
            b,
            reg=reg,
            method="proximal" if reg else None,
            max_iter=max_iter,
            tol=tol,
            plan_init=T_init,
            **of_alpha | start | options,
        )

    return GromovBatchResult(each_problem(solved, *sides, *rest))
