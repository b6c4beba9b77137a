"""The frame of a commit in ``lethe.commits``: an open part, a sealed part, a signature.

    "lethe.commit.v1" LF
    length (uint32) | open part: JSON
    length (uint32) | sealed part: nonce (12) | ciphertext | tag (16)
    length (uint32) | signature as in `consumers.contract.signatures`, empty where no key is set

The open part is associated data of the sealed one. A commit's digest is the SHA-256 of the label,
the open part, the SHA-256 of the sealed part and the signature, each with its length: so the chain
can be checked without a key. Whether a commit counts is judged on the open part alone
(`consumers.commits.journal`), so that all readers agree, whatever keys they hold.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import Any

from lethe.engine.store.layout.keys import COMMIT_PARTITIONS
from lethe.engine.store.layout.reading import MAX_DIGITS, parse_json

COMMIT = "lethe.commit.v1"
FORMAT = 4
"""Raised whenever a record changes: a program opens the format that it writes, and no other."""

MAX_RECORD_BYTES = 8 << 20
"""Of a record, including its key: what the topic accepts."""

MAX_OPEN_BYTES = 4096
_LABEL = COMMIT.encode() + b"\n"
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class OpenPart:
    """What everybody can read of a commit.

    Attributes
    ----------
    model_id, number, prev
        Its model, its number, and the digest of the commit before it.
    version
        The number of the version that it makes, or None.
    key
        Name of the key that seals it.
    skips
        Whether its number may skip some: the log has lost the commits before it, or they have
        expired (`lethe recover`, `lethe register --replace`).
    partitions
        Number of commits partitions that its writer knew.
    format
        Format of the record.
    """

    model_id: str
    number: int
    prev: str
    version: int | None
    key: str
    skips: bool = False
    partitions: int = COMMIT_PARTITIONS
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class Framed:
    """A record split into its parts, but not opened."""

    open: OpenPart
    digest: str
    associated: bytes
    sealed: bytes
    signature: bytes


def decode_frame(value: bytes | None) -> Framed | None:
    """Split a record into its parts; None if it is not a commit of any model.

    A record of another format still names its model: see `OpenPart.format`.
    """
    if value is None or not value.startswith(_LABEL):
        return None
    try:
        associated, at = take(value, len(_LABEL), MAX_OPEN_BYTES)
        sealed, at = take(value, at, MAX_RECORD_BYTES)
        signature, at = take(value, at, MAX_OPEN_BYTES)
        part = _open_part(parse_json(associated))
    except (ValueError, RecursionError):
        return None
    if at != len(value):
        return None
    digest = digest_of(signed_bytes(associated, sealed), signature)
    return Framed(part, digest, associated, sealed, signature)


def join_frame(associated: bytes, sealed: bytes, signature: bytes) -> bytes:
    """Return a record made of its parts."""
    return _LABEL + b"".join(map(with_length, (associated, sealed, signature)))


def signed_bytes(associated: bytes, sealed: bytes) -> bytes:
    """Return what a commit's signature covers."""
    return _LABEL + with_length(associated) + hashlib.sha256(sealed).digest()


def digest_of(signed: bytes, signature: bytes) -> str:
    """Return a commit's digest, of what was signed and the signature."""
    return hashlib.sha256(signed + with_length(signature)).hexdigest()


def with_length(part: bytes) -> bytes:
    """Return a part with its length before it."""
    return _LENGTH.pack(len(part)) + part


def take(value: bytes, at: int, limit: int) -> tuple[bytes, int]:
    """Return the part whose length lies at ``at``, and where the next one begins.

    Raises
    ------
    ValueError
        It is cut short, or longer than ``limit``.
    """
    if at + _LENGTH.size > len(value):
        raise ValueError("it is cut short")
    [length] = _LENGTH.unpack_from(value, at)
    at += _LENGTH.size
    if length > limit or at + length > len(value):
        raise ValueError("a part is longer than it can be")
    return value[at : at + length], at + length


def _open_part(data: Any) -> OpenPart:
    if not isinstance(data, dict):
        raise ValueError("the open part is not an object")  # noqa: TRY004 - bad input, not a bad type
    version = data.get("version")
    return OpenPart(
        _text(data.get("model_id"), 512),
        _whole_number(data.get("commit")),
        _text(data.get("prev"), 64),
        None if version is None else _whole_number(version),
        _text(data.get("key"), 64),
        data.get("checkpoint") is True,
        _whole_number(data.get("partitions")),
        _whole_number(data.get("format")),
    )


def _text(value: Any, limit: int) -> str:
    """Return a parsed value that is a text of at most ``limit`` bytes; raise ValueError if not."""
    if not isinstance(value, str) or len(value.encode()) > limit:
        raise ValueError("not text, or too long")
    return value


def _whole_number(value: Any) -> int:
    """Return a parsed value that is a whole number from 0; raise ValueError if it is not."""
    if type(value) is not int or not 0 <= value < 10**MAX_DIGITS:
        raise ValueError("a value is not a whole number")
    return value
