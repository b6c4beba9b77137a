"""Exported estimators predict what the published version predicts, read by other libraries."""

from __future__ import annotations

import json
import sys
import zipfile
from datetime import UTC, datetime
from io import BytesIO
from typing import Any, Literal

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from sklearn.multiclass import OneVsRestClassifier

from lethe.consumers.contract.events import Parameters
from lethe.consumers.export.files import METADATA, Exported, as_onnx, as_skops
from lethe.engine.errors import InvalidData
from lethe.engine.fit.classes import probabilities
from lethe.engine.fit.objective import Array
from tests.support.extras import need

P = 4
X = np.random.default_rng(5).standard_normal((50, P))
Kind = Literal["linear", "logistic", "poisson", "softmax"]


def exported(
    kind: Kind, outputs: int = 1, classes: tuple[str, ...] = (), *, fit_intercept: bool = True
) -> Exported:
    """Return parameters as `lethe export` has them, of some published version."""
    event = Parameters(
        model_id="churn",
        generation=2,
        version=7,
        prev_digest="a" * 64,
        digest="b" * 64,
        parameters_digest="c" * 64,
        method="pru",
        kind=kind,
        status="ACTIVE",
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        feature_names=tuple(f"x{j}" for j in range(P)),
        target_names=tuple(f"y{j}" for j in range(1 if classes else outputs)),
        fit_intercept=fit_intercept,
        classes=classes,
    )
    theta = np.random.default_rng(outputs).standard_normal((P + int(fit_intercept), outputs))
    return Exported(event, theta, 0.5)


def expected(one: Exported, X: Array) -> Array:
    """Return the margins of rows, n x m."""
    margin = X @ one.theta[:P]
    return margin + one.theta[P] if one.event.fit_intercept else margin


def labels_of(one: Exported) -> list[Any]:
    return list(one.event.classes) or [0, 1]


def likely(one: Exported, X: Array) -> Array:
    """Return the probability of each class, n x C."""
    margin = expected(one, X)
    if margin.shape[1] == 1:
        return np.hstack([probabilities(-margin), probabilities(margin)])
    return softmax(margin, axis=1) if one.event.kind == "softmax" else probabilities(margin)


COUNTS = [exported("poisson"), exported("poisson", fit_intercept=False)]
NUMBERED = tuple(str(c) for c in range(12))  # "10" sorts before "2"
LINEAR = [exported("linear"), exported("linear", fit_intercept=False), exported("linear", 3)]
CLASSES = [
    exported("logistic"),
    exported("logistic", fit_intercept=False),
    exported("logistic", classes=("no", "yes")),
    exported("logistic", classes=("9", "10")),
    exported("logistic", 3, ("iris", "rose", "tulip")),
    exported("logistic", 12, NUMBERED),
    exported("softmax", 3, ("iris", "rose", "tulip")),
    exported("softmax", 3, ("iris", "rose", "tulip"), fit_intercept=False),
    exported("softmax", 12, NUMBERED),
]


@pytest.mark.parametrize("one", [*LINEAR, *CLASSES, *COUNTS])
def test_a_skops_file_loads_without_a_type_that_is_not_trusted(one: Exported) -> None:
    need("skops")
    from skops.io import get_untrusted_types, loads

    data = as_skops(one)

    assert get_untrusted_types(data=data) == []
    estimator = loads(data, trusted=[])
    assert type(estimator) in (Ridge, LogisticRegression, OneVsRestClassifier, PoissonRegressor)
    assert estimator.feature_names_in_.tolist() == list(one.event.feature_names)
    del estimator.feature_names_in_  # the rows below have none
    for part in getattr(estimator, "estimators_", ()):
        del part.feature_names_in_
    if one.event.kind == "linear":
        predicted = estimator.predict(X).reshape(50, -1)
        np.testing.assert_allclose(predicted, expected(one, X), rtol=1e-12)
        assert estimator.alpha == 0.5
        return
    if one.event.kind == "poisson":
        means = np.exp(expected(one, X)[:, 0])
        np.testing.assert_allclose(estimator.predict(X), means, rtol=1e-12)
        assert np.isnan(estimator.alpha)  # it depends on the weight of the rows, which is not known
        return
    np.testing.assert_allclose(estimator.predict_proba(X), likely(one, X), rtol=1e-12)
    chosen = [labels_of(one)[c] for c in likely(one, X).argmax(axis=1)]
    assert estimator.predict(X).tolist() == chosen
    assert estimator.classes_.tolist() == labels_of(one)


def test_a_skops_file_says_which_version_it_holds() -> None:
    need("skops")
    with zipfile.ZipFile(BytesIO(as_skops(LINEAR[0]))) as members:
        said = json.loads(members.read(METADATA))
    assert (said["model_id"], said["version"], said["digest"]) == ("churn", 7, "b" * 64)


@pytest.mark.parametrize("one", [*LINEAR, *CLASSES, *COUNTS])
def test_an_onnx_file_predicts_in_double_precision(one: Exported) -> None:
    need("skl2onnx", "onnxruntime")
    from onnxruntime import InferenceSession

    session = InferenceSession(as_onnx(one), providers=["CPUExecutionProvider"])

    first, *rest = session.run(None, {"X": X})
    if one.event.kind == "linear":
        np.testing.assert_allclose(first, expected(one, X), rtol=1e-12, atol=1e-14)
    elif one.event.kind == "poisson":
        np.testing.assert_allclose(first, np.exp(expected(one, X)), rtol=1e-12)
    else:
        # A small probability comes of a difference from 1: it is exact to the rounding of 1.
        np.testing.assert_allclose(rest[0], likely(one, X), rtol=1e-12, atol=2**-52)
        chosen = [labels_of(one)[c] for c in likely(one, X).argmax(axis=1)]
        assert first.tolist() == chosen
    said = session.get_modelmeta().custom_metadata_map
    assert (said["model_id"], said["version"], said["digest"]) == ("churn", "7", "b" * 64)
    assert json.loads(said["feature_names"]) == list(one.event.feature_names)


@pytest.mark.parametrize(("write", "package"), [(as_skops, "skops.io"), (as_onnx, "skl2onnx")])
def test_an_extra_that_is_missing_is_named_with_what_to_type(
    write: Any, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if package == "skl2onnx":
        need("onnx")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InvalidData, match=r"not installed: pip install 'lethe-engine\[(sk|on)"):
        write(LINEAR[0])
