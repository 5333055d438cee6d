"""Puts the extension module of the package monge-cuda, where that is installed, in the place of monge's own."""

import importlib.machinery
import importlib.util
import sys

from ._options import VERSION

_package = importlib.util.find_spec("monge_cuda")
if _package is not None:
    _folders = [f"{folder}/monge" for folder in _package.submodule_search_locations or ()]
    _spec = importlib.machinery.PathFinder.find_spec("monge._core", _folders)
    if _spec is None or _spec.loader is None:
        raise ImportError(f"monge-cuda: has no extension module in {_folders}")
    _module = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(_module)
    if _module.version() != VERSION:
        raise ImportError(
            f"monge-cuda: is {_module.version()}; must be {VERSION} as monge is: pip install -U 'monge[cuda]'"
        )
    sys.modules["monge._core"] = vars(sys.modules["monge"])["_core"] = _module
