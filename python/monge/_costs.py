"""The options of the costs of points. Every function that takes points has them, by these names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from ._options import ExactOptions, KeywordOptions, RegularizedOptions


class LabelOptions(TypedDict, total=False):
    """Labels of points: the cost of a pair has the term label_weight label_cost[l_i, l_j]. On CUDA the metric must be
    "sqeuclidean", "cosine" or "dot". Labels and their costs go together. Classes of another type, such as strings, get
    numbers by ``np.unique(np.concatenate([labels_x, labels_y]), return_inverse=True)``."""

    labels_x: Any
    """classes l_i of the points X_a, (n) whole numbers from 0."""
    labels_y: Any
    """classes l_j of the points X_b, (m) whole numbers from 0."""
    label_cost: Any
    """costs of the classes of X_a by those of X_b."""
    label_weight: float
    """factor of label_cost; by default 1."""


class CostOptions(LabelOptions, total=False):
    """Options of the costs of points, C_ij = scale metric(x_i, y_j), with a term of labels where these are given."""

    norm_p: float | None
    """p >= 1 of the metric "p-norm"; by default 2."""
    scale: float
    """factor of the costs, > 0; by default 1. The cost of GeomLoss is "sqeuclidean" with scale 0.5."""


class SampleOptions(KeywordOptions, CostOptions, total=False):
    """Options of an entropic solve of points."""


class ExactSampleOptions(ExactOptions, CostOptions, total=False):
    """Options of an exact solve of points."""


class RegularizedSampleOptions(RegularizedOptions, CostOptions, total=False):
    """Options of a regularised solve of points."""


_DEFAULTS: dict[str, Any] = {
    "labels_x": None,
    "labels_y": None,
    "label_cost": None,
    "label_weight": 1.0,
    "norm_p": None,
    "scale": 1.0,
}
LABELS = ("labels_x", "labels_y", "label_cost")
"""The labels of X_a, those of X_b and their costs."""
LABELLED = tuple(LabelOptions.__annotations__)
"""The names of the options of labels."""
COSTS = tuple(_DEFAULTS)
"""The names of all options of costs."""


def split_costs(options: Mapping[str, object]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of the costs, all of them, and the other options."""
    costs = {name: options.get(name, default) for name, default in _DEFAULTS.items()}
    return costs, {name: value for name, value in options.items() if name not in _DEFAULTS}


def alone(options: Mapping[str, object], known: Iterable[str]) -> dict[str, Any]:
    """The options, each of which must be a known one."""
    for name in options:
        if name not in known:
            raise TypeError(f"{name}: is no option; options are {', '.join(known)}")
    return dict(options)
