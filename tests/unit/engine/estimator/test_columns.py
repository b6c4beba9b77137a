"""Features come from arrays, sparse matrices and data frames, whose columns must be the model's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse

from lethe import LinearModel, LogisticModel
from lethe.engine.errors import InvalidData

RNG = np.random.default_rng(0)
NAMES = ["age", "fee", "calls"]
X = RNG.standard_normal((40, 3))
Y = np.arange(40) % 2
FRAMES: list[Callable[[Any, list[str]], Any]] = [
    lambda values, names: pd.DataFrame(values, columns=names),
    lambda values, names: pa.table({name: values[:, i] for i, name in enumerate(names)}),
]
MODELS = [LinearModel, LogisticModel]
Model = type[LinearModel] | type[LogisticModel]


@pytest.mark.parametrize("frame", FRAMES, ids=["pandas", "pyarrow"])
@pytest.mark.parametrize("kind", MODELS)
def test_columns_in_another_order_or_missing_are_named(kind: Model, frame: Any) -> None:
    model = kind().fit(frame(X, NAMES), Y)
    plain = kind().fit(X, Y)
    assert model.feature_names_in_.tolist() == NAMES
    np.testing.assert_array_equal(model.predict(frame(X, NAMES)), plain.predict(X))
    permuted = frame(X[:, ::-1], NAMES[::-1])
    missing = frame(X[:, :2], NAMES[:2])
    before = model.theta
    calls: list[Callable[[Any], Any]] = [
        model.predict,
        lambda rows: model.insert(rows, Y, [f"n{i}" for i in range(40)]),
        lambda rows: model.correct(rows, Y, [str(i) for i in range(40)]),
    ]
    for call in calls:
        with pytest.raises(InvalidData, match=r"same order.*\n- calls in place of age"):
            call(permuted)
        with pytest.raises(InvalidData, match="yet now missing:\n- calls"):
            call(missing)
        with pytest.raises(InvalidData, match="unseen at fit time:\n- calls2\n"):
            call(frame(X, ["age", "fee", "calls2"]))
    np.testing.assert_array_equal(model.theta, before)


def test_names_on_one_side_only_are_a_warning() -> None:
    frame = pd.DataFrame(X, columns=NAMES)
    with pytest.warns(UserWarning, match="X does not have valid feature names, but LinearModel"):
        LinearModel().fit(frame, Y).predict(X)
    with pytest.warns(UserWarning, match="fitted without feature names") as caught:
        LinearModel().fit(X, Y).predict(frame)
    assert caught[0].filename == __file__


def test_a_second_fit_forgets_the_names_of_the_first() -> None:
    model = LinearModel().fit(pd.DataFrame(X, columns=NAMES), Y).fit(X, Y)
    assert not hasattr(model, "feature_names_in_")


def test_frames_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(InvalidData, match="but 1 is not; make them all text"):
        LinearModel().fit(pd.DataFrame(X, columns=["a", 1, "b"]), Y)
    text = pd.DataFrame({"a": ["x"] * 40, "b": Y})
    with pytest.raises(InvalidData, match=r"X is not an array of numbers: .*'x'"):
        LinearModel().fit(text, Y)
    holes = pd.DataFrame(X, columns=NAMES)
    holes.iloc[3, 1] = None
    with pytest.raises(InvalidData, match=r"row 3 is not a finite number \(NaN\)"):
        LinearModel().fit(holes, Y)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("form", ["csr_array", "csr_matrix", "csc_array", "coo_array"])
def test_a_sparse_matrix_gives_what_the_array_gives(kind: Model, form: str) -> None:
    dense = np.where(np.random.default_rng(1).random((40, 3)) < 0.5, X, 0.0)
    given = getattr(sparse, form)(dense)
    model, other = kind().fit(given, Y), kind().fit(dense, Y)
    np.testing.assert_array_equal(model.theta, other.theta)
    assert model.predict(given) == pytest.approx(other.predict(dense), rel=1e-12)
    for one, rows in ((model, given), (other, dense)):
        one.delete(["3"])
        one.insert(rows, Y, [f"n{i}" for i in range(40)])
    np.testing.assert_array_equal(model.theta, other.theta)
    given.data[0] = np.nan
    with pytest.raises(InvalidData, match="not a finite number"):
        model.predict(given)
    with pytest.raises(InvalidData, match=r"X has 2 features, but .* is expecting 3"):
        model.predict(sparse.csr_array(dense[:, :2]))


def test_sparse_rows_stay_sparse_in_a_prediction() -> None:
    rows = sparse.csr_array(([1.0], ([0], [1])), shape=(2, 3))
    model = LinearModel(fit_intercept=False).fit(X, Y)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(rows), "toarray", lambda *_: pytest.fail("made dense"))
        np.testing.assert_array_equal(model.predict(rows), [model.theta[1], 0.0])
