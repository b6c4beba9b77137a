"""The suppression list: subjects that were erased, until their erasure is lifted.

``lethe.suppressions`` is the list: a compacted topic. Its keys are marks of subjects; each value
says whether the subject is suppressed, and which request in ``lethe.erasures`` says so. Of two
values of a mark, that of the later request counts, because a stalled worker may write its value
late. The hash in the store is a view of the list. Whoever needs the list reads the topic to its end
first, so that an erasure counts from the moment at which the log has acknowledged its mark,
whatever the store has lost since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lethe.consumers.contract import topics
from lethe.consumers.contract.events import Event
from lethe.consumers.contract.sealing import KeyUnknown, SealKeys
from lethe.consumers.log.base import Message, Producer, Reader, Record
from lethe.consumers.suppression.marks import marks_of, secret_of
from lethe.consumers.suppression.topic_view import TopicView
from lethe.engine.store.layout.keys import ERASED
from lethe.engine.store.layout.reading import integer
from lethe.engine.store.log_view import Added, LogView
from lethe.engine.store.store import ModelStore

_ERASED, _LIFTED = "erased", "lifted"
_SUBJECTS = 10_000
"""Looked up at once: a registration may have a million, with some 80 bytes a mark."""


class Suppression(Event):
    """The value of a record of ``lethe.suppressions``: a subject is suppressed, or no longer.

    ``partition`` (``<topic id>/<partition>``) and ``offset`` are those of the request.
    """

    mark: str
    erasure_id: str
    lifted: bool = False
    partition: str
    offset: int

    @property
    def stored(self) -> str:
        """The value of its mark in the store."""
        word = _LIFTED if self.lifted else _ERASED
        return f"{self.partition} {self.offset} {word} {self.erasure_id}"

    @classmethod
    def parsed(cls, mark: str, stored: str) -> Suppression:
        """Return what a mark's value in the store says."""
        partition, offset, word, erasure_id = [*stored.split(" ", 3), "", "", ""][:4]
        return cls(
            mark=mark,
            erasure_id=erasure_id,
            lifted=word == _LIFTED,
            partition=partition,
            offset=integer(offset, f"suppression list, mark {mark}"),
        )


class Suppressions:
    """The list; one thread uses it."""

    def __init__(self, store: ModelStore, reader: Reader, seals: SealKeys) -> None:
        self._view = LogView(store.client, ERASED, "subjects")
        self._topic = TopicView(self._view, reader, lambda: topics.SUPPRESSIONS, _added)
        self._seals = seals

    def catch_up(self) -> None:
        """Read the list to the end that the log has now.

        Raises
        ------
        LogReset
            The topic has lost records.
        KeyUnknown
            A subject on the list was marked under a secret that is not here, so that it could not
            be recognised.
        """
        self._topic.catch_up()
        unknown = sorted(name for name in self._view.secrets() if name not in self._seals)
        if unknown:
            raise KeyUnknown(
                f"erased subjects are listed under seal key {unknown[0]}, which this process does "
                "not have: it would not notice if their rows came back; add the key to "
                "LETHE_SEAL_KEY_FILE, or see docs/erasures.md if it is lost"
            )

    def __len__(self) -> int:
        return len(self._view)

    def of(self, namespace: str, subject_ids: Iterable[str]) -> dict[str, str]:
        """Return those of the subjects that are suppressed, with the id of their erasure.

        As of the last `catch_up`. Cost: a round trip for 10,000 subjects, and an HMAC for each
        subject and secret; one round trip if nobody is on the list.
        """
        suppressed: dict[str, str] = {}
        if not len(self):
            return suppressed
        names = list(subject_ids)
        for start in range(0, len(names), _SUBJECTS):
            marked = {
                mark: subject
                for subject in names[start : start + _SUBJECTS]
                for mark in marks_of(self._seals, namespace, subject)
            }
            found = self._view.get(list(marked))
            newest = [Suppression.parsed(mark, value) for mark, value in found.items()]
            suppressed |= {marked[one.mark]: one.erasure_id for one in newest if not one.lifted}
        return suppressed

    def suppressing(
        self, namespace: str, subject_id: str, erasure_id: str, request: Record
    ) -> list[Message]:
        """Return what puts a subject on the list; nothing if this request has done so before.

        The same erasure may be sent again behind a lift, after its topic was lost.
        """
        marks = marks_of(self._seals, namespace, subject_id)
        change = _changing(marks[0], erasure_id, request, lifted=False)
        return [] if change.stored in self._view.get(marks).values() else [_message(change)]

    def lifting(
        self, namespace: str, subject_id: str, erasure_id: str, request: Record
    ) -> list[Message]:
        """Return what takes a subject off the list, whatever it was marked under."""
        newest, *older = marks_of(self._seals, namespace, subject_id)
        marks = [newest, *self._view.get(older)]
        return [_message(_changing(mark, erasure_id, request, lifted=True)) for mark in marks]

    def repeating(self) -> list[Message]:
        """Return the record that counts for each mark whose newest record does not.

        As of the last `catch_up`. Compaction keeps only the newest record of a mark, so the one
        that counts is written again.
        """
        counting = self._view.get(self._view.late())
        return [_message(Suppression.parsed(mark, value)) for mark, value in counting.items()]


def restart_list(store: ModelStore, producer: Producer) -> None:
    """Publish what the store has of the list to the present topic, and read that from the start.

    A person has given up another topic of that name. Where the store has nothing, nothing is on
    the list any more.
    """
    view = LogView(store.client, ERASED, "subjects")
    producer.publish(
        _message(Suppression.parsed(mark, value)) for mark, value in view.everything().items()
    )
    view.restart(keep=True)


def _changing(mark: str, erasure_id: str, request: Record, *, lifted: bool) -> Suppression:
    partition, offset = str(request.partition), request.offset
    return Suppression(
        mark=mark, erasure_id=erasure_id, lifted=lifted, partition=partition, offset=offset
    )


def _message(suppression: Suppression) -> Message:
    return Message(topics.SUPPRESSIONS, suppression.mark.encode(), suppression.value())


def _added(records: Sequence[Record]) -> Added:
    """Return what records add to the list; one that Lethe did not write adds nothing."""
    fields: list[tuple[str, str]] = []
    secrets: set[str] = set()
    for record in records:
        try:
            one = Suppression.read(record.value or b"")
        except ValueError:
            continue
        if record.key == one.mark.encode():
            fields.append((one.mark, one.stored))
            secrets |= set() if one.lifted else {secret_of(one.mark)}
    return Added(fields, frozenset(secrets))
