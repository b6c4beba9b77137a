"""The checks of an audit that need no server: a published history against itself.

Each returns one finding: OK, FAILED, or NOT CHECKED with the reason. None raises because of what it
reads. docs/audit.md says what each check detects, and what none can detect.
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
    """A checkpoint: where an earlier audit ended.

    ``size`` and ``root`` are those of the receipt log, if the version had one.
    """

    version: int
    digest: str
    size: int | None = None
    root: bytes = b""


def history_findings(
    history: History, *, trusted: bool, seen: Seen | None = None
) -> Iterator[Finding]:
    """Yield the findings on a history alone.

    Parameters
    ----------
    history
        What was published.
    trusted
        Whether its keys are trusted; otherwise they are only those that the history came with.
    seen
        A checkpoint that it must continue from.
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
    recovered = f" ({history.recovered} of them kept by the state)" if history.recovered else ""
    return (
        f"versions {counts[topics.VERSIONS]}, receipts {counts[topics.RECEIPTS]}{recovered}, "
        f"parameters {counts[topics.MODELS]}"
    )


# -- versions -----------------------------------------------------------------------------------


def chain_finding(history: History) -> Finding:
    """Check that versions are dense, linked, unique by number, and in the log's order."""
    faults = Faults()
    faults += history.forks
    faults += history.disorder
    if not history.versions:
        faults.add(f"model {history.model_id!r} has no version")
    previous: VersionFact | None = None
    for number in sorted(history.versions):
        fact = history.versions[number]
        try:
            version_chain.check_link(fact.event, None if previous is None else previous.event)
        except BrokenChain as error:
            faults.add(str(error))
        previous = fact
    tip = history.tip
    fine = "" if tip is None else f"versions 0 to {tip.event.version}, dense and linked"
    return Finding.of("chain", faults, fine)


def _parameters(history: History) -> Finding:
    """Compare the newest parameters with the newest version."""
    name, tip, event = "parameters", history.tip, history.parameters
    if history.parameters_faults or tip is None:
        return Finding.of(name, history.parameters_faults, "there is no version")
    newest, faults = tip.event.version, Faults()
    if event is None or event.version < newest:
        detail = f"there are none for version {newest}"
        if event is not None:
            detail += f"; the newest are for version {event.version}"
        return Finding.passed_over(name, detail)
    if event.version > newest:
        faults.add(
            f"there are some of version {event.version}, but history ends with version {newest}: "
            "it was truncated"
        )
    elif history.others(event):
        faults.add(f"there are others for version {newest}, which no version names")
    elif any(getattr(event, field) != getattr(tip.event, field) for field in IDENTITY):
        faults.add(f"they are not the ones that version {newest} names; do not load them")
    elif event.theta is None:
        detail = f"theta of version {newest} is too large for an event; it is in the store"
        return Finding.passed_over(name, detail)
    return Finding.of(name, faults, f"they have the digest that version {newest} names")


# -- what was seen before -----------------------------------------------------------------------


def _checkpoint(history: History, seen: Seen) -> Finding:
    name, faults, tip = "checkpoint", Faults(), history.tip
    fact = history.versions.get(seen.version)
    if fact is None or tip is None:
        end = "is empty" if tip is None else f"ends with version {tip.event.version}"
        faults.add(f"version {seen.version} was seen before, but history {end}: it was rolled back")
    elif fact.event.digest != seen.digest:
        faults.add(
            f"version {seen.version} was seen before with digest {seen.digest[:12]}, but now has "
            f"{fact.event.digest[:12]}: history was rewritten"
        )
    elif seen.size is not None and not _grown(history, seen, seen.size, tip):
        faults.add("the receipt log does not extend the one that was seen before")
    return Finding.of(name, faults, f"continues from version {seen.version} as seen before")


def _grown(history: History, seen: Seen, size: int, tip: VersionFact) -> bool:
    """Build a consistency proof from the leaves, and check it as any third party would."""
    head = tip.head
    if head is None or head.size < size:
        return False
    leaves = (history.leaf_list or leaves_derived(history))[: head.size]
    if len(leaves) < size:
        return False
    proof = consistency_proof(leaves, size)
    return verify_consistency(size, head.size, seen.root, head.root, proof)
