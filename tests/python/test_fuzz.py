"""Any combination of arguments gives a right answer, by optimality conditions in float64, or one clear line.

MONGE_FUZZ_SECONDS is the time of all tests together: a minute in ctest, `./dev fuzz python SECONDS` for more. Seeds
count from MONGE_FUZZ_SEED, so a run repeats; a failure prints its arguments.
"""

import inspect
import os
import re
import time
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import monge

optimize = pytest.importorskip("scipy.optimize")
sparse = pytest.importorskip("scipy.sparse")

try:
    import torch
except ModuleNotFoundError:
    torch = None

SECONDS = float(os.environ.get("MONGE_FUZZ_SECONDS", 60))
FIRST_SEED = int(os.environ.get("MONGE_FUZZ_SEED", 0))
EXAMPLES = 40  # Of one seed.


class Dlpack:
    """An array of no framework that the package knows."""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self, **keywords):
        return self.values.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


def read_only(v):
    v = v.copy()
    v.setflags(write=False)
    return v


def padded(v):
    return np.pad(v, 1)[(slice(1, -1),) * v.ndim]


def tensor(v):
    return torch.tensor(v)


def negated(v):
    """A view with the negative bit."""
    return torch._neg_view(torch.tensor(-v))


FORMS = [
    lambda v: v,
    lambda v: v,
    np.asfortranarray,
    read_only,
    padded,
    lambda v: v[::-1].copy()[::-1],
    lambda v: v.astype(v.dtype.newbyteorder(">")),
    lambda v: v.tolist(),
    lambda v: memoryview(np.ascontiguousarray(v)),
    lambda v: Dlpack(np.ascontiguousarray(v)),
    *([tensor, negated, lambda v: torch.tensor(v.T.copy()).permute(*range(v.ndim)[::-1])] if torch else []),
]
TYPES = [np.float64, np.float64, np.float32, np.float16, np.int32, np.uint8]


@dataclass
class Drawn:
    """What is given, the same numbers in float64, and whether the call must be refused."""

    given: object
    numbers: np.ndarray | None
    is_wrong: bool = False


def spoiled(draw, values, weights):
    """An argument that must be refused."""
    of_kind = ["negative", "longer"] if weights else ["deeper", "empty"]
    kind = draw(st.sampled_from(["nan", "complex", "text", "object", "scalar", *of_kind]))
    spot = (0,) * values.ndim
    values = values.astype(float)
    if kind == "nan":
        values[spot] = np.nan
    if kind == "negative":
        values[spot] = -1
    return {
        "longer": np.concatenate([values, values[:1]]),
        "deeper": values[..., None],
        "empty": values[:0],
        "complex": values + 1j,
        "text": np.full(values.shape, "a"),
        "object": object(),
        "scalar": 3.0,
    }.get(kind, values)


@st.composite
def arrays(draw, shape, weights=False, wrong=True):
    """Numbers in [0, 4]; weights sum to 1, some of them are 0."""
    if wrong and draw(st.integers(0, 24)) == 24:
        return Drawn(spoiled(draw, np.ones(shape), weights), None, True)
    random = np.random.default_rng(draw(st.integers(0, 99)))
    values = random.random(shape) * (1 if weights else draw(st.sampled_from([1.0, 4.0])))
    if weights:
        values[..., : draw(st.integers(0, shape[-1] - 1))] = 0
        values /= values.sum(-1, keepdims=True)
        values = values.astype(draw(st.sampled_from([np.float64, np.float32])))
    else:
        values = (values if draw(st.booleans()) else np.round(values)).astype(draw(st.sampled_from(TYPES)))
    form = draw(st.sampled_from(FORMS))
    if values.dtype == np.float16 and form is FORMS[8]:
        form = FORMS[0]
    if torch and form is negated and values.dtype.kind in "iu":
        form = tensor
    return Drawn(form(values), values.astype(float))


def maybe(draw, strategy):
    return draw(strategy) if draw(st.booleans()) else None


REG = st.sampled_from([None, "auto", 0.05, 0.5, np.float32(0.5), 2, 0, -1, np.nan, "x", np.array(0.3)])
OPTIONS = {
    "unbalanced": st.sampled_from([0.5, 2.0, np.inf, (1.0, 0.3), (np.inf, 1.0), -1, "x"]),
    "unbalanced_type": st.sampled_from(["KL", "TV", "kl", "l2", 3]),
    "method": st.sampled_from(["auto", "sinkhorn", "newton", "splr", "multiscale", "sinkhorn_log", "gaussian", "nonsense", 7]),
    "reg_type": st.sampled_from(["KL", "entropy", "L2", "kl", "nonsense"]),
    "max_iter": st.sampled_from([1, 30, 5000, 0, 1.5]),
    "tol": st.sampled_from([1e-3, 1e-8, 0, -1, "x"]),
    "n_threads": st.sampled_from([1, 2, 0, -1, "2"]),
    "precision": st.sampled_from(["auto", "float32", "float64", "half"]),
    "criterion": st.sampled_from(["l1", "gradient", "gap", "nonsense"]),
    "progress": st.sampled_from([lambda state: None, lambda state: np.False_, lambda state: np.zeros(2, bool), 3]),
    "grad": st.sampled_from(["detach", "autodiff", 3]),
    "device": st.sampled_from(["cpu", "tpu"]),
    "mass": st.sampled_from([0.5, 1.0, 0, -1]),
    "certificate": st.sampled_from([True, False, "x"]),
}
NAMES = {*OPTIONS, "reg", "M", "X_a", "X_b", "a", "b", "c", "metric", "potentials_init", "norm_p", "scale", "X_s", "X_t"}
TERMS = {"quadratic", "group_lasso", "l1", "hypentropy"}
NAMES |= {"groups", "l1_weights", "points", "logits", "row_marginal", "column_marginal"}


def some_options(draw, *names):
    chosen = draw(st.lists(st.sampled_from(names), max_size=3, unique=True))
    return {name: draw(OPTIONS[name]) for name in chosen}


def called(function, given, drawn):
    """The result; None after an error that is one line, begins with a name and is of a kind that the docs list."""
    names = {*inspect.signature(function).parameters, *NAMES, *given}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", monge.ConvergenceWarning)
            result = function(**given)
    except (ValueError, TypeError, NotImplementedError) as error:
        message = str(error)
        first = re.match(r"(?:problem \d+: )?(\w+)(?:\[\d+\])?(?:, \w+)*: ", message)
        assert "\n" not in message and type(error) in (ValueError, TypeError, NotImplementedError), repr(error)
        assert first and (first[1] in names or first[1] in monge.SolveOptions.__annotations__), message
        return None
    assert sum(each.is_wrong for each in drawn) != 1, f"a wrong argument was taken: {result!r}"
    return result


def close(found, wanted, error):
    found, wanted = np.asarray(found, float), np.asarray(wanted, float)
    assert found.shape == wanted.shape
    assert np.isfinite(found).all()
    assert abs(found - wanted).max(initial=0) <= error, (found, wanted, error)


def check_frame(result, first):
    """Arrays have the framework of M or X_a."""
    wanted = torch.Tensor if torch and isinstance(first, torch.Tensor) else np.ndarray
    for array in (result.plan, *result.potentials, *result.marginals):
        assert isinstance(array, wanted)


def check_entropic(result, cost, a, b, penalties):
    """The form of the plan, and the conditions of the optimum: marginals, or f = -rho log(P 1 / a) of penalties."""
    report = result.report
    assert np.isfinite(report.marginal_error)
    if result._reg_type != "kl" or type(result).__name__ == "ReferencedResult":
        return
    f, g = (np.asarray(v, float) for v in result.potentials)
    eps, half = result.reg, np.asarray(result.potentials[0]).dtype == np.float32
    rounding = 2e-6 if half or report.precision == "float32" else 1e-12
    spread = 1 + (abs(cost).max() + abs(f).max() + abs(g).max()) / eps
    with np.errstate(over="ignore"):
        plan = np.outer(a, b) * np.exp((f[:, None] + g - cost) / eps)
    mass = plan.sum()
    close(np.asarray(result.plan, float), plan, 8 * rounding * spread * max(mass, 1))
    if not result.converged:
        return
    error = 0.0
    for marginal, weights, potential, rho in ((plan.sum(1), a, f, penalties[0]), (plan.sum(0), b, g, penalties[1])):
        target = weights if rho == np.inf else weights * np.exp(-potential / rho)
        error += abs(marginal - target).sum()
    slack = 8 * rounding * spread * max(mass, 1)
    bound = result._options.get("tolerance", 1e-6)
    if result._options.get("criterion", "l1") == "l1":
        assert error <= 1.01 * bound * max(1, mass) + slack, (error, bound, slack)


def check_exact(result, cost, a, b):
    """Primal and dual agree: the plan has the marginals, and no pair costs less than its potentials."""
    if not result.converged:
        return
    single = np.asarray(result.plan).dtype == np.float32
    rounding = 1e-6 if single else 1e-11
    plan = np.asarray(result.plan, float)
    close(plan.sum(1), a, rounding)
    close(plan.sum(0), b, rounding)
    value = float((plan * cost).sum())
    close(float(result.value), value, rounding * (1 + abs(cost).max()))
    f, g = (np.asarray(v, float) for v in result.potentials)
    used = np.outer(a > 0, b > 0)
    assert ((f[:, None] + g - cost)[used] <= 4 * rounding * (1 + abs(cost).max())).all()
    close(float(f[a > 0] @ a[a > 0] + g[b > 0] @ b[b > 0]), value, 8 * rounding * (1 + abs(cost).max()))


def least_cost(cost, a, b, penalties=(np.inf, np.inf), mass=None):
    """The optimum of a linear program over plans and what the marginals lack and exceed, or None if there is no plan.
    A cost of infinity forbids its pair."""
    n, m = cost.shape
    allowed = np.isfinite(cost).ravel()
    sums = np.concatenate([np.repeat(np.eye(n), m, 1), np.tile(np.eye(m), n)])[:, allowed]
    if mass is not None:
        bounds = {"A_ub": sums, "b_ub": np.concatenate([a, b]), "A_eq": np.ones((1, len(sums[0]))), "b_eq": [mass]}
        found = optimize.linprog(cost.ravel()[allowed], **bounds)
    else:
        changes = np.repeat(penalties, (n, m))
        free = np.eye(n + m)[:, np.isfinite(changes)]
        prices = np.tile(changes[np.isfinite(changes)], 2)
        costs = np.concatenate([cost.ravel()[allowed], prices])
        found = optimize.linprog(costs, A_eq=np.hstack([sums, free, -free]), b_eq=np.concatenate([a, b]))
    assert found.status in (0, 2), found
    return float(found.fun) if found.status == 0 else None


def check_partial(result, cost, a, b, penalties):
    """Penalties by total variation, or a given mass: the plan has the value that is reported, which is the optimum."""
    if not result.converged:
        return
    plan, mass = np.asarray(result.plan, float), result._options.get("mass")
    rounding = 1e-6 if np.asarray(result.plan).dtype == np.float32 else 1e-9
    rounding += 2 * abs(a.sum() - 1) + 2 * abs(b.sum() - 1)  # Totals of float32 weights, and a mass that exceeds them.
    assert (plan >= 0).all()
    value = float((plan * cost).sum())
    for marginal, weights, rho in ((plan.sum(1), a, penalties[0]), (plan.sum(0), b, penalties[1])):
        if mass is not None:
            assert (marginal <= weights + rounding).all()
        elif rho == np.inf:
            close(marginal, weights, rounding)
        else:
            value += rho * abs(marginal - weights).sum()
    if mass is not None:
        close(plan.sum(), mass, rounding)
    scale = 1 + abs(cost).max() + sum(rho for rho in penalties if rho < np.inf)
    close(float(result.value), value, 8 * rounding * scale)
    close(value, least_cost(cost, a, b, penalties, mass), 8 * rounding * scale)


def check_quadratic(result, cost, a, b, quadratic):
    """The marginals and, of a quadratic term alone, the dual value of the potentials. The primal value of a plan whose
    marginals are off may be below it by this error times the potentials."""
    plan = np.asarray(result.plan, float)
    assert (plan >= 0).all()
    if not result.converged:
        return
    error = 1e-3 + result._options.get("tolerance", 1e-4)
    close(plan.sum(1), a, error)
    close(plan.sum(0), b, error)
    if quadratic is not None:
        f, g = (np.asarray(v, float) for v in result.potentials)
        primal = (plan * cost).sum() + quadratic / 2 * (plan**2).sum()
        excess = np.maximum(f[:, None] + g - cost, 0)
        dual = f @ a + g @ b - (excess**2).sum() / (2 * quadratic)
        close(primal, dual, 8 * error * (1 + abs(cost).max() + quadratic))


def check(result, cost, a, b, quadratic=None):
    """A missing side is uniform. Without penalties it has the total of the other, and b is scaled to that of a."""
    penalties = tuple(result._options.get(name, np.inf) for name in ("penalty_a", "penalty_b"))
    is_balanced = penalties == (np.inf, np.inf) and "mass" not in result._options
    totals = [side.sum() for side in (a, b) if side is not None] if is_balanced else []
    a, b = (
        np.full(size, (totals or [1.0])[0] / size) if side is None else side for side, size in zip((a, b), cost.shape)
    )
    if is_balanced:
        b = b * (a.sum() / b.sum())
    if isinstance(result, monge.ExactResult):
        if is_balanced:
            check_exact(result, cost, a, b)
        else:
            check_partial(result, cost, a, b, penalties)
    elif isinstance(result, monge.RegularizedResult):
        check_quadratic(result, cost, a, b, quadratic)
    else:
        check_entropic(result, cost, a, b, penalties)


def numbers(drawn):
    return None if drawn is None else drawn.numbers


def present(**drawn):
    return {name: each.given for name, each in drawn.items() if each is not None}


def solve(draw):
    n, m = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    M, a, b = draw(arrays((n, m))), maybe(draw, arrays((n,), True)), maybe(draw, arrays((m,), True))
    function = draw(st.sampled_from([monge.solve, monge.solve_exact, monge.solve_regularized]))
    given, others = present(M=M, a=a, b=b), []
    if function is not monge.solve_regularized and draw(st.integers(0, 4)) == 4:
        others = [draw(arrays((n,))), draw(arrays((m,)))]
        given["potentials_init"] = tuple(each.given for each in others)
    if function is monge.solve:
        given |= {"reg": draw(REG)} | some_options(draw, *(name for name in OPTIONS if name != "mass"))
        if draw(st.integers(0, 4)) == 4:
            c = draw(arrays((n, m)))
            given["c"], others = c.given, [*others, c]
    elif function is monge.solve_exact:
        given |= some_options(draw, "unbalanced", "mass", "tol", "n_threads", "progress", "device")
    else:
        terms = [{}, {"quadratic": 0.5}, {"quadratic": 5.0}, {"quadratic": -1}, {"group_lasso": 0.1}, {"l1": 0.1}]
        terms += [{"hypentropy": 0.1}, {"group_lasso": 0.1, "groups": np.arange(n) // 2}]
        terms = draw(st.sampled_from(terms))
        given |= terms
        given |= some_options(draw, "tol", "max_iter", "n_threads", "progress", "device", "method")
    drawn = [v for v in (M, a, b, *others) if v is not None]
    result = called(function, given, drawn)
    if result is not None and not any(v.is_wrong for v in drawn):
        quadratic = given["quadratic"] if list(given.keys() & TERMS) == ["quadratic"] else None
        check(result, M.numbers, numbers(a), numbers(b), quadratic)
        check_frame(result, M.given)
        check_products(draw, result)


def check_products(draw, result):
    """Products and averages are those of the plan, of which they have the rounding."""
    plan = np.asarray(result.plan, float)
    rounding = 1e-4 if result.plan.dtype in ("float32", getattr(torch, "float32", None)) else 1e-6
    transpose = draw(st.booleans())
    P = plan.T if transpose else plan
    v = draw(arrays((P.shape[1],)))
    found = called(result.apply, {"v": v.given, "transpose": transpose}, [])
    if found is not None and not v.is_wrong:
        close(found, P @ v.numbers, rounding * (1 + 4 * P.sum()))
    found = called(result.average, {"values": v.given, "transpose": transpose}, [])
    if found is not None and not v.is_wrong and (P.sum(1) > 1e-3).all():
        close(found, P @ v.numbers / P.sum(1), 1e3 * rounding)
    k, axis = draw(st.integers(0, 3)), draw(st.sampled_from([0, 1, 2]))
    found = called(result.topk, {"k": k, "axis": axis}, [])
    if found is not None:
        most = np.sort(plan if axis == 1 else plan.T, 1)[:, ::-1][:, :k]
        close(found[1], most, rounding * (1 + plan.sum()))
    close(result.inverse.plan, plan.T, 1e3 * rounding * (1 + plan.sum()))
    close(result.lazy_plan[0], plan[0], rounding * (1 + plan.sum()))


def solve_points(draw):
    n, m, d = draw(st.integers(1, 6)), draw(st.integers(1, 6)), draw(st.integers(1, 3))
    x, y = draw(arrays((n, d))), draw(arrays((m, d)))
    a, b = maybe(draw, arrays((n,), True)), maybe(draw, arrays((m,), True))
    metrics = ["sqeuclidean", "sqeuclidean", "euclidean", "cityblock", "chebyshev", "dot", "mahalanobis", 3]
    metric = draw(st.sampled_from(metrics))
    given = present(X_a=x, X_b=y, a=a, b=b) | {"metric": metric, "reg": draw(REG)}
    given |= some_options(draw, *(name for name in OPTIONS if name != "mass"))
    drawn = [v for v in (x, y, a, b) if v is not None]
    result = called(monge.solve_sample, given, drawn)
    if result is not None:
        cost = costs(x.numbers, y.numbers, metric)
        check(result, cost, numbers(a), numbers(b))
        check_frame(result, x.given)
        check_products(draw, result)
        check_points(draw, result, x.numbers, y.numbers, metric)


def check_points(draw, result, x, y, metric):
    """The map at the sources has averages of targets, and gradients are sums of the plan and of cost derivatives."""
    plan = np.asarray(result.plan, float)
    rounding = 1e-4 if result.plan.dtype in ("float32", getattr(torch, "float32", None)) else 1e-6
    row, column = plan.sum(1), plan.sum(0)
    points = draw(st.sampled_from([None, "sources", "nonsense", np.zeros((2, 9))]))
    is_of_sources = points is None or (isinstance(points, str) and points == "sources")
    given = {} if points is None else {"points": x if is_of_sources else points}
    found = called(result.transform, given, [])
    assert found is None or is_of_sources
    is_entropic = hasattr(result.report, "eps") and result._reg_type == "kl"
    if found is not None and metric in ("sqeuclidean", "dot") and is_entropic and (row > 1e-3).all():
        close(found, plan @ y / row[:, None], 1e3 * rounding)
    found = called(result.gradients, {}, []) if hasattr(result, "gradients") else None
    if found is None or found.x is None or result.marginal_error > 0.1:
        return
    if metric == "sqeuclidean":
        close(found.x, 2 * (row[:, None] * x - plan @ y), 1e3 * rounding * (1 + plan.sum()))
        close(found.y, 2 * (column[:, None] * y - plan.T @ x), 1e3 * rounding * (1 + plan.sum()))
    if metric == "dot":
        close(found.x, -plan @ y, 1e3 * rounding * (1 + plan.sum()))


def costs(x, y, metric):
    steps = x[:, None] - y
    return {
        "sqeuclidean": lambda: (steps**2).sum(-1),
        "euclidean": lambda: np.sqrt((steps**2).sum(-1)),
        "cityblock": lambda: abs(steps).sum(-1),
        "chebyshev": lambda: abs(steps).max(-1),
        "dot": lambda: -x @ y.T,
    }[metric]()


def solve_many(draw):
    size, n, m = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    M = draw(arrays((size, n, m)))
    a, b = maybe(draw, arrays((size, n), True)), maybe(draw, arrays((size, m), True))
    given = present(M=M, a=a, b=b) | {"reg": draw(REG), "reg_type": "KL"}
    given |= some_options(draw, "unbalanced", "method", "max_iter", "tol", "n_threads", "precision", "progress")
    result = called(monge.solve_batch, given, [v for v in (M, a, b) if v is not None])
    if result is not None:
        assert len(result) == size
        for k, each in enumerate(result):
            check(each, M.numbers[k], *(None if v is None else v.numbers[k] for v in (a, b)))


def classic(draw):
    n, m = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    M, a, b = draw(arrays((n, m))), draw(arrays((n,), True)), draw(arrays((m,), True))
    functions = ["sinkhorn", "sinkhorn2", "emd", "emd2", "partial_wasserstein", "sinkhorn_unbalanced"]
    which = draw(st.sampled_from(functions))
    log = draw(st.sampled_from([False, True, 1, "yes"]))
    given = {"a": a.given, "b": b.given, "M": M.given, "log": log}
    if which.startswith("sinkhorn"):
        given["reg"] = draw(st.sampled_from([0.05, 1.0, -1, "x", None]))
    if which == "sinkhorn_unbalanced":
        given["reg_m"] = draw(st.sampled_from([0.5, (1.0, np.inf), -1, "x"]))
    found = called(getattr(monge, which), given, [M, a, b])
    if found is None or any(v.is_wrong for v in (M, a, b)):
        return
    assert log is not True or isinstance(found, tuple)
    value = found[0] if isinstance(found, tuple) else found
    if which in ("sinkhorn", "emd"):
        plan, error = np.asarray(value, float), 1e-5
        close(plan.sum(1), a.numbers, error)
        close(plan.sum(0), b.numbers, error)
    if which == "emd2":
        plan = monge.emd(a.numbers, b.numbers, M.numbers, check_marginals=False)
        close(float(value), (plan * M.numbers).sum(), 1e-5 * (1 + M.numbers.max()))


def assignment(draw):
    shape = draw(st.sampled_from([(3, 3), (2, 4), (4, 2), (2, 3, 3), (1, 1)]))
    M, maximize = draw(arrays(shape)), draw(st.sampled_from([False, True, 1, "x"]))
    found = called(monge.linear_sum_assignment, {"cost_matrix": M.given, "maximize": maximize}, [])
    if found is None or M.numbers is None:
        return
    for k, cost in enumerate(M.numbers.reshape(-1, *shape[-2:])):
        for indices, wanted in zip(found, optimize.linear_sum_assignment(cost, bool(maximize))):
            np.testing.assert_array_equal(np.asarray(indices).reshape(-1, len(wanted))[k], wanted)


def divergence(draw):
    n, m, d = draw(st.integers(1, 5)), draw(st.integers(1, 5)), draw(st.integers(1, 3))
    x, y = draw(arrays((n, d))), draw(arrays((m, d)))
    a, b = maybe(draw, arrays((n,), True)), maybe(draw, arrays((m,), True))
    given = present(X_a=x, X_b=y, a=a, b=b) | {"reg": draw(st.sampled_from(["auto", 0.5, 2.0, -1, None, "x"]))}
    given |= some_options(draw, "max_iter", "tol", "n_threads", "precision", "progress")
    result = called(monge.sinkhorn_divergence, given, [v for v in (x, y, a, b) if v is not None])
    if result is not None and result.converged:
        assert float(result.value) >= -1e-4 * (1 + abs(float(result.ab.value)))
        check(result.ab, costs(x.numbers, y.numbers, "sqeuclidean"), numbers(a), numbers(b))


def missing_pairs(draw):
    """Sparse costs: the value is that of a linear program over the pairs that are stored."""
    n, m = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    cost = np.where(random.random((n, m)) < draw(st.sampled_from([0.3, 0.8, 1.0])), random.random((n, m)), np.inf)
    rows, columns = np.nonzero(np.isfinite(cost))
    pairs = sparse.coo_array((cost[rows, columns], (rows, columns)), (n, m))
    M = draw(st.sampled_from([pairs, pairs.tocsr(), sparse.csr_matrix(pairs), pairs.tocsc()]))
    a, b = maybe(draw, arrays((n,), True)), maybe(draw, arrays((m,), True))
    given = {"M": M} | present(a=a, b=b) | some_options(draw, "unbalanced", "mass", "tol", "n_threads", "progress")
    drawn = [v for v in (a, b) if v is not None]
    result = called(draw(st.sampled_from([monge.solve_exact, monge.solve])), given, drawn)
    if result is None or any(v.is_wrong for v in drawn) or not result.converged:
        return
    mass = result._options.get("mass")
    penalties = tuple(result._options.get(name, np.inf) for name in ("penalty_a", "penalty_b"))
    a, b = (np.full(size, 1 / size) if v is None else v.numbers for v, size in ((a, n), (b, m)))
    b = b * (a.sum() / b.sum())
    value = least_cost(cost, a, b, penalties, mass)
    assert value is not None, "there is no plan"
    close(float(result.value), value, 1e-6 * (2 + sum(rho for rho in penalties if rho < np.inf)))


def projection(draw):
    """Rows and columns are divided by their sums in turn. A preset may begin with either side and add a small number to
    the sums."""
    shape = (*draw(st.sampled_from([(), (2,), (2, 1)])), draw(st.integers(1, 5)), draw(st.integers(1, 5)))
    logits = draw(arrays(shape))
    given = {"logits": logits.given}
    given |= draw(
        st.sampled_from(
            [{}, {"iterations": 3}, {"iterations": 0}, {"iterations": 1.5}, {"preset": "mhc_paper"}, {"preset": "x"}]
        )
    )
    given |= draw(st.sampled_from([{}, {"n_threads": 1}, {"n_threads": -1}, {"row_marginal": np.full(shape[-2], 2.0)}]))
    found = called(monge.project, given, [])  # A matrix with NaN has a projection of NaN.
    if found is None or logits.is_wrong:
        return
    options = {name: given[name] for name in ("preset", "row_marginal", "iterations") if name in given}
    rows, columns = (np.array(v) for v in monge.projection_marginals(*shape[-2:], **options))
    # Half precision keeps 11 bits.
    rounding = (2e-3 if np.asarray(found).dtype == np.float16 else 1e-5) * max(1, rows.max(), columns.max())
    if "preset" in given:
        sums = np.asarray(found, float)
        off = abs(sums.sum(-1) - rows).max(), abs(sums.sum(-2) - columns).max()
        assert (sums >= 0).all() and min(off) <= max(shape) * rounding, off
        return
    matrix = np.exp(logits.numbers - logits.numbers.max((-2, -1), keepdims=True))
    for _ in range(given.get("iterations", 20)):
        matrix = matrix * (rows[:, None] / matrix.sum(-1, keepdims=True))
        matrix = matrix * (columns / matrix.sum(-2, keepdims=True))
    close(found, matrix, rounding)


CALLS = [solve, solve_points, solve_many, classic, assignment, divergence, missing_pairs, projection]


@pytest.mark.parametrize("call", CALLS)
def test_any_arguments(call):
    end, number = time.monotonic() + SECONDS / len(CALLS), FIRST_SEED
    while number == FIRST_SEED or time.monotonic() < end:

        @seed(number)
        @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(st.data())
        def run(data):
            call(data.draw)

        run()
        number += 1
