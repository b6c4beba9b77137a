"""A commit as a record of ``lethe.commits``: encoded, sealed and signed; and opened again.

`consumers.commits.frame` has the bytes that everybody can read, `consumers.commits.sealed_part`
those that are sealed.
"""

from __future__ import annotations

import json

from lethe.consumers.commits.commit import Commit
from lethe.consumers.commits.frame import (
    COMMIT,
    FORMAT,
    Framed,
    digest_of,
    join_frame,
    signed_bytes,
)
from lethe.consumers.commits.sealed_part import decode_sealed_part, deleted_rows, encode_sealed_part
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.contract.signatures import HEADER, Signer, TrustedKeys
from lethe.engine.errors import CorruptState, Unauthenticated, check_format
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.keys import COMMIT_PARTITIONS


class Untrusted(CorruptState):
    """A commit is not signed by a key that is trusted."""

    code = "UNTRUSTED"


def encode(commit: Commit, seals: SealKeys, signer: Signer | None) -> tuple[bytes, str]:
    """Return a commit's record and its digest."""
    version = None if commit.version is None else commit.version.version
    associated = json.dumps(
        {
            "format": FORMAT,
            "model_id": commit.model_id,
            "partitions": COMMIT_PARTITIONS,
            "commit": commit.number,
            "prev": commit.prev,
            "version": version,
            "key": seals.current,
            # Named when only checkpoints skipped numbers: a registration after a loss does, too.
            **({"checkpoint": True} if commit.skips else {}),
        },
        ensure_ascii=False,
        separators=(",", ":"),
    ).encode()
    sealed = seals.seal(commit.model_id, encode_sealed_part(commit), associated)
    signed = signed_bytes(associated, sealed)
    signature = b"" if signer is None else signer.sign(COMMIT, signed)
    return join_frame(associated, sealed, signature), digest_of(signed, signature)


def open_commit(
    framed: Framed, seals: SealKeys, trusted: TrustedKeys | None, config: ModelConfig | None
) -> Commit:
    """Return the commit in a record that counts.

    ``config`` is the model's configuration before it, for commits that do not change that.

    Raises
    ------
    FormatTooNew, FormatTooOld
        It was written by a newer or by an older Lethe.
    Untrusted
        It is not signed by any of the trusted keys.
    KeyUnknown
        It cannot be opened here.
    CorruptState
        The sealed part does not parse.
    """
    part = framed.open
    what = f"model {part.model_id!r}, commit {part.number}"
    check_format(part.format, FORMAT, what)
    if trusted is not None:
        try:
            check_signature(framed, trusted)
        except Unauthenticated as error:
            raise Untrusted(f"{what}: {error}; see LETHE_TRUSTED_KEYS") from None
    plain = seals.open(part.key, part.model_id, framed.sealed, framed.associated)
    try:
        return decode_sealed_part(part, plain, config)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CorruptState(f"{what}: what was sealed does not parse; upgrade this worker") from None


def check_signature(framed: Framed, trusted: TrustedKeys) -> str:
    """Check a record's signature; return the id of the key that signed it.

    Raises
    ------
    Unauthenticated
        It is unsigned, or not signed by one of these keys.
    """
    signed = signed_bytes(framed.associated, framed.sealed)
    return trusted.check(COMMIT, signed, ((HEADER, framed.signature),) * bool(framed.signature))


def peek_deleted(framed: Framed, seals: SealKeys) -> tuple[str, ...]:
    """Return the rows that a commit deletes, without parsing the rest of it.

    Raises
    ------
    FormatTooNew, FormatTooOld
        It was written by a newer or by an older Lethe.
    KeyUnknown
        It cannot be opened here.
    CorruptState
        The sealed part does not parse.
    """
    part = framed.open
    what = f"model {part.model_id!r}, commit {part.number}"
    check_format(part.format, FORMAT, what)
    plain = seals.open(part.key, part.model_id, framed.sealed, framed.associated)
    try:
        return deleted_rows(plain)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CorruptState(f"{what}: what was sealed does not parse") from None
