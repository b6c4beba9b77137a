"""A lane of the crash tests: one platform, its workers dying one after the other, and the checks.

``python -m tests.support.crash_lane`` reads its orders as JSON from the first argument. Lanes run
at the same time, because a lane mostly waits until a dead worker's session has ended.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from consumers.log.base import Log
from consumers.log.streams import StreamsLog
from engine.policy import Size
from engine.store.connection import connect
from tests.families import Data, make
from tests.support.invariants import check_model, ledger_of
from tests.support.names import use_prefix
from tests.support.platform import Platform
from tests.support.worker_process import WorkerProcess

SECONDS = 600.0
_AHEAD = 6  # requests sent and not decided: there is always something to decide, never much
_ROWS = 3000


def feed(
    platform: Platform,
    true: Callable[[], bool],
    *,
    pause: float = 0.05,
    seconds: float = 200.0,
    garbage: bool = False,
) -> int:
    """Send requests, repeats and refresh orders while ``true``; return how many requests."""
    deadline = time.monotonic() + seconds
    sent = 0
    total = len(platform.data["m"].X) - 5
    while true():
        assert time.monotonic() < deadline, "the workers did not come to their end"
        time.sleep(pause)
        if garbage and sent - len(ledger_of(platform)) > _AHEAD:
            continue
        platform.send_index("m", sent % total, request_id=f"feed-{sent % total}")
        if sent % 6 == 1:  # a model that is not registered is loaded anew each time
            platform.send("nobody", "row", request_id=f"nobody-{sent}")
        if sent % 6 == 3:
            platform.order("m", [Size.REBUILD, Size.COMPACT, Size.COMPLETE][sent // 6 % 3])
        if garbage and sent % 3 == 0:
            platform.send_raw(b"garbage %d" % sent, b"m")
        sent += 1
    return sent


def finish(platform: Platform) -> None:
    """Drain with this process's workers and check everything."""
    platform.drain()
    statuses = {receipt.status for receipt in platform.finals().values()}
    assert statuses <= {"APPLIED", "ALREADY_APPLIED"}
    assert len(platform.finals()) == sum(model == "m" for model, _ in platform.asked)
    assert all(r.code == "UNKNOWN_MODEL" for r in platform.finals("nobody").values())
    assert len(platform.finals("nobody")) == sum(model == "nobody" for model, _ in platform.asked)
    check_model(platform)


def many_rows() -> Data:
    """Return more rows than a lane deletes."""
    data, rng = make("benign", "linear"), np.random.default_rng(3)
    X = rng.standard_normal((_ROWS, data.X.shape[1]))
    y = X @ rng.standard_normal((X.shape[1], data.y.shape[1])) + rng.standard_normal((_ROWS, 1))
    return replace(data, X=X, y=y, weight=np.ones(_ROWS))


def main(orders: dict[str, object]) -> None:
    """Feed until every ordered death was died, then check the models."""
    use_prefix(str(orders["prefix"]))
    url, bootstrap = str(orders["url"]), str(orders["bootstrap"])
    log: Log
    if bootstrap:
        from consumers.log.kafka import KafkaLog

        log = KafkaLog(bootstrap, client_id="lane", session_seconds=1.5)
    else:
        log = StreamsLog(connect(url), lease_seconds=0.5)
    platform = Platform(log, url, 1, bootstrap)
    platform.register("m", many_rows(), budget=10.0)
    deaths = orders["deaths"]
    assert isinstance(deaths, list)
    process = WorkerProcess(
        platform,
        str(orders["prefix"]),
        [tuple(death) for death in deaths],
        session_seconds=float(str(orders["session_seconds"])),
        model="registered",
    )
    try:
        sent = feed(platform, process.running, seconds=SECONDS, garbage=True, pause=0.02)
        process.check()
    finally:
        process.stop()
    finish(platform)
    letters = [record.value for record in platform.dead_letters()]
    assert set(letters) == {b"garbage %d" % i for i in range(0, sent, 3)}
    if "registered" in platform.store.model_ids():
        platform.register("registered", replace_model=True)
        platform.send_index("registered", 1, 2)
        platform.drain()
        check_model(platform, "registered")
    platform.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
