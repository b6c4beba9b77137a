"""What thousands of states come to: the rows of the tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from certificates.sentinels import FAMILIES, Estimated
from harness.results import Row, rounded
from tests.support.certified import State

T = TypeVar("T")

_DIGITS = 6

LOW, HIGH = 0.8, 3.0
"""An estimate is meant to lie within these times the true error."""


def _groups(items: Iterable[T], key: Callable[[T], str]) -> dict[str, list[T]]:
    groups: dict[str, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def _quantiles(values: Sequence[float], marks: Mapping[str, float]) -> Row:
    found = np.percentile(values, list(marks.values())) if values else [None] * len(marks)
    return dict(zip(marks, map(_plain, found), strict=True))


def _plain(value: Any) -> float | None:
    return None if value is None else float(value)


_RATIOS = {"median": 50, "90 %": 90, "99 %": 99, "most": 100}


def certificates(states: Sequence[State]) -> list[Row]:
    """Return what the certificates come to, by state, by argument and by family."""
    keys: dict[str, Callable[[State], str]] = {
        "state": lambda state: state.how,
        "argument": lambda state: state.certificate.argument,
        "family": lambda s: f"{s.family}, {'polished' if s.how == 'polished' else 'not'}",
    }
    rows = []
    for by, key in keys.items():
        for name, group in _groups(states, key).items():
            ratios = _ratios(group)
            counts = {
                "states": len(group),
                "no bound": sum(state.certificate.bound is None for state in group),
                "below": sum(state.below for state in group),
                "measured": len(ratios),
            }
            rows.append(
                rounded({"by": by, "of": name, **counts, **_quantiles(ratios, _RATIOS)}, _DIGITS)
            )
    return rows


def _ratios(states: Iterable[State]) -> list[float]:
    """Return bound over error of the states where rounding hides neither."""
    return [
        state.certificate.bound / state.true
        for state in states
        if state.certificate.bound is not None and state.above_rounding
    ]


def errors(states: Sequence[State]) -> list[Row]:
    """Return bound over error by state and by the error's power of ten, for the figure."""
    rows = []
    for how, group in _groups(states, lambda state: state.how).items():
        measured = [s for s in group if s.certificate.bound and s.above_rounding]
        decades = _groups(measured, lambda s: str(math.floor(math.log10(s.true / s.size))))
        for decade in sorted(decades, key=int):
            ratios = _ratios(decades[decade])
            row = {"state": how, "decade": int(decade), "states": len(ratios)}
            rows.append(rounded({**row, **_quantiles(ratios, _RATIOS)}, _DIGITS))
    return rows


_ESTIMATES = {
    **{"least": 0, "2.5 %": 2.5, "25 %": 25, "median": 50, "75 %": 75, "97.5 %": 97.5},
    "most": 100,
}


def sentinels(estimates: Sequence[Estimated]) -> list[Row]:
    """Return what the estimates come to, by size of the data, and by family, order and of all."""
    keys: dict[str, Callable[[Estimated], str]] = {
        "family": lambda one: one.family,
        "order of deletion": lambda one: one.order,
        "": lambda _: "all",
    }
    rows = []
    sizes = _groups(estimates, lambda one: "usual" if one.family in FAMILIES else "larger")
    for size, of_size in sizes.items():
        for by, key in keys.items():
            for name, group in _groups(of_size, key).items():
                ratios = [one.ratio for one in group]
                shares = {
                    "under": sum(ratio < LOW for ratio in ratios) / len(ratios),
                    "over": sum(ratio > HIGH for ratio in ratios) / len(ratios),
                }
                row = {"size": size, "rows": group[0].rows, "by": by, "of": name}
                row |= {"states": len(group), **shares, **_quantiles(ratios, _ESTIMATES)}
                rows.append(rounded(row, _DIGITS))
    return rows
