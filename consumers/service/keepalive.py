"""Long reading beside a consumer that must not be taken for dead meanwhile."""

from __future__ import annotations

from lethe.consumers.log.base import Consumer
from lethe.consumers.service.health import Health
from lethe.engine.errors import LogReset


class Keepalive:
    """Keeps a consumer in its group, and its worker alive, without taking a record."""

    def __init__(self, consumer: Consumer, health: Health) -> None:
        self._consumer = consumer
        self._health = health
        self._reset: LogReset | None = None

    def __call__(self) -> None:
        """Be heard of. What the consumer finds out is kept: it is no fault of what is read."""
        try:
            self._consumer.poll(0.0, 0)
        except LogReset as reset:
            self._reset = reset
        self._health.beat()

    def check(self) -> None:
        """Raise what the consumer found out meanwhile.

        Raises
        ------
        LogReset
            A position is not in the log any more.
        """
        if self._reset is not None:
            raise self._reset
