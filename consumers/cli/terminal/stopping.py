"""Signal handling for commands that run until they are stopped."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_IMPATIENT_SECONDS = 1.0


@contextmanager
def stopped_by(stop: threading.Event, *signals: signal.Signals) -> Iterator[None]:
    """Let signals set ``stop``; a later second Ctrl-C interrupts.

    One signal may arrive twice (`timeout` signals its child and its group), so a second SIGINT
    interrupts only some time after the first. The first raises nothing: inside a library call or a
    destructor, an exception would be lost or turn into another.
    """
    first: list[float] = []

    def handle(number: int, frame: Any) -> None:
        first.append(time.monotonic())
        if number == signal.SIGINT and first[-1] - first[0] > _IMPATIENT_SECONDS:
            signal.default_int_handler(number, frame)
        stop.set()

    before = {number: signal.signal(number, handle) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
