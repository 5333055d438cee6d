"""
The matcher of a detector
=========================

A detector like DETR predicts a fixed number of boxes for each image, and its loss needs one of them for each target:
the pairs of least cost, by class, distance and overlap. The images of a batch have different numbers of targets. One
call solves all of them side by side, and finds SciPy's pairs.

.. image:: /docs/images/detector_matcher.jpg
   :alt: the boxes of two images, each target with its prediction; milliseconds of both matchers by images of a batch
"""

# sphinx_gallery_thumbnail_path = "docs/images/detector_matcher.jpg"
import time

import matplotlib.pyplot as plt
import torch
from scipy.optimize import linear_sum_assignment

import monge.torch

queries, classes = 300, 20
generator = torch.Generator().manual_seed(0)


def corners(boxes):
    """Corners (x0, y0, x1, y1) of boxes (centre, size)."""
    return torch.cat([boxes[..., :2] - boxes[..., 2:] / 2, boxes[..., :2] + boxes[..., 2:] / 2], -1)


def generalised_overlap(x, y):
    """GIoU of all pairs of boxes: intersection over union, less the share of the hull that the union leaves empty."""
    x, y = corners(x)[..., :, None, :], corners(y)
    area_x, area_y = ((v[..., 2:] - v[..., :2]).prod(-1) for v in (x, y))
    common = (torch.minimum(x[..., 2:], y[..., 2:]) - torch.maximum(x[..., :2], y[..., :2])).clamp(min=0).prod(-1)
    hull = (torch.maximum(x[..., 2:], y[..., 2:]) - torch.minimum(x[..., :2], y[..., :2])).prod(-1)
    union = area_x + area_y - common
    return common / union - (hull - union) / hull


def random_boxes(*shape):
    return torch.rand(*shape, 4, generator=generator) * torch.tensor([1, 1, 0.3, 0.3]) + 0.02


def image():
    """Boxes and class scores of the predictions, half of them near a target, and boxes and classes of the targets."""
    count, near = int(torch.randint(1, 60, (), generator=generator)), queries // 2
    boxes, labels = random_boxes(count), torch.randint(classes, (count,), generator=generator)
    seen = torch.randint(count, (near,), generator=generator)
    predicted = torch.cat([boxes[seen] * (1 + 0.15 * torch.randn(near, 4, generator=generator)), random_boxes(near)])
    scores = torch.randn(queries, classes, generator=generator)
    scores[torch.arange(near), labels[seen]] += 2
    return predicted, scores, boxes, labels


def costs(predicted, scores, boxes, labels):
    """The costs (queries, targets) of an image, with the weights of DETR."""
    distance = torch.cdist(predicted, boxes, p=1)
    return 5 * distance - scores.softmax(1)[:, labels] - 2 * generalised_overlap(predicted, boxes)


def one_by_one(matrices):
    return [tuple(torch.as_tensor(v) for v in linear_sum_assignment(matrix)) for matrix in matrices]


def timed(matcher, matrices):
    """The pairs, and the least milliseconds of ten calls."""
    times = []
    for _ in range(10):
        begin = time.perf_counter()
        pairs = matcher(matrices)
        times.append(1e3 * (time.perf_counter() - begin))
    return pairs, min(times)


images = [image() for _ in range(64)]
matrices = [costs(*each) for each in images]
matchers = {"SciPy, image by image": one_by_one, "Monge, one call": monge.torch.linear_sum_assignment}
batches, pairs, milliseconds = (8, 16, 32, 64), {}, {}
for name, matcher in matchers.items():
    pairs[name], _ = timed(matcher, matrices)
    milliseconds[name] = [timed(matcher, matrices[:size])[1] for size in batches]
    print(f"{name}: {milliseconds[name][-1]:.1f} ms for {len(images)} images of {queries} predictions")

# %%
# The picture.
figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
for ax, (predicted, _, boxes, _), (query, target) in zip(axes[:2], images, pairs["Monge, one call"]):
    for found, style in ((boxes[target], "k"), (predicted[query], "C1")):
        x0, y0, x1, y1 = corners(found).T
        ax.plot(torch.stack([x0, x1, x1, x0, x0]), torch.stack([y0, y0, y1, y1, y0]), style, lw=0.7)
    ax.set(title=f"{len(boxes)} targets (black), {queries} predictions", xticks=[], yticks=[])
for name, found in milliseconds.items():
    axes[2].plot(batches, found, "o-", label=name)
axes[2].set(title="milliseconds of a batch", xlabel="images", ylim=0)
axes[2].legend()
figure.savefig("detector_matcher.png", dpi=120)
