"""What counts as on disk, on servers of every setting."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from lethe.engine.errors import NotDurable, StoreUnavailable
from lethe.engine.store.membership import registered_models
from lethe.engine.store.server.barrier import Barrier, NoBarrier
from lethe.engine.store.server.connection import connect, without_secrets
from lethe.engine.store.store import ModelStore
from tests.support.servers import ValkeyProcess


def test_a_store_that_goes_away_while_it_is_opened_is_unavailable() -> None:
    """Given a server that broke the connection in between, a worker waits and does not end."""
    client = connect("redis://127.0.0.1:1")
    with pytest.raises(StoreUnavailable):
        registered_models(ModelStore(client, NoBarrier()).client)


def test_always_needs_no_waiting(redis_url: str) -> None:
    with connect(redis_url) as client:
        barrier = Barrier(client, required=True)
        before = client.info("commandstats")
        client.set("x", 1)
        barrier.wait(client)
        barrier.sync(client)
        calls = client.info("commandstats").keys() - before.keys()
        assert "cmdstat_waitaof" not in calls


def test_everysec_waits_on_the_connection_that_wrote(
    private_valkey: Callable[..., ValkeyProcess],
) -> None:
    server = private_valkey(appendfsync="everysec")
    with connect(server.url) as client:
        barrier = Barrier(client, required=True)
        one: redis.Redis = client.client()
        one.set("x", 1)
        barrier.wait(one, timeout=60.0)
        # A successor's first act: it wrote nothing itself and yet waits
        other: redis.Redis = client.client()
        waits = client.info("commandstats")["cmdstat_waitaof"]["calls"]
        barrier.sync(other)
        assert client.info("commandstats")["cmdstat_waitaof"]["calls"] == waits + 1
        assert client.get("lethe:settled") == b"1"
        one.close()
        other.close()


def test_a_sync_that_does_not_come_in_time_is_said(
    private_valkey: Callable[..., ValkeyProcess],
) -> None:
    server = private_valkey(appendfsync="no")
    with connect(server.url) as client:
        barrier = Barrier(client, required=True)
        one: redis.Redis = client.client()
        one.set("x", 1)
        with pytest.raises(NotDurable, match="did not sync"):
            barrier.wait(one, timeout=0.05)
        one.close()


def test_a_server_that_does_not_sync_during_a_rewrite_is_waited_for(
    private_valkey: Callable[..., ValkeyProcess],
) -> None:
    """Lethe itself asks for rewrites: `appendfsync always` alone would not say enough."""
    server = private_valkey(appendfsync="always", no_appendfsync_on_rewrite="yes")
    with connect(server.url) as client:
        barrier = Barrier(client, required=True)
        one: redis.Redis = client.client()
        one.set("x", 1)
        barrier.wait(one)
        assert client.info("commandstats")["cmdstat_waitaof"]["calls"] >= 1
        one.close()


def test_without_a_log_of_its_own_the_store_is_refused_or_relaxed(
    private_valkey: Callable[..., ValkeyProcess],
) -> None:
    server = private_valkey(appendonly="no")
    with connect(server.url) as client:
        with pytest.raises(NotDurable, match="LETHE_DURABILITY=relaxed"):
            Barrier(client, required=True)
        relaxed = NoBarrier()
        relaxed.wait(client)
        relaxed.sync(client)
        view = Barrier(client, required=False)  # of a log that keeps what this may lose
        view.sync(client)
        assert not view.waits


def test_a_server_that_is_not_there_is_one_clear_line_without_secrets() -> None:
    with (
        connect("redis://user:hush@127.0.0.1:1/0") as client,
        pytest.raises(StoreUnavailable, match="LETHE_REDIS_URL") as caught,
    ):
        Barrier(client, required=True)
    assert "hush" not in str(caught.value)
    assert without_secrets("redis://user:hush@host:1/0") == "redis://host:1/0"


def test_a_store_says_once_that_the_server_went_away_between_two_commands(
    private_valkey: Callable[..., ValkeyProcess],
) -> None:
    """Given an idle connection that broke, a worker must not go on as if nothing had been."""
    server = private_valkey()
    client = connect(server.url)
    store = ModelStore(client, Barrier(client, required=True))
    store.cursors.set_watermarks({"t/0": 1})
    server.stop()
    server.start()

    with pytest.raises(StoreUnavailable):
        store.cursors.set_watermarks({"t/0": 2})
    assert store.cursors.watermark("t/0") == 1
    store.close()
