"""Plots: one style for all, and files that are the same bytes for the same records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "svg.hashsalt": "lethe",
}
_DPI = 110


def style() -> Any:
    """Return a context in which figures are drawn in the one style."""
    return mpl.rc_context(_STYLE)


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG or SVG, by the path's suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    undated = {".png": {"Software": None}, ".svg": {"Date": None}}[path.suffix]
    figure.savefig(path, dpi=_DPI, metadata=undated)
