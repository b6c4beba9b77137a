"""The append-only file after a deletion: what is in it until it is written anew."""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner

from lethe.consumers.cli.main import lethe
from lethe.consumers.contract import topics
from lethe.consumers.log.streams.log import StreamsLog
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from lethe.engine.store.server.connection import connect
from lethe.engine.store.server.rewrite import rewrite_append_only_file
from tests.support.memory_log import MemoryLog
from tests.support.platform import Platform
from tests.support.servers import ValkeyProcess

WAIT = 10.0


def files_with(directory: Path, content: bytes) -> list[str]:
    """Return the files that hold these bytes; one that a rewrite removes meanwhile holds none."""
    found = []
    for file in (directory / "appendonlydir").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += [file.name] if content in file.read_bytes() else []
    return found


def test_the_features_of_an_erased_row_leave_the_file_with_the_rewrite(tmp_path: Path) -> None:
    with (
        EmbeddedValkey(tmp_path) as server,
        contextlib.closing(Platform(MemoryLog(), server.url)) as platform,
    ):
        platform.register("m", kind="logistic")
        features = struct.pack("<2d", *platform.data["m"].X[3][:2])
        platform.delete("m", 3)
        assert files_with(tmp_path, features)
        assert rewrite_append_only_file(platform.store.client)
        end = time.monotonic() + WAIT
        while files_with(tmp_path, features):
            assert time.monotonic() < end
            time.sleep(0.05)


def test_a_server_that_does_not_let_it_is_no_error(
    private_valkey: Callable[..., ValkeyProcess],
) -> None:
    with redis.Redis.from_url(private_valkey(appendonly="no").url) as client:
        assert not rewrite_append_only_file(client)
    strict = private_valkey()
    with redis.Redis.from_url(strict.url) as client:
        client.acl_setuser("weak", enabled=True, nopass=True, commands=["+@all", "-bgrewriteaof"],
                           keys=["*"])  # fmt: skip
    weak = connect(strict.url.replace("redis://", "redis://weak:any@"))
    assert weak.ping()
    assert not rewrite_append_only_file(weak)
    weak.close()


def test_refreshes_that_are_due_ask_for_a_rewrite(
    private_valkey: Callable[..., ValkeyProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = private_valkey()
    monkeypatch.delenv("LETHE_KAFKA_BOOTSTRAP_SERVERS", raising=False)
    with redis.Redis.from_url(server.url) as client:
        runtime_topics(server.url)
        before = client.info("persistence")["aof_base_size"]
        answer = CliRunner().invoke(lethe, ["--redis", server.url, "refresh", "--due"])
        assert answer.exit_code == 0, answer.output
        end = time.monotonic() + WAIT
        while client.info("persistence")["aof_base_size"] == before:
            assert time.monotonic() < end
            time.sleep(0.05)


def runtime_topics(url: str) -> None:
    """Make the topics of a platform in Redis Streams."""
    with redis.Redis.from_url(url) as client:
        log = StreamsLog(client)
        log.ensure_topics(topics.specs(1))
        log.close()
