"""Error against budget by version, one panel per model; readable on light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator, NullLocator

from lethe.consumers.demo.observer import Observed, Outcome

_INK = "#768390"  # 3.9 to 1 on white and 4.8 to 1 on a dark page
_GRID = "#76839040"
_PUBLISHED = "#3b82c4"
_TRUE = "#e08a2c"
_BUDGET = "#d6454f"
_REFRESH = {"complete": "#2a9d8f", "polish": "#b565c4", "compact": "#6b7fd7", "rebuild": "#c79a1e"}
_FLOOR = 1e-6
"""Smaller values are drawn here, at a tick that says so: rounding would fill most of the panel."""
_TOP = 0.4
_LABEL_INCHES = 0.62  # width of a refresh's name
_DPI = 160
_SIZE = (10.0, 6.6)


def save_plot(outcome: Outcome, directory: Path) -> tuple[Path, Path]:
    """Save ``lethe-demo.svg`` and ``lethe-demo.png``, and return their paths.

    Raises
    ------
    OSError
        The directory cannot be written.
    """
    svg, png = directory / "lethe-demo.svg", directory / "lethe-demo.png"
    # The same run gives the same bytes: no date, no random ids.
    with mpl.rc_context({"svg.hashsalt": "lethe", "font.family": "DejaVu Sans"}):
        figure = _figure(outcome)
        figure.savefig(svg, transparent=True, metadata={"Date": None})
        figure.savefig(png, transparent=True, dpi=_DPI)
    return svg, png


def _figure(outcome: Outcome) -> Figure:
    figure = Figure(figsize=_SIZE, layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08))
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(outcome.versions), 1, squeeze=False)[:, 0]
    for ax, (model, seen) in zip(axes, outcome.versions.items(), strict=True):
        _panel(ax, model, seen)
    axes[-1].set_xlabel("version", color=_INK)
    handles, labels = axes[-1].get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    for text in legend.get_texts():
        text.set_color(_INK)
    return figure


def _panel(ax: Any, model: str, seen: Sequence[Observed]) -> None:
    versions = [one.event.version for one in seen]
    published = [math.nan if one.error is None else max(one.error, _FLOOR) for one in seen]
    true = [max(one.true_error, _FLOOR) for one in seen]
    bounds = [math.nan if one.bound is None else max(one.bound, _FLOOR) for one in seen]
    marks = partial(ax.plot, versions, clip_on=False)
    ax.set_yscale("log")
    ax.axhline(seen[0].budget, color=_BUDGET, linewidth=1.5, label="error budget", zorder=1)
    ax.step(versions, published, where="mid", color=_PUBLISHED, linewidth=1.3, alpha=0.6, zorder=2)
    marks(published, "o", color=_PUBLISHED, label="published error", mfc="none", mew=1.4, ms=7)
    marks(true, "D", color=_TRUE, label="distance to retraining", ms=3.6)
    marks(bounds, "_", color=_INK, label="published bound", mew=1.6, ms=13)
    ax.set_xlim(-0.7, versions[-1] + 0.7)
    ax.set_ylim(_FLOOR, _TOP)
    _mark_refreshes(ax, seen)
    first, last = seen[0].event, seen[-1].event
    title = f"{model}: {first.kind}, {last.rows_deleted} of {first.rows_live} rows deleted"
    ax.set_title(title, loc="left", color=_INK, fontsize=11, pad=30)
    _frame(ax)


def _frame(ax: Any) -> None:
    ax.set_ylabel("relative error", color=_INK)
    exponents = range(round(math.log10(_FLOOR)), 0)
    labels = [f"$10^{{{exponent}}}$" for exponent in exponents]
    ax.set_yticks([10.0**exponent for exponent in exponents], ["under " + labels[0], *labels[1:]])
    ax.yaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(axis="y", color=_GRID, linewidth=0.6)
    ax.tick_params(colors=_INK, labelsize=9)
    for side, spine in ax.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(_GRID)


def _mark_refreshes(ax: Any, seen: Sequence[Observed]) -> None:
    """Draw a line at each refresh, with its kind above the panel.

    Names that would overlap are placed on two levels.
    """
    width = _LABEL_INCHES * len(seen) / _SIZE[0] * 1.15
    free = [-math.inf, -math.inf]
    for one in seen:
        refresh, version = one.event.refresh, one.event.version
        if refresh is None:
            continue
        level = 0 if version - free[0] >= width else 1
        free[level] = version
        color = _REFRESH[refresh.size]
        ax.axvline(version, color=color, linewidth=1.0, alpha=0.55, zorder=0)
        ax.annotate(
            refresh.size,
            (version, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3 + 11 * level),
            textcoords="offset points",
            ha="center",
            va="bottom",
            color=color,
            fontsize=8.5,
        )
