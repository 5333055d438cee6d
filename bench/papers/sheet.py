"""Where experiments write their tables and pictures, and how they measure time."""

import json
import platform
import time
from importlib import metadata

import matplotlib

matplotlib.use("Agg")  # needs no display
import matplotlib.pyplot as plt
import numpy as np
import torch

import monge

PACKAGES = ("numpy", "torch", "POT", "ott-jax", "jax", "geomloss", "pykeops", "flash-sinkhorn", "regot")


def installed(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


class Sheet:
    """The tables of one paper."""

    def __init__(self, paper, device, size, data, out):
        self.paper, self.device, self.small, self.data, self.out = paper, device, size == "small", data, out
        self.tables = []
        out.mkdir(parents=True, exist_ok=True)
        self.machine = (
            torch.cuda.get_device_name()
            if device == "cuda"
            else f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"
        )
        print(f"\n# {paper} on {self.machine}\n")

    def tensor(self, array, dtype=torch.float32):
        return torch.as_tensor(np.ascontiguousarray(array), dtype=dtype, device=self.device)

    def read(self, *names):
        """The arrays of these names in --data, or None where one is missing."""
        if self.data is None or not all((self.data / f"{name}.npy").exists() for name in names):
            return None
        return [np.load(self.data / f"{name}.npy", allow_pickle=False) for name in names]

    def times(self, call, seconds=1.0, least=3):
        """Milliseconds of calls that end with the device idle, after one that is not counted."""

        def once():
            begin = time.perf_counter()
            call()
            if self.device == "cuda":
                torch.cuda.synchronize()
            return 1e3 * (time.perf_counter() - begin)

        first, found = once(), []
        if first > 1e3 * 20 * seconds:  # One call of this length says enough.
            return [first]
        begin = time.perf_counter()
        while len(found) < least or (len(found) < 50 and time.perf_counter() - begin < seconds):
            found.append(once())
        return found

    def milliseconds(self, call, **limits):
        return float(np.median(self.times(call, **limits)))

    def peer(self, call, **limits):
        """Milliseconds of a peer's call, or None where it is not installed, does not fit the memory or fails."""
        try:
            return self.milliseconds(call, **limits)
        except Exception as error:
            print(f"  (a peer left out: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''})")
            return None

    def peak_bytes(self, call):
        """Bytes of the device that a call takes beyond its inputs; None on a CPU, where no allocator counts them."""
        if self.device == "cpu":
            return None
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - held

    def table(self, name, title, columns, rows, published=""):
        print(f"## {title}\n")
        print("| " + " | ".join(columns) + " |")
        print("|" + "---|" * len(columns))
        for row in rows:
            print("| " + " | ".join(shown(cell) for cell in row) + " |")
        print(f"\n{published}\n" if published else "", flush=True)
        self.tables.append({"name": name, "title": title, "columns": columns, "rows": rows, "published": published})

    def picture(self, name, title, draw, panels=1):
        """`draw` takes a list of axes."""
        figure, axes = plt.subplots(1, panels, figsize=(4.6 * panels, 3.6), layout="constrained", squeeze=False)
        draw(list(axes[0]))
        figure.suptitle(f"{title} ({self.machine})", fontsize=10)
        path = self.out / f"{self.paper}_{name}.png"
        figure.savefig(path, dpi=110)
        plt.close(figure)
        print(f"picture: {path}\n")

    def close(self):
        versions = {name: version for name in PACKAGES if (version := installed(name))}
        path = self.out / f"{self.paper}_{self.device}.json"
        held = {
            "paper": self.paper,
            "machine": self.machine,
            "date": time.strftime("%Y-%m-%d"),
            "monge": monge.__version__,
            "packages": versions,
            "tables": self.tables,
        }
        path.write_text(json.dumps(held, indent=1, default=float) + "\n")
        print(f"numbers: {path}")


def shown(cell):
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.3g}" if abs(cell) < 1000 else f"{cell:.0f}"
    return str(cell)


def ratio(a, b):
    return None if a is None or b is None else a / b


def curve(axes, x, y, label, **style):
    """A line in logarithmic axes through the points that were measured."""
    pairs = [(i, j) for i, j in zip(x, y) if j is not None]
    if pairs:
        axes.loglog(*zip(*pairs), marker=".", label=label, **style)


def finish(axes, x, y):
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=7)
