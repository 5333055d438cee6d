"""Exact transport of large clouds by solve_exact_sample, as JSON: `python bench/exact_clouds.py [cuda] [SHAPE...]`.

x normal, y normal times 0.8 plus 0.5; squared distances. "cuda": points in the memory of a GPU. SHAPE: n,m,d,uniform
or n,m,d,random (weights). Each shape has a process of its own, so that the growth of its peak memory is that of the
solve; one call each, on a GPU after one of 100 points.
"""

import json
import resource
import subprocess
import sys
import time

import numpy as np
from provenance import provenance

import monge

SHAPES = ["20000,20000,16,uniform", "20000,20000,64,random", "20000,20000,3,uniform", "20000,20000,3,random"]
SHAPES += ["50000,50000,3,uniform", "100000,20,3,random", "20,100000,3,random", "20000,100,3,random"]
SHAPES += ["100000,100000,16,uniform"]


def measure(shape, cuda):
    *sizes, d, kind = shape.split(",")
    random = np.random.default_rng(0)
    n, m, d = map(int, (*sizes, d))
    x, y = random.normal(size=(n, d)), random.normal(size=(m, d)) * 0.8 + 0.5
    a, b = (np.ones(k) if kind == "uniform" else random.random(k) + 0.1 for k in (n, m))
    a, b = a / a.sum(), b / b.sum()
    if cuda:
        import torch

        x, y, a, b = (torch.from_numpy(values).cuda() for values in (x, y, a, b))
        monge.solve_exact_sample(x[:100], y[:100])  # The first call on a device loads its kernels.
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    report = monge.solve_exact_sample(x, y, a, b).report
    row = {"n": n, "m": m, "d": d, "weights": kind, "seconds": round(time.perf_counter() - begin, 4)}
    row["megabytes"] = round((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, 1)
    names = ("status", "rounds", "pivots", "gap", "value", "seconds_start", "seconds_search", "seconds_pricing")
    return row | {name: getattr(report, name) for name in names}


cuda = "cuda" in sys.argv
shapes = [argument for argument in sys.argv[1:] if argument not in ("one", "cuda")]
if "one" in sys.argv:
    print(json.dumps(measure(shapes[0], cuda)))
else:
    about = provenance("torch" if cuda else "numpy")
    if cuda:
        import torch

        about["device"] = f"{torch.cuda.get_device_name()}, {about['device']}"
    about["versions"]["monge"] = monge.__version__
    rows = []
    for shape in shapes or SHAPES:
        command = [sys.executable, __file__, "one", *["cuda"] * cuda, shape]
        output = subprocess.run(command, check=True, capture_output=True, text=True)
        rows.append(json.loads(output.stdout))
        print(output.stdout, end="", file=sys.stderr, flush=True)
    print(json.dumps({"program": "bench/exact_clouds.py", **about, "rows": rows}, indent=1))
