"""The signature check of an audit: who published a history."""

from __future__ import annotations

from collections import Counter

from lethe.consumers.audit.finding import Faults, Finding
from lethe.consumers.audit.history import History
from lethe.consumers.contract import topics


def signatures_finding(history: History, *, trusted: bool) -> Finding:
    """Check that records are signed, or vouched for by a signed version through its digests."""
    name, faults = "signatures", Faults()
    for signatures in history.signatures.values():
        faults += signatures.faults
    counters = (signatures.by_key for signatures in history.signatures.values())
    by_key = sum(counters, Counter[str]())
    keys = ", ".join(f"{count} records by key {key}" for key, count in sorted(by_key.items()))
    if faults:
        return Finding.of(name, faults, "")
    if "?" in by_key:
        keys = f"{by_key['?']} records are signed: name trusted keys (--trust) to see by whom"
        return Finding.passed_over(name, keys)
    if not by_key and not trusted:
        return Finding.passed_over(name, "nothing is signed: it may be from anybody")
    older = _unsigned(history, faults)
    if not trusted and not faults:
        detail = f"{keys}, which the file itself names: name those that you trust (--trust)"
        return Finding.passed_over(name, detail)
    if older and not faults:
        reason = "older than the first signature and in no signed receipt log"
        detail = f"{keys}; {older} receipts are {reason}"
        return Finding.passed_over(name, detail)
    return Finding.of(name, faults, keys)


def _unsigned(history: History, faults: Faults) -> int:
    """Report what is unsigned and should not be; return how many receipts nothing vouches for.

    A signed version vouches for all before it through the chain, and for the receipts in its
    receipt log.
    """
    tip = history.tip
    signed = history.signatures[topics.VERSIONS].numbers & history.versions.keys()
    if tip is None or not signed:
        faults.add("no version is signed although keys are trusted: it may be from anybody")
        return 0
    oldest, newest = min(signed), max(signed)
    for number in sorted(history.versions.keys() - signed):
        if number > oldest:
            faults.add(f"version {number} is not signed, but version {oldest} before it is")
    head = history.versions[newest].head
    covered = set() if head is None else set(history.leaf_list[: head.size])
    uncovered = history.signatures[topics.RECEIPTS].unsigned_leaves - covered
    began = history.versions[oldest].event.created_at
    for leaf in sorted(uncovered, key=lambda leaf: history.receipts[leaf].place):
        if history.receipts[leaf].completed_at >= began:
            faults.add(f"the receipt at {history.receipts[leaf].place} is not signed")
    return len(uncovered)
