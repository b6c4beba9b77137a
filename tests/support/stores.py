"""The whole store, kept and put back: servers that lag, or were cut off and went on alone."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from consumers import topics
from consumers.deletion_worker import BatchLimits
from consumers.log.memory import MemoryLog, Moment
from engine.errors import LogUnavailable
from tests.support.platform import Platform


def whole(platform: Platform) -> dict[bytes, bytes]:
    """Return all that the store holds, but for the log."""
    client: Any = platform.store.client
    names = [name for name in client.scan_iter("lethe:*") if not name.startswith(b"lethe:log:")]
    return {name: client.dump(name) for name in names}


def put_back(platform: Platform, kept: dict[bytes, bytes]) -> None:
    """Bring the whole store back to where it was."""
    client: Any = platform.store.client
    for name in whole(platform):
        client.delete(name)
    for name, dumped in kept.items():
        client.restore(name, 0, dumped)


def cut_off(memory: Platform, limits: BatchLimits) -> dict[bytes, bytes]:
    """Let a worker that cannot publish decide what there is; return its store.

    The other store is there again, as it was before.
    """
    assert isinstance(memory.log, MemoryLog)
    before = whole(memory)

    def cut(moment: Moment) -> None:
        if moment.call == "publish" and any(m.topic != topics.DELETIONS for m in moment.messages):
            raise LogUnavailable("cut")

    memory.log.hook = cut
    memory.pair[0].close()
    isolated = memory.deletion_worker(limits=limits)
    for _ in range(3):
        with suppress(LogUnavailable):
            isolated.run_once(0.0)
    isolated.close()
    branch = whole(memory)
    memory.log.hook = lambda _: None
    put_back(memory, before)
    time.sleep(0.01)  # others decide later: at the same moment the two would agree
    return branch
