"""Asking again and again, without waiting, whether the cluster is there and what topics it has."""

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
    """Asks for the description of topics every two seconds.

    A time without an answer counts from the first question that has none: a worker that computed
    for a minute and asked nobody has not lost its brokers.
    """

    def __init__(self, questions: Questions, topics: Sequence[str]) -> None:
        self._questions = questions
        self._topics = topics
        self._asked: Mapping[str, Future[Any]] = {}
        self._next = 0.0
        self._silent_since: float | None = None

    def look(self, heard: Heard) -> Mapping[Partition, int] | None:
        """Return what a question brought, once; ask the next when it is time.

        With an answer, what was ``heard`` before is over.
        """
        now = time.monotonic()
        found: Mapping[Partition, int] | None = None
        if self._asked and all(future.done() for future in self._asked.values()):
            asked, self._asked = self._asked, {}
            try:
                found = self._questions.described(asked)
                self._silent_since = None
                heard.clear()
            except LogUnavailable:
                self._next = now  # ask again at once
        if not self._asked and now >= self._next:
            self._next = now + METADATA_SECONDS
            self._asked = self._questions.describe(self._topics)
            if self._silent_since is None:
                self._silent_since = now
        return found

    def check(self, heard: Heard) -> None:
        """Raise `LogUnavailable` when no question has been answered for some seconds."""
        if self._silent_since is None or not self._asked:
            return
        silence = time.monotonic() - self._silent_since
        if silence > server.UNREACHABLE_SECONDS:
            raise self._questions.server.unreachable(heard, f"no answer for {silence:.0f} s")
