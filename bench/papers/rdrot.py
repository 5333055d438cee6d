"""RDROT (Lindback, Wang, Johansson, 2023): plans with quadratic and group-lasso terms by Douglas-Rachford splitting.

The published numbers are of a V100. Clouds are those of the authors' generators, with other random numbers. Weights of
the quadratic term are alpha, which stands for (n + m) alpha / 2 |X|^2.
"""

import time

import numpy as np
import torch
from sheet import curve, finish, ratio

import monge


def gaussian_costs(n, m, seed):
    """Two clouds in the plane with random means and covariances; the largest cost is 1."""
    random = np.random.default_rng(seed)
    x = random.normal(size=2) + random.normal(size=(n, 2)) @ random.uniform(size=(2, 2)).T
    y = random.normal(5, 10, size=2) + random.normal(size=(m, 2)) @ random.uniform(size=(2, 2)).T
    cost = ((x[:, None] - y[None]) ** 2).sum(-1)
    return cost / cost.max()


def domains(n, m, classes, seed):
    """Labelled sources, and targets of the same classes under a random affine map."""
    random = np.random.default_rng(seed)
    centres = random.uniform(-10, 10, size=(classes, 2))
    source_labels, target_labels = (np.sort(np.arange(k) % classes) for k in (n, m))
    source, target = (
        centres[v] + 2 / np.sqrt(classes) * random.normal(size=(len(v), 2)) for v in (source_labels, target_labels)
    )
    map_ = random.normal(size=(2, 2))
    target = target @ (0.3 * np.eye(2) + 0.7 * map_.T @ map_ / 2) + 5 * random.normal(size=2)
    cost = ((source[:, None] - target[None]) ** 2).sum(-1)
    return source, source_labels, target, target_labels, cost / cost.max()


def support(sheet):
    """Figure 1: residual and number of positive entries, iteration by iteration."""
    n = 100 if sheet.small else 500
    cost = sheet.tensor(gaussian_costs(n, n, 0), dtype=None)
    rows = []
    counts = (10, 20, 50, 100, 200, 400, 800, 1600)
    for count in counts:
        result = monge.solve_regularized(
            cost,
            quadratic=2 * n * 1e-2,
            method="splitting",
            accelerate=False,
            tol=0,
            max_iter=count,
            precision="float64",
        )
        rows.append(
            [
                count,
                float(result.report.primal_residual),
                int(result.report.nonzeros),
                int(result.report.nonzeros) / n**2,
            ]
        )
    sheet.table(
        "support",
        f"Figure 1: residual and support, quadratic term, n = {n}",
        ["iteration", "|residual|", "positive entries", "share"],
        rows,
        "Published as curves: linear convergence begins where the support settles.",
    )

    def draw(axes):
        axes[0].loglog([r[0] for r in rows], [r[1] for r in rows], marker=".", label="residual")
        finish(axes[0], "iteration", "residual")
        axes[1].semilogx([r[0] for r in rows], [r[2] for r in rows], marker=".", label="positive entries")
        finish(axes[1], "iteration", "positive entries")

    sheet.picture("support", "Figure 1: residual and support", draw, panels=2)


def dual_descent(cost, weight, tolerance):
    """The dual of the quadratic problem by PyTorch's L-BFGS, in float64."""
    n, m = cost.shape
    potentials = torch.zeros(n + m, dtype=torch.float64, device=cost.device, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [potentials],
        max_iter=2000,
        history_size=10,
        tolerance_grad=tolerance / 5,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )

    def closure():
        optimiser.zero_grad()
        positive = (potentials[:n, None] + potentials[n:] - cost).clamp_min(0)
        loss = positive.square().sum() / (2 * weight) - potentials[:n].mean() - potentials[n:].mean()
        loss.backward()
        return loss

    optimiser.step(closure)
    return potentials


def quadratic(sheet):
    """Figures 2 and 7: time to a residual of 1e-4 by weight."""
    sizes, sets = ((100,), 3) if sheet.small else ((500, 5000), 50)
    rows = []
    for n in sizes:
        for alpha in (0.0, 5e-4, 1e-3, 1e-2, 1e-1, 2e-1):
            found = {"auto": [], "splitting": [], "L-BFGS": []}
            costs = [
                sheet.tensor(gaussian_costs(n, n, seed), dtype=None)
                for seed in range(min(sets, 50 if n <= 1000 else 5))
            ]
            for cost in costs:
                weight = 2 * n * alpha
                options = {"quadratic": weight, "tol": 1e-4 * np.sqrt(n / 2), "criterion": "residual"}
                found["auto"].append(
                    sheet.milliseconds(lambda: monge.solve_regularized(cost, **options), seconds=0, least=1)
                )
                found["splitting"].append(
                    sheet.milliseconds(
                        lambda: monge.solve_regularized(cost, method="splitting", accelerate=False, **options),
                        seconds=0,
                        least=1,
                    )
                )
                if alpha > 0 and n <= 1000:
                    found["L-BFGS"].append(sheet.peer(lambda: dual_descent(cost, weight, 1e-4), seconds=0, least=1))
            median = {
                name: float(np.median([v for v in values if v is not None]))
                if any(v is not None for v in values)
                else None
                for name, values in found.items()
            }
            rows.append(
                [
                    n,
                    f"{alpha:g}",
                    len(costs),
                    median["auto"],
                    median["splitting"],
                    median["L-BFGS"],
                    ratio(median["L-BFGS"], median["splitting"]),
                ]
            )
    sheet.table(
        "quadratic",
        "Figures 2 and 7: quadratic term, milliseconds to a residual of 1e-4",
        ["n = m", "alpha", "sets", "Monge auto", "Monge splitting", "L-BFGS of the dual", "L-BFGS / splitting"],
        rows,
        "Published as curves: QDROT is one to two orders of magnitude faster than L-BFGS.",
    )

    def draw(axes):
        for k, name in ((3, "Monge auto"), (4, "Monge splitting"), (5, "L-BFGS")):
            for n in sizes:
                here = [row for row in rows if row[0] == n and float(row[1]) > 0]
                curve(axes[0], [float(row[1]) for row in here], [row[k] for row in here], f"{name}, n = {n}")
        finish(axes[0], "alpha", "milliseconds")

    sheet.picture("quadratic", "Figure 2: quadratic term", draw)


def adapted_domains(sheet):
    """Figure 3: where each regulariser moves the sources."""
    n = 60 if sheet.small else 300
    source, labels, target, target_labels, cost = domains(n, n, 3, 1)
    given = sheet.tensor(cost, dtype=None)
    results = {
        "entropy 1e-2": monge.solve(given, reg=1e-2),
        "quadratic 1e-1": monge.solve_regularized(given, quadratic=2 * n * 1e-1),
        "group lasso 1e-4": monge.solve_regularized(given, group_lasso=group_weight(1e-4, n, n, 3), groups=labels),
    }
    rows, moved = [], {}
    for name, result in results.items():
        points = result.average(sheet.tensor(target, dtype=None)).cpu().numpy()
        moved[name] = points
        spread = np.mean(
            [
                np.linalg.det(np.cov(points[labels == k].T)) / np.linalg.det(np.cov(target[target_labels == k].T))
                for k in range(3)
            ]
        )
        distance = sum(squared_wasserstein(points[labels == k], target[target_labels == k]) for k in range(3))
        rows.append([name, float(np.sqrt(max(spread, 0))), distance])
    sheet.table(
        "adapted_domains",
        "Figure 3: adapted classes beside those of the target",
        ["term and the authors' weight", "ratio of areas", "W2^2 to the target"],
        rows,
        "Published as a picture, without weights: entropy and the quadratic term shrink the classes, group "
        "lasso keeps them.",
    )

    def draw(axes):
        for panel, (name, points) in zip(axes, moved.items()):
            panel.scatter(*target.T, c="0.8", s=10)
            panel.scatter(*points.T, c=labels, cmap="brg", s=8)
            panel.set_title(name, fontsize=9)

    sheet.picture("adapted_domains", "Figure 3: supports of adapted domains", draw, panels=3)


def squared_wasserstein(x, y):
    import ot

    return ot.emd2(np.full(len(x), 1 / len(x)), np.full(len(y), 1 / len(y)), ot.dist(x, y))


def group_weight(w, n, m, classes):
    """The weight of the term that the authors' program calls w, at its step rho = 2."""
    return w * (n + m) / (2 * np.sqrt(n / classes))


def group_lasso(sheet):
    """Table 1: time and distance of the adapted classes to the target's, beside POT's conditional gradients."""
    n, m, classes, sets = (120, 80, 2, 3) if sheet.small else (1500, 1000, 2, 10)
    found = {}
    for seed in range(sets):
        source, labels, target, target_labels, cost = domains(n, m, classes, seed)
        given, targets = sheet.tensor(cost, dtype=None), sheet.tensor(target, dtype=None)
        for weight in (1e-3, 5e-3):
            own = group_weight(weight, n, m, classes)

            def solve(own=own):
                return monge.solve_regularized(
                    given,
                    group_lasso=own,
                    groups=labels,
                    tol=1e-4 / np.sqrt(1 / n + 1 / m),
                    criterion="residual",
                    method="splitting",
                )

            milliseconds = sheet.milliseconds(solve, seconds=0, least=1)
            points = solve().average(targets).cpu().numpy()
            distance = sum(squared_wasserstein(points[labels == k], target[target_labels == k]) for k in range(classes))
            found.setdefault(("Monge", "-", weight), []).append((milliseconds / 1e3, distance))
        try:
            import ot

            for entropy in (1e-3, 1e-1) if not sheet.small else (1e-1,):
                begin = time.perf_counter()
                plan = ot.da.sinkhorn_lpl1_mm(np.full(n, 1 / n), labels, np.full(m, 1 / m), cost, reg=entropy, eta=1e-3)
                seconds = time.perf_counter() - begin
                points = plan @ target * n
                distance = sum(
                    squared_wasserstein(points[labels == k], target[target_labels == k]) for k in range(classes)
                )
                found.setdefault(("POT sinkhorn_lpl1_mm", entropy, 1e-3), []).append((seconds, distance))
        except ImportError:
            pass
    rows = [
        [*key, *(float(np.quantile([v[k] for v in values], q)) for k in (0, 1) for q in (0.5, 0.1, 0.9))]
        for key, values in found.items()
    ]
    sheet.table(
        "group_lasso",
        f"Table 1: group lasso, {n} x {m}, {classes} classes, {sets} sets",
        ["method", "entropy", "weight", "seconds", "q10", "q90", "W2^2", "q10", "q90"],
        rows,
        "Published, 1500 x 1000: GLDROT 0.0619 s and 0.0576 at 1e-3, 0.0384 s and 0.0879 at 5e-3; GLSK 3.77 s"
        " and 0.311 at entropy 1e-3, 3.73 s and 8.24 at 1e-1.",
    )


def iterations(sheet):
    """Table 3 and figure 6: milliseconds of an iteration."""
    published = {4096: 0.3453, 4095: 0.3417, 8192: 1.152, 8191: 1.153, 10240: 1.808, 10239: 1.781}
    sizes = (255, 256, 500) if sheet.small else (100, 500, 1000, 2000, 4095, 4096, 8191, 8192, 10239, 10240)
    count = 100
    rows = []
    for n in sizes:
        cost = sheet.tensor(np.random.default_rng(n).uniform(size=(n, n)))

        def each(call):
            return (sheet.milliseconds(lambda: call(count * 2)) - sheet.milliseconds(lambda: call(count))) / count

        def splitting(**term):
            def call(number):
                return monge.solve_regularized(
                    cost, method="splitting", accelerate=False, tol=0, max_iter=number, precision="float32", **term
                )

            return each(call)

        row = [n, splitting(quadratic=2 * n * 1e-2)]
        row += [splitting(group_lasso=1e-2, groups=np.arange(n) * k // n) for k in (2, 4)]
        row.append(
            each(
                lambda number: monge.solve(
                    cost,
                    reg=0.05,
                    tol=0,
                    max_iter=number,
                    precision="float32",
                    schedule="alternating",
                    certificate=False,
                )
            )
        )
        rows.append([*row, published.get(n)])
    sheet.table(
        "iterations",
        "Table 3, figure 6: milliseconds of an iteration",
        ["n = m", "quadratic", "group lasso, 2", "group lasso, 4", "a Sinkhorn sweep", "published: quadratic"],
        rows,
    )

    def draw(axes):
        for k, name in enumerate(("quadratic", "group lasso, 2", "group lasso, 4", "Sinkhorn")):
            curve(axes[0], [row[0] for row in rows], [row[1 + k] for row in rows], name)
        finish(axes[0], "n", "milliseconds")

    sheet.picture("iterations", "Figure 6: an iteration", draw)


EXPERIMENTS = (support, quadratic, adapted_domains, group_lasso, iterations)
