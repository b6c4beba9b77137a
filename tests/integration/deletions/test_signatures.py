"""Requests that must be signed: a forged one changes nothing, and uses nobody's request id up.

Commits that must be: one that a stranger appends halts its model, and nothing of it is believed.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lethe.consumers.commits.frame import decode_frame
from lethe.consumers.commits.record import encode, open_commit
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import DELETION_REQUESTED
from lethe.consumers.contract.signatures import Signer, TrustedKeys
from lethe.consumers.deletions.authenticate import parse_request_keys
from lethe.consumers.log.base import Message
from lethe.consumers.service.telemetry.metrics import Metrics
from lethe.consumers.workers.deletion_worker import DeletionWorker
from lethe.engine.store.layout.keys import commit_partition
from tests.support.invariants import check_model
from tests.support.platform import Platform
from tests.support.stores import backup, neighbour_of, restore

SIGNER = Signer(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
STRANGER = Signer(Ed25519PrivateKey.from_private_bytes(bytes(32)))
KEYS = parse_request_keys(SIGNER.public_text, "keys")


def strict(platform: Platform, metrics: Metrics | None = None) -> DeletionWorker:
    return platform.deletion_worker(request_keys=KEYS, metrics=metrics)


def send(platform: Platform, request_id: str, *rows: int, sign: bool = True) -> bytes:
    """Send a request, signed or forged; return its value."""
    names = tuple(f"row-{i}" for i in rows)
    body = {"request_id": request_id, "model_id": "m", "row_ids": names}
    value = json.dumps(body).encode()
    headers = SIGNER.signed(DELETION_REQUESTED, value, ()) if sign else ()
    if sign:
        platform.asked.setdefault(("m", request_id), names)
    platform.send_raw(value, headers=headers)
    return value


def test_a_forged_request_is_a_dead_letter_and_the_true_one_is_applied(platform: Platform) -> None:
    platform.register("m", budget=10.0)
    metrics = Metrics()
    worker = strict(platform, metrics)
    forged = send(platform, "r1", 1, 2, sign=False)
    platform.drain(worker)
    assert platform.receipts() == []
    assert not platform.raw().hexists(platform.load().keys.requests, "r1")
    [letter] = platform.dead_letters()
    assert letter.value == forged
    assert dict(letter.headers)["lethe-error-code"] == b"UNAUTHENTICATED"
    assert metrics.registry.get_sample_value("lethe_unauthenticated_total") == 1

    send(platform, "r1", 3)
    platform.drain(worker)
    assert [(r.request_id, r.status) for r in platform.receipts()] == [("r1", "APPLIED")]
    assert len(platform.dead_letters()) == 1
    check_model(platform)


def test_a_replayed_request_brings_the_same_receipt_and_no_version(memory: Platform) -> None:
    memory.register("m", budget=10.0)
    worker = strict(memory)
    for _ in range(2):
        send(memory, "r1", 1)
        memory.drain(worker)
    first, second = memory.receipts()
    assert first.value() == second.value()
    assert memory.load().version == 1
    check_model(memory)


@pytest.mark.parametrize("strict_again", [True, False])
def test_lost_writes_are_taken_from_the_log_without_what_was_forged(
    memory: Platform, strict_again: bool
) -> None:
    """Receipts say what was decided, whatever keys count when the log is read again."""
    memory.register("m", budget=10.0)
    worker = strict(memory)
    send(memory, "r0", 0)
    memory.drain(worker)
    before = backup(memory, "m")
    send(memory, "r1", 1)
    send(memory, "forged", 5, 6, sign=False)
    send(memory, "r2", 7, sign=False)
    send(memory, "r0", 0)
    send(memory, "r2", 2)
    memory.drain(worker)
    assert memory.load().version == 2, "one version for all of them"
    restore(memory, before, "m")
    worker.close()
    again = strict(memory) if strict_again else memory.deletion_worker()
    memory.drain(again)

    assert memory.load().version == 2
    assert [v.rows_deleted for v in memory.versions()] == [0, 1, 3]
    assert {name: r.status for name, r in memory.finals().items()} == {
        "r0": "APPLIED",
        "r1": "APPLIED",
        "r2": "APPLIED",
    }
    check_model(memory)


@pytest.mark.parametrize(
    "stranger", [None, Signer(Ed25519PrivateKey.from_private_bytes(bytes(32)))]
)
def test_a_commit_that_no_trusted_key_signed_halts_its_model_and_no_other(
    memory: Platform, stranger: Signer | None
) -> None:
    """Who knows the seal key and may write to the log can make a commit up; not sign it."""
    plain = memory.registrar
    memory.registrar = partial(plain, signer=lambda: SIGNER)  # type: ignore[method-assign]
    other = neighbour_of("m")
    for model in ("m", other):
        memory.register(model)
    state = memory.load()
    forged = next_commit(memory, stranger)
    memory.producer.publish([forged])
    trusted = TrustedKeys.of([SIGNER.public])
    worker = memory.deletion_worker(signer=lambda: SIGNER, trusted=trusted)
    memory.send_index("m", 1)
    mine = memory.send_index(other, 1)
    for _ in range(5):
        worker.run_once(0.01)
    assert memory.load().head == state.head
    assert memory.receipts() == []
    assert memory.final(mine, other).status == "APPLIED"
    worker.close()
    believing = memory.deletion_worker()
    memory.drain(believing)
    assert memory.load().head.commit > state.head.commit + 1


def next_commit(platform: Platform, signer: Signer | None) -> Message:
    """Return the opening of a model once more, as its next commit."""
    state, index = platform.load(), commit_partition("m")
    values = [r.value for r in platform.records(topics.COMMITS) if r.partition.index == index]
    framed = [found for value in values if (found := decode_frame(value)) is not None]
    opening = next(f for f in framed if f.open.model_id == "m" and f.open.number == 1)
    commit = open_commit(opening, platform.seals, None, state.meta.config)
    commit = replace(commit, number=state.head.commit + 1, prev=state.head.digest)
    return Message(topics.COMMITS, b"m", encode(commit, platform.seals, signer)[0], partition=index)
