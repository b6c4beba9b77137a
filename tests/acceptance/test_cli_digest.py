"""A linear model is what retraining gives, bit for bit: `lethe verify --digest`, and the page."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from tests.support.bundles import Bundle
from tests.support.command import Lethe, Within
from tests.support.page_verifier import PageVerifier, page_verifier

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


@pytest.fixture
def page(tmp_path: Path) -> Iterator[PageVerifier]:
    with page_verifier(tmp_path) as verifier:
        yield verifier


def on_page(
    page: PageVerifier, lethe: Lethe, folder: Path, model: str, table: pd.DataFrame, **fields: str
) -> tuple[str, str]:
    """Export a model, and return what the page finds of retraining on a table."""
    bundle, rows, keys = folder / "bundle", folder / "rows.csv", folder / "keys.pub"
    lethe("audit", model, "--export", str(bundle))
    keys.write_text(lethe("key", "show", str(next(folder.rglob("signing-key.pem")))).out)
    table.to_csv(rows, index=False)
    return retraining(page(bundle, keys.read_text(), table=rows, **fields))


def retraining(answer: Any) -> tuple[str, str]:
    found = {one["check"]: one for one in answer.get("checks", ())}
    if "retraining" not in found:
        return next(iter(answer)), next(iter(answer.values()))
    others = [one for name, one in found.items() if name not in ("retraining", "bound")]
    assert {one["result"] for one in others} == {"OK"}, others
    return found["retraining"]["result"], found["retraining"]["detail"]


def test_the_offline_page_retrains_on_a_table_and_says_which_coefficient_differs(
    table: pd.DataFrame, page: PageVerifier, tmp_path: Path
) -> None:
    table["second, of two"] = 0.5 * table["c"] - table["a"]
    table.to_parquet(tmp_path / "all.parquet")
    remaining = table[~table["id"].isin(GONE)].sample(frac=1.0, random_state=3)
    with EmbeddedValkey(tmp_path / "server") as server:
        lethe: Lethe = Within(server.data_dir)
        given = ("--id", "id", "--target", "y", "--target", "second, of two")
        fit = ("--kind", "linear", "--ridge", "1e-4")
        lethe("register", "m", "--data", str(tmp_path / "all.parquet"), *given, *fit)

        def said(rows: pd.DataFrame, **fields: str) -> tuple[str, str]:
            return on_page(page, lethe, tmp_path, "m", rows, **fields)

        assert said(table, id="id") == (
            "OK",
            "retraining on 60 rows of rows.csv (ridge 0.0001, as the exported file says) gives "
            "version 0, bit for bit",
        )
        lethe("delete", "m", *(word for row in GONE for word in ("--row", row)))
        lethe("work", "--until-idle")
        result, detail = said(remaining)
        assert result in ("OK", "NOT CHECKED")
        if result != "OK":
            assert "its error is `exact`, not `rounded`" in detail
            assert "lethe refresh m --size rebuild" in detail
        result, detail = said(table)
        assert (result, "60 rows, and version 1 has 57" in detail) == ("FAILED", True)
        lethe("refresh", "m", "--size", "rebuild")
        lethe("work", "--until-idle")

        assert said(remaining, ridge="1e-4")[0] == "OK"
        assert said(remaining.assign(w=2.0), weight="w", ridge="2e-4")[0] == "OK"
        result, detail = said(remaining, ridge="2e-4")
        assert (result, "units in the last place" in detail) == ("FAILED", True)
        for column, name in (("b", " of y by "), ("second, of two", " of second, of two by ")):
            one_bit = remaining.copy()
            one_bit.loc[5, column] = np.nextafter(one_bit.loc[5, column], 9.0)
            result, detail = said(one_bit, id="id")
            assert result == "FAILED"
            assert name in detail
            assert "in the last place" in detail
        bundle = Bundle.read(tmp_path / "bundle")
        rows, keys = tmp_path / "rows.csv", (tmp_path / "keys.pub").read_text()
        for unsigned in ({}, {"ridge": -1e-4}, {"ridge": "1e-4"}, None):
            bundle.header["registration"] = unsigned
            bundle.write(tmp_path / "bundle")
            found = retraining(page(tmp_path / "bundle", keys, table=rows))
            assert found == ("NOT CHECKED", "the ridge strength is not known: give it")
        quoted = remaining.to_csv(index=False, lineterminator="\r\n", quoting=csv.QUOTE_ALL)
        plain = remaining.to_csv(index=False)
        for written, said_of_it in (
            ("\ufeff" + quoted.rstrip(), "bit for bit"),
            (plain + "\n\n", "bit for bit"),
            (plain.replace("\n", ",\n", 2).replace(",\n", "\n", 1), "row 1 has 7 cells"),
            (plain.replace("id,", "a,", 1), "has two columns a"),
            (plain.replace("id,", '"id,', 1), "is not CSV with commas"),
            ("", "has no column a"),
        ):
            rows.write_text(written, newline="")
            found = retraining(page(tmp_path / "bundle", keys, table=rows, ridge="1e-4"))
            assert said_of_it in found[1], written[:80]
        refusals: list[tuple[Callable[[pd.DataFrame], Any], dict[str, str], str]] = [
            (lambda rows: rows.drop(columns="b"), {}, "has no column b"),
            (lambda rows: rows.replace({"b": {rows["b"].iloc[4]: np.nan}}), {}, "row 5, column b"),
            (lambda rows: rows.astype(str).replace({"b": {str(rows["b"].iloc[4]): "0x10"}}),
             {"id": "id"}, f"row 5 ({remaining['id'].iloc[4]}), column b: “0x10” is not a number"),
            (lambda rows: rows.assign(id="u1"), {"id": "id"}, "an earlier row has the same id"),
            (lambda rows: rows.assign(w=-1.0), {"weight": "w"}, "a weight is below 0"),
            (lambda rows: rows, {"ridge": "much"}, "“much” is not a number from 0 on"),
        ]  # fmt: skip
        for change, fields, why in refusals:
            result, detail = said(change(remaining), **fields)
            assert result == "crash"
            assert why in detail
        lethe("delete", "m", *(word for row in remaining["id"] for word in ("--row", row)))
        lethe("work", "--until-idle")
        assert said(remaining[:0])[0] == "OK"  # no row is left: theta is 0
        assert said(remaining[:1])[0] == "FAILED"


def test_the_offline_page_says_of_which_models_it_cannot(
    table: pd.DataFrame, page: PageVerifier, tmp_path: Path
) -> None:
    table["left"] = (table.pop("y") > 0).astype(int)
    table.to_parquet(tmp_path / "all.parquet")
    with EmbeddedValkey(tmp_path / "server") as server:
        lethe: Lethe = Within(server.data_dir)
        given = ("--id", "id", "--target", "left", "--kind", "logistic", "--ridge", "1")
        lethe("register", "m", "--data", str(tmp_path / "all.parquet"), *given)

        result, detail = on_page(page, lethe, tmp_path, "m", table)

        assert result == "NOT CHECKED"
        assert detail == "only a linear model has a minimiser in closed form"


def test_a_pipeline_is_what_fitting_it_to_the_remaining_rows_gives(tmp_path: Path) -> None:
    draw, n = np.random.default_rng(8), 50
    table = pd.DataFrame({"id": [f"u{i}" for i in range(n)], "size": 50.0 + draw.normal(size=n)})
    table["town"] = draw.choice(["Ulm", "Bonn", "Kiel"], n)
    table["post"] = draw.choice([f"p{i}" for i in range(6)], n)
    table["y"] = table["size"] + (table["town"] == "Ulm") + draw.standard_normal(n)
    table.loc[3, "size"] = 50e6  # a typing error, deleted below
    table.loc[3, "town"] = "Rostock"  # nobody else lives there
    table.loc[[5, 6], "size"] = None
    everything, rest, columns = (tmp_path / name for name in ("all.csv", "rest.csv", "c.toml"))
    table.to_csv(everything, index=False)
    gone = ["u3", "u5", "u20"]
    remaining = table[~table["id"].isin(gone)]
    remaining.sample(frac=1.0, random_state=3).to_csv(rest, index=False)
    columns.write_text(
        '[columns.size]\nstep = "numeric"\n[columns.town]\nstep = "one-hot"\n'
        '[columns.post]\nstep = "target-encode"\nstandardise = true\n'
    )
    with EmbeddedValkey(tmp_path / "server") as server:
        lethe: Lethe = Within(server.data_dir)
        given = ("--id", "id", "--target", "y", "--kind", "linear", "--ridge", "1")
        more = ("--method", "exact", "--preprocess", str(columns))
        registered = lethe(
            "register", "m", "--data", str(everything), *given, *more, "--json"
        ).document
        assert registered["error"]["kind"] == "rounded"
        assert lethe("verify", "m", "--digest", "--json").document["equal"]
        lethe("delete", "m", *(word for row in gone for word in ("--row", row)))
        lethe("work", "--until-idle")
        verify = ("verify", "m", "--digest", "--data", str(rest), "--id", "id", "--json")
        again = lethe(*verify).document
        assert (again["equal"], again["error_kind"], again["rows"]) == (True, "rounded", 47)
        assert lethe("verify", "m", "--json").document["verified"]
        lethe("check")
