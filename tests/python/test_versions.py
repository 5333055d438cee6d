"""The oldest versions of other packages: stated once, refused below, and working. `./dev oldest` runs this file on
them."""

import re
import subprocess
import sys
import types
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import monge
from monge import _arrays, _versions

PYPROJECT = (Path(__file__).parents[2] / "pyproject.toml").read_text()
EXTRAS = PYPROJECT[PYPROJECT.index("[project.optional-dependencies]") :].partition("\n\n")[0]


@pytest.mark.parametrize("package", ["scikit-learn", "torch", "jax"])
def test_pyproject_has_the_same_versions(package):
    assert f'"{package}>={_versions.OLDEST[package]}"' in EXTRAS


def test_documents_have_the_same_versions():
    table = (Path(__file__).parents[2] / "docs/python.md").read_text().partition("## Versions")[2]
    for package, name in (("scikit-learn", "scikit-learn"), ("torch", "PyTorch"), ("jax", "JAX"), ("cupy", "CuPy")):
        assert re.search(rf"\| {name} \| {re.escape(_versions.OLDEST[package].removesuffix('.0'))} \|", table)


def test_linters_before_a_commit_have_fixed_versions():
    hooks = (Path(__file__).parents[2] / ".pre-commit-config.yaml").read_text()
    pinned = re.findall(r"additional_dependencies: \[([\w-]+==[\d.]+)\]", hooks)
    assert len(pinned) == hooks.count("additional_dependencies:")
    assert [p for p in pinned if p.startswith("ruff==")] == re.findall(r"ruff==[\d.]+", PYPROJECT)


@pytest.mark.parametrize(
    ("version", "is_old"),
    [("1.5.2", True), ("1.6", False), ("1.6.0rc1", False), ("1.10.0", False), ("2.0.0+cu130", False), ("0.24", True)],
)
def test_older_ones_are_refused(version, is_old):
    if is_old:
        with pytest.raises(ImportError, match=f"^monge.OTTransport: needs scikit-learn 1.6 or newer; {version} is"):
            _versions.refuse_old("scikit-learn", "monge.OTTransport", version)
    else:
        _versions.refuse_old("scikit-learn", "monge.OTTransport", version)


@pytest.mark.parametrize("module", ["torch", "jax", "sklearn"])
def test_a_module_without_metadata_is_taken(module, monkeypatch):
    """It is a stand-in for the documents."""

    def version(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setitem(sys.modules, module, types.ModuleType(module))
    _versions.require(module, "monge.jax")


USES = {
    "sklearn": "monge.OTTransport",
    "torch": "monge.torch",
    "jax": "monge.jax",
    "scipy": "monge.solve(np.eye(2), reg=1.0).sparse_plan",
    "matplotlib": "monge.plot.plan(monge.solve(np.eye(2), reg=1.0))",
}


@pytest.mark.parametrize("use", [*USES.items(), ("torch", "monge.distributed(None).__enter__()")])
def test_a_package_that_is_missing_is_named_with_its_extra(use):
    module, expression = use
    package, extra = _versions.EXTRAS[module]
    assert re.search(rf"^{extra} = .*\"{package}\b", EXTRAS, re.MULTILINE)
    program = f"import sys; sys.modules['{module}'] = None\nimport numpy as np, monge\n{expression}"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    who = {"scipy": "sparse plans", "matplotlib": "monge.plot"}.get(module, expression.partition("(")[0])
    why = f"ModuleNotFoundError: {who}: needs {package}, which is not installed: pip install 'monge[{extra}]'"
    assert run.stderr.splitlines()[-1] == why


def test_all_extras_have_a_message():
    names = {line.partition(" = ")[0] for line in EXTRAS.splitlines()[1:]}
    assert names - {"cuda"} == {extra for _, extra in _versions.EXTRAS.values()} and set(USES) == set(_versions.EXTRAS)


def test_a_broken_package_keeps_its_own_error(monkeypatch, tmp_path):
    (tmp_path / "jax.py").write_text("import jax_broken_part")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    with pytest.raises(ModuleNotFoundError, match="^No module named 'jax_broken_part'"):
        _versions.imported("jax", "monge.jax")


def test_an_old_cupy_is_refused(monkeypatch):
    module = types.ModuleType("cupy")
    module.__version__ = "12.3.0"
    monkeypatch.setitem(sys.modules, "cupy", module)
    with pytest.raises(ImportError, match="^arrays of CuPy: needs cupy 13.0 or newer; 12.3.0 is installed"):
        _arrays.framework_named("cupy")


def clouds():
    x, y = np.random.default_rng(0).normal(size=(2, 12, 2))
    return x, y + 1


def test_scikit_learn():
    pytest.importorskip("sklearn")
    x, y = clouds()
    transport = monge.OTTransport(reg=0.5).fit(x, Xt=y)
    assert transport.transform(x).shape == x.shape and transport.set_output(transform="default") is transport


def test_pytorch():
    torch = pytest.importorskip("torch")
    import monge.torch

    x, y = (torch.tensor(v, requires_grad=True) for v in clouds())
    for loss in (monge.torch.SamplesLoss(blur=0.5), lambda x, y: monge.torch.transport(x, y, reg=0.5)):
        assert torch.autograd.gradcheck(lambda x: loss(x, y.detach()), (x,), eps=1e-4, atol=1e-3)
    result = monge.solve_sample(x, y, reg=0.5)
    result.transform().square().sum().backward()
    assert x.grad.isfinite().all() and y.grad.isfinite().all()
    hessian = torch.func.hessian(lambda x: monge.torch.transport(x, y.detach(), reg=0.5))(x.detach())
    assert hessian.shape == (12, 2, 12, 2)
    values = torch.func.vmap(lambda x: monge.torch.transport(x, y.detach(), reg=0.5))(torch.stack([x, x]).detach())
    assert values[0] == values[1]
    projected = monge.torch.project(torch.zeros(2, 4, 4, requires_grad=True), "mhc_paper")
    projected.square().sum().backward()
    value, plan = monge.torch.regularized_transport(torch.rand(3, 4), quadratic=1.0)
    assert plan.shape == (3, 4) and value.isfinite()


def test_jax():
    jax = pytest.importorskip("jax")
    import monge.jax

    x, y = (jax.numpy.asarray(v, "float32") for v in clouds())
    loss = lambda x: monge.jax.sinkhorn_divergence(x, y)  # noqa: E731
    by_x = jax.grad(loss)(x)
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(x), by_x, rtol=1e-5)
    np.testing.assert_allclose(jax.vmap(loss)(jax.numpy.stack([x, x]))[1], loss(x), rtol=1e-5)
    value, plan = jax.value_and_grad(monge.jax.transport_of_costs)(jax.numpy.ones((3, 4)))
    np.testing.assert_allclose(plan, 1 / 12, rtol=1e-5)
    assert monge.jax.project(jax.numpy.zeros((2, 2))).dtype == "float32"
    assert monge.jax.regularized_transport(jax.numpy.ones((3, 4)), quadratic=1.0)[1].shape == (3, 4)
    assert isinstance(monge.solve_sample(x, y, reg=0.5).plan, jax.Array)
    with pytest.raises(ValueError, match="^x: row 0, column 0 is nan"):
        monge.jax.transport(x.at[0, 0].set(jax.numpy.nan), y)
