"""The divergence in PyTorch: its derivatives are those of monge, its backward solves nothing, calls start from others."""

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import monge
import monge.torch


def clouds(n=9, m=8, d=2, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(k, d, generator=generator, dtype=torch.float64).to(dtype) for k in (n, m))
    return x, y + 0.5


def weights(n, seed=1):
    given = torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.2
    return given / given.sum()


TIGHT = {"reg": 0.5, "tol": 1e-13}
LABELS = {"labels_x": torch.arange(9) % 3, "labels_y": torch.arange(8) % 3, "label_cost": 1 - torch.eye(3)}


@pytest.mark.parametrize("labels", [{}, {**LABELS, "label_weight": 0.7}], ids=["points", "labels"])
@pytest.mark.parametrize("unbalanced", [None, 1.3])
def test_derivatives(unbalanced, labels):
    x, y = (v.requires_grad_() for v in clouds())
    p, q = (v.log().requires_grad_() for v in (weights(9), weights(8, 2)))
    for function in (monge.torch.sinkhorn_divergence, monge.torch.transport):

        def value(x, y, p=weights(9).log(), q=weights(8, 2).log()):
            return function(x, y, p.softmax(0), q.softmax(0), unbalanced=unbalanced, **TIGHT, **labels)

        assert gradcheck(value, (x, y, p, q), eps=1e-5, atol=1e-6)
        assert gradgradcheck(value, (x, y), eps=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_are_those_of_monge(dtype):
    x, y = clouds(60, 50, 3, dtype)
    a, b = weights(60).to(dtype), weights(50, 2).to(dtype)
    given = [v.requires_grad_() for v in (x, y, a, b)]
    expected = monge.sinkhorn_divergence(*(v.detach() for v in given), reg=0.3)
    value = monge.torch.sinkhorn_divergence(*given, reg=0.3)
    assert value.dtype == dtype and value == torch.tensor(expected._value, dtype=dtype)
    found = torch.autograd.grad(value, given)
    for name, gradient in zip("xyab", found):
        other = getattr(expected.gradients(), name)
        # The plans are made again from potentials; entries of float32 may change by 1e-7 (1 + range of C / reg).
        torch.testing.assert_close(gradient, other, rtol=0, atol=1e-5 * other.abs().max().item())
    batch = monge.torch.sinkhorn_divergence(*(torch.stack([v, v]) for v in given), reg=0.3)
    assert batch.shape == (2,) and (batch == value).all()
    as_solved = monge.torch.transport(x, y, a, b, reg=0.3)
    # Two solves to a marginal error of 1e-6: each dual value is below the optimum by at most that times the range of
    # the potentials, which the largest cost bounds.
    bound = 1e-6 * torch.cdist(x, y).square().max().item()
    assert abs(as_solved.item() - expected.ab.report.dual) < bound


def test_backward_solves_nothing(monkeypatch):
    x, y = (v.requires_grad_() for v in clouds())
    values = [
        monge.torch.SamplesLoss(blur=0.5)(x, y),
        monge.torch.SamplesLoss(p=1, blur=0.5)(x, y),
        monge.torch.transport(torch.stack([x, x]), torch.stack([y, y]), reg=0.5).sum(),
    ]
    for name in ("solve", "solve_batch", "sinkhorn_divergences"):
        monkeypatch.setattr(monge._core, name, lambda *given: pytest.fail("was solved"))
    for value in values:
        (by_x,) = torch.autograd.grad(value, x)
        assert by_x.abs().max() > 0.01


@pytest.mark.parametrize("metric", ["sqeuclidean", "cosine"])
def test_a_backward_takes_the_plans_of_its_forward(monkeypatch, metric):
    """Once; a second backward takes its results."""
    made = []
    for name in ("plans_of", "divergences_of"):
        own = getattr(monge._core, name)
        monkeypatch.setattr(monge._core, name, lambda *given, own=own: made.append(1) or own(*given))
    for function in (monge.torch.sinkhorn_divergence, monge.torch.transport):
        given = [v.requires_grad_() for v in (*clouds(), weights(9), weights(8, 2))]
        value = function(*given, reg=0.5, metric=metric)
        first, second = (torch.autograd.grad(value, given, retain_graph=True) for _ in range(2))
        assert not made and all(torch.equal(v, w) for v, w in zip(first, second))
        if metric == "sqeuclidean":
            (by,) = torch.autograd.grad(value, given[0], create_graph=True)
            assert len(made) == 1 and by.requires_grad
            torch.testing.assert_close(by, first[0], rtol=0, atol=1e-12 * first[0].abs().max().item())
        made.clear()
        value = function(*given, reg=0.5, metric=metric)
        with torch.no_grad():
            given[0] += 1
        with pytest.raises(RuntimeError, match="inplace"):
            value.backward()


def test_only_wanted_derivatives_are_made():
    x, y = clouds()
    seen = []

    def by(x, y):
        for v in (x, y):
            v.grad = None
        loss = monge.torch.SamplesLoss(blur=0.5)(x, y)
        loss.backward()
        seen.append((x.grad, y.grad))

    by(x.clone().requires_grad_(), y.clone().requires_grad_())
    by(x.clone().requires_grad_(), y)
    by(x, y.clone().requires_grad_())
    assert seen[1][1] is None and seen[2][0] is None
    assert (seen[1][0] == seen[0][0]).all() and (seen[2][1] == seen[0][1]).all()


@pytest.mark.parametrize("debias", [True, False])
@pytest.mark.parametrize("given", [{}, {"reach": 0.7}, {"p": 1}])
def test_calls_start_from_the_last_one(monkeypatch, given, debias):
    x, y = clouds(80, 70, 2)
    counts = []
    name = "sinkhorn_divergences" if debias else "solve"
    original = getattr(monge._core, name)

    def watched(*arguments):
        made = original(*arguments)
        plans = [p for d in made for p in (d.ab, d.aa, d.bb)] if debias else [made]
        counts.append(max(plan.report.iterations for plan in plans))
        return made

    monkeypatch.setattr(monge._core, name, watched)
    loss = monge.torch.SamplesLoss(blur=0.3, warm_start=True, debias=debias, **given)
    first, again = loss(x, y), loss(x, y)
    assert counts[1] <= 3 < counts[0]
    # Both have the default tolerance of 1e-6, and errors of second order in it.
    assert abs(again - first) < 1e-6 * 0.3
    loss(x[:50], y)  # Another size starts anew.
    loss(x[:50], y)
    loss.reset()
    loss(x[:50], y)
    assert counts[3] <= 3 < counts[2] == counts[4]
    monge.torch.SamplesLoss(blur=0.3, debias=debias, **given)(x, y)
    assert counts[5] == counts[0]
    x.requires_grad_()
    (warm,), (cold,) = (torch.autograd.grad(make(x, y), x) for make in (loss, loss))
    torch.testing.assert_close(warm, cold, rtol=0, atol=1e-5)
    torch.func.grad(lambda v: loss(v, y))(x.detach())


def test_labels_of_samples_loss():
    x, y = clouds()
    labels = {**LABELS, "label_weight": 0.7}
    for debias in (True, False):
        found = monge.torch.SamplesLoss(blur=0.7, debias=debias, tol=1e-10)(x, y, **labels)
        function = monge.torch.sinkhorn_divergence if debias else monge.torch.transport
        expected = function(x, y, reg=0.7**2, scale=0.5, tol=1e-10, **labels)
        assert found == expected
    numbers = monge.sinkhorn_divergence(x, y, reg=0.49, scale=0.5, tol=1e-10, **labels)
    np.testing.assert_allclose(monge.torch.SamplesLoss(blur=0.7, tol=1e-10)(x, y, **labels), numbers.value)
    with pytest.raises(ValueError, match="^labels_y: is missing; labels_x, labels_y and label_cost go together"):
        monge.torch.sinkhorn_divergence(x, y, reg=0.5, labels_x=LABELS["labels_x"])
    with pytest.raises(NotImplementedError, match="^label_cost: requires a gradient"):
        table = LABELS["label_cost"].clone().requires_grad_()
        monge.torch.transport(x, y, reg=0.5, **{**LABELS, "label_cost": table})
    with pytest.raises(ValueError, match="^unbalanced: is .* on both sides|^unbalanced"):
        monge.torch.sinkhorn_divergence(x, y, reg=0.5, unbalanced=(1.0, 2.0))
    with pytest.raises(TypeError, match="^warm_start: is 'a'; must be True or False"):
        monge.torch.SamplesLoss(warm_start="a")


def test_backwards_by_one_cloud_after_the_other():
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(n, 2, generator=generator, dtype=torch.float64).requires_grad_() for n in (9, 8))
    loss = monge.torch.SamplesLoss(blur=0.5)
    both = torch.autograd.grad(loss(x, y), (x, y))
    value = loss(x, y)
    for cloud, expected in zip((x, y), both):
        (found,) = torch.autograd.grad(value, cloud, retain_graph=True)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
