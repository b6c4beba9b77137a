"""A server that turns the command away: one clear line that says what to do, exit code 3.

No traceback, and no secret: passwords are looked for in everything that is printed.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from make_certificates import Authority, make
from tests.integration.security.conftest import Secure
from tests.support.command import Lethe
from tests.support.tls_front import TlsFront

pytestmark = [pytest.mark.kafka, pytest.mark.redis, pytest.mark.xdist_group("secure")]

WRONG = "canary-wrong-password-5f1c"


@dataclass(frozen=True)
class Case:
    """Settings that are wrong on top of the right ones, and words of the line that must come."""

    name: str
    change: Callable[[Secure, Path], dict[str, str]]
    words: tuple[str, ...]
    code: int = 3
    role: str = "operator"


def _secret(tmp_path: Path) -> str:
    path = tmp_path / "wrong.secret"
    path.write_text(WRONG)
    return str(path)


def _other_ca(tmp_path: Path) -> str:
    path = tmp_path / "other-ca.pem"
    path.write_bytes(Authority("somebody else").pem)
    return str(path)


def _kafka(secure: Secure, listener: str, **change: str) -> dict[str, str]:
    address = f"127.0.0.1:{secure.ports()[listener]}"
    return {"LETHE_KAFKA_BOOTSTRAP_SERVERS": address, **change}


NO_SASL = {
    "LETHE_KAFKA_SASL_USERNAME": "",
    "LETHE_KAFKA_SASL_PASSWORD_FILE": "",
}
OPEN = NO_SASL | {"LETHE_KAFKA_CA_FILE": "", "LETHE_KAFKA_SECURITY_PROTOCOL": "PLAINTEXT"}

KAFKA = [
    Case(
        "wrong password",
        lambda _, tmp: {"LETHE_KAFKA_SASL_PASSWORD_FILE": _secret(tmp)},
        ("does not accept user lethe-operator", "LETHE_KAFKA_SASL_PASSWORD"),
    ),
    Case(
        "wrong CA",
        lambda _, tmp: {"LETHE_KAFKA_CA_FILE": _other_ca(tmp)},
        ("not signed by an authority", "LETHE_KAFKA_CA_FILE"),
    ),
    Case(
        "plaintext client at a TLS port",
        lambda s, _: _kafka(s, "SASL_SSL", **OPEN),
        ("another protocol (TLS?)", "LETHE_KAFKA_SECURITY_PROTOCOL"),
    ),
    Case(
        "TLS client at a plaintext port",
        lambda s, _: _kafka(s, "SASL_PLAINTEXT"),
        ("does not speak TLS", "LETHE_KAFKA_SECURITY_PROTOCOL"),
    ),
    Case(
        "no client certificate where one is asked for",
        lambda s, _: _kafka(s, "SSL", **NO_SASL, LETHE_KAFKA_SECURITY_PROTOCOL="SSL"),
        ("client certificate", "LETHE_KAFKA_CERT_FILE"),
    ),
    Case(
        "no right",
        lambda s, _: s.kafka_settings("subscriber"),
        ("does not let user lethe-subscriber", "docs/security.md"),
    ),
    Case(
        "a mechanism that the broker has not",
        lambda *_: {"LETHE_KAFKA_SASL_MECHANISM": "PLAIN"},
        ("does not offer PLAIN", "LETHE_KAFKA_SASL_MECHANISM"),
    ),
    Case(
        "credentials that go unused",
        lambda s, _: _kafka(s, "PLAINTEXT", LETHE_KAFKA_SECURITY_PROTOCOL="SSL"),
        ("LETHE_KAFKA_SASL_USERNAME is set", "SASL_SSL"),
        code=2,
    ),
    Case(
        "a file that is not there",
        lambda *_: {"LETHE_KAFKA_SASL_PASSWORD_FILE": "/nowhere/secret"},
        ("LETHE_KAFKA_SASL_PASSWORD_FILE", "/nowhere/secret"),
        code=2,
    ),
]

STORE = [
    Case(
        "store: wrong password",
        lambda _, tmp: {"LETHE_REDIS_PASSWORD_FILE": _secret(tmp)},
        ("refused the credentials", "LETHE_REDIS_PASSWORD_FILE"),
    ),
    Case(
        "store: wrong password in the address",
        lambda s, _: {
            "LETHE_REDIS_URL": f"rediss://lethe-operator:{WRONG}@127.0.0.1:{s.front.port}/0"
        },
        ("refused the credentials", "LETHE_REDIS_URL"),
    ),
    Case(
        "store: wrong CA",
        lambda _, tmp: {"LETHE_REDIS_CA_FILE": _other_ca(tmp)},
        ("not signed by an authority", "LETHE_REDIS_CA_FILE"),
    ),
    Case(
        "store: plaintext client at a TLS port",
        lambda s, _: {
            "LETHE_REDIS_URL": f"redis://lethe-operator@127.0.0.1:{s.front.port}/0",
            "LETHE_REDIS_CA_FILE": "",
        },
        ("rediss://",),
    ),
    Case(
        "store: TLS client at a plaintext port",
        lambda s, _: {"LETHE_REDIS_URL": f"rediss://lethe-operator@127.0.0.1:{s.valkey.port}/0"},
        ("does not speak TLS", "LETHE_REDIS_URL"),
    ),
    Case(
        "store: no right",
        lambda s, _: s.store_settings("subscriber"),
        ("lacks a right for this user", "deploy/valkey-users.acl"),
    ),
    Case(
        "store: files that go unused",
        lambda s, _: {"LETHE_REDIS_URL": f"redis://127.0.0.1:{s.valkey.port}/0"},
        ("LETHE_REDIS_CA_FILE is set", "rediss://"),
        code=2,
    ),
    Case(
        "store: an address that cannot be read",
        lambda *_: {"LETHE_REDIS_URL": f"rediss://lethe:{WRONG}@[bad"},
        ("LETHE_REDIS_URL",),
        code=2,
    ),
]


def _check(secure: Secure, tmp_path: Path, case: Case) -> None:
    lethe = secure.lethe(case.role, tmp_path, **case.change(secure, tmp_path))
    answer = lethe("status", "--json", code=case.code)
    lines = answer.err.strip().splitlines()
    assert len(lines) == 1, (case.name, answer.err)
    for word in case.words:
        assert word in lines[0], (case.name, lines[0])
    assert answer.document["error"]["message"] in lines[0]
    said = answer.out + answer.err
    assert "canary" not in said, case.name
    assert secure.password("lethe-operator") not in said


def _all(secure: Secure, tmp_path: Path, cases: list[Case]) -> None:
    def one(number_and_case: tuple[int, Case]) -> None:
        number, case = number_and_case
        own = tmp_path / str(number)
        own.mkdir()
        _check(secure, own, case)

    with ThreadPoolExecutor(3) as pool:  # each case is a process that mostly waits
        list(pool.map(one, enumerate(cases)))


def test_each_refusal_of_kafka_is_one_line_that_says_what_to_do(
    secure: Secure, tmp_path: Path
) -> None:
    _all(secure, tmp_path, KAFKA)


def test_each_refusal_of_the_store_is_one_line_that_says_what_to_do(
    secure: Secure, tmp_path: Path
) -> None:
    _all(secure, tmp_path, STORE)


def test_a_certificate_that_has_expired_or_has_another_name_is_named(
    secure: Secure, tmp_path: Path
) -> None:
    for name, hosts, days, words in (
        ("expired", ("127.0.0.1",), -0.01, "has expired"),
        ("other", ("elsewhere.example",), 1.0, "is for another name"),
    ):
        directory = tmp_path / name
        make(directory, hosts, (), days)
        certificate, key = directory / "server-cert.pem", directory / "server-key.pem"
        ca = str(directory / "ca.pem")
        with TlsFront(secure.valkey.port, certificate, key) as front:
            store = {
                "LETHE_REDIS_URL": f"rediss://lethe-operator@127.0.0.1:{front.port}/0",
                "LETHE_REDIS_CA_FILE": ca,
            }
            answer = secure.lethe("operator", tmp_path, **store)("status", code=3)
            assert words in answer.err
        with TlsFront(secure.ports()["PLAINTEXT"], certificate, key) as front:
            kafka = {
                "LETHE_KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{front.port}",
                "LETHE_KAFKA_CA_FILE": ca,
            }
            answer = secure.lethe("operator", tmp_path, **kafka)("status", code=3)
            assert words in answer.err


def test_mutual_tls_signs_on_to_the_store_and_to_kafka(secure: Secure, tmp_path: Path) -> None:
    directory = secure.directory
    files = {"CERT": directory / "scores-cert.pem", "KEY": directory / "scores-key.pem"}
    server = directory / "server-cert.pem", directory / "server-key.pem"
    with TlsFront(secure.valkey.port, *server, directory / "ca.pem") as front:
        url = {"LETHE_REDIS_URL": f"rediss://lethe-operator@127.0.0.1:{front.port}/0"}
        answer = secure.lethe("operator", tmp_path, **url)("status", code=3)
        assert "client certificate" in answer.err
        store = {f"LETHE_REDIS_{name}_FILE": str(path) for name, path in files.items()}
        # The broker takes the certificate's name as the user: one that has no rights.
        kafka = _kafka(secure, "SSL", **NO_SASL, LETHE_KAFKA_SECURITY_PROTOCOL="SSL")
        kafka |= {f"LETHE_KAFKA_{name}_FILE": str(path) for name, path in files.items()}
        lethe: Lethe = secure.lethe("operator", tmp_path, **url, **store, **kafka)
        checks = {
            one["subject"]: one for one in lethe("check", "--json", code=1).document["checks"]
        }
    assert checks["store"]["ok"], checks
    assert "grant the rights" in checks["log"]["detail"]
