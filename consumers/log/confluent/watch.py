"""Polling the cluster, without waiting, for its availability and its topics."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from lethe.consumers.log.base import Partition
from lethe.consumers.log.confluent import server
from lethe.consumers.log.confluent.questions import Questions
from lethe.consumers.log.confluent.server import METADATA_SECONDS, Heard
from lethe.engine.errors import LogUnavailable


class Watch:
    """Requests the description of the topics every two seconds.

    Silence is counted from the first unanswered request: a worker that computed for a minute
    without sending one has not lost its brokers.
    """

    def __init__(self, questions: Questions, topics: Sequence[str]) -> None:
        self._questions = questions
        self._topics = topics
        self._pending: Mapping[str, Future[Any]] = {}
        self._next = 0.0
        self._silent_since: float | None = None

    def look(self, heard: Heard) -> Mapping[Partition, int] | None:
        """Return each answer once, or None; send the next request when it is due.

        An answer clears the failures in ``heard``.
        """
        now = time.monotonic()
        leaders: Mapping[Partition, int] | None = None
        if self._pending and all(future.done() for future in self._pending.values()):
            answered, self._pending = self._pending, {}
            try:
                leaders = self._questions.described(answered)
                self._silent_since = None
                heard.clear()
            except LogUnavailable:
                self._next = now  # retry at once
        if not self._pending and now >= self._next:
            self._next = now + METADATA_SECONDS
            self._pending = self._questions.describe(self._topics)
            if self._silent_since is None:
                self._silent_since = now
        return leaders

    def check(self, heard: Heard) -> None:
        """Raise `LogUnavailable` if no request has been answered for some seconds."""
        if self._silent_since is None or not self._pending:
            return
        silence = time.monotonic() - self._silent_since
        if silence > server.UNREACHABLE_SECONDS:
            raise self._questions.server.unreachable(heard, f"no answer for {silence:.0f} s")
