import numpy as np

import monge

x = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])  # three points in the plane
y = np.array([[5.0, 5.0], [6.0, 5.0], [5.0, 6.0], [6.0, 6.0]])  # four targets
result = monge.solve_sample(x, y, reg=0.1)
print(result.transform().round(2))  # the mean target of each point of x
print(f"<C, P> = {result.value_linear:.3f}", f"certified: {result.marginal_error < 1e-6}")
