"""A receipt in the request index: the same bytes again when it is published, or a clear error."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from lethe.consumers.commits.commit import KeptReceipt
from lethe.consumers.commits.packed_receipt import body_of, pack, unpack
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import Source
from lethe.consumers.contract.receipt import Receipt
from lethe.engine.errors import CorruptState
from lethe.engine.store.layout.records import CertificateRecord, ErrorRecord

numbers = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(0, 10**9)
moments = st.integers(0, 4 * 10**12).map(
    lambda ms: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@st.composite
def errors(draw: st.DrawFn) -> ErrorRecord:
    value = draw(st.none() | numbers)
    return ErrorRecord(
        value=value,
        kind=draw(st.sampled_from(["exact", "estimate", "certificate", "unknown", "rounded"])),
        bound=draw(st.sampled_from([None, value]) | numbers),
        certified_version=draw(st.none() | counts),
        budget=draw(numbers),
        relative=draw(st.none() | numbers),
    )


@st.composite
def receipts(draw: st.DrawFn) -> Receipt:
    topic = draw(st.sampled_from([topics.DELETIONS, "another.topic"]))
    return Receipt(
        request_id="r",
        model_id="m",
        status=draw(st.sampled_from(["APPLIED", "ALREADY_APPLIED", "REJECTED", "DEFERRED"])),
        code=draw(st.sampled_from([None, "UNKNOWN_ROWS", "DATA_LOST", "A_CODE_OF_TOMORROW"])),
        detail=draw(st.none() | texts),
        rows_deleted=draw(counts),
        rows_unknown=draw(counts),
        version=draw(st.none() | counts),
        generation=draw(st.none() | counts),
        error=draw(st.none() | errors()),
        source=Source(topic=topic, partition=draw(st.integers(0, 999)), offset=draw(counts)),
        completed_at=draw(moments),
        rows_commitment=draw(st.none() | st.binary(min_size=32, max_size=32).map(bytes.hex)),
        certificate=draw(
            st.none()
            | st.builds(
                CertificateRecord,
                epsilon=numbers, delta=numbers, sigma=numbers, spent=numbers, budget=numbers,
            )
        ),
    )  # fmt: skip


def packed(receipt: Receipt, place: int = 7) -> bytes:
    return pack(KeptReceipt(receipt, receipt.value(), bytes(range(16)), place))


@given(receipts(), st.integers(-1, 10**9))
def test_what_comes_back_is_published_byte_for_byte(receipt: Receipt, place: int) -> None:
    stored = packed(receipt, place)
    found = unpack(stored, "m", "r")
    assert found.receipt.value() == receipt.value()
    assert (found.final, found.body, found.place) == (receipt.final, bytes(range(16)), place)
    assert body_of(stored) == bytes(range(16))
    assert stored[:1] == (b"F" if receipt.final else b"P")


def applied() -> Receipt:
    return Receipt(
        request_id="r",
        model_id="m",
        status="APPLIED",
        rows_deleted=1,
        version=70_000,
        generation=3,
        error=ErrorRecord(
            value=1e-9, kind="exact", bound=1e-9, certified_version=70_000, budget=0.01,
            relative=1e-7,
        ),
        source=Source(topic=topics.DELETIONS, partition=15, offset=123_456_789),
        completed_at=datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC),
        rows_commitment="ab" * 32,
    )  # fmt: skip


def test_a_bound_of_minus_zero_is_not_the_value_of_zero() -> None:
    error = ErrorRecord(
        value=0.0, kind="exact", bound=-0.0, certified_version=0, budget=0.01, relative=0.0
    )
    receipt = applied().model_copy(update={"error": error})
    assert unpack(packed(receipt), "m", "r").receipt.value() == receipt.value()


def test_an_ordinary_one_takes_little() -> None:
    assert len(packed(applied(), 100_000)) <= 110


def test_one_that_is_cut_short_or_goes_on_is_corrupt() -> None:
    stored = packed(applied())
    for end in range(len(stored)):
        with pytest.raises(CorruptState, match="model 'm', request 'r'"):
            unpack(stored[:end], "m", "r")
    with pytest.raises(CorruptState):
        unpack(stored + b"x", "m", "r")


def test_any_byte_that_is_changed_is_a_receipt_or_a_clear_error() -> None:
    """There is no checksum: what must not happen is another kind of error."""
    stored = packed(applied())
    for at in range(len(stored)):
        for bit in (1, 128):
            spoilt = stored[:at] + bytes([stored[at] ^ bit]) + stored[at + 1 :]
            with suppress(CorruptState):
                unpack(spoilt, "m", "r")


def test_a_layout_of_tomorrow_asks_for_an_upgrade() -> None:
    stored = packed(applied())
    with pytest.raises(CorruptState, match="upgrade"):
        unpack(stored[:1] + b"\x09" + stored[2:], "m", "r")
