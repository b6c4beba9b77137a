"""Records of ``lethe.commits`` as anybody can write them who may write to the topic."""

from __future__ import annotations

import json
import struct

from lethe.consumers.commits.frame import COMMIT, FORMAT


def framed(part: bytes) -> bytes:
    """Return a part of a record with its length before it."""
    return struct.pack("<I", len(part)) + part


def record_of(**fields: object) -> bytes:
    """Return a record with this open part; nothing opens what it seals."""
    plain = {"format": FORMAT, "partitions": 16, "version": None, "key": "0" * 16} | fields
    associated = json.dumps(plain).encode()
    return COMMIT.encode() + b"\n" + framed(associated) + framed(bytes(64)) + framed(b"")
