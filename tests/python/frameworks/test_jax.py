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


def test_results_are_taken_over_without_a_copy():
    result = monge.solve_sample(*clouds(), reg=0.5)
    for shape in ((5,), (3, 7)):
        buffer = result._place.empty(*shape)
        assert result._place.finish(buffer).unsafe_buffer_pointer() == buffer.ctypes.data


GROUPS = jnp.arange(9) % 3
QUADRATIC = {"quadratic": 1.0, "tolerance": 1e-12}
LASSO = {"group_lasso": 0.05, "groups": GROUPS, "quadratic": 0.2, "tolerance": 1e-11, "iterations": 10**6}


def costs(*batch):
    return jnp.asarray(np.random.default_rng(0).random((*batch, 9, 8)))


@pytest.mark.parametrize("terms", [QUADRATIC, LASSO], ids=["quadratic", "group_lasso"])
def test_regularised_derivatives(terms):
    p, q = jnp.linspace(0, 1, 9), jnp.linspace(1, 0, 8)

    def loss(cost, p, q):
        a, b = jax.nn.softmax(p), jax.nn.softmax(q)
        return monge.jax.regularized_transport(cost, a, b, **terms)[0]

    # Values are good to 1e-11 of themselves, so their differences over eps to 1e-6; they are piecewise smooth.
    check_grads(loss, (costs(), p, q), order=1, modes=["rev"], atol=1e-5, rtol=1e-5, eps=1e-5)
    assert jax.jit(loss)(costs(), p, q) == loss(costs(), p, q)
    batch = costs(3)
    by_cost = jax.jit(jax.vmap(jax.grad(loss), in_axes=(0, None, None)))(batch, p, q)
    for k in range(3):
        plan = monge.solve_regularized(batch[k], jax.nn.softmax(p), jax.nn.softmax(q), **terms).plan
        np.testing.assert_array_equal(by_cost[k], plan)


def test_regularised_values_and_plans():
    cost = costs()
    for given in (cost, cost.astype("float32")):
        value, plan = jax.jit(lambda c: monge.jax.regularized_transport(c, mask=c < 0.95, **QUADRATIC))(given)
        result = monge.solve_regularized(given, mask=given < 0.95, **QUADRATIC)
        assert value.dtype == plan.dtype == given.dtype and value == result.value
        np.testing.assert_array_equal(plan, result.plan)

    value, plan = monge.jax.regularized_transport(cost, quadratic=1.0, tol=QUADRATIC["tolerance"], max_iter=20000)
    np.testing.assert_array_equal(plan, monge.solve_regularized(cost, **QUADRATIC).plan)
    with pytest.raises(ValueError, match="^tol: is given with tolerance"):
        monge.jax.regularized_transport(cost, tol=1e-3, **QUADRATIC)

    def both(c):
        return monge.jax.regularized_transport(c, **QUADRATIC)

    for transform in (lambda f: f, jax.jit):
        (value, plan), gradient = transform(jax.value_and_grad(both, has_aux=True))(cost)
        np.testing.assert_array_equal(gradient, plan)


def test_what_has_no_derivative():
    cost, w = costs(), jnp.ones((9, 8))

    def value(c, w=None):
        return monge.jax.regularized_transport(c, l1=0.1, l1_weights=w, **QUADRATIC)[0]

    def plan(c):
        return (monge.jax.regularized_transport(c, **QUADRATIC)[1] ** 2).sum()

    for transform in (lambda f: f, jax.jit):
        with pytest.raises(NotImplementedError, match="^regularized_transport: the plan has no derivatives"):
            transform(jax.grad(plan))(cost)
        with pytest.raises(NotImplementedError, match="not by the regulariser"):
            transform(jax.grad(value, 1))(cost, w)
        with pytest.raises(ValueError, match="JVP"):
            transform(jax.hessian(lambda c: monge.jax.regularized_transport(c, **QUADRATIC)[0]))(cost)


def test_weights_left_out_are_uniform_to_float64():
    """1 / 9 in float32 would not sum to what 1 / 8 does, to the tolerance."""
    x, y = clouds(jnp.float32)
    value, gradient = jax.value_and_grad(lambda x: monge.jax.transport(x, y, reg=0.5, tol=1e-12))(x)
    result = monge.solve_sample(x, y, reg=0.5, tol=1e-12)
    assert value == jnp.float32(result.report.dual)
    np.testing.assert_array_equal(gradient, result.gradients().x)


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


@pytest.mark.parametrize("dtype", ["int32", "bool", "bfloat16"])
def test_other_dtypes_keep_the_value(dtype):
    x, y = (jnp.asarray(3 * np.random.default_rng(n).random((n, 2)), dtype) for n in (5, 6))
    value = monge.jax.transport(x, y, reg=0.5)
    wide = jnp.result_type(float) if dtype != "bfloat16" else value.dtype
    assert value == monge.jax.transport(x.astype(wide), y.astype(wide), reg=0.5)
    costs = jnp.asarray([[0, 1], [1, 0]], dtype)
    value = monge.jax.regularized_transport(costs, quadratic=0.3)[0]
    assert abs(value - 0.075) < 1e-4 * 0.075  # The tolerance of the gap.
