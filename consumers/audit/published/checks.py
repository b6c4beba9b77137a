"""The checks of an audit that need no server: a published history against itself.

Each returns one finding: OK, FAILED, or NOT CHECKED with the reason. None raises because of what it
reads. docs/audit.md says what each check detects, and what none can detect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from lethe.consumers.audit.published.checkpoint import Checkpoint, checkpoint_finding
from lethe.consumers.audit.published.evidence import MAX_SAFE
from lethe.consumers.audit.published.finding import Faults, Finding
from lethe.consumers.audit.published.history import (
    History,
    ParametersFact,
    Signatures,
    VersionFact,
    identity_of,
)
from lethe.consumers.audit.published.receipts import (
    receipt_log_finding,
    receipts_finding,
    rows_finding,
)
from lethe.consumers.audit.published.witnesses import witnesses_finding
from lethe.consumers.contract import topics, version_chain
from lethe.consumers.contract.events import IDENTITY
from lethe.consumers.contract.witnesses import Policy
from lethe.engine.errors import BrokenChain


def history_findings(
    history: History,
    *,
    trusted: bool,
    seen: Checkpoint | None = None,
    policy: Policy | None = None,
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
    policy
        Which witnesses must have cosigned its newest tree head.
    """
    yield Finding.of("records", history.faults, _read_so_far(history))
    yield chain_finding(history)
    yield signatures_finding(
        history.signatures.values(),
        lambda faults: report_unsigned(history, faults),
        trusted=trusted,
    )
    yield _parameters(history)
    yield receipts_finding(history)
    yield rows_finding(history)
    yield receipt_log_finding(history)
    if seen is not None:
        yield checkpoint_finding(history, seen)
    if policy is not None:
        yield witnesses_finding(history, policy)


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
    tip = history.tip
    if tip is None:
        if not history.partial:
            faults.add(f"model {history.model_id!r} has no version")
        return Finding.of("chain", faults, "no version has come of it")
    previous: VersionFact | None = None
    for number in sorted(history.versions):
        fact = history.versions[number]
        try:
            if previous is not None or not history.partial:
                version_chain.check_link(fact.event, None if previous is None else previous.event)
        except BrokenChain as error:
            faults.add(str(error))
        previous = fact
    first, last = min(history.versions), tip.event.version
    several = f"versions {first} to {last}, dense and linked"
    return Finding.of("chain", faults, several if first < last else f"version {last}")


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
        return Finding.unproved(name, detail)
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


# -- signatures ---------------------------------------------------------------------------------


def signatures_finding(
    signatures: Iterable[Signatures], report: Callable[[Faults], str], *, trusted: bool
) -> Finding:
    """Check that records are signed, or vouched for by a signed version through its digests.

    ``report`` names what is unsigned and should not be, and returns what else nothing vouches
    for.
    """
    name, faults, by_key = "signatures", Faults(), Counter[str]()
    for one in signatures:
        faults += one.faults
        by_key += one.by_key
    keys = ", ".join(f"{count} records by key {key}" for key, count in sorted(by_key.items()))
    if faults:
        return Finding.of(name, faults, "")
    if "?" in by_key:
        keys = f"{by_key['?']} records are signed: name trusted keys (--trust) to see by whom"
        return Finding.unproved(name, keys)
    if not by_key and not trusted:
        return Finding.unproved(name, "nothing is signed: it may be from anybody")
    alone = report(faults)
    if not trusted and not faults:
        detail = f"{keys}, which the file itself names: name those that you trust (--trust)"
        return Finding.unproved(name, detail)
    if alone and not faults:
        signed = f"{keys}; " if keys else ""
        detail = f"{signed}no trusted key signed {alone}, and no signed version vouches for it"
        return Finding.unproved(name, detail)
    return Finding.of(name, faults, keys)


def report_unsigned(history: History, faults: Faults) -> str:
    """Report what is unsigned and should not be; return what else nothing vouches for.

    A signed version vouches for all before it through the chain, for the receipts in its receipt
    log, and for parameters through their digest. In a part alone, nothing need be signed because
    something else is: signing may have begun after it.
    """
    receipts, models = (history.signatures[one] for one in (topics.RECEIPTS, topics.MODELS))
    signed = history.signatures[topics.VERSIONS].numbers
    if history.signed is None:
        if not history.partial:
            faults.add("no version is signed although keys are trusted: it may be from anybody")
            return ""
        oldest, newest, covered = MAX_SAFE, -1, set[bytes]()
    else:
        oldest, newest = history.signed
        covered = history.covered(newest)
    later = [one for one in sorted(history.versions.keys() - signed) if one > oldest]
    for number in later:
        faults.add(f"version {number} is not signed, but version {oldest} before it is")
    uncovered = receipts.unsigned - receipts.signed - covered
    if history.signed is not None:
        began = history.versions[oldest].event.created_at
        for leaf in sorted(uncovered, key=lambda leaf: history.receipts[leaf].place):
            if history.receipts[leaf].completed_at >= began:
                faults.add(f"the receipt at {history.receipts[leaf].place} is not signed")
    alone = sum(
        not _named_by(history, history.parameters_facts[leaf], newest)
        for leaf in models.unsigned - models.signed
    )
    counts = (
        (len(history.versions) if history.signed is None else 0, "versions"),
        (len(uncovered), "receipts"),
        (alone, "parameters"),
    )
    return " and ".join(f"{count} {what}" for count, what in counts if count)


def _named_by(history: History, parameters: ParametersFact, signed: int) -> bool:
    """Return whether versions up to the newest signed one name everything in some parameters."""
    version = history.versions.get(parameters.version)
    return (
        version is not None
        and parameters.version <= signed
        and parameters.covered
        and parameters.identity == identity_of(version.event)
    )
