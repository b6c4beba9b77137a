"""Step 7: publish what is committed and on disk, and trim what is acknowledged.

Version by version; of each the parameters, the receipts and then the version, every stage
acknowledged before the next. A crash in between repeats messages byte for byte, which subscribers
drop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from consumers import topics
from consumers.log.base import Message, Producer
from consumers.loop import TRANSIENT
from consumers.steps import AtStep, Step, unwatched
from engine.errors import LetheError
from engine.store.keys import ModelKeys
from engine.store.outbox import BATCH, Entry, Outbox, Stage
from engine.store.store import ModelStore

_STEPS = {
    Stage.RECEIPTS: Step.PUBLISH_RECEIPTS,
    Stage.VERSIONS: Step.PUBLISH_VERSIONS,
    Stage.AFTER: Step.PUBLISH_AFTER,
}

Waiting = Mapping[ModelKeys, list[tuple[bytes, Entry]]]


class Publisher:
    """Drains outboxes into a log; one thread uses it."""

    def __init__(self, store: ModelStore, producer: Producer, at_step: AtStep = unwatched) -> None:
        self._store = store
        self._at_step = at_step
        self._outbox = Outbox(store.client)
        self._producer = producer

    def publish(self, models: Iterable[ModelKeys]) -> Mapping[ModelKeys, LetheError]:
        """Publish everything that waits for these models.

        Returns
        -------
        Mapping
            The models whose outbox cannot be published as it is, and why: the others' is.

        Raises
        ------
        LogUnavailable, StoreUnavailable, NotDurable
            Some messages may be in the log, and perhaps not on its disk; call again later, nothing
            is lost. It is no fault of a model: none is sent apart for it.
        """
        failed: dict[ModelKeys, LetheError] = {}
        remaining = list(models)
        while remaining:
            waiting = self._read(remaining, failed)
            if not waiting:
                break
            # What was read may be another worker's commit, which is not on disk yet.
            self._store.settle()
            try:
                self._send(waiting)
            except TRANSIENT:
                raise
            except LetheError:
                self._send_apart(waiting, failed)
            # What was read in full is drained: a commit after that read publishes for itself.
            remaining = [
                keys
                for keys, entries in waiting.items()
                if len(entries) >= BATCH and keys not in failed
            ]
        return failed

    def _read(self, models: list[ModelKeys], failed: dict[ModelKeys, LetheError]) -> Waiting:
        waiting = {}
        for keys in models:
            try:
                entries = self._outbox.read(keys)
            except TRANSIENT:
                raise
            except LetheError as error:
                failed[keys] = error
                continue
            if entries:
                waiting[keys] = entries
        return waiting

    def _send(self, waiting: Waiting) -> None:
        for upto_a_version in by_version(waiting):
            self._send_stages(upto_a_version)

    def _send_stages(self, waiting: Waiting) -> None:
        everything = [entry for entries in waiting.values() for _, entry in entries]
        for stage in Stage:
            there = [entry for entry in everything if entry.stage is stage]
            if stage in _STEPS:
                self._at_step(_STEPS[stage])
            if any(entry.topic == topics.DEAD_LETTERS for entry in there):
                self._at_step(Step.DEAD_LETTER)
            if there:
                waiting = self._still_there(waiting, stage)
                self._producer.publish(_messages(waiting, stage))
        self._at_step(Step.TRIM)
        for keys, sent in waiting.items():
            self._outbox.trim(keys, [entry_id for entry_id, _ in sent])

    def _still_there(self, waiting: Waiting, stage: Stage) -> Waiting:
        """Return what the store still holds: the log may have been slow.

        What a failover has lost meanwhile must not be published: another worker decides it again.
        Nor what a --replace has withdrawn, which leaves messages of other stages.
        """
        last = {
            keys: next((e for e in reversed(entries) if e[1].stage is stage), entries[-1])
            for keys, entries in waiting.items()
        }
        return {keys: waiting[keys] for keys in self._outbox.holds(last)}

    def _send_apart(self, waiting: Waiting, failed: dict[ModelKeys, LetheError]) -> None:
        """Send each model's messages by themselves, so that one cannot hold up the others."""
        for keys, entries in waiting.items():
            try:
                self._send({keys: entries})
            except TRANSIENT:
                raise
            except LetheError as error:
                failed[keys] = error


def by_version(waiting: Waiting) -> Iterator[Waiting]:
    """Yield what waits in parts that hold one version of a model each, in the order of commits.

    A receipt can name the version before it. If many commits went out stage by stage, receipts
    would be in the log whose versions a store could still lose, and make again otherwise.
    """
    parts = {keys: _parts(entries) for keys, entries in waiting.items()}
    for part in range(max(map(len, parts.values()), default=0)):
        yield {keys: of[part] for keys, of in parts.items() if part < len(of)}


def _parts(entries: list[tuple[bytes, Entry]]) -> list[list[tuple[bytes, Entry]]]:
    """Return a model's entries, cut behind each commit that holds a version."""
    parts: list[list[tuple[bytes, Entry]]] = [[]]
    complete = False
    before = b""
    for entry_id, entry in entries:
        commit = entry_id.partition(b"-")[0]
        if complete and commit != before:
            parts.append([])
            complete = False
        before = commit
        parts[-1].append((entry_id, entry))
        complete = complete or entry.stage is Stage.VERSIONS
    return parts


def _messages(waiting: Waiting, stage: Stage) -> list[Message]:
    sent = (entry for entries in waiting.values() for _, entry in entries)
    return [message(entry) for entry in sent if entry.stage is stage]


def message(entry: Entry) -> Message:
    """Return an entry as a message of the log."""
    return Message(entry.topic, entry.key, entry.value, entry.headers)


def erase(store: ModelStore, keys: ModelKeys, at_step: AtStep = unwatched) -> int:
    """Erase (step 8) what is deleted, now that its receipts are out; see `Eraser.erase`."""
    return store.eraser.erase(
        keys,
        erased=lambda: at_step(Step.ERASED),
        discard=lambda: at_step(Step.DISCARD),
        discarded=lambda: at_step(Step.DISCARDED),
    )
