"""The tables of docs/stream.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from harness.results import where
from harness.tables import table, two_digits
from stream import cost
from stream.data import FAMILIES, Record
from stream.over_time import ENDURED, ORDER, OVER_TIME, POLICIES

METHODS = ("naive", "one-shot pru", "pru", "pru, refreshed", "exact", "exact, refreshed")
_RESOLVED = 1e-9  # relative errors below are rounding: no ratio is taken


def last(records: Sequence[Record]) -> Record:
    """Return the record with most rows deleted."""
    return max(records, key=lambda record: int(record["deleted"]))


def batch_sizes(records: Sequence[Record]) -> list[int]:
    """Return the sizes of batches that were measured."""
    return sorted({record["k"] for record in records} - {None})


def middle_batch(records: Sequence[Record]) -> int:
    """Return the batch size that one table or figure is made for: the middle one."""
    sizes = batch_sizes(where(records, part=OVER_TIME))
    return sizes[len(sizes) // 2]


def _by_case(
    records: Sequence[Record],
    part: str,
    head: Sequence[str],
    cells: Callable[[Sequence[Record]], Sequence[str]],
) -> str:
    """Return a table with a line for each kind of model and family of data."""
    lines = []
    for kind in ("linear", "logistic"):
        for family in FAMILIES:
            if here := where(records, part=part, kind=kind, data=family):
                lines.append([f"{kind}, {family}", *cells(here)])
    return table(["", *head], lines)


def _per_method(records: Sequence[Record], figure: Callable[[Sequence[Record]], float]) -> str:
    k = middle_batch(records)
    sizes = {method: None if method == "one-shot pru" else k for method in METHODS}
    return _by_case(
        records,
        OVER_TIME,
        METHODS,
        lambda here: [two_digits(figure(where(here, method=m, k=sizes[m]))) for m in METHODS],
    )


def final(records: Sequence[Record]) -> str:
    """Return the error at the end of the stream."""
    return _per_method(records, lambda found: float(last(found)["true"]))


def worst(records: Sequence[Record]) -> str:
    """Return the largest error at any checkpoint."""
    return _per_method(records, lambda found: max(float(record["true"]) for record in found))


def batches(records: Sequence[Record]) -> str:
    """Return the final error and the cost of a row, by batch size, without refreshes."""
    sizes = batch_sizes(where(records, part=OVER_TIME))

    def cells(here: Sequence[Record]) -> list[str]:
        ends = {(m, k): last(where(here, method=m, k=k)) for m in ("naive", "exact") for k in sizes}
        errors = [two_digits(end["true"]) for end in ends.values()]
        return errors + [f"{ends['exact', k]['batch_us'] / k:.0f}" for k in sizes]

    head = [f"{method}, k = {k}" for method in ("naive", "exact") for k in sizes]
    return _by_case(records, OVER_TIME, [*head, *(f"us, k = {k}" for k in sizes)], cells)


def orders(records: Sequence[Record]) -> str:
    """Return how far apart the answers of several orders are."""
    methods = ("naive", "pru", "exact")
    return _by_case(
        records,
        ORDER,
        methods,
        lambda here: [two_digits(where(here, method=m)[0]["difference"]) for m in methods],
    )


def ratios(records: Sequence[Record]) -> str:
    """Return quantiles of published over true error, by kind, method and how it is known."""
    groups: dict[tuple[str, str, str], list[float]] = {}
    for record in records:
        if record.get("published") is not None and record["true"] > _RESOLVED:
            key = (record["kind"], record["method"], record["known"])
            groups.setdefault(key, []).append(record["published"] / record["true"])
    lines = [
        [
            ", ".join(key),
            str(len(found)),
            *(two_digits(mark) for mark in np.percentile(found, [0, 5, 50, 95, 100])),
        ]
        for key, found in sorted(groups.items())
    ]
    return table(["", "states", "least", "5 %", "median", "95 %", "most"], lines)


def refreshes(records: Sequence[Record]) -> str:
    """Return the number of refreshes of each size over the whole stream."""
    sizes = ("complete", "polish", "compact", "rebuild")
    methods, k = ("pru, refreshed", "exact, refreshed"), middle_batch(records)

    def cells(here: Sequence[Record]) -> list[str]:
        found = []
        for method in methods:
            end = last(where(here, method=method, k=k))
            counts = [f"{end[size]} {size}" for size in sizes if end.get(size)]
            rate = end["deleted"] / (end["batches_seconds"] + end["refresh_seconds"])
            found += [", ".join(counts), f"{rate:.0f}"]
        return found

    return _by_case(records, OVER_TIME, ["pru", "rows / s", "exact", "rows / s"], cells)


def endured(records: Sequence[Record]) -> str:
    """Return the long streams of single deletions at their ends."""
    lines = []
    for family in ENDURED:
        for method in POLICIES:
            found = where(records, data=family, method=method)
            end = last(found)
            lines.append(
                [
                    f"{family}, {method}",
                    two_digits(max(record["true"] for record in found)),
                    two_digits(end["bound"]),
                    f"{end['batch_us']:.0f}",
                    f"{end['refresh_seconds']:.1f}",
                    str(end["for_error"]),
                    end.get("reasons", "none"),
                ]
            )
    head = ["", "worst error", "bound", "us a deletion, at the end", "refreshes, s"]
    return table([*head, "for error", "refreshes"], lines)


def diverged(found: Sequence[Record]) -> str:
    """Return the grid of the counter-example."""
    names = list(dict.fromkeys(record["data"] for record in found))
    lines = []
    for d in dict.fromkeys(record["d"] for record in found):
        cells = [where(found, d=d, data=name)[0] for name in names]
        figures = [
            [two_digits(cell[f]) for f in ("true", "exponent", "condition")] for cell in cells
        ]
        lines.append([str(d), *(f"{error} ({rest[0]}, {rest[1]})" for error, *rest in figures)])
    return table(["d", *names], lines)


def costs(found: Sequence[Record]) -> str:
    """Return microseconds a batch against K."""
    keys = [(method, k) for method in cost.METHODS for k in batch_sizes(found)]
    lines = []
    for span in dict.fromkeys(record["range"] for record in found):
        cells = [where(found, method=method, k=k, range=span) for method, k in keys]
        lines.append([span, *(f"{here[0]['batch_us']:.0f}" if here else "" for here in cells)])
    return table(["K", *(f"{method}, k = {k}" for method, k in keys)], lines)
