"""The head of a model: what one commit replaces as a whole, next to its thetas."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from lethe.engine.error.certified import Ledger, Terms
from lethe.engine.error.estimate import over_budget
from lethe.engine.errors import CorruptState, FormatTooNew, FormatTooOld
from lethe.engine.fit.objective import Kind
from lethe.engine.refresh.policy import Limits
from lethe.engine.store.reading import (
    MAX_DIGITS,
    Count,
    Counts,
    Texts,
    checked,
    parse_json_value,
    parse_model,
)
from lethe.engine.store.receipt_log import ReceiptLog

FORMAT = 5
"""Version of the stored format: layout, script, commits and events together.

A program reads the one that it writes. Nobody had state to migrate when format 5 came (the log
holds the commits, and the store is a view of it): an older one is refused. Its keys have other
names, so `engine.store.former` looks for them.
"""

MAX_VALUE_BYTES = 512 << 20
"""What one value of Redis holds: no model has a factor, or thetas, that are longer."""

SECRET_BYTES = 32
"""Of the secret that salts commitments."""

Status = Literal["ACTIVE", "EMPTY", "INTERCEPT_PENALISED", "UNREGISTERED"]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ErrorRecord(_Stored):
    """The ``error`` object of versions and receipts (contract 2.2).

    Of the kind ``unknown``, value, bound and relative are None.
    """

    value: Finite | None
    kind: Literal["exact", "estimate", "certificate", "unknown"]
    bound: Finite | None
    certified_version: int | None
    budget: Finite
    relative: Finite | None

    @property
    def over(self) -> bool:
        """Whether it counts as over its budget; what is not known does."""
        return over_budget(self.relative, self.budget)


class CertificateRecord(_Stored):
    """The ``certificate`` object of versions and receipts: what was promised, and what is spent."""

    epsilon: Finite
    delta: Finite
    sigma: Finite
    spent: Finite
    budget: Finite


class PendingJob(_Stored):
    """The one refresh job that a model waits for."""

    job_id: str
    reason: str
    ordered_at: datetime


class Failures(_Stored):
    """Refreshes that a model waited for and that failed, since the last one that did not."""

    times: Count
    newest_at: datetime


class LimitsRecord(_Stored):
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


class ModelConfig(_Stored):
    """What registration fixes."""

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


def outputs(target_names: Sequence[str], class_names: Sequence[str]) -> int:
    """Return the number of columns of theta: two classes are told apart by one."""
    return len(class_names) if len(class_names) > 2 else len(target_names)


class Meta(_Stored):
    """The part of the head that each commit replaces, as JSON; ``config`` apart from it.

    Everything here is said by the commit. What only the store can know (whether V and Q are there,
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
        It does not parse, or describes what one value of the store cannot hold.
    """
    what = f"model {config.model_id!r}, its stored head"
    found = parse_json_value(data, what)
    if not isinstance(found, dict):
        raise CorruptState(f"{what}: is no object; run `lethe check`")
    meta = checked(Meta, {**found, "config": config}, what)
    widest = config.d * max(config.m, config.blocks * config.d)
    if not (config.d and config.m) or 8 * widest > MAX_VALUE_BYTES:
        raise CorruptState(
            f"{what}: {config.d} coefficients of {config.m} outputs are no model; run `lethe check`"
        )
    return meta


def secret_of(stored: bytes | None, what: str) -> bytes | None:
    """Return the secret that salts commitments; models from before there were any have none.

    Raises
    ------
    CorruptState
        It has another length.
    """
    if stored is not None and len(stored) != SECRET_BYTES:
        raise CorruptState(f"{what}: its secret has not {SECRET_BYTES} bytes; run `lethe check`")
    return stored


def check_format(stored: bytes | None, model_id: str) -> None:
    """Refuse a format that is not this program's.

    Raises
    ------
    FormatTooNew, FormatTooOld
        The state was written by a newer or by an older Lethe.
    CorruptState
        It names no format.
    """
    if stored is not None and not (stored.isdigit() and len(stored) <= MAX_DIGITS):
        raise CorruptState(f"model {model_id!r}: {stored[:20]!r} is no format of a stored state")
    if stored is None or int(stored) == FORMAT:
        return
    what = f"model {model_id!r} is stored in format {int(stored)}, this program knows {FORMAT}"
    if int(stored) > FORMAT:
        raise FormatTooNew(f"{what}; upgrade it")
    raise FormatTooOld(f"{what}; register the model again with `lethe register --replace`")
