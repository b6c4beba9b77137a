"""What versions disclose of rows, by the command: listed, priced, refused, erased."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
import statsmodels.api as sm

from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from lethe.engine.error.gaussian import delta_of
from tests.support.command import Lethe

pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_cli_disclosure")]

ROWS, FEATURES = 200, 3


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(8)
    X = draw.standard_normal((ROWS, FEATURES))
    y = X.sum(axis=1) + 0.5 * draw.standard_normal(ROWS)
    y[7] += 6.0
    return X, y


@pytest.fixture(scope="module")
def lethe(
    tmp_path_factory: pytest.TempPathFactory, data: tuple[np.ndarray, np.ndarray]
) -> Iterator[Lethe]:
    X, y = data
    path = tmp_path_factory.mktemp("files") / "rows.csv"
    ids = {"id": [f"u{i}" for i in range(ROWS)], "who": [f"p{i // 2}" for i in range(ROWS)]}
    columns = {f"x{j}": X[:, j] for j in range(FEATURES)}
    pacsv.write_csv(pa.table({**ids, **columns, "y": y}), path)
    with EmbeddedValkey(tmp_path_factory.mktemp("disclosure")) as server:
        command = Lethe(server.data_dir)
        for model, more in (
            ("plain", ("--ridge", "1e-9", "--disclosure")),
            ("noisy", ("--ridge", "1", "--disclosure", "--certify-output", "1,1e-4,1e-8,100")),
            ("silent", ("--ridge", "1")),
        ):
            command(
                "register", model, "--data", str(path), "--id", "id", "--target", "y",
                "--subject", "who", "--kind", "linear",
                "--method", "exact", *more,
            )  # fmt: skip
            for row in ("u7", "u8"):
                command("delete", model, "--row", row)
                command("work", "--until-idle")
        yield command


def test_rows_are_listed_by_their_cooks_distance(
    lethe: Lethe, data: tuple[np.ndarray, np.ndarray]
) -> None:
    X, y = sm.add_constant(data[0]), data[1]
    expected = []
    for row in (7, 8):
        keep = [i for i in range(ROWS) if not 7 <= i < row]
        fit = sm.OLS(y[keep], X[keep]).fit()
        expected.append(fit.get_influence().cooks_distance[0][keep.index(row)])
    report = lethe("disclosure", "plain", "--json").document
    assert [row["row"] for row in report["rows"]] == ["u7", "u8"]
    assert [row["distance"] for row in report["rows"]] == pytest.approx(expected, rel=1e-6)
    assert [v["version"] for row in report["rows"] for v in row["versions"]] == [1, 2]
    assert (report["version"], report["rows_disclosed"]) == (2, 2)
    assert len(lethe("disclosure", "plain", "--top", "1", "--json").document["rows"]) == 1
    said = lethe("disclosure", "plain").out
    assert "1 deleted (" in said
    assert "DISTANCE (Cook's)" in said


def test_one_row_with_the_noise_that_would_have_hidden_it(lethe: Lethe) -> None:
    [row] = lethe(
        "disclosure", "plain", "--row", "u7", "--epsilon", "1", "--delta", "1e-5", "--json"
    ).document["rows"]
    mu = math.sqrt((FEATURES + 1) * row["distance"]) / row["noise_to_hide"]
    assert delta_of(mu, 1.0) == pytest.approx(1e-5, rel=1e-4)
    assert row["epsilon"] is None
    said = lethe("disclosure", "plain", "--row", "u7", "--epsilon", "1", "--delta", "1e-5").out
    assert "NOISE is what would have hidden" in said


def test_noise_on_the_output_leaves_an_epsilon(lethe: Lethe) -> None:
    [first, _] = lethe("disclosure", "noisy", "--json").document["rows"]
    sigma = lethe("status", "noisy", "--json").document["certificate"]["sigma"]
    assert delta_of(first["length"] / sigma, first["epsilon"]) <= 1e-4
    assert first["epsilon"] > 1000  # it hides what deletion leaves, not the deletion
    assert (
        "EPSILON is the epsilon that the noise"
        in lethe("disclosure", "noisy", "--delta", "1e-6").out
    )


def test_nothing_is_kept_of_a_person_who_was_erased(lethe: Lethe) -> None:
    lethe("erase", "p4")  # u8 and u9; u8 was deleted before
    lethe("work", "--until-idle")
    rows = lethe("disclosure", "plain", "--json").document["rows"]
    assert [row["row"] for row in rows] == ["u7"]
    said = lethe("disclosure", "plain", "--row", "u9").out
    assert "it was deleted, and nothing is kept" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("silent",), "--replace --disclosure"),
        (("nobody",), "is not registered"),
        (("plain", "--row", "u999"), "has no row 'u999'"),
        (("plain", "--epsilon", "1"), "--epsilon requires --delta"),
        (("plain", "--delta", "1e-5"), "the model has no noise of its own"),
        (("plain", "--epsilon", "0", "--delta", "1e-5"), "--epsilon must be at least 1e-06"),
        (("plain", "--epsilon", "1", "--delta", "1"), "--delta must be at least 1e-12 and below 1"),
    ],
)
def test_what_cannot_be_told_is_refused_in_one_line(
    lethe: Lethe, arguments: tuple[str, ...], said: str
) -> None:
    done = lethe("disclosure", *arguments, code=2)
    assert said in done.err
    assert done.err.strip().count("\n") == 0
