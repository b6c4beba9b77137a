"""Bringing a state that lost writes to where the log says that it was (docs/commit.md).

The lost batches are decided again, with the boundaries and times that were published, by the same
functions as the first time; what was published of them is then taken byte for byte, digests,
receipts and parameters: the log wins. What cannot be computed again is adopted as it is
(`consumers.adopt_refresh`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from consumers import chain, topics
from consumers.adopt_refresh import adopt_refresh, check_log
from consumers.decide_again import decide_again
from consumers.events import Receipt, Version
from consumers.log.base import Partition, Reader
from consumers.lost_batches import Batch, as_committed, comes_to
from consumers.lost_history import (
    Lost,
    fork,
    not_held,
    origin_of_version,
    partition_of,
    read_lost,
)
from consumers.newest import records_of
from consumers.reach import Reach
from consumers.refresh_swap import swap
from consumers.refresh_transition import dropped
from consumers.signing import TrustedKeys
from consumers.telemetry import logger
from consumers.transition import (
    Origin,
    Transition,
    advanced,
    head_fields,
    leaves_of,
    opened_receipt,
    published_digest,
    step,
    stored_receipt,
    with_answers,
    with_leaves,
    with_meta,
)
from consumers.validate import Refreshed, validate
from engine.errors import CommitConflict, VersionFork
from engine.objective import Array, norm
from engine.store.commit import Commit
from engine.store.outbox import Stage, decode
from engine.store.state import ModelState
from engine.store.store import ModelStore
from engine.stream import rounding

_TO_THE_END = sys.maxsize

_TOLERANCE = 1e-6
"""Relative distance of parameters that are computed again: rounding, on another machine."""


def adopt(
    store: ModelStore,
    reader: Reader,
    model_id: str,
    reach: Reach,
    trusted: TrustedKeys | None = None,
) -> ModelState:
    """Bring a model's state to what was published; return it.

    Parameters
    ----------
    store, reader
        The state, and the log that is ahead of it.
    model_id
        The model.
    reach
        How far back the log is read.
    trusted
        The keys that must have signed what the state is brought to; None: signatures are not
        asked for.

    Raises
    ------
    VersionFork
        Log and state disagree: this is no loss of writes, and a person must decide.
    CommitConflict
        Another worker is at it.
    """
    state = store.load_model(model_id)
    try:
        return _adopted(store, reader, state, reach, trusted)
    except VersionFork as error:
        if store.look_up(state, [], []).commit_seq == state.commit_seq:
            raise
        # What is compared with history here is older than what it was compared with.
        raise CommitConflict(
            f"{state.keys.tag}: another worker has taken it from the log"
        ) from error


def _adopted(
    store: ModelStore,
    reader: Reader,
    state: ModelState,
    reach: Reach,
    trusted: TrustedKeys | None,
) -> ModelState:
    lost = not_held(store, state, read_lost(reader, state, reach, trusted))
    if not lost and not lost.answers(state):
        return state
    logger("takeover").warning(
        "the store lost writes that were published; they are taken from the log",
        action="adopt",
        model=state.model_id,
        stored_version=state.version,
        published_version=lost.versions[-1].version if lost.versions else state.version,
    )
    return _Adoption(store, reader, lost).run(state)


@dataclass(frozen=True, slots=True)
class _Adoption:
    store: ModelStore
    reader: Reader
    lost: Lost

    def run(self, state: ModelState) -> ModelState:
        before, leaves = state, self.lost.leaves(state)
        if not self.lost.versions:
            self._say("adopt_receipts", "answers that made no version were lost", state)
        for at, version in enumerate(self.lost.versions):
            if version.source is None:
                raise fork(state, version, "registration made it, whose data the log has not")
            partition = partition_of(self.reader, version.source)
            ends = self._answered_before(before, leaves, version)
            own = {partition: version.source.first_offset}
            state, alike = self._answer_before(state, ends | own)
            transition = self._version_again(state, partition, version) if alike else None
            if transition is None:
                self._say("adopt_parameters", "it cannot be made again: a rebuild is due", state)
                rest = self.lost.versions[at:]
                adopted = adopt_refresh(self.store, self.reader, self.lost, state, rest)
                self.store.commit(adopted.commit)
                state = adopted.after
                break
            if version.refresh is not None:
                self._say("adopt_refresh", "a lost refresh is swapped in again", state)
            state = self._take(state, transition, version)
        state = self._answer_after(state)
        return self._drop_decided_job(before, state)

    def _say(self, action: str, what: str, state: ModelState) -> None:
        logger("takeover").info(what, action=action, model=state.model_id, version=state.version)

    # -- deciding again -----------------------------------------------------------------------

    def _answered_before(
        self, before: ModelState, leaves: Sequence[Receipt], version: Version
    ) -> dict[Partition, int]:
        """Return where each partition was when a version was made, by its log of receipts.

        The log holds the receipts of all partitions in the order of their commits.
        """
        log, known = version.receipt_log, before.meta.receipt_log
        count = 0 if log is None else log.size - (0 if known is None else known.size)
        if not 0 < count <= len(leaves):
            return {}
        last = self.lost.position(leaves[count - 1])
        return {
            partition: 1
            + max((r.source.offset for r in receipts if self.lost.position(r) <= last), default=-1)
            for partition, receipts in self.lost.receipts.items()
        }

    def _answer_before(
        self, state: ModelState, ends: Mapping[Partition, int]
    ) -> tuple[ModelState, bool]:
        """Decide again what was answered below ``ends``, before the next published version.

        False: something of it would make a version this time, and take the number of that one.
        """
        for position, batch in self._commits(state, ends):
            state = self._take_answers(state, position)
            transition = decide_again(self.store, self.reader, self.lost, state, batch)
            if transition.after.version > state.version:
                return state, False
            state = self._take(state, transition, None)
        return state, True

    def _answer_after(self, state: ModelState) -> ModelState:
        """Decide again what was answered after the last published version."""
        ends = dict.fromkeys(self.lost.receipts, _TO_THE_END)
        for position, batch in self._commits(state, ends):
            state = self._take_answers(state, position)
            transition = decide_again(self.store, self.reader, self.lost, state, batch)
            if transition.after.version > state.version:
                self._check_alone(transition)
            state = self._take(state, transition, None)
        return self._take_answers(state)

    def _check_alone(self, transition: Transition) -> None:
        """Refuse to make a version of which a request has its receipt that is not in it."""
        after = transition.after
        others = self.lost.applied_in(after.version) - transition.commit.requests.keys()
        if others:
            raise VersionFork(
                f"model {after.model_id!r}: request {min(others)!r} was answered APPLIED with "
                f"version {after.version}, which the store lost, and which comes out again without "
                "it. Restore the store, or register the model again with --replace"
            )

    def _commits(self, state: ModelState, ends: Mapping[Partition, int]) -> list[tuple[int, Batch]]:
        """Return what was answered below ``ends`` as it was committed, in the order of the log."""
        commits: list[tuple[int, Batch]] = []
        for partition, end in ends.items():
            first = state.offsets.get(str(partition), 0)
            receipts = [
                receipt
                for receipt in self.lost.receipts.get(partition, ())
                if first <= receipt.source.offset < end
            ]
            for commit in as_committed(receipts):
                offsets = range(commit[0].source.offset, commit[-1].source.offset + 1)
                batch = Batch(partition, offsets, commit[0].completed_at)
                commits.append((self.lost.position(commit[0]), batch))
        return sorted(commits, key=lambda commit: commit[0])

    def _take_answers(self, state: ModelState, until: int | None = None) -> ModelState:
        """Keep the final receipts of requests that are deferred (again), as they were published.

        A rebuild had resolved them, and the store lost it before its version was published. What
        was decided after that waited for the next one: so those before place ``until`` are kept
        before what stands there is decided again, and the log of receipts has its order.
        """
        receipts = self.lost.answers(state, until)
        if not receipts:
            return state
        self._say("adopt_waiting", "requests that wait were answered already", state)
        waiting = {receipt.request_id: state.deferred[receipt.request_id] for receipt in receipts}
        answered = with_answers(waiting, receipts)
        leaves = leaves_of(receipts)
        after = with_leaves(replace(state, deferred={**state.deferred, **answered}), leaves)
        origin = Origin(*next(iter(state.offsets.items())))
        commit = replace(
            step(state, after, origin),
            receipt_log=leaves,
            requests={
                receipt.request_id: stored_receipt(receipt, waiting[receipt.request_id].body)
                for receipt in receipts
            },
            deferred={name: request.model_dump_json() for name, request in answered.items()},
        )
        self.store.commit(commit)
        return advanced(after, origin)

    def _version_again(
        self, state: ModelState, partition: Partition, version: Version
    ) -> Transition | None:
        """Return the transition to a published version; None where it cannot be made again."""
        origin = origin_of_version(self.reader, version)
        if origin is None or origin.range is None:
            return None
        source = origin.range
        if version.refresh is not None:
            job_id = version.refresh.job_id
            origin = replace(origin, published=self.lost.same_decision)
            transition = swap(self.store, state, job_id, origin, version.created_at).transition
            if published_digest(transition.after) != version.parameters_digest:
                return None  # the job was done again since, and came to another result
        else:
            offsets = range(source.first_offset, source.last_offset + 1)
            batch = Batch(partition, offsets, version.created_at)
            transition = decide_again(self.store, self.reader, self.lost, state, batch)
        return transition if comes_to(transition, version) else None

    # -- taking what was published ------------------------------------------------------------

    def _take(
        self, before: ModelState, transition: Transition, version: Version | None
    ) -> ModelState:
        """Commit a transition with what was published of it in place of what was computed."""
        after, leaves = self._logged(before, transition, version)
        if version is not None:
            after = replace(
                after,
                digest=version.digest,
                stream=replace(after.stream, published=self._theta(after, version)),
                meta=with_meta(after.meta, error=version.error),
            )
        requests, answered = self._receipts(transition.commit)
        same_arrays = after.meta.generation_key == before.meta.generation_key
        commit = replace(
            transition.commit,
            head=head_fields(after, before if same_arrays else None),
            requests=requests,
            receipt_log=leaves,
            outbox=[
                entry
                for entry in transition.commit.outbox
                if not _is_published(entry, answered, version is not None)
            ],
            parameters=self._parameters(transition.commit, version),
        )
        self.store.commit(commit)
        return after

    def _logged(
        self, before: ModelState, transition: Transition, version: Version | None
    ) -> tuple[ModelState, Sequence[bytes]]:
        """Return the state with the log of receipts that was published, and what that adds.

        A program of before there was one may have made the version: then it begins later.
        """
        after, leaves = transition.after, transition.commit.receipt_log
        begun = [version] if version is not None else self.lost.versions
        if before.meta.receipt_log is None and not any(one.receipt_log for one in begun):
            after = replace(after, meta=with_meta(after.meta, receipt_log=None))
            leaves = ()
        if version is not None:
            check_log(after, version)
        return after, leaves

    def _theta(self, after: ModelState, version: Version) -> Array:
        """Return the published parameters if they are still there, else those computed."""
        computed = after.stream.published
        parameters = self.lost.parameters
        if parameters is None or parameters.digest != version.digest or parameters.theta is None:
            return computed
        published = chain.theta_of(parameters)
        chain.check_parameters(parameters, version, published)
        allowed = _TOLERANCE * max(norm(published), norm(computed))
        allowed += rounding(after.generation, after.stream)
        if norm(published - computed) > allowed:
            raise fork(after, version, "other parameters come out again")
        return published

    def _receipts(self, commit: Commit) -> tuple[dict[str, str], set[str]]:
        """Return the receipts to keep, published ones in place of new ones, and which those are."""
        kept, answered = {}, set()
        for request_id, stored in commit.requests.items():
            body, receipt = _opened(stored)
            published = self.lost.published(receipt)
            if published is not None:
                answered.add(request_id)
            kept[request_id] = stored_receipt(published or receipt, body)
        return kept, answered

    def _parameters(self, commit: Commit, version: Version | None) -> bytes | None:
        newest = self.lost.parameters
        if version is not None and newest is not None and newest.digest == version.digest:
            return newest.value()
        return commit.parameters

    # -- the job that the state waits for -----------------------------------------------------

    def _drop_decided_job(self, before: ModelState, state: ModelState) -> ModelState:
        """Wait no longer for a refresh whose event was decided by what was lost."""
        pending = state.meta.pending_job
        if pending is None:
            return state
        for partition in self.reader.partitions(topics.DELETIONS):
            name = str(partition)
            decided = range(before.offsets.get(name, 0), state.offsets.get(name, 0))
            for record in records_of(self.reader, partition, decided):
                item = validate(record)
                if isinstance(item, Refreshed) and item.event.job_id == pending.job_id:
                    origin = Origin(name, decided.stop)
                    transition = dropped(state, pending.job_id, origin, now=pending.ordered_at)
                    self.store.commit(transition.commit)
                    return transition.after
        return state


def _opened(stored: str) -> tuple[str, Receipt]:
    """Return body and receipt from their stored form."""
    kept, receipt = opened_receipt(stored, "a request of a commit")
    return kept.body, receipt


def _is_published(entry: bytes, answered: set[str], version: bool) -> bool:
    """Return whether a message of a commit is in the log already."""
    message = decode(entry)
    if message.stage in (Stage.PARAMETERS, Stage.VERSIONS):
        return version
    if message.stage is Stage.RECEIPTS:
        receipt = Receipt.model_validate_json(message.value)
        return receipt.request_id in answered and receipt.code != "REQUEST_ID_CONFLICT"
    return False
