"""The listings of README and docs: Python runs page by page and prints what stands below it, the program's commands
run, programs in C++ are those of examples/, and fragments compile."""

import ast
import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import monge

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAM = os.environ.get("MONGE_PROGRAM", shutil.which("monge"))


class Listing(NamedTuple):
    kind: str  # The first word behind the fence: the language.
    needs: str  # The rest of it; "gpu" marks listings of Python that need one.
    line: int  # Of its first line in the page.
    text: str


def listings(page):
    document = page.read_text()
    for fence in re.finditer(r"^(`{3,})(\w+) *(.*)\n((?:.*\n)*?)\1$", document, re.MULTILINE):
        yield Listing(fence[2], fence[3], document.count("\n", 0, fence.start(4)) + 1, fence[4])


def names(pages):
    return [str(page.relative_to(ROOT)) for page in pages]


def pages(kind):
    """The pages that have a listing of this kind, as parameters of a test."""
    found = [page for page in PAGES if any(listing.kind == kind for listing in listings(page))]
    return pytest.mark.parametrize("page", found, ids=names(found))


def imported(page):
    """The packages that a page's Python imports, monge.torch and monge.jax as those that they need."""
    nodes = [node for item in listings(page) if item.kind == "python" for node in ast.walk(ast.parse(item.text))]
    modules = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "monge"}
    return {module.split(".")[0] for module in modules} | used & {"torch", "jax"}


TORCHRUN = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
"""The environment in which torchrun starts the only process of a group."""


@pages("python")
def test_python(page, tmp_path, monkeypatch):
    """A page is one program: its listings share their names. A listing prints the block `text` that follows it."""
    for package in sorted(imported(page)):
        pytest.importorskip(package)
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    blocks = list(listings(page))
    for item, after in zip(blocks, [*blocks[1:], None]):
        if item.kind != "python":
            continue
        code = compile("\n" * (item.line - 1) + item.text, str(page), "exec")
        if item.needs == "gpu" and monge.cuda_unavailable_reason():
            continue
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, names)
        assert printed.getvalue() == (after.text if after and after.kind == "text" else ""), f"line {item.line}"


FILES = {
    **{name: (24, 2) for name in ("x.npy", "y.npy", "V.npy", "problems/x_1.npy", "problems/y_1.npy")},
    **{name: (24, 24) for name in ("C.npy", "D.npy", "M.npy", "problems/cost_2.npy")},
    **{name: (24,) for name in ("a.npy", "b.npy", "g.npy", "kept/f.npy", "kept/g.npy")},
    "logits.npy": (10, 4, 4),
}
"""What the commands of the pages read, and its shape."""


def commands(page):
    for item in listings(page):
        if item.kind == "sh":
            for line in item.text.replace("\\\n", " ").splitlines():
                yield from filter(None, map(shlex.split, [line.partition("  #")[0]]))


@pages("sh")
def test_commands(page, tmp_path):
    """Those of the program are run, on one process; files that others name are there."""
    usage = (ROOT / "dev").read_text().partition("TEXT'\n")[2].partition("TEXT\n")[0]
    random = np.random.default_rng(0)
    for name, shape in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        array = random.random(shape)
        np.save(tmp_path / name, array / array.sum() if len(shape) == 1 else array)
    for words in commands(page):
        if words[:2] == ["mpirun", "-n"]:
            words = words[3:]
        if words[0] == "monge" and PROGRAM:
            run = subprocess.run([PROGRAM, *words[1:]], cwd=tmp_path, capture_output=True, text=True)
            assert run.returncode == 0, (words, run.stdout + run.stderr)
        elif words[0] == "./dev" and len(words) > 1:
            assert re.search(rf"^  {words[1]} ", usage, re.MULTILINE), words
        elif words[0] == "python" and words[1].endswith(".py") and "/" in words[1]:
            assert (ROOT / words[1]).exists(), words


@pages("cmake")
def test_cmake(page):
    """Listings are parts of a project that is configured and built."""
    project = (ROOT / "tests" / "stranger" / "CMakeLists.txt").read_text()
    assert all(item.text in project for item in listings(page) if item.kind == "cmake")


EXAMPLES = [path.read_text() for path in sorted((ROOT / "examples").glob("*.cpp"))]
SURROUNDINGS = """
#include <functional>
#include <monge/monge.hpp>
#include <thread>
#include <utility>
#include <vector>
[[maybe_unused]] void surroundings(int argc, char** argv, int rank, std::int64_t n, std::int64_t m, std::int64_t d,
    std::vector<std::int64_t> const& labels, std::vector<double> const& cost, std::vector<double> const& p,
    std::vector<double> const& q, std::vector<double>& x, std::vector<float> const& x_own,
    monge::Context const& context, monge::PointCloud const& geometry, std::vector<double> const& a,
    std::vector<double> const& b, monge::SolveOptions& options,
    std::function<void(std::vector<double> const&, std::vector<double> const&)> const& save) {
"""
"""What is around listings that are parts of a function."""


@pages("cpp")
def test_cpp(page, tmp_path):
    """A listing with main() is a file of examples/, which is compiled and run. Others compile as parts of one."""
    parts = [item for item in listings(page) if item.kind == "cpp" and item.text not in EXAMPLES]
    includes, body = "", ""
    for part in parts:
        assert "int main()" not in part.text, f"line {part.line}: no file of examples/"
        includes += "".join(re.findall(r"^#include .*\n", part.text, re.MULTILINE))
        body += f'{{\n#line {part.line} "{page.name}"\n{re.sub("(?m)^#include .*", "", part.text)}}}\n'
    compiler = shutil.which("mpicxx" if "monge/mpi.hpp" in includes else os.environ.get("CXX", "c++"))
    if not parts or compiler is None:
        return
    source = tmp_path / "listings.cpp"
    source.write_text(includes + SURROUNDINGS + body + "}\n")
    flags = ["-std=c++20", "-fsyntax-only", f"-I{ROOT / 'include'}"]
    run = subprocess.run([compiler, *flags, str(source)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
