"""Where experiments write their tables and pictures, and how they measure time."""

import json
import math
import os
import platform
import signal
import sys
import time
import traceback
from contextlib import contextmanager
from importlib import metadata

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX would take most of the GPU's memory.

import matplotlib

matplotlib.use("Agg")  # needs no display
import matplotlib.pyplot as plt
import numpy as np
import torch

import monge

PACKAGES = ("numpy", "torch", "POT", "ott-jax", "jax", "geomloss", "pykeops", "flash-sinkhorn", "regot")
PEER_SHARE = 0.2  # of the seconds of a table, for each peer


def installed(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


class OutOfTime(BaseException):
    """The seconds of a table, or a peer's share of them, are over. No Exception, lest a library handles it."""


def ring(_, frame):
    """Ends what runs. An import goes on, because an exception while a C++ module starts can crash the interpreter."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return  # The alarm rings again.
        frame = frame.f_back
    raise OutOfTime


class Sheet:
    """The tables of one paper. Each ends after `seconds`, if these are given, with the rows that it has by then."""

    def __init__(self, paper, device, size, data, out, seconds=None):
        self.paper, self.device, self.small, self.data, self.out = paper, device, size == "small", data, out
        self.seconds, self.end = math.inf if seconds is None else seconds, math.inf
        self.tables, self.spent = [], {}
        out.mkdir(parents=True, exist_ok=True)
        self.machine = (
            torch.cuda.get_device_name()
            if device == "cuda"
            else f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"
        )
        signal.signal(signal.SIGALRM, ring)
        print(f"\n# {paper} on {self.machine}", flush=True)

    def run(self, experiment):
        """Whether an experiment came to its end or to that of its time; a failure is printed, and its rows stay."""
        self.spent = {}
        begun, done = len(self.tables), True
        try:
            try:
                with self.limit(self.seconds):
                    experiment(self)
            finally:
                self.finish_rows()
        except OutOfTime:
            print(f"(cut after {self.seconds:g} s: {experiment.__name__})", file=sys.stderr)
            for table in self.tables[begun:]:
                table.held["cut_after_seconds"] = self.seconds
        except Exception:
            traceback.print_exc()
            done = False
        self.save()
        return done

    def finish_rows(self):
        for table in self.tables:
            table.finish_row()

    @contextmanager
    def limit(self, seconds):
        """OutOfTime in what takes longer than this, or than a limit around it."""
        around, self.end = self.end, min(self.end, time.monotonic() + seconds)
        try:
            self.set_alarm()
            yield
        finally:
            self.end = around
            self.set_alarm()

    def set_alarm(self):
        left = max(self.end - time.monotonic(), 1e-6)
        # It rings again each second, because a library may lose the exception.
        signal.setitimer(signal.ITIMER_REAL, 0 if math.isinf(left) else left, 1)

    def tensor(self, array, dtype=torch.float32):
        return torch.as_tensor(np.ascontiguousarray(array), dtype=dtype, device=self.device)

    def read(self, *names):
        """The arrays of these names in --data, or None where one is missing."""
        if self.data is None or not all((self.data / f"{name}.npy").exists() for name in names):
            return None
        return [np.load(self.data / f"{name}.npy", allow_pickle=False) for name in names]

    def times(self, call, seconds=0.5, least=3):
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

    def peer(self, name, call):
        """What a peer's call returns; None where it fails or does not fit the memory.

        A peer that is not installed, or has used up its share of the time, is left out of the rest of the table.
        """
        begin, share, spent = time.monotonic(), PEER_SHARE * self.seconds, self.spent.get(name, 0)
        if spent >= share:
            return None
        try:
            with self.limit(share - spent):
                return call()
        except ImportError as error:
            reason, spent = str(error), math.inf
        except OutOfTime:
            if time.monotonic() >= self.end:
                raise
            reason, spent = f"its share of the time, {share:g} s, is over", math.inf
        except Exception as error:
            reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            if self.device == "cuda":
                torch.cuda.empty_cache()
        finally:
            self.spent[name] = spent + time.monotonic() - begin
        print(f"({name} left out: {reason})", file=sys.stderr)
        return None

    def jax(self):
        """JAX on the device of the sheet, with float64; ImportError where it is not there."""
        import jax

        jax.config.update("jax_enable_x64", True)
        platform = {"cpu": "cpu", "gpu": "cuda"}[jax.default_backend()]
        if platform != self.device:
            raise ImportError(f"JAX runs on {platform}, Monge on {self.device}")
        return jax

    def peer_milliseconds(self, name, call, **limits):
        return self.peer(name, lambda: self.milliseconds(call, **limits))

    def peak_mib(self, call):
        """MiB of the device that a call takes beyond its inputs; None on a CPU, where no allocator counts them."""
        if self.device == "cpu":
            return None
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - held) / 2**20

    def table(self, name, title, columns, published=""):
        self.tables.append(Table(self, name, title, columns, published))
        return self.tables[-1]

    def picture(self, name, title, draw, panels=1):
        """`draw` takes a list of axes. All rows of the tables are complete."""
        self.finish_rows()
        figure, axes = plt.subplots(1, panels, figsize=(4.6 * panels, 3.6), layout="constrained", squeeze=False)
        draw(list(axes[0]))
        figure.suptitle(f"{title} ({self.machine})", fontsize=10)
        path = self.out / f"{self.paper}_{name}.png"
        figure.savefig(path, dpi=110)
        plt.close(figure)
        print(f"picture: {path}", file=sys.stderr)

    def save(self):
        held = {
            "paper": self.paper,
            "machine": self.machine,
            "date": time.strftime("%Y-%m-%d"),
            "monge": monge.__version__,
            "packages": {name: version for name in PACKAGES if (version := installed(name))},
            "tables": [table.held for table in self.tables],
        }
        path = self.out / f"{self.paper}_{self.device}.json"
        part = path.with_suffix(".part")
        part.write_text(json.dumps(held, indent=1, default=float) + "\n")
        part.replace(path)  # A run that is killed leaves a whole file.


class Table:
    """A table that is printed and saved row by row. Cells that are missing at the end of a row are dashes."""

    def __init__(self, sheet, name, title, columns, published):
        self.sheet, self.rows, self.finished = sheet, [], 0
        self.held = {"name": name, "title": title, "columns": columns, "rows": self.rows, "published": published}
        print(f"\n## {title}\n" + (f"\n{published}\n" if published else ""))
        print("| " + " | ".join(columns) + " |")
        print("|" + "---|" * len(columns), flush=True)

    def row(self, *cells):
        """Begins a row; more cells may be appended until the next one begins."""
        self.finish_row()
        self.rows.append(list(cells))
        return self.rows[-1]

    def finish_row(self):
        if self.finished == len(self.rows):
            return
        row = self.rows[-1]
        row += [None] * (len(self.held["columns"]) - len(row))
        self.finished = len(self.rows)
        print("| " + " | ".join(shown(cell) for cell in row) + " |", flush=True)
        self.sheet.save()


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
