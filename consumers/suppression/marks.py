"""What stands for a subject where it must not be named: HMAC-SHA256 under a secret of Lethe.

The secrets are those that seal commits. Whoever has a mark and not the secret cannot find out whose
it is, even by trying all names.
"""

from __future__ import annotations

from collections.abc import Sequence

from lethe.consumers.contract.sealing import SealKeys

DEFAULT_NAMESPACE = ""
"""Namespace of subjects for which none was named."""

_SUPPRESSED = b"lethe.suppressed.v1"
_COMMITMENT = b"lethe.erasure.subject.v1"


def marks_of(seals: SealKeys, namespace: str, subject_id: str) -> list[str]:
    """Return the marks of a subject: one under each secret, the newest first.

    A mark names its secret: ``<name of the secret>:<64 hexadecimal digits>``.
    """
    codes = seals.authenticate(_SUPPRESSED, _packed([namespace, subject_id]))
    return [f"{name}:{code.hex()}" for name, code in codes]


def secret_of(mark: str) -> str:
    """Return the name of the secret of a mark."""
    return mark.partition(":")[0]


def subject_commitments(
    seals: SealKeys, erasure_id: str, namespace: str, subject_id: str, op: str
) -> list[str]:
    """Return what a combined receipt is bound to its subject with, under each secret.

    Unlike a mark it differs from erasure to erasure, so that nobody sees whether two are of the
    same person.
    """
    content = _packed([op, erasure_id, namespace, subject_id])
    return [code.hex() for _, code in seals.authenticate(_COMMITMENT, content)]


def _packed(parts: Sequence[str]) -> bytes:
    """Return texts so that no two lists of them have the same bytes."""
    encoded = [part.encode() for part in parts]
    return b"".join(len(part).to_bytes(4, "big") + part for part in encoded)
