"""Rows that were in the store alone: DATA_LOST, until the model is registered again with --replace.

Requests wait meanwhile, and get their final receipts; no row whose deletion was decided comes back.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from lethe.consumers.commits.recovery.replay import StoreTooOld
from lethe.consumers.contract import topics
from lethe.consumers.contract.sealing import KeyUnknown, SealKeys
from lethe.engine.errors import CorruptState, ModelExists
from lethe.engine.store.layout.config import LimitsRecord
from lethe.engine.store.layout.keys import commit_partition, shard_of
from tests.support.events import settle
from tests.support.invariants import check_theta, ledger_of
from tests.support.memory_log import MemoryLog
from tests.support.platform import Platform, config_of, row_ids, training_data
from tests.support.stores import backup, neighbour_of, restore, wipe
from tests.support.tables import registered_table


def lose_rows(platform: Platform, *rows: str) -> None:
    """Remove row records, and nothing else."""
    live = platform.load().generation_keys
    for row in rows:
        assert platform.raw().hdel(live.rows(shard_of(row)), row) == 1


def check_numbers(platform: Platform) -> None:
    """Check that the published versions are one dense, linked chain that ends in the store's."""
    versions = platform.versions()
    assert [version.version for version in versions] == list(range(len(versions)))
    links = [version.prev_digest for version in versions]
    assert links == ["", *(version.digest for version in versions[:-1])]
    state = platform.load()
    assert (state.version, state.digest) == (versions[-1].version, versions[-1].digest)


@pytest.mark.parametrize("lost", ["some rows", "a shard", "everything"])
def test_requests_wait_until_the_model_is_registered_again(memory: Platform, lost: str) -> None:
    memory.register("m", budget=10.0)
    other = neighbour_of("m")
    memory.register(other, budget=10.0)
    first = memory.delete("m", 0)
    before = memory.versions()
    if lost == "everything":
        wipe(memory, "m")
    elif lost == "a shard":
        memory.raw().delete(memory.load().generation_keys.rows(3))
    else:
        lose_rows(memory, "row-5", "row-6")
    settle(memory)
    there = memory.send_index("m", 7)
    gone = memory.send_index("m", 5)
    again = memory.send_index("m", 0, request_id=first)
    beside = memory.send_index(other, 1)
    memory.drain()
    for request in (there, gone):
        assert memory.statuses(request) == ["DEFERRED"]
        [receipt] = [r for r in memory.receipts() if r.request_id == request]
        assert receipt.code == "DATA_LOST"
        assert "--replace" in (receipt.detail or "")
    assert set(memory.statuses(again)) == {"APPLIED"}
    if lost == "everything":  # of the partition's models
        assert memory.statuses(beside, other) == ["DEFERRED"]
    else:
        assert memory.final(beside, other).status == "APPLIED"
    assert memory.versions() == before
    with pytest.raises(ModelExists, match="--replace"):
        memory.register("m", budget=10.0)
    done = memory.register("m", budget=10.0, replace_model=True)
    assert done.in_ledger == 1
    settle(memory)
    assert {memory.final(one).status for one in (there, gone)} == {"APPLIED"}
    assert ledger_of(memory).keys() == {"row-0", "row-5", "row-7"}
    assert memory.load().meta.rows_live == 117
    check_theta(memory, "m", 1e-8)
    check_numbers(memory)
    late = memory.delete("m", 9)
    assert memory.final(late).status == "APPLIED"


def test_no_insert_brings_a_row_whose_deletion_waited_and_found_none(memory: Platform) -> None:
    """The insert may lie in the log before the deletion, and be decided after it."""
    table = registered_table(memory, "benign", "linear", budget=10.0)
    whole = backup(memory)
    lose_rows(memory, "row-5")
    settle(memory)
    waits = memory.send("m", "new-1")
    memory.drain()
    assert memory.statuses(waits) == ["DEFERRED"]
    restore(memory, whole)
    settle(memory)
    assert memory.final(waits).rows_unknown == 1
    late = memory.send_change("m", "insert", table.row("new-1"))
    assert memory.answer(late).code == "ROW_DELETED"


def test_a_model_of_which_only_deleted_rows_are_missing_has_lost_nothing(memory: Platform) -> None:
    memory.register("m", budget=10.0)
    early = backup(memory, "m")
    memory.delete("m", 5, 6)
    restore(memory, early, "m")
    lose_rows(memory, "row-5", "row-6")
    settle(memory)
    request = memory.delete("m", 7)
    assert memory.statuses(request) == ["DEFERRED", "APPLIED"]
    assert ledger_of(memory).keys() == {"row-5", "row-6", "row-7"}


def test_rows_that_come_back_end_the_loss(memory: Platform) -> None:
    """A part of the store was restored by hand: DATA_LOST is worked out, never stored."""
    memory.register("m", budget=10.0)
    live = memory.load().generation_keys
    record = memory.raw().hget(live.rows(shard_of("row-5")), "row-5")
    lose_rows(memory, "row-5")
    settle(memory)
    request = memory.send_index("m", 7)
    memory.turn_until_decided(1)
    assert memory.statuses(request) == ["DEFERRED"]
    assert isinstance(record, bytes)
    memory.raw().hset(live.rows(shard_of("row-5")), "row-5", record)
    settle(memory)
    later = memory.delete("m", 8)
    assert memory.final(later).status == "APPLIED"


def test_a_wiped_store_and_a_file_of_rows_never_bring_a_deleted_row_back(
    memory: Platform,
) -> None:
    """The ledger comes from the commits that are retained; a file holds the key that seals them."""
    memory.register("m", budget=10.0)
    for i in range(4):
        memory.delete("m", i)
    wipe(memory)
    done = memory.register("m", budget=10.0, replace_model=True)
    assert done.in_ledger == 4
    settle(memory)
    assert ledger_of(memory).keys() == {f"row-{i}" for i in range(4)}
    assert memory.load().meta.rows_live == 116
    check_theta(memory, "m", 1e-8)
    check_numbers(memory)


def test_with_another_key_a_wiped_store_is_not_replaced(memory: Platform) -> None:
    """Its deletions would be forgotten: they are sealed in the log, and cannot be read."""
    memory.register("m", budget=10.0)
    memory.delete("m", 1)
    wipe(memory)
    right, memory.seals = memory.seals, SealKeys([bytes(32)])
    with pytest.raises(KeyUnknown, match="LETHE_SEAL_KEY_FILE"):
        memory.register("m", budget=10.0, replace_model=True)
    memory.seals = right
    assert memory.register("m", budget=10.0, replace_model=True).in_ledger == 1


def test_a_lost_key_is_accepted_aloud(memory: Platform) -> None:
    """Who has lost the key for good goes on without what is sealed with it, also a fresh fold."""
    memory.register("m", budget=10.0)
    memory.delete("m", 1)
    wipe(memory)
    memory.pair[0].close()
    memory.seals = SealKeys([bytes(32)])
    memory._pair = memory.deletion_worker(), memory.pair[1]
    waiting = memory.send_index("m", 7)
    settle_some(memory)
    assert "LETHE_SEAL_KEY_FILE" in memory.pair[0]._halts._reasons["m"]
    accept(memory)
    settle(memory)
    assert memory.statuses(waiting) == ["REJECTED"]  # it came before the new opening
    check_numbers(memory)
    early = backup(memory, "m")
    late = memory.delete("m", 3)
    restore(memory, early, "m")
    settle(memory)
    assert memory.final(late).status == "APPLIED"
    assert ledger_of(memory).keys() == {"row-3"}
    check_numbers(memory)
    wipe(memory)
    settle(memory)
    memory.register("m", budget=10.0, replace_model=True)
    assert ledger_of(memory).keys() == {"row-3"}
    check_numbers(memory)


def expire(platform: Platform, model_id: str, keep: int) -> None:
    """Let all but the last commits of a model's partition expire."""
    assert isinstance(platform.log, MemoryLog)
    partition = platform.reader.partitions(topics.COMMITS)[commit_partition(model_id)]
    platform.log.trim(partition, platform.reader.bounds(partition).end - keep)


def test_where_the_commits_have_expired_the_loss_is_accepted_aloud(memory: Platform) -> None:
    memory.register("m", budget=10.0)
    memory.delete("m", 1, 2)
    wipe(memory)
    expire(memory, "m", 0)
    late = memory.send_index("m", 7)
    stranger = memory.send("stranger", "row-1")
    settle_some(memory)
    # Its versions say that there was such a model: nobody is told that there is none.
    assert memory.statuses(late) == []
    assert re.search("--accept-forgotten", memory.pair[0]._halts._reasons["m"])
    assert memory.final(stranger, "stranger").code == "UNKNOWN_MODEL"
    memory.pair[0].recover()  # by now the store has cursors
    settle_some(memory)
    assert memory.statuses(late) == []
    with pytest.raises(CorruptState, match="--accept-forgotten"):
        memory.register("m", budget=10.0)
    with pytest.raises(CorruptState, match="--accept-forgotten"):
        memory.register("m", budget=10.0, replace_model=True)
    accept(memory)
    settle(memory)
    assert ledger_of(memory) == {}
    check_numbers(memory)
    # It came before the model was opened again, and nobody knows of what came before.
    assert memory.statuses(late) == ["REJECTED"]
    request = memory.delete("m", 3)
    assert memory.final(request).status == "APPLIED"
    check_numbers(memory)


def accept(platform: Platform) -> None:
    """Register model m again, and accept that deletions are forgotten."""
    data = platform.data["m"]
    config = config_of(data, "m", "pru", 10.0, LimitsRecord())
    platform.registrar().register(
        config, training_data(data), replace_model=True, accept_forgotten=True
    )


@pytest.mark.parametrize("keep", [0, 2])
def test_a_store_older_than_the_retained_commits_says_so(memory: Platform, keep: int) -> None:
    memory.register("m", budget=10.0)
    early = backup(memory, "m")
    for i in range(5):
        memory.delete("m", i)
    before = memory.versions()
    expire(memory, "m", keep)
    restore(memory, early, "m")
    memory.send_index("m", 50)
    settle_some(memory)
    assert memory.versions() == before
    assert memory.load().version == 0
    with pytest.raises(StoreTooOld, match="commits in between have expired"):
        memory.register("m", budget=10.0)
    # What is retained of the ledger counts; what is not, a person has to answer for.
    with pytest.raises(CorruptState, match="--accept-forgotten"):
        memory.register("m", budget=10.0, replace_model=True)
    accept(memory)
    assert ledger_of(memory).keys() == {f"row-{i}" for i in range(5 - keep, 5)}
    settle(memory)
    check_numbers(memory)
    late = memory.delete("m", 60)
    assert memory.final(late).status == "APPLIED"
    check_numbers(memory)


def test_a_wiped_store_and_a_log_that_has_only_the_newest_commits_are_accepted_aloud(
    memory: Platform,
) -> None:
    memory.register("m", budget=10.0)
    for i in range(5):
        memory.delete("m", i)
    expire(memory, "m", 2)
    wipe(memory)
    settle_some(memory)
    # Two deletions are retained; of the three before them nobody knows.
    with pytest.raises(CorruptState, match="--accept-forgotten"):
        memory.register("m", budget=10.0, replace_model=True)
    accept(memory)
    assert ledger_of(memory).keys() == {"row-3", "row-4"}
    settle(memory)
    check_numbers(memory)
    late = memory.delete("m", 60)
    assert memory.final(late).status == "APPLIED"
    check_numbers(memory)


def settle_some(platform: Platform) -> None:
    """Fold and take some turns: a halted model never drains."""
    platform.pair[0].recover()
    for _ in range(5):
        platform.turn(platform.pair[0])


def test_a_refused_replacement_leaves_no_row_in_the_store(memory: Platform) -> None:
    memory.register("m", budget=10.0)
    memory.send("m", *row_ids(memory.data["m"])[:5])
    memory.drain()
    keys = set(memory.raw().keys("lethe:{*}:m:*"))
    with pytest.raises(ModelExists):
        memory.register("m", budget=10.0)
    assert set(memory.raw().keys("lethe:{*}:m:*")) == keys
    assert not np.isnan(memory.load().stream.published).any()
