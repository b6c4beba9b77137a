"""A commit in the making: the one way from what was decided about a model to its commit. Pure.

A draft holds the state that its commit leads to. Whoever drafts changes that state first; then, in
this order, it gets the number of its next version (`Draft.number_version`), its receipts name that
number (`Draft.answer`), and the version names the head of the receipt log (`Draft.finish`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

import numpy as np

from lethe.consumers.commits.apply import Arrays, LiveGeneration
from lethe.consumers.commits.commit import Commit, CommitKind, KeptReceipt
from lethe.consumers.contract.events import RefreshInfo, RefreshRequested, SourceRange
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.versions.certificates import certificate_of, with_noise
from lethe.consumers.versions.receipts import Asked
from lethe.consumers.versions.refresh_schedule import order_refresh
from lethe.consumers.versions.version_event import (
    error_record,
    measured_error,
    new_version,
    with_pipeline_published,
)
from lethe.engine.deletion.generation import at_rest, distance_to_exact
from lethe.engine.error.sentinels import Sentinels
from lethe.engine.fit.objective import Array
from lethe.engine.merkle import leaf_hash
from lethe.engine.refresh.refreshes import complete
from lethe.engine.store.apply import RowsWritten
from lethe.engine.store.generation import PARAMETERS, empty_generation, scalars_of, thetas_of
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.meta import with_meta
from lethe.engine.store.layout.records import Certificate, ReceiptLog
from lethe.engine.store.layout.state import STAGED, ModelState
from lethe.engine.store.row_files import without_files


@dataclass(frozen=True, slots=True)
class Transition:
    """A commit, the state after it, and what it does to V, Q, generations and rows.

    ``after`` lacks what follows from the commit's record: its head, and the id of the arrays.
    """

    commit: Commit
    after: ModelState
    arrays: Arrays | None = None
    live: LiveGeneration | None = None
    written: RowsWritten | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """The log records that a commit processes, or none (registration)."""

    partition: str = ""
    next_offset: int = 0
    range: SourceRange | None = None


class Draft:
    """A commit of a model in the making.

    Attributes
    ----------
    before, kind, now, origin
        The state before; what was decided, and when; the records that it processes.
    state
        The state after it, so far.
    job
        The refresh that it schedules.
    completed
        Whether the projection of its version was replaced by the exact answer: it clears Q.
    """

    def __init__(
        self, before: ModelState, kind: CommitKind, now: datetime, origin: Origin | None = None
    ) -> None:
        self.before = self.state = before
        self.kind = kind
        self.now = now
        self.origin = origin or Origin()
        self.job: RefreshRequested | None = None
        self.completed = False
        self._numbered = False
        self._answers: list[tuple[Receipt, bytes]] = []

    def number_version(self, *, held: Array | None = None) -> None:
        """Give the state the number and the error of its next version, for its receipts.

        ``held``: what the version before published, if the same rows were live then.

        A projection over the error budget is replaced by theta_exact (`engine.error.budget`). A
        refresh is scheduled if the error was over the budget before that, if requests wait for a
        rebuild, or if the generation is used up; at most one job is pending.
        """
        stream = self.state.stream
        if not (np.isfinite(stream.theta_exact).all() and np.isfinite(stream.published).all()):
            # the last check before the commit: each step has its own
            raise AssertionError(f"model {self.state.model_id!r}: a step is not finite")
        state = with_noise(self.state, held)
        error = measured_error(state)
        over = error.over(state.meta.config.error_budget)
        if over and state.meta.config.completes and distance_to_exact(state.stream) > 0:
            stream = complete(state.stream)
            state = replace(state, stream=stream, meta=with_meta(state.meta, **scalars_of(stream)))
            error = measured_error(state)
            self.completed = True
        version = state.version + 1
        meta = with_meta(state.meta, error=error_record(state, error, version))
        self.state, self._numbered = replace(state, version=version, meta=meta), True
        self.order_refresh(over_budget=over)

    def order_refresh(self, *, over_budget: bool = False) -> None:
        """Schedule a refresh if one is needed, and none is pending."""
        self.state, self.job = order_refresh(self.state, self.now, over_budget=over_budget)

    def answer(self, asked: Asked, receipt: Receipt) -> None:
        """Keep the receipt of a request."""
        self._answers.append((receipt, asked.body))

    def answer_rejected(self, asked: Asked, code: str, detail: str) -> None:
        """Reject a request."""
        model_id = self.before.model_id
        receipt = asked.receipt(model_id, "REJECTED", self.now, code=code, detail=detail)
        self.answer(asked, receipt)

    def answer_applied(self, asked: Asked, **rows: int) -> None:
        """Answer a request that is applied, or was already: ``rows`` counts what changed."""
        after = self.state
        receipt = asked.receipt(
            after.model_id,
            "APPLIED" if any(rows.values()) else "ALREADY_APPLIED",
            self.now,
            version=after.version,
            generation=after.meta.generation,
            error=after.meta.error,
            certificate=self._certificate,
            **rows,
        )
        self.answer(asked, receipt)

    def finish(
        self,
        *,
        request_ids: Sequence[str] = (),
        refresh: RefreshInfo | None = None,
        repeats: Sequence[str | bytes] = (),
        arrays: Arrays | None = None,
        live: LiveGeneration | None = None,
        written: RowsWritten | None = None,
        whole: bool = False,
        **fields: Any,
    ) -> Transition:
        """Return the commit, with its version if that has a number, and the state after it.

        Parameters
        ----------
        request_ids, refresh
            Which requests make the version, or which refresh.
        repeats
            Receipts that are only sent: bytes, or the id of a request that this commit answers.
        arrays, live, written
            What it does to V and Q, to generations and to rows.
        whole
            Whether it has all thetas, also those that are as before.
        fields
            Other fields of the commit.
        """
        before, sent = self.before, self._kept()
        version = None
        if self._numbered:
            state = with_pipeline_published(self.state)
            version = new_version(
                state,
                request_ids=request_ids,
                refresh=refresh,
                source=self.origin.range,
                completed=self.completed,
                certificate=self._certificate,
                now=self.now,
            )
            self.state = replace(state, digest=version.digest, newest=version.value())
        after, thetas, columns = self.state, dict[str, bytes](), b""
        if whole or version is not None:
            thetas = thetas_of(after.stream, None if whole else before.stream)
        if version is not None and after.published_pipeline is not None:
            thetas[PARAMETERS] = codec.pack(after.published_pipeline.theta)
            columns = after.published_pipeline.fitted.packed
        origin = self.origin
        fields.setdefault(
            "offsets", {origin.partition: origin.next_offset} if origin.partition else {}
        )
        fields["clears_Q"] = fields.get("clears_Q", False) or self.completed
        commit = Commit(
            model_id=before.model_id,
            number=before.head.commit + 1,
            prev=before.head.digest,
            kind=self.kind,
            meta=after.meta,
            newest=after.version,
            answers=tuple(sent.values()),
            repeats=tuple(sent[one].value if isinstance(one, str) else one for one in repeats),
            thetas=thetas,
            columns=columns,
            version=version,
            version_value=b"" if version is None else after.newest,
            job=self.job,
            **fields,
        )
        if arrays is not None and self.completed:
            arrays = arrays.cleared()
        return Transition(commit, after, arrays, live, written)

    @cached_property
    def _certificate(self) -> Certificate | None:
        return certificate_of(self.state)

    def _kept(self) -> Mapping[str, KeptReceipt]:
        """Add the final receipts to the receipt log; return all receipts as they are kept.

        A receipt is serialised here, once.
        """
        log = self.state.meta.receipt_log or ReceiptLog()
        kept: dict[str, KeptReceipt] = {}
        leaves: list[bytes] = []
        for receipt, body in self._answers:
            value = receipt.value()
            place = log.size + len(leaves) if receipt.final else -1
            if receipt.final:
                leaves.append(leaf_hash(value))
            kept[receipt.request_id] = KeptReceipt(receipt, value, body, place)
        if leaves or self.state.meta.receipt_log is None:
            meta = self.state.meta.model_copy(update={"receipt_log": log.appended(leaves)})
            self.state = replace(self.state, meta=meta)
        return kept


def without_rows(state: ModelState) -> ModelState:
    """Return a state as it is once its last row is gone: EMPTY, in a generation of its own.

    Factor, theta_b, V and Q derive from the rows that are gone: the commit discards the whole
    generation, and the new one has nothing to store. The caller counts the rows.
    """
    config, number = state.meta.config, state.meta.generation + 1
    counts = state.meta.class_counts
    stream = at_rest(np.zeros((config.d, config.m)), 0.0, config.stacked)
    meta = with_meta(
        state.meta,
        **scalars_of(stream),
        status="EMPTY",
        generation=number,
        generation_key=f"{number}-empty-{state.head.commit + 1}",
        reference_epoch=state.meta.reference_epoch + 1,
        class_counts=None if counts is None else (0,) * len(counts),
        first_deletion_at=None,
        certified_bound=None,
        ledger=None,
        row_files=without_files(state.meta.row_files),
    )
    rows, W = state.sentinels.rows, state.sentinels.W
    return replace(
        state,
        meta=meta,
        arrays_id=STAGED,
        rows_generation=meta.generation_key,
        generation=empty_generation(config, number),
        stream=stream,
        pipeline=None,
        sentinels=Sentinels((), rows.take(slice(0, 0)), W[:0]),
    )


def opening_transition(state: ModelState, opening: Mapping[str, int]) -> Transition:
    """Return the commit that says from which offset of each partition requests are the model's."""
    draft = Draft(state, CommitKind.OPENING, state.meta.refreshed_at)
    draft.state = replace(state, opening=opening)
    return draft.finish(opening=opening)
