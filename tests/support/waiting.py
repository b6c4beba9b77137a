"""What tests of requests that wait have in common: a clock to move, and models that are crowded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from lethe.engine.store.state import LimitsRecord

CROWDED = LimitsRecord(floor_rows=1, fraction_of_d=1e-9)
"""More than 8 rows wait for a rebuild."""


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
