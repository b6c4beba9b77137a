"""Pipelines as practitioners build them: the structure of each, and where it is from.

Of scikit-learn's examples and user guide by their names; ``public`` is public code on GitHub, as it
was found by searching for how such code begins (``ColumnTransformer(transformers=[``,
``StandardScaler(), LogisticRegression(`` and others). The names of columns and the numbers are our
own. What ends in an estimator without a ridge penalty (trees, ``LinearRegression``) was left out.
When the list was written, 14 of the pipelines were accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
from sklearn.feature_selection import SelectKBest, SelectPercentile, chi2, f_classif
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge, RidgeClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
    TargetEncoder,
)

from tests.proof.pipelines.table import (
    CATEGORIES,
    COUNT,
    LEFT,
    NUMBERS,
    SEGMENT,
    TEXT,
    VALUE,
    WHOLE,
    YES_NO,
)

ALL_CATEGORIES = [*CATEGORIES, *YES_NO]
TIGHT = {"tol": 1e-9, "max_iter": 10_000}


@dataclass(frozen=True, slots=True)
class Entry:
    """A pipeline of the corpus.

    Attributes
    ----------
    name, source
        What it is, and where its structure is from.
    make
        Returns it, not fitted.
    columns, target
        The columns of the table that it is given, and what it is to predict.
    """

    name: str
    source: str
    make: Callable[[], Any]
    columns: Sequence[str]
    target: str


def _logistic(**given: Any) -> LogisticRegression:
    return LogisticRegression(**{**TIGHT, **given})


def _mixed(numbers: Any, categories: Any, **given: Any) -> ColumnTransformer:
    transformers = [("num", numbers, NUMBERS), ("cat", categories, CATEGORIES)]
    return ColumnTransformer(transformers, **given)


def _imputed(strategy: str, *more: Any) -> Pipeline:
    return make_pipeline(SimpleImputer(strategy=strategy), *more)


def _frequent_one_hot(**given: Any) -> Pipeline:
    return make_pipeline(
        SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore", **given)
    )


def _ignoring(**given: Any) -> OneHotEncoder:
    return OneHotEncoder(handle_unknown="ignore", **given)


_MIXED = [*NUMBERS, *CATEGORIES]
_EVERY = [*NUMBERS, *ALL_CATEGORIES]

FIRST: tuple[Entry, ...] = (
    Entry(
        "scaled ridge", "scikit-learn: plot_ridge_path; public",
        lambda: make_pipeline(StandardScaler(), Ridge(alpha=1.0)), WHOLE, VALUE,
    ),
    Entry(
        "scaled ridge, strong", "public",
        lambda: make_pipeline(StandardScaler(), Ridge(alpha=1000.0)), WHOLE, VALUE,
    ),
    Entry(
        "imputed by the median, scaled ridge", "public",
        lambda: make_pipeline(SimpleImputer(strategy="median"), StandardScaler(), Ridge()),
        NUMBERS, VALUE,
    ),
    Entry(
        "scaled logistic", "scikit-learn: user guide, composing estimators; public",
        lambda: make_pipeline(StandardScaler(), _logistic()), WHOLE, LEFT,
    ),
    Entry(
        "scaled logistic, C", "public",
        lambda: make_pipeline(StandardScaler(), _logistic(C=0.25)), WHOLE, LEFT,
    ),
    Entry(
        "scaled logistic, balanced", "public",
        lambda: make_pipeline(StandardScaler(), _logistic(class_weight="balanced")), WHOLE, LEFT,
    ),
    Entry(
        "imputed, scaled, balanced, liblinear", "public",
        lambda: make_pipeline(
            SimpleImputer(strategy="median"), StandardScaler(),
            LogisticRegression(class_weight="balanced", solver="liblinear", tol=1e-9),
        ),
        NUMBERS, LEFT,
    ),
    Entry(
        "imputed by the mean, scaled logistic", "public",
        lambda: Pipeline(
            [("imputer", SimpleImputer()), ("scaler", StandardScaler()), ("clf", _logistic())]
        ),
        NUMBERS, LEFT,
    ),
    Entry(
        "mixed types, median", "scikit-learn: plot_column_transformer_mixed_types",
        lambda: make_pipeline(
            _mixed(
                _imputed("median", StandardScaler()),
                make_pipeline(_ignoring(), SelectPercentile(chi2, percentile=50)),
            ),
            _logistic(),
        ),
        _MIXED, LEFT,
    ),
    Entry(
        "mixed types, mean", "public: titanic",
        lambda: make_pipeline(_mixed(_imputed("mean", StandardScaler()), _ignoring()), _logistic()),
        _MIXED, LEFT,
    ),
    Entry(
        "mixed types, mean and most frequent", "public",
        lambda: make_pipeline(
            _mixed(_imputed("mean", StandardScaler()), _frequent_one_hot()), _logistic()
        ),
        _MIXED, LEFT,
    ),
    Entry(
        "mixed types, median and most frequent", "public",
        lambda: make_pipeline(
            _mixed(_imputed("median", StandardScaler()), _frequent_one_hot()), _logistic()
        ),
        _MIXED, LEFT,
    ),
    Entry(
        "mixed types, median and most frequent, ridge", "public: salaries",
        lambda: make_pipeline(
            _mixed(_imputed("median", StandardScaler()), _frequent_one_hot()), Ridge()
        ),
        _MIXED, VALUE,
    ),
    Entry(
        "mixed types, constant category", "scikit-learn: user guide; public",
        lambda: make_pipeline(
            _mixed(
                _imputed("mean", StandardScaler()),
                make_pipeline(
                    SimpleImputer(strategy="constant", fill_value="missing"), _ignoring()
                ),
            ),
            _logistic(),
        ),
        _MIXED, LEFT,
    ),
    Entry(
        "scaled, then imputed with an indicator", "public; scikit-learn MOOC",
        lambda: make_pipeline(
            make_column_transformer(
                (make_pipeline(StandardScaler(), SimpleImputer(add_indicator=True)), NUMBERS),
                (_ignoring(), CATEGORIES),
            ),
            _logistic(),
        ),
        _MIXED, LEFT,
    ),
    Entry(
        "one-hot, first dropped, remainder passed", "public: house prices",
        lambda: make_pipeline(
            ColumnTransformer(
                [("encoder", OneHotEncoder(drop="first"), ALL_CATEGORIES)], remainder="passthrough"
            ),
            Ridge(),
        ),
        [*WHOLE, *ALL_CATEGORIES], VALUE,
    ),
    Entry(
        "one-hot, first dropped, scaled numbers", "public",
        lambda: make_pipeline(
            ColumnTransformer(
                [("cats", make_pipeline(OneHotEncoder(drop="first")), CATEGORIES),
                 ("nums", make_pipeline(StandardScaler()), WHOLE)],
                remainder="passthrough",
            ),
            _logistic(),
        ),
        [*WHOLE, *CATEGORIES], LEFT,
    ),
    Entry(
        "one-hot of two values, one dropped", "scikit-learn: OneHotEncoder",
        lambda: make_pipeline(
            make_column_transformer(
                (OneHotEncoder(drop="if_binary"), ALL_CATEGORIES), (StandardScaler(), WHOLE)
            ),
            _logistic(),
        ),
        [*WHOLE, *ALL_CATEGORIES], LEFT,
    ),
    Entry(
        "one-hot, remainder passed, then all scaled", "public: census",
        lambda: make_pipeline(
            ColumnTransformer(
                [("OneHot", OneHotEncoder(sparse_output=False), CATEGORIES)],
                remainder="passthrough",
            ),
            StandardScaler(), _logistic(),
        ),
        [*WHOLE, *CATEGORIES], LEFT,
    ),
    Entry(
        "one-hot, remainder passed", "public",
        lambda: make_pipeline(
            ColumnTransformer([("cat", _ignoring(), CATEGORIES)], remainder="passthrough"), Ridge()
        ),
        [*WHOLE, *CATEGORIES], VALUE,
    ),
    Entry(
        "one-hot, remainder scaled", "public",
        lambda: make_pipeline(
            make_column_transformer((_ignoring(), CATEGORIES), remainder=StandardScaler()),
            _logistic(),
        ),
        [*WHOLE, *CATEGORIES], LEFT,
    ),
    Entry(
        "columns by their type", "public; scikit-learn: user guide",
        lambda: make_pipeline(
            make_column_transformer(
                (OneHotEncoder(sparse_output=False), make_column_selector(dtype_exclude="number")),
                (StandardScaler(), make_column_selector(dtype_include="number")),
                remainder="passthrough",
            ),
            _logistic(),
        ),
        [*WHOLE, *CATEGORIES], LEFT,
    ),
    Entry(
        "three classes, mixed types", "public: three profiles",
        lambda: make_pipeline(
            ColumnTransformer(
                [("cat", _ignoring(sparse_output=False), CATEGORIES),
                 ("num", StandardScaler(), WHOLE)],
                remainder="drop", verbose_feature_names_out=False,
            ),
            _logistic(),
        ),
        [*WHOLE, *CATEGORIES], SEGMENT,
    ),
    Entry(
        "three classes, scaled", "scikit-learn: iris; public",
        lambda: make_pipeline(StandardScaler(), _logistic()), WHOLE, SEGMENT,
    ),
    Entry(
        "three classes, bare", "scikit-learn: plot_logistic_multinomial",
        _logistic, WHOLE, SEGMENT,
    ),
    Entry(
        "three classes, one against the rest", "scikit-learn: plot_logistic_multinomial",
        lambda: OneVsRestClassifier(_logistic()), WHOLE, SEGMENT,
    ),
    Entry(
        "three classes, scaled, each against the rest", "scikit-learn: user guide, multiclass",
        lambda: make_pipeline(StandardScaler(), OneVsRestClassifier(_logistic())), WHOLE, SEGMENT,
    ),
    Entry("bare logistic", "scikit-learn: user guide", _logistic, WHOLE, LEFT),
    Entry("bare ridge", "scikit-learn: user guide", Ridge, WHOLE, VALUE),
    Entry(
        "ridge classifier", "scikit-learn: text classification",
        lambda: make_pipeline(StandardScaler(), RidgeClassifier()), WHOLE, LEFT,
    ),
    Entry(
        "polynomial ridge", "scikit-learn: plot_polynomial_interpolation; public",
        lambda: make_pipeline(PolynomialFeatures(degree=2), Ridge(alpha=1.0)), WHOLE, VALUE,
    ),
    Entry(
        "polynomial, then scaled", "public",
        lambda: make_pipeline(
            PolynomialFeatures(degree=2, include_bias=False), StandardScaler(), Ridge()
        ),
        WHOLE, VALUE,
    ),
    Entry(
        "scaled, then polynomial", "public",
        lambda: make_pipeline(StandardScaler(), PolynomialFeatures(degree=2), Ridge()),
        WHOLE, VALUE,
    ),
    Entry(
        "imputed, polynomial, scaled", "public",
        lambda: make_pipeline(
            SimpleImputer(), PolynomialFeatures(degree=2), StandardScaler(), Ridge()
        ),
        NUMBERS, VALUE,
    ),
    Entry(
        "splines", "scikit-learn: plot_polynomial_interpolation",
        lambda: make_pipeline(SplineTransformer(n_knots=4, degree=3), Ridge(alpha=1e-3)),
        ["months"], VALUE,
    ),
    Entry(
        "scaled from 0 to 1", "public",
        lambda: make_pipeline(MinMaxScaler(), _logistic()), WHOLE, LEFT,
    ),
    Entry(
        "mixed types, from 0 to 1", "public",
        lambda: make_pipeline(
            ColumnTransformer(
                [("drop_columns", "drop", ["months"]), ("scale", MinMaxScaler(), ["calls"]),
                 ("cat", _ignoring(), CATEGORIES)]
            ),
            Ridge(),
        ),
        [*WHOLE, *CATEGORIES], VALUE,
    ),
    Entry(
        "scaled by the largest", "scikit-learn: sparse data",
        lambda: make_pipeline(MaxAbsScaler(), _logistic()), WHOLE, LEFT,
    ),
    Entry(
        "robustly scaled", "scikit-learn: plot_all_scaling",
        lambda: make_pipeline(RobustScaler(), _logistic()), WHOLE, LEFT,
    ),
    Entry(
        "log, then scaled", "scikit-learn: plot_tweedie_regression_insurance_claims",
        lambda: make_pipeline(
            make_column_transformer(
                (make_pipeline(FunctionTransformer(np.log1p), StandardScaler()), ["calls"]),
                (StandardScaler(), ["months"]),
                (_ignoring(), CATEGORIES),
            ),
            Ridge(),
        ),
        [*WHOLE, *CATEGORIES], VALUE,
    ),
    Entry(
        "claims: bins, one-hot, log, Poisson",
        "scikit-learn: plot_poisson_regression_non_normal_loss",
        lambda: make_pipeline(
            make_column_transformer(
                (KBinsDiscretizer(n_bins=4, encode="onehot", random_state=0), ["months"]),
                (_ignoring(), CATEGORIES),
                (make_pipeline(FunctionTransformer(np.log1p), StandardScaler()), ["calls"]),
                remainder="drop",
            ),
            PoissonRegressor(alpha=1e-3, tol=1e-9, max_iter=10_000),
        ),
        [*WHOLE, *CATEGORIES], COUNT,
    ),
    Entry(
        "Poisson, scaled", "scikit-learn: user guide, generalised linear models",
        lambda: make_pipeline(
            StandardScaler(), PoissonRegressor(alpha=0.1, tol=1e-9, max_iter=10_000)
        ),
        WHOLE, COUNT,
    ),
    Entry(
        "Poisson, bare", "scikit-learn: PoissonRegressor",
        lambda: PoissonRegressor(tol=1e-9, max_iter=10_000), WHOLE, COUNT,
    ),
    Entry(
        "ordered categories and one-hot", "public: resale prices",
        lambda: make_pipeline(
            ColumnTransformer(
                [("num", "passthrough", WHOLE),
                 ("ord", OrdinalEncoder(categories=[["basic", "plus", "pro"]]), ["plan"]),
                 ("nom", _ignoring(sparse_output=False), ["town"])]
            ),
            Ridge(),
        ),
        [*WHOLE, *CATEGORIES], VALUE,
    ),
    Entry(
        "constant category, ordered, scaled", "public",
        lambda: make_pipeline(
            make_column_transformer(
                (_imputed("mean", StandardScaler()), NUMBERS),
                (make_pipeline(
                    SimpleImputer(strategy="constant", fill_value="missing"),
                    OrdinalEncoder(), StandardScaler()), CATEGORIES),
            ),
            Ridge(),
        ),
        _MIXED, VALUE,
    ),
    Entry(
        "target encoded", "scikit-learn: plot_target_encoder",
        lambda: make_pipeline(
            make_column_transformer(
                (TargetEncoder(target_type="continuous", random_state=0), ["town"]),
                (StandardScaler(), WHOLE),
            ),
            Ridge(),
        ),
        [*WHOLE, "town"], VALUE,
    ),
    Entry(
        "rare categories together", "scikit-learn: OneHotEncoder",
        lambda: make_pipeline(
            make_column_transformer(
                (OneHotEncoder(min_frequency=20, handle_unknown="infrequent_if_exist"), CATEGORIES),
                (StandardScaler(), WHOLE),
            ),
            _logistic(),
        ),
        [*WHOLE, *CATEGORIES], LEFT,
    ),
    Entry(
        "constants for gaps", "public: mail and finance",
        lambda: make_pipeline(
            ColumnTransformer(
                [("finance", SimpleImputer(strategy="constant", fill_value=0.0), ["income"]),
                 ("mail", SimpleImputer(strategy="median"), ["age"])],
                remainder="passthrough",
            ),
            StandardScaler(), _logistic(),
        ),
        NUMBERS, LEFT,
    ),
    Entry(
        "principal components", "scikit-learn: plot_digits_pipe",
        lambda: Pipeline(
            [("scaler", StandardScaler()), ("pca", PCA(2)), ("logistic", _logistic())]
        ),
        WHOLE, LEFT,
    ),
    Entry(
        "best features", "scikit-learn: plot_feature_selection_pipeline; public",
        lambda: make_pipeline(StandardScaler(), SelectKBest(f_classif, k=1), _logistic()),
        WHOLE, LEFT,
    ),
    Entry(
        "words", "scikit-learn: grid search for text; public",
        lambda: make_pipeline(
            make_column_transformer((TfidfVectorizer(), TEXT)), _logistic()
        ),
        [TEXT], LEFT,
    ),
    Entry(
        "hashed words", "scikit-learn: plot_hashing_vs_dict_vectorizer",
        lambda: make_pipeline(
            make_column_transformer((HashingVectorizer(n_features=16), TEXT)), Ridge()
        ),
        [TEXT], VALUE,
    ),
    Entry(
        "nearest neighbours for gaps", "public",
        lambda: make_pipeline(KNNImputer(n_neighbors=5), StandardScaler(), Ridge()), NUMBERS, VALUE,
    ),
    Entry(
        "made normal", "scikit-learn: plot_map_data_to_normal",
        lambda: make_pipeline(PowerTransformer(), Ridge()), WHOLE, VALUE,
    ),
    Entry(
        "quantiles", "scikit-learn: plot_all_scaling",
        lambda: make_pipeline(QuantileTransformer(n_quantiles=20), Ridge()), WHOLE, VALUE,
    ),
    Entry(
        "random Fourier features", "scikit-learn: plot_scalable_poly_kernels",
        lambda: make_pipeline(RBFSampler(n_components=8, random_state=0), Ridge()), WHOLE, VALUE,
    ),
    Entry(
        "Nystroem features", "scikit-learn: kernel approximation",
        lambda: make_pipeline(Nystroem(n_components=8, random_state=0), Ridge()), WHOLE, VALUE,
    ),
    Entry(
        "rows of length 1", "scikit-learn: user guide, preprocessing",
        lambda: make_pipeline(Normalizer(), _logistic()), WHOLE, LEFT,
    ),
    Entry(
        "a threshold", "scikit-learn: user guide, preprocessing",
        lambda: make_pipeline(
            make_column_transformer((Binarizer(threshold=3.0), ["calls"]), remainder="passthrough"),
            _logistic(),
        ),
        WHOLE, LEFT,
    ),
    Entry(
        "two views of the same columns", "scikit-learn: plot_feature_union",
        lambda: make_pipeline(
            FeatureUnion([("scaled", StandardScaler()), ("binary", Binarizer(threshold=3.0))]),
            Ridge(),
        ),
        WHOLE, VALUE,
    ),
)  # fmt: skip
"""The first half, which was there before the code that accepts it was finished."""
