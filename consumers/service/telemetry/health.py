"""Whether a worker is alive and makes progress: the answers of `/healthz` and `/readyz`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

STUCK_SECONDS = 60.0
"""A worker that makes no progress for this long while records wait reports itself not live."""


class Health:
    """Shared between the worker's thread, which reports, and the HTTP thread, which reads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._beat = clock()
        self._progress = clock()
        self._lag = 0
        self._ready = False
        self._trouble: str | None = None

    def beat(self) -> None:
        """Report that the loop is running."""
        with self._lock:
            self._beat = self._clock()

    def progress(self, lag: int) -> None:
        """Report that everything read was processed, and how many records still wait."""
        with self._lock:
            now = self._clock()
            self._beat = self._progress = now
            self._lag = lag
            self._trouble = None
            self._ready = True

    def waiting(self, lag: int) -> None:
        """Report how many records wait, without progress."""
        with self._lock:
            self._beat = self._clock()
            self._lag = lag
            if lag == 0:
                self._progress = self._beat

    def trouble(self, message: str) -> None:
        """Report what stops the worker; it keeps trying."""
        with self._lock:
            self._beat = self._clock()
            self._trouble = message
            self._ready = False

    def live(self) -> tuple[bool, Mapping[str, object]]:
        """Return whether the worker is live, and the facts."""
        with self._lock:
            now = self._clock()
            silent = now - self._beat
            stalled = now - self._progress if self._lag > 0 else 0.0
            facts = {
                "seconds_since_beat": round(silent, 1),
                "seconds_without_progress": round(stalled, 1),
                "lag": self._lag,
                "trouble": self._trouble,
            }
            return max(silent, stalled) < STUCK_SECONDS, facts

    def ready(self) -> tuple[bool, Mapping[str, object]]:
        """Return whether the worker is live and its last activity was progress, and the facts."""
        live, facts = self.live()
        with self._lock:
            return live and self._ready, facts
