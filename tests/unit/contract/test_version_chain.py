"""The chain is what docs/chain.md says, and whatever breaks it is refused."""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lethe.consumers.contract import topics, version_chain
from lethe.consumers.contract.events import Parameters, Version
from lethe.consumers.log.base import Message
from lethe.consumers.subscriber.history import HistoryReader, history
from lethe.engine.errors import BrokenChain
from tests.support.memory_log import MemoryLog
from tests.support.published import Release, altered, publish, release, releases, version_message

DOC = Path(__file__).parents[3] / "docs" / "chain.md"


def documented(name: str) -> str:
    """Return the code block of this name in the document."""
    [block] = re.findall(
        rf"<!-- {re.escape(name)} -->\n```\w+\n(.*?)\n```", DOC.read_text("utf-8"), re.S
    )
    return str(block)


def filled(*messages: Message, partitions: int = 1) -> MemoryLog:
    log = MemoryLog()
    log.ensure_topics(topics.specs(partitions))
    publish(log, *messages)
    return log


def read(log: MemoryLog, known: tuple[int, str] | None = None) -> list[int]:
    return [version.version for version in history(log.reader(), "churn", known=known)]


# -- the documented encoding ----------------------------------------------------------------------


def test_the_documented_parameters_have_the_documented_digest() -> None:
    event = Parameters.model_validate_json(documented("parameters-0"))
    expected = documented("parameters-digest-0")
    assert event.parameters_digest == expected
    # By hand, as a stranger would do it from the page.
    numbers = struct.pack("<3d", 0.25, -1.5, 0.1)
    assert bytes.fromhex(documented("numbers-0")) == numbers
    layout = documented("layout-0").encode()
    by_hand = hashlib.sha256(b"lethe.parameters.v1\n" + layout + b"\n" + numbers).hexdigest()
    assert by_hand == expected
    # And by the program.
    found = version_chain.parameters_digest(
        version_chain.theta_of(event), event.feature_names, event.target_names, fit_intercept=True
    )
    assert found == expected


@pytest.mark.parametrize("number", [0, 1])
def test_the_documented_versions_have_their_digests(number: int) -> None:
    text = documented(f"version-{number}")
    version = Version.model_validate_json(text)
    assert version_chain.content_digest(json.loads(text)) == version.digest
    assert version_chain.version_digest(version) == version.digest


def test_the_documented_canonical_form_is_what_is_hashed() -> None:
    canonical = documented("canonical-0").encode()
    assert hashlib.sha256(canonical).hexdigest() == documented("digest-0")
    version = json.loads(documented("version-0"))
    assert version.pop("digest") == documented("digest-0")
    assert version_chain.canonical(version) == canonical


def test_the_documented_versions_are_a_chain_and_own_their_parameters() -> None:
    first, second = (Version.model_validate_json(documented(f"version-{n}")) for n in (0, 1))
    version_chain.check_version(first, None)
    version_chain.check_version(second, first)
    event = Parameters.model_validate_json(documented("parameters-0"))
    version_chain.check_parameters(event, first, version_chain.theta_of(event))


def test_a_version_of_an_earlier_commit_than_the_one_before_is_refused() -> None:
    first, second = (Version.model_validate_json(documented(f"version-{n}")) for n in (0, 1))
    late = first.model_copy(update={"commit": 2})
    late = late.model_copy(update={"digest": version_chain.version_digest(late)})
    follows = second.model_copy(update={"prev_digest": late.digest})
    with pytest.raises(BrokenChain, match="commit 2 does not follow commit 2 of the version"):
        version_chain.check_link(follows, late)
    version_chain.check_link(follows.model_copy(update={"commit": 3}), late)


def test_the_digest_of_several_targets_is_row_major_with_the_intercepts_last() -> None:
    theta = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    layout = (
        b'{"feature_names":["a","b"],"fit_intercept":true,"shape":[2,2],"target_names":["y","z"]}'
    )
    expected = hashlib.sha256(
        b"lethe.parameters.v1\n" + layout + b"\n" + struct.pack("<6d", *range(1, 7))
    ).hexdigest()
    found = version_chain.parameters_digest(theta, ["a", "b"], ["y", "z"], fit_intercept=True)
    assert found == expected


def test_the_digest_covers_the_names_of_classes_where_there_are_some() -> None:
    theta = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    layout = (
        b'{"classes":["p","q","r"],"feature_names":["a"],"fit_intercept":true,"shape":[1,3],'
        b'"target_names":["y"]}'
    )
    expected = hashlib.sha256(
        b"lethe.parameters.v1\n" + layout + b"\n" + struct.pack("<6d", *range(1, 7))
    ).hexdigest()
    classes = ["p", "q", "r"]
    found = version_chain.parameters_digest(
        theta, ["a"], ["y"], fit_intercept=True, classes=classes
    )
    assert found == expected


def test_an_event_without_classes_has_no_such_member_and_the_same_bytes_as_ever() -> None:
    event = Parameters.model_validate_json(documented("parameters-0"))
    assert json.loads(event.value()) == json.loads(documented("parameters-0"))
    assert (
        event.value() == documented("parameters-0").replace(": ", ":").replace(", ", ",").encode()
    )
    named = event.model_copy(update={"classes": ("no", "yes")})
    assert json.loads(named.value())["classes"] == ["no", "yes"]
    assert Parameters.model_validate_json(named.value()) == named
    # Whoever swaps the names of two classes is found out
    theta = version_chain.theta_of(event)
    version = Version.model_validate_json(documented("version-0"))
    with pytest.raises(BrokenChain, match="not those of the version"):
        version_chain.check_parameters(named, version, theta)


# -- histories ------------------------------------------------------------------------------------


def test_a_sound_history_is_yielded_from_the_first_version_on() -> None:
    made = releases(5)
    others = releases(3, "others")
    messages = [version_message(one.version) for pair in zip(made, others * 2, strict=False)
                for one in pair]  # fmt: skip
    assert read(filled(*messages)) == [0, 1, 2, 3, 4]
    assert read(filled()) == []


def test_a_field_that_this_program_does_not_know_is_covered_and_ignored() -> None:
    data = json.loads(releases(1)[0].version.value())
    data["colour"] = {"of": ["the", "sky", 1.50]}
    data["digest"] = version_chain.content_digest(data)
    newer = Message(topics.VERSIONS, b"churn", json.dumps(data).encode())
    assert read(filled(newer)) == [0]
    with pytest.raises(BrokenChain, match="version 0: its digest does not match"):
        read(filled(altered(newer, lambda event: event.update(colour="grey"))))


def _sign(data: dict[str, Any]) -> None:
    data["digest"] = version_chain.content_digest(data)


def _flip_count(data: dict[str, Any]) -> None:
    data["rows_deleted"] ^= 1


def _flip_digest(data: dict[str, Any]) -> None:
    data["digest"] = f"{int(data['digest'], 16) ^ 1:064x}"


def _relink(data: dict[str, Any]) -> None:
    data["prev_digest"] = "0" * 64
    _sign(data)


def _other_model(data: dict[str, Any]) -> None:
    data["model_id"] = "other"
    _sign(data)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_flip_count, "version 2: its digest does not match"),
        (_flip_digest, "version 2: its digest does not match"),
        (_relink, "version 2: does not link to version 1"),
        (_other_model, "not about the model"),
        (dict.clear, "not about the model"),
        (lambda data: data.pop("error"), "is not a version"),
        (lambda data: data.update(rows_live=10**400), "is not a version"),
    ],
)
def test_an_altered_version_is_refused(
    change: Callable[[dict[str, Any]], object], says: str
) -> None:
    messages = [version_message(one.version) for one in releases(4)]
    messages[2] = altered(messages[2], change)
    with pytest.raises(BrokenChain, match=f"model 'churn'.*{says}"):
        read(filled(*messages))


def test_every_flipped_bit_of_a_version_is_refused() -> None:
    first, last = releases(2)
    value = last.version.value()
    for at in range(0, len(value) * 8, 7):
        flipped = bytearray(value)
        flipped[at // 8] ^= 1 << at % 8
        message = Message(topics.VERSIONS, b"churn", bytes(flipped))
        with pytest.raises(BrokenChain):
            read(filled(version_message(first.version), message))


@pytest.mark.parametrize("value", [None, b"", b"garbage{", b"[]", b'"text"', b"[" * 100_000])
def test_a_record_under_the_models_key_that_is_no_version_is_refused(value: bytes | None) -> None:
    first = version_message(releases(1)[0].version)
    with pytest.raises(BrokenChain, match=r"model 'churn': the record in lethe.versions/0 at off"):
        read(filled(first, Message(topics.VERSIONS, b"churn", value)))
    # Under another key it is another model's matter.
    assert read(filled(first, Message(topics.VERSIONS, b"other", value))) == [0]


def test_an_event_of_another_type_is_refused() -> None:
    newer = Message(topics.VERSIONS, b"churn", b"{}", (("ce_type", b"lethe.model.version.v2"),))
    with pytest.raises(BrokenChain, match=r"of type lethe.model.version.v2.*upgrade"):
        read(filled(newer))


def test_a_dropped_version_is_refused() -> None:
    messages = [version_message(one.version) for one in releases(4)]
    with pytest.raises(BrokenChain, match="version 2: follows version 0; a version is missing"):
        read(filled(messages[0], *messages[2:]))
    with pytest.raises(BrokenChain, match="version 1: history begins with it"):
        read(filled(*messages[1:]))


def test_versions_in_another_order_are_refused() -> None:
    made = [version_message(one.version) for one in releases(4)]
    with pytest.raises(BrokenChain, match="version 2: follows version 0"):
        read(filled(made[0], made[2], made[1], made[3]))


def test_a_repeat_is_dropped_and_a_fork_is_refused() -> None:
    made = releases(4)
    messages = [version_message(one.version) for one in made]
    assert read(filled(*messages[:3], *messages[1:])) == [0, 1, 2, 3]
    fork = release(made[1], [9.0, 9.0, 9.0])
    with pytest.raises(BrokenChain, match="version 2: there are two different ones"):
        read(filled(*messages, version_message(fork.version)))


def test_a_history_that_goes_back_and_on_another_way_is_refused() -> None:
    made = releases(4)
    rolled: list[Release] = made[:2]
    for theta in ([9.0, 9.0, 9.0], [8.0, 8.0, 8.0], [7.0, 7.0, 7.0]):
        rolled.append(release(rolled[-1], theta))
    with pytest.raises(BrokenChain, match="version 2: there are two different ones"):
        read(filled(*[version_message(one.version) for one in [*made, *rolled[2:]]]))


def test_repeats_from_long_ago_are_compared_with_the_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lethe.consumers.subscriber.history._RECENT", 2)
    made = releases(6)
    messages = [version_message(one.version) for one in made]
    assert read(filled(*messages, messages[1])) == [0, 1, 2, 3, 4, 5]
    fork = release(made[0], [9.0, 9.0, 9.0])
    with pytest.raises(BrokenChain, match="version 1: there are two different ones"):
        read(filled(*messages, version_message(fork.version)))


def test_memory_does_not_grow_with_the_history() -> None:
    made = releases(1100)
    reader = HistoryReader(
        filled(*[version_message(one.version) for one in made]).reader(), "churn"
    )
    count = 0
    while not reader.caught_up:
        count += len(reader.advance(0.0))
    assert count == 1100
    assert list(reader._recent) == list(range(1100 - 1024, 1100))


# -- partitions that were added -------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_history_over_several_partitions_is_one_chain(first: int) -> None:
    messages = [version_message(one.version) for one in releases(9)]
    log = filled(partitions=3)
    places = log.partitions(topics.VERSIONS)
    for at, message in enumerate(messages):  # three versions to a partition, in any order of them
        _put(log, (first + at // 3) % len(places), message)
    assert read(log) == list(range(9))


def test_a_version_that_is_in_no_partition_is_missed() -> None:
    messages = [version_message(one.version) for one in releases(6)]
    log = filled(partitions=2)
    for at, message in enumerate(messages):
        if at != 2:
            _put(log, int(at < 3), message)
    with pytest.raises(BrokenChain, match="version 3: follows version 1"):
        read(log)


def test_partitions_that_are_added_while_it_is_followed_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lethe.consumers.subscriber.history._SWEEP_SECONDS", 0.0)
    messages = [version_message(one.version) for one in releases(2)]
    log = filled(messages[0])
    reader = HistoryReader(log.reader(), "churn")
    assert [v.version for v in reader.advance(0.0)] == [0]
    log.add_partitions(topics.VERSIONS, 5)
    _put(log, 4, messages[1])
    assert [v.version for _ in range(8) for v in reader.advance(0.0)] == [1]


def _put(log: MemoryLog, index: int, message: Message) -> None:
    """Send a message to a partition, as a producer with another partitioner would."""
    held = log.partitions(message.topic)[index]
    sent = MemoryLog()
    sent.ensure_topics([spec for spec in topics.specs(1) if spec.name == message.topic])
    publish(sent, message)
    record = sent.partitions(message.topic)[0].records[0]
    held.records.append(
        type(record)(held.identity, held.bounds().end, record.key, record.value, record.headers)
    )


# -- the anchor -----------------------------------------------------------------------------------


def test_a_known_version_must_be_part_of_the_history() -> None:
    made = releases(4)
    log = filled(*[version_message(one.version) for one in made])
    for one in made:
        assert read(log, (one.version.version, one.version.digest)) == [0, 1, 2, 3]
    with pytest.raises(BrokenChain, match="version 2: version 2 is known as ffff"):
        read(log, (2, "f" * 64))


def test_a_history_that_ends_before_the_known_version_was_rolled_back() -> None:
    made = releases(4)
    known = (3, made[3].version.digest)
    log = filled(*[version_message(one.version) for one in made[:3]])
    with pytest.raises(BrokenChain, match="version 3 is known, but its history ends with version"):
        read(log, known)
    with pytest.raises(BrokenChain, match="history is empty"):
        read(filled(), known)


def test_an_anchor_stands_for_versions_that_were_removed_before_it() -> None:
    made = releases(6)
    messages = [version_message(one.version) for one in made]
    known = (3, made[3].version.digest)
    assert read(filled(*messages[2:]), known) == [2, 3, 4, 5]
    assert read(filled(*messages[4:]), known) == [4, 5]
    with pytest.raises(BrokenChain, match="version 5: history begins with it"):
        read(filled(*messages[5:]), known)
    with pytest.raises(BrokenChain, match="version 4: version 3 is known as ffff"):
        read(filled(*messages[4:]), (3, "f" * 64))
