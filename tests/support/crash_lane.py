"""A lane of the crash tests: one platform, its workers dying one after the other, and the checks.

``python -m tests.support.crash_lane`` reads its orders as JSON from the first argument. Lanes run
at the same time, because a lane mostly waits until a dead worker's session has ended.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace

import numpy as np

from lethe.consumers.log.base import Log
from lethe.consumers.log.streams.log import StreamsLog
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.keys import ERASED_CHECKED
from lethe.engine.store.server.connection import connect, text
from tests.support import erasures
from tests.support.families import Data, make
from tests.support.invariants import check_model, ledger_of, live_rows
from tests.support.kafka_log import kafka_log
from tests.support.names import use_prefix
from tests.support.platform import Platform
from tests.support.worker_process import REGISTERING, WorkerProcess, registering

SECONDS = 600.0
_AHEAD = 6  # requests sent and not decided: there is always something to decide, never much
_ROWS = 3000
REGISTERED = "registered"
_PERSONAL, _NAMESPACE = "personal", "people"
_PEOPLE = 20


def feed(
    platform: Platform,
    true: Callable[[], bool],
    *,
    pause: float = 0.05,
    seconds: float = 200.0,
    garbage: bool = False,
    others: Sequence[str] = (),
    erased: set[str] | None = None,
) -> int:
    """Send requests, repeats and refresh orders while ``true``; return how many requests.

    ``others`` are models that come to be meanwhile, or do not. ``erased`` takes the ids
    of erasures, which are sent then, too.
    """
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
        if others and sent % 6 == 5:
            other = others[sent // 6 % len(others)]
            platform.send(other, f"row-{sent % 40}", request_id=f"{other}-{sent}")
        if sent % 6 == 3:
            platform.order(
                "m", [RefreshSize.REBUILD, RefreshSize.COMPACT, RefreshSize.COMPLETE][sent // 6 % 3]
            )
        if erased is not None and sent % 2:
            erased |= erase_somebody(platform, sent // 2)
        if garbage and sent % 3 == 0:
            platform.send_raw(b"garbage %d" % sent, b"m")
        sent += 1
    return sent


def erase_somebody(platform: Platform, sent: int) -> set[str]:
    """Erase two people, under new ids or old ones, and return these; searches models at times."""
    for number in (sent, sent // 2):
        subject = f"subject-{number % _PEOPLE}"
        erasures.erase(platform, subject, f"erasure-{number}", namespace=_NAMESPACE)
    if sent % 5 == 0:
        platform.raw().delete(ERASED_CHECKED)
    return {f"erasure-{number}" for number in (sent, sent // 2)}


def check_erasures(platform: Platform, erased: set[str]) -> None:
    """Every erasure has one combined receipt, and every row is deleted once."""
    for number in range(_PEOPLE):
        erased |= erase_somebody(platform, number)
    with closing(erasures.erasure_worker(platform)) as worker:
        erasures.drain(platform, worker)
    finals = erasures.finals(platform)
    assert finals.keys() == erased
    assert all(receipt.complete for receipt in finals.values())
    statuses = {erasures.outcomes(receipt)[_PERSONAL][0] for receipt in finals.values()}
    assert statuses <= {"APPLIED", "ALREADY_APPLIED"}
    gone = {row for number in range(_PEOPLE) for row in erasures.rows_of(number)}
    assert ledger_of(platform, _PERSONAL).keys() == gone
    assert sum(receipt.rows_deleted for receipt in finals.values()) == len(gone)
    check_model(platform, _PERSONAL, erased=gone)


def finish(platform: Platform) -> None:
    """Drain with this process's workers and check everything."""
    platform.drain()
    statuses = {receipt.status for receipt in platform.finals().values()}
    assert statuses <= {"APPLIED", "ALREADY_APPLIED"}
    assert len(platform.finals()) == sum(model == "m" for model, _ in platform.asked)
    assert all(r.code == "UNKNOWN_MODEL" for r in platform.finals("nobody").values())
    assert len(platform.finals("nobody")) == sum(model == "nobody" for model, _ in platform.asked)
    check_model(platform)
    check_row_keys(platform)


def check_row_keys(platform: Platform, model_id: str = "m") -> None:
    """Every live row has its key, no deleted row has one, and other generations' keys expire.

    With rows in files, each of these has its key, and what a generation has are copies of some.
    """
    if not platform.keys_url:
        return
    state = platform.load(model_id)
    prefix, files = state.keys.head.removesuffix("head"), state.meta.row_files
    kept: set[str] = set()
    with closing(connect(platform.keys_url)) as raw:
        for name in map(text, raw.scan_iter(f"{prefix}*", count=1000)):
            rows = set(map(text, raw.hkeys(name)))
            if ":file-keys:" in name:
                assert raw.ttl(name) == -1, f"{name} would expire"
                assert files is not None, f"{name} has keys of files that are gone"
                assert name == state.keys.file_keys(files.folder), f"{name} stays for ever"
            elif f":gen:{state.rows_generation}:" in name:
                assert raw.ttl(name) == -1, f"{name} would expire"
                kept |= rows
            else:
                assert raw.ttl(name) > 0, f"{name} stays for ever"
    wanted = set(state.sentinels.ids) if files is not None else live_rows(platform, model_id)
    assert kept == wanted, "keys are not those of the live rows"


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
        log = kafka_log(bootstrap, "lane", 1.5)
    else:
        log = StreamsLog(connect(url), lease_seconds=0.5)
    platform = Platform(log, url, 1, bootstrap, keys_url=str(orders["keys_url"]))
    discloses = bool(orders["discloses"])
    method = "exact" if discloses else "pru"
    platform.register("m", many_rows(), method=method, budget=10.0, disclosure=discloses)
    erasures.register(platform, _PERSONAL, namespace=_NAMESPACE, disclosure=discloses)
    deaths = orders["deaths"]
    assert isinstance(deaths, list)
    others = sorted({registering(REGISTERED, s, w) for s, _, w in deaths if s in REGISTERING})
    erased: set[str] = set()
    process = WorkerProcess(
        platform,
        str(orders["prefix"]),
        [tuple(death) for death in deaths],
        roles="deletions refresh erasures",
        session_seconds=float(str(orders["session_seconds"])),
        model=REGISTERED,
    )
    try:
        sent = feed(
            platform, process.running, seconds=SECONDS, garbage=True, pause=0.02, others=others,
            erased=erased,
        )  # fmt: skip
        process.check()
    finally:
        process.stop()
    check_erasures(platform, erased)
    finish(platform)
    letters = [record.value for record in platform.dead_letters()]
    garbage = {b"garbage %d" % i for i in range(0, sent, 3)}
    assert set(letters) == garbage, sorted(set(letters) ^ garbage, key=str)
    for model in others:
        platform.register(model, replace_model=True)
        platform.send_index(model, 1, 2)
        platform.drain()
        check_model(platform, model)
        check_row_keys(platform, model)
    platform.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
