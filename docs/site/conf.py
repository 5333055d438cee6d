# The site: docs/*.md, the reference of both languages and the gallery. `./dev docs` copies this folder and what its
# pages show to build/docs/tree, since Sphinx writes pages among those that it reads.
import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.ext.napoleon import Config, GoogleDocstring
from sphinx.transforms import SphinxTransform
from sphinx.util.inspect import signature, stringify_signature

import monge

# The modules for PyTorch and JAX are imported without these, with stand-ins that are there no longer when the gallery
# runs.
stand_in = mock.MagicMock(Tensor=type("Tensor", (), {}))
stand_in.nn.Module = stand_in.autograd.Function = type("Module", (), {})
modules = ("torch", "torch.autograd", "torch._C", "torch._C._functorch", "jax", "jax.numpy")
with mock.patch.dict(sys.modules, dict.fromkeys(modules, stand_in)):
    import monge.jax
    import monge.torch

    imported = {name: module for name, module in sys.modules.items() if name.startswith("monge.")}
sys.modules.update(imported)

listed = set(re.findall(r"^   ([\w.]+)$", Path("python.rst").read_text(), re.MULTILINE))
public = {*monge.__all__, *(f"{name}.{item}" for name in ("torch", "jax") for item in getattr(monge, name).__all__)}
assert public <= listed, f"python.rst: has not {public - listed}"

# A page for each section, so that no list of the side bar has all names.
reference, *sections = re.split(r"\n(?=[^\n]+\n-+\n)", Path("python.rst").read_text())
pages = {f"python_{number}": section for number, section in enumerate(sections)}
for page, section in pages.items():
    Path(f"{page}.rst").write_text(section.replace("-\n\n", "-\n\n.. currentmodule:: monge\n\n", 1))
Path("python.rst").write_text("\n   ".join([f"{reference}\n.. toctree::\n   :maxdepth: 2\n", *pages]) + "\n")

project = "Monge"
version = release = monge.__version__
assert version in {entry["version"] for entry in json.loads(Path("versions.json").read_text())}, "not in versions.json"
copyright = "the authors of Monge, Apache-2.0"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "breathe",
]
exclude_patterns = ["README.md", "examples", "docs/site"]
templates_path = ["templates"]
highlight_language = "none"  # Of blocks that name no language: formulas.
nitpicky = True
suppress_warnings = ["duplicate_declaration.cpp"]  # Each header opens the namespace.
nitpick_ignore_regex = [
    ("cpp:.*", ".*"),
    ("py:.*", r"monge\._core\..*"),
    ("py:class", r"monge\._.*"),
    ("py:class", r"(?!monge\.).*"),  # Types in signatures, of which no other site is asked.
]

myst_enable_extensions = ["colon_fence", "dollarmath", "html_image"]
myst_heading_anchors = 3

autosummary_generate = [f"{page}.rst" for page in pages]
autodoc_typehints = "none"  # Those of functions are shown by show_signature().
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 100

breathe_projects = {"monge": "../xml"}
breathe_default_project = "monge"
breathe_show_include = False

# The sections of docs/examples.md are folders of the gallery. The pictures of programs that need PyTorch or JAX are in
# docs/images.
examples = Path("examples/python")
with_frameworks = [p.stem for p in examples.glob("*.py") if re.search(r"^import (torch|jax)$", p.read_text(), re.M)]
(examples / "README.rst").write_text("Gallery\n=======\n\nShort programs with their pictures.\n")
sections, programs = [], []
for section in Path("docs/examples.md").read_text().split("\n## ")[1:]:
    title = section.partition("\n")[0]
    folder = examples / re.sub(r"\W+", "_", title.lower())
    folder.mkdir(exist_ok=True)
    (folder / "README.rst").write_text(f"{title}\n{'-' * len(title)}\n")
    sections.append(str(folder))
    for name in re.findall(r"^\| (\w+\.py) \|", section, re.MULTILINE):
        (examples / name).rename(folder / name)
        programs.append(name)
sphinx_gallery_conf = {
    "examples_dirs": str(examples),
    "gallery_dirs": "gallery",
    "filename_pattern": rf"/(?!{'|'.join(with_frameworks)})\w+\.py$",
    "ignore_pattern": "quickstart|tutorial",  # The README and docs/tutorial.md show them.
    "subsection_order": sections,
    "within_subsection_order": programs.index,
    "backreferences_dir": "gallery/uses",
    "doc_module": ("monge",),
    "abort_on_example_error": True,
    "show_memory": False,
    "download_all_examples": False,
    "show_signature": False,
    "remove_config_comments": True,
}

html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_title = "Monge"
html_static_path = ["static"]
html_css_files = ["wide.css"]
html_sidebars = {"install": [], "docs/tutorial": [], "CHANGELOG": []}
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "header_links_before_dropdown": 9,
    "navbar_end": ["version-switcher", "theme-switcher"],
    # A version lies in a folder of its own beside this file.
    "switcher": {"json_url": "../versions.json", "version_match": version},
    "check_switcher": False,
    "navbar_align": "left",
    "show_toc_level": 2,
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}


def read_docstring(app, what, name, obj, options, lines):
    """Google's sections, of which properties have none; a bar is an absolute value. Reports are described in C++."""
    if what == "property":
        lines[:] = [re.sub(r"^\(self\) -> (.*)", rf"\1: :cpp:any:`{name.replace('.', '::')}`", line) for line in lines]
    lines[:] = [line if "``" in line else line.replace("|", r"\|") for line in lines]
    if what in ("class", "exception", "function", "method"):
        style = Config(napoleon_use_ivar=True, napoleon_use_param=False, napoleon_use_rtype=False)
        lines[:] = GoogleDocstring(lines, style, app, what, name, obj, options).lines()


def show_signature(app, what, name, obj, options, shown, returned):
    """Types of the arguments; without `self`, arguments of POT that take their default alone, and types of any kind."""
    if what == "class" and re.search("Result|LazyPlan|Gradients", name):
        return "", None  # Calls of the library make these.
    if what not in ("function", "method", "class"):
        return None
    try:
        found = signature(obj, bound_method=what == "method")
    except (TypeError, ValueError):
        return None
    dead = {*monge._problem._OF_POT, "lazy", "batch_size"} - {"c"} if inspect.isfunction(obj) else ()
    arguments = [
        p.replace(annotation=p.empty) if p.annotation in (Any, "Any") else p
        for p in found.parameters.values()
        if p.name not in dead
    ]
    made = found.replace(parameters=arguments, return_annotation=found.empty)
    return stringify_signature(made, unqualified_typehints=True), returned


def write_math(display):
    """Formulas as MathML, which browsers draw without a script."""

    tag = "div" if display == "block" else "span"

    def write(translator, node):
        formula = convert(node.astext(), display=display)
        translator.body.append(f'<{tag} class="math {display}">{formula}</{tag}>')
        raise nodes.SkipNode

    return write, None


class RaiseIndices(SphinxTransform):
    """Indices and powers of formulas in sentences: x_i, P_ij, |x|^2, P^T. Code is left alone."""

    default_priority = 900
    formula = re.compile(
        r"(?<=\b[A-Za-z])(['+*]?)_([a-z]{1,2}|\d)(?![\w_])|\^(-?\w+)(?![\w_])|(?<=\bsum)()_([a-z]{1,2})\b"
    )

    def apply(self):
        if not self.env.docname.startswith("docs/"):
            return
        for text in list(self.document.findall(nodes.Text)):
            literal = (
                nodes.literal,
                nodes.literal_block,
                nodes.math,
                nodes.math_block,
                nodes.raw,
                nodes.title,
                nodes.image,
            )
            if any(isinstance(node, literal) for node in ancestors(text)) or not self.formula.search(text):
                continue
            parts, end = [], 0
            for match in self.formula.finditer(text):
                parts.append(nodes.Text(text[end : match.start()] + (match[1] or "")))
                below = match[2] or match[5]
                parts.append(nodes.subscript("", below) if below else nodes.superscript("", match[3]))
                end = match.end()
            text.parent.replace(text, [*parts, nodes.Text(text[end:])])


def ancestors(node):
    while node.parent is not None:
        node = node.parent
        yield node


def forget_modules_without_source(app):
    """The index of the sources would link to a page of each, monge._core for one, which viewcode does not write."""
    modules = app.env._viewcode_modules
    app.env._viewcode_modules = {name: entry for name, entry in modules.items() if entry}
    return []


def setup(app):
    app.add_transform(RaiseIndices)
    app.add_html_math_renderer("mathml", write_math("inline"), write_math("block"))
    app.connect("autodoc-process-signature", show_signature)
    app.connect("autodoc-process-docstring", read_docstring)
    app.connect("html-collect-pages", forget_modules_without_source, priority=400)  # Before viewcode's own function.
