"""Finds what is a person's by what Lethe keeps of it, where the index has not read the request.

A log may have removed a request before the index was made. The receipt of an erasure is bound to
the person by a commitment; of a request, the store keeps the digest of what it asked for.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from lethe.consumers.commits.packed_receipt import body_of
from lethe.consumers.contract.events import DeletionRequest
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.deletions.validate import content_digest
from lethe.consumers.erasures.models import read_models
from lethe.consumers.server.console.lookup import Found
from lethe.consumers.suppression.marks import DEFAULT_NAMESPACE, subject_commitments
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.server.pipeline import run_pipeline
from lethe.engine.store.store import ModelStore

MOST_RECEIPTS = 10_000
"""Receipts that are compared unless all are asked for: a tenth of a second of HMACs."""

_MOST_FOUND = 100
_MOST_REQUESTS = 1_000
_VERSIONS = 100
_UNMARKED = "FROM erasures WHERE mark IS NULL"


def erasures_by_commitment(
    connection: sqlite3.Connection, seals: SealKeys, subject_id: str, *, every: bool
) -> tuple[list[sqlite3.Row], int]:
    """Return erasures without a mark that are the person's, the newest first; how many are left.

    Unless ``every``, the newest `MOST_RECEIPTS` are compared; in any case until 100 are found.
    """
    total = int(connection.execute(f"SELECT count(*) {_UNMARKED}").fetchone()[0])
    found: list[int] = []
    compared = 0
    for number, name, op, namespace, commitment in connection.execute(
        f"SELECT id, erasure_id, op, namespace, commitment {_UNMARKED} ORDER BY id DESC"
    ):
        if len(found) == _MOST_FOUND or (compared == MOST_RECEIPTS and not every):
            break
        compared += 1
        if commitment is not None and commitment in subject_commitments(
            seals, name, namespace or DEFAULT_NAMESPACE, subject_id, op
        ):
            found.append(number)
    rows = connection.execute(
        f"SELECT * FROM erasures WHERE id IN ({', '.join('?' * len(found))}) ORDER BY at DESC",  # noqa: S608
        found,
    ).fetchall()
    return rows, total - compared


def requests_by_content(
    connection: sqlite3.Connection, store: ModelStore, found: Sequence[Found], subject_id: str
) -> list[sqlite3.Row]:
    """Return requests without a mark that deleted rows of the person and named nobody else.

    They are looked for among the requests of the versions that deleted rows of theirs. Three round
    trips for a few hundred models.
    """
    rows: list[sqlite3.Row] = []
    for one in found:
        versions = one.versions[-_VERSIONS:]
        places = ", ".join("?" * len(versions))
        rows += connection.execute(
            "SELECT * FROM requests WHERE mark IS NULL AND op = 'delete' AND status = 'APPLIED'"  # noqa: S608
            f" AND model_id = ? AND version IN ({places}) ORDER BY at DESC LIMIT ?",
            [one.model_id, *versions, _MOST_REQUESTS],
        ).fetchall()
    if not rows:
        return []

    registered = read_models(store).registered
    namespaces = {None, DEFAULT_NAMESPACE, *(one.namespace for one in registered)}
    stored = run_pipeline(
        store.client,
        (),
        lambda pipe: [
            pipe.hget(ModelKeys(row["model_id"]).requests, row["request_id"]) for row in rows
        ],
    )
    return [
        row
        for row, value in zip(rows, stored, strict=True)
        if value is not None and body_of(value) in _bodies(row["model_id"], subject_id, namespaces)
    ]


def _bodies(model_id: str, subject_id: str, namespaces: Iterable[str | None]) -> set[bytes]:
    """Return the digests of all requests to a model that name a subject."""
    return {
        content_digest(
            DeletionRequest(
                request_id="any",
                model_id=model_id,
                subject_id=subject_id,
                strict=strict,
                namespace=namespace,
            )
        )
        for namespace in namespaces
        for strict in (False, True)
    }
