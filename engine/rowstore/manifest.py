"""Which buckets there are: the file that the root names.

Buckets are consecutive parts of the order of rows (`engine.rowstore.keys`), each named by the
first place in it and by its digest. Where rows have subjects, a row's id alone does not tell its
place: an *index* has the key and the group of every row, in the order of keys, in consecutive
parts, too.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lethe.engine.errors import CorruptState
from lethe.engine.rowstore.keys import KEY_BYTES, ORDER_BYTES, SALT_BYTES

ENCRYPTED = b"lethe encrypted\n"
"""What an encrypted file begins with (`engine.store.server.sealed_files`), and no other."""

_Hex = Annotated[str, Field(pattern=r"^(?:[0-9a-f]{2})+$", max_length=64)]


def digest_of(data: bytes) -> str:
    """Return the name of a file with this content: SHA-256, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


class Part(BaseModel):
    """A bucket, or a part of the index.

    Attributes
    ----------
    first
        The least place (or key) in it, in hexadecimal digits.
    digest
        SHA-256 of its file, and the file's name.
    rows
        How many rows it has.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    first: _Hex
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    rows: Annotated[int, Field(ge=1, lt=1 << 53)]


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    salt: _Hex
    features: Annotated[int, Field(ge=0)]
    targets: Annotated[int, Field(ge=1)]
    buckets: tuple[Part, ...]
    index: tuple[Part, ...] | None = None
    former: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """The buckets of some rows.

    Attributes
    ----------
    salt
        Key of the hashes that order the rows.
    p, m
        Numbers of features and targets of a row.
    buckets
        In order.
    index
        None if rows have no subjects: a row's id then tells its place.
    former
        In order, buckets of the rows of subjects that have gone: their ids and whose they were.
    """

    salt: bytes
    p: int
    m: int
    buckets: tuple[Part, ...]
    index: tuple[Part, ...] | None = None
    former: tuple[Part, ...] = ()

    @cached_property
    def rows(self) -> int:
        """Number of rows, those that were deleted and are not erased yet among them."""
        return sum(part.rows for part in self.buckets)

    @cached_property
    def _firsts(self) -> list[str]:
        return firsts_of(self.buckets)

    @cached_property
    def _index_firsts(self) -> list[str]:
        return firsts_of(self.index or ())

    def bucket_of(self, order: bytes) -> Part | None:
        """Return the bucket that a row at this place lies in, if it is there at all."""
        return part_of(self.buckets, self._firsts, order)

    def buckets_of_group(self, group: bytes) -> Sequence[Part]:
        """Return the buckets that rows of a group may lie in."""
        return _of_group(self.buckets, self._firsts, group)

    def former_of_group(self, group: bytes) -> Sequence[Part]:
        """Return the buckets that have a group's rows that are gone."""
        return _of_group(self.former, firsts_of(self.former), group)

    def index_of(self, key: bytes) -> Part | None:
        """Return the part of the index that has a row of this key, if any has."""
        return part_of(self.index or (), self._index_firsts, key)

    def files(self) -> frozenset[str]:
        """Return the names of all files of the rows, without the manifest's own."""
        parts = (*self.buckets, *self.former, *(self.index or ()))
        return frozenset(part.digest for part in parts)

    def pack(self) -> bytes:
        """Return the manifest as the bytes of its file; their digest is the root."""
        stored = _Stored(
            salt=self.salt.hex(),
            features=self.p,
            targets=self.m,
            buckets=self.buckets,
            index=self.index,
            former=self.former,
        )
        return stored.model_dump_json(exclude_none=True).encode()

    @classmethod
    def read(cls, data: bytes, what: str) -> Manifest:
        """Return the manifest that a file has.

        Raises
        ------
        CorruptState
            It does not parse, or its parts are not in order.
        """
        try:
            stored = _Stored.model_validate_json(data)
        except ValidationError as error:
            first = error.errors()[0]
            raise CorruptState(
                f"{what}: is no manifest of format 1 ({first['msg']}); upgrade this process"
            ) from None
        manifest = cls(
            bytes.fromhex(stored.salt),
            stored.features,
            stored.targets,
            stored.buckets,
            stored.index,
            stored.former,
        )
        for firsts, width in (
            (manifest._firsts, ORDER_BYTES),
            (firsts_of(manifest.former), ORDER_BYTES),
            (manifest._index_firsts, KEY_BYTES),
        ):
            if firsts != sorted(set(firsts)) or any(len(first) != 2 * width for first in firsts):
                raise CorruptState(f"{what}: its parts are not in order")
        if len(manifest.salt) != SALT_BYTES:
            raise CorruptState(f"{what}: its salt has {len(manifest.salt)} bytes")
        return manifest


def firsts_of(parts: Sequence[Part]) -> list[str]:
    """Return the least place in each of some parts."""
    return [part.first for part in parts]


def part_of(parts: Sequence[Part], firsts: Sequence[str], place: bytes) -> Part | None:
    """Return the part that a place lies in, if any; ``firsts`` are theirs."""
    at = bisect.bisect_right(firsts, place.hex()) - 1
    return parts[at] if at >= 0 else None


def _of_group(parts: Sequence[Part], firsts: Sequence[str], group: bytes) -> Sequence[Part]:
    least, most = group.hex(), group.hex() + "f" * (2 * KEY_BYTES)
    first = max(bisect.bisect_left(firsts, least) - 1, 0)
    return parts[first : bisect.bisect_right(firsts, most)]
