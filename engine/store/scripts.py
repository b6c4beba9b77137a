"""Lua scripts in pipelines, in one round trip each.

redis-py asks the server for each script before it sends a pipeline that calls one. Here they are
called by digest at once; a server that does not know one (it was restarted) is sent all of them,
and the pipeline is sent again. So every script that runs in a pipeline must be safe to repeat.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import redis
from redis.exceptions import NoScriptError

from lethe.engine.errors import CorruptState
from lethe.engine.store.connection import reachable


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
        return [_checked(client, answer, each=each) for answer in answers]


def _checked(client: redis.Redis, answer: Any, *, each: bool) -> Any:
    if not isinstance(answer, Exception):
        return answer
    try:
        with reachable(client):
            raise answer
    except CorruptState as error:
        if not each:
            raise
        return error
