"""Plans from which POT's semi-relaxed functions start, by their names."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._exact import solve_exact
from ._names import shown

_Matrix = np.ndarray[Any, Any]

_PARTITIONS = ("fluid", "spectral", "kmeans")
NAMED_STARTS = ("product", "random_product", "random", *(f"{name}{end}" for name in _PARTITIONS for end in ("", "_soft")))


def named_start(
    name: Any, C1: _Matrix, C2: _Matrix, p: _Matrix, M: _Matrix | None, alpha: float, seed: int
) -> _Matrix | None:
    """The plan (n x m) with the rows' masses p, or None for the product plan. Partitions need scikit-learn or networkx.

    A partition of the larger space into as many parts as the smaller one has points is matched with these by the exact
    plan between the rows of both matrices, those of the parts being means. A soft start is the mean of this plan and of
    the product plan. With M it is mixed with the plan that takes each row to its least cost.
    """
    if name not in NAMED_STARTS:
        raise ValueError(f"G0: is {shown(name)}; must be a plan (n x m) or one of {', '.join(NAMED_STARTS)}")
    if name == "product":
        return None
    random, n, m = np.random.default_rng(seed), len(C1), len(C2)
    kind, is_soft = name.removesuffix("_soft"), name.endswith("_soft")
    if kind == "random":
        plan = random.random((n, m))
        plan *= (p / plan.sum(1))[:, None]
    elif kind == "random_product":
        q = random.random(m)
        plan = np.outer(p, q / q.sum())
    elif n >= m:
        plan = _matched(kind, C1, C2, p, seed)
    else:
        plan = _matched(kind, C2, C1, np.full(m, p.sum() / m), seed, p).T
    if is_soft:
        plan = (plan + np.outer(p, plan.sum(0) / p.sum())) / 2
    if M is None:
        return plan
    nearest = M == M.min(1, keepdims=True)
    return np.asarray(alpha * plan + (1 - alpha) * nearest * (p / nearest.sum(1))[:, None])


def _matched(kind: str, large: _Matrix, small: _Matrix, weights: _Matrix, seed: int, to: _Matrix | None = None) -> _Matrix:
    """The plan from the points of the larger space to those of the smaller one, by default of the masses of the parts."""
    size = len(small)
    parts = np.eye(size)[_labels(kind, large, size, seed) if len(large) > size else np.arange(size)]
    masses = weights @ parts
    share = parts * weights[:, None] / np.where(masses > 0, masses, 1)
    rows = share.T @ large @ share
    distances = np.sqrt(((rows[:, None] - small) ** 2).sum(-1))
    between = solve_exact(distances, masses, masses if to is None else to).plan
    return np.asarray(share @ between)


def _labels(kind: str, matrix: _Matrix, count: int, seed: int) -> _Matrix:
    """The part of each point."""
    if kind == "fluid":
        import networkx

        labels = np.zeros(len(matrix), int)
        graph = networkx.from_numpy_array(matrix)
        for part, points in enumerate(networkx.community.asyn_fluidc(graph, count, seed=seed)):
            labels[list(points)] = part
        return labels
    from sklearn import cluster

    by = (
        cluster.KMeans(count, n_init=1, random_state=seed)
        if kind == "kmeans"
        else cluster.SpectralClustering(count, affinity="precomputed", random_state=seed)
    )
    return np.asarray(by.fit(matrix).labels_)
