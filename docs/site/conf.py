# The site: docs/*.md, the reference of both languages and the gallery. `./dev docs` copies this folder and what its
# pages show to build/docs/tree, since Sphinx writes pages among those that it reads.
import re
import sys
from pathlib import Path
from unittest import mock

from sphinx.ext.napoleon import Config, GoogleDocstring

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

project = "Monge"
version = release = monge.__version__
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
    ("py:class", r".*numpy\.ndarray\[dtype=.*"),  # The types of arrays in signatures by nanobind are no names.
]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"  # Docstrings have shapes and units.
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 100

breathe_projects = {"monge": "../xml"}
breathe_default_project = "monge"
breathe_show_include = False

# In the order of the table.
programs = re.findall(r"^\| (\w+\.py) \|", Path("docs/python.md").read_text(), re.MULTILINE)
# The pictures of programs that need PyTorch are in docs/images.
with_torch = [p.stem for p in Path("examples/python").glob("*.py") if "\nimport torch\n" in p.read_text()]
sphinx_gallery_conf = {
    "examples_dirs": "examples/python",
    "gallery_dirs": "gallery",
    "filename_pattern": rf"/(?!{'|'.join(with_torch)})\w+\.py$",
    "ignore_pattern": "quickstart|tutorial",  # The README and docs/tutorial.md show them.
    "within_subsection_order": programs.index,
    "backreferences_dir": "gallery/uses",
    "doc_module": ("monge",),
    "abort_on_example_error": True,
    "show_memory": False,
    "download_all_examples": False,
    "show_signature": False,
    "remove_config_comments": True,
}

html_theme = "pydata_sphinx_theme"
html_title = "Monge"
html_static_path = ["static"]
html_css_files = ["wide.css"]
html_sidebars = {"docs/tutorial": [], "command_line": [], "CHANGELOG": []}
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "header_links_before_dropdown": 9,
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


def setup(app):
    app.connect("autodoc-process-docstring", read_docstring)
