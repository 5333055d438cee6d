#!/usr/bin/env python3
"""check_site.py FOLDER: fails where a page of a built site shows or links to a file that the site has not."""

import re
import sys
from pathlib import Path
from urllib.parse import unquote

LINK = re.compile(r"<[^>]*?\s(?:href|src)=\"(?![a-z]+:|//)([^\"#?]+)")


def faults(folder):
    for page in sorted(folder.rglob("*.html")):
        if page.relative_to(folder).parts[0] != "_static":
            for link in sorted(set(LINK.findall(page.read_text()))):
                if not (page.parent / unquote(link)).exists():
                    yield f"{page.relative_to(folder)}: {link}: no such file"


sys.exit("\n".join(faults(Path(sys.argv[1]))) or None)
