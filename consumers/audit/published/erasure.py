"""The evidence of one erasure: its combined receipt, and what each model answered, together.

What one model answered is a part of its history (`History`), and is judged by the same code. Here
the combined receipt is compared with it: how a combined receipt follows from the models' receipts
is written down a second time, apart from the code that makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from lethe.consumers.audit.published.bundle import Cosigned, Item, Opening, Part
from lethe.consumers.audit.published.checks import (
    chain_finding,
    report_unsigned,
    signatures_finding,
)
from lethe.consumers.audit.published.evidence import event_of, parse_evidence
from lethe.consumers.audit.published.finding import Faults, Finding, Result
from lethe.consumers.audit.published.history import (
    History,
    ReceiptFact,
    Signatures,
    signature_of,
)
from lethe.consumers.audit.published.receipts import inclusion_finding, receipts_finding
from lethe.consumers.audit.published.witnesses import witnesses_finding
from lethe.consumers.contract import topics
from lethe.consumers.contract.codes import REQUEST_ID_CONFLICT
from lethe.consumers.contract.commitment import subject_commitment
from lethe.consumers.contract.erasure_events import (
    SUBJECT_ERASURE_COMPLETED,
    ModelErasure,
    SubjectErasureCompleted,
)
from lethe.consumers.contract.signatures import TrustedKeys
from lethe.consumers.contract.witnesses import Policy
from lethe.consumers.log.base import Record
from lethe.consumers.subscriber.history import read_object
from lethe.engine.errors import BrokenChain
from lethe.engine.merkle import leaf_hash

_GONE = ("APPLIED", "ALREADY_APPLIED")
_HOLDS_NOTHING = ("UNKNOWN_ROWS", "MODEL_UNREGISTERED")
_UNANSWERED = ("AWAITED", "DEFERRED")


class Evidence:
    """Everything that a file has of one erasure.

    Parameters
    ----------
    erasure_id
        The erasure that its combined receipt must be about.
    keys
        Public keys that signatures are checked against; None: signatures are only counted.
    """

    def __init__(self, erasure_id: str, keys: TrustedKeys | None) -> None:
        self.erasure_id = erasure_id
        self.faults = Faults()
        self.receipts: dict[bytes, SubjectErasureCompleted] = {}
        self.signatures = Signatures()
        self.models: dict[str, History] = {}
        self.openings: list[Opening] = []
        self._keys = keys

    @property
    def receipt(self) -> SubjectErasureCompleted | None:
        """The combined receipt."""
        return next(iter(self.receipts.values()), None)

    @property
    def opened(self) -> str | None:
        """The person to whom the commitment opens; None if it opens to none."""
        subjects = [one.subject_id for one in self.openings if self.opens(one)]
        return subjects[0] if subjects else None

    def opens(self, opening: Opening) -> bool:
        """Return whether it opens the commitment in the combined receipt."""
        receipt = self.receipt
        if receipt is None:
            return False
        made = subject_commitment(opening.salt, receipt.namespace or "", opening.subject_id)
        return made == receipt.subject_commitment

    def read(self, items: Iterable[Item]) -> None:
        """Add what a file holds, in order."""
        model: History | None = None
        for item in items:
            if isinstance(item, Part):
                model = self._new_part(item.model_id)
            elif isinstance(item, Opening):
                self.openings.append(item)
            elif isinstance(item, Record) and item.partition.topic == topics.ERASURE_RECEIPTS:
                self._add(item)
            elif model is not None:
                model.read((item,))
            elif not isinstance(item, Cosigned):
                self.faults.add("something of a model stands before any model is named")

    def _new_part(self, model_id: str) -> History:
        if model_id in self.models:
            self.faults.add(f"there are two parts of model {model_id!r}")
        return self.models.setdefault(model_id, History(model_id, self._keys, partial=True))

    def _add(self, record: Record) -> None:
        try:
            data = read_object(
                record, SUBJECT_ERASURE_COMPLETED, self.erasure_id, parse_evidence, "erasure"
            )
            receipt = event_of(SubjectErasureCompleted, data)
        except (BrokenChain, ValueError) as error:
            self.faults.add(str(error).splitlines()[0])
            return
        leaf = leaf_hash(record.value or b"")
        self.receipts[leaf] = receipt
        signature = signature_of(record, SUBJECT_ERASURE_COMPLETED, self._keys)
        self.signatures.add(signature, leaf, -1, record.place)


# -- the checks -----------------------------------------------------------------------------------


def erasure_findings(
    evidence: Evidence, *, trusted: bool, policy: Policy | None = None
) -> Iterator[Finding]:
    """Yield the findings on the evidence of an erasure; the others as in `history_findings`."""
    models = evidence.models
    faults = Faults()
    faults += evidence.faults
    for history in models.values():
        faults += history.faults
    yield Finding.of("records", faults, f"a combined receipt, and answers of {len(models)} models")
    yield _combined(evidence)
    yield _answers(evidence)
    yield _of_all("chain", models, chain_finding)
    yield _signatures(evidence, trusted=trusted)
    yield _of_all("receipts", models, receipts_finding)
    yield _of_all("receipt log", models, inclusion_finding)
    yield _subject(evidence)
    if policy is not None:
        yield _of_all("witnesses", models, lambda history: witnesses_finding(history, policy))


def _of_all(
    name: str, models: Mapping[str, History], check: Callable[[History], Finding]
) -> Finding:
    """Return what a check says of all models: the worst of it."""
    found = {model: check(history) for model, history in sorted(models.items())}
    for result in (Result.FAILED, Result.NOT_PROVED):
        worst = Faults()
        for model, one in found.items():
            if one.result is result:
                worst.add(f"{model}: {one.detail}")
        if worst:
            return Finding(name, result, str(worst))
    fine = Faults()
    for model, one in found.items():
        fine.add(f"{model}: {one.detail}")
    return Finding(name, Result.OK, str(fine) or "no model was asked")


def _combined(evidence: Evidence) -> Finding:
    """Check that there is one combined receipt, consistent in itself, and that it says complete."""
    name, faults, receipt = "erasure", Faults(), evidence.receipt
    if receipt is None:
        faults.add("there is no combined receipt")
    elif len(evidence.receipts) > 1:
        faults.add(f"there are {len(evidence.receipts)} different combined receipts")
    else:
        faults += _contradictions(receipt)
    if faults or receipt is None:
        return Finding.of(name, faults, "")
    if receipt.op == "lift":
        return Finding.unproved(name, "it lifts a suppression, and erases nobody")
    if receipt.status == "COMPLETE":
        rows = f"COMPLETE: {receipt.rows_deleted} rows deleted in {len(receipt.models)} models"
        unknown = "COMPLETE: no model knew the person, and nothing was deleted"
        return Finding.of(name, faults, unknown if receipt.unknown else rows)
    open_models = [one.model_id for one in receipt.models if not _is_gone(one)]
    names = ", ".join(sorted({*open_models, *receipt.awaited})[:3])
    detail = f"{receipt.status}: it does not say that the person is gone"
    return Finding.unproved(name, f"{detail} ({names})" if names else detail)


def _contradictions(receipt: SubjectErasureCompleted) -> Faults:
    """Return how a combined receipt contradicts itself."""
    faults = Faults()
    names = [one.model_id for one in receipt.models]
    if len(set(names)) < len(names):
        faults.add("it names a model twice")
    if receipt.complete != (receipt.status == "COMPLETE"):
        faults.add(f"it is {receipt.status}, and says complete: {receipt.complete}")
    if receipt.final != (receipt.completed_at is not None):
        faults.add(f"it is {receipt.status}, and completed_at says otherwise")
    if sum(one.rows_deleted for one in receipt.models) != receipt.rows_deleted:
        faults.add(f"its models deleted another number of rows than {receipt.rows_deleted}")
    for one in receipt.models:
        if not one.request_ids and one.status != "NOT_COVERED":
            faults.add(f"{one.model_id} is {one.status}, and was asked nothing")
    waiting = [one for one in receipt.models if one.status in _UNANSWERED]
    if receipt.status in ("COMPLETE", "INCOMPLETE") and (waiting or receipt.awaited):
        faults.add(f"it is {receipt.status}, and awaits answers")
    gone = all(_is_gone(one) for one in receipt.models)
    if (receipt.status == "COMPLETE" and not gone) or (receipt.status == "INCOMPLETE" and gone):
        faults.add(f"it is {receipt.status}, and the answers of its models say otherwise")
    if receipt.unknown and any(one.request_ids for one in receipt.models):
        faults.add("no model is said to know the person, and some were asked")
    return faults


def _is_gone(one: ModelErasure) -> bool:
    """Return whether a model holds no row of the person, by its status."""
    return one.status in _GONE or (one.status == "REJECTED" and one.code in _HOLDS_NOTHING)


def _answers(evidence: Evidence) -> Finding:
    """Compare the combined receipt with the models' own."""
    name, faults, receipt = "answers", Faults(), evidence.receipt
    said = {} if receipt is None else {one.model_id: one for one in receipt.models}
    for model in sorted(evidence.models.keys() - said.keys()):
        faults.add(f"{model} is not in the combined receipt")
    missing = Faults()
    for model, one in sorted(said.items()):
        history = evidence.models.get(model)
        known = {} if history is None else history.finals
        for request in sorted(known.keys() - set(one.request_ids)):
            faults.add(f"{model} has a receipt of request {request!r}, which it was not asked")
        if one.status in (*_UNANSWERED, "NOT_COVERED"):
            continue
        own = [known[request] for request in one.request_ids if request in known]
        if len(own) < len(one.request_ids):
            missing.add(f"{model}: {len(one.request_ids) - len(own)} receipts are not here")
        elif one.code != REQUEST_ID_CONFLICT and own:
            faults += _differences(one, own)
            last = max(fact.completed_at for fact in own)
            if receipt is not None and (receipt.completed_at or last) < last:
                faults.add(f"{model} answered after the combined receipt")
    if missing and not faults:
        return Finding.unproved(name, str(missing))
    return Finding.of(name, faults, "the combined receipt says what the models' own receipts say")


def _differences(one: ModelErasure, own: Collection[ReceiptFact]) -> Faults:
    """Return where a combined receipt says something else of a model than its own receipts."""
    faults = Faults()
    worst = min(_rank(fact) for fact in own)
    decisive = [fact for fact in own if _rank(fact) == worst]
    versions = [fact.version for fact in own if fact.status == "APPLIED"]
    newest = max((number for number in versions if number is not None), default=None)
    rows = sum(fact.rows_deleted for fact in own)
    if (one.status, one.code) not in {(fact.status, fact.code) for fact in decisive}:
        said = decisive[0].status
        faults.add(f"{one.model_id} is {one.status} there, and {said} by its own receipts")
    if one.rows_deleted != rows:
        faults.add(
            f"{one.model_id} deleted {one.rows_deleted} rows there, and {rows} by its receipts"
        )
    if one.version != newest:
        faults.add(f"{one.model_id} names version {one.version} there, and its receipts {newest}")
    return faults


def _rank(fact: ReceiptFact) -> int:
    """Order answers: of several, the first one matters."""
    if fact.status == "REJECTED":
        return 3 if fact.code in _HOLDS_NOTHING else 0
    return {"APPLIED": 1, "ALREADY_APPLIED": 2}[fact.status]


def _signatures(evidence: Evidence, *, trusted: bool) -> Finding:
    histories = evidence.models.values()
    each = (one for history in histories for one in history.signatures.values())

    def alone(faults: Faults) -> str:
        parts = [f"{unsigned} of {name}" for name, unsigned in of_models(faults) if unsigned]
        combined = evidence.signatures.unsigned - evidence.signatures.signed
        return "; ".join([*(["the combined receipt"] if combined else []), *parts])

    def of_models(faults: Faults) -> Iterator[tuple[str, str]]:
        return ((name, report_unsigned(one, faults)) for name, one in evidence.models.items())

    return signatures_finding([evidence.signatures, *each], alone, trusted=trusted)


def _subject(evidence: Evidence) -> Finding:
    """Open the commitment to the person, if the file has what opens it."""
    name, faults = "subject", Faults()
    if not evidence.openings:
        return Finding.passed_over(name, "this copy names nobody: only the person's own copy does")
    for one in evidence.openings:
        if not evidence.opens(one):
            faults.add(f"the combined receipt is not of {one.subject_id!r}")
    return Finding.of(name, faults, f"the erasure is of {evidence.opened!r}")
