"""What the store says of a model, compared with what was published of it.

A takeover compares before it publishes: what does not go together must not reach the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from consumers.events import Receipt, Version
from consumers.lost_history import OUTSIDE
from consumers.reach import FARTHEST
from engine.errors import VersionFork
from engine.merkle import leaf_hash
from engine.store.outbox import Outbox, Stage
from engine.store.reading import record
from engine.store.survey import Surveyed

Place: TypeAlias = tuple[str, int]
"""A partition of a topic by name and number, as receipts name it."""


@dataclass
class Answered:
    """What the newest receipts say of a model.

    Attributes
    ----------
    last
        By partition, the last of its records that has a receipt.
    finals
        By request that has a final receipt: the version that this names, and its hash.
    """

    last: dict[Place, int] = field(default_factory=dict)
    finals: dict[str, tuple[int, bytes]] = field(default_factory=dict)

    def add(self, receipt: Receipt) -> None:
        """Take what a receipt says of its request."""
        if _counts(receipt):
            self.finals[receipt.request_id] = _named(receipt)

    def contradicts(self, receipt: Receipt) -> bool:
        """Return whether a receipt answers a request that was answered otherwise.

        After `--replace` over a loss, lost requests are decided again, for a later version.
        """
        if not _counts(receipt) or receipt.request_id not in self.finals:
            return False
        version, known = self.finals[receipt.request_id]
        return _named(receipt)[0] <= version and _named(receipt)[1] != known


def _counts(receipt: Receipt) -> bool:
    """Return whether this is what a request to this registered model came to."""
    return receipt.final and receipt.code not in OUTSIDE


def _named(receipt: Receipt) -> tuple[int, bytes]:
    version = -1 if receipt.version is None else receipt.version
    return version, leaf_hash(receipt.value())


def check_history(stored: Surveyed, published: Version | None, *, halted: bool = False) -> None:
    """Compare the stored version with the published one of its number.

    Raises
    ------
    VersionFork
        The store says otherwise, and not because it is behind; or the model was ``halted`` when
        more could be seen of it.
    """
    if halted and published is None and stored.version >= 0:
        raise VersionFork(
            f"model {stored.model_id!r}: it was halted, and none of the newest {FARTHEST:,} "
            "versions in its partition is its own: nothing shows that it is mended. Register the "
            "model again with --replace"
        )
    if published is None or published.version != stored.version:
        return
    if published.digest != stored.digest:
        raise VersionFork(
            f"model {stored.model_id!r}: version {published.version} was published with another "
            "digest than the store holds. Restore the store, or register the model again with "
            "--replace"
        )


def check_branch(
    stored: Surveyed, published: Version | None, answered: Answered | None, outbox: Outbox
) -> None:
    """Compare what a store would publish next with what was published.

    A former primary that was cut off, went on, and is the store again is ahead on a branch of its
    own.

    Raises
    ------
    VersionFork
        It does not follow from the published version, or answers a request in another way.
    """
    if not stored.unpublished:
        return
    for _, entry in outbox.everything(stored.keys):
        if entry.stage is Stage.VERSIONS and published is not None:
            found = record(Version, entry.value, "a version in the outbox")
            again = found.version == published.version and found.digest != published.digest
            follows = found.version == published.version + 1
            if again or (follows and found.prev_digest != published.digest):
                raise _branch(stored, f"version {found.version}", f"version {published.version}")
        elif entry.stage is Stage.RECEIPTS:
            receipt = record(Receipt, entry.value, "a receipt in the outbox")
            if answered is not None and answered.contradicts(receipt):
                request = f"the receipt of request {receipt.request_id!r}"
                raise _branch(stored, request, "another one")


def _branch(stored: Surveyed, unpublished: str, published: str) -> VersionFork:
    return VersionFork(
        f"model {stored.model_id!r}: {unpublished} in the store does not go with {published}, "
        "which was published: the store was cut off and went on by itself. Restore the other one, "
        "or register the model again with --replace"
    )
