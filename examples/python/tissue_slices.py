"""
Slices of a tissue
==================

Two slices of one tissue: spots at positions in the plane, each with the counts of a few genes. The second slice lies
turned on its glass, and its spots are others. Genes alone say the layer of a spot, positions alone leave the pose open.
Fused Gromov-Wasserstein transport takes both.
"""

import matplotlib.pyplot as plt
import numpy as np

import monge

random = np.random.default_rng(1)


def slice_of_tissue(n):
    """Spots of a tissue: positions, layers, and genes that depend on the layer, with noise."""
    spots = random.uniform([-1.5, -1], [1.5, 1], (4 * n, 2))
    spots = spots[(spots[:, 0] / 1.5) ** 2 + (spots[:, 1] - 0.2 * spots[:, 0] ** 2) ** 2 < 0.8][:n]
    depth = spots[:, 1] - 0.3 * np.sin(2 * spots[:, 0])
    layers = np.digitize(depth, [-0.4, 0, 0.35])
    layers[np.hypot(*(spots - [0.8, 0.1]).T) < 0.25] = 4  # A vessel.
    profile = 2 * np.eye(5)[layers]
    return spots, layers, profile + random.normal(size=profile.shape)


first, layers, genes = slice_of_tissue(400)
truth, layers_of_second, genes_of_second = slice_of_tissue(380)
angle = np.deg2rad(130)
second = truth @ [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]] + [5, 2]

error, same_layer = {}, {}
for name, alpha in (("genes", 0.0), ("positions", 1.0), ("both", 0.95)):
    result = monge.solve_gromov_sample(first, second, genes, genes_of_second, alpha=alpha)
    # The average true position, and the layer of the partner.
    error[name] = float(np.median(np.linalg.norm(result.average(truth) - first, axis=1)))
    same_layer[name] = float((layers_of_second[result.topk(1)[0][:, 0]] == layers).mean())
    print(f"{name}: a spot is off by {error[name]:.2f}, {same_layer[name]:.0%} of the partners are of its layer")

# %%
# The picture: each spot of the second slice has the colour of the layer that it receives.
partner = result.topk(1, axis=0)[0][:, 0]
figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
for ax, points, colour, title in (
    (axes[0], first, layers, "a slice and its layers"),
    (axes[1], second, layers[partner], "the other slice: layers by the plan"),
    (axes[2], second, layers_of_second, "the other slice: true layers"),
):
    ax.scatter(*points.T, c=colour, cmap="Set1", s=10)
    ax.set(title=title, aspect="equal")
    ax.set_axis_off()
figure.savefig("tissue_slices.png", dpi=120)
