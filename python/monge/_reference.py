"""Entropies relative to another measure than a b^T.

The library minimises <C, P> + eps KL(P | a b^T) + rho_a KL(P 1 | a) + rho_b KL(P^T 1 | b). Other entropies have the
plan of a problem of this form, and its objective up to a constant (docs/math.md, section 10):

  eps KL(P | c)               costs C - eps log(c / (a b^T)), inf where c is 0
  eps sum P (log P - 1)       weights a^(rho_a / (rho_a + eps)) and b^(rho_b / (rho_b + eps))
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from . import _core
from ._arrays import Array, framework_of, on_host, read_matrix, read_optional
from ._followed import Followed
from ._names import refuse_gradient
from ._plan_result import Gradients
from ._problem import Problem, ProgressFunction, is_balanced
from ._result import OTResult


def _log(weights: Any) -> Any:
    """log w, and 0 where there is no mass: no plan depends on these entries."""
    return framework_of(weights).log(weights + (weights == 0))


def _float64(problem: Problem) -> tuple[Any, Any, Any]:
    """The costs of a matrix, a and b in float64: tensors where gradients are followed; else weights on the host."""
    if problem.followed is None:
        a, b = (on_host(weights).astype(np.float64) for weights in problem.weights)
        return problem.cost, a, b
    torch = sys.modules["torch"]
    cost, x, _, *sides = problem.followed.unchanged("value")
    device = getattr(x if cost is None else cost, "device", None)
    a, b = (
        torch.as_tensor(weights if given is None else given, dtype=torch.float64, device=device)
        for given, weights in zip(sides, problem.weights)
    )
    return None if cost is None else torch.as_tensor(cost, dtype=torch.float64), a, b


@dataclass(frozen=True)
class Reference:
    """The difference between the problem that is solved and the caller's.

    Attributes:
        constant: The caller's objective minus that of the problem.
        weights: The caller's a and b, in float64.
        shifts: The caller's potentials minus those of the problem, in units of the cost; None: they are equal.
        cost: The caller's costs, where those of the problem are others.
        tracked: The same as tensors with gradients, where the problem follows any.
    """

    constant: Any
    weights: tuple[Any, Any]
    shifts: tuple[Any, Any] | None = None
    cost: Any = None
    tracked: Reference | None = None

    def on_host(self) -> Reference:
        """The same without gradients: a number, and arrays of NumPy's."""
        return Reference(
            float(on_host(self.constant)),
            (on_host(self.weights[0]), on_host(self.weights[1])),
            None if self.shifts is None else (on_host(self.shifts[0]), on_host(self.shifts[1])),
            None if self.cost is None else on_host(self.cost),
        )

    def transposed(self) -> Reference:
        """The same seen from the targets."""
        return Reference(
            self.constant,
            self.weights[::-1],
            None if self.shifts is None else self.shifts[::-1],
            None if self.cost is None else self.cost.T,
            None if self.tracked is None else self.tracked.transposed(),
        )

    def start(self, potentials: tuple[Array | None, Array | None]) -> tuple[Array | None, Array | None]:
        """A warm start of the problem that is solved, from one of the caller's."""
        if self.shifts is None or potentials[0] is None or potentials[1] is None:
            return potentials
        f, g = (on_host(v) - shift for v, shift in zip(potentials, self.shifts))
        return f, g

    def watch(self, progress: ProgressFunction | None) -> ProgressFunction | None:
        """The caller's progress function, which gets the caller's potentials."""
        if progress is None or self.shifts is None:
            return progress
        shifts = self.shifts

        def show(state: Any) -> object:
            solved = state.potentials
            state.potentials = lambda: tuple(v + shift for v, shift in zip(solved(), shifts))
            return progress(state)

        return show


def _relative_to(c: Array, problem: Problem, eps: float) -> tuple[Problem, Reference]:
    """eps KL(P | c) for a matrix c."""
    assert problem.cost is not None
    cost, a, b = _float64(problem)
    framework = framework_of(cost)
    device = framework.device(cost)
    measure = framework.array(on_host(c), "float64", device)
    if problem.followed is None:
        a, b = (framework.array(weights, "float64", device) for weights in (a, b))
    with np.errstate(divide="ignore"):  # inf forbids a pair.
        made = cost - eps * (framework.log(measure) - _log(a)[:, None] - _log(b))
    constant = eps * (measure.sum() - a.sum() * b.sum())
    followed = Followed.of(made, None, None, a, b)
    solved = replace(problem, cost=read_matrix("M", made, "(n, m)", column_major=True), followed=followed)
    return solved, Reference(constant, (a, b), cost=cost)


def _of_entropy(problem: Problem, options: Mapping[str, Any]) -> tuple[Problem, Reference]:
    """eps sum P (log P - 1) with penalties."""
    _, *given = _float64(problem)
    eps, powers, shifts, constant = options["eps"], [], [], 0.0
    for weights, penalty in zip(given, ("penalty_a", "penalty_b")):
        rho = options.get(penalty, math.inf)
        share = 1.0 if rho == math.inf else rho / (rho + eps)
        power = weights if share == 1 else weights**share
        constant = constant + (
            eps * (weights * _log(weights)).sum() if rho == math.inf else rho * (weights.sum() - power.sum())
        )
        powers.append(power)
        shifts.append(eps * (share - 1) * _log(weights))
    a, b = powers
    constant = constant - eps * a.sum() * b.sum()
    cost, x, y, *_ = (None,) * 5 if problem.followed is None else problem.followed.unchanged("value")
    followed = Followed.of(cost, x, y, a, b)
    solved = replace(problem, a=read_optional("a", a), b=read_optional("b", b), followed=followed)
    return solved, Reference(constant, (given[0], given[1]), (shifts[0], shifts[1]))


def with_reference(
    problem: Problem, reg_type: str, c: Any, options: Mapping[str, Any]
) -> tuple[Problem, Reference | None]:
    """The problem relative to a b^T that is solved, and its difference from the given one; None: they are equal."""
    refuse_gradient("c", c)
    measure = None if c is None else read_matrix("c", c, "(n, m)")
    if measure is not None:
        shape, values = (problem.geometry.rows, problem.geometry.columns), on_host(measure)
        if values.shape != shape:
            raise ValueError(f"c: has shape {values.shape}; must be {shape}, the shape of M")
        if not (np.isfinite(values).all() and (values >= 0).all()):
            raise ValueError("c: has an entry that is negative or not finite; must be >= 0 and finite")
        if reg_type == "entropy" and not (values == 1).all():
            raise ValueError("c: is given with reg_type 'entropy', whose reference is 1; must be left out, or 1")
    if is_balanced(options) if reg_type == "entropy" else measure is None:
        return problem, None
    _core.check_solve_options(dict(options))
    problem.require_sizes()
    if "eps" not in options:
        given = "c" if measure is not None else "penalties and reg_type 'entropy'"
        raise NotImplementedError(f"reg: is 'auto'; must be a number with {given}")
    if measure is None or reg_type == "entropy":
        solved, reference = _of_entropy(problem, options)
    else:
        solved, reference = _relative_to(measure, problem, options["eps"])
    return solved, replace(reference.on_host(), tracked=None if problem.followed is None else reference)


def _with_gradient(value: Array, part: Any) -> Array:
    """`value` with the gradient of `part`, one of its terms."""
    return value + (part - part.detach()).to(value.dtype)


class ReferencedResult(OTResult):
    """An :class:`OTResult` whose entropy is relative to another measure than a b^T.

    ``value``, ``value_linear``, ``potentials`` and ``log_scalings`` are those of the problem as it was given. With
    reg_type "entropy" the plan is P_ij = a_i b_j exp((f_i + g_j - C_ij) / eps), with a matrix c it is
    P_ij = c_ij exp((f_i + g_j - C_ij) / eps). The report is that of the problem that is solved for it, relative to
    a b^T, whose objective differs by a constant. ``gradients`` has no derivatives by the weights; those of PyTorch's
    tensors are complete.
    """

    def __init__(self, reference: Reference, *of: Any) -> None:
        super().__init__(*of)
        self._reference = reference

    @property
    def value(self) -> Array:
        """<C, P> + eps KL(P | c), or with reg_type "entropy" eps sum P (log P - 1), plus the penalties."""
        value, tracked = super().value, self._reference.tracked
        return value if tracked is None else _with_gradient(value, tracked.constant)

    @property
    def value_linear(self) -> Array:
        """<C, P>."""
        cost, tracked = self._reference.cost, self._reference.tracked
        if cost is None or tracked is None:
            return super().value_linear
        plan = self.plan
        return (plan[plan > 0] * tracked.cost[plan > 0]).sum().to(plan.dtype)

    @property
    def potentials(self) -> tuple[Array, Array]:
        """The dual potentials (n) and (m), in units of the cost."""
        f, g = super().potentials
        tracked = self._reference.tracked
        if tracked is None or tracked.shifts is None:
            return f, g
        return _with_gradient(f, tracked.shifts[0]), _with_gradient(g, tracked.shifts[1])

    def gradients(self, error_iterations: int = 0) -> Gradients:
        """Derivatives of the value by the points."""
        return replace(super().gradients(error_iterations), a=None, b=None)

    @property
    def _weights(self) -> tuple[Array, Array]:
        return self._reference.weights

    def _followed_weights(self, name: str) -> tuple[Any, Any]:
        tracked = self._reference.tracked
        return (None, None) if tracked is None else tracked.weights

    def _transposed(self, *of: Any) -> OTResult:
        return ReferencedResult(self._reference.transposed(), *of)

    def _value(self) -> float:
        return super()._value() + self._reference.constant  # type: ignore[no-any-return]

    def _transport_cost(self) -> float:
        if self._reference.cost is None:
            return super()._transport_cost()
        plan = on_host(self._make_plan()).astype(np.float64)
        return float((plan[plan > 0] * self._reference.cost[plan > 0]).sum())

    def _write_potentials(self, f: Array, g: Array) -> None:
        if self._reference.shifts is None:
            super()._write_potentials(f, g)
            return
        for to, own, shift in zip((f, g), self._float64_potentials(), self._reference.shifts):
            to[:] = framework_of(to).array(own + shift, "float64", framework_of(to).device(to))

    def __reduce__(self) -> Any:
        return ReferencedResult, (replace(self._reference, tracked=None), *super().__reduce__()[1])
