"""The estimator of scikit-learn."""

import warnings

import numpy as np
import pytest

import monge

estimator_checks = pytest.importorskip("sklearn.utils.estimator_checks")


@estimator_checks.parametrize_with_checks(
    [
        monge.OTTransport(reg=1.0, precision="float64"),
        monge.OTTransport(reg=1.0, method="quadratic"),
        monge.OTTransport(reg=0),
        monge.OTTransport(method="none"),
        monge.OTTransport(reg=0.1, method="group_lasso", tol=1e-3),
    ]
)
def test_estimator(estimator, check):
    check(estimator)


def test_it_moves_one_domain_to_the_other(rng):
    x = rng.normal(size=(60, 2))
    xt = x @ np.array([[1.0, 0.2], [0.0, 1.0]]) + 4
    transport = monge.OTTransport(reg=0.02)
    moved = transport.fit_transform(x, None, xt)
    plan = transport.coupling_
    np.testing.assert_allclose(moved, plan @ xt / plan.sum(1)[:, None], rtol=1e-4)
    back = transport.inverse_transform(xt)
    np.testing.assert_allclose(back, plan.T @ x / plan.sum(0)[:, None], rtol=1e-4, atol=1e-4)
    labels = np.where(x[:, 0] > 0, "right", "left")
    shares = transport.transform_labels(labels)
    classes = np.stack([labels == "left", labels == "right"], 1)
    np.testing.assert_allclose(shares, plan.T @ classes / plan.sum(0)[:, None], rtol=1e-4, atol=1e-6)


def test_points_of_the_target_are_not_moved_without_a_warning(rng):
    x, xt = rng.normal(size=(20, 2)), rng.normal(size=(15, 2)) + 4
    transport = monge.OTTransport(reg=0.5).fit(x, Xt=xt)
    with pytest.warns(UserWarning, match="^X: are points of Xt"):
        transport.transform(xt[3:7])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        transport.transform(x)
        transport.transform(np.concatenate([xt[:2], x[:1]]))
        monge.OTTransport(reg=0.5).fit(x).transform(x)
        monge.OTTransport(reg=0.5).fit(x, Xt=np.concatenate([x, xt])).transform(x[:3])


def test_the_model_stands_behind_it_and_a_pipeline_warns(rng):
    """The use that the docstring shows; in a Pipeline the target's points would be moved, too."""
    linear_model, pipeline = pytest.importorskip("sklearn.linear_model"), pytest.importorskip("sklearn.pipeline")
    y = np.arange(60) % 2
    x = rng.normal(size=(60, 2)) * 0.3 + 4 * y[:, None]
    xt, yt = x[::-1] + [8.0, 0.0], y[::-1]
    transport, model = monge.OTTransport(reg=0.1), linear_model.LogisticRegression()
    assert (model.fit(transport.fit_transform(x, y, xt), y).predict(xt) == yt).all()
    chain = pipeline.make_pipeline(monge.OTTransport(reg=0.1), linear_model.LogisticRegression())
    chain.fit(x, y, ottransport__Xt=xt)
    with pytest.warns(UserWarning, match="^X: are points of Xt"):
        chain.predict(xt)


def test_names_of_columns(rng):
    pandas = pytest.importorskip("pandas")
    x = pandas.DataFrame(rng.normal(size=(20, 2)), columns=["u", "v"])
    xt = pandas.DataFrame(rng.normal(size=(15, 2)) + 4, columns=["u", "v"])
    transport = monge.OTTransport(reg=0.5).fit(x, Xt=xt)
    assert list(transport.get_feature_names_out()) == ["u", "v"]
    plain = transport.transform(x)
    framed = transport.set_output(transform="pandas").transform(x)
    assert list(framed.columns) == ["u", "v"]
    np.testing.assert_array_equal(framed, plain)
    for wrong in (xt[["v", "u"]], xt.rename(columns={"u": "w"})):
        with pytest.raises(ValueError, match="^Xt: has the columns .*; must have those of X, "):
            transport.fit(x, Xt=wrong)
    transport.fit(x, Xt=xt.values)


@pytest.mark.parametrize("reg", [0.5, 0])
def test_the_callers_arrays_may_change(rng, reg):
    x, xt = rng.normal(size=(20, 2)), rng.normal(size=(15, 2)) + 4
    new = rng.normal(size=(3, 2))
    transport = monge.OTTransport(reg=reg).fit(x, Xt=xt)
    expected = transport.transform(new), transport.inverse_transform(new)
    x *= 5
    xt *= 5
    np.testing.assert_array_equal(transport.transform(new), expected[0])
    np.testing.assert_array_equal(transport.inverse_transform(new), expected[1])


def test_inverse_of_an_unbalanced_matrix(rng):
    cost = rng.random((7, 9))
    result = monge.solve(cost, reg=0.2, unbalanced=(0.5, 2.0), tol=1e-10)
    np.testing.assert_allclose(result.inverse.plan, result.plan.T, rtol=1e-10)
    own, other = result.gradients(), result.inverse.gradients()
    np.testing.assert_allclose(other.a, own.b, rtol=1e-8)
    np.testing.assert_allclose(other.b, own.a, rtol=1e-8)
    np.testing.assert_allclose(result.inverse.inverse.plan, result.plan, rtol=1e-10)


@pytest.mark.parametrize("method, reg", [("quadratic", 5.0), ("none", None), ("group_lasso", 0.1), ("auto", 0)])
def test_regularised_plans(rng, method, reg):
    x = np.concatenate([rng.normal(scale=0.3, size=(20, 2)) + centre for centre in ((0, 0), (3, 0), (0, 3))])
    labels = np.repeat(["a", "c", "b"], 20)
    xt = x[rng.permutation(60)[:40]] + 0.5
    transport = monge.OTTransport(reg, method=method)
    moved = transport.fit_transform(x, labels, xt)
    plan = transport.coupling_
    # Some sums of 60 terms.
    close = {"rtol": 1e-12, "atol": 1e-12}
    if method == "auto":
        assert transport.result_.status == "optimal"
    np.testing.assert_allclose(moved, plan @ xt / plan.sum(1)[:, None], **close)
    np.testing.assert_allclose(transport.inverse_transform(xt), plan.T @ x / plan.sum(0)[:, None], **close)
    classes = np.stack([labels == name for name in "abc"], 1)
    np.testing.assert_allclose(transport.transform_labels(labels), plan.T @ classes / plan.sum(0)[:, None], **close)
    np.testing.assert_allclose(transport.transform(x[:3] + 1e-6), moved[:3] + 1e-6, **close)
    cost = ((x[:, None] - xt) ** 2).sum(-1)
    groups = np.repeat([0, 2, 1], 20)
    terms = {"quadratic": {"quadratic": 5.0}, "none": {}, "auto": {}, "group_lasso": {"group_lasso": 0.1, "groups": groups}}
    other = monge.solve_regularized(cost, **terms[method])
    assert transport.result_.value == pytest.approx(other.value, rel=2e-4)  # Each is good to 1e-4.


@pytest.mark.parametrize("method", ["auto", "quadratic", "group_lasso"])
def test_the_device_is_the_solvers(rng, method):
    x = rng.normal(size=(10, 2))
    for device, error, match in (("tpu", ValueError, "^device: is 'tpu'"), ("cuda:99", NotImplementedError, "cuda:99")):
        with pytest.raises(error, match=match):
            monge.OTTransport(1.0, method=method, device=device).fit(x, np.arange(10) % 2)


@pytest.mark.parametrize("reg", [0, None])
def test_exact_plans_refuse_options_of_entropic_ones(rng, reg):
    x = rng.normal(size=(6, 2))
    with pytest.raises(NotImplementedError, match="^unbalanced: is 0.5; must be None without reg"):
        monge.OTTransport(reg, unbalanced=0.5).fit(x)
    with pytest.raises(ValueError, match="^precision: is 'float64'; must be 'auto' without reg"):
        monge.OTTransport(reg, precision="float64").fit(x)


def test_regularised_estimators():
    for name, keywords, match in (
        ("quadratic", {}, "^reg: is 'auto'; must be a number, the weight of the term"),
        ("none", {"reg": 1.0}, "^reg: is 1.0; must not be given with method 'none'"),
        ("group_lasso", {"reg": 1.0}, "^y: is missing; method 'group_lasso' requires y to be passed"),
        ("quadratic", {"reg": 1.0, "unbalanced": 1.0}, "^unbalanced: is given; must not be"),
    ):
        with pytest.raises((ValueError, NotImplementedError), match=match):
            monge.OTTransport(method=name, **keywords).fit(np.eye(3))


@pytest.mark.parametrize("form", [np.asarray, np.ndarray.tolist])
def test_points_in_the_place_of_labels_are_refused(form):
    x, xt = np.random.default_rng(0).normal(size=(2, 10, 2))
    why = r"^y: has shape \(10, 2\); must be labels \(n\); points of the target are given as Xt$"
    for call in (monge.OTTransport(reg=0.5).fit, monge.OTTransport(reg=0.5).fit_transform):
        with pytest.raises(ValueError, match=why):
            call(x, form(xt))
    monge.OTTransport(reg=0.5).fit(x, form(xt), Xt=xt)  # A pipeline passes targets of a regression.
    monge.OTTransport(reg=0.5).fit(x, [[k % 2] for k in range(10)])  # A column of labels.
