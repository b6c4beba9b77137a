"""A model's state as values: what the store loads and what a commit replaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, field_validator

from engine.error import Sentinels
from engine.errors import CorruptState
from engine.store.commit import Expected
from engine.store.head import Meta
from engine.store.keys import GenerationKeys, ModelKeys
from engine.store.reading import Texts, integer, record, words
from engine.stream import Generation, Stream


class Deferred(BaseModel):
    """A request that waits for a rebuild: what its final receipt will need.

    ``answer`` is that receipt, where it was published before the store lost the commit that made
    it: it stands, and the rebuild must come to it.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    request_id: str
    body: str
    row_ids: Texts
    retired: Texts = ()
    rows_unknown: int
    code: str
    source: dict[str, str | int]
    rows_commitment: str | None = None
    answer: str | None = None

    @field_validator("source")
    @classmethod
    def _names_a_record(cls, source: dict[str, str | int]) -> dict[str, str | int]:
        kinds = {name: type(source.get(name)) for name in ("topic", "partition", "offset")}
        if kinds != {"topic": str, "partition": int, "offset": int}:
            raise ValueError("names no record of a topic")
        return source


def parse_deferred(stored: bytes, request_id: str, model_id: str) -> Deferred:
    """Return a stored request that waits.

    Raises
    ------
    CorruptState
        It does not parse, or is another request's.
    """
    what = f"model {model_id!r}, deferred request {request_id!r}"
    found = record(Deferred, stored, what)
    if found.request_id != request_id:
        raise CorruptState(f"{what}: is request {found.request_id!r}; run `lethe check`")
    return found


def parse_offsets(stored: Mapping[bytes, bytes], what: str) -> dict[str, int]:
    """Return the next offset to decide, by partition.

    Raises
    ------
    CorruptState
        One does not parse.
    """
    return {
        words(partition, f"{what}, a partition"): integer(offset, f"{what}, an offset")
        for partition, offset in stored.items()
    }


@dataclass(frozen=True, slots=True)
class Unregistered:
    """The small record of a model that is not registered, or of a partition's unreadable part.

    ``receipts`` says how many are kept.
    """

    keys: ModelKeys
    commit_seq: int = 0
    offsets: Mapping[str, int] = field(default_factory=dict)
    receipts: int = 0

    def expected(self, partition: str | None) -> Expected:
        """Return what a commit that decides ``partition`` must find."""
        offset = None if partition is None else self.offsets.get(partition)
        return Expected(self.commit_seq, -1, "", offset)


@dataclass(frozen=True, slots=True)
class ModelState:
    """A registered model, as loaded or as just committed.

    ``secret`` salts the commitments of receipts (`consumers.commitment`); models that were
    registered before there were any have none.
    """

    keys: ModelKeys
    commit_seq: int
    version: int
    digest: str
    meta: Meta
    generation: Generation
    stream: Stream
    sentinels: Sentinels
    offsets: Mapping[str, int]
    deferred: Mapping[str, Deferred]
    secret: bytes | None = field(default=None, repr=False)

    @property
    def model_id(self) -> str:
        """The model's id."""
        return self.meta.config.model_id

    @property
    def generation_keys(self) -> GenerationKeys:
        """Keys of the live generation."""
        return self.keys.generation(self.meta.generation_key)

    @property
    def answered(self) -> frozenset[str]:
        """Requests that wait and have their final receipt all the same."""
        return frozenset(n for n, request in self.deferred.items() if request.answer is not None)

    @property
    def deferred_rows(self) -> frozenset[str]:
        """Rows that wait for a rebuild without them."""
        return frozenset(row for request in self.deferred.values() for row in request.row_ids)

    def expected(self, partition: str | None) -> Expected:
        """Return what a commit that decides ``partition`` (None: nothing) must find."""
        offset = None if partition is None else self.offsets.get(partition)
        deletions, log = self.meta.deletions_logged, self.meta.receipt_log
        receipts = 0 if log is None else log.size
        return Expected(self.commit_seq, self.version, self.digest, offset, deletions, receipts)


State = ModelState | Unregistered
