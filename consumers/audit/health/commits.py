"""What `lethe check` checks about ``lethe.commits``: how far the store follows it, and its keys.

Read-only. Each check is one line for an operator: what is fine, or what to do.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

from lethe.consumers.audit.health.checks import Check
from lethe.consumers.commits.frame import MAX_RECORD_BYTES
from lethe.consumers.commits.journal import commit_partitions
from lethe.consumers.contract import topics
from lethe.consumers.contract.sealing import handover, keys_of_heads
from lethe.consumers.log.base import Log, Partition, Reader
from lethe.consumers.service.connect import Runtime
from lethe.engine.errors import LetheError
from lethe.engine.store.cursors import PartitionCursors
from lethe.engine.store.layout.keys import PartitionKeys
from lethe.engine.store.store import ModelStore

_CATCH_UP_SECONDS = 3.0  # a worker applies and publishes what is there sooner
_PAUSE = 0.1
_DAY_MS = 86_400_000


def check_commits(store: ModelStore, runtime: Runtime) -> Iterator[Check]:
    """Check the seal keys, the topic's settings, the cursors, and which models are halted."""
    yield _seals(store, runtime)
    try:
        yield from _settings(runtime.log)
        with closing(runtime.log.reader()) as reader:
            yield from _cursors(store, reader)
    except LetheError as error:
        yield Check("commits", False, str(error))


def _seals(store: ModelStore, runtime: Runtime) -> Check:
    """Check that the keys here open the newest commit of every model."""
    subject, used = "seal keys", sorted(set(keys_of_heads(store).values()))
    path = runtime.settings.seal_key_file
    if not used and path is None:
        return Check(subject, True, "one is created in the store with the first model")
    try:
        seals = runtime.seals(store, make=False)
    except LetheError as error:
        return Check(subject, False, str(error))
    place = "the store, and in each backup of it" if path is None else str(path)
    warning = None if path is None else handover(store, seals, path)
    if warning is not None:
        return Check(subject, True, warning)
    newest = f"newest commits sealed with {', '.join(used)}" if used else "no commit yet"
    return Check(subject, True, f"{newest}; {seals.current} seals the next, and lies in {place}")


# -- the topic's settings -------------------------------------------------------------------------


def _settings(log: Log) -> Iterator[Check]:
    if log.name != "kafka":
        return
    subject, settings = f"topic {topics.COMMITS}", log.topic_settings(topics.COMMITS)
    if not settings:
        detail = "its settings cannot be read; grant DescribeConfigs (deploy/kafka/acls.csv)"
        yield Check(subject, True, detail)
        return
    wrong = [f"{name}={value}: {why}" for name, value, why in _faults(settings)]
    if wrong:
        yield Check(subject, False, "; ".join(wrong) + " (docs/operations.md)")
        return
    retention = _duration(settings.get("retention.ms", ""))
    detail = f"keeps commits {retention}: an older backup of the store cannot be brought up to date"
    yield Check(subject, True, detail)


def _faults(settings: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield the settings that lose or refuse commits: name, value, what it should be, and why."""
    wanted = {
        "cleanup.policy": ("delete", "compaction leaves one commit of each model"),
        "retention.bytes": ("-1", "commits expire before their time"),
        "message.timestamp.type": ("LogAppendTime", "a producer's clock decides what expires"),
        "unclean.leader.election.enable": ("false", "acknowledged commits can be lost"),
    }
    for name, (value, why) in wanted.items():
        if settings.get(name) not in (None, value):
            yield name, settings[name], f"should be {value}, else {why}"
    largest = settings.get("max.message.bytes", "")
    if largest.isdigit() and int(largest) < MAX_RECORD_BYTES:
        why = f"should be {MAX_RECORD_BYTES}, the size of the largest commit"
        yield "max.message.bytes", largest, why


def _duration(milliseconds: str) -> str:
    if not milliseconds.isdigit():
        return "for ever"
    return f"for {int(milliseconds) / _DAY_MS:g} days"


# -- the cursors ----------------------------------------------------------------------------------


def _cursors(store: ModelStore, reader: Reader) -> Iterator[Check]:
    partitions = commit_partitions(reader)
    ends = reader.ends(partitions)
    read = _read(store, partitions)
    faults = [
        fault
        for one in partitions
        if (fault := _fault(reader, one, read[one], ends[one])) is not None
    ]
    for fault in faults:
        yield Check("commits", False, fault)
    if not faults:
        yield _followed(store, ends)
    halted = {model for cursors in read.values() for model in cursors.behind}
    for model in sorted(halted):
        detail = (
            "is or was halted: some of its commits are not applied or published yet. The worker's "
            "log lines with action=halt say why; `lethe work deletions` tries it again"
        )
        yield Check(f"model {model}", False, detail)


def _read(
    store: ModelStore, partitions: Sequence[Partition]
) -> Mapping[Partition, PartitionCursors]:
    keys = [PartitionKeys(one.index) for one in partitions]
    return dict(zip(partitions, store.cursors.read_all(keys), strict=True))


def _fault(reader: Reader, partition: Partition, known: PartitionCursors, end: int) -> str | None:
    """Return a fault that no worker can continue from; None if there is none."""
    where, restore = f"{partition.topic}/{partition.index}", "restore it, or run `lethe recover`"
    if known.topic_id == "":
        return None
    if known.topic_id != partition.topic_id:
        return f"LOG_RESET: {where} was recreated, and has lost its commits; {restore}"
    if end < known.pair.apply:
        return (
            f"LOG_RESET: {where} ends at {end}, but the store has followed it to "
            f"{known.pair.apply}: it has lost commits; {restore}"
        )
    begin = reader.bounds(partition).begin
    if known.lowest < begin:
        return (
            f"STORE_TOO_OLD: {where} begins at {begin}, but the store has followed it only to "
            f"{known.lowest}: restore a newer backup of the store, or register its models again "
            "with --replace"
        )
    return None


def _followed(store: ModelStore, ends: Mapping[Partition, int]) -> Check:
    """Check that everything appended is applied and published, or is so within seconds."""
    deadline = time.monotonic() + _CATCH_UP_SECONDS
    while True:
        behind = [
            f"partition {one.index} is applied up to {cursors.pair.apply} and published up to "
            f"{cursors.pair.published}, of {ends[one]}"
            for one, cursors in _read(store, list(ends)).items()
            if cursors.pair.lower < ends[one]
        ]
        if not behind:
            count = sum(end > 0 for end in ends.values())
            detail = f"applied and published to the end; {count} of {len(ends)} partitions in use"
            return Check("commits", True, detail)
        if time.monotonic() > deadline:
            return Check("commits", False, f"{'; '.join(behind)}: start `lethe work deletions`")
        time.sleep(_PAUSE)
