"""The picture of docs/evaluation.md, drawn from the records alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evaluation.deletions import METHODS
from evaluation.page import Record
from harness.plots import save, style
from harness.results import where

_COLOURS = {"breast cancer": "#c0392b", "digits 3 and 8": "#2471a3"} | {
    "synthetic": "#27ae60",
    "diabetes": "#8e44ad",
}
_NOISES: Mapping[str, Mapping[str, Any]] = {
    "none": {"color": "#c0392b", "linestyle": "-", "marker": "o", "label": "no noise"},
    "output": {"color": "#2471a3", "linestyle": "--", "marker": "x", "label": "output noise"},
    "priced": {"color": "#27ae60", "linestyle": "-", "marker": "s", "label": "priced noise"},
}
_FLOOR = 1e-11  # a distance below is drawn here: logarithms have no 0


def draw(records: Sequence[Record], path: Path) -> None:
    """Write the picture: U-LiRA, reconstruction, and the comparison."""
    with style():
        figure = Figure(figsize=(12, 3.9), layout="constrained")
        left, middle, right = figure.subplots(1, 3, width_ratios=(1.3, 1, 1))
        _attacks(where(records, part="shadows"), left)
        _reconstruction(where(records, part="reconstruction", data="breast cancer"), middle)
        _comparison(where(records, part="comparison"), right)
        save(figure, path)


def _attacks(records: Sequence[Record], axis: Axes) -> None:
    for i, (name, colour) in enumerate(_COLOURS.items()):
        for j, (rows, marker) in enumerate((("deleted", "o"), ("retained", "^"))):
            found = where(records, data=name, rows=rows)
            axis.errorbar(
                [METHODS.index(one["method"]) + 0.1 * (2 * i + j - 3.5) for one in found],
                [one["other_half"] for one in found],
                [
                    [one["other_half"] - one["other_half_low"] for one in found],
                    [one["other_half_high"] - one["other_half"] for one in found],
                ],
                color=colour,
                marker=marker,
                markersize=4,
                linestyle="none",
                label=name if rows == "deleted" else None,
            )
    axis.axhline(0.5, color="black", linewidth=0.7, linestyle=":")
    axis.set_xticks(range(len(METHODS)), METHODS)
    axis.set_ylabel("accuracy of U-LiRA")
    axis.set_title("Deleted or retrained? (circle: deleted rows, triangle: retained)")
    axis.legend(loc="upper right")


def _reconstruction(records: Sequence[Record], axis: Axes) -> None:
    for noise, line in _NOISES.items():
        found = where(records, noise=noise)
        axis.semilogx([one["k"] for one in found], [one["cosine"] for one in found], **line)
    found = where(records, noise="none")
    sizes = [one["k"] for one in found]
    level = [one["cosine_unrelated"] for one in found]
    axis.semilogx(sizes, level, color="black", linestyle=":", label="no noise, rows never deleted")
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.minorticks_off()
    axis.set_ylim(0, 1.02)
    axis.set_xlabel("rows deleted between two versions")
    axis.set_ylabel("|cos| with the nearest row")
    axis.set_title("Reconstruction, breast cancer")
    axis.legend(loc="lower right")


def _comparison(records: Sequence[Record], axis: Axes) -> None:
    last = where(records, data=records[-1]["data"], k=records[-1]["k"])
    for one in last:
        x, y = 1e3 * one["seconds"], max(one["to_own_retraining"], _FLOOR)
        published = one["method"] in ("HF-OCU", "PrIU", "SISA")
        axis.loglog(x, y, "o", color="#7f8c8d" if published else "#2471a3")
        below = one["method"] == "SISA"  # as exact as retraining, and near it in time
        offset = (-8, -14) if below else (5, 4)
        axis.annotate(one["method"], (x, y), xytext=offset, textcoords="offset points")
    axis.margins(0.2)
    axis.set_xlabel("processor time, ms")
    axis.set_ylabel("distance to its own retraining (0 at 1e-11)")
    axis.set_title(f"{last[0]['k']} rows of {last[0]['data']}")
