"""The estimator of scikit-learn."""

import numpy as np
import pytest

import monge

estimator_checks = pytest.importorskip("sklearn.utils.estimator_checks")


@estimator_checks.parametrize_with_checks([monge.OTTransport(reg=1.0, precision="float64")])
def test_estimator(estimator, check):
    check(estimator)


def test_it_moves_one_domain_to_the_other(rng):
    x = rng.normal(size=(60, 2))
    xt = x @ np.array([[1.0, 0.2], [0.0, 1.0]]) + 4
    transport = monge.OTTransport(reg=0.02)
    moved = transport.fit_transform(x, None, xt)
    plan = transport.coupling_
    np.testing.assert_allclose(moved, plan @ xt / plan.sum(1)[:, None], rtol=1e-4)
    back = transport.inverse_transform(xt)
    np.testing.assert_allclose(back, plan.T @ x / plan.sum(0)[:, None], rtol=1e-4, atol=1e-4)
    labels = np.where(x[:, 0] > 0, "right", "left")
    shares = transport.transform_labels(labels)
    classes = np.stack([labels == "left", labels == "right"], 1)
    np.testing.assert_allclose(shares, plan.T @ classes / plan.sum(0)[:, None], rtol=1e-4, atol=1e-6)


def test_inverse_of_an_unbalanced_matrix(rng):
    cost = rng.random((7, 9))
    result = monge.solve(cost, reg=0.2, unbalanced=(0.5, 2.0), tol=1e-10)
    np.testing.assert_allclose(result.inverse.plan, result.plan.T, rtol=1e-10)
    own, other = result.gradients(), result.inverse.gradients()
    np.testing.assert_allclose(other.a, own.b, rtol=1e-8)
    np.testing.assert_allclose(other.b, own.a, rtol=1e-8)
    np.testing.assert_allclose(result.inverse.inverse.plan, result.plan, rtol=1e-10)
