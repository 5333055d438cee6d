"""Domain adaptation as an estimator of scikit-learn."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from . import _versions

_versions.require("sklearn", "monge.OTTransport")
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.metrics import pairwise_distances_argmin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from ._arrays import Array, as_numpy, stack_of
from ._names import calls, number, shown
from ._plan_result import SparsePlanResult
from ._problem import Reg, cost_of_metric, costs, names_of_columns
from ._regularized import solve_regularized, solve_regularized_sample
from ._solve import solve_sample

_ENTROPIC = ("auto", "sinkhorn", "newton", "splr", "multiscale")
_REGULARIZED = ("group_lasso", "quadratic", "none")


class OTTransport(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Maps points of one domain to another by optimal transport: the image of a point is the average of its targets.

    Args:
        reg: eps > 0 in units of the cost, or "auto", the default, for 5 % of the mean cost. With a regularised method
            the weight of its term, as in :func:`monge.solve_regularized`. 0 or None: the plan is exact.
        metric: As for :func:`monge.solve_sample`.
        method: "auto", "sinkhorn", "newton", "splr" or "multiscale" for entropic plans, "auto" for exact ones. With
            "group_lasso" each target takes mass from few classes of y. "quadratic" and "none" have sparse plans.
        unbalanced: The penalty of the marginals of an entropic plan, or a pair. By default all mass is transported.
        precision: "auto" or "float32", with which maps have float32's rounding, or "float64".
        tol, max_iter: The tolerance and the iteration limit of the solve; by default those of the solver.
        device: "cpu", "cuda" or "cuda:1"; by default the CPU.

    The entropic map is defined everywhere. With an exact plan or a regularised method, a point that was not in X moves
    by the same vector as the nearest point of X.

    :meth:`transform` is for points of the source. In a Pipeline all data take this step, points of the target too: a
    model that is fitted on moved sources then predicts for targets that were moved as if they were sources. So the step
    stays outside: ``model.fit(transport.fit_transform(X, y, Xt), y).predict(Xt)``. A UserWarning says where
    :meth:`transform` gets points of Xt.

    Attributes:
        result_: The :class:`monge.OTResult`, :class:`monge.ExactResult` or :class:`monge.RegularizedResult`, with its
            report.
        n_iter_: The number of its sweeps, passes or iterations.
        n_features_in_: The dimension of the points.
        feature_names_in_: The names of X's columns, if all are strings; images have the same names.

    >>> import numpy as np, monge
    >>> x = np.random.default_rng(0).normal(size=(40, 2))
    >>> moved = monge.OTTransport(reg=0.01).fit(x, Xt=x + 5).transform(x)
    >>> bool(abs(moved - x - 5).max() < 0.1)
    True
    """

    def __init__(
        self,
        reg: Reg | None = "auto",
        *,
        metric: str = "sqeuclidean",
        method: str = "auto",
        unbalanced: float | tuple[float, float] | None = None,
        precision: Literal["auto", "float32", "float64"] = "auto",
        tol: float | None = None,
        max_iter: int | None = None,
        device: str | None = None,
    ) -> None:
        self.reg = reg
        self.metric = metric
        self.method = method
        self.unbalanced = unbalanced
        self.precision = precision
        self.tol = tol
        self.max_iter = max_iter
        self.device = device

    @calls(**{"row of M": "row of X"}, group_lasso="reg", quadratic="reg", groups="y", X_b="Xt", X_a="X")
    def fit(self, X: Any, y: Any = None, Xt: Any = None, yt: Any = None) -> OTTransport:
        """Solves the transport of X (n x d) to Xt (m x d), by default to X itself, which smooths it.

        Method "group_lasso" requires `y`, the labels (n) of X, for its groups. Otherwise `y` and `yt` have no effect:
        scikit-learn and POT pass them. A `y` of points (m x d) without Xt is a ValueError. POT's estimators call X and
        y Xs and ys; the names here are scikit-learn's.
        """
        del yt
        methods = (*_ENTROPIC, *_REGULARIZED)
        if isinstance(self.method, str) and self.method not in methods:
            raise ValueError(f"method: is {self.method!r}; must be {', '.join(methods)}")
        labels = as_numpy("y", y) if Xt is None and y is not None else np.empty(0)
        if labels.ndim > 1 and labels.dtype.kind == "f":
            raise ValueError(f"y: has shape {labels.shape}; must be labels (n); points of the target are given as Xt")
        names, names_of_target = names_of_columns(X), names_of_columns(Xt)
        how: Any = {"dtype": [np.float64, np.float32], "copy": True}
        source = validate_data(self, stack_of("X", X), ensure_min_samples=2, **how)
        if names is not None and names_of_target not in (None, names):
            raise ValueError(f"Xt: has the columns {shown(names_of_target)}; must have those of X, {shown(names)}")
        target = source if Xt is None else check_array(stack_of("Xt", Xt), input_name="Xt", **how)
        self._source, self._target = source, target
        self._of_target_alone = _rows(target) - _rows(source)
        if isinstance(self.method, str) and self.method in _REGULARIZED:
            self.result_ = self._fit_regularized(source, target, y)
        else:
            self._refuse_options_of_entropic_plans()
            own: Any = dict(metric=self.metric, reg=self.reg, unbalanced=self.unbalanced, method=self.method)
            self.result_ = solve_sample(source, target, **own, **self._how)
        self.n_iter_ = self.result_.n_iter
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = isinstance(self.method, str) and self.method == "group_lasso"
        return tags

    @property
    def _how(self) -> Any:
        """The arguments of all solvers. Precision "auto" is left out: not every solver has a precision."""
        how = {"tol": self.tol, "max_iter": self.max_iter, "precision": self.precision, "device": self.device}
        return {name: value for name, value in how.items() if (name, value) != ("precision", "auto")}

    def _refuse_options_of_entropic_plans(self) -> None:
        if isinstance(self.reg, str) or self.reg:
            return
        if self.unbalanced is not None:
            raise NotImplementedError(
                f"unbalanced: is {shown(self.unbalanced)}; must be None without reg: exact plans are balanced here; "
                "solve_exact_sample() has penalties"
            )
        if self.precision != "auto":
            raise ValueError(
                f"precision: is {shown(self.precision)}; must be 'auto' without reg: exact plans are always in float64"
            )

    def _fit_regularized(self, source: Array, target: Array, y: Any) -> Any:
        has_weight = self.reg is not None and self.reg != "auto"
        if has_weight == (self.method == "none"):
            rule = "must not be given with method 'none'" if has_weight else "must be a number, the weight of the term"
            raise ValueError(f"reg: is {shown(self.reg)}; {rule}")
        if self.unbalanced is not None:
            raise NotImplementedError(f"unbalanced: is given; must not be with method {self.method!r}")
        weight = number("reg", self.reg) if has_weight else 0.0
        if self.method != "group_lasso":
            return solve_regularized_sample(source, target, metric=self.metric, quadratic=weight, **self._how)
        if y is None:
            raise ValueError("y: is missing; method 'group_lasso' requires y to be passed, but the target y is None")
        groups = np.unique(as_numpy("y", y), return_inverse=True)[1]
        cost = costs(source, target, *cost_of_metric(self.metric))
        return solve_regularized(cost, group_lasso=weight, groups=groups, **self._how)

    def transform(self, X: Any) -> Array:
        """The images of points X (k x d) of the source domain, which need not be those of :meth:`fit`."""
        check_is_fitted(self)
        points = validate_data(self, stack_of("X", X), reset=False, dtype=[np.float64, np.float32])
        if all(row in self._of_target_alone for row in _each_row(points.astype(self._target.dtype, copy=False))):
            warnings.warn("X: are points of Xt, of the target; transform() moves points of the source", stacklevel=2)
        if isinstance(self.result_, SparsePlanResult):
            return _carried(points, self._source, self.result_.average(self._target))
        return self.result_.transform(points).astype(points.dtype, copy=False)

    def fit_transform(self, X: Any, y: Any = None, Xt: Any = None, yt: Any = None) -> Array:
        """:meth:`fit`, and the images of the points X. Arguments are those of :meth:`fit`."""
        return self.fit(X, y, Xt, yt).transform(X)

    def inverse_transform(self, X: Any) -> Array:
        """The images of points X (k x d) of the target domain under the inverse map."""
        check_is_fitted(self)
        points = validate_data(self, stack_of("X", X), reset=False, dtype=[np.float64, np.float32])
        if isinstance(self.result_, SparsePlanResult):
            return _carried(points, self._target, self.result_.average(self._source, transpose=True))
        return self.result_.inverse.transform(points).astype(points.dtype, copy=False)

    def transform_labels(self, y: Any) -> np.ndarray[Any, Any]:
        """The fraction of the mass of each target that comes from each class of the labels y (n): (m x classes)."""
        check_is_fitted(self)
        labels, n = as_numpy("y", y), self.result_.shape[0]
        if labels.shape != (n,):
            raise ValueError(f"y: has shape {labels.shape}; must be ({n},)")
        classes, codes = np.unique(labels, return_inverse=True)
        one_hot = np.eye(len(classes))[codes]
        return np.asarray(self.result_.average(one_hot, transpose=True))

    @property
    def coupling_(self) -> Array:
        """The plan (n x m)."""
        check_is_fitted(self)
        return self.result_.plan


def _each_row(points: Array) -> Iterator[bytes]:
    return (row.tobytes() for row in points)


def _rows(points: Array) -> set[bytes]:
    """The rows as one can look them up."""
    return set(_each_row(points))


def _carried(points: Array, seen: Array, images: Array) -> Array:
    """Each point, moved by the same vector as the nearest of the points `seen`."""
    nearest = pairwise_distances_argmin(points, seen)
    return (images[nearest] + (points - seen[nearest])).astype(points.dtype, copy=False)
