"""Records: what one measurement comes to, and how samples become one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np

Setting: TypeAlias = Mapping[str, str | int]

P99_SAMPLES = 100
"""With fewer samples a 99th percentile is the largest one, and is left out."""


@dataclass(frozen=True, slots=True)
class Record:
    """One metric at one setting.

    Attributes
    ----------
    section
        The module's subject.
    parameters
        The setting.
    metric, unit
        What was measured, in what.
    median, p99, iqr
        Median (p50), 99th percentile (None under `P99_SAMPLES` samples), and the spread as the
        distance between the quartiles; a figure derived from others has no spread.
    n
        How many samples.
    low, high
        The range of a figure that several runs came to.
    goal
        What it is to be, and whether it is: ``>= 0.7: met``.
    """

    section: str
    parameters: Setting
    metric: str
    unit: str
    median: float
    p99: float | None
    iqr: float | None
    n: int
    low: float | None = None
    high: float | None = None
    goal: str | None = None

    def plain(self) -> dict[str, Any]:
        """Return the record as it is written to JSON."""
        return {**asdict(self), "parameters": dict(self.parameters)}


def measured(
    section: str,
    parameters: Setting,
    metric: str,
    unit: str,
    samples: Sequence[float],
) -> Record:
    """Return the record of samples."""
    low, median, high, p99 = np.percentile(np.array(samples), [25, 50, 75, 99])
    return Record(
        section,
        parameters,
        metric,
        unit,
        float(median),
        float(p99) if len(samples) >= P99_SAMPLES else None,
        float(high - low) if len(samples) > 1 else None,
        len(samples),
    )


def derived(
    section: str,
    parameters: Setting,
    metric: str,
    unit: str,
    value: float,
    n: int,
) -> Record:
    """Return the record of a figure that was computed from ``n`` others."""
    return Record(section, parameters, metric, unit, float(value), None, None, n)


def compared(
    section: str,
    parameters: Setting,
    metric: str,
    values: Sequence[float],
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    unit: str = "1",
    n: int | None = None,
) -> Record:
    """Return the record of one figure of several runs, with its range and its goal."""
    median = float(np.median(np.array(values)))
    several = len(values) > 1
    return Record(
        section,
        parameters,
        metric,
        unit,
        median,
        None,
        None,
        len(values) if n is None else n,
        float(min(values)) if several else None,
        float(max(values)) if several else None,
        _goal(median, at_least, at_most),
    )


def _goal(value: float, at_least: float | None, at_most: float | None) -> str | None:
    if at_least is not None:
        return f">= {at_least:g}: {'met' if value >= at_least else 'missed'}"
    if at_most is not None:
        return f"<= {at_most:g}: {'met' if value <= at_most else 'missed'}"
    return None
