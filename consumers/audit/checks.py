"""The checks of an audit that need no server: a published history against itself.

Each returns one finding: OK, FAILED, or NOT CHECKED with the reason. Nothing here raises because
of what it reads. docs/audit.md says what each finds, and what none can.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lethe.consumers.audit.finding import Faults, Finding
from lethe.consumers.audit.history import History, VersionFact
from lethe.consumers.audit.receipts import (
    leaves_derived,
    receipt_log_finding,
    receipts_finding,
    rows_finding,
)
from lethe.consumers.audit.signatures import signatures_finding
from lethe.consumers.contract import topics, version_chain
from lethe.consumers.subscriber.parameters import IDENTITY
from lethe.engine.errors import BrokenChain
from lethe.engine.merkle import consistency_proof, verify_consistency


@dataclass(frozen=True, slots=True)
class Seen:
    """A checkpoint: what an earlier audit ended with.

    ``size`` and ``root`` are those of the receipt log, where the version had one.
    """

    version: int
    digest: str
    size: int | None = None
    root: bytes = b""


def history_findings(
    history: History, *, trusted: bool, seen: Seen | None = None
) -> Iterator[Finding]:
    """Yield what there is to say of a history alone.

    Parameters
    ----------
    history
        What was published.
    trusted
        Whether its keys are trusted, or only those that the history came with.
    seen
        A checkpoint that it must go on from.
    """
    yield Finding.of("records", history.faults, _read_so_far(history))
    yield chain_finding(history)
    yield signatures_finding(history, trusted=trusted)
    yield _parameters(history)
    yield receipts_finding(history)
    yield rows_finding(history)
    yield receipt_log_finding(history)
    if seen is not None:
        yield _checkpoint(history, seen)


def _read_so_far(history: History) -> str:
    counts = history.records
    recovered = f", {history.recovered} of them kept by the state" if history.recovered else ""
    return (
        f"read {counts[topics.VERSIONS]} of versions, {counts[topics.RECEIPTS]} of receipts"
        f"{recovered}, {counts[topics.MODELS]} of parameters"
    )


# -- versions -----------------------------------------------------------------------------------


def chain_finding(history: History) -> Finding:
    """Check that versions are dense and linked, one a number, and in the log's order."""
    faults = Faults()
    faults += history.forks
    faults += history.disorder
    if not history.versions:
        faults.add(f"no version of model {history.model_id!r} is there")
    previous: VersionFact | None = None
    for number in sorted(history.versions):
        fact = history.versions[number]
        try:
            version_chain.check_link(fact.event, None if previous is None else previous.event)
        except BrokenChain as error:
            faults.add(str(error))
        previous = fact
    tip = history.tip
    fine = "" if tip is None else f"versions 0 to {tip.event.version}, each linked and dense"
    return Finding.of("chain", faults, fine)


def _parameters(history: History) -> Finding:
    """Compare the newest parameters with the newest version."""
    name, tip, event = "parameters", history.tip, history.parameters
    if history.parameters_faults or tip is None:
        return Finding.of(name, history.parameters_faults, "there is no version")
    newest, faults = tip.event.version, Faults()
    if event is None or event.version < newest:
        there = "none are" if event is None else f"those of version {event.version} are"
        return Finding.passed_over(name, f"those of version {newest} are not there; {there}")
    if event.version > newest:
        faults.add(
            f"there are some of version {event.version}, and history ends with version {newest}: "
            "it was cut"
        )
    elif history.others(event):
        faults.add(f"there are others of version {newest}, which no version names")
    elif any(getattr(event, field) != getattr(tip.event, field) for field in IDENTITY):
        faults.add(f"they are not those that version {newest} names; do not load them")
    elif event.theta is None:
        detail = f"theta of version {newest} is too large for an event; it is in the store"
        return Finding.passed_over(name, detail)
    return Finding.of(name, faults, f"those of version {newest} have the digest that it names")


# -- what was seen before -----------------------------------------------------------------------


def _checkpoint(history: History, seen: Seen) -> Finding:
    name, faults, tip = "checkpoint", Faults(), history.tip
    fact = history.versions.get(seen.version)
    if fact is None or tip is None:
        there = "nothing" if tip is None else f"version {tip.event.version}"
        faults.add(
            f"version {seen.version} was seen before, and history ends with {there}: it was rolled "
            "back"
        )
    elif fact.event.digest != seen.digest:
        faults.add(
            f"version {seen.version} was seen before with digest {seen.digest[:12]}, and has "
            f"{fact.event.digest[:12]} now: history was rewritten"
        )
    elif seen.size is not None and not _grown(history, seen, seen.size, tip):
        faults.add("the receipt log does not begin with the one that was seen before")
    return Finding.of(name, faults, f"goes on from version {seen.version}, as it was seen before")


def _grown(history: History, seen: Seen, size: int, tip: VersionFact) -> bool:
    """Make a consistency proof from the leaves, and check it as anybody would."""
    head = tip.head
    if head is None or head.size < size:
        return False
    leaves = (history.leaf_list or leaves_derived(history))[: head.size]
    if len(leaves) < size:
        return False
    proof = consistency_proof(leaves, size)
    return verify_consistency(size, head.size, seen.root, head.root, proof)
