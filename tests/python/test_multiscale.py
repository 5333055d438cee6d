"""Method multiscale in every call that takes points."""

import numpy as np
import pytest

import monge

RANDOM = np.random.default_rng(44)
X, Y = RANDOM.random((2300, 2)), RANDOM.random((2100, 2)) ** 1.5
REG, TOL = 0.05**2, 1e-4


@pytest.fixture(scope="module")
def dense():
    return monge.solve_sample(X, Y, reg=REG, tol=1e-8)


def test_solve_sample_has_the_value_of_all_pairs(dense):
    result = monge.solve_sample(X, Y, reg=REG, method="multiscale", tol=TOL)
    assert result.converged
    assert result.report.marginal_error <= TOL
    assert 0 < result.report.left_out <= TOL / 8
    assert abs(result.value - dense.value) <= 2 * abs(result.report.gap) + 1e-8
    assert dense.report.left_out == 0


def test_products_and_entries_are_in_the_order_of_the_caller(dense):
    result = monge.solve_sample(X, Y, reg=REG, method="multiscale", tol=1e-6)
    # Each row of both maps averages points of the unit square; plans of these errors differ by far less than 1e-3.
    np.testing.assert_allclose(result.apply(Y), dense.apply(Y), atol=1e-3 / len(X))
    np.testing.assert_allclose(result.plan, dense.plan, atol=1e-3 / len(X))
    assert result.potentials[0].shape == (len(X),)


def test_solver():
    solver = monge.Solver(REG, method="multiscale", tol=TOL)
    first, second = solver.solve_sample(X, Y), solver.solve_sample(X, Y)
    np.testing.assert_array_equal(first.potentials[0], second.potentials[0])


def test_what_it_cannot_take():
    with pytest.raises(NotImplementedError, match="method: is multiscale, given a cost matrix"):
        monge.solve([[0.0, 1.0], [1.0, 0.0]], reg=0.1, method="multiscale")
    with pytest.raises(NotImplementedError, match="given a cost function other than sqeuclidean"):
        monge.solve_sample(X[:9], Y[:9], metric="euclidean", reg=0.1, method="multiscale")


def test_samples_loss():
    torch = pytest.importorskip("torch")
    from monge.torch import SamplesLoss

    x = torch.tensor(X, requires_grad=True)
    loss = SamplesLoss(blur=0.05, method="multiscale", debias=False, tol=1e-7)(x, torch.tensor(Y))
    whole = SamplesLoss(blur=0.05, debias=False, tol=1e-8)(x, torch.tensor(Y))
    assert abs(loss.item() - whole.item()) <= 1e-7
    gradients = [torch.autograd.grad(value, x)[0] for value in (loss, whole)]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-4 / len(X))
    losses = [SamplesLoss(blur=0.05, tol=1e-6, method=method)(x, torch.tensor(Y)) for method in ("multiscale", "newton")]
    assert abs(losses[0].item() - losses[1].item()) <= 1e-7
    gradients = [torch.autograd.grad(value, x)[0] for value in losses]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-3 / len(X))
