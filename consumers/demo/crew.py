"""The real workers, each in its own thread with its own store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lethe.consumers.service.connect import Runtime
from lethe.consumers.service.steps import Step
from lethe.consumers.workers.deletion_worker import DeletionWorker
from lethe.consumers.workers.refresh_worker import RefreshWorker

_LEAVE_SECONDS = 10.0


class Crew:
    """Threads that run workers until they are told to stop."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._broken: list[BaseException] = []

    def start(self, name: str, run: Callable[[threading.Event], None]) -> None:
        """Run ``run(stop)`` in a thread of this name."""

        def guarded() -> None:
            try:
                run(self._stop)
            except BaseException as error:
                self._broken.append(error)

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def check(self) -> None:
        """Raise the error that ended a thread, if any."""
        if self._broken:
            raise self._broken[0]

    def stop(self) -> None:
        """Let every thread finish its current work."""
        self._stop.set()
        for thread in self._threads:
            thread.join(_LEAVE_SECONDS)


@contextmanager
def at_work(runtime: Runtime, after_publishing: Callable[[], None]) -> Iterator[Crew]:
    """Run a deletion worker and a refresh worker.

    The deletion worker calls ``after_publishing`` once its messages are acknowledged. The demo lets
    its subscriber read every version there, because the compacted topic of parameters keeps only
    the newest.
    """

    def at_step(step: str) -> None:
        if step == Step.ADVANCE:
            after_publishing()

    store = runtime.store()
    deletions = DeletionWorker(
        runtime.log, store, runtime.seals(store), signer=runtime.signer(), at_step=at_step
    )
    refreshes = RefreshWorker(runtime.log, runtime.store())
    crew = Crew()
    crew.start("deletions", deletions.run)
    crew.start("refresh", refreshes.run)
    try:
        yield crew
    finally:
        crew.stop()
        refreshes.close()
        deletions.close()
