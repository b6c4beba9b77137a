"""docs/stream.md: the prose of page.md with the figures of a run filled in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import Template

import numpy as np

from harness.machine import of_parts
from harness.results import where
from harness.tables import machine_table, two_digits
from stream import cost, divergence, tables
from stream.checks import checked
from stream.data import Record
from stream.figures import FIGURES
from stream.followed import BUDGET
from stream.over_time import ENDURANCE, ORDER, OVER_TIME, TRACE
from stream.tables import batch_sizes, last, middle_batch

_TEMPLATE = Path(__file__).with_name("page.md")
_NOT_YET = "(not measured yet)"


def page(records: Sequence[Record], machines: Mapping[str, Mapping[str, str]]) -> str:
    """Return the page of records, and of what each part was measured with."""
    machine = of_parts(machines)
    seed = machine.pop("seed")
    long = where(records, part=OVER_TIME)
    filled = {
        "seed": seed,
        "machine": machine_table(machine),
        "most": f"{last(long)['deleted']:,}",
        "batch_sizes": _listed(batch_sizes(long)),
        "n": f"{long[0]['n']:,}",
        "d": long[0]["d"],
        "k": middle_batch(records),
        "budget": f"{BUDGET:g}",
        "answer": answer(records),
        "checks": "\n".join(f"    {outcome.line()}" for outcome in checked(records)),
        "final_table": tables.final(records),
        "worst_table": tables.worst(records),
        "union_difference": two_digits(max(r["difference"] for r in long if r["method"] == "pru")),
        "batch_table": tables.batches(records),
        "allowance": _allowance(long),
        "ratio_table": tables.ratios(records),
        "refresh_table": tables.refreshes(records),
    }
    for part, fields in _PARTS.items():
        here = where(records, part=part)
        filled |= {name: make(here) if here else _NOT_YET for name, make in fields.items()}
    filled |= {f"{name}_figure": f"![{alt}](images/stream-{name}.png)" for name, alt in FIGURES}
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(filled)


def answer(records: Sequence[Record]) -> str:
    """Return what the paper leaves open, answered with this run's figures."""
    k = middle_batch(records)

    def worst(kind: str, method: str) -> float:
        found = where(records, part=OVER_TIME, kind=kind, method=method, k=k)
        return max(float(record["true"]) for record in found)

    lines = [
        "- **The paper's formula repeated** drifts from the first batch on and never comes "
        f"back: up to {two_digits(worst('linear', 'naive'))} relative (linear) and "
        f"{two_digits(worst('logistic', 'naive'))} (logistic) here{_on_its_own_data(records)}.",
        "- **Streaming PRU** is the one-shot PRU of the union. Its error rises to "
        f"{two_digits(worst('linear', 'pru'))} (linear), and for linear models falls to rounding "
        "once the deleted rows span the space. With the policy's refreshes it stayed within "
        f"{two_digits(worst('linear', 'pru, refreshed'))} (linear) and "
        f"{two_digits(worst('logistic', 'pru, refreshed'))} (logistic) at every checkpoint.",
        "- **Exact, linear** only rounds: at most "
        f"{two_digits(worst('linear', 'exact'))} at any checkpoint, with no refresh at all.",
        "- **Exact, logistic**: the quadratic model ages to "
        f"{two_digits(worst('logistic', 'exact'))} without a refresh; with the policy it stayed "
        f"within {two_digits(worst('logistic', 'exact, refreshed'))}.",
        "- With the policy, deletions and refreshes together, a stream by pru took "
        f"{_dearer(records)} times as long as the same by exact (median of all cases).",
    ]
    return "\n".join([*lines, *_long_and_cost(records)])


def _on_its_own_data(records: Sequence[Record]) -> str:
    found = where(records, part=divergence.PART)
    return f", {two_digits(max(r['true'] for r in found))} on data made for it" if found else ""


def _long_and_cost(records: Sequence[Record]) -> list[str]:
    lines = []
    lasting = [
        record
        for record in where(records, part=ENDURANCE)
        if record["method"] in ("exact", "exact, refreshed")
    ]
    if lasting:
        for_error = max(record["for_error"] for record in lasting)
        lines.append(
            f"- {last(lasting)['deleted']:,} single deletions by exact leave "
            f"{two_digits(max(record['true'] for record in lasting))} at most, with "
            f"{for_error or 'no'} refresh for the error."
        )
    if where(records, part=cost.PART):
        exact, pru = (two_digits(_slope(records, method)) for method in cost.METHODS)
        lines.append(
            f"- **Cost** of a single deletion: a fixed part, and {exact} microseconds (exact; pru "
            f"{pru}) for each row deleted before it in the generation, whatever n. Compacting sets "
            "that part back to nothing."
        )
    return lines


def _recipe(found: Sequence[Record]) -> str:
    cell, plan = found[0], divergence.Plan()
    return (
        f"n = {cell['n']} rows, {cell['deleted']} single deletions in random order, ridge "
        f"{plan.ridge:g}; features N(0, 1) times scales 10^0 .. 10^-decades, turned at random; "
        "y = X beta + N(0, 1), beta ~ N(0, I) over the mean scale; medians over the seeds "
        "(`scripts/stream/divergence.py`). Each cell: relative error (the exponent of the next "
        "paragraph, condition of the Hessian)."
    )


def _quoted(found: Sequence[Record]) -> str:
    worst = max(found, key=lambda record: float(record["true"]))
    return (
        f"This recipe reaches {two_digits(worst['true'])} in the median of its seeds and "
        f"{two_digits(worst['largest'])} in the worst, at d = {worst['d']} and {worst['data']} "
        f"(condition {two_digits(worst['condition'])}); at d = 50 it does not exceed "
        f"{two_digits(max([r['largest'] for r in found if r['d'] <= 50]))}. So a divergence of "
        "that size is real, and needs d near n besides anisotropy; condition alone does not make "
        "it."
    )


def _cost_lines(found: Sequence[Record]) -> str:
    lines = []
    for method in cost.METHODS:
        for k in batch_sizes(found):
            slope, fixed = cost.line(where(found, method=method, k=k))
            lines.append(
                f"- {method}, batches of {k}: {fixed:.0f} + {slope:.3f} K microseconds a batch, "
                f"{slope / k:.4f} K a row."
            )
    rate = 16 * float(found[0]["d"]) / (1000 * _slope(found, "exact"))  # GB/s
    return "\n".join(
        [
            "Least squares over all K:\n",
            *lines,
            "",
            f"V is read twice, 16 d bytes a row of it and batch: for single deletions by exact "
            f"the slope is {rate:.0f} GB/s of that. A batch shares the reading, so a "
            "row of a large one costs a fraction. The PRU reads its basis Q besides, which has at "
            "most d rows: that part stops growing at K = d.",
        ]
    )


def _allowance(long: Sequence[Record]) -> str:
    """Return how many times the true error the rounding allowance is, without refreshes."""
    found = [
        record["bound"] / record["true"]
        for record in where(long, kind="linear", method="exact")
        if record["true"] > 0
    ]
    return f"{two_digits(float(np.median(found)))} times"


def _listed(values: Sequence[int]) -> str:
    return " and ".join([", ".join(map(str, values[:-1])), str(values[-1])])


def _dearer(records: Sequence[Record]) -> str:
    """Return the median of pru's time over exact's, both with the policy, over whole streams."""
    ends: dict[tuple[str, ...], float] = {}
    for record in records:
        if record.get("batches_seconds") is not None:  # the last of a stream stays
            case = tuple(str(record[name]) for name in ("method", "kind", "data", "k"))
            ends[case] = record["batches_seconds"] + record["refresh_seconds"]
    ratios = [
        seconds / ends["exact, refreshed", *case[1:]]
        for case, seconds in ends.items()
        if case[0] == "pru, refreshed"
    ]
    return f"{float(np.median(ratios)):.1f}"


def _slope(records: Sequence[Record], method: str) -> float:
    """Return the microseconds that each row of V adds to a single deletion."""
    return cost.line(where(records, part=cost.PART, method=method, k=1))[0]


def _first(name: str) -> Callable[[Sequence[Record]], str]:
    """Return what finds this figure of a part's first record."""
    return lambda found: f"{found[0][name]:,}"


_PARTS: Mapping[str, Mapping[str, Callable[[Sequence[Record]], str]]] = {
    ORDER: {"ways": _first("ways"), "order_table": tables.orders},
    TRACE: {"trace_k": _first("k")},
    ENDURANCE: {
        "endurance_count": lambda found: f"{last(found)['deleted']:,}",
        "endurance_n": _first("n"),
        "endurance_d": _first("d"),
        "endurance_table": tables.endured,
    },
    divergence.PART: {
        "divergence_table": tables.diverged,
        "recipe": _recipe,
        "quoted": _quoted,
    },
    cost.PART: {
        "cost_n": _first("n"),
        "cost_d": _first("d"),
        "cost_table": tables.costs,
        "cost_lines": _cost_lines,
    },
}
"""What each part fills in, of its own records."""
