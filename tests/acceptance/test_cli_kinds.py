"""Counts, and classes of one softmax: from a file to evidence and exports, by the command."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, PoissonRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from lethe.consumers import ModelSubscriber
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from tests.support.command import Lethe
from tests.support.extras import need
from tests.support.page_verifier import page_verifier

# One worker runs the file: its tests share servers, and some build on those before.
pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_cli_kinds")]

ROWS, GONE = 150, (3, 4, 5, 80)
FEATURES = ["a", "b", "c"]
SPECIES = np.array(["iris", "rose", "tulip"])
Draw = Callable[[NDArray[np.float64], np.random.Generator], Any]


@dataclass(frozen=True, slots=True)
class Case:
    """A model of one kind.

    Attributes
    ----------
    kind, model, target
        Its kind, its name, and the column of its targets.
    drawn
        Return the targets of rows.
    new
        The target of a row that comes later.
    judge
        scikit-learn's estimator of as many rows.
    """

    kind: str
    model: str
    target: str
    drawn: Draw
    new: Any
    judge: Callable[[int], Any]

    def table(self) -> pd.DataFrame:
        """Return the rows that it is registered with."""
        draw = np.random.default_rng(12)
        X = draw.standard_normal((ROWS, 3))
        table = pd.DataFrame(X, columns=FEATURES)
        table.insert(0, "id", [f"u{i}" for i in range(ROWS)])
        table[self.target] = self.drawn(X, draw)
        return table

    def new_row(self) -> pd.DataFrame:
        return pd.DataFrame([{"id": "new", "a": 0.5, "b": -0.25, "c": 1.0, self.target: self.new}])

    def left(self) -> pd.DataFrame:
        return pd.concat([self.table().drop(list(GONE)), self.new_row()], ignore_index=True)

    def refitted(self) -> Any:
        table = self.left()
        return self.judge(len(table)).fit(table[FEATURES], table[self.target])


def visits(X: NDArray[np.float64], draw: np.random.Generator) -> Any:
    return draw.poisson(np.exp(X @ [0.5, -0.3, 0.2] + 1.0))


def species(X: NDArray[np.float64], draw: np.random.Generator) -> Any:
    margins = X @ draw.standard_normal((3, 3)) + draw.gumbel(size=(ROWS, 3))
    return SPECIES[margins.argmax(axis=1)]


COUNTS = Case(
    "poisson", "visits", "visits", visits, 7,
    lambda n: PoissonRegressor(alpha=2.0 / n, tol=1e-12, solver="newton-cholesky"),
)  # fmt: skip
CLASSES = Case(
    "softmax", "flowers", "species", species, "rose",
    lambda _: LogisticRegression(C=0.5, solver="newton-cg", tol=1e-12, max_iter=1_000),
)  # fmt: skip
CASES = (COUNTS, CLASSES)
each_kind = pytest.mark.parametrize("case", CASES, ids=[case.kind for case in CASES])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedValkey]:
    with EmbeddedValkey(tmp_path_factory.mktemp("kinds")) as server:
        yield server


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    for case in CASES:
        (folder / case.model).mkdir()
        case.table().to_csv(folder / case.model / "rows.csv", index=False)
        case.left().to_csv(folder / case.model / "left.csv", index=False)
        case.new_row().to_csv(folder / case.model / "new.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def lethe(server: EmbeddedValkey, files: Path) -> Lethe:
    """Given a model of each kind, when rows have left and one has come."""
    lethe = Lethe(server.data_dir)
    for case in CASES:
        lethe("register", case.model, "--data", str(files / case.model / "rows.csv"), "--id", "id",
              "--target", case.target, "--kind", case.kind, "--ridge", "2")  # fmt: skip
        lethe("delete", case.model, *(part for i in GONE for part in ("--row", f"u{i}")))
    lethe("work", "--until-idle")
    for case in CASES:
        new = str(files / case.model / "new.csv")
        lethe("insert", case.model, "--id", "id", "--data", new)
    lethe("work", "--until-idle")
    return lethe


@each_kind
def test_it_is_verified_against_an_independent_refit(lethe: Lethe, case: Case) -> None:
    before = lethe("verify", case.model, "--json").document
    assert before["verified"] is True
    assert before["refit"]["residual"] < 1e-10
    lethe("refresh", case.model, "--size", "rebuild")
    lethe("work", "--until-idle")
    after = lethe("verify", case.model, "--json").document
    assert after["verified"] is True
    assert after["bound"] < 1e-9


def test_counts_are_exported_and_predicted_as_a_refit_of_scikit_learn_does(
    lethe: Lethe, server: EmbeddedValkey, tmp_path: Path
) -> None:
    lethe("export", "visits", "--out", str(tmp_path / "out.json"))
    whole, judge = json.loads((tmp_path / "out.json").read_text()), COUNTS.refitted()
    assert whole["kind"] == "poisson"
    np.testing.assert_allclose(whole["theta"], judge.coef_, rtol=1e-8)
    np.testing.assert_allclose(whole["intercept"], judge.intercept_, rtol=1e-8)
    with ModelSubscriber.connect(redis=server.url) as models:
        version = models.latest("visits")
    means = judge.predict(COUNTS.left()[FEATURES])
    np.testing.assert_allclose(version.predict(COUNTS.left()), means, rtol=1e-8)


def test_classes_are_exported_and_predicted_as_a_refit_of_scikit_learn_does(
    lethe: Lethe, server: EmbeddedValkey, tmp_path: Path
) -> None:
    lethe("export", "flowers", "--out", str(tmp_path / "out.json"))
    whole, judge = json.loads((tmp_path / "out.json").read_text()), CLASSES.refitted()
    assert (whole["kind"], whole["classes"]) == ("softmax", judge.classes_.tolist())
    np.testing.assert_allclose(whole["theta"], judge.coef_.T, rtol=1e-7, atol=1e-9)
    centred = judge.intercept_ - judge.intercept_.mean()
    np.testing.assert_allclose(whole["intercept"], centred, rtol=1e-7, atol=1e-9)
    with ModelSubscriber.connect(redis=server.url) as models:
        version = models.latest("flowers")
    likely = judge.predict_proba(CLASSES.left()[FEATURES])
    np.testing.assert_allclose(version.predict(CLASSES.left()), likely, rtol=1e-7)


@each_kind
def test_its_evidence_passes_both_verifiers_and_that_of_other_rows_does_not(
    lethe: Lethe, files: Path, tmp_path: Path, case: Case
) -> None:
    bundle = tmp_path / "bundle"
    assert lethe("audit", case.model, "--json").document["verdict"] != "REFUSED"
    lethe("audit", case.model, "--export", str(bundle))
    for table, failed in (("left.csv", 0), ("rows.csv", 1)):
        held = ("--data", str(files / case.model / table), "--id", "id", "--ridge", "2")
        # The key is one that the file itself names, which proves nothing: exit code 1.
        found = lethe("audit", "--bundle", str(bundle), *held, "--json", code=1).document
        [bound] = [one for one in found["checks"] if one["check"] == "bound"]
        assert bound["result"] == ("FAILED" if failed else "OK")
        assert found["failed"] == failed
    with page_verifier(tmp_path) as page:
        found = page(bundle, table=files / case.model / "left.csv", id="id", ridge="2")
    assert "crash" not in found
    assert {one["result"] for one in found["checks"]} <= {"OK", "NOT CHECKED", "NOT PROVED"}
    [why] = [one["detail"] for one in found["checks"] if "closed form" in one["detail"]]
    assert "only a linear model" in why


def test_a_fitted_estimator_says_the_ridge_of_each_row(
    lethe: Lethe, server: EmbeddedValkey, files: Path, tmp_path: Path
) -> None:
    need("skops")
    from skops.io import dump

    table, file = COUNTS.table(), tmp_path / "pipeline.skops"
    given = make_pipeline(StandardScaler(), PoissonRegressor(alpha=0.02, tol=1e-10))
    given.fit(table[FEATURES], table["visits"])
    dump(given, file)
    line = ("register", "given", "--from", str(file), "--data", str(files / "visits" / "rows.csv"),
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


def test_a_multinomial_estimator_becomes_a_model_of_one_softmax(
    lethe: Lethe, server: EmbeddedValkey, files: Path, tmp_path: Path
) -> None:
    need("skops")
    from skops.io import dump

    table, bare, scaled = CLASSES.table(), tmp_path / "bare.skops", tmp_path / "pipeline.skops"
    given = LogisticRegression(C=0.2, tol=1e-10).fit(table[FEATURES], table["species"])
    dump(given, bare)
    whole = make_pipeline(StandardScaler(), LogisticRegression(C=0.2, tol=1e-10))
    dump(whole.fit(table[FEATURES], table["species"]), scaled)
    rows = ("--data", str(files / "flowers" / "rows.csv"), "--id", "id", "--target", "species")
    refused = lethe("register", "several", "--from", str(scaled), *rows, code=2).err
    assert "preprocessing inside a softmax model is in the library alone" in refused
    assert refused.count("\n") == 1
    for file, options in ((bare, ()), (scaled, ("--freeze", "--replace"))):
        lethe("register", "several", "--from", str(file), *rows, *options)
        shown = lethe("status", "several", "--json").document
        assert (shown["kind"], shown["ridge"]) == ("softmax", pytest.approx(5.0))
    with ModelSubscriber.connect(redis=server.url) as models:
        version = models.latest("several")
    features = whole[:-1].transform(table[FEATURES])
    likely = whole.predict_proba(table[FEATURES])
    np.testing.assert_allclose(version.predict(features), likely, atol=1e-5)
    lethe("unregister", "several", "--yes")


@each_kind
def test_status_names_the_kind_and_counts_its_targets(lethe: Lethe, case: Case) -> None:
    models = {one["model_id"]: one for one in lethe("status", "--json").document["models"]}
    model = models[case.model]
    assert model["kind"] == case.kind
    assert sum(model["class_counts"]) == model["rows_live"] == len(case.left())
    assert case.kind in lethe("status", case.model).out
    assert lethe("check", "--json").document["ok"] is True


def test_what_cannot_be_a_model_of_counts_is_refused_in_a_line(
    lethe: Lethe, files: Path, tmp_path: Path
) -> None:
    (tmp_path / "below.csv").write_text("id,a,visits\nu0,1.0,2\nu1,0.5,-1\n")
    begin = ("register", "other", "--id", "id", "--kind", "poisson", "--ridge", "1")
    rows = ("--data", str(files / "visits" / "rows.csv"), "--target", "visits")
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


def test_what_cannot_be_a_softmax_model_is_refused_in_a_line(
    lethe: Lethe, files: Path, tmp_path: Path
) -> None:
    (tmp_path / "steps.toml").write_text('[columns.a]\nstep = "numeric"\n')
    (tmp_path / "two.csv").write_text("id,a,species\nu0,1.0,iris\nu1,0.5,rose\nu2,0.1,rose\n")
    begin = ("register", "other", "--id", "id", "--kind", "softmax", "--ridge", "1")
    rows = ("--data", str(files / "flowers" / "rows.csv"), "--target", "species")
    for more, message in (
        ((*rows, "--preprocess", str(tmp_path / "steps.toml")), "preprocessing inside a softmax"),
        ((*rows, "--target", "a"), "a softmax model has one target"),
        ((*rows, "--method", "exact", "--certify", "1,1e-5,1"), "certified removal is for linear"),
        ((*rows, "--method", "exact", "--disclosure"), "--disclosure is for linear models"),
        ((*rows, "--rows", str(tmp_path / "rows")), "rows in files are not there yet"),
        (("--data", str(tmp_path / "two.csv"), "--target", "species"), "at least 3 classes"),
        (
            ("--data", str(files / "flowers" / "rows.csv"), "--target", "b"),
            "must be 0 or 1, or classes",
        ),
    ):
        answer = lethe(*begin, *more, code=2)
        assert message in answer.err
        assert len(answer.err.splitlines()) == 1, answer.err
    planned = lethe(*begin, *rows, "--dry-run", "--json").document
    assert planned["rows"] == ROWS
