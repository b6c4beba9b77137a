"""A bound under the true error is counted, however little it is under: rounding comes later."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import certificates
from certification.page import page
from lethe.engine.error.certificate import Certificate
from streams.checks import Outcome, checked
from tests.support.certified import State

ERROR = 0.12345678
LITTLE_LESS = ERROR * (1 - 1e-9)


def _state(bound: float | None) -> State:
    certificate = Certificate(bound, "none" if bound is None else "solved", 0.0, 1.0)
    return State("benign", "fresh", certificate, ERROR, 0.0, 1.0, False)


def _row(bound: float | None) -> list[str]:
    """Return the cells of the page's first table for one state with this bound."""
    record = certificates._record(_state(bound))
    run: dict[str, Any] = {
        "machine": {},
        "certificates": {"columns": list(record), "rows": [list(record.values())]},
        "sentinels": [],
        "polish": [],
    }
    [line] = [line for line in page(run).splitlines() if line.startswith("| fresh |")]
    return [cell.strip() for cell in line.split("|")]


def test_a_certificate_that_is_a_little_below_is_counted() -> None:
    record = certificates._record(_state(LITTLE_LESS))

    assert record["bound"] == record["true"]
    assert _row(LITTLE_LESS)[4] == "1"
    assert _row(ERROR)[4] == _row(None)[4] == "0"
    assert replace(_state(ERROR), true=2 * ERROR).below


def _outcome(**record: object) -> Outcome:
    found = {"part": "trace", "kind": "linear", "bound": 0.1235, "true": 0.1235, **record}
    outcomes = checked([found])
    [outcome] = [one for one in outcomes if one.promise.startswith("published bounds below")]
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
