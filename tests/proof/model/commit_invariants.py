"""What must be true of every state of the commit model."""

from __future__ import annotations

from tests.proof.model.checker import Broken
from tests.proof.model.commit_state import HALTED, Folded, State
from tests.proof.model.journal import Journal


def check(
    journal: Journal, state: State, folded: Folded | None, *, versions_ordered: bool = True
) -> None:
    """Raise `Broken` if a promise does not hold; `folded` is what a fresh worker would do now."""
    heads, _ = journal.accepted(state.log)
    valid = journal.valid(state.log)
    _check_outcomes(journal, state, valid)
    for commits in state.first_seen if versions_ordered else ():
        if commits != tuple(range(1, len(commits) + 1)):
            raise Broken(f"versions appear in the order {commits}")
    for model, head in enumerate(heads):
        decided = journal.decided(head)
        if len(decided) != len(set(decided)):
            raise Broken(f"a row is deleted twice: {decided}")
        _check_store(journal, state, model, valid)
    if any(worker.phase == HALTED for worker in state.workers):
        raise Broken("a worker halts although the log lost nothing")
    if folded is None:
        raise Broken("a fresh worker would halt")
    if folded.heads != heads:
        ends, accepted = journal.names(folded.heads), journal.names(heads)
        raise Broken(f"a fresh worker ends at {ends}, the accepted history at {accepted}")
    unpublished = valid - state.published - set(folded.publish)
    if unpublished:
        raise Broken(f"never published: {journal.names(tuple(sorted(unpublished)))}")


def _check_outcomes(journal: Journal, state: State, valid: frozenset[int]) -> None:
    """One final outcome a request, of an accepted record."""
    outcomes: dict[str | None, int] = {}
    for digest in sorted(state.published):
        if digest not in valid:
            raise Broken(f"{journal.name(digest)} is published and void")
        if outcomes.setdefault(journal[digest].request, digest) != digest:
            raise Broken(f"two final outcomes for {journal[digest].request}")


def _check_store(journal: Journal, state: State, model: int, valid: frozenset[int]) -> None:
    """The head is accepted history; the arrays hold what it means, or say that they do not."""
    head, arrays = state.store.heads[model], state.store.arrays[model]
    if head not in journal.bases and head not in valid:
        raise Broken(f"head {journal.name(head)} is not accepted history")
    means = frozenset(journal.decided(head))
    if not arrays.awaiting and arrays.lacking != means:
        raise Broken(
            f"arrays lack {sorted(arrays.lacking)}, the head {journal.name(head)} means "
            f"{sorted(means)}, and nothing says so"
        )
