"""The tables of docs/stream.md, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from streams import cost, divergence, endurance, order, over_time
from streams.data import FAMILIES
from streams.records import Record, where

KINDS = ("linear", "logistic")
METHODS = ("naive", "one-shot pru", "pru", "pru, refreshed", "exact", "exact, refreshed")
_RESOLVED = 1e-9  # relative errors below are rounding: no ratio is taken


def cases(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Return the kinds and families that were measured over time."""
    found = {(r["kind"], r["data"]) for r in where(records, part=over_time.PART)}
    return [case for kind in KINDS for family in FAMILIES if (case := (kind, family)) in found]


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; numbers to the right."""
    rule = "|".join("---" if i == 0 else "---:" for i in range(len(head)))
    rows = [" | ".join(head), *(" | ".join(line) for line in lines)]
    return "\n".join([f"| {rows[0]} |", f"|{rule}|", *(f"| {row} |" for row in rows[1:])])


def digits(value: float) -> str:
    """Return two significant digits, with an exponent for what is very small or large."""
    if value == 0 or 0.001 <= abs(value) < 1000:
        return f"{value:.2g}"
    return f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def last(records: Sequence[Record]) -> Record:
    """Return the record with most rows deleted."""
    return max(records, key=lambda record: int(record["deleted"]))


def _per_method(records: Sequence[Record], k: int, figure: str) -> str:
    lines = []
    for kind, family in cases(records):
        here = where(records, part=over_time.PART, kind=kind, data=family)
        cells = []
        for method in METHODS:
            found = where(here, method=method, k=None if method == "one-shot pru" else k)
            if figure == "worst":
                cells.append(digits(max(record["true"] for record in found)))
            else:
                cells.append(digits(last(found)["true"]))
        lines.append([f"{kind}, {family}", *cells])
    return table(["", *METHODS], lines)


def final(records: Sequence[Record], k: int) -> str:
    """Return the error at the end of the stream."""
    return _per_method(records, k, "last")


def worst(records: Sequence[Record], k: int) -> str:
    """Return the largest error at any checkpoint."""
    return _per_method(records, k, "worst")


def batches(records: Sequence[Record]) -> str:
    """Return the final error and the cost of a row, by batch size, without refreshes."""
    sizes = sorted({r["k"] for r in where(records, part=over_time.PART)} - {None})
    methods = ("naive", "pru", "exact")
    lines = []
    for kind, family in cases(records):
        here = where(records, part=over_time.PART, kind=kind, data=family)
        for method in methods:
            found = [last(where(here, method=method, k=k)) for k in sizes]
            lines.append(
                [
                    f"{kind}, {family}, {method}",
                    *(digits(record["true"]) for record in found),
                    *(f"{record['batch_us'] / record['k']:.0f}" for record in found),
                ]
            )
    head = ["", *(f"error, k = {k}" for k in sizes), *(f"us, k = {k}" for k in sizes)]
    return table(head, lines)


def orders(records: Sequence[Record]) -> str:
    """Return how far apart the answers of several orders are."""
    found_here = where(records, part=order.PART)
    ordered = list(dict.fromkeys((r["kind"], r["data"]) for r in found_here))
    methods = ("naive", "pru", "exact")
    lines = [
        [
            f"{kind}, {family}",
            *(
                digits(found[0]["difference"])
                for method in methods
                if (found := where(records, part=order.PART, kind=kind, data=family, method=method))
            ),
        ]
        for kind, family in ordered
    ]
    return table(["", *methods], lines)


def ratios(records: Sequence[Record]) -> str:
    """Return quantiles of published over true error, by kind, method and how it is known."""
    groups: dict[tuple[str, str, str], list[float]] = {}
    for record in records:
        if record.get("published") is not None and record["true"] > _RESOLVED:
            key = (record["kind"], record["method"], record["known"])
            groups.setdefault(key, []).append(record["published"] / record["true"])
    lines = [
        [
            f"{kind}, {method}, {known}",
            str(len(found)),
            *(digits(mark) for mark in np.percentile(found, [0, 5, 50, 95, 100])),
        ]
        for (kind, method, known), found in sorted(groups.items())
    ]
    return table(["", "states", "least", "5 %", "median", "95 %", "most"], lines)


def refreshes(records: Sequence[Record]) -> str:
    """Return the number of refreshes of each size over the whole stream."""
    names = ("complete", "polish", "compact", "rebuild")
    sizes = sorted({r["k"] for r in where(records, part=over_time.PART)} - {None})
    lines = []
    for kind, family in cases(records):
        for method in ("pru, refreshed", "exact, refreshed"):
            for k in sizes:
                here = where(records, part=over_time.PART, kind=kind, data=family)
                end = last(where(here, method=method, k=k))
                counts: Mapping[str, int] = end["refreshes"]
                rate = end["deleted"] / (end["batches_seconds"] + end["refresh_seconds"])
                lines.append(
                    [
                        f"{kind}, {family}, {method.partition(',')[0]}, k = {k}",
                        *(str(counts.get(name, 0) or "") for name in names),
                        f"{rate:.0f}",
                    ]
                )
    return table(["", *names, "rows / s"], lines)


def endured(records: Sequence[Record]) -> str:
    """Return the long streams of single deletions at their ends."""
    lines = []
    for family in endurance.FAMILIES:
        for method in endurance.policies():
            found = where(records, part=endurance.PART, data=family, method=method)
            if not found:  # an interrupted run
                continue
            end = last(found)
            reasons = "; ".join(f"{count} {why}" for why, count in end["reasons"].items())
            lines.append(
                [
                    f"{family}, {method}",
                    digits(max(record["true"] for record in found)),
                    digits(end["bound"]),
                    f"{end['batch_us']:.0f}",
                    f"{end['refresh_seconds']:.1f}",
                    str(end["for_error"]),
                    reasons or "none",
                ]
            )
    head = ["", "worst error", "bound", "us a deletion, at the end", "refreshes, s"]
    return table([*head, "for error", "refreshes"], lines)


def diverged(records: Sequence[Record]) -> str:
    """Return the grid of the counter-example."""
    found = where(records, part=divergence.PART)
    names = list(dict.fromkeys(record["data"] for record in found))
    lines = []
    for d in dict.fromkeys(record["d"] for record in found):
        cells = [where(found, d=d, data=name)[0] for name in names]
        lines.append(
            [
                str(d),
                *(
                    f"{digits(cell['true'])} ({digits(cell['exponent'])}, "
                    f"{digits(cell['condition'])})"
                    for cell in cells
                ),
            ]
        )
    return table(["d", *names], lines)


def costs(records: Sequence[Record]) -> str:
    """Return microseconds a batch against K."""
    found = where(records, part=cost.PART)
    sizes = sorted({record["k"] for record in found} - {None})
    keys = [(method, k) for method in cost.METHODS for k in sizes]
    lines = []
    for span in dict.fromkeys(r["range"] for r in where(found, k=sizes[0])):
        cells = []
        for method, k in keys:
            here = where(found, method=method, k=k, range=span)
            cells.append(f"{here[0]['batch_us']:.0f}" if here else "")
        lines.append([span, *cells])
    return table(["K", *(f"{method}, k = {k}" for method, k in keys)], lines)
