"""OpenDSR: what maps to nothing is refused, and a callback goes where it may, and nowhere else."""

from __future__ import annotations

import base64
import http.server
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from lethe.consumers.server.opendsr import desk
from lethe.consumers.server.opendsr.callbacks import CallbackFailed, check_allowed, send
from lethe.consumers.server.opendsr.configuration import (
    MAX_FILE_BYTES,
    CallbackRules,
    Configuration,
    read_configuration,
)
from lethe.consumers.server.opendsr.signature import AnswerSigner
from lethe.engine.errors import InvalidData, InvalidRequest

FILE = """
domain = "lethe.example.com"
hold = "1h"

[[identities]]
type = "email"
lower = true

[[identities]]
type = "controller_customer_id"
namespace = "crm"
prefix = "c-"

[callbacks]
allow = ["https://controller.example.com/callbacks/"]
"""


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    path = tmp_path / "opendsr.toml"
    path.write_text(FILE)
    return read_configuration(path)


def test_identities_map_to_subjects_as_configured(configuration: Configuration) -> None:
    found = configuration.subjects(
        [("email", "raw", "Ann@Example.com"), ("controller_customer_id", "raw", "7"),
         ("email", "raw", "ann@example.com")]
    )  # fmt: skip

    assert found == [(None, "ann@example.com"), ("crm", "c-7")]
    assert configuration.hold == 3600


@pytest.mark.parametrize("identity", [("email", "sha256", "x"), ("ios_vendor_id", "raw", "x")])
def test_an_identity_that_maps_to_nothing_refuses_the_whole_request(
    configuration: Configuration, identity: tuple[str, str, str]
) -> None:
    with pytest.raises(InvalidRequest, match="nothing was erased"):
        configuration.subjects([("email", "raw", "ann@example.com"), identity])


@pytest.mark.parametrize(
    "text",
    [
        "", "domain = 1", FILE.replace("lower", "lowre"), FILE + "\n[other]\n", "\x00",
        FILE.replace("https://controller.example.com/callbacks/", "ftp://x/"),
        FILE.replace("controller_customer_id", "email"),
        FILE.replace("lethe.example.com", "bücher.example"),
        FILE.replace("lethe.example.com", r"lethe.example.com\nX-Other: 1"),
        pytest.param(FILE + "#" * MAX_FILE_BYTES, id="long"),
        pytest.param(FILE + "deep = " + "[" * 10_000, id="deep"),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "opendsr.toml"
    path.write_text(text)
    with pytest.raises(InvalidData, match=r"opendsr\.toml"):
        read_configuration(path)


@pytest.mark.parametrize(
    "url",
    [
        "https://controller.example.com/", "https://controller.example.com/callbacks",
        "https://controller.example.com/callbacks/../admin", "http://controller.example.com/callbacks/",
        "https://controller.example.com:8443/callbacks/", "https://evil.example/callbacks/",
        "https://controller.example.com@evil.example/callbacks/", "https://a@controller.example.com/callbacks/",
        "https://controller.example.com.evil.example/callbacks/", "https://[broken/callbacks/",
        "https://controller.example.com\\@evil.example/callbacks/", "file:///etc/passwd", "",
        "https://controller.example.com/callbacks/\r\nHost: evil", "https://controller.example.com/callbacks/#x",
        *(f"https://controller.example.com/callbacks/{step}/admin" for step in (
            ".", "%2e%2e", "%2E.", ".%2e", "a/%2e", "%252e%252e", "..%2f", "..%5c", "a%2f..%2f..",
            "..;", "..;a=b", "%2e%2e%3b", "..%00", "%25252e%25252e",
        )),
    ],
)  # fmt: skip
def test_an_address_that_is_not_on_the_list_is_refused(
    configuration: Configuration, url: str
) -> None:
    with pytest.raises(InvalidRequest):
        check_allowed(url, configuration.callbacks)


def test_an_address_below_the_list_is_allowed(configuration: Configuration) -> None:
    for below in ("a?b=c", "a%2fb?c=../d", "a.b/...", "100%25", "%C3%A9;v=1", ""):
        url = f"https://controller.example.com/callbacks/{below}"
        assert check_allowed(url, configuration.callbacks)


@contextmanager
def listener(status: int, **headers: str) -> Iterator[tuple[str, list[tuple[str, bytes, Any]]]]:
    """Listen on loopback; yield the address, and what came."""
    came: list[tuple[str, bytes, Any]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            came.append((self.path, body, self.headers))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", came
        finally:
            server.shutdown()
            thread.join()


def test_a_callback_is_sent_signed_and_once() -> None:
    signer = AnswerSigner(Ed25519PrivateKey.generate(), "lethe.example.com")
    with listener(204) as (url, came):
        rules = CallbackRules(allow=(url,), private=True)
        send(url + "x", b"{}", signer.headers(b"{}"), rules)

    [(path, body, headers)] = came
    certificate = x509.load_pem_x509_certificate(signer.certificate())
    key = certificate.public_key()
    assert isinstance(key, Ed25519PublicKey)
    key.verify(base64.b64decode(headers["X-OpenDSR-Signature"]), body)
    assert (path, headers["X-OpenDSR-Processor-Domain"]) == ("/x", "lethe.example.com")


@pytest.mark.parametrize("status", [302, 307, 404, 500])
def test_a_callback_follows_no_redirect_and_fails_on_anything_but_success(status: int) -> None:
    with listener(200) as (inside, reached), listener(status, Location=inside) as (url, _):
        with pytest.raises(CallbackFailed, match=str(status)):
            send(url, b"{}", {}, CallbackRules(allow=(url,), private=True))
        assert not reached


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "192.168.0.1", "::1", "fe80::1%eth0"]
)
def test_a_callback_reaches_no_private_address(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    def resolved(*_: object, **__: object) -> Any:
        return [(2, 1, 6, "", (address, 443))]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    with pytest.raises(CallbackFailed, match="private"):
        send(
            "https://public.example/", b"{}", {}, CallbackRules(allow=("https://public.example/",))
        )


def test_a_defect_in_one_request_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a request that nobody thought of, those behind it are sent all the same."""
    monkeypatch.setattr(desk, "POLL_SECONDS", 0.01)
    dropped = threading.Event()

    def change(name: str, _: object) -> None:
        if name == "first":
            raise RuntimeError("nobody thought of it")

    records: Any = SimpleNamespace(
        due=lambda _now, _limit: ["first", "second"], change=change, drop=lambda _: dropped.set()
    )
    services: Any = SimpleNamespace(stop=threading.Event(), log=None, signer=None)
    notifier: Any = SimpleNamespace(running=nullcontext)
    with desk.Desk(services, records, notifier).running():
        assert dropped.wait(60)
