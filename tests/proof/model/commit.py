"""Pages 3.2 and 3.3: every interleaving of the commit and the fold.

EITHER worker may decide ANY undecided request at ANY time: more than rebalances, zombies and strays
can do. A record in flight lands at any later time, or never. Answers are lost, workers crash
anywhere, flushes fail, the store goes back to any earlier state between two scripts.

What is checked in every state: a request has one outcome and a row one deletion; what is published
is valid, and versions appear in order; the arrays hold what the head means or say that they do not;
nobody halts; and if everybody died now, a fresh worker would fold to the accepted history and
publish all of it that is not published yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

from tests.proof.model.checker import FAULT, Broken
from tests.proof.model.commit_invariants import check
from tests.proof.model.commit_state import (
    APPLY_FIRST,
    APPLYING,
    EMPTY,
    HALTED,
    IDLE,
    PUBLISH_FIRST,
    READING,
    SENT,
    Arrays,
    Bounds,
    Budget,
    Folded,
    Placed,
    Publication,
    Rules,
    State,
    Store,
    Worker,
    with_arrays,
    with_worker,
)
from tests.proof.model.journal import Heads, Journal, Log

Step = tuple[str, State]


class CommitModel:
    """The commit of page 3.2 and the fold of page 3.3."""

    def __init__(self, bounds: Bounds, rules: Rules | None = None) -> None:
        self.bounds = bounds
        self.rules = rules or Rules()
        self.journal = Journal(2)

    def initial(self) -> State:
        """Two models are registered; nothing else has happened."""
        bounds = self.bounds
        none = Arrays(frozenset(), awaiting=False)
        store = Store(self.journal.bases, 0, 0, (none, none))
        faults = (bounds.crashes, bounds.rollbacks, bounds.lost_answers, bounds.failed_flushes)
        budget = Budget(bounds.appends, *faults)
        return State(
            log=(),
            flight=(),
            store=store,
            backup=(store, ()),
            erased=frozenset(),
            workers=(Worker(), Worker()),
            published=frozenset(),
            first_seen=((), ()),
            budget=budget,
        )

    def steps(self, state: State) -> Iterator[Step]:
        """Yield what may happen next."""
        yield from self._landings(state)
        yield from self._rollbacks(state)
        for number, worker in enumerate(state.workers):
            if worker.phase == HALTED:
                continue
            for label, after in self._worker_steps(state, number, worker):
                if label.startswith(FAULT):
                    yield f"{FAULT}W{number + 1} {label[len(FAULT) :]}", after
                else:
                    yield f"W{number + 1} {label}", after

    def check(self, state: State) -> None:
        """Raise `Broken` unless what the module promises is true of the state."""
        folded = self.folded(state.log, state.store)
        check(self.journal, state, folded, versions_ordered=self.bounds.versions_ordered)

    def _landings(self, state: State) -> Iterator[Step]:
        """A record in flight reaches the log, now or never."""
        if len(state.log) >= self.bounds.log_length:
            return
        for digest in state.flight:
            flight = tuple(other for other in state.flight if other != digest)
            name = self.journal.name(digest)
            record = self.journal[digest]
            head = self.journal.accepted(state.log)[0][record.model]
            if self.bounds.conditional and record.prev != head:
                yield f"the log refuses {name}", state._replace(flight=flight)
            else:
                log = (*state.log, digest)
                yield f"{name} lands at {len(state.log)}", state._replace(log=log, flight=flight)

    def _rollbacks(self, state: State) -> Iterator[Step]:
        """The store goes back to a state that it had; in single-node mode the log with it."""
        if not state.budget.rollbacks:
            return
        store, log = state.backup
        single = self.bounds.conditional
        if store == state.store and (log == state.log or not single):
            return
        budget = state.budget._replace(rollbacks=state.budget.rollbacks - 1)
        after = state._replace(store=store, budget=budget)
        if single:
            after = self._with_log(after, log)
            if self.rules.lost_connection:
                after = after._replace(workers=(Worker(), Worker()))
        yield f"{FAULT}the store goes back", after
        yield "a backup is taken", state._replace(backup=(state.store, state.log if single else ()))

    def _with_log(self, state: State, log: Log) -> State:
        """Single-node mode: topics lie in the same server, and go back with it."""
        kept = frozenset(log) & state.published
        numbers = {(self.journal[digest].model, self.journal[digest].commit) for digest in kept}
        seen = tuple(
            tuple(commit for commit in commits if (model, commit) in numbers)
            for model, commits in enumerate(state.first_seen)
        )
        return state._replace(log=log, published=kept, first_seen=seen)

    def _worker_steps(self, state: State, number: int, worker: Worker) -> Iterator[Step]:
        if state.budget.crashes and worker != Worker():
            budget = state.budget._replace(crashes=state.budget.crashes - 1)
            yield f"{FAULT}crashes", with_worker(state, number, Worker())._replace(budget=budget)
        match worker.phase:
            case "empty" | "reading":
                yield from self._fold(state, number, worker)
            case "idle":
                yield from self._append(state, number, worker)
            case "sent":
                yield from self._hear(state, number, worker)
            case "applying":
                if not (self.bounds.order == PUBLISH_FIRST and worker.queue):
                    yield self._apply(state, number, worker)
        yield from self._publish(state, number, worker)

    def _fold(self, state: State, number: int, worker: Worker) -> Iterator[Step]:
        """3.3: read the store, then the log to an end asked for after it."""
        end = len(state.log)
        if worker.phase == EMPTY and self.bounds.slow_reads:
            reading = Worker(phase=READING, view=state.store, end=end)
            yield f"begins a fold; the end is {end}", with_worker(state, number, reading)
            return
        view = worker.view or state.store
        if not self.rules.end_after_heads:
            view, end = state.store, (worker.end if worker.view else end)
        folded = self.folded(state.log[:end], view)
        if folded is None:
            yield "halts", with_worker(state, number, Worker(phase=HALTED))
            return
        publication = Publication(folded.publish, view.published, end)
        applying = Worker(
            phase=APPLYING,
            heads=folded.heads,
            tail=end,
            todo=folded.apply,
            covered=view.applied,
            folding=True,
        )
        yield f"reads to {end}", self._settled(state, number, applying, publication)

    def folded(self, log: Log, view: Store) -> Folded | None:
        """Return what a fold over `log` makes of a store; None if it halts."""
        if view.applied > len(log) or view.published > len(log):
            return None
        read = self._read(log, view.heads, view.applied)
        if read is None:
            return None
        todo, heads = read
        if self.rules.refold:
            below = {digest for head in view.heads for digest in self.journal.chain(head)}
            wanted = below | {digest for digest, _ in todo}
            todo = tuple(
                (log[offset], offset)
                for offset in range(view.applied, len(log))
                if log[offset] in wanted
            )
        chained = {digest for head in heads for digest in self.journal.chain(head)}
        publish = tuple(digest for digest in log[view.published :] if digest in chained)
        return Folded(heads, todo, publish)

    def _read(self, log: Log, heads: Heads, start: int) -> tuple[tuple[Placed, ...], Heads] | None:
        """Return the valid records from `start` on to a reader with these heads; None: it halts."""
        known, valid = list(heads), []
        for offset in range(start, len(log)):
            record = self.journal[log[offset]]
            head = known[record.model]
            if record.prev == head:
                known[record.model] = log[offset]
                valid.append((log[offset], offset))
            elif record.commit > self.journal[head].commit:
                return None
        return tuple(valid), tuple(known)

    def _append(self, state: State, number: int, worker: Worker) -> Iterator[Step]:
        """Steps 1 to 6: decide any undecided request, or one of each model; send the records."""
        if self.bounds.reader and number == 1:
            if worker.tail < len(state.log) and not worker.queue:
                yield "looks again", with_worker(state, number, Worker())
            return
        if len(worker.queue) > (1 if self.bounds.overlap else 0) or not state.budget.appends:
            return
        undecided: list[list[str]] = [[], []]
        for request, model in self.bounds.requests:
            if request not in self.journal.decided(worker.heads[model]):
                undecided[model].append(request)
        batches: list[tuple[tuple[str, int], ...]] = [
            ((request, model),) for model in (0, 1) for request in undecided[model]
        ]
        if self.bounds.pairs and state.budget.appends > 1:
            for one in undecided[0]:
                for other in undecided[1]:
                    batches += [((one, 0), (other, 1)), ((other, 1), (one, 0))]
        for batch in batches:
            left = state.budget.appends
            sent = tuple(
                self.journal.append(worker.heads[model], request, number, left)
                for request, model in batch
            )
            budget = state.budget._replace(appends=left - len(sent))
            waits = worker._replace(phase=SENT, sent=sent)
            after = with_worker(state, number, waits)._replace(
                flight=tuple(sorted(state.flight + sent)), budget=budget
            )
            yield f"appends {self.journal.names(sent)}", after

    def _hear(self, state: State, number: int, worker: Worker) -> Iterator[Step]:
        """Step 6: won if the offsets continue the tail, else read the gap first."""
        if state.budget.lost_answers:
            budget = state.budget._replace(lost_answers=state.budget.lost_answers - 1)
            yield (
                f"{FAULT}hears nothing",
                with_worker(state, number, Worker())._replace(budget=budget),
            )
        log = state.log
        if any(
            d not in log and (d in state.flight or not self.bounds.conditional) for d in worker.sent
        ):
            return
        placed = tuple(
            sorted(((d, log.index(d)) for d in worker.sent if d in log), key=itemgetter(1))
        )
        offsets = [offset for _, offset in placed]
        won = offsets == list(range(worker.tail, worker.tail + len(worker.sent)))
        label = f"hears {[(self.journal.name(d), offset) for d, offset in placed]}"
        if won or not self.rules.gap_read:
            if any(not self.journal.accepted(log)[1][offset] for offset in offsets):
                raise Broken(f"W{number + 1} believes that {self.journal.names(worker.sent)} won")
            heads, todo = list(worker.heads), placed
            for digest, _ in placed:
                heads[self.journal[digest].model] = digest
            end = max(offsets, default=worker.tail - 1) + 1
            applying = worker._replace(heads=tuple(heads))
        else:
            read = None if worker.tail > len(log) else self._read(log, worker.heads, worker.tail)
            if read is None:
                lost = self.bounds.conditional and worker.tail > len(log)
                left = Worker() if lost else Worker(phase=HALTED)
                yield (
                    f"{label} and {'folds' if lost else 'halts'}",
                    with_worker(state, number, left),
                )
                return
            todo, end = read[0], len(log)
            applying = worker._replace(heads=read[1])
        told = todo if self.rules.gap_published else [x for x in todo if x[0] in worker.sent]
        publication = Publication(tuple(digest for digest, _ in told), worker.tail, end)
        applying = applying._replace(
            phase=APPLYING, sent=(), todo=todo, covered=worker.valid_end, tail=end, folding=False
        )
        yield label, self._settled(state, number, applying, publication)

    def _settled(
        self, state: State, number: int, worker: Worker, publication: Publication
    ) -> State:
        """Let a publication wait for the applying, or not; go on when nothing is to be applied."""
        if self.bounds.order == APPLY_FIRST:
            return self._applied(state, number, worker._replace(waiting=publication))
        queue = (*worker.queue, publication)
        return self._applied(state, number, worker._replace(queue=queue))

    def _applied(self, state: State, number: int, worker: Worker) -> State:
        """Go from applying to idle when nothing is left to apply."""
        if worker.todo:
            return with_worker(state, number, worker)
        if worker.refused:
            return with_worker(state, number, Worker())
        queue = (*worker.queue, worker.waiting) if worker.waiting else worker.queue
        idle = Worker(
            phase=IDLE,
            heads=worker.heads,
            arrays=worker.arrays or state.store.arrays,
            tail=worker.tail,
            valid_end=worker.covered,
            queue=tuple(p for p in queue if p.records or p.end > state.store.published),
        )
        return with_worker(state, number, idle)

    def _apply(self, state: State, number: int, worker: Worker) -> Step:
        """Step 7: the script of one record."""
        (digest, offset), todo = worker.todo[0], worker.todo[1:]
        record, store = self.journal[digest], state.store
        model, name = record.model, self.journal.name(digest)
        head, arrays = store.heads[model], store.arrays[model]
        mine = not worker.folding and record.writer == number and worker.arrays is not None
        known = worker.arrays[model] if mine and worker.arrays else arrays
        left = worker._replace(todo=todo, covered=offset + 1)
        erased = state.erased
        continues = head == record.prev or not self.rules.prev_compared
        if continues and (known == arrays or not self.rules.arrays_id):
            after = self._script(store, digest, known if mine else None, erased)
            if not self.bounds.rows_roll_back:
                erased = erased | {record.request or ""}
        elif head == digest or (self.rules.refold and self.journal[head].commit >= record.commit):
            after = store
        else:
            refused = self._applied(state, number, left._replace(refused=True))
            return f"applies {name}: refused", refused
        at = after.applied
        if not self.rules.apply_cursor:
            at = max(at, offset + 1)
        elif worker.covered <= at <= offset:
            at = offset + 1
        after = after._replace(applied=at)
        if left.arrays is not None:
            left = left._replace(arrays=with_arrays(left.arrays, model, after.arrays[model]))
        state = state._replace(store=after, erased=erased)
        return f"applies {name}", self._applied(state, number, left)

    def _script(
        self, store: Store, digest: int, memory: Arrays | None, erased: frozenset[str]
    ) -> Store:
        """Write head and arrays: from the memory that decided, else from the rows of the store."""
        record = self.journal[digest]
        row = record.request or ""
        arrays = store.arrays[record.model]
        if memory is not None and not (self.rules.arrays_id and arrays.awaiting):
            arrays = Arrays(memory.lacking | {row}, awaiting=False)
        elif not arrays.awaiting and row in erased:
            arrays = arrays._replace(awaiting=True)
        elif not arrays.awaiting:
            arrays = arrays._replace(lacking=arrays.lacking | {row})
        heads = list(store.heads)
        heads[record.model] = digest
        return store._replace(
            heads=tuple(heads), arrays=with_arrays(store.arrays, record.model, arrays)
        )

    def _publish(self, state: State, number: int, worker: Worker) -> Iterator[Step]:
        """Step 8: send what waits, then move the published cursor."""
        for place, flush in enumerate(worker.queue):
            if place and self.rules.one_flush:
                return
            rest = worker.queue[:place] + worker.queue[place + 1 :]
            if flush.records:
                digest = flush.records[0]
                sent = flush._replace(records=flush.records[1:])
                queue = (*worker.queue[:place], sent, *worker.queue[place + 1 :])
                after = with_worker(state, number, worker._replace(queue=queue))
                yield f"publishes {self.journal.name(digest)}", self._seen(after, digest)
            else:
                moves = state.store.published >= flush.start or not self.rules.published_cursor
                at = max(state.store.published, flush.end if moves else 0)
                after = with_worker(state, number, worker._replace(queue=rest))
                after = after._replace(store=state.store._replace(published=at))
                yield f"moves the published cursor to {at}", after
            if flush.records and state.budget.failed_flushes:
                left = state.budget.failed_flushes - 1
                lost = worker._replace(queue=rest)
                if self.rules.failed_flush_folds:
                    lost = Worker()
                after = with_worker(state, number, lost)
                budget = state.budget._replace(failed_flushes=left)
                yield f"{FAULT}cannot flush", after._replace(budget=budget)

    def _seen(self, state: State, digest: int) -> State:
        """Note what a reader of the topics sees."""
        record = self.journal[digest]
        seen = list(state.first_seen)
        if record.commit not in seen[record.model]:
            seen[record.model] = (*seen[record.model], record.commit)
        published = state.published | {digest}
        return state._replace(published=published, first_seen=tuple(seen))
