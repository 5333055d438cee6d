"""Monge for PyTorch: losses and projections that torch.autograd and torch.compile know.

Functions of :mod:`monge` take and return tensors, too; those here are operators of PyTorch with derivatives.
"""

from .. import _versions

_versions.require("torch", "monge.torch")

from ._assignment import linear_sum_assignment
from ._losses import sinkhorn_divergence, transport
from ._pairs import OTPairs
from ._projection import (
    MHCMapping,
    SinkhornProjection,
    fused_sinkhorn,
    gumbel_sinkhorn,
    hc_split_sinkhorn,
    mhc_mapping,
    project,
)
from ._regularized import group_lasso_drot, quadratic_drot, regularized_transport
from ._samples_loss import SamplesLoss

__all__ = [
    "MHCMapping",
    "OTPairs",
    "SamplesLoss",
    "SinkhornProjection",
    "fused_sinkhorn",
    "group_lasso_drot",
    "gumbel_sinkhorn",
    "hc_split_sinkhorn",
    "linear_sum_assignment",
    "mhc_mapping",
    "project",
    "quadratic_drot",
    "regularized_transport",
    "sinkhorn_divergence",
    "transport",
]
