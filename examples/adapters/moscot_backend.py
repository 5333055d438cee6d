"""Monge as a backend of moscot: import this module, and give backend="monge" to `solve` of a problem.

Linear terms with or without tau_a and tau_b; costs of points stay unstored for "sq_euclidean" and "cosine".
"""

from typing import Literal

import numpy as np
from moscot.backends.utils import register_solver
from moscot.base.output import BaseDiscreteSolverOutput
from moscot.base.solver import OTSolver
from ott.geometry.costs import Cosine, SqEuclidean

import monge


class MongeOutput(BaseDiscreteSolverOutput):
    def __init__(self, result):
        self.result = result
        self.report = result.report  # moscot's own attributes say less.

    shape = property(lambda self: self.result.shape)
    converged = property(lambda self: self.result.converged)
    cost = property(lambda self: float(self.result.value))
    transport_matrix = property(lambda self: self.result.plan)
    is_linear = property(lambda self: True)

    @property
    def potentials(self):
        """f and g of P = exp((f + g - C) / eps), as of OTT-JAX."""
        return tuple(self.result.reg * scaling for scaling in self.result.log_scalings)

    def _apply(self, x, *, forward):
        return self.result.apply(np.asarray(x, float), transpose=forward)

    def _apply_forward(self, x):
        return self._apply(x, forward=True)

    def _ones(self, n):
        return np.ones(n)

    def to(self, device=None):
        return self


class MongeSolver(OTSolver[MongeOutput]):
    problem_kind = "linear"

    def __init__(self, rank=-1, threshold=1e-6, max_iterations=None, device=None, **ott):
        """`ott` has the options of OTT-JAX's iteration, which no other solver has: they are without effect."""
        if rank > -1:
            raise NotImplementedError("rank: Monge's plans have full rank and are not stored; leave it out")
        self.options = {"tol": threshold, "max_iter": max_iterations, "device": device}

    def _prepare(self, a, b, xy, epsilon=1e-3, tau_a=1.0, tau_b=1.0, scale_cost=1.0, **others):
        if scale_cost is None or (isinstance(scale_cost, str) and scale_cost != "mean"):
            raise NotImplementedError(f"scale_cost: is {scale_cost!r}; must be 'mean' or a number")
        penalties = [epsilon * tau / (1 - tau) if tau < 1 else np.inf for tau in (tau_a, tau_b)]
        call = {"a": np.asarray(a, float), "b": np.asarray(b, float), "reg": epsilon}
        if min(penalties) < np.inf:
            call |= {"unbalanced": tuple(penalties), "reg_type": "entropy"}
        x, y = (
            None if v is None else np.asarray(v.toarray() if hasattr(v, "toarray") else v, float)
            for v in (xy.data_src, xy.data_tgt)
        )
        if xy.is_point_cloud and type(xy.cost) in (SqEuclidean, Cosine, type(None)):
            if isinstance(xy.cost, Cosine):  # It is |x - y|^2 / 2 of points of norm 1.
                x, y = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (x, y))
            scale = 0.5 if isinstance(xy.cost, Cosine) else 1.0
            mean = scale * ((x**2).sum(1).mean() + (y**2).sum(1).mean() - 2 * x.mean(0) @ y.mean(0))
            divisor = mean if scale_cost == "mean" else scale_cost
            return monge.solve_sample, call | {"X_a": x, "X_b": y, "scale": scale / divisor}
        if not (xy.is_cost_matrix or xy.is_point_cloud):
            raise NotImplementedError(f"tag: is {xy.tag!r}; must be a point cloud or a cost matrix")
        cost = x if xy.is_cost_matrix else np.asarray(xy.cost.all_pairs(x, y), float)
        return monge.solve, call | {"M": cost / (cost.mean() if scale_cost == "mean" else scale_cost)}

    def _solve(self, data):
        solve, call = data
        return MongeOutput(solve(**call, **self.options))

    @classmethod
    def _call_kwargs(cls):
        return {"epsilon", "tau_a", "tau_b", "scale_cost", "batch_size", "cost_kwargs", "cost_matrix_rank"}, set()


@register_solver("monge")
def solver_of(problem_kind: Literal["linear", "quadratic"], solver_name=None):
    if problem_kind != "linear" or solver_name is not None:
        raise NotImplementedError(f"Monge solves linear problems, not {problem_kind} ones")
    return MongeSolver


if __name__ == "__main__":
    import anndata
    from moscot.problems.time import TemporalProblem

    random = np.random.default_rng(0)
    cells = np.vstack([random.normal(day / 2, size=(150 + 30 * day, 10)) for day in (0, 1)])
    data = anndata.AnnData(cells, obs={"day": np.repeat([0.0, 1.0], [150, 180])})
    data.obs["day"] = data.obs["day"].astype("category")
    data.obs_names_make_unique()
    problem = TemporalProblem(data).prepare("day", joint_attr=None)
    plans = {}
    for backend in ("ott", "monge"):
        problem = problem.solve(epsilon=0.05, tau_a=0.95, threshold=1e-6, backend=backend)
        plans[backend] = np.asarray(problem[0, 1].solution.transport_matrix)
    print("plans differ by", abs(plans["ott"] - plans["monge"]).sum(), "of mass", plans["ott"].sum())
