"""A model's state as values: the store loads it, a commit replaces it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, field_validator

from lethe.engine.deletion.stream import Generation, Stream
from lethe.engine.error.estimate import Sentinels
from lethe.engine.errors import CorruptState
from lethe.engine.store.head import Meta
from lethe.engine.store.keys import GenerationKeys, ModelKeys
from lethe.engine.store.reading import Texts, integer, parse_model, parse_text

STAGED = "staged"
"""Id of arrays that are staged and not live yet: the commit that makes them live gives them one."""


@dataclass(frozen=True, slots=True)
class Head:
    """The newest commit of a model: its number, dense from 0, its digest, and where it lies.

    ``offset`` in its commits partition, -1 if it is not known; it does not identify the commit.
    """

    commit: int = -1
    digest: str = ""
    offset: int = field(default=-1, compare=False)


class DeferredRequest(BaseModel):
    """A request that waits for a rebuild: what its final receipt will need."""

    model_config = ConfigDict(frozen=True, extra="ignore")

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
    arrays
        Id of the stored V and Q, which every write renews. Empty if they are missing: rows were
        lost with the store's last writes, and every request waits for a rebuild.
    rows
        Name of the generation whose row records exist: the live one, unless its result was lost.
    deletions_from
        Number of deletions logged before the first one in the stored list.
    newest
        The newest version event, as it was published.
    seal
        Name of the key that its newest commit is sealed with.
    secret
        Salts the commitments of receipts (`consumers.contract.commitment`).
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
    arrays: str = ""
    rows: str = ""
    deletions_from: int = 0
    newest: bytes = field(default=b"", repr=False)
    seal: str = ""
    secret: bytes | None = field(default=None, repr=False)

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
        return not self.arrays

    @property
    def generation_keys(self) -> GenerationKeys:
        """Keys of the generation whose row records exist."""
        return self.keys.generation(self.rows)

    @property
    def deferred_rows(self) -> frozenset[str]:
        """Rows that wait for a rebuild without them."""
        return frozenset(row for request in self.deferred.values() for row in request.row_ids)
