"""Step 7 of a request's way to a version: what one commit changes in the store.

A `StoreChange` holds it as values; `StoreChange.call` encodes it for ``apply.lua``, which refuses,
and returns what it found, if the head is not the commit that this one continues. How a commit of
the log becomes a change: `consumers.commits.apply`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.resources import files
from typing import Any

from lethe.engine.errors import CorruptState
from lethe.engine.store.layout.keys import GenerationKeys, ModelKeys, by_shard
from lethe.engine.store.server.connection import text
from lethe.engine.store.server.pipeline import Script


class Applied(StrEnum):
    """The script's answers; with all but the first two it has written nothing."""

    APPLIED = "APPLIED"
    ALREADY = "ALREADY"
    """The head has this commit or a later one; what can be repeated was applied again."""
    BEHIND = "BEHIND"
    """Commits between the head and this one are missing: fold."""
    FORK = "FORK"
    """The head is not the commit that this one continues."""
    ARRAYS = "ARRAYS"
    """V and Q are not those that the step was computed from: load, and compute it again."""
    ROWS = "ROWS"
    """Another generation is live: load again."""
    STAGED = "STAGED"
    """A staged key that should become live no longer exists."""
    CORRUPT = "CORRUPT"
    """The stored values contradict each other."""


@dataclass(frozen=True, slots=True)
class ApplyAnswer:
    """The script's answer to one change, and what it found."""

    applied: Applied
    found: str

    @property
    def done(self) -> bool:
        """Whether the head has the commit now."""
        return self.applied in (Applied.APPLIED, Applied.ALREADY)

    @classmethod
    def of(cls, answer: Any) -> ApplyAnswer:
        """Return what the script returned as an answer."""
        if isinstance(answer, CorruptState):
            return cls(Applied.CORRUPT, str(answer))
        kind, detail = answer
        return cls(Applied(text(kind)), text(detail))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a commit lies in its commits partition.

    Attributes
    ----------
    offset, epoch
        Of its record, and the leader epoch that it was read in (-1: unknown).
    previous_end
        End of the valid record before it, of any model: between them lie only void records.
    model_previous_end
        End of the same model's valid record before it.
    halted
        Halted models, which may have valid records below it that nobody has applied.
    """

    offset: int
    epoch: int = -1
    previous_end: int = 0
    model_previous_end: int = 0
    halted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ArraysChange:
    """Rows to append to V and Q of the live generation.

    Attributes
    ----------
    expected, renewed
        Ids of the arrays before and after: every write renews the id. ``expected`` None: any id
        (for a generation that becomes live).
    V_rows, Q_rows, v_before, q_before, clear_Q
        Rows to append, the lengths before (paired assertion), whether Q is emptied first.
    sums, clear_sums
        Fields to add to the hash of sums, and whether it is emptied first.
    """

    expected: str | None
    renewed: str
    V_rows: Sequence[bytes] = ()
    Q_rows: Sequence[bytes] = ()
    v_before: int = 0
    q_before: int = 0
    clear_Q: bool = False
    sums: Mapping[str, bytes] = field(default_factory=dict)
    clear_sums: bool = False


@dataclass(frozen=True, slots=True)
class Swap:
    """A staged generation (or data set) that becomes live, and what it replaces.

    Attributes
    ----------
    persist
        Keys that lose their time to live; the script refuses if one does not exist.
    unlink
        Keys to remove.
    deletions_from
        How many deletions were logged when the generation caught up last: their list starts there.
    """

    persist: Sequence[str]
    unlink: Sequence[str]
    deletions_from: int


@dataclass(frozen=True, slots=True)
class RowsWritten:
    """Rows that a commit inserts or corrects.

    Attributes
    ----------
    inserted
        Ids of the inserted rows.
    records
        By id, the records of inserted and corrected rows; without those whose values are lost.
    subjects
        By id, whose the inserted rows are, where that is known.
    changed
        Ids of all rows that were inserted or corrected, also of those without a record.
    """

    inserted: Sequence[str] = ()
    records: Mapping[str, bytes] = field(default_factory=dict)
    subjects: Mapping[str, str] = field(default_factory=dict)
    changed: Sequence[str] = ()

    def after(self, earlier: RowsWritten | None) -> RowsWritten:
        """Return these rows with those that the same commit wrote before, which are others."""
        if earlier is None:
            return self
        return RowsWritten(
            (*earlier.inserted, *self.inserted),
            {**earlier.records, **self.records},
            {**earlier.subjects, **self.subjects},
            (*earlier.changed, *self.changed),
        )


@dataclass(frozen=True, slots=True)
class DisclosedRows:
    """What a commit's version discloses of rows (docs/disclosure.md).

    Attributes
    ----------
    added
        By row id, the entry that joins those of the row (`engine.store.layout.disclosed`).
    removed
        Rows that nothing is kept of any more.
    """

    added: Mapping[str, bytes]
    removed: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class StoreChange:
    """What one commit changes.

    Attributes
    ----------
    keys, commit, prev, digest, place
        Whose commit it is, its number, the digest of the one before, its own, and where it lies.
    live
        The generation that has row records afterwards; V and Q are appended to it.
    dataset
        Name of the data set afterwards: inserted rows join it, and it keeps what is disclosed.
    rows
        Name of the generation with row records before, if records are erased from it.
    head
        Fields of the head to replace.
    offsets, lowers
        Next offsets to process, by partition; ``lowers`` lets them go back (a checkpoint).
    deleted, deleted_version
        Row ids for the ledger.
    retired
        Row ids that a --replace leaves out.
    erase
        Row ids whose records are removed.
    requests
        Request id to packed receipt, ``F`` or ``P`` first.
    deferred, undeferred, resets_deferred
        Requests that begin or stop waiting for a rebuild; whether all others stop.
    arrays
        None if V and Q do not change.
    written
        Rows inserted and corrected; None if there are none.
    tombstones
        What stands for rows that were to be deleted and were not there, to the time of its end (s).
    disclosed
        None if nothing is kept of what versions disclose, or the commit changes no row.
    swap
        None if the generation does not change.
    jump
        The head may be any earlier commit: for a registration or a checkpoint.
    repeats
        The head had this commit when the change was made: refused if the store has gone back since.
    """

    keys: ModelKeys
    commit: int
    prev: str
    digest: str
    place: Place
    live: GenerationKeys
    dataset: str = ""
    rows: str | None = None
    head: Mapping[str, bytes] = field(default_factory=dict)
    offsets: Mapping[str, int] = field(default_factory=dict)
    lowers: bool = False
    deleted: Sequence[str] = ()
    deleted_version: int = -1
    retired: Sequence[str] = ()
    erase: Sequence[str] = ()
    requests: Mapping[str, bytes] = field(default_factory=dict)
    deferred: Mapping[str, str] = field(default_factory=dict)
    undeferred: Sequence[str] = ()
    resets_deferred: bool = False
    arrays: ArraysChange | None = None
    written: RowsWritten | None = None
    tombstones: Mapping[str, int] = field(default_factory=dict)
    disclosed: DisclosedRows | None = None
    swap: Swap | None = None
    jump: bool = False
    repeats: bool = False

    def call(self) -> tuple[list[str], list[Any]]:
        """Return the script's KEYS and ARGV."""
        k, live, shards = self.keys, self.live, self.live.every_rows()
        partition = k.partition
        keys = [k.head, k.offsets, k.ledger, k.deletions, k.requests, k.deferred, k.retired]
        dataset = k.dataset(self.dataset)
        written = self.written or RowsWritten()
        disclosed = self.disclosed or DisclosedRows({})
        arrays = self.arrays or ArraysChange(None, "")
        swap = self.swap or Swap((), (), 0)
        keys += [partition.models, partition.cursors, partition.erasures, live.V, live.Q]
        keys += [dataset.ids, dataset.subjects, k.tombstones]
        keys += [live.changed, live.sums, dataset.disclosed, *shards]
        keys += [*swap.persist, *swap.unlink]
        head = dict(self.head)
        head |= {"commit": b"%d" % self.commit, "digest": self.digest.encode()}
        head["offset"] = b"%d" % self.place.offset
        manifest: dict[str, Any] = {
            "model": k.model_id,
            "commit": self.commit,
            "prev": self.prev,
            "digest": self.digest,
            "offset": self.place.offset,
            "epoch": str(self.place.epoch),
            "previous_end": self.place.previous_end,
            "model_previous_end": self.place.model_previous_end,
            "halted": list(self.place.halted),
            "jump": self.jump,
            "repeats": self.repeats,
            "dataset": self.dataset,
            "shards": len(shards),
            "persist": len(swap.persist),
            "offsets": [part for pair in self.offsets.items() for part in pair],
            "lowers": self.lowers,
            "v": len(arrays.V_rows),
            "q": len(arrays.Q_rows),
            "sums": len(arrays.sums),
            "clear_q": arrays.clear_Q,
            "clear_sums": arrays.clear_sums,
            "deleted": list(self.deleted),
            "version": str(self.deleted_version),
            "retired": list(self.retired),
            "erase": by_shard(self.erase),
            "inserted": list(written.inserted),
            "changed": list(written.changed),
            "subjects": by_subject(written.subjects),
            "written": [],
            "tombstones": [part for mark, end in self.tombstones.items() for part in (end, mark)],
            "records": len(written.records),
            "disclosed": len(disclosed.added),
            "undisclosed": list(disclosed.removed),
            "requests": len(self.requests),
            "deferred": [part for pair in self.deferred.items() for part in pair],
            "undeferred": list(self.undeferred),
            "resets_deferred": self.resets_deferred,
        }
        if self.rows is not None:
            manifest["rows"] = self.rows
        if arrays.expected is not None:
            manifest["arrays"] = arrays.expected
        if self.arrays is not None:
            manifest |= {"v_before": arrays.v_before, "q_before": arrays.q_before}
            head["arrays"] = arrays.renewed.encode()
        if self.swap is not None:
            manifest["deletions_from"] = swap.deletions_from
            head["rows"] = live.name.encode()
        rows = [*arrays.V_rows, *arrays.Q_rows]
        rows += (part for name, row in arrays.sums.items() for part in (name.encode(), row))
        for shard, names in by_shard(written.records).items():
            manifest["written"].append([shard, len(names)])
            rows += (part for row in names for part in (row.encode(), written.records[row]))
        rows += (part for row, entry in disclosed.added.items() for part in (row.encode(), entry))
        manifest["head"] = len(head)
        arguments: list[Any] = [json.dumps(manifest, ensure_ascii=False).encode()]
        for request_id, receipt in self.requests.items():
            arguments += (request_id, receipt)
        for name, value in head.items():
            arguments += (name, value)
        return keys, arguments + rows


def by_subject(subjects: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the rows of each subject, from the subject of each row."""
    rows: dict[str, list[str]] = {}
    for row, subject in subjects.items():
        rows.setdefault(subject, []).append(row)
    return rows


def corrupt(change: StoreChange, detail: str) -> CorruptState:
    """Return the error of a change that the script could not apply."""
    return CorruptState(
        f"model {change.keys.model_id!r}: commit {change.commit} cannot be applied ({detail}): the "
        "store was restored in part, or changed by hand. Restore the whole of it, or register the "
        "model again with --replace"
    )


APPLY = Script(files("lethe.engine.store").joinpath("apply.lua").read_text(encoding="utf-8"))
"""``apply.lua``."""
