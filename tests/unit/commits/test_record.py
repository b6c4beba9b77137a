"""A commit in bytes: what comes back is what was appended, and any other byte is noticed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings, strategies as st

from lethe.consumers.commits.commit import Commit, CommitKind, KeptReceipt, Staged
from lethe.consumers.commits.frame import FORMAT, decode_frame
from lethe.consumers.commits.record import Untrusted, encode, open_commit, peek_deleted
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import Source
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.contract.sealing import KeyUnknown, SealKeys
from lethe.consumers.contract.signatures import Signer, TrustedKeys
from lethe.engine.errors import FormatTooNew, FormatTooOld, LetheError
from lethe.engine.store.layout.state import DeferredRequest
from tests.support.families import make
from tests.support.states import start
from tests.unit.deletions.test_decide import state_of

STATE = state_of(start(make("benign", "linear")))
CONFIG = STATE.meta.config
SEALS = SealKeys([bytes(range(32))])
SIGNER = Signer(Ed25519PrivateKey.generate())
TRUSTED = TrustedKeys.of([SIGNER.public])

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
many = st.lists(names, max_size=4, unique=True).map(tuple)
digests = st.binary(min_size=32, max_size=32).map(bytes.hex)


def receipt_of(request_id: str) -> Receipt:
    return Receipt(
        request_id=request_id,
        model_id="m",
        status="REJECTED",
        code="UNKNOWN_ROWS",
        source=Source(topic=topics.DELETIONS, partition=0, offset=1),
        completed_at=datetime(2026, 1, 2, tzinfo=UTC),
    )


def answer_of(request_id: str) -> KeptReceipt:
    receipt = receipt_of(request_id)
    return KeptReceipt(receipt, receipt.value(), bytes(16), 3)


@st.composite
def commits(draw: st.DrawFn) -> Commit:
    """Draw a commit that changes all kinds of things, without a version."""
    deleted = draw(many)
    waiting = {
        name: DeferredRequest(
            request_id=name,
            body="00" * 16,
            row_ids=("a", "b"),
            rows_unknown=1,
            code="DATA_LOST",
            source={"topic": "t", "partition": 0, "offset": 5},
        )
        for name in draw(many)
    }
    staged = st.builds(
        Staged, st.just("g"), st.none() | st.just("d"), digests, many, st.just(("gen:x",))
    )
    configures = draw(st.booleans())
    return Commit(
        model_id="m",
        number=draw(st.integers(0, 10**12)),
        prev=draw(st.just("") | digests),
        kind=draw(st.sampled_from(CommitKind)),
        meta=STATE.meta,
        newest=draw(st.integers(0, 10**9)),
        configures=configures,
        offsets=draw(st.dictionaries(names, st.integers(0, 10**12), max_size=3)),
        answers=tuple(map(answer_of, draw(many))),
        repeats=tuple(receipt_of(name).value() for name in draw(many)),
        deleted=deleted,
        erased=draw(st.sampled_from([deleted, (), ("another",)])),
        left_out=draw(many),
        deferred=waiting,
        undeferred=draw(many),
        thetas=draw(st.dictionaries(names, st.binary(max_size=64), max_size=3)),
        clears_Q=draw(st.booleans()),
        staged=draw(st.none() | staged),
        empties=draw(st.booleans()),
        opening=draw(st.none() | st.dictionaries(names, st.integers(0, 10**12), max_size=2)),
        skips=draw(st.booleans()),
        secret=draw(st.none() | st.binary(min_size=16, max_size=16)),
    )


def plain() -> Commit:
    return Commit(
        "m", 5, "a" * 64, CommitKind.REQUESTS, STATE.meta, 3,
        answers=(answer_of("r"),), deleted=("row-1",), erased=("row-1",),
    )  # fmt: skip


@settings(max_examples=60)
@given(commits(), st.booleans())
def test_what_is_opened_is_what_was_encoded(commit: Commit, signed: bool) -> None:
    value, digest = encode(commit, SEALS, SIGNER if signed else None)
    framed = decode_frame(value)
    assert framed is not None
    assert framed.digest == digest
    assert (framed.open.model_id, framed.open.number) == ("m", commit.number)
    assert (framed.open.prev, framed.open.skips) == (commit.prev, commit.skips)
    assert open_commit(framed, SEALS, TRUSTED if signed else None, CONFIG) == commit
    assert peek_deleted(framed, SEALS) == commit.deleted


def test_every_byte_that_is_changed_is_noticed() -> None:
    """It is no record, has another digest and does not open, or names another key."""
    value, digest = encode(plain(), SEALS, SIGNER)
    for at in range(len(value)):
        for bit in (1, 128):
            spoilt = value[:at] + bytes([value[at] ^ bit]) + value[at + 1 :]
            framed = decode_frame(spoilt)
            if framed is None:
                continue
            assert framed.digest != digest, f"byte {at}"
            with pytest.raises(LetheError) as refused:
                open_commit(framed, SEALS, TRUSTED, CONFIG)
            assert "\n" not in str(refused.value)


def test_without_signatures_every_byte_of_what_counts_is_sealed() -> None:
    value, digest = encode(plain(), SEALS, None)
    for at in range(len(value)):
        framed = decode_frame(value[:at] + bytes([value[at] ^ 4]) + value[at + 1 :])
        if framed is not None:
            assert framed.digest != digest, f"byte {at}"
            with pytest.raises(LetheError):
                open_commit(framed, SEALS, None, CONFIG)


def test_a_record_that_is_cut_short_or_goes_on_is_none() -> None:
    value, _ = encode(plain(), SEALS, SIGNER)
    for end in range(len(value)):
        assert decode_frame(value[:end]) is None
    assert decode_frame(value + b"x") is None
    assert decode_frame(None) is None


def test_two_records_of_one_commit_differ_in_their_digests() -> None:
    """The nonce is drawn anew: a rival's record of the same content is another one."""
    assert encode(plain(), SEALS, None)[1] != encode(plain(), SEALS, None)[1]


def test_who_must_have_signed_it_has() -> None:
    unsigned, stranger = (
        decode_frame(encode(plain(), SEALS, None)[0]),
        Signer(Ed25519PrivateKey.generate()),
    )
    signed = decode_frame(encode(plain(), SEALS, stranger)[0])
    for framed in (unsigned, signed):
        assert framed is not None
        with pytest.raises(Untrusted, match=r"commit 5.*LETHE_TRUSTED_KEYS"):
            open_commit(framed, SEALS, TRUSTED, CONFIG)
        assert open_commit(framed, SEALS, None, CONFIG) == plain()


@pytest.mark.parametrize(
    ("number", "refusal", "advice"),
    [(FORMAT + 1, FormatTooNew, "upgrade it"), (FORMAT - 1, FormatTooOld, "an empty log")],
)
def test_another_format_says_so_before_anything_else(
    number: int, refusal: type[LetheError], advice: str
) -> None:
    framed = decode_frame(encode(plain(), SEALS, None)[0])
    assert framed is not None
    other = replace(framed, open=replace(framed.open, format=number, key="f" * 16))
    with pytest.raises(refusal, match=f"commit 5 has format {number}.*{advice}"):
        open_commit(other, SEALS, TRUSTED, CONFIG)
    with pytest.raises(refusal, match=advice):
        peek_deleted(other, SEALS)


def test_another_key_or_model_does_not_open_it() -> None:
    framed = decode_frame(encode(plain(), SEALS, None)[0])
    assert framed is not None
    with pytest.raises(KeyUnknown):
        open_commit(framed, SealKeys([bytes(32)]), None, CONFIG)
    other = replace(framed, open=replace(framed.open, model_id="n"))
    with pytest.raises(KeyUnknown):
        open_commit(other, SEALS, None, CONFIG)


def test_without_a_configuration_it_is_not_made_up() -> None:
    framed = decode_frame(encode(plain(), SEALS, None)[0])
    assert framed is not None
    with pytest.raises(LetheError, match="does not parse"):
        open_commit(framed, SEALS, None, None)


def test_nothing_of_what_is_sealed_can_be_read() -> None:
    value, _ = encode(plain(), SEALS, None)
    assert b"row-1" not in value
    assert b"REJECTED" not in value
