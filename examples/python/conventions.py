"""
Potentials of other programs
============================

What is called a potential differs by units, by the weights and by a constant. Here P_ij = a_i b_j exp((f_i + g_j -
C_ij) / eps), f and g have the units of the cost, and <a, f> = <b, g>.
"""

import matplotlib.pyplot as plt
import numpy as np
import ot
from scipy.special import logsumexp

import monge

random = np.random.default_rng(0)
x, y = random.normal(size=(60, 2)), random.normal(size=(50, 2)) + 1.0
a, b = random.dirichlet(np.ones(60)), random.dirichlet(np.ones(50))
cost, eps = ot.dist(x, y), 0.5
result = monge.solve_sample(x, y, a, b, reg=eps, tol=1e-10)
f, g = result.potentials


def level(f, g):
    """f + t with the constant of Monge: <a, f + t> = <b, g - t>."""
    return f + (b @ g - a @ f) / 2


# %%
# POT: P = diag(u) exp(-C / reg) diag(v), whose logarithms are result.log_scalings.
log = ot.sinkhorn(a, b, cost, eps, stopThr=1e-13, log=True)[1]
pot = level(eps * np.log(log["u"] / a), eps * np.log(log["v"] / b))

# %%
# OTT-JAX: P = exp((f + g - C) / eps), so that f has eps log a in it. These are its updates.
ott, g_ott = np.zeros(60), np.zeros(50)
for _ in range(300):
    g_ott = eps * (np.log(b) - logsumexp((ott[:, None] - cost) / eps, axis=0))
    ott = eps * (np.log(a) - logsumexp((g_ott - cost) / eps, axis=1))
ott = level(ott - eps * np.log(a), g_ott - eps * np.log(b))

# %%
# GeomLoss: costs ``|x - y|^2 / 2`` and eps = blur^2. Half the cost at half the eps is the same plan, with half the f.
geomloss = monge.solve_sample(x, y, a, b, reg=eps / 2, scale=0.5, tol=1e-10).potential_a

converted = {"POT: reg log(u / a)": pot, "OTT-JAX: f - eps log a": ott, "GeomLoss: 2 f": 2 * geomloss}
error = {name: abs(potential - f).max() for name, potential in converted.items()}

# %%
# The picture.
figure, ax = plt.subplots(figsize=(5, 5), layout="constrained")
for (name, potential), marker in zip(converted.items(), "o+x"):
    ax.plot(f, potential, marker, ms=9 if marker == "o" else 6, mfc="none", label=f"{name}, {error[name]:.0e} off")
ax.set_xlabel("f of Monge")
ax.legend()
figure.savefig("conventions.png", dpi=120)
