"""The loop of a worker: turn until told to stop, wait for servers that are away."""

from __future__ import annotations

import threading
from collections.abc import Callable

import stamina

from consumers.health import Health
from consumers.telemetry import Logger
from engine.errors import CommitConflict, NotDurable, Unavailable

TRANSIENT = (Unavailable, NotDurable, CommitConflict)
"""What is waited for; everything is read again afterwards."""


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
