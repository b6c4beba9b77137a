"""What `lethe check` checks about workers: somebody must read what waits.

Read-only. Each check is one line for an operator: what is fine, or what to do.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import closing

from lethe.consumers.audit.health.checks import Check
from lethe.consumers.log.base import Reader
from lethe.consumers.service.connect import Runtime
from lethe.consumers.workers.drained import lags
from lethe.consumers.workers.leases import Lease, find_unattended, read_leases, topics_by_role
from lethe.engine.errors import LetheError
from lethe.engine.store.store import ModelStore

_TAKE_OVER_SECONDS = 3.0  # partitions of a worker that has left go to another one within it
_PAUSE = 0.2


def check_workers(store: ModelStore, runtime: Runtime) -> Iterator[Check]:
    """Check that a living worker reads whatever waits; without workers, that nothing does."""
    subject = "workers"
    try:
        with closing(runtime.log.reader()) as reader:
            left, leases = _left(store, reader)
    except LetheError as error:
        yield Check(subject, False, str(error))
        return
    for line in left:
        yield Check(subject, False, line)
    if not left:
        yield Check(subject, True, "; ".join(map(_line, leases)) or "none, and nothing waits")


def _left(store: ModelStore, reader: Reader) -> tuple[list[str], list[Lease]]:
    """Return what nobody reads even after workers had time to take it over, and the workers."""
    deadline = time.monotonic() + _TAKE_OVER_SECONDS
    while True:
        leases = read_leases(store)
        names = itertools.chain(*topics_by_role().values())
        waiting = (lag for topic in names for lag in lags(reader, store, topic))
        left = find_unattended(waiting, leases)
        if not left or not leases or time.monotonic() > deadline:
            return left, leases
        time.sleep(_PAUSE)


def _line(lease: Lease) -> str:
    return f"{lease.role} on {lease.host} (pid {lease.pid}) reads {lease.reads}"
