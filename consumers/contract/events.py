"""The events of docs/events.md as pydantic models. Readers ignore unknown fields."""

from __future__ import annotations

import operator
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StrictBool,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from lethe.engine.ids import MAX_ID_LENGTH, text_of
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.columns import FittedColumn
from lethe.engine.store.layout.reading import Texts, parse_json
from lethe.engine.store.layout.records import (
    Certificate,
    ErrorRecord,
    Finite,
    LogHead,
    Status,
    outputs,
)

DELETION_REQUESTED = "lethe.deletion.requested.v1"
ROWS_CHANGED = "lethe.rows.changed.v1"
REFRESH_COMPLETED = "lethe.refresh.completed.v1"
DELETION_RECEIPT = "lethe.deletion.receipt.v1"
MODEL_VERSION = "lethe.model.version.v1"
MODEL_PARAMETERS = "lethe.model.parameters.v1"
REFRESH_REQUESTED = "lethe.refresh.requested.v1"

MAX_ROWS = 10_000
MAX_REQUEST_BYTES = 1 << 20


def _encodable(text: str) -> str:
    text.encode("utf-8")  # a lone surrogate has no bytes: UnicodeEncodeError is a ValueError
    return text


def _in_utc(moment: datetime) -> datetime:
    """Return a time, unless it is outside the calendar in UTC and could not be written again."""
    try:
        moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("lies outside the years 1 to 9999 in UTC") from None
    return moment


@lru_cache(maxsize=16)  # all events of a batch have the same time
def rfc3339(moment: datetime) -> str:
    """Return a time as RFC 3339 in UTC with milliseconds."""
    in_utc = moment.astimezone(UTC)
    return in_utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")


Id = Annotated[
    str,
    StringConstraints(strict=True, min_length=1, max_length=MAX_ID_LENGTH),
    AfterValidator(_encodable),
]
STEPS = (".", "..")
"""Ids that no path of a URL can have: clients take them for steps between folders."""
Namespace = Annotated[
    str, StringConstraints(strict=True, max_length=MAX_ID_LENGTH), AfterValidator(_encodable)
]
"""Namespace of subjects; the empty text is that of models that were registered without one."""
RowId = Annotated[
    Id,
    BeforeValidator(text_of),
    WithJsonSchema({"type": ["string", "integer"], "minLength": 1, "maxLength": MAX_ID_LENGTH}),
]
"""Id of a row or a subject: text, or an integer, which stands for its digits."""
_Rows = Annotated[
    tuple[RowId, ...],
    # More are another refusal, which the worker makes before it looks at them.
    Field(min_length=1, fail_fast=True, json_schema_extra={"maxItems": MAX_ROWS}),
]
Numbers = Annotated[tuple[Finite, ...], Field(fail_fast=True)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
"""A finite JSON number: text that looks like one, and booleans, are refused."""
Time = Annotated[
    datetime,
    AfterValidator(_in_utc),
    PlainSerializer(rfc3339, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


class Event(BaseModel):
    """Base of all events: immutable, tolerant of new fields."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    @classmethod
    def read(cls, value: bytes) -> Self:
        """Return the event in a JSON value.

        Does not use ``model_validate_json``: its errors hold a copy of the input for each field.

        Raises
        ------
        ValueError
            The value is not an event of this kind.
        """
        try:
            return cls.model_validate(parse_json(value, ours=True))
        except RecursionError:
            raise ValueError("it is nested too deep") from None

    def value(self) -> bytes:
        """Return the JSON value, always the same bytes for the same event."""
        return self.model_dump_json().encode()


absent = partial(operator.is_, None)
"""Whether a member is None, and so left out."""


class SparseEvent(Event):
    """Base of events with members that are omitted, not null, where they do not apply.

    Events written before such a member existed keep their bytes and their digests.
    """

    certificate: Certificate | None = Field(default=None, exclude_if=absent)
    """For certified models only (docs/certified.md)."""


class DeletionRequest(Event):
    """A request to delete rows, named individually or by their subject.

    ``strict``: it is rejected as a whole if the model never had one of the rows. ``namespace``: it
    is about a model whose subjects have this namespace (the empty text: registered without one); in
    any other it names no row. A model can be replaced while a request is on its way to it.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "required": ["model_id"],  # request_id is the CloudEvent's, if it is not given
            "oneOf": [
                {"required": ["row_ids"], "properties": {"row_ids": {"not": {"type": "null"}}}},
                {
                    "required": ["subject_id"],
                    "properties": {"subject_id": {"not": {"type": "null"}}},
                },
            ],
        }
    )

    request_id: Id
    model_id: Id
    row_ids: _Rows | None = None
    subject_id: RowId | None = None
    strict: StrictBool = Field(default=False, exclude_if=operator.not_)
    namespace: Namespace | None = Field(default=None, exclude_if=absent)
    requested_at: Any = None
    reason: Any = None

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.row_ids is None) == (self.subject_id is None):
            raise ValueError("give row_ids or subject_id, one of the two")
        return self


Text = Annotated[str, StringConstraints(strict=True, max_length=MAX_ID_LENGTH)]
RowValue: TypeAlias = Number | StrictBool | Text | None
"""A value of a row as it is given: only columns of a model with preprocessing take all of them."""


class ChangedRow(Event):
    """A row to insert, or a live row as it is from now on.

    ``values``: a number for each feature, in the model's order or by the features' names. With
    preprocessing, a value for each column: a number, a date as text, a category, or null.
    ``target``: a number, or one for each target; of a logistic model a class, by its name if it has
    one. A row without ``weight`` has the weight 1 if it
    is inserted, and keeps its own if it is corrected; the same holds of its ``subject``.
    """

    id: RowId
    values: Annotated[tuple[RowValue, ...], Field(fail_fast=True)] | dict[str, RowValue]
    target: Number | Id | Annotated[tuple[Number, ...], Field(fail_fast=True, min_length=1)]
    weight: Annotated[Number, Field(gt=0)] | None = None
    subject: RowId | None = None


class RowsChanged(Event):
    """A request to insert rows, or to correct live rows: all of them, or none."""

    model_config = ConfigDict(json_schema_extra={"required": ["model_id", "op", "rows"]})

    request_id: Id
    model_id: Id
    op: Literal["insert", "correct"]
    rows: Annotated[
        tuple[ChangedRow, ...],
        Field(min_length=1, fail_fast=True, json_schema_extra={"maxItems": MAX_ROWS}),
    ]

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if len(set(self.row_ids)) != len(self.rows):
            raise ValueError("an id is given twice")
        return self

    @property
    def row_ids(self) -> tuple[str, ...]:
        """The ids of its rows."""
        return tuple(row.id for row in self.rows)

    @property
    def subject_id(self) -> None:
        """None: it names its rows, never a subject's."""
        return


class RefreshCompleted(Event):
    """A refresh job has stored its result, which the deletion worker swaps in."""

    job_id: Id
    model_id: Id


class RefreshRequested(Event):
    """A job for the refresh worker. With ``size`` None, the policy chooses."""

    job_id: Id
    model_id: Id
    generation: int
    version: int
    reason: str
    size: RefreshSize | None = None


class Source(Event):
    """Where a request was read in the log."""

    topic: str
    partition: int
    offset: int


class SourceRange(Event):
    """Where the requests of a version were read in the log."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int


class RefreshInfo(Event):
    """What a refresh did, in the version that it created."""

    job_id: str
    size: RefreshSize
    reason: str
    seconds: Finite


class Version(SparseEvent):
    """One version of a model: identity, link to the previous version, error; no parameters.

    ``commit`` is the number of the commit that created it, ``commit_prev`` the digest of the commit
    before that (docs/commit.md). ``receipt_log`` is the head of the log of final receipts, with
    those of this version's own commit (docs/evidence.md). ``completed``: a projection would have
    been over the error budget, and the exact answer of the quadratic model is published instead.
    ``preprocess``: ``live``, if preprocessing is part of the model and forgets rows as the model
    does; ``frozen``, if a transformer made the features that stays as it is.
    """

    model_id: str
    generation: int
    version: int
    prev_digest: str
    digest: str
    parameters_digest: str
    method: str
    kind: Literal["linear", "logistic", "poisson", "softmax"]
    status: Status
    rows_live: int
    rows_deleted: int
    error: ErrorRecord
    request_ids: Texts = ()
    refresh: RefreshInfo | None = None
    source: SourceRange | None = None
    created_at: Time
    commit: int
    commit_prev: str
    receipt_log: LogHead | None = Field(default=None, exclude_if=absent)
    completed: bool = Field(default=False, exclude_if=operator.not_)
    preprocess: Literal["live", "frozen"] | None = Field(default=None, exclude_if=absent)


IDENTITY = ("digest", "prev_digest", "parameters_digest", "generation", "method", "kind", "status")
"""What parameters and their version have in common."""


class Parameters(Event):
    """The newest parameters of a model, or where to find them.

    ``classes`` is written only if the model has named classes, and ``columns`` only if
    preprocessing is part of it: theta then belongs to the features that these make of a row.
    """

    model_id: str
    generation: int
    version: int
    prev_digest: str
    digest: str
    parameters_digest: str
    method: str
    kind: Literal["linear", "logistic", "poisson", "softmax"]
    status: Status
    created_at: Time
    feature_names: Texts
    target_names: Texts
    fit_intercept: bool
    intercept: Finite | Numbers | None = None
    theta: Numbers | Annotated[tuple[Numbers, ...], Field(fail_fast=True)] | None = None
    uri: str | None = None
    classes: Texts = Field(default=(), exclude_if=operator.not_)
    columns: Annotated[tuple[FittedColumn, ...], Field(fail_fast=True)] = Field(
        default=(), exclude_if=operator.not_
    )

    @property
    def outputs(self) -> int:
        """Number of columns of theta: one per target, or per class if there are more than two."""
        return outputs(self.target_names, self.classes)
