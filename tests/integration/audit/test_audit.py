"""An audit of a real run: what is sound passes, and whatever is altered is found where it is."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lethe.consumers.audit import auditor
from lethe.consumers.audit.auditor import Audit, audit_model
from lethe.consumers.audit.published.finding import Result
from lethe.consumers.audit.reading import ledger_of
from lethe.consumers.audit.state import state_findings
from lethe.consumers.contract import topics
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.contract.signatures import Signer, TrustedKeys
from lethe.consumers.contract.signed_log import SignedLog
from lethe.consumers.log.base import Message
from lethe.consumers.log.scan import extent_of
from lethe.consumers.service.telemetry.steps import Step
from lethe.engine.errors import CorruptState
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.keys import commit_partition
from tests.support.platform import Platform

pytestmark = pytest.mark.redis

SIGNER = Signer(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
TRUSTED = TrustedKeys.of([SIGNER.public])


def audited(platform: Platform, model_id: str = "m", **options: Any) -> Audit:
    options = {"seals": platform.seals, **options}
    return audit_model(platform.store, platform.reader, model_id, **options)


def failed(audit: Audit) -> dict[str, str]:
    return {one.check: one.detail for one in audit.findings if one.result is Result.FAILED}


def passed_over(audit: Audit) -> dict[str, str]:
    """Return what was neither found good nor bad."""
    others = (Result.NOT_CHECKED, Result.NOT_PROVED)
    return {one.check: one.detail for one in audit.findings if one.result in others}


def run(platform: Platform) -> None:
    """Register, delete, answer what deletes nothing, refresh, and delete again."""
    platform.send("m", "row-1", request_id="early")
    platform.drain()
    platform.register("m")
    for i in range(3):
        platform.send_index("m", 2 * i, 2 * i + 1)
        platform.send("m", "stranger")
        platform.drain()
    platform.send_index("m", 50, request_id="request-1")
    platform.order("m", RefreshSize.REBUILD)
    platform.drain()
    platform.send_index("m", 9)
    platform.drain()


@pytest.mark.parametrize("kind", ["memory", "streams"])
def test_a_sound_run_passes_every_check(kind: str, platform_on: Callable[..., Platform]) -> None:
    platform = platform_on(kind)
    run(platform)
    audit = audited(platform)
    assert failed(audit) == {}
    assert passed_over(audit).keys() == {"signatures"}
    details = {one.check: one.detail for one in audit.findings}
    last = platform.load().head.commit
    assert details["commits"] == f"commits 0 to {last}, dense and linked"


def test_without_the_key_the_open_part_is_checked(memory: Platform) -> None:
    run(memory)
    audit = audited(memory, seals=None)
    assert failed(audit) == {}
    assert "LETHE_SEAL_KEY_FILE" in passed_over(audit)["commits: contents"]
    another = audited(memory, seals=SealKeys([bytes(32)]))
    assert failed(another) == {}
    assert "keys that are not available here" in passed_over(another)["commits: contents"]


def test_void_records_are_counted_and_no_fault(memory: Platform) -> None:
    run(memory)
    index = commit_partition("m")
    mine = [r for r in memory.records(topics.COMMITS) if r.partition.index == index]
    for record in mine:
        memory.producer.publish([Message(topics.COMMITS, b"m", record.value, partition=index)])
    memory.pair[0].recover()
    memory.drain()
    audit = audited(memory)
    assert failed(audit) == {}
    [detail] = [one.detail for one in audit.findings if one.check == "commits"]
    assert detail.endswith(f", {len(mine)} void records")


def test_a_commit_that_continues_nothing_is_a_fault(memory: Platform) -> None:
    run(memory)
    index = commit_partition("m")
    newest = [r for r in memory.records(topics.COMMITS) if r.partition.index == index][-1]
    number = memory.load().head.commit
    assert number < 9
    ahead = (newest.value or b"").replace(b'"commit":%d,' % number, b'"commit":%d,' % (number + 1))
    memory.producer.publish([Message(topics.COMMITS, b"m", ahead, partition=index)])
    assert "does not follow commit" in failed(audited(memory))["commits"]


def test_commits_that_are_signed_are_checked_by_their_keys(memory: Platform) -> None:
    memory.log = SignedLog(memory.log, lambda: SIGNER)
    memory.producer = memory.log.producer()
    plain = memory.registrar
    memory.registrar = partial(plain, signer=lambda: SIGNER)  # type: ignore[method-assign]
    memory.register("m")
    memory.send_index("m", 1)
    worker = memory.deletion_worker(signer=lambda: SIGNER, trusted=TRUSTED)
    memory.drain(worker)
    audit = audited(memory, trusted=TRUSTED)
    assert failed(audit) == {}
    other = Signer(Ed25519PrivateKey.from_private_bytes(bytes(32)))
    strangers = failed(audited(memory, trusted=TrustedKeys.of([other.public])))
    assert "commits: signatures" in strangers
    worker.close()
    unsigned = memory.deletion_worker()
    memory.send_index("m", 2)
    memory.drain(unsigned)
    assert "commit 3" in failed(audited(memory, trusted=TRUSTED))["commits: signatures"]


def test_a_receipt_that_no_commit_says_is_found(memory: Platform) -> None:
    run(memory)
    receipt = memory.final("request-2")
    forged = receipt.model_copy(update={"request_id": "made-up", "version": None})
    forged = forged.model_copy(update={"status": "REJECTED", "code": "UNKNOWN_ROWS"})
    memory.producer.publish([Message(topics.RECEIPTS, b"m", forged.value())])
    found = failed(audited(memory))
    assert "is in no commit" in found["commits: contents"]
    assert "is not stored" in found["state: receipts"]


def test_published_bytes_are_those_that_commits_seal(memory: Platform) -> None:
    """A version, altered with its digest made anew, is not the one that its commit seals."""
    memory.register("m")
    memory.send_index("m", 1)
    memory.drain()
    genuine = memory.records(topics.RECEIPTS)[0].value or b""
    spaced = genuine.replace(b'":', b'": ')
    memory.producer.publish([Message(topics.RECEIPTS, b"m", spaced)])
    found = failed(audited(memory))
    assert "is in no commit" in found["commits: contents"]
    assert "two different final receipts" in found["receipts"]


def test_a_store_that_is_behind_or_not_published_is_not_compared(memory: Platform) -> None:
    memory.register("m")
    memory.send_index("m", 1)
    memory.drain()
    keys = memory.load().keys
    memory.raw().hset(keys.partition.cursors, "published", 0)
    assert "published yet" in passed_over(audited(memory))["state: head"]
    memory.pair[0].recover()
    memory.drain()
    assert failed(audited(memory)) == {}


def test_a_commit_while_the_state_is_compared_is_no_fault(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(memory)
    compare, rows = state_findings, iter([20])

    def disturbed(*arguments: Any) -> Any:
        for row in rows:
            memory.send_index("m", row)
            memory.drain()
        return compare(*arguments)

    monkeypatch.setattr(auditor, "state_findings", disturbed)
    audit = audited(memory)
    assert failed(audit) == {}
    assert passed_over(audit).keys() == {"signatures"}


def test_commits_that_never_stop_are_no_fault(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reading of the log has a version more than the state that was read before it."""
    run(memory)
    read, rows = extent_of, itertools.count(20)

    def disturbed(*arguments: Any) -> Any:
        memory.send_index("m", next(rows))
        memory.drain()
        return read(*arguments)

    monkeypatch.setattr(auditor, "extent_of", disturbed)
    monkeypatch.setattr(auditor, "_PAUSE", 0.0)
    assert failed(audited(memory)) == {}


def test_a_store_that_holds_another_commit_is_found(memory: Platform) -> None:
    run(memory)
    memory.raw().hset(memory.load().keys.head, "digest", "0" * 64)
    assert "the log ends with commit" in failed(audited(memory))["state: head"]


def test_a_missing_or_altered_receipt_of_the_index_is_found(memory: Platform) -> None:
    run(memory)
    keys = memory.load().keys
    kept: Any = memory.raw().hget(keys.requests, "request-2")
    memory.raw().hdel(keys.requests, "request-2")
    findings = failed(audited(memory))
    assert findings.keys() == {"state: receipts", "bound"}
    assert "lost entries of requests" in findings["bound"], "such a state is not loaded"
    memory.raw().hset(keys.requests, "request-2", kept[:40] + bytes([kept[40] ^ 1]) + kept[41:])
    assert failed(audited(memory)).keys() == {"state: receipts"}
    memory.raw().hset(keys.requests, "request-2", kept)
    assert failed(audited(memory)) == {}


def test_wherever_the_retained_commits_begin_they_are_no_fault(memory: Platform) -> None:
    """With void ones among them; the newest commit makes no version."""
    run(memory)
    memory.send("m", "stranger")
    memory.drain()
    index, number = commit_partition("m"), memory.load().head.commit
    records = [r for r in memory.records(topics.COMMITS) if r.partition.index == index]
    copies = [Message(topics.COMMITS, b"m", r.value, partition=index) for r in records]
    memory.producer.publish(copies)
    memory.pair[0].recover()
    memory.drain()
    for place, record in enumerate(records):
        memory.log.trim(record.partition, record.offset)  # type: ignore[attr-defined]
        audit = audited(memory)
        assert failed(audit) == {}, place
        [detail] = [one.detail for one in audit.findings if one.check == "commits"]
        assert detail.startswith(f"commits {place} to {number}, dense and linked"), place


def test_a_void_record_may_be_the_oldest_that_is_retained(memory: Platform) -> None:
    run(memory)
    index = commit_partition("m")
    opening = [r for r in memory.records(topics.COMMITS) if r.partition.index == index][1]
    memory.producer.publish([Message(topics.COMMITS, b"m", opening.value, partition=index)])
    memory.pair[0].recover()
    memory.send("m", "stranger")
    memory.drain()
    *_, void, _ = [r for r in memory.records(topics.COMMITS) if r.partition.index == index]
    memory.log.trim(void.partition, void.offset)  # type: ignore[attr-defined]
    audit = audited(memory)
    assert failed(audit) == {}
    [detail] = [one.detail for one in audit.findings if one.check == "commits"]
    number = memory.load().head.commit
    assert detail == f"commits {number} to {number}, dense and linked, 1 void records"


def test_commits_that_expired_leave_the_rest_checkable(memory: Platform) -> None:
    run(memory)
    whole = {one.check: one for one in audited(memory).findings}
    index = commit_partition("m")
    [partition] = [p for p in memory.reader.partitions(topics.COMMITS) if p.index == index]
    records = [r for r in memory.records(topics.COMMITS) if r.partition.index == index]
    memory.log.trim(partition, records[3].offset)  # type: ignore[attr-defined]
    some = audited(memory)
    assert failed(some) == {}
    [detail] = [one.detail for one in some.findings if one.check == "commits"]
    assert detail.startswith("commits 3 to ")
    memory.log.trim(partition, records[-1].offset + 1)  # type: ignore[attr-defined]
    none = audited(memory)
    assert failed(none) == {}
    assert "retains none" in passed_over(none)["commits"]
    assert whole.keys() - {one.check for one in none.findings} == {"commits: contents"}


def test_an_unregistered_model_still_has_its_history(memory: Platform) -> None:
    run(memory)
    memory.registrar().unregister("m")
    memory.send_index("m", 11)
    memory.drain()
    audit = audited(memory)
    assert failed(audit) == {}
    assert "unregistered" in passed_over(audit)["bound"]


def test_replacements_and_rows_left_out_pass(memory: Platform) -> None:
    run(memory)
    memory.register("m", replace_model=True, keep=range(12, 60))
    memory.send_index("m", 10, 11, 20)
    memory.drain()
    assert failed(audited(memory)) == {}


def test_a_model_that_is_not_opened_yet_passes(memory: Platform) -> None:
    """Its registration ended before it could say from which offsets on requests are its own."""

    def die(step: str) -> None:
        if step == Step.REGISTER_OPEN:
            raise InterruptedError

    memory.send("m", "row-1", request_id="early")
    memory.drain()
    with pytest.raises(InterruptedError):
        memory.register("m", at_step=die)
    assert memory.load().opening is None
    audit = audited(memory)
    assert failed(audit) == {}
    assert "not every commit is published" in passed_over(audit)["state: head"]
    memory.pair[0].recover()
    memory.drain()
    memory.send("m", "row-3")
    memory.drain()
    assert memory.load().opening is not None
    assert failed(audited(memory)) == {}


def test_a_damaged_ledger_is_a_finding(memory: Platform) -> None:
    run(memory)
    state = memory.load()
    memory.raw().hset(state.keys.ledger, "row-2", "one")
    with pytest.raises(CorruptState, match="model m's ledger: b'one' is not a whole number"):
        dict(ledger_of(memory.store, state))
    assert failed(audited(memory)) == {
        "state: deletions": "model m's ledger: b'one' is not a whole number; run `lethe check`"
    }
