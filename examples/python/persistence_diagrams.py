"""
Distances of persistence diagrams
=================================

The sublevel set {f <= t} of a function of one variable consists of intervals. As t grows, an interval is born at each
local minimum; where two meet, the younger one dies. The points (birth, death) are the persistence diagram. The
p-Wasserstein distance of two diagrams pairs their points, or leaves a point to the diagonal, where birth is death. One
row and one column of costs stand for the whole diagonal: each has the mass of all points of the other diagram, so any
of them may go there. An assignment needs a copy of the diagonal for each point, and four times the costs.

The noise makes hundreds of short intervals, which go to the diagonal, and moves the long ones little. As p grows, the
distance falls to the bottleneck distance, which is at most the largest difference of the functions.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

import monge


def diagram(f):
    """(birth, death) of the components of the sublevel sets of f, by union-find; without the one that never dies."""
    parent = np.full(len(f), -1)  # -1: above the level so far. A root is the lowest point of its interval.

    def root(i):
        while parent[i] != i:
            parent[i] = i = parent[parent[i]]
        return i

    pairs = []
    for i in np.argsort(f, kind="stable"):
        parent[i] = i
        for j in (i - 1, i + 1):
            if 0 <= j < len(f) and parent[j] >= 0:
                old, young = sorted((root(i), root(j)), key=lambda k: f[k])
                parent[young] = old
                if f[young] < f[i]:
                    pairs.append((f[young], f[i]))
    return np.array(pairs)


def costs(x, y, p):
    """Costs (n + 1, m + 1): the largest difference of coordinates, to the power p; the diagonal is last."""
    made = np.zeros((len(x) + 1, len(y) + 1))
    made[:-1, :-1] = cdist(x, y, "chebyshev") ** p
    made[:-1, -1] = ((x[:, 1] - x[:, 0]) / 2) ** p
    made[-1, :-1] = ((y[:, 1] - y[:, 0]) / 2) ** p
    return made


def match(x, y, p):
    """The p-Wasserstein distance, and the plan as an (n + 1) x (m + 1) matrix of whole numbers."""
    n, m = len(x), len(y)
    result = monge.solve_exact(costs(x, y, p), [1] * n + [m], [1] * m + [n])
    return result.value ** (1 / p), result.plan


def distance_by_assignment(x, y, p):
    """The distance by SciPy, from (n + m) x (m + n) costs."""
    n, m = len(x), len(y)
    rows, columns = np.r_[np.arange(n), np.full(m, n)], np.r_[np.arange(m), np.full(n, m)]
    made = costs(x, y, p)[np.ix_(rows, columns)]
    return made[linear_sum_assignment(made)].sum() ** (1 / p)


def timed(call, *arguments):
    begin = time.perf_counter()
    return call(*arguments), time.perf_counter() - begin


random = np.random.default_rng(0)
t = np.linspace(0, 1, 2001)
smooth = np.sin(10 * np.pi * t) + 0.8 * np.cos(23 * np.pi * t)
noisy = [smooth + 0.05 * random.normal(size=len(t)) for _ in range(2)]
clean, first, second = (diagram(f) for f in (smooth, *noisy))

_, plan = match(clean, first, 2)
(distance, _), seconds = timed(match, first, second, 2)
by_assignment, seconds_of_assignment = timed(distance_by_assignment, first, second, 2)
print(f"{len(first)} and {len(second)} points: {distance:.12f} in {seconds:.2f} s")
print(f"the same by an assignment: {by_assignment:.12f} in {seconds_of_assignment:.2f} s")
powers = [1, 1.5, 2, 3, 4]
distances = [match(first, second, p)[0] for p in powers]
bound = np.abs(noisy[0] - noisy[1]).max()

# %%
# The picture.
figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
axes[0].plot(t, noisy[0], "C1", lw=0.4)
axes[0].plot(t, smooth, "C0", lw=1)
axes[0].set_title("a function, and the same with noise")
axes[1].axline((0, 0), slope=1, color="0.6", lw=0.8)
for i, j in np.argwhere(plan[:-1, :-1]):
    axes[1].plot(*np.stack([clean[i], first[j]]).T, "k", lw=0.8)
axes[1].plot(*first.T, "C1.", ms=3, label="with noise")
axes[1].plot(*clean.T, "C0o", mfc="none", label="without")
axes[1].set(title=f"{int(plan[-1, :-1].sum())} points go to the diagonal", xlabel="birth", ylabel="death")
axes[1].legend()
axes[2].semilogy(powers, distances, "o-", label="p-Wasserstein distance")
axes[2].axhline(bound, color="0.6", label="largest difference of the functions")
axes[2].set(title="two copies with other noise", xlabel="p")
axes[2].legend()
figure.savefig("persistence_diagrams.png", dpi=120)
