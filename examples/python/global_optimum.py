"""
A global optimum, proved
========================

Two closed curves of different shape, matched by the distances within. The problem is not convex: a search ends at a local
optimum. Branch and bound raises a lower bound of all plans until it meets the value of the best plan.
"""

import matplotlib.pyplot as plt
import numpy as np

import monge

random = np.random.default_rng(2)


def curve(n):
    angle = np.sort(random.uniform(0, 2 * np.pi, n))
    waves = np.concatenate([f(np.outer(angle, np.arange(1, 5))) / np.arange(1, 5) for f in (np.cos, np.sin)], 1)
    return waves @ random.normal(size=(8, 2))


first, second = curve(100), curve(100)
seconds, upper, lower = [], [], []


def watch(state):
    seconds.append(state.seconds)
    upper.append(state.value)
    lower.append(state.lower_bound)


result = monge.solve_gromov_sample(first, second, starts=1, gap=0.001, progress=watch)
seconds.append(result.report.seconds)
upper.append(float(result.value))
lower.append(result.lower_bound)
print(result.report.message)
for start in result.starts:
    print(f"  {start.kind}: {start.value:.4g}")

# %%
# The picture: both bounds over time, and the plan.
figure, (ax, plane) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained", width_ratios=[3, 2])
ax.step(seconds, upper, where="post", label="the best plan")
ax.step(seconds, lower, where="post", label="no plan is below")
ax.set(xlabel="seconds", ylabel="value", title=f"{result.report.problems} exact problems: a gap of {result.report.gap:.1e}")
ax.legend()
partner = result.topk(1)[0][:, 0]
beside = second + [2.2 * np.ptp(first[:, 0]), 0]
for i, j in enumerate(partner):
    plane.plot(*np.stack([first[i], beside[j]], 1), color="0.85", lw=0.5, zorder=0)
plane.scatter(*first.T, c=np.arange(100), cmap="twilight", s=14)
plane.scatter(*beside[partner].T, c=np.arange(100), cmap="twilight", s=14)
plane.set_axis_off()
plane.set_aspect("equal")
figure.savefig("global_optimum.png", dpi=120)
