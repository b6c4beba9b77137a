"""Counts, from a file to evidence and exported parameters, by the command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import PoissonRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from lethe.consumers import ModelSubscriber
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from tests.support.command import Lethe
from tests.support.extras import need
from tests.support.page_verifier import page_verifier

# One worker runs the file: its tests share servers, and some build on those before.
pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_cli_poisson")]

ROWS, GONE = 150, (3, 4, 5, 80)
FEATURES = ["a", "b", "c"]
NEW = {"id": "new", "a": 0.5, "b": -0.25, "c": 1.0, "visits": 7}


def visits() -> pd.DataFrame:
    draw = np.random.default_rng(12)
    X = draw.standard_normal((ROWS, 3))
    table = pd.DataFrame(X, columns=FEATURES)
    table.insert(0, "id", [f"u{i}" for i in range(ROWS)])
    table["visits"] = draw.poisson(np.exp(X @ [0.5, -0.3, 0.2] + 1.0))
    return table


def left() -> pd.DataFrame:
    return pd.concat([visits().drop(list(GONE)), pd.DataFrame([NEW])], ignore_index=True)


def refitted() -> PoissonRegressor:
    table = left()
    judge = PoissonRegressor(alpha=2.0 / len(table), tol=1e-12, solver="newton-cholesky")
    return judge.fit(table[FEATURES], table["visits"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedValkey]:
    with EmbeddedValkey(tmp_path_factory.mktemp("poisson")) as server:
        yield server


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    visits().to_csv(folder / "rows.csv", index=False)
    left().to_csv(folder / "left.csv", index=False)
    pd.DataFrame([NEW]).to_csv(folder / "new.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def lethe(server: EmbeddedValkey, files: Path) -> Lethe:
    """Given a model of counts, when rows have left and one has come."""
    lethe = Lethe(server.data_dir)
    columns = ("--id", "id", "--target", "visits")
    lethe("register", "visits", "--data", str(files / "rows.csv"), *columns, "--kind", "poisson",
          "--ridge", "2")  # fmt: skip
    lethe("delete", "visits", *(part for i in GONE for part in ("--row", f"u{i}")))
    lethe("work", "--until-idle")
    lethe("insert", "visits", "--id", "id", "--data", str(files / "new.csv"))
    lethe("work", "--until-idle")
    return lethe


def test_it_is_verified_against_an_independent_refit(lethe: Lethe) -> None:
    before = lethe("verify", "visits", "--json").document
    assert before["verified"] is True
    assert before["refit"]["residual"] < 1e-10
    lethe("refresh", "visits", "--size", "rebuild")
    lethe("work", "--until-idle")
    after = lethe("verify", "visits", "--json").document
    assert after["verified"] is True
    assert after["bound"] < 1e-9


def test_exports_and_subscribers_predict_what_a_refit_of_scikit_learn_does(
    lethe: Lethe, server: EmbeddedValkey, tmp_path: Path
) -> None:
    lethe("export", "visits", "--out", str(tmp_path / "out.json"))
    whole, judge = json.loads((tmp_path / "out.json").read_text()), refitted()
    assert whole["kind"] == "poisson"
    np.testing.assert_allclose(whole["theta"], judge.coef_, rtol=1e-8)
    np.testing.assert_allclose(whole["intercept"], judge.intercept_, rtol=1e-8)
    with ModelSubscriber.connect(redis=server.url) as models:
        version = models.latest("visits")
    means = judge.predict(left()[FEATURES])
    np.testing.assert_allclose(version.predict(left()), means, rtol=1e-8)


def test_its_evidence_passes_both_verifiers_and_that_of_other_rows_does_not(
    lethe: Lethe, files: Path, tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle"
    assert lethe("audit", "visits", "--json").document["verdict"] != "REFUSED"
    lethe("audit", "visits", "--export", str(bundle))
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


def test_a_fitted_estimator_says_the_ridge_of_each_row(
    lethe: Lethe, server: EmbeddedValkey, files: Path, tmp_path: Path
) -> None:
    need("skops")
    from skops.io import dump

    table, file = visits(), tmp_path / "pipeline.skops"
    given = make_pipeline(StandardScaler(), PoissonRegressor(alpha=0.02, tol=1e-10))
    given.fit(table[FEATURES], table["visits"])
    dump(given, file)
    line = ("register", "given", "--from", str(file), "--data", str(files / "rows.csv"),
            "--id", "id", "--target", "visits")  # fmt: skip
    lethe(*line)
    lethe("delete", "given", "--row", "u0", "--row", "u1")
    lethe("work", "--until-idle")
    lethe("refresh", "given", "--size", "rebuild")
    lethe("work", "--until-idle")
    live, again = table[2:], clone(given)
    again.set_params(poissonregressor__alpha=0.02 * ROWS / len(live))
    again.set_params(poissonregressor__solver="newton-cholesky", poissonregressor__tol=1e-12)
    again.fit(live[FEATURES], live["visits"])
    with ModelSubscriber.connect(redis=server.url) as models:
        whole = models.latest("given")
    expected = again.predict(live[FEATURES])
    np.testing.assert_allclose(whole.predict(live), expected, rtol=1e-8)
    lethe("unregister", "given", "--yes")
    line = ("register", "frozen", *line[2:])
    lethe(*line, "--freeze")
    in_files = lethe(*line, "--freeze", "--replace", "--rows", str(tmp_path / "rows"), code=2).err
    assert "--from of a PoissonRegressor is for rows in the store" in in_files
    assert in_files.count("\n") == 1
    shown = lethe("status", "frozen", "--json").document
    assert shown["ridge"] == pytest.approx(0.02 * ROWS)
    with ModelSubscriber.connect(redis=server.url) as models:
        version = models.latest("frozen")
    scaled = given[:-1].transform(table[FEATURES])
    np.testing.assert_allclose(version.predict(scaled), given.predict(table[FEATURES]), rtol=1e-5)
    lethe("unregister", "frozen", "--yes")


def test_status_names_the_kind(lethe: Lethe) -> None:
    [model] = lethe("status", "--json").document["models"]
    assert model["kind"] == "poisson"
    assert sum(model["class_counts"]) == model["rows_live"] == len(left())
    assert "poisson" in lethe("status", "visits").out
    assert lethe("check", "--json").document["ok"] is True


def test_what_cannot_be_a_model_of_counts_is_refused_in_a_line(
    lethe: Lethe, files: Path, tmp_path: Path
) -> None:
    (tmp_path / "below.csv").write_text("id,a,visits\nu0,1.0,2\nu1,0.5,-1\n")
    begin = ("register", "other", "--id", "id", "--kind", "poisson", "--ridge", "1")
    rows = ("--data", str(files / "rows.csv"), "--target", "visits")
    for more, message in (
        ((*rows, "--target", "a"), "a poisson model has one target"),
        ((*rows, "--method", "exact", "--certify", "1,1e-5,1"), "certified removal is for linear"),
        ((*rows, "--method", "exact", "--disclosure"), "--disclosure is for linear models"),
        (("--data", str(tmp_path / "below.csv"), "--target", "visits"), "is below 0: -1"),
    ):
        answer = lethe(*begin, *more, code=2)
        assert message in answer.err
        assert len(answer.err.splitlines()) == 1, answer.err
    planned = lethe(*begin, *rows, "--dry-run", "--json").document
    assert planned["rows"] == ROWS
