"""The partition of a key: murmur2, as in Kafka's Java client and kafka-python.

Every log uses it, so that a key lies in the same partition wherever the workers run. It is written
out here because single-node mode must not pay for importing a Kafka client.
"""

from __future__ import annotations

from functools import lru_cache

_SEED = 0x9747B28C
_M = 0x5BD1E995
_R = 24
_MASK = 0xFFFFFFFF

COMMIT_PARTITIONS = 16
"""Partitions of ``lethe.commits``, a constant of the stored format: the keys of a model follow from
it. Added partitions are ignored; fewer are refused."""

# Keys are model ids of at most 128 characters, and few of them are busy at a time; 4,096 hashes
# are about 1 MiB and save 10 to 40 microseconds a message.
_CACHED_KEYS = 4096


@lru_cache(maxsize=_CACHED_KEYS)
def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit MurmurHash2 of ``data``, as an unsigned integer."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * _M & _MASK
        k = (k ^ k >> _R) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if whole != length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_index(key: bytes, partitions: int) -> int:
    """Return the index, from 0, of the partition that holds ``key`` among ``partitions``."""
    if partitions < 1:
        raise ValueError(f"a topic has at least one partition, not {partitions}")
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def commit_partition(model_id: str) -> int:
    """Return the index of the commits partition that a model belongs to."""
    return partition_index(model_id.encode(), COMMIT_PARTITIONS)
