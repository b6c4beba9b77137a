"""Where a worker goes on, and when it must not."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from consumers import topics
from consumers.branches import Answered, Place, check_history
from consumers.events import Version
from consumers.log.base import Bounds, Message, Partition
from consumers.log.memory import MemoryLog
from consumers.takeover import (
    is_behind,
    models_of,
    newest_parameters,
    parameter_tails,
    start_offset,
    version_tails,
)
from engine.errors import LogReset, VersionFork
from engine.store.head import ErrorRecord
from engine.store.keys import ModelKeys
from engine.store.survey import Surveyed

PARTITION = Partition("lethe.deletions", "topic-id", 3)


def version(number: int, digest: str = "d") -> Version:
    return Version(
        model_id="m",
        generation=0,
        version=number,
        prev_digest="",
        digest=digest,
        parameters_digest="p",
        method="pru",
        kind="linear",
        status="ACTIVE",
        rows_live=1,
        rows_deleted=0,
        error=ErrorRecord(
            value=0.0, kind="exact", bound=0.0, certified_version=0, budget=0.01, relative=0.0
        ),
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def state(number: int, digest: str = "d") -> Surveyed:
    return Surveyed("m", ModelKeys.of_model("m"), number, digest, {}, frozenset(), False, False)


@pytest.fixture
def log() -> MemoryLog:
    log = MemoryLog()
    log.ensure_topics(topics.specs(4))
    return log


def test_without_a_watermark_reading_begins_at_the_beginning() -> None:
    assert start_offset(PARTITION, None, Bounds(17, 20)) == 17


def test_reading_goes_on_at_the_watermark_also_when_everything_before_it_is_gone() -> None:
    assert start_offset(PARTITION, 20, Bounds(20, 20)) == 20


def test_a_log_that_ends_before_the_watermark_halts() -> None:
    with pytest.raises(LogReset, match=r"lethe.deletions/3 ends at offset 5"):
        start_offset(PARTITION, 6, Bounds(0, 5))


def test_records_removed_before_they_were_decided_halt_and_are_counted() -> None:
    with pytest.raises(LogReset, match="4 records were removed before they were decided"):
        start_offset(PARTITION, 6, Bounds(10, 15))


@pytest.mark.parametrize("published", [None, version(4), version(3), version(2, "older")])
def test_a_state_that_agrees_with_history_is_no_fork(published: Version | None) -> None:
    check_history(state(3), published)


def test_another_digest_is_a_fork() -> None:
    with pytest.raises(VersionFork, match="version 3 was published with another digest"):
        check_history(state(3), version(3, "another"))


@pytest.mark.parametrize(
    ("published", "answered", "behind"),
    [
        (None, {}, False),
        (version(3), {}, False),
        (version(4), {}, True),
        (version(3), {(topics.DELETIONS, 0): 6}, False),
        (version(3), {(topics.DELETIONS, 0): 7}, True),
        (version(3), {(topics.DELETIONS, 9): 7}, False),
    ],
)
def test_a_state_is_behind_versions_and_receipts_that_it_does_not_know(
    log: MemoryLog, published: Version | None, answered: dict[Place, int], behind: bool
) -> None:
    reader = log.reader()
    partition = reader.partitions(topics.DELETIONS)[0]
    stored = replace(state(3), offsets={str(partition): 7})

    assert is_behind(stored, published, Answered(answered), reader) is behind


def test_a_state_is_behind_a_final_receipt_of_a_request_that_it_defers(log: MemoryLog) -> None:
    stored = replace(state(3), deferred=frozenset({"waits"}))
    both, another = (
        dict.fromkeys(names, (0, b"")) for names in (("another", "waits"), ("another",))
    )
    assert is_behind(stored, None, Answered(finals=both), log.reader())
    assert not is_behind(stored, None, Answered(finals=another), log.reader())


def test_tails_are_the_newest_version_and_the_last_parameters(log: MemoryLog) -> None:
    producer = log.producer()
    for number in (0, 1, 1, 0):  # the last is a late repeat
        value = version(number).value()
        producer.publish([Message(topics.VERSIONS, b"m", value)])
        parameters = {
            **version(number).model_dump(mode="json"),
            "feature_names": ["a"],
            "target_names": ["y"],
            "fit_intercept": False,
            "theta": [1.0],
        }

        producer.publish([Message(topics.MODELS, b"m", json.dumps(parameters).encode())])
    reader = log.reader()

    assert version_tails(reader, ["m", "other"])["m"].version == 1
    assert parameter_tails(reader, ["m", "other"]) == {"m": (0, version(0).digest)}
    assert version_tails(reader, []) == {}


def test_foreign_records_under_a_models_key_do_not_stop_a_worker(log: MemoryLog) -> None:
    producer = log.producer()
    producer.publish([Message(topics.VERSIONS, b"m", version(5).value())])
    producer.publish([Message(topics.VERSIONS, b"m", b"garbage")])
    producer.publish([Message(topics.VERSIONS, b"m", b'{"version": 1e999}')])
    producer.publish([Message(topics.MODELS, b"m", b'{"model_id": "m"}')])
    reader = log.reader()

    assert version_tails(reader, ["m"])["m"].version == 5
    assert parameter_tails(reader, ["m"]) == {}


def test_newest_parameters_are_published_again_byte_for_byte() -> None:
    stored = json.dumps(
        {
            **version(3).model_dump(mode="json"),
            "feature_names": ["a"],
            "target_names": ["y"],
            "fit_intercept": False,
            "theta": [1.0],
        }
    ).encode()

    again = newest_parameters(stored)

    assert again is not None
    assert (again.key, again.value) == (b"m", stored)
    assert newest_parameters(None) is None


def test_a_model_is_found_behind_a_thousand_versions_of_others() -> None:
    log = MemoryLog()
    log.ensure_topics(topics.specs(1))
    producer = log.producer()
    producer.publish([Message(topics.VERSIONS, b"m", version(7).value())])
    crowd = version(1).value().replace(b'"model_id":"m"', b'"model_id":"crowd"')
    producer.publish(Message(topics.VERSIONS, b"crowd", crowd) for _ in range(2500))

    assert version_tails(log.reader(), ["m"])["m"].version == 7


def test_a_worker_settles_the_models_of_its_partitions(log: MemoryLog) -> None:
    reader = log.reader()
    names = [f"model-{i}" for i in range(50)]
    partitions = reader.partitions(topics.DELETIONS)

    split = [models_of(reader, names, [partition]) for partition in partitions]

    assert sorted(name for part in split for name in part) == sorted(names)
    assert all(split)
    assert models_of(reader, names, [replace(partitions[0], topic_id="made again")]) == split[0]
