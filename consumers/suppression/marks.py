"""What stands for a subject where it must not be named: HMAC-SHA256 under a secret of Lethe.

The secrets are those that seal commits. Whoever has a mark and not the secret cannot find out whose
it is, even by trying all names.
"""

from __future__ import annotations

import hmac

from lethe.consumers.contract.commitment import packed, subject_commitment
from lethe.consumers.contract.sealing import SealKeys

DEFAULT_NAMESPACE = ""
"""Namespace of subjects for which none was named."""

_SUPPRESSED = b"lethe.suppressed.v1"
_SALT = b"lethe.erasure.salt.v2"
_UNSALTED = b"lethe.erasure.subject.v1"


def marks_of(seals: SealKeys, namespace: str, subject_id: str) -> list[str]:
    """Return the marks of a subject: one under each secret, the newest first.

    A mark names its secret: ``<name of the secret>:<64 hexadecimal digits>``.
    """
    codes = seals.authenticate(_SUPPRESSED, packed([namespace, subject_id]))
    return [f"{name}:{code.hex()}" for name, code in codes]


def secret_of(mark: str) -> str:
    """Return the name of the secret of a mark."""
    return mark.partition(":")[0]


def subject_commitments(
    seals: SealKeys, erasure_id: str, namespace: str, subject_id: str, op: str
) -> list[str]:
    """Return the commitments that may bind a combined receipt to its subject; the first is used.

    The others are those under older secrets, and of receipts that an older release made, which
    nobody can open without the secret. Unlike a mark, a commitment differs from erasure to erasure,
    so that nobody sees whether two are of the same person.
    """
    erasure, subject = packed((op, erasure_id)), packed((namespace, subject_id))
    salts = seals.authenticate(_SALT, erasure)
    return [
        *[hmac.digest(salt, subject, "sha256").hex() for _, salt in salts],
        *[code.hex() for _, code in seals.authenticate(_UNSALTED, erasure + subject)],
    ]


def subject_salts(seals: SealKeys, erasure_id: str, op: str) -> list[bytes]:
    """Return the salts of an erasure: one under each secret, the newest first.

    Whoever has one can check whose erasure it is, and learns nothing about other erasures.
    """
    return [salt for _, salt in seals.authenticate(_SALT, packed((op, erasure_id)))]


def opening_salt(
    seals: SealKeys, erasure_id: str, op: str, commitment: str | None, subject: tuple[str, str]
) -> bytes | None:
    """Return the salt under which a commitment opens to a subject; None if it opens under none.

    ``subject``: namespace and id.
    """
    salts = subject_salts(seals, erasure_id, op)
    return next((salt for salt in salts if subject_commitment(salt, *subject) == commitment), None)
