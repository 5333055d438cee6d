"""What is measured: problems, and the solvers of Monge and of its peers that take them.

A solver is a function of no arguments. Each of its peers is an option: a package that is missing, or fails, is listed
with its reason. `error` is what a solver reached, found outside of the clock, and `reached` says of which kind it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import numpy as np


@dataclass
class Solver:
    """A call that is measured. `error` takes what the call returns."""

    name: str
    call: Callable[[], Any]
    error: Callable[[Any], float] | None = None
    group: str = ""
    """Solvers of one group are one curve of the picture of errors."""


@dataclass
class Case:
    """A problem, and functions that yield its solvers, one for each package."""

    table: str
    given: dict[str, Any]
    packages: dict[str, Callable[[], Iterator[Solver]]] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return ", ".join([self.table, *(f"{name} {value}" for name, value in self.given.items())])


PACKAGES = {"pot": "POT", "geomloss": "geomloss", "ott": "ott-jax", "flash": "flash-sinkhorn", "scipy": "scipy"}


def version_of(package: str) -> str:
    if package == "monge":
        import monge

        return monge.__version__
    return metadata.version(PACKAGES[package])


class Clouds:
    """Normal clouds of n points, one moved by 1/2 in each coordinate, costs |x - y|^2, eps 5 % of their mean."""

    def __init__(self, n: int, d: int, device: str) -> None:
        random = np.random.default_rng(0)
        self.x, self.y = random.normal(size=(2, n, d))
        self.y += 0.5
        self.n, self.device = n, device
        squares = (self.x**2).sum(1).mean() + (self.y**2).sum(1).mean()
        self.eps = 0.05 * float(squares - 2 * self.x.mean(0) @ self.y.mean(0))

    def points(self, dtype: str, tensors: bool = False) -> list[Any]:
        if self.device == "cpu" and not tensors:
            return [v.astype(dtype) for v in (self.x, self.y)]
        import torch

        return [torch.tensor(v, dtype=getattr(torch, dtype), device=self.device) for v in (self.x, self.y)]

    def marginal_error(self, f: Any, g: Any) -> float:
        """|P 1 - a|_1 + |P^T 1 - b|_1 of P_ij = exp((f_i + g_j - |x_i - y_j|^2) / eps) / n^2, in float64."""
        if self.device != "cpu":
            return self._marginal_error_on_device(f, g)
        f, g = (host(v).ravel() for v in (f, g))
        error, column = 0.0, np.zeros(self.n)
        for begin in range(0, self.n, 500):
            part = slice(begin, begin + 500)
            cost = (self.x[part] ** 2).sum(1)[:, None] + (self.y**2).sum(1) - 2 * self.x[part] @ self.y.T
            plan = np.exp((f[part, None] + g - cost) / self.eps) / self.n**2
            error += float(abs(plan.sum(1) - 1 / self.n).sum())
            column += plan.sum(0)
        return error + float(abs(column - 1 / self.n).sum())

    def _marginal_error_on_device(self, f: Any, g: Any) -> float:
        import torch

        x, y = self.points("float64", tensors=True)
        f, g = (torch.tensor(host(v).ravel(), device=self.device) for v in (f, g))
        error, column = 0.0, torch.zeros_like(g)
        for rows, potentials in zip(x.split(2000), f.split(2000)):
            cost = rows.square().sum(1)[:, None] + y.square().sum(1) - 2 * rows @ y.T
            plan = ((potentials[:, None] + g - cost) / self.eps).exp() / self.n**2
            error += float((plan.sum(1) - 1 / self.n).abs().sum())
            column += plan.sum(0)
        return error + float((column - 1 / self.n).abs().sum())


def host(array: Any) -> np.ndarray:
    return np.asarray(array.detach().cpu() if hasattr(array, "detach") else array, np.float64)


def entropic(clouds: Clouds, tolerance: float, scalings: tuple[float, ...] = (0.98,)) -> dict[str, Any]:
    """From points to potentials. POT's rule is the 2-norm of one marginal, OTT's the error itself; GeomLoss takes one
    sweep at each eps of a ladder with the factor scaling^2; flash-sinkhorn stops by how far potentials move."""
    eps, n = clouds.eps, clouds.n

    def of_monge() -> Iterator[Solver]:
        import monge

        for dtype in ("float64", "float32"):
            points = clouds.points(dtype)
            yield Solver(
                f"Monge, {dtype}",
                lambda points=points: monge.solve_sample(*points, reg=eps, tol=tolerance),
                lambda result: clouds.marginal_error(*result.potentials),
                f"Monge, {dtype}",
            )

    def of_pot() -> Iterator[Solver]:
        import ot

        points = clouds.points("float64")
        tol = tolerance / np.sqrt(n)
        yield Solver(
            "POT, float64",
            lambda: ot.solve_sample(*points, reg=eps, tol=tol, max_iter=10000, grad="detach"),
            lambda result: clouds.marginal_error(*(eps * (host(v) + np.log(n)) for v in result.potentials)),
            "POT, float64",
        )

    def of_geomloss() -> Iterator[Solver]:
        from geomloss import SamplesLoss

        points, blur = clouds.points("float32", tensors=True), float(np.sqrt(eps / 2))  # Its cost is half of ours.
        for scaling in scalings:
            loss = SamplesLoss(blur=blur, scaling=scaling, debias=False, potentials=True, backend="tensorized")
            yield Solver(
                f"GeomLoss, float32, scaling {scaling}",
                lambda loss=loss: loss(*points),
                lambda result: clouds.marginal_error(*(2 * host(v) for v in result)),
                "GeomLoss, float32",
            )

    def of_ott() -> Iterator[Solver]:
        import jax
        import jax.numpy as jnp
        from ott.geometry import pointcloud
        from ott.problems.linear import linear_problem
        from ott.solvers.linear import sinkhorn

        for dtype in ("float64", "float32"):
            with jax.enable_x64(True):
                x, y = (jnp.asarray(v, dtype) for v in (clouds.x, clouds.y))

            @jax.jit
            def solve(x: Any, y: Any) -> Any:
                geometry = pointcloud.PointCloud(x, y, epsilon=eps)
                solver = sinkhorn.Sinkhorn(threshold=tolerance, max_iterations=10000)
                return solver(linear_problem.LinearProblem(geometry))

            def call(solve: Any = solve, x: Any = x, y: Any = y, wide: bool = dtype == "float64") -> Any:
                with jax.enable_x64(wide):
                    return jax.block_until_ready(solve(x, y))

            yield Solver(
                f"OTT-JAX, {dtype}",
                call,  # Its plan has no weights in it: exp((f + g - C) / eps).
                lambda result: clouds.marginal_error(*(host(v) + eps * np.log(n) for v in (result.f, result.g))),
                f"OTT-JAX, {dtype}",
            )

    def of_flash() -> Iterator[Solver]:
        if clouds.device == "cpu" or clouds.x.shape[1] != 32:
            raise RuntimeError("needs a GPU, and compiles for a minute at each new d")
        from flash_sinkhorn import SamplesLoss

        points = clouds.points("float32")
        of_loss = dict(eps=eps, n_iters=10000, use_epsilon_scaling=False, debias=False, potentials=True)
        loss = SamplesLoss(**of_loss, normalize=False, threshold=1e-3)
        name = "flash-sinkhorn, TF32"
        yield Solver(name, lambda: loss(*points), lambda result: clouds.marginal_error(*result), name)

    return {"monge": of_monge, "pot": of_pot, "geomloss": of_geomloss, "ott": of_ott, "flash": of_flash}


def losses(n: int, d: int, blur: float, tolerance: float, device: str, p: int = 2) -> dict[str, Any]:
    """A loss of PyTorch and its gradient by x, of tensors in float32; costs are |x - y|^p / p. "warm" starts from its
    own potentials, as in a training loop that hardly moves."""

    def step(loss: Any) -> Callable[[], Any]:
        import torch

        generator = torch.Generator().manual_seed(0)
        x = torch.randn(n, d, generator=generator).to(device).requires_grad_()
        y = (1.1 * torch.randn(n, d, generator=generator) + 0.3).to(device)

        def call() -> Any:
            x.grad = None
            loss(x, y).backward()
            return x.grad

        return call

    def of_monge() -> Iterator[Solver]:
        from monge.torch import SamplesLoss

        yield Solver("Monge", step(SamplesLoss(p=p, blur=blur, tol=tolerance)))
        yield Solver("Monge, warm", step(SamplesLoss(p=p, blur=blur, tol=tolerance, warm_start=True)))

    def of_geomloss() -> Iterator[Solver]:
        from geomloss import SamplesLoss

        for scaling in (0.5, 0.9):
            loss = SamplesLoss(p=p, blur=blur, scaling=scaling, backend="tensorized")
            yield Solver(f"GeomLoss, scaling {scaling}", step(loss))

    def of_flash() -> Iterator[Solver]:
        if device == "cpu" or d != 64 or p != 2:
            raise RuntimeError("needs a GPU and squares, and compiles for a minute at each new d")
        from flash_sinkhorn import SamplesLoss

        yield Solver("flash-sinkhorn", step(SamplesLoss(loss="sinkhorn", blur=blur, half_cost=True, debias=True)))

    return {"monge": of_monge, "geomloss": of_geomloss, "flash": of_flash}


def multiscale(n: int, d: int, blur: float, device: str) -> dict[str, Any]:
    """Many points in few dimensions, x uniform and y = u^1.5 in the cube, costs |x - y|^2 / 2, eps = blur^2, to a
    marginal error of 1e-3 of all rows and columns. The peer's check takes a sample of the rows."""
    random = np.random.default_rng(0)
    x, y = random.random((n, d)), random.random((n, d)) ** 1.5

    def points() -> list[Any]:
        import torch

        return [torch.tensor(v, dtype=torch.float32, device=device) for v in (x, y)]

    def of_monge() -> Iterator[Solver]:
        import monge

        given = points()
        yield Solver(  # The cost without its half.
            "Monge",
            lambda: monge.solve_sample(*given, reg=2 * blur**2, tol=1e-3),
            lambda result: result.marginal_error,
        )

    def of_flash() -> Iterator[Solver]:
        if device == "cpu" or d != 3:
            raise RuntimeError("needs a GPU and three dimensions")
        from flash_sinkhorn import SamplesLoss

        of_loss = dict(blur=blur, half_cost=True, debias=False, backend="multiscale", tol=1e-3)
        loss = SamplesLoss("sinkhorn", **of_loss)
        given = points()
        yield Solver("flash-sinkhorn, multiscale", lambda: loss(*given))

    return {"monge": of_monge, "flash": of_flash}


def exact(n: int, d: int, weights: str, device: str) -> dict[str, Any]:
    """From points and weights to an optimal plan. The peers make their cost matrix within their time, as users do. The
    error is the distance of the value to that of Monge, relative to it."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(n, d)), random.normal(size=(n, d)) * 0.8 + 0.5
    a, b = (np.full(n, 1 / n) if weights == "uniform" else random.random(n) + 0.1 for _ in "ab")
    a, b = a / a.sum(), b / b.sum()
    value: list[float] = []

    def of_monge() -> Iterator[Solver]:
        import monge

        given = [x, y] if device == "cpu" else Clouds.points(_Points(x, y, device), "float64")

        def error(result: Any) -> float:
            value[:] = [float(result.value)]
            return abs(float(result.gap)) / value[0]

        yield Solver("Monge", lambda: monge.solve_exact_sample(*given, a, b), error)

    def of_pot() -> Iterator[Solver]:
        if n > 5000:
            raise RuntimeError("takes minutes")
        import ot

        yield Solver(
            "POT", lambda: ot.emd2(a, b, ot.dist(x, y), numItermax=10**8), lambda found: abs(found / value[0] - 1)
        )

    def of_scipy() -> Iterator[Solver]:
        if weights != "uniform" or n > 2000:
            raise RuntimeError("solves assignments alone, and those of more points in minutes")
        from scipy.optimize import linear_sum_assignment
        from scipy.spatial.distance import cdist

        def call() -> float:
            cost = cdist(x, y, "sqeuclidean")
            return float(cost[linear_sum_assignment(cost)].mean())

        yield Solver("SciPy, assignment", call, lambda found: abs(found / value[0] - 1))

    return {"monge": of_monge, "pot": of_pot, "scipy": of_scipy}


@dataclass
class _Points:
    x: np.ndarray
    y: np.ndarray
    device: str


def assignment(problems: int, rows: int, columns: int, device: str) -> dict[str, Any]:
    """Linear sum assignments of uniform random costs in float64. SciPy solves one matrix after the other. The error is
    the number of pairs that are not SciPy's."""
    costs = np.random.default_rng(0).random((problems, rows, columns))
    pairs: list[Any] = []

    def of_scipy() -> Iterator[Solver]:
        from scipy.optimize import linear_sum_assignment

        def keep(found: Any) -> float:
            pairs[:] = [np.array(found)]
            return 0.0

        yield Solver("SciPy", lambda: [linear_sum_assignment(cost) for cost in costs], keep)

    def of_monge() -> Iterator[Solver]:
        import monge

        given = costs
        if device != "cpu":
            import torch

            given = torch.tensor(costs, device=device)

        def wrong(found: Any) -> float:
            return float((pairs[0] != np.stack([host(v) for v in found], 1)).sum()) if pairs else float("nan")

        yield Solver("Monge, a batch", lambda: monge.linear_sum_assignment(given), wrong)
        if device == "cpu":
            yield Solver(
                "Monge, one by one",
                lambda: np.stack([monge.linear_sum_assignment(cost, n_threads=1) for cost in costs], 1),
                lambda found: wrong(found),
            )

    return {"scipy": of_scipy, "monge": of_monge}


def cases(sizes: str, device: str) -> Iterator[Case]:
    """All problems of a run; those of "small" are among those of "full" with few exceptions, and take a minute. A GPU
    gets larger ones."""

    def clouds(table: str, n: int, d: int, tolerance: float, scalings: tuple[float, ...] = (0.98,)) -> Case:
        given = {"n": n, "d": d, "tolerance": tolerance}
        return Case(table, given, entropic(Clouds(n, d, device), tolerance, scalings))

    def loss(n: int, d: int, blur: float, tolerance: float) -> Case:
        given = {"n": n, "d": d, "blur": blur, "tolerance": tolerance}
        return Case("loss", given, losses(n, d, blur, tolerance, device))

    def over(n: int, tolerances: tuple[float, ...]) -> Iterator[Case]:
        for tolerance in tolerances:
            scalings = (0.5, 0.7, 0.9, 0.95) if tolerance == tolerances[0] and len(tolerances) > 1 else ()
            yield clouds("error over time", n, 3, tolerance, scalings)

    full, tolerances = sizes == "full", (1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8)
    few = ((64, 2, "random"), (256, 16, "uniform"), (1000, 3, "uniform"))
    many = ((1000, 3, "random"), (2000, 16, "uniform"), (2000, 16, "random"), (5000, 16, "uniform"))
    costs = ((512, 16, 16), (512, 64, 64), (512, 100, 20))
    if device != "cpu":
        yield from (clouds("over n", n, 32, 1e-6) for n in (1000, 5000, 20_000))
        yield from (clouds("over d", 10_000, d, 1e-6) for d in (3, 64, 512))
        yield from over(10_000, (1e-1, 1e-3, 1e-4, 1e-6))
        for n, d, blur in ((1000, 64, 2.5), (10_000, 3, 0.39), (10_000, 64, 2.5)):
            yield from (loss(n, d, blur, tolerance) for tolerance in (1e-3, 1e-6))
        for n, blur in ((100_000, 0.1), (100_000, 0.03), (1_000_000, 0.1), (1_000_000, 0.03)):
            yield Case("multiscale", {"n": n, "d": 3, "blur": blur}, multiscale(n, 3, blur, device))
        few, many = many[:2], ((20_000, 16, "uniform"),)
        costs = ((4096, 64, 64), (512, 256, 256), (1, 2000, 2000))
    else:
        yield from (clouds("over n", n, 32, 1e-6) for n in ((500, 1000, 2000) if full else (500, 1000)))
        yield from (clouds("over d", 1000, d, 1e-6) for d in ((2, 8, 128, 512) if full else (8,)))
        yield from over(1000, tolerances if full else (1e-3,))
        for n, d, blur in ((1000, 64, 2.5), (2000, 3, 0.1), (2000, 16, 0.6)) if full else ((1000, 64, 2.5),):
            yield from (loss(n, d, blur, tolerance) for tolerance in ((1e-3, 1e-6) if full else (1e-3,)))
        costs = (*costs, (32, 256, 256), (1, 1000, 1000)) if full else costs
    for n, d, weights in (*few, *many) if full else few:
        yield Case("exact", {"n": n, "d": d, "weights": weights}, exact(n, d, weights, device))
    for problems, rows, columns in costs:
        given = {"problems": problems, "rows": rows, "columns": columns}
        yield Case("assignment", given, assignment(problems, rows, columns, device))
    if full and device == "cpu":
        yield clouds("over n", 5000, 32, 1e-6)  # The longest.


MEMORY = {
    "Monge, float64": "import monge; monge.solve_sample(x, y, reg=eps, tol=1e-3)",
    "Monge, float32": "import monge; monge.solve_sample(x.astype('f4'), y.astype('f4'), reg=eps, tol=1e-3)",
    "Monge, exact": "import monge; monge.solve_sample(x, y, tol=1e-12, rounds=2)",
    "POT, float64": "import ot; ot.solve_sample(x, y, reg=eps, tol=1e-3 / n**0.5, max_iter=20, grad='detach')",
}
"""Programs whose memory is measured; x and y are two clouds of n points, eps is 5 % of their mean cost."""
