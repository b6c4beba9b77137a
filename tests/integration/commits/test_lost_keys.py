"""A key that the store has lost is not taken for an empty one: the head counts its entries."""

from __future__ import annotations

from contextlib import closing

import pytest

from lethe.consumers.audit.health.models import check_model
from lethe.consumers.commits.journal import commit_partitions
from lethe.consumers.erasures.models import read_models
from lethe.consumers.workers.deletion_worker import DeletionWorker
from lethe.engine.store.counts import KeysLost, lost_keys
from lethe.engine.store.layout.config import LimitsRecord
from lethe.engine.store.layout.keys import ModelKeys, shard_of
from lethe.engine.store.membership import every_model
from lethe.engine.store.server.connection import text
from tests.support import erasures
from tests.support.invariants import ledger_of
from tests.support.memory_log import MemoryLog
from tests.support.platform import Platform, config_of, training_data
from tests.support.stores import neighbour_of
from tests.support.tables import registered_table

KEYS = ModelKeys("m")


def used(platform: Platform) -> None:
    """Register a model and delete rows of it."""
    platform.register("m", budget=10.0)
    for rows in ((0, 1), (2,), (3, 4, 5)):
        platform.delete("m", *rows)


def expire_commits(platform: Platform) -> None:
    """Let the log forget all commits but the newest of the model's partition."""
    partition = commit_partitions(platform.reader)[KEYS.partition.index]
    assert isinstance(platform.log, MemoryLog)
    platform.log.trim(partition, platform.reader.bounds(partition).end - 1)


def fresh(platform: Platform) -> DeletionWorker:
    """Return a worker that has no state in memory, in place of the platform's own."""
    platform.pair[0].close()
    return platform.deletion_worker()


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "fresh"])
def test_a_lost_ledger_comes_back_from_commits_before_anything_is_decided(
    memory: Platform, warm: bool
) -> None:
    used(memory)
    before = ledger_of(memory)
    assert len(before) == 6
    memory.raw().delete(KEYS.ledger)
    worker = memory.pair[0] if warm else fresh(memory)
    again = memory.send_index("m", 0, 6)
    twice = memory.send_index("m", 1)
    memory.drain(worker)
    assert memory.final(again).rows_deleted == 1, "row 0 was deleted before"
    assert memory.final(twice).status == "ALREADY_APPLIED"
    assert ledger_of(memory).keys() == {*before, "row-6"}
    assert {row: version for row, version in ledger_of(memory).items() if row in before} == before
    done = memory.register("m", replace_model=True)
    assert done.in_ledger == 7


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "fresh"])
def test_a_lost_index_comes_back_and_no_id_is_applied_twice(memory: Platform, warm: bool) -> None:
    used(memory)
    first = memory.send_index("m", 10, request_id="once")
    memory.drain()
    kept = memory.final(first)
    index = memory.raw().hgetall(KEYS.requests)
    memory.raw().delete(KEYS.requests)
    worker = memory.pair[0] if warm else fresh(memory)
    memory.send_index("m", 10, request_id="once")
    other = memory.send_index("m", 11, request_id="once")
    memory.drain(worker)
    receipts = [receipt for receipt in memory.receipts() if receipt.request_id == other]
    assert receipts[:2] == [kept, kept]
    assert receipts[2].code == "REQUEST_ID_CONFLICT"
    assert memory.raw().hgetall(KEYS.requests) == index


@pytest.mark.parametrize("key", ["ledger", "requests"])
def test_what_the_log_no_longer_has_halts_the_model_until_a_person_accepts_it(
    memory: Platform, key: str
) -> None:
    used(memory)
    expire_commits(memory)
    memory.raw().delete(getattr(KEYS, key))
    worker = memory.pair[0]
    waiting = memory.send_index("m", 7)
    memory.turn(worker)
    memory.turn(worker)
    assert memory.statuses(waiting) == []
    with pytest.raises(KeysLost, match=f"lost entries of {key}"):
        memory.load()
    with pytest.raises(KeysLost, match="--accept-forgotten"):
        memory.register("m", replace_model=True)
    config = config_of(memory.data["m"], "m", "pru", 10.0, LimitsRecord())
    data = training_data(memory.data["m"], range(6, 60))
    done = memory.registrar().register(config, data, replace_model=True, accept_forgotten=True)
    assert done.state.meta.rows_live == 54
    memory.drain(fresh(memory))
    assert memory.statuses(waiting) == ["APPLIED"]


@pytest.mark.parametrize("key", ["ids", "subjects"])
def test_lost_subjects_or_ids_are_not_a_model_without_any(memory: Platform, key: str) -> None:
    used(memory)
    dataset = KEYS.dataset(memory.load().meta.dataset_key)
    memory.raw().delete(getattr(dataset, key))
    worker = memory.pair[0]
    body = b'{"request_id": "all", "model_id": "m", "subject_id": "subject-5"}'
    memory.send_raw(body)
    for _ in range(3):
        memory.turn(worker)
    assert memory.statuses("all") == [], "it waits, and is not told that there is no such row"
    with pytest.raises(KeysLost, match=f"lost entries of {key}"):
        memory.load()


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "fresh"])
def test_a_lost_head_halts_the_model_and_says_what_ends_it(memory: Platform, warm: bool) -> None:
    """A fold cannot make it again, as it needs the rows that were erased."""
    memory.register("m", budget=10.0)
    for row in (0, 1):
        memory.delete("m", row)
    memory.raw().delete(KEYS.head)
    waits = memory.send_index("m", 2)
    worker = memory.pair[0] if warm else fresh(memory)
    memory.drain(worker)
    assert waits not in memory.finals("m")
    reason = worker._halts._reasons["m"]
    assert "has no head of it" in reason
    assert "Restore a backup" in reason


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "fresh"])
def test_a_row_whose_record_was_lost_is_not_called_unknown(memory: Platform, warm: bool) -> None:
    """Nor is a subject's deletion applied to those of its rows that are left."""
    used(memory)
    memory.raw().delete(memory.load().generation_keys.rows(shard_of("row-20")))
    worker = memory.pair[0] if warm else fresh(memory)
    waiting = memory.send_index("m", 20)
    memory.send_raw(b'{"request_id": "all", "model_id": "m", "subject_id": "subject-6"}')
    for _ in range(3):
        memory.turn(worker)
    for request in (waiting, "all"):
        codes = [(r.status, r.code) for r in memory.receipts() if r.request_id == request]
        assert codes == [("DEFERRED", "DATA_LOST")]


def test_check_names_what_was_lost(memory: Platform) -> None:
    used(memory)
    memory.raw().delete(KEYS.ledger)
    [found] = check_model(memory.store, memory.log, "m")
    assert not found.ok
    assert "lost entries of ledger" in found.detail


def test_requests_that_wait_and_rows_that_were_left_out_come_back_with_the_log(
    memory: Platform,
) -> None:
    used(memory)
    memory.register("m", replace_model=True, keep=range(50))
    waiting = memory.raw().hgetall(KEYS.deferred)
    retired = memory.raw().smembers(KEYS.retired)
    assert retired
    memory.raw().delete(KEYS.deferred, KEYS.retired)
    memory.delete("m", 20)
    assert memory.raw().smembers(KEYS.retired) == retired
    assert memory.raw().hgetall(KEYS.deferred) == waiting


def test_counts_follow_every_kind_of_commit(memory: Platform) -> None:
    table = registered_table(memory, "benign", "linear", budget=10.0)
    table.change("insert", {**table.row("new"), "subject": "s"})
    table.change("correct", table.row("row-3"))
    table.delete("row-4")
    memory.send("m", "nothing")
    memory.drain()
    client = memory.raw()
    assert lost_keys(client, ["m"]) == {}
    counts = text(client.hget(KEYS.head, "counts")).split()
    assert counts == [str(client.hlen(KEYS.ledger)), str(client.hlen(KEYS.requests)), "0", "0"]
    memory.register("m", replace_model=True)
    assert lost_keys(client, ["m"]) == {}
    memory.registrar().unregister("m")
    assert lost_keys(client, ["m"]) == {}
    memory.register("m")
    assert lost_keys(client, ["m"]) == {}


@pytest.mark.parametrize("whole", [True, False], ids=["the list", "one model"])
def test_a_model_that_is_off_the_list_is_put_back_before_anything_is_decided(
    memory: Platform, whole: bool
) -> None:
    used(memory)
    memory.register(neighbour_of("m"))
    _take_off_the_list(memory, whole=whole)
    worker = fresh(memory)
    request = memory.send_index("m", 10)
    memory.drain(worker)
    assert memory.final(request).status == "APPLIED"
    assert set(every_model(memory.raw())) == {"m", neighbour_of("m")}


def test_an_erasure_does_not_pass_over_a_model_that_is_off_the_list(memory: Platform) -> None:
    """No deletion worker starts meanwhile: the erasure worker makes the list again."""
    used(memory)
    memory.register(neighbour_of("m"))
    _take_off_the_list(memory, whole=True)
    erasures.erase(memory, "subject-7", "e-1")
    with closing(erasures.erasure_worker(memory)) as worker:
        erasures.drain(memory, worker)
    [receipt] = erasures.finals(memory).values()
    assert erasures.outcomes(receipt) == {
        "m": ("APPLIED", 3),
        neighbour_of("m"): ("APPLIED", 3),
    }


def test_a_list_that_lacks_a_model_is_not_taken_for_all_of_them(
    memory: Platform,
) -> None:
    used(memory)
    _take_off_the_list(memory, whole=True)
    with pytest.raises(KeysLost, match="erasures would pass over those models"):
        read_models(memory.store)


def _take_off_the_list(platform: Platform, *, whole: bool) -> None:
    key = KEYS.partition.models
    removed = platform.raw().delete(key) if whole else platform.raw().srem(key, "m")
    assert removed == 1
