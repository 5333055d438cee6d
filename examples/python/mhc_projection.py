"""
Doubly stochastic layers
========================

Hyper-connections mix the streams of a network by a matrix a token. Products of 60 doubly stochastic ones stay
bounded; those of softmaxes do not.
"""

import matplotlib.pyplot as plt
import numpy as np

import monge

random = np.random.default_rng(0)
logits = random.normal(size=(60, 512, 4, 4)).astype(np.float32)  # layers, tokens
mixed = monge.project(logits, "mhc_paper")

gains = {}
for name, layers in (("projected", mixed), ("softmax of rows", np.exp(logits) / np.exp(logits).sum(-2, keepdims=True))):
    product, gains[name] = np.broadcast_to(np.eye(4), (512, 4, 4)), []
    for layer in layers:
        product = layer @ product
        gains[name].append(np.abs(product.sum(-1)).max())

# %%
# The picture.
figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
for name, gain in gains.items():
    ax.plot(gain, label=name)
ax.set_xlabel("layer")
ax.set_ylabel("largest row sum of the product")
ax.legend()
figure.savefig("mhc_projection.png", dpi=120)
