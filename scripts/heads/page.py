"""The tables of docs/last-layer.md, and their place in the page; all else there is by hand."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from harness.results import where
from harness.tables import table, three_digits

Record: TypeAlias = Mapping[str, Any]
Cell: TypeAlias = Callable[[Sequence[Record]], str]

_TITLES = {"random": "random layer", "hidden": "hidden layer of the network"}
_MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def filled(page: str, run: Record) -> str:
    """Return the page with the tables of a run between their marks."""
    made = tables(run)
    return _MARKED.sub(lambda found: f"{found[1]}\n{made[found[2]]}\n\n{found[3]}", page)


def tables(run: Record) -> dict[str, str]:
    """Return the tables by the names that their marks have."""
    heads, service = run["heads"], run["service"]
    parts = {"left": (heads, _LEFT), "head": (heads, _HEAD), "service": (service, _SERVICE)}
    return {name: _table(records, lines) for name, (records, lines) in parts.items() if records}


def _table(records: Sequence[Record], lines: Mapping[str, Cell]) -> str:
    kinds = list(dict.fromkeys(record["features"] for record in records))
    groups = [where(records, features=kind) for kind in kinds]
    head = ["", *(_TITLES[kind] for kind in kinds)]
    return table(head, [[name, *map(cell, groups)] for name, cell in lines.items()])


def _values(records: Sequence[Record], name: str) -> list[float]:
    return [float(record[name]) for record in records]


def _spread(name: str) -> Cell:
    """Return what shows the median, and the range of several draws that differ."""

    def cell(records: Sequence[Record]) -> str:
        found = _values(records, name)
        ends = [three_digits(end) for end in (min(found), max(found))]
        middle = three_digits(float(np.median(found)))
        return middle if ends[0] == ends[1] else f"{middle} ({ends[0]} to {ends[1]})"

    return cell


def _percent(*names: str) -> Cell:
    """Return what shows means in percent."""

    def cell(records: Sequence[Record]) -> str:
        means = [float(np.mean(_values(records, name))) for name in names]
        return ", ".join(f"{100 * mean:.1f}" for mean in means) + " %"

    return cell


def _time(name: str) -> Cell:
    """Return what shows the median of seconds, in milliseconds where it is below one second."""

    def cell(records: Sequence[Record]) -> str:
        middle = float(np.median(_values(records, name)))
        return f"{middle:.1f} s" if middle >= 1 else f"{1e3 * middle:.3g} ms"

    return cell


def _published(records: Sequence[Record]) -> str:
    """Return as what the error is known, and its median where it is a number."""
    shown = []
    for kind in dict.fromkeys(record["published"] for record in records):
        group = where(records, published=kind)
        known = [
            one["published_relative"] for one in group if one["published_relative"] is not None
        ]
        number = f" {three_digits(float(np.median(known)))}" if known else ""
        shown.append(f"{kind}{number} ({len(group)} of {len(records)})")
    return ", ".join(shown)


def _layer_time(records: Sequence[Record]) -> str:
    return (
        "not needed" if records[0]["features"] == "random" else _time("extractor_seconds")(records)
    )


def _verified(records: Sequence[Record]) -> str:
    (record,) = records
    verdict = "within" if record["within_bound"] else "NOT within"
    return f"{three_digits(record['distance'])}, {verdict} the bound; version {record['version']}"


_LEFT: Mapping[str, Cell] = {
    "log loss on the deleted rows: features kept": _spread("loss_deleted_head"),
    "log loss on the deleted rows: everything retrained": _spread("loss_deleted_all"),
    "log loss on held-out rows: features kept": _spread("loss_held_out_head"),
    "log loss on held-out rows: everything retrained": _spread("loss_held_out_all"),
    "accuracy on the deleted rows: kept, retrained": _percent(
        "accuracy_deleted_head", "accuracy_deleted_all"
    ),
    "accuracy on held-out rows: kept, retrained": _percent(
        "accuracy_held_out_head", "accuracy_held_out_all"
    ),
    "same answers on held-out rows: kept and retrained": _percent("same_answers"),
    "same answers on held-out rows: two retrainings, other seeds": _percent("same_answers_anyway"),
}
_HEAD: Mapping[str, Cell] = {
    "relative distance to the retrained head: before the deletion": _spread("distance_before"),
    "relative distance to the retrained head: after `delete`": _spread("distance_after"),
    "what the model publishes as that distance": _published,
    "relative distance to the retrained head: after `refresh`": _spread("distance_refreshed"),
    "accuracy on held-out rows: before, after, head retrained": _percent(
        "accuracy_before", "accuracy_after", "accuracy_retrained"
    ),
    "processor time of `delete`": _time("delete_seconds"),
    "processor time of `refresh`": _time("refresh_seconds"),
    "processor time to retrain the head, scikit-learn's defaults": _time("retrain_seconds"),
    "processor time to retrain the head with Lethe, ready for deletions": _time("fit_seconds"),
    "processor time to retrain the layer": _layer_time,
}
_SERVICE: Mapping[str, Cell] = {
    "`lethe register`": _time("register_seconds"),
    "`lethe delete`": _time("delete_seconds"),
    "`lethe work --until-idle`": _time("work_seconds"),
    "`lethe verify`: relative distance": _verified,
}
