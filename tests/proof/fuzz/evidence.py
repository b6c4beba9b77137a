"""Decoders of what proves something: signatures, key files, exported histories, checkpoints."""

from __future__ import annotations

import contextlib
import json
from functools import cache

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lethe.consumers.audit.published.bundle import (
    BundleReader,
    Header,
    InclusionProof,
    Item,
    Opening,
    Part,
    write_bundle,
)
from lethe.consumers.audit.published.checkpoint import parse_since, read_checkpoint
from lethe.consumers.audit.refit import read_ids
from lethe.consumers.contract.events import DELETION_RECEIPT
from lethe.consumers.contract.signatures import (
    HEADER,
    Signer,
    TrustedKeys,
    parse_trusted,
    read_signer,
    read_trusted,
)
from lethe.consumers.contract.tlog import NoteKey, checkpoint, log_name, read_head
from lethe.consumers.contract.witnesses import parse_policy
from lethe.consumers.deletions.authenticate import parse_request_keys
from lethe.consumers.log.base import Partition, Record
from lethe.engine.errors import CorruptState, InvalidData, Unauthenticated
from lethe.engine.store.layout.reading import parse_model
from lethe.engine.store.layout.records import ReceiptLog
from tests.proof.fuzz.contract import Harness, joined, parts
from tests.proof.fuzz.scratch import scratch, written
from tests.support.witnesses import WITNESSES, cosigned, policy


@cache
def _signer() -> Signer:
    return Signer(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))


def _signature(data: bytes) -> None:
    """What is accepted is what was signed, byte for byte."""
    value, header = parts(data, 2)
    headers = () if header is None else ((HEADER, header),)
    TrustedKeys.of([_signer().public]).check(DELETION_RECEIPT, value or b"", headers)
    assert header == _signer().sign(DELETION_RECEIPT, value or b"")


def signature_seeds() -> list[bytes]:
    """Return signed values, one of them with the signature of another."""
    signer = _signer()
    first, second = (signer.sign(DELETION_RECEIPT, value) for value in (b"{}", b"[]"))
    return [joined(b"{}", first), joined(b"[]", second), joined(b"[]", first), b"{}"]


def _key_file(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    path = written(data, "keys")
    found = 0
    for read in (
        lambda: parse_trusted(text, "keys"),
        lambda: parse_request_keys(text, "keys"),
        lambda: read_trusted(path),
        lambda: read_signer(path),
    ):
        with contextlib.suppress(InvalidData):
            read()
            found += 1
    if not found:
        raise InvalidData("no keys")


def key_file_seeds() -> list[bytes]:
    """Return public keys in both forms, a list with patterns, and a private key."""
    private = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    pem = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    public = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    line = _signer().public_text.encode()
    return [line + b"\n", b"# who\n" + line + b" churn-* x  # y\n", public, pem]


def _bundle(data: bytes) -> None:
    with BundleReader(written(data, "history.bundle")) as reader:
        for item in reader:
            assert isinstance(item, Item)


@cache
def bundle_seeds() -> list[bytes]:
    """Return an exported history of two records, and the evidence of an erasure."""
    path = scratch() / "valid.bundle"
    here = Partition("lethe.receipts", "", 0)
    records = [Record(here, 7, b"m", b"{}", ((HEADER, b"x"),)), Record(here, 8, b"m", b"\xff", ())]
    header = Header("m", "2026-03-01", (_signer().public_text,), {0: 0}, {"ridge": 1.0})
    erasure = Header("", "2026-03-01", (_signer().public_text,), erasure_id="e")
    proof = InclusionProof(bytes(32), 3, 7, (bytes(32),) * 2)
    of_erasure: list[Item] = [records[0], Part("m"), *records, proof, Opening("h7", bytes(32))]
    of_model: list[Item] = [*records, bytes(64)]
    found = []
    for one, items in ((header, of_model), (erasure, of_erasure)):
        write_bundle(path, one, items)
        found.append(path.read_bytes())
    return found


def _checkpoint(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    try:
        parse_since(text)
    except InvalidData:
        seen = read_checkpoint(written(data, "checkpoint"), "m")
        assert seen is not None
        assert seen.version >= 0


def checkpoint_seeds() -> list[bytes]:
    """Return both forms of a checkpoint."""
    kept = {"model_id": "m", "version": 3, "digest": "0" * 64}
    log = {"receipt_log": {"size": 2, "root": "a" * 64}}
    return [b"3:" + b"0" * 64, *(json.dumps(one).encode() for one in (kept, {**kept, **log}))]


def _receipt_log(data: bytes) -> None:
    log = parse_model(ReceiptLog, data, "x")
    assert len(log.peaks) == log.size.bit_count()
    log.head()


def receipt_log_seeds() -> list[bytes]:
    """Return the frontiers of trees of no, one and three entries."""
    log = ReceiptLog()
    return [
        one.model_dump_json().encode()
        for one in (log, log.appended([bytes(32)]), log.appended([bytes(32)] * 3))
    ]


def _note(data: bytes) -> None:
    """What is read names itself, and no witness has signed it but those whose signature it has."""
    head = read_head(data.decode("utf-8", "replace"))
    assert head.note.startswith(head.text)
    for witness in WITNESSES:
        if NoteKey.parsed(witness.vkey).has_signed(head):
            assert f"\u2014 {witness.name} " in head.note


def note_seeds() -> list[bytes]:
    """Return a checkpoint of ours, with cosignatures and without."""
    note = checkpoint(_signer(), log_name(_signer(), "m"), 3, bytes(32))
    return [one.encode() for one in (note, cosigned(note, 1), cosigned(note, 1, 2, 3))]


HARNESSES = [
    Harness("signed-note", _note, (InvalidData, Unauthenticated), note_seeds),
    Harness(
        "witness-policy",
        lambda d: parse_policy(d.decode("utf-8", "replace"), "policy"),
        (InvalidData,),
        lambda: [policy().encode(), policy("any").encode(), b"quorum none\n"],
    ),
    Harness("signature", _signature, (Unauthenticated,), signature_seeds),
    Harness("key-file", _key_file, (InvalidData,), key_file_seeds),
    # A line of a bundle is read in one piece, and lines are longer than any record.
    Harness("bundle", _bundle, (InvalidData,), bundle_seeds, fixed=8 << 20),
    Harness("checkpoint", _checkpoint, (InvalidData,), checkpoint_seeds),
    Harness(
        "audited-ids", lambda d: read_ids(written(d, "ids")), (InvalidData,), lambda: [b"u1\nu2\n"]
    ),
    Harness("receipt-log", _receipt_log, (CorruptState,), receipt_log_seeds),
]
