"""Models that cannot be searched for a person yet: the store may not know all of their rows.

Rows may come with a row change that was sent before the subject was on the list and is not decided,
or with a commit that the store does not have: because it went back, or because the model is halted.
An erasure waits for such a model if its subjects are of the same namespace, and for no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lethe.consumers.contract import topics
from lethe.consumers.deletions.validate import Invalid, Valid, Validated, validate
from lethe.consumers.erasures.fan_in import stored_receipts
from lethe.consumers.erasures.models import Models
from lethe.consumers.erasures.pending import PendingErasure
from lethe.consumers.log.base import Partition, Reader
from lethe.consumers.log.scan import scan
from lethe.engine.store.layout.keys import COMMIT_PARTITIONS, every_partition
from lethe.engine.store.membership import models_that_lack_rows
from lethe.engine.store.store import ModelStore

MOST_CHANGES = 100_000
"""Undecided row changes that are looked at. If there are more, erasures wait for all of them."""

_OFTEN = 500  # records between two calls of ``keepalive``

Offsets = Mapping[str, int]
"""Where partitions end."""


@dataclass(slots=True)
class _Undecided:
    """What is known of one partition.

    Attributes
    ----------
    decided, read_to
        Below which offset everything is decided, and below which every record was read.
    changes
        From there on, by model and request id, those without a final receipt, with their offsets.
    """

    decided: int = 0
    read_to: int = 0
    changes: dict[tuple[str, str], int] = field(default_factory=dict)


class UndecidedChanges:
    """Row changes that were sent and are not decided, by model; one thread uses it.

    The watermark of a partition stays below the first change of a halted model. Whether a change
    behind it is decided is asked of the store's index of receipts. Each record is read once;
    ``keepalive`` is called while they are read.
    """

    def __init__(self, store: ModelStore, reader: Reader, keepalive: Callable[[], None]) -> None:
        self._store = store
        self._reader = reader
        self._keepalive = keepalive
        self._partitions: dict[str, _Undecided] = {}

    def read_on(self, fences: Iterable[Offsets]) -> None:
        """Look at what lies before some fences.

        Changes that expired before they were decided will never be decided.
        """
        ends: dict[str, int] = {}
        for fence in fences:
            for name, end in fence.items():
                ends[name] = max(ends.get(name, 0), end)
        for partition in self._reader.partitions(topics.ROW_CHANGES):
            name = str(partition)
            watermark = self._store.cursors.watermark(name) or 0
            known = self._partitions.setdefault(name, _Undecided())
            known.decided = max(watermark, self._reader.bounds(partition).begin)
            known.changes = {key: at for key, at in known.changes.items() if at >= known.decided}
            end = min(ends.get(name, 0), known.decided + MOST_CHANGES)
            self._read(partition, known, end)

    def models(self, fence: Offsets) -> frozenset[str] | None:
        """Return the models with an undecided change before a fence; None if it is too far off."""
        found: set[str] = set()
        for name, end in fence.items():
            known = self._partitions.get(name, _Undecided())
            if end > max(known.decided, known.read_to):
                return None
            found |= {model for (model, _), offset in known.changes.items() if offset < end}
        return frozenset(found)

    def _read(self, partition: Partition, known: _Undecided, end: int) -> None:
        """Read the changes of a partition up to an offset, and drop those that are decided."""
        for record in scan(self._reader, partition, max(known.read_to, known.decided), end):
            if record.offset % _OFTEN == 0:
                self._keepalive()
            if (change := _named(validate(record))) is not None:
                known.changes.setdefault(change, record.offset)
        known.read_to = max(known.read_to, end)
        receipts = stored_receipts(self._store, list(known.changes))
        known.changes = {
            change: offset
            for (change, offset), receipt in zip(known.changes.items(), receipts, strict=True)
            if receipt is None or not receipt.final
        }


def _named(change: Validated) -> tuple[str, str] | None:
    """Return model and id of a request; None if it has none, so that no receipt will name it."""
    if isinstance(change, Valid):
        return change.request.model_id, change.request.request_id
    if isinstance(change, Invalid) and change.model_id is not None and change.request_id:
        return change.model_id, change.request_id
    return None


class Unsearched:
    """Finds the models that erasures must wait for; one thread uses it."""

    def __init__(self, store: ModelStore, reader: Reader, keepalive: Callable[[], None]) -> None:
        self._store = store
        self._reader = reader
        self._undecided = UndecidedChanges(store, reader, keepalive)

    def news(
        self, erasures: Sequence[PendingErasure], models: Models, before: Applied
    ) -> list[tuple[PendingErasure, frozenset[str]]]:
        """Return the erasures whose models can be asked now, each with those that cannot be yet.

        An erasure for which that has not changed is left out. First, row changes that were on their
        way must be decided. Then their commits must be applied, both in ``before``, which was read
        before ``models``, and now: a store that has gone back lacks models and rows that the log
        has.
        """
        self._undecided.read_on(erasure.changes for erasure in erasures)
        concerned = {
            namespace: concerning(models, namespace)
            for namespace in {erasure.request.namespace for erasure in erasures}
        }
        registered = {one.model_id for one in models.registered}
        for erasure in erasures:
            undecided = self._undecided.models(erasure.changes)
            if undecided is not None:
                undecided &= concerned[erasure.request.namespace]
                if undecided != erasure.undecided:
                    erasure.undecided, erasure.commits = undecided, _commits_sent(self._reader)
        applied, lacking = Applied.read(self._store), models_that_lack_rows(self._store.client)
        news = []
        for erasure in erasures:
            there = before.has(erasure.commits) and applied.has(erasure.commits)
            if erasure.undecided is None or not there:
                continue
            lagging = applied.lagging(erasure.commits)
            late = erasure.undecided | lagging | lacking
            # The store may lack even the registration of a halted model, which says what it knows.
            unsearched = models.damaged | (lagging - registered)
            unsearched |= late & concerned[erasure.request.namespace]
            if unsearched != erasure.unsearched:
                news.append((erasure, unsearched))
        return news


def changes_sent(reader: Reader) -> Offsets:
    """Return where each partition of ``lethe.row-changes`` ends now."""
    return _ends(reader, reader.partitions(topics.ROW_CHANGES))


def _commits_sent(reader: Reader) -> Offsets:
    """Return where each partition of ``lethe.commits`` ends now; those added later have none."""
    partitions = reader.partitions(topics.COMMITS)
    return _ends(reader, [one for one in partitions if one.index < COMMIT_PARTITIONS])


def _ends(reader: Reader, partitions: Sequence[Partition]) -> Offsets:
    return {str(partition): end for partition, end in reader.ends(partitions).items()}


@dataclass(frozen=True, slots=True)
class Applied:
    """How far the store has come. ``partitions``: below which offset it has all commits of each.

    ``behind``: of halted models, by model, their partition and where their own commits end.
    """

    partitions: Offsets
    behind: Mapping[str, tuple[str, int]]

    @classmethod
    def read(cls, store: ModelStore) -> Applied:
        """Read the cursors of all partitions. One round trip."""
        ends: dict[str, int] = {}
        behind: dict[str, tuple[str, int]] = {}
        every = every_partition()
        for partition, cursors in zip(every, store.cursors.read_all(every), strict=True):
            name = f"{cursors.topic_id}/{partition.index}"
            ends[name] = cursors.pair.apply
            behind |= {model: (name, pair.apply) for model, pair in cursors.behind.items()}
        return cls(ends, behind)

    def has(self, fence: Offsets) -> bool:
        """Return whether the store has all before a fence, but for commits of halted models."""
        return all(end <= self.partitions.get(name, 0) for name, end in fence.items())

    def lagging(self, fence: Offsets) -> frozenset[str]:
        """Return the halted models of whose commits before a fence the store lacks some."""
        return frozenset(
            model for model, (name, end) in self.behind.items() if end < fence.get(name, 0)
        )


def concerning(models: Models, namespace: str) -> frozenset[str]:
    """Return the models that may know a subject of a namespace.

    A head that cannot be read does not say of which namespace its subjects are.
    """
    known = {one.model_id for one in models.registered if one.knows(namespace)}
    return models.damaged | known
