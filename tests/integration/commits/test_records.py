"""Records of ``lethe.commits`` that nobody of ours wrote, or that have gone, line by line.

A record that does not continue its model is void and skipped. One that continues it and cannot be
opened, trusted or understood halts the model, as does one that is ahead. Neighbours go on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lethe.consumers.commits.frame import COMMIT, FORMAT, Framed, decode_frame
from lethe.consumers.commits.recovery.fold import Fold
from lethe.consumers.contract import topics
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.contract.signatures import Signer, TrustedKeys
from lethe.consumers.log.base import Message
from lethe.consumers.workers.deletion_worker import DeletionWorker
from lethe.engine.errors import CorruptState, LogReset
from lethe.engine.store.layout.keys import ModelKeys, commit_partition
from tests.support import erasures
from tests.support.commit_records import framed, record_of
from tests.support.invariants import check_model, live_rows
from tests.support.memory_log import MemoryLog
from tests.support.platform import Platform
from tests.support.stores import backup, neighbour_of, restore

OTHER = neighbour_of("m")
HERE = commit_partition("m")
ELSEWHERE = next(f"e{i}" for i in range(99) if commit_partition(f"e{i}") != HERE)


def put(platform: Platform, value: bytes | None, index: int = HERE) -> None:
    """Append any bytes to a commits partition."""
    platform.producer.publish([Message(topics.COMMITS, b"m", value, partition=index)])


def commits_of(platform: Platform, model_id: str = "m") -> list[tuple[bytes, Framed]]:
    """Return a model's records and what they are."""
    found = []
    for record in platform.records(topics.COMMITS):
        frame = decode_frame(record.value)
        if frame is not None and frame.open.model_id == model_id:
            found.append((record.value or b"", frame))
    return found


def head_of(platform: Platform, model_id: str = "m") -> tuple[int, str]:
    """Return number and digest of the newest commit."""
    head = platform.load(model_id).head
    return head.commit, head.digest


def turns(platform: Platform, worker: DeletionWorker, times: int = 6) -> None:
    for _ in range(times):
        platform.turn(worker)


@pytest.fixture
def platform(memory: Platform) -> Platform:
    """Two models in one partition, and one further down in another, each with deletions."""
    for model in ("m", OTHER, ELSEWHERE):
        memory.register(model, budget=10.0)
        memory.send_index(model, 0)
    memory.drain()
    for row in range(10, 20):
        memory.delete(ELSEWHERE, row)
    return memory


# -- void records ----------------------------------------------------------------------------------


def replayed(platform: Platform) -> bytes:
    return commits_of(platform)[1][0]


def newest_again(platform: Platform) -> bytes:
    return commits_of(platform)[-1][0]


def of_the_same_number(platform: Platform) -> bytes:
    number, _ = head_of(platform)
    return record_of(model_id="m", commit=number, prev=commits_of(platform)[-1][1].open.prev)


def a_first_one_again(_: Platform) -> bytes:
    return record_of(model_id="m", commit=0, prev="")


def of_another_partition(platform: Platform) -> bytes:
    elsewhere = next(f"x{i}" for i in range(99) if commit_partition(f"x{i}") != HERE)
    del platform
    return record_of(model_id=elsewhere, commit=0, prev="")


def of_a_model_elsewhere(platform: Platform) -> bytes:
    number, digest = head_of(platform, ELSEWHERE)
    return record_of(model_id=ELSEWHERE, commit=number + 1, prev=digest)


def copied_from_another_partition(platform: Platform) -> bytes:
    return commits_of(platform, ELSEWHERE)[-1][0]


def cut_short(platform: Platform) -> bytes:
    return newest_again(platform)[:-5]


def with_more_behind(platform: Platform) -> bytes:
    return newest_again(platform) + b"x"


VOID: dict[str, Callable[[Platform], bytes | None]] = {
    "replayed": replayed,
    "the newest again": newest_again,
    "of the same number": of_the_same_number,
    "a first one again": a_first_one_again,
    "of another partition": of_another_partition,
    "of a model that is registered in another partition": of_a_model_elsewhere,
    "copied from another partition": copied_from_another_partition,
    "cut short": cut_short,
    "with more behind": with_more_behind,
    "no commit": lambda _: b"hello",
    "empty": lambda _: b"",
    "no value": lambda _: None,
    "too deep": lambda _: COMMIT.encode() + b"\n" + framed(b"[" * 4000) + framed(b"") + framed(b""),
    "megabytes": lambda _: COMMIT.encode() + b"\n" + bytes(6 << 20),
    "lengths that lie": lambda _: COMMIT.encode() + b"\n\xff\xff\xff\xff{}",
}


@pytest.mark.parametrize("what", VOID)
@pytest.mark.parametrize("when", ["while the worker runs", "before another one begins"])
def test_a_void_record_is_skipped(platform: Platform, what: str, when: str) -> None:
    before = head_of(platform)
    if when == "before another one begins":
        platform.pair[0].close()
        platform._pair = platform.deletion_worker(), platform.pair[1]
    put(platform, VOID[what](platform))
    requests = {model: platform.send_index(model, 1) for model in ("m", OTHER, ELSEWHERE)}
    platform.drain()
    for model, request in requests.items():
        assert platform.final(request, model).status == "APPLIED"
        assert platform.store.cursors.read(ModelKeys(model).partition).behind == {}
        check_model(platform, model)
    assert head_of(platform)[0] == before[0] + 1


@pytest.mark.parametrize("what", VOID)
def test_a_void_record_at_the_end_is_no_lost_one_for_who_comes_next(
    platform: Platform, what: str
) -> None:
    """Given a fold that passed it: the store knows the partition by the record below its cursor."""
    value = VOID[what](platform)
    put(platform, value)
    fold = Fold(platform.store, platform.reader, platform.producer, platform.seals)
    fold.run(HERE)
    [partition] = [p for p in platform.reader.partitions(topics.COMMITS) if p.index == HERE]
    end = platform.reader.bounds(partition).end
    assert platform.store.cursors.read(ModelKeys("m").partition).pair.apply == end
    for _ in range(2):
        assert fold.run(HERE).halted == {}
    assert isinstance(platform.log, MemoryLog)
    if decode_frame(value) is not None:  # that it was lost is noticed all the same
        platform.log.truncate(partition, end - 1)
        put(platform, b"another record")
        with pytest.raises(LogReset, match="another record lies at offset"):
            fold.run(HERE)


def test_a_model_that_was_halted_in_another_partition_is_no_longer(platform: Platform) -> None:
    """Folds once took up whatever model a record named, and nothing ended what they had noted."""
    keys = ModelKeys("m").partition
    platform.store.cursors.note_behind(keys, ELSEWHERE)
    assert set(platform.store.cursors.read(keys).behind) == {ELSEWHERE}
    platform.pair[0].recover()
    request = platform.delete(ELSEWHERE, 1)
    assert platform.final(request, ELSEWHERE).status == "APPLIED"
    assert platform.store.cursors.read(keys).behind == {}


# -- records that continue, and are not ours -------------------------------------------------------


@dataclass(frozen=True)
class Forged:
    """A record that continues model m, and what is said of it."""

    fields: dict[str, object]
    said: str
    ahead: int = 1
    prev: str = ""


FORGED = {
    "an unknown key": Forged({"key": "f" * 16}, "sealed with key ffffffffffffffff"),
    "our key's name": Forged({"key": None}, "does not open with key"),
    "a later format": Forged({"format": FORMAT + 1}, "upgrade it"),
    "an older format": Forged({"format": FORMAT - 1}, "an empty log"),
    "ahead": Forged({}, "does not continue commit", ahead=3),
    "another predecessor": Forged({}, "does not continue commit", prev="a" * 64),
    "a checkpoint of a stranger": Forged({"checkpoint": True}, "sealed with key", ahead=7),
}


def forge(platform: Platform, forged: Forged) -> bytes:
    number, digest = head_of(platform)
    fields = dict(forged.fields)
    if "key" in fields and fields["key"] is None:
        fields["key"] = platform.seals.current
    prev = forged.prev or digest
    return record_of(model_id="m", commit=number + forged.ahead, prev=prev, **fields)


@pytest.mark.parametrize("what", FORGED)
def test_a_record_that_cannot_be_gone_on_from_halts_its_model_alone(
    platform: Platform, what: str
) -> None:
    forged = FORGED[what]
    put(platform, forge(platform, forged))
    worker = platform.pair[0]
    halted = platform.send_index("m", 1)
    beside = platform.send_index(OTHER, 1)
    turns(platform, worker)
    assert platform.final(beside, OTHER).status == "APPLIED"
    assert platform.statuses(halted) == []
    assert "m" in worker._halts
    reason = worker._halts._reasons["m"]
    assert forged.said in reason
    assert "\n" not in reason
    # The next worker says the same, and loses no request; the neighbour's cursor is not pinned
    worker.close()
    successor = platform.deletion_worker()
    later = platform.send_index(OTHER, 2)
    turns(platform, successor)
    assert platform.final(later, OTHER).status == "APPLIED"
    assert platform.statuses(halted) == []
    cursors = platform.store.cursors.read(ModelKeys("m").partition)
    assert set(cursors.behind) == {"m"}
    assert cursors.pair.apply > cursors.behind["m"].apply


@pytest.mark.parametrize("what", FORGED)
def test_whatever_a_stranger_wrote_a_person_can_go_on_without_it(
    platform: Platform, what: str
) -> None:
    put(platform, forge(platform, FORGED[what]))
    request = platform.send_index("m", 1)
    turns(platform, platform.pair[0])
    assert platform.statuses(request) == []
    early = backup(platform, "m")
    platform.register("m", budget=10.0, replace_model=True, accept_forgotten=True)
    for again in range(2):  # also from a store of before
        platform.pair[0].recover()
        assert platform.answer(request).status == "APPLIED"
        assert live_rows(platform).isdisjoint({"row-0", "row-1"})
        if not again:
            restore(platform, early, "m")


def test_a_name_that_only_a_stranger_has_used_is_registered_and_halts_no_more(
    platform: Platform,
) -> None:
    """Nobody can tell whether its deletions are sealed there, until a person says that none are."""
    name = next(f"g{i}" for i in range(99) if commit_partition(f"g{i}") == HERE)
    put(platform, record_of(model_id=name, commit=0, prev=""))
    worker, keys = platform.pair[0], ModelKeys("m").partition
    platform.send_index("m", 1)
    turns(platform, worker)
    assert "sealed with key" in worker._halts._reasons[name]
    assert set(platform.store.cursors.read(keys).behind) == {name}
    with pytest.raises(CorruptState, match="sealed with key"):
        erasures.register(platform, name)
    erasures.register(platform, name, replace_model=True, accept_forgotten=True)
    platform.registrar().unregister(name)
    worker.recover()
    turns(platform, worker)
    assert name not in worker._halts
    assert platform.store.cursors.read(keys).behind == {}


def test_a_gap_is_gone_on_from_by_registering_again(platform: Platform) -> None:
    put(platform, forge(platform, FORGED["ahead"]))
    request = platform.send_index("m", 1)
    turns(platform, platform.pair[0])
    with pytest.raises(CorruptState, match="does not continue"):
        platform.register("m", budget=10.0)
    early = backup(platform, "m")
    platform.register("m", budget=10.0, replace_model=True)
    for again in range(2):  # also from a store of before
        platform.pair[0].recover()
        assert platform.answer(request).status == "APPLIED"
        assert platform.load().meta.rows_live == 118
        if not again:
            restore(platform, early, "m")


def test_unsigned_commits_are_not_trusted_where_keys_are(memory: Platform) -> None:
    ours, stranger = (Signer(Ed25519PrivateKey.generate()) for _ in range(2))
    trusted = TrustedKeys.of([ours.public])
    worker = memory.deletion_worker(signer=lambda: ours, trusted=trusted)
    memory.registrar(signer=lambda: ours)
    memory.register("m", budget=10.0, signer=lambda: ours)
    memory.register(OTHER, budget=10.0, signer=lambda: ours)
    good = memory.send_index("m", 0)
    memory.drain(worker)
    assert memory.final(good).status == "APPLIED"
    worker.close()
    # Given a worker of somebody else, who has the seal key, and not ours
    rogue = memory.deletion_worker(signer=lambda: stranger)
    early = backup(memory, "m")
    memory.send_index("m", 1)
    memory.drain(rogue)
    rogue.close()
    restore(memory, early, "m")
    worker = memory.deletion_worker(signer=lambda: ours, trusted=trusted)
    beside = memory.send_index(OTHER, 1)
    turns(memory, worker)
    assert "LETHE_TRUSTED_KEYS" in worker._halts._reasons["m"]
    assert memory.final(beside, OTHER).status == "APPLIED"


# -- keys ------------------------------------------------------------------------------------------


def test_a_worker_with_a_wrong_key_harms_nobody(platform: Platform) -> None:
    """It neither appends to a model that it cannot read, nor answers for it."""
    right, before = platform.seals, len(platform.records(topics.COMMITS))
    platform.pair[0].close()
    platform.seals = SealKeys([bytes(32)])
    wrong = platform.deletion_worker()
    request = platform.send_index("m", 1)
    turns(platform, wrong)
    assert platform.statuses(request) == []
    assert len(platform.records(topics.COMMITS)) == before
    wrong.close()
    platform.seals = right
    platform._pair = platform.deletion_worker(), platform.pair[1]
    assert platform.answer(request).status == "APPLIED"
    check_model(platform)


def test_a_new_key_beside_the_old_one_goes_on(platform: Platform) -> None:
    platform.pair[0].close()
    platform.seals = SealKeys([bytes(32), bytes(range(32))])
    platform._pair = platform.deletion_worker(), platform.pair[1]
    early = backup(platform, "m")
    request = platform.delete("m", 1)
    assert commits_of(platform)[-1][1].open.key == platform.seals.current
    restore(platform, early, "m")
    platform.pair[0].recover()
    assert platform.answer(request).status == "APPLIED"
    check_model(platform)


# -- a log that lost what it had -------------------------------------------------------------------


def test_commits_that_were_made_again_halt_their_models(platform: Platform) -> None:
    assert isinstance(platform.log, MemoryLog)
    platform.log.delete_topic(topics.COMMITS)
    platform.log.ensure_topics(topics.specs(2))
    worker = platform.pair[0]
    unknown = next(f"u{i}" for i in range(99) if commit_partition(f"u{i}") == HERE)
    waiting = {model: platform.send(model, "row-1") for model in ("m", unknown)}
    worker.recover()
    turns(platform, worker)
    assert {"m", OTHER, unknown} <= worker._halts._reasons.keys()
    reason = worker._halts._reasons["m"]
    assert re.search(r"was made again.*lethe recover", reason)
    assert "\n" not in reason
    for model, request in waiting.items():
        assert platform.statuses(request, model) == []


@pytest.mark.parametrize("grown", [False, True])
def test_commits_that_lost_their_end_are_noticed(platform: Platform, grown: bool) -> None:
    """Also where others have grown over the place. Models of other partitions go on."""
    assert isinstance(platform.log, MemoryLog)
    elsewhere = next(f"x{i}" for i in range(99) if commit_partition(f"x{i}") != HERE)
    platform.register(elsewhere, budget=10.0)
    partition = platform.reader.partitions(topics.COMMITS)[HERE]
    end = platform.reader.bounds(partition).end
    platform.log.truncate(partition, end - 1)
    if grown:
        for _ in range(3):
            put(platform, record_of(model_id=OTHER, commit=50, prev="b" * 64))
    platform.send_index("m", 1)
    platform.send_index(OTHER, 1)
    unharmed = platform.send_index(elsewhere, 1)
    worker = platform.pair[0]
    worker.recover()
    turns(platform, worker)
    assert worker._halts._reasons.keys() == {"m", OTHER}
    assert "lethe recover" in worker._halts._reasons["m"]
    assert platform.final(unharmed, elsewhere).status == "APPLIED"


def test_too_few_partitions_of_commits_are_refused(memory: Platform) -> None:
    assert isinstance(memory.log, MemoryLog)
    memory.log.delete_topic(topics.COMMITS)
    specs = [spec for spec in topics.specs(2) if spec.name == topics.COMMITS]
    memory.log.ensure_topics([replace(specs[0], partitions=8)])
    with pytest.raises(CorruptState, match="has 8 partitions and needs 16"):
        memory.register("m", budget=10.0)


def test_partitions_that_were_added_are_not_used(memory: Platform) -> None:
    assert isinstance(memory.log, MemoryLog)
    memory.log.add_partitions(topics.COMMITS, 40)
    memory.register("m", budget=10.0)
    request = memory.delete("m", 1)
    assert memory.final(request).status == "APPLIED"
    used = {record.partition.index for record in memory.records(topics.COMMITS)}
    assert used == {HERE}
    check_model(memory)
