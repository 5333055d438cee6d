"""Transport between clouds and its Sinkhorn divergence as operators of PyTorch.

``monge::transport`` gives values and float64 potentials. Its derivative is ``monge::transport_gradients``, the
derivatives of the values at these potentials, whose own derivative is ``monge::transport_hessian_product``. Both are
exact at the optimum (docs/math.md, section 11). They make the plans of the potentials; nothing is solved again. A plain
backward takes the plans that the forward has made.
``monge::sinkhorn_divergence`` and its derivatives are the same. Their potentials f and g (B, 2, n) and (B, 2, m) are
those of OT(a, b), then those of the self terms.
"""

# torch.library reads the annotations, so they must not be strings.
import functools
import math
from typing import Any

import torch
from torch import Tensor

from .. import _core
from .._arrays import Place, read, read_index, read_optional
from .._hessian import Divergence, Transport, multiply_hessian
from .._problem import Problem, warn_if_short, with_weights
from ._operands import is_refusing, refusing
from ._operator import Rule, as_problems, differentiable, refuse_others, under_transforms, without_derivatives
from ._options import from_text

_Options = dict[str, Any]
_Labels = tuple[Tensor | None, Tensor | None, Tensor | None]
"""Labels of x, labels of y, and the costs of their classes."""
_LABELS = 3


def _problems(
    x: Tensor, y: Tensor, a: Tensor | None, b: Tensor | None, labels: _Labels, geometry: str, options: _Options
) -> list[Problem]:
    if not len(x):
        raise ValueError("x: has no problems; must have at least one")
    place = Place.of(x, x, y)
    costs = from_text(geometry)

    def problem(k: int) -> Problem:
        w, v, of_x, of_y, table = (None if t is None else t[k] for t in (a, b, *labels))
        return Problem(
            place,
            read_optional("a", w),
            read_optional("b", v),
            x=read("x", x[k]),
            y=read("y", y[k]),
            labels_x=read_index("labels_x", of_x),
            labels_y=read_index("labels_y", of_y),
            label_cost=read_optional("label_cost", table),
            **costs,
        )

    return [with_weights(problem(k), options) for k in range(len(x))]


def _row(potentials: Tensor | None, k: int) -> Any:
    return None if potentials is None else potentials[k]


class _Transport(Transport):
    @staticmethod
    def solve(problems: list[Problem], f: Tensor | None, g: Tensor | None, options: _Options) -> list[_core.Plan]:
        given = [(p.geometry, p.a, p.b, _row(f, k), _row(g, k)) for k, p in enumerate(problems)]
        session = problems[0].place.session(None)
        if len(given) == 1:  # Messages then do not number the problem.
            return [_core.solve(session, *given[0], options)]
        return _core.solve_batch(session, given, options)

    @staticmethod
    def value(plan: _core.Plan) -> float:
        return plan.report.dual

    @staticmethod
    def plans(plan: _core.Plan) -> list[_core.Plan]:
        return [plan]

    @staticmethod
    def potentials(plan: _core.Plan, f: Tensor, g: Tensor) -> None:
        plan.potentials(f, g)


class _Divergence(Divergence):
    @staticmethod
    def solve(problems: list[Problem], f: Tensor | None, g: Tensor | None, options: _Options) -> list[_core.Divergence]:
        views = Divergence.views(problems, f, g, None)
        return _core.sinkhorn_divergences(problems[0].place.session(None), views, options)

    @staticmethod
    def value(divergence: _core.Divergence) -> float:
        return divergence.value

    @staticmethod
    def plans(divergence: _core.Divergence) -> list[_core.Plan]:
        return [divergence.ab, divergence.aa, divergence.bb]

    @staticmethod
    def potentials(divergence: _core.Divergence, f: Tensor, g: Tensor) -> None:
        divergence.ab.potentials(f[0], g[0])
        for plan, to in ((divergence.aa, f[1]), (divergence.bb, g[1])):
            other = torch.empty_like(to)
            plan.potentials(to, other)
            to.add_(other).mul_(0.5)  # For a cost matrix the two may differ by the tolerance.


def _potentials_like(of: Any, points: Tensor) -> Tensor:
    lead = (points.shape[0], *((2,) if of.parts else ()))
    return points.new_empty((*lead, points.shape[1]), dtype=torch.float64)


def _solve(
    of: Any,
    x: Tensor,
    y: Tensor,
    a: Tensor | None,
    b: Tensor | None,
    geometry: str,
    options: str,
    labels_x: Tensor | None,
    labels_y: Tensor | None,
    label_cost: Tensor | None,
    start_f: Tensor | None,
    start_g: Tensor | None,
) -> tuple[tuple[Tensor, Tensor, Tensor, Tensor], Any]:
    """The outputs of the operator of values, and the solve from which their derivatives can start."""
    own = from_text(options)
    problems = _problems(x, y, a, b, (labels_x, labels_y, label_cost), geometry, own)
    solved = of.solve(problems, start_f, start_g, own)
    f, g = _potentials_like(of, x), _potentials_like(of, y)
    for k, made in enumerate(solved):
        of.potentials(made, f[k], g[k])
        for plan in of.plans(made):
            warn_if_short(plan.report)
    values = torch.tensor([of.value(made) for made in solved], dtype=x.dtype)
    values = values.to(x.device, non_blocking=True)  # Waits for no kernel.
    wide = [[plan.report.precision == "float64" for plan in of.plans(made)] for made in solved]
    return (values, f, g, torch.tensor(wide).reshape(len(solved), *of.parts)), solved


def _gradients_like(x: Tensor, y: Tensor, wanted: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    by_x, by_y = (v.new_empty(v.shape if c in wanted else (v.shape[0], 0)) for c, v in (("x", x), ("y", y)))
    by_a, by_b = (x.new_empty(v.shape[:2] if c in wanted else (v.shape[0], 0)) for c, v in (("a", x), ("b", y)))
    return by_x, by_y, by_a, by_b


def _gradients_of(solved: list[Any], x: Tensor, y: Tensor, wanted: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Derivatives by x, y, a and b. A derivative whose letter is not `wanted` is empty."""
    by = _gradients_like(x, y, wanted)
    for k, made in enumerate(solved):
        views = [v[k] if letter in wanted else None for letter, v in zip("xyab", by)]
        if any(v is not None for v in views):
            made.gradients(*views, scale=False)
    return by


def _save(ctx: Any, *tensors: Tensor | None) -> None:
    ctx.save_for_backward(*tensors)
    ctx.save_for_forward(*tensors)
    ctx.set_materialize_grads(False)


def _save_value(ctx: Any, inputs: Any, output: Any) -> None:
    x, y, a, b, ctx.geometry, ctx.options, *labels = inputs
    _, f, g, in_float64 = output
    _save(ctx, x, y, a, b, f, g, in_float64, *labels[:_LABELS])
    without_derivatives(ctx, f, g, in_float64)


def _save_gradients(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, ctx.geometry, ctx.options, ctx.wanted, labels_x, labels_y, label_cost = inputs
    _save(ctx, *tensors, labels_x, labels_y, label_cost)


def _save_product(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, ctx.geometry, ctx.options, _, _, labels_x, labels_y, label_cost = inputs
    ctx.is_linear = all(v is None or is_refusing(v) for v in tensors[:4])
    _save(ctx, *tensors, labels_x, labels_y, label_cost)


def _value(of: Any, gradients: Rule) -> Rule:
    """The operator of values and potentials, whose derivative is `gradients`."""
    name = of.name

    @torch.library.custom_op(f"monge::{name}", mutates_args=())
    def operator(
        x: Tensor,
        y: Tensor,
        a: Tensor | None,
        b: Tensor | None,
        geometry: str,
        options: str,
        labels_x: Tensor | None = None,
        labels_y: Tensor | None = None,
        label_cost: Tensor | None = None,
        start_f: Tensor | None = None,
        start_g: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Values, f, g, and whether the solves ended in float64. `start_f` and `start_g`: a warm start."""
        return _solve(of, x, y, a, b, geometry, options, labels_x, labels_y, label_cost, start_f, start_g)[0]

    @operator.register_fake
    def _(x, y, a, b, geometry, options, *others):  # type: ignore[no-untyped-def]
        wide = torch.empty((x.shape[0], *of.parts), dtype=torch.bool)
        return x.new_empty(x.shape[0]), _potentials_like(of, x), _potentials_like(of, y), wide

    def backward(ctx: Any, by_value: Any, *by_others: Any) -> Any:
        refuse_others(name, "potentials have", by_others)
        none = (None,) * (2 + _LABELS + 2)
        if by_value is None:
            return (None,) * 4 + none
        *given, labels_x, labels_y, label_cost = ctx.saved_tensors
        needed = [bool(need) and v is not None for need, v in zip(ctx.needs_input_grad[:4], given[:4])]
        wanted = "".join(letter for letter, need in zip("xyab", needed) if need)
        if hasattr(ctx, "solved") and not torch.is_grad_enabled():
            # The forward's plans serve one backward and are then released; its results, which are smaller, stay for
            # another one by the same inputs. `saved_tensors` has refused changed inputs.
            ctx.found = wanted, _gradients_of(ctx.solved, given[0], given[1], wanted)
            del ctx.solved
        found, by = getattr(ctx, "found", ("", ()))
        if torch.is_grad_enabled() or not found or not set(wanted) <= set(found):
            by = gradients(*given, ctx.geometry, ctx.options, wanted, labels_x, labels_y, label_cost)
        each, row = by_value[:, None, None], by_value[:, None]
        return *(v * t if need else None for v, t, need in zip(by, (each, each, row, row), needed)), *none

    def forward_mode(ctx: Any, v_x: Any, v_y: Any, v_a: Any, v_b: Any, *others: Any) -> Any:
        directions = (v_x, v_y, v_a, v_b)
        wanted = "".join(letter for letter, v in zip("xyab", directions) if v is not None)
        *given, labels_x, labels_y, label_cost = ctx.saved_tensors
        by = gradients(*given, ctx.geometry, ctx.options, wanted, labels_x, labels_y, label_cost)
        parts = [(g * v).flatten(1).sum(1) for g, v in zip(by, directions) if v is not None]
        f, g = given[4:6]
        return sum(parts), torch.full_like(f, math.nan), torch.full_like(g, math.nan), None

    return differentiable(
        name,
        operator,
        solve=functools.partial(_solve, of),
        save=_save_value,
        backward=backward,
        forward_mode=forward_mode,
        batched=as_problems,
    )


def _no_third(name: str) -> str:
    return f"{name}: has no third derivatives by the points"


def _second(
    name: str, hessian_product: Rule, ctx: Any, v_x: Any, v_y: Any, weights: bool = False
) -> tuple[Tensor, Tensor]:
    """The product of the Hessian, which is symmetric, and a direction."""
    if weights:
        raise NotImplementedError(f"{name}: second derivatives are by the points only; detach the weights")
    x, y, a, b, *found, labels_x, labels_y, label_cost = ctx.saved_tensors
    if not under_transforms():
        x, y = (refusing(_no_third(name), v) for v in (x, y))
    v_x, v_y = (torch.zeros_like(p) if v is None or v.shape != p.shape else v for v, p in ((v_x, x), (v_y, y)))
    given = (x, y, a, b, *found, ctx.geometry, ctx.options, v_x, v_y, labels_x, labels_y, label_cost)
    return hessian_product(*given)  # type: ignore[no-any-return]


def _gradients(of: Any, hessian_product: Rule) -> Rule:
    """The operator of the derivatives of values at given potentials, whose own derivative is `hessian_product`."""
    name = of.name

    @torch.library.custom_op(f"monge::{name}_gradients", mutates_args=())
    def operator(
        x: Tensor,
        y: Tensor,
        a: Tensor | None,
        b: Tensor | None,
        f: Tensor,
        g: Tensor,
        in_float64: Tensor,
        geometry: str,
        options: str,
        wanted: str,
        labels_x: Tensor | None = None,
        labels_y: Tensor | None = None,
        label_cost: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        own = from_text(options)
        problems = _problems(x, y, a, b, (labels_x, labels_y, label_cost), geometry, own)
        return _gradients_of(of.of_potentials(problems, f, g, in_float64, own), x, y, wanted)

    @operator.register_fake
    def _(x, y, a, b, f, g, in_float64, geometry, options, wanted, *labels):  # type: ignore[no-untyped-def]
        return _gradients_like(x, y, wanted)

    def backward(ctx: Any, v_x: Any, v_y: Any, v_a: Any, v_b: Any) -> Any:
        weights = any(ctx.needs_input_grad[2:4]) or v_a is not None or v_b is not None
        return *_second(name, hessian_product, ctx, v_x, v_y, weights), *[None] * (8 + _LABELS)

    def forward_mode(ctx: Any, v_x: Any, v_y: Any, v_a: Any, v_b: Any, *others: Any) -> Any:
        weights = "a" in ctx.wanted or "b" in ctx.wanted or v_a is not None or v_b is not None
        by_x, by_y = _second(name, hessian_product, ctx, v_x, v_y, weights)
        none = by_x.new_zeros(by_x.shape[0], 0)
        return by_x if "x" in ctx.wanted else none, by_y if "y" in ctx.wanted else none, none, none

    return differentiable(
        name, operator, save=_save_gradients, backward=backward, forward_mode=forward_mode, batched=as_problems
    )


def _hessian_product(of: Any) -> Rule:
    """The operator of the products of the Hessian by the points. They are linear in the direction, and symmetric."""
    name = of.name

    @torch.library.custom_op(f"monge::{name}_hessian_product", mutates_args=())
    def operator(
        x: Tensor,
        y: Tensor,
        a: Tensor | None,
        b: Tensor | None,
        f: Tensor,
        g: Tensor,
        in_float64: Tensor,
        geometry: str,
        options: str,
        v_x: Tensor,
        v_y: Tensor,
        labels_x: Tensor | None = None,
        labels_y: Tensor | None = None,
        label_cost: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        own = from_text(options)
        problems = _problems(x, y, a, b, (labels_x, labels_y, label_cost), geometry, own)
        to = torch.empty_like(x), torch.empty_like(y)
        multiply_hessian(of, problems, f, g, in_float64, own, (v_x, v_y), to)
        return to

    @operator.register_fake
    def _(x, y, a, b, f, g, in_float64, geometry, options, v_x, v_y, *labels):  # type: ignore[no-untyped-def]
        return torch.empty_like(x), torch.empty_like(y)

    def backward(ctx: Any, by_x: Any, by_y: Any) -> Any:
        if any(ctx.needs_input_grad[:4]) and not ctx.is_linear:
            raise NotImplementedError(_no_third(name))
        return *[None] * 9, *_second(name, product, ctx, by_x, by_y), *[None] * _LABELS

    def forward_mode(ctx: Any, v_x: Any, v_y: Any, v_a: Any, v_b: Any, *others: Any) -> Any:
        if any(v is not None for v in (v_x, v_y, v_a, v_b)):
            raise NotImplementedError(_no_third(name))
        return _second(name, product, ctx, others[5], others[6])

    product = differentiable(
        name, operator, save=_save_product, backward=backward, forward_mode=forward_mode, batched=as_problems
    )
    return product


def _operator(of: Any) -> Rule:
    """The operator of a loss as a function."""
    return _value(of, _gradients(of, _hessian_product(of)))


transport_operator = _operator(_Transport)
divergence_operator = _operator(_Divergence)
