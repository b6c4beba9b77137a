"""Error against budget over versions, one panel a model; readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from consumers.demo.outcome import Observed, Outcome

_INK = "#768390"  # 3.9 to 1 on white and 4.8 to 1 on a dark page
_GRID = "#76839040"
_PUBLISHED = "#3b82c4"
_TRUE = "#e08a2c"
_BUDGET = "#d6454f"
_REFRESH = {"complete": "#2a9d8f", "polish": "#b565c4", "compact": "#6b7fd7", "rebuild": "#c79a1e"}
_FLOOR = 1e-15  # what is 0 is drawn here: float64 cannot say anything smaller of a theta
_DPI = 160


def save_plot(outcome: Outcome, directory: Path) -> tuple[Path, Path]:
    """Save ``lethe-demo.svg`` and ``lethe-demo.png``, and return their paths.

    Raises
    ------
    OSError
        The directory cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    svg, png = directory / "lethe-demo.svg", directory / "lethe-demo.png"
    # The same run gives the same bytes: no date, no random ids.
    with mpl.rc_context({"svg.hashsalt": "lethe", "font.family": "DejaVu Sans"}):
        figure = _figure(outcome)
        figure.savefig(svg, transparent=True, metadata={"Date": None})
        figure.savefig(png, transparent=True, dpi=_DPI)
    return svg, png


def _figure(outcome: Outcome) -> Figure:
    figure = Figure(figsize=(10, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(outcome.versions), 1, squeeze=False)[:, 0]
    for ax, (model, seen) in zip(axes, outcome.versions.items(), strict=True):
        _panel(ax, model, seen)
    axes[-1].set_xlabel("version", color=_INK)
    handles, labels = axes[-1].get_legend_handles_labels()
    legend = figure.legend(
        handles, labels, loc="outside lower center", ncols=len(labels), frameon=False
    )
    for text in legend.get_texts():
        text.set_color(_INK)
    return figure


def _panel(ax: Any, model: str, seen: Sequence[Observed]) -> None:
    versions = [one.version.version for one in seen]
    published = [max(one.error, _FLOOR) for one in seen]
    true = [max(one.true_error, _FLOOR) for one in seen]
    ax.set_yscale("log")
    ax.axhline(seen[0].budget, color=_BUDGET, linewidth=1.4, label="error budget", zorder=1)
    ax.step(versions, published, where="mid", color=_PUBLISHED, linewidth=1.2, alpha=0.55)
    ax.plot(versions, published, "o", color=_PUBLISHED, markersize=4.5, label="published error")
    ax.plot(versions, true, "D", color=_TRUE, markersize=3.4, label="distance to retraining")
    bounded = [(one.version.version, one.bound) for one in seen if one.bound is not None]
    ax.plot(
        [version for version, _ in bounded],
        [max(bound, _FLOOR) for _, bound in bounded],
        "_",
        color=_INK,
        markersize=9,
        markeredgewidth=1.4,
        label="published bound",
    )
    for one in seen:
        if one.version.refresh is not None:
            _mark(ax, one)
    ax.set_title(
        f"{model}: {seen[0].version.kind}, {seen[-1].version.rows_deleted} of "
        f"{seen[0].version.rows_live} rows deleted",
        loc="left",
        color=_INK,
        fontsize=11,
        pad=22,
    )
    ax.set_ylabel("relative error", color=_INK)
    ax.set_xlim(-0.7, versions[-1] + 0.7)
    ax.grid(axis="y", color=_GRID, linewidth=0.6)
    ax.tick_params(colors=_INK, which="both", labelsize=9)
    ax.tick_params(which="minor", length=0)
    for side, spine in ax.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(_GRID)


def _mark(ax: Any, one: Observed) -> None:
    """Draw a line where a refresh was swapped in, with its size above the panel."""
    refresh = one.version.refresh
    assert refresh is not None  # noqa: S101 (the caller has looked)
    color = _REFRESH[refresh.size]
    ax.axvline(one.version.version, color=color, linewidth=1.0, alpha=0.7, zorder=0)
    ax.annotate(
        refresh.size,
        (one.version.version, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(0, 3),
        textcoords="offset points",
        ha="center",
        va="bottom",
        color=color,
        fontsize=8,
    )
