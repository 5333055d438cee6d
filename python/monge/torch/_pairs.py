"""Pairs for flow matching."""

from typing import Any

import torch
from torch import Tensor

from .._names import calls
from .._problem import Reg
from .._solve import solve
from ._operands import require_tensors


class OTPairs:
    """Draws pairs of a mini-batch from its entropic plan: ``x0, x1 = pairs(x0, x1)``.

    The cost is |x - y|^2 of flattened points; tensors stay on their device. Mini-batches are small and their points
    long, so one product in PyTorch's precision makes the n x m costs, which all sweeps read.

    Args:
        reg: eps > 0 in units of the cost, or "auto", 5 % of the mean cost. :class:`monge.OTPlanSampler` has exact plans.
        seed: The seed of the first call. Each call takes the next number, so runs can be repeated.
        tol, options: As for :func:`monge.solve`.
    """

    def __init__(self, reg: Reg = "auto", *, seed: int = 0, tol: float = 1e-3, **options: Any) -> None:
        if not reg:
            raise ValueError(f"reg: is {reg}; must be > 0 or 'auto'; OTPlanSampler draws from exact plans")
        # Draws need no certified values.
        self.reg, self.seed, self.tol, self.options = reg, seed, tol, {"certificate": False, **options}

    @calls(M="x0, x1: costs")
    def indices(self, x0: Tensor, x1: Tensor) -> tuple[Tensor, Tensor]:
        """As many (i, j) as x0 (n, ...) has rows, drawn independently from its plan to x1 (m, ...)."""
        require_tensors(x0=x0, x1=x1)
        for name, points in (("x0", x0), ("x1", x1)):
            if points.ndim < 2 or 0 in points.shape:
                raise ValueError(f"{name}: has shape {tuple(points.shape)}; must be (n, ...), not empty")
        if x0.shape[1:].numel() != x1.shape[1:].numel():
            raise ValueError(f"x1: has points of shape {tuple(x1.shape[1:])}; must be as x0, {tuple(x0.shape[1:])}")
        if x0.device != x1.device:
            raise ValueError(f"x1: lies on {x1.device}; must be on {x0.device}, as x0 is")
        with torch.no_grad():
            costs = squared_distances(x0.flatten(1), x1.flatten(1))
            try:
                result = solve(costs, reg=self.reg, tol=self.tol, **self.options)
            except ValueError:
                if self.reg != "auto" or costs.any():
                    raise
                # All points are in one place, so reg has no mean cost. Any equal costs have the same plan.
                result = solve(torch.ones_like(costs), reg="auto", tol=self.tol, **self.options)
            i, j = result.sample(len(x0), seed=self.seed)
        self.seed += 1
        return i, j

    def __call__(self, x0: Tensor, x1: Tensor) -> tuple[Tensor, Tensor]:
        i, j = self.indices(x0, x1)
        return x0[i], x1[j]


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """Squared distances (n x m), in float32 or float64."""
    dtype = torch.promote_types(torch.promote_types(x.dtype, y.dtype), torch.float32)
    x, y = x.to(dtype), y.to(dtype)
    centre = y.mean(0)  # A common offset would take the digits of the distances.
    x, y = x - centre, y - centre
    norms = torch.linalg.vecdot(x, x)[:, None] + torch.linalg.vecdot(y, y)
    return torch.addmm(norms, x, y.T, alpha=-2).clamp_(min=0)
