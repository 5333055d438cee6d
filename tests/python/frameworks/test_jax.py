"""JAX on the CPU: arrays in and out, the loss and the projection with their derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import monge
import monge.jax


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def clouds(dtype=jnp.float64):
    random = np.random.default_rng(0)
    return jnp.asarray(random.normal(size=(9, 2)), dtype), jnp.asarray(random.normal(size=(8, 2)) + 0.5, dtype)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_arrays_in_arrays_out(dtype):
    x, y = clouds(dtype)
    result = monge.solve_sample(x, y, reg=0.5)
    expected = monge.solve_sample(np.asarray(x), np.asarray(y), reg=0.5)
    for array in (result.plan, result.value, *result.potentials, result.transform(), result.topk(2)[1]):
        assert isinstance(array, jax.Array) and array.dtype == dtype
    np.testing.assert_array_equal(result.plan, expected.plan)


@pytest.mark.parametrize("unbalanced", [None, 1.0])
def test_derivatives(unbalanced):
    x, y = clouds()
    p, q = jnp.linspace(0, 1, 9), jnp.linspace(1, 0, 8)

    def loss(x, y, p, q):
        a, b = jax.nn.softmax(p), jax.nn.softmax(q)
        return monge.jax.transport(x, y, a, b, reg=0.5, tol=1e-13, unbalanced=unbalanced)

    check_grads(loss, (x, y, p, q), order=1, modes=["rev"], atol=1e-6, rtol=1e-6, eps=1e-5)
    np.testing.assert_allclose(jax.jit(loss)(x, y, p, q), loss(x, y, p, q), rtol=1e-12)
    each = jax.vmap(loss, in_axes=(0, None, None, None))(jnp.stack([x, x + 1]), y, p, q)
    np.testing.assert_allclose(each[1], loss(x + 1, y, p, q), rtol=1e-12)


def test_projection():
    logits = jnp.asarray(np.random.default_rng(0).normal(size=(5, 4, 4)), jnp.float32)

    def reference(logits):
        matrix = jnp.exp(logits)
        for _ in range(20):
            for axis in (-2, -1):
                matrix = matrix / matrix.sum(axis, keepdims=True)
        return matrix

    def loss(project, logits):
        return (project(logits) * jnp.arange(16.0).reshape(4, 4)).sum()

    own, other = (lambda v: monge.jax.project(v, "mhc_paper")), reference
    np.testing.assert_allclose(own(logits), other(logits), rtol=1e-4)
    found = jax.jit(jax.grad(lambda v: loss(own, v)))(logits)
    # Sums of 16 terms of up to 16, in float32.
    np.testing.assert_allclose(found, jax.grad(lambda v: loss(other, v))(logits), atol=16 * 16 * 2**-22)
    np.testing.assert_allclose(jax.vmap(own)(logits[None])[0], own(logits), rtol=1e-6)
