"""Where keys are trusted, the index shows a version if a trusted key vouches for it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lethe.consumers.contract import topics
from lethe.consumers.contract.events import MODEL_VERSION, Version
from lethe.consumers.contract.signatures import Signer, TrustedKeys
from lethe.consumers.log.base import Message
from lethe.consumers.server.index.follower import Feed
from lethe.consumers.server.index.schema import IndexFile
from tests.support.memory_log import MemoryLog
from tests.support.published import releases, version_message

SIGNER, STRANGER = (Signer(Ed25519PrivateKey.generate()) for _ in range(2))
TRUSTED = TrustedKeys.of([SIGNER.public])


def message(version: Version, signer: Signer | None = None) -> Message:
    plain = version_message(version)
    if signer is None:
        return plain
    return replace(plain, headers=signer.signed(MODEL_VERSION, plain.value or b"", plain.headers))


def shown(
    file: IndexFile, sent: Sequence[Message], trusted: TrustedKeys | None = TRUSTED
) -> tuple[list[tuple[int, str]], int]:
    """Return number and digest of the versions in the index, and how many records it left out."""
    log = MemoryLog()
    log.ensure_topics(topics.specs(1))
    with (
        closing(log.producer()) as producer,
        closing(log.reader()) as reader,
        closing(file.open_for_writing(trusted)) as connection,
    ):
        feed = Feed(connection, reader, trusted)
        for one in sent:
            producer.publish([one])
            while feed.advance() or feed.behind:
                pass
        rows = connection.execute("SELECT version, digest FROM versions ORDER BY version")
        return rows.fetchall(), feed.ignored


@pytest.mark.parametrize("signer", [None, STRANGER])
def test_a_version_that_nobody_vouches_for_takes_no_place(
    tmp_path: Path, signer: Signer | None
) -> None:
    [first, second, third] = (one.version for one in releases(3))
    forged = releases(3, seed=1)[1].version
    before = [message(first, SIGNER), message(forged, signer)]
    after = [message(second, SIGNER), message(third, signer)]

    found, ignored = shown(IndexFile(tmp_path), before + after)

    assert found == [(0, first.digest), (1, second.digest)]
    assert ignored == 2


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (0, 2, 3, 1)])
def test_versions_from_before_signing_are_shown_once_a_signed_one_follows(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    """In whatever order partitions are read."""
    made = [one.version for one in releases(4)]
    sent = [message(made[i], SIGNER if i == 2 else None) for i in order]

    found, ignored = shown(IndexFile(tmp_path), sent)

    assert found == [(i, made[i].digest) for i in range(3)]
    assert ignored == 1, "the newest is signed by nobody"


def test_an_index_that_was_filled_without_keys_is_made_again_with_them(tmp_path: Path) -> None:
    file, [first] = IndexFile(tmp_path), releases(1)
    assert shown(file, [message(first.version)], None)[0] == [(0, first.version.digest)]

    assert shown(file, []) == ([], 0)
    assert shown(file, [message(first.version, SIGNER)])[0] == [(0, first.version.digest)]
    assert shown(file, [])[0] == [(0, first.version.digest)], "kept under the same keys"
    assert shown(file, [], TrustedKeys.of([STRANGER.public])) == ([], 0)
