"""Small values of the store, as fuzzing and damaged stores taught: a value, or CORRUPT_STATE."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lethe.consumers.cli.send.lines import most_bytes, read_lines
from lethe.consumers.contract import cloudevents
from lethe.consumers.contract.events import MAX_ROWS, Parameters, Version
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.contract.version_chain import theta_of
from lethe.consumers.deletions.validate import Invalid, validate
from lethe.consumers.log.base import Partition, Record
from lethe.consumers.service.valkey_server import read_pid
from lethe.consumers.subscriber.history import read_version
from lethe.consumers.subscriber.parameters import ParametersReader
from lethe.engine.errors import BrokenChain, CorruptState, InvalidRequest
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.config import parse_config
from lethe.engine.store.layout.meta import meta_json, parse_meta
from lethe.engine.store.layout.reading import (
    integer,
    parse_ids,
    parse_json,
    parse_json_value,
    parse_text,
)
from tests.proof.fuzz.stored import meta
from tests.support.published import release

HERE = Partition("lethe.deletions", "id", 0)


@pytest.mark.parametrize("stored", [b"0", b"-1", b"9007199254740993", 7, "12"])
def test_whole_numbers_are_read(stored: bytes | str | int) -> None:
    assert integer(stored, "x") == int(stored)


@pytest.mark.parametrize(
    "stored", [None, b"", b"-", b"+1", b" 1", b"1_0", b"1.0", b"\xd9\xa1", b"9" * 17, b"9" * 9000]
)
def test_what_is_no_whole_number_is_corrupt(stored: bytes | None) -> None:
    with pytest.raises(CorruptState, match=r"x: .* not a whole number"):
        integer(stored, "x")


@pytest.mark.parametrize(
    "stored",
    [None, b"", b"{", b"NaN", b"[1e400]", b'["\\ud800"]', b"[" * 5000, b'{"a":1,"a":1}', b"[\0]\0"],
)
def test_what_is_no_json_of_ours_is_corrupt(stored: bytes | None) -> None:
    with pytest.raises(CorruptState, match="x: ") as caught:
        parse_json_value(stored, "x")
    assert "\n" not in str(caught.value)


def test_a_pair_of_surrogates_is_one_character_and_not_a_lone_one() -> None:
    assert parse_json(b'["\\ud83d\\ude00"]', ours=True) == ["\U0001f600"]
    assert parse_ids(b'["\\ud83d\\ude00"]', "x") == ("\U0001f600",)


@pytest.mark.parametrize("stored", [b'"abc"', b"[1]", b'{"a":1}', b"[null]"])
def test_what_is_no_list_of_ids_is_corrupt(stored: bytes) -> None:
    """Not ``str`` of whatever is there: the rows of another subject would be deleted."""
    with pytest.raises(CorruptState, match="not a list of ids"):
        parse_ids(stored, "x")


def test_text_that_is_no_utf8_is_corrupt() -> None:
    with pytest.raises(CorruptState, match="not UTF-8"):
        parse_text(b"\xff", "x")


def test_a_row_may_not_borrow_bytes_from_the_next_one() -> None:
    row = codec.pack_signed_row(np.ones(3))
    with pytest.raises(CorruptState, match="a row has 16 bytes where 24 belong"):
        codec.unpack_signed_rows([row[:-8], row + bytes(8)], 3, "V")


def test_a_shape_whose_size_overflows_is_no_shape_of_nothing() -> None:
    with pytest.raises(CorruptState):
        codec.unpack(b"", (1 << 31, 1 << 31, 1 << 2), "x")


def test_the_head_of_another_model_is_corrupt() -> None:
    with pytest.raises(CorruptState, match="is that of model 'm'"):
        parse_config(meta().config.model_dump_json().encode(), "n")


def test_a_head_that_describes_what_no_value_can_hold_is_corrupt() -> None:
    config = meta().config.model_copy(update={"feature_names": tuple(map(str, range(9000)))})
    with pytest.raises(CorruptState, match="a model cannot have"):
        parse_meta(meta_json(meta(config=config)), config)


# -- what arrives -------------------------------------------------------------------------------


def test_a_request_that_names_a_member_twice_is_refused() -> None:
    value = b'{"request_id":"r","model_id":"m","row_ids":["a"],"row_ids":["b"]}'
    item = validate(Record(HERE, 7, b"m", value))
    assert isinstance(item, Invalid)
    assert "names a member twice" in item.detail
    with pytest.raises(ValueError, match="twice"):
        cloudevents.parse(Record(HERE, 7, b"m", b'{"a":{"b":1,"b":1}}'))


def test_parameters_without_their_intercept_are_no_parameters() -> None:
    event = release(None, [1.0, 2.0]).parameters.model_copy(update={"intercept": None})
    with pytest.raises(BrokenChain, match="holds no intercept"):
        theta_of(event)


@pytest.mark.parametrize("when", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_a_time_that_utc_does_not_have_is_refused_when_it_is_read(when: str) -> None:
    made = release(None, [1.0, 2.0])
    value = made.version.value().replace(b"2026-03-01T00:00:00.000Z", when.encode())
    with pytest.raises(ValueError, match="outside the years"):
        Version.read(value)
    with pytest.raises(BrokenChain, match="not a version"):
        read_version(Record(HERE, 0, b"churn", value), "churn")


@pytest.mark.parametrize("read", [Receipt.read, Parameters.read])
def test_an_event_nested_too_deep_is_a_value_error(read: Callable[[bytes], object]) -> None:
    with pytest.raises(ValueError, match="deep"):
        read(b"[" * 5000)


def test_names_without_utf8_bytes_break_the_chain_and_nothing_else() -> None:
    text = release(None, [1.0, 2.0]).parameters.value().replace(b'"age"', b'"\\ud800"')
    reader = ParametersReader(None, "churn", None)  # type: ignore[arg-type]
    with pytest.raises(BrokenChain, match="not a parameters event"):
        reader._parse(Record(HERE, 0, b"churn", text))


# -- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["-1", "0", "1", "", "x", "12\n13", "9" * 30, "4" * 5000])
def test_a_damaged_pid_file_names_no_group_of_processes(tmp_path: Path, content: str) -> None:
    path = tmp_path / "valkey.pid"
    path.write_text(content)
    assert read_pid(path) is None
    path.write_text(" 4242\n")
    assert read_pid(path) == 4242


def test_a_file_of_rows_is_read_only_as_far_as_a_request_goes(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(b"u1\n" * (most_bytes(MAX_ROWS) // 3 + 1))
    with pytest.raises(InvalidRequest, match="more than"):
        list(read_lines(path, MAX_ROWS, "row id"))
