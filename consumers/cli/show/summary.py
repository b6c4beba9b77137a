"""``lethe summary``."""

from __future__ import annotations

from typing import Any

import click

from lethe.consumers.audit.summaries import summaries
from lethe.consumers.cli.terminal.options import Number, global_options
from lethe.consumers.cli.terminal.output import Output, number, prepare
from lethe.consumers.service.connect import open_runtime
from lethe.engine.inference import COVARIANCES, Summary


@click.command(short_help="Show a linear model's standard errors, tests and intervals.")
@click.argument("model")
@click.option(
    "--level", default=0.95, show_default=True, type=Number(), metavar="L",
    help="Level of the confidence intervals.",
)  # fmt: skip
@click.option(
    "--covariance", default="sampling", show_default=True, type=click.Choice(COVARIANCES),
    help="Standard errors of the estimator given its penalty, or of the posterior whose prior is "
        "the penalty.",
)  # fmt: skip
@global_options
@click.pass_context
def summary(ctx: click.Context, /, *, model: str, level: float, covariance: str) -> None:
    """Show what the live rows of MODEL say of each coefficient.

    The coefficients are the exact ones, also where a projection is published. Standard errors, t
    and p values, intervals and R^2 are those of a fit of the live rows, whatever was deleted.

    \b
    Example:
      lethe summary fees
    """  # noqa: D301 - click looks for the character
    settings, out = prepare(ctx)
    with open_runtime(settings) as runtime, out.progress() as report:
        report("reading the live rows", 0, 0)
        version, found = summaries(runtime.store(), model, level=level, covariance=covariance)
    out.document(
        {
            "model_id": model,
            "version": version,
            "targets": {target: _document(one) for target, one in found.items()},
        }
    )
    for target, one in found.items():
        _print(out, f"{model}, version {version}, target {target}", one)


def _print(out: Output, title: str, one: Summary) -> None:
    out.line(
        f"{title}: {one.rows} rows, {one.freedom:.6g} degrees of freedom, "
        f"R^2 {one.r_squared:.4g}, residual variance {number(one.variance)}"
    )
    rows = zip(
        one.names, one.coefficients, one.standard_errors, one.t, one.p, one.intervals, strict=True
    )
    out.table(
        ("COEFFICIENT", "VALUE>", "STD ERROR>", "T>", "P>", "FROM>", "TO>"),
        [
            (name, *(f"{v:.5g}" for v in (value, error)), f"{t:.3f}", f"{p:.3g}", *ends)
            for name, value, error, t, p, interval in rows
            for ends in [tuple(f"{v:.5g}" for v in interval)]
        ],
    )
    out.line(f"intervals at {one.level:g}; standard errors: {one.covariance}")


def _document(one: Summary) -> dict[str, Any]:
    columns = zip(
        one.names, one.coefficients, one.standard_errors, one.t, one.p, one.intervals, strict=True
    )
    return {
        "rows": one.rows,
        "freedom": one.freedom,
        "r_squared": _finite(one.r_squared),
        "variance": one.variance,
        "level": one.level,
        "covariance": one.covariance,
        "coefficients": [
            {
                "name": name,
                "value": float(value),
                "standard_error": float(error),
                "t": _finite(t),
                "p": _finite(p),
                "interval": [float(end) for end in interval],
            }
            for name, value, error, t, p, interval in columns
        ],
    }


def _finite(value: float) -> float | None:
    """Return a number as JSON has it: a fit without residuals has an infinite t."""
    return float(value) if abs(value) < float("inf") else None
