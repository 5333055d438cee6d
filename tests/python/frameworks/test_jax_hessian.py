"""Second derivatives of JAX by points, beside JAX's own derivatives of a dense Sinkhorn in the log domain."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import logsumexp
from jax.test_util import check_grads

import monge.jax

N, M, EPS, SWEEPS = 5, 4, 0.6, 200
LOSSES = {"transport": monge.jax.transport, "sinkhorn_divergence": monge.jax.sinkhorn_divergence}
LABELS = {
    "labels_x": np.arange(N) % 2,
    "labels_y": np.arange(M) % 2,
    "label_cost": np.array([[0.0, 0.4], [0.4, 0.0]]),
}
COSTS = {
    **{metric: {"metric": metric} for metric in ("dot", "cosine", "euclidean", "cityblock", "chebyshev")},
    **{f"{metric}, labels": {"metric": metric, **LABELS} for metric in ("sqeuclidean", "dot", "cosine", "euclidean")},
    "norm 3": {"metric": "p-norm", "norm_p": 3.0, "scale": 0.7},
}
TRANSFORMS = {
    "hessian": jax.hessian,
    "jacrev of jacrev": lambda f, argnums: jax.jacrev(jax.jacrev(f, argnums), argnums),
    "jacrev of jacfwd": lambda f, argnums: jax.jacrev(jax.jacfwd(f, argnums), argnums),
    "jacfwd of jacfwd": lambda f, argnums: jax.jacfwd(jax.jacfwd(f, argnums), argnums),
    "jit of hessian": lambda f, argnums: jax.jit(jax.hessian(f, argnums)),
    "hessian of jit": lambda f, argnums: jax.hessian(jax.jit(f), argnums),
    "jit of jacrev of jacrev": lambda f, argnums: jax.jit(jax.jacrev(jax.jacrev(f, argnums), argnums)),
}


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def problem():
    """Points, uneven weights, and directions of the points. Some of the points are equal."""
    random = np.random.default_rng(0)
    x, y, v, w = (jnp.asarray(random.normal(size=(k, 2)) / 2) for k in (N, M, N, M))
    a, b = (jnp.asarray(random.uniform(0.2, 1.2, k)) for k in (N, M))
    return (x.at[1].set(x[0]), y.at[0].set(x[3])), (a / a.sum(), b / b.sum()), (v, w)


def costs_of(x, y, labels_x, labels_y, metric="sqeuclidean", norm_p=2.0, scale=1.0, label_cost=None):
    """The distance of points that meet is left out of the graph: its derivatives are 0."""
    difference = x[:, None] - y
    if metric == "sqeuclidean":
        cost = (difference**2).sum(2)
    elif metric == "dot":
        cost = -x @ y.T
    elif metric == "cosine":
        cost = 1 - (x / jnp.linalg.norm(x, axis=1)[:, None]) @ (y / jnp.linalg.norm(y, axis=1)[:, None]).T
    else:
        p = {"euclidean": 2.0, "cityblock": 1.0}.get(metric, norm_p)
        apart = (difference != 0).any(2)
        sizes = jnp.abs(jnp.where(apart[:, :, None], difference, 1.0))
        cost = (sizes.max(2) if metric == "chebyshev" else (sizes**p).sum(2) ** (1 / p)) * apart
    return scale * cost + (0 if label_cost is None else label_cost[labels_x][:, labels_y])


def dense_transport(cost, a, b, rho):
    share = 1.0 if rho is None else rho / (rho + EPS)

    def sweep(potentials, _):
        _, g = potentials
        f = -share * EPS * logsumexp((g - cost) / EPS, axis=1, b=b)
        return (f, -share * EPS * logsumexp((f[:, None] - cost) / EPS, axis=0, b=a[:, None])), None

    (f, g), _ = jax.lax.scan(sweep, (jnp.zeros_like(a), jnp.zeros_like(b)), None, SWEEPS)

    def phi(v):
        return v if rho is None else rho * (1 - jnp.exp(-v / rho))

    plan = a[:, None] * b * jnp.exp((f[:, None] + g - cost) / EPS)
    return a @ phi(f) + b @ phi(g) - EPS * (plan.sum() - a.sum() * b.sum())


def dense(name, x, y, a, b, unbalanced=None, labels_x=None, labels_y=None, **costs):
    def transport(p, q, u, v, of_p, of_q):
        return dense_transport(costs_of(p, q, of_p, of_q, **costs), u, v, unbalanced)

    value = transport(x, y, a, b, labels_x, labels_y)
    if name == "transport":
        return value
    value -= (transport(x, x, a, a, labels_x, labels_x) + transport(y, y, b, b, labels_y, labels_y)) / 2
    return value + EPS / 2 * (a.sum() - b.sum()) ** 2


def own(name, x, y, a, b, **how):
    return LOSSES[name](x, y, a, b, reg=EPS, tol=1e-14, **how)


def assert_near(found, expected, relative):
    """Relative to the norm of the whole Hessian, from which a block of zeros differs by its rounding."""
    size = max(float(jnp.abs(v).max()) for v in jax.tree.leaves(expected))
    jax.tree.map(lambda p, q: np.testing.assert_allclose(p, q, rtol=0, atol=relative * size), found, expected)


@functools.cache
def expected_hessian(name, unbalanced):
    points, (a, b), _ = problem()
    return jax.jit(jax.hessian(lambda x, y: dense(name, x, y, a, b, unbalanced), (0, 1)))(*points)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("unbalanced", [None, 1.3])
@pytest.mark.parametrize("name", LOSSES)
def test_hessians_are_those_of_a_dense_sinkhorn(name, unbalanced, transform):
    """The linear systems are solved to 1e-10 of the right side, as which the sweeps that are left out are smaller."""
    points, (a, b), _ = problem()

    def loss(x, y):
        return own(name, x, y, a, b, unbalanced=unbalanced)

    found = TRANSFORMS[transform](loss, (0, 1))(*points)
    assert_near(found, expected_hessian(name, unbalanced), 1e-8)


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("name", LOSSES)
def test_products_of_other_costs(name, cost):
    points, (a, b), directions = problem()

    @functools.partial(jax.jit, static_argnums=0)
    def product(of, points):
        return jax.jvp(jax.grad(lambda x, y: of(name, x, y, a, b, **COSTS[cost]), (0, 1)), points, directions)[1]

    assert_near(product(own, points), product(dense, points), 1e-8)


@pytest.mark.parametrize("name", LOSSES)
def test_second_derivatives_are_differences_of_first_ones(name):
    points, (a, b), _ = problem()
    # The values of this function, too, depend on the points in two ways.
    loss = functools.partial(own, name, a=a, b=b)

    def of_both(x, y):
        value, (by_x, by_y) = jax.value_and_grad(loss, (0, 1))(x, y)
        return value * (by_x**2).sum() + (by_y[:, 0] ** 3).sum()

    check_grads(of_both, points, order=1, modes=["fwd", "rev"], atol=1e-6, rtol=1e-6, eps=1e-5)
    check_grads(lambda x: loss(x, points[1]), points[:1], order=2, modes=["fwd", "rev"], atol=1e-6, rtol=1e-6, eps=1e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_batches_of_products(name):
    (x, y), (a, b), _ = problem()
    stack = jnp.stack([x, x + 0.5])
    labels = {k: jnp.asarray(v) for k, v in LABELS.items()}

    def loss(x, y, labels):
        return own(name, x, y, a, b, **labels)

    second = jax.hessian(loss)
    expected = [second(v, y, labels) for v in stack]
    for found in (jax.vmap(second, (0, None, None)), jax.jit(jax.vmap(second, (0, None, None)))):
        np.testing.assert_allclose(found(stack, y, labels), expected, rtol=0, atol=1e-12)
    total = jax.grad(lambda v: (jax.grad(lambda v: jax.vmap(loss, (0, None, None))(v, y, labels).sum())(v) ** 2).sum())
    each = jax.grad(lambda v: (jax.grad(loss)(v, y, labels) ** 2).sum())
    np.testing.assert_allclose(total(stack), [each(v) for v in stack], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_one_solve_serves_all_derivatives(name, monkeypatch):
    (x, y), weights, _ = problem()
    solves, found = [], monge.jax._found

    def count(loss, *given):
        solves.append(loss)
        return found(loss, *given)

    loss = functools.partial(own, name, y=y, a=weights[0], b=weights[1])
    loss(x)  # The options are checked by a solve of their own, once.
    monkeypatch.setattr(monge.jax, "_found", count)
    for derivative in (
        loss,
        jax.grad(loss),
        jax.jacfwd(loss),
        jax.jit(jax.value_and_grad(loss)),
        jax.hessian(loss),
        jax.jit(jax.hessian(loss)),
        jax.jacrev(jax.jacrev(loss)),
    ):
        solves.clear()
        jax.block_until_ready(derivative(x))
        assert solves == [name]


@pytest.mark.parametrize("name", LOSSES)
def test_float32_without_x64(name):
    """Potentials of 2e4 would be off by 1e-3, that is 2e-3 EPS, in float32. Costs and entries in float32 are off by
    some 2^-24 / EPS of their size, and products of them likewise."""
    (x, y), (a, b), directions = problem()
    shift = jnp.array([100.0, 100.0])
    given = [v.astype(jnp.float32) for v in (x, y + shift, a, b, *directions)]

    def product(x, y, a, b, *directions):
        loss = functools.partial(LOSSES[name], a=a, b=b, reg=EPS, tol=1e-6)
        return jax.jvp(jax.grad(loss, (0, 1)), (x, y), directions)[1]

    with jax.enable_x64(False):
        found = jax.jit(product)(*given)
    assert all(v.dtype == jnp.float32 for v in found)
    wide = [v.astype(jnp.float64) for v in given]
    assert_near(found, product(*wide), 1e-5)


def test_each_product_has_the_dtype_of_its_argument():
    (x, y), _, (v, w) = problem()
    x, v = x.astype(jnp.float32), v.astype(jnp.float32)
    loss = jax.grad(lambda x, y: monge.jax.transport(x, y, reg=EPS), (0, 1))
    forward = jax.jvp(loss, (x, y), (v, w))[1]
    backward = jax.vjp(loss, x, y)[1]((v, w))
    for found in (forward, backward):
        assert [by.dtype for by in found] == [jnp.float32, jnp.float64]
    assert_near(forward, backward, 1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_derivatives_that_are_missing(name):
    (x, y), (a, b), _ = problem()
    loss = functools.partial(own, name)
    by_points = jax.grad(lambda x, a: loss(x, y, a, b))
    of_weights = jax.grad(lambda x, a: loss(x, y, a, b), 1)
    for second in (jax.jacrev(by_points, 1), jax.jacfwd(of_weights, 0), jax.jit(jax.jacrev(of_weights, 1))):
        with pytest.raises(NotImplementedError, match=f"^{name}: has second derivatives by points, not by weights"):
            second(x, a)
    third = jax.grad(lambda x: jax.hessian(lambda x: loss(x, y, a, b))(x).sum())
    for transform in (third, jax.jit(third), jax.jacfwd(jax.hessian(lambda x: loss(x, y, a, b)))):
        with pytest.raises(NotImplementedError, match=f"^{name}: has no third derivatives"):
            transform(x)
    # A product is linear in its direction, which has derivatives of its own.
    gradient = jax.grad(lambda x: loss(x, y, a, b))
    by_direction = jax.grad(lambda v: (jax.jvp(gradient, (x,), (v,))[1] * x).sum())(2 * x)
    np.testing.assert_allclose(by_direction, jax.jvp(gradient, (x,), (x,))[1], rtol=1e-8, atol=1e-9)
