"""A user's first program: a problem of one's own, its certificate and its gradient, from an installed Monge and NumPy.

Bakeries deliver to cafes. The exact plan takes the city block distance as cost, the entropic one the squared distance.
Its value changes with the places of the bakeries as the gradient says: the difference quotient of two solves agrees.
"""

import importlib
import time
from pathlib import Path

import numpy as np

begin = time.process_time()
monge = importlib.import_module("monge")
seconds = time.process_time() - begin
assert not Path(monge.__file__).is_relative_to(Path(__file__).parents[2]), "the source tree is no installed Monge"
print(f"import monge: {1000 * seconds:.0f} ms beside NumPy")
assert seconds < 0.1  # CPU time, so the load of the machine has little part in it.

random = np.random.default_rng(2026)
bakeries, cafes = random.uniform(0, 10, (40, 2)), random.uniform(0, 10, (60, 2))
bread = random.uniform(1, 3, 40)
orders = random.uniform(1, 3, 60)
orders *= bread.sum() / orders.sum()

cost = abs(bakeries[:, None] - cafes).sum(2)
exact = monge.solve(cost, bread, orders)
assert np.allclose(exact.plan.sum(1), bread) and np.allclose(exact.plan.sum(0), orders)
print(f"monge {monge.__version__}: {exact.value:.3f} kilometres times loaves at least")

# The cost of a pair has slopes of at most 20, so the third derivative of the value is of the size 20^3 / reg^2, a
# hundred times a slope. The central difference misses step^2 / 6 of it, 2e-5 of the slope. The error of a solve is of
# the second order in tol.
options = {"reg": 2.0, "tol": 1e-10}
result = monge.solve_sample(bakeries, cafes, bread, orders, **options)
assert result.status == "converged"
gradient = result.gradients().x
step, direction = 1e-3, random.normal(size=bakeries.shape)
ahead, behind = (
    monge.solve_sample(bakeries + sign * step * direction, cafes, bread, orders, **options).value for sign in (1, -1)
)
slope = (ahead - behind) / (2 * step)
predicted = (gradient * direction).sum()
print(f"marginal error {result.marginal_error:.0e}, slope {slope:.6f}, by the gradient {predicted:.6f}")
assert np.isclose(predicted, slope, rtol=1e-4)
