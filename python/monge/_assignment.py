"""Linear sum assignment: ``linear_sum_assignment``, with SciPy's arguments and results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from . import _core
from ._arrays import Array, Place, framework_of, on_host, read, read_index, stack_of
from ._exact import run
from ._names import calls, shown, truth
from ._problem import Problem
from ._sparse import SparseCosts, read_sparse

_INFEASIBLE, _INVALID = 1, 2


@calls()
def linear_sum_assignment(
    cost_matrix: Any,
    maximize: bool = False,
    *,
    rows: Any = None,
    columns: Any = None,
    check: bool = True,
    n_threads: int | None = None,
) -> Any:
    """Pairs of rows and columns with the least sum of costs, for one matrix or many, with the arguments and results of
    ``scipy.optimize.linear_sum_assignment``.

    The pairs equal SciPy's, even where several assignments are optimal: the algorithm, its float64 arithmetic and its
    order of ties are the same. The matrices of a call are solved side by side, on the CPU or the GPU where they lie.

    Args:
        cost_matrix: One matrix (n, m), a batch (..., n, m), or a list of matrices of any shapes, one dtype and one
            device. inf forbids a pair; with `maximize` -inf does. Or a sparse matrix of SciPy or PyTorch: a pair that
            it does not store is forbidden. It is solved on the host, and if several assignments are optimal, any of
            them may be found.
        maximize: Whether the sum is to be the largest.
        rows, columns: For a batch: whole numbers of its shape (...). Only the first `rows` rows and `columns` columns
            of each matrix are used.
        check: Whether to raise an error for a problem without an assignment. If not, all its indices are -1, and the
            call does not wait for a GPU.
        n_threads: Threads on the CPU, by default one for each core.

    Returns:
        row_ind and column_ind, int64, sorted by row. For one matrix each has min(n, m) entries; for a batch each has
        the shape (..., min(n, m)), with -1 after the last pair of a smaller problem. For a list, the list of both for
        each matrix. Arrays of the framework and on the device of `cost_matrix`.

    Raises:
        ValueError: A problem has no assignment of finite cost ("cost matrix is infeasible"), or a cost is NaN or -inf
            (with `maximize` inf; "matrix contains invalid numeric entries"); another argument is wrong.
        NotImplementedError: A matrix on a GPU has more than 2048 rows or columns.

    Source: Crouse 2016, doi 10.1109/TAES.2016.140952.

    >>> import monge, numpy as np
    >>> monge.linear_sum_assignment(np.array([[4.0, 1, 3], [2, 0, 5], [3, 2, 2]]))
    (array([0, 1, 2]), array([1, 0, 2]))
    """
    maximize, check = truth("maximize", maximize), truth("check", check)
    if (sparse := read_sparse("cost_matrix", cost_matrix)) is not None:
        if rows is not None or columns is not None:
            raise ValueError("rows, columns: are given with a sparse matrix; all its rows and columns are used")
        return _assign_sparse(*sparse, maximize, check, n_threads)
    if isinstance(cost_matrix, (list, tuple)):
        cost_matrix = [stack_of(f"cost_matrix[{t}]", cost) for t, cost in enumerate(cost_matrix)]
    if _is_list(cost_matrix):
        return assign_list(cost_matrix, maximize, rows, columns, check, n_threads)
    costs = read("cost_matrix", cost_matrix)
    shape = tuple(costs.shape)
    if len(shape) < 2:
        raise ValueError(f"cost_matrix: has shape {shape}; must be a matrix (n, m) or a batch (..., n, m)")
    place = Place.of(cost_matrix, costs)
    batch = costs.reshape(math.prod(shape[:-2]), *shape[-2:])
    sizes = (_sizes("rows", rows, shape[:-2]), _sizes("columns", columns, shape[:-2]))
    found = assign(batch, place, batch.shape[0], min(shape[-2:]), maximize, n_threads, *sizes)
    if check:
        require_assigned(found[2], single=len(shape) == 2, maximize=maximize)
    return tuple(place.finish(pairs).reshape(*shape[:-2], pairs.shape[1]) for pairs in found[:2])


def _assign_sparse(
    costs: SparseCosts, place: Place, maximize: bool, check: bool, n_threads: int | None
) -> tuple[Array, Array]:
    """The assignment as exact transport of weights 1; as partial transport where the sides differ in size."""
    n, m = costs.shape
    values = -costs.values if maximize else costs.values
    count, problem_is = min(n, m), _INVALID
    if not (np.isnan(values) | (values == -np.inf)).any():
        problem = Problem(place, np.ones(n), np.ones(m), cost=replace(costs, values=values))
        try:
            options = {} if n == m else {"mass": float(count)}
            made = run(problem, options, None, n_threads, warns=False)._made if count > 0 else None
            pairs = (made.rows, made.column_indices) if made is not None else (np.zeros(0, np.int64),) * 2
            return place.index_array(pairs[0]), place.index_array(pairs[1])
        except ValueError as error:
            if not str(error).startswith(("mass:", "cost: forbids")):
                raise
        problem_is = _INFEASIBLE
    if check:
        require_assigned(np.array([problem_is]), single=True, maximize=maximize)
    none = place.index_array(np.full(count, -1))
    return none, none


def _is_list(costs: Any) -> bool:
    """Whether this is a list of matrices, not a matrix or a batch as nested lists of numbers."""
    return isinstance(costs, (list, tuple)) and all(getattr(cost, "ndim", None) == 2 for cost in costs)


def assign_list(
    costs: Sequence[Any], maximize: bool, rows: Any, columns: Any, check: bool, n_threads: int | None = None
) -> list[tuple[Array, Array]]:
    """:func:`linear_sum_assignment` of a list of matrices."""
    if rows is not None or columns is not None:
        raise ValueError("rows, columns: are given with a list of matrices; each matrix of a list has its own shape")
    matrices = [read(f"cost_matrix[{t}]", cost) for t, cost in enumerate(costs)]
    for t, matrix in enumerate(matrices):
        if len(matrix.shape) != 2:
            raise ValueError(f"cost_matrix[{t}]: has shape {tuple(matrix.shape)}; must be a matrix (n, m)")
    if not matrices:
        return []
    place = Place.of(costs[0], *matrices)
    if any(framework_of(m).dtype_name(m) != place.dtype for m in matrices):
        matrices = [framework_of(m).cast(m, "float64") for m in matrices]
    pairs = [min(matrix.shape) for matrix in matrices]
    found = assign(matrices, place, len(matrices), max(pairs), maximize, n_threads)
    if check:
        require_assigned(found[2], single=False, maximize=maximize)
    row, column = (place.finish(indices) for indices in found[:2])
    return [(row[t, :count], column[t, :count]) for t, count in enumerate(pairs)]


def _sizes(field: str, value: Any, shape: tuple[int, ...]) -> Array | None:
    sizes = read_index(field, value)
    if sizes is None:
        return None
    if tuple(sizes.shape) not in (shape, shape or (1,)):
        raise ValueError(f"{field}: has shape {tuple(sizes.shape)}; must be {shape}, one size for each matrix")
    return sizes.reshape(-1)


def assign(
    costs: Any, place: Place, count: int, pairs: int, maximize: bool, n_threads: int | None, *sizes: Array | None
) -> tuple[Array, Array, Array]:
    """Row indices, column indices and status in new buffers."""
    row, column, status = place.empty_index(count, pairs), place.empty_index(count, pairs), place.empty_index(count)
    rows, columns = sizes or (None, None)
    if count > 0:
        _core.linear_sum_assignment(place.session(n_threads), costs, row, column, status, maximize, rows, columns)
    return row, column, status


def require_assigned(status: Array, single: bool, maximize: bool) -> None:
    """ValueError for the first problem without an assignment."""
    codes = on_host(status)
    failed = codes.nonzero()[0]
    if not len(failed):
        return
    first = int(failed[0])
    where = "" if single else f"problem {first}: "
    if codes[first] == _INVALID:
        infinity = "inf" if maximize else "-inf"
        sizes = "" if single else ", or its size is larger than its matrix"
        raise ValueError(f"{where}cost_matrix: matrix contains invalid numeric entries, NaN or {infinity}{sizes}")
    assert codes[first] == _INFEASIBLE, shown(codes[first])
    raise ValueError(f"{where}cost_matrix: cost matrix is infeasible; each way to pair its rows has a forbidden pair")
