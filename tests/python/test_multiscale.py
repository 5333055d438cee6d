"""Method multiscale in every call that takes points."""

import pickle

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
    assert dense.report.left_out == dense.report.left_out_of_row == 0


def test_rows_and_columns_lack_what_the_report_says():
    result = monge.solve_sample(X, Y, reg=REG, method="multiscale", tol=1e-3, precision="float64")
    f, g = result.potentials
    cost = ((X[:, None] - Y) ** 2).sum(2)
    whole = np.exp((f[:, None] + g - cost) / REG) / (len(X) * len(Y))
    lacks = whole - result.plan
    for axis in (0, 1):
        part = (lacks.sum(axis) / whole.sum(axis)).max()
        assert 0 < part <= result.report.left_out_of_row == 1e-3 / 20
    v = np.random.default_rng(1).choice([-1.0, 1.0], len(Y))
    assert (abs(lacks @ v) <= result.report.left_out_of_row * whole.sum(1)).all()


def test_products_and_entries_are_in_the_order_of_the_caller(dense):
    result = monge.solve_sample(X, Y, reg=REG, method="multiscale", tol=1e-6)
    # Each row of both maps averages points of the unit square; plans of these errors differ by far less than 1e-3.
    np.testing.assert_allclose(result.apply(Y), dense.apply(Y), atol=1e-3 / len(X))
    np.testing.assert_allclose(result.plan, dense.plan, atol=1e-3 / len(X))
    assert result.potentials[0].shape == (len(X),)


# Both plans have errors of 1e-6; entries, rows and gradients differ by that times few numbers, each row is 1 / n of the
# mass.
CALLS = {
    "topk": lambda r: r.topk(3)[1],
    "sparse": lambda r: r.sparse(1e-6).toarray(),
    "marginals": lambda r: r.marginal_a,
    "hadamard": lambda r: r.apply_hadamard(X, Y, np.ones(len(Y))),
    "gram": lambda r: r.apply_gram(np.ones(len(X)), Y[:, 0]),
    "transform": lambda r: r.transform() / len(X),
    "gradients by points": lambda r: r.gradients().x,
    "gradients by weights": lambda r: r.gradients().a / len(X),
    "Hessian products": lambda r: r.hessian_product(np.sin(9 * X))[0],
}


# Class 3 of the targets has one point, which no source shares; costs of classes have no symmetry.
LABELS = {
    "labels_x": np.arange(len(X)) * 7 % 3,
    "labels_y": np.where(np.arange(len(Y)) == 70, 3, np.arange(len(Y)) ** 2 % 3),
    "label_cost": [[0.0, 0.1, 0.3, 0.2], [0.05, 0.0, 0.2, 0.1], [0.3, -0.1, 0.0, 0.2]],
}


@pytest.fixture(scope="module", params=[{}, LABELS], ids=["points", "labels"])
def weighted(request):
    a, b = RANDOM.random(len(X)), RANDOM.random(len(Y))
    a[::17] = b[::5] = 0
    given = {"reg": REG, "tol": 1e-6, **request.param}
    return [monge.solve_sample(X, Y, a / a.sum(), b / b.sum(), method=m, **given) for m in ("multiscale", "newton")]


@pytest.mark.parametrize("call", CALLS)
def test_each_call_of_a_result(weighted, call):
    found, expected = (CALLS[call](result) for result in weighted)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=2e-3 / len(X), rtol=0)


def test_new_points(dense):
    result = monge.solve_sample(X, Y, reg=REG, method="multiscale", tol=1e-6)
    np.testing.assert_allclose(result.transform(X[:7] + 0.01), dense.transform(X[:7] + 0.01), atol=2e-3)
    with pytest.raises(NotImplementedError, match="^points: new ones have no labels"):
        monge.solve_sample(X, Y, reg=REG, method="multiscale", tol=1e-2, **LABELS).transform(X[:7])


def test_draws_have_entries(weighted):
    plan, (rows, columns) = weighted[0].plan, weighted[0].sample(3000, seed=1)
    assert (plan[rows, columns] > 0).all()
    assert abs(np.mean(X[rows, 0] * Y[columns, 1]) - (X[:, 0] @ plan @ Y[:, 1]) / plan.sum()) <= 5 / np.sqrt(3000)


@pytest.mark.parametrize("labels", [{}, LABELS], ids=["points", "labels"])
@pytest.mark.parametrize("unbalanced", [0.1, (0.05, np.inf)])
def test_unbalanced(unbalanced, labels):
    results = [
        monge.solve_sample(X, Y, reg=REG, tol=1e-6, unbalanced=unbalanced, method=m, **labels)
        for m in ("multiscale", "newton")
    ]
    assert results[0].report.left_out > 0 == results[1].report.left_out
    assert abs(results[0].value - results[1].value) <= 1e-7
    np.testing.assert_allclose(*(r.gradients().x for r in results), atol=1e-3 / len(X))


def test_solver():
    solver = monge.Solver(REG, method="multiscale", tol=TOL)
    first, second = solver.solve_sample(X, Y), solver.solve_sample(X, Y)
    np.testing.assert_array_equal(first.potentials[0], second.potentials[0])


@pytest.mark.parametrize("labels", [{}, LABELS], ids=["points", "labels"])
@pytest.mark.parametrize("method", ["auto", "multiscale"])
def test_copies_and_plans_of_potentials_leave_out_the_same_pairs(method, labels):
    rng = np.random.default_rng(5)
    x, y = rng.random((4100, 2)), rng.random((4000, 2))
    if labels:
        labels = labels | {"labels_x": rng.integers(0, 2, len(x)), "labels_y": rng.integers(0, 2, len(y))}
    result = monge.solve_sample(x, y, reg=1e-3, tol=1e-2, method=method, **labels)
    copy = pickle.loads(pickle.dumps(result))
    again = monge.plan_of_sample(*result.potentials, x, y, reg=1e-3, method="multiscale", **labels)
    empty = [np.asarray(other.lazy_plan[:99]) == 0 for other in (result, copy, again)]
    assert empty[0].mean() > 0.5
    for other in empty[1:]:
        assert (other == empty[0]).mean() > 0.9
    np.testing.assert_allclose(copy.apply(y[:, 0]), result.apply(y[:, 0]), rtol=1e-12)
    with pytest.raises(ValueError, match="^method: is 'newton'; must be 'auto' or 'multiscale'"):
        monge.plan_of_sample(*result.potentials, x, y, reg=1e-3, method="newton", **labels)


def label_problem(cost, kinds):
    rng = np.random.default_rng(3)
    x, y = rng.random((900, 2)), rng.random((800, 2)) ** 1.5
    labels = {"labels_x": rng.integers(0, kinds, 900), "labels_y": rng.integers(0, kinds, 800)}
    return x, y, labels | {"label_cost": cost * (1 - np.eye(kinds))}


@pytest.mark.parametrize("precision", ["auto", "float32", "float64"])
@pytest.mark.parametrize("cost", [1.0, 1e4, 1e7, 1e9])
@pytest.mark.filterwarnings("ignore:Sinkhorn did not converge")
def test_certificates_with_costs_of_labels_far_above_eps(cost, precision):
    x, y, labels = label_problem(cost, 2)
    options = {"reg": 1e-3, "tol": 1e-3, "max_iter": 60, "precision": precision}
    result = monge.solve_sample(x, y, method="multiscale", **options, **labels)
    whole = (((x[:, None] - y) ** 2).sum(2) + labels["label_cost"][np.ix_(labels["labels_x"], labels["labels_y"])]) / 1e-3
    f, g = (potential / 1e-3 for potential in result.potentials)
    plan = np.exp(f[:, None] + g - whole) / whole.size
    # Logits of this size have an absolute rounding error of 2^-52 times it, in the library and here.
    rounding = 16 * plan.sum() * 2.0**-52 * (np.abs(whole).max() + np.abs(f).max() + np.abs(g).max())
    error = np.abs(plan.sum(1) - 1 / 900).sum() + np.abs(plan.sum(0) - 1 / 800).sum()
    assert error - rounding <= result.marginal_error <= error + 1e-4 + rounding
    if precision != "float32" or cost == 1:
        assert result.marginal_error < 0.5 and result.report.left_out > 0
    if precision == "auto":
        dense = monge.solve_sample(x, y, method="sinkhorn", **options, **labels)
        assert result.marginal_error <= 2 * dense.marginal_error


def test_many_labels():
    x, y, labels = label_problem(0.01, 300)
    options = {"reg": 1e-3, "tol": 1e-8}
    results = [monge.solve_sample(x, y, method=m, **options, **labels) for m in ("multiscale", "newton")]
    assert abs(results[0].value - results[1].value) <= 1e-8
    assert results[0].marginal_error <= 1e-8


def test_coarse_clouds_come_before_clouds_of_few_pairs():
    # A cut at the last eps is not worthwhile here: it has more than a quarter of the pairs.
    x, y = RANDOM.random((2200, 2)), RANDOM.random((2100, 2)) ** 1.5
    report = monge.solve_sample(x, y, reg=1e-3, tol=1e-3, method="multiscale").report
    assert report.coarse_iterations > 0 and report.iterations < 50


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
    losses = [
        SamplesLoss(blur=0.05, tol=1e-6, method=method)(x, torch.tensor(Y)) for method in ("multiscale", "newton")
    ]
    assert abs(losses[0].item() - losses[1].item()) <= 1e-7
    gradients = [torch.autograd.grad(value, x)[0] for value in losses]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-3 / len(X))
