"""States in memory: bounded, and the one in use stays."""

from __future__ import annotations

from dataclasses import replace

from lethe.consumers.commits.state_cache import StateCache, size_of
from lethe.engine.deletion.correction import Correction
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.layout.state import ModelState
from tests.support.families import make
from tests.support.states import start
from tests.unit.deletions.test_decide import state_of

BASE = state_of(start(make("benign", "linear")))


def of(name: str, rows: int = 0) -> ModelState:
    d = BASE.meta.config.d
    V = Correction.of(BASE.generation.theta_b[:1].repeat(d, axis=1).repeat(rows, axis=0))
    stream = BASE.stream._replace(V=V)
    return replace(BASE, keys=ModelKeys(name), stream=stream)


def names(held: StateCache) -> str:
    """Which of the models a to e are held, without using them."""
    return "".join(sorted(held._states))


def test_the_least_recently_used_state_goes_first() -> None:
    held = StateCache(3 * size_of(of("a")))
    for name in "abc":
        held.put(of(name))
    assert names(held) == "abc"
    assert held.get("a") is not None
    held.put(of("d"))
    assert names(held) == "acd"
    assert held.get("b") is None


def test_a_state_counts_what_it_has_grown_to() -> None:
    small = size_of(of("a"))
    held = StateCache(small * 4)
    for name in "abc":
        held.put(of(name))
    large = of("a", rows=1 + 3 * small // (8 * BASE.meta.config.d))
    assert size_of(large) > 3 * small
    held.put(large)
    assert names(held) == "a"
    held.put(of("a"))
    for name in "bcd":
        held.put(of(name))
    assert names(held) == "abcd"


def test_one_state_is_held_whatever_its_size() -> None:
    held = StateCache(1)
    held.put(of("a", rows=100))
    assert names(held) == "a"
    held.put(of("b"))
    assert names(held) == "b"
    held.drop("b")
    held.drop("b")
    held.put(of("c"))
    held.clear()
    assert len(held) == 0
