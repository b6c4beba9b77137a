"""Of a trace context, only what is well-formed and short is carried to the log."""

from __future__ import annotations

import pytest

from lethe.consumers.contract.cloudevents import trace_context

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_context_is_carried_as_it_is() -> None:
    assert trace_context({}) == ()
    assert trace_context({"traceparent": PARENT}) == (("traceparent", PARENT.encode()),)
    both = {"traceparent": PARENT, "tracestate": "a=b"}
    assert trace_context(both) == (("traceparent", PARENT.encode()), ("tracestate", b"a=b"))


@pytest.mark.parametrize(
    "parent", ["", "x", PARENT + "\n", PARENT.upper(), PARENT + "-" + "a" * 99]
)
def test_a_parent_that_is_not_well_formed_is_left_out_with_its_state(parent: str) -> None:
    assert trace_context({"traceparent": parent, "tracestate": "a=b"}) == ()


@pytest.mark.parametrize("state", ["a=" + "b" * 511, "ü=1"])
def test_a_state_that_nobody_has_to_carry_is_left_out(state: str) -> None:
    named = {"traceparent": PARENT, "tracestate": state}
    assert trace_context(named) == (("traceparent", PARENT.encode()),)
