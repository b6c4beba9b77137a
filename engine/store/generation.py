"""A generation and its stream as they are stored: the ``fixed`` hash, V, Q, and the thetas."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import redis

from lethe.engine.deletion.correction import Correction
from lethe.engine.deletion.generation import Generation, Stream
from lethe.engine.deletion.growing import GrowingRows
from lethe.engine.error.sentinels import Sentinels
from lethe.engine.error.terms import ObjectiveNoise
from lethe.engine.errors import CorruptState, IllConditioned
from lethe.engine.exact.rows import MOST
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.multinomial import SoftmaxObjective
from lethe.engine.fit.objective import Array, Kind, Objective
from lethe.engine.fit.precompute import SAFE
from lethe.engine.preprocess.live import LivePipeline
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.columns import PublishedColumns
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.exact_sums import read_solution
from lethe.engine.store.layout.keys import GenerationKeys
from lethe.engine.store.layout.meta import Meta
from lethe.engine.store.layout.pipeline_sums import unpack_sums
from lethe.engine.store.layout.preprocessing import (
    layout_of,
    pack_base,
    raw_columns,
    unpack_base,
    vocabularies_of,
)
from lethe.engine.store.layout.reading import parse_json_value
from lethe.engine.store.layout.state import PublishedPipeline
from lethe.engine.store.server.connection import reachable
from lethe.engine.store.server.row_keys import SEALED, SEALED_BYTES


class Sampled(NamedTuple):
    """Sentinels as they are stored.

    Attributes
    ----------
    ids, pi
        Of each row its id, and the chance with which it was drawn; None if all had the same.
    records
        By id, copies of their records, if these are in files and not in the store.
    """

    ids: tuple[str, ...] = ()
    pi: tuple[float, ...] | None = None
    records: Mapping[str, bytes] = MappingProxyType({})

    @classmethod
    def of(cls, sentinels: Sentinels, *, copied: bool = False) -> Sampled:
        """Return what is stored of sentinels; ``copied``: their rows are not stored with others."""
        pi, records = sentinels.pi, dict[str, bytes]()
        if copied:
            rows = sentinels.rows
            packed = codec.pack_rows(rows.X, rows.y, rows.weight, sentinels.W)
            records = dict(zip(sentinels.ids, packed, strict=True))
        return cls(sentinels.ids, None if pi is None else tuple(map(float, pi)), records)


def generation_info(
    generation: Generation, sampled: Sampled, pipeline: LivePipeline | None = None
) -> dict[str, bytes]:
    """Return the fields of a generation's ``fixed`` hash."""
    info: dict[str, Any] = {
        "smallest": generation.smallest,
        "largest": generation.largest,
        "dual_error": generation.dual_error,
        "factor_error": generation.factor_error,
        "rounded": generation.rounded,
        "sentinels": sampled.ids,
    }
    if sampled.pi is not None:
        info["sentinel_chances"] = sampled.pi
    if isinstance(generation.objective, SoftmaxObjective):
        info["gauge"] = generation.objective.gauge
    fields = {
        "theta_b": codec.pack(generation.theta_b),
        "penalty": codec.pack(np.asarray(generation.objective.penalty)),
        "info": json.dumps(info).encode(),
    }
    if pipeline is not None:
        fields["base"] = pack_base(pipeline.base)
    if sampled.records:
        fields["sentinel_rows"] = b"".join(sampled.records[row] for row in sampled.ids)
    noise = generation.objective.linear
    return fields if noise is None else {**fields, "noise": codec.pack(noise)}


def empty_generation(config: ModelConfig, number: int) -> Generation:
    """Return the generation of a model without rows: the penalty alone, and theta 0.

    Nothing of it is stored, so that nothing learned from the rows remains.
    """
    penalty = np.full(config.d, config.ridge)
    origin = np.zeros((config.d, config.m))
    objective = _objective(config, penalty, 1.0)
    return Generation(number, objective, origin, config.ridge, config.ridge, 0.0)


def _objective(
    config: ModelConfig, penalty: Array, gauge: float, noise: Array | None = None
) -> Objective:
    if config.kind is Kind.SOFTMAX:
        return SoftmaxObjective(config.kind, penalty, gauge=gauge)
    return Objective(config.kind, penalty, noise)


def queue_generation(pipeline: Any, where: GenerationKeys) -> None:
    """Query in a pipeline the ``fixed`` hash, V, Q and sums of a generation, in this order."""
    pipeline.hgetall(where.fixed)
    pipeline.lrange(where.V, 0, -1)
    pipeline.lrange(where.Q, 0, -1)
    pipeline.hgetall(where.sums)


def read_fixed(
    fixed: Mapping[bytes, bytes], meta: Meta, *, lost: bool = False
) -> tuple[Generation, Sampled]:
    """Return the generation and which rows are its sentinels from the stored hash.

    ``lost``: the hash may be missing, because every request waits for a rebuild.
    """
    config = meta.config
    if meta.rows_live == 0 or (lost and b"info" not in fixed):
        return empty_generation(config, meta.generation), Sampled()
    what = f"model {config.model_id!r}, generation {meta.generation}"
    if b"info" not in fixed:
        raise CorruptState(f"{what}: its precomputation is missing; register it with --replace")
    info = _info(fixed[b"info"], what)
    penalty = codec.unpack(fixed.get(b"penalty"), (config.d,), what)
    if (penalty < 0).any():
        raise CorruptState(f"{what}: its penalty is negative; register it with --replace")
    noise = None
    if isinstance(config.certify, ObjectiveNoise):
        noise = codec.unpack(fixed.get(b"noise"), (config.d, config.m), f"{what}, noise")
    generation = Generation(
        number=meta.generation,
        objective=_objective(config, penalty, info.get("gauge", 1.0), noise),
        theta_b=codec.unpack(fixed.get(b"theta_b"), (config.d, config.m), what),
        smallest=float(info["smallest"]),
        largest=float(info["largest"]),
        dual_error=float(info["dual_error"]),
        factor_error=float(info["factor_error"]),
        rounded=info.get("rounded") is True,
    )
    sampled = _sampled(info, what)
    return generation, sampled._replace(records=_copies(fixed, sampled.ids, config, what))


def _info(stored: bytes, what: str) -> dict[str, Any]:
    """Return the spectrum's bounds and the sentinels, each checked by itself."""
    info = parse_json_value(stored, f"{what}, info")
    if not isinstance(info, dict) or not all(
        _is_number(info.get(name)) for name in ("smallest", "largest", "dual_error", "factor_error")
    ):
        raise CorruptState(f"{what}: its info has no spectrum; register it with --replace")
    if not info["smallest"] >= SAFE * max(info["dual_error"], info["factor_error"], 0.0):
        raise CorruptState(f"{what}: its info is not that of a precomputation; run `lethe check`")
    if not (_is_number(info.get("gauge", 1.0)) and info.get("gauge", 1.0) > 0):
        raise CorruptState(f"{what}: its info has no valid gauge; run `lethe check`")
    ids = info.get("sentinels")
    if not isinstance(ids, list) or not all(isinstance(row, str) for row in ids):
        raise CorruptState(f"{what}: its sentinels are not ids; run `lethe check`")
    return info


def _is_number(value: Any) -> bool:
    """Return whether a JSON value is a number within float64's range, and not negative."""
    return isinstance(value, int | float) and 0 <= value <= sys.float_info.max


def _sampled(info: Mapping[str, Any], what: str) -> Sampled:
    """Return the sentinels; without chances, as in a linear model, all were equal."""
    ids = tuple(info["sentinels"])
    chances = info.get("sentinel_chances")
    if chances is None:
        return Sampled(ids)
    if not isinstance(chances, list) or len(chances) != len(ids):
        raise CorruptState(f"{what}: its sentinels have no valid chances; run `lethe check`")
    if not all(_is_number(chance) and 0.0 < chance <= 1.0 for chance in chances):
        raise CorruptState(f"{what}: its sentinels have no valid chances; run `lethe check`")
    return Sampled(ids, tuple(map(float, chances)))


def _copies(
    fixed: Mapping[bytes, bytes], ids: Sequence[str], config: ModelConfig, what: str
) -> dict[str, bytes]:
    """Return the copies of the sentinels' records, if there are some."""
    data = fixed.get(b"sentinel_rows", b"")
    size = codec.row_size(config.d, config.m, config.blocks)
    if data[:1] == bytes([SEALED]):
        size += SEALED_BYTES
    if data and len(data) != size * len(ids):
        raise CorruptState(f"{what}: its sentinels have other rows; run `lethe check`")
    copies = (data[start : start + size] for start in range(0, len(data), size))
    return dict(zip(ids, copies, strict=False))


def read_factor(client: redis.Redis, where: GenerationKeys, generation: Generation) -> Factor:
    """Read the factored Hessian of a generation, stacked. Cost O(h d^2) bytes.

    Raises
    ------
    CorruptState
        It is missing, or has another size.
    """
    if generation.factor is not None:
        return generation.factor
    d, h = generation.objective.d, generation.blocks
    if generation.objective.kind is Kind.SOFTMAX:
        d = generation.theta_b.size
    with reachable(client):
        data: Any = client.get(where.factor)
    L = codec.unpack(data, (h, d, d), f"model {where.model.model_id!r}, factor")
    return Factor(np.tril(L).reshape(h * d, d), generation.smallest, generation.largest)


def with_factor(client: redis.Redis, where: GenerationKeys, generation: Generation) -> Generation:
    """Return a generation with its factor, if it is one whose steps need it.

    Raises
    ------
    CorruptState
        As `read_factor`.
    """
    if generation.objective.kind is not Kind.SOFTMAX:
        return generation
    return replace(generation, factor=read_factor(client, where, generation))


THETAS = ("theta_exact", "theta_r", "anchor", "published")
"""The vectors of a stream: fields of the head and of a staged generation."""

SCALARS = (
    "v_trace", "residual", "carried", "completions", "v_seconds", "least_pivot", "added",
    "dual_error",
)  # fmt: skip
"""The numbers of a stream: members of meta and of the result of a job."""

GRADIENT = "gradient"
"""A fifth vector, of a model with preprocessing (`engine.deletion.generation.Stream.gradient`)."""

PARAMETERS = "parameters"
"""Beside them in the head: what such a model publishes, in the units of its last step."""


def scalars_in(source: Meta | Stream) -> dict[str, Any]:
    """Return the scalars of a stream, from itself or from meta, which keeps them."""
    return {name: getattr(source, name) for name in SCALARS}


def scalars_of(stream: Stream) -> dict[str, Any]:
    """Return the scalars of a stream, and the lengths of V and Q, as meta keeps them."""
    return {"K": len(stream.V), "r": len(stream.Q), **scalars_in(stream)}


def read_stream(head: Mapping[bytes, bytes], meta: Meta, V: list[bytes], Q: list[bytes]) -> Stream:
    """Return the stream from the head and the stored rows of V and Q."""
    config = meta.config
    what = f"model {config.model_id!r}, generation {meta.generation}"
    shape = (config.d, config.m)

    exact = codec.unpack(head.get(b"theta_exact"), shape, f"{what}, theta_exact")

    def theta(name: str) -> Any:
        return theta_of(head.get(name.encode()), exact, f"{what}, {name}")

    gradient = None
    if config.preprocess and not config.exact_sums and meta.rows_live:
        gradient = codec.unpack(head.get(GRADIENT.encode()), shape, f"{what}, {GRADIENT}")

    return Stream(
        theta_exact=exact,
        theta_r=theta("theta_r"),
        anchor=theta("anchor"),
        published=theta("published"),
        V=stored_correction(V, config.stacked * config.d, f"{what}, V"),
        Q=GrowingRows.of(codec.unpack_matrix(Q, config.d, f"{what}, Q")),
        gradient=gradient,
        **scalars_in(meta),
    )


def with_solution(
    stream: Stream,
    sums: Mapping[bytes, bytes],
    meta: Meta,
    generation: Generation,
    *,
    encrypted: bool,
    checked: bool = True,
) -> Stream:
    """Return the stream, with its solution if the model has exact sums.

    ``encrypted``: row records are encrypted, so that none may lie beside the sums. ``checked``:
    theta_exact must be the solution of the sums.

    Raises
    ------
    CorruptState
        They are not those of the model.
    """
    config = meta.config
    if not config.exact_sums or meta.rows_live == 0:
        return stream
    what = f"model {config.model_id!r}, generation {meta.generation}"
    theta = stream.theta_exact if checked else None
    raw = raw_columns(config) if config.preprocess else None
    penalty, most = generation.objective.penalty, 0 if encrypted else MOST
    solution = read_solution(sums, penalty, config.m, what, theta, raw, most=most)
    return stream._replace(solution=solution)


def read_pipeline(
    fixed: Mapping[bytes, bytes],
    sums: Mapping[bytes, bytes],
    meta: Meta,
    generation: Generation,
    stream: Stream,
) -> LivePipeline | None:
    """Return the live pipeline of a stream as it is stored; None without preprocessing, or rows.

    None with exact sums, too: the stream's solution is the pipeline's.

    Raises
    ------
    CorruptState
        What is stored is not that of the model.
    """
    config = meta.config
    if not config.preprocess or config.exact_sums or meta.rows_live == 0:
        return None
    what = f"model {config.model_id!r}, generation {meta.generation}"
    layout = layout_of(config.preprocess)
    base = unpack_base(fixed.get(b"base"), layout, what)
    try:
        return LivePipeline.resumed(
            base,
            vocabularies_of(config.preprocess),
            generation,
            stream,
            unpack_sums(sums, base, config.d, config.m, what, kind=config.kind),
            intercept=config.fit_intercept,
        )
    except IllConditioned as error:
        raise CorruptState(f"{what}: its sums are not those of a model ({error})") from None


def read_published(
    parameters: bytes | None, columns: bytes | None, config: ModelConfig
) -> PublishedPipeline | None:
    """Return what the newest version of a model with preprocessing publishes; None of others.

    Raises
    ------
    CorruptState
        It is missing, or does not parse.
    """
    if not config.preprocess or columns == b"":  # unregistered
        return None
    what = f"model {config.model_id!r}, its published pipeline"
    theta = codec.unpack(parameters, (config.d, config.m), what)
    return PublishedPipeline(theta, PublishedColumns.read(columns, what))


def stored_correction(rows: list[bytes], width: int, what: str) -> Correction:
    """Return V with its signs from its stored rows: a downdate is stored as -1, J has 1 there."""
    V, signs = codec.unpack_signed_rows(rows, width, what)
    return Correction.of(V, None if 1 not in signs else -np.array(signs, dtype=np.float64))


def packed_correction(rows: Array, signs: Array | None) -> list[bytes]:
    """Return rows of V as they are stored; ``signs`` are those of J, None for deletions alone."""
    if signs is None:
        return [codec.pack_signed_row(row) for row in rows]
    return [codec.pack_signed_row(row, -int(sign)) for row, sign in zip(rows, signs, strict=True)]


def thetas_of(stream: Stream, before: Stream | None = None) -> dict[str, bytes]:
    """Return the thetas of a stream that differ from those before, each packed once.

    A theta that is theta_exact itself is stored as empty bytes. So one that stays while theta_exact
    moves away from it is included: empty bytes would then stand for another vector. The published
    theta is always included: a commit's parameters are sent from its record alone.
    """
    exact = stream.theta_exact
    packed: dict[str, bytes] = {}
    moved = before is None or exact is not before.theta_exact
    if moved:
        packed["theta_exact"] = codec.pack(exact)
    for name in THETAS[1:]:
        value = getattr(stream, name)
        left = before is None or name == "published" or (moved and value is before.theta_exact)
        if left or value is not getattr(before, name):
            packed[name] = b"" if value is exact else codec.pack(value)
    if b"" in packed.values():
        packed.setdefault("theta_exact", codec.pack(exact))
    former = None if before is None else before.gradient
    if stream.gradient is not None and stream.gradient is not former:
        packed[GRADIENT] = codec.pack(stream.gradient)
    return packed


def theta_of(stored: bytes | None, exact: Array, what: str) -> Array:
    """Return a stored theta; empty bytes stand for theta_exact, ``exact``.

    Raises
    ------
    CorruptState
        It is missing, or has another shape.
    """
    return exact if stored == b"" else codec.unpack(stored, exact.shape, what)
