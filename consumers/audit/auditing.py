"""One audit, from what is reached: servers, or an exported file alone.

What is read changes while it is read, when workers run. So the state is looked at before and after,
and read again if it has moved; what never stands still is not compared, and the audit says so.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from consumers.audit.bundle import BundleReader, Header, write_bundle
from consumers.audit.checks import Seen, history_findings
from consumers.audit.finding import Finding, Result
from consumers.audit.history import History
from consumers.audit.reading import (
    Extent,
    extent_of,
    for_export,
    records_of_model,
    stored_parameters,
    stored_receipts,
)
from consumers.audit.refit import Holding, refit_finding
from consumers.audit.state import (
    bound_finding,
    moment_of,
    state_findings,
)
from consumers.events import rfc3339
from consumers.log.base import Reader
from consumers.progress import Progress, unseen
from consumers.signing import TrustedKeys
from engine.errors import CorruptState, InvalidData, UnknownModel
from engine.merkle import HASH_BYTES
from engine.store.receipt_log import read_leaves
from engine.store.state import ModelState
from engine.store.store import ModelStore

Remembered = Callable[[str], Seen | None]
"""Returns what an earlier audit of a model ended with, if that is known."""

_TRIES = 5
_PAUSE = 0.5


@dataclass(frozen=True, slots=True)
class Audit:
    """What was found, in the order of the checks."""

    history: History
    findings: Sequence[Finding]
    exported: int | None = None

    def count(self, result: Result) -> int:
        """Return how many checks ended so."""
        return sum(finding.result is result for finding in self.findings)


# -- a file -------------------------------------------------------------------------------------


def audit_bundle(
    path: Path,
    *,
    model_id: str | None,
    trusted: TrustedKeys | None,
    remembered: Remembered,
    holding: Holding | None,
    progress: Progress = unseen,
) -> Audit:
    """Check all that can be checked of an exported file, with no server.

    Raises
    ------
    InvalidData
        A file cannot be read, or was cut off.
    """
    with BundleReader(path) as bundle:
        header = bundle.header
        if model_id not in (None, header.model_id):
            raise InvalidData(f"{path}: is of model {header.model_id!r}, not {model_id!r}")
        history = History(header.model_id, trusted or _named_keys(header))
        history.begins = dict(header.begins)
        progress(f"reading {path}", 0, 0)
        history.read(bundle)
    progress("checking", 0, 0)
    seen = remembered(header.model_id)
    findings = list(history_findings(history, trusted=trusted is not None, seen=seen))
    findings.append(refit_finding(history, header.registration, holding))
    return Audit(history, findings)


def _named_keys(header: Header) -> TrustedKeys | None:
    """Return the keys that a file names itself: they show that it fits together, and no more."""
    try:
        keys = TrustedKeys.of(base64.b64decode(key, validate=True) for key in header.public_keys)
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
    remembered: Remembered = lambda _: None,
    export: Path | None = None,
    bound: bool = True,
    log_alone: bool = False,
    progress: Progress = unseen,
) -> Audit:
    """Check a model's published history, its state, and its bound; write a bundle if asked to.

    ``log_alone``: a store that does not hold the model may be another one than the workers'.

    Raises
    ------
    UnknownModel
        Neither log nor store has heard of it.
    StoreUnavailable, LogUnavailable
        A server is gone.
    """
    found = _read(store, reader, model_id, trusted, progress)
    history = found.history
    if not history.versions and found.state is None and found.fault is None:
        raise UnknownModel(
            f"model {model_id!r} is not registered and has no published version; `lethe status` "
            "lists the models"
        )
    progress("checking", 0, 0)
    seen = remembered(model_id)
    findings = list(history_findings(history, trusted=trusted is not None, seen=seen))
    findings += _of_state(store, found, log_alone=log_alone)
    if found.state is not None and bound:
        progress("retraining on the live rows", 0, 0)
        findings.append(bound_finding(store, model_id))
    written = None if export is None else _export(export, store, reader, found, trusted)
    return Audit(history, findings, written)


@dataclass(frozen=True, slots=True)
class _Found:
    """A history, the state at the same moment, and why the two cannot be compared."""

    history: History
    extent: Extent
    state: ModelState | None
    fault: str | None
    disturbed: str | None


def _read(
    store: ModelStore,
    reader: Reader,
    model_id: str,
    trusted: TrustedKeys | None,
    progress: Progress,
) -> _Found:
    """Read log and state, again while commits come in between."""
    for attempt in range(1, _TRIES + 1):
        state, fault = _state(store, model_id)
        before = None if state is None else moment_of(store, state)
        extent = extent_of(reader)
        history = History(model_id, trusted)
        history.begins = extent.receipts_begin
        history.read(records_of_model(reader, model_id, extent, progress))
        if state is None or before is None:
            return _Found(history, extent, None, fault, None)
        history.leaves += b"".join(read_leaves(store.client, state.keys))
        if history.truncated:
            history.read(stored_receipts(store, model_id, history))
        if history.parameters is None or history.parameters.digest != state.digest:
            kept = stored_parameters(store, model_id)
            history.read([] if kept is None else [kept])
        after = moment_of(store, state)
        disturbed = None
        if after.waiting:
            disturbed = f"{after.waiting} messages are not published yet: run `lethe work`"
        elif not before.commit_seq == after.commit_seq == state.commit_seq:
            disturbed = "requests are being decided; run it again in a quiet moment"
        if disturbed is None:
            return _Found(history, extent, state, fault, None)
        if attempt < _TRIES:
            time.sleep(_PAUSE)
    tip = history.tip
    if tip is not None and tip.head is not None:  # what came after it is not all published
        del history.leaves[tip.head.size * HASH_BYTES :]
    return _Found(history, extent, state, fault, disturbed)


def _state(store: ModelStore, model_id: str) -> tuple[ModelState | None, str | None]:
    try:
        return store.load_model(model_id), None
    except UnknownModel:
        return None, None
    except CorruptState as error:
        return None, str(error)


def _of_state(store: ModelStore, found: _Found, *, log_alone: bool) -> list[Finding]:
    if found.state is not None:
        return list(state_findings(store, found.state, found.history, found.disturbed))
    if found.fault is not None:
        return [Finding("state", Result.FAILED, found.fault)]
    if log_alone:
        detail = "no store is named (--redis), and the embedded one does not hold this model"
        return [Finding.passed_over("state", detail)]
    return [Finding("state", Result.FAILED, "the model was published, the store does not hold it")]


def _export(
    path: Path, store: ModelStore, reader: Reader, found: _Found, trusted: TrustedKeys | None
) -> int:
    history, state = found.history, found.state
    config = None if state is None else state.meta.config
    known = {} if config is None else {"ridge": config.ridge, "certified": bool(config.certify)}
    keys = () if trusted is None else trusted.keys.values()
    header = Header(
        model_id=history.model_id,
        exported_at=rfc3339(datetime.now(UTC)),
        public_keys=tuple(base64.b64encode(key).decode() for key in keys),
        begins=history.begins,
        registration=known,
    )
    records = for_export(reader, store, history, found.extent)
    return write_bundle(path, header, records, bytes(history.leaves))
