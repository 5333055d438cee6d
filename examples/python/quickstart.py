import numpy as np

import monge

x = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])  # three points in the plane
y = np.array([[5.0, 5.0], [6.0, 5.0], [5.0, 6.0], [6.0, 6.0]])  # and four to take them to
result = monge.solve_sample(x, y, reg=0.1)

for i, (before, after) in enumerate(zip(x, result.transform())):
    print(f"x{i} {before} -> {after.round(3)}")
print(f"<C, P> = {result.value_linear:.4f}, marginal error {result.marginal_error:.1e}")
