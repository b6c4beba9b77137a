"""Writing buckets and parts of the index, each under its digest.

A part of the index is the key (16 bytes) and the group (8 bytes) of each row, in the order of keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from lethe.engine.rowstore.bucket import Bucket, pack_bucket
from lethe.engine.rowstore.files import Files
from lethe.engine.rowstore.keys import KEY_BYTES, ORDER_BYTES
from lethe.engine.rowstore.manifest import Manifest, Part, digest_of, firsts_of, part_of


def put(files: Files, data: bytes) -> str:
    """Write a file, and return its name: its digest."""
    name = digest_of(data)
    files.put(name, data)
    return name


def put_root(files: Files, manifest: Manifest) -> str:
    """Write the manifest of files that are all written, and return its name, their root."""
    root = put(files, manifest.pack())
    files.settle()
    return root


def put_bucket(files: Files, bucket: Bucket) -> Part:
    """Write rows, which are in order, as a bucket."""
    first = bucket.orders[0].tobytes().hex()
    return Part(first=first, digest=put(files, pack_bucket(bucket)), rows=len(bucket))


def put_index(files: Files, entries: bytes) -> Part:
    """Write entries, which are in order, as a part of the index."""
    rows, first = len(entries) // ORDER_BYTES, entries[:KEY_BYTES].hex()
    return Part(first=first, digest=put(files, entries), rows=rows)


def by_part(parts: Sequence[Part], added: Bucket | None) -> dict[Part | None, list[Bucket]]:
    """Return rows that are added by the bucket that they come into; None: there is none yet."""
    if added is None:
        return {}
    firsts, numbers = firsts_of(parts), dict[Part | None, list[int]]()
    for i, place in enumerate(added.orders):
        part = part_of(parts, firsts, place.tobytes()) or next(iter(parts), None)
        numbers.setdefault(part, []).append(i)
    return {part: [added.take(np.array(rows))] for part, rows in numbers.items()}


def group_in(part: bytes, key: bytes) -> bytes | None:
    """Return the group of the row with this key, if the part has it. Cost O(log k)."""
    low, high = 0, len(part) // ORDER_BYTES
    while low < high:
        middle = (low + high) // 2
        at = middle * ORDER_BYTES
        found = part[at : at + KEY_BYTES]
        if found == key:
            return part[at + KEY_BYTES : at + ORDER_BYTES]
        if found < key:
            low = middle + 1
        else:
            high = middle
    return None


def changed_entries(part: bytes, gone: frozenset[bytes], added: Iterable[bytes]) -> bytes:
    """Return a part of the index without the rows of some keys, and with other entries."""
    entries = (part[i : i + ORDER_BYTES] for i in range(0, len(part), ORDER_BYTES))
    kept = [entry for entry in entries if entry[:KEY_BYTES] not in gone]
    return b"".join(sorted([*kept, *added]))
