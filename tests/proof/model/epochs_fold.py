"""Reading a log that may not be the one that was written: tail, fold, and `recover`."""

from __future__ import annotations

from typing import NamedTuple

from tests.proof.model.epochs_state import BASE, NONE, History, Log, Place, Record, Rules, Store


class Fold(NamedTuple):
    """What a fold found: the head, what to apply and to publish, and from which offsets on.

    ``gap``: behind that, the model halts.
    """

    head: int
    apply: tuple[Place, ...]
    publish: tuple[int, ...]
    applied_from: int
    published_from: int
    gap: bool = False


class Reading(NamedTuple):
    """The valid records of a stretch of the log; `gap`: the model halts."""

    head: int
    valid: tuple[Place, ...]
    gap: bool

    def as_fold(self, applied_from: int, published_from: int) -> Fold:
        """Return it as what a worker does that reads from its own tail on."""
        records = tuple(place.below for place in self.valid)
        return Fold(self.head, self.valid, records, applied_from, published_from)


def follows(rules: Rules, log: Log, place: Place) -> bool:
    """Whether a place that was read once still lies in the log."""
    if place.offset > len(log.records):
        return False
    if rules.topic_compared and place.topic != log.topic:
        return False
    if not place.offset or not rules.digest_compared:
        return True
    return log.records[place.offset - 1] == place.below


def shared_end(log: Log, place: Place) -> int:
    """Return up to which offset the log is the one in which a place was read.

    Every loss has a new leader, so what that place had below it has no higher epoch. Kafka answers
    this for an epoch (OffsetForLeaderEpoch).
    """
    if place.topic != log.topic:
        return 0
    return sum(epoch <= place.epoch for epoch in log.epochs[: place.offset])


def read(history: History, log: Log, head: int, start: int) -> Reading:
    """Judge records from `start` on by their open parts; only a checkpoint ends a gap."""
    valid, gap = [], False
    for offset in range(start, len(log.records)):
        digest = log.records[offset]
        record = history[digest]
        if record.prev == head and (not gap or record.names != NONE):
            head, gap = digest, False
            valid.append(log.place(offset + 1))
        elif record.commit > history[head].commit and record.names == NONE:
            gap = gap or history.rules.ahead_halts
    return Reading(head, tuple(valid), gap)


def fold(history: History, log: Log, store: Store) -> Fold | None:
    """Return what a fresh worker makes of the log; None: it halts, and a person is needed.

    Where a cursor does not lie in the log any more, a checkpoint above the store's head leads on.
    """
    rules = history.rules
    whole = follows(rules, log, store.applied) and follows(rules, log, store.published)
    if rules.head_placed:
        whole = whole and follows(rules, log, store.at)
    start = store.applied.offset if whole else 0
    found = read(history, log, store.head if whole else BASE, start)
    if found.gap and not (whole and rules.gap_applied):
        return None
    if not whole:
        start = _checkpoint_above(history, found, store)
        if start == NONE:
            return None
    chain = history.chain(found.head)
    if store.head not in (BASE, *chain):
        return None
    published = store.published.offset
    if not follows(rules, log, store.published):
        published = shared_end(log, store.published)
    apply = tuple(
        log.place(offset + 1)
        for offset in range(start, len(log.records))
        if log.records[offset] in chain
    )
    publish = tuple(digest for digest in log.records[published:] if digest in chain)
    return Fold(found.head, apply, publish, start, published, found.gap)


def only_gap(history: History, log: Log, store: Store) -> int | None:
    """Return the head before a gap, if nothing else is wrong with the log that a store follows."""
    places = (store.applied, store.published, store.at)
    if not all(follows(history.rules, log, place) for place in places):
        return None
    found = read(history, log, store.head, store.applied.offset)
    return found.head if found.gap else None


def _checkpoint_above(history: History, found: Reading, store: Store) -> int:
    """Return the offset of the newest checkpoint if the store can follow it."""
    head = history[store.head]
    for place in reversed(found.valid):
        digest, offset = place.below, place.offset - 1
        record = history[digest]
        if record.names != NONE:
            named = history[record.names]
            if record.commit > head.commit and named.commit >= head.commit:
                return offset
            return offset if store.head == digest else NONE
    return NONE


def recovery(history: History, log: Log, store: Store, attempt: int) -> Record:
    """Make the checkpoint: the store's head, behind the last valid record of the log."""
    found = read(history, log, BASE, 0)
    common = BASE
    for place in found.valid:
        if place.offset <= shared_end(log, store.at):
            common = place.below
    numbers = [history[digest].commit for digest in (store.head, found.head, *log.records)]
    commit = max(numbers) + 1
    return Record(commit, found.head, "", 9, attempt, store.head, common)
