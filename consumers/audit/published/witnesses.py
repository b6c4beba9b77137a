"""What witnesses have seen of a receipt log, against what a history shows of it."""

from __future__ import annotations

from collections.abc import Iterable

from lethe.consumers.audit.published.finding import Faults, Finding
from lethe.consumers.audit.published.history import History
from lethe.consumers.audit.published.receipts import leaves_of_log
from lethe.consumers.contract.tlog import SignedHead, read_head
from lethe.consumers.contract.witnesses import NO_QUORUM, Policy
from lethe.engine.errors import InvalidData, Unauthenticated
from lethe.engine.merkle import root_of


def witnesses_finding(history: History, policy: Policy) -> Finding:
    """Check that enough witnesses have cosigned the tree heads that a history relies on.

    That is the newest; of a part alone, one whose tree has each applied receipt. A cosigned head
    that is not of this history shows a fork, or that it was cut off.
    """
    name, faults = "witnesses", Faults()
    heads = (head for head in _heads(history, faults) if _is_seen(head, policy, faults))
    seen = {(head.size, head.root): head for head in heads}.values()
    for head in seen:
        if (fault := _fork(history, head)) is not None:
            faults.add(fault)
    sizes = {head.size for head in seen}
    missing = _unseen_of_part(history, sizes) if history.partial else _unseen(history, sizes)
    if policy.quorum == NO_QUORUM and not faults:
        return Finding.passed_over(name, "the policy requires no cosignature")
    if (missing or not (sizes or history.partial)) and not faults:
        detail = f"not enough witnesses have cosigned a tree head with {missing} of the receipts"
        return Finding.unproved(name, detail)
    return Finding.of(name, faults, f"a quorum has cosigned {len(sizes)} of its tree heads")


def _heads(history: History, faults: Faults) -> Iterable[SignedHead]:
    for note in history.checkpoints:
        try:
            head = read_head(note)
        except InvalidData as error:
            faults.add(str(error))
            continue
        if head.model_id == history.model_id:
            yield head
        else:
            faults.add(f"a checkpoint is of the log {head.origin[:80]!r}")


def _is_seen(head: SignedHead, policy: Policy, faults: Faults) -> bool:
    try:
        return policy.check(head)
    except Unauthenticated as error:
        faults.add(f"the checkpoint of {head.size} receipts: {error}")
        return False


def _fork(history: History, head: SignedHead) -> str | None:
    """Return how a head that witnesses have seen contradicts a history."""
    told = f"witnesses have seen a log of {head.size} receipts"
    if history.partial:
        heads = (fact.event.receipt_log for fact in history.versions.values())
        roots = {one.root for one in heads if one is not None and one.size == head.size}
        return None if roots <= {head.root.hex()} else f"{told} with another root: it was forked"
    newest, leaves = history.head, leaves_of_log(history)
    if newest is None or head.size > newest.size:
        return f"{told}, and it has {0 if newest is None else newest.size}: it was cut off"
    if len(leaves) < head.size:
        return None  # the check of the receipt log says so
    same = root_of(leaves[: head.size]) == head.root
    return None if same else f"{told} with another root: it was forked"


def _unseen(history: History, sizes: set[int]) -> int:
    """Return how many receipts are newer than what a quorum has seen."""
    size = 0 if history.head is None else history.head.size
    return size - max((one for one in sizes if one <= size), default=0)


def _unseen_of_part(history: History, sizes: set[int]) -> int:
    """Return how many applied receipts are in no tree that a quorum has seen."""
    heads = {number: fact.event.receipt_log for number, fact in history.versions.items()}
    proved = {
        one.leaf
        for one in history.proofs
        if (head := heads.get(one.version)) and head.size in sizes and history.proves(one)
    }
    applied = (one for one in history.finals.values() if one.status == "APPLIED")
    return sum(one.leaf not in proved for one in applied)
