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
}
_DPI = 110


def style() -> Any:
    """Return a context in which figures are drawn in the one style."""
    return mpl.rc_context(_STYLE)


def save(figure: Figure, path: Path, dots: int = _DPI) -> None:
    """Write a figure as PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=dots, metadata={"Software": None})
