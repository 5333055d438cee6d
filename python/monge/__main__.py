"""`python -m monge`: versions and devices as `monge info` prints them, and those of Python, for reports of faults."""

import platform
import signal
import sys

import numpy as np

from . import component_versions, cuda_unavailable_reason, devices


def main(arguments: list[str]) -> None:
    if arguments not in ([], ["info"]):
        sys.exit(f"python -m monge: {arguments[0]}: is no command; takes info alone. The program monge solves problems")
    (_, version), *others = component_versions()
    others += [("python", platform.python_version()), ("numpy", np.__version__), ("system", platform.platform())]
    print(f"monge {version} ({', '.join(f'{name} {number}' for name, number in others)})")
    for device in devices():
        unit = "threads" if device.device == "cpu" else "multiprocessors"
        print(f"{device.device:<8} {device.name}")
        print(f"{'':<8} {device.instruction_set}, {device.units} {unit}, {device.memory_bytes / 2**30:.1f} GiB")
    if reason := cuda_unavailable_reason():
        print(f"{'cuda':<8} not usable: {reason}")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `python -m monge | head -1` ends without a traceback.
    main(sys.argv[1:])
