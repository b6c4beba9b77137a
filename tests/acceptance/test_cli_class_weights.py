"""``lethe register --class-weight``: until the last change, the weighted refit of scikit-learn."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from skops import io as skops

from lethe import register
from lethe.consumers.service.configuration.settings import load_settings
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from lethe.engine.errors import InvalidData
from lethe.engine.preprocess.input.columns import Columns, Numeric, OneHot
from tests.support.command import Within
from tests.support.pipelines import Rows, matrix, parameters, pipeline

pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_cli_class_weights")]

COLUMNS: Columns = {"visits": Numeric(), "town": OneHot()}
STEPS = '[columns.visits]\nstep = "numeric"\n[columns.town]\nstep = "one-hot"\n'
HEADER = "id,visits,town,left,sign"
NAMES = ("--id", "id", "--ridge", "1", "--method", "exact")
GIVEN = {
    "logistic": ("--kind", "logistic", "--target", "left", "--class-weight", "yes=5"),
    "linear": ("--kind", "linear", "--target", "sign", "--class-weight", "1=5"),
}
WEIGHT = {"no": 1.0, "yes": 5.0}


def drawn() -> dict[str, tuple[float, str, str]]:
    draw = np.random.default_rng(3)
    return {
        f"u{i}": (
            round(float(draw.normal(5, 2)), 3),
            str(draw.choice(["Ulm", "Bonn", "Kiel"])),
            "yes" if draw.random() < 0.3 else "no",
        )
        for i in range(80)
    }


def written(path: Path, rows: dict[str, tuple[float, str, str]]) -> str:
    """Write rows as CSV; the linear model's target is the label's sign."""
    lines = [
        f"{row},{visits},{town},{left},{1 if left == 'yes' else -1}"
        for row, (visits, town, left) in rows.items()
    ]
    path.write_text("\n".join([HEADER, *lines]))
    return str(path)


def refitted(kind: str, live: dict[str, tuple[float, str, str]]) -> np.ndarray:
    visits, towns, labels = zip(*live.values(), strict=True)
    rows: Rows = {
        "visits": np.array(visits, dtype=object),
        "town": np.array(towns, dtype=object),
    }
    y = np.array([1.0 if left == "yes" else -1.0 for left in labels])
    whole = pipeline(COLUMNS, kind=kind)
    weight = {f"{whole.steps[-1][0]}__sample_weight": np.array([WEIGHT[a] for a in labels])}
    fitted = whole.fit(matrix(COLUMNS, rows), (y > 0).astype(int) if kind == "logistic" else y,
                       **weight)  # fmt: skip
    return parameters(fitted)


@pytest.mark.parametrize("in_files", [False, True])
@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_a_pipeline_with_weights_of_classes_is_the_weighted_refit(
    tmp_path: Path, kind: str, in_files: bool
) -> None:
    live, columns, file = drawn(), tmp_path / "columns.toml", tmp_path / "rows.csv"
    columns.write_text(STEPS)
    files = ("--rows", str(tmp_path / "files")) if in_files else ()
    with EmbeddedValkey(tmp_path / "valkey") as server:
        lethe = Within(server.data_dir)
        said = lethe("register", "m", "--data", written(file, live), "--preprocess", str(columns),
                     *NAMES, *GIVEN[kind], *files)  # fmt: skip
        assert "weights of classes: " in said.out
        assert "(5)" in said.out
        with lethe.working() as worker:
            change = ("--id", "id", "--wait=99", "--data")
            for op, rows in (
                ("insert", {"n1": (4.5, "Ulm", "yes"), "n2": (2.0, "Bonn", "no")}),
                ("correct", {"u2": (9.0, "Kiel", "yes"), "u3": (1.0, "Kiel", "no")}),
            ):
                lethe(op, "m", *change, written(file, rows))
                live |= rows
            lethe("delete", "m", "--row", "u0", "--row", "u1", "--wait=99")
            del live["u0"], live["u1"]
            worker.terminate()
            worker.communicate(timeout=120)
        lethe("refresh", "m", "--size", "rebuild")
        lethe("work", "--until-idle")
        lethe("verify", "m")
        if kind == "linear":
            lethe("verify", "m", "--digest")
            lethe("verify", "m", "--digest", "--data", written(file, live), "--id", "id")
        lethe("export", "m", "--out", str(tmp_path / "m.json"))
        exported = json.loads((tmp_path / "m.json").read_text())
        theta = np.append(exported["theta"], exported["intercept"])
        np.testing.assert_allclose(theta, refitted(kind, live), atol=1e-6)


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_an_auditor_with_a_bundle_and_the_file_refits_with_the_weights(
    tmp_path: Path, kind: str
) -> None:
    rows, gone, bundle = drawn(), tmp_path / "gone.txt", tmp_path / "m.bundle"
    file = written(tmp_path / "rows.csv", rows)
    gone.write_text("u0\nu1\n")
    with EmbeddedValkey(tmp_path / "valkey") as server:
        lethe = Within(server.data_dir)
        lethe("register", "m", "--data", file, "--features", "visits", *NAMES, *GIVEN[kind])
        lethe("delete", "m", "--row", "u0", "--row", "u1")
        lethe("work", "--until-idle")
        lethe("audit", "m", "--export", str(bundle))
        held = ("--bundle", str(bundle), "--data", file, "--id", "id", "--deleted", str(gone))

        def bound() -> str:
            found = lethe("audit", *held, "--json", code=1).document  # no key is trusted here
            return str(next(c["result"] for c in found["checks"] if c["check"] == "bound"))

        assert bound() == "OK"
        first, *lines = bundle.read_text().splitlines()
        header = json.loads(first)
        assert header["registration"]["class_weights"] == [1.0, 5.0]
        header["registration"]["class_weights"] = [1.0, 4.0]
        bundle.write_text("\n".join([json.dumps(header), *lines]) + "\n")
        if kind == "linear":  # a logistic version has no bound of its own: the audit makes one
            assert bound() == "FAILED"


def test_weights_that_are_none_are_refused_in_one_line(tmp_path: Path) -> None:
    file = written(tmp_path / "rows.csv", drawn())
    with EmbeddedValkey(tmp_path / "valkey") as server:
        lethe = Within(server.data_dir)
        register = ("register", "m", "--data", file, "--features", "visits", *NAMES,
                    "--kind", "logistic", "--target", "left")  # fmt: skip
        for given, what in (
            (("yes",), "is not LABEL=NUMBER: write yes=5"),
            (("maybe=2",), "'maybe' is none of the classes, no, yes"),
            (("yes=0",), "the weight of 'yes' must be a finite number above 0"),
            (("yes=2", "yes=3"), "names 'yes' twice"),
            (("balanced",), "give numbers, those of these rows are no="),
        ):
            asked = [text for weight in given for text in ("--class-weight", weight)]
            refused = lethe(*register, *asked, code=2)
            assert what in refused.err
        lethe(*register, "--dry-run", "--class-weight", "yes=5")


@pytest.mark.parametrize("python", [False, True])
def test_the_weights_of_an_estimator_come_with_it(tmp_path: Path, python: bool) -> None:
    rows = drawn()
    file = written(tmp_path / "rows.csv", rows)
    X = pd.DataFrame({"visits": [visits for visits, _, _ in rows.values()]})
    y = np.array([left for _, _, left in rows.values()])
    weight = {"no": 1.0, "yes": 5.0}
    given = LogisticRegression(class_weight=weight, tol=1e-10).fit(X, y)
    balanced = LogisticRegression(class_weight="balanced").fit(X, y)
    with EmbeddedValkey(tmp_path / "valkey") as server:
        lethe = Within(server.data_dir)
        if python:
            settings = load_settings({"data_dir": server.data_dir})
            done = register("m", given, X, y, ids=list(rows), method="exact", settings=settings)
            assert done.converted_from.relative < 1e-6
            with pytest.raises(InvalidData, match="give numbers, those of these rows are no="):
                register("n", balanced, X, y, ids=list(rows), settings=settings)
        else:
            for name, estimator in (("given", given), ("balanced", balanced)):
                (tmp_path / f"{name}.skops").write_bytes(skops.dumps(estimator))
            table = ("--data", file, "--id", "id", "--target", "left", "--method", "exact")
            from_file = ("register", "m", *table, "--from", str(tmp_path / "given.skops"))
            assert "no (1), yes (5)" in lethe(*from_file).out
            lethe("register", "n", *table, "--from", str(tmp_path / "balanced.skops"), code=2)
            lethe(*from_file, "--class-weight", "yes=5", code=2)
        lethe("delete", "m", "--row", "u0", "--row", "u1")
        lethe("work", "--until-idle")
        lethe("refresh", "m", "--size", "rebuild")
        lethe("work", "--until-idle")
        lethe("verify", "m")
        lethe("export", "m", "--out", str(tmp_path / "m.json"))
        exported = json.loads((tmp_path / "m.json").read_text())
    refit = clone(given).fit(X[2:], y[2:])
    assert exported["intercept"] == pytest.approx(refit.intercept_[0], abs=1e-6)
    np.testing.assert_allclose(exported["theta"], refit.coef_[0], atol=1e-6)
