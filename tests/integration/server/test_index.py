"""The console's index on every log, on a real store, and killed while it follows."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from lethe.consumers.server.index import follower, models, requests
from lethe.consumers.server.index.follower import Feed, IndexFollower
from lethe.consumers.server.index.records import WAITING
from lethe.consumers.server.index.schema import IndexFile
from lethe.engine.store.server.connection import reachable
from tests.integration.conftest import KAFKA
from tests.support.platform import Platform
from tests.support.servers import ROOT
from tests.support.stores import wipe

_SECONDS = 120.0


def read_all(platform: Platform, file: IndexFile) -> None:
    with closing(file.open_for_writing()) as connection, closing(platform.log.reader()) as reader:
        feed = Feed(connection, reader)
        while feed.advance() or feed.behind:
            pass


def outcomes(file: IndexFile) -> dict[str, tuple[Any, ...]]:
    columns = ("status", "code", "rows_deleted", "rows_unknown", "version")
    with file.read() as connection:
        rows = requests.page_of(connection, requests.Filters()).rows
    return {row["request_id"]: tuple(row[name] for name in columns) for row in rows}


@pytest.mark.parametrize("kind", ["memory", "streams", KAFKA])
def test_what_was_published_is_shown_on_every_log(
    platform_on: Callable[..., Platform], tmp_path: Path, kind: str
) -> None:
    platform = platform_on(kind)
    platform.register("m")
    platform.send_index("m", 0, 1, request_id="two")
    platform.send("m", "nobody", request_id="nobody")
    platform.send("unknown", "row-1", request_id="early")
    platform.drain()
    platform.send_index("m", 2, request_id="late")
    file = IndexFile(tmp_path)
    read_all(platform, file)

    assert outcomes(file) == {
        "two": ("APPLIED", None, 2, 0, 1),
        "nobody": ("REJECTED", "UNKNOWN_ROWS", 0, 1, None),
        "early": ("REJECTED", "UNKNOWN_MODEL", 0, 0, None),
        "late": (WAITING, None, 0, 0, None),
    }
    with file.read() as connection:
        newest = models.model_of(connection, "m")
    assert newest is not None
    assert (newest["version"], newest["digest"]) == (1, platform.load("m").digest)
    platform.drain()
    read_all(platform, file)
    assert outcomes(file)["late"] == ("APPLIED", None, 1, 0, 2)


def until(file: IndexFile, holds: Callable[[sqlite3.Connection], bool]) -> None:
    end = time.monotonic() + _SECONDS
    while True:
        with file.read() as connection:
            if holds(connection):
                return
        assert time.monotonic() < end
        time.sleep(0.05)


def test_what_only_the_store_knows_is_shown_and_taken_back(
    memory: Platform, tmp_path: Path
) -> None:
    memory.register("m")
    file, store = IndexFile(tmp_path), memory.new_store()

    def trouble(connection: sqlite3.Connection) -> dict[str, str | None]:
        return {row["model_id"]: row["trouble"] for row in models.troubles(connection)}

    head = memory.load("m").keys.head
    with closing(store), IndexFollower(file, memory.log, store, None).running():
        until(file, lambda connection: models.model_of(connection, "m") is not None)
        with reachable(memory.raw()):
            arrays = memory.raw().hget(head, "arrays")
            memory.raw().hset(head, "arrays", b"")
        until(file, lambda connection: trouble(connection) == {"m": "STUCK"})
        memory.raw().hset(head, "arrays", arrays)
        until(file, lambda connection: trouble(connection) == {})
        memory.raw().hset(head, "meta", b"{")
        until(file, lambda connection: trouble(connection) == {"m": "CORRUPT_STATE"})
        wipe(memory)  # the store is another one now, in which no model was registered
        until(file, lambda connection: trouble(connection) == {})


def test_of_two_followers_one_writes_and_the_other_takes_over(
    memory: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "_RETRY_SECONDS", 0.05)
    memory.register("m")
    file, store = IndexFile(tmp_path), memory.new_store()
    first, second = (IndexFollower(file, memory.log, store, None) for _ in range(2))
    with closing(store), ExitStack() as both:
        one = both.enter_context(ExitStack())
        one.enter_context(first.running())
        until(file, lambda connection: models.model_of(connection, "m") is not None)
        both.enter_context(second.running())
        quiet = second.wait(0, _SECONDS).changes
        memory.send_index("m", 0, request_id="while both run")
        assert second.wait(quiet, _SECONDS).changes > quiet
        one.close()
        memory.send_index("m", 1, request_id="after the first")
        until(file, lambda connection: _known(connection, "after the first"))


def _known(connection: sqlite3.Connection, request_id: str) -> bool:
    return requests.request_history(connection, "m", request_id) is not None


_FOLLOW = """
import sys
from pathlib import Path
import redis
from lethe.consumers.log.streams.log import StreamsLog
from lethe.consumers.server.index.follower import Feed
from lethe.consumers.server.index.schema import IndexFile
from tests.support.names import use_prefix
url, directory, prefix = sys.argv[1:]
use_prefix(prefix)
feed = Feed(IndexFile(Path(directory)).open_for_writing(),
            StreamsLog(redis.Redis.from_url(url)).reader())
print("follows", flush=True)
while True:
    feed.advance()
"""


def test_a_follower_that_is_killed_again_and_again_neither_loses_nor_doubles(
    platform_on: Callable[..., Platform], names: str, tmp_path: Path
) -> None:
    platform = platform_on("streams")
    platform.register("m")
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    for directory in (killed, whole):
        directory.mkdir()
    for i in range(12):
        process = subprocess.Popen(
            [sys.executable, "-c", _FOLLOW, platform.url, str(killed), names],
            cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": "src:."},
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "follows\n"
        platform.send_index("m", i, request_id=f"r{i}")
        platform.drain()
        time.sleep(0.01 * (i % 4))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    read_all(platform, IndexFile(killed))
    read_all(platform, IndexFile(whole))

    found = outcomes(IndexFile(killed))
    assert found == outcomes(IndexFile(whole))
    assert {status for status, *_ in found.values()} == {"APPLIED"}
    assert len(found) == 12
