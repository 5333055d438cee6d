"""Fused & Furious: Sinkhorn Triton Kernels (2026): batches of 4 x 4 matrices projected onto the Birkhoff polytope.

The published numbers are of an RTX 4000 Ada, whose memory has 360 GB/s.
"""

import numpy as np
import torch
from sheet import curve, finish, ratio

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


def batches(sheet):
    """Figures 7 to 10: time, bandwidth and rate of arithmetic by batch, for 20, 5 and 1 iterations."""
    sizes = [1, 64, 4096] if sheet.small else [4**k for k in range(13)]
    counts = (20, 5, 1)
    peers = {"eager": eager, "compiled": torch.inference_mode()(torch.compile(eager, dynamic=True)), "Triton": triton}
    if sheet.small:
        del peers["compiled"]  # Its first call takes a minute.
    columns = ["B", "iterations", "q01, us", "median, us", "q99, us", "GB/s", "TFLOP/s"]
    for name in peers:
        columns += [f"{name}, us", f"{name} / Monge"]
    table = sheet.table(
        "batches",
        "Figures 7 to 10: projections of 4 x 4 matrices, whole calls from PyTorch",
        columns,
        "Published, 20 iterations: the Triton kernel is 20 to 139 times as fast as compiled PyTorch; 238 GB/s"
        " and 2.7 TFLOP/s; 312 GB/s for one iteration.",
    )
    for iterations in counts:
        for size in sizes:
            logits = torch.randn((size, N, N), device=sheet.device)
            times = sheet.times(lambda: ours(logits, iterations), seconds=0.2)
            low, median, high = (float(np.quantile(times, q)) for q in (0.01, 0.5, 0.99))
            traffic, work = 8 * size * N * N, size * (4 * N * N + 2 * N) * iterations
            row = table.row(size, iterations, 1e3 * low, 1e3 * median, 1e3 * high)
            row += [traffic / median / 1e6, work / median / 1e9]
            for name, peer in peers.items():
                found = sheet.peer_milliseconds(name, lambda: peer(logits, iterations), seconds=0.2)
                row += [None if found is None else 1e3 * found, ratio(found, median)]

    def draw(axes):
        for iterations in counts:
            here = [row for row in table.rows if row[1] == iterations]
            b = [row[0] for row in here]
            curve(axes[0], b, [row[3] for row in here], f"Monge, {iterations} iterations")
            axes[0].fill_between(b, [row[2] for row in here], [row[4] for row in here], alpha=0.2)
            curve(axes[1], b, [row[5] for row in here], f"{iterations} iterations")
            curve(axes[2], b, [row[6] for row in here], f"{iterations} iterations")
            for k, name in enumerate(peers):
                if iterations == counts[0]:
                    curve(axes[0], b, [row[7 + 2 * k] for row in here], f"{name}, {iterations} iterations", ls="--")
                    curve(axes[3], b, [row[8 + 2 * k] for row in here], f"over {name}")
        for panel, name in zip(axes, ("us, median and q01 to q99", "GB/s", "TFLOP/s", "speed-up, 20 iterations")):
            finish(panel, "B", name)

    sheet.picture("batches", "Figures 7 to 10: batches of 4 x 4 matrices", draw, panels=4)


EXPERIMENTS = (batches,)
