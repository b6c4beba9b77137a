"""Which client of Kafka is used, what it is told, and what is said when it is not there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lethe.consumers.service.configuration.credentials import librdkafka_access
from lethe.consumers.service.configuration.settings import load_settings
from lethe.consumers.service.kafka_client import kafka_log
from lethe.engine.errors import InvalidData
from make_certificates import make
from tests.conftest import need_confluent
from tests.support.servers import ROOT


def test_without_the_extra_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    package = "lethe.consumers.log.kafka.confluent"
    for name in [name for name in sys.modules if name.startswith(package)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    settings = load_settings({"kafka_client": "confluent", "kafka_bootstrap_servers": "h:1"})
    with pytest.raises(InvalidData, match=r"pip install 'lethe-engine\[confluent\]") as caught:
        kafka_log(settings, "test")
    assert "\n" not in str(caught.value)
    assert "LETHE_KAFKA_CLIENT=confluent" in str(caught.value)


def test_a_client_that_there_is_not_is_refused() -> None:
    with pytest.raises(InvalidData, match="LETHE_KAFKA_CLIENT"):
        load_settings({"kafka_client": "aiokafka"})


def test_the_settings_choose_the_client() -> None:
    need_confluent()
    named = {
        client: type(kafka_log(load_settings({"kafka_client": client}), "t", bootstrap="h:1"))
        for client in ("kafka-python", "confluent")
    }
    by_default = kafka_log(load_settings({}), "t", bootstrap="h:1")
    assert named["confluent"].__name__ == "ConfluentLog"
    assert type(by_default) is named["kafka-python"]
    assert named["kafka-python"].__name__ == "KafkaPythonLog"


def test_librdkafka_is_told_the_same_of_signing_on(tmp_path: Path) -> None:
    make(tmp_path, ("localhost",), ("client",), 1.0)
    settings = load_settings(
        {
            "kafka_security_protocol": "SASL_SSL",
            "kafka_ca_file": tmp_path / "ca.pem",
            "kafka_cert_file": tmp_path / "client-cert.pem",
            "kafka_key_file": tmp_path / "client-key.pem",
            "kafka_sasl_username": "u",
            "kafka_sasl_password": "canary",
        }
    )
    access = librdkafka_access(settings)
    assert dict(access) == {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(tmp_path / "ca.pem"),
        "ssl.certificate.location": str(tmp_path / "client-cert.pem"),
        "ssl.key.location": str(tmp_path / "client-key.pem"),
        "ssl.endpoint.identification.algorithm": "https",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "u",
        "sasl.password": "canary",
    }
    assert "canary" not in repr(access)
    assert librdkafka_access(load_settings({})) == {"security.protocol": "PLAINTEXT"}


def test_only_its_own_package_imports_the_second_client() -> None:
    """Whoever has not installed the extra never meets it."""
    own = ROOT / "consumers" / "log" / "kafka" / "confluent"
    importing = [
        path
        for top in ("consumers", "engine", "deploy")
        for path in (ROOT / top).rglob("*.py")
        if "confluent_kafka import" in (text := path.read_text()) or "import confluent" in text
    ]
    assert importing
    assert all(own in path.parents for path in importing)
