"""Several classes, and several targets, from a file to the exported parameters, by the command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from safetensors import safe_open
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier

from lethe.consumers import ModelSubscriber
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from tests.support.command import Lethe
from tests.support.extras import need

# One worker runs the file: its tests share servers, and some build on those before.
pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_cli_classes")]

ROWS = 150
NAMES = ("rose", "iris", "tulip")
FEATURES = ("a", "b", "c")


def flowers() -> pa.Table:
    """Return 150 rows of three classes, two targets, 50 households of three rows."""
    draw = np.random.default_rng(11)
    X = draw.standard_normal((ROWS, 3))
    species = np.argmax(1.5 * X + draw.gumbel(size=(ROWS, 3)), axis=1)
    return pa.table(
        {
            "id": [f"u{i}" for i in range(ROWS)],
            "household": [f"h{i // 3}" for i in range(ROWS)],
            **dict(zip(FEATURES, X.T, strict=True)),
            "species": [NAMES[s] for s in species],
            "height": X @ [1.0, 2.0, 0.0] + draw.standard_normal(ROWS),
            "weight": X @ [0.0, -1.0, 1.0] + draw.standard_normal(ROWS),
        }
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedValkey]:
    with EmbeddedValkey(tmp_path_factory.mktemp("classes")) as server:
        yield server


@pytest.fixture(scope="module")
def lethe(server: EmbeddedValkey, tmp_path_factory: pytest.TempPathFactory) -> Lethe:
    """Given a model of three classes and one of two targets, when a household has left."""
    lethe = Lethe(server.data_dir)
    table, files = flowers(), tmp_path_factory.mktemp("files")
    pacsv.write_csv(table, files / "rows.csv")
    pq.write_table(table, files / "rows.parquet")
    names = ("--id", "id", "--subject", "household", "--features", ",".join(FEATURES))
    found = lethe("register", "species", "--data", str(files / "rows.csv"), *names,
                  "--target", "species", "--kind", "logistic", "--ridge", "1")  # fmt: skip
    counts = [table["species"].to_pylist().count(name) for name in sorted(NAMES)]
    shown = ", ".join(f"{n} ({k} rows)" for n, k in zip(sorted(NAMES), counts, strict=True))
    assert f"3 classes: {shown}" in found.out
    lethe("register", "sizes", "--data", str(files / "rows.parquet"), *names, "--kind", "linear",
          "--target", "height", "--target", "weight", "--ridge", "1")  # fmt: skip
    for model in ("species", "sizes"):
        lethe("delete", model, "--subject", "h4")
    assert lethe("work", "--until-idle", "--json").document["requests"] == {"APPLIED": 2}
    for model in ("species", "sizes"):
        lethe("refresh", model, "--size", "rebuild")
    lethe("work", "--until-idle")
    return lethe


def live() -> tuple[np.ndarray, pa.Table]:
    """Return features and table without the rows that left."""
    keep = [i for i in range(ROWS) if i not in {12, 13, 14}]
    table = flowers().take(keep)
    return np.column_stack([table[name] for name in FEATURES]), table


def test_both_are_verified_against_independent_refits(lethe: Lethe) -> None:
    for model in ("species", "sizes"):
        found = lethe("verify", model, "--json").document
        assert found["verified"] is True
        assert found["bound"] < 1e-6
        assert found["refit"]["residual"] < 1e-10


def test_exports_of_classes_are_scikit_learns_one_vs_rest(lethe: Lethe, tmp_path: Path) -> None:
    for form in ("json", "npz", "safetensors"):
        lethe("export", "species", "--out", str(tmp_path / f"out.{form}"))
    whole = json.loads((tmp_path / "out.json").read_text())
    assert whole["classes"] == sorted(NAMES)
    assert whole["target_names"] == ["species"]
    X, table = live()
    judge = OneVsRestClassifier(LogisticRegression(C=1.0, tol=1e-12, max_iter=10_000))
    judge.fit(X, table["species"].to_pylist())
    coefficients = np.vstack([one.coef_ for one in judge.estimators_]).T
    np.testing.assert_allclose(whole["theta"], coefficients, atol=1e-5)
    np.testing.assert_allclose(
        whole["intercept"], [one.intercept_[0] for one in judge.estimators_], atol=1e-5
    )
    with np.load(tmp_path / "out.npz", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(whole["theta"], arrays["theta"])
        assert arrays["classes"].tolist() == sorted(NAMES)
    with safe_open(tmp_path / "out.safetensors", framework="np") as tensors:
        np.testing.assert_array_equal(whole["intercept"], tensors.get_tensor("intercept"))
        assert json.loads(tensors.metadata()["classes"]) == sorted(NAMES)


def test_exports_of_several_targets_are_ridge_regressions(lethe: Lethe, tmp_path: Path) -> None:
    for form in ("json", "npz", "safetensors"):
        lethe("export", "sizes", "--out", str(tmp_path / f"out.{form}"))
    whole = json.loads((tmp_path / "out.json").read_text())
    assert whole["target_names"] == ["height", "weight"]
    assert "classes" not in whole
    X, table = live()
    judge = Ridge(alpha=1.0).fit(X, np.column_stack([table["height"], table["weight"]]))
    np.testing.assert_allclose(whole["theta"], judge.coef_.T, rtol=1e-8)
    np.testing.assert_allclose(whole["intercept"], judge.intercept_, rtol=1e-8)
    with np.load(tmp_path / "out.npz", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(whole["theta"], arrays["theta"])
    with safe_open(tmp_path / "out.safetensors", framework="np") as tensors:
        np.testing.assert_array_equal(whole["theta"], tensors.get_tensor("theta"))


def test_exports_for_serving_predict_what_one_vs_rest_does(lethe: Lethe, tmp_path: Path) -> None:
    need("skops", "skl2onnx", "onnxruntime")
    import onnxruntime
    from skops.io import load

    for form in ("skops", "onnx"):
        lethe("export", "species", "--out", str(tmp_path / f"out.{form}"))
    X, table = live()
    judge = OneVsRestClassifier(LogisticRegression(C=1.0, tol=1e-12, max_iter=10_000))
    judge.fit(X, table["species"].to_pylist())
    loaded = load(tmp_path / "out.skops", trusted=[])
    session = onnxruntime.InferenceSession(str(tmp_path / "out.onnx"))
    label, probabilities = session.run(None, {"X": X})
    named = {name: X[:, place] for place, name in enumerate(FEATURES)}
    predicted = loaded.predict_proba(pd.DataFrame(named))
    np.testing.assert_allclose(predicted, judge.predict_proba(X), atol=1e-5)
    np.testing.assert_allclose(probabilities, predicted, rtol=1e-12)
    assert label.tolist() == judge.predict(X).tolist()
    assert loaded.estimator.C == 1.0


def test_a_registry_of_mlflow_has_the_newest_versions(
    lethe: Lethe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("mlflow", "skops")
    monkeypatch.setitem(lethe.environment, "MLFLOW_ALLOW_FILE_STORE", "true")
    where = ("--tracking-uri", (tmp_path / "mlruns").as_uri())
    for _ in range(2):
        found = lethe("mirror", "mlflow", "--once", "--json", *where)
        assert found.document == {"state": "mirrored", "models": 2}
    [saved] = (tmp_path / "mlruns" / "models" / "species").glob("version-*")
    tags = {path.name: path.read_text() for path in (saved / "tags").iterdir()}
    newest = lethe("versions", "species", "--json").document["versions"][-1]
    assert (tags["lethe.digest"], tags["lethe.version"]) == (
        newest["digest"],
        str(newest["version"]),
    )
    assert len(list(tmp_path.rglob("*.skops"))) == 2


def test_a_subscriber_predicts_from_a_checked_history(lethe: Lethe, server: EmbeddedValkey) -> None:
    X, table = live()
    judge = OneVsRestClassifier(LogisticRegression(C=1.0, tol=1e-12, max_iter=10_000))
    judge.fit(X, table["species"].to_pylist())
    with ModelSubscriber.connect(redis=server.url) as models:
        species, sizes = models.latest("species"), models.latest("sizes")
        history = list(models.follow("sizes", from_version=0, timeout=0.0))
    np.testing.assert_allclose(species.predict(X), judge.predict_proba(X), atol=1e-5)
    named = {name: X[:, place] for place, name in enumerate(FEATURES)}
    np.testing.assert_array_equal(species.predict(named), species.predict(X))
    assert list(species.classes) == list(judge.classes_)
    assert sizes.predict(X).shape == (len(X), 2)
    assert history[-1].digest == sizes.digest
    assert len(lethe("versions", "species", "--json").document["versions"]) == species.version + 1


def test_status_and_check_know_of_classes_and_targets(lethe: Lethe) -> None:
    one = lethe("status", "species").out
    assert "species, 3 classes: iris (" in one
    assert "height, weight" in lethe("status", "sizes").out
    found = lethe("status", "--json").document["models"]
    species = next(model for model in found if model["model_id"] == "species")
    assert sum(species["class_counts"]) == species["rows_live"] == ROWS - 3
    assert lethe("check", "--json").document["ok"] is True


def test_a_number_for_every_row_is_no_class(lethe: Lethe, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id,a,y\n" + "".join(f"u{i},{i % 7},{i}\n" for i in range(120)))
    found = lethe("register", "bad", "--data", str(path), "--id", "id", "--target", "y", "--kind",
                  "logistic", "--ridge", "1", code=2)  # fmt: skip
    assert "120 different values" in found.err
    assert "If it is a number, fit a linear model" in found.err


def test_two_named_classes_are_told_apart_by_one_column(lethe: Lethe, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    draw = np.random.default_rng(2)
    x = draw.standard_normal(60)
    left = x + draw.standard_normal(60) > 0
    lines = [f"u{i},{x[i]},{'yes' if left[i] else 'no'}\n" for i in range(60)]
    path.write_text("id,a,left\n" + "".join(lines))
    lethe("register", "left", "--data", str(path), "--id", "id", "--target", "left", "--kind",
          "logistic", "--ridge", "1")  # fmt: skip
    lethe("export", "left", "--out", str(tmp_path / "left.json"))
    whole = json.loads((tmp_path / "left.json").read_text())
    assert whole["classes"] == ["no", "yes"]
    judge = LogisticRegression(C=1.0, tol=1e-12).fit(x[:, None], np.where(left, "yes", "no"))
    np.testing.assert_allclose(whole["theta"], judge.coef_[0], atol=1e-5)
    assert lethe("verify", "left", "--json").document["verified"] is True
