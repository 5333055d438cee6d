#!/usr/bin/env python3
"""check.py FOLDER: fails where a relative link of a Markdown file leads to no file or to no heading."""

import re
import subprocess
import sys
from pathlib import Path

LINK = re.compile(r"(?<!`)\]\(([^()\s]+)\)|(?:href|src)=\"([^\"]+)\"")


def anchors(text):
    """The names that a site and GitHub give to headings: lower case, hyphens for blanks, no other marks."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def faults(folder):
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=folder, capture_output=True, text=True, check=True).stdout
    for name in listed.split():
        text = re.sub(r"^```.*?^```", "", (folder / name).read_text(), flags=re.MULTILINE | re.DOTALL)
        for link in (first or second for first, second in LINK.findall(text)):
            if re.match(r"[a-z]+:", link) or "/site/" in name:  # Pages of the site link to what Sphinx makes.
                continue
            path, _, anchor = link.partition("#")
            target = (folder / name).parent / path if path else folder / name
            if not target.exists():
                yield f"{name}: {link}: no such file"
            elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text()):
                yield f"{name}: {link}: no such heading"


sys.exit("\n".join(faults(Path(sys.argv[1]))) or None)
