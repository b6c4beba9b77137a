"""Records of `lethe.commits` as the models see them: chained, judged by place, known by a number.

A record's *digest* is its number in `Journal`: two appends are never the same record, because each
carries the number of its attempt. A model's base is a record, too, that lies below every log.
"""

from __future__ import annotations

from typing import NamedTuple

Log = tuple[int, ...]
Heads = tuple[int, ...]
NONE = -1


class Record(NamedTuple):
    """The open part, and what the record decides.

    `request` is None for the base. `writer` and `attempt` make every append a record of its own.
    """

    model: int
    commit: int
    prev: int
    request: str | None
    writer: int
    attempt: int


class Journal:
    """Every record that was ever made, and what a log of them means."""

    def __init__(self, models: int) -> None:
        self._records = [Record(model, 0, NONE, None, NONE, NONE) for model in range(models)]
        self._numbers = {record: number for number, record in enumerate(self._records)}
        self._chains: dict[int, tuple[int, ...]] = {}
        self._accepted: dict[Log, tuple[Heads, tuple[bool, ...]]] = {}
        self.bases: Heads = tuple(range(models))

    def __getitem__(self, digest: int) -> Record:
        return self._records[digest]

    def append(self, prev: int, request: str, writer: int, attempt: int) -> int:
        """Make the record that continues `prev`; return its digest."""
        below = self._records[prev]
        record = Record(below.model, below.commit + 1, prev, request, writer, attempt)
        if record not in self._numbers:
            self._numbers[record] = len(self._records)
            self._records.append(record)
        return self._numbers[record]

    def chain(self, head: int) -> tuple[int, ...]:
        """Return the records from the model's base, without it, to `head`."""
        known = self._chains.get(head)
        if known is None:
            record = self._records[head]
            below = () if record.prev == NONE else (*self.chain(record.prev), head)
            known = self._chains[head] = below
        return known

    def decided(self, head: int) -> tuple[str, ...]:
        """Return the requests that the chain to `head` decides, in order."""
        return tuple(self._records[digest].request or "" for digest in self.chain(head))

    def descends(self, digest: int, head: int) -> bool:
        """Whether `digest` is `head` or below it on the chain."""
        return digest == head or digest in self.chain(head)

    def accepted(self, log: Log) -> tuple[Heads, tuple[bool, ...]]:
        """Return the heads that a whole log leads to, and which of its records are valid."""
        known = self._accepted.get(log)
        if known is None:
            heads, valid = list(self.bases), []
            for digest in log:
                record = self._records[digest]
                valid.append(record.prev == heads[record.model])
                if valid[-1]:
                    heads[record.model] = digest
            known = self._accepted[log] = (tuple(heads), tuple(valid))
        return known

    def valid(self, log: Log) -> frozenset[int]:
        """Return the records of a whole log that are valid."""
        flags = self.accepted(log)[1]
        return frozenset(digest for digest, flag in zip(log, flags, strict=True) if flag)

    def name(self, digest: int) -> str:
        """Name a record for a trace: model, commit, request, writer and attempt."""
        record = self._records[digest]
        letter = "ABC"[record.model]
        if record.request is None:
            return f"{letter}0"
        return f"{letter}{record.commit}:{record.request}/W{record.writer + 1}#{record.attempt}"

    def names(self, digests: tuple[int, ...]) -> str:
        """Name several records."""
        return ", ".join(self.name(digest) for digest in digests)
