"""Tensors of PyTorch that a problem was made of, for the gradients of its results."""

from __future__ import annotations

import sys
from typing import Any


def requires_gradient(given: Any) -> bool:
    """Whether an array is a tensor that requires a gradient, and autograd is on."""
    return bool(getattr(given, "requires_grad", False)) and bool(sys.modules["torch"].is_grad_enabled())


class Followed:
    """Costs, X_a, X_b, a and b as the caller has them, at least one of which requires a gradient."""

    def __init__(self, parts: list[tuple[str, Any, Any]]) -> None:
        """Each part is a name, an array and PyTorch's version of it, which counts changes in place."""
        self._parts = parts

    @staticmethod
    def of(cost: Any, x: Any, y: Any, a: Any, b: Any) -> Followed | None:
        """The tensors among the arguments; None where nothing requires a gradient, as under torch.no_grad."""
        given = (cost, x, y, a, b)
        if not any(map(requires_gradient, given)):
            return None
        return Followed(
            [(field, v, getattr(v, "_version", None)) for field, v in zip(("M", "X_a", "X_b", "a", "b"), given)]
        )

    def transposed(self) -> Followed:
        """The same for the problem seen from the targets."""
        (field, cost, version), x, y, a, b = self._parts
        if hasattr(cost, "requires_grad") and cost.layout is sys.modules["torch"].strided:  # A sparse matrix stays.
            with sys.modules["torch"].enable_grad():
                cost = cost.T
        return Followed([(field, cost, version), y, x, b, a])

    def of_side(self, side: int) -> Followed:
        """The same for the problem of the sources (0), or of the targets (1), with themselves."""
        cost, points, weights = self._parts[0], self._parts[1 + side], self._parts[3 + side]
        return Followed([cost, points, points, weights, weights])

    def unchanged(self, name: str) -> tuple[Any, ...]:
        """The arrays. RuntimeError where one was changed in place: `name` would have gradients at other inputs."""
        for field, v, version in self._parts:
            if getattr(v, "_version", None) != version:
                raise RuntimeError(f"{field}: was changed in place since the solve; {name} has no gradients now")
        return tuple(v for _, v, _ in self._parts)
