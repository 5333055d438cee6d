"""cuRegOT (2026): error against time of second-order entropic solvers, ablation, duality gap, small eps and reuse.

The published curves are of an RTX 6000 Ada. bench/convergence.cpp measures the library's methods alone, from C++.
"""

import functools
import time
import warnings

import numpy as np
from sheet import finish

import monge

METHODS = {
    "auto": {"method": "auto"},
    "Newton": {"method": "newton"},
    "SPLR": {"method": "splr"},
    "overrelaxed": {"method": "sinkhorn"},
    "Sinkhorn": {"method": "sinkhorn", "schedule": "alternating", "annealing": 1.0},
}
ABLATION = {
    "SPLR": {},
    "-A (no reuse)": {"splr_reuse": 1},
    "-S (no candidates)": {"splr_candidates": 0},
    "-A-S": {"splr_reuse": 1, "splr_candidates": 0},
}


def gaussians(n, m, offset):
    random = np.random.default_rng(123)
    x, y = random.standard_normal((n, 20)), random.standard_normal((m, 20)) + offset
    return squares(x, y), np.full(n, 1 / n), np.full(m, 1 / m)


def squares(x, y):
    cost = np.maximum((x**2).sum(1)[:, None] + (y**2).sum(1) - 2 * x @ y.T, 0)
    return cost / cost.max()


def mixture(n, m):
    x, y = np.linspace(0, 5, n), np.linspace(0, 5, m)

    def density(t, mean, deviation):
        return np.exp(-0.5 * ((t - mean) / deviation) ** 2) / deviation

    a, b = np.exp(-x), 0.2 * density(y, 1, 0.2) + 0.8 * density(y, 3, 0.5)
    return ((x[:, None] - y) / 5) ** 2, a / a.sum(), b / b.sum()


def features(given, n, m):
    if given is None:
        random = np.random.default_rng(7)
        directions = 0.5 * random.standard_normal((24, 512)) * (0.85 ** np.arange(24))[:, None]
        base, shift = 0.6 * abs(random.standard_normal(512)), 0.35 * random.standard_normal(24)
        given = [
            np.maximum(
                base + (random.standard_normal((k, 24)) + c) @ directions + 0.15 * random.standard_normal((k, 512)), 0
            )
            for k, c in ((n, 0), (m, shift))
        ]
    x, y = given[0][:n].astype(float), given[1][:m].astype(float)
    return squares(x, y), np.full(len(x), 1 / len(x)), np.full(len(y), 1 / len(y))


def problems(sheet):
    """Name, costs and weights of one problem after the other, on the device."""
    n, m = (160, 120) if sheet.small else (6400, 4800)
    given = sheet.read("features_x", "features_y")
    makers = {
        "Synthetic I iid": lambda: gaussians(n, m, 0.0),
        "Synthetic I diff": lambda: gaussians(n, m, 2.0),
        "Synthetic II": lambda: mixture(n, m),
        "features" if given else "features, synthetic": lambda: features(
            given, *((160, 120) if sheet.small else (5000, 5000))
        ),
    }
    for name, make in makers.items():
        yield name, [sheet.tensor(v, dtype=None) for v in make()]


def solve(problem, eps, **options):
    given = {"reg": eps, "tol": 1e-9, "criterion": "gradient", "precision": "float64", "max_iter": 3000}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", monge.ConvergenceWarning)  # The table has the error that was reached.
        return monge.solve(*problem, **(given | options))


def history(result):
    """Seconds and L1 error of each check at the last eps."""
    return [(c.seconds, c.marginal_error) for c in result.report.history if c.eps <= result.reg * (1 + 1e-9)]


def reach(line):
    """Milliseconds at which the L1 error first was at most each; None where it never was."""
    return [next((1e3 * s for s, e in line if e <= error), None) for error in (1e-2, 1e-4, 1e-6, 1e-8)]


def l1_error(problem, eps, f, g):
    cost, a, b = problem
    plan = ((f[:, None] + g - cost) / eps).exp()
    return float((plan.sum(1) - a).abs().sum() + (plan.sum(0) - b).abs().sum())


def pot_curve(sheet, problem, eps, counts):
    """Seconds and L1 error of POT's sweeps after fixed numbers of them, on the device of the sheet."""
    import ot

    cost, a, b = problem
    for count in counts:
        log = {}

        def call(count=count, log=log):
            options = {"numItermax": count, "stopThr": 0, "warn": False, "log": True}
            log.update(ot.bregman.sinkhorn_log(a, b, cost, eps, **options)[1])

        seconds = sheet.milliseconds(call, seconds=0, least=1) / 1e3
        yield seconds, l1_error(problem, eps, eps * log["log_u"], eps * log["log_v"])


def ott_curve(sheet, problem, eps, counts, memory=0):
    """The same of OTT's solver, with Anderson's acceleration if it has a memory."""
    jax = sheet.jax()
    from ott.geometry import geometry
    from ott.problems.linear import linear_problem
    from ott.solvers.linear import acceleration, sinkhorn

    cost, a, b = (jax.numpy.asarray(v.cpu().numpy()) for v in problem)
    held = linear_problem.LinearProblem(geometry.Geometry(cost_matrix=cost, epsilon=eps), a=a, b=b)
    anderson = acceleration.AndersonAcceleration(memory=memory, refresh_every=10) if memory else None
    for count in counts:
        options = {"min_iterations": count, "max_iterations": count, "threshold": 0}
        solver = jax.jit(sinkhorn.Sinkhorn(anderson=anderson, **options))
        jax.block_until_ready(solver(held))  # compiles
        begin = time.perf_counter()
        out = jax.block_until_ready(solver(held))
        seconds = time.perf_counter() - begin
        yield seconds, l1_error(problem, eps, *(sheet.tensor(np.asarray(v), dtype=None) for v in (out.f, out.g)))


PEERS = {
    "POT sinkhorn_log": pot_curve,
    "OTT": ott_curve,
    "OTT, Anderson": functools.partial(ott_curve, memory=5),
}


def show(sheet, name, title, curves):
    """`curves`: of each panel, the lines by name, each of pairs of seconds and error."""

    def draw(axes):
        for panel, (panel_title, lines) in zip(axes, curves.items()):
            for label, points in lines.items():
                points = [(s, e) for s, e in points if s > 0 and e > 0]
                if points:
                    panel.loglog(*zip(*points), marker=".", ms=3, label=label)
            panel.set_title(panel_title, fontsize=9)
            finish(panel, "seconds", "L1 error")

    sheet.picture(name, title, draw, panels=len(curves))


REACHED = ["ms to 1e-2", "1e-4", "1e-6", "1e-8"]


def convergence(sheet):
    """Figures 3 and 4."""
    eps, counts = 1e-3, (10, 100, 1000) if sheet.small else (10, 20, 50, 100, 200, 500)
    table = sheet.table(
        "convergence",
        f"Figures 3 and 4: L1 error against time, eps = {eps:g}",
        ["problem", "method", *REACHED, "passes", "last error"],
        "Published as curves alone: cuRegOT is the fastest in almost all of them, Greenkhorn the slowest.",
    )
    curves = {}
    for name, problem in problems(sheet):
        lines = curves[name] = {}
        for label, options in METHODS.items():
            solve(problem, eps, **options, max_iter=20)  # loads what a first call loads
            result = solve(problem, eps, **options)
            table.row(name, label, *reach(history(result)), result.n_iter, float(result.marginal_error))
            lines[label] = history(result)
        for label, peer in PEERS.items():
            lines[label] = []
            sheet.peer(label, lambda: lines[label].extend(peer(sheet, problem, eps, counts)))
            if lines[label]:
                table.row(name, label, *reach(lines[label]), counts[len(lines[label]) - 1], lines[label][-1][1])
    show(sheet, "convergence", "Figures 3 and 4: error against time", curves)


def ablation(sheet):
    """Figure 5."""
    table = sheet.table(
        "ablation",
        "Figure 5: SPLR without amortised analysis (A) and without candidates (S)",
        ["problem", "variant", *REACHED, "steps"],
    )
    curves = {}
    for name, problem in problems(sheet):
        lines = curves[name] = {}
        for label, options in ABLATION.items():
            result = solve(problem, 1e-3, method="splr", **options)
            table.row(name, label, *reach(history(result)), result.report.newton_steps)
            lines[label] = history(result)
    show(sheet, "ablation", "Figure 5: ablation of SPLR", curves)


def gap_and_small_eps(sheet):
    """Figure 8 and Appendix A.6: the relative duality gap at the end, and smaller eps."""
    table = sheet.table(
        "gap_and_small_eps",
        "Figure 8 and Appendix A.6: to a gradient of 1e-9",
        ["problem", "eps", "method", "ms", "passes", "L1 error", "relative gap"],
    )
    for name, problem in problems(sheet):
        for eps in (1e-2, 1e-3, 5e-4):
            for label in ("overrelaxed", "SPLR", "auto"):
                report = solve(problem, eps, **METHODS[label]).report
                row = table.row(name, f"{eps:g}", label, 1e3 * report.seconds, report.iterations)
                row += [float(report.marginal_error), abs(report.gap) / max(abs(report.primal), 1e-300)]


def reuse(sheet):
    """Figure 11: iterations that share one choice of pairs."""
    table = sheet.table(
        "reuse", "Figure 11: SPLR by the iterations K that share a pattern", ["problem", "K", *REACHED, "steps"]
    )
    for name, problem in problems(sheet):
        for k in (1, 10, 30, 50, 100):
            result = solve(problem, 1e-3, method="splr", splr_reuse=k)
            table.row(name, k, *reach(history(result)), result.report.newton_steps)


EXPERIMENTS = (convergence, ablation, gap_and_small_eps, reuse)
