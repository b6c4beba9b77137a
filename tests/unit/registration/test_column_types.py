"""Every type of Arrow in every role: taken, left out by its name, or refused with the way out."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lethe import LinearModel, LogisticModel
from lethe.consumers.contract.events import DeletionRequest
from lethe.consumers.registration.table.reader import (
    Columns,
    proposed_steps,
    read_ids,
    read_prepared_table,
    read_table,
)
from lethe.consumers.registration.table.values import HELD
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Kind
from lethe.engine.ids import TO_TEXT, ids_of
from lethe.engine.preprocess.input.columns import (
    Column,
    Date,
    Numeric,
    OneHot,
    Ordinal,
    TargetEncode,
)

WHOLE = pa.array([10, 0, 1, 2])
UUIDS = [UUID(int=i + 1) for i in range(4)]
SIXTEEN = pa.array([one.bytes for one in UUIDS], pa.binary(16))
BYTES = [b"a", b"b", b"c", b"d"]
TEXT = ["a", "b", "c", "d"]
LISTS = [[1], [2], [3], [4]]


def named(kind: pa.DataType, storage: pa.Array) -> pa.Array:
    return pa.ExtensionArray.from_storage(kind, storage)


def _examples() -> Iterator[pa.Array]:
    for kind in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float32(), pa.float64()),
        *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
        *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
        *(pa.time64("us"), pa.time64("ns"), pa.timestamp("us", "Europe/Oslo")),
    ):
        yield WHOLE.cast(kind)
    for kind in (
        *(pa.decimal32(9), pa.decimal64(18), pa.decimal128(38), pa.decimal256(76)),
        *(pa.decimal32(9, 2), pa.decimal64(9, 2), pa.decimal128(9, 2), pa.decimal256(9, 2)),
    ):
        yield pa.array([Decimal(value) for value in WHOLE.to_pylist()], kind)
    yield pa.array(np.arange(4, dtype=np.float16))
    for kind in (pa.date32(), pa.date64()):
        yield pa.array([datetime.date(2021, 3, 1 + i) for i in range(4)], kind)
    yield WHOLE.cast(pa.int32()).cast(pa.time32("s"))
    yield pa.array([True, False, True, False])
    yield named(pa.bool8(), pa.array([1, 0, 1, 0], pa.int8()))
    yield pa.nulls(4)
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        yield pa.array(TEXT, kind)
    yield named(pa.json_(), pa.array(TEXT))
    yield named(pa.opaque(pa.string(), "word", "somebody"), pa.array(TEXT))
    yield pa.array(TEXT).dictionary_encode()
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1)):
        yield pa.array(BYTES, kind)
    yield SIXTEEN
    yield SIXTEEN.dictionary_encode()
    yield named(pa.uuid(), SIXTEEN)
    for kind in (pa.list_, pa.large_list, pa.list_view, pa.large_list_view):
        yield pa.array(LISTS, kind(pa.int64()))
    yield pa.array([["a"]] * 4, pa.list_(pa.string_view()))
    yield pa.array(LISTS, pa.list_(pa.int64(), 1))
    pair = pa.array([[1, 2]] * 4, pa.list_(pa.int32(), 2))
    yield named(pa.fixed_shape_tensor(pa.int32(), [2]), pair)
    yield pa.array([{"part": i} for i in range(4)])
    yield pa.array([[("key", i)] for i in range(4)], pa.map_(pa.string(), pa.int64()))
    yield pa.array([pa.MonthDayNano([1, 2, i]) for i in range(4)])
    yield pa.RunEndEncodedArray.from_arrays([1, 4], [1, 2])
    first = pa.array([0] * 4, pa.int8())
    yield pa.UnionArray.from_sparse(first, [WHOLE])
    yield pa.UnionArray.from_dense(first, pa.array([0, 1, 2, 3], pa.int32()), [WHOLE])


EXAMPLES = {str(values.type): values for values in _examples()}

CANNOT_BE_MADE = {"INTERVAL_MONTHS", "INTERVAL_DAY_TIME"}
"""Types that Arrow has a number for, and pyarrow no array of."""

NO_PARQUET = {"month_day_nano_interval", "run_end_encoded", "sparse_union", "dense_union"}

WHOLE_NUMBERS = {
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("decimal32(9, 0)", "decimal64(18, 0)", "decimal128(38, 0)", "decimal256(76, 0)"),
}
FRACTIONS = {
    *("halffloat", "float", "double"),
    *(f"decimal{bits}(9, 2)" for bits in (32, 64, 128, 256)),
}
TRUTH = {"bool", "extension<arrow.bool8>"}
NUMBERS = WHOLE_NUMBERS | FRACTIONS | TRUTH
WORDS = {
    *("string", "large_string", "string_view", "extension<arrow.json>"),
    "extension<arrow.opaque[storage_type=string, type_name=word, vendor_name=somebody]>",
    "dictionary<values=string, indices=int32, ordered=0>",
}
UUID_TYPES = {
    *("fixed_size_binary[16]", "extension<arrow.uuid>"),
    "dictionary<values=fixed_size_binary[16], indices=int32, ordered=0>",
}
DATES = {
    *("date32[day]", "date64[ms]", "timestamp[us, tz=Europe/Oslo]"),
    *(f"timestamp[{unit}]" for unit in ("s", "ms", "us", "ns")),
}
NAMES = WORDS | WHOLE_NUMBERS | UUID_TYPES
IN_PARQUET = sorted(name for name in EXAMPLES if name.partition("<")[0] not in NO_PARQUET)

BASE = {"id": [1, 2, 3, 4], "x": [1.0, 2.0, 5.0, 3.0], "y": [1.0, 0.0, 1.0, 0.0]}


def test_there_is_an_example_of_every_type_that_the_installed_pyarrow_has() -> None:
    known = {number for number in dir(pa.lib) if number.startswith("Type_")}
    shown = {values.type.id for values in EXAMPLES.values()}
    missing = {name for name in known if getattr(pa.lib, name) not in shown}
    assert {name.removeprefix("Type_") for name in missing} <= CANNOT_BE_MADE


@pytest.mark.parametrize("name", sorted(set(EXAMPLES) - set(IN_PARQUET)))
def test_what_no_parquet_file_can_hold_needs_no_answer(tmp_path: Path, name: str) -> None:
    with pytest.raises(pa.ArrowNotImplementedError):
        written(tmp_path, EXAMPLES[name])


def written(folder: Path, values: pa.Array) -> Path:
    path = folder / "rows.parquet"
    pq.write_table(pa.table({**BASE, "c": values}), path)
    return path


def refusal(read: Callable[[], object]) -> str:
    """Return the one line with which a column is refused; it names the column."""
    with pytest.raises(InvalidData) as caught:
        read()
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", IN_PARQUET)
def test_as_a_feature(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, EXAMPLES[name])
    roles = Columns("id", ("y",))
    read = read_table(path, roles, Kind.LINEAR)
    proposed = proposed_steps(path, roles)
    if name in NUMBERS:
        assert read.data.feature_names == ("x", "c")
        assert not read.left_out
        assert np.isfinite(read.data.X).all()
        assert proposed["c"] == ("one-hot" if name in TRUTH else "numeric")
        return
    assert read.data.feature_names == ("x",)
    held = {"null": "nothing"} | dict.fromkeys(WORDS, "text") | dict.fromkeys(DATES, "dates")
    what = read.left_out["c"]
    assert what == held.get(name, what)
    if name not in held:
        assert what not in HELD
        assert "extension" not in what  # whose name says nothing about what the column holds
        assert "c" not in proposed
    asked = Columns("id", ("y",), features=("c",))
    message = refusal(lambda: read_table(path, asked, Kind.LINEAR))
    assert "column 'c'" in message
    assert "encode it as numbers first" in message or name == "null"


CATEGORIES = WORDS | WHOLE_NUMBERS | TRUTH | {"halffloat", "float", "double"}
STEPS: dict[Column, set[str]] = {
    Numeric(): NUMBERS,
    Date(): DATES,
    OneHot(): CATEGORIES | {"null"},
    Ordinal(): CATEGORIES,
    TargetEncode(): CATEGORIES | {"null"},
}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: type(step).__name__)
@pytest.mark.parametrize("name", IN_PARQUET)
def test_as_a_column_of_a_preprocessing_file(tmp_path: Path, name: str, step: Column) -> None:
    path = written(tmp_path, EXAMPLES[name])

    def read() -> object:
        return read_prepared_table(path, Columns("id", ("y",)), Kind.LINEAR, {"c": step})

    if name in STEPS[step]:
        read()
        return
    message = refusal(read)
    assert "column 'c'" in message
    ways = ("choose another step, or leave it out", "make text of it, or leave it out")
    assert message.endswith((*ways, "leave it out", "write 2021-03-01", "in their place"))


@pytest.mark.parametrize("name", IN_PARQUET)
def test_as_an_id_and_as_a_subject(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, EXAMPLES[name])
    as_id = Columns("c", ("y",), features=("x",))
    as_subject = Columns("id", ("y",), features=("x",), subject="c")
    if name in NAMES:
        ids = read_table(path, as_id, Kind.LINEAR).data.ids
        assert ids == expected_ids(name)
        assert read_ids(path, ["c"]) == tuple((one,) for one in ids)
        subjects = read_table(path, as_subject, Kind.LINEAR).data.subjects
        assert subjects == {one: [row] for one, row in zip(ids, "1234", strict=True)}
        return
    for read in (
        lambda: read_table(path, as_id, Kind.LINEAR),
        lambda: read_ids(path, ["c"]),
        lambda: read_table(path, as_subject, Kind.LINEAR),
    ):
        if name == "null":  # no row has an id; or a subject, which no row needs
            continue
        message = refusal(read)
        assert "column 'c'" in message
        assert TO_TEXT in message
        assert ("make integers" in message) == (name in {"halffloat", "float", "double"})


def expected_ids(name: str) -> tuple[str, ...]:
    if name in UUID_TYPES:
        return tuple(map(str, UUIDS))
    return tuple(TEXT) if name in WORDS else ("10", "0", "1", "2")


@pytest.mark.parametrize("name", IN_PARQUET)
def test_as_a_target(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, EXAMPLES[name])
    roles = Columns("id", ("c",), features=("x",))
    cases: Mapping[Kind, set[str]] = {Kind.LINEAR: NUMBERS, Kind.LOGISTIC: NAMES | NUMBERS}
    for kind, taken in cases.items():
        if name in taken:
            assert len(read_table(path, roles, kind).data.y) == 4
            continue
        message = refusal(lambda kind=kind: read_table(path, roles, kind))  # type: ignore[misc]
        assert "column 'c'" in message
        assert "encode it as numbers first" in message or TO_TEXT in message or name == "null"


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_library_takes_the_same_columns(name: str) -> None:
    """As features, target and weights, which the service reads from requests; and as ids."""
    values = EXAMPLES[name]
    X, y = np.array(BASE["x"])[:, None], BASE["y"]
    table = pa.Table.from_arrays([values], names=["c"])
    runs = name.startswith("run_end_encoded")  # which no file holds

    def fit(*given: Any, **named_arguments: Any) -> LinearModel:
        return LinearModel(ridge=1.0).fit(*given, **named_arguments)

    attempts: tuple[Callable[[], object], ...] = (
        lambda: fit(table, y),
        lambda: fit(X, values),
        lambda: fit(X, y, sample_weight=values),
    )
    for attempt in attempts:
        if name in NUMBERS or runs:
            attempt()
        else:
            refusal(attempt)
    if name in NAMES:
        assert fit(X, y, ids=values).live_ids == expected_ids(name)
    elif not runs and "union" not in name:
        refusal(lambda: fit(X, y, ids=values))
    if name not in NAMES | NUMBERS and not runs:
        refusal(lambda: LogisticModel(ridge=1.0).fit(X, values))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("u7", "u7"),
        ("007", "007"),
        (7, "7"),
        (np.int64(-7), "-7"),
        (np.uint8(7), "7"),
        (10**40, f"1{'0' * 40}"),
        (Decimal(7), "7"),
        (Decimal("-0"), "0"),
        (UUID("12345678-1234-5678-1234-56781234567A"), "12345678-1234-5678-1234-56781234567a"),
    ],
)
def test_one_rule_for_ids_in_the_library_and_in_requests(value: Any, text: str) -> None:
    request = {"request_id": "r", "model_id": "m", "row_ids": [value]}
    assert DeletionRequest.model_validate(request).row_ids == (text,)
    model = LinearModel(ridge=1.0).fit([[1.0], [2.0]], [1.0, 2.0], ids=[value, "other"])
    assert model.live_ids[0] == text
    model.delete([value])
    assert text not in model.live_ids


@pytest.mark.parametrize(
    "value",
    [
        *(0.0, np.float64(1.0), float("nan"), True, np.bool_(False), None, "", "x" * 129, 10**5000),
        *((0,), ["u7"], b"u7", "\ud800", Decimal("1.0"), Decimal("1E+2"), Decimal("nan")),
        *(datetime.date(2021, 3, 1), np.datetime64("2021-03-01"), np.timedelta64(7, "D")),
    ],
    ids=lambda value: f"{type(value).__name__}",
)
def test_what_is_no_id_in_a_request_is_none_in_the_library(value: Any) -> None:
    request = {"request_id": "r", "model_id": "m", "row_ids": [value]}
    with pytest.raises(ValueError, match="row_ids"):
        DeletionRequest.model_validate(request)
    model = LinearModel(ridge=1.0)
    with pytest.raises(InvalidData):
        model.fit([[1.0], [2.0]], [1.0, 2.0], ids=[value, "other"])
    model.fit([[1.0], [2.0]], [1.0, 2.0])
    for refused in (
        lambda: model.delete([value]),
        lambda: model.insert([[3.0]], [1.0], ids=[value]),
        lambda: model.correct([[3.0]], [1.0], ids=[value]),
        lambda: model.leverage([value]),
    ):
        with pytest.raises(InvalidData):
            refused()
    assert model.live_ids == ("0", "1")


def test_a_column_of_arrow_that_python_has_no_values_for_is_refused_with_the_way_out() -> None:
    moments = pa.array([1], pa.timestamp("ns"))
    far = pa.array([2**62], pa.timestamp("s"))
    for values in (moments, far):
        with pytest.raises(InvalidData, match=TO_TEXT):
            ids_of(values)
