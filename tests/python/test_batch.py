"""Batches: stacked or ragged, each problem with the bits of its own solve."""

import numpy as np
import pytest

import monge


def test_each_problem_is_as_if_it_were_alone(rng):
    x = [rng.normal(size=(n, 3)) for n in (5, 40, 1)]
    y = [rng.normal(size=(m, 3)) for m in (7, 30, 2)]
    a = [None, None, None]
    batch = monge.solve_sample_batch(x, y, 0.4, a, reg_type="KL")
    assert len(batch) == 3 and batch.converged
    for k, result in enumerate(batch):
        alone = monge.solve_sample(x[k], y[k], reg=0.4)
        np.testing.assert_array_equal(result.plan, alone.plan)
        np.testing.assert_array_equal(batch.plan[k], alone.plan)
        np.testing.assert_array_equal(batch.potentials[0][k], alone.potentials[0])
        np.testing.assert_array_equal(batch.marginals[1][k], alone.marginals[1])
        for name in ("potential_a", "potential_b", "marginal_a", "marginal_b"):
            np.testing.assert_array_equal(getattr(batch, name)[k], getattr(alone, name))
        assert batch.value[k] == alone.value and batch.n_iter[k] == alone.n_iter
        np.testing.assert_array_equal(batch.lazy_plan[k][:], alone.lazy_plan[:])
        np.testing.assert_array_equal(batch.sparse_plan[k].toarray(), alone.sparse_plan.toarray())
        assert batch.log[k]["marginal_error"] == alone.marginal_error
    assert len(batch[1:]) == 2


def test_weights_for_all_or_for_each(rng):
    cost = rng.random((3, 6, 5))
    a = rng.random((3, 6)) + 0.1
    a /= a.sum(1, keepdims=True)
    for_each = monge.solve_batch(cost, 0.2, a)
    as_list = monge.solve_batch(list(cost), 0.2, list(a))
    np.testing.assert_array_equal(for_each.plan, as_list.plan)
    for_all = monge.solve_batch(cost, 0.2, a[0])
    np.testing.assert_array_equal(for_all.plan[0], for_each.plan[0])
    np.testing.assert_allclose(for_all.marginals[0], np.tile(a[0], (3, 1)), atol=2e-6)


@pytest.mark.parametrize("mixed", [("f4", "f8"), ("f8", "f4"), ("f4", "f4")])
@pytest.mark.parametrize("sizes", [(5, 5), (5, 6)])
def test_a_batch_has_one_dtype(rng, mixed, sizes):
    x = [rng.random((n, 2)).astype(dtype) for n, dtype in zip(sizes, mixed)]
    batch = monge.solve_sample_batch(x, x, 0.1)
    expected = "float64" if "f8" in mixed else "float32"
    for stack in (batch.plan, *batch.potentials, *batch.marginals):
        assert all(array.dtype == expected for array in stack)
    assert batch.value.dtype == expected
    np.testing.assert_allclose(batch.plan[1], batch[1].plan, rtol=1e-7)


@pytest.mark.parametrize("sizes", [((4, 3), (4, 3), (4, 3)), ((4, 3), (5, 3), (4, 2)), ((4, 3), (5, 3), (6, 3))])
def test_a_batch_starts_from_the_potentials_of_another(rng, sizes):
    cost = [rng.random(size) for size in sizes]
    first = monge.solve_batch(cost, 0.1, tol=1e-9)
    f, g = first.potentials
    for start in (first.potentials, list(zip(f, g)), tuple(zip(f, g)), (list(f), list(g))):
        again = monge.solve_batch(cost, 0.1, tol=1e-9, potentials_init=start)
        assert again.n_iter == [0, 0, 0] < first.n_iter


@pytest.mark.parametrize("stacked", [True, False])
@pytest.mark.parametrize("metric", ["sqeuclidean", "dot"])
def test_labels(rng, stacked, metric):
    """Of each problem or of all, with one table or one each: as each problem alone."""
    x, y = rng.normal(size=(3, 12, 2)), rng.normal(size=(3, 9, 2))
    of_x, of_y = rng.integers(3, size=(3, 12)), rng.integers(3, size=(3, 9))
    tables = rng.random((3, 3, 3))
    given = {"metric": metric, "reg": 0.3}
    clouds = (x, y) if stacked else (list(x), list(y))
    for labels_x, labels_y, table in (
        (of_x, of_y, tables[0]),
        (list(of_x), list(of_y), list(tables)),
        (of_x[0], of_y[0], tables),
    ):
        labels = {"labels_x": labels_x, "labels_y": labels_y, "label_cost": table, "label_weight": 0.7}
        batch = monge.solve_sample_batch(*clouds, **labels, **given, reg_type="KL")
        for k, result in enumerate(batch):
            own = {
                "labels_x": of_x[k] if np.ndim(labels_x) == 2 else of_x[0],
                "labels_y": of_y[k] if np.ndim(labels_y) == 2 else of_y[0],
                "label_cost": table if np.ndim(table) == 2 else tables[k],
            }
            alone = monge.solve_sample(x[k], y[k], **own, label_weight=0.7, **given)
            np.testing.assert_array_equal(result.plan, alone.plan)
            assert result.value == alone.value != monge.solve_sample(x[k], y[k], **given).value
    sparse = monge.solve_sample_batch(*clouds, **labels, **given, reg_type="L2", tol=1e-8)
    alone = monge.solve_regularized_sample(
        x[1], y[1], metric=metric, quadratic=0.3, tol=1e-8,
        labels_x=of_x[0], labels_y=of_y[0], label_cost=tables[1], label_weight=0.7,
    )  # fmt: skip
    np.testing.assert_allclose(sparse.value[1], alone.value, rtol=1e-7)


def test_messages_name_the_problem(rng):
    cost = rng.random((3, 6, 5))
    with pytest.raises(ValueError, match="^problem 1: a: "):
        monge.solve_batch(cost, 0.2, [np.ones(6) / 6, np.ones(4) / 4, np.ones(6) / 6])
    with pytest.raises(ValueError, match="^a: has 2 entries; must have 3"):
        monge.solve_batch(cost, 0.2, np.ones((2, 6)))
    with pytest.raises(ValueError, match="^M: has no problems"):
        monge.solve_batch([], 0.2)


@pytest.mark.parametrize("reg", [None, 0.5])
def test_products_of_all_problems_at_once(rng, reg):
    x, y = rng.normal(size=(2, 3, 6, 2))
    values, mass = rng.normal(size=(3, 6, 4)), rng.random((3, 6))
    batch = monge.solve_sample_batch(x, y, reg)
    for name, given in (("apply", mass), ("apply", values), ("average", mass), ("average", values)):
        for transpose in (False, True):
            found = getattr(batch, name)(given, transpose)
            assert found.shape == given.shape
            for one, result, v in zip(found, batch, given):
                np.testing.assert_array_equal(one, getattr(result, name)(v, transpose))
    for points in (None, x[:, :2]):
        for one, result, k in zip(batch.transform(points), batch, range(3)):
            np.testing.assert_array_equal(one, result.transform(None if points is None else points[k]))


def test_products_of_problems_of_several_sizes(rng):
    sizes = [(3, 4), (5, 2)]
    batch = monge.solve_batch([rng.random(size) for size in sizes], 0.1)
    given = [rng.random((m, 2)) for _, m in sizes]
    found = batch.average(given)
    assert [v.shape for v in found] == [(3, 2), (5, 2)]
    assert batch.apply([np.ones(3), np.ones(5)], transpose=True)[1].shape == (2,)
    with pytest.raises(ValueError, match="^values: has 1 entries; must have 2, one for each problem"):
        batch.average(given[:1])
    with pytest.raises(ValueError, match=r"^problem 1: values: has shape \(4, 2\); must be \(2,\) or \(2, p\)"):
        batch.average([given[0], given[0]])
    with pytest.raises(TypeError, match="^v: is 3; must be a stack or a list"):
        batch.apply(3)
    with pytest.raises(NotImplementedError, match="transform: the problem is a cost matrix"):
        batch.transform()
