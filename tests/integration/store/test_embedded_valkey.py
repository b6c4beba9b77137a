"""The embedded Valkey is shared, outlives whoever started it, and loses nothing it acknowledged."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO
from urllib.parse import unquote

import pytest
import redis

from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from lethe.consumers.service.valkey_server import MAX_SOCKET_PATH, read_pid
from lethe.engine.errors import StoreUnavailable

pytestmark = pytest.mark.redis

# Enters, says where the server is, and leaves when its standard input ends.
CLIENT = """
import sys
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
with EmbeddedValkey(sys.argv[1]) as server:
    print(server.url, flush=True)
    sys.stdin.read()
print("left", flush=True)
"""


class Client:
    """Another process that uses the data directory."""

    def __init__(self, data_dir: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(data_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def url(self) -> str:
        line = _pipe(self.process.stdout).readline().strip()
        assert line.startswith("unix://"), _pipe(self.process.stderr).read()
        return line

    def leave(self) -> None:
        out, err = self.process.communicate(timeout=120)
        assert (out, err, self.process.returncode) == ("left\n", "", 0)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=120)


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Callable[[], Client]]:
    clients: list[Client] = []

    def start() -> Client:
        clients.append(Client(tmp_path / "data"))
        return clients[-1]

    yield start
    for made in clients:
        if made.process.poll() is None:
            made.process.kill()
        made.process.communicate(timeout=120)
    with EmbeddedValkey(tmp_path / "data"):
        pass  # the last one out stops a server that a killed client left behind


def _socket(server: EmbeddedValkey) -> Path:
    return Path(unquote(server.url.removeprefix("unix://")))


def _pid(url: str) -> int:
    with redis.Redis.from_url(url) as connection:
        return int(connection.info("server")["process_id"])


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def _dies(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while _alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not _alive(pid)


def test_two_processes_share_one_server_and_the_last_one_out_stops_it(
    client: Callable[[], Client],
) -> None:
    first, second = client(), client()
    url = first.url()
    assert second.url() == url
    pid = _pid(url)

    first.leave()
    assert _pid(url) == pid

    second.leave()
    assert not _alive(pid)


def test_data_outlive_the_server(tmp_path: Path) -> None:
    with EmbeddedValkey(tmp_path / "data") as server, redis.Redis.from_url(server.url) as store:
        store.set("answer", "42")
        first = _pid(server.url)
    with EmbeddedValkey(tmp_path / "data") as server, redis.Redis.from_url(server.url) as store:
        assert store.get("answer") == b"42"
        assert _pid(server.url) != first


def test_the_server_outlives_a_killed_starter(client: Callable[[], Client]) -> None:
    starter = client()
    url = starter.url()
    pid = _pid(url)
    other = client()
    assert other.url() == url

    starter.kill()

    assert _pid(url) == pid
    other.leave()
    assert not _alive(pid)


def test_a_server_left_by_killed_clients_is_used_and_then_stopped(
    client: Callable[[], Client],
) -> None:
    only = client()
    pid = _pid(only.url())
    only.kill()
    assert _alive(pid)

    successor = client()
    assert _pid(successor.url()) == pid
    successor.leave()
    assert not _alive(pid)


def test_a_killed_server_loses_nothing_acknowledged(client: Callable[[], Client]) -> None:
    first = client()
    url = first.url()
    pid = _pid(url)
    with redis.Redis.from_url(url) as store:
        for number in range(200):
            store.rpush("acknowledged", number)
    os.kill(pid, signal.SIGKILL)
    assert _dies(pid)

    second = client()  # the first still holds its share: a new server on the same directory
    url = second.url()
    assert _pid(url) != pid
    with redis.Redis.from_url(url) as store:
        assert store.lrange("acknowledged", 0, -1) == [b"%d" % number for number in range(200)]
    successor = _pid(url)
    second.leave()
    assert _alive(successor)
    first.leave()
    assert not _alive(successor)


def test_no_file_stays_of_a_rewrite_that_died_with_the_server(
    tmp_path: Path, client: Callable[[], Client]
) -> None:
    """It holds rows that are deleted later, and no later server would remove it."""
    first = client()
    url = first.url()
    with redis.Redis.from_url(url) as store:
        store.set("row", b"x" * 1_000_000)
        store.config_set("rdb-key-save-delay", 60_000_000)  # so the rewrite is not done in time
        store.bgrewriteaof()
        pid = _pid(url)
        deadline = time.monotonic() + 20
        while not (begun := _unfinished(tmp_path / "data")) and time.monotonic() < deadline:
            time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    _kill_the_rewrite(begun[0])
    second = client()
    second.url()
    assert not _unfinished(tmp_path / "data")
    second.leave()
    first.leave()


def _unfinished(directory: Path) -> list[Path]:
    return list(directory.glob("temp-rewriteaof-*.aof"))


def _kill_the_rewrite(path: Path) -> None:
    """Kill the server's child, which has its process id in the name of its file."""
    child = int(path.stem.rsplit("-", 1)[1])
    os.kill(child, signal.SIGKILL)
    assert _dies(child)


def test_many_processes_that_come_and_go_meet_one_server_at_a_time(
    tmp_path: Path, client: Callable[[], Client]
) -> None:
    clients = [client() for _ in range(6)]
    pids = {_pid(made.url()) for made in clients}
    assert len(pids) == 1
    for made in clients:
        _pipe(made.process.stdin).close()  # all leave at once
        made.process.stdin = None
    for made in clients:
        made.leave()
    assert not _alive(pids.pop())
    with EmbeddedValkey(tmp_path / "data") as server:
        assert _alive(_pid(server.url))


def test_a_long_path_gets_a_private_socket_elsewhere(tmp_path: Path) -> None:
    data_dir = tmp_path / ("d" * MAX_SOCKET_PATH)
    with EmbeddedValkey(data_dir) as server, redis.Redis.from_url(server.url) as store:
        store.set("answer", "42")
        socket = _socket(server)
        assert len(os.fsencode(socket)) <= MAX_SOCKET_PATH
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
    assert not socket.parent.exists()
    with EmbeddedValkey(data_dir) as server, redis.Redis.from_url(server.url) as store:
        assert store.get("answer") == b"42"


def test_nobody_else_can_reach_the_data(tmp_path: Path) -> None:
    data_dir = tmp_path / "new" / "data with spaces"
    with EmbeddedValkey(data_dir) as server, redis.Redis.from_url(server.url) as store:
        assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700
        assert stat.S_IMODE(_socket(server).stat().st_mode) == 0o700
        assert store.config_get("port")["port"] == "0"
        assert store.config_get("appendfsync")["appendfsync"] == "always"
        assert store.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
        for file in (data_dir / "appendonlydir").iterdir():
            assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0


def test_a_data_directory_that_is_a_file_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a directory")
    with pytest.raises(StoreUnavailable, match=r"cannot be used.*--data-dir") as caught:
        EmbeddedValkey(tmp_path / "data").__enter__()
    assert "\n" not in str(caught.value)


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    with EmbeddedValkey(tmp_path) as server, redis.Redis.from_url(server.url) as store:
        store.set("answer", "42")
    manifest = tmp_path / "appendonlydir" / "appendonly.aof.manifest"
    manifest.write_text("this is no manifest\n")
    with pytest.raises(StoreUnavailable, match=r"did not start on .*manifest") as caught:
        EmbeddedValkey(tmp_path).__enter__()
    assert "\n" not in str(caught.value)
    # Nothing is left locked by the failure.
    manifest.unlink()
    with EmbeddedValkey(tmp_path) as server:
        assert _alive(_pid(server.url))


LINGER = """
import sys
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
with EmbeddedValkey(sys.argv[1], float(sys.argv[2])):
    pass
"""


def use(data: Path, linger: float) -> int | None:
    """Use a server in a process of its own; return the server's process id."""
    subprocess.run([sys.executable, "-c", LINGER, str(data), str(linger)], check=True, timeout=60)
    return read_pid(data / "valkey.pid") if (data / "valkey.pid").exists() else None


def runs(pid: int | None) -> bool:
    return pid is not None and Path(f"/proc/{pid}").exists()


def ends(pid: int | None, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while runs(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not runs(pid)


def test_a_server_that_lingers_is_there_for_the_next_command(tmp_path: Path) -> None:
    """Given one command after another, the server starts once, and ends after the last one."""
    first = use(tmp_path / "data", 10.0)  # a command takes seconds to start on a busy machine
    assert runs(first)
    assert use(tmp_path / "data", 10.0) == first
    assert ends(first, 40.0)
    with EmbeddedValkey(tmp_path / "data") as server, redis.Redis.from_url(server.url) as store:
        assert store.ping()


def test_a_client_that_stays_keeps_the_server(tmp_path: Path) -> None:
    with EmbeddedValkey(tmp_path / "data") as server, redis.Redis.from_url(server.url) as store:
        pid = use(tmp_path / "data", 0.5)
        time.sleep(2.0)
        assert store.ping()
    assert ends(pid, 30.0)


def test_a_server_whose_directory_is_removed_does_not_stay(tmp_path: Path) -> None:
    pid = use(tmp_path / "data", 60.0)
    shutil.rmtree(tmp_path / "data")
    assert ends(pid, 30.0)
