"""monge.torch.linear_sum_assignment and the permutations of gumbel_sinkhorn against SciPy's."""

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment as reference

import monge.torch
from monge.torch import linear_sum_assignment

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() and not monge.cuda_unavailable_reason() else [])]


def expect_pairs(found, cost, maximize=False):
    for indices, wanted in zip(found, reference(cost.detach().double().cpu().numpy(), maximize)):
        assert indices.dtype == torch.int64 and indices.device == cost.device
        np.testing.assert_array_equal(indices.cpu().numpy(), wanted)


@pytest.fixture(params=DEVICES)
def costs(request):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 20, (6, 9, 13), generator=generator).float().to(request.param)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64])
def test_pairs_of_batches_are_scipys(costs, dtype):
    for given in (costs.to(dtype), costs.to(dtype).transpose(1, 2), costs.to(dtype)[::2, 1:, ::2]):
        row, column = linear_sum_assignment(given)
        for t, cost in enumerate(given):
            expect_pairs((row[t], column[t]), cost)
    expect_pairs(linear_sum_assignment(costs[0].to(dtype), True), costs[0], True)


def test_costs_with_a_gradient_give_plain_indices(costs):
    row, column = linear_sum_assignment(costs.requires_grad_())
    assert not row.requires_grad and not column.requires_grad
    costs[0][row[0], column[0]].sum().backward()
    assert costs.grad.sum() == 9


def test_lists_are_those_of_a_detector(costs):
    sizes = [3, 0, 2, 5, 1, 2]
    parts = [cost[t] for t, cost in enumerate(costs.split(sizes, -1))]
    for found, part in zip(linear_sum_assignment(parts), parts, strict=True):
        expect_pairs(found, part)
    assert linear_sum_assignment([]) == []


def test_sizes_pad_with_minus_one(costs):
    rows = torch.tensor([9, 0, 4, 9, 1, 7], device=costs.device)
    columns = torch.tensor([13, 5, 2, 6, 13, 0], device=costs.device, dtype=torch.int32)
    row, column = linear_sum_assignment(costs, rows=rows, columns=columns)
    for t, (n, m) in enumerate(zip(rows.tolist(), columns.tolist())):
        expect_pairs((row[t, : min(n, m)], column[t, : min(n, m)]), costs[t, :n, :m])
        assert (row[t, min(n, m) :] == -1).all() and (column[t, min(n, m) :] == -1).all()


def test_problems_without_an_assignment_have_minus_one(costs):
    costs[1, 3] = torch.inf
    costs[2, 4, 5] = torch.nan
    costs[3, 4, 5] = -torch.inf
    row, column = linear_sum_assignment(costs, check=False)
    for t in (1, 2, 3):
        assert (row[t] == -1).all() and (column[t] == -1).all()
    for t in (0, 4, 5):
        expect_pairs((row[t], column[t]), costs[t])
    compiled = torch.compile(lambda cost: linear_sum_assignment(cost), fullgraph=True, backend="eager")
    for call in (monge.linear_sum_assignment, linear_sum_assignment, compiled, torch.func.vmap(linear_sum_assignment)):
        with pytest.raises(ValueError, match="^problem 1: cost_matrix: cost matrix is infeasible"):
            call(costs)
    for given in (costs[2], [costs[2]]):
        with pytest.raises(ValueError, match="^(problem 0: )?cost_matrix: matrix contains invalid numeric entries"):
            linear_sum_assignment(given)


def test_transforms(costs):
    expected = linear_sum_assignment(costs)
    compiled = torch.compile(lambda cost: linear_sum_assignment(cost), fullgraph=True, backend="eager")
    mapped = torch.func.vmap(linear_sum_assignment)
    for found in (compiled(costs), mapped(costs), torch.func.vmap(mapped)(costs[None])):
        for indices, wanted in zip(found, expected):
            assert torch.equal(indices.reshape(wanted.shape), wanted)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(2, 30, 5, 5), (40, 4, 7), (40, 7, 4), (1, 1)])
def test_hard_gumbel_sinkhorn(device, shape):
    """The permutation of the noisy logits, and the gradient of the soft matrices."""
    logits = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device).requires_grad_()

    def sample(given, hard):
        generator = torch.Generator(device).manual_seed(1)
        return monge.torch.gumbel_sinkhorn(given, 0.7, generator=generator, hard=hard, noise=2.0)

    found, soft = sample(logits, True), sample(logits, False)
    noise = torch.empty_like(logits).exponential_(generator=torch.Generator(device).manual_seed(1)).log()
    flat = (logits - 2 * noise).detach().double().cpu().reshape(-1, *shape[-2:])
    for matrix, scores in zip(found.detach().cpu().reshape(flat.shape), flat):
        expected = torch.zeros_like(matrix)
        expected[reference(scores, maximize=True)] = 1
        assert torch.equal(matrix, expected)
    direction = torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(device)
    for own, other in zip(*(torch.autograd.grad(v, logits, direction) for v in (found, soft))):
        assert torch.equal(own, other)
    half = sample(logits.detach().bfloat16(), True)
    assert half.dtype == torch.bfloat16 and ((half == 0) | (half == 1)).all()


def test_hard_gumbel_sinkhorn_without_a_permutation():
    logits = torch.zeros(3, 2, 2)
    logits[1, 0] = -torch.inf  # A row that nothing may take.
    logits[2, 0, 1] = torch.nan
    found = monge.torch.gumbel_sinkhorn(logits, noise=0, hard=True)
    assert torch.equal(found[0].sum(0), torch.ones(2)) and found[1:].isnan().all()
    with pytest.raises(ValueError, match="^hard: is True with a dustbin"):
        monge.torch.gumbel_sinkhorn(logits, hard=True, dustbin=True)
    with pytest.raises(TypeError, match="^hard: is 'yes'"):
        monge.torch.gumbel_sinkhorn(logits, hard="yes")


@pytest.mark.parametrize("device", DEVICES)
def test_empty_batches(device):
    empty = torch.zeros(0, 3, 4, device=device)
    for pairs in linear_sum_assignment(empty):
        assert pairs.shape == (0, 3) and pairs.dtype == torch.int64 and pairs.device.type == device
    assert monge.torch.gumbel_sinkhorn(empty, hard=True).shape == empty.shape


def test_wrong_arguments(costs):
    for given, message in [
        ((costs[0, 0],), r"cost_matrix: has shape \(13,\)"),
        (([costs],), r"cost_matrix\[0\]: has shape"),
        (([np.zeros((2, 2))],), r"cost_matrix\[0\]: is "),
        ((costs, "yes"), "maximize: is 'yes'"),
    ]:
        with pytest.raises((TypeError, ValueError), match=f"^{message}"):
            linear_sum_assignment(*given)
    for sizes in (torch.ones(5, dtype=torch.int64), torch.ones(6)):
        with pytest.raises(ValueError, match="^rows: is of dtype"):
            linear_sum_assignment(costs, rows=sizes)


@pytest.mark.skipif("cuda" not in DEVICES, reason="needs a GPU")
def test_graphs_record_the_call():
    costs = torch.rand(50, 20, 30, device="cuda")
    columns = torch.full((50,), 30, device="cuda")
    parts = [cost[:, : 5 + t % 20] for t, cost in enumerate(costs)]
    linear_sum_assignment(costs, columns=columns), linear_sum_assignment(parts)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = linear_sum_assignment(costs, columns=columns)
        of_parts = linear_sum_assignment(parts)
    for size in (30, 17):
        costs.copy_(torch.rand_like(costs))
        columns.fill_(size)
        graph.replay()
        for t in range(50):
            k = min(20, size)
            expect_pairs((found[0][t, :k], found[1][t, :k]), costs[t, :, :size])
            expect_pairs(of_parts[t], parts[t])
