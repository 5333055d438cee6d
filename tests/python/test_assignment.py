"""linear_sum_assignment against SciPy's, pair by pair: with ties, too, the assignments are the same."""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linear_sum_assignment as reference

import monge

SHAPES = [(1, 1), (1, 7), (7, 1), (2, 2), (8, 8), (9, 17), (17, 9), (40, 40), (33, 64), (64, 33), (130, 131)]


def costs_of(rng, kind, shape):
    if kind == "uniform":
        return rng.random(shape)
    if kind == "points":  # Rows that contend for the same columns: long paths.
        return np.add.outer(rng.normal(size=shape[:-1]), np.zeros(shape[-1])) * rng.random(shape)
    if kind == "few":  # Whole numbers: ties everywhere.
        return rng.integers(0, 3, shape).astype(float)
    if kind == "product":  # Machol-Wien: the longest paths.
        return np.multiply.outer(np.arange(shape[-2]) + 1.0, np.arange(shape[-1]) + 1.0)
    if kind == "constant":
        return np.full(shape, 2.5)
    if kind == "wide":
        return rng.normal(size=shape) * 10.0 ** rng.integers(-12, 13, shape)
    assert kind == "forbidden"
    return np.where(rng.random(shape) < 0.3, np.inf, rng.integers(-5, 5, shape))


def expect_pairs(found, expected):
    for indices, wanted in zip(found, expected):
        assert indices.dtype == np.int64
        np.testing.assert_array_equal(indices, wanted)


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("kind", ["uniform", "points", "few", "product", "constant", "wide", "forbidden"])
def test_pairs_are_scipys(rng, kind, maximize):
    for shape in SHAPES:
        costs = costs_of(rng, kind, shape)
        costs = -costs if maximize else costs
        try:
            expected = reference(costs, maximize)
        except ValueError as error:
            assert "infeasible" in str(error)
            with pytest.raises(ValueError, match="cost matrix is infeasible"):
                monge.linear_sum_assignment(costs, maximize)
            continue
        expect_pairs(monge.linear_sum_assignment(costs, maximize), expected)


def test_large_matrix(rng):
    costs = rng.integers(0, 50, (300, 500)).astype(float)
    expect_pairs(monge.linear_sum_assignment(costs), reference(costs))
    expect_pairs(monge.linear_sum_assignment(costs.T), reference(costs.T))


@pytest.mark.parametrize("dtype", ["float16", "float32", "int64", "uint8", "bool", ">f8"])
def test_types_are_converted_as_by_scipy(rng, dtype):
    costs = rng.integers(0, 2 if dtype == "bool" else 200, (20, 23)).astype(dtype)
    expect_pairs(monge.linear_sum_assignment(costs), reference(costs.astype(float)))


def test_layouts(rng):
    wide = rng.random((40, 50))
    for costs in (wide[::2, ::3], wide.T, wide[::-1], np.asfortranarray(wide), wide.tolist()):
        expect_pairs(monge.linear_sum_assignment(costs), reference(costs))


def test_batches(rng):
    costs = rng.integers(0, 9, (2, 5, 12, 15)).astype("f4")
    for given in (costs, costs.transpose(0, 1, 3, 2), costs[:, ::2, 1:]):
        row, column = monge.linear_sum_assignment(given)
        assert row.shape == (*given.shape[:2], min(given.shape[2:]))
        for t in np.ndindex(given.shape[:2]):
            expect_pairs((row[t], column[t]), reference(given[t]))
        again = monge.linear_sum_assignment(given, n_threads=1)
        np.testing.assert_array_equal(again, (row, column))


def test_sizes_of_a_padded_batch(rng):
    costs = rng.integers(0, 9, (6, 7, 9)).astype(float)
    rows, columns = np.array([7, 0, 3, 7, 1, 5]), np.array([9, 4, 9, 2, 1, 0])
    costs[2, 3:] = np.nan  # Padding is not read.
    row, column = monge.linear_sum_assignment(costs, rows=rows, columns=columns)
    assert row.shape == column.shape == (6, 7)
    for t, (n, m) in enumerate(zip(rows, columns)):
        expect_pairs((row[t, : min(n, m)], column[t, : min(n, m)]), reference(costs[t, :n, :m]))
        assert (row[t, min(n, m) :] == -1).all() and (column[t, min(n, m) :] == -1).all()
    only_columns = monge.linear_sum_assignment(costs[3], columns=5)
    expect_pairs(only_columns, [v.tolist() + [-1, -1] for v in reference(costs[3, :, :5])])


def test_lists(rng):
    shapes = [(3, 4), (0, 5), (30, 20), (1, 1), (6, 6)]
    costs = [rng.integers(0, 4, shape).astype("f4") for shape in shapes]
    costs[4] = costs[4].astype("f8")
    for found, cost in zip(monge.linear_sum_assignment(costs, True), costs, strict=True):
        expect_pairs(found, reference(cost, True))
    together = rng.random((10, 30))
    parts = np.split(together, [4, 4, 19], axis=1)
    for found, cost in zip(monge.linear_sum_assignment(parts), parts, strict=True):
        expect_pairs(found, reference(cost))
    assert monge.linear_sum_assignment([]) == []


def test_empty():
    for shape in [(0, 0), (0, 4), (4, 0)]:
        expect_pairs(monge.linear_sum_assignment(np.zeros(shape)), reference(np.zeros(shape)))
    for shape in [(0, 3, 4), (2, 0, 4), (2, 3, 0)]:
        row, column = monge.linear_sum_assignment(np.zeros(shape))
        assert row.shape == column.shape == (shape[0], min(shape[1:]))


@pytest.mark.parametrize(("maximize", "bad"), [(False, np.nan), (True, np.nan), (False, -np.inf), (True, np.inf)])
def test_invalid_entries(maximize, bad):
    costs = np.ones((3, 4, 4))
    costs[1, 2, 3] = bad
    with pytest.raises(ValueError, match="invalid numeric entries"):
        reference(costs[1], maximize)
    with pytest.raises(ValueError, match=r"^cost_matrix: matrix contains invalid numeric entries"):
        monge.linear_sum_assignment(costs[1], maximize)
    with pytest.raises(ValueError, match=r"^problem 1: cost_matrix: matrix contains invalid numeric entries"):
        monge.linear_sum_assignment(costs, maximize)
    row, column = monge.linear_sum_assignment(costs, maximize, check=False)
    assert (row[1] == -1).all() and (column[1] == -1).all()
    np.testing.assert_array_equal(column[0], np.arange(4))


def test_infeasible():
    costs = np.full((2, 3, 3), np.inf)
    costs[0] = 0
    costs[1, :, 0] = 0
    with pytest.raises(ValueError, match=r"^problem 1: cost_matrix: cost matrix is infeasible"):
        monge.linear_sum_assignment(costs)
    row, column = monge.linear_sum_assignment(costs, check=False)
    np.testing.assert_array_equal(column, [[0, 1, 2], [-1, -1, -1]])
    np.testing.assert_array_equal(row, column)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros(3),), r"cost_matrix: has shape \(3,\); must be a matrix"),
        ((np.zeros((2, 2), complex),), "cost_matrix: is of dtype complex128"),
        ((np.zeros((2, 2)), "yes"), "maximize: is 'yes'"),
        ((np.zeros((2, 3, 3)), False, {"rows": [1]}), r"rows: has shape \(1,\); must be \(2,\)"),
        ((np.zeros((2, 3, 3)), False, {"rows": [1, 4]}), "rows: entry 1 is 4; must be from 0 to 3"),
        ((np.zeros((2, 3, 3)), False, {"columns": [-1, 3]}), "columns: entry 0 is -1; must be from 0 to 3"),
        ((np.zeros((2, 3, 3)), False, {"columns": [1.0, 3.0]}), "columns: is of dtype float64"),
        (([np.zeros((3, 3))], False, {"rows": [1]}), "rows, columns: are given with a list"),
    ],
)
def test_wrong_arguments(arguments, message):
    *positional, keywords = arguments if isinstance(arguments[-1], dict) else (*arguments, {})
    with pytest.raises((ValueError, TypeError), match=f"^{message}"):
        monge.linear_sum_assignment(*positional, **keywords)


@pytest.mark.parametrize("n, m", [(1, 1), (20, 20), (20, 35), (35, 20), (0, 3)])
@pytest.mark.parametrize("maximize", [False, True])
def test_sparse_matrices_have_scipys_sum(n: int, m: int, maximize: bool) -> None:
    random = np.random.default_rng(n + m)
    missing = -np.inf if maximize else np.inf
    dense = np.where(random.uniform(size=(n, m)) < 0.6, random.normal(size=(n, m)), missing)
    dense[np.arange(min(n, m)), np.arange(min(n, m))] = 0.0
    i, j = np.isfinite(dense).nonzero()
    costs = sparse.csr_array((dense[i, j], (i, j)), shape=(n, m))
    rows, columns = monge.linear_sum_assignment(costs, maximize)
    assert (np.diff(rows) > 0).all() and len(set(columns)) == len(columns) == min(n, m)
    expected = reference(dense, maximize)
    assert dense[rows, columns].sum() == pytest.approx(dense[expected].sum(), abs=1e-12)


def test_sparse_matrices_without_an_assignment() -> None:
    costs = sparse.csr_array(([1.0, 2], ([0, 1], [1, 1])), shape=(2, 3))
    with pytest.raises(ValueError, match="cost matrix is infeasible"):
        monge.linear_sum_assignment(costs)
    with pytest.raises(ValueError, match="cost matrix is infeasible"):
        monge.linear_sum_assignment(costs[:, 1:])
    np.testing.assert_array_equal(monge.linear_sum_assignment(costs, check=False), -np.ones((2, 2)))
    with pytest.raises(ValueError, match="invalid numeric entries"):
        monge.linear_sum_assignment(costs * np.nan)
