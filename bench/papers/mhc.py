"""Fused & Furious: Sinkhorn Triton Kernels (2026): batches of 4 x 4 matrices projected onto the Birkhoff polytope.

The published numbers are of an RTX 4000 Ada, whose memory has 360 GB/s.
"""

import numpy as np
import torch
from sheet import curve, finish

import monge.torch

N = 4
EPSILON = 1e-10


def eager(logits, iterations):
    """The blog's baseline on tensors."""
    matrix = logits.exp()
    transposed = matrix.transpose(-1, -2)
    v = torch.ones(*logits.shape[:-1], 1, device=logits.device)
    for _ in range(iterations):
        u = 1 / (matrix @ v + EPSILON)
        v = 1 / (transposed @ u + EPSILON)
    return u * matrix * v.transpose(-1, -2)


def triton(logits, iterations):
    from sinkhorn_triton import sinkhorn_A_in_registers_block_packing as kernel

    return kernel(logits, n_iter=iterations)


def ours(logits, iterations):
    return monge.torch.project(logits, preset="blog", iterations=iterations)


def quantiles(times):
    return [float(np.quantile(times, q)) for q in (0.01, 0.5, 0.99)] if times else [None] * 3


def batches(sheet):
    """Figures 7 to 10: time, bandwidth and rate of arithmetic by batch, for 1, 5 and 20 iterations."""
    sizes = [1, 64, 4096] if sheet.small else [4**k for k in range(13)]
    counts = (1, 5, 20)
    compiled = torch.inference_mode()(torch.compile(eager, dynamic=True))
    methods = {"Monge": ours, "eager": eager, "compiled": compiled, "Triton": triton}
    if sheet.small:
        del methods["compiled"]  # Its first call takes a minute.
    rows = []
    for iterations in counts:
        for size in sizes:
            logits = sheet.tensor(np.random.default_rng(0).normal(size=(size, N, N)))
            found = {}
            for name, method in methods.items():
                try:
                    found[name] = quantiles(sheet.times(lambda: method(logits, iterations), seconds=0.2))
                except Exception as error:
                    found[name] = quantiles(None)
                    if size == sizes[0]:
                        print(
                            f"  (left out: {name}: {type(error).__name__}: "
                            f"{str(error).splitlines()[0] if str(error) else ''})"
                        )
            low, median, high = found["Monge"]
            traffic, work = 8 * size * N * N, size * (4 * N * N + 2 * N) * iterations
            row = [size, iterations, 1e3 * low, 1e3 * median, 1e3 * high, traffic / median / 1e6, work / median / 1e9]
            for name in methods:
                if name != "Monge":
                    row += [
                        1e3 * found[name][1] if found[name][1] else None,
                        found[name][1] / median if found[name][1] else None,
                    ]
            rows.append(row)
    columns = ["B", "iterations", "q01, us", "median, us", "q99, us", "GB/s", "TFLOP/s"]
    for name in methods:
        if name != "Monge":
            columns += [f"{name}, us", f"{name} / Monge"]
    published = (
        "Published, 20 iterations: the Triton kernel is 20 to 139 times as fast as compiled PyTorch; 238 GB/s"
        " and 2.7 TFLOP/s; 312 GB/s for one iteration."
    )
    sheet.table(
        "batches", "Figures 7 to 10: projections of 4 x 4 matrices, whole calls from PyTorch", columns, rows, published
    )

    def draw(axes):
        for iterations in counts:
            here = [row for row in rows if row[1] == iterations]
            b = [row[0] for row in here]
            curve(axes[0], b, [row[3] for row in here], f"Monge, {iterations} iterations")
            axes[0].fill_between(b, [row[2] for row in here], [row[4] for row in here], alpha=0.2)
            curve(axes[1], b, [row[5] for row in here], f"{iterations} iterations")
            curve(axes[2], b, [row[6] for row in here], f"{iterations} iterations")
            for k, name in enumerate(name for name in methods if name != "Monge"):
                if iterations == counts[-1]:
                    curve(axes[0], b, [row[7 + 2 * k] for row in here], f"{name}, {iterations} iterations", ls="--")
                    curve(axes[3], b, [row[8 + 2 * k] for row in here], f"over {name}")
        for panel, name in zip(axes, ("us, median and q01 to q99", "GB/s", "TFLOP/s", "speed-up, 20 iterations")):
            finish(panel, "B", name)

    sheet.picture("batches", "Figures 7 to 10: batches of 4 x 4 matrices", draw, panels=4)


EXPERIMENTS = (batches,)
