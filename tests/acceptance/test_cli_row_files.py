"""``lethe register --rows`` as a user types it: from a directory of Parquet files to a rebuild."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from lethe.consumers.registration.table import foreseen
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from tests.support.command import Lethe, Within
from tests.support.extras import need

pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_cli_row_files")]

PARTS, EACH, FEATURES = 4, 5_000, 10
FIT = ("--id", "id", "--target", "y", "--subject", "person", "--kind", "linear", "--ridge", "1")


def rows(first: int, count: int, seed: int) -> pa.Table:
    """Return rows, ten of each person."""
    draw = np.random.default_rng(seed)
    X = draw.standard_normal((count, FEATURES))
    columns = {f"x{j}": X[:, j] for j in range(FEATURES)}
    columns["y"] = X.sum(axis=1) + draw.standard_normal(count)
    numbers = range(first, first + count)
    named = {"id": [f"row-{i}" for i in numbers], "person": [f"person-{i // 10}" for i in numbers]}
    return pa.table({**columns, **named})


def held(folder: Path) -> bytes:
    """Return what all files below a folder hold."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def bytes_of(table: pa.Table, i: int) -> bytes:
    """Return the features of a row, as a file of rows holds them."""
    return np.array([table[f"x{j}"][i].as_py() for j in range(FEATURES)]).tobytes()


def test_a_table_in_a_directory_forgets_changes_and_is_rebuilt(tmp_path: Path) -> None:
    table, files = tmp_path / "table", tmp_path / "files"
    table.mkdir()
    parts = [rows(i * EACH, EACH, i) for i in range(PARTS)]
    for i, part in enumerate(parts):
        pq.write_table(part, table / f"part-{i}.parquet")
    pacsv.write_csv(rows(PARTS * EACH, 20, 50), tmp_path / "new.csv")
    better = rows(100, 5, 60)
    pq.write_table(better.drop_columns(["person"]), tmp_path / "better.parquet")
    source = ("--data", str(table), *FIT, "--rows", str(files))
    with EmbeddedValkey(tmp_path / "valkey") as server:
        lethe = Lethe(server.data_dir)
        planned = lethe("register", "big", *source, "--dry-run", "--json").document
        assert (planned["rows"], planned["features"]) == (PARTS * EACH, FEATURES)
        assert not files.exists()
        refused = lethe("register", "big", *source, "--preprocess", "none.toml", code=2).err
        assert refused.startswith("lethe: ")
        registered = lethe("register", "big", *source).out
        assert f"rows in files at {files}" in registered
        assert bytes_of(parts[0], 12) in held(files)
        with lethe.working() as worker:
            by_person = lethe("delete", "big", "--subject", "person-1", "--wait", "120", "--json")
            lethe("delete", "big", "--row", "row-777", "--wait", "120")
            change = ("big", "--id", "id", "--wait", "120", "--data")
            lethe("insert", "--subject", "person", *change, str(tmp_path / "new.csv"))
            lethe("correct", *change, str(tmp_path / "better.parquet"))
            lethe("verify", "big")
            lethe("refresh", "big", "--size", "rebuild", "--wait", "120")
            lethe("delete", "big", "--subject", f"person-{PARTS * EACH // 10}", "--wait", "120")
            erased = lethe("erase", "person-3", "--wait", "120").out
            again = lethe("delete", "big", "--subject", "person-1", "--wait", "120", "--json")
            worker.terminate()
            worker.communicate(timeout=120)
        assert by_person.document["rows_deleted"] == 10
        assert again.document["status"] == "ALREADY_APPLIED"
        assert "10 rows deleted" in erased
        after = held(files)
        assert bytes_of(parts[0], 12) not in after
        assert bytes_of(parts[0], 777) not in after
        assert bytes_of(parts[0], 102) not in after
        assert bytes_of(better, 2) in after
        status = lethe("status", "big", "--json").document
        assert status["rows_live"] == PARTS * EACH - 10 - 1 + 20 - 10 - 10
        lethe("verify", "big", "--digest")
        lethe("check")
        lethe("unregister", "big", "--yes")
    assert not [path for path in files.rglob("*") if path.is_file()]


def test_a_logistic_model_of_named_classes_forgets_rows_of_files(tmp_path: Path) -> None:
    table, files = tmp_path / "table", tmp_path / "files"
    table.mkdir()
    named = pa.array(["cold", "mild", "warm"])
    parts = [rows(i * 600, 600, i) for i in range(3)]
    for i, part in enumerate(parts):
        thirds = np.digitize(part["y"].to_numpy(), [-1.5, 1.5])
        column = part.column_names.index("y")
        pq.write_table(
            part.set_column(column, "y", named.take(pa.array(thirds))), table / f"part-{i}.parquet"
        )
    source = ("--data", str(table), *FIT[:6], "--kind", "logistic", "--ridge", "1")
    with EmbeddedValkey(tmp_path / "valkey") as server:
        lethe = Lethe(server.data_dir)
        registered = lethe("register", "klimate", *source, "--rows", str(files)).out
        assert "cold" in registered
        assert f"rows in files at {files}" in registered
        with lethe.working() as worker:
            by_person = lethe(
                "delete", "klimate", "--subject", "person-1", "--wait", "60", "--json"
            )
            lethe("delete", "klimate", "--row", "row-777", "--wait", "60")
            lethe("verify", "klimate")
            lethe("refresh", "klimate", "--size", "rebuild", "--wait", "60")
            worker.terminate()
            worker.communicate(timeout=120)
        assert by_person.document["rows_deleted"] == 10
        assert bytes_of(parts[1], 177) not in held(files)
        assert lethe("status", "klimate", "--json").document["rows_live"] == 1800 - 11
        lethe("verify", "klimate")


PREPROCESS = """
[columns.age]
step = "numeric"

[columns.town]
step = "one-hot"
unknown = "ignore"

[columns.post]
step = "target-encode"

[columns.joined]
step = "date"
"""


def people(count: int) -> pa.Table:
    """Return rows of people with towns and dates, some of them missing."""
    draw = np.random.default_rng(3)
    age = draw.integers(18, 90, count).astype(str)
    age[draw.random(count) < 0.05] = ""
    days = np.datetime64("2020-01-01") + draw.integers(0, 900, count)
    return pa.table(
        {
            "id": [f"row-{i}" for i in range(count)],
            "person": [f"person-{i // 10}" for i in range(count)],
            "age": age.tolist(),
            "town": draw.choice(["Oslo", "Rome", "Bergen", ""], count).tolist(),
            "post": draw.choice(["7", "10", "12"], count).tolist(),
            "joined": days.astype(str).tolist(),
            "y": draw.standard_normal(count).tolist(),
        }
    )


def test_a_table_of_text_and_dates_is_preprocessed_from_its_files(tmp_path: Path) -> None:
    """The model has the bits of one whose rows are in the store."""
    table, files, steps = tmp_path / "table", tmp_path / "files", tmp_path / "steps.toml"
    table.mkdir()
    steps.write_text(PREPROCESS)
    every = people(1_200)
    for start in range(0, len(every), 300):
        pacsv.write_csv(every.slice(start, 300), table / f"part-{start:04}.csv")
    better = every.slice(100, 3).drop_columns(["person"])
    pacsv.write_csv(better.set_column(2, "town", [["Rome"] * 3]), tmp_path / "better.csv")
    source = ("--data", str(table), *FIT, "--preprocess", str(steps))
    with EmbeddedValkey(tmp_path / "valkey") as server:
        lethe = Lethe(server.data_dir)
        planned = lethe("register", "text", *source, "--rows", str(files), "--dry-run", "--json")
        assert (planned.document["rows"], planned.document["features"]) == (1_200, 4)
        said = lethe("register", "text", *source, "--rows", str(files)).out
        assert f"rows in files at {files}" in said
        lethe("register", "other", *source)
        with lethe.working() as worker:
            for model in ("text", "other"):
                lethe("delete", model, "--subject", "person-1", "--wait", "120")
                change = (model, "--id", "id", "--wait", "120", "--data")
                lethe("correct", *change, str(tmp_path / "better.csv"))
                lethe("refresh", model, "--size", "rebuild", "--wait", "120")
                lethe("delete", model, "--row", "row-777", "--wait", "120")
            worker.terminate()
            worker.communicate(timeout=120)
        digests = []
        for model in ("text", "other"):
            lethe("verify", model)
            digests.append(lethe("verify", model, "--digest", "--json").document)
        assert digests[0]["refitted_digest"] == digests[1]["refitted_digest"]
        lethe("check")


def test_a_table_that_the_store_does_not_take_goes_to_files_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(rows(0, 200, 0), tmp_path / "table.parquet")
    monkeypatch.setattr(foreseen, "MAX_NUMBERS", 1000)
    with EmbeddedValkey(tmp_path / "valkey") as server:
        lethe = Within(server.data_dir)
        said = lethe("register", "big", "--data", str(tmp_path / "table.parquet"), *FIT).out
        assert f"rows in files at {server.data_dir}/rows\n" in said
        assert [path for path in (server.data_dir / "rows").rglob("*") if path.is_file()]
        lethe("verify", "big")


def test_the_features_that_a_frozen_transformer_makes_lie_in_files(tmp_path: Path) -> None:
    need("skops", "pandas")
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import OneHotEncoder, StandardScaler
    from skops.io import dump

    table, files, frozen = tmp_path / "table.parquet", tmp_path / "files", tmp_path / "it.skops"
    every = people(600).drop_columns(["joined", "post", "age"])
    every = every.append_column("age", [np.arange(600.0) % 70])
    pq.write_table(every, table)
    steps = [("age", StandardScaler(), ["age"]), ("town", OneHotEncoder(), ["town"])]
    dump(ColumnTransformer(steps).fit(every.to_pandas()), frozen)
    source = ("--data", str(table), *FIT, "--preprocess", str(frozen))
    with EmbeddedValkey(tmp_path / "valkey") as server:
        lethe = Lethe(server.data_dir)
        lethe("register", "m", *source, "--rows", str(files), "--dry-run")
        said = lethe("register", "m", *source, "--rows", str(files)).out
        assert "the transformer is frozen" in said
        registered = lethe("register", "other", *source, "--json").document
        assert len(registered["features"]) == 5
        with lethe.working() as worker:
            for model in ("m", "other"):
                lethe("delete", model, "--subject", "person-1", "--wait", "120")
            worker.terminate()
            worker.communicate(timeout=120)
        digests = [lethe("verify", model, "--digest", "--json") for model in ("m", "other")]
        assert len({one.document["refitted_digest"] for one in digests}) == 1


def test_a_logistic_model_is_preprocessed_from_its_files(tmp_path: Path) -> None:
    """What is published is what a model publishes whose rows are in the store, up to rounding."""
    table, files, steps = tmp_path / "table.csv", tmp_path / "files", tmp_path / "steps.toml"
    steps.write_text(PREPROCESS)
    every = people(900)
    place = every.column_names.index("y")
    left = np.where(every["y"].to_numpy() > 0, "left", "stayed")
    pacsv.write_csv(every.set_column(place, "y", [left]), table)
    third = every.set_column(place, "y", [np.where(np.arange(900) < 9, "perhaps", left)])
    pacsv.write_csv(third, tmp_path / "third.csv")
    with EmbeddedValkey(tmp_path / "valkey") as server:
        lethe = Lethe(server.data_dir)
        rest = (*FIT[:6], "--kind", "logistic", "--ridge", "5", "--preprocess", str(steps))
        source = ("--data", str(table), *rest)
        more = ("--data", str(tmp_path / "third.csv"), *rest, "--rows", str(files))
        assert (
            "encoded by the target, and there are 3" in lethe("register", "text", *more, code=2).err
        )
        assert not files.exists()
        lethe("register", "text", *source, "--rows", str(files))
        lethe("register", "other", *source)
        with lethe.working() as worker:
            for model in ("text", "other"):
                lethe("delete", model, "--subject", "person-1", "--wait", "120")
                lethe("refresh", model, "--size", "rebuild", "--wait", "120")
                lethe("delete", model, "--row", "row-777", "--wait", "120")
            worker.terminate()
            worker.communicate(timeout=120)
        compared = [lethe("verify", model, "--json").document for model in ("text", "other")]
        assert compared[0]["rows_live"] == compared[1]["rows_live"] == 889
        lethe("check")


def test_a_file_for_preprocess_is_proposed_by_the_first_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lethe.consumers.registration.table.file.HEAD_ROWS", 10)
    towns = pa.array(["Oslo", "Bergen"] * 100)
    table = rows(0, 200, 0).append_column("town", towns)
    gaps = table.set_column(0, "x0", pa.array([None, *table["x0"].to_pylist()[1:]]))
    for name, one in (("whole", table), ("gaps", gaps)):
        pq.write_table(one, tmp_path / f"{name}.parquet")
    with EmbeddedValkey(tmp_path / "valkey") as server:
        lethe = Within(server.data_dir)
        for name, code in (("whole", 0), ("gaps", 2)):
            data = ("--data", str(tmp_path / f"{name}.parquet"), "--rows", str(tmp_path / "files"))
            said = lethe("register", name, *data, *FIT, code=code)
            assert '[columns.town]\nstep = "one-hot"' in said.out
        assert "column 'x0'" in said.err
        lethe("register", "named", *data, *FIT, "--features", "x1,x2")
