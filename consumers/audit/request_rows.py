"""The rows of a request: which they are, what opens their commitment, and what is left of them.

No content of a deleted row is read; the only question is whether a record exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lethe.consumers.audit.request_report import RequestReport
from lethe.consumers.commits.packed import unpack
from lethe.consumers.contract.commitment import commitment_of, salt_of
from lethe.consumers.deletions.validate import Valid
from lethe.engine.store.connection import reachable, text
from lethe.engine.store.keys import shard_of
from lethe.engine.store.pipeline import CHUNK
from lethe.engine.store.state import ModelState
from lethe.engine.store.store import ModelStore

_SCAN = 1000


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows that a request named, as far as they are still known.

    ``exact`` means these rows and no others: the request itself names them, or its commitment opens
    to them. Otherwise they are all the rows that were deleted in the same version.
    """

    ids: frozenset[str]
    known_from: str
    exact: bool


@dataclass(frozen=True, slots=True)
class Opening:
    """What opens a receipt's commitment; ``opens`` None: the rows are not known."""

    commitment: str
    salt: bytes
    opens: bool | None


@dataclass(frozen=True, slots=True)
class Erasure:
    """What is left of deleted rows: how many records, over how many generations."""

    rows: int
    generations: int
    records: int

    @property
    def done(self) -> bool:
        """Whether nothing is left."""
        return self.records == 0


def opening_of(report: RequestReport, rows: Rows | None) -> Opening | None:
    """Return the salt of a request, and whether its commitment opens to the rows."""
    commitment, salt = report.last.receipt.rows_commitment, _salt(report)
    if commitment is None or salt is None:
        return None
    known = rows is not None and rows.exact
    opens = commitment_of(salt, rows.ids) == commitment if rows is not None and known else None
    return Opening(commitment, salt, opens)


def _salt(report: RequestReport) -> bytes | None:
    if report.state is None or report.state.secret is None:
        return None
    return salt_of(report.state.secret, report.request_id)


def rows_of(store: ModelStore, report: RequestReport, named: Sequence[str] = ()) -> Rows | None:
    """Return the rows of a request; None if they are not known any more.

    ``named`` are rows that the caller asks about: if nothing better is known, they may be what
    opens the commitment.
    """
    state = report.state
    if state is None:
        return None
    item = None if report.request is None else report.request.item
    if isinstance(item, Valid):
        if item.request.subject_id is None:
            return Rows(frozenset(item.request.row_ids or ()), "the request", True)
        subject = item.request.subject_id
        [members] = store.subjects([(state, [subject])])
        return _checked(report, members.get(subject, ()), "the subject")
    if report.request_id in state.deferred:
        waiting = state.deferred[report.request_id]
        return _checked(report, (*waiting.row_ids, *waiting.retired), "the deferred request")
    together, known_from = _deleted_together(store, report, state)
    for ids in (_own(store, report, together), together, named):
        rows = _checked(report, ids, known_from)
        if rows.exact:
            return rows
    return Rows(frozenset(together), known_from, False) if together else None


def _deleted_together(
    store: ModelStore, report: RequestReport, state: ModelState
) -> tuple[Sequence[str], str]:
    """Return the rows that were deleted in a request's version, in order, and the source."""
    if not report.last.receipt.rows_deleted:
        return (), "the ledger"
    decided = report.decided
    if decided is not None and decided.commit is not None:
        return decided.commit.deleted, "the commit"
    return _deleted_in(store, state, report.last.receipt.version), "the ledger"


def _own(store: ModelStore, report: RequestReport, together: Sequence[str]) -> Sequence[str]:
    """Return a request's share of its version's rows: each request's rows are adjacent."""
    before = 0
    for request in () if report.version is None else report.version.event.request_ids:
        if request == report.request_id:
            return together[before : before + report.last.receipt.rows_deleted]
        stored = store.receipt(report.model_id, request)
        if stored is None:
            return ()
        before += unpack(stored, report.model_id, request).receipt.rows_deleted
    return ()


def _checked(report: RequestReport, ids: Iterable[str], known_from: str) -> Rows:
    """Return rows, exact if the commitment opens to them."""
    rows, salt = frozenset(ids), _salt(report)
    commitment = report.last.receipt.rows_commitment
    exact = salt is not None and bool(rows) and commitment_of(salt, rows) == commitment
    return Rows(rows, known_from, exact)


def _deleted_in(store: ModelStore, state: ModelState, version: int | None) -> list[str]:
    """Return the rows that the ledger has for a version. Cost O(deleted rows).

    They are in the order of the commit as far as the list of deletions still has them, which starts
    anew with each generation.
    """
    deleted: set[str] = set()
    wanted, cursor = str(version).encode(), 0
    page: Any
    while True:
        with reachable(store.client):
            cursor, page = store.client.hscan(state.keys.ledger, cursor, count=_SCAN)
        deleted |= {text(row) for row, number in page.items() if number == wanted}
        if cursor == 0:
            break
    with reachable(store.client):
        page = store.client.lrange(state.keys.deletions, 0, -1)
    listed = [row for entry in page if (row := text(entry)) in deleted]
    return [*listed, *sorted(deleted - set(listed))]


def erasure_of(store: ModelStore, state: ModelState, rows: Iterable[str]) -> Erasure:
    """Look for what is left of rows, in the live generation and in every staged one."""
    ids = sorted(set(rows))
    names = _generations(store, state)
    records = 0
    for name in names:
        for start in range(0, len(ids), CHUNK):
            pipeline = store.client.pipeline(transaction=False)
            for row in ids[start : start + CHUNK]:
                pipeline.hexists(state.keys.generation(name).rows(shard_of(row)), row)
            with reachable(store.client):
                records += sum(pipeline.execute())
    return Erasure(len(ids), len(names), records)


def _generations(store: ModelStore, state: ModelState) -> list[str]:
    """Return the names of all generations of a model that hold a row record."""
    begin = state.keys.head.removesuffix("head") + "gen:"
    pattern = re.sub(r"([*?\[\]\\])", r"\\\1", begin) + "*:rows:*"
    names = {state.generation_keys.name}
    with reachable(store.client):
        for key in store.client.scan_iter(match=pattern, count=_SCAN):
            names.add(text(key)[len(begin) :].partition(":")[0])
    return sorted(names)
