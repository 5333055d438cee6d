"""What a result file of a Python program says about the run that made it."""

import datetime
import importlib.metadata
import os
import platform
import subprocess


def provenance(*packages):
    """To be called before the run: its own work counts in the load, the mean number of busy processes in a minute."""
    commit = os.environ.get("MONGE_COMMIT")
    if not commit:
        describe = ["git", "describe", "--always", "--dirty"]
        commit = subprocess.run(describe, capture_output=True, text=True).stdout.strip() or "unknown"
    with open("/proc/cpuinfo") as file:
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return {
        "device": names[0] if names else platform.machine(),
        "cores": os.cpu_count(),
        "date": datetime.date.today().isoformat(),
        "commit": commit,
        "load": round(os.getloadavg()[0], 1),
        "versions": {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in packages},
    }
