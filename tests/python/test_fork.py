"""Children made by fork, multiprocessing's default on Linux up to Python 3.13, after the parent has used threads."""

import concurrent.futures
import multiprocessing
import threading

import numpy as np
import pytest

import monge

pytestmark = pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="this system has no fork"
)

LIMIT = 60  # Seconds after which a child hangs.


def arrays():
    rng = np.random.default_rng(0)
    return rng.normal(size=(600, 8)), rng.random((300, 300))


def entropic(_=None):
    x, _ = arrays()
    return monge.solve_sample(x, x + 1, reg=0.5, n_threads=2).value


def exact(_=None):
    _, costs = arrays()
    return monge.emd2([], [], costs, numThreads=2)


def batch(_=None):
    _, costs = arrays()
    return monge.solve_batch(np.stack([costs] * 4), reg=0.1, n_threads=2)[0].value


def assignment(_=None):
    _, costs = arrays()
    return monge.linear_sum_assignment(np.stack([costs] * 8), n_threads=2)[1].sum()


def projection(_=None):
    return monge.project(np.ones((5000, 4, 4), np.float32), n_threads=2).sum()


def regularized(_=None):
    _, costs = arrays()
    return monge.solve_regularized(np.tile(costs, (2, 2)), quadratic=1.0, n_threads=2).value


CALLS = [entropic, exact, batch, assignment, projection, regularized]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_a_pool_gets_the_bits_of_its_parent(call):
    expected = call()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map_async(call, range(3)).get(LIMIT) == [expected] * 3
    assert call() == expected


def test_concurrent_futures():
    expected = entropic()
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        assert pool.submit(entropic).result(LIMIT) == expected


def test_a_child_uses_results_of_its_parent():
    x, _ = arrays()
    result = monge.solve_sample(x, x + 1, reg=0.5, n_threads=2)
    expected = result.plan.sum()
    queue = multiprocessing.get_context("fork").SimpleQueue()
    child = multiprocessing.get_context("fork").Process(target=lambda: queue.put(result.plan.sum()))
    child.start()
    child.join(LIMIT)
    assert child.exitcode == 0
    assert queue.get() == expected


def test_a_call_of_another_thread_does_not_stop_a_child():
    """A lock that another thread of the parent holds is free in the child."""
    x, _ = arrays()
    solving, forked = threading.Event(), threading.Event()

    def progress(_):
        solving.set()
        return not forked.is_set()

    thread = threading.Thread(
        target=lambda: monge.solve_sample(x, x + 1, reg=0.5, tol=0, max_iter=10**6, n_threads=2, progress=progress)
    )
    thread.start()
    assert solving.wait(LIMIT)
    child = multiprocessing.get_context("fork").Process(target=entropic)
    child.start()
    child.join(LIMIT)
    forked.set()
    thread.join()
    code = child.exitcode
    child.kill()
    assert code == 0
