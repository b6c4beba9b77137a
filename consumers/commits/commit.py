"""A commit as a value: everything that one decision about a model changes.

The deletion worker and `lethe register` create commits. The log keeps them
(`consumers.commits.record`), the store applies them (`consumers.commits.apply`), and everything
that others read is made from them (`consumers.commits.publish`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NamedTuple

from pydantic import Field

from lethe.consumers.contract.events import RefreshRequested, Version
from lethe.consumers.contract.receipt import Receipt
from lethe.engine.store.apply import Place
from lethe.engine.store.layout.disclosed import RowFate
from lethe.engine.store.layout.reading import Texts
from lethe.engine.store.layout.state import DeferredRequest, Head

if TYPE_CHECKING:
    from lethe.engine.store.layout.meta import Meta

Whole = Annotated[int, Field(strict=True, ge=0, lt=1 << 53)]
"""A number of a commit, which is read from the log as it was written."""


class CommitKind(StrEnum):
    """What was decided."""

    REGISTRATION = "registration"
    """A model begins, or continues from another file."""
    OPENING = "opening"
    """Sets the offsets from which requests belong to the model."""
    REQUESTS = "requests"
    """A batch of requests."""
    REFRESH = "refresh"
    """A refresh's result is swapped in, or dropped."""
    UNREGISTRATION = "unregistration"
    """The model ends; its numbers and its ledger remain."""
    CHECKPOINT = "checkpoint"
    """A log that lost commits continues from what the store holds (`lethe recover`)."""


@dataclass(frozen=True, slots=True)
class KeptReceipt:
    """A receipt of this commit, as it is kept in the request index.

    Attributes
    ----------
    receipt, value
        The receipt, and its published bytes.
    body
        Digest of the request's content (`BODY_BYTES`): the same request id with another digest is
        a conflict.
    place
        Place of a final receipt in the receipt log; -1 for one that is pending.
    """

    receipt: Receipt
    value: bytes
    body: bytes
    place: int = -1


@dataclass(frozen=True, slots=True)
class Staged:
    """A generation, and perhaps a data set, that a commit makes live.

    Attributes
    ----------
    generation, dataset
        Names of what was staged; ``dataset`` is None if the registered rows stay.
    mark
        Written once everything was staged (`engine.store.offline.staging.mark_complete`).
    caught_up
        Its rows that were deleted while it was made, and that the swap leaves out.
    changed
        Rows that were inserted or corrected while it was made, and that the swap brings up to date.
    former
        Names of the generations and data sets that are discarded: ``gen:<name>``, ``data:<name>``.
    """

    generation: Annotated[str, Field(max_length=200)]
    dataset: Annotated[str, Field(max_length=200)] | None
    mark: Annotated[str, Field(max_length=64)]
    caught_up: Texts = ()
    former: Texts = ()
    changed: Texts = ()


class RowChange(NamedTuple):
    """A change request that a commit applies: which rows, and where the log has their values.

    Attributes
    ----------
    inserts
        Whether its rows are inserted; else they are corrected.
    row_ids
        Its rows.
    partition, offset
        Where it lies in ``lethe.row-changes``.
    digest
        SHA-256 of its record's value: the values themselves are in no commit.
    """

    inserts: Annotated[bool, Field(strict=True)]
    row_ids: Texts
    partition: Annotated[str, Field(max_length=300)]
    offset: Whole
    digest: Annotated[str, Field(max_length=64)]


class RowDisclosed(NamedTuple):
    """What a commit's version discloses of a row: `engine.store.layout.disclosed.Disclosure`."""

    row_id: Annotated[str, Field(max_length=512)]
    fate: RowFate
    distance: float | None
    length: float | None


class Tombstones(NamedTuple):
    """Rows that a request deleted before they arrived: until ``until``, no insert brings them.

    Attributes
    ----------
    until
        Seconds since 1970.
    marks
        `consumers.contract.commitment.tombstone_of` of each.
    """

    until: Whole
    marks: Texts


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a model.

    Attributes
    ----------
    model_id, number, prev, kind
        Its model; its number, dense from 0; the digest of the commit before it, empty for the
        first; what was decided.
    meta
        The head's meta afterwards; its configuration is sealed if ``configures``.
    newest
        Number of the newest version afterwards.
    offsets
        Next offsets that it sets, by partition of ``lethe.deletions`` and ``lethe.row-changes``.
    answers, repeats
        Receipts that are kept, and bytes of receipts that are only published (again).
    deleted, erased
        Row ids that enter the ledger; those of them whose records are erased.
    left_out
        Row ids that a --replace leaves out.
    changes
        Requests that it applies whose rows are inserted or corrected.
    tombstones
        Rows that it should have deleted but that the model does not have; None if there are none.
    disclosed, undisclosed
        What its version discloses of rows, if the model keeps that; ids of the rows of erased
        people, for which no disclosure is kept.
    deferred, undeferred
        Requests that start to wait for a rebuild, by id; ids of those that stop waiting.
    thetas
        Raw float64 of the thetas that the step sets: theta_exact, theta_r, anchor, published; with
        preprocessing also ``gradient`` (of `Stream`), and ``parameters``: what is published.
    columns
        The published columns of a model with preprocessing, as JSON; set with a version.
    clears_Q
        Whether the basis of the deleted span starts afresh.
    version, version_value
        The version that it makes, and its published bytes.
    job
        The refresh that it schedules.
    staged
        What it makes live.
    empties
        Whether no row is left: the generation has no rows, and nothing of it is stored.
    opening
        By partition, the offset from which requests belong to the model.
    skips
        Whether its number may skip some, because the log has lost the commits before it.
    secret
        Salts the commitments in receipts; set by a registration.
    base, base_version
        Of a checkpoint: the store's commit that it continues from, and the newest version event.
    """

    model_id: str
    number: int
    prev: str
    kind: CommitKind
    meta: Meta
    newest: int
    configures: bool = False
    offsets: Mapping[str, int] = field(default_factory=dict)
    answers: tuple[KeptReceipt, ...] = ()
    repeats: tuple[bytes, ...] = ()
    deleted: tuple[str, ...] = ()
    erased: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    changes: tuple[RowChange, ...] = ()
    tombstones: Tombstones | None = None
    disclosed: tuple[RowDisclosed, ...] = ()
    undisclosed: tuple[str, ...] = ()
    deferred: Mapping[str, DeferredRequest] = field(default_factory=dict)
    undeferred: tuple[str, ...] = ()
    thetas: Mapping[str, bytes] = field(default_factory=dict)
    columns: bytes = b""
    clears_Q: bool = False
    version: Version | None = None
    version_value: bytes = b""
    job: RefreshRequested | None = None
    staged: Staged | None = None
    empties: bool = False
    opening: Mapping[str, int] | None = None
    skips: bool = False
    secret: bytes | None = field(default=None, repr=False)
    base: Head | None = None
    base_version: bytes = b""

    @property
    def ordered_at(self) -> datetime:
        """The time at which it schedules its refresh."""
        pending = self.meta.pending_job
        return self.meta.refreshed_at if pending is None else pending.ordered_at

    @property
    def inserted(self) -> tuple[str, ...]:
        """Ids of the rows that it inserts."""
        return tuple(row for change in self.changes if change.inserts for row in change.row_ids)

    @property
    def corrected(self) -> tuple[str, ...]:
        """Ids of the rows that it corrects."""
        return tuple(row for change in self.changes if not change.inserts for row in change.row_ids)

    @property
    def leaves_no_row(self) -> bool:
        """Whether it ends the live generation without another one in its place."""
        return self.empties or self.kind is CommitKind.UNREGISTRATION

    @property
    def tip(self) -> tuple[str, bytes] | None:
        """Digest and bytes of the newest version afterwards; None if that does not change."""
        if self.version is not None:
            return self.version.digest, self.version_value
        if self.base_version:
            return Version.read(self.base_version).digest, self.base_version
        return None

    @property
    def jumps(self) -> bool:
        """Whether it applies to any head that is not beyond it: it is complete in itself."""
        return self.kind in (CommitKind.REGISTRATION, CommitKind.CHECKPOINT)


@dataclass(frozen=True, slots=True)
class LoggedCommit:
    """A commit that counts: as appended, with its digest, its sealing key and its place."""

    commit: Commit
    digest: str
    key: str
    place: Place

    @property
    def head(self) -> Head:
        """The model's newest commit once this one is applied."""
        return Head(self.commit.number, self.digest)
