"""Fails where folders of src include each other, in a circle of any length: layers go one way down."""
import pathlib
import re
import sys
from graphlib import CycleError, TopologicalSorter

root = pathlib.Path(sys.argv[1])
folders: dict[str, set[str]] = {}
for file in root.rglob("*.*"):
    if file.suffix in {".hpp", ".cpp", ".cuh", ".cu"}:
        folder = file.parent.relative_to(root).as_posix()
        included = re.findall(r'^#include "(.+)/[^/]+"', file.read_text(), re.MULTILINE)
        folders.setdefault(folder, set()).update(path for path in included if path != folder)
try:
    print(f"{len(list(TopologicalSorter(folders).static_order()))} folders, one way down")
except CycleError as error:
    sys.exit("folders include each other: " + " -> ".join(error.args[1]))
