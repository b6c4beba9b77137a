"""What the study must show: each a figure, its limit, and whether it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.results import where
from stream import divergence
from stream.data import Record
from stream.over_time import ENDURANCE, ENDURED, ENDURED_ERROR, ORDER, OVER_TIME

_SAME = 1e-8  # two routes to one answer, on data of condition 1e6


@dataclass(frozen=True, slots=True)
class Outcome:
    """One promise, what was measured, and the limit it was held to."""

    promise: str
    figure: float
    limit: float
    passed: bool

    def line(self) -> str:
        """Return the outcome as one line."""
        word = "PASS" if self.passed else "FAIL"
        return f"{word}  {self.promise}: {self.figure:.3g} (limit {self.limit:g})"


def _at_most(promise: str, figures: Sequence[float], limit: float) -> Outcome:
    if not figures:
        return Outcome(f"{promise}: not measured", float("nan"), limit, False)
    largest = max(figures)
    return Outcome(promise, largest, limit, largest <= limit)


def checked(records: Sequence[Record]) -> list[Outcome]:
    """Return every outcome."""
    return [*_endured(records), *_identities(records), *bounds(records), _diverges(records)]


def _endured(records: Sequence[Record]) -> list[Outcome]:
    outcomes = []
    for family in ENDURED:
        for method, how in (
            ("exact, refreshed", "compacted by the policy"),
            ("exact", "one generation, nothing compacted"),
        ):
            found = where(records, part=ENDURANCE, data=family, method=method)
            last = found[-1]
            what = f"{last['deleted']} single deletions, d = {last['d']}, {family}, {how}"
            outcomes.append(
                _at_most(
                    f"{what}: error to retraining",
                    [record["true"] for record in found],
                    ENDURED_ERROR,
                )
            )
            if method != "exact":
                outcomes.append(
                    _at_most(f"{what}: refreshes for the error", [last["for_error"]], 0)
                )
    return outcomes


def _identities(records: Sequence[Record]) -> list[Outcome]:
    streamed = where(records, part=OVER_TIME, method="pru")
    outcomes = [
        _at_most(
            f"streaming PRU is the one-shot PRU of the union, {kind}: relative difference",
            [record["difference"] for record in streamed if record["kind"] == kind],
            _SAME,
        )
        for kind in ("linear", "logistic")
    ]
    for kind in ("linear", "logistic"):
        found = [
            record["difference"]
            for record in where(records, part=ORDER, kind=kind)
            if record["method"] != "naive"
        ]
        outcomes.append(
            _at_most(f"any order and any batches, {kind}: relative difference", found, _SAME)
        )
    return outcomes


def bounds(records: Sequence[Record]) -> list[Outcome]:
    """Return whether true bounds were ever below the error; estimates make no such promise.

    Records without ``below`` are of an older run: only their rounded figures can be compared.
    """
    bounded = [record for record in records if record.get("bound") is not None]
    broken = [record for record in bounded if record.get("below", _below_rounded(record))]
    exact = all("below" in record for record in bounded)
    promise = f"published bounds below the true error, of {len(bounded)}"
    return [
        Outcome(
            promise if exact else f"{promise}, compared to four digits in this run",
            float(len(broken)),
            0.0,
            not broken,
        )
    ]


def _below_rounded(record: Record) -> bool:
    return bool(record["bound"] < record["true"])


def _diverges(records: Sequence[Record]) -> Outcome:
    found = where(records, part=divergence.PART)
    largest = max((record["true"] for record in found), default=0.0)
    promise = "the paper's formula repeated is worse than theta = 0 somewhere: relative error"
    return Outcome(promise, largest, 1.0, largest > 1.0)
