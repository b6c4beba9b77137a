"""The rows of a request: which they are, what opens their commitment, and what is left of them.

No content of a deleted row is read; the only question is whether a record exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lethe.consumers.audit.reading import ledger_of
from lethe.consumers.audit.request.report import RequestReport
from lethe.consumers.commits.packed_receipt import unpack
from lethe.consumers.contract.commitment import commitment_of, salt_of
from lethe.consumers.deletions.validate import Valid
from lethe.consumers.service.telemetry.progress import Progress, no_progress
from lethe.engine.store.layout.keys import shard_of
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.membership import never_members
from lethe.engine.store.server.connection import reachable, text
from lethe.engine.store.server.pipeline import CHUNK
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

    rows_commitment: str
    salt: str
    opens: bool | None


@dataclass(frozen=True, slots=True)
class Erasure:
    """What is left of deleted rows: how many records, over how many generations."""

    rows: int
    records: int
    generations: int

    @property
    def done(self) -> bool:
        """Whether nothing is left."""
        return self.records == 0


@dataclass(frozen=True, slots=True)
class RowsReport:
    """What can be said of the rows of a request.

    Attributes
    ----------
    named, opening
        The rows and what opens their commitment; None: not known any more.
    erasure
        What is left of them; None: it was not looked for.
    members
        For each row that was asked about, whether the request names it; None: not known any more.
    never
        Those of them that were never a row of the model.
    """

    named: Rows | None
    opening: Opening | None
    erasure: Erasure | None
    members: Mapping[str, bool | None]
    never: frozenset[str]

    def faults(self) -> list[str]:
        """Return the checks that failed."""
        if self.opening is None or self.opening.opens is not False:
            return []
        return ["the receipt's commitment does not open to the rows of the request"]


def rows_report(
    store: ModelStore,
    report: RequestReport,
    asked: Sequence[str],
    progress: Progress = no_progress,
) -> RowsReport:
    """Report on the rows of a request, and on those that somebody asks about."""
    rows, erasure = _rows_of(store, report, asked), None
    deleted = report.last.receipt.status in ("APPLIED", "ALREADY_APPLIED")
    if rows is not None and report.state is not None and deleted:
        progress("looking for row records", 0, 0)
        erasure = _erasure_of(store, report.state, rows.ids)
    known = rows.ids if rows is not None and rows.exact else None
    return RowsReport(
        named=rows,
        opening=_opening_of(report, rows),
        erasure=erasure,
        members={row: None if known is None else row in known for row in asked},
        never=frozenset(never_members(store.client, report.model_id, asked, store.row_keys)),
    )


def _opening_of(report: RequestReport, rows: Rows | None) -> Opening | None:
    """Return the salt of a request, and whether its commitment opens to the rows."""
    commitment, salt = report.last.receipt.rows_commitment, _salt(report)
    if commitment is None or salt is None:
        return None
    if rows is None or not rows.exact:
        return Opening(commitment, salt.hex(), None)
    opens = commitment_of(salt, rows.ids) == commitment
    return Opening(commitment, salt.hex(), opens)


def _salt(report: RequestReport) -> bytes | None:
    if report.state is None or report.state.secret is None:
        return None
    return salt_of(report.state.secret, report.request_id)


def _rows_of(store: ModelStore, report: RequestReport, asked: Sequence[str]) -> Rows | None:
    """Return the rows of a request; None if they are not known any more.

    If nothing better is known, the rows that somebody asks about may be what opens the commitment.
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
    for ids in (_own(store, report, together), together, asked):
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
    if report.commit is not None and report.commit.commit is not None:
        return report.commit.commit.deleted, "the commit"
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
    deleted = {row for row, deleted_by in ledger_of(store, state) if deleted_by == version}
    with reachable(store.client):
        page: Any = store.client.lrange(state.keys.deletions, 0, -1)
    listed = [row for entry in page if (row := text(entry)) in deleted]
    return [*listed, *sorted(deleted - set(listed))]


def _erasure_of(store: ModelStore, state: ModelState, rows: Iterable[str]) -> Erasure:
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
    return Erasure(len(ids), records, len(names))


def _generations(store: ModelStore, state: ModelState) -> list[str]:
    """Return the names of all generations of a model that hold a row record."""
    begin = state.keys.head.removesuffix("head") + "gen:"
    pattern = re.sub(r"([*?\[\]\\])", r"\\\1", begin) + "*:rows:*"
    names = {state.generation_keys.name}
    with reachable(store.client):
        for key in store.client.scan_iter(match=pattern, count=_SCAN):
            names.add(text(key)[len(begin) :].partition(":")[0])
    return sorted(names)
