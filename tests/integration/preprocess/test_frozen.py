"""A frozen transformer in front of a model of the service: its versions say so."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lethe.consumers.audit.verify import verify
from lethe.consumers.contract.version_chain import theta_of
from lethe.consumers.registration.register import Registered
from lethe.consumers.registration.table.frozen import FrozenFile, read_frozen_file
from lethe.consumers.registration.table.in_blocks import TableInBlocks
from lethe.consumers.registration.table.reader import (
    Columns,
    TableRead,
    foresee,
    read_given_rows,
    read_table,
)
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Kind
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.rowstore import writer
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.offline.snapshot import take_snapshot
from tests.support.extras import need
from tests.support.invariants import check_row_files
from tests.support.platform import Platform

N = 60


def written(directory: Path, kind: str) -> tuple[Path, Path, NDArray[Any], NDArray[Any]]:
    """Return a table, a transformer fitted to all of it, its features, and the target."""
    need("skops", "pandas")
    import pandas as pd
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler
    from skops.io import dump

    rng = np.random.default_rng(0)
    age, town = 50 + 9 * rng.standard_normal(N), rng.choice(["Ulm", "Bonn", "Kiel"], N)
    age[rng.random(N) < 0.1] = np.nan
    y = np.nan_to_num(age, nan=50) / 10 + (town == "Ulm") + rng.standard_normal(N)
    y = y if kind == "linear" else (y > np.median(y)).astype(int)
    frame = pd.DataFrame({"id": range(N), "town": town, "age": age, "y": y})
    columns = ColumnTransformer(
        [
            ("age", make_pipeline(SimpleImputer(), StandardScaler()), ["age"]),
            ("town", OneHotEncoder(sparse_output=False), ["town"]),
        ]
    ).fit(frame)
    dump(columns, directory / "columns.skops")
    with (directory / "rows.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "age", "town", "y"])
        for i in range(N):
            rows.writerow([f"u{i}", "" if np.isnan(age[i]) else repr(float(age[i])), town[i], y[i]])
    return directory / "rows.csv", directory / "columns.skops", columns.transform(frame), y


def read(table: Path, transformer: Path, kind: str) -> TableRead:
    columns = Columns(id="id", targets=("y",))
    return read_table(table, columns, Kind(kind), frozen=read_frozen_file(transformer))


def registered(platform: Platform, found: TableRead, kind: str, model_id: str = "m") -> Registered:
    return platform.registrar().register(configured(found, kind, model_id), found.data)


def configured(found: TableRead, kind: str, model_id: str) -> ModelConfig:
    return ModelConfig(
        model_id=model_id,
        kind=Kind(kind),
        method="exact",
        ridge=1.0,
        fit_intercept=True,
        feature_names=found.data.feature_names,
        target_names=("y",),
        error_budget=0.5,
        frozen_transformer=found.data.frozen_transformer,
    )


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_a_model_behind_a_frozen_transformer_forgets_and_each_version_says_what_does_not(
    memory: Platform, tmp_path: Path, kind: str
) -> None:
    from sklearn.linear_model import LogisticRegression, Ridge

    table, transformer, features, y = written(tmp_path, kind)
    found = read(table, transformer, kind)
    assert found.data.feature_names == ("age__age", "town__town_Bonn", "town__town_Kiel",
                                        "town__town_Ulm")  # fmt: skip
    np.testing.assert_allclose(found.data.X, features, rtol=1e-12)
    registered(memory, found, kind)
    memory.send("m", "u1", "u2", "u3")
    memory.drain()
    versions = memory.versions()
    assert len(versions) >= 2
    assert {version.preprocess for version in versions} == {"frozen"}
    live = np.r_[0, 4:N]
    model = Ridge() if kind == "linear" else LogisticRegression(tol=1e-12, max_iter=10_000)
    model.fit(features[live], y[live])
    truth = np.append(np.ravel(model.coef_), np.ravel(model.intercept_))
    away = np.linalg.norm(theta_of(memory.parameters())[:, 0] - truth)
    error = versions[-1].error
    assert away <= (error.bound if error.bound is not None else 1e-2 * np.linalg.norm(truth))
    config = memory.load().meta.config
    assert config.frozen_transformer == read_frozen_file(transformer).digest


def test_what_is_no_fitted_transformer_is_refused_in_a_line(tmp_path: Path) -> None:
    need("skops", "pandas")
    import pandas as pd
    from sklearn.linear_model import Ridge
    from sklearn.preprocessing import FunctionTransformer, StandardScaler
    from skops.io import dump

    table, transformer, _, _ = written(tmp_path, "linear")
    with pytest.raises(InvalidData, match="cannot be read"):
        read_frozen_file(tmp_path / "none.skops")
    for name, content in {
        "empty": b"",
        "text": b"no archive",
        "cut": transformer.read_bytes()[:99],
    }.items():
        path = tmp_path / f"{name}.skops"
        path.write_bytes(content)
        with pytest.raises(InvalidData, match=r"is no \.skops file that can be read"):
            read_frozen_file(path)
    frame = pd.DataFrame({"age": [1.0, 2.0, 4.0]})
    estimators = {
        "a regression": Ridge().fit(frame, [1, 2, 3]),
        "without names": StandardScaler().fit(frame.to_numpy()),
    }
    for estimator in estimators.values():
        dump(estimator, tmp_path / "other.skops")
        with pytest.raises(InvalidData, match="holds no transformer that was fitted to a data"):
            read_frozen_file(tmp_path / "other.skops")
    dump(FunctionTransformer(written).fit(frame), tmp_path / "code.skops")
    with pytest.raises(InvalidData, match=r"Untrusted types found.*scikit-learn's own classes"):
        read_frozen_file(tmp_path / "code.skops")
    table.write_text("id,age,y\nu1,3,1\nu2,4,2\n")
    with pytest.raises(InvalidData, match="has no column 'town'"):
        read(table, transformer, "linear")
    table.write_text("id,age,town,y\nu1,3,Atlantis,1\nu2,4,Ulm,2\n")
    with pytest.raises(InvalidData, match="the transformer of preprocess refuses the table"):
        read(table, transformer, "linear")


@pytest.mark.parametrize(
    "dropped",
    [slice("plz", "note"), slice(1, 3), np.array(["plz", "note"]), [1, 2], [False, True, True]],
    ids=["names, slice", "places, slice", "names, array", "places", "mask"],
)
def test_columns_that_a_transformer_drops_need_not_be_in_the_table(
    tmp_path: Path, dropped: Any
) -> None:
    need("skops", "pandas")
    import pandas as pd
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import StandardScaler
    from skops.io import dump

    frame = pd.DataFrame({"age": [1.0, 2.0, 4.0], "plz": ["1", "2", "2"], "note": ["x", "y", "z"]})
    steps = [("age", StandardScaler(), ["age"]), ("no", "drop", dropped)]
    transformer, table = tmp_path / "columns.skops", tmp_path / "rows.csv"
    dump(ColumnTransformer(steps).fit(frame), transformer)
    table.write_text("id,age,y\nu1,3,1\nu2,4,2\n")
    assert read(table, transformer, "linear").data.X.shape == (2, 1)


def test_categories_that_are_text_for_the_transformer_are_text_in_a_csv_file(
    tmp_path: Path,
) -> None:
    need("skops", "pandas")
    import pandas as pd
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder
    from skops.io import dump

    frame = pd.DataFrame({"plz": ["01067", "89073", "89073"], "code": ["1", "2", "1"]})
    columns = ColumnTransformer(
        [
            ("plz", make_pipeline(OneHotEncoder(handle_unknown="ignore")), ["plz"]),
            ("code", OrdinalEncoder(), ["code"]),
        ]
    ).fit(frame)
    transformer, table = tmp_path / "columns.skops", tmp_path / "rows.csv"
    dump(columns, transformer)
    frame.assign(id=["a", "b", "c"], y=[1, 2, 3]).to_csv(table, index=False)
    found = read(table, transformer, "linear")
    np.testing.assert_array_equal(found.data.X, columns.transform(frame))


SPELLED: dict[str, tuple[list[Any], list[str]]] = {
    "numbers": ([True, False, None, True], ["True", "False", "", "true"]),
    "truth": ([True, False, True, True], ["true", "False", "TRUE", "true"]),
    "truth as text": ([True, False, True, True], ["True", "false", "True", "true"]),
    "truth with gaps": ([True, False, None, True], ["True", "False", "", "true"]),
    "whole numbers": ([2, 10, None, 2], ["2", "10.0", "", "2.0"]),
    "text, None": (["a", "b", None, "a"], ["a", "b", "", "a"]),
    "text, NaN": (["a", "b", None, "a"], ["a", "b", "", "a"]),
    "text, filled in": (["01067", "89073", None, "01067"], ["01067", "89073", "", "01067"]),
}
"""Values in a Parquet file, and the same in a CSV file."""


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("what", SPELLED)
def test_a_transformer_is_given_what_it_was_fitted_to_whatever_the_file(
    tmp_path: Path, what: str, form: str
) -> None:
    table, transformer, features = spelled(tmp_path, what, form)
    made = read(table, transformer, "linear").data.X
    np.testing.assert_array_equal(made, features)
    assert made.any(axis=1).all() or what == "numbers", "each row has a category"


def spelled(directory: Path, what: str, form: str) -> tuple[Path, Path, NDArray[Any]]:
    """Return a table of such values, a transformer that was fitted to it, and its features."""
    need("skops", "pandas")
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder
    from skops.io import dump

    typed, text = SPELLED[what]
    gap = None if what == "text, None" else np.nan
    fitted = [gap if value is None else value for value in typed]
    if what == "truth as text":
        fitted = [str(value) for value in typed]
    hot: Any = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    step = {
        "numbers": SimpleImputer(),
        "text, filled in": make_pipeline(SimpleImputer(strategy="most_frequent"), hot),
    }.get(what, hot)
    dtype = {"numbers": float, "text, NaN": "str", "whole numbers": float}.get(what, object)
    frame = pd.DataFrame({"c": pd.Series(fitted, dtype=bool if what == "truth" else dtype)})
    columns = ColumnTransformer([("c", step, ["c"])]).fit(frame)
    transformer, table = directory / "columns.skops", directory / f"rows.{form}"
    dump(columns, transformer)
    if form == "csv":
        lines = [f"u{i},{value},{i}" for i, value in enumerate(text)]
        table.write_text("\n".join(["id,c,y", *lines, ""]))
    else:
        pq.write_table(pa.table({"id": ["a", "b", "c", "d"], "c": typed, "y": range(4)}), table)
    return table, transformer, columns.transform(frame)


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("what", SPELLED)
def test_a_table_in_blocks_is_given_to_it_as_a_whole_one(
    tmp_path: Path, what: str, form: str
) -> None:
    """Each row is a file of its own, so that no block has what the others have."""
    table, transformer, _ = spelled(tmp_path, what, form)
    whole = read(table, transformer, "linear").data
    directory = tmp_path / "parts"
    split(table, directory)
    columns, frozen = Columns(id="id", targets=("y",)), read_frozen_file(transformer)
    foreseen = foresee(directory, columns, Kind.LINEAR, frozen, limited=False)
    blocks = TableInBlocks.of(foreseen, columns, Kind.LINEAR, frozen)
    made = list(blocks.blocks())
    assert len(made) == 4
    assert blocks.names == whole.feature_names
    np.testing.assert_array_equal(np.vstack([block.X for block in made]), whole.X)
    assert [name for block in made for name in block.ids] == list(whole.ids)


def split(table: Path, directory: Path) -> None:
    """Write each row of a table to a file of its own."""
    import pyarrow.parquet as pq

    directory.mkdir()
    if table.suffix == ".csv":
        header, *lines = table.read_text().splitlines()
        for number, line in enumerate(lines):
            (directory / f"{number}.csv").write_text(f"{header}\n{line}\n")
        return
    rows = pq.read_table(table)
    for number in range(len(rows)):
        pq.write_table(rows.slice(number, 1), directory / f"{number}.parquet")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["1", "2", "true"], "some rows hold true or false, others numbers"),
        (["1", "2", "x"], "not a number"),
        ([], "has no rows"),
    ],
)
def test_a_column_that_is_wrong_as_a_whole_is_wrong_in_blocks(
    tmp_path: Path, values: list[str], message: str
) -> None:
    with pytest.raises(InvalidData, match=message):
        imputed(tmp_path, values)


def test_a_block_without_a_category_is_of_the_type_that_the_others_are(tmp_path: Path) -> None:
    need("pandas")
    import pandas as pd
    from sklearn.preprocessing import OneHotEncoder

    known = ["a", "b", np.nan]
    hot: Any = OneHotEncoder(sparse_output=False).fit(pd.DataFrame({"c": known}))
    made = in_blocks(tmp_path, ["b", "", "a"], hot, {"c": known})
    assert np.vstack(made).tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]


def imputed(directory: Path, values: list[str]) -> list[NDArray[Any]]:
    """Return what an imputer of mean 1.5 makes of blocks of one value each."""
    need("pandas")
    import pandas as pd
    from sklearn.impute import SimpleImputer

    return in_blocks(directory, values, SimpleImputer().fit(pd.DataFrame({"c": [1.0, 2.0]})), {})


def in_blocks(
    directory: Path, values: list[str], fitted: Any, known: dict[str, list[Any]]
) -> list[NDArray[Any]]:
    """Return what a transformer of one column makes of blocks of one value each."""
    for number, value in enumerate(values):
        (directory / f"{number}.csv").write_text(f"id,c,y\nu{number},{value},1\n")
    if not values:
        (directory / "0.csv").write_text("id,c,y\n")
    columns = Columns(id="id", targets=("y",))
    frozen = FrozenFile(directory, fitted, ("c",), "", known)
    foreseen = foresee(directory, columns, Kind.LINEAR, frozen, limited=False)
    blocks = TableInBlocks.of(foreseen, columns, Kind.LINEAR, frozen).blocks()
    return [block.X for block in blocks]


def test_rows_that_were_not_transformed_are_refused_with_what_to_do(tmp_path: Path) -> None:
    table, transformer, _, _ = written(tmp_path, "linear")
    config = configured(read(table, transformer, "linear"), "linear", "m")
    columns = Columns(id="id", targets=("y",), features=config.feature_names)
    with pytest.raises(InvalidData, match="which the frozen transformer makes; give the rows as"):
        read_given_rows(table, columns, config)


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_rows_in_files_are_those_that_the_store_would_have(
    memory: Platform, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "BUCKET_BYTES", 1024)
    table, transformer, features, _ = written(tmp_path, kind)
    found = read(table, transformer, kind)
    split(table, tmp_path / "parts")
    columns, frozen = Columns(id="id", targets=("y",)), read_frozen_file(transformer)
    foreseen = foresee(tmp_path / "parts", columns, Kind(kind), frozen, limited=False)
    registered(memory, found, kind, "other")
    config = configured(found, kind, "m").model_copy(update={"rows_url": memory.folder()})
    blocks = TableInBlocks.of(foreseen, columns, Kind(kind), frozen)
    memory.file_registrar().register_in_files(config, blocks)
    check_same(memory)
    values = features[7].tolist()
    row = {"id": "new", "values": [*values[:3], 1.0], "target": 1}
    for model in ("m", "other"):
        memory.send(model, "u1", "u2", "u3")
        memory.send_change(model, "insert", row)
        memory.send_change(model, "correct", {**row, "id": "u9"})
    memory.drain()
    check_same(memory)
    assert {version.preprocess for version in memory.versions()} == {"frozen"}
    for model in ("m", "other"):
        memory.refresh(model, RefreshSize.REBUILD)
        memory.send(model, "u5", "new")
    memory.drain()
    check_same(memory)
    check_row_files(memory)
    found_there = verify(memory.store, "m")
    assert found_there.distance <= found_there.bound + found_there.residual


def check_same(platform: Platform) -> None:
    """Compare what is published, and every row as it is kept, bit for bit."""
    ours, theirs = (platform.load(model) for model in ("m", "other"))
    size = float(np.linalg.norm(theirs.published))
    assert float(np.linalg.norm(ours.published - theirs.published)) <= 1e-9 * size
    kept = [take_snapshot(platform.store, model) for model in ("m", "other")]
    rows = [dict(zip(one.ids, map(bytes, one.rows.X), strict=True)) for one in kept]
    assert rows[0] == rows[1]


def test_a_transformer_that_was_changed_is_refused_in_a_line(tmp_path: Path) -> None:
    need("skops", "pandas")
    import pandas as pd
    from sklearn.compose import ColumnTransformer
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.preprocessing import StandardScaler
    from skops.io import dump

    table, path = tmp_path / "rows.csv", tmp_path / "changed.skops"
    table.write_text("id,age,y\nu1,3,1\nu2,4,2\n")
    frame = pd.DataFrame({"age": [1.0, 2.0, 4.0]})
    steps = [("age", StandardScaler(), ["age"])]
    for name, value, message in [
        ("feature_names_in_", 5, "cannot tell which columns the transformer takes"),
        (
            "transformers_",
            [("no", "drop", [99])],
            "cannot tell which columns the transformer takes",
        ),
        ("transformers_", [("no", "drop", ["age"])], "it drops all of them"),
        ("transformers_", [], r"2 rows into an array of shape \(2, 0\)"),
    ]:
        changed = ColumnTransformer(steps).fit(frame)
        setattr(changed, name, value)
        dump(changed, path)
        with pytest.raises(InvalidData, match=message):
            read(table, path, "linear")
    words = CountVectorizer().fit(["age"])  # it takes a frame for a list of its columns' names
    words.feature_names_in_ = np.array(["age"], dtype=object)
    dump(words, path)
    with pytest.raises(InvalidData, match=r"2 rows into an array of shape \(1, 1\)"):
        read(table, path, "linear")
