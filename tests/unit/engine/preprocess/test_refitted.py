"""Transformers that are fitted anew at every change: the model is the refitted pipeline."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.feature_selection import SelectKBest, f_classif, f_regression
from sklearn.frozen import FrozenEstimator
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from sklearn.model_selection import KFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    OneHotEncoder,
    PolynomialFeatures,
    QuantileTransformer,
    SplineTransformer,
    StandardScaler,
    TargetEncoder,
)

from lethe import LinearModel, LogisticModel, PoissonModel, Refitted, SoftmaxModel
from lethe.engine.errors import InvalidData, UnknownRows
from lethe.engine.refresh.size import RefreshSize

Array = NDArray[np.float64]

N = 60
NUMBERS = ["age", "fee", "use"]
WORDS = ("late", "paid", "asked", "called", "moved", "left")


def table(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Return rows of numbers, some of which are missing, categories and texts."""
    found = pd.DataFrame(rng.standard_normal((n, 3)) * [9, 2, 1] + [40, 5, 0], columns=NUMBERS)
    found["gap"] = np.where(rng.random(n) < 0.2, np.nan, rng.standard_normal(n))
    found["town"] = rng.choice(["Bern", "Oslo", "Rome"], n, p=[0.5, 0.4, 0.1])
    found["note"] = [" ".join(rng.choice(WORDS, 3)) for _ in range(n)]
    return found


def targets(X: pd.DataFrame, rng: np.random.Generator) -> Array:
    """Return what a linear model can learn of a table."""
    return np.asarray(X["fee"] - 0.1 * X["age"] + rng.standard_normal(len(X)))


class Refit:
    """A model, the rows that it should have, and the pipeline that is fitted to them."""

    def __init__(self, model: Any, pipeline: Pipeline, X: pd.DataFrame, y: Any) -> None:
        self.pipeline, self.columns = pipeline, list(X.columns)
        self.X, self.y = X.copy(), pd.Series(y)
        self.X.index = self.y.index = pd.Index([f"r{i}" for i in range(len(X))])
        self.model = model.fit(self.X, self.y, ids=list(self.X.index))

    def delete(self, *ids: str) -> None:
        """Delete rows here and there."""
        self.model.delete(list(ids), method="exact")
        self.X, self.y = self.X.drop(list(ids)), self.y.drop(list(ids))

    def put(self, name: str, row: pd.DataFrame, y: Any) -> None:
        """Insert a row, or correct it, here and there."""
        change = self.model.correct if name in self.X.index else self.model.insert
        change(row, [y], [name], method="exact")
        self.X = pd.concat([self.X, row.set_axis([name])])
        self.y = pd.concat([self.y, pd.Series([y], [name])])
        last = ~self.X.index.duplicated(keep="last")
        order = list(dict.fromkeys(self.X.index))  # a corrected row stays where it was
        self.X, self.y = self.X[last].loc[order], self.y[last].loc[order]

    def refitted(self) -> Pipeline:
        """Return the pipeline, fitted to the rows that are left."""
        return clone(self.pipeline).fit(self.X, self.y)

    def distance(self) -> float:
        """Return the largest distance of the model's margins, and of its export's, from a refit."""
        theirs = self._margins(self.refitted())
        mine, plain = self._margins(self.model), self._margins(self.model.to_sklearn())
        assert self.model.live_ids
        assert set(self.model.live_ids) == set(self.X.index)
        return float(max(np.abs(mine - theirs).max(), np.abs(plain - theirs).max()))

    def _margins(self, one: Any) -> Array:
        read = one.decision_function if hasattr(one, "decision_function") else one.predict
        return np.asarray(read(self.X[self.columns]))


def ridge(*steps: Any) -> Pipeline:
    """Return a pipeline that ends in a Ridge that is solved directly."""
    return make_pipeline(*steps, Ridge(solver="cholesky"))


def linear(*steps: Any, columns: Sequence[str] = NUMBERS, n: int = N, seed: int = 0) -> Refit:
    """Return a linear model of transformers."""
    rng = np.random.default_rng(seed)
    X = table(n, rng)
    pipeline = ridge(*steps)
    return Refit(LinearModel(preprocess=Refitted(pipeline[:-1])), pipeline, X[list(columns)],
                 targets(X, rng))  # fmt: skip


def mix(one: Refit, changes: int = 16, seed: int = 1) -> None:
    """Delete, insert and correct rows, one at a time."""
    rng = np.random.default_rng(seed)
    others = table(changes, rng)
    values = targets(others, rng)
    for i in range(changes):
        row = others[one.columns].iloc[[i]]
        match rng.choice(["delete", "insert", "correct"]):
            case "delete":
                one.delete(str(rng.choice(one.X.index)))
            case "insert":
                one.put(f"new{i}", row, values[i])
            case _:
                one.put(str(rng.choice(one.X.index)), row, values[i])


TRANSFORMERS: dict[str, tuple[Callable[[], Sequence[Any]], Sequence[str]]] = {
    "polynomial after a scaler": (lambda: [StandardScaler(), PolynomialFeatures(2)], NUMBERS),
    "axes": (lambda: [StandardScaler(), PCA(2)], NUMBERS),
    "a selection": (lambda: [SelectKBest(f_regression, k=2)], NUMBERS),
    "bins": (lambda: [_bins()], NUMBERS),
    "knots": (lambda: [SplineTransformer(n_knots=4)], NUMBERS),
    "quantiles": (lambda: [QuantileTransformer(n_quantiles=20)], NUMBERS),
    "gaps": (lambda: [KNNImputer(n_neighbors=3)], [*NUMBERS, "gap"]),
    "clusters": (lambda: [KMeans(3, n_init=2, random_state=0)], NUMBERS),
    "words": (lambda: [make_column_transformer((TfidfVectorizer(), "note"))], ["note"]),
    "categories": (lambda: [OneHotEncoder(sparse_output=False)], ["town"]),
    "cross-fitting": (lambda: [TargetEncoder(cv=KFold(3))], ["town"]),
    "a function without a name": (
        lambda: [SimpleImputer(), FunctionTransformer(lambda X: X**2)], [*NUMBERS, "gap"],
    ),
}  # fmt: skip


def _bins() -> KBinsDiscretizer:
    return KBinsDiscretizer(4, encode="onehot-dense", quantile_method="averaged_inverted_cdf")


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_a_linear_model_is_the_refitted_pipeline_after_mixed_changes(name: str) -> None:
    steps, columns = TRANSFORMERS[name]
    one = linear(*steps(), columns=columns)
    mix(one)
    scale = float(np.abs(one.y).max())
    assert one.distance() < 1e-9 * scale
    assert one.model.error.bound is not None


def test_rows_whose_features_did_not_move_cost_a_step_and_no_fit() -> None:
    """Given a selection that stays, the generation is the one that was begun."""
    one = linear(SelectKBest(f_regression, k=2))
    begun = one.model._fitted.begun
    one.delete("r3")
    one.put("r4", one.X.loc[["r5"]], 1.0)
    one.put("new", one.X.loc[["r5"]], 1.0)
    assert one.model._fitted.begun is begun
    assert one.distance() < 1e-12


def test_a_row_that_changes_its_bin_is_corrected_in_the_same_step() -> None:
    one = linear(_bins(), n=200)
    before = one.model.refitted
    for i in range(12):
        one.delete(f"r{i}")
    moved = (
        one.model.refitted.transformer.transform(one.X) != before.transformer.transform(one.X)
    ).any(axis=1)
    assert moved.any()  # or nothing was shown
    assert one.distance() < 1e-10


def test_other_features_are_another_fit_and_what_moved_is_told_by_their_names() -> None:
    """Given a category that goes with its last row, its parameter moves to 0."""
    one = linear(OneHotEncoder(sparse_output=False), columns=["town"])
    names = one.model.refitted.names(3)
    assert names == ("town_Bern", "town_Oslo", "town_Rome")
    rome = [name for name in one.X.index if one.X.loc[name, "town"] == "Rome"]
    theta = one.model.theta
    result = one.model.delete(rome, method="exact")
    one.X, one.y = one.X.drop(rome), one.y.drop(rome)
    assert one.model.theta.shape == (2,)
    np.testing.assert_allclose(result.step[:2], one.model.theta - theta[:2], atol=1e-14)
    assert one.distance() < 1e-12
    row = one.X.iloc[[0]].assign(town="Paris")  # an encoder that is not refitted would refuse it
    one.put("p", row, 3.0)
    assert one.model.theta.shape == (3,)
    assert one.distance() < 1e-12


def test_a_deleted_id_never_comes_back_and_nothing_of_its_row_is_kept(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = table(N, rng)[[*NUMBERS, "gap"]]
    y = targets(X, rng)
    cached = Pipeline(
        [("gaps", KNNImputer(n_neighbors=3)), ("scale", StandardScaler())], memory=str(tmp_path)
    )
    fitted = ridge(*cached.fit(X)).fit(X, y)  # what is given has seen the row
    one = Refit(LinearModel(preprocess=Refitted(cached)), fitted, X, y)
    seen = list(tmp_path.rglob("*"))
    gone = one.X.loc["r7", "fee"]
    assert gone.tobytes() in pickle.dumps(one.model)
    one.delete("r7")
    assert list(tmp_path.rglob("*")) == seen
    kept = one.model.refitted
    assert gone not in kept.X["fee"].to_numpy()
    assert gone.tobytes() not in pickle.dumps(one.model)
    assert gone not in kept.transformer.steps[0][1]._fit_X
    assert not one.model._fitted.members.rows.X[one.model._fitted.members.place["r7"]].any()
    with pytest.raises(InvalidData, match="a deleted id never comes back"):
        one.model.insert(one.X.iloc[[0]], [0.0], ["r7"])
    assert one.model.delete(["r7"]).deleted == ()
    with pytest.raises(UnknownRows):
        one.model.correct(one.X.iloc[[0]], [0.0], ["r7"])
    with pytest.raises(UnknownRows):
        one.model.delete(["nobody"])


def test_a_logistic_model_is_within_its_bound_and_at_the_refit_after_a_rebuild() -> None:
    rng = np.random.default_rng(5)
    X = table(150, rng)[NUMBERS]
    y = np.where(targets(X, rng) > 1.0, "stays", "leaves")
    steps = make_pipeline(_bins(), SelectKBest(f_classif, k=6))
    head = LogisticRegression(solver="newton-cholesky", tol=1e-12)
    one = Refit(LogisticModel(preprocess=Refitted(steps)), make_pipeline(steps, head), X, y)
    for i in range(25):
        one.delete(f"r{i}")
        bound = one.model.error.bound
        last = one.refitted()[-1]
        theirs = np.append(last.coef_[0], last.intercept_)
        mine = np.append(one.model.theta, one.model.intercept)
        if bound is not None:
            assert np.linalg.norm(mine - theirs) <= bound + 1e-7  # what their solver leaves
    one.model.refresh("rebuild")
    assert one.distance() < 1e-7
    assert list(one.model.classes_) == ["leaves", "stays"]


def test_a_class_may_lose_its_last_row_and_get_one_again() -> None:
    rng = np.random.default_rng(6)
    X = table(40, rng)[NUMBERS]
    y = np.array(["no"] * 38 + ["yes"] * 2)
    steps = make_pipeline(StandardScaler(), PolynomialFeatures(2, include_bias=False))
    head = LogisticRegression(solver="newton-cholesky", tol=1e-12)
    one = Refit(LogisticModel(preprocess=Refitted(steps)), make_pipeline(steps, head), X, y)
    rows = one.X.loc[["r38", "r39"]]
    one.delete("r38", "r39")
    assert one.model.intercept_penalised
    one.put("a", rows.iloc[[0]], "yes")
    assert not one.model.intercept_penalised
    assert one.distance() < 1e-6


@pytest.mark.parametrize("balanced", [False, True])
def test_other_kinds_are_the_refitted_pipeline(balanced: bool) -> None:
    rng = np.random.default_rng(7)
    X = table(120, rng)[NUMBERS]
    steps = make_pipeline(StandardScaler(), PCA(2))
    y: Any
    model: Any
    if balanced:
        y = np.digitize(targets(X, rng), [0.0, 2.0])
        weight: Literal["balanced"] = "balanced"
        head = LogisticRegression(solver="newton-cholesky", tol=1e-12, class_weight=weight)
        model = SoftmaxModel(preprocess=Refitted(steps), class_weight=weight)
    else:
        y = rng.poisson(np.exp(0.1 * targets(X, rng))).astype(float)
        head, model = (
            PoissonRegressor(alpha=1.0 / 110, tol=1e-12),
            PoissonModel(preprocess=Refitted(steps)),
        )
    one = Refit(model, make_pipeline(steps, head), X, y)
    one.delete(*[f"r{i}" for i in range(11)])
    one.put("a", X.iloc[[0]], y[0])
    one.model.refresh("rebuild")
    theirs = one.refitted()
    read = "predict_proba" if balanced else "predict"
    np.testing.assert_allclose(
        getattr(one.model, read)(one.X), getattr(theirs, read)(one.X), atol=1e-6
    )


# -- refreshes and parameters ------------------------------------------------------------------


def test_rows_leave_by_a_rebuild_too_and_a_rebuild_keeps_the_transformer() -> None:
    one = linear(StandardScaler(), PolynomialFeatures(2))
    transformer = one.model.refitted.transformer
    assert one.model.refresh("rebuild").size is RefreshSize.REBUILD
    assert one.model.refitted.transformer is transformer
    assert one.model.refresh("polish", without=["r1", "r2"]).size is RefreshSize.REBUILD
    one.X, one.y = one.X.drop(["r1", "r2"]), one.y.drop(["r1", "r2"])
    assert one.distance() < 1e-10


def test_a_parameter_that_is_set_counts_from_the_next_fit_on() -> None:
    one = linear(StandardScaler(), PolynomialFeatures(2))
    one.model.set_params(ridge=1e6)
    one.delete("r1")
    assert one.distance() < 1e-10


def test_a_copy_goes_its_own_way() -> None:
    one = linear(StandardScaler(), PCA(2))
    other = deepcopy(one.model)
    other.delete(["r0"], method="exact")
    assert one.distance() < 1e-10
    assert "r0" in one.model.live_ids
    assert "r0" not in other.live_ids
    with pytest.raises(InvalidData, match="not fitted"):
        clone(one.model).predict(one.X)


def test_arrays_and_sparse_matrices_are_rows_too() -> None:
    rng = np.random.default_rng(8)
    dense = rng.poisson(1.0, (50, 5)).astype(float)
    y, ids = rng.standard_normal(50), [str(i) for i in range(50)]
    models = []
    for X in (dense, sparse.csr_matrix(dense)):
        model = LinearModel(preprocess=Refitted(SelectKBest(f_regression, k=2))).fit(X, y, ids)
        model.delete(["0", "1"], method="exact")
        model.correct(X[:1], y[:1], ["5"], method="exact")
        model.insert(X[1:2], y[1:2], ["new"], method="exact")
        models.append(model)
    left = np.vstack([dense[2:5], dense[:1], dense[6:], dense[1:2]])
    refit = ridge(SelectKBest(f_regression, k=2)).fit(
        left, np.concatenate([y[2:5], y[:1], y[6:], y[1:2]])
    )
    for model in models:
        np.testing.assert_allclose(model.predict(dense), refit.predict(dense), rtol=1e-12)
    assert models[0].n_features_in_ == 5


class Nothing(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Makes no feature."""

    def fit(self, X: Any, y: Any = None) -> Nothing:  # noqa: ARG002
        return self

    def transform(self, X: Any) -> Array:
        return np.empty((len(X), 0))


class Widening(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Makes a feature for each row that it is fitted to, and names none."""

    def fit(self, X: Any, y: Any = None) -> Widening:  # noqa: ARG002
        self.rows_ = np.array(X)
        return self

    def transform(self, X: Any) -> Array:
        return np.asarray(np.asarray(X) @ self.rows_.T)


def test_features_that_have_no_names_may_be_others() -> None:
    one = linear(Widening(), n=6)
    one.delete("r2")
    assert one.model.theta.shape == (5,)
    one.put("a", one.X.iloc[[0]], 1.0)
    assert one.model.theta.shape == (6,)
    assert one.distance() < 1e-9


def test_texts_are_rows_too() -> None:
    notes = np.array(["paid late", "asked twice", "paid at once", "moved and asked", "late again"])
    y = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    model = LinearModel(preprocess=Refitted(CountVectorizer())).fit(notes, y, ids=list("abcde"))
    model.delete(["d"], method="exact")
    left = [0, 1, 2, 4]
    refit = ridge(CountVectorizer(), FunctionTransformer(_dense)).fit(notes[left], y[left])
    np.testing.assert_allclose(model.predict(notes[left]), refit.predict(notes[left]), rtol=1e-12)
    assert "moved" not in model.to_sklearn()[0].vocabulary_


def _dense(X: Any) -> Array:
    return np.asarray(X.toarray())


@pytest.mark.parametrize("model", [LinearModel, LogisticModel])
def test_rows_that_a_rebuild_leaves_out_are_gone_though_no_feature_moves(model: Any) -> None:
    """Given encodings that stay, a step could delete them; a rebuild was asked for."""
    X = pd.DataFrame({"town": ["Bern", "Oslo"] * 10})
    y = np.array([0, 1, 1, 0, 1] * 4)
    steps = Refitted(OneHotEncoder(sparse_output=False))
    made = model(preprocess=steps).fit(X, y)
    made.refresh("rebuild", without=["1", "2"])
    assert "1" not in made.live_ids
    assert not made._fitted.members.rows.X[made._fitted.members.place["1"]].any()
    left = np.delete(np.arange(20), [1, 2])
    afresh = model(preprocess=steps).fit(X.iloc[left], y[left], ids=list(map(str, left)))
    np.testing.assert_allclose(made.theta, afresh.theta, atol=1e-9)
    assert made.delete(["1"]).deleted == ()


def test_a_step_is_no_way_to_an_intercept_without_a_penalty() -> None:
    """Given a class that gets a row again while no feature moves, the intercept is free again."""
    X = pd.DataFrame({"town": ["Bern", "Oslo"] * 10})
    y = np.array(["no"] * 18 + ["yes"] * 2)
    made = LogisticModel(preprocess=Refitted(OneHotEncoder(sparse_output=False))).fit(X, y)
    made.delete(["18", "19"])
    assert made.intercept_penalised
    made.insert(X.iloc[[0]], ["yes"], ["a"])
    assert not made.intercept_penalised


def test_places_of_corrected_rows_are_given_up() -> None:
    X = pd.DataFrame({"town": ["Bern", "Oslo"] * 10})
    steps = Refitted(OneHotEncoder(sparse_output=False))
    made = LinearModel(preprocess=steps).fit(X, np.arange(20.0))
    for i in range(60):
        made.correct(X.iloc[[i % 2]], [float(i)], [str(i % 20)])
    assert len(made._fitted.members.live) < 45


def test_what_the_caller_changes_afterwards_does_not_count() -> None:
    rng = np.random.default_rng(11)
    X, y = rng.standard_normal((40, 4)), rng.standard_normal(40)
    y += 3.0 * X[:, 0]
    made = LinearModel(preprocess=Refitted(SelectKBest(f_regression, k=1))).fit(X, y)
    refit = ridge(SelectKBest(f_regression, k=1)).fit(X[1:], y[1:])
    y[:], kept = 0.0, X.copy()
    made.delete(["0"], method="exact")
    np.testing.assert_allclose(made.predict(kept), refit.predict(kept), rtol=1e-12)


@pytest.mark.parametrize("flat", [True, False])
def test_targets_may_be_a_column(flat: bool) -> None:
    rng = np.random.default_rng(12)
    X, y = rng.standard_normal((30, 3)), rng.standard_normal(30)
    made = LinearModel(preprocess=Refitted(PCA(2)))
    made.fit(X, y if flat else y[:, None])
    made.insert(X[:1], [[1.0]] if flat else [1.0], ["new"], method="exact")
    refit = ridge(PCA(2)).fit(np.vstack([X, X[:1]]), np.append(y, 1.0))
    np.testing.assert_allclose(np.ravel(made.predict(X)), np.ravel(refit.predict(X)), rtol=1e-10)


def test_labels_are_those_of_the_fit_however_they_are_spelt() -> None:
    rng = np.random.default_rng(13)
    X, y = rng.standard_normal((40, 4)), np.array([1, 2] * 20)
    made = LogisticModel(preprocess=Refitted(SelectKBest(f_classif, k=2))).fit(X, y)
    made.insert(X[:1], ["2"], ["new"])
    assert made.refitted is not None
    assert set(made.refitted.y.tolist()) == {1, 2}


def test_each_fit_begins_with_the_random_state_that_was_given() -> None:
    rng = np.random.default_rng(14)
    X, y = rng.standard_normal((60, 3)), rng.standard_normal(60)

    def steps() -> KMeans:
        return KMeans(4, n_init=1, random_state=np.random.RandomState(0))

    made = LinearModel(preprocess=Refitted(steps())).fit(X, y)
    made.delete(["0"], method="exact")
    made.delete(["1"], method="exact")
    refit = ridge(steps()).fit(X[2:], y[2:])
    np.testing.assert_allclose(made.predict(X), refit.predict(X), rtol=1e-9)


def test_what_stays_as_it_is_cannot_be_fitted_anew() -> None:
    X = table(N, np.random.default_rng(0))[NUMBERS]
    frozen = FrozenEstimator(PCA(2).fit(X))
    for steps in (frozen, make_pipeline(StandardScaler(), frozen)):
        with pytest.raises(InvalidData, match="a FrozenEstimator stays as it is fitted"):
            Refitted(steps)


def test_a_categorical_column_has_the_categories_of_the_rows_that_are_left() -> None:
    X = pd.DataFrame({"town": pd.Categorical(["Bern", "Oslo", "Rome"] * 4)})
    one = linear(OneHotEncoder(sparse_output=False), columns=["town"])
    made = LinearModel(preprocess=one.model.preprocess).fit(X, np.arange(12.0))
    made.delete(["2", "5", "8", "11"], method="exact")
    assert made.refitted is not None
    assert list(made.refitted.X["town"].cat.categories) == ["Bern", "Oslo"]
    assert b"Rome" not in pickle.dumps(made)
    made.insert(pd.DataFrame({"town": ["Paris"]}), [2.0], ["p"], method="exact")
    assert list(made.refitted.X["town"].cat.categories) == ["Bern", "Oslo", "Paris"]
    made.insert(pd.DataFrame({"town": pd.Categorical(["Ulm"])}), [2.0], ["u"], method="exact")
    assert made.theta.shape == (4,)


def test_a_transformer_that_makes_frames_is_exported_without_a_warning() -> None:
    for steps in (
        (StandardScaler().set_output(transform="pandas"), PCA(2)),
        (PCA(2), StandardScaler().set_output(transform="pandas")),
    ):
        one = linear(*steps)
        one.delete("r0")
        assert one.distance() < 1e-10  # warnings are errors here


# -- what is refused ---------------------------------------------------------------------------


class Drawing(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Makes another feature in each fit."""

    def fit(self, X: Any, y: Any = None) -> Drawing:  # noqa: ARG002
        self.factor_ = np.random.default_rng().random()
        return self

    def transform(self, X: Any) -> Array:
        return np.asarray(X) * self.factor_


@pytest.mark.parametrize(
    ("transformer", "said"),
    [
        (Drawing(), "each time they are fitted, .* set their random_state"),
        (PCA(7), "cannot be fitted to these 60 rows .ValueError: n_components=7"),
        (FunctionTransformer(np.log), "feature that the steps of preprocess make of row 0 is not"),
    ],
)
def test_a_transformer_that_cannot_be_fitted_anew_is_refused(transformer: Any, said: str) -> None:
    X = table(N, np.random.default_rng(0))[NUMBERS]
    with pytest.raises(InvalidData, match=said), np.errstate(invalid="ignore"):
        LinearModel(preprocess=Refitted(transformer)).fit(-X.abs(), np.arange(N, dtype=float))


@pytest.mark.parametrize("given", [object(), [StandardScaler()], None])
def test_what_scikit_learn_cannot_clone_is_refused(given: Any) -> None:
    with pytest.raises(InvalidData, match="Refitted takes a transformer that scikit-learn can"):
        Refitted(given)


def test_rows_of_other_types_are_refused_and_nothing_is_changed() -> None:
    X = pd.DataFrame({"town": ["Bern", "Oslo"] * 5, "fee": np.arange(10.0), "paid": [True] * 10})
    steps = make_column_transformer(
        (OneHotEncoder(), ["town"]), remainder="passthrough", sparse_threshold=0.0
    )
    made = LinearModel(preprocess=Refitted(steps)).fit(X, np.arange(10.0))
    row = X.iloc[[0]]
    for other, said in (
        (row.assign(fee="much"), "column 'fee' of X is of type"),
        (row.assign(paid=2.5), "column 'paid' of X is of type float64, and of bool in the rows"),
    ):
        with pytest.raises(InvalidData, match=said):
            made.insert(other, [1.0], ["a"])
    numbers = LinearModel(preprocess=Refitted(StandardScaler())).fit(np.eye(3), [1.0, 2.0, 3.0])
    with pytest.raises(InvalidData, match=r"X is of type .*, and of float64 in the rows"):
        numbers.insert(np.array([["a", "b", "c"]]), [1.0], ["a"])
    unnamed = pd.DataFrame(np.eye(3))
    placed = LinearModel(preprocess=Refitted(StandardScaler())).fit(unnamed, [1.0, 2.0, 3.0])
    with pytest.raises(InvalidData, match=r"X has the columns \[1, 2, 3\], and the model"):
        placed.insert(unnamed.rename(columns=lambda j: j + 1).iloc[:1], [1.0], ["a"])
    assert [len(one.live_ids) for one in (made, numbers, placed)] == [10, 3, 3]


def test_no_feature_and_masked_numbers_are_refused() -> None:
    X, y = np.eye(4), np.arange(4.0)
    with pytest.raises(InvalidData, match="make no feature of X"):
        LinearModel(preprocess=Refitted(Nothing())).fit(X, y)
    with pytest.raises(InvalidData, match="X has masked values"):
        LinearModel(preprocess=Refitted(StandardScaler())).fit(np.ma.masked_equal(X, 1.0), y)


def test_a_change_that_cannot_be_fitted_changes_nothing() -> None:
    one = linear(StandardScaler(), PCA(3), n=8)
    before = one.model.theta
    X, insert = one.X, one.model.insert
    changes: list[tuple[Callable[[], object], str]] = [
        (lambda: one.model.delete([f"r{i}" for i in range(6)]), "n_components=3"),
        (lambda: one.model.delete(list(X.index)), "no row would be left"),
        (lambda: insert(X[["age", "fee"]].iloc[[0]], [0.0], ["a"]), "use"),
        (lambda: insert(X.iloc[:2], [0.0], ["a"]), "2 rows of X, 1 of y"),
    ]
    for change, said in changes:
        with pytest.raises(InvalidData, match=said):
            change()
    with pytest.raises(InvalidData, match="2-dimensional"), pytest.warns(match="feature names"):
        insert(X.iloc[[0]].to_numpy(), [0.0], ["a"])
    np.testing.assert_array_equal(one.model.theta, before)
    assert len(one.model.live_ids) == 8
    one.delete("r0")
    assert one.distance() < 1e-10


@pytest.mark.parametrize(
    ("X", "y", "said"),
    [
        (5.0, [1.0], "X is not an array of rows, but one float"),
        ([[1.0], [1.0, 2.0]], [1.0, 2.0], "X is not an array of rows: "),
        ([[1.0], [2.0]], [1.0], r"X has 2 rows, but y has shape \(1,\)"),
        ([[1.0], [2.0]], 1.0, r"X has 2 rows, but y has shape \(\)"),
        ([["a"], ["b"]], [1.0, 2.0], "cannot be fitted to these 2 rows"),
    ],
)
def test_what_are_no_rows_is_refused_in_one_line(X: Any, y: Any, said: str) -> None:
    with pytest.raises(InvalidData, match=said):
        LinearModel(preprocess=Refitted(StandardScaler())).fit(X, y)


class Frame:
    """A data frame of another library than pandas."""

    columns = ("a",)


def test_other_data_frames_are_refused_with_the_way_out() -> None:
    other: Any = Frame()
    with pytest.raises(InvalidData, match=r"not .*Frame; call to_pandas\(\) on it"):
        LinearModel(preprocess=Refitted(StandardScaler())).fit(other, [1.0, 2.0, 3.0])


def test_a_model_without_a_weight_is_refused() -> None:
    X = np.arange(10.0).reshape(5, 2)
    model = LinearModel(preprocess=Refitted(StandardScaler()))
    model.fit(X, np.arange(5.0), ids=list("abcde"), sample_weight=[1, 1, 0, 0, 0])
    with pytest.raises(InvalidData, match="no row with a weight would be left"):
        model.delete(["a", "b"])


def test_diagnostics_and_summaries_are_of_models_whose_features_stay() -> None:
    model = linear(StandardScaler(), PCA(2)).model
    for ask in (model.leverage, model.leave_one_out, model.summary):
        with pytest.raises(InvalidData, match="without preprocessing inside"):
            ask()


# -- from scikit-learn -------------------------------------------------------------------------


def test_a_pipeline_is_refitted_only_if_some_step_cannot_be_inside() -> None:
    rng = np.random.default_rng(9)
    X = table(N, rng)[NUMBERS]
    y = targets(X, rng)
    inside = ridge(StandardScaler()).fit(X, y)
    assert LinearModel.from_sklearn(inside, X, y, refit=True).prepared is not None
    outside = Pipeline(
        [("prepare", make_pipeline(StandardScaler(), PCA(2))), ("ridge", Ridge())]
    ).fit(X, y)
    with pytest.raises(InvalidData, match=r"PCA: .*refit=True"):
        LinearModel.from_sklearn(outside, X, y)
    model = LinearModel.from_sklearn(outside, X, y, refit=True)
    assert model.refitted is not None
    assert model.converted_from_ is not None
    assert model.converted_from_.largest < 1e-12
    model.delete(["3"], method="exact")
    refit = clone(outside).fit(X.drop(3), y[np.arange(N) != 3])
    np.testing.assert_allclose(model.predict(X), refit.predict(X), rtol=1e-10)
    plain = model.to_sklearn()
    assert [name for name, _ in plain.steps] == [
        "prepare-standardscaler", "prepare-pca", "ridge",
    ]  # fmt: skip
    np.testing.assert_allclose(plain.predict(X), refit.predict(X), rtol=1e-10)


def test_steps_that_were_fitted_to_other_rows_or_a_last_one_that_is_none_are_refused() -> None:
    rng = np.random.default_rng(10)
    X = table(N, rng)[NUMBERS]
    y = targets(X, rng)
    pipeline = ridge(StandardScaler(), PCA(2)).fit(X, y)
    pipeline[0].fit(X.iloc[:30])
    with pytest.raises(InvalidData, match="fit the Pipeline on the rows given"):
        LinearModel.from_sklearn(pipeline, X, y, refit=True)
    other = make_pipeline(StandardScaler(), PCA(2), KMeans(2, n_init=1)).fit(X)
    with pytest.raises(InvalidData, match="KMeans: it minimises another objective"):
        LinearModel.from_sklearn(other, X, y, refit=True)
