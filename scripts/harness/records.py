"""Records: what one measurement comes to, and whether it meets its goal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np

from harness.timing import Samples

Setting: TypeAlias = Mapping[str, str | int]

P99_SAMPLES = 100
"""With fewer samples a 99th percentile is the largest one, and is left out."""


@dataclass(frozen=True, slots=True)
class Record:
    """One metric at one setting.

    Attributes
    ----------
    setting
        Sizes and methods.
    metric, unit
        What was measured, in what.
    value
        The median of the samples, or what was computed from other figures.
    samples
        How many.
    iqr, p99
        Of samples: the distance between the quartiles, and the 99th percentile (None under
        `P99_SAMPLES` samples).
    wall
        Of processor times: the median by the wall clock, in the same unit.
    low, high
        The range of a figure that several runs came to.
    goal
        What the value may be at most, if anything is asked of it.
    """

    setting: Setting
    metric: str
    unit: str
    value: float
    samples: int = 1
    iqr: float | None = None
    p99: float | None = None
    wall: float | None = None
    low: float | None = None
    high: float | None = None
    goal: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether it meets its goal, if it has one."""
        return None if self.goal is None else self.value <= self.goal

    def plain(self) -> dict[str, Any]:
        """Return the record as a row of a table: without what it does not have."""
        plain = {one.name: getattr(self, one.name) for one in fields(self)[1:]}
        plain |= {"goal": None if self.goal is None else f"<= {self.goal:g}", "met": self.met}
        return {
            **self.setting,
            **{name: value for name, value in plain.items() if value is not None},
        }


def measured(setting: Setting, metric: str, unit: str, samples: Sequence[float]) -> Record:
    """Return the record of samples."""
    low, median, high, p99 = np.percentile(np.array(samples), [25, 50, 75, 99])
    return Record(
        setting,
        metric,
        unit,
        float(median),
        len(samples),
        iqr=float(high - low) if len(samples) > 1 else None,
        p99=float(p99) if len(samples) >= P99_SAMPLES else None,
    )


def timed(setting: Setting, metric: str, samples: Samples) -> Record:
    """Return the record of the processor time of a call, the wall clock beside it."""
    low, median, high = np.percentile(np.array(samples.processor), [25, 50, 75]) * 1e6
    wall = float(np.median(samples.wall)) * 1e6
    return Record(
        setting,
        metric,
        "us",
        float(median),
        len(samples.wall),
        iqr=float(high - low),
        wall=wall,
    )


def compared(
    setting: Setting,
    metric: str,
    values: Sequence[float],
    goal: float | None = None,
    *,
    unit: str = "1",
    samples: int | None = None,
) -> Record:
    """Return the record of one figure of several runs, with its range and its goal."""
    several = len(values) > 1
    return Record(
        setting,
        metric,
        unit,
        float(np.median(np.array(values))),
        len(values) if samples is None else samples,
        low=float(min(values)) if several else None,
        high=float(max(values)) if several else None,
        goal=goal,
    )


def slope(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the exponent of a least-squares line through the logarithms."""
    exponent, _ = np.polyfit(np.log(np.array(sizes)), np.log(np.array(seconds)), 1)
    return float(exponent)
