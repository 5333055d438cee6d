#!/usr/bin/env python3
"""check.py FOLDER: fails where a relative link of a Markdown file leads to no file or to no heading, where a table has
no rows or a row of another width, and where a section is empty."""

import re
import subprocess
import sys
from pathlib import Path

BLOCK = re.compile(r"^([`:]{3,}).*?^\1$", re.MULTILINE | re.DOTALL)
SECTION = re.compile(r"^(#+) (.*)\n\s*(?=(#+) |\Z)", re.MULTILINE)  # Nothing lies between its heading and the next one.
TABLE = re.compile(r"(?:^#.*|-->|\n)\n((?:\|.*(?:\n|\Z))+)", re.MULTILINE)
LINK = re.compile(r"(?<!`)\]\(([^()\s]+)\)|(?:href|src)=\"([^\"]+)\"")


def anchors(text):
    """The names that a site and GitHub give to headings: lower case, hyphens for blanks, no other marks."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def half_made(text):
    for level, heading, next_level in SECTION.findall(text):
        if len(next_level) <= len(level):
            yield f"{heading}: a section without a text"
    for table in TABLE.findall(text):
        head, *rows = table.splitlines()
        widths = {len(re.findall(r"(?<!\\)\|", row)) for row in (head, *rows)}
        if len(rows) < 2 or not re.fullmatch(r"\|[-:| ]+", rows[0]) or len(widths) > 1:
            yield f"{head}: a table without a row, or with rows of several widths"


def faults(folder):
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=folder, capture_output=True, text=True, check=True).stdout
    for name in listed.split():
        text = BLOCK.sub("block", (folder / name).read_text())
        yield from (f"{name}: {fault}" for fault in half_made(text))
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
