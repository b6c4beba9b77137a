"""A log that loses acknowledged records and grows again, and `lethe recover` (3.2 step 6, 3.3).

Two workers decide any undecided request at any time. The log loses its end under a new leader, or
is made again, also after an acknowledgement was given; leaders change without loss, too. When a
fold sees it, a person may let `recover` append a checkpoint.

What is checked in every state: no two commits with one number are published and no request has two
outcomes; if a fresh worker would go on, what is published is on its chain, and what its chain
decides is published or will be; and once a checkpoint is valid, a fresh worker does go on.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.proof.model.checker import FAULT, Broken
from tests.proof.model.epochs_fold import Fold, fold, follows, only_gap, read, recovery, shared_end
from tests.proof.model.epochs_state import (
    BASE,
    NONE,
    Bounds,
    Budget,
    History,
    Log,
    Place,
    Publication,
    Record,
    Rules,
    State,
    Store,
    Worker,
)

Step = tuple[str, State]


class EpochsModel:
    """One model, one partition, a log that cannot be trusted."""

    def __init__(self, bounds: Bounds, rules: Rules | None = None) -> None:
        self.bounds = bounds
        self.rules = rules or Rules()
        self.history = History(self.rules)

    def initial(self) -> State:
        """The model is registered; nothing else has happened."""
        bounds = self.bounds
        budget = Budget(
            bounds.appends,
            bounds.crashes,
            bounds.losses,
            bounds.elections,
            bounds.remade,
            bounds.rollbacks,
            bounds.forged,
            bounds.recoveries,
        )
        return State(
            log=Log(),
            flight=(),
            acks=(),
            store=Store(),
            backup=Store(),
            workers=(Worker(), Worker()),
            published=frozenset(),
            recover=NONE,
            clean=False,
            budget=budget,
        )

    def steps(self, state: State) -> Iterator[Step]:
        """Yield what may happen next."""
        yield from self._landings(state)
        yield from self._faults(state)
        yield from self._recover(state)
        for number, worker in enumerate(state.workers):
            name = f"W{number + 1}"
            if worker != Worker() and state.budget.crashes:
                crashes = state.budget.crashes - 1
                after = _with(state, number, Worker())
                crashed = after._replace(budget=state.budget._replace(crashes=crashes))
                yield f"{FAULT}{name} crashes", crashed
            for label, after in self._work(state, number, worker):
                yield f"{name} {label}", after

    def _landings(self, state: State) -> Iterator[Step]:
        """The leader takes a record, and acknowledges it."""
        if len(state.log.records) >= self.bounds.log_length:
            return
        for digest in state.flight:
            flight = tuple(other for other in state.flight if other != digest)
            offset = len(state.log.records)
            ack = (digest, Place(state.log.topic, offset, state.log.epoch))
            log = state.log.append(digest)
            after = state._replace(log=log, flight=flight, acks=(*state.acks, ack))
            if self.history[digest].names != NONE and digest == self._head(log):
                after = after._replace(clean=True)
            yield f"{self.history.name(digest)} lands at {offset}", after

    def _halts(self, state: State) -> bool:
        """Return whether a fresh worker halts, now or behind what it applies first."""
        found = self._folded(state)
        return found is None or found.gap

    def _folded(self, state: State) -> Fold | None:
        """Return what a fresh worker would do; None: it halts."""
        found = fold(self.history, state.log, state.store)
        if found is None or not self.rules.versions_asked:
            return found
        return None if state.published - self.history.decided(found.head) else found

    def _head(self, log: Log) -> int:
        """Return the last valid record of a log that is whole."""
        return read(self.history, log, BASE, 0).head

    def _faults(self, state: State) -> Iterator[Step]:
        """What may happen to the log and to the store."""
        log, budget = state.log, state.budget
        worse = state._replace(clean=False)
        if budget.losses and log.records:
            lost = log._replace(
                epoch=log.epoch + 1, records=log.records[:-1], epochs=log.epochs[:-1]
            )
            after = worse._replace(log=lost, budget=budget._replace(losses=budget.losses - 1))
            yield f"{FAULT}the log loses {self.history.name(log.records[-1])}", after
        if budget.elections:
            left = budget._replace(elections=budget.elections - 1)
            after = state._replace(log=log._replace(epoch=log.epoch + 1), budget=left)
            yield f"{FAULT}another leader is elected", after
        if budget.remade and log.records:
            left = budget._replace(remade=budget.remade - 1)
            after = worse._replace(log=Log(topic=log.topic + 1), budget=left)
            yield f"{FAULT}the topic is made again", after
        if budget.forged and len(log.records) < self.bounds.log_length:
            ahead = max(self.history[digest].commit for digest in (BASE, *log.records)) + 2
            digest = self.history.add(Record(ahead, NONE, "", 8, budget.forged))
            left = budget._replace(forged=budget.forged - 1)
            after = worse._replace(log=log.append(digest), budget=left)
            yield f"{FAULT}somebody writes a record that is ahead", after
        if budget.rollbacks and state.backup != state.store:
            left = budget._replace(rollbacks=budget.rollbacks - 1)
            back = worse._replace(
                store=state.backup, budget=left, workers=(Worker(), Worker()), flight=()
            )
            yield f"{FAULT}the store goes back, everything restarts", back
            yield "a backup is taken", state._replace(backup=state.store)

    def _recover(self, state: State) -> Iterator[Step]:
        """`lethe recover`: when a fold halts, append a checkpoint from the store; void: again."""
        budget = state.budget
        if state.recover != NONE:
            if state.recover in state.log.records:
                yield "recover returns", state._replace(recover=NONE)
            return
        if not budget.recoveries or not self._halts(state):
            return
        found = self._folded(state)
        if found is not None and state.store.head != found.head:
            return  # it folds first, as any worker may
        known = self.history.decided(state.store.head)
        if self.rules.published_asked and state.published - known:
            return
        checkpoint = recovery(self.history, state.log, state.store, budget.recoveries)
        digest = self.history.add(checkpoint)
        fence = state.store.fence + (1 if self.rules.recover_fences else 0)
        yield (
            f"recover appends {self.history.name(digest)}",
            state._replace(
                store=state.store._replace(fence=fence),
                flight=tuple(sorted((*state.flight, digest))),
                recover=digest,
                budget=budget._replace(recoveries=budget.recoveries - 1),
            ),
        )

    def _work(self, state: State, number: int, worker: Worker) -> Iterator[Step]:
        match worker.phase:
            case "empty":
                yield self._fold(state, number)
            case "halted":
                found = self._folded(state)
                if found is not None and (not found.gap or found.head != state.store.head):
                    yield "looks again", _with(state, number, Worker())
            case "idle":
                if worker.queue is None:
                    yield from self._append(state, number, worker)
            case "sent":
                yield from self._hear(state, number, worker)
            case "applying":
                yield self._apply(state, number, worker)
                if self.bounds.cursor_lags:
                    yield self._apply(state, number, worker, lags=True)
        waits = worker.phase == "applying" and self.rules.applied_first
        if worker.queue is not None and not waits:
            yield self._publish(state, number, worker, worker.queue)

    def _fold(self, state: State, number: int) -> Step:
        """3.3: read from the cursors to the end, or halt."""
        found = self._folded(state)
        if found is None:
            return "halts: LOG_RESET or LOG_GAP", _with(state, number, Worker(phase="halted"))
        label = "folds to a gap: LOG_GAP" if found.gap else "folds"
        return label, self._act(state, number, found, state.store.fence, folding=True)

    def _act(self, state: State, number: int, found: Fold, fence: int, *, folding: bool) -> State:
        """Apply and publish what was read; go on from the log's end."""
        end = state.log.end()
        if found.gap:
            end = found.apply[-1] if found.apply else state.store.published
        queue = Publication(found.publish, found.published_from, end, fence)
        worker = Worker(
            phase="applying",
            head=found.head,
            tail=state.log.end(),
            fence=fence,
            todo=found.apply,
            covered=found.applied_from,
            folding=folding,
            halts=found.gap,
            queue=queue,
        )
        return _with(state, number, _settled(worker))

    def _append(self, state: State, number: int, worker: Worker) -> Iterator[Step]:
        """Steps 1 to 6."""
        attempt = state.budget.appends
        if not attempt:
            return
        decided = {request for request, _ in self.history.decided(worker.head)}
        for request in self.bounds.requests:
            if request in decided:
                continue
            commit = self.history[worker.head].commit + 1
            digest = self.history.add(Record(commit, worker.head, request, number, attempt))
            sent = worker._replace(phase="sent", sent=digest)
            after = _with(state, number, sent)._replace(
                flight=tuple(sorted((*state.flight, digest))),
                budget=state.budget._replace(appends=attempt - 1),
            )
            yield f"appends {self.history.name(digest)}", after

    def _hear(self, state: State, number: int, worker: Worker) -> Iterator[Step]:
        """Won if the acknowledgement continues the tail; else compare the tail, read the gap."""
        place = next((place for digest, place in state.acks if digest == worker.sent), None)
        if place is None:
            return
        label = f"hears {self.history.name(worker.sent)} at {place.offset}"
        acks = tuple(ack for ack in state.acks if ack[0] != worker.sent)
        after = state._replace(acks=acks)
        if self._continues(worker.tail, place):
            end = place._replace(offset=place.offset + 1, below=worker.sent)
            queue = Publication((worker.sent,), worker.tail.offset, end, worker.fence)
            won = worker._replace(
                phase="applying",
                head=worker.sent,
                tail=end,
                sent=NONE,
                todo=(end,),
                covered=worker.valid_end,
                folding=False,
                queue=queue,
            )
            yield f"{label}: won", _with(after, number, won)
            return
        if not follows(self.rules, state.log, worker.tail):
            yield f"{label}: LOG_RESET", _with(after, number, Worker(phase="halted"))
            return
        found = read(self.history, state.log, worker.head, worker.tail.offset)
        if found.gap:
            yield f"{label}: LOG_GAP", _with(after, number, Worker(phase="halted"))
            return
        yield (
            f"{label}: reads the gap",
            self._act(
                after,
                number,
                found.as_fold(worker.valid_end, worker.tail.offset),
                worker.fence,
                folding=False,
            ),
        )

    def _continues(self, tail: Place, place: Place) -> bool:
        if self.rules.topic_compared and place.topic != tail.topic:
            return False
        if self.rules.epoch_compared and place.epoch != tail.epoch:
            return False
        return place.offset == tail.offset

    def _apply(self, state: State, number: int, worker: Worker, *, lags: bool = False) -> Step:
        """Step 7: compare, then write; a checkpoint needs only a head that is not beyond it."""
        at, todo = worker.todo[0], worker.todo[1:]
        digest, offset = at.below, at.offset - 1
        record, store, name = self.history[digest], state.store, self.history.name(digest)
        head = self.history[store.head]
        checkpoint = record.names != NONE
        takes = head.commit < record.commit if checkpoint else store.head == record.prev
        there = head.commit >= record.commit
        if self.rules.same_digest:
            there = store.head in self.history.chain(worker.head)
            there = there and digest in self.history.chain(store.head)
        fenced = self.rules.recover_fences and store.fence != worker.fence
        if fenced or not (takes or there):
            return f"applies {name}: refused", _with(state, number, Worker())
        if takes:
            store = store._replace(head=digest, at=at)
        moves = worker.covered <= store.applied.offset <= offset and not lags
        if moves or checkpoint:
            store = store._replace(applied=at)
        if record.names != NONE and not follows(self.rules, state.log, store.published):
            store = store._replace(
                published=state.log.place(shared_end(state.log, store.published))
            )
        left = _settled(worker._replace(todo=todo, covered=offset + 1))
        return f"applies {name}", _with(state._replace(store=store), number, left)

    def _publish(self, state: State, number: int, worker: Worker, queue: Publication) -> Step:
        """Step 8: one record after the other, then the published cursor."""
        if queue.records:
            digest, rest = queue.records[0], queue.records[1:]
            published = state.published | set(self.history.outcomes(digest))
            sent = worker._replace(queue=queue._replace(records=rest))
            after = _with(state, number, sent)._replace(published=published)
            return f"publishes {self.history.name(digest)}", after
        store = state.store
        compared = self.rules.moves_compared and queue.fence != store.fence
        if queue.start <= store.published.offset < queue.end.offset and not compared:
            store = store._replace(published=queue.end)
        done = _with(state, number, worker._replace(queue=None))
        return f"published to {store.published.offset}", done._replace(store=store)

    def check(self, state: State) -> None:
        """Raise `Broken` unless what the module promises is true of the state."""
        numbers: dict[int, int] = {}
        outcomes: dict[str, int] = {}
        for request, digest in sorted(state.published):
            if numbers.setdefault(self.history[digest].commit, digest) != digest:
                raise Broken(f"two commits {self.history[digest].commit} are published")
            if outcomes.setdefault(request, digest) != digest:
                raise Broken(f"two outcomes of {request} are published")
        found = self._folded(state)
        if state.clean and (found is None or found.gap):
            raise Broken("a checkpoint is valid, and a fresh worker halts nevertheless")
        if found is None:
            head = only_gap(self.history, state.log, state.store)
            before = BASE if head is None else head
            refused = state.published - self.history.decided(state.store.head)
            if refused and not state.published - self.history.decided(before):
                raise Broken("nothing is lost before a gap, and recover cannot go on from there")
            return
        decided = self.history.decided(found.head)
        if state.published - decided:
            raise Broken(
                f"a fresh worker goes on from {self.history.name(found.head)} although "
                f"{sorted(state.published - decided)} are published"
            )
        missing = set(self.history.since_checkpoint(found.head)) - set(state.log.records)
        if missing:
            names = ", ".join(self.history.name(digest) for digest in sorted(missing))
            raise Broken(f"a fresh worker goes on although the log has lost {names}")
        later = {outcome for digest in found.publish for outcome in self.history.outcomes(digest)}
        if decided - state.published - later:
            raise Broken(f"never published: {sorted(decided - state.published - later)}")


def _settled(worker: Worker) -> Worker:
    """Go from applying to idle when nothing is left to apply."""
    if worker.todo:
        return worker
    phase = "halted" if worker.halts else "idle"
    return worker._replace(phase=phase, folding=False, valid_end=worker.covered, covered=0)


def _with(state: State, number: int, worker: Worker) -> State:
    """Put a worker in its place."""
    workers = (worker, state.workers[1]) if number == 0 else (state.workers[0], worker)
    return state._replace(workers=workers)
