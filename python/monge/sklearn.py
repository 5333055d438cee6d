"""Domain adaptation as an estimator of scikit-learn."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from ._arrays import Array
from ._solve import solve_sample


class OTTransport(TransformerMixin, BaseEstimator):
    """Takes points of one domain to another by the entropic map of optimal transport.

    Args:
        reg: eps in units of the cost; left out, 5 % of the mean cost.
        metric: As for :func:`monge.solve_sample`.
        method: "auto", "sinkhorn", "newton" or "splr".
        unbalanced: Penalty of the marginals, or a pair; left out, all mass travels.
        precision: "auto" or "float32", by which maps are good to float32's rounding, or "float64".
        tol, max_iter: When a solve stops.

    Attributes:
        result_: The :class:`monge.OTResult`, with its report.
        n_iter_: Its sweeps.
        n_features_in_: Dimensions of the points.

    >>> import numpy as np, monge
    >>> x = np.random.default_rng(0).normal(size=(40, 2))
    >>> moved = monge.OTTransport(reg=0.01).fit(x, Xt=x + 5).transform(x)
    >>> bool(abs(moved - x - 5).max() < 0.1)
    True
    """

    def __init__(
        self,
        reg: float | None = None,
        *,
        metric: str = "sqeuclidean",
        method: str = "auto",
        unbalanced: float | tuple[float, float] | None = None,
        precision: Literal["auto", "float32", "float64"] = "auto",
        tol: float = 1e-6,
        max_iter: int = 10000,
    ) -> None:
        self.reg = reg
        self.metric = metric
        self.method = method
        self.unbalanced = unbalanced
        self.precision = precision
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any = None, Xt: Any = None, yt: Any = None) -> OTTransport:
        """Solves the transport of X (n x d) to Xt (m x d), by default to X itself, which smooths it.

        y and yt, labels of the points, are taken where scikit-learn and POT pass them, and not used.
        """
        del y, yt
        source = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2)
        target = source if Xt is None else check_array(Xt, dtype=[np.float64, np.float32])
        self.result_ = solve_sample(
            source,
            target,
            metric=self.metric,
            reg=self.reg,
            unbalanced=self.unbalanced,
            method=self.method,
            precision=self.precision,
            tol=self.tol,
            max_iter=self.max_iter,
        )
        self.n_iter_ = self.result_.n_iter
        return self

    def transform(self, X: Any) -> Array:
        """Where points of the source's domain go, seen before or not."""
        check_is_fitted(self)
        points = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        return self.result_.transform(points).astype(points.dtype, copy=False)

    def fit_transform(self, X: Any, y: Any = None, Xt: Any = None, yt: Any = None) -> Array:
        return self.fit(X, y, Xt, yt).transform(X)

    def inverse_transform(self, X: Any) -> Array:
        """Where points of the target's domain come from."""
        check_is_fitted(self)
        points = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        return self.result_.inverse.transform(points).astype(points.dtype, copy=False)

    def transform_labels(self, y: Any) -> np.ndarray[Any, Any]:
        """The share of each class of the source's labels y (n) in the mass that each target receives (m x classes)."""
        check_is_fitted(self)
        classes, codes = np.unique(np.asarray(y), return_inverse=True)
        one_hot = np.eye(len(classes))[codes]
        return np.asarray(self.result_.inverse.average(one_hot))

    @property
    def coupling_(self) -> Array:
        """The plan (n x m)."""
        check_is_fitted(self)
        return self.result_.plan
