"""Points of matrices: those that have given squared distances, and features of costs of low rank."""

from __future__ import annotations

from typing import Any

import numpy as np

_MOST_DIMENSIONS = 1024
_ALWAYS_DIMENSIONS = 16
"""Up to this rank points pay for any n, for larger n up to n / 2: beyond it a step by matrices is no slower."""
_MOST_RANK = 64
_BLOCK = 256

Matrix = np.ndarray[Any, Any]


def _roundings(matrix: Matrix) -> tuple[float, ...]:
    """Roundings of an entry that are tried in turn, as fractions of the largest: 4096 units of float64, and half of its
    digits, since |x|^2 + |y|^2 - 2 <x, y> has the rounding of |x|^2, whatever the distances; 256 units of float32."""
    unit = float(np.finfo(matrix.dtype).eps)
    return (4096 * unit, unit**0.5) if matrix.dtype == np.float64 else (256 * unit,)


def _require_finite(field: str, matrix: Matrix) -> None:
    if not np.isfinite(matrix).all():
        i, k = (int(v) for v in np.argwhere(~np.isfinite(matrix))[0])
        raise ValueError(f"{field}: row {i}, column {k} is {matrix[i, k]:g}; entries must be finite")


def points_of_distances(field: str, distances: Matrix) -> tuple[Matrix, float] | None:
    """Points (n x p) with these squared distances, by pivoted Cholesky factorisation of their inner products, and the
    largest difference of an entry, as a fraction of the largest entry. None where it is more than rounding, or where
    the points have too many dimensions."""
    n = len(distances)
    if n == 0 or distances.shape != (n, n):
        raise ValueError(f"{field}: has shape {distances.shape}; must be square, of at least one row")
    _require_finite(field, distances)
    tries = (_points_within(distances, rounding) for rounding in _roundings(distances))
    return next((found for found in tries if found), None)


def _points_within(distances: Matrix, rounding: float) -> tuple[Matrix, float] | None:
    n, scale = len(distances), float(abs(distances).max())
    most = min(max(n // 2, _ALWAYS_DIMENSIONS), _MOST_DIMENSIONS)
    origin = distances[:, 0].astype(np.float64)  # Squared distances to the first point, which becomes the origin.
    rest = origin.copy()
    parts: list[Matrix] = []
    while rest.max() > rounding * scale:
        if len(parts) == most or rest.min() < -16 * rounding * scale:
            return None
        k = int(rest.argmax())
        column = (origin + origin[k] - distances[:, k]) / 2
        for part in parts:
            column -= part * part[k]
        parts.append(column / np.sqrt(rest[k]))
        rest -= parts[-1] ** 2
    points = np.stack(parts, 1) if parts else np.zeros((n, 1))
    residual = 0.0
    for first in range(0, n, _BLOCK):
        rows = slice(first, first + _BLOCK)
        off = abs(squared_distances(points, rows) - distances[rows])
        residual = max(residual, float(off.max()))
        if not residual <= 16 * rounding * scale:
            return None
    return points, residual / (scale or 1.0)


def squared_distances(points: Matrix, rows: slice = slice(None)) -> Matrix:
    squares = (points**2).sum(1)
    found: Matrix = squares[rows, None] + squares - 2 * points[rows] @ points.T
    return found


def features_of_costs(field: str, costs: Matrix) -> tuple[Matrix, Matrix, Matrix, Matrix] | None:
    """s (n x r), t (m x r), rows (n) and columns (m) with costs_ij = |s_i - t_j|^2 + rows_i + columns_j, by elimination
    with full pivoting. None where r is too large."""
    _require_finite(field, costs)
    tries = (_features_within(costs, rounding) for rounding in _roundings(costs))
    return next((found for found in tries if found), None)


def _features_within(costs: Matrix, rounding: float) -> tuple[Matrix, Matrix, Matrix, Matrix] | None:
    scale = float(abs(costs).max())
    rows, columns = costs.mean(1, dtype=np.float64), costs.mean(0, dtype=np.float64)
    rest = costs - rows[:, None] - columns + rows.mean()
    rows = rows - rows.mean()
    left: list[Matrix] = []
    right: list[Matrix] = []
    while True:
        i, j = divmod(int(abs(rest).argmax()), rest.shape[1])
        if abs(rest[i, j]) <= rounding * scale:
            break
        if len(left) == min(_MOST_RANK, *costs.shape):
            return None
        pivot = abs(rest[i, j])
        left.append(rest[:, j] / np.sqrt(2 * pivot) * -np.sign(rest[i, j]))
        right.append(rest[i] / np.sqrt(2 * pivot))
        rest -= np.outer(rest[:, j], rest[i] / rest[i, j])
    s = np.stack(left, 1) if left else np.zeros((len(rows), 1))
    t = np.stack(right, 1) if right else np.zeros((len(columns), 1))
    return s, t, rows - (s**2).sum(1), columns - (t**2).sum(1)
