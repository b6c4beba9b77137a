"""The order of rows in buckets: by keyed hashes of whose they are, and of their ids.

A row's *group* is a hash of its subject, or of its id if it has none: so the rows of a person lie
together. Its *key* is a hash of its id. The hashes have a key of their own for each registration,
so that nobody can choose ids that all fall into one bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

SALT_BYTES = 16
KEY_BYTES = 16
_GROUP_BYTES = 8
_SUBJECT = b"subject"

ORDER_BYTES = _GROUP_BYTES + KEY_BYTES

Order = NDArray[np.uint8]
"""(k, `ORDER_BYTES`): the places of k rows in the order, as bytes that compare like them."""


def key_of(salt: bytes, row_id: str) -> bytes:
    """Return the hash of a row id."""
    return blake2b(row_id.encode(), digest_size=KEY_BYTES, key=salt).digest()


def group_of_subject(salt: bytes, subject_id: str) -> bytes:
    """Return the group of a subject's rows."""
    return blake2b(
        subject_id.encode(), digest_size=_GROUP_BYTES, key=salt, person=_SUBJECT
    ).digest()


def group_of_key(key: bytes) -> bytes:
    """Return the group of a row that has no subject."""
    return key[:_GROUP_BYTES]


def bounds_of_group(group: bytes) -> tuple[bytes, bytes]:
    """Return the least and the greatest place that a row of a group may have."""
    return group + bytes(KEY_BYTES), group + b"\xff" * KEY_BYTES


def orders_of(
    salt: bytes, ids: Sequence[str], subjects: Sequence[str | None] | None = None
) -> Order:
    """Return the places of rows in the order. Cost about 1 us a row, 2 with subjects."""
    keys = [key_of(salt, row) for row in ids]
    if subjects is None:
        joined = b"".join([group_of_key(key) + key for key in keys])
    else:
        joined = b"".join(
            [
                (group_of_key(key) if name is None else group_of_subject(salt, name)) + key
                for key, name in zip(keys, subjects, strict=True)
            ]
        )
    return np.frombuffer(joined, np.uint8).reshape(len(ids), ORDER_BYTES)


def sorting(orders: Order) -> NDArray[np.intp]:
    """Return the indices that sort places (k, w), any number of bytes each. Cost O(k log k)."""
    return np.argsort(comparable(orders), kind="stable")


def repeated(orders: Order) -> NDArray[np.intp]:
    """Return the indices of sorted places that are equal to the one before them."""
    text = comparable(orders)
    return np.flatnonzero(text[1:] == text[:-1]) + 1


def comparable(orders: Order) -> NDArray[np.bytes_]:
    """Return places as texts of one length, which NumPy compares byte by byte."""
    return np.ascontiguousarray(orders).view(f"S{orders.shape[1]}").ravel()
