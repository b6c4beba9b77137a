"""A log and a consumer in front of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lethe.consumers.log.base import (
    Consumer,
    Log,
    Producer,
    Reader,
    TopicSpec,
)


class WrappedLog(Log):
    """Delegates every call to another log; subclasses override what differs."""

    def __init__(self, log: Log) -> None:
        self.name = log.name
        self._log = log

    def ensure_topics(self, specs: Sequence[TopicSpec]) -> Sequence[str]:
        """Create the missing topics; return the names of those created."""
        return self._log.ensure_topics(specs)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records."""
        self._log.delete_topic(name)

    def consumer(self, group: str, topics: Sequence[str]) -> Consumer:
        """Join ``group`` and read ``topics``."""
        return self._log.consumer(group, topics)

    def producer(self) -> Producer:
        """Return a new producer."""
        return self._log.producer()

    def reader(self) -> Reader:
        """Return a new reader."""
        return self._log.reader()

    def ping(self) -> str:
        """Return a short line about the server."""
        return self._log.ping()

    def topic_settings(self, topic: str) -> Mapping[str, str]:
        """Return a topic's settings."""
        return self._log.topic_settings(topic)

    def close(self) -> None:
        """Release the log's own resources."""
        self._log.close()
