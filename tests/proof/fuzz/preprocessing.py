"""Decoders of models with preprocessing: rows of a table, and what the store keeps of columns."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np

from lethe.consumers.commits.recovery.changed_rows import check_values, table_of
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import RowsChanged
from lethe.consumers.deletions.validate import Valid, validate
from lethe.consumers.log.base import Partition, Record
from lethe.consumers.registration.table.preprocess_file import read_preprocess_file
from lethe.engine.deletion.change import RowMoves, RowsAndDuals
from lethe.engine.errors import CorruptState, InvalidData
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.answer import Prepared, prepare
from lethe.engine.preprocess.input.columns import (
    Columns,
    Date,
    Numeric,
    OneHot,
    Ordinal,
    TargetEncode,
)
from lethe.engine.preprocess.input.table import Table, read_table
from lethe.engine.preprocess.live import LivePipeline
from lethe.engine.store.generation import read_published
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.columns import FittedColumn, packed_columns
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.fitted_columns import Learnt, fitted_columns
from lethe.engine.store.layout.pipeline_sums import packed_since, packed_sums, unpack_sums
from lethe.engine.store.layout.preprocessing import (
    given_values,
    layout_of,
    pack_base,
    recorded,
    settings_of,
    unpack_base,
)
from lethe.engine.store.layout.stored_rows import read_rows
from tests.proof.fuzz.contract import Harness, joined, parts
from tests.proof.fuzz.scratch import written

_HERE = Partition(topics.ROW_CHANGES, "id", 0)
_COLUMNS: Columns = {
    "age": Numeric(),
    "grade": Ordinal(standardise=True),
    "joined": Date(),
    "post": TargetEncode(),
    "town": OneHot(),
    "fee": Numeric("median", "robust"),
}
_ROWS: dict[str, list[Any]] = {
    "fee": [1.0, 3.5, None, 4.0, 9.25, 1.0],
    "age": [31.0, None, 58.5, 44.0, 29.25, 61.0],
    "grade": ["a", "b", "b", "a", "c", "b"],
    "joined": ["2020-02-01", "2021-03-05", "2019-07-09", "2022-01-01", "2018-05-05", "2020-08-08"],
    "post": [1, 2, 2, 1, 1, 2],
    "town": ["Ulm", "Bonn", "Kiel", "Ulm", None, "Bonn"],
}


@cache
def _model() -> tuple[ModelConfig, Table, Prepared]:
    """Return a model of every kind of column, its table, and its first generation."""
    records, table = recorded(_COLUMNS, read_table(_COLUMNS, _ROWS))
    settings = ModelConfig(
        model_id="m",
        kind=Kind.LINEAR,
        method="exact",
        ridge=1.0,
        fit_intercept=True,
        feature_names=layout_of(records).names,
        target_names=("y",),
        error_budget=0.01,
        preprocess=records,
    )
    y = np.array([[1.0], [2.5], [0.5], [2.0], [1.5], [3.0]])
    return settings, table, prepare(settings_of(settings), table, y, np.ones(6), 0)


# -- rows ---------------------------------------------------------------------------------------


def _changed_rows(data: bytes) -> None:
    """A request's rows fit the model, or are refused without their values."""
    item = validate(Record(_HERE, 7, b"m", data))
    if not isinstance(item, Valid):
        raise InvalidData("it is no request")
    settings, _, _ = _model()
    assert isinstance(item.request, RowsChanged)
    check_values(item.request, settings, {})
    table = table_of(item.request, settings)
    assert len(table) == len(item.request.rows)
    assert not np.isinf(table.numbers).any()
    assert bool((table.codes >= 0).all())


def changed_rows_seeds() -> list[bytes]:
    """Return an insert by names, and a correction in order."""
    values = {name: column[0] for name, column in _ROWS.items()}
    gaps = [column[1] for column in _ROWS.values()]
    made = [
        ("insert", {"id": "u9", "values": values, "target": 1.5, "weight": 2.0}),
        ("correct", {"id": "u1", "values": gaps, "target": [1.5]}),
    ]
    return [
        json.dumps({"request_id": "r", "model_id": "m", "op": op, "rows": [row]}).encode()
        for op, row in made
    ]


def _given_rows(data: bytes) -> None:
    settings, _, _ = _model()
    records = [record for record in parts(data, 2) if record is not None]
    stored = read_rows(settings, None, records, "rows")
    assert stored.table is not None
    assert stored.given.shape == (len(records), len(_COLUMNS))
    assert not np.isinf(stored.table.numbers).any()


def given_rows_seeds() -> list[bytes]:
    """Return records of rows as they were given."""
    settings, table, _ = _model()
    dual = np.zeros(settings.d)
    packed = [
        codec.pack_row(values, np.array([1.0]), 1.0, dual, 3) for values in given_values(table)
    ]
    return [packed[0], joined(*packed[:2])]


# -- what lies beside a generation ---------------------------------------------------------------


def _base(data: bytes) -> None:
    _, _, first = _model()
    base = unpack_base(data, first.base.layout, "m")
    assert bool((base.scale > 0).all())
    assert len(pack_base(base)) == len(data)


def _sums(data: bytes) -> None:
    settings, _, first = _model()
    layout = first.base.layout
    whole, since, *others = parts(data, layout.entries + len(layout.order) + 2)
    stored = {b"all": whole, b"since:0": since or None}
    stored |= {b"%d" % i: entry for i, entry in enumerate(others[: layout.entries])}
    stored |= {b"window:%d" % i: one for i, one in enumerate(others[layout.entries :])}
    found = {name: value for name, value in stored.items() if value is not None}
    sums = unpack_sums(found, first.base, settings.d, settings.m, "m", kind=settings.kind)
    assert sums.rows >= 1
    assert min(sums.counts.min(initial=0), sums.present.min(initial=0)) >= 0
    assert all(window.counts.min(initial=0) >= 0 for window in sums.windows)


def sums_seeds() -> list[bytes]:
    """Return the sums of the first generation, and these after a row has left."""
    _, _, first = _model()
    pipeline = LivePipeline(first.base, (), first.answer, intercept=True)
    one = slice(0, 1)
    leaving = RowsAndDuals(first.rows.take(one), first.dual_rows[one], entries=first.entries[one])
    moved = RowMoves(leaving=leaving)
    [since] = packed_since(pipeline.sums_after(first.generation, moved)).values()
    whole, *entries = packed_sums(first.answer.sums).values()
    return [joined(whole, b"", *entries), joined(whole, since, *entries)]


# -- what is published ---------------------------------------------------------------------------


def _published(data: bytes) -> None:
    """Fitted columns and parameters; columns that are read are written the same."""
    settings, _, _ = _model()
    theta, columns = parts(data, 2)
    found = read_published(theta, columns, settings)
    if found is not None:
        assert found.theta.shape == (settings.d, settings.m)
        again = read_published(theta, packed_columns(found.columns), settings)
        assert again is not None
        assert again.columns == found.columns


def columns_of_versions() -> tuple[FittedColumn, ...]:
    """Return columns as a version publishes them."""
    settings, table, first = _model()
    pipeline = LivePipeline(first.base, table.vocabularies, first.answer, intercept=True)
    return fitted_columns(settings.fixed_columns, Learnt.of_pipeline(pipeline)).columns


def published_seeds() -> list[bytes]:
    """Return what the first version publishes, and what is left of a model that has ended."""
    settings, _, _ = _model()
    theta = codec.pack(np.arange(float(settings.d)))
    return [joined(theta, packed_columns(columns_of_versions())), joined(theta, b"")]


# -- what an operator writes ---------------------------------------------------------------------


def _file(data: bytes) -> None:
    columns = read_preprocess_file(written(data, "columns.toml"))
    assert columns
    assert all(isinstance(name, str) for name in columns)


def file_seeds() -> list[bytes]:
    """Return files of every step and setting."""
    return [
        b'[columns.age]\nstep = "numeric"\nimpute = "none"\nstandardise = false\n'
        b'[columns."a b"]\nstep = "one-hot"\nunknown = "ignore"\n',
        b'[columns.g]\nstep = "ordinal"\ncategories = ["a", "b", 3]\nstandardise = true\n'
        b'[columns.p]\nstep = "target-encode"\nsmooth = 2.5\n[columns.d]\nstep = "date"\n',
    ]


_CORRUPT = (CorruptState,)
HARNESSES = [
    Harness("table-rows", _changed_rows, (InvalidData,), changed_rows_seeds),
    Harness("given-rows", _given_rows, _CORRUPT, given_rows_seeds),
    Harness("base-transformation", _base, _CORRUPT, lambda: [pack_base(_model()[2].base)]),
    Harness("sums", _sums, _CORRUPT, sums_seeds),
    Harness("published-pipeline", _published, _CORRUPT, published_seeds),
    Harness("preprocess-file", _file, (InvalidData,), file_seeds, fixed=8 << 20),
]
