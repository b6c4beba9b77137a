"""A fitted Pipeline becomes a model of the service by one line, in the shell and in Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.compose import (
    ColumnTransformer,
    TransformedTargetRegressor,
    make_column_selector,
    make_column_transformer,
)
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    PowerTransformer,
    StandardScaler,
)
from skops import io as skops

import lethe
from lethe.consumers.registration.fitted_estimator import FittedEstimator
from lethe.consumers.service.configuration.settings import load_settings
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from lethe.engine.errors import InvalidData, ModelExists
from tests.support.command import Within

pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_from_estimator")]

N = 300
NUMBERS = ["months", "fee"]
TABLE = ("--id", "id", "--target", "left")


def churn(n: int = N) -> pd.DataFrame:
    """Return a table with gaps, categories and truth values, as there are many."""
    draw = np.random.default_rng(5)
    months, fee = draw.normal(30.0, 12.0, n), draw.normal(50.0, 20.0, n)
    town = draw.choice(["Ulm", "Bonn", "Kiel"], n)
    left = (months - 30.0) / 12.0 - (town == "Ulm") + draw.normal(size=n) < 0.0
    fee[draw.random(n) < 0.1] = np.nan
    return pd.DataFrame(
        {
            "id": [f"u{i}" for i in range(n)],
            "months": months,
            "fee": fee,
            "town": town,
            "active": draw.random(n) < 0.5,
            "left": np.where(left, "yes", "no"),
        }
    )


def columns(*, scaler_first: bool = False) -> ColumnTransformer:
    """Return what such a table is given to."""
    steps = [SimpleImputer(add_indicator=scaler_first), StandardScaler()]
    return make_column_transformer(
        (make_pipeline(*(reversed(steps) if scaler_first else steps)), NUMBERS),
        (OneHotEncoder(handle_unknown="ignore"), ["town", "active"]),
    )


def fitted(rows: pd.DataFrame, final: Any = None, before: Any = None) -> Pipeline:
    """Return a Pipeline that is fitted to the rows."""
    final = LogisticRegression(tol=1e-10, max_iter=1000) if final is None else final
    whole = make_pipeline(columns() if before is None else before, final)
    return whole.fit(rows.drop(columns=["id", "left"]), rows["left"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedValkey]:
    with EmbeddedValkey(tmp_path_factory.mktemp("valkey")) as running:
        yield running


@pytest.mark.parametrize(
    ("form", "several"), [("csv", False), ("parquet", False), ("parquet", True)]
)
def test_a_fitted_pipeline_is_registered_by_one_line_and_forgets(
    server: EmbeddedValkey, tmp_path: Path, form: str, *, several: bool
) -> None:
    """Given one row less, the service's model is the Pipeline that is fitted without it."""
    rows, lethe_, final = churn(), Within(server.data_dir), None
    if several:
        rows.loc[np.random.default_rng(6).random(N) < 0.3, "left"] = "perhaps"
        final = OneVsRestClassifier(LogisticRegression(tol=1e-10, max_iter=1000))
    path, file = tmp_path / f"rows.{form}", tmp_path / "pipeline.skops"
    rows.to_csv(path, index=False) if form == "csv" else rows.to_parquet(path)
    pipeline = fitted(rows, final)
    skops.dump(pipeline, file)
    model = f"churn-{form}-{several}"
    said = lethe_("register", model, "--from", str(file), "--data", str(path), *TABLE,
                  "--method", "exact", "--json").document  # fmt: skip
    assert (said["kind"], said["classes"]) == ("logistic", sorted(set(rows["left"])))
    assert said["fit_intercept"]
    assert said["columns"] == ["months", "fee", "town", "active"]
    assert said["converted_from"]["estimator"] == "Pipeline"
    assert said["converted_from"]["largest"] < 1e-6
    with lethe_.working():
        lethe_("delete", model, "--row", "u7", "--wait")
    lethe_("verify", model)
    exported = tmp_path / "without.skops"
    lethe_("export", model, "--out", str(exported))
    less = rows[rows["id"] != "u7"]
    refit = clone(pipeline).fit(less.drop(columns=["id", "left"]), less["left"])
    there = skops.load(exported, trusted=["numpy.dtype"])
    X = rows.drop(columns=["id", "left"])
    apart = np.abs(there.predict_proba(X) - refit.predict_proba(X)).max()
    moved = np.abs(pipeline.predict_proba(X) - refit.predict_proba(X)).max()
    assert apart < 1e-2 * moved


@pytest.mark.parametrize("scaler_first", [False, True])
def test_a_ridge_classifier_of_signs_is_registered_and_forgets(
    server: EmbeddedValkey, tmp_path: Path, *, scaler_first: bool
) -> None:
    model = f"signs-{scaler_first}"
    rows, lethe_ = churn(), Within(server.data_dir)
    rows["left"] = np.where(rows["left"] == "yes", 1, -1)
    path, file = tmp_path / "rows.csv", tmp_path / "pipeline.skops"
    rows.to_csv(path, index=False)
    final = RidgeClassifier(alpha=2.0, class_weight={-1: 1.0, 1: 3.0})
    pipeline = fitted(rows, final, columns(scaler_first=scaler_first))
    skops.dump(pipeline, file)
    said = lethe_("register", model, "--from", str(file), "--data", str(path), *TABLE,
                  "--method", "exact", "--json").document  # fmt: skip
    assert (said["kind"], said["classes"], said["class_weights"]) == ("linear", [], [1.0, 3.0])
    assert said["converted_from"]["largest"] < 1e-9
    with lethe_.working():
        lethe_("delete", model, "--row", "u7", "--wait")
    exported = tmp_path / "without.skops"
    lethe_("export", model, "--out", str(exported))
    less, X = rows[rows["id"] != "u7"], rows.drop(columns=["id", "left"])
    refit = clone(pipeline).fit(less.drop(columns=["id", "left"]), less["left"])
    there = skops.load(exported, trusted=["numpy.dtype"])
    np.testing.assert_allclose(there.predict(X), refit.decision_function(X), rtol=1e-9)


def test_columns_that_were_chosen_by_their_type_are_read_from_a_file(
    server: EmbeddedValkey, tmp_path: Path
) -> None:
    rows, table, file = churn(), tmp_path / "rows.parquet", tmp_path / "pipeline.skops"
    rows.to_parquet(table)
    number = make_column_selector(dtype_include=[np.number, np.floating, np.integer])
    others = make_column_selector(dtype_include=[object, "str", bool])
    filled = make_pipeline(SimpleImputer(), StandardScaler())
    before = make_column_transformer((filled, number), (OneHotEncoder(), others))
    skops.dump(fitted(rows, before=before), file)
    line = ("register", "by-type", "--from", str(file), "--data", str(table), *TABLE)
    assert "registered by-type: version 0" in Within(server.data_dir)(*line).out


def test_rows_in_files_are_not_compared_and_that_is_said(
    server: EmbeddedValkey, tmp_path: Path
) -> None:
    rows, lethe_ = churn(), Within(server.data_dir)
    path, file = tmp_path / "rows.csv", tmp_path / "pipeline.skops"
    rows.to_csv(path, index=False)
    skops.dump(fitted(rows), file)
    said = lethe_("register", "filed", "--from", str(file), "--data", str(path), *TABLE,
                  "--rows", str(tmp_path / "files")).out  # fmt: skip
    assert "registered filed: version 0, logistic by pru, 300 rows" in said
    assert "not compared with the estimator" in said


def test_the_same_line_in_python(server: EmbeddedValkey) -> None:
    rows = churn()
    X, y = rows.drop(columns=["id", "left"]), rows["left"]
    settings = load_settings({"data_dir": server.data_dir})
    pipeline = fitted(rows)
    done = lethe.register(
        "in-python", pipeline, X, y, ids=rows["id"], subjects=rows["town"], settings=settings
    )
    assert (done.version, done.rows) == (0, N)
    assert done.converted_from.largest < 1e-6
    assert {str(step.nature) for step in done.steps} == {"inside"}
    with pytest.raises(ModelExists):
        lethe.register("in-python", pipeline, X, y, ids=rows["id"], settings=settings)
    array = X[["months"]].to_numpy()
    ridge = make_pipeline(StandardScaler(), Ridge()).fit(array, array[:, 0] * 2)
    bare = lethe.register("array", ridge, array, array[:, 0] * 2, ids=range(N), settings=settings)
    assert bare.converted_from.relative < 1e-12


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "-x"}, "'-x' is not a valid model name"),
        ({"error_budget": float("nan")}, "error_budget must be a finite number above 0"),
        ({"method": "newton"}, "method must be one of pru, exact, influence, not 'newton'"),
        ({"method": "influence"}, "needs method='pru' or 'exact'"),
        ({"ids": ["a"]}, "ids has another length than X, which has 300 rows"),
        ({"ids": ["a", None] * (N // 2)}, "the id is empty"),
        ({"ids": None}, "ids has another length than X, which has 300 rows"),
        ({"y": None}, "y has another length than X, which has 300 rows"),
        ({"ids": ["a"] * N}, "^the rows given: .* the same id .* give it with subjects, and with"),
        ({"ids": ["a", 1] * (N // 2)}, "column 'id' .* each column of X of one type: numbers"),
        ({"X": churn()[["town", "town"]]}, "X has more than one column 'town'; rename one"),
        ({"X": churn()[[]][:0], "y": [], "ids": []}, "the rows given"),
        ({"subjects": ["s"] * N, "namespace": ""}, "a namespace has 1 to 128 characters"),
        ({"namespace": "people"}, "namespace is that of subjects: give subjects, or leave it out"),
    ],
)
def test_what_python_gives_is_judged_as_the_command_does(
    server: EmbeddedValkey, changes: dict[str, Any], message: str
) -> None:
    rows = churn()
    given: dict[str, Any] = {"model": "none", "ids": rows["id"], **changes}
    settings = load_settings({"data_dir": server.data_dir})
    X, y = rows.drop(columns=["id", "left"]), rows["left"]
    given = {"X": X, "y": y, "estimator": fitted(rows), "settings": settings, **given}
    with pytest.raises(InvalidData, match=message):
        lethe.register(**given)


def test_frames_of_arrow_and_sparse_matrices_are_rows_like_others(server: EmbeddedValkey) -> None:
    rows, settings = churn(), load_settings({"data_dir": server.data_dir})
    X, y = rows.drop(columns=["id", "left"]), rows["left"]
    arrow = pa.Table.from_pandas(X)
    done = lethe.register("arrow", fitted(rows), arrow, y, ids=rows["id"], settings=settings)
    assert done.converted_from.largest < 1e-6
    sparse = csr_array(np.round(X[["months"]].to_numpy() / 20.0))
    ridge = Ridge().fit(sparse, rows["months"])
    done = lethe.register("csr", ridge, sparse, rows["months"], ids=range(N), settings=settings)
    assert done.converted_from.largest < 1e-6


def test_a_row_without_a_subject_is_nobodys(server: EmbeddedValkey) -> None:
    rows = churn()
    X, y = rows.drop(columns=["id", "left"]), rows["left"]
    owners: list[Any] = ["s1", None, float("nan")] + ["s2"] * (N - 3)
    settings = load_settings({"data_dir": server.data_dir})
    lethe.register("owners", fitted(rows), X, y, ids=rows["id"], subjects=owners, settings=settings)
    with Within(server.data_dir).working():
        said = Within(server.data_dir)("delete", "owners", "--subject", "nan", "--wait", code=1)
    assert "REJECTED" in said.out + said.err


def test_what_moves_is_said_with_what_would_move_it_less(server: EmbeddedValkey) -> None:
    rows = churn()
    X, y = rows.drop(columns=["id", "left"]), rows["left"]
    settings = load_settings({"data_dir": server.data_dir})
    loose = fitted(rows, LogisticRegression(tol=0.05))
    with pytest.warns(UserWarning, match="fit it with tol=1e-"):
        lethe.register("loose", loose, X, y, ids=rows["id"], settings=settings)
    with pytest.warns(ConvergenceWarning):
        short = fitted(rows, LogisticRegression(max_iter=1))
    with pytest.warns(UserWarning, match="it stopped at max_iter=1: fit it with more"):
        lethe.register("short", short, X, y, ids=rows["id"], settings=settings)


def test_a_dry_run_says_what_becomes_of_each_step_and_a_refusal_names_the_way_out(
    server: EmbeddedValkey, tmp_path: Path
) -> None:
    rows, lethe_ = churn(), Within(server.data_dir)
    path, file = tmp_path / "rows.csv", tmp_path / "pipeline.skops"
    rows.to_csv(path, index=False)
    before = make_column_transformer(
        (make_pipeline(SimpleImputer(), PowerTransformer()), NUMBERS),
        (OneHotEncoder(), ["town"]),
        remainder="drop",
    )
    skops.dump(fitted(rows, before=before), file)
    line = ("register", "frozen", "--from", str(file), "--data", str(path), *TABLE)
    refused = lethe_(*line, "--dry-run", code=2)
    one, two, three, four = refused.out.splitlines()
    assert "SimpleImputer on months, fee: inside" in one
    assert "PowerTransformer on months, fee: refused" in two
    assert "OneHotEncoder on town: inside" in three
    assert "drop on active: stateless" in four
    assert "'powertransformer', column 'months', PowerTransformer" in refused.err
    assert "--freeze" in refused.err
    planned = lethe_(*line, "--dry-run", "--freeze", "--json").document
    assert [step["nature"] for step in planned["steps"]] == ["frozen"] * 3 + ["stateless"]
    done = lethe_(*line, "--freeze")
    assert "the transformer is frozen: what it learnt from deleted rows stays in it" in done.out


def test_a_whole_pipeline_is_understood_as_a_frozen_transformer(
    server: EmbeddedValkey, tmp_path: Path
) -> None:
    rows, lethe_ = churn(), Within(server.data_dir)
    path, file = tmp_path / "rows.csv", tmp_path / "pipeline.skops"
    rows.to_csv(path, index=False)
    skops.dump(fitted(rows), file)
    said = lethe_("register", "before", "--preprocess", str(file), "--data", str(path), *TABLE,
                  "--kind", "logistic", "--ridge", "1").out  # fmt: skip
    assert "the last step, 'logisticregression', is left out" in said


def test_what_cannot_be_registered_is_refused_in_one_line(
    server: EmbeddedValkey, tmp_path: Path
) -> None:
    rows, lethe_ = churn(), Within(server.data_dir)
    path, file = tmp_path / "rows.csv", tmp_path / "pipeline.skops"

    def said(estimator: Any, table: pd.DataFrame, *more: str) -> str:
        table.to_csv(path, index=False)
        skops.dump(estimator, file)
        answer = lethe_(
            "register", "none", "--from", str(file), "--data", str(path), *TABLE, *more, code=2
        )
        assert answer.err.count("\n") == 1, answer.err
        return answer.err

    good = fitted(rows)
    assert "is not fitted; fit it first" in said(clone(good), rows)
    others = rows.assign(left=np.where(rows["left"] == "yes", "gone", "no"))
    assert "has the classes gone, no, and the estimator was fitted on no, yes" in said(good, others)
    assert "has no column 'fee'" in said(good, rows.drop(columns="fee"))
    apart = rows.assign(months=rows["months"] * 2.0)
    assert "fit the Pipeline on the rows given" in said(good, apart)
    assert "--from says what --ridge does" in said(good, rows, "--ridge", "1")
    numbers = make_pipeline(StandardScaler(), PCA(1), Ridge()).fit(rows[["months"]], rows.index)
    assert "step 'pca', column 'months', PCA" in said(numbers, rows)
    signs = RidgeClassifier().fit(rows[["months"]], rows["left"])
    assert "was fitted to no, yes; fit it to a column of -1 and 1" in said(signs, rows)
    penalised = LogisticRegression(solver="liblinear").fit(rows[["months"]], rows["left"])
    assert "solver='liblinear' penalises the intercept, which models" in said(penalised, rows)
    logarithm = TransformedTargetRegressor(Ridge(), func=np.log1p, inverse_func=np.expm1)
    for one in (logarithm, make_pipeline(StandardScaler(), logarithm)):
        given = clone(one).fit(rows[["months"]], rows.index)
        assert "func=numpy.log1p is learnt of the target, and the service" in said(given, rows)
        assert "compute a column with numpy.log1p of the target" in said(given, rows)
    bare = Ridge().fit(rows[["months"]].to_numpy(), rows.index)
    assert "name them in order with --features" in said(bare, rows)
    assert lethe_("status", "--json").document["models"] is not None


def test_a_file_of_another_scikit_learn_or_with_other_types_is_refused(
    server: EmbeddedValkey, tmp_path: Path
) -> None:
    rows, lethe_ = churn(), Within(server.data_dir)
    path, file = tmp_path / "rows.csv", tmp_path / "pipeline.skops"
    rows.to_csv(path, index=False)
    line = ("register", "none", "--from", str(file), "--data", str(path), *TABLE)
    with mock.patch("sklearn.base.__version__", "1.0.2"):
        skops.dump(fitted(rows), file)
    assert "was fitted with scikit-learn 1.0.2, and here is 1." in lethe_(*line, code=2).err
    file.write_bytes(b"not a zip")
    assert "is no .skops file that can be read" in lethe_(*line, code=2).err
    skops.dump(make_pipeline(FunctionTransformer(churn), Ridge()), file)
    assert "test_from_estimator.churn" in lethe_(*line, code=2).err


def test_what_an_estimator_becomes_is_read_without_its_rows() -> None:
    rows = churn()
    read = FittedEstimator.of(fitted(rows), Path("p.skops"), "digest")
    assert read.columns == ("months", "fee", "town", "active")
    assert (read.kind.value, read.ridge, read.fit_intercept) == ("logistic", 1.0, True)
    with pytest.raises(InvalidData, match="leave out --features"):
        FittedEstimator.of(fitted(rows), Path("p.skops"), "digest", names=["a"])
