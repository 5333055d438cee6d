"""README.md as the page of PyPI, where a link to a file of the repository leads nowhere.

If [project.urls] of pyproject.toml has `Repository`, an address on GitHub, links lead to files of the released version.
Otherwise their texts stay, without a link.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PICTURE = re.compile(r'<a href="[^":]+"><img src="([^":]+)"[^>]*?alt="([^"]*)"></a>')
LINK = re.compile(r"\[([^\]]+)\]\((?![a-z]+:)([^()\s]+)\)")


def dynamic_metadata(settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, Any]:
    """scikit-build-core calls this for the field `readme`."""
    repository = project.get("urls", {}).get("Repository")
    files = f"{repository}/blob/v{project['version']}"
    text = (Path(__file__).parents[1] / "README.md").read_text()
    text = LINK.sub(rf"[\1]({files}/\2)" if repository else r"\1", text)
    text = PICTURE.sub(rf"![\2]({files}/\1?raw=true)" if repository else r"*\2*", text)
    return {"readme": {"content-type": "text/markdown", "text": text}}
