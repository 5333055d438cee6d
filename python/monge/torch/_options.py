"""Options as text, since operators of PyTorch take no dictionaries."""

import json
from typing import Any

import torch

from .._names import shown


def to_text(options: dict[str, Any]) -> str:
    """The options in JSON, which torch.compile takes for a constant of the graph."""
    return _json({name: _constant(value) for name, value in options.items()}) if options else "{}"


def _constant(value: Any) -> Any:
    """Numbers as text: torch.compile takes a number that changes from call to call for a variable, text for a constant."""
    if isinstance(value, bool):
        return value
    if isinstance(value, float):
        return ("float", value.hex())
    if isinstance(value, int):
        return ("int", f"{value}")
    return value


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _json(options: dict[str, Any]) -> str:
    return json.dumps({name: _plain(name, value) for name, value in options.items()})


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, tuple) and value[0] in ("float", "int"):
        return float.fromhex(value[1]) if value[0] == "float" else int(value[1])
    if value is None or isinstance(value, (str, bool)):
        return value
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{name}: is {shown(value)}; must be a number, a name or a truth value")


def from_text(text: str) -> dict[str, Any]:
    return json.loads(text)  # type: ignore[no-any-return]
