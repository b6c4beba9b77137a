"""What a --replace makes of a store that was cut off and went on by itself.

Such a store has decisions that nobody has published, and others have published theirs meanwhile.
The next version goes on from what was published, and the commit that makes it settles the branch:

- its versions and parameters are never published;
- a request that has a published final receipt keeps that one, whatever the branch had said;
- a request that only the branch has answered is answered by the new version. Its rows are in the
  ledger, and so they are not in the new version.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from consumers import topics
from consumers.certificates import certificate_of
from consumers.events import Receipt, Version
from consumers.log.base import Reader
from consumers.lost_history import OUTSIDE
from consumers.newest import newest_events
from consumers.reach import FARTHEST, Reach
from consumers.signing import TrustedKeys
from consumers.transition import opened_receipt, stored_receipt, with_answers
from engine.errors import CorruptState
from engine.merkle import Frontier, leaf_hash, root_of
from engine.store.commit import Commit
from engine.store.outbox import Entry, Outbox, Stage
from engine.store.predecessor import Predecessor
from engine.store.reading import record
from engine.store.receipt_log import ReceiptLog, read_leaves
from engine.store.state import Deferred, ModelState, Unregistered
from engine.store.store import ModelStore

_CONFLICT = "REQUEST_ID_CONFLICT"
_UNKNOWN = "UNKNOWN_MODEL"  # an answer of before the model was registered: no entry of its log


@dataclass(frozen=True, slots=True)
class Answer:
    """A receipt, and the body of the request that it answers."""

    receipt: Receipt
    body: str

    def stored(self) -> str:
        """Return it as the state keeps it."""
        return stored_receipt(self.receipt, self.body)


@dataclass(frozen=True, slots=True)
class Branch:
    """What has to be settled between a store and what others have published.

    Attributes
    ----------
    withdrawn
        Ids of the entries of the outbox that must not be published.
    own
        Final answers that only the branch has given: nobody has seen them.
    published
        Final answers of others to requests that the branch has decided as well.
    continues
        Whether the store has decided all that is in the log of receipts of the published version.
    log
        That log, with what was published since; one that begins anew where the store cannot go on
        with it.
    log_kept, leaves
        How much of the stored one stands, and what follows that.
    """

    withdrawn: Sequence[str]
    own: Sequence[Answer]
    published: Sequence[Answer]
    continues: bool
    log: ReceiptLog
    log_kept: int
    leaves: Sequence[bytes]

    @property
    def rows_deleted(self) -> int:
        """How many rows the answers that are given again delete."""
        return sum(answer.receipt.rows_deleted for answer in self.own)

    def answers(self, state: ModelState, now: datetime) -> list[Answer]:
        """Return the branch's own answers as the version of a state gives them."""
        return [Answer(_given_by(state, one.receipt, now), one.body) for one in self.own]

    def answered(self, deferred: Mapping[str, Deferred]) -> dict[str, Deferred]:
        """Return the requests that wait, with the answers that others have published."""
        return with_answers(deferred, (answer.receipt for answer in self.published))

    def settled(self, commit: Commit, answers: Sequence[Answer]) -> Commit:
        """Return the commit of the version that gives these answers, the branch settled with it."""
        stand = (*self.published, *answers)
        return replace(
            commit,
            withdrawn=self.withdrawn,
            requests={answer.receipt.request_id: answer.stored() for answer in stand},
            replaces_finals=True,
            log_kept=self.log_kept,
            receipt_log=[*self.leaves, *commit.receipt_log],
        )


def read_branch(
    store: ModelStore,
    reader: Reader,
    before: Predecessor,
    published: Version,
    trusted: TrustedKeys | None,
) -> Branch:
    """Compare the outbox, the receipts and their log with what was published.

    The outbox is read first: what another worker publishes of it meanwhile counts as published. Of
    the published receipts the newest `FARTHEST` of each partition are read.
    """
    waiting = list(Outbox(store.client).everything(before.keys))
    seen = _Seen.of(_receipts_of(reader, published.model_id, trusted))
    given = {entry_id: _receipt_in(entry) for entry_id, entry in waiting}
    leaves = _stored_leaves(store, before)
    said = [receipt for receipt in given.values() if receipt is not None and receipt.final]
    base = _before_the_branch(leaves, {_leaf(one) for one in (*said, *seen.finals.values())})
    kept = _kept(store, before, {*seen.finals, *(receipt.request_id for receipt in said)})
    own = _own(said, seen, kept, base)
    continued = _continued(base, seen, published, kept)
    wanted = continued or []
    stands = _common(leaves, wanted)
    return Branch(
        [
            entry_id.decode()
            for entry_id, entry in waiting
            if _is_withdrawn(entry, given[entry_id], seen, own)
        ],
        [kept[name] for name in own],
        [
            Answer(receipt, kept[name].body)
            for name, receipt in seen.finals.items()
            if name in kept and kept[name].receipt != receipt
        ],
        continued is not None,
        ReceiptLog.of(Frontier().appended(wanted)),
        stands,
        wanted[stands:],
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    """What everybody has seen: published receipts of a model.

    ``finals`` holds the first final one of each request, in the order of the log; ``requests``
    those that have any; ``conflicts`` the places that were answered as conflicts.
    """

    finals: Mapping[str, Receipt]
    requests: Collection[str]
    conflicts: Collection[tuple[str, object]]

    @classmethod
    def of(cls, receipts: Sequence[Receipt]) -> _Seen:
        """Return what these say."""
        finals: dict[str, Receipt] = {}
        conflicts = {(one.request_id, one.source) for one in receipts if one.code == _CONFLICT}
        for one in receipts:
            if not one.final or one.code == _CONFLICT:
                continue
            if one.request_id in finals and finals[one.request_id].code == _UNKNOWN:
                del finals[one.request_id]  # of before the model was registered
            finals.setdefault(one.request_id, one)
        return cls(finals, {one.request_id for one in receipts if one.code != _CONFLICT}, conflicts)


def _receipts_of(reader: Reader, model_id: str, trusted: TrustedKeys | None) -> list[Receipt]:
    reach = Reach(FARTHEST)
    return list(newest_events(reader, topics.RECEIPTS, {model_id}, Receipt, reach, trusted))


def _receipt_in(entry: Entry) -> Receipt | None:
    """Return the receipt in an entry of the outbox; None where it is another message."""
    if entry.stage is not Stage.RECEIPTS:
        return None
    return record(Receipt, entry.value, "a receipt in the outbox")


def _leaf(receipt: Receipt) -> bytes:
    return leaf_hash(receipt.value())


def _stored_leaves(store: ModelStore, before: Predecessor) -> list[bytes]:
    """Return the stored log of receipts; nothing of it where it is damaged."""
    try:
        return read_leaves(store.client, before.keys)
    except CorruptState:
        return []


def _before_the_branch(leaves: list[bytes], recent: Collection[bytes]) -> list[bytes]:
    """Return the part of the stored log that is older than all that is compared here."""
    size = len(leaves)
    while size and leaves[size - 1] in recent:
        size -= 1
    return leaves[:size]


def _kept(
    store: ModelStore, before: Predecessor, requests: Collection[str]
) -> Mapping[str, Answer]:
    """Return what the store keeps of these requests, final or not."""
    found = store.look_up(Unregistered(before.keys), sorted(requests), []).receipts
    opened = {name: opened_receipt(stored, name) for name, stored in found.items()}
    return {name: Answer(receipt, kept.body) for name, (kept, receipt) in opened.items()}


def _own(
    said: Sequence[Receipt], seen: _Seen, kept: Mapping[str, Answer], base: Sequence[bytes]
) -> dict[str, Receipt]:
    """Return the final answers, by request, that are in the outbox and nowhere else.

    Not repeats of older receipts, which wait there as well.
    """
    old = set(base)
    return {
        one.request_id: one
        for one in said
        if one.request_id not in seen.finals
        and one.code not in OUTSIDE
        and one.request_id in kept
        and kept[one.request_id].receipt == one
        and _leaf(one) not in old
    }


def _is_withdrawn(entry: Entry, receipt: Receipt | None, seen: _Seen, own: Collection[str]) -> bool:
    """Return whether an entry of the outbox must not be published: it is answered otherwise.

    What follows a version, as dead letters do, is published all the same, and so are repeats.
    """
    if receipt is None:
        return entry.stage in (Stage.PARAMETERS, Stage.VERSIONS)
    if receipt.code == _CONFLICT:
        return (receipt.request_id, receipt.source) in seen.conflicts
    if receipt.final:
        return receipt.request_id in seen.finals or receipt.request_id in own
    return receipt.request_id in seen.requests


def _continued(
    base: list[bytes], seen: _Seen, published: Version, kept: Mapping[str, Answer]
) -> list[bytes] | None:
    """Return the log of receipts that was published; None where the store cannot go on with it.

    It cannot where that log holds receipts of requests that the store has not decided: these enter
    it once they are decided again (`consumers.adopt`). The log begins anew then, and every reader
    sees its size go back.
    """
    old, head = set(base), published.receipt_log
    others = [one for one in seen.finals.values() if one.code != _UNKNOWN and _leaf(one) not in old]
    if head is None:
        return None
    named = max(0, head.size - len(base))
    found = [*base, *map(_leaf, others)]
    same = len(found) >= head.size and root_of(found[: head.size]).hex() == head.root
    if not same or any(one.request_id not in kept for one in others[:named]):
        return None
    since = [_leaf(one) for one in others[named:] if one.request_id in kept]
    return found[: max(head.size, len(base))] + since


def _common(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    """Return how many first entries two logs share."""
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    return shared


def _given_by(state: ModelState, receipt: Receipt, now: datetime) -> Receipt:
    """Return an answer of the branch as the version of a state gives it, if it names one."""
    if receipt.version is None:
        return receipt
    return receipt.model_copy(
        update={
            "version": state.version,
            "generation": state.meta.generation,
            "error": state.meta.error,
            "certificate": certificate_of(state),
            "completed_at": now,
        }
    )
