"""
Frames of a sensor at a crossing
================================

A turning sensor stands at a crossing. Walls and poles rest, two cars drive. Unbalanced transport of each frame to the
next finds the motion of each point; what one frame alone sees has no partner within reach and stays where it is.
Potentials are functions of space: those of the last pair, at the points of the next frames, are a warm start.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import monge

beams, turns, frames = (int(v) for v in sys.argv[1:]) if len(sys.argv) > 3 else (32, 900, 6)
REST = [
    ((-40, 9, 0), (-6, 11, 5)),
    ((6, 9, 0), (40, 11, 5)),
    ((-40, -14, 0), (-6, -12, 6)),
    ((6, -14, 0), (40, -12, 4)),
]
REST += [((x, side, 0), (x + 0.4, side + 0.4, 6)) for x in range(-24, 32, 8) for side in (7.0, -7.4)]
CARS = [((-9, 1.5, 0), (-5, 3.3, 1.6)), ((-3.5, -11, 0), (-1.7, -7, 1.5))]
SPEEDS = np.array([[0.8, 0, 0], [0, 0.5, 0]])  # Metres a frame.
random = np.random.default_rng(0)

angle, height = np.meshgrid(1e-3 + np.linspace(-np.pi, np.pi, turns, endpoint=False), np.linspace(-0.4, 0.12, beams))
RAYS = np.stack([np.cos(angle) * np.cos(height), np.sin(angle) * np.cos(height), np.sin(height)], -1).reshape(-1, 3)


def frame(time):
    """The points that the rays meet, with noise, and their motion a frame."""
    sensor = np.array([0.01, 0.02, 1.8])
    distance, motion = -sensor[2] / np.minimum(RAYS[:, 2], -1e-3), np.zeros_like(RAYS)
    cars = [(*(corner + time * speed for corner in np.array(car)), speed) for car, speed in zip(CARS, SPEEDS)]
    for least, most, speed in [(*box, np.zeros(3)) for box in REST] + cars:
        ends = np.sort((np.stack([least, most]) - sensor)[:, None] / RAYS, axis=0)
        enters, leaves = ends[0].max(-1), ends[1].min(-1)
        closer = (enters < leaves) & (enters > 0) & (enters < distance)
        distance = np.where(closer, enters, distance)
        motion[closer] = speed
    distance = distance + random.normal(scale=0.02, size=len(RAYS))
    points = RAYS * distance[:, None]
    keep = (distance < 40) & (points[:, 2] > -1.7)  # No ground.
    return points[keep], motion[keep]


# %%
# Each pair of frames from potentials of zero, and from those of the pair before.
options = {"reg": 0.2**2, "unbalanced": 1.0, "tol": 1e-3, "method": "multiscale"}
clouds = [frame(time) for time in range(frames)]
before, passes, error = None, {"cold": [], "warm": []}, []
for (x, motion), (y, _) in zip(clouds, clouds[1:]):
    result = monge.solve_sample(x, y, **options)
    passes["cold"].append(result.n_iter + result.report.coarse_iterations)
    if before is not None:
        rate = 1 + options["reg"] / options["unbalanced"]  # A potential with a penalty is its transform over this.
        start = before.potential(x) / rate, before.inverse.potential(y) / rate
        result = monge.solve_sample(x, y, **options, potentials_init=start)
        passes["warm"].append(result.n_iter)
    before, flow = result, result.transform() - x
    drives = motion.any(1)
    off = np.linalg.norm(flow - motion, axis=1)
    error.append([np.median(off[drives]), np.median(off[~drives])])
    print(f"{result}: median error {error[-1][0]:.2f} m of cars, {error[-1][1]:.2f} m of all that rests")
print("sweeps", passes)

# %%
# The picture: the last frame from above, and its motion.
figure, axes = plt.subplots(2, 1, figsize=(10, 6), height_ratios=[2, 1], layout="constrained")
shown = axes[0].scatter(*x[:, :2].T, c=np.linalg.norm(flow, axis=1), s=1, cmap="viridis", vmin=0, vmax=0.8)
axes[0].quiver(*x[drives][::25, :2].T, *flow[drives][::25, :2].T, angles="xy", scale_units="xy", scale=0.5, width=2e-3)
axes[0].plot(0, 0, "k^")
axes[0].set(xlim=(-35, 35), ylim=(-16, 13), aspect="equal", title="motion of each point, metres a frame")
figure.colorbar(shown, ax=axes[0])
for name, marks in passes.items():
    axes[1].plot(range(frames - 1 - len(marks), frames - 1), marks, "o-", label=f"{name} start")
axes[1].set(xlabel="pair of frames", ylabel="sweeps", xticks=range(frames - 1), ylim=(0, 1.1 * max(passes["cold"])))
axes[1].legend()
figure.savefig("lidar_frames.png", dpi=120)
