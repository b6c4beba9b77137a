"""What the log has of a model that its stored state has not: the store lost acknowledged writes.

A failover to a lagging replica, or a restored backup, puts the state back to an earlier moment.
What was published in the meantime stands: the log wins. This module reads it; `consumers.adopt`
brings the state there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from consumers import chain, topics
from consumers.events import Parameters, Receipt, Source, SourceRange, Version
from consumers.log.base import Partition, Reader
from consumers.newest import newest_events, records_of
from consumers.reach import Reach
from consumers.signing import TrustedKeys
from consumers.transition import Origin
from consumers.validate import Refreshed, Refused, Valid, Validated, validate
from engine.errors import VersionFork
from engine.store.state import ModelState
from engine.store.store import ModelStore

OUTSIDE = ("REQUEST_ID_CONFLICT", "UNKNOWN_MODEL")
"""Codes of receipts that no log of a model holds."""

_OF_THE_MOMENT = ("UNKNOWN_MODEL", "UNKNOWN_ROWS")


@dataclass(frozen=True)
class Lost:
    """What was published beyond a state.

    Attributes
    ----------
    known
        The state's own version.
    versions
        Those after the state's own, in order, each linked to the one before.
    receipts
        By deletions partition: those of records that the state has not decided, by offset; the
        first one of each record.
    all_receipts
        Every receipt of the model that is not older than the loss, in the order of the log.
    parameters
        The newest parameters event of a version beyond the state.
    """

    known: int
    versions: tuple[Version, ...]
    receipts: Mapping[Partition, tuple[Receipt, ...]]
    all_receipts: tuple[Receipt, ...]
    parameters: Parameters | None

    @cached_property
    def _places(self) -> Mapping[tuple[str, Source], Sequence[int]]:
        """Where the receipts of each record stand among all."""
        places: dict[tuple[str, Source], list[int]] = {}
        for at, receipt in enumerate(self.all_receipts):
            places.setdefault((receipt.request_id, receipt.source), []).append(at)
        return places

    def __bool__(self) -> bool:
        return bool(self.versions or any(self.receipts.values()))

    def answered(self, items: Sequence[Valid | Refused]) -> list[Valid | Refused]:
        """Return the items that were decided as requests: repeats, and what has its receipt.

        Others may lie between them that nobody who may had signed (`consumers.request_keys`).
        Receipts say which, whatever keys count today: they are published before the version.
        """
        places: dict[str | None, set[tuple[int, int]]] = {}
        for receipt in self.all_receipts:
            place = (receipt.source.partition, receipt.source.offset)
            places.setdefault(receipt.request_id, set()).add(place)
        named = {request for version in self.versions for request in version.request_ids}
        if not named <= places.keys():
            return list(items)  # receipts are missing: go by the records alone
        return [item for item in items if _counts(item, places.get(request_of(item)[1], set()))]

    def leaves(self, state: ModelState) -> tuple[Receipt, ...]:
        """Return the published receipts that the state's log lacks, in the order of the log.

        They are the final receipts of records that the state has not decided, and of requests
        that it still defers; each once, and no conflicts (docs/evidence.md).
        """
        undecided = {
            (receipt.source, receipt.request_id)
            for partition, receipts in self.receipts.items()
            for receipt in receipts
            if receipt.source.offset >= state.offsets.get(str(partition), 0)
        }
        waiting = state.deferred.keys() - state.answered
        found: dict[tuple[Source, str], Receipt] = {}
        for receipt in self.all_receipts:
            name = (receipt.source, receipt.request_id)
            new = name in undecided or receipt.request_id in waiting
            if new and receipt.final and receipt.code not in OUTSIDE:
                found.setdefault(name, receipt)
        return tuple(found.values())

    @property
    def newest(self) -> int:
        """The newest version that was published."""
        return self.versions[-1].version if self.versions else self.known

    def answers(self, state: ModelState, until: int | None = None) -> tuple[Receipt, ...]:
        """Return the final receipts of requests that the state defers, of versions that are lost.

        A rebuild resolved them, and the store lost it before its version was published. Only what
        stands before place ``until`` is looked at: no version beyond the state was published there.
        """
        waiting = state.deferred.keys() - state.answered
        newest = min(self.newest, state.version)
        found: dict[str, Receipt] = {}
        for receipt in self.all_receipts[:until]:
            if receipt.request_id in waiting and receipt.final and (receipt.version or 0) > newest:
                found.setdefault(receipt.request_id, receipt)
        return tuple(found.values())

    def applied_in(self, version: int) -> frozenset[str]:
        """Return the requests whose final receipt says that a version leaves their rows out."""
        return frozenset(
            receipt.request_id
            for receipt in self.all_receipts
            if (receipt.status, receipt.version) == ("APPLIED", version)
        )

    def _is_ahead(self, receipt: Receipt) -> bool:
        """Return whether a receipt is final, and names a version that was not published."""
        return receipt.final and (receipt.version or 0) > self.newest

    def had_to_wait(self, request_id: str, source: Source) -> bool:
        """Return whether a request waited for a rebuild, by what was published of it.

        It was told so; or it has its final receipt in a version that is lost, and so has another
        one that was told so: a rebuild made that version.
        """
        receipts = [self.all_receipts[at] for at in self._places.get((request_id, source), ())]
        if any(receipt.final and (receipt.version or 0) <= self.known for receipt in receipts):
            return False  # see `same_decision`
        return any(
            not receipt.final or (self._is_ahead(receipt) and receipt.version in self._rebuilt)
            for receipt in receipts
        )

    @cached_property
    def _rebuilt(self) -> frozenset[int | None]:
        """The versions in which requests that had been told to wait were resolved."""
        found = [[self.all_receipts[at] for at in places] for places in self._places.values()]
        return frozenset(
            receipt.version
            for receipts in found
            if not all(receipt.final for receipt in receipts)
            for receipt in receipts
            if receipt.final
        )

    def refusal(self, request_id: str, source: Source) -> str | None:
        """Return the code with which a request was refused for what the model was then."""
        for receipt in self.all_receipts:
            if (receipt.request_id, receipt.source) == (request_id, source):
                return receipt.code if receipt.code in _OF_THE_MOMENT else None
        return None

    def same_decision(self, receipt: Receipt) -> Receipt | None:
        """Return the published receipt of the same decision, if there is one.

        One of a version that the state claims to have stands whatever comes out now: the model
        was registered again in the meantime, from rows that may or may not hold those. So does a
        final one, of a version that is lost, where the request has to wait for a rebuild now.
        """
        for other in self._of_record(receipt):
            before = other.final and other.version is not None and other.version <= self.known
            waits = not receipt.final and self._is_ahead(other)
            if before or waits or other.outcome() == receipt.outcome():
                return other
        return None

    def published(self, receipt: Receipt) -> Receipt | None:
        """Return the published receipt of the same decision, if the record was decided.

        Raises
        ------
        VersionFork
            The record was decided otherwise.
        """
        found = self.same_decision(receipt)
        if found is not None:
            return found
        same = self._of_record(receipt)
        if any(other.final == receipt.final for other in same):
            raise VersionFork(
                f"model {receipt.model_id!r}: request {receipt.request_id!r} was answered "
                f"{same[0].status} and comes to {receipt.status} when it is decided again"
            )
        return None

    def _of_record(self, receipt: Receipt) -> list[Receipt]:
        places = self._places.get((receipt.request_id, receipt.source), ())
        return [self.all_receipts[at] for at in places]

    def position(self, receipt: Receipt) -> int:
        """Return where the first receipt of a published receipt's record stands among all."""
        return self._places[receipt.request_id, receipt.source][0]


def _counts(item: Valid | Refused, places: set[tuple[int, int]]) -> bool:
    """Return whether an item is answered at its own place, or repeats what was answered before."""
    mine = (item.record.partition.index, item.record.offset)
    return mine in places or any(p != mine[0] or o < mine[1] for p, o in places)


def read_lost(
    reader: Reader, state: ModelState, reach: Reach, trusted: TrustedKeys | None = None
) -> Lost:
    """Read what the log has within ``reach`` beyond a state.

    What the state is brought to is what was published: with keys to trust, by their holders.

    Raises
    ------
    VersionFork
        The log's history does not continue the state's, or nobody who is trusted has signed it.
    """
    model = {state.model_id}
    versions = _versions(reader, state, reach)
    _check_signed(reader, state, versions, reach, trusted)
    receipts = tuple(newest_events(reader, topics.RECEIPTS, model, Receipt, reach, trusted))
    undecided: dict[Partition, tuple[Receipt, ...]] = {}
    for partition in reader.partitions(topics.DELETIONS):
        found = _undecided(reader, state, partition, receipts)
        if found:
            undecided[partition] = found
    # Parameters that no version names were published right before their commit was lost.
    named = {version.digest for version in versions}
    parameters = newest_events(reader, topics.MODELS, model, Parameters, reach, trusted)
    newest = max(
        (event for event in parameters if event.digest in named),
        key=lambda event: event.version,
        default=None,
    )
    return Lost(state.version, versions, undecided, receipts, newest)


def _versions(reader: Reader, state: ModelState, reach: Reach) -> tuple[Version, ...]:
    newer = {
        version.version: version
        for version in newest_events(reader, topics.VERSIONS, {state.model_id}, Version, reach)
        if version.version > state.version
    }
    ordered = tuple(newer[number] for number in sorted(newer))
    number, digest = state.version, state.digest
    for version in ordered:
        if chain.version_digest(version) != version.digest:
            raise VersionFork(
                f"model {state.model_id!r}: published version {version.version} was altered"
            )
        if version.version != number + 1 or version.prev_digest != digest:
            raise VersionFork(
                f"model {state.model_id!r}: the store holds version {state.version}, and published "
                f"version {version.version} does not continue it. Restore the store, or register "
                "the model again with --replace"
            )
        number, digest = version.version, version.digest
    return ordered


def _check_signed(
    reader: Reader,
    state: ModelState,
    versions: Sequence[Version],
    reach: Reach,
    trusted: TrustedKeys | None,
) -> None:
    """Refuse versions that nobody who is trusted has signed: a stranger may have written them."""
    if trusted is None or not versions:
        return
    model = {state.model_id}
    signed = {
        version.digest
        for version in newest_events(reader, topics.VERSIONS, model, Version, reach, trusted)
    }
    if versions[-1].digest not in signed:  # it vouches for those before it
        raise VersionFork(
            f"model {state.model_id!r}: version {versions[-1].version} is on the topic, the store "
            "does not hold it, and no trusted key has signed it. Find out who wrote it; if a "
            "worker did, add its public key to LETHE_TRUSTED_KEYS"
        )


def _undecided(
    reader: Reader, state: ModelState, partition: Partition, receipts: Sequence[Receipt]
) -> tuple[Receipt, ...]:
    """Return the receipts of records of a partition that the state has not decided.

    A receipt names no incarnation of the topic: it counts only where the record at its offset is
    its request.
    """
    first = state.offsets.get(str(partition), 0)
    named: dict[int, dict[str, Receipt]] = {}
    for receipt in receipts:
        source = receipt.source
        place = (source.topic, source.partition)
        if place == (partition.topic, partition.index) and source.offset >= first:
            named.setdefault(source.offset, {}).setdefault(receipt.request_id, receipt)
    if not named:
        return ()
    bounds = reader.bounds(partition)
    offsets = range(max(bounds.begin, min(named)), min(bounds.end, max(named) + 1))
    there = {
        record.offset: request_of(validate(record))
        for record in records_of(reader, partition, offsets)
        if record.offset in named
    }
    return tuple(
        named[offset][request]
        for offset, (model, request) in sorted(there.items())
        if model == state.model_id and request in named[offset]
    )


def request_of(item: Validated) -> tuple[str | None, str | None]:
    """Return the model and the request that a record names."""
    match item:
        case Valid():
            return item.request.model_id, item.request.request_id
        case Refused():
            return item.model_id, item.request_id
        case Refreshed():
            return item.event.model_id, None


def items_of(
    reader: Reader, partition: Partition, offsets: range, model_id: str
) -> list[Valid | Refused]:
    """Return a model's requests, good and bad, in a range of offsets."""
    items = (validate(record) for record in records_of(reader, partition, offsets))
    return [
        item
        for item in items
        if request_of(item)[0] == model_id and not isinstance(item, Refreshed)
    ]


def partition_of(reader: Reader, source: Source | SourceRange) -> Partition:
    """Return the partition that a receipt or a version names, in the topic's present incarnation.

    Raises
    ------
    VersionFork
        The topic has no such partition any more.
    """
    for partition in reader.partitions(source.topic):
        if partition.index == source.partition:
            return partition
    raise VersionFork(
        f"{source.topic}/{source.partition} was published from, and is not there any more"
    )


def origin_of_version(reader: Reader, version: Version) -> Origin | None:
    """Return the records that made a version; None for one that registration made."""
    if version.source is None:
        return None
    partition = partition_of(reader, version.source)
    return Origin(str(partition), version.source.last_offset + 1, version.source)


def not_held(store: ModelStore, state: ModelState, lost: Lost) -> Lost:
    """Return what is lost without receipts that the state holds after all.

    A receipt names no incarnation of the topic. In one that was made again, a request that was sent
    again may lie where it was answered once: what lies before it is not decided for that.
    """
    receipts = {
        partition: tuple(receipt for receipt in found if not _holds(store, state, receipt))
        for partition, found in lost.receipts.items()
    }
    return replace(lost, receipts={p: found for p, found in receipts.items() if found})


def _holds(store: ModelStore, state: ModelState, receipt: Receipt) -> bool:
    stored = store.receipt(state.model_id, receipt.request_id)
    return stored is not None and Receipt.model_validate_json(stored).source == receipt.source


def fork(state: ModelState, version: Version, why: str) -> VersionFork:
    """Return the error of a lost version that the log does not explain."""
    return VersionFork(
        f"model {state.model_id!r}: the store lost version {version.version}, which was published, "
        f"and {why}. Restore the store, or register the model again with --replace"
    )
