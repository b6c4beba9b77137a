"""The outbox: messages that are committed with the state and published after it.

An entry is a JSON header line, a newline and the raw value, so that values are published byte
for byte, whatever they are. Entries leave by their own id: a worker that lost its partition can
trim what it published, and nothing else.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import redis
from pydantic import BaseModel

from engine.errors import CorruptState
from engine.store.connection import reachable, text
from engine.store.keys import ModelKeys
from engine.store.reading import record

BATCH = 256
"""Entries read at once: at 900 KB each, the largest, 230 MB."""


class Stage(StrEnum):
    """Publication order: each stage is acknowledged before the next begins."""

    PARAMETERS = "parameters"
    RECEIPTS = "receipts"
    VERSIONS = "versions"
    AFTER = "after"  # refresh jobs and dead letters: nobody waits for them


@dataclass(frozen=True, slots=True)
class Entry:
    """A message in the outbox."""

    stage: Stage
    topic: str
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()


class _Header(BaseModel):
    """The first line of an entry: all but the value; bytes as base64."""

    stage: Stage
    topic: str
    key: str
    headers: tuple[tuple[str, str], ...]


def encode(entry: Entry) -> bytes:
    """Return the stored form."""
    header = {
        "stage": entry.stage.value,
        "topic": entry.topic,
        "key": base64.b64encode(entry.key).decode(),
        "headers": [[k, base64.b64encode(v).decode()] for k, v in entry.headers],
    }
    return json.dumps(header, separators=(",", ":")).encode() + b"\n" + entry.value


def decode(data: bytes) -> Entry:
    """Return an entry from its stored form.

    Raises
    ------
    CorruptState
        It is no entry.
    """
    line, _, value = data.partition(b"\n")
    header = record(_Header, line, "an outbox entry")
    try:
        return Entry(
            header.stage,
            header.topic,
            base64.b64decode(header.key, validate=True),
            value,
            tuple((k, base64.b64decode(v, validate=True)) for k, v in header.headers),
        )
    except ValueError as error:
        raise CorruptState(f"an outbox entry does not parse ({error}); run `lethe check`") from None


class Outbox:
    """Reads and trims the outboxes of models."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def everything(self, where: ModelKeys) -> Iterator[tuple[bytes, Entry]]:
        """Yield all entries with their ids, in order of commit."""
        first = "-"
        while found := self.read(where, first):
            yield from found
            first = "(" + text(found[-1][0])

    def read(self, where: ModelKeys, first: str = "-") -> list[tuple[bytes, Entry]]:
        """Return the oldest entries from an id on, with their ids, in order of commit."""
        with reachable(self._client):
            found: Any = self._client.xrange(where.outbox, min=first, count=BATCH)
        if any(b"entry" not in fields for _, fields in found):
            raise CorruptState(f"{where.outbox}: holds what is no message; run `lethe check`")
        return [(text(entry_id).encode(), decode(fields[b"entry"])) for entry_id, fields in found]

    def holds(self, newest: Mapping[ModelKeys, tuple[bytes, Entry]]) -> list[ModelKeys]:
        """Return those models whose outbox still holds this entry, as it was read.

        One round trip. A server that has gone back since does not hold it, or another one under
        its id; and a connection that broke says so here.
        """
        pipeline = self._client.pipeline(transaction=False)
        for where, (entry_id, _) in newest.items():
            pipeline.xrange(where.outbox, entry_id, entry_id)
        with reachable(self._client):
            answers: list[Any] = pipeline.execute()
        return [
            where
            for (where, (_, entry)), found in zip(newest.items(), answers, strict=True)
            if found and found[0][1][b"entry"] == encode(entry)
        ]

    def trim(self, where: ModelKeys, ids: list[bytes]) -> None:
        """Remove published entries. Idempotent."""
        if ids:
            with reachable(self._client):
                self._client.xdel(where.outbox, *ids)

    def depth(self, models: Iterable[ModelKeys]) -> int:
        """Return how many entries wait, over all these models."""
        pipeline = self._client.pipeline(transaction=False)
        for where in models:
            pipeline.xlen(where.outbox)
        with reachable(self._client):
            # A key that is no stream is refused where its model is worked on, not here.
            found = pipeline.execute(raise_on_error=False)
        return sum(length for length in found if isinstance(length, int))
