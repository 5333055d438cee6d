"""Calls below a limit of the address space: MemoryError, and the next call is right."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of the address space are Linux's")

PROGRAM = """
import resource
import sys

import numpy as np

import monge

rng = np.random.default_rng(0)
x, costs = rng.normal(size=(3000, 40)), rng.random((3000, 3000))
small = x[:200]
calls = {
    "solve_kept": lambda x: monge.solve_sample(x, x + 1, reg=50.0, max_iter=3, cache_bytes=1e12, n_threads=2).value,
    "dense": lambda x: monge.solve_sample(x, x + 1, reg=50.0, max_iter=3, n_threads=2).plan[0, 0],
    "newton": lambda x: monge.solve_regularized_sample(x, x + 1, quadratic=1.0, max_iter=2, n_threads=2).value,
    "splitting": lambda x: monge.solve_regularized_sample(
        x, x + 1, hypentropy=0.1, max_iter=2, n_threads=2
    ).value,
    "assignment": lambda x: monge.linear_sum_assignment(costs[: len(x), : len(x)], n_threads=2)[1].sum(),
}
call = calls[sys.argv[1]]
expected = call(small)
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
soft, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (used + (24 << 20), hard))
try:
    call(x)
except MemoryError as error:
    message = str(error)
else:
    sys.exit("no MemoryError")
again = call(small)
resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
assert again == expected == call(small), (again, expected)
print(message)
"""


@pytest.mark.parametrize("call", ["solve_kept", "dense", "newton", "splitting", "assignment"])
def test_calls_without_memory_are_errors(call):
    done = subprocess.run([sys.executable, "-c", PROGRAM, call], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
