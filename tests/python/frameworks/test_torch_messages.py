"""What is said of wrong arguments of monge.torch: one line that begins with the name that the caller used."""

import numpy as np
import pytest
import torch

import monge.torch
from conftest import assert_named

X, Y = torch.arange(8.0).reshape(4, 2), torch.arange(6.0).reshape(3, 2)
COST = torch.cdist(X, Y)
A, B = torch.full((4,), 0.25), torch.full((3,), 1 / 3)
NAN = torch.full((3, 2), torch.nan)


def transport(**given):
    return monge.torch.transport(**{"x": X, "y": Y, "reg": 0.1, **given})


def regularized(**given):
    return monge.torch.regularized_transport(**{"cost": COST, "quadratic": 0.5, **given})


def loss(x=X, y=Y, a=A, b=B, **given):
    return monge.torch.SamplesLoss(**given)(a, x, b, y)


def pairs(x0=X, x1=Y, **given):
    return monge.torch.OTPairs(**given)(x0, x1)


def drot(**given):
    return monge.torch.quadratic_drot(**{"c": COST.T, "p": A, "q": B, **given})


def group_drot(**given):
    return monge.torch.group_lasso_drot(**{"c": COST.T, "p": A, "q": B, "n_class": 2, **given})


def project(**given):
    return monge.torch.project(**{"logits": torch.zeros(2, 4, 4), **given})


def fused(**given):
    return monge.torch.fused_sinkhorn(**{"logits": torch.zeros(2, 4, 4), **given})


MAPPED = torch.zeros(5, 24), torch.ones(3), torch.zeros(24)


def mapping(**given):
    return monge.torch.mhc_mapping(**dict(zip(("mixes", "scale", "base"), MAPPED)) | given)


def split(**given):
    return monge.torch.hc_split_sinkhorn(**dict(zip(("mixes", "hc_scale", "hc_base"), MAPPED)) | given)


UNEQUAL = (
    f"b: the total is {(2 * B).double().sum():.17g}; must equal the total of a, 1, to 1.0e-06 relative; "
    "divide each by its total"
)
WRONG = [
    (transport, {"x": X.numpy()}, TypeError, "x: is an array of shape (4, 2); must be a tensor of PyTorch"),
    (transport, {"y": None}, TypeError, "y: is None; must be a tensor"),
    (transport, {"x": X.to(torch.complex64)}, TypeError, "x: is of dtype torch.complex64; must be real"),
    (transport, {"a": A.numpy()}, TypeError, "a: is an array of shape (4,)"),
    (transport, {"a": A[:0]}, ValueError, "a: has shape (0,); must not be empty"),
    (transport, {"a": A[:2]}, ValueError, "a: has 2 entries; must have 4, one for each row of x"),
    (regularized, {"a": A[:2]}, ValueError, "a: has 2 entries; must have 4, one for each row of cost"),
    (transport, {"y": NAN}, ValueError, "y: row 0, column 0 is nan"),
    (transport, {"y": torch.zeros(3, 3)}, ValueError, "y: has 3 columns; must have 2, the dimension of x"),
    (transport, {"x": X[:0][None], "y": Y[:0][None]}, ValueError, "x: is 0 x 2"),
    (transport, {"x": X[None][:0], "y": Y[None][:0]}, ValueError, "x: has no problems"),
    (transport, {"x": X[None].repeat(2, 1, 1), "y": torch.stack([Y, NAN])}, ValueError, "problem 1: y: row 0"),
    (transport, {"reg": "a"}, TypeError, "reg: is 'a'; must be a number"),
    (transport, {"reg": torch.ones(2)}, TypeError, "reg: is an array of shape (2,)"),
    (transport, {"tol": -1}, ValueError, "tol: is -1"),
    (transport, {"tol": np.ones(3)}, TypeError, "tol: is an array of shape (3,)"),
    (transport, {"tolerance": -1}, ValueError, "tolerance: is -1"),
    (transport, {"max_iter": 0}, ValueError, "max_iter: is 0"),
    (transport, {"unbalanced": -1}, ValueError, "unbalanced: is -1"),
    (transport, {"norm_p": 3}, ValueError, "norm_p: is 3; is for the metric p-norm"),
    (transport, {"scale": "a"}, TypeError, "scale: is 'a'"),
    (transport, {"metric": None}, ValueError, "metric: is None"),
    (regularized, {"cost": COST.numpy()}, TypeError, "cost: is an array of shape (4, 3); must be a tensor"),
    (regularized, {"cost": torch.full((4, 3), torch.nan)}, ValueError, "cost: row 0, column 0 is nan"),
    (regularized, {"cost": COST[None][:0]}, ValueError, "cost: has no problems"),
    (regularized, {"a": A, "b": 2 * B}, ValueError, "b: the total is 2"),
    (regularized, {"groups": [0, 0, 1, 1]}, TypeError, "groups: is [0, 0, 1, 1]; must be a tensor"),
    (regularized, {"groups": torch.tensor([0, 0, 1, 1])}, ValueError, "groups: is given without group_lasso"),
    (regularized, {"l1_weights": COST}, ValueError, "l1_weights: is given without l1"),
    (regularized, {"quadratic": "a"}, TypeError, "quadratic: is 'a'"),
    (regularized, {"tol": -1}, ValueError, "tol: is -1"),
    (regularized, {"tol": 1e-3, "tolerance": 1e-3}, ValueError, "tol: is given with tolerance"),
    (regularized, {"max_iter": 0}, ValueError, "max_iter: is 0"),
    (loss, {"x": X.numpy()}, TypeError, "x: is an array of shape (4, 2); must be a tensor"),
    (loss, {"a": 3}, TypeError, "a: is 3; must be a tensor"),
    (loss, {"x": X[0]}, ValueError, "x: has shape (2,); must be (n, d) or (B, n, d)"),
    (loss, {"y": Y[None]}, ValueError, "y: has shape (1, 3, 2); must have 2 dimensions"),
    (loss, {"a": A[:2]}, ValueError, "a: has shape (2,); must be (4,)"),
    (loss, {"a": A[None]}, ValueError, "a: has shape (1, 4); must be (4,)"),
    (loss, {"x": X[None], "y": Y[None], "b": B[None]}, ValueError, "a: has shape (4,); must be (1, 4)"),
    (loss, {"x": X[None], "y": Y[None], "a": A[None, :, None]}, ValueError, "b: has shape (3,); must be (1, 3)"),
    (loss, {"blur": "a"}, TypeError, "blur: is 'a'; must be a number"),
    (loss, {"blur": 1e-200}, ValueError, "blur: is 1e-200; its power 2"),
    (loss, {"blur": None}, TypeError, "blur: is None"),
    (loss, {"reach": -1}, ValueError, "reach: is -1"),
    (loss, {"reach": 1e200}, ValueError, "reach: is 1e+200; its power 2"),
    (loss, {"scaling": 2}, ValueError, "scaling: is 2"),
    (loss, {"tol": -1}, ValueError, "tol: is -1"),
    (loss, {"tolerance": -1.0}, ValueError, "tolerance: is -1"),
    (loss, {"max_iter": "a"}, TypeError, "max_iter: is 'a'"),
    (loss, {"blur": 0.3, "eps": 0.5}, ValueError, "blur: is given with eps"),
    (loss, {"reach": 1.0, "penalty_b": 0.5}, ValueError, "reach: is given with penalty_b"),
    (loss, {"scaling": 0.9, "annealing": 0.5}, ValueError, "scaling: is given with annealing"),
    (loss, {"tol": 1e-3, "tolerance": 1e-3}, ValueError, "tol: is given with tolerance"),
    (loss, {"b": 2 * B, "reach": None}, ValueError, UNEQUAL + "; unequal totals need reach"),
    (
        loss,
        {"a": A.bfloat16(), "b": B.bfloat16()},
        ValueError,
        "b: the total is 1.001953125; must equal the total of a",
    ),
    (transport, {"a": A, "b": 2 * B}, ValueError, UNEQUAL + "; unequal totals need unbalanced"),
    (pairs, {"x0": X.numpy()}, TypeError, "x0: is an array of shape (4, 2); must be a tensor"),
    (pairs, {"x1": Y[:, :1]}, ValueError, "x1: has points of shape (1,); must be as x0, (2,)"),
    (pairs, {"x1": Y[0]}, ValueError, "x1: has shape (2,); must be (n, ...)"),
    (pairs, {"x1": NAN}, ValueError, "x0, x1: costs: row 0, column 0 is nan"),
    (pairs, {"reg": "a"}, TypeError, "reg: is 'a'"),
    (pairs, {"tol": -1}, ValueError, "tol: is -1"),
    (pairs, {"seed": -1}, ValueError, "seed: is -1"),
    (project, {"logits": None}, TypeError, "logits: is None; must be a tensor"),
    (project, {"logits": torch.zeros(4)}, ValueError, "logits: has shape (4,)"),
    (project, {"logits": torch.zeros(0, 4)}, ValueError, "logits: is 0 x 4; must be"),
    (project, {"preset": [1]}, TypeError, "preset: is [1]; must be a name"),
    (project, {"iterations": torch.ones(2)}, TypeError, "iterations: is an array of shape (2,)"),
    (fused, {"num_iterations": 0}, ValueError, "num_iterations: is 0"),
    (fused, {"eps": -1.0}, ValueError, "eps: is -1"),
    (mapping, {"mixes": None}, TypeError, "mixes: is None; must be a tensor"),
    (mapping, {"scale": [1.0]}, TypeError, "scale: is [1.0]; must be a tensor"),
    (mapping, {"base": torch.zeros(4)}, ValueError, "base: has shape (4,)"),
    (mapping, {"pre_epsilon": "a"}, TypeError, "pre_epsilon: is 'a'; must be a number"),
    (mapping, {"preset": 3}, TypeError, "preset: is 3; must be a name"),
    (split, {"hc_scale": None}, TypeError, "hc_scale: is None; must be a tensor"),
    (split, {"hc_mult": "a"}, TypeError, "hc_mult: is 'a'; must be a whole number"),
    (split, {"hc_mult": 2}, ValueError, "mixes: has shape (5, 24); must be (..., 8) with hc_mult 2"),
    (split, {"sinkhorn_iters": 0}, ValueError, "sinkhorn_iters: is 0"),
    (split, {"eps": -1.0}, ValueError, "eps: is -1"),
    (drot, {"c": COST}, ValueError, "p: has 4 entries; must have 3, one for each column of c"),
    (drot, {"p": A.numpy()}, TypeError, "p: is an array of shape (4,)"),
    (drot, {"c": COST[0]}, ValueError, "c: has 1 dimensions; must have 2"),
    (drot, {"eps": -1}, ValueError, "eps: is -"),
    (drot, {"rho": -1}, ValueError, "rho: is -1"),
    (drot, {"r_weight": -1}, ValueError, "r_weight: is -"),
    (drot, {"max_iter": 0}, ValueError, "max_iter: is 0"),
    (group_drot, {"n_class": 0}, ValueError, "n_class: is 0; must be from 1 to 4"),
    (group_drot, {"rho": 0}, ValueError, "rho: is 0"),
]


@pytest.mark.parametrize(("function", "given", "error", "first_words"), WRONG)
def test_wrong_arguments_are_named(function, given, error, first_words):
    assert_named(function, given, error, first_words)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("function", [transport, loss, regularized])
def test_totals_of_half_precision_are_explained(function, dtype):
    words = f"; weights in {str(dtype)[6:]} are rounded: divide them by their totals in float32$"
    with pytest.raises(ValueError, match=words):
        function(a=A.to(dtype), b=(1.01 * B).to(dtype))


@pytest.mark.parametrize("function", [transport, loss, regularized, fused, split])
def test_what_names_arguments_is_compiled(function):
    torch.testing.assert_close(torch.compile(function, fullgraph=True, backend="eager")(), function())


@pytest.mark.parametrize(
    "function, name",
    [
        (transport, "reg"),
        (transport, "unbalanced"),
        (transport, "scale"),
        (loss, "blur"),
        (loss, "reach"),
        (loss, "max_iter"),
        (regularized, "quadratic"),
        (fused, "eps"),
    ],
)
def test_numbers_that_change_are_constants_of_the_graph(function, name):
    """torch.compile takes a number for a variable once it has seen two values."""
    torch._dynamo.reset()  # Each number is compiled anew, and a function a few times at most.
    compiled = torch.compile(lambda value: function(**{name: value}), fullgraph=True, backend="eager")
    for value in (300, 400, 500) if name == "max_iter" else (0.5, 0.6, 0.7):
        torch.testing.assert_close(compiled(value), function(**{name: value}))


def test_modules_of_other_numbers_are_compiled():
    torch._dynamo.reset()
    for blur in (0.5, 0.6, 0.7):
        module = monge.torch.SamplesLoss(blur=blur)
        torch.testing.assert_close(torch.compile(module, fullgraph=True, backend="eager")(X, Y), module(X, Y))


def test_samples_loss_reads_weights_in_their_own_dtype():
    """Float32 does not tell these weights from uniform ones."""
    x, y, b = X.clone(), Y.clone(), torch.full((3,), 1 / 3, dtype=torch.float64)
    step = torch.tensor([1.0, -1, 0, 0], dtype=torch.float64) * 2.0**-30
    a = torch.full((4,), 0.25, dtype=torch.float64) + step
    loss = monge.torch.SamplesLoss(blur=2.0, tol=1e-12, precision="float64", potentials=True)
    f, _ = loss(a, x.double(), b, y.double())
    rounded, _ = loss(a.float().double(), x.double(), b, y.double())
    given, _ = loss(a, x, b, y)
    assert given.dtype == torch.float32
    assert not torch.equal(f, rounded)
    torch.testing.assert_close(given, f.float(), rtol=0, atol=0)


@pytest.mark.parametrize(
    "wrong, words",
    [
        (torch.nested.nested_tensor([torch.ones(2), torch.ones(2)], layout=torch.strided), "nested"),
        (torch.quantize_per_tensor(torch.ones(3, 2), 0.1, 0, torch.quint8), "quantized"),
    ],
)
def test_tensors_of_other_kinds(wrong, words):
    calls = {
        "X_b": lambda: monge.solve_sample(X, wrong, reg=0.1),
        "M": lambda: monge.solve(wrong, reg=0.1),
        "cost_matrix": lambda: monge.linear_sum_assignment(wrong),
        "logits": lambda: monge.project(wrong),
    }
    for field, call in calls.items():
        with pytest.raises(TypeError, match=f"^{field}: is (a {words} tensor; must be|of dtype)"):
            call()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: monge.torch.SamplesLoss(blurr=1), "blurr: is no option; did you mean blur[?] Options are blur, "),
        (lambda: monge.torch.SamplesLoss(method="newtn"), "method: is 'newtn'; did you mean 'newton'[?] Must be auto, "),
        (lambda: monge.torch.SinkhornProjection(iteratons=3), "iteratons: is no option; did you mean iterations[?]"),
        (lambda: monge.torch.project(torch.ones(2, 2), "deepsek"), "preset: is 'deepsek'; did you mean 'deepseek'[?]"),
        (
            lambda: monge.torch.linear_sum_assignment(torch.ones(2, 2), maximise=True),
            "maximise: is no argument of linear_sum_assignment[(][)]; did you mean maximize[?]",
        ),
    ],
)
def test_the_name_or_value_that_may_be_meant(call, words):
    with pytest.raises((TypeError, ValueError), match=f"^{words}"):
        call()
