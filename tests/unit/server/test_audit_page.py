"""The audit page knows the events as the contract has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from lethe.consumers.contract.erasure_events import SubjectErasureCompleted
from lethe.consumers.contract.events import Parameters, Version
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.server.console.offline import script_of


@pytest.mark.parametrize("event", [Version, Parameters, Receipt, SubjectErasureCompleted])
def test_every_word_that_an_event_may_hold_is_one_that_the_page_accepts(
    event: type[BaseModel],
) -> None:
    script = script_of(["events"])
    words = set(_words(event.model_json_schema()))
    assert len(words) > 3
    assert {word for word in words if f'"{word}"' not in script} == set()


def _words(schema: Any) -> Iterator[str]:
    """Yield what a JSON schema lists as the only values of a member."""
    if isinstance(schema, dict):
        yield from (word for word in schema.get("enum", ()) if isinstance(word, str))
        for part in schema.values():
            yield from _words(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _words(part)
