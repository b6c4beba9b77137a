"""The commit that processed a request, as far as the log retains it."""

from __future__ import annotations

from dataclasses import dataclass

from lethe.consumers.audit.commits import CommitFact, read_chain
from lethe.consumers.audit.history import History
from lethe.consumers.audit.reading import home_of, records_in
from lethe.consumers.commits.commit import Commit
from lethe.consumers.contract.events import Receipt
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.log.base import Reader
from lethe.engine.errors import LetheError
from lethe.engine.store.state import ModelState


@dataclass(frozen=True, slots=True)
class Decided:
    """The commit that processed a request; ``commit`` None: it cannot be opened here."""

    fact: CommitFact
    commit: Commit | None


def decided_by(
    reader: Reader,
    history: History,
    value: bytes,
    state: ModelState | None,
    seals: SealKeys | None,
) -> Decided | None:
    """Return the commit that holds a receipt (given as bytes); None if it is not known.

    A version names the commit that made it. Where a request made no version, only the sealed
    content of the commits tells.
    """
    home = home_of(reader, history.model_id)
    named = {fact.event.commit: fact.event.commit_prev for fact in history.versions.values()}
    chain = read_chain(history.model_id, lambda: records_in(reader, home), named)
    fact = chain.valid.get(_commit_number(history, value))
    if seals is None:
        return None if fact is None else Decided(fact, None)
    config = None if state is None else state.meta.config
    only = None if fact is None else fact.number
    for candidate, commit in chain.opened(seals, config, only):
        if isinstance(commit, LetheError):
            continue
        if any(answer.value == value for answer in commit.answers):
            return Decided(candidate, commit)
    return None if fact is None else Decided(fact, None)


def _commit_number(history: History, value: bytes) -> int:
    """Return the number of the commit that made a receipt's version; -1 if it made none."""
    receipt = Receipt.read(value)
    version = None if receipt.version is None else history.versions.get(receipt.version)
    listed = () if version is None else version.event.request_ids
    return version.event.commit if version is not None and receipt.request_id in listed else -1
