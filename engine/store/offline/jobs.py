"""Results of refresh jobs, under the job's own keys until the deletion worker takes them.

The rows of a compact or a rebuild are staged beside them (`engine.store.offline.staging`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import redis
from pydantic import ConfigDict, Field

from lethe.engine.deletion.generation import Stream
from lethe.engine.deletion.growing import GrowingRows
from lethe.engine.disclosure import ResidualScale
from lethe.engine.error.certified import Ledger, Reference
from lethe.engine.errors import CorruptState
from lethe.engine.fit.objective import Array
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.generation import (
    GRADIENT,
    SCALARS,
    THETAS,
    read_fixed,
    read_pipeline,
    scalars_in,
    stored_correction,
    with_factor,
    with_solution,
)
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.keys import GenerationKeys, ModelKeys
from lethe.engine.store.layout.meta import Meta, RowFiles
from lethe.engine.store.layout.reading import Count, Counts, Texts, parse_model
from lethe.engine.store.layout.records import Status, Stored
from lethe.engine.store.offline.staging import TIME_TO_LIVE, StagedGeneration, read_arrays
from lethe.engine.store.server.connection import Fields, reachable, text
from lethe.engine.store.store import ModelStore

_REFUSALS = 64


class JobResult(Stored):
    """The result of a refresh job, without its arrays.

    Attributes
    ----------
    size, reason, seconds, passes
        What was done, why, and at what cost.
    asked
        Whether a person or a schedule asked for it, and may wait for its version.
    generation_key, reference_epoch
        The state it was made from: another generation or reference makes it stale.
    deletions
        How many deletions the result includes; later ones are applied to it again. Stored as
        ``sealed``, which workers of an older version read.
    changed
        How many insertions and corrections of rows it includes; as ``deletions``.
    completions
        Completions of the generation when the job began: a completion is swapped in once.
    certified, left
        Bound of the error left, and the error left if there is no bound.
    residual, refuted
        As `engine.refresh.refreshes.Polished` has them (polish).
    rows, class_counts
        Rows of the new generation once it has caught up (compact and rebuild).
    staged_key, staged_mark
        Name of the staged generation, and the mark of its completeness (compact and rebuild).
    resolved
        Deferred requests whose rows were left out.
    ledger
        Ledger of a certified model's new generation once it has caught up (compact and rebuild).
    reference
        What a certified model's polish measured.
    disclosure, disclosure_then
        What Cook's distance is measured in, of the rows of the new generation before it caught up,
        and what the state had for it when they were read, if disclosures are kept (compact and
        rebuild).
    drifted
        Whether the drift audit failed: a completion then says that the error is unknown, and orders
        a rebuild.
    row_files
        The rows in files, without those that were deleted, if there are some (rebuild).
    caught_up
        Whether it has caught up with changes of rows since the snapshot (compact and rebuild).
    """

    model_config = ConfigDict(populate_by_name=True)

    job_id: str
    model_id: str
    size: RefreshSize
    reason: str
    asked: bool = False
    seconds: float
    passes: Count = 0
    generation_key: str
    reference_epoch: Count
    deletions: Count = Field(alias="sealed")
    changed: Count = 0
    completions: Count = 0
    certified: float | None = None
    left: float = 0.0
    residual: float = 0.0
    refuted: float | None = None
    staged_key: str | None = None
    staged_mark: str = ""
    generation: Count = 0
    rows: Count = 0
    class_counts: Counts | None = None
    stream: dict[str, float] = Field(default_factory=dict)
    status: Status = "ACTIVE"
    resolved: Texts = ()
    ledger: Ledger | None = None
    reference: Reference | None = None
    disclosure: ResidualScale | None = None
    disclosure_then: ResidualScale | None = None
    drifted: bool = False
    caught_up: bool = False
    row_files: RowFiles | None = None


def stream_fields(stream: Stream) -> tuple[dict[str, float], dict[str, Array]]:
    """Return a stream's scalars and thetas, as a job result keeps them."""
    scalars = {name: float(value) for name, value in scalars_in(stream).items()}
    thetas = {name: getattr(stream, name) for name in THETAS}
    return scalars, thetas if stream.gradient is None else thetas | {GRADIENT: stream.gradient}


def write_result(
    client: redis.Redis, result: JobResult, arrays: Mapping[str, Array] | None = None
) -> None:
    """Store a result; it expires."""
    key = ModelKeys(result.model_id).job(result.job_id)
    fields: Fields = {"result": result.model_dump_json(by_alias=True).encode()}
    for name, array in (arrays or {}).items():
        fields[name] = codec.pack(array)
    with reachable(client):
        pipeline = client.pipeline(transaction=True)
        pipeline.delete(key)
        pipeline.hset(key, mapping=fields)
        pipeline.expire(key, TIME_TO_LIVE)
        pipeline.execute()


@dataclass(frozen=True, slots=True)
class Attempts:
    """How often a job was begun.

    ``open`` counts attempts that have not ended in good order, including the one that begins now;
    each of the others ended its process. ``interrupted`` counts attempts that a server broke off,
    if the same process began the job again.
    """

    open: int
    interrupted: int


def begin_attempt(
    client: redis.Redis, model_id: str, job_id: str, interrupted: int = 0
) -> Attempts:
    """Count an attempt at a job, and return the count.

    ``interrupted`` attempts before it were broken off by a server, which could not record it.
    """
    return _count(client, model_id, job_id, opened=1 - interrupted, interrupted=interrupted)


def end_attempt(client: redis.Redis, model_id: str, job_id: str) -> None:
    """Take back an attempt that was stopped in good order."""
    _count(client, model_id, job_id, opened=-1)


def _count(
    client: redis.Redis, model_id: str, job_id: str, *, opened: int, interrupted: int = 0
) -> Attempts:
    """Add to the counts of a job; the counts expire, even if a failover lost the key."""
    key = ModelKeys(model_id).job(job_id)
    with reachable(client):
        pipeline = client.pipeline(transaction=True)
        pipeline.hincrby(key, "attempts", opened)
        pipeline.hincrby(key, "interrupted", interrupted)
        pipeline.expire(key, TIME_TO_LIVE)
        counted, broken_off, _ = pipeline.execute()
    return Attempts(int(counted), int(broken_off))


def write_failure(client: redis.Redis, model_id: str, job_id: str, reason: str) -> None:
    """Store that a job failed, so that it is not scheduled again at once."""
    _keep(client, ModelKeys(model_id).job(job_id), "failure", reason)


def read_result(
    client: redis.Redis, keys: ModelKeys, job_id: str
) -> tuple[JobResult, Mapping[bytes, bytes]] | str | None:
    """Return a result and its encoded arrays, or why the job failed.

    None: the result has expired, or there never was one.
    """
    with reachable(client):
        fields: Any = client.hgetall(keys.job(job_id))
    if b"result" in fields:
        return parse_result(fields[b"result"], keys, job_id), fields
    return text(fields[b"failure"]) if b"failure" in fields else None


def parse_result(stored: bytes, keys: ModelKeys, job_id: str) -> JobResult:
    """Return a stored result.

    Raises
    ------
    CorruptState
        It does not parse, or is another job's or another model's.
    """
    what = f"model {keys.model_id!r}, result of job {job_id!r}"
    result = parse_model(JobResult, stored, what)
    if result.job_id != job_id or ModelKeys(result.model_id) != keys:
        raise CorruptState(f"{what}: is that of another job; run `lethe check`")
    return result


def read_staged(
    store: ModelStore,
    where: GenerationKeys,
    meta: Meta,
    result: JobResult,
    arrays: Mapping[bytes, bytes],
) -> StagedGeneration | None:
    """Return a staged generation, or None when it has expired."""
    config = meta.config
    what = f"model {config.model_id!r}, job {result.job_id}"
    if not result.stream.keys() >= set(SCALARS):
        raise CorruptState(f"{what}: its result has no stream; run `lethe check`")
    stored = read_arrays(store.client, where)
    if stored is None:
        return None
    staged = meta.model_copy(update={"generation": result.generation})
    generation, sampled = read_fixed(stored.fixed, staged)
    generation = with_factor(store.client, where, generation)
    shape = (config.d, config.m)
    settled = config.preprocess and not config.exact_sums
    names = (*THETAS, GRADIENT) if settled else THETAS
    fields: dict[str, Any] = {name: result.stream[name] for name in SCALARS}
    fields["completions"] = int(fields["completions"])
    fields |= {name: codec.unpack(arrays.get(name.encode()), shape, what) for name in names}
    stream = Stream(
        **fields,
        V=stored_correction(stored.V, config.stacked * config.d, what),
        Q=GrowingRows.of(codec.unpack_matrix(stored.Q, config.d, what)),
    )
    encrypted = store.row_keys is not None
    stream = with_solution(stream, stored.sums, staged, generation, encrypted=encrypted)
    sentinels = store.sentinels(where, meta, sampled)
    pipeline = read_pipeline(stored.fixed, stored.sums, staged, generation, stream)
    return StagedGeneration(where, generation, stream, sentinels, result.ledger, pipeline)


# -- how often ------------------------------------------------------------------------------------


def read_pace(client: redis.Redis, keys: ModelKeys) -> float:
    """Return a model's pace (`consumers.refresh.queue`) in seconds since 1970; 0 if none is kept.

    A damaged pace counts as none: it only limits how often.
    """
    with reachable(client):
        stored: Any = client.hget(keys.pace, "pace")
    try:
        pace = float(stored or 0.0)
    except ValueError:
        return 0.0
    return pace if math.isfinite(pace) else 0.0


def write_pace(client: redis.Redis, keys: ModelKeys, pace: float) -> None:
    """Keep a model's pace."""
    _keep(client, keys.pace, "pace", repr(pace))


def write_refusal(client: redis.Redis, keys: ModelKeys, job_id: str, reason: str) -> None:
    """Keep why a job was refused, for whoever waits; only a model's newest are kept."""
    newest = {job_id: reason, **_refusals(client, keys)}
    _keep(client, keys.pace, "refused", json.dumps(dict(islice(newest.items(), _REFUSALS))))


def read_refusal(client: redis.Redis, keys: ModelKeys, job_id: str) -> str | None:
    """Return why a job was refused, or None."""
    return _refusals(client, keys).get(job_id)


def _refusals(client: redis.Redis, keys: ModelKeys) -> dict[str, str]:
    with reachable(client):
        stored: Any = client.hget(keys.pace, "refused")
    try:
        refusals = json.loads(stored or "{}")
    except ValueError:
        return {}
    return refusals if isinstance(refusals, dict) else {}


def _keep(client: redis.Redis, key: str, name: str, value: str) -> None:
    with reachable(client):
        pipeline = client.pipeline(transaction=True)
        pipeline.hset(key, name, value)
        pipeline.expire(key, TIME_TO_LIVE)
        pipeline.execute()
