"""What arrays are read, without a copy where that can be, and what is said of those that are not."""

import array

import numpy as np
import pytest

import monge
from monge import _core
from monge._arrays import read


class OnlyDlpack:
    """An array of no framework that the package knows."""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self, **keywords):
        return self.values.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


def shares_memory(given, **keywords):
    return np.shares_memory(np.asarray(given), read("x", given, **keywords))


def test_usable_arrays_are_not_copied(rng):
    wide = rng.normal(size=(8, 6))
    read_only = wide.copy()
    read_only.setflags(write=False)
    for usable in (wide, wide[:, 1:4], wide[::2], wide[:, :1], wide[0], wide[:, 2], read_only, wide.astype("f4")):
        assert shares_memory(usable)
    assert shares_memory(wide.T, column_major=True)


def test_others_are_copied_into_rows(rng):
    wide = rng.normal(size=(8, 6))
    for unusable in (
        wide.T,
        wide[::-1],
        wide[:, ::-1],
        wide[:, ::2],
        wide.astype(">f8"),
        np.broadcast_to(wide[0], (3, 6)),
    ):
        copy = read("x", unusable)
        assert not np.shares_memory(copy, wide)
        np.testing.assert_array_equal(copy, unusable)
        _core.point_cloud(copy, copy)


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint16", "bool", "float16", "float32", "float64"])
def test_types_keep_their_values(rng, dtype):
    x = (5 * rng.random((9, 2))).astype(dtype)
    exact = monge.solve_sample(x.astype("float64"), x.astype("float64")[:7], reg=1.0)
    result = monge.solve_sample(x, x[:7], reg=1.0)
    expected = "float32" if dtype in ("float16", "float32") else "float64"
    assert result.plan.dtype == expected
    np.testing.assert_allclose(result.plan, exact.plan, rtol=2e-6)


@pytest.mark.parametrize("bad", [np.ones((3, 2), complex), np.array([["a", "b"]]), [[None, 1.0]], object()])
def test_what_is_no_number_is_a_type_error_that_names_the_argument(bad):
    with pytest.raises((TypeError, ValueError), match="^X_b: "):
        monge.solve_sample(np.ones((3, 2)), bad, reg=1.0)


def test_shapes_are_named():
    x = np.ones((4, 2))
    with pytest.raises(ValueError, match=r"^X_b: has 3 columns; must have 2, the dimension of X_a"):
        monge.solve_sample(x, np.ones((4, 3)), reg=1.0)
    with pytest.raises(ValueError, match=r"^X_a: has shape \(4,\); must be \(n, d\)"):
        monge.solve_sample(x[:, 0], x, reg=1.0)
    with pytest.raises(ValueError, match=r"^a: has 3 entries; must have 4"):
        monge.solve_sample(x, x, np.ones(3), reg=1.0)
    with pytest.raises(ValueError, match=r"^a: is nan at index 1|^a: "):
        monge.solve_sample(x, x, [1, np.nan, 1, 1], reg=1.0)


def test_lists_buffers_and_dlpack(rng):
    x, y = rng.normal(size=(5, 1)), rng.normal(size=(6, 1))
    expected = monge.solve_sample(x, y, reg=0.5).plan
    for give in (
        lambda v: v.tolist(),
        lambda v: memoryview(v),
        OnlyDlpack,
    ):
        np.testing.assert_array_equal(monge.solve_sample(give(x), give(y), reg=0.5).plan, expected)
    distance = {"metric": "euclidean"}  # Whose mean is a question to the points.
    np.testing.assert_array_equal(
        monge.solve_sample(OnlyDlpack(x), OnlyDlpack(y), **distance).plan, monge.solve_sample(x, y, **distance).plan
    )
    a = array.array("d", [0.2] * 5)
    np.testing.assert_array_equal(monge.solve_sample(x, y, a, reg=0.5).plan, expected)


@pytest.mark.parametrize("dtype", ["int64", "bool", "float16", "float32"])
def test_dlpack_of_other_types_and_layouts(rng, dtype):
    cost = (5 * rng.random((6, 9))).astype(dtype)
    groups = np.array([0, 1, 1, 0, 2, 2], np.int32)
    for layout in (cost, cost[::-1], cost[:, ::-1]):
        expected = monge.solve(layout, reg=0.5).plan
        plan = monge.solve(OnlyDlpack(layout), reg=0.5).plan
        assert plan.dtype == expected.dtype
        np.testing.assert_array_equal(plan, expected)
        grouped = [
            monge.solve_regularized(given(layout), group_lasso=0.1, groups=given(groups[::-1]), quadratic=0.1).plan
            for given in (np.asarray, OnlyDlpack)
        ]
        np.testing.assert_array_equal(*grouped)
    if dtype.startswith("float"):
        np.testing.assert_array_equal(monge.project(OnlyDlpack(cost)), monge.project(cost))


def test_a_cost_matrix_is_read_by_rows_or_by_columns(rng):
    cost = rng.random((6, 9))
    expected = monge.solve(cost, reg=0.1).plan
    for layout in (
        np.asfortranarray(cost),
        np.asfortranarray(np.pad(cost, 2))[2:-2, 2:-2],
        np.pad(cost, 1)[1:-1, 1:-1],
    ):
        np.testing.assert_allclose(monge.solve(layout, reg=0.1).plan, expected, rtol=1e-5)


@pytest.mark.parametrize("give", [memoryview, OnlyDlpack])
def test_stacks_that_only_their_memory_shows(rng, give):
    x, y, cost = rng.random((2, 6, 2)), rng.random((2, 5, 2)), rng.random((2, 6, 5))
    a, b = np.full((2, 6), 1 / 6), np.full((2, 5), 0.2)
    for solve, given in (
        (lambda M, a, b: monge.solve_batch(M, 0.1, a, b).plan, (cost, a, b)),
        (lambda X, Y, a, b: monge.solve_sample_batch(X, Y, 0.1, a, b).plan, (x, y, a, b)),
        (lambda X, Y: monge.solve_sample_batch(X, Y, 0.1, metric="kl").plan, (x, y)),
        (lambda M, a, b: monge.solve_regularized_batch(M, a, b, quadratic=0.5).plan, (cost, a, b)),
        (lambda M: np.stack(monge.linear_sum_assignment(M)), (cost,)),
        (lambda a, b, M: monge.emd(a, b, M), (a[0], b[0], cost[0])),
        (lambda a, b, M: np.array(monge.emd2(a, b, M)), (a[0], b.T.copy(), cost[0])),
        (lambda a, b, M: monge.sinkhorn(a, b, M, 0.1), (a[0], b.T.copy(), cost[0])),
        (lambda a, b, M: monge.partial_wasserstein(a, b, M, 0.5), (a[0], b[0], cost[0])),
        (lambda X, Y, g: monge.c_transform(X, Y, g)[0], (x[0], y[0], np.zeros(5))),
        (lambda M, v: monge.solve(M, reg=0.1).apply(v), (cost[0], np.arange(5.0))),
        (lambda M, v: monge.solve(M, reg=0.1).push(v), (cost[0], np.arange(6.0))),
        (lambda X, Y, p: monge.solve_sample(X, Y, reg=0.1).transform(p), (x[0], y[0], x[1])),
        (lambda M, f, g: monge.plan_of(f, g, M, reg=0.1).plan, (cost[0], np.zeros(6), np.zeros(5))),
        (lambda M, c: monge.solve(M, reg=0.1, c=c).plan, (cost[0], cost[1])),
        (lambda M, f, g: monge.solve(M, reg=0.1, potentials_init=(f, g)).plan, (cost[0], np.zeros(6), np.zeros(5))),
        (lambda M, w: monge.solve_regularized(M, l1=0.1, l1_weights=w).plan, (cost[0], cost[1])),
    ):
        np.testing.assert_array_equal(solve(*map(give, given)), solve(*given))


def test_columns_of_data_frames_have_one_order(rng):
    pandas = pytest.importorskip("pandas")
    x = pandas.DataFrame(rng.random((6, 2)), columns=["u", "v"])
    y = pandas.DataFrame(rng.random((5, 2)), columns=["u", "v"])
    expected = monge.solve_sample(x.values, y.values, reg=0.1).plan
    np.testing.assert_array_equal(monge.solve_sample(x, y, reg=0.1).plan, expected)
    np.testing.assert_array_equal(monge.solve_sample(x, y.rename(columns={"u": "p", "v": "q"}), reg=0.1).plan, expected)
    with pytest.raises(ValueError, match=r"^X_b: has the columns \['v', 'u'\]; must have them in the order of X_a"):
        monge.solve_sample(x, y[["v", "u"]], reg=0.1)


def test_the_device_that_is_asked_for(rng):
    x, y = rng.normal(size=(6, 2)), rng.normal(size=(5, 2))
    cost = rng.random((6, 5))
    calls = (
        lambda device: monge.solve(cost, reg=0.1, device=device).plan,
        lambda device: monge.solve(cost, reg=0.1, reg_type="L2", device=device).plan,
        lambda device: monge.solve_sample(x, y, reg=0.5, device=device).plan,
        lambda device: monge.solve_batch([cost], 0.1, device=device).plan,
        lambda device: monge.solve_sample_batch([x], [y], 0.5, device=device).plan,
        lambda device: monge.solve_regularized(cost, quadratic=1.0, device=device).plan,
        lambda device: monge.solve_regularized_sample(x, y, quadratic=1.0, device=device).plan,
        lambda device: monge.solve_regularized_batch([cost], quadratic=1.0, device=device).plan,
        lambda device: monge.sinkhorn_divergence(x, y, reg=0.5, device=device).value,
        lambda device: monge.sinkhorn([], [], cost, 0.1, device=device),
        lambda device: monge.sinkhorn2([], np.full((5, 2), 0.2), cost, 0.1, device=device),
        lambda device: monge.empirical_sinkhorn(x, y, 0.5, device=device),
        lambda device: monge.empirical_sinkhorn_divergence(x, y, 0.5, device=device),
        lambda device: monge.sinkhorn_unbalanced([], [], cost, 0.1, 1.0, device=device),
        lambda device: monge.smooth_ot_dual([], [], cost, 1.0, device=device),
        lambda device: monge.c_transform(x, y, np.zeros(5), device=device)[0],
    )
    for call in calls:
        np.testing.assert_array_equal(call("cpu"), call(None))
        with pytest.raises(ValueError, match="^device: is 'tpu'; must be 'cpu', 'cuda' or 'cuda:' and a number"):
            call("tpu")
        with pytest.raises(NotImplementedError, match="^device: is cuda:99; "):
            call("cuda:99")


def test_outputs_must_be_writable(rng):
    x = rng.normal(size=(5, 2))
    plan = monge.solve_sample(x, x, reg=1.0)._plan
    f, g = np.empty(5), np.empty(5)
    f.setflags(write=False)
    with pytest.raises(TypeError, match="^f: .*that can be written"):
        plan.potentials(f, g)
    with pytest.raises(ValueError, match="^g: is int32; must be"):
        plan.potentials(np.empty(5), np.empty(5, np.int32))
