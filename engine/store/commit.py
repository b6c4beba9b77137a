"""Step 5 of an event's way to a version: the arguments of ``commit.lua``.

A `Commit` says all that changes, as values; `Commit.call` lays them out for the script. The
script refuses with what it found instead if anything differs from what was loaded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from engine.store.keys import GenerationKeys, ModelKeys


@dataclass(frozen=True, slots=True)
class Expected:
    """What was loaded; the commit happens only if it still stands.

    ``next_offset`` is that of the commit's partition, None where nothing of it was decided.
    ``deletions`` is the length of the list of deletions, ``receipts`` that of the receipt log;
    None where it is not known.
    """

    commit_seq: int
    version: int
    digest: str
    next_offset: int | None = None
    deletions: int | None = None
    receipts: int | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """One transition of a model's state.

    Attributes
    ----------
    keys, generation
        Where; V and Q of ``generation`` are appended to (a new one, when ``persist`` is given).
    expected
        What was loaded.
    partition, next_offset
        The partition whose records this decides, and the first offset that it does not.
    head
        Fields of the head to replace.
    V_rows, Q_rows, v_before, q_before, clear_Q
        Rows to append, the lengths before (paired assertion), whether Q is emptied first.
    deleted, deleted_version
        Row ids for the ledger; the script refuses one that is there already.
    deleted_versions
        By row id: the version that deleted it, where it is another one (adopted from the log).
    receipt_log, log_kept
        Leaf hashes to append to the receipt log; how many of its first it keeps before that, None
        for all.
    retired
        Row ids that a --replace leaves out.
    erase
        Row records to erase after the commit.
    requests
        Request id to stored receipt (``F`` or ``P`` before the JSON); a final one never changes,
    replaces_finals
        but where nobody has published it, and a --replace gives another (`consumers.cut_off`).
    deferred, undeferred
        Requests that begin or cease to wait for a rebuild.
    outbox
        Encoded messages, in the order of publication.
    withdrawn
        Ids of entries of the outbox that must not be published any more; the script refuses one
        that is not there, because it may have been.
    parameters
        The newest parameters event, or None.
    persist
        Keys of a staged generation that becomes live.
    discarded
        Names of generations or data sets that cease to be live.
    expire_seconds
        Time to live of all of it, for a model that is not registered; any commit of another kind
        lifts it.
    """

    keys: ModelKeys
    generation: GenerationKeys
    expected: Expected
    partition: str = ""
    next_offset: int = 0
    head: Mapping[str, bytes] = field(default_factory=dict)
    V_rows: Sequence[bytes] = ()
    Q_rows: Sequence[bytes] = ()
    v_before: int = 0
    q_before: int = 0
    clear_Q: bool = False
    deleted: Sequence[str] = ()
    deleted_version: int = -1
    deleted_versions: Mapping[str, int] = field(default_factory=dict)
    receipt_log: Sequence[bytes] = ()
    log_kept: int | None = None
    retired: Sequence[str] = ()
    erase: Sequence[str] = ()
    requests: Mapping[str, str] = field(default_factory=dict)
    replaces_finals: bool = False
    deferred: Mapping[str, str] = field(default_factory=dict)
    undeferred: Sequence[str] = ()
    outbox: Sequence[bytes] = ()
    withdrawn: Sequence[str] = ()
    parameters: bytes | None = None
    persist: Sequence[str] = ()
    discarded: Sequence[str] = ()
    expire_seconds: int | None = None

    def call(self) -> tuple[list[str], list[bytes]]:
        """Return the script's KEYS and ARGV."""
        k, g = self.keys, self.generation
        keys = [k.head, k.offsets, k.ledger, k.deletions, k.requests, k.deferred, k.outbox]
        keys += [k.erase, k.retired, k.parameters, k.discarded, g.V, g.Q, k.receipt_log]
        keys += self.persist
        expected = self.expected
        offset = expected.next_offset
        manifest = {
            "expected": {
                "commit_seq": str(expected.commit_seq),
                "version": str(expected.version),
                "digest": expected.digest,
                "next_offset": "" if offset is None else str(offset),
            },
            "partition": self.partition,
            "next_offset": str(self.next_offset),
            "head": len(self.head),
            "v": len(self.V_rows),
            "q": len(self.Q_rows),
            "v_before": self.v_before,
            "q_before": self.q_before,
            **({} if expected.deletions is None else {"deletions_before": expected.deletions}),
            **({} if expected.receipts is None else {"log_before": expected.receipts}),
            "clear_q": self.clear_Q,
            "log": len(self.receipt_log),
            **({} if self.log_kept is None else {"log_kept": self.log_kept}),
            "deleted": list(self.deleted),
            "deleted_version": str(self.deleted_version),
            "deleted_versions": {row: str(v) for row, v in self.deleted_versions.items()},
            "retired": list(self.retired),
            "erase": list(self.erase),
            "requests": [text for pair in self.requests.items() for text in pair],
            "replaces_finals": self.replaces_finals,
            "withdrawn": list(self.withdrawn),
            "deferred": [text for pair in self.deferred.items() for text in pair],
            "undeferred": list(self.undeferred),
            "discarded": list(self.discarded),
            "expire": self.expire_seconds or 0,
            "outbox": len(self.outbox),
            "parameters": 0 if self.parameters is None else 1,
        }
        arguments = [json.dumps(manifest, ensure_ascii=False).encode()]
        for name, value in self.head.items():
            arguments += [name.encode(), value]
        arguments += [*self.V_rows, *self.Q_rows, *self.receipt_log, *self.outbox]
        if self.parameters is not None:
            arguments.append(self.parameters)
        return keys, arguments


@cache
def script() -> str:
    """Return the text of ``commit.lua``."""
    return files("engine.store").joinpath("commit.lua").read_text(encoding="utf-8")
