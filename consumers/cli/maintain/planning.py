"""What ``lethe register --dry-run`` says."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lethe.consumers.cli.terminal.output import Output, counted
from lethe.consumers.registration.plan import Plan
from lethe.consumers.registration.table.foreseen import Foreseen

if TYPE_CHECKING:  # scikit-learn takes a second
    from lethe.consumers.registration.fitted_estimator import FittedEstimator


def say_plan(
    out: Output,
    planned: Plan,
    foreseen: Foreseen,
    options: dict[str, Any],
    fitted: FittedEstimator | None,
) -> None:
    """Print a plan: text or JSON."""
    seconds = {
        "total": planned.seconds,
        "reading": planned.reading,
        "fitting": planned.fitting,
        "storing": planned.storing,
    }
    out.document(
        {
            "model_id": options["model"],
            "dry_run": True,
            "rows": planned.rows,
            "features": planned.features,
            "files": planned.files,
            "table_bytes": planned.table_bytes,
            "memory_bytes": planned.memory_bytes,
            "store_bytes": planned.store_bytes,
            "steps": [] if fitted is None else [asdict(step) for step in fitted.steps],
            "seconds": {what: round(each, 1) for what, each in seconds.items()},
        }
    )
    by_line = " (lines but for headers)" if foreseen.opened.source.is_csv else ""
    features = counted(planned.features, "feature")
    if options["preprocess"] is not None or (fitted is not None and fitted.preprocess):
        features = f"{counted(planned.features, 'column')}, each a feature or more"
    time = ", ".join(f"{what} {each:.0f}" for what, each in seconds.items() if what != "total")
    out.facts(
        {
            "rows": f"{planned.rows}{by_line}",
            "features": features + ("" if options["no_intercept"] else " and an intercept"),
            "table": f"{counted(planned.files, 'file')}, {_bytes(planned.table_bytes)}",
            "memory here": f"about {_bytes(planned.memory_bytes)}",
            "memory of the store": f"about {_bytes(planned.store_bytes)}",
            "processor time": f"about {planned.seconds:.0f} s ({time}), as measured elsewhere",
        }
    )
    out.line("nothing was registered")


def _bytes(count: int) -> str:
    """Return a size for people."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
