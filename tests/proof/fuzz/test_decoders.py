"""Whatever bytes a decoder is given: a value or its own error, soon, and in bounded memory."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.proof.fuzz.contract import SECONDS, Broken, Harness, check
from tests.proof.fuzz.harnesses import HARNESSES
from tests.proof.fuzz.hostile import TOKENS, bombs, spoil, spoilt

EACH = pytest.mark.parametrize("harness", HARNESSES.values(), ids=list(HARNESSES))
BOMB_BYTES = 16 << 10


@pytest.fixture(autouse=True)
def _untraced() -> Iterator[None]:
    yield
    tracemalloc.stop()


@EACH
def test_what_is_valid_is_taken(harness: Harness) -> None:
    """Else the harness would fuzz nothing but its first refusal."""
    taken = [check(harness, seed) for seed in harness.seeds()]
    assert any(taken)


@EACH
def test_nearly_valid_bytes_harm_nobody(harness: Harness) -> None:
    seeds = harness.seeds()
    for number in range(60):
        draw = random.Random(number)
        data = draw.choice(seeds)
        for _ in range(draw.randrange(1, 4)):
            data = spoil(data, draw)
        check(harness, data)


@EACH
def test_any_bytes_harm_nobody(harness: Harness) -> None:
    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=spoilt(harness.seeds()))
    def try_one(data: bytes) -> None:
        check(harness, data)

    try_one()


@EACH
def test_every_hostile_token_harms_nobody(harness: Harness) -> None:
    for token in TOKENS:
        check(harness, token)


@EACH
def test_large_inputs_cost_no_more_than_their_share(harness: Harness) -> None:
    for bomb in bombs(BOMB_BYTES):
        check(harness, bomb)


def test_a_request_as_large_as_a_topic_takes_costs_no_more_than_its_share() -> None:
    found = bombs((1 << 20) - 64)
    dearest = [bomb for bomb in found if bomb[:4] in (b"[{},", b'["ab', b'{"re')]
    assert len(dearest) == 4
    for bomb in dearest:
        check(HARNESSES["request"], bomb)


# -- the check itself: it must be able to fail ----------------------------------------------------


@pytest.mark.parametrize("fault", ["error", "memory", "time"])
def test_a_decoder_that_breaks_its_promise_is_caught(fault: str) -> None:
    def decode(data: bytes) -> None:
        began = time.thread_time()
        if fault == "error":
            data.decode("ascii")
            raise KeyError(data)
        if fault == "memory":
            bytes(4 << 20)
        while fault == "time" and time.thread_time() < began + SECONDS + 0.1:
            pass

    harness = Harness("broken", decode, (UnicodeError,), lambda: [b""])
    with pytest.raises(
        Broken, match={"error": "KeyError", "memory": "memory", "time": "took"}[fault]
    ):
        check(harness, b"x")


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1 << 32))
def test_spoiling_ends_and_changes_something_mostly(number: int) -> None:
    data = b'{"a": [1, "b"]}'
    assert len(spoil(data, random.Random(number))) <= len(data) + max(map(len, TOKENS))
