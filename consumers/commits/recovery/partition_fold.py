"""A fold of one commits partition: read, judge, apply, publish, and move the cursors.

It decides nothing. If the store goes back meanwhile, or a model halts in the middle, it stops with
`FoldAgain`, and `consumers.commits.recovery.fold` starts it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lethe.consumers.commits.commit import Commit, CommitKind, LoggedCommit
from lethe.consumers.commits.journal import Followed, Tail, read_records, tail_of
from lethe.consumers.commits.publish import messages_of
from lethe.consumers.commits.recovery.counted import OpenRecord, count, read_open
from lethe.consumers.commits.recovery.fold_lease import FoldLease
from lethe.consumers.commits.recovery.opener import Opener
from lethe.consumers.commits.recovery.replay import (
    Replay,
    head_lost_error,
    log_reset_error,
    parts_of,
    store_too_old_error,
)
from lethe.consumers.commits.shred import keep, shred, shreds
from lethe.consumers.commits.state_cache import StateCache
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.contract.signatures import TrustedKeys
from lethe.consumers.log.base import Partition, Producer, Reader
from lethe.consumers.service.telemetry.progress import Progress
from lethe.consumers.service.telemetry.steps import AtStep, Step
from lethe.engine.errors import LetheError, Unavailable
from lethe.engine.store.apply import Applied, ApplyAnswer, Place, StoreChange, corrupt
from lethe.engine.store.counts import lost_keys
from lethe.engine.store.cursors import PartitionCursors
from lethe.engine.store.layout.keys import PartitionKeys
from lethe.engine.store.layout.state import Head
from lethe.engine.store.lookup import read_heads
from lethe.engine.store.membership import models_in, models_that_lack_rows
from lethe.engine.store.store import ModelStore

_GONE_BACK = (Applied.BEHIND, Applied.ARRAYS, Applied.ROWS)
RUN_LENGTH = 64
"""Commits of a run: their rows are read, and they are applied, in one round trip."""


@dataclass(frozen=True, slots=True)
class Folded:
    """The outcome of a fold.

    Attributes
    ----------
    followed
        The partition, as appending to it requires.
    halted
        By model, the error that a person must look at.
    lacking
        Models with fewer row records than live rows (DATA_LOST).
    applied, published
        How many commits were applied and published.
    """

    followed: Followed
    halted: Mapping[str, LetheError] = field(default_factory=dict)
    lacking: frozenset[str] = frozenset()
    applied: int = 0
    published: int = 0


@dataclass(frozen=True, slots=True)
class FoldParts:
    """What a fold works with: the parameters of `fold.Fold`, and the states that it keeps."""

    store: ModelStore
    reader: Reader
    producer: Producer
    seals: SealKeys
    trusted: TrustedKeys | None
    progress: Progress
    at_step: AtStep
    states: StateCache


class FoldAgain(Exception):
    """The store went back during a fold, or a model halted in the middle of it: start again.

    ``halted`` are the models whose commits the next try leaves out from the start.
    """

    def __init__(self, halted: Mapping[str, LetheError]) -> None:
        super().__init__()
        self.halted = halted


class PartitionFold:
    """One try to fold one partition."""

    def __init__(
        self,
        parts: FoldParts,
        keys: PartitionKeys,
        partition: Partition,
        cursors: PartitionCursors,
        end: int,
        halted: Mapping[str, LetheError],
        lease: FoldLease,
        *,
        last_try: bool,
    ) -> None:
        self._lease = lease
        self._store = parts.store
        self._reader = parts.reader
        self._producer = parts.producer
        self._progress = parts.progress
        self._at_step = parts.at_step
        self._replay = Replay(parts.store, parts.states, parts.reader)
        self._opener = Opener(parts.reader, partition, parts.seals, parts.trusted, self._replay)
        self._keys = keys
        self._partition = partition
        self._cursors = cursors
        self._end = end
        self._last_try = last_try
        self._halted = dict(halted)
        self._gaps: dict[str, LetheError] = {}
        self._headless: set[str] = set()
        self._applied = self._published = 0
        self._published_to = cursors.pair.published
        tail = Tail(partition, cursors.pair.apply, cursors.last_digest, cursors.epoch)
        self._followed = Followed(tail, valid_end=cursors.pair.apply)

    def run(self) -> Folded:
        """Fold the partition.

        Raises
        ------
        FoldAgain
            It must be folded again from the start.
        """
        start = min(self._cursors.lowest, self._end)
        begin = self._reader.bounds(self._partition).begin
        first = max(start, begin)
        records = self._read_open(first)
        heads = self._heads(records, first)
        if start < begin:
            self._halt_expired(begin, heads)
        counted = count(records, heads, self._keys.index)
        for model, error in counted.gaps.items():
            if model not in self._halted:
                self._gaps[model] = error
                self._store.cursors.note_behind(self._keys, model)
        self._followed.heads = counted.newest
        to_apply: list[LoggedCommit] = []
        to_publish: list[LoggedCommit] = []
        for logged in self._opened(counted.valid):
            behind = self._cursors.of_model(logged.commit.model_id)
            if logged.place.offset >= behind.apply:
                to_apply.append(logged)
            if logged.place.offset >= behind.published:
                to_publish.append(logged)
            # Row records are read for a whole run, so it ends where another generation goes live.
            swaps = logged.commit.kind is not CommitKind.REQUESTS
            if swaps or len(to_apply) == RUN_LENGTH or len(to_publish) == RUN_LENGTH:
                self._apply(to_apply)
                self._publish(to_publish)
                self._advance(logged.place.offset + 1)  # a long fold may be cut short
                self._lease.renew()
                to_apply, to_publish = [], []
                self._progress("reading commits", logged.place.offset, self._end)
        self._apply(to_apply)
        self._publish(to_publish)
        self._finish(records)
        models = models_in(self._store.client, self._keys)
        lacking = models_that_lack_rows(self._store.client, models)
        forgotten_models = {
            model: head_lost_error(model) for model in self._headless if model not in counted.newest
        }
        incomplete = lost_keys(self._store.client, models)
        halted: Mapping[str, LetheError] = {
            **incomplete, **forgotten_models, **self._gaps, **self._halted
        }  # fmt: skip
        return Folded(self._followed, halted, lacking, self._applied, self._published)

    # -- reading and judging --------------------------------------------------------------------

    def _heads(self, records: list[OpenRecord], first: int) -> dict[str, Head]:
        """Return the newest commits in the store; ``records`` are those read from ``first`` on.

        Another worker may have applied commits beyond the end: then it reads further, until it has
        those commits too. If the log no longer has a model's newest commit, the model halts.

        Raises
        ------
        FoldAgain
            The store has gone back since its cursors were read.
        """
        while True:
            models = {record.open.model_id for record in records} | set(
                models_in(self._store.client, self._keys)
            )
            stored, cursors = read_heads(self._store.client, sorted(models), self._keys)
            self._headless = models - stored.keys()
            if cursors.lowest < self._cursors.lowest:
                raise FoldAgain({})
            heads: dict[str, Head] = {}
            for model, head in stored.items():
                if isinstance(head, Head):
                    heads[model] = head
                else:
                    self._halt(model, head)
            digests = {record.digest for record in records}
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
                    self._halt(model, log_reset_error(model, head))
                return heads
            records += self._read_open(begin)

    def _read_open(self, start: int) -> list[OpenRecord]:
        return read_open(self._reader, self._partition, start, self._end, self._progress)

    def _halt_expired(self, begin: int, heads: Mapping[str, Head]) -> None:
        """Halt the models whose next commits have expired, unless they were replaced since."""
        for model in models_in(self._store.client, self._keys):
            pair = self._cursors.of_model(model)
            if pair.lower >= begin:
                continue
            if model in heads and heads[model].offset >= begin:
                move = self._store.cursors.move_behind
                move(self._keys, model, pair.apply, begin, published=False)
                move(self._keys, model, pair.published, begin, published=True)
            else:
                self._halt(model, store_too_old_error(model, pair.lower, self._partition, begin))

    def _opened(self, valid: Mapping[int, OpenRecord]) -> Iterable[LoggedCommit]:
        """Yield the commits that count, in order; one that cannot be opened halts its model."""
        if not valid:
            return
        first, last = min(valid), max(valid)
        for log_record, framed in read_records(self._reader, self._partition, first, last + 1):
            record = valid.get(log_record.offset)
            if record is None or framed is None or record.open.model_id in self._halted:
                continue
            try:
                commit = self._opener.open(record, framed, valid)
            except Unavailable:
                raise
            except LetheError as error:
                self._halt(record.open.model_id, error)
                continue
            if commit is not None:
                yield LoggedCommit(commit, record.digest, record.open.key, self._place(record))

    def _halt(self, model_id: str, error: LetheError) -> None:
        """Halt a model until a person acts; from now on the partition's cursors may pass it."""
        if model_id not in self._halted:
            self._halted[model_id] = error
            self._store.cursors.note_behind(self._keys, model_id)

    @property
    def _stopped(self) -> list[str]:
        """Models whose records this fold leaves behind: halted ones, and those with a gap.

        The partition's cursors pass those records, so each of the models keeps a pair of its own.
        What lies before a gap is applied first, as workers did that read it before the gap arose:
        else a store that went back could not follow the log as far as they have.
        """
        return sorted({*self._halted, *self._gaps})

    def _place(self, record: OpenRecord) -> Place:
        """Return the place of a record; one below the apply cursor does not move that cursor."""
        if record.offset < self._cursors.pair.apply:
            low = self._cursors.of_model(record.open.model_id).apply
            ends = self._followed.model_ends
            place = Place(
                record.offset, record.epoch, record.offset + 1, ends.get(record.open.model_id, low)
            )
            ends[record.open.model_id] = record.offset + 1
            return place
        return self._followed.take_place(record.open.model_id, record.offset, record.epoch)

    # -- applying -------------------------------------------------------------------------------

    def _apply(self, run: Sequence[LoggedCommit]) -> None:
        for part in parts_of(run):
            self._apply_part(part)

    def _apply_part(self, part: Sequence[LoggedCommit]) -> None:
        """Apply commits whose rows, for each model, lie in a single generation."""
        row_records, given = self._row_records(part), self._replay.read_changes(part)
        changes: list[tuple[LoggedCommit, StoreChange]] = []
        for logged in part:
            if logged.commit.model_id in self._halted:
                continue
            try:
                before = self._replay.state(logged.commit.model_id)
                change = self._replay.change(logged, row_records, given)
            except Unavailable:
                raise
            except LetheError as error:
                self._halt_midway(logged.commit.model_id, error)
                continue
            commit = logged.commit
            if commit.leaves_no_row and before is not None and before.head.commit < commit.number:
                shred(self._store, commit, before.rows_generation, change.live.name, self._at_step)
            changes.append((logged, change))
        self._send(changes)

    def _row_records(self, run: Sequence[LoggedCommit]) -> dict[str, dict[str, bytes]]:
        """Return the row records that a run of commits needs, by model."""
        needed: dict[str, list[str]] = {}
        for logged in run:
            commit = logged.commit
            if commit.kind is CommitKind.REQUESTS:
                rows = (*commit.erased, *commit.corrected)
                needed.setdefault(commit.model_id, []).extend(rows)
        row_records: dict[str, dict[str, bytes]] = {}
        for model, row_ids in needed.items():
            if model in self._halted:
                continue
            try:
                row_records[model] = self._replay.row_records(model, row_ids)
            except Unavailable:
                raise
            except LetheError as error:
                self._halt(model, error)
        return row_records

    def _send(self, changes: list[tuple[LoggedCommit, StoreChange]]) -> None:
        """Apply changes in one round trip, and act on the answers."""
        if not changes:
            return
        self._at_step(Step.FOLD_APPLY)
        keep(self._store, (logged.commit for logged, _ in changes))
        answers, _ = self._store.apply([self._noting_halted(change) for _, change in changes])
        for (logged, change), answer in zip(changes, answers, strict=True):
            if answer.done:
                self._note_applied(logged, change)
            elif logged.commit.model_id not in self._halted:
                self._apply_once_more(logged, change, answer)

    def _noting_halted(self, change: StoreChange) -> StoreChange:
        """Return a change that notes the halted models before the cursor passes their commits.

        They were noted when they halted, but the store may have lost that with its last writes.
        """
        stopped = tuple(self._stopped)
        return replace(change, place=replace(change.place, halted=stopped)) if stopped else change

    def _apply_once_more(
        self, logged: LoggedCommit, change: StoreChange, answer: ApplyAnswer
    ) -> None:
        """Apply a refused commit once more, from what is stored by now, or halt its model."""
        model = logged.commit.model_id
        self._replay.forget(model)
        try:
            given = self._replay.read_changes([logged])
            change = self._replay.change(logged, self._row_records([logged]), given)
            [answer], _ = self._store.apply([self._noting_halted(change)])
        except Unavailable:
            raise
        except LetheError as error:
            self._halt_midway(model, error)
            return
        if answer.done:
            self._note_applied(logged, change)
            return
        self._replay.forget(model)
        if not self._last_try and answer.applied in _GONE_BACK:
            raise FoldAgain({})
        self._halt_midway(model, corrupt(change, f"{answer.applied}: {answer.found}"))

    def _halt_midway(self, model_id: str, error: LetheError) -> None:
        """Halt a model in the middle of a fold, and start again, except on the last try.

        Later commits of other models are applied already, but the apply cursor stops here; the next
        try leaves this model out.
        """
        self._halt(model_id, error)
        if not self._last_try:
            raise FoldAgain(self._halted)

    def _note_applied(self, logged: LoggedCommit, change: StoreChange) -> None:
        """Count an applied commit, and drop the keys of the rows that it erased."""
        self._applied += 1
        self._shred(logged.commit, change.live.name)

    def _shred(self, commit: Commit, former: str) -> None:
        if not shreds(self._store, commit):
            return
        state = self._replay.state(commit.model_id)
        if state is not None and state.head.commit >= commit.number:  # else the store went back
            shred(self._store, commit, former, state.rows_generation, self._at_step)

    # -- publishing -----------------------------------------------------------------------------

    def _publish(self, logged: Sequence[LoggedCommit]) -> None:
        to_send = [one for one in logged if one.commit.model_id not in self._halted]
        if not to_send:
            return
        for one in to_send:  # whoever applied it may have died before dropping the keys
            self._shred(one.commit, "")
        self._at_step(Step.FOLD_PUBLISH)
        self._producer.publish(messages_of([one.commit for one in to_send]))
        self._published += len(to_send)

    def _advance(self, end: int) -> None:
        """Note that everything below ``end`` is published."""
        self._at_step(Step.FOLD_ADVANCE)
        low, self._published_to = self._published_to, end
        if low < end:
            self._store.cursors.move_published(self._keys, low, end, halted=self._stopped)

    # -- the end --------------------------------------------------------------------------------

    def _finish(self, records: Sequence[OpenRecord]) -> None:
        """Move both cursors to the end, past void records and those of halted models."""
        tail, last = self._followed.tail, records[-1] if records else None
        if last is not None and last.offset == self._end - 1:
            tail = Tail(self._partition, self._end, last.digest, last.epoch)
        elif tail.offset != self._end:  # a record that is no commit of ours lies below
            tail = tail_of(self._reader, self._partition, self._end)
        self._store.cursors.move_apply(
            self._keys,
            self._followed.valid_end,
            self._end,
            last_digest=tail.last_digest,
            epoch=tail.epoch,
            halted=self._stopped,
        )
        self._advance(self._end)
        for model in self._gaps.keys() & self._followed.model_ends.keys() - self._halted.keys():
            pair, end = self._cursors.of_model(model), self._followed.model_ends[model]
            self._store.cursors.move_behind(self._keys, model, pair.published, end, published=True)
        for model in self._cursors.behind:
            if model in self._halted or model in self._gaps:
                continue
            pair = self._cursors.behind[model]
            model_previous_end = self._followed.model_ends.get(model, pair.apply)
            self._store.cursors.move_behind(
                self._keys, model, model_previous_end, self._end, published=False
            )
            self._store.cursors.move_behind(
                self._keys, model, pair.published, self._end, published=True
            )
        self._followed.valid_end = self._end
        self._followed.tail = tail
