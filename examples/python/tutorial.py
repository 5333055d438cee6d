import numpy as np

import monge

random = np.random.default_rng(0)
x = random.normal(size=(300, 2))  # sources, a point a row
y = 0.5 * random.normal(size=(400, 2)) + [3.0, 1.0]  # targets

result = monge.solve_sample(x, y, reg="auto")
print(result.status, f"eps = {result.reg:.3f}", f"<C, P> = {result.value_linear:.3f}")

plan = result.plan
print(plan.shape, f"{plan.sum():.3f}", f"{plan[0].sum() * 300:.3f}", f"{plan[:, 0].sum() * 400:.3f}")
print(result.marginal_error <= 1e-6)

f, g = result.potentials
cost = ((x[:, None] - y) ** 2).sum(2)
same = np.exp((f[:, None] + g - cost) / result.reg) / (300 * 400)
print(np.allclose(plan, same, rtol=1e-4))

moved = result.transform()
print(x[0].round(2), "->", moved[0].round(2))
print("spread of the targets", y.std(0).round(2), "of the map", moved.std(0).round(2))

sharp = monge.solve_sample(x, y, reg=0.01)
partners, masses = sharp.topk(3)
print("spread of the map", sharp.transform().std(0).round(2))
print("partners of x[0]", partners[0], "take", (300 * masses[0]).round(2))

gradient = result.gradients().x
print(np.allclose(x - 300 / 2 * gradient, moved, atol=1e-3))

points = x
for step in range(4):
    divergence = monge.sinkhorn_divergence(points, y, reg=0.1)
    print(f"step {step}: divergence {divergence.value:.4f}")
    points = points - 300 / 3 * divergence.gradients().x
print("spread of the points", points.std(0).round(2))
