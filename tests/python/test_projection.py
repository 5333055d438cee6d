"""The batched projection and the mappings of mHC layers."""

import numpy as np
import pytest

import monge
from monge import _core


def sinkhorn(logits, iterations=20, columns_first=True):
    matrix = np.exp(logits.astype(np.float64))
    for _ in range(iterations):
        for axis in (-2, -1) if columns_first else (-1, -2):
            matrix = matrix / matrix.sum(axis, keepdims=True)
    return matrix


@pytest.mark.parametrize("shape", [(4, 4), (5, 4, 4), (2, 3, 4, 4), (7, 3, 6), (1, 33, 17)])
def test_it_is_the_iteration_of_the_paper(rng, shape):
    logits = rng.normal(size=shape).astype("f4")
    found = monge.project(logits, order="columns_first")
    assert found.shape == shape and found.dtype == np.float32
    expected = sinkhorn(logits) if shape[-1] == shape[-2] else None
    if expected is not None:
        # 40 divisions by sums of n numbers, in float32.
        np.testing.assert_allclose(found, expected, rtol=40 * shape[-1] * 2**-24)
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-5)


@pytest.mark.parametrize("preset", _core.projection_presets())
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_presets(rng, preset, dtype):
    logits = rng.normal(size=(6, 4, 4)).astype(dtype)
    found = monge.project(logits, preset)
    assert found.dtype == dtype
    rows, columns = monge.projection_marginals(4, 4, preset)
    np.testing.assert_allclose(found.sum(-1), np.tile(rows, (6, 1)), atol=0.01)
    np.testing.assert_allclose(found.sum(-2), np.tile(columns, (6, 1)), atol=0.01)


def test_layouts_and_marginals(rng):
    wide = rng.normal(size=(9, 8, 10)).astype("f4")
    expected = monge.project(np.ascontiguousarray(wide[::2, 2:6, 3:7]), "mhc_paper")
    np.testing.assert_array_equal(monge.project(wide[::2, 2:6, 3:7], "mhc_paper"), expected)
    np.testing.assert_array_equal(monge.project(wide[::2, 2:6, 3:7], "mhc_paper", n_threads=1), expected)
    a, b = np.array([1, 2, 1], "f4"), np.array([2, 2], "f4")
    found = monge.project(wide[:, :3, :2], row_marginal=a, column_marginal=b, iterations=200)
    np.testing.assert_allclose(found.sum(-1), np.tile(a, (9, 1)), rtol=1e-4)


@pytest.mark.parametrize("kind", [np.float64, np.int64, bool, ">f8", list])
def test_other_numbers_are_those_of_float32(rng, kind):
    logits = np.round(3 * rng.normal(size=(2, 5, 4)))
    given = logits.tolist() if kind is list else logits.astype(kind)
    expected = monge.project(np.asarray(given).astype(np.float32))
    found = monge.project(given)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)
    mapped = monge.mhc_mapping(*(np.ones(size) for size in ((2, 24), 3, 24)))
    assert all(v.dtype == np.float32 for v in mapped)


def test_bad_arguments(rng):
    with pytest.raises(TypeError, match="^logits: is of dtype complex128; must be numbers, which are"):
        monge.project(np.ones((4, 4), complex))
    with pytest.raises(ValueError, match="^logits: has entries above 3.4e[+]38 in size; must be within float32"):
        monge.project(np.full((4, 4), 1e39))
    with pytest.raises(TypeError, match="^iteratons: is no option; did you mean iterations[?] Options are order, "):
        monge.project(np.ones((4, 4)), iteratons=3)
    with pytest.raises(ValueError, match="^logits: has shape"):
        monge.project(np.ones(4, "f4"))
    with pytest.raises(TypeError, match="speed: is no option; options are order, "):
        monge.project(np.ones((4, 4), "f4"), speed=1)
    with pytest.raises(ValueError, match="mhc_paper"):
        monge.project(np.ones((4, 4), "f4"), "mine")
    assert {name for name, *_ in _core.projection_option_list()} == set(monge.ProjectionOptions.__annotations__)


@pytest.mark.parametrize("n", [2, 4, 8])
def test_mhc_mapping(rng, n):
    columns = n * (n + 2)
    mixes, scale, base = (rng.normal(size=s).astype("f4") for s in ((2, 5, columns), 3, columns))
    pre, post, res = monge.mhc_mapping(mixes, scale, base, pre_epsilon=1e-6)
    gates = np.repeat(scale, (n, n, n * n)) * mixes.astype(float) + base
    np.testing.assert_allclose(pre, 1 / (1 + np.exp(-gates[..., :n])) + 1e-6, rtol=1e-5)
    np.testing.assert_allclose(post, 2 / (1 + np.exp(-gates[..., n : 2 * n])), rtol=1e-5)
    np.testing.assert_allclose(res, sinkhorn(gates[..., 2 * n :].reshape(2, 5, n, n)), rtol=1e-4)


def test_mhc_mapping_in_half_precision(rng):
    given = [rng.normal(size=s).astype("f2") for s in ((2, 5, 24), 3, 24)]
    for own, other in zip(monge.mhc_mapping(*given), monge.mhc_mapping(*(v.astype("f4") for v in given))):
        np.testing.assert_array_equal(own, other.astype("f2"))
        assert own.dtype == np.float16
    mixes, scale, base = (np.zeros(s, np.float32) for s in ((5, 24), 3, 24))
    for wrong, error, message in (
        ((mixes[:, :23], scale, base), ValueError, r"^mixes: has shape \(5, 23\); must be \(..., n \(n \+ 2\)\) for n streams"),
        ((np.float32(1), scale, base), ValueError, r"^mixes: has shape \(\); must be \(..., n \(n \+ 2\)\) for n streams"),
        ((mixes.astype(complex), scale, base), TypeError, "^mixes: is of dtype complex128; must be numbers"),
        ((mixes, scale.astype(complex), base), TypeError, "^scale: is of dtype complex128"),
        ((mixes, scale, base[1:]), ValueError, "^base: has"),
    ):
        with pytest.raises(error, match=message):
            monge.mhc_mapping(*wrong)
