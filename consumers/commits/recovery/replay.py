"""What a commit that is read from the log changes in the store, with V and Q recomputed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from lethe.consumers.commits.apply import (
    LiveGeneration,
    after_commit,
    already,
    arrays_of,
    change_of,
    checkpoint_change,
    staged_keys,
)
from lethe.consumers.commits.commit import Commit, CommitKind, LoggedCommit
from lethe.consumers.commits.recovery.catch_up import (
    larger_of_both,
    recomputed,
    swapped,
    unchanged,
)
from lethe.consumers.commits.recovery.change_requests import (
    GivenChanges,
    read_changes,
    request_in,
)
from lethe.consumers.commits.recovery.changed_rows import (
    ChangedRows,
    changed_rows,
    changed_sentinels,
    rows_moved,
)
from lethe.consumers.commits.state_cache import StateCache
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import RowsChanged
from lethe.consumers.log.base import Partition, Reader
from lethe.engine.deletion.change import RowMoves, RowsAndDuals
from lethe.engine.errors import CorruptState, IllConditioned, LogReset, RowsMissing
from lethe.engine.store.apply import RowsWritten, StoreChange
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.layout.state import Head, ModelState
from lethe.engine.store.layout.stored_rows import read_rows
from lethe.engine.store.store import ModelStore


class StoreTooOld(CorruptState):
    """The log does not reach back to what the store holds: commits in between have expired."""

    code = "STORE_TOO_OLD"


def store_too_old_error(
    model_id: str, offset: int, partition: Partition, begin: int
) -> StoreTooOld:
    """Return the error of a model whose next commits have expired."""
    return StoreTooOld(
        f"model {model_id!r}: the store is at offset {offset} of "
        f"{partition.topic}/{partition.index}, which now begins at {begin}: the commits in "
        "between have expired. Restore a newer backup, or register the model again with --replace"
    )


def head_lost_error(model_id: str) -> StoreTooOld:
    """Return the error of a model whose head is gone and made by no commit above the cursor."""
    return StoreTooOld(
        f"model {model_id!r}: the store has no head of it (its key was removed, evicted or "
        "expired, or the store is older than the log's commits), and a fold cannot make one. "
        "Restore a backup of the store: a fold follows the log from there. Or run `lethe register "
        "--replace --accept-forgotten` with a file that has none of the deleted rows; requests "
        "that wait are then answered UNKNOWN_MODEL, and have to be sent again"
    )


def log_reset_error(model_id: str, head: Head) -> LogReset:
    """Return the error of a model whose newest commit is no longer in the log."""
    return LogReset(
        f"model {model_id!r}: the store holds commit {head.commit}, but its offset {head.offset} "
        f"in {topics.COMMITS} has another record, or none: the log lost commits. Restore the log, "
        "or run `lethe recover`"
    )


class Replay:
    """Works out the changes of commits, in the order of the log, each from the state before it.

    ``states`` has the states after the changes so far; none predates the fold.
    """

    def __init__(self, store: ModelStore, states: StateCache, reader: Reader) -> None:
        self._store = store
        self._states = states
        self._reader = reader

    def forget(self, model_id: str) -> None:
        """Forget a model's state, so that it is read again."""
        self._states.drop(model_id)

    def state(self, model_id: str) -> ModelState | None:
        """Return a model's state, from memory or from the store; None if there never was one."""
        state = self._states.get(model_id)
        if state is None:
            state = self._store.load(model_id)
            if state is not None:
                self._states.put(state)
        return state

    def row_records(self, model_id: str, row_ids: Sequence[str]) -> dict[str, bytes]:
        """Return the stored records of rows."""
        state = self.state(model_id)
        if state is None or not row_ids:
            return {}
        try:
            return self._store.records_of(state, row_ids)
        except RowsMissing:  # a later commit of the log has written the files anew
            return self._store.records_if_there(state.generation_keys, row_ids)

    def read_changes(self, part: Sequence[LoggedCommit]) -> GivenChanges:
        """Return the requests whose rows commits insert or correct: 2 MiB a commit at most."""
        changes = [change for logged in part for change in logged.commit.changes]
        return read_changes(self._reader, changes)

    def change(
        self, logged: LoggedCommit, records: Mapping[str, dict[str, bytes]], given: GivenChanges
    ) -> StoreChange:
        """Return what a commit changes in the store, from what is stored now.

        ``records`` are the row records that it may need, by model; they become those after it.
        ``given`` are the requests whose rows it may insert or correct.

        Raises
        ------
        CorruptState
            The commit cannot be applied here.
        """
        commit = logged.commit
        state = self.state(commit.model_id)
        if state is not None and state.head.commit >= commit.number:
            return already(logged)
        if state is None and not commit.jumps:
            raise StoreTooOld(
                f"model {commit.model_id!r}: the store has nothing of it, and its commits in the "
                f"log begin with number {commit.number}: earlier ones have expired. Restore a "
                "backup, or register it again with --replace"
            )
        self._states.drop(commit.model_id)  # a batch puts the state after it there
        match commit.kind:
            case CommitKind.REQUESTS if state is not None and not commit.empties:
                return self._requests(logged, state, records.get(commit.model_id, {}), given)
            case CommitKind.REFRESH if commit.staged is None and not commit.empties:
                arrays = unchanged(state) if commit.clears_Q and state is not None else None
                return change_of(logged, state, arrays=arrays)
            case CommitKind.OPENING:
                return change_of(logged, state)
            case CommitKind.CHECKPOINT:
                return checkpoint_change(self._store, logged, state)
            # A registration, a compact or a rebuild makes another generation live; an
            # unregistration and a commit that empties the model leave none.
            case _:
                return self._swap(logged, state)

    def _requests(
        self,
        logged: LoggedCommit,
        state: ModelState,
        records: dict[str, bytes],
        given: GivenChanges,
    ) -> StoreChange:
        """Change the rows of a batch, with stored records and with the values that the log has.

        Without these the model waits for a rebuild. A row whose values are lost stays a member
        without a record (DATA_LOST).
        """
        commit = logged.commit
        if not (commit.erased or commit.changes):
            self._states.put(after_commit(state, logged, state, state.arrays_id))
            return change_of(logged, state)
        written, changed, moved = None, None, None
        if commit.changes:
            written, changed, moved = self._brought_in(commit, state, records, given)
        elif not state.awaiting_rebuild and records.keys() >= set(commit.erased):
            moved = RowMoves(leaving=_left_out(commit, state, records))
        after = None if moved is None else recomputed(state, commit, moved)
        if after is not None and changed is not None:
            after = replace(after, sentinels=changed_sentinels(state, changed))
        after = None if after is None else _after(state, logged, after)
        if after is None:  # everything but V and Q is as the commit says
            without = replace(state, pipeline=None)
            self._states.put(after_commit(state, logged, _without_erased(without, commit), ""))
            return change_of(logged, state, drops_arrays=True, written=written)
        arrays = arrays_of(state, after)
        change = change_of(logged, state, arrays=arrays, meta=after.meta, written=written)
        arrays_id = "" if change.arrays is None else change.arrays.renewed
        self._states.put(replace(after, arrays_id=arrays_id))
        return change

    def _brought_in(
        self,
        commit: Commit,
        state: ModelState,
        records: dict[str, bytes],
        given: GivenChanges,
    ) -> tuple[RowsWritten, ChangedRows, RowMoves | None]:
        """Return the rows that a commit inserts or corrects; ``records`` become those after it.

        The change is None if some of their values are missing, or if the model waits for a rebuild
        anyway.
        """
        steps = not state.awaiting_rebuild
        factor = (
            self._store.factors.of(state) if steps and not commit.meta.config.exact_sums else None
        )
        found = [request_in(given[change]) for change in commit.changes if change in given]
        known = [request for request in found if _has_weights(request, records)]
        changed = changed_rows(state, known, records, factor)
        written = replace(
            changed.written,
            inserted=commit.inserted,
            changed=(*commit.inserted, *commit.corrected),
        )
        whole = len(known) == len(commit.changes) and records.keys() >= set(commit.corrected)
        moved = rows_moved(state, changed, records) if steps and whole else None
        for row in commit.corrected:  # as in the store: nothing is left of what was before
            records.pop(row, None)
        records.update(written.records)
        return written, changed, moved

    def _swap(self, logged: LoggedCommit, state: ModelState | None) -> StoreChange:
        commit = logged.commit
        live = staged_keys(self._store, commit)
        former = None if state is None else state.generation_keys
        new = None if live is None else swapped(self._store, commit, live, former)
        if commit.kind is CommitKind.UNREGISTRATION:
            return change_of(logged, state, live=live, drops_arrays=True)
        if new is None and commit.kind is CommitKind.REGISTRATION and commit.staged is not None:
            # DATA_LOST. What it replaced is discarded all the same: nobody would name it again.
            # So are the remains of what it staged: half of it is as good as nothing.
            keys, name = ModelKeys(commit.model_id), commit.staged.generation
            change = change_of(
                logged, state, live=LiveGeneration(keys.generation(name), ()), drops_arrays=True
            )
            remains = [*keys.generation(name).everything(), *keys.dataset(name).everything()]
            if change.swap is None:
                raise AssertionError("a registration swaps something in")
            swap = replace(change.swap, unlink=[*change.swap.unlink, *remains])
            return replace(change, swap=swap)
        if (live is None or new is None) and commit.meta.row_files is not None:
            return self._without_staged(logged, state)
        if live is None or new is None:
            return change_of(logged, state, drops_arrays=True)
        return change_of(logged, state, live=live, arrays=new.arrays, written=new.written)

    def _without_staged(self, logged: LoggedCommit, state: ModelState | None) -> StoreChange:
        """Swap in what a refresh wrote to files, though what it staged is gone.

        Of the rows of the store only those stay that changed while it ran: the files have the
        others, and so each row that is lost is missed.
        """
        commit = logged.commit
        if commit.staged is None:
            return change_of(logged, state, drops_arrays=True)
        names = commit.staged.changed
        records: Mapping[str, bytes] = {}
        if state is not None:
            records = self._store.records_if_there(state.generation_keys, names)
        keys = ModelKeys(commit.model_id).generation(commit.staged.generation)
        return change_of(
            logged,
            state,
            live=LiveGeneration(keys, ()),
            drops_arrays=True,
            written=RowsWritten(records=records, changed=names) if names else None,
        )


def _left_out(commit: Commit, state: ModelState, records: Mapping[str, bytes]) -> RowsAndDuals:
    """Return the rows that a commit deletes, from their stored records."""
    config = commit.meta.config
    what = f"model {config.model_id!r}, rows that were deleted"
    return read_rows(config, state.pipeline, [records[row] for row in commit.erased], what).moved


def _without_erased(state: ModelState, commit: Commit) -> ModelState:
    return replace(state, sentinels=state.sentinels.without(frozenset(commit.erased)))


def _after(state: ModelState, logged: LoggedCommit, changed: ModelState) -> ModelState | None:
    """Return the state after a batch, with the arrays' id of before; None if its sums fail."""
    meta = larger_of_both(logged.commit.meta, changed.stream)
    changed = _without_erased(changed, logged.commit)
    after = after_commit(state, logged, changed, state.arrays_id, meta)
    pipeline = after.pipeline
    if pipeline is None:
        return after
    try:
        pipeline = pipeline.at(after.generation, after.stream, pipeline.answer.sums)
    except IllConditioned:
        return None
    return replace(after, pipeline=pipeline)


def _has_weights(request: RowsChanged, records: Mapping[str, bytes]) -> bool:
    """Return whether the weight of each row is known: a corrected row may keep its former one."""
    return request.op == "insert" or all(
        row.weight is not None or row.id in records for row in request.rows
    )


def parts_of(run: Sequence[LoggedCommit]) -> Iterable[Sequence[LoggedCommit]]:
    """Split commits into parts; one that may make another generation live is a part of its own."""
    part: list[LoggedCommit] = []
    for logged in run:
        if logged.commit.kind is CommitKind.REQUESTS and not logged.commit.empties:
            part.append(logged)
            continue
        yield part
        yield [logged]
        part = []
    yield part
