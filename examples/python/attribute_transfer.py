"""
Attributes by way of a plan
===========================

Whatever one side has, a colour or a class, a product with the plan gives to the other. Left, the pixels of a photograph
take the eight colours of a palette, each as often as its weight says. Right, handwritten digits take the classes of
others; some of them are no digits, but noise. With a reach these receive little mass, which tells them.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits, load_sample_image

import monge

random = np.random.default_rng(0)
photograph = load_sample_image("china.jpg")[::4, ::4] / 255.0
pixels = photograph.reshape(-1, 3).astype(np.float32)
palette = plt.cm.magma(np.linspace(0, 1, 8))[:, :3].astype(np.float32)
recoloured = monge.solve_sample(pixels, palette, reg=0.005, tol=1e-4).average(palette).reshape(photograph.shape)

images, digits = load_digits(return_X_y=True)
images = images / 16.0
known, new = images[:800], np.concatenate([images[800:1500], random.uniform(size=(100, 64))])
is_digit = np.arange(len(new)) < 700
result = monge.solve_sample(known, new, reg=0.5, unbalanced=4.0)
classes = result.average(np.eye(10)[digits[:800]], transpose=True).argmax(1)
accuracy = np.mean(classes[is_digit] == digits[800:1500])
received = result.marginal_b * len(new)

# %%
# The picture.
figure, axes = plt.subplots(1, 3, figsize=(14, 3.5), layout="constrained")
for ax, image, title in zip(axes, (photograph, np.clip(recoloured, 0, 1)), ("photograph", "recoloured")):
    ax.imshow(image)
    ax.set_title(title)
    ax.axis("off")
axes[2].hist([received[is_digit], received[~is_digit]], bins=40, stacked=True, label=("digits", "noise"))
axes[2].set_xlabel("mass received, of its share")
axes[2].set_title(f"{accuracy:.0%} of the digits have the right class")
axes[2].legend()
figure.savefig("attribute_transfer.png", dpi=120)
