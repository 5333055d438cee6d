"""Linear sum assignments as an operator of PyTorch."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._arrays import Place, read
from .._assignment import assign, assign_list, require_assigned
from .._names import calls, truth
from ._operands import require_tensors
from ._operator import differentiable, leading, no_derivative

# torch.library reads the annotations, so they must not be strings.


@torch.library.custom_op("monge::linear_sum_assignment", mutates_args=())
def _assignment_operator(
    cost: Tensor, rows: Tensor | None, columns: Tensor | None, maximize: bool, check: bool
) -> tuple[Tensor, Tensor]:
    costs = read("cost_matrix", cost)
    *batch, n, m = costs.shape
    count = math.prod(batch)
    sizes = [None if v is None else v.to(torch.int64).expand(batch).reshape(-1).contiguous() for v in (rows, columns)]
    row, column, status = assign(
        costs.reshape(count, n, m), Place.of(costs, costs), count, min(n, m), maximize, None, *sizes
    )
    if check:
        require_assigned(status, single=not batch, maximize=maximize)
    return row.reshape(*batch, min(n, m)), column.reshape(*batch, min(n, m))


@_assignment_operator.register_fake
def _(cost, rows, columns, maximize, check):  # type: ignore[no-untyped-def]
    *batch, n, m = cost.shape
    pairs = torch.sym_min(n, m)
    return cost.new_empty(*batch, pairs, dtype=torch.int64), cost.new_empty(*batch, pairs, dtype=torch.int64)


def _batched(call: Any, size: int, dimensions: Any, given: Any) -> Any:
    """The vmap rule: matrices may have any number of leading dimensions, so vmap's is one more."""
    return call(*(leading(v, at, size) if isinstance(v, Tensor) else v for v, at in zip(given, dimensions))), (0, 0)


_linear_sum_assignment = differentiable(
    "linear_sum_assignment",
    _assignment_operator,
    backward=no_derivative("linear_sum_assignment", "derivatives"),
    batched=_batched,
)


@calls()
def linear_sum_assignment(
    cost_matrix: Tensor | Sequence[Tensor],
    maximize: bool = False,
    *,
    rows: Tensor | None = None,
    columns: Tensor | None = None,
    check: bool = True,
) -> Any:
    """:func:`monge.linear_sum_assignment` for matchers, as an operator that torch.compile and CUDA graphs record.

    Args:
        cost_matrix: A tensor (..., n, m), or a list of matrices of any shapes, such as ``cost.split(sizes, -1)``.
        maximize: Whether the sum is to be the largest.
        rows, columns: Whole numbers of the shape (...), on the device of `cost_matrix`: the sizes in use of each matrix
            of a padded batch.
        check: Whether a problem without an assignment is an error. If not, all its indices are -1, which PyTorch reads
            as the last element, and the call does not wait for a GPU. A CUDA graph can record the call without check
            alone.

    Returns:
        row_ind and column_ind, int64, (..., min(n, m)), sorted by row, with -1 after the last pair of a smaller
        problem; for a list of matrices, the list of both for each. Indices have no derivatives.

    Raises:
        TypeError, ValueError: A type or a shape is wrong; with `check` a problem has no assignment of finite cost, a
            cost of NaN or -inf (with `maximize` inf), or a size out of range.
        NotImplementedError: A matrix on a GPU has more than 2048 rows or columns.

    >>> import monge.torch, torch
    >>> cost = torch.tensor([[4.0, 1, 3], [2, 0, 5], [3, 2, 2]])
    >>> row, column = monge.torch.linear_sum_assignment(cost)
    >>> cost[row, column].sum()
    tensor(5.)
    """
    maximize, check = truth("maximize", maximize), truth("check", check)
    if not isinstance(cost_matrix, Tensor):
        matrices = list(cost_matrix)
        require_tensors(**{f"cost_matrix[{t}]": matrix for t, matrix in enumerate(matrices)})
        return assign_list([matrix.detach() for matrix in matrices], maximize, rows, columns, check)
    require_tensors(cost_matrix=cost_matrix)
    shape = tuple(cost_matrix.shape)
    if len(shape) < 2:
        raise ValueError(f"cost_matrix: has shape {shape}; must be (n, m) or (..., n, m)")
    for name, sizes in (("rows", rows), ("columns", columns)):
        if sizes is None:
            continue
        require_tensors(**{name: sizes})
        if sizes.dtype.is_floating_point or tuple(sizes.shape) != shape[:-2]:
            raise ValueError(
                f"{name}: is of dtype {sizes.dtype} and shape {tuple(sizes.shape)}; must be whole numbers of shape "
                f"{shape[:-2]}, one for each matrix"
            )
    return _linear_sum_assignment(cost_matrix.detach(), rows, columns, maximize, check)
