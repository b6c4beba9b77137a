"""Reading a model's history from ``lethe.versions``, every link checked.

The topic is retained for ever and shared by many models, so it is read as a stream: memory does
not grow with its length. All of its partitions are read, because adding partitions moves models to
others; a version that arrives too early waits until the other partitions are read to their ends.

Where keys are trusted, the versions that these signed make the chain, with those that they vouch
for: the unsigned ones of before the first signature, through their links. Whoever may write to the
topic can write any other record, so these are passed over.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import structlog

from lethe.consumers.contract import cloudevents, topics, version_chain
from lethe.consumers.contract.events import MODEL_VERSION, Version
from lethe.consumers.contract.signatures import TrustedKeys
from lethe.consumers.contract.signed_log import is_believed
from lethe.consumers.log.base import Partition, Reader, Record
from lethe.engine.errors import BrokenChain, LogReset
from lethe.engine.store.layout.keys import partition_index
from lethe.engine.store.layout.reading import parse_json

Known = tuple[int, str]
"""A version number and its digest, remembered from an earlier run: the anchor of trust."""

LIVE_SECONDS = 0.1
"""How long one read waits for new records. The server answers at once when there are some."""

_BATCH = 500  # records of about 1 KB each
_READ_SECONDS = 1.0  # for records that are known to be there
_SWEEP_SECONDS = 2.0  # between checks of partitions that should hold nothing new
# Digests kept in memory. A fold that publishes again repeats versions; repeats of older ones are
# looked up in the topic.
_RECENT = 1024


@dataclass(slots=True)
class _Cursor:
    """A position in one partition, and this model's versions that are read but not yet taken."""

    partition: Partition
    offset: int
    end: int
    waiting: deque[Version] = field(default_factory=deque)


def history(
    reader: Reader,
    model_id: str,
    *,
    known: Known | None = None,
    follow: bool = False,
    stop: threading.Event | None = None,
    trusted: TrustedKeys | None = None,
) -> Iterator[Version]:
    """Yield a model's versions from the first on, each checked against the one before it.

    Parameters
    ----------
    reader
        Used by this iterator alone while it runs.
    model_id
        The model; if it was never registered, its history is empty.
    known
        A version and its digest that must be part of the history.
    follow
        Continue with new versions, instead of ending with the newest one.
    stop
        Ends a history that is followed.
    trusted
        The keys that must have signed it; None: signatures are not checked. A signature on a
        version vouches for all versions before it through their links: those from before the first
        signature are yielded once a signed one follows. Other records that none of the keys signed
        are passed over.

    Raises
    ------
    BrokenChain
        A version was altered, removed, replaced or rolled back, or no version at all is signed;
        it was not yielded.
    LogReset
        The topic was deleted or lost its end meanwhile.
    LogUnavailable
        The log cannot be reached.
    """
    yield from HistoryReader(reader, model_id, known, trusted).versions(follow=follow, stop=stop)


class HistoryReader:
    """Reads one model's versions step by step; `history` is the simple way to use it.

    Attributes
    ----------
    tip
        The newest version of the chain.
    caught_up
        Whether the topic was read to its end once.
    passed_over
        How many records of the model no trusted key signed nor vouches for.
    """

    def __init__(
        self,
        reader: Reader,
        model_id: str,
        known: Known | None = None,
        trusted: TrustedKeys | None = None,
    ) -> None:
        self.model_id = model_id
        self.signed_from: int | None = None
        self.tip: Version | None = None
        self.caught_up = False
        self._reader = reader
        self._key = model_id.encode()
        self._known = known
        self._trusted = trusted
        self.passed_over = 0
        self._unsigned: dict[Known, Version] = {}
        self._next = 0
        self._recent: dict[int, str] = {}
        self._cursors: list[_Cursor] = []
        self._next_sweep = 0.0

    def must_be_signed(self, number: int) -> bool:
        """Return whether parameters must be signed: from the first signed version on."""
        return self.signed_from is None or number >= self.signed_from

    def versions(
        self, *, follow: bool = False, stop: threading.Event | None = None
    ) -> Iterator[Version]:
        """Yield the next versions, checked, as `history` does."""
        while not (stop is not None and stop.is_set()):
            yield from self.advance(LIVE_SECONDS)
            if self.caught_up and not follow:
                return

    def advance(self, wait: float) -> list[Version]:
        """Return the next versions, checked; empty when there are none within ``wait`` seconds.

        The first call that has read the topic to its end sets ``caught_up``.
        """
        behind = self._behind()
        if behind is None and (self._blocked() or time.monotonic() >= self._next_sweep):
            self._measure()
            behind = self._behind()
        if behind is not None:
            self._read(behind, _READ_SECONDS)
        elif self._blocked():
            self._begin_late()
        elif self._cursors:
            home = partition_index(self._key, len(self._cursors))
            self._read(self._cursors[home], wait if self.caught_up else 0.0)
        elif self.caught_up:
            time.sleep(wait)  # the topic does not exist yet
        versions = self._take()
        if not self.caught_up and self._behind() is None and not self._blocked():
            self._check_known_reached()
            if self.tip is None and self._unsigned:
                raise _unsigned(self._unsigned[max(self._unsigned)])
            self.caught_up = True
        return versions

    # -- positions ----------------------------------------------------------------------------

    def _behind(self) -> _Cursor | None:
        """Return a partition that is known to hold more, unless one of its versions waits."""
        for cursor in self._cursors:
            if not cursor.waiting and cursor.offset < cursor.end:
                return cursor
        return None

    def _blocked(self) -> bool:
        return any(cursor.waiting for cursor in self._cursors)

    def _measure(self) -> None:
        """Find out which partitions there are, and where they end now."""
        partitions = self._reader.partitions(topics.VERSIONS)
        for cursor, partition in zip(self._cursors, partitions, strict=False):
            if cursor.partition != partition:
                raise LogReset(
                    f"topic {topics.VERSIONS} was deleted and recreated while it was followed; "
                    "follow it again with the last known version as anchor"
                )
        for partition in partitions[len(self._cursors) :]:
            self._cursors.append(_Cursor(partition, self._reader.bounds(partition).begin, 0))
        for cursor in self._cursors:
            cursor.end = self._reader.bounds(cursor.partition).end
        self._next_sweep = time.monotonic() + _SWEEP_SECONDS

    def _read(self, cursor: _Cursor, wait: float) -> None:
        records, cursor.offset = self._reader.read(cursor.partition, cursor.offset, wait, _BATCH)
        cursor.end = max(cursor.end, cursor.offset)
        for record in records:
            if record.key == self._key:
                version, signed = self._open(record)
                if version is not None and signed:
                    cursor.waiting.append(version)
                elif version is not None and self.signed_from is None:
                    self._unsigned[version.version, version.digest] = version
                elif version is None or self._recent.get(version.version) != version.digest:
                    self._pass_over(record)  # else it is a repeat

    # -- the chain ----------------------------------------------------------------------------

    def _open(self, record: Record) -> tuple[Version | None, bool]:
        """Return the version in a record, and whether a trusted key signed it as this model's."""
        signed = is_believed(record, self._trusted)
        try:
            return read_version(record, self.model_id), signed
        except BrokenChain as error:
            if self._trusted is None or (signed and not isinstance(error, OfAnother)):
                raise
            return None, False

    def _pass_over(self, record: Record) -> None:
        if not self.passed_over:
            structlog.get_logger().bind(component="subscriber").warning(
                "passed over a record that no trusted key signed",
                action="pass_over",
                model_id=self.model_id,
                place=record.place,
            )
        self.passed_over += 1

    def _before(self, version: Version) -> list[Version]:
        """Return the unsigned versions before a signed one, which it vouches for, oldest first."""
        before: list[Version] = []
        while version.version > self._next:
            found = self._unsigned.get((version.version - 1, version.prev_digest))
            if found is None:
                break
            version = found
            before.append(version)
        return before[::-1]

    def _take(self) -> list[Version]:
        """Take the next versions of the chain from the partitions, and drop repeats."""
        versions: list[Version] = []
        progress = True
        while progress:
            progress = False
            for cursor in self._cursors:
                while cursor.waiting:
                    version = cursor.waiting[0]
                    new = [*self._before(version), version]
                    if new[0].version > self._next:
                        break
                    cursor.waiting.popleft()
                    progress = True
                    if version.version < self._next:
                        self._check_repeat(version)
                        continue
                    for one in new:
                        self._append(one)
                    versions += new
                    self._sign(version, len(new) - 1)
        return versions

    def _sign(self, version: Version, vouched: int) -> None:
        """Note that the chain is signed, from its first signed version on."""
        if self.signed_from is None:
            self.signed_from = version.version
            self.passed_over += len(self._unsigned) - vouched
            self._unsigned.clear()

    def _append(self, version: Version) -> None:
        if self.tip is not None or version.version == 0:
            version_chain.check_link(version, self.tip)
        self._check_known(version)
        self.tip = version
        self._next = version.version + 1
        self._recent[version.version] = version.digest
        self._recent.pop(version.version - _RECENT, None)

    def _check_repeat(self, version: Version) -> None:
        digest = self._recent.get(version.version) or self._look_up(version.version)
        if digest != version.digest:
            raise BrokenChain(
                f"{_name(version)}: there are two different ones, {digest} and {version.digest}: "
                "history was forked or rolled back; load neither until a person has looked into it"
            )

    def _look_up(self, number: int) -> str | None:
        """Return the digest of a version as it was first published, from the topic."""
        for cursor in self._cursors:
            offset = self._reader.bounds(cursor.partition).begin
            while offset < cursor.offset:
                records, offset = self._reader.read(cursor.partition, offset, _READ_SECONDS, _BATCH)
                for record in records:
                    if record.key == self._key and record.offset < cursor.offset:
                        version, signed = self._open(record)
                        if version is not None and signed and version.version == number:
                            return version.digest
        return None

    def _check_known(self, version: Version) -> None:
        """Compare with the anchor, which may also vouch for the version right after it."""
        if self._known is None:
            return
        number, digest = self._known
        differs = version.version == number and version.digest != digest
        does_not_follow = version.version == number + 1 and version.prev_digest != digest
        if differs or does_not_follow:
            raise BrokenChain(
                f"{_name(version)}: version {number} is known as {digest}, but this history has "
                "another one: it was rolled back or rewritten; do not load it"
            )

    def _check_known_reached(self) -> None:
        if self._known is not None and self._next <= self._known[0]:
            end = "is empty" if self.tip is None else f"ends with version {self.tip.version}"
            raise BrokenChain(
                f"model {self.model_id!r}: version {self._known[0]} is known, but its history "
                f"{end}: it was rolled back; do not load it"
            )

    def _begin_late(self) -> None:
        """Handle a version without a predecessor: only a later anchor excuses that."""
        first = min(
            (cursor.waiting[0] for cursor in self._cursors if cursor.waiting),
            key=lambda version: version.version,
        )
        first = [*self._before(first), first][0]
        anchored = self._known is not None and first.version <= self._known[0] + 1
        if self.tip is None and anchored:
            self._next = first.version
            return
        version_chain.check_link(first, self.tip)
        raise AssertionError("unreachable: a version that is not next does not link")


class OfAnother(BrokenChain):
    """A record is about something else than its key names."""


def read_version(record: Record, model_id: str) -> Version:
    """Return the version in a record under a model's key, its digest checked as it was read.

    Raises
    ------
    BrokenChain
        It is not a version, or does not match its digest. Only Lethe writes under this key, so a
        record that does not parse was altered or is foreign; either must stop a subscriber.
    """
    data = read_object(record, MODEL_VERSION, model_id)
    try:
        version = Version.model_validate(data)
        digest = version_chain.content_digest(data)
    except (ValueError, RecursionError) as error:
        where = f"model {model_id!r}: the record in {record.place}"
        raise BrokenChain(f"{where} is not a version: {_first(error)}") from None
    if version.digest != digest:
        raise BrokenChain(
            f"{_name(version)}: its digest does not match its content; do not load it"
        )
    return version


def _unsigned(version: Version) -> BrokenChain:
    return BrokenChain(
        f"{_name(version)}: no trusted key signed it, nor a version after it; do not load it, or "
        "add the public key that signed it to the trusted keys"
    )


def read_object(
    record: Record,
    event_type: str,
    name: str,
    read: Callable[[bytes], Any] = parse_json,
    what: str = "model",
) -> dict[str, Any]:
    """Return the JSON object of an event of one type and model, or raise `BrokenChain`.

    ``what``: an event may be about something else, which it then names.
    """
    where = f"{what} {name!r}: the record in {record.place}"
    try:
        incoming = cloudevents.parse(record, read)
    except (ValueError, RecursionError) as error:
        raise BrokenChain(f"{where} does not parse: {_first(error)}") from None
    if incoming.type not in (None, event_type):
        raise BrokenChain(
            f"{where} is of type {incoming.type}, which this program does not know (it reads "
            f"{event_type}); upgrade it, or find out who wrote it"
        )
    data = incoming.data
    if not isinstance(data, dict) or data.get(f"{what}_id") != name:
        raise OfAnother(f"{where} is not about the {what} that its key names; find its writer")
    return data


def _name(version: Version) -> str:
    return f"model {version.model_id!r}, version {version.version}"


def _first(error: Exception) -> str:
    """Return the first line of an error: pydantic's continue with the whole input."""
    return (str(error) or type(error).__name__).splitlines()[0]
