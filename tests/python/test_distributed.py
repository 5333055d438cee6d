"""Ranks that are threads of this process: a communicator of the caller's own."""

import signal
import threading
import time

import numpy as np
import pytest

import monge


class Meeting:
    """Communicators of ranks that meet at a barrier."""

    def __init__(self, size):
        self.size = size
        self.posted = [b""] * size
        self.barrier = threading.Barrier(size, timeout=20)
        self.messages = 0

    def communicator(self, rank):
        meeting = self

        class Communicator:
            size = meeting.size

            @staticmethod
            def all_gather(mine, every, sizes):
                meeting.posted[rank] = bytes(mine)
                meeting.barrier.wait()
                assert [len(part) for part in meeting.posted] == list(sizes)
                every[:] = b"".join(meeting.posted)
                meeting.messages += rank == 0
                meeting.barrier.wait()

        Communicator.rank = rank
        return Communicator


def on_ranks(meeting, work, n_threads=1):
    """work(ranks) in a thread each; the results, or the exceptions."""
    results = [None] * meeting.size

    def run(rank):
        try:
            with monge.distributed(meeting.communicator(rank), n_threads=n_threads) as ranks:
                results[rank] = work(ranks)
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(meeting.size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.fixture
def clouds():
    random = np.random.default_rng(5)
    return random.normal(size=(905, 3)), random.normal(size=(801, 3)) + 0.5


def test_ranks_have_the_bits_of_one_process(clouds):
    meeting = Meeting(3)

    def solve(n_threads=None):
        result = monge.solve_sample(*clouds, reg=0.5, n_threads=n_threads)
        return result.potential_a, result.potential_b, result.report.ranks

    results = on_ranks(meeting, lambda ranks: solve())
    alone = solve(n_threads=3)
    for result in results:
        for ours, expected in zip(result[:2], alone[:2], strict=True):
            np.testing.assert_array_equal(ours, expected)
        assert result[2] == 3
    assert alone[2] == 1
    assert meeting.messages > 20


def test_checkpoints_go_on_with_another_number_of_ranks(clouds, tmp_path):
    a = np.ones(len(clouds[0]))
    a[::7] = 0  # These potentials take a pass, which ranks share.
    how = {"a": a, "b": np.full(len(clouds[1]), a.sum() / len(clouds[1])), "reg": 0.05, "method": "sinkhorn"}

    def begin(ranks):
        kept = monge.Checkpoint(tmp_path, every=1, progress=lambda state: state.iteration < 60)
        return monge.solve_sample(*clouds, **how, progress=kept).status

    assert on_ranks(Meeting(3), begin) == ["stopped"] * 3
    start = np.load(tmp_path / "f.npy"), np.load(tmp_path / "g.npy")
    cold = monge.solve_sample(*clouds, **how).report.iterations

    def go_on(ranks):
        return monge.solve_sample(*clouds, **how, potentials_init=start).report.iterations

    for ranks in (1, 2, 5):
        found = on_ranks(Meeting(ranks), go_on)
        assert len(set(found)) == 1 and found[0] < cold


def test_other_arguments_end_the_call_on_all_ranks(clouds):
    x, y = clouds
    results = on_ranks(Meeting(2), lambda ranks: monge.solve_sample(x + ranks.rank, y, reg=0.5))
    for error in results:
        assert isinstance(error, ValueError)
        assert str(error).endswith("rank 1 has another value than rank 0; must be equal on all ranks")


def test_other_shapes_end_the_call_on_all_ranks(clouds):
    x, y = clouds
    for error in on_ranks(Meeting(2), lambda ranks: monge.solve_sample(x[ranks.rank :], y, reg=0.5)):
        assert isinstance(error, ValueError)
        assert str(error).endswith("rank 1 has another shape than rank 0; must be equal on all ranks")


def test_exception_of_a_callback_is_that_of_its_rank(clouds):
    def solve(ranks):
        def progress(state):
            if ranks.rank == 1:
                raise OSError("the disk is full")

        return monge.solve_sample(*clouds, reg=0.5, progress=progress)

    results = on_ranks(Meeting(2), solve)
    assert results[0].status == "converged"
    assert isinstance(results[1], OSError)


def test_arguments_that_ranks_refuse(clouds):
    refused = on_ranks(Meeting(2), lambda ranks: monge.solve_sample(*clouds, reg=0.5, n_threads=2))
    assert all("n_threads: is 2; must be given to monge.distributed" in str(error) for error in refused)


def test_devices_share_the_work_of_a_function(clouds):
    def solve(device):
        assert device == "cpu"
        result = monge.solve_sample(*clouds, reg=0.5)
        return result.potential_a, result.report.ranks

    potential, ranks = monge.on_devices(solve, "cpu,cpu,cpu")
    np.testing.assert_array_equal(potential, monge.solve_sample(*clouds, reg=0.5, n_threads=3).potential_a)
    assert ranks == 3


def test_a_device_whose_work_raises_ends_that_of_the_others(clouds):
    first = threading.Lock()

    def work(device):
        if first.acquire(blocking=False):
            raise OSError("the disk is full")
        return [monge.solve_sample(*clouds, reg=0.5) for _ in range(1000)]

    with pytest.raises(OSError, match="the disk is full"):
        monge.on_devices(work, ["cpu"] * 3)


@pytest.mark.parametrize(("devices", "seconds"), [(1, 0.3), (2, 0), (2, 0.3)])
def test_an_interrupt_ends_the_work_of_all_devices(clouds, devices, seconds):
    started, ended = threading.Barrier(devices + 1, timeout=60), []

    def work(device):
        started.wait()
        try:
            monge.solve_sample(*clouds, reg=0.5, tol=0, max_iter=30000)
        except (KeyboardInterrupt, RuntimeError):
            ended.append(device)
            raise

    def interrupt():
        started.wait()
        time.sleep(seconds)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        monge.on_devices(work, ["cpu"] * devices)
    assert ended == ["cpu"] * devices
    interrupter.join()


def test_devices_that_are_refused(clouds):
    for devices in ("", "gpu", "cpu,cuda:all"):
        with pytest.raises(ValueError, match="device: is"):
            monge.on_devices(lambda device: None, devices)
    with pytest.raises(ValueError, match="devices: is empty"):
        monge.on_devices(lambda device: None, [])
    with pytest.raises(ValueError, match="limit"):
        monge.on_devices(lambda device: None, "cpu,cpu", limit=0)
    if monge.cuda_unavailable_reason():
        with pytest.raises(NotImplementedError, match="devices: is 'cuda:all'; "):
            monge.on_devices(lambda device: None)


def test_a_rank_that_makes_no_call_ends_it_at_the_limit(clouds):
    first = threading.Lock()

    def work(device):
        if first.acquire(blocking=False):
            time.sleep(4)
        return monge.solve_sample(*clouds, reg=0.5).status

    with pytest.raises(RuntimeError, match=r"ranks: rank . did not come within 1 s \(limit\)"):
        monge.on_devices(work, "cpu,cpu", limit=1)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_rows_of_ranks_are_one_problem(clouds, size):
    x, y = clouds
    edges = {1: [0, 905], 2: [0, 0, 905], 3: [0, 100, 905, 905], 5: [0, 1, 1, 400, 900, 905]}[size]

    def solve(ranks):
        whole, own = ranks.gather_rows(x[edges[ranks.rank] : edges[ranks.rank + 1]])
        np.testing.assert_array_equal(whole, x)
        assert (own.start, own.stop) == (edges[ranks.rank], edges[ranks.rank + 1])
        targets, _ = ranks.gather_rows(y.astype(np.float32)[ranks.rows(len(y))])
        assert targets.dtype == np.float32 and len(targets) == len(y)
        return monge.solve_sample(whole, targets, reg=0.5).potential_a[own]

    alone = monge.solve_sample(x, y.astype(np.float32), reg=0.5, n_threads=size)
    np.testing.assert_array_equal(np.concatenate(on_ranks(Meeting(size), solve)), alone.potential_a)


def test_rows_that_differ_end_the_call_on_all_ranks():
    given = [np.zeros((3, 2)), np.zeros((3, 2), np.float32)]
    for error in on_ranks(Meeting(2), lambda ranks: ranks.gather_rows(given[ranks.rank])):
        assert str(error) == "own: rank 1 has rows (2,) of float32; must be (2,) of float64 as rank 0"


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (3.0, "own: is a number; must have rows"),
        ([[1.0], [2.0, 3.0]], "own: is no array of numbers"),
        (np.array([[None]]), "own: is of dtype object; must be numbers"),
    ],
)
def test_rows_that_one_rank_has_not_end_the_call_on_all_ranks(bad, words):
    given = [np.zeros((3, 2)), bad]
    errors = on_ranks(Meeting(2), lambda ranks: ranks.gather_rows(given[ranks.rank]))
    assert str(errors[0]) == "own: rank 1 has no array with rows; must be one on all ranks"
    assert str(errors[1]).startswith(words)


def test_lists_have_rows():
    for whole, own in on_ranks(Meeting(2), lambda ranks: ranks.gather_rows([[1.0, 2.0 + ranks.rank]])):
        np.testing.assert_array_equal(whole, [[1.0, 2.0], [1.0, 3.0]])
        assert own.stop - own.start == 1


def test_maps_of_files_are_matrices(clouds, tmp_path):
    np.save(tmp_path / "cost.npy", np.abs(clouds[0][:, :1] - clouds[1][:, 0]))

    def solve(ranks):
        return monge.solve(np.load(tmp_path / "cost.npy", mmap_mode="r"), reg=0.5).potential_a

    alone = monge.solve(np.load(tmp_path / "cost.npy"), reg=0.5, n_threads=3).potential_a
    for found in on_ranks(Meeting(3), solve):
        np.testing.assert_array_equal(found, alone)
