"""
Embeddings of ten classes
=========================

Embeddings of the same things by two models, in 768 dimensions. One product of the plan with the indicators of the
classes is the share of each class that goes to each other; the largest entry of a row says how much of a thing goes to
its own copy. As eps grows, the copies are lost long before the classes.
"""

import matplotlib.pyplot as plt
import numpy as np

import monge

random = np.random.default_rng(0)
n, d = 2000, 768
classes = random.integers(0, 10, n)
x = 1.2 / np.sqrt(d) * random.normal(size=(10, d))[classes] + random.normal(size=(n, d)) / np.sqrt(d)
y = (x + 0.7 * random.normal(size=(n, d)) / np.sqrt(d)).astype(np.float32)
x = x.astype(np.float32)

indicators = np.eye(10, dtype=np.float32)[classes]
shares, transitions, copies = np.array([0.01, 0.02, 0.05, 0.1, 0.2]), [], []
for share in shares:
    result = monge.solve_sample(x, y, eps_relative=share, tol=1e-3)
    between = indicators.T @ result.apply(indicators)  # P is multiplied, and never formed.
    transitions.append(between / between.sum(1, keepdims=True))
    (partner,), (mass,) = (array.T for array in result.topk(1))
    copies.append(mass[partner == np.arange(n)].sum())
stay = [np.diag(transition).mean() for transition in transitions]

# %%
# The picture.
figure, axes = plt.subplots(1, 3, figsize=(12, 3.5), layout="constrained")
for ax, k in zip(axes, (0, 4)):
    ax.imshow(transitions[k], vmin=0, vmax=1, cmap="magma_r")
    ax.set_title(f"class to class, eps {shares[k]}")
axes[2].semilogx(shares, stay, "o-", label="mass that stays in its class")
axes[2].semilogx(shares, copies, "o-", label="mass that goes to its own copy")
axes[2].set_xlabel("eps over the mean cost")
axes[2].legend()
figure.savefig("embeddings.png", dpi=120)
