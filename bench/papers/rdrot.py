"""RDROT (Lindback, Wang, Johansson, 2023): plans with quadratic and group-lasso terms by Douglas-Rachford splitting.

The published numbers are of a V100. Clouds are those of the authors' generators, with other random numbers. Weights of
the quadratic term are alpha, which stands for (n + m) alpha / 2 |X|^2.
"""

import functools

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
    table = sheet.table(
        "support",
        f"Figure 1: residual and support, quadratic term, n = {n}",
        ["iteration", "residual", "positive entries", "share"],
        "Published as curves: linear convergence begins where the support settles.",
    )
    options = {"method": "splitting", "accelerate": False, "tol": 0, "precision": "float64"}
    for count in (10, 20, 50, 100, 200, 400, 800, 1600):
        report = monge.solve_regularized(cost, quadratic=2 * n * 1e-2, max_iter=count, **options).report
        nonzeros = int(report.nonzeros)
        table.row(count, float(report.primal_residual), nonzeros, nonzeros / n**2)

    def draw(axes):
        axes[0].loglog([r[0] for r in table.rows], [r[1] for r in table.rows], marker=".", label="residual")
        finish(axes[0], "iteration", "residual")
        axes[1].semilogx([r[0] for r in table.rows], [r[2] for r in table.rows], marker=".", label="positive entries")
        finish(axes[1], "iteration", "positive entries")

    sheet.picture("support", "Figure 1: residual and support", draw, panels=2)


def dual_descent(cost, weight, tolerance, iterations=500):
    """The dual of the quadratic problem by PyTorch's L-BFGS, in float64."""
    n, m = cost.shape
    potentials = torch.zeros(n + m, dtype=torch.float64, device=cost.device, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [potentials],
        max_iter=iterations,
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
    if optimiser.state[potentials]["n_iter"] >= iterations:
        raise RuntimeError(f"L-BFGS is not at {tolerance:g} after {iterations} iterations")


def quadratic(sheet):
    """Figure 2: time to a residual of 1e-4 by weight."""
    sizes = {100: 3} if sheet.small else {500: 10, 5000: 2}  # and the number of data sets
    table = sheet.table(
        "quadratic",
        "Figure 2: quadratic term, median milliseconds to a residual of 1e-4",
        ["n = m", "alpha", "sets", "Monge auto", "Monge splitting", "L-BFGS of the dual", "L-BFGS / splitting"],
        "Published as curves: QDROT is one to two orders of magnitude faster than L-BFGS.",
    )
    for n, sets in sizes.items():
        costs = [sheet.tensor(gaussian_costs(n, n, seed), dtype=None) for seed in range(sets)]
        for alpha in (0.0, 5e-4, 1e-3, 1e-2, 1e-1, 2e-1):
            weight = 2 * n * alpha
            options = {"quadratic": weight, "tol": 1e-4 * np.sqrt(n / 2), "criterion": "residual"}
            row = table.row(n, f"{alpha:g}", sets)
            for method in ({}, {"method": "splitting", "accelerate": False}):

                def solve(cost, options=options | method):
                    return monge.solve_regularized(cost, **options)

                row.append(np.median([sheet.milliseconds(lambda: solve(cost), seconds=0, least=1) for cost in costs]))
            if alpha > 0:

                def descend(cost, weight=weight):
                    return sheet.milliseconds(lambda: dual_descent(cost, weight, 1e-4), seconds=0, least=1)

                found = [sheet.peer("L-BFGS", lambda: descend(cost)) for cost in costs]
                found = None if None in found else np.median(found)
                row += [found, ratio(found, row[-1])]

    def draw(axes):
        for k, name in ((3, "Monge auto"), (4, "Monge splitting"), (5, "L-BFGS")):
            for n in sizes:
                here = [row for row in table.rows if row[0] == n and float(row[1]) > 0]
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
    table = sheet.table(
        "adapted_domains",
        "Figure 3: adapted classes beside those of the target",
        ["term and the authors' weight", "ratio of areas", "W2^2 to the target"],
        "Published as a picture, without weights: entropy and the quadratic term shrink the classes, group "
        "lasso keeps them.",
    )
    moved = {}
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
        table.row(name, float(np.sqrt(max(spread, 0))), distance)

    def draw(axes):
        for panel, (name, points) in zip(axes, moved.items()):
            panel.scatter(*target.T, c="0.8", s=10)
            panel.scatter(*points.T, c=labels, cmap="brg", s=8)
            panel.set_title(name, fontsize=9)

    sheet.picture("adapted_domains", "Figure 3: supports of adapted domains", draw, panels=3)


def squared_wasserstein(x, y):
    return monge.solve_exact_sample(x, y).value


def group_weight(w, n, m, classes):
    """The weight of the term that the authors' program calls w, at its step rho = 2."""
    return w * (n + m) / (2 * np.sqrt(n / classes))


def group_lasso(sheet):
    """Table 1: time and distance of the adapted classes to the target's, beside POT's conditional gradients."""
    n, m, classes, sets = (120, 80, 2, 3) if sheet.small else (1500, 1000, 2, 10)
    table = sheet.table(
        "group_lasso",
        f"Table 1: group lasso, {n} x {m}, {classes} classes, {sets} sets",
        ["method", "entropy", "weight", "seconds", "q10", "q90", "W2^2", "q10", "q90"],
        "Published, 1500 x 1000: GLDROT 0.0619 s and 0.0576 at 1e-3, 0.0384 s and 0.0879 at 5e-3; GLSK 3.77 s"
        " and 0.311 at entropy 1e-3, 3.73 s and 8.24 at 1e-1.",
    )

    def splitting(cost, labels, target, weight):
        result = monge.solve_regularized(
            cost,
            group_lasso=group_weight(weight, n, m, classes),
            groups=labels,
            tol=1e-4 / np.sqrt(1 / n + 1 / m),
            criterion="residual",
            method="splitting",
        )
        return result.average(target)

    def conditional_gradients(cost, labels, target, weight, entropy):
        import ot

        a, b = (torch.full((k,), 1 / k, dtype=cost.dtype, device=cost.device) for k in (n, m))
        plan = ot.da.sinkhorn_lpl1_mm(a, torch.as_tensor(labels, device=cost.device), b, cost, entropy, eta=weight)
        return n * plan @ target

    def measured(method, seed, **weights):
        """Seconds, and the sum of W2^2 of the classes."""
        _, labels, target, target_labels, cost = domains(n, m, classes, seed)
        given = sheet.tensor(cost, dtype=None), labels, sheet.tensor(target, dtype=None)
        milliseconds = sheet.milliseconds(lambda: method(*given, **weights), seconds=0, least=1)
        points = method(*given, **weights).cpu().numpy()
        classes_apart = (squared_wasserstein(points[labels == k], target[target_labels == k]) for k in range(classes))
        return milliseconds / 1e3, sum(classes_apart)

    def quantiles(found):
        return [float(np.quantile([v[k] for v in found], q)) for k in (0, 1) for q in (0.5, 0.1, 0.9)]

    for weight in (1e-3, 5e-3):
        table.row("Monge", "-", weight, *quantiles([measured(splitting, seed, weight=weight) for seed in range(sets)]))
    for entropy in (1e-1,) if sheet.small else (1e-1, 1e-3):
        weights = {"weight": 1e-3, "entropy": entropy}
        calls = [functools.partial(measured, conditional_gradients, seed, **weights) for seed in range(sets)]
        found = [values for call in calls if (values := sheet.peer("POT sinkhorn_lpl1_mm", call))]
        if found:
            table.row("POT sinkhorn_lpl1_mm", entropy, 1e-3, *quantiles(found))


def iterations(sheet):
    """Table 3 and figure 6: milliseconds of an iteration."""
    published = {4096: 0.3453, 4095: 0.3417, 8192: 1.152, 8191: 1.153, 10240: 1.808, 10239: 1.781}
    sizes = (255, 256, 500) if sheet.small else (100, 500, 1000, 2000, 4095, 4096, 8191, 8192, 10239, 10240)
    count = 100
    table = sheet.table(
        "iterations",
        "Table 3, figure 6: milliseconds of an iteration",
        ["n = m", "published: quadratic", "quadratic", "group lasso, 2", "group lasso, 4", "a Sinkhorn sweep"],
    )
    for n in sizes:
        cost = torch.rand((n, n), device=sheet.device)
        fixed = {"tol": 0, "precision": "float32"}

        def splitting(number, fixed=fixed, cost=cost, **term):
            monge.solve_regularized(cost, method="splitting", accelerate=False, max_iter=number, **fixed, **term)

        def sweeps(number, fixed=fixed, cost=cost):
            monge.solve(cost, reg=0.05, schedule="alternating", certificate=False, max_iter=number, **fixed)

        row = table.row(n, published.get(n))
        for call in (
            functools.partial(splitting, quadratic=2 * n * 1e-2),
            *(functools.partial(splitting, group_lasso=1e-2, groups=np.arange(n) * k // n) for k in (2, 4)),
            sweeps,
        ):
            twice, once = (sheet.milliseconds(lambda: call(number)) for number in (2 * count, count))
            row.append((twice - once) / count)

    def draw(axes):
        for k, name in enumerate(("quadratic", "group lasso, 2", "group lasso, 4", "Sinkhorn")):
            curve(axes[0], [row[0] for row in table.rows], [row[2 + k] for row in table.rows], name)
        finish(axes[0], "n", "milliseconds")

    sheet.picture("iterations", "Figure 6: an iteration", draw)


EXPERIMENTS = (support, adapted_domains, iterations, group_lasso, quadratic)
