"""
jax.grad of a transport loss
============================

A rotation, a scale and a translation are fitted to take one cloud to another. The clouds differ in number and order of
points. The loss is the Sinkhorn divergence :func:`monge.jax.sinkhorn_divergence`: jax.grad
differentiates through it, and jax.jit compiles the step around it.

.. image:: /docs/images/jax_gradient.jpg
   :alt: both clouds before and after, and the loss along the steps
"""

# sphinx_gallery_thumbnail_path = "docs/images/jax_gradient.jpg"
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import monge.jax

# %%
# An arrow, and points of a smaller one that is turned by 1.2 radians.
TRUTH = jnp.array([1.2, 0.6, 1.5, -0.5])  # angle, scale, translation


def arrow(key, n):
    where, which, side = jax.random.split(key, 3)
    t, shaft = jax.random.uniform(where, (n,)), jax.random.uniform(which, (n,)) < 0.6
    sign = jnp.where(jax.random.bernoulli(side, shape=(n,)), 1.0, -1.0)
    return jnp.stack([jnp.where(shaft, 2 * t, 2 - 0.7 * t), jnp.where(shaft, 0, 0.5 * t * sign)], 1)


def move(parameters, points):
    angle, scale, right, up = parameters
    turn = jnp.array([[jnp.cos(angle), jnp.sin(angle)], [-jnp.sin(angle), jnp.cos(angle)]])
    return scale * points @ turn + jnp.array([right, up])


key, other = jax.random.split(jax.random.key(0))
x, y = arrow(key, 300), move(TRUTH, arrow(other, 400))


# %%
# The loss and its gradient by the four numbers. The transport itself is one call in the compiled step.
def loss(parameters):
    return monge.jax.sinkhorn_divergence(move(parameters, x), y, reg=0.01)


@jax.jit
def step(parameters, momentum):
    value, gradient = jax.value_and_grad(loss)(parameters)
    momentum = 0.8 * momentum + gradient
    return value, parameters - 0.1 * momentum, momentum


parameters, momentum = jnp.array([0.0, 1.0, 0.0, 0.0]), jnp.zeros(4)
values = []
for _ in range(120):
    value, parameters, momentum = step(parameters, momentum)
    values.append(float(value))
print("angle, scale, translation:", parameters.round(2))

# %%
# The picture.
figure, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
for axis, points, title in ((axes[0], x, "before"), (axes[1], move(parameters, x), "after")):
    axis.scatter(*y.T, s=6, color="silver")
    axis.scatter(*points.T, s=6, color="tab:blue")
    axis.set(title=title, xticks=[], yticks=[], xlim=(-0.2, 2.7), ylim=(-0.7, 1.5))
axes[2].semilogy(values)
axes[2].set(title="loss", xlabel="step")
figure.savefig("jax_gradient.png")
