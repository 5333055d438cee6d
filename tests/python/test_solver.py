"""A solver of one problem after the other: the bits of single solves, whatever came before."""

import copy
import pickle
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import monge
from conftest import squared_distances, weights


def same(found, expected):
    assert (found.n_iter, found.status, found.report.primal) == (
        expected.n_iter,
        expected.status,
        expected.report.primal,
    )
    for one, other in zip(found.potentials, expected.potentials):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(found.plan, expected.plan)


@pytest.mark.parametrize("given", [{"reg": "auto"}, {"reg": 0.3, "unbalanced": 0.7}, {"reg": "auto", "metric": "euclidean", "scale": 2.0}])
def test_results_are_those_of_single_solves(rng, given):
    solver = monge.Solver(**given)
    kept = []
    for n, m, d in ((20, 25, 3), (20, 25, 3), (30, 25, 2), (20, 25, 3)):
        x, y, a = rng.normal(size=(n, d)), rng.normal(size=(m, d)), weights(rng, n)
        kept.append((solver.solve_sample(x, y, a), monge.solve_sample(x, y, a, **given)))
        same(*kept[-1])
        labels = {"labels_x": np.arange(n) % 2, "labels_y": np.arange(m) % 2, "label_cost": 1 - np.eye(2)}
        if "metric" not in given:
            same(solver.solve_sample(x, y, **labels), monge.solve_sample(x, y, **labels, **given))
            cost = squared_distances(x, y)
            same(solver.solve(cost, a), monge.solve(cost, a, **given))
    for found, expected in kept:  # Earlier results stay what they are.
        same(found, expected)


def test_a_loop_starts_from_its_last_potentials(rng):
    x, y = rng.normal(size=(200, 2)), rng.normal(size=(200, 2))
    solver = monge.Solver(reg=0.05)
    cold = solver.solve_sample(x, y)
    warm = solver.solve_sample(x, y, potentials_init=cold.potentials)
    assert warm.converged and warm.n_iter <= 3 < cold.n_iter
    same(solver.solve_sample(x, y, potentials_init=cold), warm)
    same(monge.solve_sample(x, y, reg=0.05, potentials_init=cold), warm)
    batch = monge.solve_sample_batch([x, x], [y, y], reg=0.05, potentials_init=[cold, cold.potentials])
    same(batch[0], warm)
    same(batch[1], warm)
    assert monge.solve_sample_batch([x, x], [y, y], reg=0.05, potentials_init=batch).n_iter <= [3, 3]
    seen = []
    solver.solve_sample(x, y, progress=seen.append)
    assert seen and seen[-1].iteration <= cold.n_iter


def test_potentials_of_another_problem_do_no_harm(rng):
    """A constant that moves between f and g is no change; potentials that are far off cost a few sweeps."""
    x, y = rng.normal(size=(37, 4)), rng.normal(size=(53, 4))
    solver = monge.Solver(reg=0.3, tol=1e-9)
    cold = solver.solve_sample(x, y)
    f, g = cold.potentials
    shifted = solver.solve_sample(x, y, potentials_init=(f + 1e10, g - 1e10))
    assert shifted.converged and shifted.n_iter <= cold.n_iter
    for start in (cold.potentials, solver.solve_sample(x + 1e5, y, potentials_init=cold.potentials).potentials):
        moved = solver.solve_sample(x + 1e5, y, potentials_init=start)
        assert moved.converged and moved.n_iter <= 2 * cold.n_iter
        back = solver.solve_sample(x, y, potentials_init=moved.potentials)
        assert back.converged and back.n_iter <= 2 * cold.n_iter


def test_short_solves_go_on_where_the_last_one_ended(rng):
    """Eps is small enough for the ladder, for which the cap of each call leaves too few sweeps."""
    x, y = rng.normal(size=(200, 2)), rng.normal(size=(200, 2)) + 2
    solver, errors, result = monge.Solver(reg=0.02, max_iter=6, warn=False), [], None
    for _ in range(10):
        result = solver.solve_sample(x, y, potentials_init=result)
        errors.append(result.report.marginal_error)
    assert errors[0] > 0.1 and all(after < before for before, after in zip(errors, errors[1:]))
    assert errors[-1] < 0.05 * errors[0]


def test_threads_share_a_solver(rng):
    """Each thread gets the result of its own problem, whose shape may be that of another thread's."""
    sizes = [(20, 25), (20, 25), (30, 25), (20, 25)]
    problems = [(rng.normal(size=(n, 2)), rng.normal(size=(m, 2))) for n, m in sizes]
    expected = [monge.solve_sample(*problem, reg=0.5) for problem in problems]
    solver = monge.Solver(reg=0.5, n_threads=1)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            for _ in range(25):
                for found, wanted in zip(threads.map(lambda p: solver.solve_sample(*p), problems), expected):
                    same(found, wanted)
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda solver: pickle.loads(pickle.dumps(solver))])
def test_copies_have_the_options_and_their_own_memory(rng, copied):
    solver = monge.Solver(reg=0.3, tol=1e-5, metric="euclidean", scale=2.0, n_threads=1)
    x, y = rng.normal(size=(9, 2)), rng.normal(size=(7, 2))
    for _ in range(2):  # Before and after the first solve.
        other = copied(solver)
        assert other._made is None and other._lock is not solver._lock
        expected = monge.solve_sample(x, y, metric="euclidean", scale=2.0, reg=0.3, tol=1e-5, n_threads=1)
        np.testing.assert_array_equal(other.solve_sample(x, y).plan, expected.plan)
        solver.solve_sample(x, y)


def test_a_progress_function_may_not_call_its_own_solver(rng):
    x = rng.normal(size=(20, 2))
    solver = monge.Solver(reg=0.05)
    with pytest.raises(RuntimeError, match="^Solver: is solving; its progress function must call another"):
        solver.solve_sample(x, x + 1, progress=lambda state: solver.solve_sample(x, x))
    same(solver.solve_sample(x, x + 1), monge.solve_sample(x, x + 1, reg=0.05))


@pytest.mark.parametrize(
    "given, error, message",
    [
        ({"foo": 1}, TypeError, "^foo: is no option; options are "),
        ({"max_iter": "ten"}, TypeError, "max_iter: is 'ten'; must be int"),
        ({"method": "fast"}, ValueError, "method: is 'fast'; must be auto"),
        ({"tol": -1}, ValueError, "tol: is -1; must be finite and >= 0"),
        ({"max_iter": 0}, ValueError, "max_iter: is 0; must be >= 1"),
        ({"annealing": 2.0}, ValueError, "annealing: is 2; must be in "),
        ({"unbalanced": -1}, ValueError, "unbalanced: is -1"),
        ({"splr_reuse": 3}, ValueError, "splr_reuse: is 3; must be 30, the default, with method auto"),
        ({"unbalanced": 1.0, "method": "splr"}, NotImplementedError, "unbalanced: is 1; must be inf with method splr"),
        ({"warn": "no"}, TypeError, "warn: is 'no'; must be True or False"),
    ],
)
def test_options_are_checked_when_a_solver_is_made(given, error, message):
    with pytest.raises(error, match=f"^{message}"):
        monge.Solver(reg=0.5, **given)


def test_a_short_solve_warns_unless_told_not_to(rng):
    x, y = rng.normal(size=(20, 2)), rng.normal(size=(25, 2))
    with pytest.warns(monge.ConvergenceWarning):
        monge.Solver(reg=0.01, max_iter=1).solve_sample(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monge.Solver(reg=0.01, max_iter=1, warn=False).solve_sample(x, y)


@pytest.mark.parametrize(
    "given, call, error, message",
    [
        ({"reg": -1}, {}, ValueError, "reg: is -1"),
        ({"speed": 2}, {}, TypeError, "^speed: is no option"),
        ({}, {"a": np.ones(3)}, ValueError, "a: has 3 entries; must have 4"),
        ({}, {"X_b": np.ones((5, 3))}, ValueError, "X_b: has 3 coordinates|X_a, X_b|X_b: "),
        ({"tol": 0.0, "max_iter": 0}, {}, ValueError, "max_iter: is 0"),
        ({}, {"potentials_init": (np.ones(4),)}, TypeError, "potentials_init: has 1 entries; must be a pair"),
        ({}, {"X_a": np.full((4, 2), np.nan)}, ValueError, "X_a: row 0, column 0 is nan"),
    ],
)
def test_messages(rng, given, call, error, message):
    x, y = rng.normal(size=(4, 2)), rng.normal(size=(5, 2))
    with pytest.raises(error, match=f"^({message})"):
        solver = monge.Solver(**{"reg": 0.5, **given})
        solver.solve_sample(**{"X_a": x, "X_b": y, **call})
    solver = monge.Solver(reg=0.5)
    expected = solver.solve_sample(x, y)
    if not given:  # A solver is as it was after an error.
        with pytest.raises(error):
            solver.solve_sample(**{"X_a": x, "X_b": y, **call})
        same(solver.solve_sample(x, y), expected)


def test_a_progress_function_may_drop_results_of_a_solver_that_is_solving(rng):
    """Two of them, each the other's: a destructor that waited for the other's solve would wait for ever."""
    x, y = rng.normal(size=(60, 2)), rng.normal(size=(50, 2))
    solvers = [monge.Solver(reg=0.5), monge.Solver(reg=0.5)]
    results = [[solver.solve_sample(x, y)] for solver in solvers]
    together, values = threading.Barrier(2, timeout=20), [None, None]

    def work(own: int) -> None:
        def progress(state):
            if results[1 - own]:
                together.wait()  # Both solve.
                results[1 - own].clear()
                together.wait()
            return True

        values[own] = float(solvers[own].solve_sample(x + 1, y, progress=progress).value)

    threads = [threading.Thread(target=work, args=(own,), daemon=True) for own in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    expected = float(monge.solve_sample(x + 1, y, reg=0.5).value)
    assert values == [pytest.approx(expected, rel=1e-4)] * 2


def test_its_repr_says_how_it_solves():
    solver = monge.Solver(0.5, tol=1e-3, metric="dot", unbalanced=2.0)
    assert repr(solver) == "<Solver metric dot, eps 0.5, tolerance 0.001, penalty_a 2.0, penalty_b 2.0>"
    assert repr(monge.Solver()) == "<Solver metric sqeuclidean>"


def test_an_argument_of_a_solve_is_no_option_of_a_solver():
    with pytest.raises(TypeError, match="^labels_x: is no option; options are reg, "):
        monge.Solver(0.1, labels_x=[0, 1])
