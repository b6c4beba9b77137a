"""What may be decided of a request: step 4 of the commit (`consumers.deletions.decide`)."""

from __future__ import annotations

from dataclasses import dataclass

from lethe.consumers.commits.commit import RowChange
from lethe.consumers.contract.events import RowsChanged, Source
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.versions.receipts import Asked
from lethe.engine.store.layout.state import DeferredRequest


@dataclass(frozen=True, slots=True)
class Rejected:
    """A final refusal, with code and detail of its receipt.

    ``unknown`` are rows to be deleted that are not there.
    """

    asked: Asked
    code: str
    detail: str
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A request that already has a receipt, which is sent again, byte for byte."""

    receipt: Receipt


@dataclass(frozen=True, slots=True)
class DuplicateInBatch:
    """The same request twice in one batch: the receipt of the first answers both."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Conflicting:
    """A request id that was used for another body; the first receipt stands."""

    asked: Asked
    first: Source


@dataclass(frozen=True, slots=True)
class AcceptedDeletion:
    """An accepted request to delete: rows to delete now (perhaps none), and rows deleted before.

    ``shares`` are earlier requests of the same batch that claimed rows which it names as well.
    ``unknown`` are named rows that the model does not have (or, while rows of the model are lost,
    perhaps never had): no insert may bring them. ``subject_id`` is the subject whose rows it names,
    if it is not known which rows these are. ``namespace`` is the namespace of the people that it is
    about, if it gives one.
    """

    asked: Asked
    rows: tuple[str, ...]
    retired: tuple[str, ...] = ()
    shares: frozenset[str] = frozenset()
    subject_id: str | None = None
    unknown: tuple[str, ...] = ()
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class AcceptedChange:
    """An accepted request to insert or correct rows, and what its commit keeps of it.

    It applies whole or is rejected: nothing of it waits, because no commit keeps its values and
    the log keeps them for T only. So where a deletion would wait for a rebuild, it is rejected with
    the reason, and can be sent again under another id.
    """

    asked: Asked
    request: RowsChanged
    kept: RowChange


@dataclass(frozen=True, slots=True)
class Deferred:
    """A request to delete that waits for a rebuild without its rows."""

    accepted: AcceptedDeletion
    code: str
    detail: str

    def stored(self) -> DeferredRequest:
        """Return what the state keeps of it until its final receipt."""
        accepted, asked = self.accepted, self.accepted.asked
        return DeferredRequest(
            request_id=asked.request_id,
            body=asked.body.hex(),
            row_ids=accepted.rows,
            retired=accepted.retired,
            rows_unknown=asked.rows_unknown,
            code=self.code,
            source=asked.source.model_dump(),
            rows_commitment=asked.commitment,
            subject_id=accepted.subject_id,
            namespace=accepted.namespace,
        )


Decision = (
    Rejected
    | Duplicate
    | DuplicateInBatch
    | Conflicting
    | AcceptedDeletion
    | AcceptedChange
    | Deferred
)


class GuardRefusal(Exception):
    """A guard refuses a step: a deletion is deferred to a rebuild, a change is rejected."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
