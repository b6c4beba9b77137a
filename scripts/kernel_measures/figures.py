"""Figures: what one measurement comes to, and whether it meets its goal."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

import numpy as np

from kernel_measures.clock import Samples

Setting: TypeAlias = Mapping[str, str | int]

_HOLDS: Mapping[str, Callable[[float, float], bool]] = {">=": operator.ge, "<=": operator.le}


@dataclass(frozen=True, slots=True)
class Goal:
    """A number that a figure must reach (``>=``) or stay within (``<=``)."""

    relation: str
    number: float

    def met_by(self, value: float) -> bool:
        """Return whether ``value`` meets it."""
        return _HOLDS[self.relation](value, self.number)

    def __str__(self) -> str:
        return f"{self.relation} {self.number:g}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One metric at one setting.

    Attributes
    ----------
    section
        The module's subject.
    setting
        Sizes and methods.
    metric, unit
        What was measured, in what.
    value, iqr
        Median and distance between the quartiles; a derived figure has no spread.
    wall
        Of times: the median by the wall clock, in the same unit.
    samples
        How many.
    goal
        What the value must be, if anything is asked of it.
    """

    section: str
    setting: Setting
    metric: str
    unit: str
    value: float
    iqr: float | None = None
    wall: float | None = None
    samples: int = 1
    goal: Goal | None = field(default=None)

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None where there is none."""
        return None if self.goal is None else self.goal.met_by(self.value)

    def plain(self) -> dict[str, Any]:
        """Return the figure as it is written to JSON."""
        goal = None if self.goal is None else str(self.goal)
        return {**asdict(self), "setting": dict(self.setting), "goal": goal, "met": self.met}


def timed(
    section: str, setting: Setting, metric: str, samples: Samples, unit: str = "us"
) -> Figure:
    """Return the figure of samples of a time."""
    factor = {"us": 1e6, "s": 1.0}[unit]
    low, median, high = np.percentile(np.array(samples.processor), [25, 50, 75]) * factor
    wall = float(np.median(samples.wall)) * factor
    return Figure(
        section, setting, metric, unit, float(median), float(high - low), wall, len(samples.wall)
    )


def slope(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the exponent of a least-squares line through the logarithms."""
    exponent, _ = np.polyfit(np.log(np.array(sizes)), np.log(np.array(seconds)), 1)
    return float(exponent)
