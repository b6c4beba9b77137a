"""Stored bytes: what comes back is what was written, and anything else is refused."""

from __future__ import annotations

import numpy as np
import pytest

from lethe.engine.errors import CorruptState, FormatTooNew, FormatTooOld
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.config import LimitsRecord, parse_config
from lethe.engine.store.layout.keys import FORMAT
from lethe.engine.store.layout.meta import parse_meta
from lethe.engine.store.layout.state import check_stored_format
from tests.support.families import make
from tests.support.platform import config_of

D, M = 5, 2


@pytest.fixture
def record() -> bytes:
    rng = np.random.default_rng(0)
    return codec.pack_row(rng.normal(size=D), rng.normal(size=M), 2.5, rng.normal(size=D), 7)


@pytest.mark.parametrize("h", [0, 1, 3])
def test_rows_are_packed_together_as_they_are_one_by_one(h: int) -> None:
    rng = np.random.default_rng(0)
    X, y, W = rng.normal(size=(4, D)), rng.normal(size=(4, M)), rng.normal(size=(4, h * D))
    weight = rng.uniform(1, 2, 4)
    wide = np.column_stack([X, np.ones(4)])  # of which X may be a view

    packed = codec.pack_rows(wide[:, :-1], y, weight, W)

    assert packed == [codec.pack_row(X[i], y[i], float(weight[i]), W[i]) for i in range(4)]
    assert {type(record) for record in packed} == {bytes}


def test_arrays_and_rows_come_back(record: bytes) -> None:
    array = np.random.default_rng(1).normal(size=(3, 4))
    assert np.array_equal(codec.unpack(codec.pack(array.T), (4, 3), "x"), array.T)
    assert len(record) == codec.row_size(D, M)
    rows = codec.unpack_rows([record, record], D, M, "rows")
    rng = np.random.default_rng(0)
    assert np.array_equal(rows.X[1], rng.normal(size=D))
    assert np.array_equal(rows.y[1], rng.normal(size=M))
    assert np.array_equal(rows.W[1], rng.normal(size=D))
    assert rows.weight.tolist() == [2.5, 2.5]
    signed = [
        codec.pack_signed_row(row, sign) for row, sign in zip(array, (-1, 1, -1), strict=True)
    ]
    matrix, signs = codec.unpack_signed_rows(signed, 4, "V")
    assert np.array_equal(matrix, array)
    assert signs == [-1, 1, -1]
    assert codec.unpack_rows([], D, M, "rows").X.shape == (0, D)
    assert codec.unpack_signed_rows([], D, "V")[0].shape == (0, D)


@pytest.mark.parametrize("data", [None, b"", bytes(23), bytes(25), bytes(32)])
def test_an_array_of_another_length_is_refused(data: bytes | None) -> None:
    with pytest.raises(CorruptState, match="--replace"):
        codec.unpack(data, (3, 1), "theta")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(CorruptState, match="not finite"):
        codec.unpack(codec.pack(np.array([1.0, bad])), (2,), "theta")
    with pytest.raises(CorruptState, match="not finite"):
        codec.unpack_rows([codec.pack_row(np.ones(D), np.ones(M), 1.0, np.full(D, bad))], D, M, "r")


@pytest.mark.parametrize("change", ["short", "long", "empty", "codec"])
def test_a_damaged_row_record_is_refused(record: bytes, change: str) -> None:
    damaged = {
        "short": record[:-1],
        "long": record + b"\0",
        "empty": b"",
        "codec": b"\x09" + record[1:],
    }[change]
    with pytest.raises(CorruptState):
        codec.unpack_rows([record, damaged], D, M, "rows")


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0, -1.0])
def test_a_weight_that_is_none_is_refused(bad: float) -> None:
    with pytest.raises(CorruptState, match="weight"):
        codec.unpack_rows([codec.pack_row(np.ones(D), np.ones(M), bad, np.ones(D))], D, M, "rows")


def test_a_row_of_v_that_is_no_deletion_and_no_insertion_is_of_a_newer_worker() -> None:
    with pytest.raises(CorruptState, match="upgrade"):
        codec.unpack_signed_rows([codec.pack_signed_row(np.ones(D), 2)], D, "V")
    with pytest.raises(CorruptState, match="upgrade"):
        codec.unpack_signed_rows([b""], D, "V")


def test_another_format_is_refused_and_says_what_to_do() -> None:
    check_stored_format(str(FORMAT).encode(), "m")
    check_stored_format(None, "m")
    with pytest.raises(FormatTooNew, match="upgrade"):
        check_stored_format(str(FORMAT + 1).encode(), "m")
    with pytest.raises(FormatTooOld, match=r"an empty store.*an empty log"):
        check_stored_format(str(FORMAT - 1).encode(), "m")
    with pytest.raises(CorruptState):
        check_stored_format(b"x", "m")


@pytest.mark.parametrize("data", [b"", b"{}", b"[", b"\xff", b'{"error": NaN}'])
def test_a_head_that_does_not_parse_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptState):
        parse_config(data, "m")
    data_of_the_model = config_of(make("benign", "linear"), "m", "pru", 0.1, LimitsRecord())
    with pytest.raises(CorruptState):
        parse_meta(data, data_of_the_model)
