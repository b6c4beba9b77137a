"""What `scripts/kafka start --secure DIR` adds: TLS, SCRAM users and an authorizer.

DIR holds ``ca.pem`` and ``server.pem`` (scripts/make_certificates.py makes both) and ``users``,
lines of ``name:password``. Five listeners, all on loopback:

    SASL_SSL         at --port: for clients
    SSL              a client certificate is asked for; its common name is the user
    SASL_PLAINTEXT   SCRAM without encryption
    PLAINTEXT        nobody has a right here: scripts/kafka asks it whether the broker is ready
    CONTROLLER       the broker and its controller among themselves, with the server's certificate

The user ``admin`` and the server's certificate may do everything, all others what is granted.
Only the standard library is used.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

SUPER_USERS = "User:CN=broker;User:admin"
LISTENERS = ("SASL_SSL", "SSL", "SASL_PLAINTEXT", "PLAINTEXT")
MECHANISMS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS = 8192


def settings(directory: Path, host: str, ports: dict[str, int]) -> dict[str, str]:
    """Return the broker's settings on top of those of an open one."""
    clients = ",".join(f"{name}://{host}:{ports[name]}" for name in LISTENERS)
    same = ",".join(f"{name}:{name}" for name in LISTENERS)
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    jaas = {
        f"listener.name.{name.lower()}.{mechanism.lower()}.sasl.jaas.config": module
        for name in LISTENERS
        if name.startswith("SASL")
        for mechanism in MECHANISMS
    }
    return jaas | {
        "listeners": f"{clients},CONTROLLER://{host}:{ports['CONTROLLER']}",
        "advertised.listeners": clients,
        "listener.security.protocol.map": f"{same},CONTROLLER:SSL",
        "inter.broker.listener.name": "SSL",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        "ssl.client.auth": "none",
        "listener.name.ssl.ssl.client.auth": "required",
        "listener.name.controller.ssl.client.auth": "required",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "false",
        "super.users": SUPER_USERS,
    }


def scram_arguments(directory: Path) -> list[str]:
    """Return what ``kafka-storage format`` is given for each user.

    Kafka takes users on the command line only, where others of this machine can read them for
    the second that it runs. So salted passwords are passed: no password is seen, though who
    copies one of these can sign on to this broker with it.
    """
    arguments: list[str] = []
    for name, password in _users(directory / "users"):
        for mechanism, digest in MECHANISMS.items():
            salt = os.urandom(16)
            salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, ITERATIONS)
            shown = f'salt="{_base64(salt)}",saltedpassword="{_base64(salted)}"'
            arguments += [
                "--add-scram",
                f"{mechanism}=[name={name},iterations={ITERATIONS},{shown}]",
            ]
    return arguments


def choose_ports(main: int, free_port: Callable[[], int], former: Path) -> dict[str, int]:
    """Return a port for each listener; a restart takes the ``former`` ones."""
    names = [*LISTENERS, "CONTROLLER"]
    if former.exists():
        ports = dict(zip(names, map(int, former.read_text().split()), strict=True))
        if ports["SASL_SSL"] == main:
            return ports
    ports = {"SASL_SSL": main}
    while len(ports) < len(names):
        if (port := free_port()) not in ports.values():
            ports[names[len(ports)]] = port
    former.write_text(" ".join(str(ports[name]) for name in names))
    return ports


def _users(path: Path) -> Iterator[tuple[str, str]]:
    for line in path.read_text().splitlines():
        name, _, password = line.partition(":")
        if name and password:
            yield name, password


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
