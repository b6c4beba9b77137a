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
    """

    section: str
    parameters: Setting
    metric: str
    unit: str
    median: float
    p99: float | None
    iqr: float | None
    n: int

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
