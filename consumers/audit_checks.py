"""The checks of an audit that need no server: a published history against itself.

Each returns one finding: OK, FAILED, or NOT CHECKED with the reason. Nothing here raises because
of what it reads. docs/audit.md says what each finds, and what none can.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from consumers import chain, topics
from consumers.audit_history import UNKNOWN_MODEL, Faults, History, ReceiptFact, VersionFact
from consumers.history import Known
from engine.errors import BrokenChain
from engine.merkle import Frontier, consistency_proof, root_of, verify_consistency

_SEARCH = 2_000_000  # hashes that a search for the beginning of a receipt log may cost


class Result(StrEnum):
    """What became of a check."""

    OK = "OK"
    FAILED = "FAILED"
    NOT_CHECKED = "NOT CHECKED"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of an audit."""

    check: str
    result: Result
    detail: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A checkpoint: what an earlier audit ended with.

    ``size`` and ``root`` are those of the receipt log, where the version had one.
    """

    version: int
    digest: str
    size: int | None = None
    root: bytes = b""

    @property
    def known(self) -> Known:
        """Version and digest."""
        return self.version, self.digest


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
    yield _finding("records", history.faults, _read_so_far(history))
    yield _chain(history)
    yield _signatures(history, trusted=trusted)
    yield _parameters(history)
    yield _receipts(history)
    yield _rows(history)
    yield _receipt_log(history)
    if seen is not None:
        yield _checkpoint(history, seen)


def _finding(check: str, faults: Faults, fine: str) -> Finding:
    return Finding(check, Result.FAILED, str(faults)) if faults else Finding(check, Result.OK, fine)


def _read_so_far(history: History) -> str:
    counts = history.records
    recovered = f", {history.recovered} of them kept by the state" if history.recovered else ""
    return (
        f"read {counts[topics.VERSIONS]} of versions, {counts[topics.RECEIPTS]} of receipts"
        f"{recovered}, {counts[topics.MODELS]} of parameters"
    )


# -- versions -----------------------------------------------------------------------------------


def _chain(history: History) -> Finding:
    """Dense from 0, each linked to the one before, one digest a number, in the log's order."""
    faults = Faults()
    for source in (history.forks, history.disorder):
        for text in source.shown:
            faults.add(text)
        faults.count += source.count - len(source.shown)
    if not history.versions:
        faults.add(f"no version of model {history.model_id!r} is there")
    previous: VersionFact | None = None
    for number in sorted(history.versions):
        fact = history.versions[number]
        try:
            chain.check_link(fact.event, None if previous is None else previous.event)
        except BrokenChain as error:
            faults.add(str(error))
        previous = fact
    tip = history.tip
    fine = "" if tip is None else f"versions 0 to {tip.event.version}, each linked and dense"
    return _finding("chain", faults, fine)


def _signatures(history: History, *, trusted: bool) -> Finding:
    """Signed by trusted keys, or vouched for by a signed version through its digests."""
    faults, found = Faults(), history.signatures
    for one in found.values():
        for text in one.faults.shown:
            faults.add(text)
        faults.count += one.faults.count - len(one.faults.shown)
    if faults:
        return Finding("signatures", Result.FAILED, str(faults))
    by_key: Counter[str] = sum((one.by_key for one in found.values()), Counter())
    if not by_key:
        if trusted:
            detail = "nothing is signed, and keys are trusted: it may be from anybody"
            return Finding("signatures", Result.FAILED, detail)
        return Finding("signatures", Result.NOT_CHECKED, "nothing is signed")
    if "?" in by_key:
        detail = f"{by_key['?']} records are signed; name the trusted keys to check by whom"
        return Finding("signatures", Result.NOT_CHECKED, detail)
    keys = ", ".join(f"{count} by key {key}" for key, count in sorted(by_key.items()))
    problem, older = _unsigned(history)
    if problem:
        return Finding("signatures", Result.FAILED, problem)
    if not trusted:
        detail = f"{keys}, which the file itself names: name the keys that you trust"
        return Finding("signatures", Result.NOT_CHECKED, detail)
    if older:
        detail = f"{keys}; {older} receipts are older than signatures and in no signed receipt log"
        return Finding("signatures", Result.NOT_CHECKED, detail)
    return Finding("signatures", Result.OK, keys)


def _unsigned(history: History) -> tuple[str, int]:
    """Return what unsigned records are wrong, and how many receipts nothing vouches for.

    A signed version vouches for all before it through the chain, and for the receipts in its
    receipt log.
    """
    tip = history.tip
    versions = history.signatures[topics.VERSIONS]
    if tip is None or not versions.numbers:
        return "no version is signed", 0
    newest = max(versions.numbers)
    if newest < tip.event.version:
        return f"version {tip.event.version}, the newest, is not signed", 0
    head = history.versions[newest].head if newest in history.versions else None
    covered = set(history.leaf_list[: head.size]) if head is not None else set()
    alone = history.signatures[topics.RECEIPTS].unsigned_leaves - covered
    began = history.versions[min(versions.numbers)].event.created_at
    late = [leaf for leaf in alone if history.receipts[leaf].completed_at >= began]
    if late:
        where = history.receipts[late[0]].place
        return f"{len(late)} receipts are not signed, the one at {where} for one", 0
    return "", len(alone)


def _parameters(history: History) -> Finding:
    name, tip, event = "parameters", history.tip, history.parameters
    if history.parameters_faults:
        return Finding(name, Result.FAILED, str(history.parameters_faults))
    if tip is None:
        return Finding(name, Result.NOT_CHECKED, "there is no version that they could be of")
    if event is None or event.version < tip.event.version:
        there = "none are" if event is None else f"those of version {event.version} are"
        detail = f"those of version {tip.event.version} are not there; {there}"
        return Finding(name, Result.NOT_CHECKED, detail)
    if event.version > tip.event.version:
        detail = f"there are some of version {event.version}; history ends with {tip.event.version}"
        return Finding(name, Result.FAILED, detail)
    if (event.digest, event.parameters_digest) != (tip.event.digest, tip.event.parameters_digest):
        detail = f"they are not those that version {tip.event.version} names; do not load them"
        return Finding(name, Result.FAILED, detail)
    if event.theta is None:
        detail = f"theta of version {event.version} is too large for an event; it is in the store"
        return Finding(name, Result.NOT_CHECKED, detail)
    detail = f"those of version {event.version} have the digest that it names"
    return Finding(name, Result.OK, detail)


# -- receipts -----------------------------------------------------------------------------------


def _receipts(history: History) -> Finding:
    """Each request of a version has one final receipt that names it, and the other way round."""
    faults, missing = Faults(), []
    _contradictions(history, faults)
    listed: dict[str, int] = {}
    for number, fact in sorted(history.versions.items()):
        for request in fact.event.request_ids:
            if request in listed:
                faults.add(f"request {request!r} is in versions {listed[request]} and {number}")
            listed[request] = number
            receipt = history.finals.get(request)
            if receipt is None:
                missing.append(number)
            else:
                _answers(receipt, fact, faults)
    for receipt in history.finals.values():
        if receipt.status == "APPLIED" and listed.get(receipt.request_id) != receipt.version:
            faults.add(
                f"the receipt of {receipt.request_id!r} names version {receipt.version}, which "
                "does not list it or is not there"
            )
    if not history.truncated:
        _order(history, faults)
        for number in missing:
            faults.add(f"a request of version {number} has no receipt")
    if faults or not missing:
        answered = f"{len(history.finals)} requests, each with one final receipt"
        return _finding("receipts", faults, f"{answered}; those of versions agree with them")
    detail = (
        f"{len(missing)} requests of versions {min(missing)} to {max(missing)} have none here: the "
        "log has removed receipts by their age"
    )
    return Finding("receipts", Result.NOT_CHECKED, detail)


def _answers(receipt: ReceiptFact, fact: VersionFact, faults: Faults) -> None:
    """Compare a receipt with the version that lists its request.

    A rebuild may find that the rows of a deferred request were deleted by others meanwhile.
    """
    number = fact.event.version
    allowed = ("APPLIED",) if fact.event.refresh is None else ("APPLIED", "ALREADY_APPLIED")
    same = (receipt.version, receipt.generation) == (number, fact.event.generation)
    if receipt.status not in allowed or not same:
        faults.add(
            f"version {number} lists request {receipt.request_id!r}, whose receipt says "
            f"{receipt.status} in version {receipt.version}"
        )


def _contradictions(history: History, faults: Faults) -> None:
    """A request has one outcome. What was said before a model existed does not count."""
    first = history.versions.get(0)

    def before(receipt: ReceiptFact) -> bool:
        early = first is not None and receipt.completed_at < first.event.created_at
        return receipt.code == UNKNOWN_MODEL or (receipt.status == "REJECTED" and early)

    for one, other in history.contradictions:
        if before(one):
            if history.finals[one.request_id] is one:
                history.finals[one.request_id] = other
        elif not before(other):
            faults.add(
                f"request {one.request_id!r} has two different final receipts: {one.status} and "
                f"{other.status}"
            )


def _order(history: History, faults: Faults) -> None:
    """Receipts of later versions stand behind those of earlier ones."""
    newest: dict[int, int] = {}
    for receipt in history.receipts.values():
        if receipt.version is None or receipt.partition < 0:
            continue
        before = newest.get(receipt.partition, -1)
        if receipt.version < before:
            faults.add(
                f"the receipt at {receipt.place} is of version {receipt.version} and stands behind "
                f"one of version {before}"
            )
        newest[receipt.partition] = max(before, receipt.version)


def _rows(history: History) -> Finding:
    """What versions say they deleted is what their receipts say."""
    faults, passed, checked = Faults(), 0, 0
    sums: defaultdict[int, int] = defaultdict(int)
    for receipt in history.finals.values():
        if receipt.status == "APPLIED" and receipt.version is not None:
            sums[receipt.version] += receipt.rows_deleted
    for number, fact in sorted(history.versions.items()):
        before = history.versions.get(number - 1)
        complete = all(request in history.finals for request in fact.event.request_ids)
        if (before is None and number > 0) or not complete:
            passed += 1
            continue
        event = fact.event
        gone = event.rows_deleted - (0 if before is None else before.event.rows_deleted)
        if gone != sums[number]:
            faults.add(
                f"version {number} deleted {gone} rows, its receipts say {sums[number]}"
            )
        elif before is not None and event.source is not None:
            left = before.event.rows_live - event.rows_live
            if left != gone:
                faults.add(f"version {number} deleted {gone} rows and has {left} fewer")
        checked += 1
    if not faults and passed:
        detail = f"{passed} versions lack receipts here; the other {checked} agree with theirs"
        return Finding("rows deleted", Result.NOT_CHECKED, detail)
    total = sum(sums.values())
    return _finding("rows deleted", faults, f"{total} rows, in versions and in receipts")


# -- the receipt log ----------------------------------------------------------------------------


def _receipt_log(history: History) -> Finding:
    """Every tree head is recomputed from one list of leaves: so each contains the one before."""
    name = "receipt log"
    heads = [(n, fact.head) for n, fact in sorted(history.versions.items())]
    first = next((number for number, head in heads if head is not None), None)
    if first is None:
        return Finding(name, Result.NOT_CHECKED, "no version has a tree head: all are older")
    faults = Faults()
    leaves = history.leaf_list or _derived(history, first)
    frontier, size = Frontier(), 0
    for number, head in heads:
        if number < first:
            continue
        if head is None:
            faults.add(f"version {number} has no tree head, and version {first} has one")
        elif head.size < size:
            faults.add(f"version {number}: its receipt log has shrunk to {head.size}")
        elif head.size > len(leaves):
            faults.add(f"version {number} has {head.size} receipts in its log, {len(leaves)} known")
        else:
            frontier, size = frontier.appended(leaves[size : head.size]), head.size
            if frontier.root != head.root:
                faults.add(f"version {number}: another root comes out over its {size} receipts")
    if faults:
        return Finding(name, Result.FAILED, str(faults))
    return _members(history, first, size, leaves)


def _derived(history: History, first: int) -> list[bytes]:
    """Return the leaves from the receipts themselves, where nobody has given them.

    Receipts that are older than the model or than the receipt log come before the first leaf; how
    many they are, the first tree head says.
    """
    found = [r.leaf for r in history.finals.values()]
    head = history.versions[first].head
    if head is None or head.size == 0:
        early = history.versions[0].event.created_at if 0 in history.versions else None
        return [
            r.leaf
            for r in history.finals.values()
            if r.code != UNKNOWN_MODEL and (early is None or r.completed_at >= early)
        ]
    for start in range(min(len(found), _SEARCH // head.size) + 1):
        if root_of(found[start : start + head.size]) == head.root:
            return found[start:]
    return found


def _members(history: History, first: int, size: int, leaves: list[bytes]) -> Finding:
    """Compare the leaves with the receipts: none is missing, none is left out."""
    name, faults = "receipt log", Faults()
    index = {leaf: place for place, leaf in enumerate(leaves)}
    missing = sum(leaf not in history.receipts for leaf in leaves[:size])
    if missing and not history.truncated:
        faults.add(f"{missing} receipts of the log are not there")
    ranges: dict[int, tuple[int, int]] = {}
    begin = 0
    for number, fact in sorted(history.versions.items()):
        if fact.head is not None:
            ranges[number] = (begin, fact.head.size)
            begin = fact.head.size
    for receipt in history.finals.values():
        span = ranges.get(-1 if receipt.version is None else receipt.version)
        if receipt.status != "APPLIED" or span is None:
            continue
        place = index.get(receipt.leaf)
        if place is None or not span[0] <= place < span[1]:
            faults.add(
                f"the receipt of {receipt.request_id!r} is not in the log of version "
                f"{receipt.version}"
            )
    if faults or not missing:
        return _finding(name, faults, f"{size} receipts; every tree head from version {first} on")
    detail = f"tree heads agree; {missing} of {size} receipts have left the log by their age"
    return Finding(name, Result.NOT_CHECKED, detail)


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
    return _finding(name, faults, f"goes on from version {seen.version}, as it was seen before")


def _grown(history: History, seen: Seen, size: int, tip: VersionFact) -> bool:
    """Make a consistency proof from the leaves, and check it as anybody would."""
    head = tip.head
    first = next((n for n, fact in sorted(history.versions.items()) if fact.head), None)
    if head is None or first is None or head.size < size:
        return False
    leaves = (history.leaf_list or _derived(history, first))[: head.size]
    if len(leaves) < size:
        return False
    proof = consistency_proof(leaves, size)
    return verify_consistency(size, head.size, seen.root, head.root, proof)


