"""What the tests share: problems, the dense float64 formulas, and bounds that follow from an error analysis."""

import importlib
import inspect
import os
import re
from pathlib import Path

import numpy as np
import pytest

import monge

EPSILON = np.finfo(np.float64).eps


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def assert_named(function, given, error, first_words):
    """An error of this type, of one line that begins with these words."""
    with pytest.raises(error, match="^" + re.escape(first_words)) as raised:
        function(**given)
    assert raised.type is error
    assert "\n" not in str(raised.value)


def weights(rng, size, zeros=0):
    given = rng.random(size) + 0.1
    given[:zeros] = 0
    return given / given.sum()


def squared_distances(x, y):
    return ((x[:, None, :] - y[None, :, :]) ** 2).sum(-1)


def dense_plan(f, g, cost, eps, a, b):
    """P_ij = a_i b_j exp((f_i + g_j - C_ij) / eps), 0 without weight."""
    with np.errstate(invalid="ignore", over="ignore"):
        plan = np.outer(a, b) * np.exp((np.asarray(f, float)[:, None] + np.asarray(g, float)[None, :] - cost) / eps)
    return np.where(np.outer(a, b) > 0, plan, 0)


def assert_optimal(result, cost, a, b, error):
    """P has the form of an optimal plan and its marginals to `error` (L1): there is one such plan only.

    Exponents are rounded to a few EPSILON of the largest term over eps, entries as much relative to themselves.
    """
    f, g = result.potentials
    finite = cost[np.isfinite(cost)]
    rounding = 16 * EPSILON * (1 + (abs(finite).max() + abs(f).max() + abs(g).max()) / result.reg)
    plan = dense_plan(f, g, cost, result.reg, a, b)
    np.testing.assert_allclose(result.plan, plan, rtol=rounding, atol=1e-300)
    reached = abs(plan.sum(1) - a).sum() + abs(plan.sum(0) - b).sum()
    assert reached <= error + rounding
    assert result.marginal_error == pytest.approx(reached, rel=1e-6, abs=rounding)


def plan_distance(plan, other, logs, other_logs):
    """An upper bound of |P - Q|_1 for two scalings of one matrix, P = exp(u + v - C / eps), from their marginals.

    KL(P|Q) + KL(Q|P) = <P 1 - Q 1, du> + <P^T 1 - Q^T 1, dv> + rounding, and by Pinsker's inequality that is at least
    |P - Q|_1^2 where both have mass 1.
    """
    du, dv = (np.asarray(p) - np.asarray(q) for p, q in zip(logs, other_logs))
    used_rows, used_columns = np.isfinite(du), np.isfinite(dv)
    shift = np.median(du[used_rows])
    du, dv = np.where(used_rows, du - shift, 0), np.where(used_columns, dv + shift, 0)
    row, column = plan.sum(1) - other.sum(1), plan.sum(0) - other.sum(0)
    scale = max(abs(du).max(), abs(dv).max(), 1)
    kl = abs(row) @ abs(du) + abs(column) @ abs(dv) + 64 * EPSILON * scale
    return np.sqrt(kl)


def resident():
    """Bytes of memory of this process."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def unlisted(module):
    """Public names that docs/site/python.rst does not list."""
    listed = (Path(__file__).parents[2] / "docs" / "site" / "python.rst").read_text().split()
    prefix = module.__name__.removeprefix("monge").removeprefix(".") + "."
    return [name for name in module.__all__ if f"{prefix}{name}".removeprefix(".") not in listed]


def undocumented(module):
    """Public names of a module without a docstring, and public attributes of its classes."""
    for name in module.__all__:
        value = getattr(module, name)
        if not inspect.getdoc(value):
            yield name
        if inspect.isclass(value) and value.__module__.startswith("monge"):
            for attribute, member in vars(value).items():
                if (
                    not attribute.startswith("_")
                    and (callable(member) or isinstance(member, property))
                    and not inspect.getdoc(getattr(value, attribute))
                ):
                    yield f"{name}.{attribute}"


_ENTRY = re.compile(r"^ {4}(\w+(?:, \w+)*): (?!As (?:for|in) :)", re.MULTILINE)
_IN_TEXT = re.compile(r"`(\w+)`|\b(\w+) \(")
_ELSEWHERE = re.compile(r"\b(?:as for|as in|those of)((?:(?: |, | and ):\w+:`[\w.]+`)+)", re.IGNORECASE)


def _named(doc):
    """The arguments that a docstring says something of: entries under Args, `x`, and x (n x d)."""
    entries = {name for entry in _ENTRY.findall(doc) for name in entry.split(", ")}
    return entries | {name for pair in _IN_TEXT.findall(doc) for name in pair}


def _referred(doc, scope):
    """The docstrings that this one refers to: "as for :func:`monge.solve`", "those of :meth:`fit`"."""
    for references in _ELSEWHERE.findall(" ".join(doc.split())):
        for name in re.findall(r"`([\w.]+)`", references):
            path, _, last = name.rpartition(".")
            yield inspect.getdoc(getattr(importlib.import_module(path) if path else scope, last))


def _calls(module):
    """What a module has to be called: (its name, itself, its docstring, where names of that are looked up)."""
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isfunction(value):
            yield name, value, inspect.getdoc(value), module
        if not inspect.isclass(value) or not value.__module__.startswith("monge") or issubclass(value, Warning):
            continue
        for method, call in inspect.getmembers(value, inspect.isfunction):
            if method == "__init__" and not name.endswith(("Result", "Plan")):  # Solves make these.
                yield name, call, inspect.getdoc(value), module
            elif not method.startswith("_") and call.__module__.startswith("monge"):
                yield f"{name}.{method}", call, inspect.getdoc(call), value


def unexplained(module):
    """Arguments of what is public in a module that neither its docstring names nor one that it refers to."""
    for name, call, doc, scope in _calls(module):
        named = _named(doc or "").union(*map(_named, _referred(doc or "", scope)))
        for argument in inspect.signature(call).parameters:
            if argument not in named and argument != "self":
                yield f"{name}({argument})"


__all__ = ["monge"]
