"""
Domain adaptation
=================

A classifier is taught on the source domain, moved to where the target domain lies, by an estimator of scikit-learn.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.neighbors import KNeighborsClassifier

import monge

source, labels = make_moons(300, noise=0.08, random_state=0)
target, truth = make_moons(300, noise=0.08, random_state=1)
turn = np.deg2rad(35)
target = target @ [[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]]

accuracy = {}
for name, moved in (
    ("as it is", source),
    ("moved", monge.OTTransport(reg=0.02).fit_transform(source, labels, target)),
):
    accuracy[name] = KNeighborsClassifier(1).fit(moved, labels).score(target, truth)

# %%
# The picture.
figure, ax = plt.subplots(figsize=(5, 4), layout="constrained")
ax.scatter(*target.T, c="0.8", s=12, label="target")
ax.scatter(*moved.T, c=labels, cmap="coolwarm", s=8, label="source, moved")
ax.set_title(", ".join(f"{name}: {value:.0%}" for name, value in accuracy.items()))
ax.legend()
figure.savefig("adaptation.png", dpi=120)
