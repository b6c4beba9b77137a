"""What a registration takes over from the model that it replaces, and from published history."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from consumers.cut_off import Branch
from consumers.events import Version
from engine.errors import CorruptState, VersionFork
from engine.merkle import Frontier, root_of
from engine.store.predecessor import Members, Predecessor
from engine.store.receipt_log import ReceiptLog
from engine.store.state import Deferred


@dataclass(frozen=True, slots=True)
class Tip:
    """The version that the next one links to, and the generation before the next one."""

    version: int
    digest: str
    generation: int
    rows_deleted: int


def tip(before: Predecessor, published: Version | None, branch: Branch | None = None) -> Tip:
    """Return where the chain goes on: at what the store holds, or at what was published.

    ``published`` must have been read before ``before``: then it is ahead of a sound store never,
    and of one that has lost writes until the chain has gone on from it. From a store with a
    ``branch`` it never goes on.
    """
    meta, stored = before.meta, before.expected
    generation = -1 if meta is None else meta.generation
    rows_deleted = 0 if meta is None else meta.rows_deleted
    if published is not None:
        generation = max(generation, published.generation)
        if meta is None and before.registered:
            rows_deleted = published.rows_deleted
        if branch is not None:
            if branch.continues:
                rows_deleted = published.rows_deleted + branch.rows_deleted
            return Tip(published.version, published.digest, generation, rows_deleted)
        if is_fork(before, published):
            return Tip(published.version, published.digest, generation, rows_deleted)
    return Tip(stored.version, stored.digest, generation, rows_deleted)


def is_fork(before: Predecessor, published: Version | None) -> bool:
    """Return whether published history says more, or otherwise, than the store."""
    if published is None or published.version < before.version:
        return False
    return (published.version, published.digest) != (before.version, before.expected.digest)


def continued_log(
    before: Predecessor, published: Version | None, leaves: Callable[[], Sequence[bytes]]
) -> ReceiptLog:
    """Return the log of receipts that the next version goes on with.

    It is the stored one, where that is what was published. A store that has lost receipts of the
    log cannot go on with it: the log begins anew, and every reader sees its size go back.
    ``leaves`` reads the stored list, which is needed only where the head cannot be believed.
    """
    stored = None if before.meta is None else before.meta.receipt_log
    fits = stored is not None and stored.size == before.expected.receipts
    if stored is not None and fits and not is_fork(before, published):
        return stored
    head = None if published is None else published.receipt_log
    try:
        found = leaves()
    except CorruptState:
        return ReceiptLog()
    kept = head is None or root_of(found[: head.size]).hex() == head.root
    return ReceiptLog.of(Frontier().appended(found)) if kept else ReceiptLog()


def fork(before: Predecessor, published: Version) -> VersionFork:
    """Return the error of a registration that does not replace what was published."""
    held = f"version {before.version}" if before.registered else "nothing of it"
    same = " with another digest" * (published.version == before.version)
    return VersionFork(
        f"model {published.model_id!r}: version {published.version} was published and the store "
        f"holds {held}{same}: it has lost writes. Restore it from a backup, or use --replace to "
        "go on from the published version, with a file without the rows that were deleted: the "
        "store has forgotten them"
    )


def still_deferred(deferred: Mapping[str, Deferred], new: Collection[str]) -> dict[str, Deferred]:
    """Return the requests that wait for a rebuild, their rows divided by the new file.

    A row that it lacks is retired; one that an earlier file lacked, and this one has again, is
    live again and has to be deleted.
    """
    divided = {}
    for name, request in deferred.items():
        rows = dict.fromkeys((*request.row_ids, *request.retired))
        divided[name] = request.model_copy(
            update={
                "row_ids": tuple(row for row in rows if row in new),
                "retired": tuple(row for row in rows if row not in new),
            }
        )
    return divided


def with_former_rows(
    subjects: Mapping[str, Sequence[str]], members: Members, new: Collection[str]
) -> dict[str, list[str]]:
    """Return subjects with the rows that the new file lacks, or may not bring back.

    A request by subject must still find them: for a retired row it keeps a later file from
    bringing it back, for a deleted one it is answered ALREADY_APPLIED.
    """
    merged = {subject: list(rows) for subject, rows in subjects.items()}
    for subject, rows in members.subjects.items():
        held = set(merged.get(subject, ()))
        former = [row for row in rows if row not in new and row not in held]
        if former:
            merged.setdefault(subject, []).extend(former)
    return merged
