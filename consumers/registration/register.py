"""Registering a model: fit, precompute, stage, commit version 0 (or the next one), publish.

The commit is made like any other: it is appended, then applied to the store. First a fold reads to
the end of the log, and the commit continues the newest one found there. If somebody else commits in
between, it is void: the ledger is read again, the rows that were deleted meanwhile are left out,
and it is appended again. So a row whose deletion was committed never comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from lethe.consumers.commits.apply import staged_keys
from lethe.consumers.commits.commit import LoggedCommit
from lethe.consumers.commits.journal import LogGap
from lethe.consumers.commits.recovery.replay import StoreTooOld
from lethe.consumers.commits.recovery.unapplied import with_logged_meta, with_unapplied
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.contract.signatures import Signer, TrustedKeys
from lethe.consumers.log.base import Producer, Reader
from lethe.consumers.registration.candidate import Candidate, discard, stage
from lethe.consumers.registration.checks import (
    check_exact_sums,
    check_names,
    check_same_shape,
    check_size,
)
from lethe.consumers.registration.committer import Committer
from lethe.consumers.registration.predecessor import (
    continue_from_published,
    tip_of,
    with_former_rows,
)
from lethe.consumers.registration.registration_commit import registration, unregistration
from lethe.consumers.registration.successor import successor_of
from lethe.consumers.registration.training_data import TrainingData
from lethe.consumers.service.telemetry.progress import Progress, no_progress
from lethe.consumers.service.telemetry.steps import AtStep, Step, no_hook
from lethe.consumers.suppression.marks import DEFAULT_NAMESPACE
from lethe.consumers.suppression.suppressions import Suppressions
from lethe.consumers.versions.certificates import check_terms
from lethe.consumers.versions.disclosures import check_disclosure
from lethe.consumers.versions.draft import Transition
from lethe.engine.errors import (
    CommitConflict,
    CorruptState,
    IllConditioned,
    InvalidData,
    ModelExists,
)
from lethe.engine.store.counts import KeysLost
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.layout.state import Head, ModelState
from lethe.engine.store.membership import unknown
from lethe.engine.store.offline import staging
from lethe.engine.store.offline.predecessor import (
    Members,
    Predecessor,
    read_members,
    read_predecessor,
)
from lethe.engine.store.row_files import by_the_newest
from lethe.engine.store.store import ModelStore

COMMIT_TRIES = 50  # each attempt catches up with what was deleted meanwhile
_WAY_OUT = (LogGap, StoreTooOld, CorruptState)

__all__ = ["Registered", "Registrar", "TrainingData"]


class Overtaken(Exception):
    """What is staged cannot follow the deletions since, by a step or by its names: fit again."""


@dataclass(frozen=True, slots=True)
class Registered:
    """What registration did.

    ``in_ledger`` rows were in the deletion ledger; ``erased`` rows belong to subjects that were
    erased (`consumers.suppression`); ``subjects`` have rows.
    """

    state: ModelState
    in_ledger: int
    erased: int
    subjects: int


class Registrar:
    """Registers and unregisters models; one thread uses it.

    Its parameters are those of a `Committer`, and ``now``, the clock of versions.
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
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        progress: Progress = no_progress,
        at_step: AtStep = no_hook,
    ) -> None:
        self._store = store
        self._reader = reader
        self._seals = seals
        self._trusted = trusted
        self._now = now
        self._progress = progress
        self._at_step = at_step
        self._suppressions = Suppressions(store, reader, seals)
        self._committer = Committer(
            store,
            producer,
            reader,
            seals,
            signer=signer,
            trusted=trusted,
            progress=progress,
            at_step=at_step,
        )

    def register(
        self,
        config: ModelConfig,
        data: TrainingData,
        *,
        replace_model: bool = False,
        accept_forgotten: bool = False,
        allow_change: bool = False,
    ) -> Registered:
        """Fit, precompute, store and publish.

        Raises
        ------
        ModelExists
            The model is registered, and ``replace_model`` is False.
        InvalidData, IllConditioned, NotConverged
            The data cannot be used; nothing was stored. Or, unless ``allow_change``, they would
            change the model's kind or columns.
        CorruptState
            Registration cannot continue from the store or the log; nothing was changed. Also if the
            commits of the model's deletions have expired, unless ``accept_forgotten``.
        StoreUnavailable, LogUnavailable
            A server is away. The next registration finds out whether the commit happened; workers
            apply and publish it.

        Notes
        -----
        Cost O(n d^2) time, O(n d) bytes written.
        """
        check(config)
        if data.subjects and config.subject_namespace is None:
            config = config.model_copy(update={"subject_namespace": DEFAULT_NAMESPACE})
        accept = replace_model and accept_forgotten
        for _ in range(COMMIT_TRIES):
            with suppress(Overtaken):
                return self._registered(
                    config, data, replace_model=replace_model, accept=accept, change=allow_change
                )
        raise contested(config.model_id)

    def _registered(
        self,
        config: ModelConfig,
        data: TrainingData,
        *,
        replace_model: bool,
        accept: bool,
        change: bool,
    ) -> Registered:
        """Do `register` once; ``change``: even if the model's kind or columns are others then."""
        keys = ModelKeys(config.model_id)
        before = self._read(keys, replace_model=replace_model, accept=accept)
        if before.registered and not replace_model:
            raise exists(keys.model_id, before.version)
        known = data.without_subjects(self._erased(config, data))
        kept = known.without(self._gone(before, known))
        if kept.table is not None:
            columns = {"feature_names": kept.feature_names, "preprocess": kept.preprocess}
            config = config.model_copy(update=columns)
        if before.registered and before.meta is not None and not change:
            check_same_shape(before.meta.config, config)
        self._progress("fitting and precomputing", 0, 0)
        candidate = stage(
            self._store,
            config,
            kept,
            tip_of(self._reader, before).generation + 1,
            before.head.commit + 1,
            progress=self._staging_progress(),
            now=self._now(),
        )
        state = self._commit(candidate, before, replace_model=replace_model, accept=accept)
        return Registered(
            state,
            in_ledger=len(known.ids) - len(kept.ids),
            erased=len(data.ids) - len(known.ids),
            subjects=sum(not candidate.new.isdisjoint(names) for names in known.subjects.values()),
        )

    def unregister(self, model_id: str) -> Head:
        """End a model: its rows and its state go; its history, ledger and numbers stay.

        Deferred requests get their final receipts.

        Raises
        ------
        UnknownModel
            It is not registered.
        """
        for attempt in range(COMMIT_TRIES):
            folded = self._committer.fold(model_id)
            if model_id in folded.halted:
                raise folded.halted[model_id]
            state, applied = self._store.load_as_of(model_id)
            if applied < folded.followed.tail.offset:
                continue  # the store has gone back since
            if attempt and state is not None and not state.registered:
                return state.head  # our previous attempt had won after all
            if state is None or not state.registered:
                raise unknown(model_id)
            self._seals.check(model_id, state.seal)
            if state.opening is None:  # its registration died before the opening
                self._committer.publish(self._committer.open(model_id))
                continue
            transition = unregistration(state, self._now())
            logged = self._committer.append(transition)
            if logged is None:
                continue
            self._committer.apply(logged, state, transition)
            self._committer.publish([logged])
            return logged.head
        raise contested(model_id)

    # -- reading the predecessor ------------------------------------------------------------------

    def _read(self, keys: ModelKeys, *, replace_model: bool, accept: bool) -> Predecessor:
        """Return what the log and the store have of the model; of a halted one, only to replace it.

        ``accept``: even if older deletions are forgotten.
        """
        for _ in range(COMMIT_TRIES):
            folded = self._committer.fold(keys.model_id)
            halt = folded.halted.get(keys.model_id)
            before = read_predecessor(self._store.client, keys)
            if halt is not None or before.applied >= folded.followed.tail.offset:
                break  # else the store has gone back since
        if before.seal and not accept:
            self._seals.check(keys.model_id, before.seal)
        if halt is not None and not (replace_model and isinstance(halt, _WAY_OUT)):
            raise halt
        if isinstance(halt, KeysLost) and not accept:
            raise halt
        followed = folded.followed
        if before.meta is None and before.head.commit >= 0:
            before = with_logged_meta(before, self._reader, followed, self._seals, self._trusted)
        head = followed.heads.get(keys.model_id, before.head)
        expired, gap = isinstance(halt, StoreTooOld), isinstance(halt, LogGap)
        before = replace(before, expired=expired, gap=gap)
        if head != before.head or before.applied < followed.tail.offset:
            before = with_unapplied(
                before, self._reader, followed, self._seals, self._trusted, accept=accept
            )
        if before.expired or before.head.commit < 0:
            before = continue_from_published(self._reader, before, accept=accept)
        return before

    def _gone(self, before: Predecessor, data: TrainingData) -> frozenset[str]:
        return self._store.rows_in_ledger(before.keys, data.ids) | before.ledger.intersection(
            data.ids
        )

    def _erased(self, config: ModelConfig, data: TrainingData) -> Collection[str]:
        """Return those subjects of the rows that are on the suppression list now."""
        if not data.subjects:
            return ()
        self._suppressions.catch_up()
        return self._suppressions.of(config.subject_namespace or DEFAULT_NAMESPACE, data.subjects)

    def _staging_progress(self) -> Progress:
        def staged(what: str, done: int, total: int) -> None:
            self._progress(what, done, total)
            self._at_step(Step.REGISTER_STAGE)

        return staged

    def _members(self, before: Predecessor, *, accept: bool) -> Members:
        """Return the former rows, and whose they are. Cost O(n) ids.

        ``accept``: without those of files that cannot be read any more.
        """
        members = read_members(self._store.client, before)
        if before.meta is None or before.meta.row_files is None:
            return members
        ids, subjects = list(members.ids), dict(members.subjects)
        every = self._store.row_files.every_owned
        in_files: list[tuple[tuple[str, ...], tuple[str | None, ...]]] = []
        try:
            in_files = by_the_newest(self._store.client, before.meta, lambda now: list(every(now)))
        except CorruptState:
            if not accept:
                raise
        for rows, owners in in_files:
            ids += rows
            for row, subject in zip(rows, owners, strict=False):
                if subject is not None:
                    subjects[subject] = (*subjects.get(subject, ()), row)
        once = {subject: tuple(dict.fromkeys(rows)) for subject, rows in subjects.items()}
        return replace(members, ids=tuple(dict.fromkeys(ids)), subjects=once)

    # -- committing -----------------------------------------------------------------------------

    def _commit(
        self, candidate: Candidate, before: Predecessor, *, replace_model: bool, accept: bool
    ) -> ModelState:
        """Commit, catching up with what others committed meanwhile."""
        keys, store = before.keys, self._store
        members: Members | None = None
        for attempt in range(COMMIT_TRIES):
            if attempt:
                before = self._read(keys, replace_model=replace_model, accept=accept)
                if before.meta is not None and before.meta.dataset_key == candidate.where.name:
                    # The last attempt won; what somebody else wrote was of another model.
                    return self._finish(candidate, [])
                if before.registered and not replace_model:
                    discard(store, candidate.state.meta.config, candidate.where, candidate.dataset)
                    raise exists(keys.model_id, before.version)
                number = before.head.commit + 1
                url = candidate.state.meta.config.rows_url
                staging.note_registration(store.client, keys, candidate.where.name, number, url)
            if members is None or not members.are_of(before):
                members = self._members(before, accept=accept)
                config, given = candidate.state.meta.config, candidate.data.subjects
                subjects = with_former_rows(before, config, given, members, candidate.new)
                # What was appended before may still land, and must find them.
                seconds = None if attempt else staging.TIME_TO_LIVE
                staging.stage_subjects(store.client, candidate.dataset, subjects, seconds)
            try:
                candidate = self._onto(candidate, before)
                mark = staging.mark_complete(
                    store.client,
                    candidate.where,
                    kept=[*candidate.where.everything(), *candidate.dataset.everything()],
                )
                transition = self._transition(candidate, before, members, mark)
            except (InvalidData, CorruptState, Overtaken):
                discard(store, candidate.state.meta.config, candidate.where, candidate.dataset)
                raise
            except KeyboardInterrupt:
                if not attempt:  # else what was appended before may still land
                    discard(store, candidate.state.meta.config, candidate.where, candidate.dataset)
                raise
            store.wait_durable()
            self._at_step(Step.REGISTER_APPEND)
            logged = self._committer.append(transition)
            if logged is None:
                continue
            self._at_step(Step.REGISTER_APPLY)
            self._committer.apply(logged, None, transition)
            return self._finish(candidate, [logged])
        raise contested(keys.model_id)

    def _finish(self, candidate: Candidate, logged: list[LoggedCommit]) -> ModelState:
        """Open a model whose registration is applied, and publish what is not published yet."""
        keys, store = candidate.state.keys, self._store
        staging.end_registration(store.client, keys, candidate.where.name)
        self._at_step(Step.REGISTER_OPEN)
        opened = self._committer.open(keys.model_id)
        self._at_step(Step.REGISTER_FINISH)
        self._committer.publish([*logged, *opened])
        staging.sweep_registrations(store.client, keys, store.row_keys)
        return store.load_model(keys.model_id)

    # -- the commit itself ----------------------------------------------------------------------

    def _onto(self, candidate: Candidate, before: Predecessor) -> Candidate:
        """Return the candidate as successor of the present state, without rows deleted since."""
        later = self._gone(before, candidate.data) | self._erased_rows(candidate)
        try:
            state = successor_of(self._store, self._reader, candidate, before, sorted(later))
        except IllConditioned as error:
            raise Overtaken from error
        left = candidate.data.without(later)
        if left.preprocess != candidate.data.preprocess:
            raise Overtaken
        if state.meta.row_files is not None:  # files still have them when others commit first
            candidate = replace(candidate, data=left)
        return replace(candidate, state=state)

    def _erased_rows(self, candidate: Candidate) -> frozenset[str]:
        """Return the rows of subjects that were erased while they were staged."""
        data = candidate.data
        erased = self._erased(candidate.state.meta.config, data)
        return frozenset(row for subject in erased for row in data.subjects[subject])

    def _transition(
        self, candidate: Candidate, before: Predecessor, members: Members, mark: str
    ) -> Transition:
        """Return the commit that makes a candidate live, and what it changes."""
        former = dict.fromkeys((*members.ids, *sorted(before.inserted)))
        missing = [row for row in former if row not in candidate.new]
        unapplied = before.ledger - self._store.rows_in_ledger(before.keys, sorted(before.ledger))
        gone = self._store.rows_in_ledger(before.keys, missing) | before.ledger
        transition = registration(
            candidate,
            before,
            deleted=sorted(unapplied),
            left_out=[row for row in missing if row not in gone],
            mark=mark,
            now=self._now(),
        )
        live = staged_keys(self._store, transition.commit)
        if live is None:
            raise CorruptState(
                f"model {candidate.state.model_id!r}: what was staged was gone before it could be "
                "committed (a store with a maxmemory-policy may evict it); nothing was changed, "
                "register it again"
            )
        if self._store.row_keys is not None:
            self._store.row_keys.keep(candidate.where)
        return replace(transition, live=live)


def check(config: ModelConfig) -> None:
    """Refuse what no model can be, whatever its rows are.

    Raises
    ------
    InvalidData
        The message says what.
    """
    check_names(config)
    check_size(config)
    check_terms(config)
    check_disclosure(config)
    check_exact_sums(config)


def exists(model_id: str, version: int | None = None) -> ModelExists:
    """Return the error for a name that is taken."""
    at = "" if version is None else f" (version {version})"
    return ModelExists(
        f"model {model_id!r} is registered already{at}; use --replace to publish its next version "
        "from this file"
    )


def contested(model_id: str) -> CommitConflict:
    return CommitConflict(
        f"model {model_id!r}: others committed {COMMIT_TRIES} times in a row; "
        "try again when fewer deletions arrive"
    )
