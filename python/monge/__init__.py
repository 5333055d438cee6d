"""Monge: optimal transport on CPUs and NVIDIA GPUs, for the arrays of NumPy, PyTorch, JAX and CuPy.

>>> import monge, numpy as np
>>> x, y = np.random.default_rng(0).normal(size=(2, 100, 3))
>>> result = monge.solve_sample(x, y, reg=0.5)
>>> result.status
'converged'
"""

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

from . import _plug_in as _plug_in
from ._assignment import linear_sum_assignment
from ._checkpoint import Checkpoint
from ._classic import (
    emd,
    emd2,
    empirical_sinkhorn,
    empirical_sinkhorn2,
    empirical_sinkhorn_divergence,
    partial_wasserstein,
    partial_wasserstein2,
    sinkhorn,
    sinkhorn2,
    sinkhorn_unbalanced,
    sinkhorn_unbalanced2,
    smooth_ot_dual,
)
from ._core import (
    Check,
    DeviceInfo,
    ExactProgress,
    ExactReport,
    GradientReport,
    GromovProgress,
    GromovReport,
    GromovStart,
    LinearReport,
    Progress,
    RegularizedCheck,
    RegularizedProgress,
    RegularizedReport,
    Report,
    component_versions,
    cuda_unavailable_reason,
    devices,
)
from ._core import version as _version
from ._costs import CostOptions, LabelOptions
from ._distributed import Ranks, distributed, on_devices
from ._divergence import (
    DivergenceResult,
    c_transform,
    semi_dual_value,
    sinkhorn_divergence,
    sinkhorn_divergence_of_costs,
)
from ._exact import ExactResult, solve_exact, solve_exact_sample
from ._gromov import GromovGradients, GromovResult, solve_gromov, solve_gromov_sample
from ._gromov_classic import (
    BAPG_fused_gromov_wasserstein,
    BAPG_fused_gromov_wasserstein2,
    BAPG_gromov_wasserstein,
    BAPG_gromov_wasserstein2,
    GromovBatchResult,
    entropic_fused_gromov_wasserstein,
    entropic_fused_gromov_wasserstein2,
    entropic_gromov_wasserstein,
    entropic_gromov_wasserstein2,
    entropic_partial_fused_gromov_wasserstein,
    entropic_partial_fused_gromov_wasserstein2,
    entropic_partial_gromov_wasserstein,
    entropic_partial_gromov_wasserstein2,
    entropic_semirelaxed_fused_gromov_wasserstein,
    entropic_semirelaxed_fused_gromov_wasserstein2,
    entropic_semirelaxed_gromov_wasserstein,
    entropic_semirelaxed_gromov_wasserstein2,
    fused_gromov_wasserstein,
    fused_gromov_wasserstein2,
    fused_unbalanced_gromov_wasserstein,
    fused_unbalanced_gromov_wasserstein2,
    gromov_wasserstein,
    gromov_wasserstein2,
    partial_fused_gromov_wasserstein,
    partial_fused_gromov_wasserstein2,
    partial_gromov_wasserstein,
    partial_gromov_wasserstein2,
    semirelaxed_fused_gromov_wasserstein,
    semirelaxed_fused_gromov_wasserstein2,
    semirelaxed_gromov_wasserstein,
    semirelaxed_gromov_wasserstein2,
    solve_gromov_batch,
)
from ._options import ExactOptions, GromovOptions, ProjectionOptions, RegularizedOptions, SolveOptions
from ._plan_result import Gradients, LazyPlan
from ._problem import ConvergenceWarning
from ._projection import mhc_mapping, project, projection_marginals
from ._regularized import (
    RegularizedResult,
    SeparableTerm,
    solve_regularized,
    solve_regularized_batch,
    solve_regularized_sample,
)
from ._result import BatchResult, OTResult
from ._sampler import OTPlanSampler
from ._solve import plan_of, plan_of_sample, solve, solve_batch, solve_sample, solve_sample_batch
from ._solver import Solver

if TYPE_CHECKING:
    from . import jax as jax
    from . import plot as plot
    from . import torch as torch
    from .sklearn import OTTransport

__version__ = _version()

__all__ = [
    "BAPG_fused_gromov_wasserstein",
    "BAPG_fused_gromov_wasserstein2",
    "BAPG_gromov_wasserstein",
    "BAPG_gromov_wasserstein2",
    "BatchResult",
    "Check",
    "Checkpoint",
    "ConvergenceWarning",
    "CostOptions",
    "DeviceInfo",
    "DivergenceResult",
    "ExactOptions",
    "ExactProgress",
    "ExactReport",
    "ExactResult",
    "GradientReport",
    "Gradients",
    "GromovBatchResult",
    "GromovGradients",
    "GromovOptions",
    "GromovProgress",
    "GromovReport",
    "GromovResult",
    "GromovStart",
    "LabelOptions",
    "LazyPlan",
    "LinearReport",
    "OTPlanSampler",
    "OTResult",
    "OTTransport",
    "Progress",
    "ProjectionOptions",
    "Ranks",
    "RegularizedCheck",
    "RegularizedOptions",
    "RegularizedProgress",
    "RegularizedReport",
    "RegularizedResult",
    "Report",
    "SeparableTerm",
    "SolveOptions",
    "Solver",
    "c_transform",
    "component_versions",
    "cuda_unavailable_reason",
    "devices",
    "distributed",
    "emd",
    "emd2",
    "empirical_sinkhorn",
    "empirical_sinkhorn2",
    "empirical_sinkhorn_divergence",
    "entropic_fused_gromov_wasserstein",
    "entropic_fused_gromov_wasserstein2",
    "entropic_gromov_wasserstein",
    "entropic_gromov_wasserstein2",
    "entropic_partial_fused_gromov_wasserstein",
    "entropic_partial_fused_gromov_wasserstein2",
    "entropic_partial_gromov_wasserstein",
    "entropic_partial_gromov_wasserstein2",
    "entropic_semirelaxed_fused_gromov_wasserstein",
    "entropic_semirelaxed_fused_gromov_wasserstein2",
    "entropic_semirelaxed_gromov_wasserstein",
    "entropic_semirelaxed_gromov_wasserstein2",
    "fused_gromov_wasserstein",
    "fused_gromov_wasserstein2",
    "fused_unbalanced_gromov_wasserstein",
    "fused_unbalanced_gromov_wasserstein2",
    "gromov_wasserstein",
    "gromov_wasserstein2",
    "linear_sum_assignment",
    "mhc_mapping",
    "on_devices",
    "partial_fused_gromov_wasserstein",
    "partial_fused_gromov_wasserstein2",
    "partial_gromov_wasserstein",
    "partial_gromov_wasserstein2",
    "partial_wasserstein",
    "partial_wasserstein2",
    "plan_of",
    "plan_of_sample",
    "project",
    "projection_marginals",
    "semi_dual_value",
    "semirelaxed_fused_gromov_wasserstein",
    "semirelaxed_fused_gromov_wasserstein2",
    "semirelaxed_gromov_wasserstein",
    "semirelaxed_gromov_wasserstein2",
    "sinkhorn",
    "sinkhorn2",
    "sinkhorn_divergence",
    "sinkhorn_divergence_of_costs",
    "sinkhorn_unbalanced",
    "sinkhorn_unbalanced2",
    "smooth_ot_dual",
    "solve",
    "solve_batch",
    "solve_exact",
    "solve_exact_sample",
    "solve_gromov",
    "solve_gromov_batch",
    "solve_gromov_sample",
    "solve_regularized",
    "solve_regularized_batch",
    "solve_regularized_sample",
    "solve_sample",
    "solve_sample_batch",
]


if importlib.util.find_spec("sklearn") is None:
    __all__.remove("OTTransport")  # `from monge import *` would need scikit-learn.

_LAZY = {"OTTransport": "sklearn", "jax": "jax", "plot": "matplotlib", "torch": "torch"}
"""Names that are imported on first use, each with the package that it needs."""

_OF_POT = {
    "dist": "solve_sample() takes points, and scipy.spatial.distance.cdist() makes cost matrices",
    "unif": "weights that are left out are uniform",
}
"""Functions of POT that are not here, and what takes their place."""


def __getattr__(name: str) -> Any:
    if name == "OTTransport":
        return importlib.import_module("monge.sklearn").OTTransport
    if name in _LAZY:
        return importlib.import_module(f"monge.{name}")
    hint = f"; {_OF_POT[name]}" if name in _OF_POT else ""  # Python adds the nearest name to the error that it shows.
    raise AttributeError(f"module 'monge' has no attribute {name!r}{hint}", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    missing = {name for name, package in _LAZY.items() if importlib.util.find_spec(package) is None}
    return sorted({name for name in globals() if name.startswith("__")} | {*__all__, *_LAZY} - missing)
