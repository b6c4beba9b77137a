"""Salted commitments: a receipt binds itself to row ids, or to a person, that it does not show.

A receipt's ``rows_commitment`` is the root of a Merkle tree (RFC 9162) over one entry for each row
that the request names, HMAC-SHA256(salt, row id in UTF-8), in ascending order of their bytes. Each
request has its own salt, HMAC-SHA256(secret of the model, "lethe.rows.v1" LF request id): whoever
receives it can check which ids the receipt is about, and learns nothing about other receipts.
Without the salt, guessing ids is useless.

A combined receipt's ``subject_commitment`` is HMAC-SHA256(salt of the erasure, namespace and
subject). Its salt follows from a seal key (`consumers.suppression.marks`).
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Collection, Sequence

from lethe.engine.merkle import leaf_hash, root_of
from lethe.engine.store.layout.records import SECRET_BYTES

_LABEL = b"lethe.rows.v1\n"
_TOMBSTONE = b"lethe.tombstone.v1\n"
_TOMBSTONE_BYTES = 16


def new_secret() -> bytes:
    """Return a new secret for a model: created at registration, never published or printed."""
    return secrets.token_bytes(SECRET_BYTES)


def salt_of(secret: bytes, request_id: str) -> bytes:
    """Return a request's salt, which opens its own receipt's commitment and no other."""
    return hmac.digest(secret, _LABEL + request_id.encode(), "sha256")


def commitment_of(salt: bytes, row_ids: Collection[str]) -> str:
    """Return the commitment to row ids, given in any order, as hexadecimal. Cost O(k log k)."""
    entries = sorted(hmac.digest(salt, row.encode(), "sha256") for row in set(row_ids))
    return root_of([leaf_hash(entry) for entry in entries]).hex()


def rows_commitment(secret: bytes | None, request_id: str, row_ids: Collection[str]) -> str | None:
    """Return a receipt's ``rows_commitment``; None (absent) without rows or without a secret."""
    if secret is None or not row_ids:
        return None
    return commitment_of(salt_of(secret, request_id), row_ids)


def subject_commitment(salt: bytes, namespace: str, subject_id: str) -> str:
    """Return what binds an erasure to its subject under the erasure's salt, as hexadecimal."""
    return hmac.digest(salt, packed([namespace, subject_id]), "sha256").hex()


def packed(parts: Sequence[str]) -> bytes:
    """Return texts so that no two lists of them have the same bytes: each after its length."""
    whole = b""
    for part in parts:
        encoded = part.encode()
        whole += len(encoded).to_bytes(4, "big") + encoded
    return whole


def tombstone_of(secret: bytes, row_id: str) -> str:
    """Return the tombstone of a row that a request deleted before it arrived; it reveals no id."""
    mark = hmac.digest(secret, _TOMBSTONE + row_id.encode(), "sha256")
    return mark[:_TOMBSTONE_BYTES].hex()
