"""Results stay as they are when the caller changes the arrays that were given or returned, or an error says why not."""

import pickle

import numpy as np
import pytest

import monge
from monge import _problem

N, M, D = 30, 20, 2

SOLVES = {
    "entropic": lambda C: monge.solve(C, reg=0.1),
    "entropy": lambda C: monge.solve(C, reg=0.1, reg_type="entropy", unbalanced=1.0),
    "reference": lambda C: monge.solve(C, reg=0.1, c=np.ones((N, M)) / 600),
    "solver": lambda C: monge.Solver(reg=0.1).solve(C),
    "batch": lambda C: monge.solve_batch(C[None], reg=0.1, reg_type="KL")[0],
    "plan_of": lambda C: monge.plan_of(np.zeros(N), np.zeros(M), C, reg=0.1),
    "quadratic": lambda C: monge.solve_regularized(C, quadratic=0.5),
    "group lasso": lambda C: monge.solve_regularized(C, group_lasso=0.01, groups=np.arange(N) // 5),
    "exact": lambda C: monge.solve(C),
}
SOLVES_OF_POINTS = {
    "entropic": lambda x, y, a: monge.solve_sample(x, y, a, reg=0.1),
    "float64": lambda x, y, a: monge.solve_sample(x, y, a, reg=0.1, precision="float64"),
    "solver": lambda x, y, a: monge.Solver(reg=0.1).solve_sample(x, y, a),
    "batch": lambda x, y, a: monge.solve_sample_batch(x[None], y[None], 0.1, a)[0],
    "list": lambda x, y, a: monge.solve_sample_batch([x], [y], 0.1, [a])[0],
    "divergence": lambda x, y, a: monge.sinkhorn_divergence(x, y, a, reg=0.1).ab,
    "quadratic": lambda x, y, a: monge.solve_regularized_sample(x, y, a, quadratic=0.5),
    "exact": lambda x, y, a: monge.solve_sample(x, y, a),
}
POTENTIALS = {"potentials": lambda r: r.potentials[1], "repr": lambda r: np.array(len(repr(r)))}
USES = {
    "plan": lambda r: r.plan,
    "sparse_plan": lambda r: r.sparse_plan.toarray(),
    "lazy_plan": lambda r: r.lazy_plan[3],
    "marginals": lambda r: r.marginals[0],
    "apply": lambda r: r.apply(np.ones(M)),
    "average": lambda r: r.average(np.arange(M), transpose=False),
    "topk": lambda r: r.topk(2)[1],
    "sample": lambda r: r.sample(5)[1],
    "inverse": lambda r: r.inverse.plan,
    "inverse average": lambda r: r.inverse.average(np.arange(N)),
    "pickle": lambda r: pickle.loads(pickle.dumps(r)).plan,
    "gradients": lambda r: np.array(r.gradients().b, float),
    "log_scalings": lambda r: r.log_scalings[0],
}
USES_OF_POINTS = {
    "transform": lambda r: r.transform(),
    "new points": lambda r: r.transform(np.zeros((3, D))),
    "gradients by points": lambda r: r.gradients().x,
    "hessian product": lambda r: r.hessian_product(np.ones((N, D)))[0],
}


def found(use, result):
    """What a use gives; None for a result that does not have it."""
    try:
        return np.asarray(use(result))
    except (AttributeError, NotImplementedError, TypeError) as error:
        assert any(words in str(error) for words in ("transform", "has no attribute", "an exact plan moves"))
        return None


def assert_same(use, solve, given, change):
    expected = found(use, solve(*[v.copy() for v in given]))
    if expected is None:
        return
    mine = [v.copy() for v in given]
    result = solve(*mine)
    change(mine)
    np.testing.assert_allclose(found(use, result), expected, rtol=1e-12, atol=1e-15)


def scale_all(arrays):
    for array in arrays:
        array *= 3


@pytest.mark.parametrize("use", [*USES, *POTENTIALS])
@pytest.mark.parametrize("solve", SOLVES)
@pytest.mark.parametrize("order", "CF")
def test_costs_that_change(rng, solve, use, order):
    cost = np.asarray(rng.random((N, M)), order=order)
    assert_same((USES | POTENTIALS)[use], SOLVES[solve], [cost], scale_all)


@pytest.mark.parametrize("use", [*USES, *POTENTIALS, *USES_OF_POINTS])
@pytest.mark.parametrize("solve", SOLVES_OF_POINTS)
def test_points_and_weights_that_change(rng, solve, use):
    given = [rng.random((N, D)), rng.random((M, D)), np.full(N, 1 / N)]
    assert_same((USES | POTENTIALS | USES_OF_POINTS)[use], SOLVES_OF_POINTS[solve], given, scale_all)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("solve", [name for name in SOLVES if name != "exact"])
def test_large_costs_that_change_are_an_error(rng, monkeypatch, solve, use):
    """They have no copy; potentials and reports need none."""
    monkeypatch.setattr(_problem, "MOST_COPIED", 0)
    cost = rng.random((N, M))
    result = SOLVES[solve](cost)
    use_it = USES[use]
    if found(use_it, result) is None:
        return
    result = SOLVES[solve](cost)
    f, text = result.potentials[0], repr(result)
    cost *= 3
    np.testing.assert_array_equal(result.potentials[0], f)
    assert repr(result) == text
    reads_no_costs = use == "log_scalings" or use == "gradients" and solve != "reference"
    try:
        value = np.asarray(use_it(result))
    except RuntimeError as error:
        assert str(error).startswith("M: was changed in place since the solve")
    else:
        assert reads_no_costs
        np.testing.assert_allclose(value, np.asarray(use_it(SOLVES[solve](cost / 3))), rtol=1e-9)


@pytest.mark.parametrize(
    "change",
    [
        lambda C: np.divide(C, C.max(), out=C),
        lambda C: C.__setitem__(17, 5.0),
        lambda C: C.__setitem__((slice(None), 3), np.inf),
        lambda C: np.fill_diagonal(C, np.inf),
        lambda C: C.__setitem__((slice(20, None), slice(10)), 0.0),
        lambda C: C.sort(axis=0),
    ],
)
@pytest.mark.parametrize("shape", [(60, 40), (40, 60), (50, 50)])
def test_common_changes_of_large_costs_are_seen(rng, monkeypatch, shape, change):
    monkeypatch.setattr(_problem, "MOST_COPIED", 0)
    cost = rng.random(shape)
    problem = _problem.matrix_problem(cost, None, None)
    problem.require_unchanged()
    change(cost)
    with pytest.raises(RuntimeError, match="^M: was changed in place"):
        problem.require_unchanged()


def test_arrays_that_a_regularised_plan_reads(rng):
    cost = rng.random((N, M))
    mask, weights = (rng.random((N, M)) < 0.8).astype(float), rng.random((N, M))
    mask[:, 0] = mask[0] = 1
    expected = monge.solve_regularized(cost, quadratic=0.5, mask=mask.copy()).plan
    result = monge.solve_regularized(cost, quadratic=0.5, mask=mask)
    mask[:] = 0
    np.testing.assert_array_equal(result.plan, expected)
    expected = monge.solve_regularized(cost, l1=0.1, l1_weights=weights.copy()).plan
    result = monge.solve_regularized(cost, l1=0.1, l1_weights=weights)
    weights *= 9
    np.testing.assert_array_equal(result.plan, expected)


def test_arrays_that_are_returned_are_the_callers(rng):
    cost = rng.random((N, M))
    exact = monge.solve(cost)
    value, plan = exact.apply(np.ones(M)), exact.plan.copy()
    exact.pairs[2][:] = 0
    exact.sparse_plan.data[:] = 0
    exact.potentials[0][:] = 0
    np.testing.assert_array_equal(exact.apply(np.ones(M)), value)
    np.testing.assert_array_equal(exact.inverse.plan.T, plan)
    for result in (monge.solve(cost, reg=0.1), monge.solve_regularized(cost, quadratic=0.5)):
        pushed = result.push(np.ones(N))
        result.marginals[0][:] = 7
        np.testing.assert_array_equal(result.push(np.ones(N)), pushed)


def test_memory_is_not_copied_twice(rng):
    """A list, or an array that is converted, has no owner outside."""
    cost = rng.random((N, M)).astype(np.float16)
    read = _problem.read("M", cost)
    assert _problem.kept(cost, read) is read
    given = cost.tolist()
    read = _problem.read("M", given)
    assert _problem.kept(given, read) is read
