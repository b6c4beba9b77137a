"""The rules of the commit protocol hold in the models, and none of them is there for nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.proof.model import (
    commit_state,
    epochs_state,
    halts,
    keys,
    lifecycle_state,
    lost,
    opening,
    parameters,
    retention,
    watermark,
)
from tests.proof.model.case import Case
from tests.proof.model.cases import all_cases
from tests.proof.model.checker import (
    FAULT,
    HOLDS,
    LIMIT,
    VIOLATED,
    Broken,
    rules_of,
    search,
    walk,
    without,
)

QUICK = [case for case in all_cases() if case.quick is not None]


@pytest.mark.parametrize("case", QUICK, ids=lambda case: f"{case.group}-{case.name}")
def test_what_the_protocol_promises_holds_and_each_rule_taken_away_is_caught(case: Case) -> None:
    assert case.quick is not None
    outcome = case.quick()
    assert case.passed(outcome), "\n".join([outcome.verdict, outcome.broken, *outcome.trace])
    assert outcome.states > 1


@pytest.mark.parametrize(
    ("group", "rules"),
    [
        ("commit", commit_state.Rules()),
        ("epochs", epochs_state.Rules()),
        ("opening", opening.Rules()),
        ("lifecycle", lifecycle_state.Rules()),
        ("halts", halts.Rules()),
        ("keys", keys.Rules()),
        ("retention", retention.Rules()),
        ("lost", lost.Rules()),
        ("parameters", parameters.Rules()),
        ("watermark", watermark.Rules()),
    ],
)
def test_every_rule_is_taken_away_in_a_case(group: str, rules: object) -> None:
    tried = " ".join(case.name for case in QUICK if case.group == group)
    assert [name for name in rules_of(rules) if f"without {name}" not in tried] == []


def test_no_two_cases_have_one_name() -> None:
    names = Counter((case.group, case.name) for case in all_cases())
    assert [name for name, count in names.items() if count > 1] == []


class Counting:
    """Two counters that a step raises by one; they may not both reach `broken`."""

    def __init__(self, broken: int) -> None:
        self.broken = broken

    def initial(self) -> tuple[int, int]:
        return (0, 0)

    def steps(self, state: tuple[int, int]) -> Iterator[tuple[str, tuple[int, int]]]:
        first, second = state
        if first < 3:
            yield "first", (first + 1, second)
        if second < 3:
            yield f"{FAULT}second", (first, second + 1)

    def check(self, state: tuple[int, int]) -> None:
        if state == (self.broken, self.broken):
            raise Broken(f"both are {self.broken}")


def test_a_search_sees_every_state_once() -> None:
    outcome = search(Counting(broken=9), 100)
    assert (outcome.verdict, outcome.states) == (HOLDS, 16)


def test_a_search_says_when_it_stopped_early() -> None:
    assert search(Counting(broken=9), 5).verdict == LIMIT


def test_a_search_shows_a_shortest_way_to_what_is_broken() -> None:
    outcome = search(Counting(broken=2), 100)
    assert outcome.verdict == VIOLATED
    assert outcome.broken == "both are 2"
    assert len(outcome.trace) == 4


def test_a_walk_finds_what_is_broken_and_the_same_seed_finds_it_again() -> None:
    first, second = (walk(Counting(broken=2), 50, 10, seed=3) for _ in range(2))
    assert first.verdict == VIOLATED
    assert (first.broken, first.trace) == (second.broken, second.trace)


def test_a_walk_looks_at_its_last_state() -> None:
    assert walk(Counting(broken=3), 1, 6, seed=0).verdict == VIOLATED


def test_a_rule_that_is_not_there_cannot_be_taken_away() -> None:
    with pytest.raises(ValueError, match="no rule 'gap'"):
        without(opening.Rules(), "gap")
