"""Readers that trust keys load what these signed, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lethe.consumers import ModelSubscriber
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import MODEL_VERSION
from lethe.consumers.contract.signatures import HEADER, Signer, TrustedKeys, new_key_file
from lethe.consumers.contract.signed_log import SignedLog
from lethe.consumers.log.base import Log, Message
from lethe.consumers.service.configuration.settings import Settings
from lethe.consumers.service.configuration.signing_keys import (
    OWN_KEY,
    existing_signer,
    key_path,
    signer_for_publishing,
    trusted_keys,
)
from lethe.consumers.subscriber.history import HistoryReader, history
from lethe.engine.errors import BrokenChain, InvalidData, Unavailable
from tests.support.memory_log import MemoryLog
from tests.support.published import (
    Release,
    altered,
    parameters_message,
    publish,
    publish_all,
    release,
    releases,
    version_message,
)

OURS, NEXT, STRANGER = (
    Signer(Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)) for seed in (1, 2, 3)
)
TRUSTED = TrustedKeys.of([OURS.public])


@pytest.fixture
def log() -> MemoryLog:
    made = MemoryLog()
    made.ensure_topics(topics.specs(1))
    return made


def signed(message: Message, signer: Signer = OURS) -> Message:
    headers = signer.signed(MODEL_VERSION, message.value or b"", message.headers)
    return replace(message, headers=headers)


def messages(made: Sequence[Release], signer: Signer = OURS) -> list[Message]:
    return [signed(version_message(one.version), signer) for one in made]


def read(log: Log, trusted: TrustedKeys | None = TRUSTED) -> list[int]:
    return [version.version for version in history(log.reader(), "churn", trusted=trusted)]


def test_a_history_that_a_trusted_key_signed_is_read(log: MemoryLog) -> None:
    publish(log, *messages(releases(4)))
    assert read(log) == [0, 1, 2, 3]


def test_nothing_signed_is_nothing_loaded(log: MemoryLog) -> None:
    publish_all(log, releases(3))
    assert read(log, None) == [0, 1, 2]
    with pytest.raises(BrokenChain, match="version 2: no trusted key signed it"):
        read(log)


def test_no_version_is_loaded_with_a_bit_flipped() -> None:
    first, last = messages(releases(2))
    value = last.value or b""
    for at in range(0, len(value) * 8, 61):
        flipped = bytearray(value)
        flipped[at // 8] ^= 1 << at % 8
        log = MemoryLog()
        log.ensure_topics(topics.specs(1))
        publish(log, first, replace(last, value=bytes(flipped)))
        assert read(log) == [0]


def test_a_version_made_up_with_right_digests_and_links_stops_nobody(log: MemoryLog) -> None:
    made = releases(3)
    forged = release(made[1], [9.0, 9.0, 9.0])
    publish(log, *messages(made[:2]), version_message(forged.version))
    assert read(log) == [0, 1]
    publish(log, *messages([forged], STRANGER), *messages(made[2:]))
    assert read(log) == [0, 1, 2]


def test_a_version_that_an_untrusted_key_signed_again_is_passed_over(log: MemoryLog) -> None:
    made = messages(releases(3))
    publish(log, *made[:2], signed(made[2], STRANGER))
    assert read(log) == [0, 1]


FORGED = {
    "nothing": lambda _made: Message(topics.VERSIONS, b"churn", None),
    "garbage": lambda _made: Message(topics.VERSIONS, b"churn", b"{"),
    "far ahead": lambda made: altered(
        version_message(made[0].version), lambda data: data.update(version=10**12)
    ),
    "unsigned": lambda made: version_message(release(made[0], [9.0, 9.0, 9.0]).version),
    "another model's": lambda made: signed(
        altered(version_message(made[0].version), lambda data: data.update(model_id="other"))
    ),
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
@pytest.mark.parametrize("at", range(4))
def test_whoever_may_write_to_the_topic_stops_no_reader_with_keys(
    log: MemoryLog, forged: Callable[[Sequence[Release]], Message], at: int
) -> None:
    made = releases(3)
    sent = [version_message(made[0].version), *messages(made[1:])]  # signing began with version 1
    publish(log, *sent[:at], forged(made), *sent[at:])
    reader = HistoryReader(log.reader(), "churn", trusted=TRUSTED)
    assert [version.version for version in reader.versions()] == [0, 1, 2]
    assert reader.passed_over == 1
    others = [signed(one, STRANGER) for one in sent]
    publish(log, *sent, *others)
    assert [version.version for version in reader.advance(0.0)] == []
    assert reader.passed_over == 1, "repeats are not forged"


def test_a_repeat_from_long_ago_is_found_among_what_others_wrote(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lethe.consumers.subscriber.history._RECENT", 1)
    made = releases(5)
    fork = release(made[0], [9.0, 9.0, 9.0])
    publish(log, *messages(made[:1]), version_message(fork.version), *messages(made[1:]))
    publish(log, *messages(made[1:2]))
    assert read(log) == [0, 1, 2, 3, 4]
    publish(log, *messages([fork]))
    with pytest.raises(BrokenChain, match="version 1: there are two different ones"):
        read(log)


def test_a_whole_history_of_a_stranger_is_refused(log: MemoryLog) -> None:
    publish(log, *messages(releases(3), STRANGER))
    with pytest.raises(BrokenChain, match="no trusted key signed it"):
        read(log)


def test_a_strangers_signature_under_our_keys_name_is_none(log: MemoryLog) -> None:
    made = messages(releases(2))
    forged = STRANGER.sign(MODEL_VERSION, made[1].value or b"")
    named = forged.replace(STRANGER.key_id.encode(), OURS.key_id.encode())
    others = tuple(pair for pair in made[1].headers if pair[0] != HEADER)
    publish(log, made[0], replace(made[1], headers=(*others, (HEADER, named))))
    assert read(log) == [0]


def test_the_signature_of_another_version_is_none(log: MemoryLog) -> None:
    made = messages(releases(3))
    publish(log, *made[:2], replace(made[2], headers=made[1].headers))
    assert read(log) == [0, 1]


def test_dropped_reordered_rolled_back_and_forked_histories_are_refused_signed_or_not() -> None:
    made = releases(4)
    fork = release(made[1], [9.0, 9.0, 9.0])
    whole = messages(made)
    cases = {
        "a version is missing": [whole[0], *whole[2:]],
        "history begins with it": whole[1:],
        "follows version 0": [whole[0], whole[2], whole[1], whole[3]],
        "two different ones": [*whole, *messages([fork])],
        "rolled back": whole[:2],
    }
    for says, sent in cases.items():
        log = MemoryLog()
        log.ensure_topics(topics.specs(1))
        publish(log, *sent)
        known = (3, made[3].version.digest) if says == "rolled back" else None
        with pytest.raises(BrokenChain, match=says):
            list(history(log.reader(), "churn", known=known, trusted=TRUSTED))


# -- beginning, and changing keys -----------------------------------------------------------------


def test_a_signed_version_vouches_for_all_before_it(log: MemoryLog) -> None:
    made = releases(4)
    publish(log, *[version_message(one.version) for one in made[:3]])
    with pytest.raises(BrokenChain):
        read(log)
    publish(log, *messages(made[3:]))
    assert read(log) == [0, 1, 2, 3]
    publish(log, version_message(release(made[3], [1.0, 2.0, 3.0]).version))
    assert read(log) == [0, 1, 2, 3]


def test_keys_change_while_both_are_trusted_and_the_old_one_can_be_dropped(log: MemoryLog) -> None:
    made = releases(4)
    publish(log, *messages(made[:2], OURS), *messages(made[2:], NEXT))
    assert read(log, TRUSTED | TrustedKeys.of([NEXT.public])) == [0, 1, 2, 3]
    assert read(log, TrustedKeys.of([NEXT.public])) == [0, 1, 2, 3]
    assert read(log, TRUSTED) == [0, 1]


def test_a_repeat_that_another_worker_signed_is_dropped(log: MemoryLog) -> None:
    made = releases(3)
    publish(log, *messages(made), *messages(made[1:2], NEXT))
    assert read(log, TRUSTED | TrustedKeys.of([NEXT.public])) == [0, 1, 2]
    assert read(log) == [0, 1, 2]


# -- publishing -----------------------------------------------------------------------------------


def test_a_signed_log_signs_what_is_evidence_by_its_topic(log: MemoryLog) -> None:
    """A dead letter keeps its headers: what they say must not get our signature."""
    ours = SignedLog(log, lambda: OURS)
    made = releases(2)
    publish_all(ours, made)
    forged = version_message(release(made[1], [9.0, 9.0, 9.0]).version)
    publish(ours, replace(forged, topic=topics.DEAD_LETTERS))
    assert read(log) == [0, 1]
    reader = log.reader()
    [letters] = reader.partitions(topics.DEAD_LETTERS)
    [letter], _ = reader.read(letters, 0, 0.0, 10)
    assert HEADER not in dict(letter.headers)
    with ModelSubscriber(log, trusted=TRUSTED) as models:
        assert models.latest("churn").version == 1


def test_parameters_that_nobody_signed_are_passed_over(log: MemoryLog) -> None:
    ours = SignedLog(log, lambda: OURS)
    made = releases(2)
    publish_all(ours, made[:1])
    publish(log, parameters_message(made[1].parameters))
    publish(ours, version_message(made[1].version))
    with ModelSubscriber(log, trusted=TRUSTED) as models:
        with pytest.raises(Unavailable, match="parameters of version 1 are not on the topic"):
            models.latest("churn", timeout=0.2)
        publish(ours, parameters_message(made[1].parameters))
        assert models.latest("churn", timeout=1.0).version == 1


def test_signed_parameters_that_were_altered_are_passed_over(log: MemoryLog) -> None:
    ours = SignedLog(log, lambda: OURS)
    [one] = releases(1)
    late = datetime(2030, 1, 1, tzinfo=UTC)
    message = parameters_message(one.parameters)
    headers = OURS.signed("lethe.model.parameters.v1", message.value or b"", message.headers)
    # created_at is in no digest: the signature alone covers it
    forged = altered(
        replace(message, headers=headers), lambda data: data.update(created_at=late.isoformat())
    )
    publish(log, forged)
    publish_all(ours, [one])
    with ModelSubscriber(log, trusted=TRUSTED) as models:
        assert models.latest("churn", timeout=1.0).created_at != late


def test_wrong_parameters_of_before_the_first_signature_are_passed_over(log: MemoryLog) -> None:
    made = releases(2)
    wrong = (
        altered(parameters_message(made[0].parameters), lambda data: data.update(uri="http://x/")),
        parameters_message(release(made[0], [9.0, 9.0, 9.0]).parameters),
    )
    forged = [
        altered(
            message,
            lambda data: data.update(
                version=0, digest=made[0].version.digest, prev_digest=made[0].version.prev_digest
            ),
        )
        for message in wrong
    ]
    forged[0] = altered(forged[0], lambda data: data.update(theta=None, intercept=None))
    publish(log, *forged)
    publish_all(log, made[:1])
    publish_all(SignedLog(log, lambda: OURS), made[1:])
    with ModelSubscriber(log, trusted=TRUSTED) as models:
        found = models.follow("churn", from_version=0, timeout=0.2)
        assert [version.version for version in found] == [0, 1]


# -- which keys -----------------------------------------------------------------------------------


def test_the_data_directory_has_a_key_of_its_own_that_is_made_once(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    assert existing_signer(settings) is None
    made = signer_for_publishing(settings)
    again = signer_for_publishing(settings)
    assert made is not None
    assert again is not None
    assert made.public == again.public
    assert (tmp_path / OWN_KEY).stat().st_mode & 0o777 == 0o600
    assert trusted_keys(settings) is None


def test_with_a_store_of_ones_own_nothing_is_signed_unless_a_key_is_named(tmp_path: Path) -> None:
    elsewhere = Settings.model_validate({"data_dir": tmp_path, "redis_url": "redis://elsewhere"})
    assert key_path(elsewhere) is None
    assert signer_for_publishing(elsewhere) is None
    assert not (tmp_path / OWN_KEY).exists()
    named = elsewhere.model_copy(update={"signing_key": tmp_path / "absent.pem"})
    with pytest.raises(InvalidData, match="cannot be read"):
        signer_for_publishing(named)
    key = new_key_file(tmp_path / "named.pem")
    named = elsewhere.model_copy(update={"signing_key": tmp_path / "named.pem"})
    found = signer_for_publishing(named)
    assert found is not None
    assert found.public == key.public


def test_ones_own_key_is_trusted_with_those_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "trusted").write_text(STRANGER.public_text)
    settings = Settings(data_dir=tmp_path, trusted_keys=tmp_path / "trusted")
    own = signer_for_publishing(settings)
    trusted = trusted_keys(settings)
    assert own is not None
    assert trusted is not None
    assert set(trusted.keys) == {own.key_id, STRANGER.key_id}
