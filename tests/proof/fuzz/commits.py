"""Decoders of commits: their records in the log, and what the store keeps of them."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from lethe.consumers.commits.commit import Commit, CommitKind, KeptReceipt, Staged
from lethe.consumers.commits.frame import Framed, OpenPart, decode_frame
from lethe.consumers.commits.packed_receipt import pack, unpack
from lethe.consumers.commits.record import encode, open_commit, peek_deleted
from lethe.consumers.contract.events import RefreshRequested, Source
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.contract.sealing import SealKeys, read_seal_keys, stored_seal_keys
from lethe.engine.errors import CorruptState, InvalidData
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.cursors import Cursors
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.columns import packed_columns
from lethe.engine.store.layout.keys import PartitionKeys
from lethe.engine.store.layout.state import DeferredRequest
from tests.proof.fuzz.contract import SEPARATOR, Harness, joined, parts
from tests.proof.fuzz.preprocessing import columns_of_versions
from tests.proof.fuzz.scratch import written
from tests.proof.fuzz.stored import ERROR, config, meta
from tests.support.published import releases

_SECRET = bytes(range(32))
_BODY = bytes(16)
_NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@cache
def _seals() -> SealKeys:
    return SealKeys([_SECRET])


def receipt(status: str = "APPLIED", **changes: Any) -> Receipt:
    """Return a receipt, as a commit answers with it."""
    given: dict[str, Any] = {
        "request_id": "r1",
        "model_id": "m",
        "status": status,
        "rows_deleted": 2,
        "rows_unknown": 1,
        "version": 1,
        "generation": 0,
        "error": ERROR,
        "source": Source(topic="lethe.deletions", partition=1, offset=7),
        "completed_at": _NOW,
        "rows_commitment": "ab" * 32,
    }
    return Receipt(**{**given, **changes})


def commits() -> list[Commit]:
    """Return batches of requests, a registration and an opening, with all that they can hold."""
    theta = codec.pack(np.array([1.0, 2.0, 3.0]))
    version = releases(2)[-1].version.model_copy(update={"model_id": "m"})
    answer = KeptReceipt(receipt(), receipt().value(), _BODY, 3)
    waits = receipt("DEFERRED", code="AWAITING_REBUILD", request_id="r2", detail="it waits")
    deferred = DeferredRequest(
        request_id="r2",
        body="0" * 32,
        row_ids=("u3",),
        rows_unknown=0,
        code="AWAITING_REBUILD",
        source={"topic": "lethe.deletions", "partition": 1, "offset": 8},
    )
    job = RefreshRequested(
        job_id="j",
        model_id="m",
        generation=1,
        version=1,
        reason="error_budget",
        size=RefreshSize.REBUILD,
    )
    batch = Commit(
        model_id="m",
        number=4,
        prev="a" * 64,
        kind=CommitKind.REQUESTS,
        meta=meta(),
        newest=version.version,
        offsets={"id/1": 9},
        answers=(answer, KeptReceipt(waits, waits.value(), _BODY)),
        repeats=(receipt(request_id="r0").value(),),
        deleted=("u1", "u2"),
        erased=("u1",),
        deferred={"r2": deferred},
        undeferred=("r3",),
        thetas={"theta_exact": theta, "published": b""},
        version=version,
        version_value=version.value(),
        job=job,
    )
    registration = replace(
        batch,
        number=0,
        prev="",
        kind=CommitKind.REGISTRATION,
        configures=True,
        staged=Staged("gen", "data", "b" * 64, ("u9",), ("gen:old", "data:old")),
        left_out=("u8",),
        secret=bytes(32),
    )
    pipeline = replace(
        batch,
        thetas={**batch.thetas, "gradient": theta, "parameters": theta},
        columns=packed_columns(columns_of_versions()),
    )
    opening = Commit("m", 1, "c" * 64, CommitKind.OPENING, meta(), 0, opening={"id/0": 5})
    return [batch, registration, pipeline, opening]


def record_seeds() -> list[bytes]:
    """Return records as they lie in the log."""
    return [encode(commit, _seals(), None)[0] for commit in commits()]


def _record(data: bytes) -> None:
    """Whatever anybody writes to the topic is no commit, or is taken apart and put together."""
    framed = decode_frame(data)
    if framed is None:
        raise CorruptState("it is no commit")
    whole = (framed.associated, framed.sealed, framed.signature)
    again = b"".join(len(part).to_bytes(4, "little") + part for part in whole)
    assert data == b"lethe.commit.v1\n" + again
    assert len(framed.digest) == 64
    opened = framed.open
    assert opened.number >= 0
    assert len(opened.model_id.encode()) <= 512
    for read in (_open, lambda framed: peek_deleted(framed, _seals())):
        read(framed)


def _open(framed: Framed) -> Commit:
    return open_commit(framed, _seals(), None, config())


def _sealed(data: bytes) -> None:
    """What was sealed, by who has the key: a commit, and the same again when it is encoded."""
    opened = OpenPart("m", 4, "a" * 64, None, _seals().current)
    sealed = _seals().seal("m", data, b"open")
    framed = Framed(opened, "d" * 64, b"open", sealed, b"")
    deleted = peek_deleted(framed, _seals())
    commit = _open(framed)
    assert commit.deleted == deleted
    record, _ = encode(commit, _seals(), None)
    back = decode_frame(record)
    assert back is not None
    assert _open(back) == commit


def sealed_seeds() -> list[bytes]:
    """Return what is sealed in records."""
    plain = []
    for record in record_seeds():
        framed = decode_frame(record)
        assert framed is not None
        plain.append(_seals().open(framed.open.key, "m", framed.sealed, framed.associated))
    return plain


def _packed(data: bytes) -> None:
    """A receipt in the request index: the same again when it is packed."""
    found = unpack(data, "m", "r1")
    value = found.receipt.value()
    again = pack(KeptReceipt(found.receipt, value, found.body, found.place))
    assert unpack(again, "m", "r1") == found


def packed_seeds() -> list[bytes]:
    """Return receipts of every kind that the layout has room for, and one that it has not."""
    kinds = [
        receipt(),
        receipt("DEFERRED", code="DATA_LOST", detail="rows are missing", rows_commitment=None),
        receipt("REJECTED", code="UNKNOWN_ROWS", version=None, generation=None, error=None),
        receipt(code="A_CODE_OF_A_LATER_RELEASE"),
    ]
    return [pack(KeptReceipt(one, one.value(), _BODY, 3)) for one in kinds]


def _client(answer: Callable[[], Any]) -> Any:
    return SimpleNamespace(
        hgetall=lambda *_: answer(), connection_pool=SimpleNamespace(connection_kwargs={})
    )


def _cursors(data: bytes) -> None:
    topic, apply, published, name, pair = parts(data, 5)
    stored = {b"topic": topic, b"apply": apply, b"published": published, name: pair}
    found = {field: value for field, value in stored.items() if field and value is not None}
    cursors = Cursors.parsed(PartitionKeys(3), found)
    assert 0 <= cursors.lowest <= cursors.pair.lower
    for model in cursors.behind:
        assert cursors.of_model(model).lower >= cursors.lowest
    assert Cursors.noted([apply or b"", published or b""]) == cursors.pair


def cursor_seeds() -> list[bytes]:
    """Return cursors of a partition, of which a model lags behind."""
    return [joined(b"id", b"7", b"5", b"behind:m", b"3 2"), joined(b"id", b"7", b"5")]


def _seal_file(data: bytes) -> None:
    found = read_seal_keys(written(data, "seals"))
    assert found.open(found.current, "m", found.seal("m", b"x", b"y"), b"y") == b"x"


def seal_file_seeds() -> list[bytes]:
    """Return files of one key and of two, with a comment."""
    keys = [base64.b64encode(bytes([i] * 32)) for i in (1, 2)]
    return [keys[0] + b"\n", b"# newest\n" + keys[0] + b" # of May\n\n" + keys[1] + b"\n"]


def _stored_seals(data: bytes) -> None:
    fields = data.split(SEPARATOR)
    found = dict(zip(fields[::2], fields[1::2], strict=False))
    store: Any = SimpleNamespace(client=_client(lambda: dict(found)))
    if stored_seal_keys(store, make=False) is None:
        raise CorruptState("there is none")


def stored_seal_seeds() -> list[bytes]:
    """Return a secret that the store made, and two of them."""
    first, second = b"name-1", b"name-2"
    one = (b"current", first, first, bytes([1] * 32))
    return [joined(*one), joined(*one, second, bytes([2] * 32))]


_CORRUPT = (CorruptState,)
HARNESSES = [
    Harness("commit-record", _record, _CORRUPT, record_seeds),
    Harness("commit-sealed", _sealed, _CORRUPT, sealed_seeds),
    Harness("packed-receipt", _packed, _CORRUPT, packed_seeds),
    Harness("cursors", _cursors, _CORRUPT, cursor_seeds),
    Harness("seal-key-file", _seal_file, (InvalidData,), seal_file_seeds),
    Harness("stored-seal-keys", _stored_seals, _CORRUPT, stored_seal_seeds),
]
