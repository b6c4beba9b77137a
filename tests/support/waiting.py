"""What tests of requests that wait have in common: a clock to move, and models that are crowded."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from lethe.engine.store.layout.config import LimitsRecord

CROWDED = LimitsRecord(floor_rows=1, fraction_of_d=1e-9)
"""More than 8 rows wait for a rebuild."""


def until(true: Callable[[], object], seconds: float) -> None:
    """Wait until something is true; assert that it becomes so."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"it did not become true in {seconds:g} s"
        time.sleep(0.02)


class Clock:
    """The present, moved by a test."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self._stopped: datetime | None = None

    def stop(self) -> None:
        """Stand still from now on, but for what a test moves."""
        self._stopped = datetime.now(UTC)

    def __call__(self) -> datetime:
        return (self._stopped or datetime.now(UTC)) + timedelta(seconds=self.ahead)
