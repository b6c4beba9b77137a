"""Secrets are planted wherever a setting holds one, and looked for in everything that comes out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lethe.consumers.service.configuration.credentials import kafka_access, store_access
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from tests.integration.security.conftest import Secure
from tests.support.command import PROGRAM, Lethe
from tests.support.servers import free_port

pytestmark = [pytest.mark.kafka, pytest.mark.redis, pytest.mark.xdist_group("secure")]

BUG = """
import sys
from lethe.consumers.service import connect
from lethe.consumers.cli.main import run
def store(self):
    held = self.redis_url, self.settings, self.log  # what a traceback's frames hold
    raise RuntimeError(f"a defect with {self.settings!r} and {self.log.__dict__!r}")
connect.Runtime.store = store
sys.exit(run(["status", *sys.argv[1:]]))
"""
SUBSCRIBER = """
import logging
logging.basicConfig(level=logging.DEBUG)
logging.getLogger("kafka").setLevel(logging.DEBUG)
from lethe.consumers import ModelSubscriber
with ModelSubscriber.connect() as models:
    print(models, models.__dict__)
    try:
        next(models.follow("nobody", timeout=0.2), None)
    except Exception as error:
        print(repr(error))
"""


def _secrets(secure: Secure) -> list[str]:
    """Return every secret that the settings of these tests lead to, and forms that it may take."""
    found = [secure.password(user) for user in ("lethe-operator", "lethe-worker", "admin")]
    for name in ("scores-key.pem", "signing-key.pem"):
        lines = (secure.directory / name).read_text().splitlines()
        found.append(lines[1])
    return [*found, "canary"]


def _settings(secure: Secure) -> dict[str, str]:
    """Return settings with the passwords in the environment, and a key file."""
    password = secure.password("lethe-operator")
    directory = secure.directory
    key = {
        "CERT": str(directory / "scores-cert.pem"),
        "KEY": str(directory / "scores-key.pem"),
    }
    files = {f"LETHE_{where}_{name}_FILE": path for name, path in key.items()
             for where in ("REDIS", "KAFKA")}  # fmt: skip
    signing = directory / "signing-key.pem"
    if not signing.exists():
        kinds = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        plain = serialization.NoEncryption()
        signing.touch(0o600)
        signing.write_bytes(Ed25519PrivateKey.generate().private_bytes(*kinds, plain))
    return {
        "LETHE_SIGNING_KEY": str(signing),
        "LETHE_REQUEST_SIGNING_KEY": str(signing),
        **secure.kafka_settings("operator"),
        **secure.store_settings("operator"),
        **files,
        "LETHE_REDIS_URL": f"rediss://lethe-operator:{password}@127.0.0.1:{secure.front.port}/0",
        "LETHE_KAFKA_SASL_PASSWORD": password,
        "LETHE_KAFKA_SASL_PASSWORD_FILE": "",
        "LETHE_LOG_LEVEL": "DEBUG",
    }


def _run(environment: Mapping[str, str], *command: str | Path) -> str:
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    return f"{done.stdout}{done.stderr}"


def _get(port: int, path: str) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return str(error.read().decode())


def test_no_secret_is_in_anything_that_the_command_says(secure: Secure, tmp_path: Path) -> None:
    lethe = Lethe(tmp_path / "data", **_settings(secure))
    environment = lethe.environment
    down = {**environment, "LETHE_REDIS_URL": "rediss://u:canary-url@127.0.0.1:1/0"}
    odd = {**environment, "LETHE_REDIS_URL": "rediss://u:canary-url@127.0.0.1:bad/0"}
    wrong = {**environment, "LETHE_KAFKA_SASL_PASSWORD": "canary-kafka"}
    unused = {**environment, "LETHE_KAFKA_SECURITY_PROTOCOL": "SSL"}
    invalid = {**environment, "LETHE_KAFKA_SASL_MECHANISM": "canary-mechanism"}
    program = str(PROGRAM)
    said = {
        # what goes well
        "check": _run(environment, program, "check"),
        "check --json": _run(environment, program, "check", "--json", "--log-format", "json"),
        "status": _run(environment, program, "status"),
        # what fails
        "unknown model": _run(
            environment, program, "export", "nobody", "--out", str(tmp_path / "x")
        ),
        "store down": _run(down, program, "status", "--json"),
        "odd address": _run(odd, program, "check"),
        "wrong password": _run(wrong, program, "check", "--json"),
        "unused": _run(unused, program, "check"),
        "invalid": _run(invalid, program, "status"),
        # what crashes, with the traceback that DEBUG shows
        "a defect": _run(environment, sys.executable, "-c", BUG),
        "a defect --json": _run(
            {**environment, "LETHE_LOG_LEVEL": "INFO"}, sys.executable, "-c", BUG, "--json"
        ),
        # a program that logs everything that kafka-python says
        "subscriber": _run(environment, sys.executable, "-c", SUBSCRIBER),
    }
    assert "Traceback" in said["a defect"]
    assert "this is a bug" in said["a defect --json"]
    assert "DEBUG:kafka" in said["subscriber"]
    assert '"ok": true' in said["check --json"]
    assert "STORE_UNAVAILABLE" in said["store down"]
    for name, text in said.items():
        assert text, name
        for secret in _secrets(secure):
            assert secret not in text, (name, secret)


def test_no_secret_is_in_what_a_worker_shows(secure: Secure, tmp_path: Path) -> None:
    port = free_port()
    settings = _settings(secure) | {"LETHE_HTTP_PORT": str(port)}
    lethe = Lethe(tmp_path / "data", **settings)
    process = lethe.start("work", "refresh", "--log-format", "json")
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                pages = [_get(port, path) for path in ("/metrics", "/healthz", "/readyz")]
                break
            except OSError:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.1)
        arguments = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode()
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=120)
    assert "lethe_commits_total" in pages[0]
    assert "seconds_since_beat" in pages[1]
    for text in (*pages, arguments, out, err):
        for secret in _secrets(secure):
            assert secret not in text
    # Nor in what the servers themselves wrote: the store, and the broker.
    for log in (secure.valkey.data / "server.log", secure.kafka.data / "broker.log"):
        text = log.read_text(errors="replace")
        for secret in _secrets(secure):
            assert secret not in text, log


def test_the_embedded_server_gets_no_secret(
    secure: Secure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in _settings(secure).items():
        monkeypatch.setenv(name, value)
    with EmbeddedValkey(tmp_path / "data") as server:
        pid = int((server.data_dir / "valkey.pid").read_text())
        for about in ("cmdline", "environ"):
            seen = Path(f"/proc/{pid}/{about}").read_bytes().decode(errors="replace")
            assert seen
            assert "canary" not in seen
        log = (server.data_dir / "valkey.log").read_text()
    assert "canary" not in log


def test_no_secret_is_in_the_repr_of_what_holds_one(secure: Secure) -> None:
    environment = _settings(secure)
    settings = secure.settings(environment)
    log, client = secure.log("operator"), secure.store("operator")
    shown = [repr(settings), settings.model_dump_json(), repr(store_access(settings))]
    shown += [repr(log), repr(vars(log)), repr(client), str(client.connection_pool)]
    shown += [repr(kafka_access(settings)), str(kafka_access(settings))]
    # else there would be nothing to hide
    assert kafka_access(settings)["sasl_plain_password"] == secure.password("lethe-operator")
    for text in shown:
        assert "canary" not in text
    client.close()
    assert os.environ.get("LETHE_KAFKA_SASL_PASSWORD") is None
