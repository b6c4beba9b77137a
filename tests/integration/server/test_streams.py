"""Server-sent events: a listener gets each version once, in order, and never misses the newest."""

from __future__ import annotations

import gc
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from lethe.consumers.server import connections, feeds
from lethe.consumers.server.guard import Access
from lethe.consumers.server.keys import Keys, issue_key
from tests.support.http_server import Served, served, services_of
from tests.support.platform import Platform

_SECONDS = 120.0


@pytest.fixture
def server(memory: Platform, tmp_path: Path) -> Iterator[Served]:
    """Given a model, and a server beside its workers."""
    memory.register("m")
    with services_of(memory, tmp_path) as services, served(services) as running:
        yield running


def events(server: Served, path: str, count: int, **headers: str) -> Iterator[tuple[str, int, Any]]:
    """Yield the name, id and data of the first events of a stream."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=_SECONDS)) as client:
        client.request("GET", path, headers={"Accept": "text/event-stream", **headers})
        answer = client.getresponse()
        assert answer.status == 200, answer.read()
        assert answer.getheader("content-type", "").startswith("text/event-stream")
        fields: dict[str, str] = {}
        while count:
            line = answer.readline().decode().rstrip("\n")
            if line == "" and "data" in fields:
                yield fields["event"], int(fields["id"]), json.loads(fields["data"])
                fields, count = {}, count - 1
            elif line and not line.startswith(":"):
                name, _, value = line.partition(": ")
                fields[name] = value


def delete(platform: Platform, *index: int) -> None:
    """Delete rows one by one: a version each."""
    for i in index:
        platform.send_index("m", i)
        platform.drain()


def test_a_listener_gets_the_newest_version_and_every_one_after_it(
    memory: Platform, server: Served
) -> None:
    stream = events(server, "/v1/models/m/versions", 4)
    first = next(stream)
    delete(memory, 0, 1, 2)

    found = [first, *stream]

    assert [(name, number) for name, number, _ in found] == [("version", i) for i in range(4)]
    assert [data["version"] for _, _, data in found] == [0, 1, 2, 3]


def test_who_comes_back_gets_what_they_missed(memory: Platform, server: Served) -> None:
    delete(memory, 0, 1, 2)

    found = list(events(server, "/v1/models/m/versions", 3, **{"Last-Event-ID": "0"}))

    assert [number for _, number, _ in found] == [1, 2, 3]


def test_the_way_of_a_request_ends_with_its_receipt(memory: Platform, server: Served) -> None:
    memory.send_index("m", 0, request_id="r")
    stream = events(server, "/v1/models/m/deletions/r", 2)
    waiting = next(stream)
    memory.drain()
    final = next(stream)

    assert (waiting[0], waiting[2]["status"]) == ("waiting", "PENDING")
    assert (final[0], final[2]["status"]) == ("final", "APPLIED")


@pytest.mark.parametrize("header", ["x", "1.5", "-2", "9" * 20])
def test_a_place_that_is_no_version_is_refused(server: Served, header: str) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=_SECONDS)) as client:
        headers = {"Accept": "text/event-stream", "Last-Event-ID": header}
        client.request("GET", "/v1/models/m/versions", headers=headers)
        answer = client.getresponse()
        assert (answer.status, json.loads(answer.read())["code"]) == (400, "INVALID_REQUEST")


def test_a_server_that_ends_ends_its_streams(
    memory: Platform, tmp_path: Path, platform_on: Callable[..., Platform]
) -> None:
    del platform_on
    memory.register("m")
    with services_of(memory, tmp_path) as services, served(services) as running:
        stream = events(running, "/v1/models/m/versions", 1)
        assert next(stream)[1] == 0
        # `served` returns only when every connection is closed.
    assert services.bell.open_streams == 0


def test_200_listeners_miss_nothing_while_versions_flow(memory: Platform, server: Served) -> None:
    """Some begin before the versions flow, some while they do; each sees the last one."""
    last = 30
    seen: list[list[int]] = [[] for _ in range(200)]

    def listen(place: list[int]) -> None:
        for _, number, _ in events(server, "/v1/models/m/versions", last + 1):
            place.append(number)
            if number == last:
                return

    threads = [threading.Thread(target=listen, args=(place,)) for place in seen]
    for thread in threads[:150]:
        thread.start()
    delete(memory, *range(last // 2))
    for thread in threads[150:]:
        thread.start()
    delete(memory, *range(last // 2, last))
    for thread in threads:
        thread.join(_SECONDS)

    for place in seen:
        assert place == list(range(place[0], last + 1))


def test_connections_that_say_nothing_keep_nobody_out(
    memory: Platform, server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that has said nothing for longest makes room; one with a request goes on."""
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 20)
    stream = events(server, "/v1/models/m/versions", 2)
    assert next(stream)[1] == 0
    with ExitStack() as stack:
        used = http.client.HTTPConnection("127.0.0.1", server.port, timeout=_SECONDS)
        stack.enter_context(closing(used))
        silent: list[socket.socket] = []
        for _ in range(60):
            address = ("127.0.0.1", server.port)
            silent.append(stack.enter_context(socket.create_connection(address, timeout=_SECONDS)))
            silent[-1].sendall(b"GET / HTTP/1.1\r\n")  # a head that is never finished
        begun = time.monotonic()
        used.request("GET", "/healthz")
        assert used.getresponse().status == 200
        assert time.monotonic() - begun < 5  # they could hold on for 10 s
        with suppress(ConnectionResetError):  # it had sent what nobody read
            assert silent[0].recv(1) == b""
        delete(memory, 0)
        assert next(stream)[1] == 1


def test_a_server_whose_connections_are_all_in_use_says_so(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 3)
    streams = [events(server, "/v1/models/m/versions", 2) for _ in range(3)]
    for stream in streams:
        assert next(stream)[1] == 0
    for _ in range(2):
        with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=_SECONDS)) as one:
            one.request("GET", "/healthz")
            answer = one.getresponse()
            assert (answer.status, json.loads(answer.read())["code"]) == (503, "BUSY")


def test_a_head_that_arrives_at_once_has_the_same_limit_as_one_that_drips(server: Served) -> None:
    for size, status in ((20_000, 200), (70_000, 431)):
        with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=_SECONDS)) as one:
            one.request("GET", "/healthz", headers={"X-Long": "a" * size})
            assert one.getresponse().status == status


def test_one_key_does_not_take_every_stream(
    memory: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "MAX_STREAMS_OF_KEY", 3)
    memory.register("m")
    path = tmp_path / "api.keys"
    first, other = (
        {"Authorization": f"Bearer {issue_key(path, name, ['m'], None)}"} for name in "ab"
    )
    access = Access(Keys(path))
    with services_of(memory, tmp_path) as services, served(services, access) as running:
        held = [events(running, "/v1/models/m/versions", 2, **first) for _ in range(3)]
        for stream in held:
            assert next(stream)[1] == 0
        for what in ("versions", "deletions/r"):
            memory.send_index("m", 0, request_id="r")
            answer = refused(running, f"/v1/models/m/{what}", **first)
            assert answer == (429, "TOO_MANY_REQUESTS")
        assert next(events(running, "/v1/models/m/versions", 1, **other))[1] == 0
        del held[0], stream
        gc.collect()
        end = time.monotonic() + _SECONDS
        while services.bell.open_streams > 2 and time.monotonic() < end:
            time.sleep(0.01)
        assert next(events(running, "/v1/models/m/versions", 1, **first))[1] == 0
    assert services.bell.open_streams == 0


def refused(server: Served, path: str, **headers: str) -> tuple[int, str]:
    """Return status and code of the answer to who wants a stream."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=_SECONDS)) as client:
        client.request("GET", path, headers={"Accept": "text/event-stream", **headers})
        answer = client.getresponse()
        return answer.status, json.loads(answer.read())["code"]
