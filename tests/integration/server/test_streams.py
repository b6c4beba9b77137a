"""Server-sent events: a listener gets each version once, in order, and never misses the newest."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

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
