"""A round of a poll: what is loaded for it, the commits that come of it, and what they leave.

Each model gets at most one commit per round: its first requests that fit together, or one refresh.
The rest of its records are processed in the next round, from the state after that commit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from lethe.consumers.commits.journal import Followed
from lethe.consumers.contract import topics
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.deletions.validate import Group, Invalid, Refreshed, Valid
from lethe.consumers.versions.draft import Transition
from lethe.engine.fit.factor import Factor
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.lookup import Lookup


@dataclass
class Loaded:
    """The first items of a group, processed together, and what was loaded for them."""

    group: Group
    state: ModelState
    followed: Followed | None
    items: Sequence[Valid | Invalid] | Refreshed
    lookup: Lookup | None = None
    subjects: Mapping[str, Sequence[str]] = field(default_factory=dict)
    factor: Factor | None = None
    erased: Collection[str] = ()

    @cached_property
    def changes_rows(self) -> bool:
        """Whether its requests insert or correct rows."""
        return self.group.partition.topic == topics.ROW_CHANGES


@dataclass(frozen=True, slots=True)
class Prepared:
    """A commit ready to be appended, the state before it, and how many records it processes."""

    group: Group
    before: ModelState
    transition: Transition
    records: int
    seconds: float = 0.0
    message: str = ""


@dataclass(slots=True)
class Round:
    """The result of one round of a poll.

    Attributes
    ----------
    prepared
        Commits to append, of different models.
    rest
        Groups that have to wait to be batched, and how many rows their first batches would delete.
    unknown
        Answers to requests for models that are not registered.
    failed
        By model: the error that halts it.
    dropped
        Models with a refresh result that changes nothing, their newest versions, and why.
    stale
        Models whose stored state is not the one in memory: they are folded and processed again.
    """

    prepared: list[Prepared] = field(default_factory=list)
    rest: list[tuple[Group, int]] = field(default_factory=list)
    unknown: list[Receipt] = field(default_factory=list)
    failed: dict[str, Exception] = field(default_factory=dict)
    dropped: list[tuple[str, int, str]] = field(default_factory=list)
    stale: set[str] = field(default_factory=set)
