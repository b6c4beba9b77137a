"""`lethe verify --digest`: a linear model is what retraining gives, bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from tests.support.command import Lethe, Within

pytestmark = pytest.mark.redis

GONE = ("u0", "u7", "u11")


@pytest.fixture
def table() -> pd.DataFrame:
    draw = np.random.default_rng(7)
    table = pd.DataFrame(draw.standard_normal((60, 3)), columns=["a", "b", "c"])
    table["y"] = table["a"] - 2.0 * table["b"] + draw.standard_normal(60)
    table.loc[11, "a"] = 1e6  # a typing error
    table.insert(0, "id", [f"u{i}" for i in range(60)])
    return table


def test_after_deletions_and_a_rebuild_the_digest_is_that_of_the_remaining_rows(
    table: pd.DataFrame, tmp_path: Path
) -> None:
    everything, rest = tmp_path / "all.parquet", tmp_path / "rest.parquet"
    table.to_parquet(everything)
    remaining = table[~table["id"].isin(GONE)]
    remaining.sample(frac=1.0, random_state=3).to_parquet(rest)
    with EmbeddedValkey(tmp_path / "server") as server:
        lethe: Lethe = Within(server.data_dir)
        given = ("--id", "id", "--target", "y", "--kind", "linear", "--ridge", "1e-4")
        lethe("register", "m", "--data", str(everything), *given)

        first = lethe("verify", "m", "--digest", "--json").document
        assert (first["equal"], first["error_kind"], first["rows"]) == (True, "rounded", 60)
        other = lethe("verify", "m", "--digest", "--data", str(rest), "--id", "id", code=1)
        assert "DIFFERENT: row 'u0' of the model is not in the table" in other.out

        lethe("delete", "m", *(word for row in GONE for word in ("--row", row)))
        lethe("work", "--until-idle")
        lethe("refresh", "m", "--size", "rebuild")
        lethe("work", "--until-idle")

        again = lethe(
            "verify", "m", "--digest", "--data", str(rest), "--id", "id", "--json"
        ).document
        assert (again["equal"], again["error_kind"], again["rows"]) == (True, "rounded", 57)
        assert again["refitted_digest"] != first["refitted_digest"]

        one_bit = remaining.copy()
        one_bit.loc[5, "b"] = np.nextafter(one_bit.loc[5, "b"], 9.0)
        one_bit.to_parquet(rest)
        found = lethe("verify", "m", "--digest", "--data", str(rest), "--id", "id", code=1)
        assert "DIFFERENT: row 'u5' has b = " in found.out


def test_what_has_no_digest_to_the_last_bit_is_said(table: pd.DataFrame, tmp_path: Path) -> None:
    table["left"] = (table["y"] > 0).astype(int)
    table.drop(columns="y").to_parquet(tmp_path / "all.parquet")
    with EmbeddedValkey(tmp_path / "server") as server:
        lethe: Lethe = Within(server.data_dir)
        given = ("--id", "id", "--target", "left", "--kind", "logistic", "--ridge", "1")
        lethe("register", "m", "--data", str(tmp_path / "all.parquet"), *given)

        refused = lethe("verify", "m", "--digest", code=2)

        assert "only a linear model has a minimiser in closed form" in refused.err
        assert "run `lethe verify m` without --digest" in refused.err
        usage = lethe("verify", "m", "--data", "x.csv", code=2)
        assert "--data needs --digest and --id" in usage.err
