"""Worker processes: ``python -m tests.proof.chaos.worker`` forks one for every command it is given.

The parent loads everything once, and a child works within a few milliseconds. One JSON object a
line on standard input starts a worker; the answer is its process id. Children end with the parent,
and the parent with its standard input.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from lethe.consumers.service.configuration.settings import load_settings
from lethe.consumers.service.kafka_client import kafka_log
from lethe.consumers.service.telemetry.logs import configure_logging
from lethe.consumers.workers.deletion_worker import BatchLimits, DeletionWorker
from lethe.consumers.workers.erasure_worker import ErasureWorker
from lethe.consumers.workers.refresh_worker import RefreshWorker
from lethe.engine.errors import Unavailable
from lethe.engine.store.server.barrier import Barrier
from lethe.engine.store.server.connection import connect
from lethe.engine.store.store import ModelStore
from tests.proof.chaos.recording import Diary, RecordedLog, RecordedStore
from tests.support.platform import seals

_TRY_SECONDS = 0.2


def main() -> None:
    """Fork until standard input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel takes the dead away
    children: list[int] = []
    for line in iter(sys.stdin.readline, ""):
        orders = json.loads(line)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            work(orders)
        children.append(child)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
    for child in children:
        try:
            os.kill(child, signal.SIGKILL)
        except ProcessLookupError:
            continue


def work(orders: dict[str, Any]) -> None:
    """Run one worker until the process dies; never returns."""
    parent = os.getppid()
    kept = os.open(orders["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(kept, 2)
    os.dup2(kept, 1)
    os.close(0)
    configure_logging("INFO", "console")
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    diary = Diary(Path(orders["diary"]), orders["name"])
    diary.write("start", role=orders["role"])
    code = 3  # a worker that stops by itself is a failure
    try:
        with threadpool_limits(1):
            _reach(orders, diary).run(threading.Event())
    except BaseException as error:
        diary.write("ended", reason=f"{type(error).__name__}: {error}")
        raise
    finally:
        os._exit(code)


def _reach(orders: dict[str, Any], diary: Diary) -> DeletionWorker | RefreshWorker | ErasureWorker:
    """Make the worker, as often as it takes: servers may be away."""
    while True:
        try:
            log = RecordedLog(
                kafka_log(
                    load_settings({}),
                    orders["name"],
                    bootstrap=orders["bootstrap"],
                    session_seconds=orders["session"],
                ),
                diary,
            )
            client = connect(orders["redis"])
            store = RecordedStore(client, Barrier(client, required=False), diary)
            if orders["role"] == "refresh":
                clients = [connect(orders["redis"]) for _ in range(2)]
                lanes = [ModelStore(one, Barrier(one, required=False)) for one in clients]
                return RefreshWorker(log, store, lanes=lanes)
            if orders["role"] == "erasures":
                return ErasureWorker(log, store, seals())
            limits = BatchLimits(records=orders["records"], poll_seconds=0.2)
            return DeletionWorker(log, store, seals(), limits=limits)
        except Unavailable:
            time.sleep(_TRY_SECONDS)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(4)


if __name__ == "__main__":
    main()
