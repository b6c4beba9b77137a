"""The head of a model: what one commit replaces as a whole, next to its thetas."""

from __future__ import annotations

from datetime import datetime

from lethe.engine.error.certified import Ledger, Terms
from lethe.engine.errors import CorruptState
from lethe.engine.fit.objective import Kind
from lethe.engine.refresh.policy import Limits
from lethe.engine.store.reading import (
    Count,
    Counts,
    Texts,
    checked,
    parse_json_value,
    parse_model,
)
from lethe.engine.store.receipt_log import ReceiptLog
from lethe.engine.store.records import SECRET_BYTES, ErrorRecord, Finite, Status, Stored, outputs

MAX_VALUE_BYTES = 512 << 20
"""Largest value of Redis: no model may have a longer factor, or longer thetas."""


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

    @property
    def d(self) -> int:
        """Length of theta, the intercept included."""
        return len(self.feature_names) + int(self.fit_intercept)

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
    where row records lie) is in `engine.store.state.ModelState`.
    """

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
    first_deletion_at: datetime | None = None
    error: ErrorRecord
    certified: float | None = None
    ledger: Ledger | None = None
    pending_job: PendingJob | None = None
    failures: Failures | None = None
    refreshed_at: datetime
    receipt_log: ReceiptLog | None = None


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
