"""
Every pixel once
================

One photograph is painted with the pixels of another, and each pixel is used exactly once: a plan between as many
points with equal weights is a permutation, and the exact solver finds the cheapest of all. A move costs the squared
distance of the colours plus a little of that of the places, which keeps neighbours together.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

import monge

china, flower = (load_sample_image(name)[::8, ::8] / 255.0 for name in ("china.jpg", "flower.jpg"))
height, width, _ = china.shape
place = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij"), -1).reshape(-1, 2) / width


def points(image):
    """Colour and place of each pixel: the squared distance of two points is the cost of the move."""
    return np.hstack([image.reshape(-1, 3), 0.3 * place])


result = monge.solve_exact_sample(points(flower), points(china))
_, goal, _ = result.pairs  # Row by row: entry i is the place in the temple of pixel i of the flower.
colours = flower.reshape(-1, 3)
painted = np.empty_like(colours)
painted[goal] = colours

# %%
# The picture.
figure, axes = plt.subplots(1, 4, figsize=(13, 2.6), layout="constrained")
frame = (0, 1, height / width, 0)
axes[0].imshow(flower, extent=frame)
axes[1].scatter(*((place + place[goal]) / 2)[:, ::-1].T, s=5, marker="s", c=colours, lw=0)
axes[1].set(xlim=frame[:2], ylim=frame[2:], aspect="equal")
axes[2].imshow(painted.reshape(china.shape), extent=frame)
axes[3].imshow(china, extent=frame)
for ax, title in zip(axes, ("flower", "half way", f"temple of its {len(goal)} pixels", "temple")):
    ax.set_title(title)
    ax.axis("off")
figure.savefig("every_pixel_once.png", dpi=120)
