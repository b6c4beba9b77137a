"""One Kafka and one Valkey with TLS, passwords and rights, for all tests of this directory."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from lethe.consumers.contract import topics
from lethe.consumers.log.base import Log
from lethe.consumers.service.configuration.credentials import store_access
from lethe.consumers.service.configuration.settings import Settings, load_settings
from lethe.consumers.service.kafka_client import kafka_log
from lethe.engine.store.server.connection import connect
from make_certificates import make
from tests.conftest import give_up
from tests.support.command import Lethe
from tests.support.servers import ROOT, KafkaProcess, Missing, ValkeyProcess
from tests.support.tls_front import TlsFront

KAFKA_ROLES = ("worker", "refresh", "erasure", "operator", "platform", "subscriber")
STORE_ROLES = ("worker", "refresh", "operator", "reader", "subscriber")


def user_of(role: str) -> str:
    """Return the user that has a role."""
    return role if role == "admin" else f"lethe-{role}"


@dataclass(frozen=True)
class Secure:
    """The servers, and the settings that each role has for them."""

    directory: Path
    kafka: KafkaProcess
    valkey: ValkeyProcess
    front: TlsFront

    def password(self, user: str) -> str:
        """Return a user's password."""
        return f"canary-{user}-{hashlib.sha256(user.encode()).hexdigest()[:12]}"

    def ports(self) -> Mapping[str, int]:
        """Return the port of each listener of Kafka."""
        names = ("SASL_SSL", "SSL", "SASL_PLAINTEXT", "PLAINTEXT")
        found = (self.kafka.data / "secure.ports").read_text().split()
        return dict(zip(names, map(int, found[:4]), strict=True))

    def kafka_settings(self, role: str) -> dict[str, str]:
        """Return the environment of a role that signs on to Kafka."""
        return {
            "LETHE_KAFKA_BOOTSTRAP_SERVERS": self.kafka.bootstrap,
            "LETHE_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
            "LETHE_KAFKA_CA_FILE": str(self.directory / "ca.pem"),
            "LETHE_KAFKA_SASL_USERNAME": user_of(role),
            "LETHE_KAFKA_SASL_PASSWORD_FILE": str(self.secret(user_of(role))),
        }

    def store_settings(self, role: str) -> dict[str, str]:
        """Return the environment of a role that signs on to the store."""
        return {
            "LETHE_REDIS_URL": f"rediss://lethe-{role}@127.0.0.1:{self.front.port}/0",
            "LETHE_REDIS_CA_FILE": str(self.directory / "ca.pem"),
            "LETHE_REDIS_PASSWORD_FILE": str(self.secret(f"lethe-{role}")),
        }

    def secret(self, user: str) -> Path:
        """Return the file that holds a user's password."""
        path = self.directory / f"{user}.secret"
        if not path.exists():  # a process that was started before may be reading it
            path.write_text(self.password(user) + "\n")
        return path

    def settings(self, environment: Mapping[str, str]) -> Settings:
        """Return an environment as settings."""
        return load_settings(
            {name.removeprefix("LETHE_").lower(): value for name, value in environment.items()}
        )

    def log(self, role: str) -> Log:
        """Return Kafka as a role sees it."""
        return kafka_log(self.settings(self.kafka_settings(role)), role)

    def store(self, role: str) -> redis.Redis:
        """Return the store as a role sees it."""
        environment = self.store_settings(role)
        settings = self.settings(environment)
        return connect(environment["LETHE_REDIS_URL"], store_access(settings))

    def lethe(self, role: str, tmp_path: Path, **more: str) -> Lethe:
        """Return the command as a role runs it."""
        both = self.kafka_settings(role) | self.store_settings(role) | more
        return Lethe(tmp_path / "data", **both)


@pytest.fixture(scope="session")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    """Kafka with TLS, SCRAM and rights; Valkey with users, behind TLS."""
    directory = tmp_path_factory.mktemp("secure")
    make(directory, ("localhost", "127.0.0.1"), ("scores",), 1.0)
    with contextlib.ExitStack() as stack:
        broker = KafkaProcess(directory / "kafka", secure=directory)
        valkey = ValkeyProcess(directory / "valkey")
        front = TlsFront(valkey.port, directory / "server-cert.pem", directory / "server-key.pem")
        made = Secure(directory, broker, valkey, front)
        users = ["admin", *(f"lethe-{role}" for role in KAFKA_ROLES)]
        (directory / "users").write_text("".join(f"{u}:{made.password(u)}\n" for u in users))
        stack.callback(broker.close)
        stack.callback(valkey.close)
        try:
            broker.start()
            valkey.start()
        except Missing as missing:
            give_up(missing)
        stack.enter_context(front)
        _grant(made)
        yield made


def _grant(secure: Secure) -> None:
    """Make the topics, and give both servers the rights of the files under deploy/."""
    environment = secure.kafka_settings("admin")
    subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "kafka_acls.py"), "--apply"],
        env=environment, check=True, capture_output=True,
    )  # fmt: skip
    secure.log("admin").ensure_topics(topics.specs(2))
    with connect(secure.valkey.url) as client:
        for line in users_file(secure).splitlines():
            _, name, *rules = line.split()
            if name != "default":  # the tests themselves go on using it, without TLS
                client.execute_command("ACL", "SETUSER", name, *rules)


def users_file(secure: Secure) -> str:
    """Return deploy/valkey-users.acl with the hashes of the tests' passwords."""
    text = (ROOT / "deploy" / "valkey-users.acl").read_text()
    for role in STORE_ROLES:
        digest = hashlib.sha256(secure.password(f"lethe-{role}").encode()).hexdigest()
        text = text.replace(f"#SHA256-OF-THE-PASSWORD-OF-{role.upper()}", f"#{digest}")
    assert "SHA256-OF" not in text
    return text
