"""One softmax of several classes, from a file to evidence and exports, by the command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from lethe.consumers import ModelSubscriber
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from tests.support.command import Lethe
from tests.support.extras import need
from tests.support.page_verifier import page_verifier

# One worker runs the file: its tests share servers, and some build on those before.
pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_cli_softmax")]

ROWS, GONE = 150, (3, 4, 5, 80)
FEATURES = ["a", "b", "c"]
SPECIES = np.array(["iris", "rose", "tulip"])
NEW = {"id": "new", "a": 0.5, "b": -0.25, "c": 1.0, "species": "rose"}


def flowers() -> pd.DataFrame:
    draw = np.random.default_rng(12)
    X = draw.standard_normal((ROWS, 3))
    table = pd.DataFrame(X, columns=FEATURES)
    table.insert(0, "id", [f"u{i}" for i in range(ROWS)])
    margins = X @ draw.standard_normal((3, 3)) + draw.gumbel(size=(ROWS, 3))
    table["species"] = SPECIES[margins.argmax(axis=1)]
    return table


def left() -> pd.DataFrame:
    return pd.concat([flowers().drop(list(GONE)), pd.DataFrame([NEW])], ignore_index=True)


def refitted() -> LogisticRegression:
    table = left()
    judge = LogisticRegression(C=0.5, solver="newton-cg", tol=1e-12, max_iter=1_000)
    return judge.fit(table[FEATURES], table["species"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedValkey]:
    with EmbeddedValkey(tmp_path_factory.mktemp("softmax")) as server:
        yield server


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    flowers().to_csv(folder / "rows.csv", index=False)
    left().to_csv(folder / "left.csv", index=False)
    pd.DataFrame([NEW]).to_csv(folder / "new.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def lethe(server: EmbeddedValkey, files: Path) -> Lethe:
    """Given a model of three classes, when rows have left and one has come."""
    lethe = Lethe(server.data_dir)
    columns = ("--id", "id", "--target", "species")
    lethe("register", "flowers", "--data", str(files / "rows.csv"), *columns, "--kind", "softmax",
          "--ridge", "2")  # fmt: skip
    lethe("delete", "flowers", *(part for i in GONE for part in ("--row", f"u{i}")))
    lethe("work", "--until-idle")
    lethe("insert", "flowers", "--id", "id", "--data", str(files / "new.csv"))
    lethe("work", "--until-idle")
    return lethe


def test_it_is_verified_against_an_independent_refit(lethe: Lethe) -> None:
    before = lethe("verify", "flowers", "--json").document
    assert before["verified"] is True
    assert before["refit"]["residual"] < 1e-10
    lethe("refresh", "flowers", "--size", "rebuild")
    lethe("work", "--until-idle")
    after = lethe("verify", "flowers", "--json").document
    assert after["verified"] is True
    assert after["bound"] < 1e-9


def test_exports_and_subscribers_predict_what_a_refit_of_scikit_learn_does(
    lethe: Lethe, server: EmbeddedValkey, tmp_path: Path
) -> None:
    lethe("export", "flowers", "--out", str(tmp_path / "out.json"))
    whole, judge = json.loads((tmp_path / "out.json").read_text()), refitted()
    assert (whole["kind"], whole["classes"]) == ("softmax", judge.classes_.tolist())
    np.testing.assert_allclose(whole["theta"], judge.coef_.T, rtol=1e-7, atol=1e-9)
    centred = judge.intercept_ - judge.intercept_.mean()
    np.testing.assert_allclose(whole["intercept"], centred, rtol=1e-7, atol=1e-9)
    with ModelSubscriber.connect(redis=server.url) as models:
        version = models.latest("flowers")
    likely = judge.predict_proba(left()[FEATURES])
    np.testing.assert_allclose(version.predict(left()), likely, rtol=1e-7)


def test_its_evidence_passes_both_verifiers_and_that_of_other_rows_does_not(
    lethe: Lethe, files: Path, tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle"
    assert lethe("audit", "flowers", "--json").document["verdict"] != "REFUSED"
    lethe("audit", "flowers", "--export", str(bundle))
    for table, failed in (("left.csv", 0), ("rows.csv", 1)):
        held = ("--data", str(files / table), "--id", "id", "--ridge", "2")
        # The key is one that the file itself names, which proves nothing: exit code 1.
        found = lethe("audit", "--bundle", str(bundle), *held, "--json", code=1).document
        [bound] = [one for one in found["checks"] if one["check"] == "bound"]
        assert bound["result"] == ("FAILED" if failed else "OK")
        assert found["failed"] == failed
    with page_verifier(tmp_path) as page:
        found = page(bundle, table=files / "left.csv", id="id", ridge="2")
    assert "crash" not in found
    assert {one["result"] for one in found["checks"]} <= {"OK", "NOT CHECKED", "NOT PROVED"}
    [why] = [one["detail"] for one in found["checks"] if "closed form" in one["detail"]]
    assert "only a linear model" in why


def test_a_multinomial_estimator_becomes_a_model_of_one_softmax(
    lethe: Lethe, server: EmbeddedValkey, files: Path, tmp_path: Path
) -> None:
    need("skops")
    from skops.io import dump

    table, bare, scaled = flowers(), tmp_path / "bare.skops", tmp_path / "pipeline.skops"
    given = LogisticRegression(C=0.2, tol=1e-10).fit(table[FEATURES], table["species"])
    dump(given, bare)
    whole = make_pipeline(StandardScaler(), LogisticRegression(C=0.2, tol=1e-10))
    dump(whole.fit(table[FEATURES], table["species"]), scaled)
    rows = ("--data", str(files / "rows.csv"), "--id", "id", "--target", "species")
    refused = lethe("register", "given", "--from", str(scaled), *rows, code=2).err
    assert "preprocessing inside a softmax model is in the library alone" in refused
    assert refused.count("\n") == 1
    for file, options in ((bare, ()), (scaled, ("--freeze", "--replace"))):
        lethe("register", "given", "--from", str(file), *rows, *options)
        shown = lethe("status", "given", "--json").document
        assert (shown["kind"], shown["ridge"]) == ("softmax", pytest.approx(5.0))
    with ModelSubscriber.connect(redis=server.url) as models:
        version = models.latest("given")
    features = whole[:-1].transform(table[FEATURES])
    likely = whole.predict_proba(table[FEATURES])
    np.testing.assert_allclose(version.predict(features), likely, atol=1e-5)
    lethe("unregister", "given", "--yes")


def test_status_names_the_kind_and_the_classes(lethe: Lethe) -> None:
    [model] = lethe("status", "--json").document["models"]
    assert model["kind"] == "softmax"
    assert sum(model["class_counts"]) == model["rows_live"] == len(left())
    assert "softmax" in lethe("status", "flowers").out
    assert lethe("check", "--json").document["ok"] is True


def test_what_cannot_be_a_softmax_model_is_refused_in_a_line(
    lethe: Lethe, files: Path, tmp_path: Path
) -> None:
    (tmp_path / "steps.toml").write_text('[columns.a]\nstep = "numeric"\n')
    (tmp_path / "two.csv").write_text("id,a,species\nu0,1.0,iris\nu1,0.5,rose\nu2,0.1,rose\n")
    begin = ("register", "other", "--id", "id", "--kind", "softmax", "--ridge", "1")
    rows = ("--data", str(files / "rows.csv"), "--target", "species")
    for more, message in (
        ((*rows, "--preprocess", str(tmp_path / "steps.toml")), "preprocessing inside a softmax"),
        ((*rows, "--target", "a"), "a softmax model has one target"),
        ((*rows, "--method", "exact", "--certify", "1,1e-5,1"), "certified removal is for linear"),
        ((*rows, "--method", "exact", "--disclosure"), "--disclosure is for linear models"),
        ((*rows, "--rows", str(tmp_path / "rows")), "rows in files are not there yet"),
        (("--data", str(tmp_path / "two.csv"), "--target", "species"), "at least 3 classes"),
        (("--data", str(files / "rows.csv"), "--target", "b"), "must be 0 or 1, or classes"),
    ):
        answer = lethe(*begin, *more, code=2)
        assert message in answer.err
        assert len(answer.err.splitlines()) == 1, answer.err
    planned = lethe(*begin, *rows, "--dry-run", "--json").document
    assert planned["rows"] == ROWS
