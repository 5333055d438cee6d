#!/usr/bin/env python3
"""Compares the local memory of every kernel, register spills among it, with a committed baseline.

check.py --nvcc VERSION [--update] BASELINE OBJECT...

Each OBJECT that ends in .cu.o has an OBJECT.ptxas beside it (with_ptxas_log). Exit codes: 0 nothing grew, 1 a kernel has
more than the baseline says, 77 the baseline is of another compiler.
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path

HEAD = "# Bytes of local memory a thread, where a kernel has any. `./dev spills --update` writes this file. nvcc "
ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
USED = re.compile(r"Used \d+ registers(?:.*?(\d+) bytes cumulative stack size)?")


def demangled(names):
    """As average_kernel<double, false>: without result, namespace and arguments."""
    text = subprocess.run(["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return text.replace("monge::cuda::", "").splitlines()


def built(objects):
    """(kernel, architecture) to bytes, as ptxas told when it compiled the objects."""
    found, kernel = {}, None
    for path in objects:
        if not path.endswith(".cu.o"):
            continue
        log = Path(path + ".ptxas")
        if not log.exists():
            sys.exit(f"spills: {log} is missing; build the library again")
        for line in log.read_text().splitlines():
            if entry := ENTRY.search(line):
                kernel = entry.groups()
            elif (used := USED.search(line)) and kernel:
                found[kernel] = int(used[1] or 0)
    names = demangled([name for name, _ in found])
    return {(name, architecture): size for name, ((_, architecture), size) in zip(names, found.items())}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("baseline", type=Path)
    parser.add_argument("objects", nargs="+")
    arguments = parser.parse_args()
    found = built(arguments.objects)
    if not found:
        sys.exit("spills: no kernel was found; build the library again")

    if arguments.update:
        lines = [f"{size} {architecture} {name}\n" for (name, architecture), size in sorted(found.items()) if size]
        arguments.baseline.write_text(f"{HEAD}{arguments.nvcc}\n" + "".join(lines))
        print(f"spills: {len(lines)} of {len(found)} kernels have local memory; written to {arguments.baseline}")
        return 0

    head, *lines = arguments.baseline.read_text().splitlines()
    if head != HEAD + arguments.nvcc:
        print(f"spills: not compared: the baseline is of nvcc {head.removeprefix(HEAD)}, this is {arguments.nvcc}")
        return 77
    allowed = {(name, architecture): int(size) for size, architecture, name in (line.split(" ", 2) for line in lines)}
    grown = {kernel: size for kernel, size in found.items() if size > allowed.get(kernel, 0)}
    shrunk = [kernel for kernel, size in allowed.items() if kernel in found and found[kernel] < size]
    for (name, architecture), size in sorted(grown.items()):
        before = allowed.get((name, architecture), 0)
        print(f"spills: {name} for {architecture} has {size} bytes of local memory; must have at most {before}")
    print(f"spills: {len(grown)} of {len(found)} kernels have more local memory than the baseline, {len(shrunk)} less")
    return 1 if grown else 0


sys.exit(main())
