"""A model's state as values: its head and what the newest commit has made of the rest.

The store loads a state, and a commit replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import Field, field_validator

from lethe.engine.errors import CorruptState, check_format
from lethe.engine.store.layout.columns import FittedColumn, PublishedColumns
from lethe.engine.store.layout.keys import FORMAT, GenerationKeys, ModelKeys
from lethe.engine.store.layout.reading import (
    MAX_DIGITS,
    Texts,
    integer,
    parse_json_value,
    parse_model,
    parse_text,
)
from lethe.engine.store.layout.records import SECRET_BYTES, Stored

if TYPE_CHECKING:  # whoever only reads a head, or a request that waits, needs no SciPy
    from lethe.engine.deletion.generation import Generation, Stream
    from lethe.engine.error.sentinels import Sentinels
    from lethe.engine.fit.objective import Array
    from lethe.engine.preprocess.live import LivePipeline
    from lethe.engine.store.layout.meta import Meta

STAGED = "staged"
"""Id of arrays that are staged and not live yet: the commit that makes them live gives them one."""


def check_stored_format(stored: bytes | None, model_id: str) -> None:
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
    if stored is not None:
        check_format(int(stored), FORMAT, f"model {model_id!r}")


def secret_of(stored: bytes | None, what: str) -> bytes | None:
    """Return the secret that salts commitments; None if the model has none.

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
    namespace: str | None = Field(default=None, exclude_if=lambda name: name is None)
    """That of the people whom it is about, if the request gives one."""

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
    fitted
        Its columns.
    """

    theta: Array
    fitted: PublishedColumns

    @property
    def columns(self) -> tuple[FittedColumn, ...]:
        """Its columns as objects, made when they are first asked for."""
        return self.fitted.columns


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
        Next offset to process, by partition of ``lethe.deletions`` and ``lethe.row-changes``.
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
