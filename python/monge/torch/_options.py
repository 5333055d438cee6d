"""Options as text, since operators of PyTorch take no dictionaries."""

import json
from typing import Any

import torch

from .._names import shown


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def to_text(options: dict[str, Any]) -> str:
    """The options in JSON, which torch.compile takes for a constant of the graph."""
    return "{}" if not options else json.dumps({name: _plain(name, value) for name, value in options.items()})


def _plain(name: str, value: Any) -> Any:
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{name}: is {shown(value)}; must be a number, a name or a truth value")


def from_text(text: str) -> dict[str, Any]:
    return json.loads(text)  # type: ignore[no-any-return]
