"""Settings that no parameter shows: weights, other rows, kinds of tables, what is no model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, PolynomialFeatures, StandardScaler

from tests.proof.conversions.setting import TABLES, TARGETS, N, Offence, Rows, Setting, fitted

_RNG = np.random.default_rng(5)
WEIGHTS = _RNG.uniform(0.2, 3.0, N)

Fit = Callable[[Any, Any, NDArray[Any], Rows], Any]


class OtherRidge(Ridge):  # type: ignore[misc]  # scikit-learn has no types
    """A subclass, which may minimise anything."""


class OtherScaler(StandardScaler):  # type: ignore[misc]
    """A subclass, which may compute anything."""


class OtherPipeline(Pipeline):  # type: ignore[misc]
    """A subclass, which may do anything."""


def weighing(**routes: str) -> Fit:
    """Return what fits with row weights, given under other names."""

    def fit(estimator: Any, X: Any, y: NDArray[Any], rows: Rows) -> Any:
        return clone(estimator).fit(X, y, **dict.fromkeys(routes.values(), WEIGHTS[rows]))

    return fit


def routed(fit: Fit) -> Fit:
    """Return what fits with scikit-learn's metadata routing."""

    def enabled(estimator: Any, X: Any, y: NDArray[Any], rows: Rows) -> Any:
        with config_context(enable_metadata_routing=True):
            return fit(estimator, X, y, rows)

    return enabled


def weights() -> Iterator[Setting]:
    """Yield estimators whose rows have weights."""
    bare, step, scaler = (
        weighing(to="sample_weight"),
        weighing(to="model__sample_weight"),
        weighing(to="scale__sample_weight"),
    )
    for linear, estimator, target in (
        (True, Ridge(), "number"),
        (True, RidgeClassifier(), "two words"),
        (False, LogisticRegression(), "two words"),
    ):
        yield _of(linear, estimator, "numbers", target, fit=bare, weights=WEIGHTS)
        pipeline = Pipeline([("scale", StandardScaler()), ("model", estimator)])
        yield _of(linear, pipeline, "numbers", target, fit=step, weights=WEIGHTS)
        learnt: Offence = ("feature '0'", "without weights for its transformers")
        yield _of(linear, pipeline, "numbers", target, learnt, fit=scaler)
    with config_context(enable_metadata_routing=True):
        asks = StandardScaler().set_fit_request(sample_weight=True)
        alias = StandardScaler().set_fit_request(sample_weight="w")
        never = StandardScaler().set_fit_request(sample_weight=False)
        ridge = Ridge().set_fit_request(sample_weight=True)
    both = weighing(to="sample_weight", w="w")
    named: list[tuple[Any, Fit, Offence]] = [
        (asks, bare, ("'scale'", "StandardScaler: it asks for sample_weight")),
        (alias, both, ("'scale'", "StandardScaler: it asks for sample_weight")),
        (make_pipeline(asks), bare, ("'scale' > 'standardscaler'", "asks for sample_weight")),
        (
            ColumnTransformer([("all", asks, [0, 1, 2, 3])]),
            bare,
            ("'scale' > 'all'", "column 0", "asks for sample_weight"),
        ),
    ]
    for transformer, fit, pieces in named:
        pipeline = Pipeline([("scale", transformer), ("model", clone(ridge))])
        yield _of(True, pipeline, "numbers", "number", pieces, fit=routed(fit))
    pipeline = Pipeline([("scale", never), ("model", clone(ridge))])
    yield _of(True, pipeline, "numbers", "number", fit=routed(bare), weights=WEIGHTS)
    handed = Pipeline([("scale", StandardScaler()), ("model", Ridge())], transform_input=["X_val"])
    pieces = ("Pipeline: transform_input=['X_val']",)
    yield _of(True, handed, "numbers", "number", pieces, fit=routed(fitted))


def other_rows() -> Iterator[Setting]:
    """Yield pipelines whose transformers were fitted otherwise than their parameters say."""

    def on_fewer(estimator: Any, X: Any, y: NDArray[Any], _: Rows) -> Any:
        return clone(estimator).fit(X[3:], y[3:])

    def and_more(estimator: Any, X: Any, y: NDArray[Any], _: Rows) -> Any:
        pipeline = clone(estimator).fit(X, y)
        pipeline[0].partial_fit(X[:10] + 1.0)
        return pipeline

    def and_set(estimator: Any, X: Any, y: NDArray[Any], _: Rows) -> Any:
        unscaled = clone(estimator).set_params(standardscaler__with_std=False).fit(X, y)
        return unscaled.set_params(standardscaler__with_std=True)

    def not_at_all(estimator: Any, *_: Any) -> Any:
        return clone(estimator)

    def the_class(estimator: Any, *_: Any) -> Any:
        return type(estimator)

    scaled = make_pipeline(StandardScaler(), Ridge())
    for fit in (on_fewer, and_more):
        yield _of(True, scaled, "numbers", "number", ("feature '0'", "rows given"), fit=fit)
    yield _of(True, scaled, "numbers", "number", ("the Pipeline refuses X",), fit=and_set)
    hot = make_pipeline(OneHotEncoder(), Ridge())
    TABLES["town"] = TABLES["frame"][["town"]]
    yield _of(True, hot, "town", "number", ("the rows that it was fitted on",), fit=on_fewer)
    lenient = make_pipeline(OneHotEncoder(handle_unknown="ignore"), Ridge())
    yield _of(True, lenient, "town", "number", ("the rows that it was fitted on",), fit=on_fewer)
    for estimator in (Ridge(), scaled, LogisticRegression()):
        linear = not isinstance(estimator, LogisticRegression)
        missing: Offence = ("is not fitted",)
        yield _of(linear, estimator, "numbers", "two integers", missing, fit=not_at_all)
        yield _of(linear, estimator, "numbers", "two integers", ("is a class",), fit=the_class)


def tables() -> Iterator[Setting]:
    """Yield kinds of tables, and of values in them."""
    numbers, frame = TABLES["numbers"], TABLES["frame"]
    TABLES["sparse"] = csr_array(np.where(numbers > 1, numbers, 0.0))
    TABLES["single"] = numbers.astype(np.float32)
    for estimator in (Ridge(solver="sparse_cg"), Ridge(fit_intercept=False), Ridge()):
        yield _of(True, estimator, "sparse", "number")
        yield _of(True, estimator, "single", "number")
    yield _of(False, LogisticRegression(), "sparse", "two words")
    for table in ("single", "integers", "named"):
        yield _of(True, make_pipeline(StandardScaler(), Ridge()), table, "number")
    pandas = make_pipeline(StandardScaler(), Ridge()).set_output(transform="pandas")
    yield _of(True, pandas, "named", "number")

    words = frame["town"].to_numpy(dtype=object)
    gaps = {"NaN": np.nan, "None": None, "NA": pd.NA}
    first = _RNG.random(N) < 0.3
    for name, missing in gaps.items():
        column = words.copy()
        column[first] = missing
        for dtype in ("str", "string", "category", "object"):
            table = f"{name} as {dtype}"
            TABLES[table] = pd.DataFrame({"town": pd.Series(column, dtype=dtype)})
            # "pandas.NA is not supported" by scikit-learn's encoders of text.
            if dtype != "string" and not (name == "NA" and dtype == "object"):
                yield _of(True, make_pipeline(OneHotEncoder(), Ridge()), table, "number")
    both = words.copy()
    both[first] = np.nan
    both[::7] = None
    TABLES["both"] = both.reshape(-1, 1)
    two_kinds: Offence = ("'onehotencoder', column 0, OneHotEncoder: ", "None and NaN")
    yield _of(True, make_pipeline(OneHotEncoder(), Ridge()), "both", "number", two_kinds)

    grades = frame["grade"].astype("Float64").mask(first)
    TABLES["masked"] = pd.DataFrame({"grade": grades})
    TABLES["gaps"] = pd.DataFrame({"grade": grades.to_numpy(dtype=float, na_value=np.nan)})
    for table in ("masked", "gaps"):
        yield _of(True, make_pipeline(SimpleImputer(), Ridge()), table, "number")
    yield _of(True, make_pipeline(OneHotEncoder(), Ridge()), "gaps", "number")
    ordinal = make_pipeline(OrdinalEncoder(encoded_missing_value=-1), Ridge())
    unnumbered = ("column 'grade'", "OrdinalEncoder: encoded_missing_value=-1")
    yield _of(True, ordinal, "gaps", "number", unnumbered)

    # What is left of a column after the first three rows: nothing, one value, or neighbours.
    odd = np.column_stack([numbers[:, 0], np.full((N, 3), np.nan)])
    odd[:3, 1], odd[:, 2], odd[:3, 2] = [1.0, 2.0, 4.0], 7.0, [1.0, 2.0, 3.0]
    odd[:, 3] = 1.7e9 + 1e7 * _RNG.standard_normal(N)
    TABLES["odd"] = pd.DataFrame(odd, columns=list("abcd"))
    for keep in (False, True):
        transformer = make_column_transformer(
            (SimpleImputer(keep_empty_features=keep), ["b"]),
            (StandardScaler(), ["c", "a", "d"]),
        )
        yield _of(True, make_pipeline(transformer, Ridge()), "odd", "number")


def dropped() -> Iterator[Setting]:
    """Yield pipelines that drop columns, and others that take one twice or none."""
    TABLES["more"] = TABLES["frame"][["income", "town", "score"]]
    scaled = ("scaled", StandardScaler(), ["score", "income"])
    for transformer in (
        ColumnTransformer([scaled]),
        ColumnTransformer([scaled, ("gone", "drop", ["town"])]),
        ColumnTransformer([scaled, ("again", "passthrough", ["income"])]),
    ):
        pipeline = Pipeline([("columns", transformer), ("model", Ridge())])
        yield _of(True, pipeline, "more", "number")
        yield _of(True, pipeline, "more", "number", learnt_from=_numbers_of)
    array = Pipeline([("columns", ColumnTransformer([("a", StandardScaler(), [3, 0])])),
                      ("model", Ridge())])  # fmt: skip
    yield _of(True, array, "numbers", "number")
    nothing = ColumnTransformer([scaled, ("none", OneHotEncoder(), [])])
    pipeline = Pipeline([("columns", nothing), ("model", Ridge())])
    yield _of(True, pipeline, "more", "number", learnt_from=_numbers_of)


def _numbers_of(frame: Any) -> Any:
    return frame[["income", "score"]]


def no_models() -> Iterator[Setting]:
    """Yield pipelines that are put together in other ways."""
    scaler, ridge = StandardScaler(), Ridge()
    first = ColumnTransformer([("b", "passthrough", [1, 0]), ("a", SimpleImputer(), [2, 3])])
    for turn in ((first, scaler), (scaler, first)):
        yield _of(True, make_pipeline(*turn, ridge), "numbers", "number")
    for steps, pieces in (
        ([], ("Pipeline: it has no step",)),
        ([("a", scaler)], ("step 'a', StandardScaler: ",)),
        ([("a", scaler), ("b", "passthrough")], ("Pipeline: it ends in no estimator",)),
        ([("a", OtherScaler()), ("b", ridge)], ("step 'a', column 0, OtherScaler: ",)),
        ([("a", scaler), ("b", OtherRidge())], ("step 'b', OtherRidge: ",)),
        ([("a", scaler), ("b", GridSearchCV(ridge, {"alpha": [1.0]}))], ("'b', GridSearchCV: ",)),
        ([("a", scaler), ("b", StandardScaler()), ("c", ridge)], ("step 'b', column 0", "after")),
        (
            [("a", scaler), ("b", PolynomialFeatures()), ("c", ridge)],
            ("'b', column 0", "after Sta"),
        ),
    ):
        yield _of(True, Pipeline(steps), "numbers", "number", pieces, fit=_if_it_has_steps)
    yield _of(True, OtherRidge(), "numbers", "number", ("OtherRidge: ",))
    other = OtherPipeline([("a", scaler), ("b", ridge)])
    yield _of(True, other, "numbers", "number", ("OtherPipeline: ",))
    hot = make_pipeline(OneHotEncoder(sparse_output=False), scaler, ridge)
    yield _of(True, hot, "town", "number")
    several = (TARGETS["two numbers"] > 0).astype(int)
    TARGETS["several labels"] = several
    labels = ("several labels each",)
    yield _of(True, RidgeClassifier(), "numbers", "several labels", labels)
    each = OneVsRestClassifier(LogisticRegression())
    yield _of(False, each, "numbers", "several labels", labels)


def _if_it_has_steps(estimator: Any, X: Any, y: NDArray[Any], rows: Rows) -> Any:
    return fitted(estimator, X, y, rows) if estimator.steps else estimator


def _of(
    linear: bool,
    estimator: Any,
    table: str,
    target: str,
    offence: Offence = (),
    **more: Any,
) -> Setting:
    offences = (offence,) if offence else ()
    return Setting("special", linear, estimator, table, target, offences, **more)


def settings() -> Iterator[Setting]:
    """Yield all of them."""
    for part in (weights, other_rows, tables, dropped, no_models):
        yield from part()
