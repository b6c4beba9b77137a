"""The one way back: the store is brought to what the log says, and what was not published is.

After a crash, a failover, a restored backup, a lost answer, a refused apply, or another worker's
append, the commits partition is read from the lower of its two cursors to its end, and every record
that counts is applied and published again, as far as it can be repeated. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from lethe.consumers.commits.commit import Commit, CommitKind, Sealed
from lethe.consumers.commits.counted import OpenRecord, count, read_open
from lethe.consumers.commits.fold_lease import FoldLease
from lethe.consumers.commits.journal import (
    Followed,
    Tail,
    check_tail,
    commit_partitions,
    read_records,
)
from lethe.consumers.commits.publish import messages_of, newest_parameters
from lethe.consumers.commits.record import UNOPENED, Framed, open_commit
from lethe.consumers.commits.replay import Replay, forgotten, parts_of, too_old
from lethe.consumers.commits.shred import shred
from lethe.consumers.commits.state_cache import StateCache
from lethe.consumers.contract import topics
from lethe.consumers.contract.published_versions import versioned_models
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.contract.signatures import TrustedKeys
from lethe.consumers.log.base import Partition, Producer, Reader
from lethe.consumers.service.progress import Progress, no_progress
from lethe.consumers.service.steps import AtStep, Step, no_hook
from lethe.engine.errors import CommitConflict, CorruptState, LetheError, LogReset, Unavailable
from lethe.engine.store.apply import Applied, Change, Place
from lethe.engine.store.cursors import Pair, PartitionCursors
from lethe.engine.store.head import ModelConfig
from lethe.engine.store.keys import PartitionKeys
from lethe.engine.store.partition import commit_partition
from lethe.engine.store.state import Head
from lethe.engine.store.store import Answer, ModelStore, corrupt

_TRIES = 5  # while the store goes back again and again
_GONE_BACK = (Applied.BEHIND, Applied.ARRAYS, Applied.ROWS)
_RUN = 64
"""Commits whose rows are read, and that are applied, in one round trip."""
_LONG = 2 * _RUN
"""Commits of which one worker at a time folds more."""
_WAITING = "waiting for another worker to bring the store up to date"


@dataclass(frozen=True, slots=True)
class Folded:
    """What a fold came to.

    Attributes
    ----------
    followed
        The partition, for appending to it.
    halted
        By model: why a person must look.
    lost
        Models with fewer row records than live rows (DATA_LOST).
    applied, published
        How many commits were.
    """

    followed: Followed
    halted: Mapping[str, LetheError] = field(default_factory=dict)
    lost: frozenset[str] = frozenset()
    applied: int = 0
    published: int = 0


class _Moved(Exception):
    """The store went back while it was folded, or a model halted amid it: begin anew.

    ``halted`` are models whose commits are left out from the start.
    """

    def __init__(self, halted: Mapping[str, LetheError]) -> None:
        super().__init__()
        self.halted = halted


def reset(model_id: str, head: Head) -> LogReset:
    """Return the error of a model whose newest commit the log does not have any more."""
    return LogReset(
        f"model {model_id!r}: the store holds commit {head.commit}, and another record, or none, "
        f"lies at its offset {head.offset} of {topics.COMMITS}: the log lost commits. Restore it, "
        "or run `lethe recover`"
    )


class Fold:
    """Folds commits partitions into a store; one thread uses it.

    Parameters
    ----------
    store, reader, producer
        What is brought up to date, where commits are read, and what publishes.
    seals, trusted
        What opens commits, and who must have signed them; None: it is not asked.
    progress
        Told how far it has come.
    at_step
        Called between two writes, for tests of crashes.
    """

    def __init__(
        self,
        store: ModelStore,
        reader: Reader,
        producer: Producer,
        seals: SealKeys,
        *,
        trusted: TrustedKeys | None = None,
        progress: Progress = no_progress,
        at_step: AtStep = no_hook,
    ) -> None:
        self._store = store
        self._reader = reader
        self._producer = producer
        self._seals = seals
        self._trusted = trusted
        self.states = StateCache()
        """States of the models that were met, as they are after the fold.

        None is from before it: what is folded is the store, which may have gone back.
        """
        self._progress = progress
        self._at_step = at_step
        self._versioned: frozenset[str] | None = None

    def run(self, index: int) -> Folded:
        """Fold one commits partition.

        Raises
        ------
        LogReset
            The log has lost commits that the store holds.
        StoreUnavailable, LogUnavailable
            A server is away: try again.
        """
        keys = PartitionKeys(index)
        lease = FoldLease(self._store.client, keys, lambda: self._progress(_WAITING, 0, 0))
        try:
            return self._run(keys, lease)
        finally:
            with suppress(Unavailable):
                lease.give_up()

    def _run(self, keys: PartitionKeys, lease: FoldLease) -> Folded:
        known: Mapping[str, LetheError] = {}
        for tries in range(_TRIES, 0, -1):
            self.states.clear()
            partition = commit_partitions(self._reader)[keys.index]
            cursors, end = self._extent(keys, partition)
            if end - cursors.lowest > _LONG and lease.take():
                cursors, end = self._extent(keys, partition)  # another worker has folded it
            low = Tail(partition, cursors.cursors.apply, cursors.below, cursors.epoch)
            check_tail(self._reader, low, end)
            one = _One(self, keys, partition, cursors, end, known, lease, last=tries == 1)
            try:
                return one.run()
            except _Moved as moved:
                known = moved.halted
        raise CommitConflict(
            f"{topics.COMMITS}/{keys.index}: the store went back {_TRIES} times while it was folded"
        )

    def _extent(self, keys: PartitionKeys, partition: Partition) -> tuple[PartitionCursors, int]:
        """Return where a fold begins and where it ends."""
        return self._cursors(keys, partition), self._reader.ends([partition])[partition]

    def _cursors(self, keys: PartitionKeys, partition: Partition) -> PartitionCursors:
        """Return the cursors of a partition, and begin them where there are none.

        A store without cursors is new, or was emptied: which models there were, versions tell.
        """
        cursors = self._store.cursors.read(keys)
        if cursors.topic_id == "":
            if self._versioned is None:
                self._versioned = versioned_models(self._reader)
            named = [one for one in self._versioned if commit_partition(one) == keys.index]
            begin = self._reader.bounds(partition).begin
            self._store.cursors.begin(keys, partition.topic_id, begin, named)
            return self._store.cursors.read(keys)
        if cursors.topic_id != partition.topic_id:
            raise LogReset(
                f"{partition.topic} was made again: the store holds commits of another one of that "
                "name. Restore the log, or run `lethe recover` for each model"
            )
        return cursors


class _One:
    """The fold of one partition."""

    def __init__(
        self,
        fold: Fold,
        keys: PartitionKeys,
        partition: Partition,
        cursors: PartitionCursors,
        end: int,
        halted: Mapping[str, LetheError],
        lease: FoldLease,
        *,
        last: bool,
    ) -> None:
        self._lease = lease
        self._store = fold._store
        self._reader = fold._reader
        self._producer = fold._producer
        self._seals = fold._seals
        self._trusted = fold._trusted
        self._replay = Replay(fold._store, fold.states)
        self._progress = fold._progress
        self._at_step = fold._at_step
        self._keys = keys
        self._partition = partition
        self._cursors = cursors
        self._end = end
        self._last = last
        self._halted = dict(halted)
        self._headless: set[str] = set()
        self._resumed: dict[str, int] = {}
        self._configs: dict[str, ModelConfig] = {}
        self._applied = self._published = 0
        self._published_to = cursors.cursors.published
        tail = Tail(partition, cursors.cursors.apply, cursors.below, cursors.epoch)
        self._followed = Followed(tail, low=cursors.cursors.apply)

    def run(self) -> Folded:
        start = min(self._cursors.lowest, self._end)
        begin = self._reader.bounds(self._partition).begin
        first = max(start, begin)
        read = self._read_open(first)
        heads = self._heads(read, first)
        if start < begin:
            self._too_old(begin, heads)
        counted = count(read, heads, self._keys.index)
        for model, error in counted.gaps.items():
            self._halt(model, error)
        self._followed.heads = counted.newest
        run: list[Sealed] = []
        publish: list[Sealed] = []
        for sealed in self._opened(counted.valid):
            behind = self._cursors.of_model(sealed.commit.model_id)
            if sealed.place.offset >= behind.apply:
                run.append(sealed)
            if sealed.place.offset >= behind.published:
                publish.append(sealed)
            # Row records are read for a whole run: it ends where another generation becomes live.
            swaps = sealed.commit.kind is not CommitKind.REQUESTS
            if swaps or len(run) == _RUN or len(publish) == _RUN:
                self._apply(run)
                self._publish(publish)
                self._advance(sealed.place.offset + 1)  # a fold is long, and may be cut short
                self._lease.renew()
                run, publish = [], []
                self._progress("reading commits", sealed.place.offset, self._end)
        self._apply(run)
        self._publish(publish)
        self._finish(read)
        lost = frozenset(self._store.without_all_rows(self._keys))
        gone = {m: forgotten(m) for m in self._headless if m not in counted.newest}
        halted: Mapping[str, LetheError] = {**gone, **self._halted}
        return Folded(self._followed, halted, lost, self._applied, self._published)

    # -- reading and judging --------------------------------------------------------------------

    def _heads(self, read: list[OpenRecord], first: int) -> dict[str, Head]:
        """Return the stored newest commits; records from ``first`` on were read.

        Another worker may have applied commits beyond the end: it is read on, so that what leads
        to them is known to count. One whose commit is not where it was halts: the log has lost it.

        Raises
        ------
        _Moved
            The store has gone back since its cursors were read.
        """
        while True:
            models = {one.open.model_id for one in read} | set(self._store.models_in(self._keys))
            stored, cursors = self._store.heads(sorted(models), self._keys)
            self._headless = models - stored.keys()
            if cursors.lowest < self._cursors.lowest:
                raise _Moved({})
            heads: dict[str, Head] = {}
            for model, head in stored.items():
                if isinstance(head, Head):
                    heads[model] = head
                else:
                    self._halt(model, head)
            digests = {one.digest for one in read}
            beyond = {
                model: head
                for model, head in heads.items()
                if head.digest not in digests and head.offset >= first
            }
            if not beyond:
                return heads
            begin, self._end = self._end, self._reader.ends([self._partition])[self._partition]
            if begin == self._end:
                for model, head in beyond.items():
                    self._halt(model, reset(model, head))
                return heads
            read += self._read_open(begin)

    def _read_open(self, start: int) -> list[OpenRecord]:
        return read_open(self._reader, self._partition, start, self._end, self._progress)

    def _too_old(self, begin: int, heads: Mapping[str, Head]) -> None:
        """Halt the models that lie before what the log retains, unless they were replaced since."""
        for model in self._store.models_in(self._keys):
            pair = self._cursors.of_model(model)
            if pair.lower >= begin:
                continue
            if model in heads and heads[model].offset >= begin:
                move = self._store.cursors.move_behind
                move(self._keys, model, pair.apply, begin, published=False)
                move(self._keys, model, pair.published, begin, published=True)
            else:
                self._halt(model, too_old(model, pair.lower, self._partition, begin))

    def _opened(self, valid: Mapping[int, OpenRecord]) -> Iterable[Sealed]:
        """Yield the commits that count, in order; one that cannot be opened halts its model."""
        if not valid:
            return
        first, last = min(valid), max(valid)
        for record, framed in read_records(self._reader, self._partition, first, last + 1):
            one = valid.get(record.offset)
            if one is None or framed is None or one.open.model_id in self._halted:
                continue
            commit = self._open(one, framed, valid)
            if commit is not None:
                place = self._place(one)
                yield Sealed(commit, one.digest, one.open.key, place)

    def _open(
        self, one: OpenRecord, framed: Framed, valid: Mapping[int, OpenRecord]
    ) -> Commit | None:
        model = framed.open.model_id
        try:
            config = self._configs.get(model)
            if config is None:
                state = self._replay.state(model)
                config = None if state is None else state.meta.config
            commit = open_commit(framed, self._seals, self._trusted, config)
        except Unavailable:
            raise
        except LetheError as error:
            if isinstance(error, UNOPENED) and self._given_up(one, valid):
                return None
            self._halt(model, error)
            return None
        self._configs[model] = commit.meta.config
        return commit

    def _given_up(self, one: OpenRecord, valid: Mapping[int, OpenRecord]) -> bool:
        """Return whether a registration follows that goes on without what cannot be opened."""
        model = one.open.model_id
        if model not in self._resumed:
            checkpoints = [
                later.offset
                for later in valid.values()
                if later.open.model_id == model and later.open.checkpoint
            ]
            self._resumed[model] = max(filter(self._registers, checkpoints), default=-1)
        return one.offset < self._resumed[model]

    def _registers(self, offset: int) -> bool:
        """Return whether a registration lies at an offset."""
        for _, framed in read_records(self._reader, self._partition, offset, offset + 1):
            with suppress(CorruptState):
                commit = framed and open_commit(framed, self._seals, self._trusted, None)
                if commit and commit.kind is CommitKind.REGISTRATION:
                    return True
        return False

    def _halt(self, model_id: str, error: LetheError) -> None:
        """Let a model wait for a person; from now on the partition's cursors may pass it."""
        if model_id not in self._halted:
            self._halted[model_id] = error
            self._store.cursors.note_behind(self._keys, model_id)

    def _place(self, one: OpenRecord) -> Place:
        """Return where a record lies; below the apply cursor nothing of it moves a cursor."""
        if one.offset < self._cursors.cursors.apply:
            low = self._cursors.of_model(one.open.model_id).apply
            followed = self._followed.lows
            place = Place(
                one.offset, one.epoch, one.offset + 1, followed.get(one.open.model_id, low)
            )
            followed[one.open.model_id] = one.offset + 1
            return place
        return self._followed.place(one.open.model_id, one.offset, one.epoch)

    # -- applying -------------------------------------------------------------------------------

    def _apply(self, run: Sequence[Sealed]) -> None:
        for part in parts_of(run):
            self._apply_part(part)

    def _apply_part(self, part: Sequence[Sealed]) -> None:
        """Apply commits whose rows lie in one generation for each model."""
        records = self._records(part)
        waiting: list[tuple[Sealed, Change]] = []
        for sealed in part:
            if sealed.commit.model_id in self._halted:
                continue
            try:
                change = self._replay.change(sealed, records)
            except Unavailable:
                raise
            except LetheError as error:
                self._leave_out(sealed.commit.model_id, error)
                continue
            waiting.append((sealed, change))
        self._send(waiting)

    def _records(self, run: Sequence[Sealed]) -> dict[str, dict[str, bytes]]:
        """Return the row records that a run of commits needs, by model."""
        rows: dict[str, list[str]] = {}
        for sealed in run:
            if sealed.commit.kind is CommitKind.REQUESTS:
                rows.setdefault(sealed.commit.model_id, []).extend(sealed.commit.erased)
        found = {}
        for model, named in rows.items():
            if model in self._halted:
                continue
            try:
                state = self._replay.state(model)
                if state is not None and named and not state.awaiting_rebuild:
                    found[model] = self._store.records_if_there(state.generation_keys, named)
            except Unavailable:
                raise
            except LetheError as error:
                self._halt(model, error)
        return found

    def _send(self, waiting: list[tuple[Sealed, Change]]) -> None:
        """Apply changes in one round trip, and look at what came of them."""
        if not waiting:
            return
        self._at_step(Step.FOLD_APPLY)
        answers, _ = self._store.apply([self._over_halted(change) for _, change in waiting])
        for (sealed, change), answer in zip(waiting, answers, strict=True):
            if answer.done:
                self._done(sealed, change)
            elif sealed.commit.model_id not in self._halted:
                self._again(sealed, change, answer)
        waiting.clear()

    def _over_halted(self, change: Change) -> Change:
        """Return a change that notes halted models before the cursor passes their commits.

        That they were noted before may have been lost with the store's last writes.
        """
        if not self._halted:
            return change
        return replace(change, place=replace(change.place, halted=tuple(sorted(self._halted))))

    def _again(self, sealed: Sealed, change: Change, answer: Answer) -> None:
        """Apply once more what was refused, from what is stored by now; or halt its model."""
        model = sealed.commit.model_id
        self._replay.forget(model)
        try:
            change = self._replay.change(sealed, self._records([sealed]))
            [answer], _ = self._store.apply([self._over_halted(change)])
        except Unavailable:
            raise
        except LetheError as error:
            self._leave_out(model, error)
            return
        if answer.done:
            self._done(sealed, change)
            return
        self._replay.forget(model)
        if not self._last and answer.applied in _GONE_BACK:
            raise _Moved({})
        self._leave_out(model, corrupt(change, f"{answer.applied}: {answer.found}"))

    def _leave_out(self, model_id: str, error: LetheError) -> None:
        """Halt a model some of whose commits are behind others by now: the cursor waits for it."""
        self._halt(model_id, error)
        if not self._last:
            raise _Moved(self._halted)

    def _done(self, sealed: Sealed, change: Change) -> None:
        """Count a commit that is applied, and drop the keys of the rows that it erased."""
        self._applied += 1
        self._shred(sealed.commit, change.live.name)

    def _shred(self, commit: Commit, former: str) -> None:
        if self._store.row_keys is not None:
            state = self._replay.state(commit.model_id)
            live = "" if state is None else state.rows
            shred(self._store, commit, former, live, self._at_step)

    # -- publishing -----------------------------------------------------------------------------

    def _publish(self, sealed: Sequence[Sealed]) -> None:
        told = [one for one in sealed if one.commit.model_id not in self._halted]
        if not told:
            return
        for one in told:  # whoever applied it may have died before it dropped the keys
            self._shred(one.commit, "")
        self._at_step(Step.FOLD_PUBLISH)
        self._producer.publish(messages_of([one.commit for one in told]))
        self._published += len(told)

    def _advance(self, end: int) -> Pair:
        """Note that everything below ``end`` is published; return the cursors before."""
        self._at_step(Step.FOLD_ADVANCE)
        low, self._published_to = self._published_to, end
        halted = sorted(self._halted)
        return self._store.cursors.move_published(self._keys, low, end, halted=halted)

    # -- the end --------------------------------------------------------------------------------

    def _finish(self, read: Sequence[OpenRecord]) -> None:
        """Move both cursors to the end, past void records and those of halted models."""
        last = read[-1] if read and read[-1].offset == self._end - 1 else None
        below, epoch = ("", -1) if last is None else (last.digest, last.epoch)
        if self._end == self._cursors.cursors.apply:
            below, epoch = self._cursors.below, self._cursors.epoch
        low, halted = self._followed.low, sorted(self._halted)
        self._store.cursors.move_apply(
            self._keys, low, self._end, below=below, epoch=epoch, halted=halted
        )
        if self._advance(self._end).published > self._end:
            self._newest_once_more(read)
        for model in self._cursors.behind:
            if model in self._halted:
                continue
            pair = self._cursors.behind[model]
            low_of_model = self._followed.lows.get(model, pair.apply)
            self._store.cursors.move_behind(
                self._keys, model, low_of_model, self._end, published=False
            )
            self._store.cursors.move_behind(
                self._keys, model, pair.published, self._end, published=True
            )
        self._followed.low = self._end
        self._followed.tail = Tail(self._partition, self._end, below, epoch)

    def _newest_once_more(self, read: Sequence[OpenRecord]) -> None:
        """Send the newest parameters again: compaction may have kept older ones of ours."""
        models = sorted({one.open.model_id for one in read} - self._halted.keys())
        self._producer.publish(newest_parameters(self._store, models))
