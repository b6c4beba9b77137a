"""Each guard of the journal alone: what would happen without it (tests/proof/mutants)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import replace

import pytest

from lethe.consumers.commits.frame import OpenPart, decode_frame
from lethe.consumers.commits.journal import Journal, Tail, Verdict, check_tail, judge
from lethe.consumers.commits.newest import LATE_SECONDS
from lethe.consumers.commits.record import open_commit
from lethe.consumers.commits.recovery.fold import Fold
from lethe.consumers.contract import topics
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.deletions.rounds import Loaded, Round
from lethe.consumers.deletions.validate import Refreshed, group_records
from lethe.consumers.log.base import Appended, Flush, Message, Producer, Record
from lethe.consumers.service.telemetry.steps import Step, no_hook
from lethe.consumers.workers.deletion_worker import DeletionWorker
from lethe.engine.errors import LogReset, LogUnavailable, ModelExists
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.apply import Applied, ArraysChange, Place, StoreChange, Swap
from lethe.engine.store.layout.config import LimitsRecord
from lethe.engine.store.layout.keys import (
    COMMIT_PARTITIONS,
    PartitionKeys,
    commit_partition,
    watermark,
)
from lethe.engine.store.layout.state import Head
from lethe.engine.store.server.connection import connect, text
from tests.support.events import another_owner, settle
from tests.support.invariants import check_model, live_rows
from tests.support.memory_log import MemoryConsumer, MemoryLog
from tests.support.platform import SECRET, Platform, config_of, training_data
from tests.support.servers import ValkeyProcess
from tests.support.stores import backup, neighbour_of, restore
from tests.support.tables import Table

INDEX = commit_partition("m")
KEYS = PartitionKeys(INDEX)
OPEN = OpenPart("m", 7, "a" * 64, None, "key")


class Died(BaseException):
    """Ends whoever reaches a step; nothing of the product catches it."""


def once(step: str, act: Callable[[], None]) -> Callable[[str], None]:
    """Return what does something when a step is reached for the first time."""
    done: list[str] = []

    def at_step(reached: str) -> None:
        if reached == step and not done:
            done.append(reached)
            act()

    return at_step


def die() -> None:
    """End here."""
    raise Died


def unreachable(*_: object) -> None:
    """Be a store that cannot be reached."""
    raise ConnectionError


def run_until_it_dies(worker: DeletionWorker) -> None:
    """Turn until a worker dies, and let it be gone."""
    for _ in range(100):
        try:
            worker.run_once(0.0)
        except Died:
            return
    raise AssertionError("it does not reach that step")


def commits(platform: Platform, index: int = INDEX) -> list[Record]:
    """Return the records of a commits partition."""
    return [one for one in platform.records(topics.COMMITS) if one.partition.index == index]


def append(platform: Platform, value: bytes | None, index: int = INDEX) -> None:
    """Append a record to a commits partition, as a stranger may."""
    platform.producer.append([Message(topics.COMMITS, b"m", value, partition=index)])


def leave(platform: Platform, worker: DeletionWorker) -> None:
    """Let a worker be gone, as if its process had ended."""
    platform._workers.remove(worker)
    assert isinstance(platform.log, MemoryLog)
    assert isinstance(worker._consumer, MemoryConsumer)
    platform.log.evict(worker._consumer)


# -- appending -------------------------------------------------------------------------------------


def test_who_comes_second_reads_the_gap(memory: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another owner committed in between, and died before the store knew of it."""
    memory.register("m", budget=10.0)
    other = another_owner(memory, monkeypatch, once(Step.APPLY, die))

    def commit_in_between() -> None:
        run_until_it_dies(other)

    first = memory.deletion_worker(at_step=once(Step.APPEND, commit_in_between))
    memory.send_index("m", 1, 2)
    memory.drain(first)
    assert [decode_frame(one.value) is not None for one in commits(memory)].count(True) == 4
    leave(memory, other)
    check_model(memory)


def test_a_commit_of_another_predecessor_does_not_count() -> None:
    """It says that the log has lost something: void is only what lies at or below the head."""
    assert judge(OPEN, Head(6, "a" * 64), INDEX) is Verdict.VALID
    assert judge(OPEN, Head(6, "b" * 64), INDEX) is Verdict.GAP
    assert judge(OPEN, Head(5, "a" * 64), INDEX) is Verdict.GAP
    assert judge(OPEN, Head(7, "a" * 64), INDEX) is Verdict.VOID
    assert judge(OPEN, Head(6, "a" * 64), (INDEX + 1) % 16) is Verdict.VOID
    assert judge(OPEN, Head(6, "a" * 64), INDEX, gap=True) is Verdict.GAP
    assert judge(replace(OPEN, skips=True), Head(6, "a" * 64), INDEX, gap=True) is Verdict.VALID


def test_the_winner_who_saw_a_void_record_waits_before_its_next_append(memory: Platform) -> None:
    """A rival's record that came first and does not count: the rival must come first once."""
    memory.register("m", budget=10.0)
    stale = commits(memory)[0].value
    worker = memory.deletion_worker(
        at_step=once(Step.APPEND, lambda: append(memory, stale))  # a rival that is behind
    )
    waits: list[float] = []
    worker._journal._sleep = waits.append
    memory.send_index("m", 1)
    memory.drain(worker)
    assert waits == []
    memory.send_index("m", 2)
    memory.drain(worker)
    assert len(waits) == 1
    memory.send_index("m", 3)
    memory.drain(worker)
    assert len(waits) == 1
    check_model(memory)


class WrappedProducer(Producer):
    """A producer around another one."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def begin(self, messages: Iterable[Message]) -> Flush:
        """Send."""
        return self._producer.begin(messages)

    def append(self, messages: Iterable[Message], timeout: float = 30.0) -> Sequence[Appended]:
        """Append."""
        return self._producer.append(messages, timeout)

    def close(self) -> None:
        """Release the connection."""
        self._producer.close()


class ElsewhereFlush:
    """Of messages that were appended under another leader."""

    def __init__(self, flush: Flush) -> None:
        self._flush = flush

    def wait(self, timeout: float = 30.0) -> Sequence[Appended]:
        """Wait."""
        return [replace(one, leader_epoch=9) for one in self._flush.wait(timeout)]


class ElsewhereProducer(WrappedProducer):
    """Says that records were appended under another leader."""

    def begin(self, messages: Iterable[Message]) -> Flush:
        """Send."""
        return ElsewhereFlush(super().begin(messages))


def test_an_append_under_another_leader_is_read_again(memory: Platform) -> None:
    """A new leader may lack records below: the offset alone does not say that it continues."""
    memory.register("m", budget=10.0)
    worker = memory.deletion_worker()
    memory.send_index("m", 1)
    memory.drain(worker)
    journal = worker._journal
    followed = journal.followed(INDEX)
    assert followed is not None
    followed.tail = replace(followed.tail, epoch=3)
    journal._producer = ElsewhereProducer(memory.producer)
    last = commits(memory)[-1]
    framed = decode_frame(last.value)
    assert framed is not None
    state = memory.load()
    commit = open_commit(framed, memory.seals, None, state.meta.config)
    following = replace(commit, number=commit.number + 1, prev=state.head.digest)
    assert journal.append([following]) == []
    assert journal.followed(INDEX) is None


def test_another_record_at_the_tail_is_a_log_that_was_reset(memory: Platform) -> None:
    memory.register("m")
    last = commits(memory)[-1]
    framed = decode_frame(last.value)
    assert framed is not None
    end, reader = last.offset + 1, memory.reader
    check_tail(reader, Tail(last.partition, end, framed.digest), end)
    with pytest.raises(LogReset, match="another record"):
        check_tail(reader, Tail(last.partition, end, "b" * 64), end)
    with pytest.raises(LogReset, match="ends at offset"):
        check_tail(reader, Tail(last.partition, end + 1, framed.digest), end)


def test_a_commits_topic_that_was_made_again_is_a_log_that_was_reset(memory: Platform) -> None:
    """Its offsets are others': nothing may be read or appended as if it were the same."""
    memory.register("m", budget=10.0)
    memory.drain()
    assert isinstance(memory.log, MemoryLog)
    memory.log.delete_topic(topics.COMMITS)
    memory.log.ensure_topics(topics.specs(2))
    with pytest.raises(LogReset, match="made again"):
        Fold(memory.store, memory.reader, memory.producer, memory.seals).run(INDEX)


def test_partitions_with_nothing_to_fold_are_found_together_as_a_fold_finds_them(
    memory: Platform,
) -> None:
    """What has a model, a record, other cursors or too short a list of models is folded."""
    memory.register("m", budget=10.0)
    memory.drain()
    every = set(range(COMMIT_PARTITIONS))
    short, other, behind, written = sorted(every - {INDEX})[:4]
    client = memory.store.client
    client.flushdb()  # so that cursors are new

    def fold() -> Fold:
        return Fold(memory.store, memory.reader, memory.producer, memory.seals)

    empty = fold().empty(every)
    assert set(empty) == every - {INDEX}  # versions name its model
    assert empty == {index: fold().run(index) for index in empty}
    assert fold().empty(every) == empty
    client.hset(PartitionKeys(short).cursors, "models", "1")
    client.hset(PartitionKeys(other).cursors, "topic", "another")
    client.hset(PartitionKeys(behind).cursors, "behind:gone", "0 0")
    append(memory, b"no commit", written)
    assert set(fold().empty(every)) == every - {INDEX, short, other, behind, written}


def test_nobody_appends_who_could_not_open_the_head(memory: Platform) -> None:
    """One worker with a wrong key must not halt everybody: it refuses, and others go on."""
    memory.register("m", budget=10.0)
    good = memory.seals
    memory.seals = SealKeys([bytes([9] * 32)])
    wrong = memory.deletion_worker()
    hers = memory.send_index("m", 1)
    for _ in range(20):
        memory.turn(wrong)
    assert "m" in wrong._halts
    before = len(commits(memory))
    leave(memory, wrong)
    memory.seals = good
    memory.drain(memory.deletion_worker())
    assert len(commits(memory)) == before + 1
    assert memory.final(hers).status == "APPLIED"
    check_model(memory)


# -- applying --------------------------------------------------------------------------------------


def change(platform: Platform, **more: object) -> StoreChange:
    """Return a change that would follow the stored state, with what else is said."""
    state = platform.load()
    place = Place(commits(platform)[-1].offset + 1, previous_end=commits(platform)[-1].offset + 1)
    base = StoreChange(
        keys=state.keys,
        commit=state.head.commit + 1,
        prev=state.head.digest,
        digest="d" * 64,
        place=place,
        live=state.generation_keys,
    )
    return replace(base, **more)  # type: ignore[arg-type]  # fields by name


def refused(platform: Platform, wanted: StoreChange) -> Applied:
    """Return why a change is refused; nothing of it may have been written."""
    before, cursors = platform.load(), platform.store.cursors.read(KEYS)
    [answer], _ = platform.store.apply([wanted])
    after = platform.load()
    assert (after.head, after.arrays_id) == (before.head, before.arrays_id)
    assert platform.store.cursors.read(KEYS) == cursors
    return answer.applied


def test_the_script_compares_before_it_writes(memory: Platform) -> None:
    memory.register("m", budget=10.0)
    memory.delete("m", 1)
    head = memory.load().head
    assert refused(memory, change(memory, prev="c" * 64)) is Applied.FORK
    assert refused(memory, change(memory, commit=head.commit)) is Applied.FORK
    assert refused(memory, change(memory, commit=head.commit + 2)) is Applied.BEHIND
    assert refused(memory, change(memory, deleted=("row-1",))) is Applied.CORRUPT
    other_arrays = ArraysChange("others", "new")
    assert refused(memory, change(memory, arrays=other_arrays)) is Applied.ARRAYS
    other_rows = change(memory, rows="another generation")
    assert refused(memory, other_rows) is Applied.ROWS
    gone = Swap([memory.load().keys.generation("gone").fixed], [], 0)
    assert refused(memory, change(memory, swap=gone)) is Applied.STAGED


def test_the_cursor_passes_a_record_only_from_behind_the_one_before(memory: Platform) -> None:
    """Else a commit whose worker died between append and apply would never be folded."""
    memory.register("m", budget=10.0)
    memory.drain()
    state, end = memory.load(), commits(memory)[-1].offset + 1
    before = memory.store.cursors.read(KEYS).pair.apply
    assert before == end
    known = change(
        memory,
        commit=state.head.commit,
        digest=state.head.digest,
        place=Place(end + 1, previous_end=end + 1, model_previous_end=end + 1),
    )
    [answer], _ = memory.store.apply([known])
    assert answer.applied is Applied.ALREADY
    assert memory.store.cursors.read(KEYS).pair.apply == before
    [answer], _ = memory.store.apply([replace(known, place=Place(end + 1, previous_end=end))])
    assert memory.store.cursors.read(KEYS).pair.apply == end + 2


def test_a_final_receipt_in_the_index_never_changes(memory: Platform) -> None:
    """A commit that is applied once more, or a later one, says nothing of a request by then."""
    memory.register("m", budget=10.0)
    hers = memory.delete("m", 1)
    raw, state = memory.raw(), memory.load()
    final = raw.hget(state.keys.requests, hers)
    told = change(
        memory,
        commit=state.head.commit,
        digest=state.head.digest,
        place=Place(0),
        requests={hers: b"F another", "waits": b"P first"},
    )
    memory.store.apply([told])
    memory.store.apply([replace(told, requests={hers: b"P another", "waits": b"P second"})])
    assert raw.hget(state.keys.requests, hers) == final
    assert raw.hget(state.keys.requests, "waits") == b"P first"
    memory.store.apply([replace(told, requests={"waits": b"F last"})])
    assert raw.hget(state.keys.requests, "waits") == b"F last"


def test_a_row_is_deleted_once_and_a_request_answered_once(memory: Platform) -> None:
    """Whoever asks again, in a later batch, gets the first answer; its row is gone already."""
    memory.register("m", budget=10.0)
    first = memory.delete("m", 1, 2)
    memory.send_index("m", 1, 2, request_id=first)
    other = memory.send_index("m", 2, 3)
    memory.drain()
    assert memory.statuses(first) == ["APPLIED", "APPLIED"]
    assert (memory.final(other).status, memory.final(other).rows_deleted) == ("APPLIED", 1)
    late = memory.delete("m", 1)
    assert memory.final(late).status == "ALREADY_APPLIED"
    check_model(memory)


# -- folding ---------------------------------------------------------------------------------------


def test_a_halted_model_keeps_cursors_of_its_own_while_its_neighbour_goes_on(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commits are sealed with a key that the worker has not; who has it folds them later."""
    other = neighbour_of("m")
    memory.register("m", budget=10.0)
    memory.register(other, budget=10.0)
    newer = SealKeys([bytes([7] * 32), SECRET])
    without = memory.deletion_worker()
    memory.drain(without)
    memory.seals = newer
    with_key = another_owner(memory, monkeypatch, once(Step.APPLY, die))
    hers = memory.send_index("m", 1)
    run_until_it_dies(with_key)
    leave(memory, with_key)
    memory.send_index(other, 1)
    without.recover()
    for _ in range(50):
        memory.turn(without)
    assert "m" in without._halts
    assert (memory.load("m").version, memory.load(other).version) == (0, 1)
    cursors, end = memory.store.cursors.read(KEYS), commits(memory)[-1].offset + 1
    assert cursors.pair.apply == end
    assert cursors.of_model("m").apply < end
    leave(memory, without)
    memory.drain(memory.deletion_worker())
    assert memory.final(hers).version == 1
    check_model(memory)
    check_model(memory, other)


def test_what_heads_have_is_folded_again(memory: Platform) -> None:
    """A registration may have jumped over a commit: its receipts and rows are not in the store."""
    memory.register("m", budget=10.0)
    worker = memory.deletion_worker(at_step=once(Step.APPLY, die))
    hers = memory.send_index("m", 1)
    run_until_it_dies(worker)
    leave(memory, worker)
    state = memory.load()
    # The store as a registration leaves it that was applied over what it could not: its head is
    # beyond the commit, and its cursor is not.
    last = commits(memory)[-1]
    framed = decode_frame(last.value)
    assert framed is not None
    raw = memory.raw()
    raw.hset(state.keys.head, mapping={"commit": framed.open.number, "digest": framed.digest})
    Fold(memory.store, memory.reader, memory.producer, memory.seals).run(INDEX)
    assert raw.hexists(state.keys.requests, hers)
    assert raw.hget(state.keys.ledger, "row-1") == b"1"
    assert memory.store.cursors.read(KEYS).pair.apply == last.offset + 1


@pytest.mark.parametrize("step", [Step.APPLY, Step.SHRED])
def test_a_fold_drops_the_keys_that_a_dead_worker_did_not(
    private_valkey: Callable[[], ValkeyProcess], step: Step
) -> None:
    """It died before or after the store knew of its commit; another finishes what it began."""
    store, keys = private_valkey(), private_valkey()
    with closing(Platform(MemoryLog(), store.url, keys_url=keys.url)) as platform:
        platform.register("m", budget=10.0)
        doomed = platform.deletion_worker(at_step=once(step, die))
        platform.send_index("m", 3, 4)
        run_until_it_dies(doomed)
        leave(platform, doomed)
        assert {"row-3", "row-4"} <= rows_with_a_key(platform)
        platform.drain()
        assert rows_with_a_key(platform) == live_rows(platform)
        check_model(platform)


@pytest.mark.parametrize("step", [Step.APPLY, Step.SHRED, Step.PUBLISH])
def test_no_key_stays_of_a_model_whose_last_rows_are_deleted(
    private_valkey: Callable[[], ValkeyProcess], step: Step
) -> None:
    """The commit does not name the generation that it ends: what a fold finds is too late."""
    store, keys = private_valkey(), private_valkey()
    with closing(Platform(MemoryLog(), store.url, keys_url=keys.url)) as platform:
        platform.register("m", budget=10.0)
        platform.send_index("m", *range(len(platform.data["m"].y)))
        doomed = platform.deletion_worker(at_step=once(step, die))
        run_until_it_dies(doomed)
        leave(platform, doomed)
        platform.drain()
        assert live_rows(platform) == set()
        assert rows_with_a_key(platform) == set()


@pytest.mark.parametrize("step", [None, Step.SHRED])
def test_no_key_stays_of_a_model_that_is_unregistered(
    private_valkey: Callable[[], ValkeyProcess], step: Step | None
) -> None:
    """And a fold that reads this again leaves the keys of the next registration alone."""
    store, keys = private_valkey(), private_valkey()
    with closing(Platform(MemoryLog(), store.url, keys_url=keys.url)) as platform:
        platform.register("m", budget=10.0)
        partition = platform.load().keys.partition
        early = platform.store.cursors.read(partition)
        registrar = platform.registrar(at_step=no_hook if step is None else once(step, die))
        with suppress(Died):
            registrar.unregister("m")
        platform.drain()
        assert rows_with_a_key(platform)
        assert all_keys_expire(platform)
        with closing(connect(platform.keys_url)) as raw:
            raw.flushall()
        platform.register("m", budget=10.0)
        platform.store.cursors.restart(partition, early.topic_id, early.pair)
        platform.drain(platform.deletion_worker())
        with closing(connect(platform.keys_url)) as raw:
            assert {raw.ttl(name) for name in raw.scan_iter("*:row-keys:*")} == {-1}


def all_keys_expire(platform: Platform) -> bool:
    """Return whether every key in the store of row keys has a time to live."""
    with closing(connect(platform.keys_url)) as raw:
        return all(raw.ttl(name) > 0 for name in raw.scan_iter("*:row-keys:*"))


def rows_with_a_key(platform: Platform) -> set[str]:
    """Return the rows of which the store of keys has one."""
    with closing(connect(platform.keys_url)) as raw:
        names = [text(name) for name in raw.scan_iter("*:row-keys:*")]
        return {text(row) for name in names for row in raw.hkeys(name)}


def test_a_request_from_before_the_opening_is_of_no_model(memory: Platform) -> None:
    """Whoever reads it, and whenever: also a worker that begins after the registration."""
    before = memory.send("m", "row-1")
    memory.register("m", budget=10.0)
    after = memory.send("m", "row-2")
    memory.drain()
    finals = {r.request_id: (r.status, r.code) for r in memory.receipts("m")}
    assert finals == {before: ("REJECTED", "UNKNOWN_MODEL"), after: ("APPLIED", None)}
    memory.asked.pop(("m", before))
    check_model(memory)


def test_a_model_is_unknown_only_by_an_end_asked_for_after_the_poll(memory: Platform) -> None:
    """Its registration ended between append and apply, while the worker followed its partition."""
    memory.register(neighbour_of("m"), budget=10.0)
    worker = memory.deletion_worker()
    memory.drain(worker)
    data = memory.data[neighbour_of("m")]
    memory.data["m"] = data
    registrar = memory.registrar(at_step=once(Step.REGISTER_APPLY, die))
    with pytest.raises(Died):
        registrar.register(config_of(data, "m", "pru", 10.0, LimitsRecord()), training_data(data))
    first = memory.send_index("m", 1)
    memory.drain(worker)
    later = memory.send_index("m", 2)
    memory.drain(worker)
    assert memory.final(later).status == "APPLIED"
    assert {r.code for r in memory.receipts("m") if r.request_id == first} <= {
        None,
        "UNKNOWN_MODEL",
    }
    assert memory.load().opening is not None


class LateFlush:
    """Of messages that the log does not acknowledge."""

    def wait(self, timeout: float = 30.0) -> Sequence[Appended]:
        """Wait in vain."""
        raise LogUnavailable(f"nothing was acknowledged in {timeout:g} s")


class LateProducer(WrappedProducer):
    """Commits are acknowledged, and what is published of them is not, and is lost."""

    def begin(self, messages: Iterable[Message]) -> Flush:
        """Send to nowhere."""
        del messages
        return LateFlush()


class SlowFlush:
    """Of messages that land only once somebody waits for them."""

    def __init__(self, producer: Producer, messages: Iterable[Message]) -> None:
        self._producer, self._messages = producer, messages

    def wait(self, timeout: float = 30.0) -> Sequence[Appended]:
        """Send, and wait."""
        return self._producer.append(self._messages, timeout)


class MeanwhileProducer(WrappedProducer):
    """While it sends, a worker commits and publishes."""

    def __init__(self, platform: Platform, worker: DeletionWorker) -> None:
        super().__init__(platform.producer)
        self._platform, self._worker = platform, worker

    def append(self, messages: Iterable[Message], timeout: float = 30.0) -> Sequence[Appended]:
        """Append after the worker."""
        self._platform.send_index("m", 3)
        self._platform.drain(self._worker)
        return super().append(messages, timeout)


class SlowProducer(WrappedProducer):
    """What it is given stays on its way for as long as possible."""

    def begin(self, messages: Iterable[Message]) -> Flush:
        """Keep."""
        return SlowFlush(self._producer, messages)


def overtaken(memory: Platform, patch: pytest.MonkeyPatch, *, forgets: bool) -> DeletionWorker:
    """Return who has sent version 1, beside another owner who has gone on to version 2 since.

    It has not noted that; if it ``forgets``, its flush was acknowledged, but the store was away.
    """
    memory.register("m", budget=10.0)
    other = another_owner(memory, patch, no_hook)
    memory.drain(other)
    first = memory.deletion_worker()
    memory.drain(first)
    first._newest.send_due(math.inf)  # its take-over was long ago
    memory.send_index("m", 1)
    first.run_once(0.0)
    if forgets:
        with patch.context() as away:
            away.setattr(first._publisher._store, "apply", unreachable)
            with pytest.raises(ConnectionError):
                first._publisher.advance()
        first.recover()
    memory.drain(other)
    memory.send_index("m", 2)
    memory.drain(other)
    return first


def test_who_was_overtaken_sends_the_newest_parameters_once_more(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compaction keeps the last ones: those that it sent late may be older."""
    first = overtaken(memory, monkeypatch, forgets=False)
    sent = len(memory.records(topics.MODELS))
    first._publisher.advance()
    first._newest.send_due()  # nothing is due yet
    assert len(memory.records(topics.MODELS)) == sent
    for _ in range(2):
        first._newest.send_due(math.inf)
        assert len(memory.records(topics.MODELS)) == sent + 1
    assert memory.parameters().version == 2


def test_who_loses_the_store_before_noting_looks_later_whether_it_was_overtaken(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = overtaken(memory, monkeypatch, forgets=True)
    sent = len(memory.records(topics.MODELS))
    first._newest.send_due(math.inf)
    assert len(memory.records(topics.MODELS)) == sent + 1
    assert memory.parameters().version == 2


def test_no_watermark_passes_a_commit_that_is_not_in_the_store(memory: Platform) -> None:
    """A log may drop what lies below it, and a fold needs the values of inserted rows."""
    memory.register("m", budget=10.0)
    memory.send_index("m", 1)
    worker = memory.deletion_worker(at_step=once(Step.APPLY, die))
    run_until_it_dies(worker)
    before = [memory.store.cursors.watermark(str(p)) for p in worker._consumer.assignment()]
    assert before
    worker._publisher.advance()  # as `close` does
    after = [memory.store.cursors.watermark(str(p)) for p in worker._consumer.assignment()]
    assert after == before


@pytest.mark.parametrize(("step", "version"), [(Step.APPLY, 0), (Step.PUBLISH, 1)])
def test_readers_are_told_what_the_store_has(memory: Platform, step: Step, version: int) -> None:
    """They may look there next; if the worker dies in between, a fold tells them."""
    memory.register("m", budget=10.0)
    hers = memory.send_index("m", 1)
    doomed = memory.deletion_worker(at_step=once(step, die))
    run_until_it_dies(doomed)
    assert memory.load().version == version
    assert memory.statuses(hers) == []
    leave(memory, doomed)
    memory.drain(memory.deletion_worker())
    assert memory.final(hers).version == 1
    check_model(memory)


def test_what_a_fold_was_faster_with_is_published_by_the_fold_alone(memory: Platform) -> None:
    memory.register("m", budget=10.0)
    hers = memory.send_index("m", 1)

    def fold() -> None:
        Fold(memory.store, memory.reader, memory.producer, memory.seals).run(INDEX)

    memory.drain(memory.deletion_worker(at_step=once(Step.APPLY, fold)))
    assert memory.statuses(hers) == ["APPLIED"]
    check_model(memory)


def landing_last(
    memory: Platform, patch: pytest.MonkeyPatch
) -> tuple[DeletionWorker, DeletionWorker]:
    """Return who has version 1 still on its way, and who has published version 2 since.

    Neither has noted anything, so that neither sees the other.
    """
    memory.register("m", budget=10.0)
    other = another_owner(memory, patch, no_hook)
    memory.drain(other)
    first = memory.deletion_worker()
    memory.drain(first)
    first._newest.send_due(math.inf)  # its take-over was long ago
    first._publisher._producer = SlowProducer(memory.producer)
    memory.send_index("m", 1)
    first.run_once(0.0)
    memory.send_index("m", 2)
    other.run_once(0.0)
    assert memory.parameters().version == 2
    return first, other


def test_older_parameters_that_land_last_are_followed_by_the_newest_a_little_later(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = landing_last(memory, monkeypatch)
    first._publisher.advance()
    other._publisher.advance()
    assert memory.load().version == 2
    assert memory.parameters().version == 1
    other._newest.send_due(time.monotonic() + LATE_SECONDS)
    assert memory.parameters().version == 2


def test_who_was_stalled_for_longer_than_the_others_wait_sends_the_newest_itself(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = landing_last(memory, monkeypatch)
    later = time.monotonic() + LATE_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: later)
    other._newest.send_due()
    first._publisher.advance()
    other._publisher.advance()
    assert memory.parameters().version == 1
    other._newest.send_due(math.inf)
    assert memory.parameters().version == 1
    first._newest.send_due(math.inf)
    assert memory.parameters().version == 2


def test_parameters_that_were_sent_again_while_others_committed_are_sent_once_more(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read from the store may be older by the time it lands."""
    first, other = landing_last(memory, monkeypatch)
    first._publisher.advance()
    other._publisher.advance()
    other._newest._producer = MeanwhileProducer(memory, other)
    other._newest.send_due(math.inf)
    assert (memory.load().version, memory.parameters().version) == (3, 2)
    other._newest._producer = memory.producer
    other._newest.send_due(math.inf)
    assert memory.parameters().version == 3


@pytest.mark.parametrize("times", [1, 2])
def test_a_registration_that_is_refused_leaves_the_newest_parameters_last(
    memory: Platform, times: int
) -> None:
    """Its fold publishes what a worker has not noted yet; by then, that worker may have gone on."""
    memory.register("m", budget=10.0)
    worker = memory.deletion_worker()
    memory.drain(worker)
    deleted = iter(range(1, 10))
    memory.send_index("m", next(deleted))
    worker.run_once(0.0)
    published: list[int] = []

    def gone_on(step: str) -> None:
        if step == Step.FOLD_PUBLISH and len(published) < times:
            memory.send_index("m", next(deleted))
            worker.run_once(0.0)
            published.append(memory.parameters().version)

    with pytest.raises(ModelExists):
        memory.register("m", at_step=gone_on)
    assert published == list(range(2, 2 + times))
    assert memory.parameters().version == published[-1]


def test_a_registration_is_durable_before_it_is_appended(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are in the store alone."""
    seen: list[str] = []
    waits = memory.store.wait_durable

    def wait() -> None:
        seen.append("durable")
        waits()

    monkeypatch.setattr(memory.store, "wait_durable", wait)
    memory.register("m", budget=10.0, at_step=seen.append)
    appended = seen.index(Step.REGISTER_APPEND)
    staged = max(i for i, what in enumerate(seen) if what == Step.REGISTER_STAGE)
    assert "durable" in seen[staged:appended]


def test_no_watermark_passes_what_is_not_acknowledged(memory: Platform) -> None:
    """A request whose answer the log has not taken is read again by whoever comes next."""
    memory.register("m", budget=10.0)
    worker = memory.deletion_worker()
    memory.drain(worker)
    partition = memory.reader.partition_for(topics.DELETIONS, b"m")
    hers = memory.send_index("m", 1)
    worker._publisher._producer = LateProducer(memory.producer)
    worker.run_once(0.0)
    assert memory.load().version == 1
    with pytest.raises(LogUnavailable):
        worker.run_once(0.0)
    assert (memory.store.cursors.watermark(str(partition)) or 0) == 0
    published = memory.store.cursors.read(KEYS).pair.published
    assert published == commits(memory)[-1].offset
    assert memory.receipts("m") == []
    leave(memory, worker)
    assert memory.answer(hers).status == "APPLIED"
    check_model(memory)


def test_no_watermark_passes_a_commit_whose_model_the_fold_has_halted(memory: Platform) -> None:
    """Once the model is mended, a fold applies it, and needs the values of its inserted rows."""
    memory.register("m", budget=10.0)
    raw, head = memory.raw(), memory.load().keys.head
    meta = raw.hget(head, "meta")
    assert meta is not None

    def damage(step: str) -> None:
        if step == Step.APPLY:
            raw.hset(head, mapping={"meta": "no meta", "digest": "0" * 64})

    digest = memory.load().head.digest
    worker = memory.deletion_worker(at_step=damage)
    hers = memory.send_index("m", 1)
    place = memory.records(topics.DELETIONS)[0]
    for _ in range(5):
        memory.turn(worker)
    assert "m" in worker._halts
    assert memory.statuses(hers) == []
    assert (memory.store.cursors.watermark(str(place.partition)) or 0) <= place.offset
    leave(memory, worker)
    raw.hset(head, mapping={"meta": meta, "digest": digest})
    memory.drain(memory.deletion_worker())
    assert memory.final(hers).status == "APPLIED"
    check_model(memory)


def test_no_watermark_passes_what_a_halted_model_has_not_decided(memory: Platform) -> None:
    """Its neighbour goes on; once it is mended, its request is read again and decided."""
    other = neighbour_of("m")
    memory.register("m", budget=10.0)
    memory.register(other, budget=10.0)
    worker = memory.deletion_worker()
    memory.drain(worker)
    raw, head = memory.raw(), memory.load().keys.head
    meta = raw.hget(head, "meta")
    assert meta is not None
    raw.hset(head, "meta", "no meta")
    worker.recover()
    hers, others = memory.send_index("m", 1), memory.send_index(other, 1)
    place = memory.records(topics.DELETIONS)[0]
    for _ in range(20):
        memory.turn(worker)
    assert memory.final(others, other).status == "APPLIED"
    assert memory.store.cursors.watermark(str(place.partition)) == place.offset
    raw.hset(head, "meta", meta)
    leave(memory, worker)
    memory.drain(memory.deletion_worker())
    assert memory.final(hers).status == "APPLIED"
    check_model(memory)


def test_what_is_decided_is_not_decided_again(memory: Platform) -> None:
    """A worker that begins below it, because the watermark was lost, commits nothing."""
    memory.register("m", budget=10.0)
    for i in range(3):
        memory.send_index("m", i)
    memory.drain()
    before = len(commits(memory))
    partition = memory.reader.partition_for(topics.DELETIONS, b"m")
    memory.raw().delete(watermark(str(partition)))
    settle(memory)
    assert len(commits(memory)) == before
    check_model(memory)


def test_nothing_is_decided_on_what_another_state_says(memory: Platform) -> None:
    """The store goes back between two requests: memory knows of a receipt, the store does not."""
    memory.register("m", budget=10.0)
    early = backup(memory, "m")
    first = memory.send_index("m", 1)
    back: list[None] = []

    def go_back(step: str) -> None:
        if step == Step.LOAD and back:
            back.clear()
            restore(memory, early, "m")

    worker = memory.deletion_worker(at_step=go_back)
    memory.drain(worker)
    memory.send_index("m", 1, request_id=first)
    back.append(None)
    memory.drain(worker)
    assert not back
    assert set(memory.statuses(first)) == {"APPLIED"}
    assert memory.final(first).version == memory.load().version == 1
    check_model(memory)


# -- registrations and refreshes -------------------------------------------------------------------


def test_a_row_that_is_deleted_while_its_model_is_replaced_does_not_come_back(
    memory: Platform,
) -> None:
    """The registration's commit is void: the ledger is read again before it is made again."""
    memory.register("m", budget=10.0)
    memory.drain()

    def delete_a_row() -> None:
        memory.delete("m", 1)

    done = memory.register(
        "m", budget=10.0, replace_model=True, at_step=once(Step.REGISTER_APPEND, delete_a_row)
    )
    assert done.state.meta.rows_live == len(memory.data["m"].X) - 1
    memory.drain()
    check_model(memory)


def test_a_result_of_another_generation_is_dropped(memory: Platform) -> None:
    """Two refreshes of one generation: the second one was made from what is not there any more."""
    memory.register("m", budget=10.0)
    memory.delete("m", 1, 2)
    orders = [memory.ordered("m", RefreshSize.REBUILD) for _ in range(2)]
    for order in orders:
        memory.compute_refresh(order)
    memory.tell_refreshed(orders[0])
    memory.drain()
    assert (memory.load().version, memory.load().meta.generation) == (2, 1)
    before = memory.load().head
    memory.tell_refreshed(orders[1])
    memory.drain()
    assert memory.load().head == before  # nothing changes, so no commit says so
    check_model(memory)


def test_a_result_is_dropped_only_by_who_knows_every_commit(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who does not know yet that the job is pending drops nothing: nobody would order another."""
    limits = LimitsRecord(fraction_of_d=0.0, floor_rows=1)
    memory.register("m", "benign", "linear", budget=10.0, limits=limits)
    memory.drain()
    behind = another_owner(memory, monkeypatch)
    table = Table(memory)
    table.delete("row-1")
    memory.drain(behind)
    memory.refresh("m", RefreshSize.REBUILD)
    table.change("insert", table.row("new-1"), table.row("new-2"))
    memory.turn_until_decided(1)
    assert memory.load().meta.pending_job is not None
    assert memory.pair[1].run_once(1.0) == 1
    [group], _ = group_records(memory.records(topics.DELETIONS)[-1:], None)
    state = behind._states.get("m")
    assert state is not None
    assert state.meta.pending_job is None
    [item] = group.items
    assert isinstance(item, Refreshed)
    out = Round()
    behind._processor.process([Loaded(group, state, None, item)], out)
    assert (out.stale, out.dropped, group.items) == ({"m"}, [], [item])
    memory.drain(behind)
    assert memory.load().meta.pending_job is None
    assert memory.load().meta.generation == 2
    table.check()


def test_a_journal_that_does_not_follow_appends_nothing(memory: Platform) -> None:
    """Nobody knows what it would continue."""
    memory.register("m", budget=10.0)
    framed = decode_frame(commits(memory)[0].value)
    assert framed is not None
    commit = open_commit(framed, memory.seals, None, None)
    journal = Journal(memory.producer, memory.seals, lambda: None)
    before = len(commits(memory))
    assert journal.append([commit]) == []
    assert len(commits(memory)) == before
