"""Runs POT's own tests with Monge's functions in the place of POT's: python bench/pot_tests.py FOLDER [FILE...]

FOLDER is a checkout of POT, of the installed version. Tests of barycenters, of co-optimal transport and of backends
other than NumPy are left out. If Monge lacks a function of Gromov-Wasserstein transport, its tests fail. The exit code
is 1 where other tests fail than those in EXPECTED. FILE is a file of tests, by default each in FILES; then only its tests are run.
"""

import argparse
import collections
import functools
import os
import re
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
    "batch/test_solve_gromov_batch.py",
    "gromov/test_bregman.py",
    "gromov/test_fugw.py",
    "gromov/test_gw.py",
    "gromov/test_lowrank.py",
    "gromov/test_partial.py",
    "gromov/test_semirelaxed.py",
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
        "solve_gromov",
    ),
    ot.batch: ("solve_batch", "solve_sample_batch", "solve_gromov_batch"),
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
    "test_all": 4,  # Entries of the batches are numbers, not vectors.
    "test_backend": 1,
    "test_gromov_integer_warnings": 1,  # Plans of integer matrices are not rounded to integers.
    "test_fgw_integer_warnings": 1,
    "test_partial_gromov_wasserstein": 1,
    "test_partial_fused_gromov_wasserstein": 1,
    "test_BAPG_gromov": 1,  # It wants a warning where POT's plan is NaN.
    "test_BAPG_fgw": 1,
    "test_lowrank_gromov_wasserstein_samples": 1,  # No plans of low rank.
    "test_lowrank_gromov_wasserstein_samples_alpha_error": 4,
    "test_lowrank_gromov_wasserstein_samples_backends": 1,
    "test_lowrank_wasserstein_samples_gamma_init": 3,
    "test_sanity": 2,  # Unbalanced: the divergence "l2".
    "test_init_plans": 4,
    "test_init_duals": 4,
    "test_reg_marginals": 4,
    "test_log": 4,
    "test_marginals": 4,
}
"""How many tests of these names fail, of POT 0.9.7."""


GROMOV = re.compile("((BAPG|entropic|semirelaxed|partial|fused|unbalanced|lowrank)_)*gromov_wasserstein(2|_samples)?")
"""Names of POT's functions of Gromov-Wasserstein transport."""


class Failures:
    """Names of the tests that fail, without parameters; the last line of each message. Outcomes of the tests that call a
    function of Gromov-Wasserstein transport."""

    def __init__(self):
        self.count = collections.Counter()
        self.words = {}
        self.names = set()
        self.callers = set()
        self.of_gromov = collections.Counter()

    def place(self, module, name):
        """Monge's function in the place of POT's, where it has one."""
        function = getattr(monge, name, None)

        @functools.wraps(function or getattr(module, name))
        def call(*arguments, **keywords):
            self.callers.add(os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0])
            return function(*arguments, **keywords) if function else pytest.fail(f"monge has no {name}")

        own = sys.modules[getattr(module, name).__module__]  # POT's tests read some functions there.
        for place in (module, own) if "gromov" in name else (module,):
            setattr(place, name, call if "gromov" in name else function)

    def pytest_runtest_logreport(self, report):
        name = report.nodeid.split("::")[-1].partition("[")[0]
        self.names.add(name)
        if report.nodeid in self.callers and (report.when == "call" or report.failed):
            self.of_gromov["passed" if hasattr(report, "wasxfail") else report.outcome] += 1
        if report.failed:
            self.count[name] += 1
            self.words[name] = str(report.longrepr).strip().splitlines()[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("file", nargs="*")
    given = parser.parse_args()
    folder = given.folder.absolute() / "test"
    failures = Failures()
    of_gromov = tuple(filter(GROMOV.fullmatch, dir(ot.gromov)))
    for module, names in {**PLACES, ot.gromov: of_gromov}.items():
        for name in names:
            failures.place(module, name)
    for name in filter(GROMOV.fullmatch, dir(ot)):
        setattr(ot, name, getattr(ot.gromov, name))
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
        "not geomloss and not bary and not across_spaces",
    ]
    if pytest.main([*options, *(given.file or FILES)], plugins=[failures]) not in (
        pytest.ExitCode.OK,
        pytest.ExitCode.TESTS_FAILED,
    ):
        return 2
    for name, count in sorted(failures.count.items()):
        print(f"{count:4} {name}: {failures.words[name]}")
    print("tests of Gromov-Wasserstein transport:", dict(failures.of_gromov))
    wrong = {name for name in failures.names if failures.count[name] != EXPECTED.get(name, 0)}
    print("other than expected:", ", ".join(sorted(wrong)) or "none")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
