"""What the log says of one model beyond what the store holds, for a replacement of the model.

A fold stops at a model that it cannot apply, or whose first commits have expired. A replacement
brings its own rows, and needs from the log only what must not be forgotten: where the chains stand,
which rows were deleted or inserted, which requests wait.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from lethe.consumers.commits.commit import Commit
from lethe.consumers.commits.frame import Framed
from lethe.consumers.commits.journal import Followed, Verdict, read_records
from lethe.consumers.commits.record import open_commit, peek_deleted
from lethe.consumers.commits.recovery.counted import Chain
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.contract.signatures import TrustedKeys
from lethe.consumers.log.base import Reader
from lethe.engine.errors import CorruptState
from lethe.engine.store.layout.meta import Meta
from lethe.engine.store.layout.state import Head
from lethe.engine.store.offline.predecessor import Predecessor


def with_unapplied(
    before: Predecessor,
    reader: Reader,
    followed: Followed,
    seals: SealKeys,
    trusted: TrustedKeys | None,
    *,
    accept: bool,
) -> Predecessor:
    """Return a predecessor brought up to date from the commits beyond its head.

    Raises
    ------
    CorruptState
        A commit cannot be opened here, so its deletions would be forgotten, and ``accept`` is not
        set.
    """
    partition = followed.tail.partition
    begin = reader.bounds(partition).begin
    for framed in _continuing(reader, followed, before, begin):
        if before.head.commit < 0 and framed.open.number > 0:
            before = replace(before, expired=True)  # earlier commits, and their deletions
        config = None if before.meta is None else before.meta.config
        try:
            if config is None and not framed.open.skips and framed.open.number > 0:
                # The configuration has expired with an earlier commit; the row ids have not.
                before = _after_open(before, framed, peek_deleted(framed, seals))
            else:
                commit = open_commit(framed, seals, trusted, config)
                before = _after(before, commit, framed.digest)
        except CorruptState:
            if not accept:
                raise
            before = replace(_after_open(before, framed, ()), expired=True)
    return before


def with_logged_meta(
    before: Predecessor,
    reader: Reader,
    followed: Followed,
    seals: SealKeys,
    trusted: TrustedKeys | None,
) -> Predecessor:
    """Return a predecessor whose own meta cannot be read, with the meta of its newest commit.

    It is unchanged if the log does not reach back to a commit that states the configuration.
    """
    tail, model_id = followed.tail, before.keys.model_id
    begin = reader.bounds(tail.partition).begin
    by_digest = {
        framed.digest: framed
        for _, framed in read_records(reader, tail.partition, begin, tail.offset)
        if framed is not None and framed.open.model_id == model_id
    }
    chain: list[Framed] = []
    digest = before.head.digest
    while digest in by_digest:
        chain.append(by_digest.pop(digest))
        digest = chain[-1].open.prev
    meta: Meta | None = None
    for framed in reversed(chain):
        try:
            config = None if meta is None else meta.config
            meta = open_commit(framed, seals, trusted, config).meta
        except CorruptState:
            meta = None
    if meta is None:
        return before
    datasets = (meta.dataset_key,) if meta.dataset_key else ()
    return replace(before, meta=meta, deletions=meta.deletions_logged, datasets=datasets)


def _continuing(
    reader: Reader, followed: Followed, before: Predecessor, begin: int
) -> Iterator[Framed]:
    """Yield the records that continue a head, or the first that another record continues."""
    tail, keys, head = followed.tail, before.keys, before.head
    if before.applied >= tail.offset and followed.heads.get(keys.model_id, head) == head:
        return
    frames = [
        framed
        for _, framed in read_records(reader, tail.partition, begin, tail.offset)
        if framed is not None and framed.open.model_id == keys.model_id
    ]
    if head.commit < 0 or before.expired:
        later = [framed for framed in frames if framed.open.number > head.commit]
        continued = {framed.open.prev for framed in later}
        first = next(
            (framed for framed in later if framed.open.number == 0 or framed.digest in continued),
            None,
        )
        if first is not None:
            head = Head(first.open.number - 1, first.open.prev)
    chain = Chain(keys.partition.index, head)
    for framed in frames:
        if chain.follow(framed.open, framed.digest) is Verdict.VALID:
            yield framed


def _after_open(before: Predecessor, framed: Framed, deleted: Collection[str]) -> Predecessor:
    """Return a predecessor after a commit whose open part and deleted rows are all that is known.

    The digest of the version that it makes, if any, is not known.
    """
    version = framed.open.version
    return replace(
        before,
        head=Head(framed.open.number, framed.digest),
        version=before.version if version is None else version,
        digest=before.digest if version is None else "",
        ledger=before.ledger | frozenset(deleted),
        deletions=before.deletions + len(deleted),
    )


def _after(before: Predecessor, commit: Commit, digest: str) -> Predecessor:
    deferred = {**before.deferred, **commit.deferred}
    if commit.jumps:
        deferred = dict(commit.deferred)
    return replace(
        before,
        head=Head(commit.number, digest),
        version=commit.newest,
        digest=before.digest if commit.tip is None else commit.tip[0],
        meta=commit.meta,
        offsets={**before.offsets, **commit.offsets},
        deferred={
            request_id: request
            for request_id, request in deferred.items()
            if request_id not in commit.undeferred
        },
        deletions=commit.meta.deletions_logged,
        ledger=before.ledger | frozenset(commit.deleted),
        inserted=before.inserted | frozenset(commit.inserted),
        secret=commit.secret or before.secret,
    )
