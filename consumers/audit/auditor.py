"""One audit, of what the servers hold or of an exported file alone.

Workers may commit while an audit reads. So it compares the state before and after, and reads again
if the state has moved; a state that never stands still is not compared, and the audit says so.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from lethe.consumers.audit.commit_checks import commit_findings
from lethe.consumers.audit.commits import CommitChain, CommitOpener, read_chain
from lethe.consumers.audit.published.bundle import (
    BundleReader,
    Cosigned,
    Header,
    Item,
    leaf_items,
    write_bundle,
)
from lethe.consumers.audit.published.checkpoint import Checkpoint
from lethe.consumers.audit.published.checks import history_findings
from lethe.consumers.audit.published.erasure import Evidence, erasure_findings
from lethe.consumers.audit.published.evidence import from_base64
from lethe.consumers.audit.published.finding import Finding, Result, Verdict
from lethe.consumers.audit.published.history import History
from lethe.consumers.audit.reading import (
    for_export,
    records_of_model,
    stored_parameters,
    stored_receipts,
)
from lethe.consumers.audit.refit import Holding, bound_finding, refit_finding
from lethe.consumers.audit.state import StateStamp, stamp_of, state_findings
from lethe.consumers.commits.receipt_index import leaves_of
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import rfc3339
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.contract.signatures import TrustedKeys
from lethe.consumers.contract.tlog import of_log
from lethe.consumers.contract.witnesses import Policy
from lethe.consumers.log.base import Reader
from lethe.consumers.log.scan import Extent, extent_of
from lethe.consumers.service.telemetry.progress import Progress, no_progress
from lethe.engine.errors import CorruptState, InvalidData, UnknownModel
from lethe.engine.merkle import root_of
from lethe.engine.store.layout.records import ReceiptLog
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.store import ModelStore

Remembered = Callable[[str], Checkpoint | None]
"""Returns the checkpoint of an earlier audit of a model, if there is one."""

_TRIES = 5
_PAUSE = 0.5


@dataclass(frozen=True, slots=True)
class _Judged:
    """The findings, in the order of the checks."""

    findings: Sequence[Finding]

    def count(self, result: Result) -> int:
        """Return how many checks had this result."""
        return sum(finding.result is result for finding in self.findings)

    @property
    def verdict(self) -> Verdict:
        """What the findings come to."""
        return Verdict.of(self.findings)


@dataclass(frozen=True, slots=True)
class Audit(_Judged):
    """An audit of a model; ``exported``: how many records were written to a file."""

    history: History
    exported: int | None = None


@dataclass(frozen=True, slots=True)
class ErasureAudit(_Judged):
    """An audit of the evidence of an erasure."""

    evidence: Evidence


# -- a file -------------------------------------------------------------------------------------


def audit_bundle(
    path: Path,
    *,
    model_id: str | None,
    trusted: TrustedKeys | None,
    remembered: Remembered,
    holding: Holding | None,
    policy: Policy | None = None,
    cosigned: Sequence[str] = (),
    progress: Progress = no_progress,
) -> Audit | ErasureAudit:
    """Check everything that can be checked in an exported file, without a server.

    ``remembered`` and ``holding`` are for the history of a model. ``policy`` says which witnesses
    must have cosigned what it relies on, and ``cosigned`` are checkpoints from elsewhere.

    Raises
    ------
    InvalidData
        A file cannot be read, or was truncated.
    """
    with BundleReader(path) as bundle:
        header = bundle.header
        keys = trusted or _named_keys(header)
        if model_id is not None and model_id != header.model_id:
            about = f"erasure {header.erasure_id!r}" if header.erasure_id else repr(header.model_id)
            raise InvalidData(f"{path}: belongs to {about}, not to model {model_id!r}")
        progress(f"reading {path}", 0, 0)
        if header.erasure_id:
            if holding is not None or remembered("") is not None:
                raise InvalidData(
                    f"{path}: holds the evidence of erasure {header.erasure_id!r}; a checkpoint "
                    "and training rows can be checked only against a model's history"
                )
            evidence = Evidence(header.erasure_id, keys)
            evidence.read(bundle)
            for model in evidence.models.values():
                model.checkpoints += of_log(cosigned, model.model_id)
            found = erasure_findings(evidence, trusted=trusted is not None, policy=policy)
            return ErasureAudit(list(found), evidence)
        history = History(header.model_id, keys)
        history.begins = dict(header.begins)
        history.read(bundle)
    history.checkpoints += of_log(cosigned, header.model_id)
    progress("checking", 0, 0)
    seen = remembered(header.model_id)
    findings = list(
        history_findings(history, trusted=trusted is not None, seen=seen, policy=policy)
    )
    findings.append(refit_finding(history, header.registration, holding))
    return Audit(findings, history)


def _named_keys(header: Header) -> TrustedKeys | None:
    """Return the keys that a file itself names: they show only that it is consistent."""
    try:
        keys = TrustedKeys.of(from_base64(key) for key in header.public_keys)
    except (ValueError, InvalidData):
        return None
    return keys if len(keys) else None


# -- servers ------------------------------------------------------------------------------------


def audit_model(
    store: ModelStore,
    reader: Reader,
    model_id: str,
    *,
    trusted: TrustedKeys | None = None,
    seals: SealKeys | None = None,
    remembered: Remembered = lambda _: None,
    export: Path | None = None,
    bound: bool = True,
    log_alone: bool = False,
    policy: Policy | None = None,
    cosigned: Sequence[str] = (),
    progress: Progress = no_progress,
) -> Audit:
    """Check a model's published history, its commits, its state and its bound.

    ``export`` names a bundle to write. ``seals`` opens commits; without it, only their open part is
    checked. ``log_alone``: a store that lacks the model may not be the workers' store. ``policy``
    and ``cosigned`` are as in `audit_bundle`; the bundle has the checkpoints, too.

    Raises
    ------
    UnknownModel
        Neither the log nor the store knows the model.
    StoreUnavailable, LogUnavailable
        A server cannot be reached.
    """
    reading = _read(store, reader, model_id, trusted, progress)
    history, state = reading.history, reading.state
    if not history.versions and state is None and reading.fault is None:
        raise UnknownModel(
            f"model {model_id!r} is not registered and has no published version; `lethe status` "
            "lists the models"
        )
    progress("checking", 0, 0)
    history.checkpoints += of_log(cosigned, model_id)
    seen = remembered(model_id)
    findings = _of_history(reading, seen, policy, trusted=trusted is not None)
    findings += commit_findings(
        reading.chain,
        history,
        trusted=trusted,
        opener=CommitOpener.of(seals, state),
        published=reading.published,
    )
    findings += _of_state(reading, log_alone=log_alone)
    if state is not None and bound:
        progress("retraining on the live rows", 0, 0)
        findings.append(bound_finding(store, model_id))
    exported = None if export is None else _export(export, store, reader, reading, trusted)
    return Audit(findings, history, exported)


@dataclass(frozen=True, slots=True)
class _Reading:
    """A history, and the state at the same moment.

    Attributes
    ----------
    fault
        Why the state cannot be read, if it cannot.
    compared
        The findings on the state.
    disturbed
        Why state and history cannot be compared, if they cannot.
    published
        The offset below which all commits are published; None if unknown.
    """

    history: History
    chain: CommitChain
    extent: Extent
    state: ModelState | None
    fault: str | None
    compared: Sequence[Finding] = ()
    disturbed: str | None = None
    published: int | None = None


def _read(
    store: ModelStore,
    reader: Reader,
    model_id: str,
    trusted: TrustedKeys | None,
    progress: Progress,
) -> _Reading:
    """Read the log and compare the state, and again if commits arrive in between."""
    for attempt in range(1, _TRIES + 1):
        state, fault = _state(store, model_id)
        before = None if state is None else stamp_of(store, state)
        extent = extent_of(reader, topics.VERSIONS, topics.RECEIPTS, topics.MODELS)
        history = History(model_id, trusted)
        history.begins = {
            one.index: bounds.begin
            for one, bounds in extent.items()
            if one.topic == topics.RECEIPTS
        }
        history.read(records_of_model(reader, model_id, extent, progress))
        chain = read_chain(reader, history, state, progress)
        if state is None or before is None:
            return _Reading(history, chain, extent, None, fault)
        _complete(store, state, history)
        compared = state_findings(store, state, history, chain)
        disturbed = _disturbed(state, chain, before, stamp_of(store, state))
        if disturbed is not None:
            compared = [Finding.passed_over(one.check, disturbed) for one in compared]
        published = before.published
        reading = _Reading(history, chain, extent, state, fault, compared, disturbed, published)
        if disturbed is None:
            return reading
        if attempt < _TRIES:
            time.sleep(_PAUSE)
    leaves, head = reading.history.leaves, reading.history.head
    if head is not None and len(leaves) < head.size:
        leaves.clear()  # versions were published since; the log has their receipts
    elif head is not None:
        del leaves[head.size :]  # later receipts may not be published yet
    return reading


def _complete(store: ModelStore, state: ModelState, history: History) -> None:
    """Add to a history what the log has removed and the state still keeps."""
    log = state.meta.receipt_log or ReceiptLog()
    with suppress(CorruptState):
        leaves = leaves_of(store, state.keys, log.size)
        if root_of(leaves) == log.frontier().root:  # if not, `state: receipts` fails
            history.leaves += leaves
    if history.truncated:
        history.read(stored_receipts(store, state, history))
    if history.parameters is None or history.parameters.digest != state.digest:
        stored = stored_parameters(state)
        history.read([] if stored is None else [stored])


def _disturbed(
    state: ModelState, chain: CommitChain, before: StateStamp, after: StateStamp
) -> str | None:
    """Return why the state and the log cannot be compared; None if both stood still."""
    if not before.head == after.head == state.head:
        return "requests are being processed; run the audit again when the workers are idle"
    last = chain.last
    if last is not None and last.number > state.head.commit:
        count = last.number - state.head.commit
        return f"{count} commits are not applied yet: run `lethe work`"
    if last is not None and before.published <= last.offset:
        return "not every commit is published yet: run `lethe work`"
    return None


def _state(store: ModelStore, model_id: str) -> tuple[ModelState | None, str | None]:
    try:
        return store.load(model_id), None
    except CorruptState as error:
        return None, str(error)


def _of_history(
    reading: _Reading, seen: Checkpoint | None, policy: Policy | None, *, trusted: bool
) -> list[Finding]:
    if reading.disturbed is not None and not reading.history.versions and seen is None:
        return [Finding.passed_over("chain", reading.disturbed)]  # version 0 is not published yet
    found = history_findings(reading.history, trusted=trusted, seen=seen, policy=policy)
    return list(found)


def _of_state(reading: _Reading, *, log_alone: bool) -> Sequence[Finding]:
    if reading.state is not None:
        return reading.compared
    if reading.fault is not None:
        return [Finding("state", Result.FAILED, reading.fault)]
    if log_alone:
        detail = "no store is named (--redis), and the embedded one does not hold this model"
        return [Finding.passed_over("state", detail)]
    detail = "the model was published, but the store does not hold it"
    return [Finding("state", Result.FAILED, detail)]


def _export(
    path: Path, store: ModelStore, reader: Reader, reading: _Reading, trusted: TrustedKeys | None
) -> int:
    history, state = reading.history, reading.state
    config = None if state is None else state.meta.config
    registration = (
        {}
        if config is None
        else {
            "ridge": config.ridge,
            "certified": bool(config.certify),
            "class_weights": list(config.class_weights),
        }
    )
    header = Header(
        model_id=history.model_id,
        exported_at=rfc3339(datetime.now(UTC)),
        public_keys=() if trusted is None else trusted.texts,
        begins=history.begins,
        registration=registration,
    )
    records = for_export(reader, store, state, history, reading.extent)
    checkpoints = map(Cosigned, history.checkpoints)
    items: Iterable[Item] = itertools.chain(records, leaf_items(history.leaves), checkpoints)
    return write_bundle(path, header, items)
