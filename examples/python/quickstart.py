import numpy as np

import monge

x = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])  # three points in the plane
y = np.array([[5.0, 5.0], [6.0, 5.0], [5.0, 6.0], [6.0, 6.0]])  # four targets
result = monge.solve_sample(x, y, reg=0.1)
print(result.transform(), result.value_linear, result.marginal_error)  # mean targets of x, <C, P>, certificate
