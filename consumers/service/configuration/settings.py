"""Settings: flags override the environment (``LETHE_*``), which overrides defaults.

Secrets are never printed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ByteSize,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from lethe.consumers.service.configuration.durations import seconds_of
from lethe.engine.errors import InvalidData
from lethe.engine.store.layout.keys import COMMIT_PARTITIONS

Seconds = Annotated[float, BeforeValidator(seconds_of)]
"""A number of seconds, or a span of time such as 30s or 15m."""


def default_data_dir() -> Path:
    """Return the user's own data directory for Lethe."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "lethe"


MOST_REQUESTS = 1_000
"""Limit of a micro-batch: a version names its requests, and must fit into a 1 MiB message."""

LEAST_MEMORY = 512 << 20
"""Of refresh jobs: room for one of rows in files, and for a small one beside it."""


ERASURE_DAYS = 30
"""About the month that article 12(3) of the GDPR gives for an answer."""

_PREFIX = "LETHE_"

_REMOVED = {"KAFKA_CLIENT": "kafka-python is the only client of Kafka"}
"""Settings of earlier versions, and what is so without them."""


class Settings(BaseSettings):
    """Everything that can be set. Each field's environment variable is ``LETHE_<FIELD>``.

    Attributes
    ----------
    redis_url
        Redis or Valkey; without it, an embedded Valkey runs on ``data_dir``.
    kafka_bootstrap_servers
        Kafka; without it, the workers use Redis Streams as their log (single-node mode).
    row_keys_url
        Another Redis or Valkey, one without backups, that holds the keys to encrypt row records.
    redis_password_file, redis_ca_file, redis_cert_file, redis_key_file
        The password, if the address has none; and PEM files for ``rediss://``.
    kafka_security_protocol
        The protocol of the broker's listener.
    kafka_ca_file, kafka_cert_file, kafka_key_file
        PEM files for SSL and SASL_SSL.
    kafka_sasl_mechanism, kafka_sasl_username, kafka_sasl_password, kafka_sasl_password_file
        Credentials for SASL_PLAINTEXT and SASL_SSL; the password itself or its file.
    data_dir
        Where the embedded Valkey keeps its data.
    durability
        ``required`` rejects a store that can lose acknowledged writes; ``relaxed`` accepts it.
    partitions
        Number of partitions of new topics.
    embedded_linger
        How long the embedded Valkey keeps running after its last client.
    http_host, http_port
        Where workers serve /healthz, /readyz and /metrics; port 0 turns this off.
    log_level, log_format
        Level and format of the logs on stderr.
    batch_records, batch_rows
        Largest micro-batch.
    min_batch, max_wait
        A deletion worker holds back a model's requests until they delete ``min_batch`` rows, or
        the oldest has waited ``max_wait`` seconds.
    refresh_min_interval
        Average time between refreshes of a model; bursts of five are allowed. 0: no limit.
    refresh_memory
        Memory that the refresh jobs of one worker may need together; without it, any.
    request_keys
        Public keys whose requests are accepted, and for which models; without it, all are.
    request_signing_key
        The private key that `lethe delete` signs with.
    seal_key_file
        Secrets that seal commits, the newest first (`lethe key new --seal`); without it, the
        store holds the secret, and so does each of its backups.
    signing_key
        The private key that signs versions, parameters and receipts. Without it, the embedded
        store has a key of its own in ``data_dir``; with another store nothing is signed.
    server_host, server_port
        Where `lethe serve` listens.
    server_keys
        Hashes of the keys that may call it (`lethe key issue`); without it, anybody may, and it
        listens on loopback alone.
    server_rate
        Requests a second of one key; 0: no limit.
    opendsr
        Configuration of OpenDSR (TOML); without it, `lethe serve` does not offer it.
    erasure_days
        Within how many days of the request an erasure must be complete: the console counts them.
    server_metrics_port
        Where `lethe serve` serves /metrics, on ``http_host``; port 0 turns this off.
    server_cert_file, server_key_file
        PEM files of its certificate and key, for TLS.
    trusted_keys
        Public keys, one of which must have signed what readers load. Without it, signatures are
        not required.
    rebuild_threads
        BLAS threads of a refresh worker that runs alone; every other worker uses one.
    dask_address, dask_workers, spark_master
        A Dask scheduler that has passes over rows in files computed, a number of processes of this
        machine, or a Spark cluster; without any, the process that needs a pass computes it.
    otel
        Whether deletion workers send traces; OpenTelemetry's own ``OTEL_*`` say where to.
    openlineage
        Whether refresh workers send run events, as OpenLineage's own settings say.
    """

    model_config = SettingsConfigDict(env_prefix=_PREFIX, extra="ignore", frozen=True)

    redis_url: SecretStr | None = None
    kafka_bootstrap_servers: str | None = None
    row_keys_url: SecretStr | None = None
    redis_password_file: Path | None = None
    redis_ca_file: Path | None = None
    redis_cert_file: Path | None = None
    redis_key_file: Path | None = None
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    kafka_ca_file: Path | None = None
    kafka_cert_file: Path | None = None
    kafka_key_file: Path | None = None
    kafka_sasl_mechanism: Literal["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"] = "SCRAM-SHA-512"
    kafka_sasl_username: str | None = None
    kafka_sasl_password: SecretStr | None = None
    kafka_sasl_password_file: Path | None = None
    data_dir: Path = Field(default_factory=default_data_dir)
    durability: Literal["required", "relaxed"] = "required"
    partitions: Annotated[int, Field(ge=1, le=1024)] = COMMIT_PARTITIONS
    http_host: str = "127.0.0.1"
    embedded_linger: Annotated[Seconds, Field(ge=0, le=86_400)] = 300.0
    http_port: Annotated[int, Field(ge=0, le=65535)] = 9464
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_format: Literal["console", "json"] = "console"
    batch_records: Annotated[int, Field(ge=1, le=MOST_REQUESTS)] = 256
    batch_rows: Annotated[int, Field(ge=1, le=100_000)] = 10_000
    min_batch: Annotated[int, Field(ge=1, le=MOST_REQUESTS)] = 1
    max_wait: Annotated[Seconds, Field(ge=0, le=3600)] = 60.0
    refresh_min_interval: Annotated[Seconds, Field(ge=0, le=3600)] = 60.0
    refresh_memory: Annotated[ByteSize, Field(ge=LEAST_MEMORY)] | None = None
    request_keys: Path | None = None
    request_signing_key: Path | None = None
    seal_key_file: Path | None = None
    signing_key: Path | None = None
    server_host: str = "127.0.0.1"
    server_port: Annotated[int, Field(ge=0, le=65535)] = 8321
    server_keys: Path | None = None
    server_rate: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 1_000.0
    opendsr: Path | None = None
    erasure_days: Annotated[int, Field(ge=1, le=3650)] = ERASURE_DAYS
    server_metrics_port: Annotated[int, Field(ge=0, le=65535)] = 9465
    server_cert_file: Path | None = None
    server_key_file: Path | None = None
    trusted_keys: Path | None = None
    rebuild_threads: Annotated[int, Field(ge=1, le=256)] = 1
    dask_address: str | None = None
    dask_workers: Annotated[int, Field(ge=1, le=1024)] | None = None
    spark_master: str | None = None
    otel: bool = False
    openlineage: bool = False

    @field_validator("min_batch")
    @classmethod
    def _fits_into_a_batch(cls, value: int, info: ValidationInfo) -> int:
        most = info.data.get("batch_rows", value)
        if value > most:
            raise ValueError(
                f"more than LETHE_BATCH_ROWS ({most}): no batch could have that many rows"
            )
        return value

    @field_validator("*", mode="before")
    @classmethod
    def _empty_is_absent(cls, value: Any, info: ValidationInfo) -> Any:
        """Take an empty value for none, of a setting that may have none."""
        may_lack = cls.model_fields[info.field_name or ""].default is None
        return None if may_lack and value == "" else value


def unknown_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the ``LETHE_*`` variables that match no setting: most are misspelt.

    With the setting that each may have meant, or why there is none any more; empty if neither.
    """
    known = [name.upper() for name in Settings.model_fields]
    unknown = {}
    for variable in sorted(environment):
        name = variable.removeprefix(_PREFIX)
        if variable == name or name in known or name.startswith("TEST_"):
            continue
        near = get_close_matches(name, known, n=1)
        meant = f"did you mean {_PREFIX}{near[0]}?" if near else ""
        unknown[variable] = _REMOVED.get(name, meant)
    return unknown


def load_settings(flags: Mapping[str, Any]) -> Settings:
    """Return the settings; flags override the environment, and flags that are None are ignored.

    Raises
    ------
    InvalidData
        A value cannot be used; the message names the variable and not the value.
    """
    overrides = {name: value for name, value in flags.items() if value is not None}
    try:
        return Settings(**overrides)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = "_".join(str(part) for part in first["loc"])
        raise InvalidData(f"setting LETHE_{name.upper()}: {first['msg']}") from None
