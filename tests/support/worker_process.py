"""Workers as processes that end themselves at a step, and the handle on them.

``python -m tests.support.worker_process`` reads its orders as JSON from the first argument and
forks one child for each entry of ``deaths``, one after the other: ``[step, n, way]`` dies in that
way when it reaches that step for the n-th time, null lives until it is stopped. The parent loads
everything once and opens no connection, so that a child begins to work at once.

Ways: ``kill`` is SIGKILL, ``exit`` is ``os._exit``, ``raise`` raises there what nobody catches, so
that the worker is closed and leaves its group on the way out, as with `lethe work`. ``fault``
raises a lost connection instead, and the process goes on: the child has that at every step of
``FAULTS`` once, and then ends.

A step of a registration is reached by a child that registers, or replaces, a model of that step's
and way's own (`registering`).

A fold applies and publishes only what another process left behind: before a death in one comes one
at `Step.APPLY` (`after_a_death`).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import stamina

from lethe.consumers.log.base import Log
from lethe.consumers.log.streams.log import StreamsLog
from lethe.consumers.service.telemetry.steps import AtStep, Step, no_hook
from lethe.consumers.workers.deletion_worker import BatchLimits, DeletionWorker
from lethe.consumers.workers.erasure_worker import ErasureWorker
from lethe.consumers.workers.partition_worker import PartitionWorker
from lethe.consumers.workers.refresh_worker import RefreshWorker
from lethe.engine.errors import StoreUnavailable
from lethe.engine.store.server.connection import connect
from lethe.engine.store.store import ModelStore
from tests.support.kafka_log import kafka_log
from tests.support.names import use_prefix
from tests.support.platform import Platform, seals, store_at

Way = Literal["kill", "exit", "raise", "fault"]
Death = tuple[str, int] | tuple[str, int, Way] | None
WAYS: tuple[Way, ...] = ("kill", "exit", "raise")
REGISTERING = [step for step in Step if step.startswith("register_")]
FAULTS = [step for step in Step if step not in REGISTERING]
FOLDING = [Step.FOLD_APPLY, Step.FOLD_PUBLISH]
EVERY = "every step"
_EXIT, _RAISED = 7, 8
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
        model: str = "",
    ) -> None:
        orders = {
            "url": platform.url,
            "bootstrap": platform.bootstrap,
            "prefix": prefix,
            "deaths": deaths,
            "roles": roles,
            "session_seconds": session_seconds,
            "model": model,
            "keys_url": platform.keys_url,
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

    def wait_until(self, true: Callable[[], bool], seconds: float = 120.0) -> None:
        """Wait for what it does; assert that it lives meanwhile, and does it."""
        deadline = time.monotonic() + seconds
        while not true():
            self.check_alive()
            assert time.monotonic() < deadline, f"the workers did not get there in {seconds:g} s"
            time.sleep(0.1)

    def stop(self) -> None:
        """Kill it and what it runs."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(20)
        assert self._process.stderr is not None
        self._process.stderr.close()

    def check(self) -> None:
        """Assert that it ended as ordered: each child by its own hand."""
        assert self._process.stderr is not None
        said = self._process.stderr.read()
        assert self._process.wait(20) == 0, said[-4000:]
        self.stop()


def main(orders: dict[str, object]) -> int:
    """Fork one child after the other; return 0 when each died as ordered."""
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
        import lethe.consumers.log.kafka.log  # noqa: F401 - once, before the children
    for death in deaths:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            live(orders, None if death is None else Doom(*death))
        watch = threading.Thread(target=wait_for_the_end, args=(parent,), daemon=True)
        if death is deaths[0]:
            watch.start()
        _, status = os.waitpid(child, 0)
        if death is not None and not Doom(*death).met(status):
            sys.stderr.write(f"{death} ended with status {status}\n")
            return 1
    return 0


def wait_for_the_end(parent: int) -> None:
    """End with the test: its end of standard input is closed by then."""
    sys.stdin.read()
    os.kill(parent, signal.SIGTERM)


class Interrupted(BaseException):
    """Ends a worker where it stands; no handler of the product catches it."""


@dataclass
class Doom:
    """Where and how a child dies."""

    step: str
    count: int
    way: Way = "kill"
    reached: int = 0
    faults: list[str] = field(default_factory=lambda: list(FAULTS))

    def met(self, status: int) -> bool:
        """Return whether a process that ended with this status died as ordered."""
        if self.way == "kill":
            return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        code = _RAISED if self.way == "raise" else _EXIT
        return os.WIFEXITED(status) and os.WEXITSTATUS(status) == code

    def at_step(self, step: str) -> None:
        """Die, if it is time to."""
        if self.step == EVERY:
            self._fault(step)
        elif step == self.step:
            self.reached += 1
            if self.reached == self.count:
                if self.way == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                if self.way == "exit":
                    os._exit(_EXIT)
                raise Interrupted(step)

    def _fault(self, step: str) -> None:
        if step in self.faults:
            self.faults.remove(step)
            raise StoreUnavailable(f"a fault at {step}")
        if not self.faults:
            os._exit(_EXIT)


def live(orders: dict[str, object], doom: Doom | None) -> None:
    """Run the workers, or register, until the process dies; never returns."""
    at_step = no_hook if doom is None else doom.at_step
    use_prefix(str(orders["prefix"]))
    url, bootstrap = str(orders["url"]), str(orders["bootstrap"])
    keys_url = str(orders["keys_url"])
    session = float(str(orders["session_seconds"]))
    log: Log
    if bootstrap:
        log = kafka_log(bootstrap, f"worker-{os.getpid()}", session)
    else:
        log = StreamsLog(connect(url), lease_seconds=session)
    if doom is not None and doom.step == EVERY:
        # Pauses between tries grow to 5 s, and here every turn fails at another step.
        stamina.set_testing(True, attempts=1_000_000)
    if doom is not None and doom.step in REGISTERING:
        platform = Platform(log, url, 1, bootstrap, keys_url=keys_url)
        do_register(platform, registering(str(orders["model"]), doom.step, doom.way), at_step)
    work(str(orders["roles"]), log, partial(store_at, url, keys_url=keys_url), at_step)


def do_register(platform: Platform, model: str, at_step: AtStep) -> None:
    """Register a model, or replace it where it is registered.

    The log may know of it already when the store does not: one that died left a commit behind.
    """
    try:
        platform.register(model, replace_model=True, at_step=at_step)
    except Interrupted:
        platform.close()
        os._exit(_RAISED)
    finally:
        os._exit(3)  # it should not have come to its end, nor have failed


def registering(prefix: str, step: str, way: str) -> str:
    """Return the name of the model that is registered by those that die so."""
    return f"{prefix}-{step}-{way}"


def work(roles: str, log: Log, store: Callable[[], ModelStore], at_step: AtStep) -> None:
    """Run the workers."""
    stop = threading.Event()
    limits = BatchLimits(records=3, poll_seconds=0.05)
    workers: list[PartitionWorker] = []
    if "deletions" in roles:
        workers.append(DeletionWorker(log, store(), seals(), limits=limits, at_step=at_step))
    if "refresh" in roles:
        workers.append(RefreshWorker(log, store(), at_step=at_step))
    if "erasures" in roles:
        workers.append(ErasureWorker(log, store(), seals(), at_step=at_step, sweep_seconds=0.1))

    def run(worker: PartitionWorker) -> None:
        try:
            worker.run(stop)
        except Interrupted:
            worker.close()
            os._exit(_RAISED)
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(3)  # a worker that stops is a failure

    threads = [threading.Thread(target=run, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(3)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
