"""JAX on the CPU: arrays in and out, the loss and the projection with their derivatives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy.optimize import linear_sum_assignment

import monge
import monge.jax
from conftest import squared_distances


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


@pytest.mark.parametrize("transform", [jax.jit, jax.grad, jax.vmap])
@pytest.mark.parametrize(
    ("field", "function"),
    [
        ("X_a", lambda v: monge.solve_sample(v, np.ones((5, 2)), reg=0.5).value),
        ("a", lambda v: monge.solve(np.ones((4, 5)), v, reg=0.5).value),
        ("M", lambda v: monge.sinkhorn2([], [], v, 0.5)),
        ("X_b", lambda v: monge.sinkhorn_divergence(np.ones((5, 2)), v, reg=0.5).value),
        ("logits", lambda v: monge.project(v).sum()),
        ("groups", lambda v: monge.solve_regularized(np.ones((4, 5)), group_lasso=0.1, groups=v).value),
    ],
)
def test_what_is_traced_is_named(transform, field, function):
    with pytest.raises(NotImplementedError, match=f"^{field}: is traced by JAX; monge.jax has functions for it"):
        transform(function)(jnp.ones((4, 2)))


GROUPS = jnp.arange(9) % 3
QUADRATIC = {"quadratic": 1.0, "tolerance": 1e-12}
LASSO = {"group_lasso": 0.05, "groups": GROUPS, "quadratic": 0.2, "tolerance": 1e-11, "iterations": 10**6}


def costs(*batch):
    return jnp.asarray(np.random.default_rng(0).random((*batch, 9, 8)))


LOSSES = {"transport": monge.jax.transport, "sinkhorn_divergence": monge.jax.sinkhorn_divergence}


@pytest.mark.parametrize("name", LOSSES)
def test_weights_left_out_have_the_total_of_the_other_side(name):
    x, y = clouds()
    b, uniform = 3 * jax.nn.softmax(jnp.linspace(1, 0, 8)), jnp.full(9, 3 / 9)
    loss = jax.value_and_grad(lambda x, y, *weights: LOSSES[name](x, y, *weights, reg=0.5, tol=1e-13), (0, 1))
    own, expected = loss(x, y, None, b), loss(x, y, uniform, b)
    jax.tree.map(lambda p, q: np.testing.assert_allclose(p, q, rtol=1e-9, atol=1e-11), own, expected)
    result = monge.solve_sample(x, y, None, b, reg=0.5, reg_type="entropy", tol=1e-13)
    given = monge.solve_sample(x, y, uniform, b, reg=0.5, reg_type="entropy", tol=1e-13)
    assert float(result.value) == pytest.approx(float(given.value), rel=1e-9)
    (u, v), cost = result.log_scalings, ((x[:, None] - y) ** 2).sum(-1)
    assert isinstance(u, jax.Array)
    np.testing.assert_allclose(jnp.exp(u[:, None] + v - cost / 0.5), given.plan, rtol=1e-9)


@pytest.mark.parametrize("unbalanced", [None, 1.0])
@pytest.mark.parametrize("name", LOSSES)
def test_derivatives(name, unbalanced):
    x, y = clouds()
    p, q = jnp.linspace(0, 1, 9), jnp.linspace(1, 0, 8)

    def loss(x, y, p, q):
        a, b = jax.nn.softmax(p), jax.nn.softmax(q)
        return LOSSES[name](x, y, a, b, reg=0.5, tol=1e-13, unbalanced=unbalanced)

    check_grads(loss, (x, y, p, q), order=1, modes=["fwd", "rev"], atol=1e-6, rtol=1e-6, eps=1e-5)
    np.testing.assert_allclose(jax.jit(loss)(x, y, p, q), loss(x, y, p, q), rtol=1e-12)
    xs = jnp.stack([x, x + 1])
    each = jax.vmap(loss, in_axes=(0, None, None, None))(xs, y, p, q)
    np.testing.assert_allclose(each[1], loss(x + 1, y, p, q), rtol=1e-12)
    gradient = jax.grad(loss, (0, 1, 2, 3))
    for batched in (jax.vmap(gradient, (0, None, None, None)), jax.jit(jax.vmap(gradient, (0, None, None, None)))):
        for found, expected in zip(batched(xs, y, p, q), gradient(xs[1], y, p, q)):
            np.testing.assert_allclose(found[1], expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", LOSSES)
def test_labels(name):
    x, y = clouds()
    labels = {"labels_x": jnp.arange(9) % 3, "labels_y": jnp.arange(8) % 3, "label_cost": 1 - jnp.eye(3)}

    def loss(x, y, labels, weight=0.7, **given):
        return LOSSES[name](x, y, reg=0.5, tol=1e-13, label_weight=weight, **labels, **given)

    check_grads(lambda x, y: loss(x, y, labels), (x, y), order=1, modes=["rev"], atol=1e-6, rtol=1e-6, eps=1e-5)
    value = loss(x, y, labels)
    np.testing.assert_allclose(jax.jit(loss, static_argnames="weight")(x, y, labels), value, rtol=1e-12)
    np.testing.assert_allclose(jax.vmap(loss, (0, None, None))(jnp.stack([x, x]), y, labels)[1], value, rtol=1e-12)
    if name == "sinkhorn_divergence":
        own = monge.sinkhorn_divergence(x, y, reg=0.5, tol=1e-13, label_weight=0.7, **labels)
        np.testing.assert_allclose(own.value, value, rtol=1e-12)
    else:
        result = monge.solve_sample(x, y, reg=0.5, tol=1e-13, label_weight=0.7, **labels)
        np.testing.assert_allclose(result.report.dual, value, rtol=1e-12)
    assert abs(value - LOSSES[name](x, y, reg=0.5)) > 1e-2
    with pytest.raises(NotImplementedError, match=f"^{name}: has derivatives by points and weights, not by label_cost"):
        jax.grad(lambda table: loss(x, y, labels | {"label_cost": table}))(labels["label_cost"])
    for wrong, error, message in (
        ({"labels_x": None}, ValueError, "labels_x: is missing"),
        ({"labels_x": jnp.zeros(9)}, TypeError, "labels_x: is of dtype float64; must be whole numbers"),
        ({"labels_y": jnp.arange(9)}, ValueError, "labels_y: has shape \\(9,\\); must be \\(8,\\)"),
        ({"label_cost": jnp.ones(3)}, ValueError, "label_cost: has shape \\(3,\\); must be \\(K, L\\)"),
    ):
        with pytest.raises(error, match=f"^{message}"):
            jax.jit(lambda x: loss(x, y, labels | wrong))(x)  # noqa: B023
    with pytest.raises(ValueError, match="^label_weight: is 2.0; must be 1 without labels"):
        loss(x, y, {}, 2.0)


@pytest.mark.parametrize("name", LOSSES)
def test_multiscale(name):
    random = np.random.default_rng(44)
    x, y = jnp.asarray(random.random((2300, 2))), jnp.asarray(random.random((2100, 2)) ** 1.5)
    a = jnp.asarray(random.dirichlet(np.ones(2300)))

    def loss(x, a, method):
        return LOSSES[name](x, y, a, reg=0.05**2, tol=1e-6, method=method)

    found, whole = (jax.value_and_grad(loss, (0, 1))(x, a, method) for method in ("multiscale", "newton"))
    compiled = jax.jit(jax.value_and_grad(loss, (0, 1)), static_argnums=2)(x, a, "multiscale")
    # A value is off by eps times the error of its plans, a gradient by the mass that moves.
    np.testing.assert_allclose(found[0], whole[0], atol=1e-7)
    np.testing.assert_allclose(found[1][0], whole[1][0], atol=1e-3 / 2300)
    np.testing.assert_allclose(found[1][1], whole[1][1], atol=1e-5)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(compiled)):
        np.testing.assert_array_equal(one, other)
    refused = functools.partial(LOSSES[name], y=y, reg=0.1, metric="euclidean", method="multiscale")
    with pytest.raises(NotImplementedError, match="^method: is multiscale, given a cost function other than"):
        jax.jit(refused)(x)


def test_the_divergence_is_that_of_the_others():
    x, y = clouds()
    value = monge.jax.sinkhorn_divergence(x, y, reg=0.3**2, scale=0.5, tol=1e-12)
    assert value == monge.sinkhorn_divergence(x, y, reg=0.3**2, scale=0.5, tol=1e-12).value
    assert abs(monge.jax.sinkhorn_divergence(x, x, reg=0.5)) < 1e-9
    random = np.random.default_rng(1)
    a = jnp.asarray(random.dirichlet(np.ones(9)))
    by_weights = jax.grad(lambda a: monge.jax.sinkhorn_divergence(x, y, a, reg=0.5, metric="euclidean", tol=1e-12))(a)
    expected = monge.sinkhorn_divergence(x, y, a, reg=0.5, metric="euclidean", tol=1e-12).gradients().a
    np.testing.assert_allclose(by_weights, expected, rtol=1e-9)


@pytest.mark.parametrize("name", LOSSES)
def test_each_gradient_has_the_dtype_of_its_argument(name):
    x, y = clouds(jnp.float32)
    y, a, b = y.astype("float64"), jnp.full(9, 1 / 9), jnp.full(8, 1 / 8, jnp.float32)
    value, found = jax.value_and_grad(lambda *v: LOSSES[name](*v, reg=0.5), (0, 1, 2, 3))(x, y, a, b)
    assert value.dtype == jnp.float64
    assert [v.dtype for v in found] == [jnp.float32, jnp.float64, jnp.float64, jnp.float32]
    by_b = jax.grad(lambda b: monge.jax.regularized_transport(costs(), None, b, quadratic=1.0)[0])(b)
    assert by_b.dtype == jnp.float32


@pytest.mark.parametrize("name", ["regularized_transport", "project"])
def test_second_derivatives_are_refused(name):
    given = costs() if name == "regularized_transport" else jnp.ones((3, 3), jnp.float32)

    def loss(v):
        if name == "project":
            return (monge.jax.project(v) ** 2).sum()
        return monge.jax.regularized_transport(v, **QUADRATIC)[0]

    def twice(v):
        return jax.grad(lambda v: (jax.grad(loss)(v) ** 2).sum())(v)

    for second in (jax.hessian(loss), twice, jax.jit(twice), jax.jit(jax.hessian(loss))):
        with pytest.raises(NotImplementedError, match=f"^{name}: has no second derivatives"):
            second(given)
    with pytest.raises(NotImplementedError, match=f"^{name}: has no second derivatives"):
        jax.vmap(twice)(given[None])
    with pytest.raises(TypeError, match="custom_vjp"):
        jax.jvp(loss, (given,), (given,))


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "cityblock", "minkowski"])
@pytest.mark.parametrize("name", LOSSES)
def test_derivatives_of_other_metrics(name, metric):
    x, y = clouds()
    p = {"norm_p": 3.0} if metric == "minkowski" else {}

    def loss(x, y):
        return LOSSES[name](x, y, reg=0.5, tol=1e-13, metric=metric, **p)

    check_grads(loss, (x, y), order=1, modes=["rev"], atol=1e-6, rtol=1e-6, eps=1e-5)


# Arguments by name, of (x, y, costs, logits), in the place of those that are right.
WRONG_OF_LOSSES = [
    (lambda x, y, c, v: {"y": y[:, :1]}, ValueError, r"^y: has shape \(8, 1\); must be \(m, 2\)"),
    (lambda x, y, c, v: {"x": x[0]}, ValueError, r"^x: has shape \(2,\); must be \(n, d\)"),
    (lambda x, y, c, v: {"x": x[:0]}, ValueError, r"^x: has shape \(0, 2\); must be \(n, d\)"),
    (lambda x, y, c, v: {"a": y[:, 0]}, ValueError, r"^a: has shape \(8,\); must be \(9,\)"),
    (lambda x, y, c, v: {"b": x}, ValueError, r"^b: has shape \(9, 2\); must be \(8,\)"),
    (lambda x, y, c, v: {"x": 1j * x}, TypeError, "^x: is of dtype complex128; must be real"),
    (lambda x, y, c, v: {"x": "points"}, TypeError, "^x: is of type str; must be an array"),
    (lambda x, y, c, v: {"reg": -1.0}, ValueError, r"^reg: is -1.0; must be > 0"),
    (lambda x, y, c, v: {"reg": None}, ValueError, "^reg: is None; must be > 0"),
    (lambda x, y, c, v: {"metric": "cubic"}, ValueError, "^metric: is 'cubic'; must be"),
    (lambda x, y, c, v: {"scale": -1.0}, ValueError, "^scale: is -1; must be"),
    (lambda x, y, c, v: {"norm_p": 3}, ValueError, "^norm_p: is 3; is for the metric p-norm"),
    (lambda x, y, c, v: {"metric": "p-norm", "norm_p": 0.5}, ValueError, "^norm_p: is 0.5; must be"),
    (lambda x, y, c, v: {"unbalanced": -1.0}, ValueError, "^unbalanced: is -1; must be > 0"),
    (lambda x, y, c, v: {"tol": -1.0}, ValueError, "^tol: is -1; must be finite and >= 0"),
    (lambda x, y, c, v: {"schedule": "fast"}, ValueError, "^schedule: is 'fast'; must be"),
    (lambda x, y, c, v: {"schedule": [1]}, TypeError, "^schedule: is of type list; must be"),
    (lambda x, y, c, v: {"speed": 2}, TypeError, "^speed: is no option"),
]
WRONG_OF_REGULARIZED = [
    (lambda x, y, c, v: {"cost": c[0]}, ValueError, r"^cost: has shape \(8,\); must be \(n, m\)"),
    (lambda x, y, c, v: {"a": c[0]}, ValueError, r"^a: has shape \(8,\); must be \(9,\)"),
    (lambda x, y, c, v: {"mask": c[1:]}, ValueError, r"^mask: has shape \(8, 8\); must be \(9, 8\)"),
    (lambda x, y, c, v: {"groups": c[:, 0]}, TypeError, "^groups: is of dtype float64; must be whole numbers"),
    (lambda x, y, c, v: {"group_lasso": 1.0}, ValueError, "^groups: is missing"),
    (
        lambda x, y, c, v: {"group_lasso": 1.0, "groups": GROUPS, "group_weights": x[:, 0]},
        ValueError,
        r"^group_weights: has shape \(9,\); must be \(3,\)",
    ),
    (
        lambda x, y, c, v: {"group_lasso": 1.0, "groups": np.arange(9) + 1},
        ValueError,
        "^groups: are from 1 to 9; must be from 0 to 8",
    ),
    (lambda x, y, c, v: {"group_lasso": 1.0, "groups": [-1] * 9}, ValueError, "^groups: are from -1 to -1; must be"),
    (lambda x, y, c, v: {"quadratic": -1.0}, ValueError, "^quadratic: is -1; must be"),
    (lambda x, y, c, v: {"method": "fast"}, ValueError, "^method: is 'fast'; must be"),
]


def test_a_sweep_of_weights_may_begin_at_0():
    with_data = monge.jax.regularized_transport(costs(), group_lasso=0.0, groups=GROUPS, **QUADRATIC)
    np.testing.assert_array_equal(with_data[1], monge.jax.regularized_transport(costs(), **QUADRATIC)[1])


WRONG_OF_PROJECT = [
    (lambda x, y, c, v: {"logits": v.astype("float64")}, TypeError, "^logits: is of dtype float64; must be float16, b"),
    (lambda x, y, c, v: {"logits": v.astype("int32")}, TypeError, "^logits: is of dtype int32"),
    (lambda x, y, c, v: {"logits": v[0, 0]}, ValueError, r"^logits: has shape \(3,\); must be \(..., n, m\)"),
    (lambda x, y, c, v: {"preset": "fast"}, ValueError, "^preset: is 'fast'; must be one of mhc_paper"),
    (lambda x, y, c, v: {"preset": 3}, TypeError, "^preset: is 3; must be a name"),
    (lambda x, y, c, v: {"iterations": 0}, ValueError, "^iterations: is 0; must be >= 1"),
]


@pytest.mark.parametrize(
    ("function", "wrong", "error", "message"),
    [
        *((loss, *case) for loss in LOSSES for case in WRONG_OF_LOSSES),
        *(("regularized_transport", *case) for case in WRONG_OF_REGULARIZED),
        *(("project", *case) for case in WRONG_OF_PROJECT),
    ],
)
def test_what_is_wrong_is_said_while_tracing(function, wrong, error, message):
    x, y = clouds()
    c, logits = costs(), jnp.ones((2, 3, 3), jnp.float32)
    right = {"regularized_transport": {"cost": c, "quadratic": 1.0}, "project": {"logits": logits}}
    given = {**right.get(function, {"x": x, "y": y, "reg": 0.5}), **wrong(x, y, c, logits)}

    def call():
        return getattr(monge.jax, function)(**given)

    for transformed in (call, jax.jit(call)):
        with pytest.raises(error, match=message):
            transformed()


@pytest.mark.parametrize("name", LOSSES)
def test_a_value_alone_makes_no_gradients(monkeypatch, name):
    x, y = clouds()
    expected, gradient = jax.value_and_grad(lambda x: LOSSES[name](x, y, reg=0.5))(x)
    assert jnp.isfinite(gradient).all()

    def fail(*given):
        raise AssertionError("gradients are made")

    monkeypatch.setattr(monge.OTResult, "gradients", fail)
    monkeypatch.setattr(monge.DivergenceResult, "gradients", fail)
    for function in (LOSSES[name], jax.jit(LOSSES[name], static_argnames="reg")):
        assert function(x, y, reg=0.5) == expected


@pytest.mark.parametrize("name", LOSSES)
def test_norms_of_any_power(name):
    x, y = clouds()
    value = LOSSES[name](x, y, reg=0.5, metric="minkowski", norm_p=3, scale=2.0)
    if name == "transport":
        expected = monge.solve_sample(x, y, reg=0.5, metric="minkowski", norm_p=3, scale=2.0).report.dual
    else:
        expected = monge.sinkhorn_divergence(x, y, reg=0.5, metric="minkowski", norm_p=3, scale=2.0).value
    assert value == expected and value != LOSSES[name](x, y, reg=0.5, metric="minkowski", scale=2.0)


def test_one_problem_has_no_number_in_its_errors():
    def of_groups(groups):
        return monge.jax.regularized_transport(costs(), group_lasso=0.1, groups=groups, group_weights=jnp.ones(2))

    with pytest.raises(Exception, match="group_weights: has 2 entries; must have 3") as raised:
        jax.block_until_ready(jax.jit(of_groups)(GROUPS))
    assert "problem 0" not in str(raised.value)


def test_options_must_be_known():
    x, y = clouds()
    with pytest.raises(TypeError, match="^reg: is traced by JAX; must be known then"):
        jax.jit(lambda reg: monge.jax.transport(x, y, reg=reg))(0.5)
    of_array = monge.jax.transport(x, y, reg=jnp.asarray(0.5), unbalanced=jnp.asarray([1.0, 2.0]))
    assert of_array == monge.jax.transport(x, y, reg=0.5, unbalanced=(1.0, 2.0))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("metric", ["sqeuclidean", "cosine"])
def test_eps_as_a_share_of_the_mean_cost(name, metric):
    x, y = clouds()
    loss = LOSSES[name]
    other = {"transport": monge.solve_sample, "sinkhorn_divergence": monge.sinkhorn_divergence}[name]
    for how in ({"reg": "auto"}, {"eps_relative": 0.1}):
        given = functools.partial(loss, y=y, metric=metric, **how)
        expected = float(other(x, y, metric=metric, **how).value)
        for call in (given, jax.jit(given)):
            assert float(call(x)) == pytest.approx(expected, rel=1e-5)
    assert float(loss(x, y)) == float(loss(x, y, reg="auto"))
    with pytest.raises(ValueError, match="^eps_relative: is -1"):
        loss(x, y, eps_relative=-1.0)


def test_stacks_give_arrays_of_jax():
    x, y = clouds()
    for result in (monge.solve_sample_batch(x[None], y[None], 0.5), monge.solve_batch(jnp.ones((2, 3, 4)), 0.5)):
        for array in (result.plan, result.value, result[0].plan):
            assert isinstance(array, jax.Array)


def test_results_are_taken_over_without_a_copy():
    result = monge.solve_sample(*clouds(), reg=0.5)
    for shape in ((5,), (3, 7)):
        buffer = result._place.empty(*shape)
        assert result._place.finish(buffer).unsafe_buffer_pointer() == buffer.ctypes.data


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
    batch = jnp.stack([logits, 2 * logits])
    each = jax.vmap(jax.grad(lambda v: loss(own, v)))(batch)
    np.testing.assert_allclose(each[1], jax.grad(lambda v: loss(own, v))(batch[1]), rtol=1e-6, atol=1e-6)
    # Directions of a batch, at one point.
    jacobian = jax.jacrev(own)(logits[0])
    np.testing.assert_allclose(jacobian[1, 2], jax.grad(lambda v: own(v)[1, 2])(logits[0]), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_projection_in_half_precision(dtype):
    logits = jnp.asarray(np.random.default_rng(0).normal(size=(5, 4, 4)), dtype)
    wide, half = logits.astype(jnp.float32), float(jnp.finfo(dtype).eps) / 2

    def loss(v):
        return (monge.jax.project(v, "mhc_paper").astype(jnp.float32) * jnp.arange(16.0).reshape(4, 4)).sum()

    found = monge.jax.project(logits, "mhc_paper")
    assert found.dtype == dtype
    np.testing.assert_allclose(found.astype("float32"), monge.jax.project(wide, "mhc_paper"), rtol=1.01 * half)
    gradient = jax.grad(loss)(logits)
    assert gradient.dtype == dtype
    # The directions are whole numbers, which both hold; what is rounded is the gradient.
    np.testing.assert_allclose(gradient.astype("float32"), jax.grad(loss)(wide), rtol=1.01 * half, atol=1e-4)


@pytest.mark.parametrize("dtype", ["int32", "bool", "float16", "bfloat16"])
def test_other_dtypes_keep_the_value(dtype):
    x, y = (jnp.asarray(3 * np.random.default_rng(n).random((n, 2)), dtype) for n in (5, 6))
    value = monge.jax.transport(x, y, reg=0.5)
    wide = jnp.float32 if "float16" in dtype else jnp.result_type(float)
    assert value.dtype == wide
    assert value == monge.jax.transport(x.astype(wide), y.astype(wide), reg=0.5)
    costs = jnp.asarray([[0, 1], [1, 0]], dtype)
    value = monge.jax.regularized_transport(costs, quadratic=0.3)[0]
    assert abs(value - 0.075) < 1e-4 * 0.075  # The tolerance of the gap.


def test_assignments_are_arrays_of_jax(rng):
    costs = rng.integers(0, 9, (5, 6)).astype("f4")
    row, column = monge.linear_sum_assignment(jnp.asarray(costs))
    assert isinstance(row, jax.Array) and isinstance(column, jax.Array)
    np.testing.assert_array_equal(np.stack([row, column]), linear_sum_assignment(costs))


@pytest.mark.filterwarnings("ignore::monge.ConvergenceWarning")
def test_one_sweep_from_the_solution_ends_there(rng):
    x, y = (rng.normal(size=(30, 2)).astype("f4") + shift for shift in (0, 1))
    solution = monge.solve_sample(x, y, reg=0.5, tol=1e-6)
    parts = monge.sinkhorn_divergence(x, y, reg=0.5, tol=1e-6)
    starts = {
        "transport": [solution, solution.potentials],
        "sinkhorn_divergence": [parts, (*parts.ab.potentials, parts.aa.potentials[0], parts.bb.potentials[0])],
    }
    for name, given in starts.items():
        loss = functools.partial(getattr(monge.jax, name), reg=0.5)
        value, gradient = jax.value_and_grad(functools.partial(loss, tol=1e-6))(x, y)
        short = functools.partial(loss, max_iter=1)
        assert abs(short(x, y) - value) > 1e-3 * value
        for start in given:
            # The dual value is off by the marginal error times the error of the potentials, the start's rounding.
            for call in (short, jax.jit(short)):
                found, by_x = jax.value_and_grad(call)(x, y, potentials_init=start if call is short else given[-1])
                np.testing.assert_allclose(found, value, rtol=1e-5)
                np.testing.assert_allclose(by_x, gradient, atol=1e-6)


def test_a_wrong_warm_start_is_an_error():
    x = np.zeros((2, 2))
    with pytest.raises(TypeError, match=r"^potentials_init: has 3 entries; must be a pair of arrays \(f, g\)"):
        monge.jax.transport(x, x, reg=0.5, potentials_init=(x[0],) * 3)
    with pytest.raises(TypeError, match="^potentials_init: is .*OTResult.*; must be a DivergenceResult, or arrays"):
        monge.jax.sinkhorn_divergence(x, x, reg=0.5, potentials_init=monge.solve_sample(x, x, reg=0.5))
    missing = np.full(len(x), np.nan)
    for loss in (monge.jax.transport, monge.jax.sinkhorn_divergence):
        with pytest.raises(Exception, match="potentials_init: f: entry 0 is nan"):  # JAX's, which quotes ours.
            jax.block_until_ready(loss(x, x, reg=0.5, potentials_init=(missing, missing)))
    with pytest.raises(ValueError, match="^potentials_init: f_bb: has shape"):
        monge.jax.sinkhorn_divergence(x, x, reg=0.5, potentials_init=(x[0], x[0], x[0], np.zeros(3)))


@pytest.mark.parametrize("unbalanced", [None, 1.0])
def test_costs_of_a_matrix(unbalanced):
    c, p, q = costs(), jnp.linspace(0, 1, 9), jnp.linspace(1, 0, 8)

    def loss(c, p, q):
        a, b = jax.nn.softmax(p), jax.nn.softmax(q)
        return monge.jax.transport_of_costs(c, a, b, reg=0.2, tol=1e-13, unbalanced=unbalanced)

    check_grads(loss, (c, p, q), order=1, modes=["fwd", "rev"], atol=1e-6, rtol=1e-6, eps=1e-5)
    value, found = jax.value_and_grad(loss)(c, p, q)
    a, b = np.array(jax.nn.softmax(p)), np.array(jax.nn.softmax(q))
    result = monge.solve(np.array(c), a, b, reg=0.2, tol=1e-13, unbalanced=unbalanced)
    assert value == result.report.dual
    np.testing.assert_array_equal(found, result.plan)
    np.testing.assert_array_equal(jax.jit(jax.grad(loss))(c, p, q), found)
    stack = jnp.stack([c, 2 * c])
    np.testing.assert_array_equal(jax.vmap(loss, (0, None, None))(stack, p, q)[0], value)
    warm = monge.jax.transport_of_costs(c, a, b, reg=0.2, potentials_init=result, unbalanced=unbalanced, tol=1e-9)
    assert float(warm) == pytest.approx(float(value), rel=1e-8)
    for transform in (jax.hessian(loss), jax.jit(jax.jacrev(jax.jacrev(loss)))):
        with pytest.raises(NotImplementedError, match="^transport_of_costs: has no second derivatives"):
            transform(c, p, q)


def test_costs_of_points_and_of_their_matrix_agree():
    x, y = clouds()
    c = ((x[:, None] - y) ** 2).sum(-1)
    value = monge.jax.transport(x, y, tol=1e-12)
    assert float(monge.jax.transport_of_costs(c, tol=1e-12)) == pytest.approx(float(value), rel=1e-10)
    forbidden = c.at[0, 0].set(jnp.inf)
    assert jax.grad(lambda c: monge.jax.transport_of_costs(c, reg=0.5))(forbidden)[0, 0] == 0


WRONG_NUMBERS = [
    (
        lambda x, y, c: monge.jax.transport(x, y, jnp.ones(9), jnp.ones(8)),
        "b: the total is 8; must equal the total of a",
    ),
    (lambda x, y, c: monge.jax.transport(x.at[1, 0].set(jnp.nan), y), "x: row 1, column 0 is nan"),
    (lambda x, y, c: monge.jax.sinkhorn_divergence(x, y.at[0].set(jnp.inf)), "y: row 0, column 0 is inf"),
    (lambda x, y, c: monge.jax.transport_of_costs(c.at[2, 3].set(jnp.nan)), "cost: row 2, column 3 is nan"),
    (lambda x, y, c: monge.jax.regularized_transport(c, -jnp.ones(9), quadratic=1.0)[0], "a: entry 0 is -1"),
]


@pytest.mark.parametrize(("call", "message"), WRONG_NUMBERS)
def test_wrong_numbers_are_errors_of_python(call, message):
    x, y = clouds()
    for run in (call, jax.grad(call)):
        with pytest.raises(ValueError, match=f"^{message}"):
            run(x, y, costs())
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        jax.block_until_ready(jax.jit(call)(x, y, costs()))


def gromov_case(kind):
    """The function, its arguments by name, and the call of the package whose value it is."""
    random = np.random.default_rng(3)
    x, y = random.normal(size=(9, 3)), random.normal(size=(8, 2)) * [1, 2]
    s, t = random.normal(size=(9, 2)), random.normal(size=(8, 2))
    a, b = (v / v.sum() for v in (random.uniform(0.5, 1, 9), random.uniform(0.5, 1, 8)))
    if kind == "points":
        return monge.jax.gromov, dict(x=x, y=y, s=s, t=t, a=a, b=b), monge.solve_gromov_sample
    if kind == "distances":
        c, d, m = squared_distances(x, x), squared_distances(y, y), squared_distances(s, t)
    else:
        c, d, m = random.normal(size=(9, 9)), random.normal(size=(8, 8)), random.normal(size=(9, 8))
    return monge.jax.gromov_of_matrices, dict(Ca=c, Cb=d, M=m, a=a, b=b), monge.solve_gromov


@pytest.mark.parametrize("reg_type", ["entropy", "KL"])
@pytest.mark.parametrize("kind", ["points", "distances", "matrices"])
def test_values_of_gromov_wasserstein_transport(kind, reg_type):
    function, given, solve = gromov_case(kind)
    names, arrays = list(given), tuple(given.values())
    options = dict(alpha=0.4, reg=3.0, reg_type=reg_type, tol=1e-10)
    call = functools.partial(function, **options)
    expected = solve(*arrays, **options)
    positions = tuple(range(len(arrays)))
    for of in (jax.value_and_grad(call, positions), jax.jit(jax.value_and_grad(call, positions))):
        value, gradients = of(*map(jnp.asarray, arrays))
        assert float(value) == pytest.approx(float(expected.value), rel=1e-9)
        random = np.random.default_rng(4)
        for k, (name, array, gradient) in enumerate(zip(names, arrays, gradients)):
            step = random.normal(size=array.shape) * abs(array).mean()
            if name in "ab":
                step -= step.mean()
            if kind == "distances" and name in ("Ca", "Cb"):  # No squared distances beside them.
                step = (step + step.T) / 2
            ends = []
            for h in (1e-4, -1e-4):
                moved = *arrays[:k], array + h * step, *arrays[k + 1 :]
                ends.append(float(solve(*moved, plan_init=expected.plan, **options).value))
            # A difference is off by the third derivative times 1e-8, and by the rounding of the value, 1e-10, over 1e-4.
            assert float((gradient * step).sum()) == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-4, abs=1e-4), name


@pytest.mark.parametrize("kind", ["points", "matrices"])
def test_gromov_wasserstein_transport_without_entropy(kind):
    function, given, solve = gromov_case(kind)
    tol = {"tol": 0.02} if kind == "matrices" else {}  # Steps within segments take O(1 / tol).
    function, expected = functools.partial(function, **tol), solve(*given.values(), **tol)
    assert float(function(**given)) == pytest.approx(float(expected.value), rel=1e-12)
    both = jax.vmap(function)(*(jnp.stack([jnp.asarray(v)] * 2) for v in given.values()))
    np.testing.assert_allclose(both, float(expected.value), rtol=1e-12)
    assert float(function(*given.values(), plan_init=expected)) == pytest.approx(float(expected.value), rel=0.02)
    single = [jnp.asarray(v, jnp.float32) for v in given.values()]
    value, gradient = jax.value_and_grad(function)(*single)
    assert value.dtype == gradient.dtype == jnp.float32
    with pytest.raises(NotImplementedError, match="has no second derivatives"):
        jax.hessian(function)(*map(jnp.asarray, given.values()))


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (dict(reg=-1.0), ValueError, "^reg: is -1; must be finite and >= 0"),
        (dict(method="proximal"), ValueError, "^method: is proximal without entropy"),
        (dict(a=jnp.ones(3)), ValueError, r"^a: has shape \(3,\); must be \(9,\)"),
        (dict(s=None), ValueError, "^s: is missing; features need both s and t"),
        (dict(y=jnp.ones(3)), ValueError, r"^y: has shape \(3,\); must be \(m, q\)"),
        (dict(plan_init=jnp.ones((3, 4))), ValueError, r"^plan_init: has shape \(3, 4\); must be \(9, 8\)"),
        (dict(speed=2), TypeError, "^speed: is no option"),
        (dict(x=jnp.full((9, 3), jnp.nan)), ValueError, "^x: row 0, column 0 is nan"),
    ],
)
def test_what_is_wrong_with_gromov_wasserstein_transport(wrong, error, message):
    given = gromov_case("points")[1] | wrong
    with pytest.raises(error, match=message):
        monge.jax.gromov(**given)


def test_the_name_or_value_that_may_be_meant():
    with pytest.raises(ValueError, match="^preset: is 'deepsek'; did you mean 'deepseek'[?] Must be mhc_paper, "):
        monge.jax.project(jnp.zeros((2, 2), jnp.float32), "deepsek")
    with pytest.raises(TypeError, match="^rge: is no option; did you mean reg[?] Options are reg, eps_relative, "):
        monge.jax.transport(jnp.zeros((2, 2)), jnp.zeros((2, 2)), rge=1.0)
