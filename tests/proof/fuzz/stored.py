"""Decoders of what lies in the store: written by Lethe, damaged since, or changed by hand."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import numpy as np

from lethe.consumers.contract.events import Version
from lethe.consumers.log.base import Partition
from lethe.consumers.log.streams.format import (
    decode_entry,
    decode_headers,
    encode_headers,
    offset_of,
    read_topic,
)
from lethe.consumers.subscriber.parameters import StoredParameters
from lethe.consumers.versions.refresh_schedule import in_turn
from lethe.engine.error.certified import Ledger
from lethe.engine.error.terms import ObjectiveNoise
from lethe.engine.errors import BrokenChain, CorruptState, StoreUnavailable
from lethe.engine.fit.objective import Kind
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.generation import read_fixed, read_stream
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.config import LimitsRecord, ModelConfig, parse_config
from lethe.engine.store.layout.keys import FORMAT, ModelKeys
from lethe.engine.store.layout.meta import Meta, PendingJob, meta_json, parse_meta
from lethe.engine.store.layout.reading import integer, parse_ids, parse_json_value, parse_text
from lethe.engine.store.layout.records import ErrorRecord
from lethe.engine.store.layout.state import (
    DeferredRequest,
    check_stored_format,
    parse_deferred,
    parse_offsets,
)
from lethe.engine.store.offline.jobs import JobResult, parse_result
from tests.proof.fuzz.contract import Harness, joined, parts
from tests.support.published import releases

_HERE = Partition("lethe.deletions", "id", 0)
_NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ERROR = ErrorRecord(
    value=1e-9, kind="estimate", bound=None, certified_version=0, budget=0.01, relative=2.5e-10
)
_D, _M = 3, 1


def config(**changes: Any) -> ModelConfig:
    """Return the settings of a model with two features and an intercept."""
    given: dict[str, Any] = {
        "model_id": "m",
        "kind": Kind.LOGISTIC,
        "method": "pru",
        "ridge": 1.0,
        "fit_intercept": True,
        "feature_names": ("age", "visits"),
        "target_names": ("y",),
        "error_budget": 0.01,
        "limits": LimitsRecord(completions=7),
    }
    return ModelConfig(**{**given, **changes})


def meta(**changes: Any) -> Meta:
    """Return a head's JSON part, every field filled."""
    given: dict[str, Any] = {
        "config": config(),
        "status": "ACTIVE",
        "generation": 1,
        "generation_key": "abc",
        "dataset_key": "def",
        "rows_live": 98,
        "rows_deleted": 2,
        "deletions_logged": 2,
        "class_counts": (50, 48),
        "K": 2,
        "r": 1,
        "v_trace": 0.25,
        "least_pivot": 0.5,
        "residual": 1e-16,
        "carried": 0.0,
        "completions": 0,
        "first_deletion_at": _NOW,
        "error": ERROR,
        "certified_bound": 1e-12,
        "pending_job": PendingJob(job_id="j", reason="error_budget", ordered_at=_NOW),
        "refreshed_at": _NOW,
    }
    return Meta(**{**given, **changes})


# -- heads and generations ----------------------------------------------------------------------


def _head(data: bytes) -> None:
    stored_config, stored_meta = parts(data, 2)
    settings = parse_config(stored_config, "m")
    assert settings.model_id == "m"
    assert parse_config(settings.model_dump_json().encode(), "m") == settings
    found = parse_meta(stored_meta, settings)
    assert 8 * settings.d * settings.m <= 512 << 20
    assert parse_meta(meta_json(found), settings) == found
    settings.limits.limits().hard_rows(settings.d)


def head_seeds() -> list[bytes]:
    """Return heads of a plain model, of one of three classes, and of a certified one."""
    classes = config(class_names=("a", "b", "c"))
    certified = config(certify=ObjectiveNoise(1.0, 1e-4, 0.1))
    heads = [
        meta(),
        meta(config=classes, class_counts=(9, 9, 80)),
        meta(config=certified, ledger=Ledger(0.1, 1e-12)),
        meta(rows_live=0, status="EMPTY", class_counts=None),
    ]
    return [joined(one.config.model_dump_json().encode(), meta_json(one)) for one in heads]


def _small(data: bytes) -> None:
    """Format, numbers, texts, offsets."""
    first, second = parts(data, 2)
    check_stored_format(first, "m")
    number = integer(first, "x")
    assert str(number).encode().lstrip(b"-0") == (first or b"").lstrip(b"-0")
    parse_offsets({second or b"": first or b""}, "x")
    parse_text(second, "x")


def small_seeds() -> list[bytes]:
    """Return small values."""
    return [joined(str(FORMAT).encode(), b"topic-id/0"), joined(b"-1", b"x/1"), joined(b"0", b"")]


def _generation(data: bytes) -> None:
    info, theta_b, penalty, noise = parts(data, 4)
    given = {b"info": info, b"theta_b": theta_b, b"penalty": penalty, b"noise": noise}
    fixed = {name: value for name, value in given.items() if value is not None}
    terms = None if noise is None else ObjectiveNoise(1.0, 1e-4, 0.1)
    generation, sampled = read_fixed(fixed, meta(config=config(certify=terms)))
    assert generation.theta_b.shape == (_D, _M)
    assert bool(np.isfinite(generation.theta_b).all())
    assert 0 <= 2 * generation.dual_error <= generation.smallest < np.inf
    assert 0 <= generation.largest < np.inf
    assert sampled.pi is None or len(sampled.pi) == len(sampled.ids)


def generation_seeds() -> list[bytes]:
    """Return a precomputation without and with chances, and one with noise."""
    info = {
        "smallest": 0.5,
        "largest": 40.0,
        "dual_error": 1e-14,
        "factor_error": 1e-14,
        "sentinels": ["u1", "u2"],
    }
    chances = {**info, "sentinel_chances": [1.0, 0.25]}
    theta, penalty = codec.pack(np.array([1.0, 2.0, 3.0])), codec.pack(np.ones(3))
    return [
        joined(json.dumps(info).encode(), theta, penalty),
        joined(json.dumps(chances).encode(), theta, penalty),
        joined(json.dumps(info).encode(), theta, penalty, theta),
    ]


def _stream(data: bytes) -> None:
    thetas, v_first, v_second, q = parts(data, 4)
    head = dict.fromkeys((b"theta_exact", b"theta_r", b"anchor", b"published"), thetas or b"")
    V = [row for row in (v_first, v_second) if row is not None]
    stream = read_stream(head, meta(), V, [] if q is None else [q])
    assert stream.V.array.shape == (len(V), _D)
    assert bool(np.isfinite(stream.V.array).all())


def stream_seeds() -> list[bytes]:
    """Return thetas, rows of V and of Q."""
    row = np.array([0.5, -1.0, 2.0])
    signed = codec.pack_signed_row(row)
    return [
        joined(codec.pack(row), signed, signed, codec.pack(row)),
        joined(codec.pack(row), signed[:-8], signed + bytes(8), codec.pack(row)),
        codec.pack(row),
    ]


def _array(data: bytes) -> None:
    shape = {0: (_D,), 1: (_D, _M), 2: (0, _D), 3: (1 << 31, 1 << 31, 1 << 2)}[len(data) % 4]
    array = codec.unpack(data[1:], shape, "x")
    assert codec.pack(array) == data[1:]


def array_seeds() -> list[bytes]:
    """Return arrays of several shapes."""
    return [b"\0" + codec.pack(np.arange(3.0)), b"\0" * 4, b"\0" * 3]


def _rows(data: bytes) -> None:
    records = [record for record in parts(data, 2) if record is not None]
    rows = codec.unpack_rows(records, 2, 1, "rows")
    assert rows.X.shape == (len(records), 2)
    assert bool((rows.weight > 0).all())
    for i, record in enumerate(records):
        packed = codec.pack_row(rows.X[i], rows.y[i], float(rows.weight[i]), rows.W[i])
        assert packed[5:] == record[5:]  # all but the incarnation, which is not used yet


def rows_seeds() -> list[bytes]:
    """Return two row records."""
    row = codec.pack_row(np.array([1.0, 2.0]), np.array([1.0]), 2.5, np.array([0.1, 0.2]), 7)
    return [row, joined(row, row)]


# -- requests, receipts, subjects ---------------------------------------------------------------


def _deferred(data: bytes) -> None:
    found = parse_deferred(data, "r1", "m")
    assert parse_deferred(found.model_dump_json().encode(), "r1", "m") == found
    assert in_turn([found]) == [found]


def deferred_seeds() -> list[bytes]:
    """Return a request that waits."""
    waiting = DeferredRequest(
        request_id="r1",
        body="0" * 64,
        row_ids=("u1", "u2"),
        retired=("u0",),
        rows_unknown=1,
        code="ILL_CONDITIONED",
        source={"topic": "lethe.deletions", "partition": 1, "offset": 7},
    )
    return [waiting.model_dump_json().encode()]


def _names(data: bytes) -> None:
    for name in parse_ids(data, "x"):
        assert isinstance(name, str)
    parse_json_value(data, "x")


# -- jobs, parameters ---------------------------------------------------------------------------


def _job(data: bytes) -> None:
    keys = ModelKeys("m")
    found = parse_result(data, keys, "j1")
    assert (found.model_id, found.job_id) == ("m", "j1")
    assert parse_result(found.model_dump_json().encode(), keys, "j1") == found


def job_seeds() -> list[bytes]:
    """Return results of a polish and of a rebuild."""
    common: dict[str, Any] = {
        "job_id": "j1",
        "model_id": "m",
        "reason": "error_budget",
        "seconds": 0.5,
        "generation_key": "abc",
        "reference_epoch": 1,
        "sealed": 3,
    }
    stream = {"v_trace": 0.0, "residual": 1e-16, "carried": 0.0, "completions": 0.0}
    stream["least_pivot"] = 1.0
    rebuilt = JobResult(
        **common,
        size=RefreshSize.REBUILD,
        staged_key="new",
        generation=2,
        rows=97,
        class_counts=(50, 47),
        stream=stream,
        resolved=("r1",),
        ledger=Ledger(0.1, 1e-12),
    )
    polished = JobResult(**common, size=RefreshSize.POLISH, certified=1e-12, refuted=1e-14)
    return [rebuilt.model_dump_json().encode(), polished.model_dump_json().encode()]


def _stored_parameters(data: bytes) -> None:
    """The newest version, configuration and theta of a head, as subscribers read them."""
    newest, stored_config, exact, published, parameters, columns = parts(data, 6)
    client: Any = SimpleNamespace(
        hmget=lambda *_: [newest, stored_config, columns, exact, published, parameters],
        connection_pool=SimpleNamespace(connection_kwargs={}),
    )
    found = StoredParameters(client).newest("m")
    if found is not None:
        event, theta = found
        assert event.version == Version.read(newest or b"").version
        assert bool(np.isfinite(theta).all())


def stored_parameters_seeds() -> list[bytes]:
    """Return what a head holds, with a theta of its own and with theta_exact."""
    version = releases(3)[-1].version.model_copy(update={"model_id": "m"}).value()
    settings = config().model_dump_json().encode()
    theta = codec.pack(np.arange(3.0))
    return [joined(version, settings, theta, theta), joined(version, settings, theta, b"")]


def _theta_in_store(data: bytes) -> None:
    number, digest, exact, published, parameters = parts(data, 5)
    client: Any = SimpleNamespace(
        hget=lambda *_: number,
        hmget=lambda *_: [number, digest, exact, published, parameters],
        connection_pool=SimpleNamespace(connection_kwargs={}),
    )
    theta = StoredParameters(client).theta(releases(3)[-1].version, (3, 1))
    assert theta is None or bool(np.isfinite(theta).all())


def theta_seeds() -> list[bytes]:
    """Return what a head holds of a version."""
    version = releases(3)[-1].version
    theta = codec.pack(np.arange(3.0))
    number = str(version.version).encode()
    digest = version.digest.encode()
    return [joined(number, digest, theta, theta), joined(b"9", b"x", theta, b"")]


# -- the log of single-node mode ----------------------------------------------------------------


def _entry(data: bytes) -> None:
    entry_id, headers, time, key, value = parts(data, 5)
    given = {b"h": headers, b"t": time, b"k": key, b"v": value}
    fields = {name: found for name, found in given.items() if found is not None}
    record = decode_entry(_HERE, entry_id or b"", fields)
    assert offset_of(b"%d-0" % (record.offset + 1)) == record.offset
    assert decode_headers(encode_headers(record.headers)) == record.headers


def entry_seeds() -> list[bytes]:
    """Return entries with and without headers and value."""
    headers = encode_headers((("ce_type", b"x"), ("", b""), ("\u00fc", b"\xff")))
    return [
        joined(b"8-0", headers, b"1760000000000", b"m", b"{}"),
        joined(b"1-0", b"", b"0", b"m"),
    ]


def _topic(data: bytes) -> None:
    client: Any = SimpleNamespace(hmget=lambda *_: parts(data, 5))
    topic = read_topic(client, "t")
    if topic is not None:
        [topic.partition(index) for index in range(topic.partitions)]


def topic_seeds() -> list[bytes]:
    """Return records of a topic, as they are now and from before there was a retention."""
    return [joined(b"id", b"4", b"0", b"1048576", b"-1"), joined(b"id", b"256", b"1", b"9")]


_CORRUPT = (CorruptState,)
HARNESSES = [
    Harness("head", _head, _CORRUPT, head_seeds),
    Harness("small-values", _small, _CORRUPT, small_seeds),
    Harness("generation", _generation, _CORRUPT, generation_seeds),
    Harness("stream", _stream, _CORRUPT, stream_seeds),
    Harness("array", _array, _CORRUPT, array_seeds),
    Harness("row-record", _rows, _CORRUPT, rows_seeds),
    Harness("deferred", _deferred, _CORRUPT, deferred_seeds),
    Harness("subject", _names, _CORRUPT, lambda: [b'["u1", "u2"]', b"[]"]),
    Harness("job-result", _job, _CORRUPT, job_seeds),
    Harness("stored-parameters", _stored_parameters, (BrokenChain,), stored_parameters_seeds),
    Harness(
        "stored-theta", _theta_in_store, (*_CORRUPT, BrokenChain, StoreUnavailable), theta_seeds
    ),
    Harness("stream-entry", _entry, _CORRUPT, entry_seeds),
    Harness("topic-record", _topic, _CORRUPT, topic_seeds),
]
