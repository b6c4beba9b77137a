"""How a command that runs until it is told to stop hears a signal."""

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
    """Let signals set ``stop``; an impatient second Ctrl-C interrupts.

    A signal may come twice for one (`timeout` signals its child and its group): only a SIGINT
    some time after the first one counts as impatience. Nothing is raised at the first one: in
    the midst of a library's work, or of an object's end, an exception is lost or becomes another.
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
