"""Settings come from flags over environment over defaults, and secrets stay secret."""

from pathlib import Path

import pytest

from lethe.consumers.service.configuration.settings import load_settings, unknown_variables
from lethe.engine.errors import InvalidData
from lethe.engine.store.server.connection import without_secrets


def test_flags_come_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_DATA_DIR", "/from/environment")
    monkeypatch.setenv("LETHE_PARTITIONS", "7")

    settings = load_settings({"data_dir": "/from/flag", "partitions": None})

    assert settings.data_dir == Path("/from/flag")
    assert settings.partitions == 7


def test_an_empty_address_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_REDIS_URL", "")
    monkeypatch.setenv("LETHE_KAFKA_BOOTSTRAP_SERVERS", "")

    settings = load_settings({})

    assert settings.redis_url is None
    assert settings.kafka_bootstrap_servers is None


def test_a_wrong_value_names_the_variable_and_not_the_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LETHE_HTTP_PORT", "canary-secret")

    with pytest.raises(InvalidData, match="LETHE_HTTP_PORT") as raised:
        load_settings({})

    assert "canary-secret" not in str(raised.value)


def test_a_password_is_never_printed() -> None:
    settings = load_settings({"redis_url": "redis://user:canary-secret@host:6379/0"})

    assert "canary-secret" not in repr(settings)
    assert "canary-secret" not in settings.model_dump_json()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:secret@host:6379/0", "redis://host:6379/0"),
        ("redis://:p@ss@host:6379/0", "redis://host:6379/0"),
        ("redis://host:6379/0?password=secret", "redis://host:6379/0"),
        ("unix:///run/valkey.sock", "unix:///run/valkey.sock"),
    ],
)
def test_urls_are_shown_without_secrets(url: str, shown: str) -> None:
    assert without_secrets(url) == shown


def test_a_misspelt_variable_is_found() -> None:
    environment = {"LETHE_REDIS": "x", "LETHE_REDIS_URL": "x", "LETHE_TEST_KAFKA": "x", "HOME": "x"}

    assert unknown_variables(environment) == {"LETHE_REDIS": "did you mean LETHE_REDIS_URL?"}
    assert unknown_variables({"LETHE_XYZ": "x"}) == {"LETHE_XYZ": ""}


def test_a_variable_of_an_earlier_version_is_told_what_became_of_it() -> None:
    remarks = unknown_variables({"LETHE_KAFKA_CLIENT": "confluent"})
    assert remarks == {"LETHE_KAFKA_CLIENT": "kafka-python is the only client of Kafka"}


def test_spans_of_time_are_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_MAX_WAIT", "15m")

    assert load_settings({}).max_wait == 900
    assert load_settings({"max_wait": "2.5"}).max_wait == 2.5


@pytest.mark.parametrize("value", ["soon", "2h", "-1s", "nan", "inf", ""])
def test_a_wait_that_cannot_be_is_refused(value: str) -> None:
    with pytest.raises(InvalidData, match="LETHE_MAX_WAIT"):
        load_settings({"max_wait": value})


def test_a_batch_that_could_never_be_full_is_refused() -> None:
    with pytest.raises(InvalidData, match=r"LETHE_MIN_BATCH.*LETHE_BATCH_ROWS \(10\)"):
        load_settings({"min_batch": 11, "batch_rows": 10})
