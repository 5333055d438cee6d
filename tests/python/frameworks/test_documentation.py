"""Docstrings of the modules for PyTorch and JAX, the examples in them, and their types."""

import doctest
import importlib
import pkgutil

import pytest
from test_package import folder, test_types  # noqa: F401  Here it sees the types of the frameworks, too.

import monge
from conftest import undocumented, unexplained, unlisted

MODULES = [
    name
    for _, name, _ in pkgutil.walk_packages(monge.__path__, "monge.")
    if name.startswith(("monge.torch", "monge.jax"))
]


@pytest.mark.parametrize("name", ["monge.torch", "monge.jax"])
def test_everything_public_is_documented(name):
    assert list(undocumented(importlib.import_module(name))) == []
    assert unlisted(importlib.import_module(name)) == []
    assert list(unexplained(importlib.import_module(name))) == []


def test_imports_of_a_module_are_no_part_of_it():
    assert [name for name in dir(monge.jax) if not name.startswith("__")] == monge.jax.__all__
    assert [name for name in dir(monge.torch) if not name.startswith("_")] == monge.torch.__all__
    assert "importlib" not in dir(monge)


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def test_there_are_examples():
    tests = [test for name in MODULES for test in doctest.DocTestFinder().find(importlib.import_module(name))]
    assert sum(len(test.examples) for test in tests) > 5
