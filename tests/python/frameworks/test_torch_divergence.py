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


@pytest.mark.parametrize(
    "costs",
    [{}, {**LABELS, "label_weight": 0.7}, {"metric": "cosine"}, {"metric": "euclidean", **LABELS}],
    ids=["points", "labels", "cosine", "labels and distances"],
)
@pytest.mark.parametrize("unbalanced", [None, 1.3])
def test_derivatives(unbalanced, costs):
    x, y = (v.requires_grad_() for v in clouds())
    p, q = (v.log().requires_grad_() for v in (weights(9), weights(8, 2)))
    for function in (monge.torch.sinkhorn_divergence, monge.torch.transport):

        def value(x, y, p=weights(9).log(), q=weights(8, 2).log()):
            return function(x, y, p.softmax(0), q.softmax(0), unbalanced=unbalanced, **TIGHT, **costs)

        assert gradcheck(value, (x, y, p, q), eps=1e-5, atol=1e-6)
        assert gradgradcheck(value, (x, y), eps=1e-5, atol=1e-5)


@pytest.mark.parametrize("loss", [monge.torch.sinkhorn_divergence, monge.torch.transport, monge.torch.SamplesLoss])
def test_hessian_products_have_derivatives_by_their_direction(loss):
    """torch.autograd.functional.hvp differentiates the product, which is linear, by its direction."""
    x, y = clouds()
    is_module = loss is monge.torch.SamplesLoss
    of = lambda x: loss(blur=0.7, tol=1e-13)(x, y) if is_module else loss(x, y, **TIGHT)  # noqa: E731
    v = torch.randn(x.shape, generator=torch.Generator().manual_seed(5), dtype=x.dtype)
    hessian = torch.autograd.functional.hessian(of, x)
    value, product = torch.autograd.functional.hvp(of, x, v)
    # Products are solved to a relative residual of 1e-10.
    expected = torch.einsum("ijkl,kl->ij", hessian, v)
    torch.testing.assert_close(product, expected, rtol=0, atol=1e-8 * expected.abs().max().item())
    torch.testing.assert_close(torch.func.jvp(torch.func.grad(of), (x,), (v,))[1], product, rtol=0, atol=1e-8)

    point = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(of(point), point, create_graph=True)
    times = lambda v: torch.autograd.grad(gradient, point, v, create_graph=True)[0]  # noqa: E731
    assert gradcheck(times, (v.requires_grad_(),), eps=1e-3, atol=1e-7)
    assert gradgradcheck(times, (v,), eps=1e-3, atol=1e-7)
    for third in (times(v), torch.autograd.functional.hvp(of, point, v.detach(), create_graph=True)[1]):
        with pytest.raises(NotImplementedError, match="has no third derivatives by the points"):
            torch.autograd.grad(third.sum(), point)


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


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine", "cityblock"])
def test_derivatives_form_no_costs(monkeypatch, metric):
    """Neither PyTorch's distances nor its derivatives of them are called on the CPU."""
    x, y = (v.requires_grad_() for v in clouds())
    for module, name in ((torch, "cdist"), (torch.ops.aten, "_cdist_backward")):
        monkeypatch.setattr(module, name, lambda *given, **options: pytest.fail("costs were formed"))
    result = monge.solve_sample(x, y, reg=0.5, metric=metric)
    values = [
        result.value,
        (result.potentials[0] - result.potentials[0].mean()).square().sum(),
        result.apply(y.detach()).square().sum(),
        monge.torch.sinkhorn_divergence(x, y, reg=0.5, metric=metric),
        monge.torch.SamplesLoss(p=1, blur=0.5)(x, y),
    ]
    for value in values:
        (by_x,) = torch.autograd.grad(value, x, retain_graph=True)
        assert by_x.isfinite().all() and by_x.abs().max() > 1e-4


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine"])
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
    for p, metric, scale in ((2, "sqeuclidean", 0.5), (1, "euclidean", 1.0)):
        numbers = monge.sinkhorn_divergence(x, y, reg=0.7**p, metric=metric, scale=scale, tol=1e-10, **labels)
        loss = monge.torch.SamplesLoss(p=p, blur=0.7, tol=1e-10)
        np.testing.assert_allclose(loss(x, y, **labels), numbers.value)
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


def solves_of(monkeypatch, loss):
    """Replaces the library's function of a loss by one that keeps its results: their list."""
    name = "solve" if loss is monge.torch.transport else "sinkhorn_divergences"
    found, solve = [], getattr(monge._core, name)

    def keep(*given):
        made = solve(*given)
        found.extend(made if isinstance(made, list) else [made])
        return made

    monkeypatch.setattr(monge._core, name, keep)
    return found


def test_losses_start_from_potentials(monkeypatch):
    x, y = clouds(60, 50)
    given = {"reg": 0.05, "tol": 1e-9}
    result, divergence = monge.solve_sample(x, y, **given), monge.sinkhorn_divergence(x, y, **given)
    f, g = result.potentials
    own = divergence.aa.potentials[0], divergence.bb.potentials[0]
    for loss, starts in (
        (monge.torch.transport, (result, (f, g), [f.numpy(), g.float()])),
        (monge.torch.sinkhorn_divergence, (divergence, (f, g, *own), (f, g))),
    ):
        with monkeypatch.context() as patch:
            found = solves_of(patch, loss)
            cold = loss(x, y, **given)
            for start in starts:
                warm = loss(x.requires_grad_(), y, potentials_init=start, **given)
                torch.testing.assert_close(warm.detach(), cold, rtol=0, atol=1e-7)
                warm.backward()
            if loss is monge.torch.transport:
                first, *others = [plan.report.iterations for plan in found]
            else:
                first, *others = [made.ab.report.iterations for made in found]
            assert len(others) == 3 and all(count < first / 2 for count in others)
            if loss is not monge.torch.transport:
                assert all(made.aa.report.iterations < found[0].aa.report.iterations for made in found[1:3])
        x = x.detach()
        stacks = tuple(torch.stack([v, v]) for v in (f, g))
        batch = loss(torch.stack([x, x]), torch.stack([y, y]), potentials_init=stacks, **given)
        torch.testing.assert_close(batch, torch.stack([cold, cold]), rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    "loss, start, error, message",
    [
        ("transport", 3, TypeError, "is 3; must be a pair"),
        ("transport", (torch.zeros(9),), TypeError, "has 1 entries; must be a pair"),
        ("transport", (torch.zeros(9), torch.zeros(7)), ValueError, r"g: has shape \(7,\); must be \(8,\)"),
        ("sinkhorn_divergence", (torch.zeros(9),) * 3, TypeError, "has 3 entries; must be a DivergenceResult"),
        ("sinkhorn_divergence", (torch.zeros(1, 9), torch.zeros(8)), ValueError, r"f: has shape \(1, 9\); must be"),
    ],
)
def test_starts_that_do_not_fit(loss, start, error, message):
    with pytest.raises(error, match=f"^potentials_init: {message}"):
        getattr(monge.torch, loss)(*clouds(), reg=0.5, potentials_init=start)


def test_a_module_checks_its_options_when_it_is_made():
    with pytest.raises(TypeError, match="^foo: is no option; options are "):
        monge.torch.SamplesLoss(foo=1)
    with pytest.raises(TypeError, match="^max_iter: is 'ten'; must be int"):
        monge.torch.SamplesLoss(max_iter="ten")


def test_a_start_of_another_rank_is_dropped():
    x, y = clouds()
    loss = monge.torch.SamplesLoss(blur=0.5, warm_start=True)
    for debias in (True, False, True):
        loss.debias = debias
        expected = monge.torch.SamplesLoss(blur=0.5, debias=debias)(x, y)
        torch.testing.assert_close(loss(x, y), expected, rtol=0, atol=0)
