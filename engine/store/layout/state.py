"""A model's state as values: what one commit replaces (`Meta`), and all of it (`ModelState`).

The store loads a state, and a commit replaces it.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AliasChoices, ConfigDict, Field, field_validator

from lethe.engine.deletion.stream import Generation, Stream
from lethe.engine.error.budget import OverBudget
from lethe.engine.error.certified import Ledger
from lethe.engine.error.estimate import Sentinels
from lethe.engine.error.terms import OutputNoise, Terms
from lethe.engine.errors import CorruptState, FormatTooNew, FormatTooOld
from lethe.engine.fit.objective import Array, Kind
from lethe.engine.preprocess.live import LivePipeline
from lethe.engine.refresh.policy import Limits
from lethe.engine.store.layout.columns import ColumnRecord, FittedColumn
from lethe.engine.store.layout.keys import FORMAT, GenerationKeys, ModelKeys
from lethe.engine.store.layout.reading import (
    MAX_DIGITS,
    Count,
    Counts,
    Texts,
    checked,
    integer,
    parse_json_value,
    parse_model,
    parse_text,
)
from lethe.engine.store.layout.records import (
    SECRET_BYTES,
    ErrorRecord,
    Finite,
    ReceiptLog,
    Status,
    Stored,
    outputs,
)

MAX_VALUE_BYTES = 512 << 20
"""Largest value of Redis: no model may have a longer factor, or longer thetas."""

STAGED = "staged"
"""Id of arrays that are staged and not live yet: the commit that makes them live gives them one."""


class PendingJob(Stored):
    """The one refresh job that a model waits for."""

    job_id: str
    reason: str
    ordered_at: datetime


class Failures(Stored):
    """Failed refreshes that a model waited for, since the last one that succeeded."""

    times: Count
    newest_at: datetime


class LimitsRecord(Stored):
    """`engine.refresh.policy.Limits` as it is stored; None means the default."""

    far_under: float | None = None
    fraction_of_d: float | None = None
    floor_rows: int | None = None
    completions: int | None = None
    condition: float | None = None
    age_seconds: float | None = None

    def limits(self) -> Limits:
        """Return the limits, defaults filled in."""
        return Limits(**self.model_dump(exclude_none=True))


class ModelConfig(Stored):
    """The configuration that registration fixes."""

    model_id: str
    kind: Kind
    method: str
    ridge: Finite
    fit_intercept: bool
    feature_names: Texts
    target_names: Texts
    class_names: Texts = ()
    error_budget: Finite
    refresh_every_seconds: float | None = None
    limits: LimitsRecord = LimitsRecord()
    certify: Terms | None = None
    over_budget: OverBudget = OverBudget.COMPLETE
    subject_namespace: str | None = Field(default=None, exclude_if=lambda name: name is None)
    """Namespace of the rows' subjects; None if the model was registered without subjects."""
    preprocess: Annotated[tuple[ColumnRecord, ...], Field(fail_fast=True)] = Field(
        default=(), exclude_if=operator.not_
    )
    """The columns of the table, if preprocessing is part of the model."""

    @field_validator("kind")
    @classmethod
    def _served(cls, kind: Kind) -> Kind:
        if kind not in (Kind.LINEAR, Kind.LOGISTIC):
            raise ValueError(
                f"{kind} models are in the library only; the service does not keep them"
            )
        return kind

    @property
    def kind_name(self) -> Literal["linear", "logistic"]:
        """The kind, as versions and parameters name it."""
        return "linear" if self.kind is Kind.LINEAR else "logistic"

    @property
    def completes(self) -> bool:
        """Whether the exact answer is published where a projection is over the error budget."""
        return self.over_budget is not OverBudget.PUBLISH and self.output_noise is None

    @property
    def output_noise(self) -> OutputNoise | None:
        """The terms of a model whose every version is published with noise of its own."""
        return self.certify if isinstance(self.certify, OutputNoise) else None

    @property
    def d(self) -> int:
        """Length of theta, the intercept included."""
        return len(self.feature_names) + int(self.fit_intercept)

    @property
    def row_width(self) -> int:
        """Numbers that a record keeps of a row: its features, or its columns as given."""
        return len(self.preprocess) or self.d

    @property
    def m(self) -> int:
        """Number of outputs: one a target, or one a class if there are more than two."""
        return outputs(self.target_names, self.class_names)

    @property
    def blocks(self) -> int:
        """Number of blocks: outputs that share one Hessian (`engine.fit.blocks`)."""
        return 1 if self.kind is Kind.LINEAR else self.m


class Meta(Stored):
    """The part of the head that each commit replaces, as JSON; ``config`` apart from it.

    Everything here comes from the commit. What only the store can know (whether V and Q exist,
    where row records lie) is in `ModelState`.
    """

    model_config = ConfigDict(serialize_by_alias=True)

    config: ModelConfig
    status: Status
    generation: Count
    generation_key: str
    dataset_key: str
    reference_epoch: Count = 0
    rows_live: Count
    rows_deleted: Count
    deletions_logged: Count
    class_counts: Counts | None = None
    K: Count
    r: Count
    v_trace: float
    residual: float
    carried: float
    completions: Count
    v_seconds: float = 0.0
    least_pivot: float
    added: float = 0.0
    dual_error: float = 0.0
    rows_inserted: Count = 0
    rows_corrected: Count = 0
    first_deletion_at: datetime | None = None
    error: ErrorRecord
    # The stored name is ``certified``.
    certified_bound: float | None = Field(
        default=None,
        validation_alias=AliasChoices("certified_bound", "certified"),
        serialization_alias="certified",
    )
    ledger: Ledger | None = None
    noised: Count = 0
    """Points published with noise on the output since the registration."""
    pending_job: PendingJob | None = None
    failures: Failures | None = None
    refreshed_at: datetime
    receipt_log: ReceiptLog | None = None

    @property
    def rows_changed(self) -> int:
        """How many rows were inserted or corrected since the model was registered."""
        return self.rows_inserted + self.rows_corrected


def with_meta(meta: Meta, **changes: object) -> Meta:
    """Return meta with changes, checked."""
    return meta.model_validate({**dict(meta), **changes})


def meta_json(meta: Meta) -> bytes:
    """Return meta as the head and commits hold it: JSON without the configuration."""
    return meta.model_dump_json(exclude={"config"}).encode()


def parse_config(data: bytes | None, model_id: str) -> ModelConfig:
    """Return a stored configuration.

    Raises
    ------
    CorruptState
        It does not parse, or is another model's.
    """
    what = f"model {model_id!r}, its stored configuration"
    config = parse_model(ModelConfig, data, what)
    if config.model_id != model_id:
        raise CorruptState(f"{what}: is that of model {config.model_id!r}; run `lethe check`")
    return config


def parse_meta(data: bytes | None, config: ModelConfig) -> Meta:
    """Return a stored meta, with its configuration.

    Raises
    ------
    CorruptState
        It does not parse, or its arrays do not fit in one value of the store.
    """
    what = f"model {config.model_id!r}, its stored head"
    fields = parse_json_value(data, what)
    if not isinstance(fields, dict):
        raise CorruptState(f"{what}: is not an object; run `lethe check`")
    meta = checked(Meta, {**fields, "config": config}, what)
    widest = config.d * max(config.m, config.blocks * config.d)
    if not (config.d and config.m) or 8 * widest > MAX_VALUE_BYTES:
        raise CorruptState(
            f"{what}: {config.d} coefficients of {config.m} outputs are no model; run `lethe check`"
        )
    return meta


def secret_of(stored: bytes | None, what: str) -> bytes | None:
    """Return the secret that salts commitments; older models have none.

    Raises
    ------
    CorruptState
        It has another length.
    """
    if stored is not None and len(stored) != SECRET_BYTES:
        raise CorruptState(
            f"{what}: its secret does not have {SECRET_BYTES} bytes; run `lethe check`"
        )
    return stored


def check_format(stored: bytes | None, model_id: str) -> None:
    """Refuse a format that is not this program's.

    Raises
    ------
    FormatTooNew, FormatTooOld
        The state was written by a newer or by an older Lethe.
    CorruptState
        The stored format is not a number.
    """
    if stored is not None and not (stored.isdigit() and len(stored) <= MAX_DIGITS):
        raise CorruptState(f"model {model_id!r}: {stored[:20]!r} is not a format of a stored state")
    if stored is None or int(stored) == FORMAT:
        return
    what = f"model {model_id!r} is stored in format {int(stored)}, and this program reads {FORMAT}"
    if int(stored) > FORMAT:
        raise FormatTooNew(f"{what}; upgrade it")
    raise FormatTooOld(f"{what}; register the model again with `lethe register --replace`")


# -- the state ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Head:
    """The newest commit of a model: its number, dense from 0, its digest, and where it lies.

    ``offset`` in its commits partition, -1 if it is not known; it does not identify the commit.
    """

    commit: int = -1
    digest: str = ""
    offset: int = field(default=-1, compare=False)


class DeferredRequest(Stored):
    """A request that waits for a rebuild: what its final receipt will need."""

    request_id: str
    body: str
    row_ids: Texts
    retired: Texts = ()
    rows_unknown: int
    code: str
    source: dict[str, str | int]
    rows_commitment: str | None = None
    subject_id: str | None = None
    """The subject whose rows it names, if these could not be determined (DATA_LOST)."""

    @field_validator("source")
    @classmethod
    def _names_a_record(cls, source: dict[str, str | int]) -> dict[str, str | int]:
        kinds = {name: type(source.get(name)) for name in ("topic", "partition", "offset")}
        if kinds != {"topic": str, "partition": int, "offset": int}:
            raise ValueError("names no record of a topic")
        return source


def parse_deferred(stored: bytes, request_id: str, model_id: str) -> DeferredRequest:
    """Return a stored waiting request.

    Raises
    ------
    CorruptState
        It does not parse, or is another request's.
    """
    what = f"model {model_id!r}, deferred request {request_id!r}"
    request = parse_model(DeferredRequest, stored, what)
    if request.request_id != request_id:
        raise CorruptState(f"{what}: is request {request.request_id!r}; run `lethe check`")
    return request


def parse_offsets(stored: Mapping[bytes, bytes], what: str) -> dict[str, int]:
    """Return the next offset to process, by partition.

    Raises
    ------
    CorruptState
        One does not parse.
    """
    return {
        parse_text(partition, f"{what}, a partition"): integer(offset, f"{what}, an offset")
        for partition, offset in stored.items()
    }


def parse_opening(stored: bytes | None, what: str) -> dict[str, int] | None:
    """Return the offset from which requests are the model's, by partition; None if not stored.

    Raises
    ------
    CorruptState
        It does not parse.
    """
    if stored is None:
        return None
    opening = parse_json_value(stored, f"{what}, its opening")
    if not isinstance(opening, dict):
        raise CorruptState(f"{what}: its opening names no partitions; run `lethe check`")
    return {name: integer(offset, f"{what}, its opening") for name, offset in opening.items()}


@dataclass(frozen=True, slots=True)
class PublishedPipeline:
    """What a version of a model with preprocessing publishes.

    Attributes
    ----------
    theta
        d x m, the parameters of the pipeline's last step.
    columns
        Its fitted columns.
    """

    theta: Array
    columns: tuple[FittedColumn, ...]


@dataclass(frozen=True, slots=True)
class ModelState:
    """A model that was registered once, as loaded or as after a commit.

    Attributes
    ----------
    keys, head
        Whose it is, and the commit that made it.
    version, digest
        Number and digest of its newest version.
    meta
        Everything that the commit says of it, except thetas and the fields below.
    generation, stream, sentinels
        What a step needs.
    offsets
        Next offset to process, by partition of ``lethe.deletions``.
    deferred
        Requests that wait for a rebuild.
    opening
        By partition, the offset from which requests are the model's; None before it is known.
    arrays_id
        Id of the stored V and Q, which every write renews. Empty if they are missing: rows were
        lost with the store's last writes, and every request waits for a rebuild.
    rows_generation
        Name of the generation whose row records exist: the live one, unless its result was lost.
    deletions_from
        Number of deletions logged before the first one in the stored list.
    newest
        The newest version event, as it was published.
    seal
        Name of the key that its newest commit is sealed with.
    secret
        Salts the commitments of receipts (`consumers.contract.commitment`).
    pipeline
        The live pipeline of a model with preprocessing; None also if no row is left, or if V and Q
        are missing.
    published_pipeline
        What the newest version of such a model publishes.
    """

    keys: ModelKeys
    head: Head
    version: int
    digest: str
    meta: Meta
    generation: Generation
    stream: Stream
    sentinels: Sentinels
    offsets: Mapping[str, int]
    deferred: Mapping[str, DeferredRequest]
    opening: Mapping[str, int] | None = None
    arrays_id: str = ""
    rows_generation: str = ""
    deletions_from: int = 0
    newest: bytes = field(default=b"", repr=False)
    seal: str = ""
    secret: bytes | None = field(default=None, repr=False)
    pipeline: LivePipeline | None = None
    published_pipeline: PublishedPipeline | None = None

    @property
    def published(self) -> Array:
        """What the newest version publishes, d x m."""
        pipeline = self.published_pipeline
        return self.stream.published if pipeline is None else pipeline.theta

    @property
    def model_id(self) -> str:
        """The model's id."""
        return self.keys.model_id

    @property
    def registered(self) -> bool:
        """Whether requests change it, until `lethe unregister`."""
        return self.meta.status != "UNREGISTERED"

    @property
    def awaiting_rebuild(self) -> bool:
        """Whether V and Q are missing: every request waits for a rebuild."""
        return not self.arrays_id

    @property
    def generation_keys(self) -> GenerationKeys:
        """Keys of the generation whose row records exist."""
        return self.keys.generation(self.rows_generation)

    @property
    def deferred_rows(self) -> frozenset[str]:
        """Rows that wait for a rebuild without them."""
        return frozenset(row for request in self.deferred.values() for row in request.row_ids)
