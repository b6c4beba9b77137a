"""The part of a model's state that each commit replaces."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field, StringConstraints

from lethe.engine.disclosure import ResidualScale
from lethe.engine.error.certified import Ledger
from lethe.engine.errors import CorruptState
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.reading import Count, Counts, checked, parse_json_value
from lethe.engine.store.layout.records import ErrorRecord, Hash, ReceiptLog, Status, Stored

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


class RowFiles(Stored):
    """The rows of a model that are in files, in place of the store (`engine.rowstore`).

    Attributes
    ----------
    folder
        Name of the registration that wrote them: another registration's are elsewhere.
    root
        Digest of their manifest.
    rows
        How many there are, the deleted ones that are not erased yet among them.
    version
        None of them was deleted by this version or an earlier one; those that later ones delete are
        erased by the next refresh.
    in_store
        How many live rows the store has: those that were inserted or corrected since the files were
        written. A row of the store stands in place of the one of the files.
    """

    folder: Annotated[str, StringConstraints(pattern="^[0-9a-f]{32}$")]
    root: Hash
    rows: Count
    version: Annotated[int, Field(ge=-1, lt=1 << 53)]
    in_store: Count = 0

    def with_in_store(self, more: int) -> RowFiles:
        """Return what meta has once the store has so many more rows, or fewer."""
        return self.model_copy(update={"in_store": self.in_store + more})


class Meta(Stored):
    """The part of the head that each commit replaces, as JSON; ``config`` apart from it.

    Everything here comes from the commit. What only the store can know (whether V and Q exist,
    where row records lie) is in `ModelState`.
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
    added: float = 0.0
    dual_error: float = 0.0
    rows_inserted: Count = 0
    rows_corrected: Count = 0
    first_deletion_at: datetime | None = None
    error: ErrorRecord
    certified_bound: float | None = None
    ledger: Ledger | None = None
    noised: Count = 0
    """Points published with noise on the output since the registration."""
    pending_job: PendingJob | None = None
    failures: Failures | None = None
    refreshed_at: datetime
    receipt_log: ReceiptLog | None = None
    disclosure: ResidualScale | None = None
    """What Cook's distance is measured in, if disclosures are kept."""
    row_files: RowFiles | None = Field(default=None, exclude_if=lambda files: files is None)
    """The rows in files; None if the store has them."""

    @property
    def rows_changed(self) -> int:
        """How many rows were inserted or corrected since the model was registered."""
        return self.rows_inserted + self.rows_corrected

    @property
    def rows_in_store(self) -> int:
        """How many live rows have their records in the store."""
        return self.rows_live if self.row_files is None else self.row_files.in_store


def with_meta(meta: Meta, **changes: object) -> Meta:
    """Return meta with changes, checked."""
    return meta.model_validate(vars(meta) | changes)


def meta_json(meta: Meta) -> bytes:
    """Return meta as the head and commits hold it: JSON without the configuration."""
    return meta.model_dump_json(exclude={"config"}).encode()


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
    hessians, size = config.hessian
    widest = max(config.d * config.m, hessians * size**2)
    if not (config.d and config.m) or 8 * widest > MAX_VALUE_BYTES:
        raise CorruptState(
            f"{what}: a model cannot have {config.d} coefficients of {config.m} outputs; run "
            "`lethe check`"
        )
    return meta
