"""The end of a run: the checks, a table, and the same as one JSON document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lethe.consumers.demo.checks import Check
from lethe.consumers.demo.outcome import Observed, Outcome
from lethe.engine.refresh.kind import RefreshKind

_FAILURES = 5
"""Number of failures printed per check; the JSON document has all."""


def exit_code(checks: Sequence[Check]) -> int:
    """Return 0 if every check passed, else 1."""
    return 0 if checks and all(check.passed for check in checks) else 1


def print_report(console: Console, outcome: Outcome, checks: Sequence[Check]) -> None:
    """Print the table of models, and every check."""
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    summaries = [model_summary(outcome, model) for model in outcome.versions]
    for summary in summaries:
        table.add_column(summary["model"], header_style="bold", no_wrap=True)
    for cells in zip(*(_rows(summary) for summary in summaries), strict=True):
        table.add_row(cells[0][0], *(value for _, value in cells))
    console.print()
    console.print(table)
    console.print()
    console.print(_check_table(checks))


def _check_table(checks: Sequence[Check]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for check in checks:
        verdict = Text("ok", "green") if check.passed else Text("FAIL", "bold red")
        promise = Text(check.promise)
        promise.append(f" ({check.measured})", style="dim")
        for failure in check.failures[:_FAILURES]:
            promise.append(f"\n{failure}", style="red")
        table.add_row(verdict, promise)
    return table


def document(outcome: Outcome, checks: Sequence[Check]) -> dict[str, Any]:
    """Return everything as plain JSON data."""
    return {
        "ok": exit_code(checks) == 0,
        "seconds": outcome.seconds,
        "checks": [
            {
                "promise": check.promise,
                "passed": check.passed,
                "measured": check.measured,
                "failures": list(check.failures),
            }
            for check in checks
        ],
        "models": [model_summary(outcome, model) for model in outcome.versions],
        "versions": [_version(seen) for one in outcome.versions.values() for seen in one],
        "receipts": [seen.receipt.model_dump(mode="json") for seen in outcome.receipts],
        "dead_letters": [
            {"code": letter.code, "detail": letter.detail} for letter in outcome.dead_letters
        ],
    }


def model_summary(outcome: Outcome, model: str) -> dict[str, Any]:
    """Return a model's row of the table."""
    seen = outcome.versions[model]
    refreshes = [one.version.refresh for one in seen if one.version.refresh is not None]
    sizes = Counter(refresh.size for refresh in refreshes)
    bounded = [one for one in seen if one.bound is not None]
    return {
        "model": model,
        "kind": seen[0].version.kind,
        "method": seen[0].version.method,
        "features": len(seen[0].parameters.feature_names),
        "rows": seen[0].version.rows_live,
        "versions": len(seen),
        "rows_deleted": seen[-1].version.rows_deleted,
        "refreshes": {str(size): sizes[size] for size in RefreshKind if sizes[size]},
        "budget": seen[0].budget,
        "worst_published_error": max(
            (one.error for one in seen if one.error is not None), default=None
        ),
        "versions_of_unknown_error": sum(one.error is None for one in seen),
        "worst_true_error": max(one.true_error for one in seen),
        "worst_true_error_after_refresh": max(
            (one.true_error for one in seen if one.version.refresh is not None), default=None
        ),
        "versions_with_bound": len(bounded),
        "register_seconds": outcome.register_seconds.get(model),
        "refresh_seconds": {
            str(size): median([r.seconds for r in refreshes if r.size == size])
            for size in RefreshKind
            if sizes[size]
        },
        "retrain_seconds": median(one.retrain_seconds for one in seen),
    }


def _rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the table's rows about a model, each with its label."""
    refreshes = [
        f"{count} {size} ({summary['refresh_seconds'][size] * 1000:.1f} ms)"
        for size, count in summary["refreshes"].items()
    ]
    after = summary["worst_true_error_after_refresh"]
    return [
        ("kind", str(summary["kind"])),
        ("rows, features", f"{summary['rows']}, {summary['features']}"),
        ("versions", str(summary["versions"])),
        ("rows deleted", str(summary["rows_deleted"])),
        ("refreshes (median time)", "\n".join(refreshes) or "none"),
        ("error budget", f"{summary['budget']:.1e}"),
        ("worst published error", _worst(summary)),
        ("worst true error", f"{summary['worst_true_error']:.1e}"),
        ("  after a refresh", "none" if after is None else f"{after:.1e}"),
        ("fit, precompute, store", f"{summary['register_seconds'] * 1000:.0f} ms"),
        ("retraining (scikit-learn)", f"{summary['retrain_seconds'] * 1000:.1f} ms"),
    ]


def _worst(summary: dict[str, Any]) -> str:
    worst, unknown = summary["worst_published_error"], summary["versions_of_unknown_error"]
    shown = "unknown" if worst is None else f"{worst:.1e}"
    return f"{shown}; {unknown} unknown" if unknown and worst is not None else shown


def _version(seen: Observed) -> dict[str, Any]:
    refresh = seen.version.refresh
    return {
        "model": seen.version.model_id,
        "version": seen.version.version,
        "generation": seen.version.generation,
        "rows_live": seen.version.rows_live,
        "rows_deleted": seen.version.rows_deleted,
        "kind": seen.version.error.kind,
        "error": seen.error,
        "bound": seen.bound,
        "budget": seen.budget,
        "true_error": seen.true_error,
        "ordered": seen.ordered,
        "refresh": None if refresh is None else refresh.model_dump(mode="json"),
    }
