"""The last resort after a log lost commits: it goes on from what the store holds.

A person decides (`lethe recover`). For each model whose log does not end with the store's commit, a
checkpoint is appended: it continues the last commit of the model that the log still has, its number
is above all that were ever seen, and it says all that the store knows. Whoever follows the log from
there, with whatever backup of the store, comes to the same model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lethe.consumers.commits.apply import checkpoint_change
from lethe.consumers.commits.commit import Answer, Commit, CommitKind, Sealed
from lethe.consumers.commits.fold import Fold
from lethe.consumers.commits.journal import (
    Followed,
    Journal,
    LogGap,
    Tail,
    commit_partitions,
    read_records,
)
from lethe.consumers.commits.log_tip import LogRecord, LogTip, log_tip
from lethe.consumers.commits.receipt_index import kept_receipts
from lethe.consumers.commits.record import open_commit
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import Receipt
from lethe.consumers.contract.published_versions import newest_version
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.contract.signatures import Signer, TrustedKeys
from lethe.consumers.log.base import Producer, Reader
from lethe.consumers.log.scan import scan_topic
from lethe.consumers.service.progress import Progress, no_progress
from lethe.engine.errors import CommitConflict, CorruptState, InvalidData, LogReset, UnknownModel
from lethe.engine.store.connection import reachable, text
from lethe.engine.store.cursors import Pair
from lethe.engine.store.generation import thetas_of
from lethe.engine.store.keys import PartitionKeys
from lethe.engine.store.lookup import CHUNK
from lethe.engine.store.partition import commit_partition
from lethe.engine.store.state import ModelState
from lethe.engine.store.store import ModelStore, corrupt


@dataclass(frozen=True, slots=True)
class Plan:
    """What a recovery does, for a person to agree to.

    Attributes
    ----------
    index, tail
        Of the commits partition, and its end.
    models
        Those that get a checkpoint: what the store holds, and where the log ends.
    restart
        Where the partition's cursors begin anew; None: they are right.
    """

    index: int
    tail: Tail
    models: Sequence[tuple[ModelState, LogTip]]
    restart: int | None = None


class Recovery:
    """Recovers models; one thread uses it, while no worker runs.

    Parameters
    ----------
    store, producer, reader
        Where models live, and the log.
    seals, signer, trusted
        What commits are sealed and signed with, and who must have signed those that are read.
    progress
        Told what is done.
    """

    def __init__(
        self,
        store: ModelStore,
        producer: Producer,
        reader: Reader,
        seals: SealKeys,
        *,
        signer: Callable[[], Signer | None] = lambda: None,
        trusted: TrustedKeys | None = None,
        progress: Progress = no_progress,
    ) -> None:
        self._store = store
        self._reader = reader
        self._seals = seals
        self._trusted = trusted
        self._progress = progress
        self._journal = Journal(producer, seals, signer)
        self._fold = Fold(store, reader, producer, seals, trusted=trusted, progress=progress)

    def plan(self, model_id: str) -> Plan:
        """Find out what was lost; change nothing but what a fold changes.

        Raises
        ------
        UnknownModel
            The store does not hold the model.
        InvalidData
            Log and store go together: there is nothing to recover.
        CorruptState
            Others know more than the store: what it holds is no place to go on from.
        """
        if self._store.load(model_id) is None:
            raise UnknownModel(
                f"the store holds nothing of model {model_id!r}: there is nothing to go on from; "
                "restore a backup, or register it again with --replace"
            )
        index = commit_partition(model_id)
        reset = self._is_reset(index, model_id)
        partition = commit_partitions(self._reader)[index]
        bounds = self._reader.bounds(partition)
        end = self._reader.ends([partition])[partition]
        found: dict[str, list[LogRecord]] = {}
        below, epoch = "", -1
        for record, framed in read_records(self._reader, partition, bounds.begin, end):
            epoch = -1 if record.leader_epoch is None else record.leader_epoch
            below = "" if framed is None else framed.digest
            if framed is not None:
                one = LogRecord(record.offset, framed.digest, framed.open)
                found.setdefault(framed.open.model_id, []).append(one)
        named = self._store.models_in(PartitionKeys(index)) if reset else [model_id]
        restart, models = end, []
        for name in named:
            state = self._state(name, needed=name == model_id)
            if state is None:
                continue
            tip = log_tip(found.get(name, []), state.head, index)
            if tip.lost(state.head) or (not reset and tip.next is None):
                self._check_nobody_knows_more(state)
                models.append((state, tip))
            elif tip.next is not None:
                restart = min(restart, tip.next)
        if not models and not reset:
            raise _nothing(model_id)
        tail = Tail(partition, end, below, epoch)
        return Plan(index, tail, models, restart if reset else None)

    def run(self, plan: Plan) -> list[Sealed]:
        """Append the checkpoints, apply them, and let workers go on; return the commits.

        Raises
        ------
        CommitConflict
            Somebody else has written meanwhile; what was appended is void.
        """
        low = plan.tail.offset
        heads = {state.model_id: tip.head for state, tip in plan.models}
        self._journal.follow(plan.index, Followed(plan.tail, heads, low))
        commits = [self._checkpoint(state, tip, plan.tail) for state, tip in plan.models]
        sealed = self._journal.append(commits) if commits else []
        if len(sealed) < len(commits):
            raise CommitConflict(
                f"{topics.COMMITS}/{plan.index}: somebody else writes to it; stop all workers, and "
                "run `lethe recover` again"
            )
        states = {state.model_id: state for state, _ in plan.models}
        changes = [
            checkpoint_change(self._store, one, states[one.commit.model_id]) for one in sealed
        ]
        answers, _ = self._store.apply(changes) if changes else ([], None)
        for change, answer in zip(changes, answers, strict=True):
            if not answer.done:
                raise corrupt(change, f"{answer.applied}: {answer.found}")
        for state in states.values():
            self._store.cursors.lower_watermarks(state.offsets)
        if plan.restart is not None:
            at = plan.restart if plan.restart < low else low + len(sealed)
            topic_id = plan.tail.partition.topic_id
            self._store.cursors.restart(PartitionKeys(plan.index), topic_id, Pair(at, at))
            self._restart_empty()
        self._store.wait_durable()
        return sealed

    def _restart_empty(self) -> None:
        """Begin anew with the partitions of a topic that was made again which have no models."""
        for partition in commit_partitions(self._reader):
            keys = PartitionKeys(partition.index)
            known = self._store.cursors.read(keys).topic_id
            if known not in ("", partition.topic_id) and not self._store.models_in(keys):
                begin = self._reader.bounds(partition).begin
                self._store.cursors.restart(keys, partition.topic_id, Pair(begin, begin))

    # -- what was lost --------------------------------------------------------------------------

    def _is_reset(self, index: int, model_id: str) -> bool:
        """Return whether the whole partition has lost commits; False: this model alone.

        Raises
        ------
        InvalidData
            Neither.
        """
        try:
            folded = self._fold.run(index)
        except LogReset:
            return True
        halt = folded.halted.get(model_id)
        if halt is None:
            raise _nothing(model_id)
        if not isinstance(halt, LogGap):
            raise halt
        return False

    def _state(self, model_id: str, *, needed: bool) -> ModelState | None:
        """Return a model's state; None of another model that is damaged: it stays halted."""
        try:
            return self._store.load(model_id)
        except CorruptState:
            if needed:
                raise
            return None

    def _check_nobody_knows_more(self, state: ModelState) -> None:
        """Refuse a store that lacks what was published.

        Raises
        ------
        CorruptState
            It lacks a version, or a receipt.
        """
        model_id = state.model_id
        newest = newest_version(self._reader, model_id)
        if newest is not None and (
            newest.version > state.version
            or (newest.version == state.version and newest.digest != state.digest)
        ):
            raise _knows_more(model_id, f"version {newest.version} was published")
        for ids in self._published_receipts(model_id):
            with reachable(self._store.client):
                kept: Any = self._store.client.hmget(state.keys.requests, list(ids))
            for (request_id, final), stored in zip(ids.items(), kept, strict=True):
                if stored is None or (final and stored[:1] == b"P"):
                    raise _knows_more(model_id, f"request {request_id!r} was answered")

    def _published_receipts(self, model_id: str) -> Iterator[dict[str, bool]]:
        """Yield the requests of a model that have receipts, some at a time, and if final ones."""
        found: dict[str, bool] = {}
        key = model_id.encode()
        for record in scan_topic(self._reader, topics.RECEIPTS, self._progress):
            receipt = _receipt(record.value) if record.key == key else None
            if receipt is not None and receipt.code != "UNKNOWN_MODEL":
                final = found.get(receipt.request_id, False) or receipt.final
                found[receipt.request_id] = final
            if len(found) >= CHUNK:
                yield found
                found = {}
        if found:
            yield found

    # -- the checkpoint -------------------------------------------------------------------------

    def _checkpoint(self, state: ModelState, tip: LogTip, tail: Tail) -> Commit:
        """Return the commit that says what the store knows of a model and the log does not."""
        deleted = tuple(self._deleted_since(state, tip.version))
        return Commit(
            model_id=state.model_id,
            number=max(state.head.commit, tip.highest) + 1,
            prev=tip.head.digest,
            kind=CommitKind.CHECKPOINT,
            meta=state.meta,
            newest=state.version,
            configures=True,
            offsets=state.offsets,
            answers=tuple(self._answers_since(state, tip, tail)),
            deleted=deleted,
            erased=deleted,
            deferred=state.deferred,
            thetas=thetas_of(state.stream),
            opening=state.opening,
            skips=True,
            secret=state.secret,
            base=state.head,
            base_version=state.newest,
        )

    def _deleted_since(self, state: ModelState, version: int) -> Iterator[str]:
        """Yield the rows that versions after this one have deleted. Cost O(ledger)."""
        client = self._store.client
        with reachable(client):
            for row, deleted_by in client.hscan_iter(state.keys.ledger, count=CHUNK):
                if int(deleted_by) > version:
                    yield text(row)

    def _answers_since(self, state: ModelState, tip: LogTip, tail: Tail) -> Iterator[Answer]:
        """Yield the receipts of commits that the log has lost. Cost O(index).

        Where it has lost all of them, nobody can follow it to here: those that wait are enough.
        """
        first: int | None = None
        where = range(tip.offset, tip.offset + 1) if tip.offset >= 0 else range(0)
        for _, framed in read_records(self._reader, tail.partition, where.start, where.stop):
            if framed is not None:
                commit = open_commit(framed, self._seals, self._trusted, state.meta.config)
                log = commit.meta.receipt_log
                first = 0 if log is None else log.size
        for request_id, kept in kept_receipts(self._store, state.keys):
            lost = kept.final and first is not None and kept.place >= first
            if lost or (not kept.final and request_id in state.deferred):
                yield Answer(kept.receipt, kept.receipt.value(), kept.body, kept.place)


def _receipt(value: bytes | None) -> Receipt | None:
    try:
        return Receipt.read(value or b"")
    except ValueError:
        return None  # not ours: nobody answers with it


def _nothing(model_id: str) -> InvalidData:
    return InvalidData(
        f"model {model_id!r}: the log has all commits that the store knows, and a worker goes "
        "on from there: there is nothing to recover"
    )


def _knows_more(model_id: str, what: str) -> CorruptState:
    return CorruptState(
        f"model {model_id!r}: {what}, and the store does not know of it: it is no place to go on "
        "from. Restore a newer backup of the store, or register the model again with --replace"
    )
