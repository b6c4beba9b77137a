"""Certified removal by the command: registered, spent, shown, verified, refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from tests.support.command import Lethe

pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_cli_certified")]

ROWS = 400


@pytest.fixture(scope="module")
def lethe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lethe]:
    with EmbeddedValkey(tmp_path_factory.mktemp("certified")) as server:
        yield Lethe(server.data_dir)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of length about 1."""
    draw = np.random.default_rng(3)
    X = draw.standard_normal((ROWS, 3)) / np.sqrt(3)
    left = (X.sum(axis=1) + 0.5 * draw.standard_normal(ROWS) > 0).astype(int)
    table = {"id": [f"u{i}" for i in range(ROWS)], "left": left}
    path = tmp_path_factory.mktemp("files") / "rows.csv"
    pacsv.write_csv(pa.table({**table, **{f"x{j}": X[:, j] for j in range(3)}}), path)
    return path


def register(lethe: Lethe, rows: Path, *more: str, code: int = 0) -> str:
    """Register `churn` and return what was said, on both ways out."""
    done = lethe(
        "register", "churn", "--data", str(rows), "--id", "id", "--target", "left",
        "--kind", "logistic", "--ridge", "1", *more, code=code,
    )  # fmt: skip
    return done.out + done.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--certify", "1,1e-4,10"), "certified removal needs --method exact, not pru"),
        (("--certify", "1,1e-4", "--method", "exact"), "is not EPS,DELTA,SIGMA"),
        (
            ("--certify", "1,0.7,10", "--method", "exact"),
            "delta must be at least 1e-12 and below 0.5",
        ),
        (("--certify", "1,1e-4,1e-15", "--method", "exact"), "raise sigma"),
        (("--certify", "1,1e-4,1e9", "--method", "exact"), "lower sigma, or raise the ridge"),
    ],
)
def test_what_cannot_be_certified_is_refused_in_one_line(
    lethe: Lethe, rows: Path, options: tuple[str, ...], said: str
) -> None:
    answer = register(lethe, rows, *options, code=2)
    assert said in answer
    assert "registered" not in answer


def test_a_certified_model_from_a_file_to_a_verified_version(lethe: Lethe, rows: Path) -> None:
    said = register(lethe, rows, "--method", "exact", "--certify", "1,1e-4,10")
    assert "certificate: (1, 0.0001)-certified removal, sigma 10" in said
    assert "of 2.28 spent" in said
    for first in range(0, 60, 20):
        lethe("delete", "churn", *(f"--row=u{i}" for i in range(first, first + 20)))
        lethe("work", "--until-idle")
    shown = lethe("status", "churn", "--json").document["certificate"]
    assert (shown["epsilon"], shown["delta"], shown["sigma"]) == (1.0, 1e-4, 10.0)
    assert shown["budget"] == pytest.approx(2.280, abs=5e-4)
    assert 0 < shown["spent"] <= shown["budget"]
    assert "certified removal" in lethe("status", "churn").out
    history = lethe("versions", "churn", "--json").document["versions"]
    assert all(v["certificate"]["spent"] <= v["certificate"]["budget"] for v in history)
    assert "SPENT" in lethe("versions", "churn").out
    found = lethe("verify", "churn", "--json").document
    assert found["verified"]
    assert 0 < found["certificate_measured"] <= found["certificate"]["spent"]
    assert "a gradient residual of" in lethe("verify", "churn").out
    assert lethe("check").code == 0
    assert lethe("export", "churn", "--out", str(rows.with_suffix(".json"))).code == 0
