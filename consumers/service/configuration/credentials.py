"""From settings to the credentials for the store and for Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lethe.consumers.service.configuration.settings import Settings
from lethe.engine.errors import InvalidData
from lethe.engine.store.server.tls import Access, TlsFiles, read_secret


def store_access(settings: Settings) -> Access:
    """Return the TLS files and the password for the store.

    Raises
    ------
    InvalidData
        The password file cannot be used.
    """
    if settings.redis_url is None:  # the embedded server: a socket that only this user may open
        return Access()
    files = TlsFiles(
        "LETHE_REDIS", settings.redis_ca_file, settings.redis_cert_file, settings.redis_key_file
    )
    if settings.redis_password_file is None:
        return Access(files)
    secret = read_secret(settings.redis_password_file, "LETHE_REDIS_PASSWORD_FILE")
    return Access(files, secret)


def kafka_access(settings: Settings) -> Mapping[str, Any]:
    """Return kafka-python's settings for TLS and SASL; they hold the password.

    Raises
    ------
    InvalidData
        Settings are missing, contradict each other, or would be ignored: a password for a
        connection without authentication is a mistake that should be reported.
    """
    protocol = settings.kafka_security_protocol
    files = TlsFiles(
        "LETHE_KAFKA", settings.kafka_ca_file, settings.kafka_cert_file, settings.kafka_key_file
    )
    access: dict[str, Any] = {"security_protocol": protocol}
    if protocol in ("SSL", "SASL_SSL"):
        access["ssl_context"] = files.context()
    elif unused := files.given():
        raise InvalidData(_unused(unused[0], protocol, "SSL or SASL_SSL"))
    if protocol.startswith("SASL"):
        access |= _sasl(settings)
    elif unused := [name for name, value in _credentials(settings).items() if value is not None]:
        raise InvalidData(_unused(unused[0], protocol, "SASL_SSL"))
    return access


def _credentials(settings: Settings) -> Mapping[str, object]:
    return {
        "LETHE_KAFKA_SASL_USERNAME": settings.kafka_sasl_username,
        "LETHE_KAFKA_SASL_PASSWORD": settings.kafka_sasl_password,
        "LETHE_KAFKA_SASL_PASSWORD_FILE": settings.kafka_sasl_password_file,
    }


def _unused(name: str, protocol: str, required: str) -> str:
    return (
        f"{name} is set, but LETHE_KAFKA_SECURITY_PROTOCOL is {protocol}, which does not use it: "
        f"set {required}, or unset it"
    )


def _sasl(settings: Settings) -> Mapping[str, Any]:
    mechanism, protocol = settings.kafka_sasl_mechanism, settings.kafka_security_protocol
    if mechanism == "PLAIN" and protocol != "SASL_SSL":
        raise InvalidData(
            "LETHE_KAFKA_SASL_MECHANISM=PLAIN sends the password in clear text: use it with "
            "LETHE_KAFKA_SECURITY_PROTOCOL=SASL_SSL, or use SCRAM-SHA-512"
        )
    both = (settings.kafka_sasl_password, settings.kafka_sasl_password_file)
    if settings.kafka_sasl_username is None or both == (None, None):
        raise InvalidData(
            f"LETHE_KAFKA_SECURITY_PROTOCOL={protocol} needs credentials: set "
            "LETHE_KAFKA_SASL_USERNAME and LETHE_KAFKA_SASL_PASSWORD or "
            "LETHE_KAFKA_SASL_PASSWORD_FILE"
        )
    if None not in both:
        raise InvalidData(
            "LETHE_KAFKA_SASL_PASSWORD and LETHE_KAFKA_SASL_PASSWORD_FILE are both set: set one"
        )
    direct, path = both
    if direct is not None:
        secret = direct.get_secret_value()
    else:
        assert path is not None  # noqa: S101 (for mypy: one of the two is set)
        secret = read_secret(path, "LETHE_KAFKA_SASL_PASSWORD_FILE")
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": settings.kafka_sasl_username,
        "sasl_plain_password": _Hidden(secret),
    }


class _Hidden(str):
    """A password that is masked when an object containing it is printed.

    kafka-python logs all its settings at DEBUG.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "'**********'"
