"""Monge in benchopt's benchmark_ot: copy this file to the folder `solvers` of the benchmark, as monge.py."""

from benchopt import BaseSolver, safe_import_context

with safe_import_context() as import_ctx:
    import warnings

    import monge


class Solver(BaseSolver):
    name = "Monge"
    install_cmd = "conda"
    requirements = ["pip::monge"]
    parameters = {"reg": [0, 1e-2, 1e-1]}  # 0 is exact transport.

    def set_objective(self, x, a, y, b):
        self.problem = {"X_a": x, "X_b": y, "a": a, "b": b}

    def run(self, n_iter):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", monge.ConvergenceWarning)  # The benchmark stops solves on purpose.
            found = monge.solve_sample(**self.problem, scale=0.5, reg=self.reg, max_iter=10 * n_iter + 1)
        self.plan = found.plan

    def get_result(self):
        return {"P": self.plan}
