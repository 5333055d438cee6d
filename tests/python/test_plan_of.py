"""Plans of given potentials, and what is made of them without a solve: pickles, gradients of divergences."""

import pickle

import numpy as np
import pytest

import monge
from conftest import squared_distances, weights


@pytest.fixture
def unsolvable(monkeypatch):
    """Solves fail from here on."""

    def refuse():
        for name in ("solve", "solve_batch", "sinkhorn_divergences"):
            monkeypatch.setattr(monge._core, name, lambda *given: pytest.fail("was solved"))

    return refuse


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("unbalanced", [None, 0.7])
def test_the_plan_of_a_solve(rng, precision, unbalanced):
    x, y, a, b = rng.normal(size=(20, 2)), rng.normal(size=(25, 2)), weights(rng, 20), weights(rng, 25)
    given = {"reg": 0.5, "unbalanced": unbalanced, "precision": precision}
    labels = {"labels_x": np.arange(20) % 3, "labels_y": np.arange(25) % 3, "label_cost": rng.random((3, 3))}
    cost = squared_distances(x, y)
    for solved, made in (
        (monge.solve(cost, a, b, **given), lambda f, g: monge.plan_of(f, g, cost, a, b, **given)),
        (
            monge.solve_sample(x, y, a, b, **labels, **given),
            lambda f, g: monge.plan_of_sample(f, g, x, y, a, b, **labels, **given),
        ),
    ):
        found = made(*solved.potentials)
        assert (found.status, found.n_iter, found.reg) == ("completed", 0, 0.5)
        assert not found.report.certified and np.isnan([found.value, found.gap, found.marginal_error]).all()
        # Potentials are rounded on the way; an entry may change by the rounding of its logarithm, at most 40 here.
        rounding = float(100 * np.finfo(precision).eps)
        np.testing.assert_allclose(found.plan, solved.plan, rtol=rounding, atol=0)
        assert found.value_linear == pytest.approx(solved.value_linear, rel=rounding)
        least = 1e-6 * solved.plan.mean()  # Rounding may put an entry of this size on either side of the threshold.
        np.testing.assert_allclose(found.sparse_plan.toarray(), solved.plan, rtol=rounding, atol=1.01 * least)
        np.testing.assert_allclose(found.gradients().a, solved.gradients().a, rtol=0, atol=rounding * 10)


@pytest.mark.parametrize(
    "given, error, message",
    [
        ({"f": None}, ValueError, "f: is missing; a plan of potentials needs both f and g"),
        ({"g": None}, ValueError, "g: is missing; a plan of potentials needs both f and g"),
        ({"f": np.zeros(3)}, ValueError, "f: has 3 entries; must have 4"),
        ({"g": np.full(3, np.nan)}, ValueError, "g: entry 0 is nan; potentials must be"),
        ({"f": np.full(4, 1e300)}, ValueError, r"f: entry 0 is 1e\+300; must be at most 2\^53 eps, 9.01e\+14, in size"),
        ({"reg": 0}, NotImplementedError, "reg: is 0; must be > 0"),
        ({"reg": None}, TypeError, "reg: is None; must be a number"),
        ({"a": np.ones(3)}, ValueError, "a: has 3 entries; must have 4"),
    ],
)
def test_messages(given, error, message):
    for function, costs in (
        (monge.plan_of, {"M": np.ones((4, 3))}),
        (monge.plan_of_sample, {"X_a": np.ones((4, 2)), "X_b": np.ones((3, 2))}),
    ):
        with pytest.raises(error, match=f"^{message}"):
            function(**{"f": np.zeros(4), "g": np.zeros(3), "reg": 0.1, **costs, **given})


def test_pickles_make_plans_without_a_solve(rng, unsolvable):
    x, y = rng.normal(size=(20, 2)), rng.normal(size=(25, 2))
    result, divergence = monge.solve_sample(x, y, reg=0.5), monge.sinkhorn_divergence(x, y, reg=0.5)
    unsolvable()
    again = pickle.loads(pickle.dumps(result))
    assert again.value_linear == result.value_linear
    # Float32, with logarithms of entries up to 40.
    np.testing.assert_allclose(again.plan, result.plan, rtol=1e-5)
    again = pickle.loads(pickle.dumps(divergence))
    np.testing.assert_allclose(again.gradients().x, divergence.gradients().x, rtol=0, atol=1e-6)


def test_a_divergence_starts_from_another(rng):
    x, y = rng.normal(size=(200, 2)), rng.normal(size=(150, 2)) + 0.5
    labels = {"labels_x": np.arange(200) % 3, "labels_y": np.arange(150) % 3, "label_cost": 1 - np.eye(3)}
    for given in ({}, labels):
        first = monge.sinkhorn_divergence(x, y, reg=0.05, **given)
        f, g = first.ab.potentials
        own = [np.mean(part.potentials, axis=0) for part in (first.aa, first.bb)]
        for start in (first, (f, g, *own)):
            again = monge.sinkhorn_divergence(x, y, reg=0.05, potentials_init=start, **given)
            assert again.converged and again.value == pytest.approx(first.value, abs=first.gap + again.gap)
            for one, other in zip(again._solves, first._solves):
                assert one.n_iter <= 3 < other.n_iter
        half = monge.sinkhorn_divergence(x, y, reg=0.05, potentials_init=(f, g), **given)
        assert half.ab.n_iter <= 3 and half.aa.n_iter == first.aa.n_iter
    costs = [squared_distances(p, q) for p, q in ((x, y), (x, x), (y, y))]
    first = monge.sinkhorn_divergence_of_costs(*costs, reg=0.05)
    again = monge.sinkhorn_divergence_of_costs(*costs, reg=0.05, potentials_init=first)
    assert again.converged and max(part.n_iter for part in again._solves) <= 3
    with pytest.raises(TypeError, match="^potentials_init: is 3; must be a DivergenceResult, or arrays"):
        monge.sinkhorn_divergence(x, y, reg=0.05, potentials_init=3)
    with pytest.raises(ValueError, match="^potentials_init: f_bb: has 200 entries; must have 150"):
        monge.sinkhorn_divergence(x, y, reg=0.05, potentials_init=(f, g, f, f))


def test_labels_of_a_divergence(rng):
    x, y = rng.normal(size=(20, 2)), rng.normal(size=(25, 2))
    of_x, of_y, table = np.arange(20) % 3, np.arange(25) % 3, 1 - np.eye(3)
    labels = {"labels_x": of_x, "labels_y": of_y, "label_cost": table, "label_weight": 0.7}
    found = monge.sinkhorn_divergence(x, y, reg=0.5, tol=1e-10, **labels)
    costs = [
        squared_distances(p, q) + 0.7 * table[l][:, k]
        for (p, l), (q, k) in (((x, of_x), (y, of_y)), ((x, of_x), (x, of_x)), ((y, of_y), (y, of_y)))
    ]
    expected = monge.sinkhorn_divergence_of_costs(*costs, reg=0.5, tol=1e-10)
    assert found.value == pytest.approx(expected.value, abs=found.gap + expected.gap + 1e-13)
    with pytest.raises(ValueError, match="^label_cost: row 0, column 1 is 1.0 and row 1, column 0 is 0.0|^label_cost"):
        monge.sinkhorn_divergence(x, y, reg=0.5, **{**labels, "label_cost": np.triu(np.ones((3, 3)))})
    with pytest.raises(ValueError, match="^labels_y: is missing"):
        monge.sinkhorn_divergence(x, y, reg=0.5, labels_x=of_x, label_cost=table)
