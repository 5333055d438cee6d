"""Runs POT's own tests with Monge's functions in the place of POT's: python bench/pot_tests.py FOLDER

FOLDER is a checkout of POT of the installed version. Tests of barycenters, and those of other backends than NumPy, are
left out. The exit code is 1 where other tests fail than those in EXPECTED.
"""

import argparse
import collections
import os
import sys
from pathlib import Path

for backend in ("PYTORCH", "JAX", "TENSORFLOW", "CUPY"):
    os.environ[f"POT_BACKEND_DISABLE_{backend}"] = "1"

import ot  # noqa: E402
import ot.batch  # noqa: E402
import pytest  # noqa: E402

import monge  # noqa: E402

FILES = (
    "test_solvers.py",
    "test_bregman.py",
    "test_smooth.py",
    "unbalanced/test_sinkhorn.py",
    "batch/test_solve_batch.py",
)
PLACES = {
    ot: (
        "solve",
        "solve_sample",
        "sinkhorn",
        "sinkhorn2",
        "sinkhorn_unbalanced",
        "sinkhorn_unbalanced2",
        "emd",
        "emd2",
    ),
    ot.batch: ("solve_batch", "solve_sample_batch"),
    ot.bregman: (
        "sinkhorn",
        "sinkhorn2",
        "empirical_sinkhorn",
        "empirical_sinkhorn2",
        "empirical_sinkhorn_divergence",
    ),
    ot.lp: ("emd", "emd2"),
    ot.smooth: ("smooth_ot_dual",),
    ot.unbalanced: ("sinkhorn_unbalanced", "sinkhorn_unbalanced2"),
}
EXPECTED = {
    "test_solve_sample_methods": 13,  # 1d, gaussian, low rank, sliced and other problems and algorithms.
    "test_solve_sample_bsp": 1,
    "test_solve_sample_debias": 4,  # sinkhorn_divergence() is the debiased value.
    "test_solve_sample_NotImplemented": 1,  # It wants an error for a problem that is solved.
    "test_nan_warning": 2,  # It wants NaN and a warning at reg = 0, which is an error.
    "test_smooth_ot_dual": 1,  # "sparsity_constrained".
    "test_unbalanced_relaxation_parameters": 4,  # Both penalties are inf and totals differ, so no plan exists.
    "test_unbalanced_relaxation_parameters_pair": 4,
    "test_unbalanced_multiple_inputs": 4,  # It wants the plan of "entropy" for reg_type "kl".
}
"""How many tests of these names fail, of POT 0.9.7."""


class Failures:
    """Names of the tests that fail, without parameters; the last line of each message."""

    def __init__(self):
        self.count = collections.Counter()
        self.words = {}

    def pytest_runtest_logreport(self, report):
        if report.failed:
            name = report.nodeid.split("::")[-1].partition("[")[0]
            self.count[name] += 1
            self.words[name] = str(report.longrepr).strip().splitlines()[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder.absolute() / "test"
    for module, names in PLACES.items():
        for name in names:
            setattr(module, name, getattr(monge, name))
    failures = Failures()
    os.chdir(folder)
    options = [
        "-q",
        "-c",
        os.devnull,
        "--rootdir=.",
        "-p",
        "no:cacheprovider",
        "--tb=line",
        "-k",
        "not geomloss and not bary",
    ]
    if pytest.main([*options, *FILES], plugins=[failures]) not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return 2
    for name, count in sorted(failures.count.items()):
        print(f"{count:4} {name}: {failures.words[name]}")
    wrong = {name for name in {*EXPECTED, *failures.count} if failures.count[name] != EXPECTED.get(name, 0)}
    print("other than expected:", ", ".join(sorted(wrong)) or "none")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
