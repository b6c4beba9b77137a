"""Lost records as they were committed: which ones together, when, and to which version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from consumers.events import Receipt, SourceRange, Version
from consumers.log.base import Partition
from consumers.transition import Origin, Transition
from engine.store.commit import Commit
from engine.store.outbox import Stage, decode


@dataclass(frozen=True, slots=True)
class Batch:
    """Records that one commit decided: their range, and when."""

    partition: Partition
    offsets: range
    at: datetime

    @property
    def origin(self) -> Origin:
        """Where a transition of these records comes from."""
        return Origin(
            str(self.partition),
            self.offsets.stop,
            SourceRange(
                topic=self.partition.topic,
                partition=self.partition.index,
                first_offset=self.offsets.start,
                last_offset=self.offsets.stop - 1,
            ),
        )


def as_committed(receipts: Sequence[Receipt]) -> list[list[Receipt]]:
    """Return receipts grouped as they were committed: at one time, with one version."""
    commits: list[list[Receipt]] = []
    version: int | None = None
    for receipt in receipts:
        another = None not in (version, receipt.version) and receipt.version != version
        if not commits or another or receipt.completed_at != commits[-1][0].completed_at:
            commits.append([])
            version = None
        commits[-1].append(receipt)
        version = version if receipt.version is None else receipt.version
    return commits


def comes_to(transition: Transition, version: Version) -> bool:
    """Return whether what was decided again is what was published."""
    return [_facts(made) for made in _versions_in(transition.commit)] == [_facts(version)]


def _versions_in(commit: Commit) -> list[Version]:
    messages = (decode(entry) for entry in commit.outbox)
    return [Version.model_validate_json(m.value) for m in messages if m.stage is Stage.VERSIONS]


def _facts(version: Version) -> tuple[object, ...]:
    """Return what must come out again, however numbers are rounded here."""
    return (
        version.version, version.generation, version.status, version.rows_live,
        version.rows_deleted, sorted(version.request_ids),
    )  # fmt: skip
