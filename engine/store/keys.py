"""The names of all keys, and nothing else. docs/state.md has the table with sizes.

A model belongs to one of 16 *commits partitions*, by its id (`engine.store.partition`): its
commits lie in that partition of ``lethe.commits``. All keys of all models of one partition share a
hash tag, with the cursors that say how far the partition is applied: one script can write them
together, on a cluster too, and one failover takes them together.

Keys of a generation carry its own random name: a refresh stages a whole generation beside the
live one, and its commit only changes which of the two the head names.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from urllib.parse import quote
from zlib import crc32

from lethe.engine.store.partition import COMMIT_PARTITIONS, commit_partition

PREFIX = "lethe"

SEALS = f"{PREFIX}:seals"
"""Hash: secrets that commits are sealed with, by name, if no file holds them."""

SETTLED = f"{PREFIX}:settled"
"""String written only in order to wait until it, and so everything before it, is on disk."""

REWRITTEN = f"{PREFIX}:rewritten"
"""String: when the last completed rewrite of the server's files began."""

BOUND_LOG = f"{PREFIX}:bound-log"
"""The kind of log that the store's models are published to: versions cannot change it."""

FORMER_MODELS = f"{PREFIX}:models"
"""Set of model ids in formats before 5: if it exists, `engine.store.former` refuses the store."""

SHARDS = 8
"""Hashes that a generation's row records are spread over."""


def watermark(partition: str) -> str:
    """Return the key of a partition's watermark (below it every record is processed)."""
    return f"{PREFIX}:watermark:{partition}"


def shard_of(row_id: str) -> int:
    """Return the shard that holds a row's record."""
    return crc32(row_id.encode()) % SHARDS


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

    @cached_property
    def models(self) -> str:
        """Set: ids of the models that were ever registered."""
        return self._key("models")

    @cached_property
    def cursors(self) -> str:
        """Hash: how far the partition is applied and published (`engine.store.cursors`)."""
        return self._key("cursors")

    @cached_property
    def fold_lease(self) -> str:
        """String: who folds much of the partition now. It expires."""
        return self._key("fold-lease")

    @cached_property
    def erasures(self) -> str:
        """Hash: when something was last erased, and when the files were last rewritten."""
        return self._key("erasures")


def every_partition() -> list[PartitionKeys]:
    """Return the keys of all commits partitions."""
    return [PartitionKeys(index) for index in range(COMMIT_PARTITIONS)]


@dataclass(frozen=True)
class ModelKeys:
    """Keys of one model."""

    model_id: str

    @classmethod
    def of_model(cls, model_id: str) -> ModelKeys:
        """Return the keys of a model (registered or not)."""
        return cls(model_id)

    @cached_property
    def partition(self) -> PartitionKeys:
        """Keys of the commits partition that the model belongs to."""
        return PartitionKeys(commit_partition(self.model_id))

    def _key(self, name: str) -> str:
        return f"{PREFIX}:{{{self.partition.tag}}}:{quote(self.model_id, safe='')}:{name}"

    @cached_property
    def head(self) -> str:
        """Hash: where the chain stands, config and meta (JSON), and the thetas (raw float64)."""
        return self._key("head")

    @cached_property
    def offsets(self) -> str:
        """Hash: ``<topic id>/<partition>`` to the next offset to process."""
        return self._key("offsets")

    @cached_property
    def ledger(self) -> str:
        """Hash: deleted row id to the version that deleted it; kept for ever."""
        return self._key("ledger")

    @cached_property
    def deletions(self) -> str:
        """List: row ids deleted since the live generation was made, in the order of commits."""
        return self._key("deletions")

    @cached_property
    def requests(self) -> str:
        """Hash: request id to its packed receipt (`consumers.commits.packed`)."""
        return self._key("requests")

    @cached_property
    def deferred(self) -> str:
        """Hash: request id to the rows that wait for a rebuild."""
        return self._key("deferred")

    @cached_property
    def retired(self) -> str:
        """Set: row ids that a --replace left out; a later file may have them again."""
        return self._key("retired")

    @cached_property
    def stagings(self) -> str:
        """Hash: names of what registrations staged to the numbers of their commits."""
        return self._key("stagings")

    @cached_property
    def pace(self) -> str:
        """Hash: how often the model was refreshed of late (expires).

        It lies beside the jobs, under an id that no job has, where refresh workers may write.
        """
        return self.job("")

    def job(self, job_id: str) -> str:
        """Return the key of a refresh job's result (hash; expires)."""
        return self._key(f"job:{job_id}")

    def generation(self, name: str) -> GenerationKeys:
        """Return the keys of one generation."""
        return GenerationKeys(self, name)

    def dataset(self, name: str) -> DatasetKeys:
        """Return the keys of one registration's data."""
        return DatasetKeys(self, name)


@dataclass(frozen=True)
class GenerationKeys:
    """Keys of one generation (one precomputation)."""

    model: ModelKeys
    name: str

    def _key(self, part: str) -> str:
        return self.model._key(f"gen:{self.name}:{part}")

    @cached_property
    def fixed(self) -> str:
        """Hash: theta_b, penalty, info (JSON)."""
        return self._key("fixed")

    @cached_property
    def factor(self) -> str:
        """String: L, d x d float64, row major."""
        return self._key("factor")

    @cached_property
    def V(self) -> str:
        """List: the rows of V, a sign byte and d float64 each."""
        return self._key("V")

    @cached_property
    def Q(self) -> str:
        """List: the rows of Q."""
        return self._key("Q")

    def rows(self, shard: int) -> str:
        """Return the key of one shard of row records (hash)."""
        return self._key(f"rows:{shard}")

    def every_rows(self) -> list[str]:
        """Return the keys of all shards of row records."""
        return [self.rows(shard) for shard in range(SHARDS)]

    def row_keys(self, shard: int) -> str:
        """Return the key, in the store of row keys, of one shard of them (hash)."""
        return self._key(f"row-keys:{shard}")

    def required(self) -> list[str]:
        """Return the keys that every generation has."""
        return [self.fixed, self.factor]

    def optional(self) -> list[str]:
        """Return the keys that are absent while they are empty."""
        return [self.V, self.Q, *self.every_rows()]

    def everything(self) -> list[str]:
        """Return all keys, to expire or to remove."""
        return [*self.required(), *self.optional()]


@dataclass(frozen=True)
class DatasetKeys:
    """Keys of one registration's data: its rows, and whose they are."""

    model: ModelKeys
    name: str

    @cached_property
    def ids(self) -> str:
        """List: row ids in the order of the file."""
        return self.model._key(f"data:{self.name}:ids")

    @cached_property
    def subjects(self) -> str:
        """Hash: subject id to a JSON list of row ids."""
        return self.model._key(f"data:{self.name}:subjects")

    def everything(self) -> list[str]:
        """Return all keys."""
        return [self.ids, self.subjects]
