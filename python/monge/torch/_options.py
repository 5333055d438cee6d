"""Options as text, since operators of PyTorch take no dictionaries."""

import json
from typing import Any

import torch


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def to_text(options: dict[str, Any]) -> str:
    """As JSON; torch.compile takes it for a constant of the graph, as the options are."""
    return json.dumps(options)


def from_text(text: str) -> dict[str, Any]:
    return json.loads(text)  # type: ignore[no-any-return]
