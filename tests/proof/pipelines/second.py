"""The second half of the corpus: drawn blind, once, and not changed for what came of it.

Whoever drew it had read neither the engine's code nor the documentation, nor which pipelines of the
first half are accepted. Public code was searched for 49 exact strings: 30 are how a pipeline *ends*
(``("classifier", LogisticRegression(``, ``('model', Ridge(``, ``RidgeClassifier(alpha=``,
``PoissonRegressor(``, ``OneVsRestClassifier(LogisticRegression(``), so that what comes before is as
it is met; 19 are a transformer's, or an example's of a book. Seven searches were by meaning. Each
pipeline that ends in a ridge penalty, and whose structure was not there yet, was taken; to them
were added scikit-learn's examples, its MOOC and the books. ``public: 4286127393`` is a file of
public code on GitHub, by its number in the index that was searched; other names are repositories.

Structures only: the columns and the numbers are our own, tolerances are tight, and steps that draw
have a seed, where they take one. Some sources weigh rows (``sample_weight``), which is no part of a
pipeline: the weights are left out. A text that the source gives to the pipeline as it is, is
selected from our table by a ``ColumnTransformer``, as in the first half.

Of the excerpts seen, about 500, about 400 were skipped (counted roughly): 170 repeat a structure of
the first half or of this one, the scaled logistic regression and the scaled ridge before all; 110
show no pipeline that ends in a model; 75 end without a ridge penalty (trees, ``LinearRegression``,
l1, elastic net, support vectors); 18 end in a search of its own (``RidgeCV``,
``LogisticRegressionCV``); 12 have transformers of other packages (feature_engine, LRGCImputer); 12
do not show their preprocessing; 8 have several targets; 7 resample rows (imbalanced-learn); one
selects by a LassoCV of 0 and 1, and our targets have names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.cluster import KMeans
from sklearn.compose import (
    ColumnTransformer,
    TransformedTargetRegressor,
    make_column_selector,
    make_column_transformer,
)
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomTreesEmbedding
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.feature_selection import (
    SelectKBest,
    SelectPercentile,
    chi2,
    f_classif,
    f_regression,
    mutual_info_regression,
)
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge, RidgeClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neural_network import BernoulliRBM
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
    TargetEncoder,
)

from tests.proof.pipelines.corpus import TIGHT, Entry
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

SMALL = ["age", "calls", "months"]
"""Numbers of one magnitude, for the sources that do not scale: solvers converge."""
ALL_CATEGORIES = [*CATEGORIES, *YES_NO]
IS_NUMBER = make_column_selector(dtype_include="number")
IS_NOT = make_column_selector(dtype_exclude="number")


class GaussianFeatures(BaseEstimator, TransformerMixin):  # type: ignore[misc]
    """Bumps at equal distances, a class of the author's own."""

    def __init__(self, count: int = 8, width: float = 2.0) -> None:
        self.count, self.width = count, width

    def fit(self, X: Any, y: Any = None) -> GaussianFeatures:
        """Put the centres."""
        del y
        values = np.asarray(X, dtype=float)
        self.centres_ = np.linspace(values.min(), values.max(), self.count)
        self.scale_ = self.width * (self.centres_[1] - self.centres_[0])
        return self

    def transform(self, X: Any) -> Any:
        """Return a column for each centre."""
        return np.exp(-0.5 * ((np.asarray(X, dtype=float) - self.centres_) / self.scale_) ** 2)


class Ratios(BaseEstimator, TransformerMixin):  # type: ignore[misc]
    """Columns of the author's own, made from others."""

    def fit(self, X: Any, y: Any = None) -> Ratios:
        """Learn nothing."""
        del y
        self.names_ = list(X.columns)
        return self

    def transform(self, X: Any) -> Any:
        """Return the table with the ratio, without what it is of."""
        made = X.copy()
        made["calls_per_month"] = made["calls"] / made["months"]
        made["log_income"] = np.log1p(made["income"])
        return made.drop(columns=["calls", "income"])


class ColumnSelector(BaseEstimator, TransformerMixin):  # type: ignore[misc]
    """A column of the table, as it was done before there was a ColumnTransformer."""

    def __init__(self, column: Any = None) -> None:
        self.column = column

    def fit(self, X: Any, y: Any = None) -> ColumnSelector:
        """Learn nothing."""
        del y
        self.names_ = list(X.columns)
        return self

    def transform(self, X: Any) -> Any:
        """Return the column's values."""
        return X[self.column].to_numpy()


def _logistic(**given: Any) -> LogisticRegression:
    return LogisticRegression(**{**TIGHT, **given})


def _liblinear(**given: Any) -> LogisticRegression:
    return LogisticRegression(solver="liblinear", **{**TIGHT, **given})


def _poisson(alpha: float, **given: Any) -> PoissonRegressor:
    return PoissonRegressor(alpha=alpha, **{**TIGHT, **given})


def _imputed(strategy: str, *more: Any, **given: Any) -> Pipeline:
    return make_pipeline(SimpleImputer(strategy=strategy, **given), *more)


def _ignoring(**given: Any) -> OneHotEncoder:
    return OneHotEncoder(handle_unknown="ignore", **given)


def _missing() -> SimpleImputer:
    return SimpleImputer(strategy="constant", fill_value="missing")


def _unknown(**given: Any) -> OrdinalEncoder:
    return OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, **given)


def _scaled_and_one_hot(**given: Any) -> ColumnTransformer:
    return ColumnTransformer(
        [("num", StandardScaler(), WHOLE), ("cat", OneHotEncoder(**given), CATEGORIES)]
    )


def _of_text(*steps: Any) -> ColumnTransformer:
    only = steps[0] if len(steps) == 1 else make_pipeline(*steps)
    return ColumnTransformer([("text", only, TEXT)])


_KNOWN = [*WHOLE, *CATEGORIES]
_MIXED = [*NUMBERS, *CATEGORIES]

SECOND: tuple[Entry, ...] = (
    Entry(
        "robustly scaled ridge", "public: 70429742465, 70287108222",
        lambda: make_pipeline(RobustScaler(), Ridge(alpha=10.0)), WHOLE, VALUE,
    ),
    Entry(
        "ridge, scaled by the largest", "public: 62002012849",
        lambda: make_pipeline(MaxAbsScaler(), Ridge(alpha=1.0)), WHOLE, VALUE,
    ),
    Entry(
        "a pipeline of ridge alone", "public: 15120499452",
        lambda: Pipeline([("regressor", Ridge(alpha=1.0))]), WHOLE, VALUE,
    ),
    Entry(
        "scaled ridge, lsqr", "public: 56829002209",
        lambda: make_pipeline(StandardScaler(), Ridge(alpha=10.0, solver="lsqr", tol=1e-13)),
        WHOLE, VALUE,
    ),
    Entry(
        "ridge, scaled by a column transformer", "public: 13714669053",
        lambda: make_pipeline(make_column_transformer((StandardScaler(), WHOLE)), Ridge()),
        WHOLE, VALUE,
    ),
    Entry(
        "ridge, scaled by a column transformer, polynomial",
        "public: Btaykb/regression-models-project",
        lambda: Pipeline(
            [("preprocessor", ColumnTransformer([("num", StandardScaler(), WHOLE)])),
             ("poly", PolynomialFeatures(degree=2, include_bias=False)),
             ("regressor", Ridge(alpha=0.01))]
        ),
        WHOLE, VALUE,
    ),
    Entry(
        "median and indicator, ridge", "public: 3477701604 (DataRobot)",
        lambda: Pipeline(
            [("numeric", ColumnTransformer(
                [("imputer", SimpleImputer(strategy="median", add_indicator=True), IS_NUMBER)])),
             ("model", Ridge())]
        ),
        NUMBERS, VALUE,
    ),
    Entry(
        "median and indicator, scaled ridge", "public: 61471087677",
        lambda: make_pipeline(
            SimpleImputer(strategy="median", add_indicator=True), StandardScaler(), Ridge(alpha=5.0)
        ),
        NUMBERS, VALUE,
    ),
    Entry(
        "zero for gaps, scaled, components, ridge",
        "public: FranktheTank123/UCB-MFE-python-preprogram",
        lambda: Pipeline(
            [("impute", SimpleImputer(missing_values=np.nan, strategy="constant", fill_value=0.0)),
             ("scale", StandardScaler()), ("pca", PCA()), ("model", Ridge())]
        ),
        NUMBERS, VALUE,
    ),
    Entry(
        "zero for gaps, scaled, polynomial, a component, ridge",
        "public: FranktheTank123/UCB-MFE-python-preprogram",
        lambda: Pipeline(
            [("impute", SimpleImputer(missing_values=np.nan, strategy="constant", fill_value=0.0)),
             ("scale", StandardScaler()), ("polynomial", PolynomialFeatures()),
             ("pca", PCA(n_components=1)), ("model", Ridge(alpha=1.0))]
        ),
        NUMBERS, VALUE,
    ),
    Entry(
        "median, scaled, components, polynomial, ridge", "public: 71265414237",
        lambda: make_pipeline(
            SimpleImputer(strategy="median"), StandardScaler(), PCA(n_components=3),
            PolynomialFeatures(degree=2, include_bias=False), Ridge(alpha=100.0),
        ),
        NUMBERS, VALUE,
    ),
    Entry(
        "interactions, then scaled", "public: 43623589452",
        lambda: make_pipeline(
            PolynomialFeatures(degree=2, include_bias=False, interaction_only=True),
            StandardScaler(), Ridge(alpha=1.0),
        ),
        WHOLE, VALUE,
    ),
    Entry(
        "polynomial of degree 4, then scaled", "public: 58832390358, 71347758784",
        lambda: make_pipeline(
            PolynomialFeatures(degree=4, include_bias=False), StandardScaler(), Ridge(alpha=0.001)
        ),
        WHOLE, VALUE,
    ),
    Entry(
        "scaled from 0 to 1, then polynomial", "public: 27944151640",
        lambda: make_pipeline(MinMaxScaler(), PolynomialFeatures(), Ridge()), WHOLE, VALUE,
    ),
    Entry(
        "polynomial, scaled, every feature selected, nested", "public: 4866280081",
        lambda: make_pipeline(
            make_pipeline(
                PolynomialFeatures(2, include_bias=False), StandardScaler(),
                SelectKBest(f_classif, k="all"),
            ),
            Ridge(random_state=0),
        ),
        WHOLE, VALUE,
    ),
    Entry(
        "scaled, best features, ridge", "public: 6516360063",
        lambda: Pipeline(
            [("scaler", StandardScaler()), ("feature_selection", SelectKBest(f_regression, k=1)),
             ("model", Ridge())]
        ),
        WHOLE, VALUE,
    ),
    Entry(
        "scaled, most informative, polynomial, ridge", "public: 39905607618, 37060749939",
        lambda: Pipeline(
            [("scale", StandardScaler()), ("selector", SelectKBest(mutual_info_regression, k=1)),
             ("poly", PolynomialFeatures()), ("model", Ridge())]
        ),
        WHOLE, VALUE,
    ),
    Entry(
        "columns of one's own, median, scaled ridge", "public: 16036330383",
        lambda: Pipeline(
            [("feature_engineer", Ratios()), ("imputer", SimpleImputer(strategy="median")),
             ("scaler", StandardScaler()), ("model", Ridge(alpha=10.0))]
        ),
        NUMBERS, VALUE,
    ),
    Entry(
        "bumps, ridge", "VanderPlas: Python Data Science Handbook, linear regression",
        lambda: make_pipeline(GaussianFeatures(8), Ridge(alpha=0.1)), ["months"], VALUE,
    ),
    Entry(
        "periodic splines", "scikit-learn: plot_polynomial_interpolation",
        lambda: make_pipeline(
            SplineTransformer(
                degree=3, extrapolation="periodic", knots=np.linspace(0.0, 72.0, 6)[:, None]
            ),
            Ridge(alpha=1e-3),
        ),
        ["months"], VALUE,
    ),
    Entry(
        "mixed types, scaled and one-hot, ridge", "public: 55323411363, 54937064087",
        lambda: make_pipeline(_scaled_and_one_hot(handle_unknown="ignore"), Ridge(alpha=1.0)),
        _KNOWN, VALUE,
    ),
    Entry(
        "mixed types, first dropped, unknown ignored, ridge", "public: 55542088299",
        lambda: Pipeline(
            [("preproc", ColumnTransformer(
                [("num", StandardScaler(), WHOLE),
                 ("cat", _ignoring(sparse_output=False, drop="first"), CATEGORIES)],
                remainder="drop")),
             ("reg", Ridge())]
        ),
        _KNOWN, VALUE,
    ),
    Entry(
        "mixed types, categories given", "public: 62168776622",
        lambda: make_pipeline(
            ColumnTransformer(
                [("condition", OneHotEncoder(
                    categories=[["basic", "plus", "pro"]], handle_unknown="error",
                    sparse_output=False), ["plan"]),
                 ("numeric", StandardScaler(), WHOLE)],
                remainder="drop", sparse_threshold=0.0,
            ),
            Ridge(alpha=1.0),
        ),
        [*WHOLE, "plan"], VALUE,
    ),
    Entry(
        "mixed types, then polynomial", "public: 29575151778",
        lambda: Pipeline(
            [("preprocessor", _scaled_and_one_hot(drop="first")),
             ("poly", PolynomialFeatures(degree=2, include_bias=False)),
             ("ridge", Ridge(alpha=1.0))]
        ),
        _KNOWN, VALUE,
    ),
    Entry(
        "one-hot, remainder passed, then polynomial", "public: 11559025707",
        lambda: Pipeline(
            [("preprocessor", ColumnTransformer(
                [("cat", _ignoring(sparse_output=False), CATEGORIES)], remainder="passthrough")),
             ("poly", PolynomialFeatures(degree=2, include_bias=False)),
             ("regressor", Ridge(alpha=1.0))]
        ),
        _KNOWN, VALUE,
    ),
    Entry(
        "one-hot, remainder passed, then all scaled, ridge", "public: 36502616200",
        lambda: make_pipeline(
            make_column_transformer(
                (OneHotEncoder(sparse_output=False), ["town"]), remainder="passthrough"
            ),
            StandardScaler(), Ridge(),
        ),
        [*WHOLE, "town"], VALUE,
    ),
    Entry(
        "mixed types, mean and constant, ridge", "public: 10121571783",
        lambda: make_pipeline(
            make_column_transformer(
                (_imputed("mean", StandardScaler()), NUMBERS),
                (make_pipeline(_missing(), _ignoring(sparse_output=False)), CATEGORIES),
            ),
            Ridge(),
        ),
        _MIXED, VALUE,
    ),
    Entry(
        "mixed types, nearest neighbours, robustly scaled, first dropped", "public: 4286127393",
        lambda: Pipeline(
            [("preprocessing", ColumnTransformer(
                [("num", make_pipeline(KNNImputer(n_neighbors=5), RobustScaler()), NUMBERS),
                 ("cat", _imputed("most_frequent", _ignoring(drop="first")), CATEGORIES)])),
             ("model", Ridge())]
        ),
        _MIXED, VALUE,
    ),
    Entry(
        "each column its own pipeline, ordered categories", "public: 57811973844 (salaries)",
        lambda: Pipeline(
            [("preprocessor", ColumnTransformer(
                [("age", _imputed("median", StandardScaler()), ["age"]),
                 ("plan", _imputed(
                     "most_frequent", _unknown(categories=[["basic", "plus", "pro"]])), ["plan"]),
                 ("partner", _imputed(
                     "most_frequent", _unknown(categories=[["no", "yes"]])), YES_NO),
                 ("skewed", _imputed(
                     "median", FunctionTransformer(func=np.log1p, validate=False),
                     StandardScaler()), ["income"]),
                 ("town", _imputed("most_frequent", _unknown()), ["town"])])),
             ("model", Ridge())]
        ),
        ["age", "income", *ALL_CATEGORIES], VALUE,
    ),
    Entry(
        "claims: passed, bins, log, one-hot, ridge",
        "scikit-learn: plot_poisson_regression_non_normal_loss; public: 40835670311",
        lambda: Pipeline(
            [("preprocessor", ColumnTransformer(
                [("passthrough_numeric", "passthrough", ["calls"]),
                 ("binned_numeric", KBinsDiscretizer(n_bins=5, random_state=0), ["months"]),
                 ("log_scaled_numeric", make_pipeline(
                     FunctionTransformer(np.log1p, validate=False), StandardScaler()), ["calls"]),
                 ("onehot_categorical", OneHotEncoder(), CATEGORIES)],
                remainder="drop")),
             ("regressor", Ridge(alpha=1e-6))]
        ),
        _KNOWN, VALUE,
    ),
    Entry(
        "target encoded, nothing else", "scikit-learn: plot_target_encoder_cross_val",
        lambda: make_pipeline(
            TargetEncoder(random_state=0), Ridge(alpha=1e-6, solver="lsqr", tol=1e-13)
        ),
        CATEGORIES, VALUE,
    ),
    Entry(
        "the target's logarithm, at the end",
        "scikit-learn: plot_linear_model_coefficient_interpretation; public: 6456503109",
        lambda: make_pipeline(
            make_column_transformer(
                (OneHotEncoder(drop="if_binary"), ALL_CATEGORIES),
                remainder="passthrough", verbose_feature_names_out=False,
            ),
            TransformedTargetRegressor(
                regressor=Ridge(alpha=1e-10), func=np.log1p, inverse_func=np.expm1
            ),
        ),
        [*WHOLE, *ALL_CATEGORIES], COUNT,
    ),
    Entry(
        "the target's logarithm, around a pipeline", "public: 61501457906, 23312845028",
        lambda: TransformedTargetRegressor(
            regressor=make_pipeline(
                SimpleImputer(strategy="median", add_indicator=True), StandardScaler(),
                Ridge(alpha=10.0),
            ),
            func=np.log1p, inverse_func=np.expm1, check_inverse=False,
        ),
        NUMBERS, COUNT,
    ),
    Entry(
        "scaled logistic, liblinear", "public: 36284786817, 1677967367, 59506858757",
        lambda: make_pipeline(StandardScaler(), _liblinear()), WHOLE, LEFT,
    ),
    Entry(
        "imputed by the median, scaled logistic", "public: 61325040523",
        lambda: Pipeline(
            [("imputer", SimpleImputer(strategy="median")), ("scaler", StandardScaler()),
             ("classifier", _logistic())]
        ),
        NUMBERS, LEFT,
    ),
    Entry(
        "imputed by the median, scaled, balanced", "public: 69252014130, 71094327358",
        lambda: Pipeline(
            [("imputer", SimpleImputer(strategy="median")), ("scale", StandardScaler()),
             ("model", _logistic(class_weight="balanced"))]
        ),
        NUMBERS, LEFT,
    ),
    Entry(
        "imputed by the median, others dropped, bare logistic", "public: get_pipeline, titanic",
        lambda: Pipeline(
            [("transformer", ColumnTransformer(
                [("numeric", make_pipeline(SimpleImputer(strategy="median")), SMALL),
                 ("drop", "drop", CATEGORIES)])),
             ("classifier", _logistic(C=1.0))]
        ),
        [*SMALL, *CATEGORIES], LEFT,
    ),
    Entry(
        "first dropped, a constant for gaps, bare logistic", "public: get_pipeline, titanic",
        lambda: make_pipeline(
            ColumnTransformer(
                [("onehotencode", make_pipeline(_ignoring(drop="first")), CATEGORIES),
                 ("numeric", make_pipeline(
                     SimpleImputer(strategy="constant", fill_value=-1)), SMALL),
                 ("drop", "drop", YES_NO)]
            ),
            _logistic(),
        ),
        [*SMALL, *ALL_CATEGORIES], LEFT,
    ),
    Entry(
        "mixed types, scaled and one-hot", "scikit-learn MOOC; public: 41640081493, 59577056741",
        lambda: make_pipeline(_scaled_and_one_hot(handle_unknown="ignore"), _logistic()),
        _KNOWN, LEFT,
    ),
    Entry(
        "mixed types, scaled and one-hot, balanced", "public: 10013286163, 71647741993",
        lambda: Pipeline(
            [("preprocess", ColumnTransformer(
                [("cat", _ignoring(), CATEGORIES),
                 ("num", Pipeline([("scaler", StandardScaler())]), WHOLE)],
                remainder="drop")),
             ("model", _logistic(class_weight="balanced"))]
        ),
        _KNOWN, LEFT,
    ),
    Entry(
        "mixed types, scaled and one-hot, liblinear", "public: 34955670646 (hotel searches)",
        lambda: make_pipeline(_scaled_and_one_hot(), _liblinear()), _KNOWN, LEFT,
    ),
    Entry(
        "one-hot, remainder passed, logistic", "public: 451069843 (census)",
        lambda: Pipeline(
            [("preprocessing", ColumnTransformer(
                [("cat", _ignoring(), CATEGORIES)], remainder="passthrough")),
             ("classifier", _logistic())]
        ),
        _KNOWN, LEFT,
    ),
    Entry(
        "one-hot alone", "scikit-learn MOOC; public: 35972869605",
        lambda: Pipeline([("encoder", _ignoring()), ("model", _logistic())]), CATEGORIES, LEFT,
    ),
    Entry(
        "ordered categories alone", "scikit-learn MOOC, encoding of categorical variables",
        lambda: make_pipeline(_unknown(), _logistic()), ALL_CATEGORIES, LEFT,
    ),
    Entry(
        "by type, median and most frequent", "public: 55890006898",
        lambda: Pipeline(
            [("preprocessor", ColumnTransformer(
                [("numeric", _imputed("median", StandardScaler()), IS_NUMBER),
                 ("categorical", _imputed("most_frequent", _ignoring()), IS_NOT)])),
             ("classifier", _logistic())]
        ),
        _MIXED, LEFT,
    ),
    Entry(
        "mixed types, median and most frequent, first dropped", "public: 59755383645",
        lambda: Pipeline(
            [("preprocess", ColumnTransformer(
                [("num", _imputed("median", StandardScaler()), NUMBERS),
                 ("cat", _imputed(
                     "most_frequent", _ignoring(drop="first", sparse_output=False)), CATEGORIES)],
                remainder="drop")),
             ("model", _logistic(C=1.0))]
        ),
        _MIXED, LEFT,
    ),
    Entry(
        "mixed types, median and constant, balanced", "public: 71620276559",
        lambda: Pipeline(
            [("prep", ColumnTransformer(
                [("num", _imputed("median", StandardScaler()), NUMBERS),
                 ("cat", make_pipeline(_missing(), _ignoring()), CATEGORIES)])),
             ("clf", _logistic(class_weight="balanced"))]
        ),
        _MIXED, LEFT,
    ),
    Entry(
        "scaled, then imputed, most frequent", "scikit-learn MOOC, predictive modeling pipeline",
        lambda: make_pipeline(
            make_column_transformer(
                (make_pipeline(StandardScaler(), SimpleImputer()), NUMBERS),
                (_imputed("most_frequent", _ignoring()), CATEGORIES),
            ),
            _logistic(),
        ),
        _MIXED, LEFT,
    ),
    Entry(
        "mixed types, best features", "public: carlos-bitencourt/ia-projects",
        lambda: make_pipeline(
            ColumnTransformer(
                [("num", _imputed("median", StandardScaler()), NUMBERS),
                 ("cat", _ignoring(sparse_output=False), CATEGORIES)],
                verbose_feature_names_out=False,
            ),
            SelectKBest(k=7), _logistic(),
        ),
        _MIXED, LEFT,
    ),
    Entry(
        "mixed types, best percentile", "scikit-learn: plot_set_output",
        lambda: make_pipeline(
            ColumnTransformer(
                [("numerical", make_pipeline(SimpleImputer(), StandardScaler()), NUMBERS),
                 ("categorical", _ignoring(sparse_output=False, drop="if_binary"), ALL_CATEGORIES)],
                verbose_feature_names_out=False,
            ),
            SelectPercentile(percentile=75), _logistic(),
        ),
        [*NUMBERS, *ALL_CATEGORIES], LEFT,
    ),
    Entry(
        "one-hot, best feature, from 0 to 1", "public: 18592051020",
        lambda: Pipeline(
            [("preprocessor", ColumnTransformer(
                [("cat", _ignoring(sparse_output=False), CATEGORIES)], remainder="passthrough")),
             ("kbest", SelectKBest(score_func=f_classif, k=3)), ("num", MinMaxScaler()),
             ("estimator", _logistic())]
        ),
        _KNOWN, LEFT,
    ),
    Entry(
        "mixed types, components", "public: 48162015870",
        lambda: Pipeline(
            [("preprocessor", ColumnTransformer(
                [("numerical", _imputed("mean", StandardScaler()), IS_NUMBER),
                 ("categorical", _imputed(
                     "most_frequent", OneHotEncoder(sparse_output=False)), IS_NOT)])),
             ("dimensionality_reduction", PCA()), ("estimator", _logistic())]
        ),
        _MIXED, LEFT,
    ),
    Entry(
        "whitened components, balanced", "public: 43472168249",
        lambda: Pipeline(
            [("sc", StandardScaler(with_mean=True, with_std=True)),
             ("pca", PCA(n_components=2, whiten=True, random_state=0)),
             ("clf", _logistic(C=0.8, class_weight="balanced"))]
        ),
        WHOLE, LEFT,
    ),
    Entry(
        "robustly scaled by type, saga", "public: 49189437281 (loans)",
        lambda: Pipeline(
            [("preprocessor_feat", ColumnTransformer(
                [("numerical", Pipeline([("scaler", RobustScaler())]), IS_NUMBER)])),
             ("classifier", _logistic(solver="saga", random_state=0))]
        ),
        WHOLE, LEFT,
    ),
    Entry(
        "bins", "scikit-learn MOOC, non-linear feature engineering: 42574613321",
        lambda: make_pipeline(KBinsDiscretizer(n_bins=5), _logistic()), WHOLE, LEFT,
    ),
    Entry(
        "scaled, then bins", "scikit-learn: plot_discretization_classification",
        lambda: make_pipeline(
            StandardScaler(), KBinsDiscretizer(n_bins=4, encode="onehot", random_state=0),
            _logistic(random_state=0),
        ),
        WHOLE, LEFT,
    ),
    Entry(
        "splines, logistic", "scikit-learn MOOC, non-linear feature engineering: 42574613321",
        lambda: make_pipeline(SplineTransformer(degree=3, n_knots=5), _logistic()), WHOLE, LEFT,
    ),
    Entry(
        "scaled, polynomial of degree 3, logistic",
        "scikit-learn MOOC: 42574613321; scikit-learn: displaying pipelines",
        lambda: make_pipeline(StandardScaler(), PolynomialFeatures(degree=3), _logistic(C=10.0)),
        WHOLE, LEFT,
    ),
    Entry(
        "scaled, Nystroem features, logistic", "scikit-learn MOOC: 42574613321",
        lambda: make_pipeline(
            StandardScaler(), Nystroem(kernel="rbf", gamma=1.0, n_components=20, random_state=0),
            _logistic(C=5.0),
        ),
        WHOLE, LEFT,
    ),
    Entry(
        "bins, then Nystroem features", "scikit-learn MOOC: 42574613321",
        lambda: make_pipeline(
            KBinsDiscretizer(n_bins=5),
            Nystroem(kernel="rbf", gamma=1.0, n_components=20, random_state=0), _logistic(),
        ),
        WHOLE, LEFT,
    ),
    Entry(
        "random trees", "scikit-learn: plot_feature_transformation; public: 23615767936",
        lambda: make_pipeline(
            RandomTreesEmbedding(n_estimators=10, max_depth=3, random_state=0), _logistic()
        ),
        WHOLE, LEFT,
    ),
    Entry(
        "Boltzmann machine", "scikit-learn: plot_rbm_logistic_classification; public: 36078944712",
        lambda: Pipeline(
            [("scale", MinMaxScaler()), ("rbm", BernoulliRBM(n_components=8, random_state=0)),
             ("logistic", _logistic(solver="newton-cg"))]
        ),
        WHOLE, LEFT,
    ),
    Entry(
        "distances to clusters", "Géron: Hands-On Machine Learning, unsupervised learning",
        lambda: Pipeline(
            [("kmeans", KMeans(n_clusters=8, n_init=10, random_state=42)),
             ("log_reg", _logistic(random_state=42))]
        ),
        WHOLE, SEGMENT,
    ),
    Entry(
        "three classes, scaled, saga", "public: 15048750531 (poses)",
        lambda: make_pipeline(StandardScaler(), _logistic(solver="saga", random_state=42)),
        WHOLE, SEGMENT,
    ),
    Entry(
        "three classes, each against the rest, liblinear", "public: 52124069088",
        lambda: Pipeline(
            [("scaler", StandardScaler()), ("model", OneVsRestClassifier(_liblinear()))]
        ),
        WHOLE, SEGMENT,
    ),
    Entry(
        "three classes, imputed, each against the rest, balanced", "public: 66527348839",
        lambda: Pipeline(
            [("imputer", SimpleImputer(strategy="median")), ("scaler", StandardScaler()),
             ("clf", OneVsRestClassifier(_logistic(class_weight="balanced")))]
        ),
        NUMBERS, SEGMENT,
    ),
    Entry(
        "ridge classifier alone", "public: 48457423462, 45832174633",
        lambda: make_pipeline(RidgeClassifier()), WHOLE, LEFT,
    ),
    Entry(
        "ridge classifier, three classes", "public: 21985017997, 6705155541 (poses)",
        lambda: make_pipeline(StandardScaler(), RidgeClassifier(alpha=10.0)), WHOLE, SEGMENT,
    ),
    Entry(
        "ridge classifier, balanced", "public: 54502134186 (sleep)",
        lambda: make_pipeline(
            StandardScaler(), RidgeClassifier(alpha=1.0, class_weight="balanced")
        ),
        WHOLE, LEFT,
    ),
    Entry(
        "ridge classifier of words", "scikit-learn: plot_document_classification_20newsgroups",
        lambda: make_pipeline(
            _of_text(TfidfVectorizer(sublinear_tf=True, max_df=0.5, min_df=5)),
            RidgeClassifier(alpha=1e-6, solver="sparse_cg", tol=1e-12),
        ),
        [TEXT], LEFT,
    ),
    Entry(
        "words and pairs, balanced", "public: 69711461743, 53153058659, 71342591937",
        lambda: make_pipeline(
            _of_text(TfidfVectorizer(
                lowercase=True, ngram_range=(1, 2), min_df=2, max_df=0.95, sublinear_tf=True)),
            _logistic(class_weight="balanced"),
        ),
        [TEXT], LEFT,
    ),
    Entry(
        "the most frequent words", "public: 8038327241, 828714839",
        lambda: make_pipeline(
            _of_text(TfidfVectorizer(stop_words="english", max_features=6)), _logistic()
        ),
        [TEXT], LEFT,
    ),
    Entry(
        "parts of words", "public: 55651181702",
        lambda: make_pipeline(
            _of_text(TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), min_df=2)),
            _logistic(C=1.0),
        ),
        [TEXT], LEFT,
    ),
    Entry(
        "words counted", "Müller and Guido: text; public: 24035847526",
        lambda: make_pipeline(_of_text(CountVectorizer()), _logistic()), [TEXT], LEFT,
    ),
    Entry(
        "words counted, then weighed", "public: 14493704141, 31406190671",
        lambda: make_pipeline(
            _of_text(CountVectorizer(ngram_range=(1, 2)), TfidfTransformer(norm="l2")),
            _logistic(),
        ),
        [TEXT], LEFT,
    ),
    Entry(
        "words, three classes", "public: 53803003558, 40670660621",
        lambda: make_pipeline(
            _of_text(TfidfVectorizer(lowercase=True, ngram_range=(1, 2))), _logistic()
        ),
        [TEXT], SEGMENT,
    ),
    Entry(
        "numbers and words", "public: 53769229897",
        lambda: Pipeline(
            [("preprocessing", ColumnTransformer(
                [("num", StandardScaler(), WHOLE), ("text", TfidfVectorizer(), TEXT)])),
             ("model", _liblinear(class_weight="balanced"))]
        ),
        [*WHOLE, TEXT], LEFT,
    ),
    Entry(
        "selected columns, united", "public: 42248791171",
        lambda: Pipeline(
            [("union", FeatureUnion(
                [("note", Pipeline(
                    [("selector", ColumnSelector(TEXT)), ("vectorizer", CountVectorizer()),
                     ("reduce_dim", SelectKBest(chi2, k=5))])),
                 ("rest", Pipeline([("selector", ColumnSelector(WHOLE))]))])),
             ("logreg", _logistic(C=0.1))]
        ),
        [*WHOLE, TEXT], LEFT,
    ),
    Entry(
        "Poisson, imputed by the median, scaled", "public: 57727478745, 55741478833",
        lambda: Pipeline(
            [("impute", SimpleImputer(strategy="median")), ("scale", StandardScaler()),
             ("model", _poisson(0.1))]
        ),
        NUMBERS, COUNT,
    ),
    Entry(
        "Poisson, imputed by the mean", "public: 60429241997",
        lambda: Pipeline(
            [("imputer", SimpleImputer(strategy="mean")), ("regressor", _poisson(1.0))]
        ),
        SMALL, COUNT,
    ),
    Entry(
        "Poisson, scaled by a column transformer", "public: 62522858250",
        lambda: Pipeline(
            [("preprocessor", ColumnTransformer(
                [("num", StandardScaler(), WHOLE)], remainder="drop")),
             ("model", _poisson(1.0))]
        ),
        WHOLE, COUNT,
    ),
    Entry(
        "Poisson, scaled, newton-cholesky", "public: 63058508956",
        lambda: Pipeline(
            [("scale", StandardScaler()), ("model", _poisson(0.01, solver="newton-cholesky"))]
        ),
        WHOLE, COUNT,
    ),
    Entry(
        "Poisson, mixed types, first dropped", "public: 68343606722 (claims)",
        lambda: Pipeline(
            [("preprocessor", _scaled_and_one_hot(drop="first", sparse_output=False)),
             ("model", _poisson(1e-4))]
        ),
        _KNOWN, COUNT,
    ),
    Entry(
        "Poisson, one-hot and passed", "public: 43979612940 (claims)",
        lambda: Pipeline(
            [("prep", ColumnTransformer(
                [("cat", _ignoring(), CATEGORIES), ("num", "passthrough", WHOLE)])),
             ("model", _poisson(0.01))]
        ),
        _KNOWN, COUNT,
    ),
    Entry(
        "Poisson, one-hot alone", "public: 5568623791 (policies)",
        lambda: Pipeline(
            [("preprocessor", ColumnTransformer(
                [("onehot_categorical", OneHotEncoder(), ALL_CATEGORIES)], remainder="drop")),
             ("regressor", _poisson(1e-3))]
        ),
        [*WHOLE, *ALL_CATEGORIES], COUNT,
    ),
    Entry(
        "Poisson, one-hot, interactions", "public: 4957899305 (policies)",
        lambda: Pipeline(
            [("transform", ColumnTransformer(
                [("interaction", make_pipeline(
                    OneHotEncoder(),
                    PolynomialFeatures(degree=3, interaction_only=True, include_bias=False)),
                  ALL_CATEGORIES)])),
             ("regressor", _poisson(1e-3))]
        ),
        ALL_CATEGORIES, COUNT,
    ),
    Entry(
        "Poisson, periodic splines, one-hot, the others from 0 to 1",
        "public: thomasjpfan/scipy-2022-poisson (bicycles)",
        lambda: make_pipeline(
            ColumnTransformer(
                [("cyclic", SplineTransformer(n_knots=5, extrapolation="periodic"), ["months"]),
                 ("categorical", _ignoring(), CATEGORIES)],
                remainder=MinMaxScaler(),
            ),
            _poisson(0.01),
        ),
        _KNOWN, COUNT,
    ),
)  # fmt: skip
"""The second half, drawn when the code that accepts the first was finished."""
