"""Pipelines whose transformers learn nothing, against the same fitted to the rows that remain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer, make_column_transformer as beside
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    SplineTransformer,
    StandardScaler,
)

from lethe import LinearModel, LogisticModel
from lethe.engine.conversion import Nature, natures
from lethe.engine.errors import InvalidData
from lethe.engine.preprocess.input.columns import Dropped, GivenColumns, Numeric, OneHot
from lethe.engine.preprocess.input.derived import Product, Same

N = 80
_RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "a": _RNG.standard_normal(N),
        "b": _RNG.uniform(1, 3, N),
        "town": _RNG.choice(["x", "y"], N),
        "id": np.arange(N),
        "gaps": np.where(_RNG.random(N) < 0.2, np.nan, _RNG.random(N)),
        "kind": np.array(["p", "q", None])[_RNG.integers(0, 3, N)],
    }
)
ARRAY = FRAME[["a", "b"]].to_numpy()
Y = (FRAME["a"] ** 2 + FRAME["b"] + _RNG.standard_normal(N)).to_numpy()

_SCALE = StandardScaler()
_POLYNOMIAL = PolynomialFeatures(2)
_CONSTANT = SimpleImputer(strategy="constant", fill_value=-1, add_indicator=True)
_FOURIER = RBFSampler(gamma=0.7, n_components=5, random_state=1)
_SPLINES = SplineTransformer(knots=np.array([[-1.0, 1.0], [0.0, 2.5], [0.5, 3.0]]))
_INNER = np.array([[-1.0, 1.5], [0.0, 2.0], [0.5, 2.2]])
_CIRCLE = np.array([[-1.0, 1.0], [-0.9, 1.5], [0.0, 1.75], [0.5, 2.0]])
_SPLINES_OF_A_CIRCLE = SplineTransformer(degree=3, knots=_CIRCLE, extrapolation="periodic")
_WORD = SimpleImputer(strategy="constant", fill_value="none")

ACCEPTED: dict[str, tuple[Any, Any]] = {
    "products, then scaled": (make_pipeline(_POLYNOMIAL, _SCALE), ARRAY),
    "powers of degree 2 and 3": (PolynomialFeatures((2, 3), include_bias=False), ARRAY),
    "interactions": (PolynomialFeatures(2, interaction_only=True), ARRAY),
    "a function": (make_pipeline(FunctionTransformer(np.log1p), _SCALE), FRAME[["b"]]),
    "a function, then a mean": (
        make_pipeline(FunctionTransformer(np.sqrt), SimpleImputer(), _SCALE),
        FRAME[["gaps"]],
    ),
    "a part of the columns": (
        beside(
            (make_pipeline(_POLYNOMIAL, _SCALE), ["a", "b"]),
            (OneHotEncoder(), ["town"]),
            (make_pipeline(SimpleImputer(), _SCALE), ["gaps"]),
        ),
        FRAME,
    ),
    "one column three times": (
        beside(
            (_SCALE, ["a"]), (FunctionTransformer(np.square), ["a"]), ("passthrough", ["a", "b"])
        ),
        FRAME,
    ),
    "a category twice": (
        beside((OrdinalEncoder(), ["town"]), (OneHotEncoder(), ["town"])),
        FRAME,
    ),
    "a slice of names": (beside((_SCALE, slice("a", "b"))), FRAME),
    "a mask and the rest": (beside((_SCALE, [True, False]), remainder="passthrough"), ARRAY),
    "columns of an array dropped": (beside((_SCALE, [1])), ARRAY),
    "weights": (
        ColumnTransformer(
            [("p", _POLYNOMIAL, ["a", "b"]), ("g", SimpleImputer(), ["gaps"])],
            transformer_weights={"p": 0.5, "g": 3},
        ),
        FRAME,
    ),
    "a union": (
        make_union(_SCALE, _POLYNOMIAL, make_pipeline(Binarizer(threshold=0.2), _SCALE)),
        ARRAY,
    ),
    "norms": (make_union(Normalizer("l1"), Normalizer("l2"), Normalizer("max")), ARRAY),
    "given values and indicators": (
        beside(
            (make_pipeline(_CONSTANT, _POLYNOMIAL, _SCALE), ["gaps"]),
            (SimpleImputer(add_indicator=True), ["gaps", "a"]),
            (MissingIndicator(), ["gaps"]),
        ),
        FRAME,
    ),
    "random Fourier features": (make_union(_FOURIER, make_pipeline(_FOURIER, _SCALE)), ARRAY),
    "Fourier features of products": (make_pipeline(_POLYNOMIAL, _FOURIER), FRAME[["a", "b"]]),
    "splines": (make_pipeline(_SPLINES, _SCALE), ARRAY),
    "splines of a degree, without the last": (
        SplineTransformer(degree=1, knots=[[0.0], [0.5], [0.6]], include_bias=False),
        FRAME[["b"]],
    ),
    "periodic splines": (make_pipeline(_SPLINES_OF_A_CIRCLE, _SCALE), ARRAY),
    "periodic splines, without the last": (
        SplineTransformer(
            degree=2,
            knots=_CIRCLE,
            extrapolation="periodic",
            include_bias=False,
            sparse_output=True,
        ),
        ARRAY,
    ),
    "splines with tangents": (SplineTransformer(knots=_INNER, extrapolation="linear"), ARRAY),
    "lines that go on": (
        SplineTransformer(degree=1, knots=_INNER[:, 1:], extrapolation="linear"),
        FRAME[["b"]],
    ),
    "splines that continue": (
        SplineTransformer(degree=2, knots=_INNER, extrapolation="continue"),
        ARRAY,
    ),
    "a given category": (beside((make_pipeline(_WORD, OneHotEncoder()), ["kind"])), FRAME),
    "columns within columns": (
        beside(
            (beside((_POLYNOMIAL, ["a"]), (_SCALE, ["a"]), remainder="passthrough"), ["b", "a"])
        ),
        FRAME,
    ),
    "columns after columns": (
        make_pipeline(
            beside((_POLYNOMIAL, [0]), remainder="passthrough"),
            beside((_SCALE, [1, 2]), (FunctionTransformer(np.exp), [-1])),
        ),
        ARRAY,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_learns_nothing_is_computed_and_forgets_as_a_refit_does(name: str) -> None:
    transformer, X = ACCEPTED[name]
    pipeline = make_pipeline(clone(transformer), Ridge()).fit(X, Y)
    model = LinearModel.from_sklearn(pipeline, X, Y)
    model.delete([str(i) for i in range(9)], method="exact")
    truth = clone(pipeline).fit(X[9:], Y[9:]).predict(X)
    np.testing.assert_allclose(model.predict(X), truth, rtol=1e-9)
    np.testing.assert_allclose(model.to_sklearn().predict(X), truth, rtol=1e-9)


def test_rows_are_inserted_and_corrected_as_the_table_has_them() -> None:
    pipeline = make_pipeline(*ACCEPTED["a part of the columns"][:1], Ridge()).fit(FRAME, Y)
    model = LinearModel.from_sklearn(pipeline, FRAME, Y)
    model.insert(FRAME[:3], Y[:3] + 1.0, ids=["n0", "n1", "n2"], method="exact")
    model.correct(FRAME[10:12], Y[3:5], ids=["5", "6"], method="exact")
    kept = np.setdiff1d(np.arange(N), [5, 6])
    rows = np.concatenate([kept, [0, 1, 2], [10, 11]])
    y = np.concatenate([Y[kept], Y[:3] + 1.0, Y[3:5]])
    truth = clone(pipeline).fit(FRAME.iloc[rows], y).predict(FRAME)
    np.testing.assert_allclose(model.predict(FRAME), truth, rtol=1e-9)


def test_a_logistic_model_computes_columns_too() -> None:
    labels = np.greater(Y, np.median(Y)).astype(int)
    pipeline = make_pipeline(_POLYNOMIAL, _SCALE, LogisticRegression(tol=1e-12, max_iter=10_000))
    model = LogisticModel.from_sklearn(pipeline.fit(ARRAY, labels), ARRAY, labels)
    model.delete(["3", "8"])
    model.refresh("rebuild")
    kept = np.setdiff1d(np.arange(N), [3, 8])
    truth = clone(pipeline).fit(ARRAY[kept], labels[kept]).predict_proba(ARRAY)
    np.testing.assert_allclose(model.predict_proba(ARRAY), truth, atol=1e-6)


@pytest.mark.parametrize(
    ("transformer", "X", "message"),
    [
        (
            make_pipeline(_SCALE, _POLYNOMIAL),
            ARRAY,
            "column 0, PolynomialFeatures: it comes after StandardScaler, .* put it before",
        ),
        (
            make_pipeline(SimpleImputer(), _POLYNOMIAL),
            FRAME[["gaps"]],
            "column 'gaps', PolynomialFeatures: it comes after SimpleImputer",
        ),
        (make_pipeline(_SCALE, _FOURIER), ARRAY, "RBFSampler: it comes after StandardScaler"),
        (RBFSampler(gamma="scale"), ARRAY, "gamma='scale' learns .*; give it as a number"),
        (SplineTransformer(), ARRAY, "column 0, SplineTransformer: knots='uniform' learns .*array"),
        (SplineTransformer(knots="quantile"), ARRAY, "knots='quantile' learns the knots"),
        (
            SplineTransformer(extrapolation="periodic"),
            ARRAY,
            "column 0, SplineTransformer: knots='uniform' learns .*array",
        ),
        (
            SplineTransformer(knots=[[-9.0], [9.0]], extrapolation="error"),
            ARRAY[:, :1],
            "extrapolation='error' has no value beyond the knots; fit it with 'constant'",
        ),
        (
            SplineTransformer(degree=1, knots=_INNER, extrapolation="linear"),
            ARRAY,
            "SplineTransformer: with degree=1, .* after the first; fit it with 'continue'",
        ),
        (SplineTransformer(degree=0, knots=[[-9.0], [9.0]]), ARRAY[:, :1], "degree=0 has steps"),
        (KBinsDiscretizer(3), ARRAY, "KBinsDiscretizer: it learns its edges from rows; fit a Bin"),
        (Nystroem(n_components=4), ARRAY, "Nystroem: it keeps rows .*; fit RBFSampler"),
        (FunctionTransformer(lambda x: x + 1), ARRAY, "func=<function .*has no name.*numpy.log1p"),
        (FunctionTransformer(np.square, kw_args={"dtype": float}), ARRAY, "kw_args=.* changes"),
        (
            ColumnTransformer([("p", _SCALE, [0])], transformer_weights={"p": 0.5}),
            ARRAY,
            "column 0, ColumnTransformer: transformer_weights=.* what StandardScaler makes",
        ),
        (
            make_pipeline(OneHotEncoder(sparse_output=False), beside((_SCALE, [0]))),
            FRAME[["town"]],
            "column 'town', ColumnTransformer: it takes 2 columns that OneHotEncoder made",
        ),
    ],
)
def test_what_cannot_be_computed_before_the_statistics_is_refused(
    transformer: Any, X: Any, message: str
) -> None:
    pipeline = make_pipeline(transformer, Ridge()).fit(X, Y)
    with pytest.raises(InvalidData, match=message):
        LinearModel.from_sklearn(pipeline, X, Y)


def test_a_function_beside_its_domain_is_refused_by_row_and_nothing_changes() -> None:
    pipeline = make_pipeline(FunctionTransformer(np.log), Ridge()).fit(ARRAY[:, [1]], Y)
    model = LinearModel.from_sklearn(pipeline, ARRAY[:, [1]], Y)
    with pytest.raises(InvalidData, match=r"column 'log\(x0\)': .* not a finite number in row 1"):
        model.insert([[1.0], [-1.0]], [1.0, 2.0], ids=["n0", "n1"])
    assert len(model.live_ids) == N


def test_of_what_is_kept_the_steps_that_need_no_fit_are_stateless() -> None:
    columns = beside((HashingVectorizer(n_features=4), "town"), (_SCALE, ["a"]), (_FOURIER, ["b"]))
    X = FRAME[["town", "a", "b"]]
    pipeline = make_pipeline(columns, Ridge()).fit(X, Y)
    assert [step.nature for step in natures(pipeline, freeze=True)] == [
        Nature.STATELESS, Nature.FROZEN, Nature.STATELESS
    ]  # fmt: skip
    assert [step.nature for step in natures(pipeline)] == [
        Nature.REFUSED, Nature.INSIDE, Nature.STATELESS
    ]  # fmt: skip
    learnt = make_pipeline(SplineTransformer(), Ridge()).fit(ARRAY, Y)
    assert [step.nature for step in natures(learnt, freeze=True)] == [Nature.FROZEN]
    with pytest.raises(InvalidData, match=r"HashingVectorizer: it learns nothing, but .* --freeze"):
        LinearModel.from_sklearn(pipeline, X, Y)


def test_columns_are_computed_by_hand_as_well() -> None:
    columns: GivenColumns = {
        "a": Numeric(),
        "a squared": Numeric(of=Product({"a": 2})),
        "town": OneHot(),
        "again": OneHot(of=Same("town")),
        **{name: Dropped() for name in ("id", "gaps", "kind", "b")},
    }
    model = LinearModel(preprocess=columns).fit(FRAME, Y)
    assert model.n_features_in_ == 2
    assert model.feature_names_in_.tolist() == ["a", "town"]
    assert model.theta.shape == (6,)


class Chosen(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A transformer of somebody's own, which does not say how many columns it was fitted to."""

    def fit(self, X: Any, y: Any = None) -> Chosen:
        """Learn nothing."""
        del X, y
        self.fitted_ = True
        return self

    def transform(self, X: Any) -> Any:
        """Return one column."""
        return np.asarray(X)[:, [0]]


def test_a_class_of_somebodys_own_in_a_union_is_refused_by_name() -> None:
    united = make_union(make_pipeline(Chosen(), _SCALE), _SCALE)
    pipeline = make_pipeline(united, Ridge()).fit(FRAME[["a", "b"]], Y)
    with pytest.raises(InvalidData, match=r"'chosen', column 0, Chosen: a model has"):
        LinearModel.from_sklearn(pipeline, FRAME[["a", "b"]], Y)
