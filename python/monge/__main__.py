"""`python -m monge`: versions and devices as `monge info` prints them, and those of Python, for reports of faults."""

import platform

import numpy as np

from . import component_versions, cuda_unavailable_reason, devices

(_, version), *others = component_versions()
others += [("python", platform.python_version()), ("numpy", np.__version__), ("system", platform.platform())]
print(f"monge {version} ({', '.join(f'{name} {number}' for name, number in others)})")
for device in devices():
    print(f"{device.device:<8} {device.name}")
    print(f"{'':<8} {device.instruction_set}, {device.units} units, {device.memory_bytes / 2**30:.1f} GiB")
if reason := cuda_unavailable_reason():
    print(f"{'cuda':<8} not usable: {reason}")
