"""A line of the table: a model, how it is searched, and what must come of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.proof.model.checker import (
    HOLDS,
    LIMIT,
    VIOLATED,
    Model,
    Outcome,
    rules_of,
    search,
    walk,
    without,
)

LIMIT_OF_STATES = 8_000_000
"""No case comes near; a model that grew beyond it would fill the memory."""

Run = Callable[[], Outcome]


@dataclass(frozen=True, slots=True)
class Case:
    """One run.

    Attributes
    ----------
    group
        The model's name, for `--only`.
    name
        Which bounds or which form of the protocol; of a rule taken away, the rule's name.
    says
        What the rule says; empty where no rule is taken away.
    expected
        `HOLDS`, `VIOLATED`, or `LIMIT` where only the nearest states are looked at.
    broken
        A part of what must not hold any more.
    quick, full
        How it is run in the test-suite, and by `make model`. None: not run there.
    """

    group: str
    name: str
    expected: str
    full: Run | None
    quick: Run | None = None
    says: str = ""
    broken: str = ""

    def passed(self, outcome: Outcome) -> bool:
        """Whether the outcome is the expected one."""
        wanted = {LIMIT, HOLDS} if self.expected == LIMIT else {self.expected}
        return outcome.verdict in wanted and self.broken in outcome.broken


def exhaustive(build: Callable[[], Model[Any]]) -> Run:
    """Look at every state."""
    return lambda: search(build(), LIMIT_OF_STATES)


def nearest(build: Callable[[], Model[Any]], states: int) -> Run:
    """Look at the states nearest to the beginning; there are more."""
    return lambda: search(build(), states)


def walks(build: Callable[[], Model[Any]], number: int, length: int, seed: int = 11) -> Run:
    """Take seeded walks."""
    return lambda: walk(build(), number, length, seed)


def holding(group: str, name: str, full: Run | None, quick: Run | None = None) -> Case:
    """Make a case in which nothing may break."""
    return Case(group, name, HOLDS, full, quick)


def partly(group: str, name: str, full: Run) -> Case:
    """Make a case in which nothing may break in the states that are looked at."""
    return Case(group, name, LIMIT, full)


def removed(
    group: str, rules: Any, name: str, broken: str, build: Callable[[Any], Run], note: str = ""
) -> Case:
    """Make a case in which one rule is gone and `broken` must be found; quick and full alike."""
    run = build(without(rules, name))
    label = f"without {name}{note}"
    return Case(group, label, VIOLATED, run, run, rules_of(rules)[name], broken)
