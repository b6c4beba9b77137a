"""Requests that must be signed: a forged one changes nothing, and uses nobody's request id up."""

from __future__ import annotations

import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from consumers.deletion_worker import DeletionWorker
from consumers.events import DELETION_REQUESTED
from consumers.metrics import Metrics
from consumers.request_keys import parse_request_keys
from consumers.signing import Signer
from tests.integration.test_worker_takeover import dump, restore
from tests.support.invariants import check_model
from tests.support.platform import Platform

SIGNER = Signer(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
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
    before = dump(memory.store, "m")
    send(memory, "r1", 1)
    send(memory, "forged", 5, 6, sign=False)
    send(memory, "r2", 7, sign=False)
    send(memory, "r0", 0)
    send(memory, "r2", 2)
    memory.drain(worker)
    assert memory.load().version == 2, "one version for all of them"
    restore(memory.store, "m", before)
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
