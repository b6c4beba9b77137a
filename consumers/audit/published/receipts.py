"""The checks of an audit about receipts: against versions, and in the Merkle receipt log."""

from __future__ import annotations

from collections import defaultdict

from lethe.consumers.audit.published.finding import Faults, Finding
from lethe.consumers.audit.published.history import History, ReceiptFact, VersionFact
from lethe.engine.merkle import Frontier

# -- receipts -----------------------------------------------------------------------------------


def receipts_finding(history: History) -> Finding:
    """Check that each request of a version has one final receipt, and the other way round."""
    faults, missing = Faults(), []
    for receipts in history.contradictions.values():
        answers = [receipt for receipt in receipts if not history.precedes_model(receipt)]
        for other in answers[1:]:
            faults.add(
                f"request {other.request_id!r} has two different final receipts: "
                f"{answers[0].status} and {other.status}"
            )
    listed: dict[str, int] = {}
    for number, fact in sorted(history.versions.items()):
        for request in fact.event.request_ids:
            if request in listed:
                faults.add(f"request {request!r} is in versions {listed[request]} and {number}")
            listed[request] = number
            receipt = history.finals.get(request)
            if receipt is None:
                missing += [] if history.partial else [number]
            else:
                _answers(receipt, fact, faults)
    for receipt in history.finals.values():
        if receipt.status == "APPLIED" and listed.get(receipt.request_id, -1) != receipt.version:
            faults.add(
                f"the receipt of {receipt.request_id!r} names version {receipt.version}, which "
                "does not list it or does not exist"
            )
    if not history.truncated:
        _order(history, faults)
        for number in missing:
            faults.add(f"a request of version {number} has no receipt")
    if faults or not missing:
        count = len(history.finals)
        answered = f"{count} request{'s' * (count != 1)}, each with one final receipt"
        return Finding.of("receipts", faults, f"{answered}; versions agree with them")
    detail = (
        f"{len(missing)} requests of versions {min(missing)} to {max(missing)} have no receipt "
        "here: receipts have expired from the log"
    )
    return Finding.unproved("receipts", detail)


def _answers(receipt: ReceiptFact, fact: VersionFact, faults: Faults) -> None:
    """Compare a receipt with the version that lists its request.

    A rebuild may find that other requests have deleted the rows of a deferred one meanwhile.
    """
    number = fact.event.version
    rebuilt = fact.event.refresh is not None
    allowed = {"APPLIED", "ALREADY_APPLIED"} if rebuilt else {"APPLIED"}
    same = (receipt.version, receipt.generation) == (number, fact.event.generation)
    if receipt.status not in allowed or not same:
        faults.add(
            f"version {number} lists request {receipt.request_id!r}, whose receipt says "
            f"{receipt.status} in version {receipt.version}"
        )


def _order(history: History, faults: Faults) -> None:
    """Check that receipts of later versions come after those of earlier ones.

    A receipt that made no version names the newest one at that time.
    """
    newest: dict[int, int] = {}
    for receipt in history.receipts.values():
        if receipt.version is None or receipt.partition < 0:
            continue
        before = newest.get(receipt.partition, -1)
        if receipt.version < before:
            faults.add(
                f"the receipt at {receipt.place} is of version {receipt.version} but comes after "
                f"one of version {before}"
            )
        newest[receipt.partition] = max(before, receipt.version)


def rows_finding(history: History) -> Finding:
    """Compare what versions say they deleted with what their receipts say."""
    faults, passed, checked = Faults(), 0, 0
    sums: defaultdict[int, int] = defaultdict(int)
    added: defaultdict[int, int] = defaultdict(int)
    for receipt in history.finals.values():
        if receipt.status == "APPLIED" and receipt.version is not None:
            sums[receipt.version] += receipt.rows_deleted
            added[receipt.version] += receipt.rows_inserted
    for number, fact in sorted(history.versions.items()):
        before = history.versions.get(number - 1)
        complete = all(request in history.finals for request in fact.event.request_ids)
        if (before is None and number > 0) or not complete:
            passed += 1
            continue
        event = fact.event
        gone = event.rows_deleted - (0 if before is None else before.event.rows_deleted)
        if gone != sums[number]:
            faults.add(f"version {number} deleted {gone} rows, but its receipts say {sums[number]}")
        elif before is not None and event.source is not None:
            left = before.event.rows_live - event.rows_live
            if left != gone - added[number]:
                faults.add(
                    f"version {number} deleted {gone} rows and inserted {added[number]}, but has "
                    f"{left} fewer"
                )
        checked += 1
    if not faults and passed:
        detail = f"{passed} of {passed + checked} versions lack receipts here; the others agree"
        return Finding.unproved("rows deleted", detail)
    total = sum(sums.values())
    return Finding.of("rows deleted", faults, f"{total} rows, in versions and in receipts alike")


# -- the receipt log ----------------------------------------------------------------------------


def receipt_log_finding(history: History) -> Finding:
    """Recompute every tree head from one list of leaves, so that each extends the one before."""
    name = "receipt log"
    if history.truncated and not history.leaves:
        detail = "receipts have expired from the log, and their leaf hashes are not available"
        return Finding.unproved(name, detail)
    faults = Faults()
    leaves = leaves_of_log(history)
    frontier, size = Frontier(), 0
    for number, fact in sorted(history.versions.items()):
        head = fact.event.receipt_log
        if head is None:
            faults.add(f"version {number} has no tree head")
        elif head.size < size:
            faults.add(f"version {number}: its receipt log has shrunk to {head.size}")
        elif head.size > len(leaves):
            faults.add(
                f"version {number} has {head.size} receipts in its log, but {len(leaves)} are known"
            )
        else:
            frontier, size = frontier.appended(leaves[size : head.size]), head.size
            if frontier.root.hex() != head.root:
                faults.add(f"version {number}: the root over its {size} receipts is another one")
    if faults:
        return Finding.of(name, faults, "")
    return _members(history, size, leaves)


def inclusion_finding(history: History) -> Finding:
    """Check the proofs of a part alone: each applied receipt is in the log of its version."""
    name, faults = "receipt log", Faults()
    places = set[tuple[bytes, int]]()
    for proof in history.proofs:
        if proof.leaf not in history.receipts:
            faults.add(f"a proof for version {proof.version} is of a receipt that is not here")
        elif not history.proves(proof):
            place = history.receipts[proof.leaf].place
            faults.add(f"the receipt at {place} is not in the log of version {proof.version}")
        places.add((proof.leaf, proof.version))
    applied = [one for one in history.finals.values() if one.status == "APPLIED"]
    missing = [one for one in applied if (one.leaf, one.version) not in places]
    if missing and not faults:
        first = missing[0].request_id
        detail = f"{len(missing)} receipts have no proof here, the first that of {first!r}"
        return Finding.unproved(name, detail)
    return Finding.of(name, faults, f"inclusion proofs that hold: {len(places)}")


def leaves_of_log(history: History) -> list[bytes]:
    """Return the leaves of the log; for a history that came without them, from the receipts.

    They are in the order of the receipts, where `History.finals` is in that of the requests.
    Receipts of requests from before the model existed are not part of its log.
    """
    return history.leaves or [
        receipt.leaf
        for receipt in history.receipts.values()
        if history.finals.get(receipt.request_id) is receipt and not history.precedes_model(receipt)
    ]


def _members(history: History, size: int, leaves: list[bytes]) -> Finding:
    """Compare the leaves with the receipts: neither side may lack one."""
    name, faults = "receipt log", Faults()
    index = {leaf: place for place, leaf in enumerate(leaves)}
    missing = sum(leaf not in history.receipts for leaf in leaves[:size])
    if missing and not history.truncated:
        faults.add(f"{missing} receipts of the log are missing")
    spans: dict[int | None, range] = {}
    begin = 0
    for number, fact in sorted(history.versions.items()):
        if fact.event.receipt_log is not None:
            spans[number] = range(begin, fact.event.receipt_log.size)
            begin = fact.event.receipt_log.size
    for receipt in history.finals.values():
        span = spans.get(receipt.version)
        if receipt.status != "APPLIED" or span is None:
            continue
        if index.get(receipt.leaf, -1) not in span:
            faults.add(
                f"the receipt of {receipt.request_id!r} is not in the log of version "
                f"{receipt.version}"
            )
    if faults or not missing:
        return Finding.of(name, faults, f"{size} receipts; the tree head of every version matches")
    detail = f"tree heads agree; {missing} of {size} receipts have expired from the log"
    return Finding.unproved(name, detail)
