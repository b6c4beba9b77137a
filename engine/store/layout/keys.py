"""The layout of the store: the names of all keys. docs/state.md has the table with sizes.

A model belongs to one of 16 *commits partitions*, by its id (`commit_partition`): its commits lie
in that partition of ``lethe.commits``. All keys of all models of one partition share a hash tag,
with the cursors that say how far the partition is applied: one script can write them together, on a
cluster too, and one failover takes them together.

Keys of a generation carry its own random name: a refresh stages a whole generation beside the
live one, and its commit only changes which of the two the head names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from urllib.parse import quote
from zlib import crc32

FORMAT = 8
"""Version of the stored format: layout, script, commits and events together.

A program reads only the format that it writes: nobody had state to migrate when a new one came.
Keys of formats before 5 have other names: `FORMER_MODELS`.
"""

PREFIX = "lethe"

SEALS = f"{PREFIX}:seals"
"""Hash: secrets that commits are sealed with, by name, if no file holds them."""

SETTLED = f"{PREFIX}:settled"
"""String written only in order to wait until it, and so everything before it, is on disk."""

REWRITTEN = f"{PREFIX}:rewritten"
"""String: when the last completed rewrite of the server's files began."""

BOUND_LOG = f"{PREFIX}:bound-log"
"""The kind of log that the store's models are published to: versions cannot change it."""

TOPICS = f"{PREFIX}:topics"
"""Hash: topic -> its id and number of partitions; made again, it has another id
(`engine.store.topics`)."""

LOSSES = f"{PREFIX}:losses"
"""List: what topics have lost, and since when work goes on without it (JSON)."""

ERASED = f"{PREFIX}:{{erased}}:subjects"
"""Hash: mark of a subject -> where its newest erasure or lift lies in ``lethe.erasures``, and the
id of the erasure, none after a lift (`consumers.suppression`)."""

ERASED_LATE = f"{PREFIX}:{{erased}}:late"
"""Set: marks whose newest record in ``lethe.suppressions`` is not the one that counts."""

ERASED_SECRETS = f"{PREFIX}:{{erased}}:secrets"
"""Set: names of the secrets under which the marks of `ERASED` were made."""

ERASURE_RECEIPTS = f"{PREFIX}:{{erased}}:receipts"
"""Hash: erasure id -> offset and subject commitment of its final combined receipt."""

SIGNED_ERASURE_RECEIPTS = f"{PREFIX}:{{erased}}:signed-receipts"
"""As `ERASURE_RECEIPTS`, of receipts signed by keys that their reader trusts: a view of its own, so
that what a process without trusted keys has read is not believed by one that has some."""

ERASED_CURSORS = f"{PREFIX}:{{erased}}:cursors"
"""Hash: how far `ERASED` and the two hashes of receipts have read their topics."""

ERASED_CHECKED = f"{PREFIX}:{{erased}}:checked"
"""Hash: model -> its registration that was last searched for erased subjects."""

WORKERS = f"{PREFIX}:{{workers}}:names"
"""Set: names of leases of workers; of those that expired, too, until another worker starts."""


def worker_lease(name: str) -> str:
    """Return the key of a worker's lease (string, JSON; expires): who works, and on what."""
    return f"{PREFIX}:{{workers}}:lease:{name}"


FORMER_MODELS = f"{PREFIX}:models"
"""Set of model ids in formats before 5: `engine.store.membership` refuses a store that has it."""

SHARDS = 8
"""Hashes that a generation's row records are spread over."""

COMMIT_PARTITIONS = 16
"""Partitions of ``lethe.commits``, a constant of the stored format: the keys of a model follow from
it. Added partitions are ignored; fewer are refused."""


def watermark(partition: str) -> str:
    """Return the key of a partition's watermark (below it every record is processed)."""
    return f"{PREFIX}:watermark:{partition}"


def shard_of(row_id: str) -> int:
    """Return the shard that holds a row's record."""
    return crc32(row_id.encode()) % SHARDS


def by_shard(row_ids: Iterable[str]) -> dict[int, list[str]]:
    """Return rows by the shard that holds their records."""
    shards: dict[int, list[str]] = {}
    for row in row_ids:
        shards.setdefault(shard_of(row), []).append(row)
    return shards


class _Key(cached_property[str]):
    """A key, by its name among those of its owner."""

    def __init__(self, name: str) -> None:
        super().__init__(lambda owner: owner._key(name))


@dataclass(frozen=True)
class PartitionKeys:
    """Keys of one commits partition: what its models share."""

    index: int

    @cached_property
    def tag(self) -> str:
        """What the hash tag holds: ``c00`` to ``c15``."""
        return f"c{self.index:02d}"

    def _key(self, name: str) -> str:
        return f"{PREFIX}:{{{self.tag}}}:{name}"

    models = _Key("models")
    """Set: ids of the models that were ever registered."""

    cursors = _Key("cursors")
    """Hash: how far the partition is applied and published (`engine.store.cursors`)."""

    fold_lease = _Key("fold-lease")
    """String: who folds much of the partition now. It expires."""

    erasures = _Key("erasures")
    """Hash: when something was last erased, and when the files were last rewritten."""


def every_partition() -> list[PartitionKeys]:
    """Return the keys of all commits partitions."""
    return [PartitionKeys(index) for index in range(COMMIT_PARTITIONS)]


@dataclass(frozen=True)
class ModelKeys:
    """Keys of one model, registered or not."""

    model_id: str

    @cached_property
    def partition(self) -> PartitionKeys:
        """Keys of the commits partition that the model belongs to."""
        return PartitionKeys(commit_partition(self.model_id))

    @cached_property
    def _prefix(self) -> str:
        return f"{PREFIX}:{{{self.partition.tag}}}:{quote(self.model_id, safe='')}:"

    def _key(self, name: str) -> str:
        return self._prefix + name

    head = _Key("head")
    """Hash: where the chain stands, config and meta (JSON), and the thetas (raw float64)."""

    offsets = _Key("offsets")
    """Hash: ``<topic id>/<partition>`` to the next offset to process."""

    ledger = _Key("ledger")
    """Hash: deleted row id to the version that deleted it; kept for ever."""

    deletions = _Key("deletions")
    """List: row ids deleted since the live generation was made, in the order of commits."""

    requests = _Key("requests")
    """Hash: request id to its packed receipt (`consumers.commits.packed_receipt`)."""

    deferred = _Key("deferred")
    """Hash: request id to the rows that wait for a rebuild."""

    retired = _Key("retired")
    """Set: row ids that a --replace left out; a later file may have them again."""

    tombstones = _Key("tombstones")
    """Sorted set: rows to be deleted that were not there, by when they are forgotten."""

    stagings = _Key("stagings")
    """Hash: names of what registrations staged to the numbers of their commits."""

    @cached_property
    def pace(self) -> str:
        """Hash: how often the model was refreshed of late (expires).

        It lies beside the jobs, under an id that no job has, where refresh workers may write.
        """
        return self.job("")

    def job(self, job_id: str) -> str:
        """Return the key of a refresh job's result (hash; expires)."""
        return self._key(f"job:{job_id}")

    def file_keys(self, folder: str) -> str:
        """Return the key, in the store of row keys, of those of a folder's files (hash)."""
        return self._key(f"file-keys:{folder}")

    def generation(self, name: str) -> GenerationKeys:
        """Return the keys of one generation."""
        return _generation_keys(self, name)

    def dataset(self, name: str) -> DatasetKeys:
        """Return the keys of one registration's data."""
        return _dataset_keys(self, name)


@dataclass(frozen=True)
class GenerationKeys:
    """Keys of one generation (one precomputation)."""

    model: ModelKeys
    name: str

    def _key(self, part: str) -> str:
        return self.model._key(f"gen:{self.name}:{part}")

    fixed = _Key("fixed")
    """Hash: theta_b, penalty, info (JSON)."""

    factor = _Key("factor")
    """String: L, d x d float64, row major."""

    V = _Key("V")
    """List: the rows of V, a sign byte and d float64 each."""

    Q = _Key("Q")
    """List: the rows of Q."""

    changed = _Key("changed")
    """List: row ids inserted or corrected since it became live, in the order of commits."""

    sums = _Key("sums")
    """Hash: sums over the live rows, of a model with preprocessing."""

    @cached_property
    def _rows(self) -> list[str]:
        return [self._key(f"rows:{shard}") for shard in range(SHARDS)]

    def rows(self, shard: int) -> str:
        """Return the key of one shard of row records (hash)."""
        return self._rows[shard]

    def every_rows(self) -> list[str]:
        """Return the keys of all shards of row records."""
        return list(self._rows)

    def row_keys(self, shard: int) -> str:
        """Return the key, in the store of row keys, of one shard of them (hash)."""
        return self._key(f"row-keys:{shard}")

    def required(self) -> list[str]:
        """Return the keys that every generation has."""
        return [self.fixed, self.factor]

    def optional(self) -> list[str]:
        """Return the keys that are absent while they are empty."""
        return [self.V, self.Q, self.sums, *self.every_rows()]

    def everything(self) -> list[str]:
        """Return all keys, to expire or to remove."""
        return [*self.required(), *self.optional(), self.changed]


@dataclass(frozen=True)
class DatasetKeys:
    """Keys of one registration's data: its rows, and whose they are."""

    model: ModelKeys
    name: str

    def _key(self, part: str) -> str:
        return self.model._key(f"data:{self.name}:{part}")

    ids = _Key("ids")
    """List: row ids in the order of the file."""

    subjects = _Key("subjects")
    """Hash: subject id to a JSON list of row ids."""

    disclosed = _Key("disclosed")
    """Hash: row id to what versions have disclosed of it (`engine.store.layout.disclosed`)."""

    def everything(self) -> list[str]:
        """Return all keys."""
        return [self.ids, self.subjects, self.disclosed]


# Few models are busy at a time, and their requests need the same names again and again.
_KEPT = 4096
_generation_keys = lru_cache(_KEPT)(GenerationKeys)
_dataset_keys = lru_cache(_KEPT)(DatasetKeys)


# -- the partition of a key -----------------------------------------------------------------------

# murmur2, as in Kafka's Java client and kafka-python. Every log uses it, so that a key lies in the
# same partition wherever the workers run. It is written out here because single-node mode must not
# pay for importing a Kafka client.
_SEED = 0x9747B28C
_M = 0x5BD1E995
_R = 24
_MASK = 0xFFFFFFFF


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


# Keys are model ids of at most 128 characters: what is kept of them is about 1 MiB, and saves 10 to
# 40 microseconds a message.
@lru_cache(_KEPT)
def partition_index(key: bytes, partitions: int) -> int:
    """Return the index, from 0, of the partition that holds ``key`` among ``partitions``."""
    if partitions < 1:
        raise ValueError(f"a topic has at least one partition, not {partitions}")
    return (murmur2(key) & 0x7FFFFFFF) % partitions


@lru_cache(_KEPT)
def commit_partition(model_id: str) -> int:
    """Return the index of the commits partition that a model belongs to."""
    return partition_index(model_id.encode(), COMMIT_PARTITIONS)
