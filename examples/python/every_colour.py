"""
Every pixel in the space of colours
===================================

The pixels of one photograph take the colours of the other: all 273,280 of each, without a sample. Pixels of one colour
are one point, whose weight is their number. In three dimensions a colour has mass with few others, so the solve leaves
out almost all pairs and says what that may have cost.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

import monge

step = int(sys.argv[1]) if len(sys.argv) > 1 else 1  # Each step-th pixel of each step-th line.
china, flower = (load_sample_image(name)[::step, ::step] for name in ("china.jpg", "flower.jpg"))
(source, place, a), (target, _, b) = (
    np.unique(image.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True) for image in (china, flower)
)
result = monge.solve_sample(source / 255, target / 255, a / a.sum(), b / b.sum(), reg=0.05**2, tol=1e-3)
painted = np.clip(result.transform(), 0, 1)[place.ravel()].reshape(china.shape)
print(result)
print(f"{len(place)} pixels of {len(source)} and {len(target)} colours, {result.report.seconds:.1f} s")
print(f"at most {result.report.left_out:.1e} of the mass is left out")

# %%
# The picture.
figure, axes = plt.subplots(2, 3, figsize=(10, 5.5), height_ratios=[1, 1.2], layout="constrained")
for (above, below), image, title in zip(
    axes.T, (china / 255, flower / 255, painted), ("photograph", "colours", "both")
):
    above.imshow(image)
    above.set_title(title)
    above.axis("off")
    red, green, blue = image.reshape(-1, 3)[:: max(1, len(place) // 20000)].T
    below.scatter(red, blue, s=1, c=np.stack([red, green, blue], 1))
    below.set(xlim=(0, 1), ylim=(0, 1), xlabel="red", ylabel="blue", aspect="equal")
figure.savefig("every_colour.png", dpi=120)
