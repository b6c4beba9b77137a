"""The erasure worker: from a person to every model, and back to one receipt.

A turn, with the names of `consumers.service.telemetry.steps`:

1. poll and validate  2. put the subjects on the suppression list  3. ask the models that know them
4. once the row changes that were on their way are decided and applied, ask again  5. when every
model has answered, publish the combined receipt  6. move the watermark

What is on its way is in memory only. A worker that dies anywhere leaves it to the next, which reads
the same erasures again and sends the same requests, byte for byte, unless they are on their way or
answered: models answer them once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Unpack

from lethe.consumers.commits.recovery.model_lists import restore_lists
from lethe.consumers.contract import topics
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.contract.signatures import Signer, TrustedKeys
from lethe.consumers.deletions.authenticate import RequestKeys
from lethe.consumers.erasures.admission import Admission
from lethe.consumers.erasures.fan_in import read_receipts
from lethe.consumers.erasures.models import Models, read_models
from lethe.consumers.erasures.pending import Awaited, PendingErasure
from lethe.consumers.erasures.receipts import PublishedReceipts, receipt_message
from lethe.consumers.erasures.sender import RequestSender, note_not_covered
from lethe.consumers.erasures.sent_before import AlreadySent
from lethe.consumers.erasures.spelling import known_spellings
from lethe.consumers.erasures.sweep import Sweep, unchecked
from lethe.consumers.erasures.unsearched import Applied, Unsearched, changes_sent
from lethe.consumers.log.base import Log, Partition, Record
from lethe.consumers.service.telemetry.steps import Step
from lethe.consumers.suppression.suppressions import Suppressions
from lethe.consumers.workers.partition_worker import POLL_SECONDS, PartitionWorker, Reporting
from lethe.engine.store.counts import KeysLost
from lethe.engine.store.store import ModelStore

GROUP = "lethe-erasures"
MAX_PENDING = 5_000
"""Erasures on their way at once, each with a request for every model: memory. More wait unread."""

_POLL_RECORDS = 100
_FIRST_LOOK, _LONGEST_LOOK = 0.05, 1.0
"""Seconds between two looks for answers: they double while nothing comes."""
SWEEP_SECONDS = 1.0
"""Between two looks for new registrations."""


def _watched() -> tuple[str, ...]:
    """Return the topics that it reads or writes, and those that it waits for answers from."""
    return (
        topics.ERASURES,
        topics.ERASURE_RECEIPTS,
        topics.SUPPRESSIONS,
        topics.DELETIONS,
        topics.ROW_CHANGES,
        topics.DEAD_LETTERS,
    )


class ErasureWorker(PartitionWorker):
    """Reads erasures, asks models and publishes combined receipts; one thread runs it.

    Parameters
    ----------
    log, store, reporting
        As `PartitionWorker` has them.
    seals
        The secrets under which subjects are marked.
    request_keys
        Whose erasures are accepted; None: everybody's.
    signer
        Returns what the requests to models are signed with, or None.
    trusted
        Whose combined receipts are believed; None: everybody's.
    sweep_seconds
        How often it looks for new registrations.
    """

    releases = True

    def __init__(
        self,
        log: Log,
        store: ModelStore,
        seals: SealKeys,
        *,
        request_keys: RequestKeys | None = None,
        signer: Callable[[], Signer | None] = lambda: None,
        trusted: TrustedKeys | None = None,
        sweep_seconds: float = SWEEP_SECONDS,
        **reporting: Unpack[Reporting],
    ) -> None:
        reads = [topics.ERASURES]
        super().__init__(log, store, "erasures", GROUP, reads, reporting, watches=_watched())
        self._suppressions = Suppressions(store, self._reader, seals)
        self._receipts = PublishedReceipts(store.client, self._reader, trusted)
        self._admission = Admission(
            self._producer,
            self._suppressions,
            self._receipts,
            seals,
            keys=request_keys,
            metrics=self._metrics,
            logger=self._logger,
        )
        self._sent_before = AlreadySent(store, self._reader, self._keepalive)
        self._sender = RequestSender(
            store, self._producer, self._sent_before, signer, self._keepalive
        )
        self._unsearched = Unsearched(store, self._reader, self._keepalive)
        self._sweep = Sweep(store, self._suppressions)
        self._pending: dict[str, PendingErasure] = {}
        self._look_seconds = _FIRST_LOOK
        self._sweep_seconds = sweep_seconds
        self._sweep_due = 0.0

    # -- 1 and the others ---------------------------------------------------------------------

    def _room(self) -> int:
        return max(0, min(_POLL_RECORDS, MAX_PENDING - len(self._pending)))

    def _process(self, records: Sequence[Record]) -> int:
        """Take new erasures, look for answers to the others; return how many records were read."""
        erasures = self._accept(records)  # 2
        answered = self._ask(erasures)  # 3
        answered += self._look()  # 4
        answered += self._finish()  # 5
        if records or answered:
            self._at_step(Step.ERASE_ADVANCE)
            self._advance(self._assignment.positions)  # 6
        self._sweep_registrations()
        self._metrics.erasures_pending.set(len(self._pending))
        self._health.progress(0)  # erasures that wait for models are no stall of this worker
        busy = bool(records) or answered > 0
        self._look_seconds = _FIRST_LOOK if busy else min(2 * self._look_seconds, _LONGEST_LOOK)
        self.poll_seconds = self._look_seconds if self._pending else POLL_SECONDS
        return len(records)

    def _first_unfinished(self, partition: Partition) -> int | None:
        records = (one.request.record for one in self._pending.values())
        offsets = (record.offset for record in records if record.partition == partition)
        return min(offsets, default=None)

    def _is_busy(self) -> bool:
        """Whether erasures are on their way, or registrations were not searched."""
        return bool(self._pending) or bool(unchecked(self._store, self._models()))

    def _forget(self, partitions: frozenset[Partition]) -> None:
        for name, erasure in list(self._pending.items()):
            if erasure.request.record.partition in partitions:
                del self._pending[name]

    def _resume(self) -> None:
        self._sent_before.forget()

    # -- 2 ------------------------------------------------------------------------------------

    def _accept(self, records: Sequence[Record]) -> list[PendingErasure]:
        """Put the subjects of new erasures on the list, and answer what need not wait."""
        if not records:
            return []
        admitted = self._admission.admit(records, self._pending)
        self._at_step(Step.ERASE_SUPPRESS)
        self._admission.suppress(admitted)
        if admitted.answers:
            self._producer.publish(admitted.answers)
        self._pending |= {one.request.erasure_id: one for one in admitted.erasures}
        return admitted.erasures

    # -- 3 and 4 ------------------------------------------------------------------------------

    def _ask(self, erasures: Sequence[PendingErasure]) -> int:
        """Ask the models that know the new subjects; say so in a receipt that is not final."""
        if not erasures:
            return 0
        changes = changes_sent(self._reader)
        for erasure in erasures:
            erasure.changes = changes
        self._at_step(Step.ERASE_ASK)
        self._sender.ask(erasures, self._models())
        self._at_step(Step.ERASE_AWAIT)
        for erasure in erasures:
            self._logger.info(
                "models are asked",
                action="erasure_asked",
                erasure=erasure.request.erasure_id,
                requests=len(erasure.awaited),
            )
        return len(erasures)

    def _look(self) -> int:
        """Look for answers, ask again where it is time; return how many answers are new."""
        if not self._pending:
            return 0
        open_requests = [
            (erasure, one)
            for erasure in self._pending.values()
            for one in erasure.awaited.values()
            if not one.answered
        ]
        before = [one.receipt for _, one in open_requests]
        read_receipts(self._store, [one for _, one in open_requests])
        answers = sum(
            one.receipt is not old for (_, one), old in zip(open_requests, before, strict=True)
        )
        waiting = [one for one in self._pending.values() if not one.asked_again]
        silent = [(erasure, one) for erasure, one in open_requests if one.receipt is None]
        if waiting or silent:
            applied, models = Applied.read(self._store), self._models()
            self._send_again(silent, models)
            answers += self._ask_again(waiting, models, applied)
        return answers

    def _ask_again(
        self, erasures: Sequence[PendingErasure], models: Models, before: Applied
    ) -> int:
        """Ask again the models for which the store now has everything from before the fences.

        Returns the number of erasures. Models for which that is not yet true are asked later.
        """
        news = self._unsearched.news(erasures, models, before)
        if news:
            self._at_step(Step.ERASE_ASK_AGAIN)
            self._sender.ask([erasure for erasure, _ in news], models)
            for erasure, unsearched in news:
                erasure.unsearched = unsearched
        return len(news)

    def _send_again(self, silent: Sequence[tuple[PendingErasure, Awaited]], models: Models) -> None:
        """Send requests again that lie before the offset from which their model takes requests."""
        now = {model.model_id: model for model in models.registered}
        resent = []
        for erasure, one in silent:
            model = now.get(one.asked.model.model_id)
            if model is not None and one.lies_before(model.opening):
                resent.append((erasure, one.asked))
        self._sender.send(resent)

    # -- 5 ------------------------------------------------------------------------------

    def _finish(self) -> int:
        """Publish the receipts of finished erasures, and of others whose state is news."""
        if done := [one for one in self._pending.values() if one.finished]:
            models = self._models()
            note_not_covered(done, models)
            for erasure in (one for one in done if one.unknown):
                known = known_spellings(self._store, models.registered, *erasure.request.subject)
                erasure.similar = tuple(sorted(known))
        final = {name: one.receipt() for name, one in self._pending.items() if one.finished}
        messages = [
            receipt_message(news, one.request)
            for name, one in self._pending.items()
            if name not in final and (news := one.news()) is not None
        ]
        if final:
            self._at_step(Step.ERASE_PUBLISH)
            self._receipts.catch_up()
            there = self._receipts.find(final)
            messages += [
                receipt_message(receipt, self._pending[name].request)
                for name, receipt in final.items()
                if name not in there
            ]
        if messages:
            self._producer.publish(messages)
        for name, receipt in final.items():
            del self._pending[name]
            self._metrics.erasures.labels(receipt.status).inc()
            self._logger.info(
                "erasure finished",
                action="erasure_finished",
                erasure=name,
                status=receipt.status,
                models=len(receipt.models),
                rows=receipt.rows_deleted,
            )
        return len(final)

    def _models(self) -> Models:
        """Return the registered models; a list of them that lacks some is made again first."""
        try:
            return read_models(self._store)
        except KeysLost:
            restore_lists(self._store, self._reader)
            return read_models(self._store)

    # -- registrations ------------------------------------------------------------------------

    def _sweep_registrations(self) -> None:
        """Search what was registered since the last look for subjects that are erased."""
        now = time.monotonic()
        if now < self._sweep_due or not self._consumer.assignment():
            return
        self._sweep_due = now + self._sweep_seconds
        models = unchecked(self._store, self._models())
        self._suppressions.catch_up()
        if late := self._suppressions.repeating():
            self._producer.publish(late)
        if not models:
            return
        searched = []
        for model in models:
            self._keepalive()
            awaited = {name for one in self._pending.values() for name in one.awaited}
            found = [one for one in self._sweep.search(model) if one.request_id not in awaited]
            self._sender.send_unawaited(found, _SWEPT_AT)
            if found:
                self._logger.info(
                    "rows of erased subjects were registered meanwhile",
                    action="erasure_sweep",
                    model=model.model_id,
                    requests=len(found),
                )
            # A request to a model that is not open opens it, and counts for nothing: look again.
            if model.opening is not None or not found:
                searched.append(model)
        self._at_step(Step.ERASE_SWEEP)
        self._sweep.note(searched)


_SWEPT_AT = datetime.fromtimestamp(0, UTC)
"""Timestamp of the requests that a search makes: constant, so that the same request has the same
bytes. The time of the erasure itself is no longer known."""
