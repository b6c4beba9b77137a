"""docs/stream.md: the prose of page.md with the figures of a run filled in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from streams import cost, divergence, endurance, order, over_time, tables, trace
from streams.checks import checked
from streams.divergence import Plan
from streams.figures import FIGURES, middle_batch
from streams.followed import BUDGET, LIMITS
from streams.records import Record, where
from streams.tables import digits, last

_TEMPLATE = Path(__file__).with_name("page.md")


def page(run: Mapping[str, Any]) -> str:
    """Return the page of a run."""
    records: Sequence[Record] = run["records"]
    k = middle_batch(records)
    long = where(records, part=over_time.PART)
    filled = {
        "command": run["command"],
        "seed": run["seed"],
        "machine": tables.table(["machine", ""], run["machine"].items()),
        "most": f"{last(long)['deleted']:,}",
        "batch_sizes": _listed(sorted({record["k"] for record in long} - {None})),
        "n": f"{long[0]['n']:,}",
        "d": long[0]["d"],
        "k": k,
        "budget": f"{BUDGET:g}",
        "missing": _missing(run),
        "answer": answer(records, k),
        "checks": "\n".join(f"    {outcome.line()}" for outcome in checked(records)),
        "final_table": tables.final(records, k),
        "worst_table": tables.worst(records, k),
        "union_difference": digits(
            max(r["difference"] for r in long if r["method"] == "pru" and "difference" in r)
        ),
        "batch_table": tables.batches(records),
        "allowance": _allowance(records),
        "ratio_table": tables.ratios(records),
        "refresh_table": tables.refreshes(records),
        **{
            name: make(records) if where(records, part=part) else _NOT_YET
            for part, keys in _PARTS.items()
            for name, make in keys.items()
        },
        **{
            f"{name}_figure": f"![{drawn.alt}](images/{drawn.file})"
            for name, drawn in FIGURES.items()
        },
    }
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(filled)


def answer(records: Sequence[Record], k: int) -> str:
    """Return what the paper leaves open, answered with this run's figures."""

    def worst(kind: str, method: str) -> float:
        found = where(records, part=over_time.PART, kind=kind, method=method, k=k)
        return max(float(record["true"]) for record in found)

    lines = [
        "- **The paper's formula repeated** drifts from the first batch on and never comes "
        f"back: up to {digits(worst('linear', 'naive'))} relative (linear) and "
        f"{digits(worst('logistic', 'naive'))} (logistic) here{_on_its_own_data(records)}.",
        "- **Streaming PRU** is the one-shot PRU of the union. Its error rises to "
        f"{digits(worst('linear', 'pru'))} (linear), and for linear models falls to rounding "
        "once the deleted rows span the space. With the policy's refreshes it stayed within "
        f"{digits(worst('linear', 'pru, refreshed'))} (linear) and "
        f"{digits(worst('logistic', 'pru, refreshed'))} (logistic) at every checkpoint.",
        "- **Exact, linear** only rounds: at most "
        f"{digits(worst('linear', 'exact'))} at any checkpoint, with no refresh at all.",
        "- **Exact, logistic**: the quadratic model ages to "
        f"{digits(worst('logistic', 'exact'))} without a refresh; with the policy it stayed "
        f"within {digits(worst('logistic', 'exact, refreshed'))}.",
        "- With the policy, deletions and refreshes together, a stream by pru took "
        f"{_dearer(records)} times as long as the same by exact (median of all cases).",
    ]
    return "\n".join([*lines, *_long_and_cost(records)])


def _on_its_own_data(records: Sequence[Record]) -> str:
    found = where(records, part=divergence.PART)
    return f", {digits(max(r['true'] for r in found))} on data made for it" if found else ""


def _long_and_cost(records: Sequence[Record]) -> list[str]:
    lines = []
    lasting = [
        record
        for record in where(records, part=endurance.PART)
        if record["method"] in ("exact", "exact, refreshed")
    ]
    if lasting:
        for_error = max(record["for_error"] for record in lasting)
        lines.append(
            f"- {last(lasting)['deleted']:,} single deletions by exact leave "
            f"{digits(max(record['true'] for record in lasting))} at most, with "
            f"{for_error or 'no'} refresh for the error."
        )
    if where(records, part=cost.PART):
        slopes = {name: cost.interval(records, name).slope for name in cost.METHODS}
        lines.append(
            "- **Cost** of a single deletion: a fixed part, and "
            f"{digits(slopes['exact'])} microseconds (exact; pru {digits(slopes['pru'])}) for "
            "each row deleted before it in the generation, whatever n. Compacting sets that "
            "part back to nothing."
        )
    return lines


def _recipe(records: Sequence[Record]) -> str:
    cell = where(records, part=divergence.PART)[0]
    plan = Plan()
    return (
        f"n = {cell['n']} rows, {cell['deleted']} single deletions in random order, ridge "
        f"{plan.ridge:g}; features N(0, 1) times scales 10^0 .. 10^-decades, turned at random; "
        "y = X beta + N(0, 1), beta ~ N(0, I) over the mean scale; medians over the seeds "
        "(`scripts/streams/divergence.py`). Each cell: relative error (the exponent of the next "
        "paragraph, condition of the Hessian)."
    )


def _quoted(records: Sequence[Record]) -> str:
    found = where(records, part=divergence.PART)
    worst = max(found, key=lambda record: float(record["true"]))
    return (
        f"This recipe reaches {digits(worst['true'])} in the median of its seeds and "
        f"{digits(worst['largest'])} in the worst, at d = {worst['d']} and {worst['data']} "
        f"(condition {digits(worst['condition'])}); at d = 50 it does not exceed "
        f"{digits(max([r['largest'] for r in found if r['d'] <= 50]))}. So a divergence of that "
        "size is real, and needs d near n besides anisotropy; condition alone does not make it."
    )


def _cost_lines(records: Sequence[Record]) -> str:
    found = where(records, part=cost.PART)
    lines = []
    for method in cost.METHODS:
        for k in sorted({r["k"] for r in where(found, method=method)}):
            slope, fixed = cost.line(where(found, method=method, k=k))
            lines.append(
                f"- {method}, batches of {k}: {fixed:.0f} + {slope:.3f} K microseconds a batch, "
                f"{slope / k:.4f} K a row."
            )
    return "\n".join(
        [
            "Least squares over all K:\n",
            *lines,
            "",
            f"V is read twice, 16 d bytes a row of it and batch: for single deletions by exact "
            f"the slope is {_bandwidth(found):.0f} GB/s of that. A batch shares the reading, so a "
            "row of a large one costs a fraction. The PRU reads its basis Q besides, which has at "
            "most d rows: that part stops growing at K = d.",
        ]
    )


def _interval_lines(records: Sequence[Record]) -> str:
    found = where(records, part=cost.PART)
    compacts = where(found, method="compact")
    measured = ", ".join(f"{r['batch_us'] / 1e6:.2f} s at K = {r['K']:.0f}" for r in compacts)
    lines = [f"A compact took {measured}: arithmetic alone, a worker also writes the rows."]
    for method in cost.METHODS:
        model = cost.interval(found, method)
        best, policy = model.best, float(min(LIMITS.rows(compacts[0]["d"]), model.longest))
        lines.append(
            f"For single deletions by {method}, a compact each {best:.0f} rows costs least: "
            f"{model.total(best):.0f} microseconds a row with its share of compacting, against "
            f"{model.total(policy):.0f} at the most rows that the policy lets a generation have "
            f"here ({policy:.0f}) and {model.step(2 * model.longest):.0f} for the last of "
            f"{model.longest:.0f} with none."
        )
    return " ".join(lines)


def _allowance(records: Sequence[Record]) -> str:
    """Return how many times the true error the rounding allowance is, without refreshes."""
    found = [
        record["bound"] / record["true"]
        for record in where(records, part=over_time.PART, kind="linear", method="exact")
        if record["true"] > 0
    ]
    return f"{digits(float(np.median(found)))} times"


def _listed(values: Sequence[int]) -> str:
    return " and ".join([", ".join(map(str, values[:-1])), str(values[-1])])


def _dearer(records: Sequence[Record]) -> str:
    """Return the median of pru's time over exact's, both with the policy, over whole streams."""

    def seconds(case: Record, method: str) -> float:
        end = last(where(records, **case, method=method))
        return float(end["batches_seconds"] + end["refresh_seconds"])

    refreshed = where(records, part=over_time.PART, method="pru, refreshed")
    cases = {tuple(_case(record).values()): _case(record) for record in refreshed}
    ratios = [
        seconds(case, "pru, refreshed") / seconds(case, "exact, refreshed")
        for case in cases.values()
    ]
    return f"{float(np.median(ratios)):.1f}"


def _case(record: Record) -> Record:
    return {name: record[name] for name in ("part", "kind", "data", "k")}


def _bandwidth(records: Sequence[Record]) -> float:
    """Return the rate at which V is read by single deletions, in GB/s."""
    slope = cost.interval(records, "exact").slope  # microseconds a row of V
    return 16 * float(records[0]["d"]) / (1000 * slope)


def _missing(run: Mapping[str, Any]) -> str:
    if not run["missing"]:
        return ""
    return f"The run was interrupted. Not measured yet: {'; '.join(run['missing'])}.\n"


def _first(part: str, name: str) -> Callable[[Sequence[Record]], str]:
    """Return what finds this figure of a part's first record."""
    return lambda records: f"{where(records, part=part)[0][name]:,}"


_NOT_YET = "(not measured yet)"
_PARTS: Mapping[str, Mapping[str, Callable[[Sequence[Record]], str]]] = {
    order.PART: {"ways": _first(order.PART, "ways"), "order_table": tables.orders},
    trace.PART: {"trace_k": _first(trace.PART, "k")},
    endurance.PART: {
        "endurance_count": lambda r: f"{last(where(r, part=endurance.PART))['deleted']:,}",
        "endurance_n": _first(endurance.PART, "n"),
        "endurance_d": _first(endurance.PART, "d"),
        "endurance_table": tables.endured,
    },
    divergence.PART: {
        "divergence_table": tables.diverged,
        "recipe": _recipe,
        "quoted": _quoted,
    },
    cost.PART: {
        "cost_n": _first(cost.PART, "n"),
        "cost_d": _first(cost.PART, "d"),
        "cost_table": tables.costs,
        "cost_lines": _cost_lines,
        "interval_lines": _interval_lines,
    },
}
