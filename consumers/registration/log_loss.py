"""The last resort after the log lost commits: continue from what the store holds.

A person decides (`lethe recover`). For each model whose log does not end with the store's commit, a
checkpoint is appended: it continues the model's last commit that the log still has, its number is
above every number ever seen, and it states everything that the store knows. Whoever follows the log
from there, with any backup of the store, arrives at the same model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lethe.consumers.commits.apply import checkpoint_change
from lethe.consumers.commits.commit import Commit, CommitKind, KeptReceipt, LoggedCommit
from lethe.consumers.commits.journal import (
    Followed,
    LogGap,
    Tail,
    commit_partitions,
    read_records,
)
from lethe.consumers.commits.receipt_index import kept_receipts
from lethe.consumers.commits.record import open_commit
from lethe.consumers.commits.recovery.counted import LogTip, OpenRecord, log_tip
from lethe.consumers.contract import codes, topics
from lethe.consumers.contract.published_versions import newest_version
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.contract.signed_log import is_believed
from lethe.consumers.log.scan import scan_topic
from lethe.consumers.registration.committer import Committer
from lethe.engine.errors import CommitConflict, CorruptState, InvalidData, LogReset, UnknownModel
from lethe.engine.store.apply import corrupt
from lethe.engine.store.cursors import Pair
from lethe.engine.store.generation import thetas_of
from lethe.engine.store.layout.keys import PartitionKeys, commit_partition
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.membership import models_in
from lethe.engine.store.server.connection import reachable, text
from lethe.engine.store.server.pipeline import CHUNK


@dataclass(frozen=True, slots=True)
class Plan:
    """What a recovery would do, for a person to approve.

    Attributes
    ----------
    index, tail
        The commits partition, and its end.
    models
        The models that get a checkpoint: what the store holds, and where the log ends.
    restart
        Where the partition's cursors restart; None: they are right.
    """

    index: int
    tail: Tail
    models: Sequence[tuple[ModelState, LogTip]]
    restart: int | None = None


class Recovery(Committer):
    """Recovers models, while no worker runs; its parameters are those of a `Committer`.

    It appends as registration does. A checkpoint that the store refuses is an error: a fold, which
    applies what registration could not, cannot follow a log that lost commits. Workers publish it.
    """

    def plan(self, model_id: str) -> Plan:
        """Find out what was lost; changes nothing except what a fold changes.

        Raises
        ------
        UnknownModel
            The store does not hold the model.
        InvalidData
            Log and store agree: there is nothing to recover.
        CorruptState
            More was published than the store knows: recovery must not continue from it.
        """
        if self._store.load(model_id) is None:
            raise UnknownModel(
                f"the store holds nothing of model {model_id!r}: there is nothing to continue "
                "from; restore a backup, or register it again with --replace"
            )
        index = commit_partition(model_id)
        reset = self._is_reset(index, model_id)
        partition = commit_partitions(self._reader)[index]
        bounds = self._reader.bounds(partition)
        end = self._reader.ends([partition])[partition]
        log_records: dict[str, list[OpenRecord]] = {}
        last_digest, epoch = "", -1
        for record, framed in read_records(self._reader, partition, bounds.begin, end):
            epoch = -1 if record.leader_epoch is None else record.leader_epoch
            last_digest = "" if framed is None else framed.digest
            if framed is not None:
                log_record = OpenRecord(record.offset, framed.digest, framed.open)
                log_records.setdefault(framed.open.model_id, []).append(log_record)
        candidates = models_in(self._store.client, PartitionKeys(index)) if reset else [model_id]
        restart, models = end, []
        for name in candidates:
            state = self._state(name, needed=name == model_id)
            if state is None:
                continue
            tip = log_tip(log_records.get(name, []), state.head, index)
            if tip.lost(state.head) or (not reset and tip.next is None):
                self._check_published(state)
                models.append((state, tip))
            elif tip.next is not None:
                restart = min(restart, tip.next)
        if not models and not reset:
            raise _nothing_to_recover(model_id)
        tail = Tail(partition, end, last_digest, epoch)
        return Plan(index, tail, models, restart if reset else None)

    def run(self, plan: Plan) -> list[LoggedCommit]:
        """Append the checkpoints, apply them, and let workers resume; return the commits.

        Raises
        ------
        CommitConflict
            Somebody else has written meanwhile; the appended records are void.
        """
        low = plan.tail.offset
        heads = {state.model_id: tip.head for state, tip in plan.models}
        self._journal.follow(plan.index, Followed(plan.tail, heads, low))
        commits = [self._checkpoint(state, tip, plan.tail) for state, tip in plan.models]
        logged = self._journal.append(commits) if commits else []
        if len(logged) < len(commits):
            raise CommitConflict(
                f"{topics.COMMITS}/{plan.index}: somebody else writes to it; stop all workers, and "
                "run `lethe recover` again"
            )
        states = {state.model_id: state for state, _ in plan.models}
        changes = [
            checkpoint_change(self._store, each, states[each.commit.model_id]) for each in logged
        ]
        answers, _ = self._store.apply(changes) if changes else ([], None)
        for change, answer in zip(changes, answers, strict=True):
            if not answer.done:
                raise corrupt(change, f"{answer.applied}: {answer.found}")
        for state in states.values():
            self._store.cursors.lower_watermarks(state.offsets)
        if plan.restart is not None:
            offset = plan.restart if plan.restart < low else low + len(logged)
            topic_id = plan.tail.partition.topic_id
            self._store.cursors.restart(PartitionKeys(plan.index), topic_id, Pair(offset, offset))
            self._restart_empty()
        self._store.wait_durable()
        return logged

    def _restart_empty(self) -> None:
        """Restart the cursors of partitions without models, if the topic was recreated."""
        for partition in commit_partitions(self._reader):
            keys = PartitionKeys(partition.index)
            topic_id = self._store.cursors.read(keys).topic_id
            if topic_id not in ("", partition.topic_id) and not models_in(self._store.client, keys):
                begin = self._reader.bounds(partition).begin
                self._store.cursors.restart(keys, partition.topic_id, Pair(begin, begin))

    # -- what was lost --------------------------------------------------------------------------

    def _is_reset(self, index: int, model_id: str) -> bool:
        """Return whether the whole partition has lost commits; False: only this model has.

        Raises
        ------
        InvalidData
            Nothing has.
        """
        try:
            folded = self._follow(index)
        except LogReset:
            return True
        halt = folded.halted.get(model_id)
        if halt is None:
            raise _nothing_to_recover(model_id)
        if not isinstance(halt, LogGap):
            raise halt
        return False

    def _state(self, model_id: str, *, needed: bool) -> ModelState | None:
        """Return a model's state; None if it is damaged and not ``needed``: it stays halted."""
        try:
            return self._store.load_as_of(model_id)[0]
        except CorruptState:
            if needed:
                raise
            return None

    def _check_published(self, state: ModelState) -> None:
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
            raise _store_lacks(model_id, f"version {newest.version} was published")
        for ids in self._published_receipts(model_id):
            with reachable(self._store.client):
                kept: Any = self._store.client.hmget(state.keys.requests, list(ids))
            for (request_id, final), stored in zip(ids.items(), kept, strict=True):
                if stored is None or (final and stored[:1] == b"P"):
                    raise _store_lacks(model_id, f"request {request_id!r} was answered")

    def _published_receipts(self, model_id: str) -> Iterator[dict[str, bool]]:
        """Yield a model's requests with published receipts, in chunks, and whether one is final."""
        receipts: dict[str, bool] = {}
        key = model_id.encode()
        for record in scan_topic(self._reader, topics.RECEIPTS, self._progress):
            ours = record.key == key and is_believed(record, self._trusted)
            receipt = _receipt(record.value) if ours else None
            if receipt is not None and receipt.code != codes.UNKNOWN_MODEL:
                final = receipts.get(receipt.request_id, False) or receipt.final
                receipts[receipt.request_id] = final
            if len(receipts) >= CHUNK:
                yield receipts
                receipts = {}
        if receipts:
            yield receipts

    # -- the checkpoint -------------------------------------------------------------------------

    def _checkpoint(self, state: ModelState, tip: LogTip, tail: Tail) -> Commit:
        """Return the commit with what the store knows of a model and the log does not."""
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

    def _answers_since(self, state: ModelState, tip: LogTip, tail: Tail) -> Iterator[KeptReceipt]:
        """Yield the receipts of commits that the log has lost. Cost O(index).

        If it has lost all of the model's commits, nobody can follow it to here: the receipts of
        deferred requests are enough.
        """
        first_lost: int | None = None
        offsets = range(tip.offset, tip.offset + 1) if tip.offset >= 0 else range(0)
        for _, framed in read_records(self._reader, tail.partition, offsets.start, offsets.stop):
            if framed is not None:
                commit = open_commit(framed, self._seals, self._trusted, state.meta.config)
                log = commit.meta.receipt_log
                first_lost = 0 if log is None else log.size
        for request_id, kept in kept_receipts(self._store, state.keys):
            lost = kept.final and first_lost is not None and kept.place >= first_lost
            if lost or (not kept.final and request_id in state.deferred):
                yield KeptReceipt(kept.receipt, kept.receipt.value(), kept.body, kept.place)


def _receipt(value: bytes | None) -> Receipt | None:
    try:
        return Receipt.read(value or b"")
    except ValueError:
        return None  # not a receipt of Lethe


def _nothing_to_recover(model_id: str) -> InvalidData:
    return InvalidData(
        f"model {model_id!r}: the log has all commits that the store knows, and workers "
        "continue from them: there is nothing to recover"
    )


def _store_lacks(model_id: str, published: str) -> CorruptState:
    return CorruptState(
        f"model {model_id!r}: {published}, and the store does not know of it, so that recovery "
        "cannot continue from the store. Restore a newer backup of the store, or register the "
        "model again with --replace"
    )
