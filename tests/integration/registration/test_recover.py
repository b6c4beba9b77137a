"""``lethe recover``: after the log lost commits, models go on from what the store holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from lethe.consumers.commits.frame import OpenPart
from lethe.consumers.commits.journal import LogGap
from lethe.consumers.commits.recovery.counted import LogTip, OpenRecord, log_tip
from lethe.consumers.commits.recovery.fold import Fold
from lethe.consumers.contract import topics
from lethe.consumers.log.base import Message, Partition
from lethe.consumers.registration.log_loss import Recovery
from lethe.engine.errors import CorruptState, InvalidData, UnknownModel
from lethe.engine.store.layout.keys import commit_partition
from lethe.engine.store.layout.state import Head
from tests.support.commit_records import record_of
from tests.support.invariants import check_model, live_rows
from tests.support.memory_log import MemoryLog
from tests.support.platform import Platform
from tests.support.stores import backup, restore

pytestmark = pytest.mark.redis

INDEX = commit_partition("m")


@pytest.fixture
def platform(memory: Platform) -> Platform:
    """A model with two deletions, all published, and no worker."""
    memory.register()
    for row in (1, 2):
        memory.send_index("m", row)
        memory.drain()
    stop(memory)
    return memory


def stop(platform: Platform) -> None:
    """End the platform's workers; the next drain makes others."""
    for worker in platform.pair:
        worker.close()
    platform._pair = None


def log_of(platform: Platform) -> MemoryLog:
    assert isinstance(platform.log, MemoryLog)
    return platform.log


def lose(platform: Platform, records: int, topic: str = "", index: int = INDEX) -> None:
    """Take the newest records from a partition, by default of commits."""
    partition = platform.reader.partitions(topic or topics.COMMITS)[index]
    log_of(platform).truncate(partition, platform.reader.bounds(partition).end - records)


def recovery(platform: Platform) -> Recovery:
    return Recovery(platform.store, platform.producer, platform.reader, platform.seals)


def recover(platform: Platform, model_id: str = "m") -> list[str]:
    """Recover a model; return those that got a checkpoint."""
    found = recovery(platform)
    return [one.commit.model_id for one in found.run(found.plan(model_id))]


def check_goes_on(platform: Platform, rows: set[int]) -> None:
    """Delete one more row, and check the model, of which these rows are deleted by then."""
    before = platform.load()
    platform.send_index("m", max(rows))
    platform.drain()
    after = platform.load()
    assert after.version == before.version + 1
    check_model(platform)
    assert {f"row-{row}" for row in rows}.isdisjoint(live_rows(platform))


def shorter(platform: Platform) -> None:
    lose(platform, 1)


def regrown(platform: Platform) -> None:
    lose(platform, 2)
    for _ in range(4):
        message = Message(topics.COMMITS, b"m", b"a stranger's", partition=INDEX)
        platform.producer.publish([message])


def made_again(platform: Platform) -> None:
    log_of(platform).delete_topic(topics.COMMITS)
    platform.log.ensure_topics(topics.specs(platform.partitions))


@pytest.mark.parametrize("harm", [shorter, regrown, made_again])
def test_a_model_goes_on_from_the_store(
    platform: Platform, harm: Callable[[Platform], None]
) -> None:
    harm(platform)
    platform.drain()
    assert "lethe recover" in platform.pair[0]._halts._reasons["m"]
    stop(platform)
    before = platform.load()
    assert recover(platform) == ["m"]
    after = platform.load()
    assert after.head.commit == before.head.commit + 1
    assert replace(after, head=before.head).digest == before.digest
    assert after.arrays_id == before.arrays_id  # nothing is made anew
    check_goes_on(platform, {1, 2, 3})


def test_others_of_the_partition_are_recovered_with_it(platform: Platform) -> None:
    other = next(name for name in map(str, range(999)) if commit_partition(name) == INDEX)
    platform.register(other)
    platform.drain()
    stop(platform)
    lose(platform, 1)  # the opening of the other one
    assert recover(platform) == [other]
    # The cursors are right again, and the one that lost nothing goes on.
    check_goes_on(platform, {1, 2, 3})
    platform.send_index(other, 5)
    platform.drain()
    check_model(platform, other)


def test_an_older_backup_follows_the_log_over_the_checkpoint(platform: Platform) -> None:
    older = backup(platform)
    platform.send_index("m", 3)
    platform.drain()
    stop(platform)
    lose(platform, 1)
    recover(platform)
    restore(platform, older)
    platform.drain()
    # The checkpoint tells of a deletion whose commit is gone; V and Q wait to be made anew.
    state = platform.load()
    assert (state.version, state.awaiting_rebuild) == (3, True)
    assert "row-3" not in live_rows(platform)
    check_goes_on(platform, {1, 2, 3, 4})


def test_a_recovery_that_was_cut_short_is_made_again(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(platform, 1)
    found = recovery(platform)
    plan = found.plan("m")

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(platform.store, "apply", dies)
        with pytest.raises(KeyboardInterrupt):
            found.run(plan)
    before = platform.load()
    assert recover(platform) == ["m"]
    assert platform.load().head.commit == before.head.commit + 2
    check_goes_on(platform, {1, 2, 3})


def test_a_healthy_model_is_left_alone(platform: Platform) -> None:
    with pytest.raises(InvalidData, match="nothing to recover"):
        recover(platform)
    with pytest.raises(UnknownModel, match="'nobody'"):
        recover(platform, "nobody")


def gap_behind(platform: Platform) -> None:
    """Put the store one commit back, and make the log's next one unreadable: LOG_GAP."""
    older = backup(platform)
    for row in (3, 4):
        platform.send_index("m", row)
        platform.drain()
    stop(platform)
    [held] = [p for p in log_of(platform).partitions(topics.COMMITS) if p.identity.index == INDEX]
    held.records[-2] = replace(held.records[-2], value=b"damaged")
    restore(platform, older)


def test_a_store_that_knows_less_than_what_was_published_is_refused(platform: Platform) -> None:
    gap_behind(platform)
    before = platform.load().head
    with pytest.raises(CorruptState, match="version 4 was published, and the store does not know"):
        recover(platform)
    lose_published(platform, topics.VERSIONS)
    with pytest.raises(CorruptState, match="request 'request-3' was answered"):
        recover(platform)
    assert platform.load().head == before


def lose_published(platform: Platform, topic: str) -> None:
    """Lose what two commits have published."""
    partition: Partition = platform.reader.partition_for(topic, b"m")
    lose(platform, 2, topic, partition.index)


def test_a_halted_model_goes_on_where_nobody_knows_more(platform: Platform) -> None:
    gap_behind(platform)
    lose_published(platform, topics.VERSIONS)
    lose_published(platform, topics.RECEIPTS)
    assert recover(platform) == ["m"]
    # The two requests lie in the log, are read again, and decided: together, by now.
    platform.drain()
    assert platform.load().version == 3
    check_goes_on(platform, {1, 2, 3, 4, 5})


# -- where a log ends -----------------------------------------------------------------------------


def record(number: int, prev: str, digest: str, *, skips: bool = False) -> OpenRecord:
    opened = OpenPart("m", number, prev, number, "key", skips=skips)
    return OpenRecord(10 + number, digest, opened)


CHAIN = [record(0, "", "a"), record(1, "a", "b"), record(2, "b", "c")]


@pytest.mark.parametrize(
    ("records", "stored", "tip"),
    [
        ([], Head(4, "x"), LogTip()),
        (CHAIN, Head(2, "c"), LogTip(Head(2, "c"), 12, 2, 2)),
        (CHAIN, Head(1, "b"), LogTip(Head(2, "c"), 12, 2, 2, next=12)),
        (CHAIN, Head(4, "x"), LogTip(Head(2, "c"), 12, 2, 2)),
        # A late append that continues what was lost counts for nobody; its number is taken.
        ([*CHAIN, record(5, "x", "y")], Head(4, "x"), LogTip(Head(2, "c"), 12, 2, 5)),
        ([*CHAIN, record(5, "c", "y", skips=True)], Head(4, "x"), LogTip(Head(5, "y"), 15, 5, 5)),
        # Old commits have expired: the first that another one continues is the beginning.
        (CHAIN[1:], Head(4, "x"), LogTip(Head(2, "c"), 12, 2, 2)),
        (CHAIN[2:], Head(4, "x"), LogTip(highest=2)),
    ],
)
def test_where_a_log_ends(records: list[OpenRecord], stored: Head, tip: LogTip) -> None:
    assert log_tip(records, stored, INDEX) == tip
    assert tip.lost(stored) is (stored not in (Head(2, "c"), Head(1, "b")))


def test_what_is_appended_behind_a_gap_does_not_count(platform: Platform) -> None:
    """A stranger's record comes while a worker appends, which has not read it yet."""
    worker = platform.deletion_worker()
    platform.turn(worker)
    head = platform.load().head
    fields = {"model_id": "m", "commit": head.commit + 3, "prev": head.digest}
    platform.producer.publish([Message(topics.COMMITS, b"m", record_of(**fields), partition=INDEX)])
    request = platform.send_index("m", 3)
    for _ in range(5):
        platform.turn(worker)
    assert "m" in worker._halts
    worker.close()

    assert recover(platform) == ["m"]
    platform.drain()
    assert platform.final(request).status == "APPLIED"
    check_goes_on(platform, {1, 2, 3, 4})


def test_a_store_that_went_back_is_brought_up_to_a_gap(platform: Platform) -> None:
    """So that `lethe recover` can go on from there: all that was published is in the log."""
    platform.register("other")
    older = backup(platform)
    for row in (3, 4):
        platform.send_index("m", row)
        platform.drain()
    head = platform.load().head
    fields = {"model_id": "m", "commit": head.commit + 3, "prev": head.digest}
    platform.producer.publish([Message(topics.COMMITS, b"m", record_of(**fields), partition=INDEX)])
    platform.drain()
    stop(platform)
    restore(platform, older)
    fold = Fold(platform.store, platform.reader, platform.producer, platform.seals)

    folded = fold.run(INDEX)

    assert isinstance(folded.halted["m"], LogGap)
    assert platform.load().head == head
    again = fold.run(INDEX)
    assert again.halted.keys() == {"m"}
    assert (again.applied, again.published) == (0, 0), "it is done once"
    assert recover(platform) == ["m"]
    platform.drain()
    check_goes_on(platform, {1, 2, 3, 4, 5})
