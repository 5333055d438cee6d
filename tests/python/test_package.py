"""The package as a whole: what importing it does, its types and its examples in docstrings."""

import ast
import doctest
import importlib
import importlib.util
import inspect
import os
import pkgutil
import re
import signal
import subprocess
import sys
import types
import typing
from pathlib import Path

import pytest

import monge
from conftest import undocumented, unexplained, unlisted
from monge import _costs, _signatures

WITHOUT = {"monge.torch", "monge.jax"}  # These need frameworks: `./dev frameworks` tests them.


def modules():
    return [
        name
        for _, name, _ in pkgutil.walk_packages(monge.__path__, "monge.")
        if not any(name == w or name.startswith(w + ".") for w in WITHOUT)
    ]


def test_importing_brings_no_framework_along():
    code = (
        "import sys, time, numpy;"
        "begin = time.process_time(); import monge; print(time.process_time() - begin);"
        "print([m for m in ('torch', 'jax', 'cupy', 'scipy', 'matplotlib', 'tqdm', 'sklearn') if m in sys.modules])"
    )
    times = []
    for _ in range(3):
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        seconds, loaded = run.stdout.splitlines()
        assert loaded == "[]" and run.stderr == ""
        times.append(float(seconds))
    assert min(times) < 0.5  # CPU seconds, 0.1 on a quiet machine; PyTorch alone takes over 1.


@pytest.mark.parametrize("address", [None, "https://example.org/monge"])
def test_links_of_the_page_of_pypi_lead_somewhere(address):
    root = Path(__file__).parents[2]
    spec = importlib.util.spec_from_file_location("pypi_page", root / "python/pypi_page.py")
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    project = {"version": "1.2.3"} | ({"urls": {"Repository": address}} if address else {})
    text = page.dynamic_metadata({}, project)["readme"]["text"]
    places = re.findall(r"\]\(([^()\s]+)\)", text)
    assert "<a" not in text and "<img" not in text and "the three" in text
    assert bool(places) == bool(address)
    for place in places:
        path = place.removeprefix(f"{address}/blob/v1.2.3/").removesuffix("?raw=true")
        assert path != place and (root / path).exists()


def test_all_names_without_scikit_learn():
    code = "import sys; sys.modules['sklearn'] = None; from monge import *; print('OTTransport' in dir(), solve.__name__)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "solve"]


@pytest.mark.parametrize("arguments", [[], ["info"]])
def test_the_module_run_as_a_program_prints_versions(arguments):
    run = subprocess.run([sys.executable, "-m", "monge", *arguments], capture_output=True, text=True, check=True)
    assert run.stdout.startswith(f"monge {monge.__version__} (") and " threads, " in run.stdout


def test_the_module_run_as_a_program_takes_info_alone():
    run = subprocess.run([sys.executable, "-m", "monge", "solve", "x.npy"], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (1, "") and run.stderr.startswith("python -m monge: solve: is no command")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_the_module_run_as_a_program_says_nothing_to_a_reader_that_ended(unbuffered):
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as out:
        how = dict(stdout=out, stderr=subprocess.PIPE, text=True)
        run = subprocess.run(
            [sys.executable, "-m", "monge"], **how, env=os.environ | {"PYTHONUNBUFFERED": unbuffered}, check=False
        )
    assert (run.returncode, run.stderr) == (-signal.SIGPIPE, "")


@pytest.fixture
def with_plug_in(tmp_path):
    """Runs code where a package monge_cuda has this file as its extension module."""

    def run(name, text):
        folder = tmp_path / "monge_cuda" / "monge"
        folder.mkdir(parents=True)
        (folder / name).write_bytes(text)
        paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        code = "import monge; from monge import _core as c; print(c.__file__, monge.Report.__module__, monge._core is c)"
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": paths}
        )

    return run


def test_the_extension_module_of_monge_cuda_takes_the_place_of_ours(with_plug_in, tmp_path):
    ours = Path(monge._core.__file__)
    run = with_plug_in(ours.name, ours.read_bytes())
    assert run.stdout.split() == [str(tmp_path / "monge_cuda" / "monge" / ours.name), "monge._core", "True"], run.stderr


def test_a_monge_cuda_of_another_version_is_refused(with_plug_in):
    run = with_plug_in("_core.py", b"def version(): return '9.9.9'")
    assert run.stderr.splitlines()[-1] == (
        f"ImportError: monge-cuda: is 9.9.9; must be {monge.__version__} as monge is: pip install -U 'monge[cuda]'"
    )


def test_versions_and_devices_for_reports_of_faults():
    run = subprocess.run([sys.executable, "-m", "monge"], capture_output=True, text=True, check=True)
    assert run.stdout.startswith(f"monge {monge.__version__} (compiler ") and "\ncpu      " in run.stdout


def imported(path, module, known):
    """The modules of the package that a file imports, at its top or within a function.

    `from .torch._result import attach` counts as an import of that file. Python runs monge/torch/__init__.py first, but
    an __init__.py of this package only names what is public.
    """
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            names = [
                name if (name := f"{source}.{alias.name}") in known or name == "monge._core" else source
                for alias in node.names
            ]
        else:
            continue
        yield from (name for name in names if name in known)


def cycle(graph):
    """A path of the graph that ends where it begins, or None."""
    done = set()

    def from_here(name, path):
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return None
        found = next(filter(None, (from_here(other, [*path, name]) for other in sorted(graph[name]))), None)
        done.add(name)
        return found

    return next(filter(None, (from_here(name, []) for name in sorted(graph))), None)


def test_modules_do_not_import_each_other():
    folder = Path(__file__).parents[2] / "python" / "monge"
    files = {
        ".".join(["monge", *path.relative_to(folder).with_suffix("").parts]).removesuffix(".__init__"): path
        for path in folder.rglob("*.py")
    }
    graph = {name: set(imported(path, name, files)) for name, path in files.items()}
    assert {"monge._names", "monge._solve"} <= graph["monge.torch._pairs"]  # Relative imports are understood,
    assert "monge.torch._result" in graph["monge._plan_result"]  # and those within functions are found.
    assert cycle(graph) is None


def test_names_that_are_not_there():
    for name, message in (("dist", "; solve_sample.* takes points"), ("unif", "; weights"), ("solve_samples", "$")):
        with pytest.raises(AttributeError, match=f"^module 'monge' has no attribute '{name}'{message}") as error:
            getattr(monge, name)
        assert error.value.name == name and error.value.obj is monge  # By these Python finds the nearest name.


def test_what_needs_a_framework_is_loaded_when_it_is_asked_for():
    needs = {"OTTransport": "sklearn", "jax": "jax", "plot": "matplotlib", "torch": "torch"}
    there = [name for name, package in needs.items() if importlib.util.find_spec(package)]
    code = (
        "import sys, monge;"
        f"print([name for name in {list(needs)} if name in dir(monge)]);"
        f"print([m for m in {list(needs.values())} if m in sys.modules]);"
        f"print([getattr(monge, name).__name__ for name in {there}])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    shown, loaded, found = run.stdout.splitlines()
    assert (shown, loaded) == (str(there), "[]")
    assert found == str([name if name == "OTTransport" else f"monge.{name}" for name in there])


def test_everything_public_is_there_and_documented():
    assert list(undocumented(monge)) == []
    assert unlisted(monge) == []


@pytest.mark.parametrize("name", ["monge", "monge.plot"])
def test_every_argument_is_explained(name):
    """Where it is, or in a docstring to which that refers, not in one to which that one does."""
    assert list(unexplained(importlib.import_module(name))) == []


def test_references_to_arguments_are_not_followed_twice():
    module = types.ModuleType("module")
    module.__all__ = ["first", "second", "third"]
    for name, doc in (("first", "`x` (n)."), ("second", "As for :func:`first`."), ("third", "As for :func:`second`.")):
        exec(f"def {name}(x): {doc!r}", vars(module))
    assert list(unexplained(module)) == ["third(x)"]


@pytest.mark.parametrize("name", modules())
def test_docstrings(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where mypy works, with its cache of the package."""
    return tmp_path_factory.mktemp("mypy")


def mypy(folder, *arguments):
    pytest.importorskip("mypy")
    paths = [str(Path(path).absolute()) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-error-summary",
            "--cache-dir=cache",
            f"--config-file={Path(__file__).parents[2] / 'pyproject.toml'}",
            *arguments,
        ],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"MYPYPATH": os.pathsep.join(paths)},
    )
    return run


def test_types(folder):
    run = mypy(folder, "-p", "monge")
    assert run.returncode == 0, run.stdout + run.stderr


RESULTS = {
    "solve(M)": "ExactResult",
    "solve(M, None, None, None, mass=0.5, tol=1e-9)": "ExactResult",
    "solve(M, reg='auto', tol=1e-3, method='newton', check_every=5)": "OTResult",
    "solve(M, None, None, 0.1)": "OTResult",
    "solve(M, reg=0.1, reg_type='L2', step=1.0)": "RegularizedResult",
    "solve(M, reg=reg)": "OTResult | ExactResult",
    "solve(M, eps_relative=0.1)": "OTResult | ExactResult | RegularizedResult",
    "solve_sample(M, M, lazy=True)": "ExactResult",
    "solve_sample(M, M, reg=0.1, scale=0.5, labels_x=[0, 1], unbalanced=(1.0, 2.0))": "OTResult",
    "solve_sample(M, M, reg=1.0, reg_type='L2', norm_p=3)": "RegularizedResult",
    "solve_sample(M, M, None, None, 'cosine', reg)": "OTResult | ExactResult | RegularizedResult",
    "solve(M, reg=0)": "ExactResult",
    "solve(M, reg=0.0)": "OTResult",  # Python has no type of the number 0.0.
    "Solver().solve(M)": "OTResult",
    "project(M)": "numpy.ndarray[Any, Any]",
    "project(np.ones((2, 2)), 'mhc_paper', iterations=3)": "numpy.ndarray[Any, Any]",
    "project(monge.Solver())": "Solver",  # The class of the argument, as of a tensor.
    "solve_exact(M).inverse": "ExactResult",
}


def test_types_of_results(folder):
    """What an editor completes, and that it knows the options."""
    lines = ["import monge, numpy as np", "M = [[0.0, 1.0], [1.0, 0.0]]", "reg: float | None = None if monge.__version__ else 1.0"]
    lines += [f"reveal_type(monge.{call})" for call in RESULTS]
    lines += ["monge.solve(M, reg=0.1, epsilon=3)", "monge.solve_sample(M, M, reg=0.1, precision='float16')"]
    lines += ["monge.project(M, start='row')"]
    (folder / "program.py").write_text("\n".join(lines))
    out = mypy(folder, "program.py").stdout
    revealed = re.findall(r'Revealed type is "(.*)"', out)
    assert [re.sub(r"monge\.\w+\.", "", kind) for kind in revealed] == list(RESULTS.values()), out
    wrong = re.findall(r"program.py:(\d+): error", out)
    assert set(wrong) == {str(len(lines) - k) for k in range(3)}, out


@pytest.mark.skipif(sys.version_info < (3, 11), reason="typing.get_overloads is of Python 3.11")
@pytest.mark.parametrize("name", ["solve", "solve_sample"])
def test_signatures_have_the_arguments_of_the_function(name):
    others = {"solve": _signatures.Arguments, "solve_sample": _signatures.SampleArguments}[name].__annotations__
    there = {parameter for parameter in inspect.signature(getattr(monge, name)).parameters if parameter != "options"}
    of_points = set(_costs.COSTS) if name == "solve_sample" else set()
    for overload in typing.get_overloads(getattr(_signatures, name)):
        own = {parameter for parameter in inspect.signature(overload).parameters if parameter != "others"}
        assert own <= there
    assert {*own, *others} == there | of_points
