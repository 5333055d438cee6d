"""
Twenty thousand points in the plane
===================================

In the plane a point meets few of the others: exact plans search trees, and entropic solves leave out pairs without mass.
Nothing but the sizes tells the library so. The map of an entropic plan nears the exact one as its blur, sqrt(eps), falls.
"""

import time

import matplotlib.pyplot as plt
import numpy as np

import monge

random = np.random.default_rng(0)
n = 20_000
angle, radius = random.uniform(0, 2 * np.pi, n), np.sqrt(random.uniform(0, 1, n))
disc = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
turn, width = random.uniform(0, 2 * np.pi, n), np.sqrt(random.uniform(0, 1, n)) * 0.6
star = (width * (1 + 0.45 * np.cos(5 * turn)))[:, None] * np.stack([np.cos(turn), np.sin(turn)], 1) + [2.2, 0]

began = time.perf_counter()
exact = monge.solve_exact_sample(disc, star)
seconds = {"exact": time.perf_counter() - began}
partner = exact.pairs[1]

blurs = [0.2, 0.1, 0.05, 0.025]
off = []
for blur in blurs:
    began = time.perf_counter()
    result = monge.solve_sample(disc, star, reg=blur**2, tol=1e-3)
    seconds[f"blur {blur}"] = time.perf_counter() - began
    off.append(np.sqrt(((result.transform() - star[partner]) ** 2).sum(1).mean()))
print(exact)
print({name: f"{taken:.2f} s" for name, taken in seconds.items()})

# %%
# The picture: a point and its place on the star have one colour.
figure, axes = plt.subplots(1, 2, figsize=(10, 4), width_ratios=[2.6, 1], layout="constrained")
colour = plt.get_cmap("twilight")(angle / (2 * np.pi))
colour[:, :3] *= (0.35 + 0.65 * radius)[:, None]
axes[0].scatter(*disc.T, c=colour, s=1)
axes[0].scatter(*star[partner].T, c=colour, s=1)
axes[0].set(title=f"{n} points and their places in the exact plan", aspect="equal")
axes[0].axis("off")
axes[1].loglog(blurs, off, "o-")
axes[1].minorticks_off()
axes[1].set_xticks(blurs, blurs)
axes[1].set_yticks([0.01, 0.02, 0.04], [0.01, 0.02, 0.04])
axes[1].set(title="distance from the exact map", xlabel="blur", ylabel="root mean square")
figure.savefig("many_points.png", dpi=120)
