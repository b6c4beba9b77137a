"""The figures of docs/stream.md, drawn from the records alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.plots import save, style
from harness.results import where
from stream import cost, divergence
from stream.data import FAMILIES, Record
from stream.followed import BUDGET
from stream.over_time import ENDURANCE, ENDURED, ENDURED_ERROR, FOLLOWED, OVER_TIME, TRACE
from stream.tables import batch_sizes, middle_batch

_FLOOR = 1e-17  # an error of 0 is drawn here: logarithms have no 0

_LINE: Mapping[str, Mapping[str, Any]] = {
    "naive": {"color": "#c0392b", "linestyle": "-", "marker": "x"},
    "one-shot pru": {"color": "#7f8c8d", "linestyle": "-", "linewidth": 4.5, "alpha": 0.45},
    "pru": {"color": "#e08e0b", "linestyle": "-", "marker": "."},
    "pru, refreshed": {"color": "#e08e0b", "linestyle": "--", "marker": "."},
    "exact": {"color": "#2471a3", "linestyle": "-", "marker": "."},
    "exact, refreshed": {"color": "#2471a3", "linestyle": "--", "marker": "."},
}
_DASHES = {"exact": "-", "exact, refreshed": "--", "exact, often compacted": ":"}
_LABEL = {"naive": "the paper's formula repeated", "one-shot pru": "one-shot PRU of the union"}
_REFRESH_COLOUR = {
    "complete": "#27ae60",
    "polish": "#8e44ad",
    "compact": "#7f8c8d",
    "rebuild": "#c0392b",
}


def _columns(records: Sequence[Record], x: str, y: str) -> tuple[list[float], list[float]]:
    return [r[x] for r in records], [max(r[y], _FLOOR) for r in records]


def _error(records: Sequence[Record]) -> Figure:
    figure = Figure(figsize=(11, 5.6), layout="constrained")
    axes = figure.subplots(2, len(FAMILIES), sharex=True, sharey="row")
    k = middle_batch(records)
    for row, kind in enumerate(("linear", "logistic")):
        for column, family in enumerate(FAMILIES):
            axis: Axes = axes[row, column]
            here = where(records, part=OVER_TIME, kind=kind, data=family)
            for method, line in _LINE.items():
                size = None if method == "one-shot pru" else k
                found = where(here, method=method, k=size)
                style = {"label": _LABEL.get(method, method), **line}
                axis.loglog(*_columns(found, "deleted", "true"), **style)
            axis.axhline(BUDGET, color="black", linewidth=0.7, linestyle=":")
            axis.set_title(f"{kind}, {family}")
        axes[row, 0].set_ylabel("relative error to retraining")
    for axis in axes[1]:
        axis.set_xlabel("rows deleted")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6)
    return figure


def _bound(records: Sequence[Record]) -> Figure:
    figure = Figure(figsize=(11, 3.9), layout="constrained")
    panels = [(kind, f"{method}, refreshed") for kind, method in FOLLOWED]
    axes = figure.subplots(1, len(panels), sharex=True)
    for axis, (kind, method) in zip(axes, panels, strict=True):
        found = where(records, part=TRACE, kind=kind, method=method)
        axis.semilogy(*_columns(found, "deleted", "published"), color="#e08e0b", label="published")
        axis.semilogy(*_columns(found, "deleted", "true"), color="#2471a3", label="true")
        axis.axhline(BUDGET, color="black", linewidth=0.7, linestyle=":", label="budget")
        for size, colour in _REFRESH_COLOUR.items():
            marked = where(found, refresh=size)
            axis.scatter(
                *_columns(marked, "deleted", "published"),
                color=colour,
                s=18,
                zorder=3,
                label=f"after a {size}",
            )
        axis.set_title(f"{kind}, {method}")
        axis.set_xlabel("rows deleted")
    axes[0].set_ylabel("relative error")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=7)
    return figure


def _endurance(records: Sequence[Record]) -> Figure:
    figure = Figure(figsize=(11, 3.7), layout="constrained")
    axes = figure.subplots(1, 3)
    for axis, family in zip(axes, ENDURED, strict=False):
        for method, label in (
            ("exact", "one generation"),
            ("exact, refreshed", "compacted by the policy"),
            ("exact, often compacted", "compacted each d rows"),
        ):
            found = where(records, part=ENDURANCE, data=family, method=method)
            style = {"linestyle": _DASHES[method], "marker": "."}
            true, bound = (_columns(found, "deleted", y) for y in ("true", "bound"))
            axis.loglog(*true, label=f"true, {label}", color="#2471a3", **style)
            axis.loglog(*bound, label=f"bound, {label}", color="#e08e0b", **style)
        axis.axhline(ENDURED_ERROR, color="black", linewidth=0.7, linestyle=":")
        axis.set_title(f"exact, single deletions, {family}")
        axis.set_xlabel("rows deleted")
        axis.set_ylabel("relative error")
    axes[0].legend(fontsize=7)
    for family, colour in zip(ENDURED, ("#2471a3", "#27ae60"), strict=True):
        for method, linestyle in _DASHES.items():
            found = where(records, part=ENDURANCE, data=family, method=method)[1:]
            axes[2].plot(
                *_columns(found, "deleted", "batch_us"),
                color=colour,
                linestyle=linestyle,
                marker=".",
                label=f"{family}, {method}",
            )
    axes[2].set_title("cost of a deletion")
    axes[2].set_xlabel("rows deleted")
    axes[2].set_ylabel("microseconds, median")
    axes[2].set_ylim(bottom=0)
    axes[2].legend(fontsize=7)
    return figure


def _divergence(records: Sequence[Record]) -> Figure:
    figure = Figure(figsize=(9, 3.7), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    found = where(records, part=divergence.PART)
    shades = mpl.colormaps["viridis"](np.linspace(0, 0.85, len({r["data"] for r in found})))
    for data, shade in zip(dict.fromkeys(r["data"] for r in found), shades, strict=True):
        cells = where(found, data=data)
        share = [cell["d"] / cell["n"] for cell in cells]
        errors = [cell["true"] for cell in cells]
        left.semilogy(share, errors, color=shade, marker=".", label=data)
        exponents = [cell["exponent"] for cell in cells]
        right.loglog(exponents, errors, color=shade, marker=".", linestyle="", markersize=8)
    for axis in (left, right):
        axis.axhline(1.0, color="black", linewidth=0.7, linestyle=":")
    left.set_xlabel("d / n")
    left.set_ylabel("relative error to retraining")
    left.legend(fontsize=7)
    right.set_xlabel("sum of h / (1 - h) over the stable rank")
    figure.suptitle("the paper's formula repeated for single deletions", fontsize=9)
    return figure


def _cost(records: Sequence[Record]) -> Figure:
    figure = Figure(figsize=(9, 3.9), layout="constrained")
    axes = figure.subplots(1, 2)
    found = where(records, part=cost.PART)
    sizes = batch_sizes(found)
    shades = mpl.colormaps["viridis"](np.linspace(0, 0.85, len(sizes)))
    for axis, method in zip(axes, cost.METHODS, strict=True):
        for k, shade in zip(sizes, shades, strict=True):
            cells = where(found, method=method, k=k)
            rows = [cell["batch_us"] / k for cell in cells]
            axis.plot([c["K"] for c in cells], rows, color=shade, marker=".", label=f"k = {k}")
        axis.set_ylim(bottom=0)
        axis.set_title(f"{method}: microseconds a deleted row")
        axis.set_xlabel("K, rows deleted before in this generation")
        axis.legend(fontsize=7)
    return figure


_MAKERS = {
    "error": (_error, "True error over a stream, eight panels"),
    "bound": (_bound, "Published against true error, batch by batch"),
    "endurance": (_endurance, "Thousands of single deletions: error and cost"),
    "divergence": (_divergence, "How far the paper's formula diverges"),
    "cost": (_cost, "Cost of a deletion against rows deleted before it"),
}

FIGURES = [(name, alt) for name, (_, alt) in _MAKERS.items()]
"""Names of the figures, with what they say to someone who cannot see them."""


def draw(records: Sequence[Record], images: Path) -> None:
    """Draw every figure into ``images``."""
    with style():
        for name, (make, _) in _MAKERS.items():
            save(make(records), images / f"stream-{name}.png")
