"""What clients sign on with: complete, used, read from files, and never printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from lethe.consumers.service.configuration.credentials import kafka_access, store_access
from lethe.consumers.service.configuration.settings import load_settings
from lethe.engine.errors import InvalidData, StoreUnavailable
from lethe.engine.store.server.connection import connect, without_command
from lethe.engine.store.server.row_keys import RowKeys
from lethe.engine.store.server.tls import read_secret
from make_certificates import make

SASL = {
    "kafka_security_protocol": "SASL_SSL",
    "kafka_sasl_username": "u",
    "kafka_sasl_password": "canary",
}


def test_without_settings_nothing_is_asked_for() -> None:
    assert kafka_access(load_settings({})) == {"security_protocol": "PLAINTEXT"}
    assert store_access(load_settings({})).password is None


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"kafka_security_protocol": "SSL"}, "LETHE_KAFKA_SASL_USERNAME is set"),
        ({"kafka_security_protocol": "PLAINTEXT"}, "LETHE_KAFKA_SASL_USERNAME is set"),
        ({"kafka_sasl_username": ""}, "set LETHE_KAFKA_SASL_USERNAME"),
        ({"kafka_sasl_password": ""}, "LETHE_KAFKA_SASL_PASSWORD"),
        ({"kafka_sasl_password_file": Path("x")}, "both set"),
        (
            {"kafka_sasl_mechanism": "PLAIN", "kafka_security_protocol": "SASL_PLAINTEXT"},
            "sends the password in clear text",
        ),
        ({"kafka_cert_file": Path("/nowhere")}, "belong together"),
        ({"kafka_ca_file": Path("/nowhere")}, "LETHE_KAFKA_CA_FILE: /nowhere"),
    ],
)
def test_what_cannot_be_meant_is_refused(change: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidData, match=named) as raised:
        kafka_access(load_settings(SASL | change))
    assert "canary" not in str(raised.value)


def test_a_password_is_read_from_its_file_and_not_printed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("canary word\n")
    given = SASL | {"kafka_sasl_password": None, "kafka_sasl_password_file": secret}
    access = kafka_access(load_settings(given))
    word = "canary word"
    assert access["sasl_plain_password"] == word
    assert "canary" not in repr(access)
    stored = store_access(load_settings({"redis_url": "redis://h", "redis_password_file": secret}))
    assert stored.password == word
    assert "canary" not in repr(stored)


@pytest.mark.parametrize("content", [b"", b"\n", b"a\nb\n", b"\xff", b"x" * 5000])
def test_a_file_that_is_no_one_line_is_no_secret(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    with pytest.raises(InvalidData, match=r"SETTING: .*must hold one line"):
        read_secret(path, "SETTING")
    with pytest.raises(InvalidData, match="cannot be read"):
        read_secret(tmp_path / "none", "SETTING")


def test_our_ca_is_the_only_one_that_is_trusted(tmp_path: Path) -> None:
    make(tmp_path, ("localhost",), (), 1.0)
    ca = tmp_path / "ca.pem"
    access = kafka_access(load_settings(SASL | {"kafka_ca_file": ca}))
    assert len(access["ssl_context"].get_ca_certs()) == 1
    settings = load_settings({"redis_url": "rediss://h", "redis_ca_file": ca})
    with connect("rediss://h", store_access(settings)) as client:
        context = client.connection_pool.connection_kwargs["lethe_context"]
        assert len(context.get_ca_certs()) == 1
        assert context.check_hostname
    for url, named in (("redis://h", "has no TLS"), ("rediss://h?ssl_cert_reqs=none", "one place")):
        with pytest.raises(InvalidData, match=named):
            connect(url, store_access(settings))


def test_a_store_of_row_keys_that_is_down_is_one_clear_error_without_its_password() -> None:
    client = connect("redis://u:canary@127.0.0.1:1/0")
    with pytest.raises(StoreUnavailable, match="cannot be reached") as raised:
        RowKeys(client)
    assert "canary" not in str(raised.value)
    client.close()


def test_what_a_server_says_of_a_pipeline_names_no_row() -> None:
    said = "Command # 3 (HGET lethe:{m.x}:rows (row) 17) of pipeline caused error: NOPERM no right"
    assert without_command(Exception(said)) == "NOPERM no right"
    assert without_command(Exception("NOPERM\n no right")) == "NOPERM no right"
