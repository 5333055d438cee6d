"""Sparse cost matrices of SciPy and PyTorch, whose missing pairs are forbidden."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _core
from ._arrays import Array, NumPy, Place, asked_device, framework_named, framework_of

_OF_PYTORCH = {"torch.sparse_coo": "coo", "torch.sparse_csr": "csr"}


@dataclass(frozen=True)
class SparseCosts:
    """The costs of some pairs, row by row on the host.

    Attributes:
        layout: The format of the caller's matrix.
        is_array: Whether SciPy's class is an array, not a matrix.
        transposed: The caller's matrix, if this is its transpose.
    """

    shape: tuple[int, int]
    row_begin: np.ndarray[Any, Any]
    column_indices: np.ndarray[Any, Any]
    values: np.ndarray[Any, Any]
    layout: str
    is_array: bool
    transposed: SparseCosts | None = None

    @property
    def rows(self) -> np.ndarray[Any, Any]:
        """i of each pair."""
        return np.arange(self.shape[0]).repeat(np.diff(self.row_begin))

    @property
    def T(self) -> SparseCosts:
        """The transpose."""
        if self.transposed is not None:
            return self.transposed
        n, m = self.shape
        order = np.argsort(self.column_indices, kind="stable")
        begin = np.concatenate(([0], np.cumsum(np.bincount(self.column_indices, minlength=m))))
        arrays = (begin, self.rows[order], self.values[order])
        return SparseCosts((m, n), *arrays, self.layout, self.is_array, self)

    def geometry(self) -> Any:
        """The library's object, which solve_exact() takes in the place of a Geometry."""
        return _core.SparseCost(self.shape[1], self.row_begin, self.column_indices, self.values)

    def at_pairs(self, place: Place, rows: Any, columns: Any, values: Any) -> Array:
        """A plan's entries (i, j, P_ij) at the pairs of the caller's matrix, as a matrix of its class."""
        if self.transposed is not None:
            return self.transposed.at_pairs(place, columns, rows, values)
        m = self.shape[1]
        keys = self.rows * m + self.column_indices
        order = np.argsort(keys)
        found = np.zeros(len(keys))
        found[order[np.searchsorted(keys[order], rows * m + columns)]] = values
        index = place.index_array
        return self.like(place, index(self.row_begin), index(self.column_indices), place.array(found))

    def like(self, place: Place, row_begin: Any, columns: Any, values: Any) -> Array:
        """A matrix of the caller's class from the arrays of a CSR matrix."""
        matrix = place.framework.csr(row_begin, columns, values, self.shape)
        if place.framework.root == "torch":
            return matrix if self.layout == "csr" else matrix.to_sparse_coo()
        if self.is_array:
            return matrix.asformat(self.layout)
        from scipy.sparse import csr_matrix

        return csr_matrix(matrix).asformat(self.layout)


def read_sparse(field: str, M: Any, device: Any = None) -> tuple[SparseCosts, Place] | None:
    """The costs of a sparse matrix and the place of its results; None for any other array. Duplicate pairs of a COO
    matrix are added."""
    scipy = sys.modules.get("scipy.sparse")
    if scipy is not None and scipy.issparse(M):
        return _of_scipy(field, M, device)
    if type(M).__module__.partition(".")[0] == "torch" and str(M.layout) in _OF_PYTORCH:
        return _of_pytorch(field, M, device)
    return None


def _of_scipy(field: str, M: Any, device: Any) -> tuple[SparseCosts, Place]:
    if M.ndim != 2:
        raise ValueError(f"{field}: has shape {M.shape}; must be (n, m)")
    if M.dtype.kind not in "fiub":
        raise TypeError(f"{field}: is of dtype {M.dtype}; must be numbers, float32 or float64")
    if M.format in ("bsr", "dia"):  # Blocks store zeros that no one set, and diagonals lose zeros that someone did.
        raise TypeError(f"{field}: is in the format {M.format}; must be coo, csr, csc, lil or dok, whose pairs are known")
    rows = M.tocsr()
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    dtype = "float32" if M.dtype.kind == "f" and M.dtype.itemsize <= 4 else "float64"
    framework = framework_named("numpy")
    arrays = (rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data.astype(np.float64))
    from scipy.sparse import sparray

    costs = SparseCosts(rows.shape, *arrays, M.format, isinstance(M, sparray))
    return costs, _place(framework, dtype, None, None, device)


def _of_pytorch(field: str, M: Any, device: Any) -> tuple[SparseCosts, Place]:
    framework = framework_of(M)
    if M.ndim != 2:
        raise ValueError(f"{field}: has shape {tuple(M.shape)}; must be (n, m)")
    layout, M = _OF_PYTORCH[str(M.layout)], M.detach()
    if layout == "coo":
        M = M.coalesce()
        rows, columns = (indices.cpu().numpy() for indices in M.indices())
        begin = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=M.shape[0]))))
    else:
        begin, columns = (indices.cpu().numpy().astype(np.int64) for indices in (M.crow_indices(), M.col_indices()))
    values = framework.read(field, M.values(), False)
    if values.ndim != 1:
        raise ValueError(f"{field}: has values of shape {tuple(values.shape)}; must have one number for each pair")
    host = framework.on_host(values).astype(np.float64)
    costs = SparseCosts(tuple(M.shape), begin, columns, host, layout, True)
    return costs, _place(framework, framework.dtype_name(values), M.device, framework.cuda_index(values), device)


def _place(framework: NumPy, dtype: str, device: Any, on_cuda: int | None, asked: Any) -> Place:
    return Place(framework, dtype, device, on_cuda if asked is None else asked_device(asked, on_cuda))
