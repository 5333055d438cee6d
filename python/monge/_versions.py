"""Packages that parts of monge need, and their oldest versions. pyproject.toml has the same numbers and extras."""

from __future__ import annotations

import contextlib
import importlib
import re
from typing import Any

OLDEST = {"scikit-learn": "1.6", "torch": "2.6", "jax": "0.4.35", "cupy": "13.0"}
"""The oldest version of each package. CuPy's package is named after its CUDA, as cupy-cuda12x."""


EXTRAS = {
    "sklearn": ("scikit-learn", "sklearn"),
    "torch": ("torch", "torch"),
    "jax": ("jax", "jax"),
    "scipy": ("scipy", "sparse"),
    "matplotlib": ("matplotlib", "plot"),
}
"""The package of each module, and monge's extra that installs it."""


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.match(r"[\d.]*", version)[0].split(".") if number]  # type: ignore[index]


def imported(module: str, user: str) -> Any:
    """The module. ModuleNotFoundError names its package and the extra if the package is not installed."""
    root = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in (root, module):
            raise
        package, extra = EXTRAS[root]
        why = f"{user}: needs {package}, which is not installed: pip install 'monge[{extra}]'"
        raise ModuleNotFoundError(why, name=root) from None


def refuse_old(package: str, user: str, version: str) -> None:
    """ImportError if this version of the package that `user` needs is too old."""
    if _numbers(version) < _numbers(OLDEST[package]):
        raise ImportError(f"{user}: needs {package} {OLDEST[package]} or newer; {version} is installed")


def require(module: str, user: str) -> None:
    """ImportError if the package that `user` needs is missing or too old. An old one is not imported."""
    package = EXTRAS[module][0]
    metadata = importlib.import_module("importlib.metadata")  # Here, as its import takes half as long as the rest of Monge.
    with contextlib.suppress(metadata.PackageNotFoundError):
        refuse_old(package, user, metadata.version(package))
    imported(module, user)
