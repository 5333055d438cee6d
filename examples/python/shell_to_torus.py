"""
From a shell to a torus
=======================

Ten thousand points on a sphere go to as many on a torus. A sweep visits 1e8 pairs and has no memory for any of them.
"""

import matplotlib.pyplot as plt
import numpy as np

import monge

random = np.random.default_rng(0)
n = 10000
x = random.normal(size=(n, 3)).astype(np.float32)
x *= 1.5 / np.linalg.norm(x, axis=1, keepdims=True)
u, v = random.uniform(0, 2 * np.pi, size=(2, n)).astype(np.float32)
y = np.stack([(1 + 0.4 * np.cos(v)) * np.cos(u), (1 + 0.4 * np.cos(v)) * np.sin(u), 0.4 * np.sin(v)], 1)

result = monge.solve_sample(x, y, reg=0.02, tol=1e-2)
moved = result.transform()
off = np.hypot(np.hypot(*moved[:, :2].T) - 1, moved[:, 2]) - 0.4  # from the surface of the torus
print(result)

# %%
# The picture.
figure = plt.figure(figsize=(7, 6), layout="constrained")
ax = figure.add_subplot(projection="3d")
ax.scatter(*y[::10].T, s=1, color="C1")
ax.scatter(*x[::10].T, s=1, color="C0")
ax.quiver(*x[:300].T, *(moved - x)[:300].T, color="0.4", lw=0.5, arrow_length_ratio=0.15)
ax.set_box_aspect((1, 1, 1))
ax.set_title(f"{result.n_iter} sweeps, {result.report.seconds:.1f} s")
figure.savefig("shell_to_torus.png", dpi=120)
