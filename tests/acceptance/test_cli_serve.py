"""``lethe serve`` as a process: it starts, it answers, it ends; it dies, and nothing is doubled."""

from __future__ import annotations

import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from lethe.consumers.server import connections, serving
from tests.support.command import Lethe
from tests.support.servers import ROOT
from tests.support.training import write

pytestmark = [pytest.mark.redis, pytest.mark.slow]

NAMES = ("--id", "id", "--target", "y", "--kind", "linear", "--ridge", "1", "--method", "exact")
_SECONDS = 120.0


@contextmanager
def serving_at(process: subprocess.Popen[str]) -> Iterator[str]:
    """Yield a server's address, once it has printed it; the process ends with the block."""
    assert process.stdout is not None
    try:
        text = "".join(iter(process.stdout.readline, "}\n"))
        yield json.loads(text + "}")["url"]
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def call(url: str, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """Return the status and the document of an answer."""
    address = urlsplit(url)
    client = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_SECONDS)
    with closing(client):
        content = None if body is None else json.dumps(body)
        client.request(method, path, content, {"Content-Type": "application/json", **headers})
        answer = client.getresponse()
        return answer.status, json.loads(answer.read())


@pytest.fixture
def lethe(tmp_path: Path) -> Lethe:
    """Given a model."""
    lethe = Lethe(tmp_path / "data", LETHE_EMBEDDED_LINGER="60")
    rows = write(tmp_path / "rows.csv", logistic=False)
    lethe("register", "m", "--data", str(rows), *NAMES)
    return lethe


def test_a_request_over_http_is_decided_by_the_worker(lethe: Lethe, tmp_path: Path) -> None:
    key = lethe("key", "issue", str(tmp_path / "api.keys"), "--name", "crm", "--model", "m").out
    bearer = {"Authorization": f"Bearer {key.strip()}"}
    arguments = ("serve", "--port", "0", "--json", "--keys", str(tmp_path / "api.keys"))
    with lethe.working(), serving_at(process := lethe.start(*arguments)) as url:
        status, sent = call(url, "POST", "/v1/models/m/deletions", {"row_ids": ["u1"]}, **bearer)
        path = f"/v1/models/m/deletions/{sent['request_id']}"
        end = time.monotonic() + _SECONDS
        while (answer := call(url, "GET", path, **bearer))[0] == 202 and time.monotonic() < end:
            time.sleep(0.05)
        refused = call(url, "GET", "/v1/models")
        process.send_signal(signal.SIGTERM)
        ended = process.wait(_SECONDS)

    assert status == 202
    assert (answer[0], answer[1]["status"], answer[1]["rows_deleted"]) == (200, "APPLIED", 1)
    assert (refused[0], refused[1]["code"]) == (401, "UNAUTHENTICATED")
    assert ended == 0


def test_killed_between_acknowledgement_and_answer_a_retry_doubles_nothing(lethe: Lethe) -> None:
    body = {"request_id": "once", "row_ids": ["u1", "u2"]}
    dying = subprocess.Popen(
        [sys.executable, "-m", "tests.support.dying_server", "--port", "0", "--json"],
        cwd=ROOT, env=lethe.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with serving_at(dying) as url, pytest.raises((http.client.HTTPException, OSError)):
        call(url, "POST", "/v1/models/m/deletions", body)
    assert dying.returncode == -signal.SIGKILL
    with serving_at(lethe.start("serve", "--port", "0", "--json")) as url:
        again = call(url, "POST", "/v1/models/m/deletions", body)
        lethe("work", "--until-idle")
        receipt = call(url, "GET", "/v1/models/m/deletions/once")
        model = call(url, "GET", "/v1/models/m")

    assert again[0] == 202
    assert (receipt[0], receipt[1]["rows_deleted"], receipt[1]["version"]) == (200, 2, 1)
    assert (model[1]["newest"]["version"], model[1]["newest"]["rows_deleted"]) == (1, 2)


def test_slow_clients_hold_nothing(lethe: Lethe) -> None:
    """Given clients that send half a head, or nothing, they are cut off and others are served."""
    patched = (
        "from lethe.consumers.server import connections; connections.HEAD_SECONDS = 0.5;"
        "from lethe.consumers.cli.main import run; run(['serve', '--port', '0', '--json'])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", patched], env=lethe.environment, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with serving_at(process) as url:
        address = (urlsplit(url).hostname, urlsplit(url).port)
        slow = [socket.create_connection(address, timeout=_SECONDS) for _ in range(20)]
        try:
            for i, client in enumerate(slow):
                client.sendall(b"GET /v1/models HTTP/1.1\r\nHost: loc"[: 20 * (i % 2)] or b"")
            assert call(url, "GET", "/v1/models")[0] == 200
            assert [client.recv(1) for client in slow] == [b""] * 20
        finally:
            for client in slow:
                client.close()


def test_1_000_connections_are_served_and_beyond_them_the_one_that_has_waited_longest_makes_room(
    lethe: Lethe,
) -> None:
    patched = (
        "from lethe.consumers.server import serving; serving.KEEP_ALIVE_SECONDS = 600;"
        "from lethe.consumers.cli.main import run; run(['serve', '--port', '0', '--json'])"
    )
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(most[0], min(4_096, most[1])), most[1]))
    process = subprocess.Popen(
        [sys.executable, "-c", patched], env=lethe.environment, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    with serving_at(process) as url, ExitStack() as stack:
        address = (urlsplit(url).hostname, urlsplit(url).port)

        def ask() -> tuple[socket.socket, bytes]:
            client = stack.enter_context(socket.create_connection(address, timeout=_SECONDS))
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return client, client.recv(65_536)

        served = [ask() for _ in range(connections.MAX_CONNECTIONS + 1)]
        assert served[0][0].recv(1) == b""
        assert all(answer.startswith(b"HTTP/1.1 200") for _, answer in served)


@pytest.mark.parametrize(
    "target",
    [
        "/v1/models/../models", "/v1/models/%2e%2e/m", "//v1/models", "/v1/models/m%00",
        "/v1/models/%ff", "/v1/models/m/deletions/", "/v1/models//deletions", "/%2fv1/models",
        "/v1/models/m;x=1", "/console/static/../../services.py",
        "/console/static/%2e%2e/%2e%2e/services.py", "*", "http://elsewhere/v1/models",
    ],
)  # fmt: skip
def test_a_path_with_tricks_reaches_nothing(target: str, path_server: str) -> None:
    address = urlsplit(path_server)
    with socket.create_connection((address.hostname, address.port), timeout=_SECONDS) as client:
        client.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        status = int(client.recv(4096).split()[1])

    assert 400 <= status < 500


@pytest.fixture(scope="module")
def path_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server without models."""
    lethe = Lethe(tmp_path_factory.mktemp("paths"))
    with serving_at(lethe.start("serve", "--port", "0", "--json")) as url:
        yield url


def test_what_cannot_be_served_is_one_line(tmp_path: Path) -> None:
    lethe = Lethe(tmp_path)
    with serving.listen("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        assert "cannot be listened on" in lethe("serve", "--port", port, code=2).err
    assert "lethe key issue" in lethe("serve", "--host", "0.0.0.0", code=2).err  # noqa: S104
    missing = lethe("serve", "--keys", str(tmp_path / "none"), code=2)
    assert "cannot be read" in missing.err
    without = (
        "import sys; sys.modules['uvicorn'] = None; from lethe.consumers.cli.main import run; "
    )
    done = subprocess.run(
        [sys.executable, "-c", without + "sys.exit(run(['serve']))"], env=lethe.environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "pip install 'lethe-engine[server]'" in done.stderr
    assert os.linesep not in done.stderr.strip()
