"""Figures of docs/paper.md: the same size and style for all, PNG and SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt

_SIZE = (7.0, 4.4)
_DOTS = 130


def figure(columns: int = 1) -> tuple[Any, Any]:
    """Return a figure and its axes (an array of them, for several columns)."""
    made, axes = plt.subplots(
        1, columns, figsize=(_SIZE[0] * (1 + 0.7 * (columns - 1)), _SIZE[1]), sharey=True
    )
    for one in axes if columns > 1 else [axes]:
        one.grid(visible=True, which="major", alpha=0.3)
    return made, axes


def save(made: Any, stem: Path) -> None:
    """Write stem.png and stem.svg, the same bytes for the same records."""
    made.tight_layout()
    with mpl.rc_context({"svg.hashsalt": "lethe"}):
        made.savefig(stem.with_suffix(".png"), dpi=_DOTS)
        made.savefig(stem.with_suffix(".svg"), metadata={"Date": None})
    plt.close(made)
