"""The end of a run: the checks, a table, and the same as one JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lethe.consumers.demo.checks import Check, all_passed
from lethe.consumers.demo.observer import Observed, Outcome
from lethe.engine.refresh.size import RefreshSize

_FAILURES = 5
"""Number of failures printed per check; the JSON document has all."""


def print_report(console: Console, outcome: Outcome, checks: Sequence[Check]) -> None:
    """Print the table of models, and every check."""
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    columns = [_column(model_summary(outcome, model)) for model in outcome.versions]
    for model in outcome.versions:
        table.add_column(model, header_style="bold", no_wrap=True)
    for label in columns[0]:
        table.add_row(label, *(column[label] for column in columns))
    verdicts = Table.grid(padding=(0, 2, 0, 0))
    for check in checks:
        promise = Text(check.promise).append(f" ({check.measured})", "dim")
        for failure in check.failures[:_FAILURES]:
            promise.append(f"\n{failure}", "red")
        verdicts.add_row(Text("ok", "green") if check.passed else Text("FAIL", "bold red"), promise)
    scale = Text(
        "with a few hundred rows retraining is cheap; docs/bench.md has larger models", "dim"
    )
    for part in ("", table, scale, "", verdicts):
        console.print(part)


def document(outcome: Outcome, checks: Sequence[Check]) -> dict[str, Any]:
    """Return everything as plain JSON data."""
    return {
        "ok": all_passed(checks),
        "seconds": outcome.seconds,
        "checks": [{**asdict(check), "passed": check.passed} for check in checks],
        "models": [model_summary(outcome, model) for model in outcome.versions],
        "versions": [_version(seen) for one in outcome.versions.values() for seen in one],
        "receipts": [receipt.model_dump(mode="json") for receipt, _ in outcome.receipts],
        "dead_letters": [{"code": one.code, "detail": one.detail} for one in outcome.dead_letters],
    }


def model_summary(outcome: Outcome, model: str) -> dict[str, Any]:
    """Return the figures of a model's whole run."""
    seen = outcome.versions[model]
    first, errors = seen[0].event, [one.error for one in seen if one.error is not None]
    refreshes = [one.event.refresh for one in seen if one.event.refresh is not None]
    after = [one.true_error for one in seen if one.event.refresh is not None]
    seconds = {
        str(kind): [r.seconds for r in refreshes if r.size == kind]
        for kind in RefreshSize
        if any(r.size == kind for r in refreshes)
    }
    return {
        "model": model,
        "kind": first.kind,
        "method": first.method,
        "features": len(seen[0].version.feature_names),
        "rows": first.rows_live,
        "versions": len(seen),
        "rows_deleted": seen[-1].event.rows_deleted,
        "refreshes": {kind: len(times) for kind, times in seconds.items()},
        "budget": seen[0].budget,
        "worst_published_error": max(errors, default=None),
        "versions_of_unknown_error": len(seen) - len(errors),
        "worst_true_error": max(one.true_error for one in seen),
        "worst_true_error_after_refresh": max(after, default=None),
        "versions_with_bound": sum(one.bound is not None for one in seen),
        "register_seconds": outcome.register_seconds.get(model),
        "refresh_seconds": {kind: median(times) for kind, times in seconds.items()},
        "retrain_seconds": median(one.retrained.seconds for one in seen),
    }


def _column(summary: dict[str, Any]) -> dict[str, str]:
    """Return a model's column of the table, by the labels of the rows."""
    refreshes = [
        f"{count} {kind} ({summary['refresh_seconds'][kind] * 1000:.1f} ms)"
        for kind, count in summary["refreshes"].items()
    ]
    worst, unknown = summary["worst_published_error"], summary["versions_of_unknown_error"]
    published = "unknown" if worst is None else f"{worst:.1e}"
    if unknown and worst is not None:
        published += f"; {unknown} unknown"
    after = summary["worst_true_error_after_refresh"]
    return {
        "kind": summary["kind"],
        "rows, features": f"{summary['rows']}, {summary['features']}",
        "versions": str(summary["versions"]),
        "rows deleted": str(summary["rows_deleted"]),
        "refreshes (median time)": "\n".join(refreshes) or "none",
        "error budget": f"{summary['budget']:.1e}",
        "worst published error": published,
        "worst true error": f"{summary['worst_true_error']:.1e}",
        "  after a refresh": "none" if after is None else f"{after:.1e}",
        "fit, precompute, store": f"{summary['register_seconds'] * 1000:.0f} ms",
        "retraining (scikit-learn)": f"{summary['retrain_seconds'] * 1000:.1f} ms",
    }


def _version(seen: Observed) -> dict[str, Any]:
    event = seen.event
    return {
        "model": event.model_id,
        "version": event.version,
        "generation": event.generation,
        "rows_live": event.rows_live,
        "rows_deleted": event.rows_deleted,
        "kind": event.error.kind,
        "error": seen.error,
        "bound": seen.bound,
        "budget": seen.budget,
        "true_error": seen.true_error,
        "ordered": seen.ordered,
        "refresh": None if event.refresh is None else event.refresh.model_dump(mode="json"),
    }
