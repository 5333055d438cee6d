"""The oldest versions of other packages that monge works with. pyproject.toml has the same numbers."""

from __future__ import annotations

import re
from importlib import metadata

OLDEST = {"scikit-learn": "1.6", "torch": "2.6", "jax": "0.4.35", "cupy": "13.0"}
"""The oldest version of each package. CuPy's package is named after its CUDA, as cupy-cuda12x."""


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.match(r"[\d.]*", version)[0].split(".") if number]  # type: ignore[index]


def require(package: str, user: str, version: str | None = None) -> None:
    """ImportError if the package that `user` needs is too old. If the package is missing, the import that follows says
    so."""
    try:
        found = metadata.version(package) if version is None else version
    except metadata.PackageNotFoundError:
        return
    if _numbers(found) < _numbers(OLDEST[package]):
        raise ImportError(f"{user}: needs {package} {OLDEST[package]} or newer; {found} is installed")
