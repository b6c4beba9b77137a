"""Records of ``lethe.commits`` taken apart and opened, by the documented layout alone."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

LABEL = b"lethe.commit.v1\n"
PARTITIONS = 16
NONCE = 12


class Disagreement(AssertionError):
    """The commits contradict themselves, or what they must agree with."""


@dataclass(frozen=True)
class Record:
    """A record of ``lethe.commits`` that was taken apart: its open part, and what seals it."""

    offset: int
    open: dict[str, Any]
    associated: bytes
    sealed: bytes
    digest: str

    @property
    def number(self) -> int:
        """The commit's number."""
        return int(self.open["commit"])


def read_record(offset: int, value: bytes | None) -> Record | None:
    """Take a record apart; None: it is no commit."""
    if value is None or not value.startswith(LABEL):
        return None
    parts, at = [], len(LABEL)
    for _ in range(3):
        if at + 4 > len(value):
            return None
        [length] = struct.unpack_from("<I", value, at)
        parts.append(value[at + 4 : at + 4 + length])
        at += 4 + length
    if at != len(value):
        return None
    associated, sealed, signature = parts
    try:
        opened = json.loads(associated)
    except ValueError:
        return None
    names = {"format", "model_id", "partitions", "commit", "prev", "version", "key"}
    if not isinstance(opened, dict) or not names <= opened.keys():
        return None
    covered = LABEL + _with_length(associated) + hashlib.sha256(sealed).digest()
    digest = hashlib.sha256(covered + _with_length(signature)).hexdigest()
    return Record(offset, opened, associated, sealed, digest)


def _with_length(part: bytes) -> bytes:
    return struct.pack("<I", len(part)) + part


def partition_of(model_id: str) -> int:
    """Return the commits partition of a model: Kafka's murmur2, modulo 16."""
    data = model_id.encode()
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    for at in range(0, len(data) - 3, 4):
        k = struct.unpack_from("<I", data, at)[0] * m & mask
        h = (h * m & mask) ^ ((k ^ (k >> 24)) * m & mask)
    tail = data[len(data) & ~3 :]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return ((h ^ (h >> 15)) & 0x7FFFFFFF) % PARTITIONS


def name_of(secret: bytes) -> str:
    """Return the name of a secret, as open parts give it."""
    return hashlib.sha256(b"lethe.seal.name.v1\n" + secret).hexdigest()[:16]


@dataclass(frozen=True)
class Contents:
    """What was sealed: the header, and the bytes that follow it, by what they are."""

    header: dict[str, Any]
    meta: dict[str, Any]
    answers: list[bytes]
    repeats: list[bytes]
    thetas: dict[str, bytes]
    columns: list[dict[str, Any]] | None
    config: dict[str, Any] | None
    version: bytes | None
    job: bytes | None


def header_of(record: Record, *secrets: bytes) -> dict[str, Any]:
    """Return the header of what a record seals."""
    return opened(record, {name_of(secret): secret for secret in secrets}).header


def opened(record: Record, keys: Mapping[str, bytes]) -> Contents:
    secret = keys.get(record.open["key"])
    if secret is None:
        raise Disagreement(f"commit {record.number} is sealed with a key that was not given")
    info = LABEL + record.open["model_id"].encode()
    key = HKDF(SHA256(), 32, salt=None, info=info).derive(secret)
    nonce, body = record.sealed[:NONCE], record.sealed[NONCE:]
    try:
        plain = AESGCM(key).decrypt(nonce, body, record.associated)
    except InvalidTag:
        raise Disagreement(f"commit {record.number} counts, and does not open") from None
    return _contents(plain)


def _contents(plain: bytes) -> Contents:
    [length] = struct.unpack_from("<I", plain)
    header = json.loads(plain[4 : 4 + length])
    blobs = _cut(plain[4 + length :], header["lengths"])
    contents = Contents(
        header=header,
        meta=json.loads(next(blobs)),
        answers=[next(blobs) for _ in header["bodies"]],
        repeats=[next(blobs) for _ in range(header["repeats"])],
        thetas={name: next(blobs) for name in header["thetas"]},
        columns=json.loads(next(blobs)) if header.get("columns") else None,
        config=json.loads(next(blobs)) if header["configures"] else None,
        version=next(blobs) if header["makes_version"] else None,
        job=next(blobs) if header["orders_job"] else None,
    )
    if list(blobs):
        raise Disagreement("something sealed has no meaning")
    return contents


def _cut(data: bytes, lengths: Sequence[int]) -> Iterator[bytes]:
    if sum(lengths) != len(data):
        raise Disagreement("what was sealed has other lengths than its header says")
    at = 0
    for length in lengths:
        yield data[at : at + length]
        at += length
