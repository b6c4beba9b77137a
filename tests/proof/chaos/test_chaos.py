"""A minute of real faults on real servers; the proxy that makes some of them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.conftest import give_up
from tests.proof.chaos.append_only_file import cut_at_damage
from tests.proof.chaos.proxy import Proxies
from tests.support.servers import ROOT, Missing, ValkeyProcess, free_port

SECONDS, SECONDS_OF_FAILOVERS, SEED = 40, 25, 1
NEVER = Retry(NoBackoff(), 0)
MISSING = 2


def check_run(*options: str) -> None:
    """Run it; every promise holds."""
    command = [sys.executable, "-m", "tests.proof.chaos", "--seed", str(SEED), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == MISSING:
        give_up(Missing(done.stderr.strip().splitlines()[-1]))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.redis
@pytest.mark.timeout(1800)
def test_a_minute_of_faults_breaks_no_promise() -> None:
    """Given real servers and every kind of fault, when it is over, then every promise holds."""
    check_run("--seconds", str(SECONDS))


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.redis
@pytest.mark.timeout(1800)
def test_failovers_of_a_cluster_break_no_promise() -> None:
    """Given a cluster as the store, primaries die or hand over beside the faults of the others."""
    check_run("--cluster", "--seconds", str(SECONDS_OF_FAILOVERS), "--pause", "1", "--rate", "40")


@pytest.mark.redis
def test_a_damaged_file_is_cut_where_its_damage_begins(
    private_valkey: Callable[..., ValkeyProcess],
) -> None:
    """Given a hole as a full disk leaves it, the server starts after the cut, with what was before.

    A transaction that the hole is in goes as a whole.
    """
    server = private_valkey()
    with redis.Redis.from_url(server.url) as client:
        client.set("before", 1)
        client.pipeline(transaction=True).set("in", 1).set("the", 2).set("same", 3).execute()
        client.set("after", 1)
    server.kill()
    [path] = (server.data / "appendonlydir").glob("*.incr.aof")
    whole = path.read_bytes()
    place = whole.index(b"*3\r\n$3\r\nSET\r\n$3\r\nthe")
    path.write_bytes(whole[:place] + bytes(50) + whole[place:])
    with pytest.raises(RuntimeError, match="Bad file format"):
        server.start()
    assert cut_at_damage(path) > len(whole) - place
    server.start()
    with redis.Redis.from_url(server.url) as client:
        assert client.keys() == [b"before"]


@pytest.fixture
def proxies() -> Iterator[Proxies]:
    """Proxies that end with the test."""
    made = Proxies()
    yield made
    made.close()


@pytest.mark.redis
def test_the_proxy_cuts_holds_slows_and_redirects(proxies: Proxies, redis_url: str) -> None:
    """Given a server behind the proxy, each thing that it is told happens to its connections."""
    port, there = free_port(), urlsplit(redis_url).port or 6379
    proxies.tell("listen", "redis", port=port, target=there)
    with redis.Redis(port=port, retry=NEVER, single_connection_client=True) as client:
        assert client.ping()

        proxies.tell("reset", "redis")
        with pytest.raises(redis.ConnectionError):
            client.ping()
        assert client.ping()

        proxies.tell("close", "redis")
        with pytest.raises(redis.ConnectionError):
            client.ping()

        proxies.tell("open", "redis", target=there)
        assert client.ping()
        proxies.tell("slow", "redis", seconds=0.1)
        begin = time.monotonic()
        assert client.ping()
        assert time.monotonic() - begin >= 0.2, "there and back"
        proxies.tell("slow", "redis", seconds=0.0)

        proxies.tell("hold", "redis")
        with (
            redis.Redis(port=port, retry=NEVER, socket_timeout=0.3) as held,
            pytest.raises(redis.TimeoutError),
        ):
            held.ping()
        proxies.tell("go", "redis")
        assert client.ping()


def test_a_command_that_the_proxy_cannot_do_is_an_error(proxies: Proxies) -> None:
    """Given a route that is not there, a fault that would not happen does not go unseen."""
    with pytest.raises(RuntimeError, match="nowhere"):
        proxies.tell("reset", "nowhere")
