"""
Colours of another photograph
=============================

The pixels of one photograph take the colours of the other. The plan is that of a tenth of them; the entropic map
that belongs to it takes all.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

import monge

# %%
# The pixels of both photographs as points in the space of colours.
china, flower = (load_sample_image(name)[::4, ::4] / 255.0 for name in ("china.jpg", "flower.jpg"))
source, target = (image.reshape(-1, 3).astype(np.float32) for image in (china, flower))

# %%
# A map from a tenth of the pixels is good for all of them.
random = np.random.default_rng(0)
sample = [pixels[random.permutation(len(pixels))[:1700]] for pixels in (source, target)]
result = monge.solve_sample(*sample, reg=0.005, tol=1e-4)
painted = np.clip(result.transform(source), 0, 1).reshape(china.shape)

# %%
# The picture.
figure, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
for ax, image, title in zip(axes, (china, flower, painted), ("photograph", "colours", "both")):
    ax.imshow(image)
    ax.set_title(title)
    ax.axis("off")
figure.savefig("color_transfer.png", dpi=120)
