"""A bound under the true error is counted, however little it is under: rounding comes later."""

from __future__ import annotations

from dataclasses import replace

from certificates.summary import certificates
from lethe.engine.error.certificate import Certificate
from stream.checks import Outcome, bounds
from tests.support.certified import State

ERROR = 0.12345678
LITTLE_LESS = ERROR * (1 - 1e-9)


def _state(bound: float | None) -> State:
    certificate = Certificate(bound, "none" if bound is None else "solved", 0.0, 1.0)
    return State("benign", "fresh", certificate, ERROR, 0.0, 1.0, False)


def _below(bound: float | None) -> int:
    """Return how many states are below in the table of one state with this bound."""
    [row] = [row for row in certificates([_state(bound)]) if row["by"] == "state"]
    return int(row["below"])


def test_a_certificate_that_is_a_little_below_is_counted() -> None:
    assert _below(LITTLE_LESS) == 1
    assert _below(ERROR) == _below(None) == 0
    assert replace(_state(ERROR), true=2 * ERROR).below


def _outcome(**record: object) -> Outcome:
    found = {"part": "trace", "kind": "linear", "bound": 0.1235, "true": 0.1235, **record}
    [outcome] = bounds([found])
    return outcome


def test_a_published_bound_that_is_a_little_below_fails_the_stream_study() -> None:
    assert not _outcome(below=True).passed
    exact = _outcome(below=False)
    assert exact.passed
    assert "digits" not in exact.promise


def test_a_run_whose_bounds_were_rounded_before_says_so() -> None:
    assert _outcome().passed
    assert "compared to four digits in this run" in _outcome().promise
    assert not _outcome(bound=0.1234).passed
