"""What a registration takes over from the model it replaces, and from published history."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from lethe.consumers.commits.receipt_index import kept_receipts, leaves_of
from lethe.consumers.contract.published_versions import newest_version
from lethe.consumers.log.base import Reader
from lethe.consumers.suppression.marks import DEFAULT_NAMESPACE
from lethe.engine.errors import CorruptState
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.records import ReceiptLog
from lethe.engine.store.layout.state import DeferredRequest, Head
from lethe.engine.store.offline.predecessor import Members, Predecessor
from lethe.engine.store.store import ModelStore


@dataclass(frozen=True, slots=True)
class Tip:
    """The newest generation, and how many rows were deleted so far."""

    generation: int
    rows_deleted: int


def tip_of(reader: Reader, before: Predecessor) -> Tip:
    """Return the counts that the next version continues.

    If neither head nor commits have them, they come from the newest published version; except the
    number of deletions, if the model's ledger is forgotten.
    """
    if before.meta is not None:
        return Tip(before.meta.generation, before.meta.rows_deleted)
    published = None
    if before.head.commit >= 0:
        published = newest_version(reader, before.keys.model_id)
    if published is None:
        return Tip(-1, 0)
    return Tip(published.generation, published.rows_deleted if before.head.digest else 0)


def continued_log(store: ModelStore, before: Predecessor) -> ReceiptLog:
    """Return the receipt log that the next version continues.

    If the head cannot be read, it is rebuilt from the receipts in the index. If these are
    incomplete, a new log begins, and every reader sees its size go back.
    """
    if before.meta is not None and before.meta.receipt_log is not None:
        return before.meta.receipt_log
    try:
        places = [kept.place for _, kept in kept_receipts(store, before.keys) if kept.final]
        return ReceiptLog().appended(leaves_of(store, before.keys, len(places)))
    except CorruptState:
        return ReceiptLog()


def continue_from_published(reader: Reader, before: Predecessor, *, accept: bool) -> Predecessor:
    """Return where to continue a model whose commits neither the store nor the log has in full.

    Its versions are retained for ever, and numbering continues from them. Its deletions are not.

    Raises
    ------
    CorruptState
        Versions of it were published, and nobody has accepted that older deletions are forgotten.
    """
    published = newest_version(reader, before.keys.model_id)
    if published is None:
        return before
    if published.version <= before.version and accept:
        # The open part of a commit does not have the digest of its version. A version that was not
        # published by now never will be: its number is free.
        unlinked = replace(before, version=published.version, digest=published.digest)
        return before if before.digest else unlinked
    if not accept:
        raise CorruptState(
            f"model {before.keys.model_id!r}: version {published.version} was published, and "
            "neither the store nor the log has all commits of the model any more: nobody knows "
            "which rows were deleted. Restore a backup, or run `lethe register --replace "
            "--accept-forgotten` with a file that has none of those rows"
        )
    return replace(
        before,
        head=Head(max(published.commit, before.head.commit), before.head.digest),
        version=published.version,
        digest=published.digest,
    )


def requests_of_other_namespaces(
    deferred: Mapping[str, DeferredRequest], config: ModelConfig
) -> dict[str, DeferredRequest]:
    """Return the deferred requests about subjects of another namespace than the model's now.

    The same ids are other people's: the registration answers these requests, and deletes nothing.
    """
    return {
        name: request
        for name, request in deferred.items()
        if not config.has_subjects_of(request.namespace)
    }


def still_deferred(
    deferred: Mapping[str, DeferredRequest], config: ModelConfig, new: Collection[str]
) -> dict[str, DeferredRequest]:
    """Return the requests that stay deferred, with their rows divided by the new file.

    A row that the file lacks is retired; a row that an earlier file lacked and this one has is live
    again and must be deleted.
    """
    divided, answered = {}, requests_of_other_namespaces(deferred, config)
    for name, request in deferred.items():
        if name in answered:
            continue
        rows = dict.fromkeys((*request.row_ids, *request.retired))
        divided[name] = request.model_copy(
            update={
                "row_ids": tuple(row for row in rows if row in new),
                "retired": tuple(row for row in rows if row not in new),
            }
        )
    return divided


def with_former_rows(
    before: Predecessor,
    config: ModelConfig,
    subjects: Mapping[str, Sequence[str]],
    members: Members,
    new: Collection[str],
) -> dict[str, list[str]]:
    """Return subjects with their former rows, which the new file lacks or must not bring back.

    A request by subject must still find these: it keeps a later file from bringing back a retired
    row, and for a deleted row it is answered ALREADY_APPLIED. The subjects of another namespace are
    other people: they have no part in it.
    """
    merged = {subject: list(rows) for subject, rows in subjects.items()}
    namespace = config.subject_namespace or DEFAULT_NAMESPACE
    if before.meta is not None and not before.meta.config.has_subjects_of(namespace):
        return merged
    for subject, rows in members.subjects.items():
        current = set(merged.get(subject, ()))
        former = [row for row in rows if row not in new and row not in current]
        if former:
            merged.setdefault(subject, []).extend(former)
    return merged
