"""POT's functions of Gromov-Wasserstein transport, beside POT from the same start."""

import inspect
import warnings

import numpy as np
import pytest

import monge
from conftest import assert_named, squared_distances

ot = pytest.importorskip("ot")

# Both end within their tolerances, 1e-9 and 1e-11, over 1 - the rate of convergence to the same plan.
AS_POT = dict(rel=1e-6)
TIGHT = dict(max_iter=3000, tol=1e-11, numItermax=20000, stopThr=1e-12)
LOSSES = ("square_loss", "kl_loss")
KINDS = ("distances", "adjacency", "asymmetric")


def problem(kind, n=20, m=15):
    """C1, C2, M, p and q. Squared distances are solved as points."""
    random = np.random.default_rng(11)

    def side(size):
        if kind == "distances":
            points = random.normal(size=(size, 2))
            return squared_distances(points, points) / 4
        if kind == "adjacency":
            upper = np.triu(random.random((size, size)) < 0.3, 1).astype(float)
            return upper + upper.T
        return random.random((size, size))

    p, q = random.uniform(0.5, 1, n), random.uniform(0.5, 1, m)
    return side(n), side(m), random.random((n, m)), p / p.sum(), q / q.sum()


def quietly(function, *arguments, **keywords):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments, **keywords)


def value_of(c, d, plan, loss="square_loss"):
    """E(P) from its definition."""
    if loss == "kl_loss":
        c, d = c[:, None, :, None] + 1e-18, d[None, :, None, :] + 1e-18
        cost = c * np.log(c / d) - c + d
    else:
        cost = (c[:, None, :, None] - d[None, :, None, :]) ** 2
    return np.einsum("ijkl,ij,kl", cost, plan, plan)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", KINDS)
def test_entropic_plans(kind, loss):
    c, d, costs, p, q = problem(kind)
    epsilon, symmetric = 2 * value_of(c, d, np.outer(p, q), loss), kind != "asymmetric"
    given = dict(loss_fun=loss, epsilon=epsilon, symmetric=symmetric, log=True)
    own, log = monge.entropic_gromov_wasserstein(c, d, p, q, **given)
    plan, theirs = ot.gromov.entropic_gromov_wasserstein(c, d, p, q, **given, **TIGHT)
    np.testing.assert_allclose(own, plan, atol=1e-6 * plan.max())
    assert log["gw_dist"] == pytest.approx(theirs["gw_dist"], **AS_POT)
    assert log["gw_dist"] == pytest.approx(value_of(c, d, own, loss), **AS_POT)
    assert set(log) == {"err", "gw_dist", "result"} and log["result"].converged

    own, log = monge.entropic_fused_gromov_wasserstein2(costs, c, d, p, q, alpha=0.4, **given)
    value, theirs = ot.gromov.entropic_fused_gromov_wasserstein2(costs, c, d, p, q, alpha=0.4, **given, **TIGHT)
    assert own == log["fgw_dist"] == pytest.approx(value, **AS_POT)
    for name in ("lin_loss", "quad_loss"):
        assert log[name] == pytest.approx(theirs[name], rel=1e-5, abs=1e-9)
    np.testing.assert_allclose(log["T"], theirs["T"], atol=1e-6 * plan.max())


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", KINDS)
def test_proximal_plans(kind, loss):
    c, d, costs, p, q = problem(kind)
    given = dict(loss_fun=loss, epsilon=2 * value_of(c, d, np.outer(p, q), loss), symmetric=kind != "asymmetric")
    steps = dict(max_iter=9)  # POT looks at every tenth step.
    own = quietly(monge.entropic_gromov_wasserstein2, c, d, p, q, solver="PPA", **given, **steps)
    theirs = quietly(
        ot.gromov.entropic_gromov_wasserstein2, c, d, p, q, solver="PPA", **given, **(TIGHT | steps | dict(tol=0))
    )
    assert own == pytest.approx(theirs, **AS_POT)
    assert quietly(monge.BAPG_gromov_wasserstein2, c, d, p, q, **given, **steps) == own
    fused = quietly(monge.BAPG_fused_gromov_wasserstein, costs, c, d, p, q, **given, **steps)
    same = quietly(monge.entropic_fused_gromov_wasserstein, costs, c, d, p, q, solver="PPA", **given, **steps)
    np.testing.assert_array_equal(fused, same)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", KINDS)
def test_exact_plans(kind, loss):
    """The start is p q^T in both. Where their searches end in one local optimum, values agree; ours is no worse, up to
    its tolerance, the root of tol_rel."""
    c, d, costs, p, q = problem(kind)
    start = np.outer(p, q)
    for M, function, theirs in (
        ((), monge.gromov_wasserstein2, ot.gromov.gromov_wasserstein2),
        ((costs,), monge.fused_gromov_wasserstein2, ot.gromov.fused_gromov_wasserstein2),
    ):
        value, log = function(*M, c, d, p, q, loss, log=True)
        assert value <= theirs(*M, c, d, p, q, loss) * (1 + 1e-4)
        plan, alpha = log["T"], 0.5 if M else 1.0
        linear = (costs * plan).sum() if M else 0
        assert value == pytest.approx(alpha * value_of(c, d, plan, loss) + (1 - alpha) * linear, rel=1e-9)
        assert log["loss"] == [value] and log["result"].starts[0].kind == "product" and len(log["result"].starts) == 1
        assert function(*M, c, d, p, q, loss, G0=start, max_iter=1e4, verbose=False) == pytest.approx(value, rel=1e-9)
        assert function(*M, c, d, p, q, loss, starts=0) <= value * (1 + 1e-4)
        rest = log["result"].potentials[0] - log["u"]
        np.testing.assert_allclose(rest, 0, atol=1e-12)


def test_semirelaxed_plans():
    for kind in ("distances", "asymmetric"):  # Ties of an adjacency matrix lead to other optima.
        for loss in LOSSES:
            c, d, costs, p, _ = problem(kind)
            for M in ((), (costs,)):
                name = "srfgw_dist" if M else "srgw_dist"
                exact = monge.semirelaxed_fused_gromov_wasserstein if M else monge.semirelaxed_gromov_wasserstein
                plan, log = exact(*M, c, d, p, loss, log=True)
                theirs = getattr(ot.gromov, exact.__name__ + "2")(*M, c, d, p, loss)
                assert log[name] <= theirs * (1 + 1e-4) + 1e-12
                np.testing.assert_allclose(plan.sum(1), p, rtol=1e-9)
                entropic = f"entropic_{exact.__name__}2"
                epsilon = 2 * value_of(c, d, np.outer(p, np.full(15, 1 / 15)), loss)
                own = quietly(getattr(monge, entropic), *M, c, d, p, loss, epsilon=epsilon, max_iter=9)
                theirs = quietly(getattr(ot.gromov, entropic), *M, c, d, p, loss, epsilon=epsilon, max_iter=9)
                assert own == pytest.approx(theirs, **AS_POT)
    assert "u" not in log
    with pytest.raises(ValueError, match="G0: is 'means'; did you mean 'kmeans'"):
        monge.semirelaxed_gromov_wasserstein(c, d, p, G0="means")


# Blocks of a matrix are the parts that every partition finds, so E is 0 at its start.
@pytest.mark.parametrize("name", ["kmeans", "spectral", "fluid", "kmeans_soft", "random", "random_product"])
def test_named_starts_of_semirelaxed_plans(name):
    pytest.importorskip("networkx" if name == "fluid" else "sklearn")
    small = np.array([[1.0, 0.1], [0.1, 0.8]])
    large = np.kron(small, np.ones((6, 6)))
    order = np.random.default_rng(3).permutation(12)
    large = large[order][:, order]
    for c, d in ((large, small), (small, large)):
        value, log = monge.semirelaxed_gromov_wasserstein2(c, d, G0=name, random_state=1, log=True)
        again = monge.semirelaxed_gromov_wasserstein2(c, d, G0=name, random_state=1)
        assert value == again
        np.testing.assert_allclose(log["T"].sum(1), 1 / len(c), rtol=1e-12)
        if name in ("kmeans", "spectral"):
            assert value < 1e-12


def test_partial_plans():
    for kind in KINDS:
        c, d, costs, p, q = problem(kind)
        for M in ((), (costs,)):
            function = monge.partial_fused_gromov_wasserstein2 if M else monge.partial_gromov_wasserstein2
            value, log = function(*M, c, d, p, q, m=0.6, log=True)
            plan = log["T"]
            assert plan.sum() == pytest.approx(0.6, rel=1e-12)
            assert (plan.sum(1) <= p * (1 + 1e-12)).all() and (plan.sum(0) <= q * (1 + 1e-12)).all()
            linear = (costs * plan).sum() if M else 0
            alpha = 0.5 if M else 1
            assert value == pytest.approx(alpha * value_of(c, d, plan) + (1 - alpha) * linear, rel=1e-9)
            theirs = quietly(getattr(ot.gromov, function.__name__), *M, c, d, p, q, m=0.6)
            assert value <= theirs * (1 + 4e-4) + 1e-12  # The Frank-Wolfe gap is at most the root of 1e-7.
        whole = monge.partial_gromov_wasserstein2(c, d, p, q)
        assert whole == pytest.approx(monge.gromov_wasserstein2(c, d, p, q), rel=1e-3)  # The roots of 1e-7 and 1e-9.


def test_entropic_partial_plans():
    for kind in KINDS:
        c, d, costs, *_ = problem(kind)
        p, q = np.ones(20) / 20, np.ones(15) / 15  # POT's entropy is sum P log P.
        size = (c**2).mean() + (d**2).mean()
        given = dict(reg=0.5 * size, m=0.6)
        plan = monge.entropic_partial_gromov_wasserstein(c, d, p, q, **given, tol=1e-9)
        theirs = ot.gromov.entropic_partial_gromov_wasserstein(c, d, p, q, **given, numItermax=3000, tol=1e-12)
        np.testing.assert_allclose(plan, theirs, atol=1e-8 * plan.max())
        value, log = monge.entropic_partial_fused_gromov_wasserstein2(costs, c, d, p, q, **given, log=True)
        plan = log["T"]
        assert value == log["partial_fgw_dist"] == log["result"].value_linear + log["result"].value_quad
        assert value == pytest.approx(0.5 * value_of(c, d, plan) + 0.5 * (costs * plan).sum(), rel=1e-6)
        assert plan.sum() == pytest.approx(0.6, rel=1e-9)
        assert log["result"].report.marginal_error < 1e-7


def test_a_start_alone_leads_to_the_plan_of_exact_steps():
    """Loose solves of the first steps would lead to other optima for the first two of these seeds."""
    for seed in (3, 7, 11):
        random = np.random.default_rng(seed)
        x, y, costs = random.normal(size=(40, 3)), random.normal(size=(30, 3)), random.random((40, 30))
        p, q = random.uniform(0.2, 1, 40), random.uniform(0.2, 1, 30)
        given = (costs, np.sqrt(ot.dist(x, x)), np.sqrt(ot.dist(y, y)), p / p.sum(), q / q.sum())
        own = monge.entropic_fused_gromov_wasserstein2(*given, epsilon=0.05, alpha=0.9)
        theirs = ot.gromov.entropic_fused_gromov_wasserstein2(*given, epsilon=0.05, alpha=0.9, **TIGHT)
        assert own == pytest.approx(theirs, rel=1e-6)


def test_entropic_partial_plans_of_the_whole_mass_are_balanced():
    """Rows and columns are then constraints. The sweeps of partial plans come near them slowly."""
    random = np.random.default_rng(1)
    x, y = random.normal(size=(15, 3)), random.normal(size=(20, 2))
    c, d = np.sqrt(ot.dist(x, x)), np.sqrt(ot.dist(y, y))
    plan, log = monge.entropic_partial_gromov_wasserstein(c, d, reg=0.003, log=True)
    np.testing.assert_allclose(plan, monge.entropic_gromov_wasserstein(c, d, epsilon=0.003, tol=1e-7), atol=1e-12)
    result = log["result"]
    assert result.converged and result.report.marginals == "balanced" and result.report.sweeps < 10_000
    less = monge.solve_gromov(c, d, reg=1.0, unbalanced=1 - 1e-5, unbalanced_type="partial", tol=1e-9, starts=1)
    whole = monge.solve_gromov(c, d, reg=1.0, unbalanced=1.0, unbalanced_type="partial", tol=1e-9, starts=1)
    assert whole.value == pytest.approx(less.value, rel=1e-3)  # The value has reg KL(P | a b^T) in both.


@pytest.mark.parametrize("loss", ["square_loss", "kl_loss"])
def test_logs_of_proximal_plans_have_the_loss_without_terms_of_marginals(loss):
    c, d, costs, p, q = problem("adjacency")
    for function, given in ((monge.BAPG_gromov_wasserstein, ()), (monge.BAPG_fused_gromov_wasserstein2, (costs,))):
        plan, log = quietly(function, *given, c, d, p, q, loss, epsilon=0.5, log=True)
        plan = log.get("T", plan)
        constant, *_ = ot.gromov.init_matrix(c, d, plan.sum(1), plan.sum(0), loss)
        value = log.get("fgw_dist", log.get("gw_dist"))
        alpha = 0.5 if given else 1
        assert log["loss"] == pytest.approx(value - alpha * (constant * plan).sum(), abs=1e-12)
        assert "loss" not in quietly(function, *given, c, d, p, q, loss, epsilon=0.5, log=True, marginal_loss=True)[1]


def test_defaults_are_those_of_pot():
    names = [name for name in dir(monge) if "gromov" in name and hasattr(ot.gromov, name)]
    assert len(names) >= 20
    for name in names:
        own, theirs = (inspect.signature(getattr(module, name)).parameters for module in (monge, ot.gromov))
        for argument, parameter in theirs.items():
            if parameter.kind is not parameter.VAR_KEYWORD:
                assert own[argument].default == parameter.default, (name, argument)


def test_unbalanced_plans_without_entropy():
    c, d, costs, p, q = problem("adjacency")
    for more in ({}, dict(alpha=0.7, M=costs)):
        *_, log = quietly(monge.fused_unbalanced_gromov_wasserstein, c, d, p, q, reg_marginals=1.0, log=True, **more)
        assert log["result"].report.method == "proximal"
        theirs = ot.gromov.fused_unbalanced_gromov_wasserstein2(
            c, d, p, q, reg_marginals=1.0, **more, max_iter=300, max_iter_ot=2000
        )
        assert log["fugw_cost"] <= theirs * (1 + 1e-3)


def test_unbalanced_plans():
    c, d, costs, p, q = problem("adjacency")
    given = dict(reg_marginals=1.0, epsilon=0.2, log=True)
    for more in ({}, dict(alpha=0.7, M=costs)):
        own, same, log = monge.fused_unbalanced_gromov_wasserstein(
            c, d, p, q, **given, **more, tol=1e-10, max_iter=1000
        )
        plan, _, theirs = ot.gromov.fused_unbalanced_gromov_wasserstein(
            c,
            d,
            p,
            q,
            **given,
            **more,
            unbalanced_solver="sinkhorn_log",
            max_iter=1000,
            tol=1e-12,
            max_iter_ot=10000,
            tol_ot=1e-14,
        )
        assert own is same or (own == same).all()
        np.testing.assert_allclose(own, plan, atol=1e-6 * plan.max())
        assert log["fugw_cost"] == pytest.approx(theirs["fugw_cost"], **AS_POT)
        assert log["linear_cost"] == pytest.approx(theirs["linear_cost"], **AS_POT)
        value = monge.fused_unbalanced_gromov_wasserstein2(
            c, d, p, q, **(given | dict(log=False)), **more, tol=1e-10, max_iter=1000
        )
        assert value == pytest.approx(log["fugw_cost"], rel=1e-12)


def test_weights_may_be_lists_and_missing():
    c, d, costs, p, q = problem("adjacency")
    plan = monge.gromov_wasserstein(c, d, p.tolist(), q.tolist())
    np.testing.assert_allclose(plan, monge.gromov_wasserstein(c, d, p, q), rtol=1e-9)
    uniform = monge.entropic_gromov_wasserstein(c, d, epsilon=1.0)
    np.testing.assert_allclose(uniform.sum(0), 1 / 15, rtol=1e-6)
    one = monge.fused_gromov_wasserstein([[0.0]], [[3.0]], [[1.0]])
    np.testing.assert_allclose(one, [[1.0]])


@pytest.mark.parametrize("scale", [1e-7, 1e7])
def test_costs_of_any_scale(scale):
    """POT's epsilon and ours have the units of E, the square of those of C1."""
    c, d, _, p, q = problem("asymmetric")
    plan = monge.entropic_gromov_wasserstein(c, d, p, q, epsilon=0.2)
    scaled = monge.entropic_gromov_wasserstein(scale * c, scale * d, p, q, epsilon=0.2 * scale**2)
    np.testing.assert_allclose(scaled, plan, atol=1e-7 * plan.max())  # The tolerance over 1 - the rate.
    constant = monge.gromov_wasserstein2(np.full((4, 4), scale), np.full((3, 3), scale))
    assert constant == pytest.approx(0, abs=1e-14 * scale**2)


def test_weights_of_nothing():
    c, d, _, p, q = problem("asymmetric")
    p, q = p.copy(), q.copy()
    p[0], p[1], q[3] = 0, 1e-300, 0
    p, q = p / p.sum(), q / q.sum()
    for loss in LOSSES:
        for plan in (
            monge.gromov_wasserstein(c, d, p, q, loss),
            monge.entropic_gromov_wasserstein(c, d, p, q, loss, epsilon=1.0),
        ):
            assert np.isfinite(plan).all() and plan[0].max() == plan[:, 3].max() == 0
            np.testing.assert_allclose(plan.sum(1), p, atol=1e-8)


def test_derivatives_are_those_of_pot():
    torch = pytest.importorskip("torch")
    c, d, costs, p, q = problem("asymmetric")
    for loss in LOSSES:
        grads = []
        for module in (monge, ot.gromov):
            tensors = [torch.tensor(v, requires_grad=True) for v in (costs, c + 0.1, d + 0.1, p, q)]
            module.fused_gromov_wasserstein2(*tensors, loss, symmetric=False, alpha=0.1).backward()
            grads.append([v.grad.numpy() for v in tensors])
        if abs(grads[0][0] - grads[1][0]).max() > 1e-9:
            pytest.skip("the searches end at different plans")
        for own, theirs in zip(*(part[:3] for part in grads)):
            np.testing.assert_allclose(own, theirs, atol=1e-9)
        for own, theirs in zip(*(part[3:] for part in grads)):  # Potentials may differ by a constant.
            assert np.ptp(own - theirs) < 0.2 * np.ptp(theirs)


def test_batches_are_single_problems():
    problems = [problem("adjacency"), problem("asymmetric"), problem("distances")]
    Ca, Cb, M, a, b = (np.stack(each) for each in zip(*problems))
    batch = quietly(monge.solve_gromov_batch, Ca, Cb, 0.1, a, b, M=M, alpha=0.4)
    assert batch.value.shape == (3,) and batch.plan.shape == (3, 20, 15) and len(batch.lower_bound) == 3
    for k, result in enumerate(batch):
        single = quietly(
            monge.solve_gromov, Ca[k], Cb[k], M[k], a[k], b[k], alpha=0.4, reg=0.1, method="PPA", max_iter=50, starts=1
        )
        assert result.value == batch.value[k] == pytest.approx(single.value, rel=1e-12)
        assert batch.value[k] == pytest.approx(batch.value_linear[k] + batch.value_quad[k], rel=1e-12)
    # Lists of any sizes, exact.
    sizes = [problem("adjacency", n, 5) for n in (4, 6)]
    lists = monge.solve_gromov_batch([v[0] for v in sizes], [v[1] for v in sizes], reg=None)
    assert [plan.shape for plan in lists.plan] == [(4, 5), (6, 5)] and lists.converged
    theirs = ot.batch.solve_gromov_batch(
        Ca[2:], Cb[2:], reg=0.1, a=a[2:], b=b[2:], max_iter=200, max_iter_inner=1000, tol=1e-9
    )
    own = quietly(monge.solve_gromov_batch, Ca[2:], Cb[2:], reg=0.1, a=a[2:], b=b[2:], max_iter=200, tol=1e-9)
    assert own.value[0] == pytest.approx(theirs.value[0], rel=1e-2)  # Both approach a vertex.


@pytest.mark.parametrize(
    "function, given, error, message",
    [
        (
            "gromov_wasserstein",
            dict(loss_fun="TV"),
            ValueError,
            "loss_fun: is 'TV'; must be 'square_loss' or 'kl_loss'",
        ),
        ("gromov_wasserstein", dict(C1=np.full((3, 3), np.nan)), ValueError, "C1: row 0, column 0 is nan"),
        ("gromov_wasserstein", dict(C1=-np.ones((3, 3)), loss_fun="kl_loss"), ValueError, "C1: row 0, column 0 is -1"),
        ("gromov_wasserstein", dict(C2=np.ones((3, 2))), ValueError, "C2: has shape (3, 2); must be square"),
        ("gromov_wasserstein", dict(p=[1.0, 2.0]), ValueError, "p: has 2 entries"),
        ("gromov_wasserstein", dict(tol_rel=0), ValueError, "tol_rel: is 0; must be finite and > 0"),
        ("gromov_wasserstein", dict(max_iter=0.5), TypeError, "max_iter: is 0.5; must be int"),
        ("gromov_wasserstein", dict(G0=np.ones((2, 2))), ValueError, "G0: has shape (2, 2); must be (3, 3)"),
        ("entropic_gromov_wasserstein", dict(epsilon=-1), ValueError, "epsilon: is -1; must be > 0"),
        ("entropic_gromov_wasserstein2", dict(solver="FW"), ValueError, "solver: is 'FW'; must be 'PGD' or 'PPA'"),
        ("entropic_gromov_wasserstein", dict(epsilon=0), ValueError, "epsilon: is 0; must be > 0"),
        ("BAPG_gromov_wasserstein2", dict(epsilon=0), ValueError, "epsilon: is 0; must be > 0"),
        ("entropic_semirelaxed_gromov_wasserstein", dict(epsilon=0), ValueError, "epsilon: is 0; must be > 0"),
        ("entropic_partial_gromov_wasserstein", dict(reg=0, m=0.5), ValueError, "reg: is 0; must be > 0"),
        ("partial_gromov_wasserstein", dict(m=2.0), ValueError, "m: is 2; must be > 0 and at most 1"),
    ],
)
def test_refusals(function, given, error, message):
    assert_named(getattr(monge, function), dict(C1=np.eye(3), C2=np.eye(3)) | given, error, message)


def test_what_declines():
    c = np.eye(3)
    assert_named(
        monge.fused_unbalanced_gromov_wasserstein,
        dict(Cx=c, Cy=c, epsilon=1, divergence="l2"),
        NotImplementedError,
        "divergence: is 'l2'; must be 'kl'",
    )
    batch = monge.solve_gromov_batch
    assert_named(
        batch, dict(Ca=np.ones((2, 3, 3, 1)), Cb=c[None]), NotImplementedError, "Ca: has entries that are vectors"
    )
    assert_named(batch, dict(Ca=c[None], Cb=c[None], loss="kl"), NotImplementedError, "loss: is 'kl'")
    assert_named(batch, dict(Ca=c[None], Cb=c[None], M=c[None]), ValueError, "alpha: is missing")
    assert_named(batch, dict(Ca=c[None], Cb=c[None, :2]), ValueError, "problem 0: Cb: has shape (2, 3); must be square")
