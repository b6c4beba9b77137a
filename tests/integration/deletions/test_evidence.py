"""The evidence that workers leave: a receipt log in every version, commitments to rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from lethe.consumers.commits.receipt_index import leaves_of
from lethe.consumers.contract import topics
from lethe.consumers.contract.commitment import commitment_of, salt_of
from lethe.consumers.service.telemetry.logs import configure_logging
from lethe.engine.errors import CorruptState
from lethe.engine.merkle import (
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    verify_consistency,
    verify_inclusion,
)
from lethe.engine.store.layout.config import LimitsRecord
from lethe.engine.store.layout.keys import commit_partition
from tests.integration.deletions.test_requests import append_to
from tests.support.events import settle
from tests.support.evidence import check_receipt_log, published_entries, stored_leaves
from tests.support.invariants import check_model, check_versions
from tests.support.memory_log import MemoryLog
from tests.support.platform import Platform
from tests.support.stores import backup, restore

pytestmark = pytest.mark.redis

SOON_FULL = LimitsRecord(floor_rows=1, fraction_of_d=1e-9)


def secret_of(platform: Platform, model_id: str = "m") -> bytes:
    secret = platform.load(model_id).secret
    assert secret is not None
    return secret


def test_every_receipt_is_proved_to_be_in_the_log_of_its_own_version(memory: Platform) -> None:
    memory.register("m")
    for i in range(7):
        memory.send_index("m", 2 * i, 2 * i + 1)
        memory.send("m", "stranger")
        memory.drain()
    check_model(memory)
    leaves = stored_leaves(memory)
    versions = memory.versions()
    assert versions[-1].receipt_log is not None
    assert len(leaves) == 14
    for receipt, value in memory.published_receipts():
        if receipt.status != "APPLIED":
            continue
        head = versions[receipt.version or 0].receipt_log
        assert head is not None
        index = leaves.index(leaf_hash(value))
        proof = inclusion_proof(leaves[: head.size], index)
        root = bytes.fromhex(head.root)
        assert verify_inclusion(leaf_hash(value), index, head.size, proof, root)
        forged = value.replace(b"APPLIED", b"REFUSED")
        assert not verify_inclusion(leaf_hash(forged), index, head.size, proof, root)


def test_the_log_of_each_version_begins_with_that_of_every_earlier_one(memory: Platform) -> None:
    memory.register("m")
    for i in range(9):
        memory.delete("m", i)
    leaves = stored_leaves(memory)
    heads = [version.receipt_log for version in memory.versions()]
    for second in heads:
        for first in heads:
            assert first is not None
            assert second is not None
            if 0 < first.size < second.size:
                proof = consistency_proof(leaves[: second.size], first.size)
                roots = bytes.fromhex(first.root), bytes.fromhex(second.root)
                assert verify_consistency(first.size, second.size, *roots, proof)


def test_repeats_conflicts_and_deferrals_are_no_entries(memory: Platform) -> None:
    memory.register("m", limits=SOON_FULL)
    first = memory.delete("m", 1)
    memory.send_index("m", 1, request_id=first)
    memory.send_index("m", 2, request_id=first)
    deferred = memory.send_index("m", *range(3, 13))
    memory.turn_until_decided(3)
    assert memory.statuses(deferred) == ["DEFERRED"]
    assert list(published_entries(memory, "m")) == [first]
    memory.drain()
    assert memory.statuses(deferred) == ["DEFERRED", "APPLIED"]
    assert list(published_entries(memory, "m")) == [first, deferred]
    check_model(memory)


def test_receipts_of_before_the_registration_are_no_entries(memory: Platform) -> None:
    early = memory.send("m", "row-1")
    assert memory.answer(early).code == "UNKNOWN_MODEL"
    memory.register("m")
    later = memory.delete("m", 2)
    assert list(published_entries(memory, "m")) == [later]
    head = memory.versions()[-1].receipt_log
    assert head is not None
    assert head.size == 1


def test_a_replacement_goes_on_with_the_log_and_the_secret(memory: Platform) -> None:
    memory.register("m")
    memory.delete("m", 1)
    secret = secret_of(memory)
    memory.register("m", replace_model=True)
    memory.delete("m", 2)
    assert secret_of(memory) == secret
    assert memory.load().meta.receipt_log is not None
    check_model(memory)


@pytest.mark.parametrize("expired", [False, True])
def test_a_replacement_of_a_damaged_head_goes_on_with_the_log(
    memory: Platform, *, expired: bool
) -> None:
    """Its newest commit says where it stands; where that has expired, the index does."""
    memory.register("m")
    memory.send_index("m", 1)
    memory.send("m", "stranger")
    memory.drain()
    generation = memory.load().meta.generation
    memory.raw().hset(memory.load().keys.head, "meta", "damaged")
    if expired:
        assert isinstance(memory.log, MemoryLog)
        index = commit_partition("m")
        [home] = [p for p in memory.reader.partitions(topics.COMMITS) if p.index == index]
        memory.log.trim(home, memory.reader.bounds(home).end)
    memory.register("m", replace_model=True)
    memory.delete("m", 2)
    sizes = [v.receipt_log.size for v in memory.versions() if v.receipt_log is not None]
    assert sizes == [0, 2, 2, 3]
    assert [v.rows_deleted for v in memory.versions()] == [0, 1, 1, 2]
    assert memory.load().meta.generation == generation + 1
    if expired:  # nobody knows which data set the damaged head had
        check_versions(memory, "m")
        check_receipt_log(memory, "m")
    else:
        check_model(memory)


def test_leaves_are_refused_where_the_index_lacks_or_repeats_a_place(memory: Platform) -> None:
    memory.register("m")
    requests = [memory.send_index("m", i) for i in range(3)]
    memory.drain()
    keys, index = memory.load().keys, memory.raw()
    assert len(leaves_of(memory.store, keys, 3)) == 3
    assert leaves_of(memory.store, keys, 2) == leaves_of(memory.store, keys, 3)[:2]
    kept: Any = index.hget(keys.requests, requests[1])
    index.hset(keys.requests, "copy", kept)
    with pytest.raises(CorruptState, match="taken twice"):
        leaves_of(memory.store, keys, 3)
    index.hdel(keys.requests, "copy", requests[1])
    with pytest.raises(CorruptState, match="1 of the 3 receipts"):
        leaves_of(memory.store, keys, 3)


def test_a_lost_log_over_several_partitions_comes_back_in_the_order_of_its_commits(
    platform_on: Callable[..., Platform],
) -> None:
    """Requests of one model in three partitions: some make versions, some only receipts."""
    memory = platform_on("memory", partitions=3)
    memory.register("m", budget=10.0)
    memory.drain()
    before = backup(memory)
    for number in range(12):
        row = f"row-{number}" if number % 3 else f"stranger-{number}"
        body = {"request_id": f"p{number}", "model_id": "m", "row_ids": [row]}
        memory.asked["m", f"p{number}"] = (row,)
        append_to(memory, (number * 5) % 3, json.dumps(body).encode(), b"m")
        memory.drain()
    published = {topic: values(memory, topic) for topic in (topics.VERSIONS, topics.RECEIPTS)}
    assert memory.load().version == 8
    check_model(memory)

    restore(memory, before)
    settle(memory)

    assert {topic: values(memory, topic) for topic in published} == published
    check_model(memory)


def values(platform: Platform, topic: str) -> list[bytes]:
    """Return the different values of a topic, in the order in which each came first."""
    return list(dict.fromkeys(record.value or b"" for record in platform.records(topic)))


# -- commitments ----------------------------------------------------------------------------------


def test_a_receipt_is_bound_to_its_rows_and_does_not_name_them(platform: Platform) -> None:
    platform.register("m")
    request = platform.send_index("m", 3, 5, 70)
    stranger = platform.send("m", "nobody", "nothing")
    platform.drain()
    salt = salt_of(secret_of(platform), request)
    commitment = platform.final(request).rows_commitment
    assert commitment == commitment_of(salt, ["row-70", "row-5", "row-3"])
    assert commitment != commitment_of(salt, ["row-5", "row-3"])
    other = salt_of(secret_of(platform), stranger)
    assert commitment != commitment_of(other, ["row-3", "row-5", "row-70"])
    assert platform.final(stranger).rows_commitment == commitment_of(other, ["nothing", "nobody"])


def test_a_deferred_request_and_its_final_receipt_have_one_commitment(memory: Platform) -> None:
    memory.register("m", limits=SOON_FULL)
    rows = [f"row-{i}" for i in range(10)]
    request = memory.send("m", *rows)
    memory.drain()
    assert memory.statuses(request) == ["DEFERRED", "APPLIED"]
    expected = commitment_of(salt_of(secret_of(memory), request), rows)
    assert {receipt.rows_commitment for receipt in memory.receipts()} == {expected}


def test_a_subjects_request_is_bound_to_the_subjects_rows(memory: Platform) -> None:
    memory.register("m")
    body = {"request_id": "r", "model_id": "m", "subject_id": "subject-1"}
    memory.send_raw(json.dumps(body).encode())
    unknown = {"request_id": "s", "model_id": "m", "subject_id": "canary-subject"}
    memory.send_raw(json.dumps(unknown).encode())
    memory.drain()
    salt = salt_of(secret_of(memory), "r")
    assert memory.final("r").rows_commitment == commitment_of(salt, ["row-3", "row-4", "row-5"])
    assert memory.final("s").code == "UNKNOWN_ROWS"
    assert memory.final("s").rows_commitment is None


def test_nothing_published_or_logged_names_a_row_a_subject_or_the_secret(
    memory: Platform, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging("DEBUG")
    memory.register("m", limits=SOON_FULL)
    memory.send_index("m", 1)
    memory.send_index("m", 1, 2)
    memory.send_index("m", *range(20, 40))
    memory.send("m", "row-none")
    memory.send("m", *["row-many"] * 3, request_id="x")
    memory.send("m", "row-other", request_id="x")
    for subject in ("subject-7", "subject-unknown"):
        asked = {"request_id": f"by-{len(subject)}", "model_id": "m", "subject_id": subject}
        memory.send_raw(json.dumps(asked).encode())
    refused: list[list[object]] = [["row-bad", 7], ["row-" + "x" * 200], []]
    for rows in refused:
        body = {"request_id": "w", "model_id": "m", "row_ids": rows}
        memory.send_raw(json.dumps(body).encode())
    memory.drain()
    secret = secret_of(memory)
    assert len({receipt.status for receipt in memory.receipts()}) == 4
    written = (topics.MODELS, topics.VERSIONS, topics.RECEIPTS, topics.REFRESH_JOBS)
    for record in (record for topic in written for record in memory.records(topic)):
        value = record.value or b""
        for hidden in (b"row-", b"subject-", secret, secret.hex().encode()):
            assert hidden not in value
            assert all(hidden not in content for _, content in record.headers)
    logged = "".join(capsys.readouterr()).replace(topics.ROW_CHANGES, "")
    assert logged.count("record processed") == 11
    for said in ("row-", "subject-", secret.hex()):
        assert said not in logged


def test_a_secret_of_another_length_is_refused(memory: Platform) -> None:
    memory.register("m")
    state = memory.load()
    assert repr(state.secret) not in repr(state)
    memory.raw().hset(state.keys.head, "secret", b"short")
    with pytest.raises(CorruptState, match="secret"):
        memory.load()
