"""
Registration by Newton's method
===============================

Six numbers, a matrix and a shift, take one shape to the other. They enter the points linearly, so the Hessian of the
divergence by them is six products of the Hessian by the points: one solve a step and no second derivative by hand.
Gradient steps come near; from there Newton's method doubles the digits with each step.
"""

import matplotlib.pyplot as plt
import numpy as np

import monge

random = np.random.default_rng(0)
angle = np.sort(random.uniform(0, 2 * np.pi, 300))
x = (1 + 0.3 * np.cos(3 * angle) + 0.2 * np.sin(angle))[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
truth = np.array([[1.2, 0.2], [-0.3, 0.8], [0.7, -0.4]])  # y = (x, 1) truth
design = np.column_stack([x, np.ones(300)])
y = design @ truth
directions = [np.outer(column, unit) for column in design.T for unit in np.eye(2)]  # of the points, by each number


def derivatives(parameters):
    loss = monge.sinkhorn_divergence(design @ parameters, y, reg=0.05, tol=1e-11)
    gradient = design.T @ loss.gradients().x
    hessian = []
    for along in directions:  # OT(x, x) moves with both of its sides.
        pair, (own_x, own_y, _) = loss.ab.hessian_product(along)[0], loss.aa.hessian_product(along, along)
        hessian.append((design.T @ (pair - (own_x + own_y) / 2)).ravel())
    return loss.value, gradient, np.array(hessian)


parameters = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
shapes, norms = [x], []
for step in range(12):
    value, gradient, hessian = derivatives(parameters)
    norms.append(np.linalg.norm(gradient))
    newton = step >= 5
    change = np.linalg.solve(hessian, gradient.ravel()).reshape(3, 2) if newton else 0.4 * gradient
    parameters = parameters - change
    shapes.append(design @ parameters)
    if norms[-1] < 1e-9:
        break

# %%
# The picture.
figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
for k, shape in enumerate(shapes):
    axes[0].plot(*shape.T, color=plt.cm.viridis(k / len(shapes)), lw=1)
axes[0].plot(*y.T, "k.", ms=2)
axes[0].set_aspect("equal")
axes[1].semilogy(norms, "o-")
axes[1].axvline(5, color="0.7")
axes[1].set_xlabel("step: five of the gradient, then Newton's")
axes[1].set_title("norm of the gradient")
figure.savefig("newton_registration.png", dpi=120)
