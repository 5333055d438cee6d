"""Parity of derivatives with POT, and of SamplesLoss with GeomLoss, over shapes, weights and dtypes."""

import warnings

import ot
import pytest
import torch
from geomloss import SamplesLoss as GeomLoss
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

import monge
import monge.torch

problems = st.tuples(
    st.integers(1, 25),
    st.integers(1, 25),
    st.integers(1, 5),
    st.booleans(),
    st.sampled_from([torch.float32, torch.float64]),
    st.integers(0, 2**31 - 1),
)


def make(drawn):
    """Points x and y, and weights a and b, in float64 or rounded to float32: the same numbers for everybody."""
    n, m, d, uniform, dtype, seed = drawn
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.rand(size, d, generator=generator, dtype=dtype) for size in (n, m))
    weights = [torch.rand(size, generator=generator, dtype=torch.float64) + 0.1 for size in (n, m)]
    a, b = (torch.full_like(w, 1 / len(w)) if uniform else w / w.sum() for w in weights)
    return x, y + 0.3, a, b


def difference(own, other):
    """The largest, but for a constant that derivatives by the weights are free to have."""
    change = own.double() - other.double()
    return (change - change.mean() if own.ndim == 1 else change).abs().max().item()


@settings(deadline=None, max_examples=30, derandomize=True)
@given(problems, st.floats(0.3, 2.0))
def test_derivatives_of_solve_are_those_of_pots_sweeps(drawn, reg):
    x, y, a, b = make(drawn)
    single = x.dtype == torch.float32
    points = [x, y, a, b]
    ours, theirs = ([v.clone().requires_grad_() for v in points] for _ in range(2))
    value = monge.solve_sample(*ours, reg=reg, tol=1e-12).value
    cost = (theirs[0].double()[:, None] - theirs[1].double()).square().sum(-1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = ot.solve(cost, theirs[2], theirs[3], reg, tol=1e-12, max_iter=2000, grad="autodiff").value
    own, found = torch.autograd.grad(value, ours), torch.autograd.grad(other, theirs)
    # Sweeps contract by tanh(range / 4 reg)^2, below 0.9 here, and so do their derivatives: 1e-12 of the mass is some
    # 1e-10 of these. Float32 rounds costs and sums of 25 terms.
    close = 1e-4 if single else 1e-8
    for name, p, q in zip("xyab", own, found):
        assert difference(p, q) <= close * (1 + q.double().abs().max().item()), name


@settings(deadline=None, max_examples=15, derandomize=True)
@given(problems, st.sampled_from([0.3, 0.5]), st.sampled_from([None, 1.0]), st.booleans())
def test_samples_loss_is_that_of_geomloss(drawn, blur, reach, debias):
    x, y, a, b = make(drawn)
    # Far beyond the blur, so that the ladder has many steps: else GeomLoss takes few sweeps, whatever scaling is.
    y = y + 1
    a, b = a.to(x.dtype), b.to(x.dtype)
    ours = [v.clone().requires_grad_() for v in (a, x, b, y)]
    tol, rounding = (1e-6, 1e-4) if x.dtype == torch.float32 else (1e-10, 1e-5)  # Totals are float32's, too.
    precision = str(x.dtype).removeprefix("torch.")
    value = monge.torch.SamplesLoss(blur=blur, reach=reach, debias=debias, tol=tol, precision=precision)(*ours)
    own = torch.autograd.grad(value, ours)
    errors = []
    for scaling in (0.97, 0.997):
        theirs = [v.double().requires_grad_() for v in (a, x, b, y)]
        other = GeomLoss(blur=blur, reach=reach, debias=debias, scaling=scaling, backend="tensorized")(*theirs)
        found = torch.autograd.grad(other, theirs)
        errors.append([abs(other - value).item()] + [difference(p, q) for p, q in zip(own, found)])
    # It takes one sweep at each step of its ladder, so it lags by what a step changes: 3 %, then 0.3 %.
    # What it leaves at the end of the ladder stays, some 1e-6. Unbalanced, its gradients are not those of its value.
    for coarse, fine in list(zip(*errors))[: 1 if reach is not None else 5]:
        assert fine <= 0.3 * coarse + rounding and fine <= 1e-3


@pytest.mark.parametrize("debias", [True, False])
@pytest.mark.parametrize("reach", [None, 1.0])
def test_samples_loss_has_two_derivatives(debias, reach):
    x, y, a, b = make((7, 6, 2, False, torch.float64, 0))
    loss = monge.torch.SamplesLoss(blur=0.7, reach=reach, debias=debias, tol=1e-13)
    given = (x.requires_grad_(), y.requires_grad_())
    assert gradcheck(lambda x, y: loss(a, x, b, y), given, eps=1e-5, atol=1e-6)
    assert gradgradcheck(lambda x, y: loss(a, x, b, y), given, eps=1e-5, atol=1e-5)
    logits = a.log().requires_grad_()
    assert gradcheck(lambda p: loss(p.softmax(0), x.detach(), b, y.detach()), (logits,), eps=1e-5, atol=1e-6)


def test_derivatives_of_emd2_have_the_constant_of_pots():
    generator = torch.Generator().manual_seed(0)
    given = [torch.rand(size, generator=generator, dtype=torch.float64) for size in ((6,), (5,), (6, 5))]
    a, b, cost = (v / v.sum() if v.ndim == 1 else v for v in given)
    parts = [v.requires_grad_() for v in (a, b, cost)]
    for log in (False, True):
        values = [emd2(*parts, log=log)[0] if log else emd2(*parts) for emd2 in (monge.emd2, ot.emd2)]
        torch.testing.assert_close(*values)
        for own, theirs in zip(*(torch.autograd.grad(value, parts) for value in values)):
            torch.testing.assert_close(own, theirs)
