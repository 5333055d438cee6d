"""Optimal transport by POT's names: ``solve``, ``solve_sample`` and their batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _core, _signatures
from ._arrays import read_optional
from ._costs import LABELS, split_costs
from ._exact import exact_options
from ._exact import run as run_exact
from ._names import MATRIX, POINTS, calls, lower_name, number, refuse_gradient, shown, truth
from ._options import ExactOptions
from ._problem import (
    WITH_P,
    Problem,
    ProgressFunction,
    Reg,
    each_problem,
    is_balanced,
    kl_problems,
    library_options,
    matrix_problem,
    matrix_problems,
    method_of_pot,
    names_eps,
    pair_of_potentials,
    pairs_of_potentials,
    points_problem,
    points_problems,
    refuse_unsupported,
    require_kl,
    scaled,
    shows,
    solve_options,
    warn_if_short,
    watching,
    with_grad,
    with_weights,
)
from ._reference import Reference, ReferencedResult, with_reference
from ._regularized import Regularizer, quadratic_term, regularized_options
from ._regularized import run as run_regularized
from ._regularized import run_batch as run_regularized_batch
from ._result import BatchResult, OTResult
from ._signatures import typed

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._costs import SampleOptions
    from ._options import KeywordOptions

_OF_POTENTIALS = {"f": "f", "g": "g"}
_ALWAYS_ITERATIONS = 10000
_TOLERANCE = 1e-6


def run(
    problem: Problem,
    reg_type: str,
    options: dict[str, Any],
    potentials_init: Any = None,
    n_threads: int | None = None,
    progress: bool | ProgressFunction | None = None,
    warn: bool = True,
    c: Any = None,
) -> OTResult:
    """Solves a problem with the library's options; `reg_type` is "kl", relative to `c` or a b^T, or "entropy"."""
    warns = truth("warn", warn)
    problem = with_weights(problem, options)
    session = problem.place.session(n_threads)
    problem, reference = with_reference(problem, reg_type, c, options)
    start = pair_of_potentials(potentials_init)
    start = start if reference is None else reference.start(start)
    with watching(progress, options.get("iterations", _ALWAYS_ITERATIONS)) as watch:
        watch = watch if reference is None else reference.watch(watch)
        plan = _core.solve(session, problem.geometry, problem.a, problem.b, *start, options, watch)
    if warns:
        warn_if_short(plan.report)
    return _result(problem, options, reg_type, plan, reference)


def _result(
    problem: Problem, options: dict[str, Any], reg_type: str, plan: _core.Plan, reference: Reference | None
) -> OTResult:
    if reference is None:
        return OTResult(problem, options, reg_type, plan, plan.report)
    return ReferencedResult(reference, problem, options, "kl", plan, plan.report)


def run_batch(
    problems: Sequence[Problem],
    reg_type: str,
    options: dict[str, Any],
    potentials_init: Any = None,
    n_threads: int | None = None,
    progress: bool | ProgressFunction | None = None,
    warn: bool = True,
) -> BatchResult[OTResult]:
    """:func:`run` for many problems at once, each relative to its a b^T."""
    warns = truth("warn", warn)
    problems = [with_weights(problem, options) for problem in problems]
    session = problems[0].place.session(n_threads)
    starts = pairs_of_potentials(potentials_init, len(problems))
    posed = [with_reference(problem, reg_type, None, options) for problem in problems]
    problems, references = [problem for problem, _ in posed], [reference for _, reference in posed]
    starts = [start if one is None else one.start(start) for start, one in zip(starts, references)]
    views = each_problem(lambda p, start: (p.geometry, p.a, p.b, *start), problems, starts)
    with watching(progress, options.get("iterations", _ALWAYS_ITERATIONS)) as watch:
        plans = _core.solve_batch(session, views, options, watch)
    results = [
        _result(problem, options, reg_type, plan, reference)
        for problem, plan, reference in zip(problems, plans, references)
    ]
    if warns:
        for result in results:
            warn_if_short(result.report)
    return BatchResult(results)


_EXACT = "exact"
Term = str | Regularizer
"""The term beside <C, P>: an entropy by the name of its reg_type, "kl" or "entropy", that of reg_type "L2", or none,
_EXACT."""


def _translated(
    own: dict[str, Any],
    reg: Reg | None,
    reg_type: str,
    unbalanced: Any,
    unbalanced_type: str,
    method: str | None,
    max_iter: int | None,
    tol: float | None,
) -> tuple[Term, dict[str, Any]]:
    """The term of a call of solve() and its like, and the library's options."""
    if reg is None and not names_eps(own) or reg is not None and not isinstance(reg, str) and number("reg", reg) == 0:
        return _EXACT, _exact_options(own, unbalanced, unbalanced_type, method, max_iter, tol)
    kind = lower_name("reg_type", reg_type, "'KL', 'entropy' or 'L2'")
    if kind != "l2":
        return kind, solve_options(own, reg, reg_type, unbalanced, unbalanced_type, method, max_iter, tol)
    require_kl(unbalanced_type, unbalanced is not None)
    if unbalanced is not None:
        raise NotImplementedError("unbalanced: is given; must not be with reg_type 'L2'")
    options = regularized_options(own, max_iter, tol)
    options.setdefault("tolerance", _TOLERANCE)
    return quadratic_term(reg), options if method is None else options | {"method": method}


def _exact_options(
    own: dict[str, Any], unbalanced: Any, unbalanced_type: Any, method: Any, max_iter: int | None, tol: float | None
) -> dict[str, Any]:
    kind = lower_name("unbalanced_type", unbalanced_type, "'KL' or 'TV'")
    if kind != "tv" and (unbalanced is not None or not is_balanced(own)):
        given = "unbalanced" if unbalanced is not None else next(v for v in ("penalty_a", "penalty_b") if v in own)
        raise NotImplementedError(
            f"{given}: is given without reg, and unbalanced_type is {unbalanced_type!r}; must be with unbalanced_type "
            "'TV', or with reg > 0 or 'auto'"
        )
    if method_of_pot(method) not in (None, "auto"):
        raise ValueError(f"method: is {shown(method)}, of transport with reg; must be left out without reg")
    for name in own:
        if name not in ExactOptions.__annotations__:
            options = ", ".join(ExactOptions.__annotations__)
            raise TypeError(f"{name}: is no option without reg; options are {options}; reg may be 'auto'")
    return library_options(exact_options(own, unbalanced, tol), rounds=("max_iter", max_iter))


def _solve(
    problem: Problem,
    term: Term,
    options: dict[str, Any],
    potentials_init: Any,
    n_threads: int | None,
    progress: Any,
    c: Any = None,
) -> Any:
    """The result of the solver of the term."""
    if isinstance(term, str) and term != _EXACT:
        return run(problem, term, options, potentials_init, n_threads, progress, c=c)
    refuse_unsupported(c=c)
    if isinstance(term, str):
        return run_exact(with_weights(problem, options), options, potentials_init, n_threads, progress)
    return run_regularized(problem, term, options, potentials_init, n_threads, progress)


def _solve_batch(
    problems: Sequence[Problem], term: Term, options: dict[str, Any], potentials_init: Any, *how: Any
) -> BatchResult[Any]:
    if isinstance(term, Regularizer):
        return run_regularized_batch(problems, [term] * len(problems), options, potentials_init, *how)
    if term != _EXACT:
        return run_batch(problems, term, options, potentials_init, *how)
    starts = pairs_of_potentials(potentials_init, len(problems))
    problems = [with_weights(problem, options) for problem in problems]
    return BatchResult(each_problem(lambda p, start: run_exact(p, options, start, *how), problems, starts))


@typed(_signatures.solve)
@calls(**MATRIX)
def solve(
    M: Any,
    a: Any = None,
    b: Any = None,
    reg: Reg | None = None,
    c: Any = None,
    reg_type: str = "KL",
    unbalanced: float | Sequence[float] | None = None,
    unbalanced_type: str = "KL",
    method: str | None = None,
    n_threads: int | None = None,
    max_iter: int | None = None,
    plan_init: Any = None,
    potentials_init: tuple[Any, Any] | None = None,
    tol: float | None = None,
    verbose: bool = False,
    grad: str = "autodiff",
    *,
    device: Any = None,
    progress: bool | ProgressFunction | None = None,
    **options: Unpack[KeywordOptions],
) -> Any:
    r"""Solves min_P <M, P> + reg KL(P | a b^T) over the plans with marginals a and b; without reg min_P <M, P>.

    Args:
        M: Costs (n x m), any finite numbers; inf forbids a pair. The result has a copy of up to 32 MiB. A larger M is
            read in place if its rows or columns are contiguous; if M is found changed later, reading the plan is a
            RuntimeError.
        a, b: Weights (n) and (m), non-negative; totals must be equal unless `unbalanced` is given. By default uniform,
            with total 1 or, in a balanced problem, the total of the other side.
        reg: eps > 0, in units of M, or "auto" for 5 % of the mean cost; ``result.reg`` is its value. Left out, None or
            0: the plan is exact, and the call is :func:`solve_exact`, where `reg_type` has no effect.
        c: A reference measure (n x m), non-negative: the entropy is reg KL(P | c). By default c = a b^T. The result
            keeps a matrix of the size of M.
        plan_init: An argument of POT, which must be None: a warm start goes to `potentials_init`.
        reg_type: "KL", or "entropy" for reg sum P log P. Without `unbalanced` both have the same plan but differ in
            ``result.value``. With `unbalanced` "entropy" is reg sum P (log P - 1), which has another plan. "L2"
            replaces the entropy by reg / 2 sum P^2, for a sparse plan: the call then is :func:`solve_regularized`.
        unbalanced: rho > 0, or (rho_a, rho_b): penalties rho_a KL(P 1 | a) and rho_b KL(P^T 1 | b) replace the
            marginal constraints. inf is a constraint. By default both marginals are constraints.
        unbalanced_type: "KL" with `reg`; "TV" without `reg`, for penalties rho_a |P 1 - a|_1 and rho_b |P^T 1 - b|_1.
        method: "auto" (the default), "sinkhorn", "newton", "splr" or "multiscale"; to be left out if `reg` is left
            out. "multiscale" is for many points in few dimensions, where "auto" takes it, too.
        n_threads: Threads on the CPU, by default one for each core.
        device: "cpu", "cuda" or "cuda:1": where to solve a problem whose arrays lie in host memory; results return
            there. By default the device of the arrays.
        max_iter, tol: The largest number of sweeps (10000), and the error at which to stop (1e-6), relative to the
            mass. The error is the 1-norm of the errors of both marginals, or that of the option `criterion`. Without
            `reg` they are `rounds` and `tol` of :func:`solve_exact`.
        potentials_init: A warm start (f, g), in units of M.
        grad: "detach" leaves out all derivatives. "autodiff", "envelope" and "last_step" mean the same: derivatives
            are those of the optimum.
        verbose, progress: True shows a bar (tqdm). A function is called with a :class:`Progress` at each check, and
            stops the solve by returning False.
        options: The library's other options, :class:`monge.SolveOptions`. If the call is :func:`solve_exact` or
            :func:`solve_regularized`, the options of that function.

    Returns:
        :class:`OTResult`, without reg :class:`ExactResult`, with reg_type "L2" :class:`RegularizedResult`. A solve that
        does not converge has a status and makes a :class:`ConvergenceWarning`.

    Raises:
        ValueError, TypeError: An argument is wrong; the message begins with its name.
        NotImplementedError: An argument has a meaning in POT that this library does not support.
        MemoryError, RuntimeError: Memory ran out; the device failed.

    Source: Cuturi 2013; Sejourne, Vialard, Peyre 2022.

    >>> import monge
    >>> result = monge.solve([[0.0, 1.0], [1.0, 0.0]], reg=0.1)
    >>> result.converged
    True
    >>> result.plan.round(4)
    array([[0.5, 0. ],
           [0. , 0.5]])
    >>> monge.solve([[0.0, 1.0], [1.0, 0.0]]).status
    'optimal'
    """
    refuse_unsupported(plan_init=plan_init)
    how = _translated(dict(options), reg, reg_type, unbalanced, unbalanced_type, method, max_iter, tol)
    problem = with_grad(matrix_problem(M, a, b, device, may_be_sparse=how[0] == _EXACT), grad)
    return _solve(problem, *how, potentials_init, n_threads, shows(progress, verbose), c=c)


@typed(_signatures.solve_sample)
@calls(**POINTS)
def solve_sample(
    X_a: Any,
    X_b: Any,
    a: Any = None,
    b: Any = None,
    metric: str = "sqeuclidean",
    reg: Reg | None = None,
    c: Any = None,
    reg_type: str = "KL",
    unbalanced: float | Sequence[float] | None = None,
    unbalanced_type: str = "KL",
    lazy: bool = False,
    batch_size: int | None = None,
    method: str | None = None,
    n_threads: int | None = None,
    max_iter: int | None = None,
    plan_init: Any = None,
    rank: int = 100,
    scaling: float = 0.95,
    potentials_init: tuple[Any, Any] | None = None,
    X_init: Any = None,
    tol: float | None = None,
    verbose: bool = False,
    grad: str = "autodiff",
    random_state: Any = None,
    debias: bool = False,
    n_projections: int = 50,
    projections: Any = None,
    scaler: Any = None,
    *,
    device: Any = None,
    progress: bool | ProgressFunction | None = None,
    **options: Unpack[SampleOptions],
) -> Any:
    """:func:`solve` with the costs of points, C_ij = scale metric(x_i, y_j), which are never stored.

    Args:
        X_a, X_b: Points (n x d) and (m x d); rows may be strided.
        metric: "sqeuclidean", "euclidean", "cosine", "dot" (-<x, y>), "cityblock", "chebyshev", or "p-norm" with
            `norm_p`.
        reg: eps > 0, in units of C, or "auto" for 5 % of the mean cost. Left out, None or 0: the plan is exact, and the
            call is :func:`solve_exact_sample`.
        lazy, batch_size: Arguments of POT without effect: memory is always O((n + m) d).
        c, plan_init, rank, scaling, X_init, random_state, debias, n_projections, projections: Arguments of POT for
            other methods. Any value but POT's default is a NotImplementedError that names an alternative.
        scaler: A function of points, or an object with transform(), by which both clouds are replaced first.
        options: Options of the costs, :class:`monge.CostOptions` (`norm_p`, `scale` and labels), and those of
            :func:`solve`.

    All else as for :func:`solve`.

    >>> import monge, numpy as np
    >>> x = np.arange(4.0)[:, None]
    >>> monge.solve_sample(x, x + 10, reg=0.01).transform().ravel().round(3)
    array([10., 11., 12., 13.])
    """
    del lazy, batch_size
    refuse_unsupported(c=c, plan_init=plan_init, rank=rank, scaling=scaling, X_init=X_init)
    refuse_unsupported(
        random_state=random_state, debias=debias, n_projections=n_projections, projections=projections
    )
    costs, own = split_costs(options)
    how = _translated(own, reg, reg_type, unbalanced, unbalanced_type, method, max_iter, tol)
    X_a, X_b = scaled(scaler, X_a, X_b)
    problem = with_grad(points_problem(X_a, X_b, a, b, metric, device, **costs), grad)
    return _solve(problem, *how, potentials_init, n_threads, shows(progress, verbose))


def _plan_of(
    problem: Problem,
    f: Any,
    g: Any,
    reg: float,
    unbalanced: Any,
    n_threads: int | None,
    own: Mapping[str, Any],
    method: str | None = None,
) -> OTResult:
    for field, given in (("f", f), ("g", g), ("reg", reg)):
        refuse_gradient(field, given)
    for name in own:
        if name not in ("precision", "cache_bytes"):
            raise TypeError(f"{name}: is no option of a plan of potentials; options are precision and cache_bytes")
    if method not in (None, "auto", "multiscale"):
        raise ValueError(f"method: is {shown(method)}; must be 'auto' or 'multiscale', since nothing is solved")
    if problem.followed is not None:
        raise NotImplementedError("plan_of: a tensor requires a gradient; plans of given potentials have none: detach")
    options = solve_options(own, number("reg", reg), unbalanced=unbalanced, method=method)
    problem = with_weights(problem, options)
    views = (problem.geometry, problem.a, problem.b, read_optional("f", f), read_optional("g", g))
    plan = _core.plan_of(problem.place.session(n_threads), *views, options)
    return OTResult(problem, options, "kl", plan, plan.report)


@calls(**(MATRIX | _OF_POTENTIALS))
def plan_of(
    f: Any,
    g: Any,
    M: Any,
    a: Any = None,
    b: Any = None,
    *,
    reg: float,
    unbalanced: float | Sequence[float] | None = None,
    n_threads: int | None = None,
    device: Any = None,
    **options: Unpack[KeywordOptions],
) -> OTResult:
    """The plan P_ij = a_i b_j exp((f_i + g_j - M_ij) / reg) of given potentials, without a solve.

    Args:
        f, g: Potentials (n) and (m), in units of M. A point of zero weight has the potential of an update instead
            (docs/math.md, section 7).
        M, a, b, unbalanced, n_threads, device: As for :func:`solve`.
        reg: eps > 0, in units of M.
        options: `precision`, whose "auto" is float32, and `cache_bytes`; no others.

    Returns:
        :class:`OTResult` with the status "completed". It has no certificate: values and errors are NaN, except for
        ``value_linear``, which takes a pass over the entries.

    Raises:
        As for :func:`solve`. NotImplementedError: A tensor requires a gradient.

    >>> import monge
    >>> M = [[0.0, 1.0], [1.0, 0.0]]
    >>> f, g = monge.solve(M, reg=0.1).potentials
    >>> monge.plan_of(f, g, M, reg=0.1).plan.round(4)
    array([[0.5, 0. ],
           [0. , 0.5]])
    """
    return _plan_of(matrix_problem(M, a, b, device), f, g, reg, unbalanced, n_threads, dict(options))


@calls(**(POINTS | _OF_POTENTIALS))
def plan_of_sample(
    f: Any,
    g: Any,
    X_a: Any,
    X_b: Any,
    a: Any = None,
    b: Any = None,
    metric: str = "sqeuclidean",
    *,
    reg: float,
    unbalanced: float | Sequence[float] | None = None,
    method: str | None = None,
    n_threads: int | None = None,
    device: Any = None,
    **options: Unpack[SampleOptions],
) -> OTResult:
    """:func:`plan_of` with the costs of points.

    Args:
        f, g: Potentials (n) and (m), in units of the cost, as for :func:`plan_of`.
        reg: eps > 0, in units of the cost.
        X_a, X_b, metric: As for :func:`solve_sample`.
        a, b, unbalanced, n_threads, device: As for :func:`solve`.
        method: "multiscale" leaves out pairs, as :func:`solve_sample` does with the default `tol`. Otherwise the plan has
            all pairs.
        options: Options of the costs, :class:`monge.CostOptions`, and those of :func:`plan_of`.

    Results and errors are those of :func:`plan_of`.
    """
    costs, own = split_costs(options)
    problem = points_problem(X_a, X_b, a, b, metric, device, **costs)
    return _plan_of(problem, f, g, reg, unbalanced, n_threads, own, method)


@calls(**MATRIX)
def solve_batch(
    M: Any,
    reg: Reg | None = None,
    a: Any = None,
    b: Any = None,
    max_iter: int | None = None,
    tol: float | None = None,
    method: str | None = "auto",
    inner_iter: int = 1,
    inner_reg: float = 1e-3,
    reg_type: str = "entropy",
    grad: str = "envelope",
    *,
    unbalanced: float | Sequence[float] | None = None,
    unbalanced_type: str = "KL",
    potentials_init: Sequence[tuple[Any, Any]] | tuple[Any, Any] | None = None,
    n_threads: int | None = None,
    device: Any = None,
    progress: bool | ProgressFunction | None = None,
    **options: Unpack[KeywordOptions],
) -> BatchResult[Any]:
    """:func:`solve` for many cost matrices at once: (B, n, m), or a list of matrices of any shapes.

    Args:
        M: Costs (B, n, m), or a list of (n x m), any finite numbers; inf forbids a pair.
        a, b: Weights (B, n) and (B, m), lists of them, or (n) and (m) for all problems; by default uniform.
        reg: eps > 0 of all problems, in units of M, or "auto" for 5 % of the mean cost of each. Left out, None or 0:
            plans are exact, solved one after the other.
        inner_iter, inner_reg: Arguments of POT's proximal method, which must be 1 and 1e-3.
        reg_type: "entropy" (the default), "KL" or "L2". The defaults here and in :func:`solve` are POT's, so that
            values agree with POT's. Without `unbalanced` both entropies have one plan. With it the plans differ: "KL"
            has that of :func:`solve`.
        potentials_init: A warm start: a list of (f, g), one for each problem, or a pair of stacks or lists, as
            `potentials` of a result.

    All else as for :func:`solve`, the same for all problems.

    Each problem stops by itself and has its own report. With the same `reg_type` its plan has the same bits as that of
    :func:`solve`. On CUDA all problems that use the same kernel share the launches of a sweep. Newton's method takes
    small problems to the CPU, a thread each (`report.newton_on_host`), and the others one after the other, as method
    "splr" does. Problems with reg_type "L2" are solved as by :func:`solve_regularized_batch`.

    Errors are those of :func:`solve`. A message begins with the number of its problem: "problem 3: a: ...".

    >>> import monge, numpy as np
    >>> monge.solve_batch(np.ones((2, 3, 4)), 0.1).value_linear.round(6)
    array([1., 1.])
    """
    refuse_unsupported(inner_iter=inner_iter, inner_reg=inner_reg)
    problems = [with_grad(problem, grad) for problem in matrix_problems(M, a, b, device)]
    how = _translated(dict(options), reg, reg_type, unbalanced, unbalanced_type, method, max_iter, tol)
    return _solve_batch(problems, *how, potentials_init, n_threads, progress)


@calls(**POINTS, norm_p="p")
def solve_sample_batch(
    X_a: Any,
    X_b: Any,
    reg: Reg | None = None,
    a: Any = None,
    b: Any = None,
    metric: str = "sqeuclidean",
    p: float | None = 2,
    max_iter: int | None = None,
    tol: float | None = None,
    method: str | None = "auto",
    inner_iter: int = 1,
    inner_reg: float = 1e-3,
    reg_type: str = "entropy",
    grad: str = "envelope",
    *,
    unbalanced: float | Sequence[float] | None = None,
    unbalanced_type: str = "KL",
    potentials_init: Sequence[tuple[Any, Any]] | tuple[Any, Any] | None = None,
    n_threads: int | None = None,
    device: Any = None,
    progress: bool | ProgressFunction | None = None,
    **options: Unpack[SampleOptions],
) -> BatchResult[Any]:
    """:func:`solve_sample` for many pairs of clouds at once: (B, n, d) and (B, m, d), or lists of any sizes.

    Args:
        X_a, X_b: Points (B, n, d) and (B, m, d), or lists of (n x d) and (m x d), any sizes.
        a, b: Weights (B, n) and (B, m), lists of them, or (n) and (m) for all problems; by default uniform.
        reg: eps > 0 of all problems, in units of the cost, "auto" or left out, as for :func:`solve_batch`.
        p: The p of the metric "p-norm". Other metrics take 2 or None.
        inner_iter, inner_reg: Arguments of POT's proximal method, which must be 1 and 1e-3.
        reg_type: "entropy" (the default), "KL" or "L2". The defaults here and in :func:`solve_sample` are POT's, so that
            values agree with POT's. Without `unbalanced` both entropies have one plan. With it the plans differ: "KL"
            has that of :func:`solve_sample`.
        metric: The metric of all problems, as for :func:`solve_sample`, or "kl", KL(y_j | x_i), whose costs are stored,
            without labels.
        potentials_init: As for :func:`solve_batch`.
        options: Options of the costs, :class:`monge.CostOptions`, and those of :func:`solve`. `labels_x` and `labels_y`
            are (B, n) and (B, m), lists of them, or (n) and (m) for all problems; `label_cost` is one matrix for all
            problems, or a stack or list with one for each.

    All else as for :func:`solve`, the same for all problems. Results and errors are those of :func:`solve_batch`.
    """
    refuse_unsupported(inner_iter=inner_iter, inner_reg=inner_reg)
    costs, own = split_costs(options)
    if "norm_p" in options:
        raise TypeError("norm_p: is no option of a batch; must be given as p")
    is_default = p is not None and number("p", p) == 2 and not (isinstance(metric, str) and metric in WITH_P)
    costs["norm_p"] = None if is_default else p
    if isinstance(metric, str) and metric == "kl" and costs["norm_p"] is None:
        if any(costs[name] is not None for name in LABELS):
            raise NotImplementedError("metric: is 'kl', which has no labels; must be another")
        problems = kl_problems(X_a, X_b, a, b, costs["scale"], device)
    else:
        problems = points_problems(X_a, X_b, a, b, metric, device, **costs)
    problems = [with_grad(problem, grad) for problem in problems]
    how = _translated(own, reg, reg_type, unbalanced, unbalanced_type, method, max_iter, tol)
    return _solve_batch(problems, *how, potentials_init, n_threads, progress)
