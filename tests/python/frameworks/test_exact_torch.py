"""Derivatives of exact values in PyTorch."""

import numpy as np
import pytest
import torch

import monge


def test_values_differentiate_by_points_weights_and_costs() -> None:
    random = np.random.default_rng(0)
    x, y = (torch.tensor(random.normal(size=(n, 3)), requires_grad=True) for n in (12, 9))
    result = monge.solve_exact_sample(x, y)
    result.value.backward()
    plan = result.plan.detach()
    torch.testing.assert_close(x.grad, 2 * (plan.sum(1)[:, None] * x - plan @ y).detach())
    M = torch.tensor(random.random((12, 9)), requires_grad=True)
    a = torch.full((12,), 1 / 12, dtype=torch.float64, requires_grad=True)
    value = monge.emd2(a, torch.full((9,), 1 / 9, dtype=torch.float64), M)
    value.backward()
    torch.testing.assert_close(M.grad, monge.emd(a.detach(), [], M.detach()))
    # By weights up to a constant: potentials of the optimum.
    f = monge.solve_exact(M.detach(), a.detach()).potentials[0]
    torch.testing.assert_close(a.grad - a.grad.mean(), f - f.mean())


def test_other_metrics_differentiate_too() -> None:
    x = torch.tensor(np.random.default_rng(1).normal(size=(10, 2)), requires_grad=True)
    y = torch.tensor(np.random.default_rng(2).normal(size=(10, 2)))
    result = monge.solve_exact_sample(x, y, metric="euclidean")
    result.value.backward()
    i, j, mass = result.pairs
    to = x.detach()[i] - y[j]
    torch.testing.assert_close(x.grad, mass[:, None] * to / to.norm(dim=1, keepdim=True))


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "cityblock", "chebyshev"])
def test_values_differentiate_through_their_entries(monkeypatch: pytest.MonkeyPatch, metric: str) -> None:
    random = np.random.default_rng(8)
    x, y = (torch.tensor(random.normal(size=(n, 3)), requires_grad=True) for n in (8, 6))
    monkeypatch.setattr(torch, "cdist", lambda *given, **options: pytest.fail("costs were formed"))
    assert torch.autograd.gradcheck(
        lambda x, y: monge.solve_exact_sample(x, y, metric=metric, scale=0.7).value, (x, y), atol=1e-6
    )
    assert torch.autograd.gradcheck(
        lambda x, y: monge.solve_regularized_sample(x, y, metric=metric, quadratic=0.5, tolerance=1e-11).value,
        (x, y),
        atol=1e-5,
    )


def test_solve_without_reg_differentiates() -> None:
    random = np.random.default_rng(6)
    x, y = (torch.tensor(random.normal(size=(n, 3)), requires_grad=True) for n in (7, 5))
    p = torch.tensor(random.normal(size=7), requires_grad=True)
    M = torch.tensor(random.random((7, 5)), requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, y, p: monge.solve_sample(x, y, p.softmax(0)).value, (x, y, p))
    assert torch.autograd.gradcheck(lambda M, p: monge.solve(M, p.softmax(0), reg=0).value, (M, p))
    assert torch.autograd.gradcheck(lambda M: monge.solve_batch(torch.stack([M, 2 * M])).value, M)
    assert not monge.solve(M, grad="detach").value.requires_grad
    assert (torch.autograd.grad(monge.solve(M).topk(2)[1].sum(), M)[0] == 0).all()
    (gradient,) = torch.autograd.grad(monge.solve(M).inverse.value, M)
    torch.testing.assert_close(gradient, monge.solve(M).plan.detach())


def test_pairs_of_tensors() -> None:
    random = np.random.default_rng(7)
    x0, x1 = (torch.tensor(random.normal(size=(n, 2, 3)), dtype=torch.float32) for n in (9, 9))
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        p, q, i, j = monge.OTPlanSampler("exact").sample_plan_with_labels(
            x0.to(dtype, copy=True).requires_grad_(), x1.to(dtype), torch.arange(9), np.arange(9), replace=False
        )
        assert p.dtype == q.dtype == dtype and p.requires_grad and torch.equal(i.sort()[0], torch.arange(9))
        assert torch.equal(p, x0.to(dtype)[i]) and torch.equal(q, x1.to(dtype)[j])
    for method in ("sinkhorn", "unbalanced"):
        sampler = monge.OTPlanSampler(method, reg=1.0)
        np.random.seed(0)
        p, q = sampler.sample_plan(x0, x1)
        np.random.seed(0)
        r, s = sampler.sample_plan(x0.numpy(), x1.numpy())
        assert isinstance(p, torch.Tensor) and p.shape == q.shape == x0.shape and isinstance(r, np.ndarray)
        assert sampler.sample_plan(x0, x1, replace=False)[1].shape == x1.shape
        paths = sampler.sample_trajectory(torch.stack([x0, x1, x0], 1))
        assert isinstance(paths, torch.Tensor) and paths.shape == (9, 3, 2, 3)
        assert torch.equal(paths[:, 0], x0)


def test_a_plan_is_constant_in_costs_and_points() -> None:
    random = np.random.default_rng(3)
    x, y, v = (torch.tensor(random.normal(size=(n, 2)), requires_grad=True) for n in (12, 9, 9))
    result = monge.solve_exact_sample(x, y)
    plan = result.plan.detach()
    for made in (result.plan, result.pairs[2], result.marginals[0], result.sparse_plan.to_dense()):
        gradients = torch.autograd.grad((made * made).sum(), (x, y))
        assert all(bool((gradient == 0).all()) for gradient in gradients)
    u = torch.tensor(random.normal(size=(12, 2)))
    shares = plan / plan.sum(1, keepdim=True)
    for made, through, by_targets in (
        (result.apply(v), plan.T @ u, 0 * y),
        (result.average(v), shares.T @ u, 0 * y),
        (result.transform(), 0 * v, shares.T @ u),
    ):
        found = torch.autograd.grad((u * made).sum(), (x, y, v), allow_unused=True)
        assert bool((found[0] == 0).all())
        torch.testing.assert_close(found[1], by_targets.detach())
        torch.testing.assert_close(torch.zeros_like(v) if found[2] is None else found[2], through.detach())
    # The envelope: the cost of the plan as it is has the derivative of the optimum.
    M = torch.cdist(x, y).detach().requires_grad_()
    (gradient,) = torch.autograd.grad((monge.emd([], [], M) * M).sum(), M)
    torch.testing.assert_close(gradient, monge.emd([], [], M.detach()))


def test_derivatives_that_there_are_not_are_errors() -> None:
    M = torch.tensor(np.random.default_rng(4).random((4, 5)), requires_grad=True)
    a = torch.full((4,), 0.25, dtype=torch.float64, requires_grad=True)
    by_costs, by_weights = monge.solve_exact(M), monge.solve_exact(M.detach(), a)
    with pytest.raises(NotImplementedError, match="^potentials: "):
        by_costs.potentials[0].sum().backward()
    for name, made in (("plan", by_weights.plan), ("apply", by_weights.apply(torch.ones(5)))):
        with pytest.raises(NotImplementedError, match=f"^{name}: has no derivatives by weights here"):
            made.sum().backward()
    (gradient,) = torch.autograd.grad(by_costs.value, M, create_graph=True)
    with pytest.raises(NotImplementedError, match="^value: has no second"):
        gradient.square().sum().backward()


def test_options_that_require_a_gradient_are_errors() -> None:
    M, s = torch.rand(3, 3), torch.tensor(0.5, requires_grad=True)
    calls = {
        "mass": lambda: monge.solve_exact(M, mass=s),
        "m": lambda: monge.partial_wasserstein2([], [], M, m=s),
        "penalty_a": lambda: monge.solve_exact(M, penalty_a=s),
        "eps": lambda: monge.solve(M, eps=s),
    }
    for name, call in calls.items():
        with pytest.raises(NotImplementedError, match=f"^{name}: requires a gradient"):
            call()


@pytest.mark.parametrize("total", [0.5, 2.0])
def test_the_mass_that_is_left_out_has_derivatives(total: float) -> None:
    # The mass is the smaller total, and the totals of float64 weights differ from it by rounding, or not at all.
    for seed in range(10):
        random = np.random.default_rng(seed)
        M, a, b = (torch.tensor(random.random(shape) + 0.1) for shape in ((4, 5), 4, 5))
        a, b = (a / a.sum()).requires_grad_(), (total * b / b.sum()).requires_grad_()
        assert torch.autograd.gradcheck(lambda a, b: monge.partial_wasserstein2(a, b, M), (a, b))
        value, log = monge.partial_wasserstein2(a, b, M, log=True)
        assert log["cost"] is value


def test_scaling_b_to_the_total_of_a_has_derivatives() -> None:
    random = np.random.default_rng(5)
    M = torch.tensor(random.random((4, 5)))
    a, b = (torch.tensor(random.random(n) + 0.5, requires_grad=True) for n in (4, 5))
    assert torch.autograd.gradcheck(lambda a, b: monge.emd2(a, b, M, check_marginals=False), (a, b))


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_sparse_costs_have_sparse_plans_and_derivatives(layout: str) -> None:
    random = np.random.default_rng(0)
    dense = torch.from_numpy(random.uniform(0, 1, (12, 10)) * (random.uniform(size=(12, 10)) < 0.5))
    dense[torch.arange(12), torch.arange(12) % 10] = torch.from_numpy(random.uniform(0, 1, 12))
    dense[:, 0] = 0.9
    dense[0] = 0.8
    a, b = (torch.full((size,), 1 / size, dtype=torch.float64, requires_grad=True) for size in (12, 10))
    M = dense.to_sparse_coo() if layout == "coo" else dense.to_sparse_csr()
    M.requires_grad_()
    forbidden = torch.where(dense > 0, dense, torch.inf).requires_grad_()
    of_sparse, of_dense = monge.solve_exact(M, a, b), monge.solve_exact(forbidden, a, b)
    torch.testing.assert_close(of_sparse.value, of_dense.value, rtol=1e-12, atol=0)
    assert of_sparse.plan.layout is M.layout
    torch.testing.assert_close(of_sparse.plan.to_dense(), of_dense.plan)
    of_dense.value.backward()
    expected = forbidden.grad, a.grad, b.grad
    a.grad = b.grad = None
    of_sparse.value.backward()
    assert M.grad.layout is M.layout
    torch.testing.assert_close(M.grad.to_dense(), expected[0], rtol=0, atol=1e-15)
    for found, side in zip((a.grad, b.grad), expected[1:]):
        torch.testing.assert_close(found - found[0], side - side[0], rtol=0, atol=1e-12)
    M.grad = None
    monge.emd2(a, b, M).backward()
    torch.testing.assert_close(M.grad.to_dense(), expected[0], rtol=0, atol=1e-15)
    M.grad = None
    of_sparse.inverse.value.backward()
    torch.testing.assert_close(M.grad.to_dense(), expected[0], rtol=0, atol=1e-15)
    rows, columns = monge.linear_sum_assignment(dense[:10].to_sparse(layout=M.layout))
    assert isinstance(rows, torch.Tensor) and sorted(columns.tolist()) == list(range(10))


def test_the_map_of_new_points_chooses_targets() -> None:
    """By X_b its derivative is that of the choice; by the points, the sources and the costs it is 0."""
    x, y, points = (torch.tensor(v, requires_grad=True) for v in np.random.default_rng(5).normal(size=(3, 6, 2)))
    result = monge.solve_exact_sample(x, y)
    images = result.transform(points)
    chosen = (images.detach()[:, None] == y.detach()).all(2)
    assert (chosen.sum(1) == 1).all()
    by = torch.rand(6, 2, dtype=torch.float64)
    by_x, by_y, by_points = torch.autograd.grad(images, (x, y, points), by)
    torch.testing.assert_close(by_y, chosen.double().T @ by)
    assert (by_x == 0).all() and (by_points == 0).all()
    alone = monge.solve_exact_sample(x.detach(), y.detach()).transform(points)
    assert (torch.autograd.grad(alone.sum(), points)[0] == 0).all()
    a = torch.full((6,), 1 / 6, dtype=torch.float64, requires_grad=True)
    with pytest.raises(NotImplementedError, match="^target: has no derivatives by weights here"):
        monge.solve_exact_sample(x, y, a).transform(points).sum().backward()
