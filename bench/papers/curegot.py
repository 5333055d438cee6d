"""cuRegOT (2026): error against time of second-order entropic solvers, ablation, duality gap, small eps and reuse.

The published curves are of an RTX 6000 Ada. bench/convergence.cpp measures the library's methods alone, from C++.
"""

import time
import warnings

import numpy as np
from sheet import finish

import monge

METHODS = {
    "Sinkhorn": {"method": "sinkhorn", "schedule": "alternating", "annealing": 1.0},
    "overrelaxed": {"method": "sinkhorn"},
    "SPLR": {"method": "splr"},
    "Newton": {"method": "newton"},
    "auto": {"method": "auto"},
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


def features(sheet, n, m):
    given = sheet.read("features_x", "features_y")
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
    n, m = (160, 120) if sheet.small else (6400, 4800)
    return {
        "Synthetic I iid": gaussians(n, m, 0.0),
        "Synthetic I diff": gaussians(n, m, 2.0),
        "Synthetic II": mixture(n, m),
        "features" if sheet.read("features_x", "features_y") else "features, synthetic": features(
            sheet, *((160, 120) if sheet.small else (5000, 5000))
        ),
    }


def solve(sheet, problem, eps, **options):
    cost, a, b = (sheet.tensor(v, dtype=None) for v in problem)
    given = {"reg": eps, "tol": 1e-9, "criterion": "gradient", "precision": "float64", "max_iter": 3000}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", monge.ConvergenceWarning)  # The table has the error that was reached.
        return monge.solve(cost, a, b, **(given | options))


def reach(result, errors=(1e-2, 1e-4, 1e-6, 1e-8)):
    """Milliseconds at which the L1 error first was at most each; None where it never was."""
    found = []
    for error in errors:
        at = [
            check.seconds
            for check in result.report.history
            if check.marginal_error <= error and check.eps <= result.reg * (1 + 1e-9)
        ]
        found.append(1e3 * at[0] if at else None)
    return found


def peer_curves(problem, eps, counts):
    """Seconds and L1 error of POT's and OTT's solvers after fixed numbers of iterations."""
    cost, a, b = problem

    def error(f, g):
        plan = np.exp((f[:, None] + g - cost) / eps)
        return float(abs(plan.sum(1) - a).sum() + abs(plan.sum(0) - b).sum())

    curves = {}
    try:
        import ot

        points = []
        for count in counts:
            begin = time.perf_counter()
            _, log = ot.bregman.sinkhorn_log(a, b, cost, eps, numItermax=count, stopThr=0, warn=False, log=True)
            seconds = time.perf_counter() - begin
            points.append((seconds, error(eps * log["log_u"], eps * log["log_v"])))
        curves["POT sinkhorn_log"] = points
    except ImportError:
        pass
    try:
        import jax

        jax.config.update("jax_enable_x64", True)
        from ott.geometry import geometry
        from ott.problems.linear import linear_problem
        from ott.solvers.linear import acceleration, sinkhorn

        given = geometry.Geometry(cost_matrix=jax.numpy.asarray(cost), epsilon=eps)
        for name, anderson in (
            ("OTT", None),
            ("OTT, Anderson", acceleration.AndersonAcceleration(memory=5, refresh_every=10)),
        ):
            points = []
            for count in counts:
                solver = jax.jit(
                    sinkhorn.Sinkhorn(min_iterations=count, max_iterations=count, threshold=0, anderson=anderson)
                )
                held = linear_problem.LinearProblem(given, a=jax.numpy.asarray(a), b=jax.numpy.asarray(b))
                jax.block_until_ready(solver(held))
                begin = time.perf_counter()
                out = jax.block_until_ready(solver(held))
                points.append((time.perf_counter() - begin, error(np.asarray(out.f), np.asarray(out.g))))
            curves[name] = points
    except ImportError:
        pass
    return curves


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


def history(result):
    return [(c.seconds, c.marginal_error) for c in result.report.history if c.eps <= result.reg * (1 + 1e-9)]


def convergence(sheet):
    """Figures 3 and 4."""
    eps, counts = 1e-3, (10, 50, 100) if sheet.small else (10, 20, 50, 100, 200, 500)
    rows, curves = [], {}
    for name, problem in problems(sheet).items():
        lines = {}
        for label, options in METHODS.items():
            solve(sheet, problem, eps, **options)
            result = solve(sheet, problem, eps, **options)
            rows.append([name, label, *reach(result), result.n_iter, float(result.marginal_error)])
            lines[label] = history(result)
        for label, points in peer_curves(problem, eps, counts).items():
            at = [next((1e3 * s for s, e in points if e <= error), None) for error in (1e-2, 1e-4, 1e-6, 1e-8)]
            rows.append([name, label, *at, counts[-1], points[-1][1]])
            lines[label] = points
        curves[name] = lines
    columns = ["problem", "method", "ms to 1e-2", "1e-4", "1e-6", "1e-8", "passes", "last error"]
    sheet.table(
        "convergence",
        f"Figures 3 and 4: L1 error against time, eps = {eps:g}",
        columns,
        rows,
        "Published as curves alone: cuRegOT is the fastest in almost all of them, Greenkhorn the slowest.",
    )
    show(sheet, "convergence", "Figures 3 and 4: error against time", curves)


def ablation(sheet):
    """Figure 5."""
    rows, curves = [], {}
    for name, problem in problems(sheet).items():
        lines = {}
        for label, options in ABLATION.items():
            result = solve(sheet, problem, 1e-3, method="splr", **options)
            rows.append([name, label, *reach(result), result.report.newton_steps])
            lines[label] = history(result)
        curves[name] = lines
    sheet.table(
        "ablation",
        "Figure 5: SPLR without amortised analysis (A) and without candidates (S)",
        ["problem", "variant", "ms to 1e-2", "1e-4", "1e-6", "1e-8", "steps"],
        rows,
    )
    show(sheet, "ablation", "Figure 5: ablation of SPLR", curves)


def gap_and_small_eps(sheet):
    """Figure 8 and Appendix A.6: the relative duality gap at the end, and smaller eps."""
    rows = []
    for name, problem in problems(sheet).items():
        for eps in (1e-2, 1e-3, 5e-4):
            for label in ("overrelaxed", "SPLR", "auto"):
                result = solve(sheet, problem, eps, **METHODS[label])
                report = result.report
                rows.append(
                    [
                        name,
                        f"{eps:g}",
                        label,
                        1e3 * report.seconds,
                        report.iterations,
                        float(report.marginal_error),
                        abs(report.gap) / max(abs(report.primal), 1e-300),
                    ]
                )
    sheet.table(
        "gap_and_small_eps",
        "Figure 8 and Appendix A.6: to a gradient of 1e-9",
        ["problem", "eps", "method", "ms", "passes", "L1 error", "relative gap"],
        rows,
    )


def reuse(sheet):
    """Figure 11: iterations that share one choice of pairs."""
    rows = []
    for name, problem in problems(sheet).items():
        for k in (1, 10, 30, 50, 100):
            result = solve(sheet, problem, 1e-3, method="splr", splr_reuse=k)
            rows.append([name, k, *reach(result), result.report.newton_steps])
    sheet.table(
        "reuse",
        "Figure 11: SPLR by the iterations K that share a pattern",
        ["problem", "K", "ms to 1e-2", "1e-4", "1e-6", "1e-8", "steps"],
        rows,
    )


EXPERIMENTS = (convergence, ablation, gap_and_small_eps, reuse)
