"""Commands and Lua scripts in pipelines, in one round trip each.

redis-py asks the server for each script before it sends a pipeline that calls one. Here they are
called by digest at once; a server that does not know one (it was restarted) is sent all of them,
and the pipeline is sent again. So every script that runs in a pipeline must be safe to repeat.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import redis
from redis.exceptions import NoScriptError

from lethe.engine.errors import CorruptState
from lethe.engine.store.layout.keys import by_shard
from lethe.engine.store.server.connection import reachable, text

CHUNK = 500
"""Elements in one command: with d = 4000, 32 MB of row records."""


@dataclass(frozen=True)
class Script:
    """A Lua script."""

    text: str

    @cached_property
    def digest(self) -> str:
        """The name under which a server keeps it."""
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def queue(self, pipeline: Any, keys: Sequence[str], arguments: Sequence[Any]) -> None:
        """Add a call to a pipeline."""
        pipeline.evalsha(self.digest, len(keys), *keys, *arguments)


def run_pipeline(
    client: redis.Redis,
    scripts: Sequence[Script],
    queue: Callable[[Any], object],
    *,
    each: bool = False,
) -> list[Any]:
    """Send what ``queue`` adds to a pipeline, in one round trip, and return the answers.

    ``each``: a key of another type affects only the answer of its own command, which is then a
    `CorruptState`: other commands are for other models.

    Raises
    ------
    StoreUnavailable
        No answer: what was sent may or may not have happened.
    CorruptState
        A key holds another type than the command is for.
    """
    with reachable(client):
        for _ in range(2):
            pipeline = client.pipeline(transaction=False)
            queue(pipeline)
            answers: list[Any] = pipeline.execute(raise_on_error=False)
            if not any(isinstance(answer, NoScriptError) for answer in answers):
                break
            for script in scripts:
                client.script_load(script.text)
        return [
            _error(client, answer, each=each) if isinstance(answer, Exception) else answer
            for answer in answers
        ]


def _error(client: redis.Redis, answer: Exception, *, each: bool) -> CorruptState:
    try:
        with reachable(client):
            raise answer
    except CorruptState as error:
        if not each:
            raise
        return error


def chunks(names: Sequence[str]) -> Iterator[list[str]]:
    """Yield the names in lists of at most `CHUNK`."""
    for start in range(0, len(names), CHUNK):
        yield list(names[start : start + CHUNK])


def read_list(client: redis.Redis, key: str) -> Iterator[list[str]]:
    """Yield the texts of a stored list, at most `CHUNK` at a time."""
    start = 0
    while True:
        with reachable(client):
            stored: Any = client.lrange(key, start, start + CHUNK - 1)
        if not stored:
            return
        yield [text(one) for one in stored]
        start += len(stored)


def read_shards(
    client: redis.Redis, key: Callable[[int], str], row_ids: Sequence[str]
) -> dict[str, bytes]:
    """Return the fields of those rows that have one, from the hashes ``key`` of their shards."""
    fields: dict[str, bytes] = {}
    for chunk in chunks(row_ids):
        shards = by_shard(chunk)
        with reachable(client):
            pipeline = client.pipeline(transaction=False)
            for shard, rows in shards.items():
                pipeline.hmget(key(shard), rows)
            answers = pipeline.execute()
        for rows, values in zip(shards.values(), answers, strict=True):
            fields |= present(rows, values)
    return fields


def present(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """Return the values of an HMGET by name, without those that are missing."""
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}
