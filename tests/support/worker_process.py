"""Workers as processes that kill themselves (SIGKILL) at a step, and the handle on them.

``python -m tests.support.worker_process`` reads its orders as JSON from the first argument and
forks one child for each entry of ``deaths``, one after the other: ``[step, n]`` dies when it
reaches that step for the n-th time, null lives until it is stopped. The parent loads everything
once and opens no connection, so that a child begins to work at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from consumers.deletion_worker import BatchLimits, DeletionWorker
from consumers.log.base import Log
from consumers.log.streams import StreamsLog
from consumers.refresh_worker import RefreshWorker
from engine.store.connection import connect
from tests.support.names import use_prefix
from tests.support.platform import Platform, store_at

Death = tuple[str, int] | None
ROOT = Path(__file__).resolve().parents[2]


class WorkerProcess:
    """A process of workers, started by a test."""

    def __init__(
        self,
        platform: Platform,
        prefix: str,
        deaths: Sequence[Death] = (None,),
        roles: str = "deletions refresh",
        session_seconds: float = 1.5,
    ) -> None:
        orders = {
            "url": platform.url,
            "bootstrap": platform.bootstrap,
            "prefix": prefix,
            "deaths": deaths,
            "roles": roles,
            "session_seconds": session_seconds,
        }
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-W",
                "ignore::DeprecationWarning",
                "-m",
                "tests.support.worker_process",
                json.dumps(orders),
            ],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,  # closed with this process: the workers end then
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def running(self) -> bool:
        """Return whether some death is still to come."""
        return self._process.poll() is None

    def check_alive(self) -> None:
        """Assert that it still works; what it said last explains a worker that stopped."""
        assert self._process.stderr is not None
        if not self.running():
            raise AssertionError(f"the workers stopped: {self._process.stderr.read()[-4000:]}")

    def stop(self) -> None:
        """Kill it and what it runs."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(20)
        assert self._process.stderr is not None
        self._process.stderr.close()

    def check(self) -> None:
        """Assert that it ended as ordered: each child by its own SIGKILL."""
        assert self._process.stderr is not None
        said = self._process.stderr.read()
        assert self._process.wait(20) == 0, said[-4000:]
        self.stop()


def main(orders: dict[str, object]) -> int:
    """Fork one child after the other; return 0 when each died by SIGKILL."""
    child = 0

    def end(*_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    parent = os.getpid()
    deaths = orders["deaths"]
    assert isinstance(deaths, list)
    if orders["bootstrap"]:
        import consumers.log.kafka  # noqa: F401  # loaded once, before the children
    for death in deaths:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            work(orders, None if death is None else (str(death[0]), int(death[1])))
        watch = threading.Thread(target=wait_for_the_end, args=(parent,), daemon=True)
        if death is deaths[0]:
            watch.start()
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            return 1
    return 0


def wait_for_the_end(parent: int) -> None:
    """End with the test: its end of standard input is closed by then."""
    sys.stdin.read()
    os.kill(parent, signal.SIGTERM)


def work(orders: dict[str, object], death: Death) -> None:
    """Run the workers until the process dies; never returns."""
    reached = 0

    def at_step(step: str) -> None:
        nonlocal reached
        if death is not None and step == death[0]:
            reached += 1
            if reached == death[1]:
                os.kill(os.getpid(), signal.SIGKILL)

    use_prefix(str(orders["prefix"]))
    url, bootstrap = str(orders["url"]), str(orders["bootstrap"])
    session = float(str(orders["session_seconds"]))
    log: Log
    if bootstrap:
        from consumers.log.kafka import KafkaLog

        log = KafkaLog(bootstrap, client_id=f"worker-{os.getpid()}", session_seconds=session)
    else:
        log = StreamsLog(connect(url), lease_seconds=session)
    stop = threading.Event()
    limits = BatchLimits(records=3, poll_seconds=0.05)
    runs = []
    if "deletions" in str(orders["roles"]):
        runs.append(DeletionWorker(log, store_at(url), limits=limits, at_step=at_step).run)
    if "refresh" in str(orders["roles"]):
        runs.append(RefreshWorker(log, store_at(url), at_step=at_step).run)

    def run(one: object) -> None:
        try:
            one(stop)  # type: ignore[operator]  # a worker's run
        finally:
            os._exit(3)  # a worker that stops is a failure

    threads = [threading.Thread(target=run, args=(one,)) for one in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(3)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
