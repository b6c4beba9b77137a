"""Keeps a consumer alive while its worker reads something else for a long time."""

from __future__ import annotations

import time
from collections.abc import Callable

from lethe.consumers.log.base import Consumer
from lethe.consumers.service.telemetry.health import Health
from lethe.engine.errors import LogReset

_PERIOD_SECONDS = 0.5  # of `Keepalive.now_and_then`: leases of Streams are renewed each 1.5 s


class Keepalive:
    """Keeps a consumer in its group, and its worker live, without taking a record.

    ``announce`` is called before each poll: others may see that the worker lives.
    """

    def __init__(
        self, consumer: Consumer, health: Health, announce: Callable[[], None] = lambda: None
    ) -> None:
        self._consumer = consumer
        self._health = health
        self._announce = announce
        self._reset: LogReset | None = None
        self._last = time.monotonic()

    def now_and_then(self) -> None:
        """Send a sign of life if there was none for a while: what is called often calls this."""
        if time.monotonic() - self._last >= _PERIOD_SECONDS:
            self()

    def __call__(self) -> None:
        """Send a sign of life. A reset is kept for `check`: what is being read is not its cause."""
        self._last = time.monotonic()
        self._announce()
        try:
            self._consumer.poll(0.0, 0)
        except LogReset as reset:
            self._reset = reset
        self._health.beat()

    def check(self) -> None:
        """Raise a reset that the consumer has reported meanwhile: call it before each poll.

        Raises
        ------
        LogReset
            A position is no longer in the log.
        """
        self._last = time.monotonic()
        self._announce()
        if self._reset is not None:
            raise self._reset
