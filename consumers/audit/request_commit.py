"""The commit of a request's story: which one decided it, as far as the log retains it."""

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
    """The commit that decided a request; ``commit`` None: it cannot be opened here."""

    fact: CommitFact
    commit: Commit | None


def decided_by(
    reader: Reader,
    history: History,
    value: bytes,
    state: ModelState | None,
    seals: SealKeys | None,
) -> Decided | None:
    """Return the commit that a receipt (its bytes) is of; None: nobody can say.

    A version names the commit that made it. Of a request that made none, only what is sealed says
    which it was.
    """
    home = home_of(reader, history.model_id)
    named = {one.event.commit: one.event.commit_prev for one in history.versions.values()}
    chain = read_chain(history.model_id, lambda: records_in(reader, home), named)
    fact = chain.valid.get(_named(history, value))
    if seals is None:
        return None if fact is None else Decided(fact, None)
    config = None if state is None else state.meta.config
    only = None if fact is None else fact.number
    for one, commit in chain.opened(seals, config, only):
        if isinstance(commit, LetheError):
            continue
        if any(answer.value == value for answer in commit.answers):
            return Decided(one, commit)
    return None if fact is None else Decided(fact, None)


def _named(history: History, value: bytes) -> int:
    """Return the number of the commit that made a receipt's version; -1: it made none."""
    receipt = Receipt.read(value)
    version = None if receipt.version is None else history.versions.get(receipt.version)
    listed = () if version is None else version.event.request_ids
    return version.event.commit if version is not None and receipt.request_id in listed else -1
