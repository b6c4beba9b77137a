"""The loop of a worker: repeat until told to stop, and wait for unavailable servers."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import stamina

from lethe.consumers.service.telemetry.health import Health
from lethe.consumers.service.telemetry.logs import Logger
from lethe.engine.errors import CommitConflict, NotDurable, Unavailable

TRANSIENT = (Unavailable, NotDurable, CommitConflict)
"""Errors that the loop waits out; everything is read again afterwards."""


_YOUNG_OBJECTS = 50_000


def collect_rarely() -> None:
    """Make Python search for reference cycles rarely, and among new objects only.

    A batch creates ten thousand objects and no cycles; searching them and all modules each time
    takes a tenth of a worker's time. Call it once, when a worker process is set up.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, 20, 20)


def keep_turning(
    stop: threading.Event,
    turn: Callable[[], object],
    *,
    recover: Callable[[], None],
    health: Health,
    logger: Logger,
) -> None:
    """Call ``turn`` until ``stop`` is set; on a transient error recover, back off and retry.

    Other errors end the loop: they need a person.
    """
    while not stop.is_set():
        for attempt in stamina.retry_context(
            on=TRANSIENT, attempts=None, timeout=None, wait_initial=0.1, wait_max=5.0
        ):
            with attempt:
                if stop.is_set():
                    return
                try:
                    turn()
                except TRANSIENT as error:
                    health.trouble(str(error))
                    logger.warning("waiting", action="retry", reason=str(error))
                    recover()
                    raise
