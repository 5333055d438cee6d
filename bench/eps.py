"""What eps does to a plan, as rows of the table in docs/guide.md: python bench/eps.py"""

import numpy as np

import monge

random = np.random.default_rng(0)
x, y = random.uniform(size=(1000, 2)), random.uniform(size=(1000, 2)) ** [1, 2]
exact = monge.solve_regularized_sample(x, y, tolerance=1e-7).value_linear
for share in (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001):
    result = monge.solve_sample(x, y, eps_relative=share)
    divergence = monge.sinkhorn_divergence(x, y, eps_relative=share).value
    rows = len(x) * result.plan
    partners = np.exp(-(rows * np.log(np.maximum(rows, 1e-300))).sum(1)).mean()
    spread = (result.transform().std(0) / y.std(0)).mean()
    cells = (
        f"{share:g}", f"{result.reg:.1g}", f"{result.value_linear / exact:.2f}", f"{divergence / exact:.2f}",
        f"{partners:.0f}", f"{spread:.2f}", f"{result.n_iter}", f"{1e3 * result.report.seconds:.0f}",
    )  # fmt: skip
    print("|", " | ".join(cells), "|")
