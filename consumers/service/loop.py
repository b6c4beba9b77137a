"""The loop of a worker: turn until told to stop, wait for servers that are away."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import stamina

from lethe.consumers.service.health import Health
from lethe.consumers.service.logs import Logger
from lethe.engine.errors import CommitConflict, NotDurable, Unavailable

TRANSIENT = (Unavailable, NotDurable, CommitConflict)
"""What is waited for; everything is read again afterwards."""


_YOUNG_OBJECTS = 50_000


def collect_rarely() -> None:
    """Have Python look for reference cycles in new objects alone, and seldom.

    A batch makes ten thousand objects and no cycles; looking through them, and through all modules,
    each time is a tenth of a worker's time. To be called once a worker process is set up.
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
    """Call ``turn`` until ``stop`` is set; on a transient error recover, back off, go on.

    Other errors end the loop: a person must decide.
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
