"""Derivatives of plans that move hardly any mass, and at points of hardly any weight."""

import numpy as np
import pytest
import torch

import monge

jax = pytest.importorskip("jax")


@pytest.mark.parametrize("points", [np.array, torch.tensor, jax.numpy.asarray])
@pytest.mark.parametrize("values", [np.array, torch.tensor, jax.numpy.asarray, np.ndarray.tolist])
def test_averages_far_from_the_origin_in_all_frameworks(points, values):
    random = np.random.default_rng(0)
    x, y = random.random((20, 2)) + 1e4, random.random((15, 2)) + 1e4
    result = monge.solve_sample(points(x), points(y), reg=0.05)
    found = np.asarray(result.average(values(y)))
    # JAX has float32 numbers by default, whose rounding is 1e-3 at 1e4.
    np.testing.assert_allclose(found, np.asarray(result.transform(points(x))), rtol=0, atol=3e-3)


def leaf(values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def test_a_plan_of_hardly_any_mass_has_derivatives():
    # The truth is from central differences of a solve with 60 digits.
    x, y = leaf([[0.0], [1.0]]), torch.tensor([[36.0], [37.0]], dtype=torch.float64)
    result = monge.solve_sample(x, y, reg=1.0, unbalanced=1.0)
    result.value_linear.backward()
    np.testing.assert_allclose(x.grad.ravel(), [2.2276e-189, 5.2091e-174], rtol=1e-4)


@pytest.mark.parametrize("weight", [1e-20, 1e-100, 1e-300])
def test_a_potential_at_a_point_of_hardly_any_weight_has_derivatives(weight):
    random = np.random.default_rng(0)
    points, targets = random.normal(size=(7, 2)), random.normal(size=(6, 2))

    def gradient(weight):
        x = leaf(points)
        a = torch.tensor(np.r_[weight, np.full(6, 1 / 6)])
        monge.solve_sample(x, torch.tensor(targets), a, reg=0.5, tol=1e-9).potentials[0][0].backward()
        return x.grad

    # The weight changes the potentials by as much.
    np.testing.assert_allclose(gradient(weight), gradient(1e-12), rtol=1e-4, atol=1e-5)
