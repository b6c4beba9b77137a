"""The names of all keys, and nothing else. docs/state.md has the table with sizes.

Every key of one model's state shares a hash tag, so that the commit script runs on a cluster.
Keys of a generation carry its own random name: a refresh stages a whole generation beside the
live one, and the commit only changes which of the two the head names.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from urllib.parse import quote
from zlib import crc32

PREFIX = "lethe"
MODELS = f"{PREFIX}:models"
SETTLED = f"{PREFIX}:settled"
"""String that is written only in order to wait until it, and so all before it, is on disk."""

ERASURES = f"{PREFIX}:erasures"
"""Hash: when something was erased last, and when the last rewrite of the files began that ended."""

HALTED = f"{PREFIX}:halted"
"""Set of the models that a takeover halted: the next ones look at more of the log for them."""

BOUND_LOG = f"{PREFIX}:bound-log"
"""Which kind of log the store's models are published to: versions cannot change it."""

SHARDS = 8
"""Hashes that a generation's row records are spread over.

They lie in the model's slot with all else, because the commit that makes a generation live has to
lift their time to live with the rest.
"""


def watermark(partition: str) -> str:
    """Return the key of a partition's watermark (below it every record is decided)."""
    return f"{PREFIX}:watermark:{partition}"


def mark(partition: str) -> str:
    """Return the key of a partition's mark (what the store loses was published behind it)."""
    return f"{PREFIX}:mark:{partition}"


def shard_of(row_id: str) -> int:
    """Return the shard that holds a row's record."""
    return crc32(row_id.encode()) % SHARDS


@dataclass(frozen=True)
class ModelKeys:
    """Keys of one model. ``tag`` is what the hash tag holds: see `of_model`, `of_partition`."""

    tag: str

    @classmethod
    def of_model(cls, model_id: str) -> ModelKeys:
        """Return the keys of a model (registered or not)."""
        return cls("m." + quote(model_id, safe=""))

    @classmethod
    def of_partition(cls, partition: str) -> ModelKeys:
        """Return the keys that decide a partition's records which name no model."""
        return cls("p." + quote(partition, safe=""))

    def _key(self, name: str) -> str:
        return f"{PREFIX}:{{{self.tag}}}:{name}"

    @cached_property
    def head(self) -> str:
        """Hash: commit_seq, version, digest, meta (JSON) and the thetas (raw float64)."""
        return self._key("head")

    @cached_property
    def offsets(self) -> str:
        """Hash: ``<topic id>/<partition>`` to the next offset to decide."""
        return self._key("offsets")

    @cached_property
    def ledger(self) -> str:
        """Hash: deleted row id to the version that deleted it; kept for ever."""
        return self._key("ledger")

    @cached_property
    def deletions(self) -> str:
        """List: deleted row ids in the order of their commits."""
        return self._key("deletions")

    @cached_property
    def requests(self) -> str:
        """Hash: request id to its receipt, ``F`` (final) or ``P`` (pending) before the JSON."""
        return self._key("requests")

    @cached_property
    def receipt_log(self) -> str:
        """List: leaf hashes of the log of final receipts, in the order of their commits."""
        return self._key("receipt-log")

    @cached_property
    def deferred(self) -> str:
        """Hash: request id to the rows that wait for a rebuild."""
        return self._key("deferred")

    @cached_property
    def outbox(self) -> str:
        """Stream: what is committed and not yet acknowledged by the log."""
        return self._key("outbox")

    @cached_property
    def erase(self) -> str:
        """Set: row records still to be erased, ``<generation key>/<row id>``."""
        return self._key("erase")

    @cached_property
    def retired(self) -> str:
        """Set: row ids that a --replace left out; a later file may have them again."""
        return self._key("retired")

    @cached_property
    def parameters(self) -> str:
        """String: the newest parameters event as it was published."""
        return self._key("parameters")

    @cached_property
    def discarded(self) -> str:
        """Set: names of generations and data sets that are no longer live, still to be removed."""
        return self._key("discarded")

    @cached_property
    def pace(self) -> str:
        """Hash: how often the model was refreshed of late (expires).

        It lies beside the jobs, under the id that none has, where whoever does jobs may write.
        """
        return self.job("")

    def job(self, job_id: str) -> str:
        """Return the key of a refresh job's result (hash; expires)."""
        return self._key(f"job:{job_id}")

    def generation(self, name: str) -> GenerationKeys:
        """Return the keys of one generation."""
        return GenerationKeys(self.tag, name)

    def dataset(self, name: str) -> DatasetKeys:
        """Return the keys of one registration's data."""
        return DatasetKeys(self.tag, name)


@dataclass(frozen=True)
class GenerationKeys:
    """Keys of one generation (one precomputation)."""

    tag: str
    name: str

    def _key(self, part: str) -> str:
        return f"{PREFIX}:{{{self.tag}}}:gen:{self.name}:{part}"

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

    def row_keys(self, shard: int) -> str:
        """Return the key, in the store of row keys, of one shard of them (hash)."""
        return self._key(f"row-keys:{shard}")

    def required(self) -> list[str]:
        """Return the keys that every generation has."""
        return [self.fixed, self.factor]

    def optional(self) -> list[str]:
        """Return the keys that are absent while they hold nothing."""
        return [self.V, self.Q, *(self.rows(shard) for shard in range(SHARDS))]

    def everything(self) -> list[str]:
        """Return all keys, to expire or to remove."""
        return [*self.required(), *self.optional()]


@dataclass(frozen=True)
class DatasetKeys:
    """Keys of one registration's data: which rows there are, and whose they are."""

    tag: str
    name: str

    @cached_property
    def ids(self) -> str:
        """List: row ids in the order of the file."""
        return f"{PREFIX}:{{{self.tag}}}:data:{self.name}:ids"

    @cached_property
    def subjects(self) -> str:
        """Hash: subject id to a JSON list of row ids."""
        return f"{PREFIX}:{{{self.tag}}}:data:{self.name}:subjects"

    def everything(self) -> list[str]:
        """Return all keys."""
        return [self.ids, self.subjects]
