"""Fails where a folder of src includes one above it, folders include each other in a circle of any length, or one has
more files than a reader takes in at once."""
import pathlib
import re
import sys
from graphlib import CycleError, TopologicalSorter

# From below; folders that are not named are solvers. Files of src itself, the registry, lie above all.
LEVELS = {"core": 0, "ranks": 1, "geometry": 1, "seam": 2, "cpu": 4, "cuda": 4, ".": 5}
SOLVERS = 3
MOST_FILES = 20

root = pathlib.Path(sys.argv[1])
for folder in [root, *(path for path in root.rglob("*") if path.is_dir())]:
    files = sum(path.is_file() for path in folder.iterdir())
    if files > MOST_FILES:
        sys.exit(f"{folder} has {files} files; at most {MOST_FILES} fit, so a part of them needs a folder")
folders: dict[str, set[str]] = {}
for file in root.rglob("*.*"):
    if file.suffix in {".hpp", ".cpp", ".cuh", ".cu"}:
        folder = file.parent.relative_to(root).as_posix()
        included = re.findall(r'^#include "(?:(.+)/)?[^/"]+"', file.read_text(), re.MULTILINE)
        folders.setdefault(folder, set()).update(path for path in (path or "." for path in included) if path != folder)


for folder, included in sorted(folders.items()):
    for other in sorted(included):
        tops = [path.partition("/")[0] for path in (folder, other)]
        level, level_of_other = (LEVELS.get(top, SOLVERS) for top in tops)
        if level_of_other > level or set(tops) == {"cpu", "cuda"}:
            sys.exit(f"{folder} includes {other}, which lies above it or beside it")
try:
    print(f"{len(list(TopologicalSorter(folders).static_order()))} folders, one way down")
except CycleError as error:
    sys.exit("folders include each other: " + " -> ".join(error.args[1]))
