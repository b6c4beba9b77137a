"""``lethe disclosure``."""

from __future__ import annotations

import math
from typing import Any

import click

from lethe.consumers.audit.disclosures import (
    DisclosedRow,
    DisclosureReport,
    disclosed_row,
    most_disclosed,
)
from lethe.consumers.cli.terminal.options import Number, global_options
from lethe.consumers.cli.terminal.output import Output, counted, number, prepare
from lethe.consumers.service.connect import open_runtime
from lethe.engine.disclosure import epsilon_spent, noise_to_hide
from lethe.engine.error.terms import MIN_DELTA, MIN_EPSILON, OutputNoise
from lethe.engine.store.layout.disclosed import Disclosure

_MEANING = (
    "DISTANCE (Cook's): the squared difference that the row makes between two versions, 1 being "
    "the coefficients' own sampling error"
)


@click.command(short_help="Show what published versions disclose of rows.")
@click.argument("model")
@click.option(
    "--row", metavar="ID", help="Show only this row. Default: the rows that are disclosed most."
)
@click.option(
    "--top", default=10, show_default=True, type=click.IntRange(min=1), metavar="N",
    help="How many rows to show.",
)  # fmt: skip
@click.option(
    "--epsilon", type=Number(), metavar="E",
    help="With --delta: also show the noise on each version that would have hidden a row.",
)  # fmt: skip
@click.option(
    "--delta", type=Number(), metavar="D",
    help="For a model registered with --certify-output: also show the epsilon that its own noise "
        "leaves at D.",
)  # fmt: skip
@global_options
@click.pass_context
def disclosure(
    ctx: click.Context,
    /,
    *,
    model: str,
    row: str | None,
    top: int,
    epsilon: float | None,
    delta: float | None,
) -> None:
    """Show what the published versions of MODEL have disclosed of its rows.

    Two versions that differ by a row tell it to whoever holds both. This shows how much: for each
    row that a version deleted, corrected or inserted, Cook's distance, added up over the versions.
    MODEL must have been registered with --disclosure; docs/disclosure.md explains the figure and
    its limits.

    \b
    Examples:
      lethe disclosure fuel
      lethe disclosure fuel --row u17 --epsilon 1 --delta 1e-5
    """  # noqa: D301 - click looks for the character
    settings, out = prepare(ctx)
    if epsilon is not None and not MIN_EPSILON <= epsilon < math.inf:
        least = f"at least {MIN_EPSILON:g} and finite"
        raise click.UsageError(f"--epsilon must be {least}, not {epsilon:g}; 1 is usual")
    if delta is not None and not MIN_DELTA <= delta < 1:
        least = f"at least {MIN_DELTA:g} and below 1"
        raise click.UsageError(f"--delta must be {least}, not {delta:g}; 1e-5 is usual")
    with open_runtime(settings) as runtime:
        store = runtime.store()
        if row is None:
            report, why = most_disclosed(store, model, top), None
        else:
            report, why = disclosed_row(store, model, row)
    terms = report.model.meta.config.output_noise
    if epsilon is not None and delta is None:
        raise click.UsageError("--epsilon requires --delta")
    if delta is not None and epsilon is None and terms is None:
        raise click.UsageError("--delta requires --epsilon: the model has no noise of its own")
    shown = [_Shown(one, report, epsilon, delta, terms) for one in report.rows]
    out.document(
        {
            "model_id": model,
            "version": report.model.version,
            "rows_disclosed": report.total,
            "rows": [one.document() for one in shown],
            "nothing_kept": why,
        }
    )
    if why is not None:
        out.line(f"row {row}: {why}")
        return
    _print(out, shown, report, epsilon, delta)


class _Shown:
    """A row as it is shown, with what noise hides, or would hide, of it."""

    def __init__(
        self,
        row: DisclosedRow,
        report: DisclosureReport,
        epsilon: float | None,
        delta: float | None,
        terms: OutputNoise | None,
    ) -> None:
        self.row = row
        self.noise: float | None = None
        self.epsilon: float | None = None
        scale = report.model.meta.disclosure
        if row.unpriced:
            return
        if epsilon is not None and delta is not None and scale is not None and scale.known:
            self.noise = noise_to_hide(row.distance, scale.freedom, epsilon, delta)
        if terms is not None:
            sigma, at = terms.sigma, terms.delta if delta is None else delta
            self.epsilon = epsilon_spent(row.length, sigma, at)

    def document(self) -> dict[str, Any]:
        row = self.row
        return {
            "row": row.row_id,
            "distance": row.distance,
            "length": row.length,
            "versions_unpriced": row.unpriced,
            "versions": [
                {"version": one.version, "change": one.fate.value, "distance": one.distance}
                for one in row.versions
            ],
            "noise_to_hide": self.noise,
            "epsilon": self.epsilon,
        }

    def cells(self, *, noise: bool, epsilon: bool) -> tuple[str, ...]:
        row = self.row
        least = "at least " if row.unpriced else ""
        numbers = [self.noise] * noise + [self.epsilon] * epsilon
        versions = ", ".join(_version(one) for one in row.versions)
        distance = f"{least}{number(row.distance)}"
        return (row.row_id, distance, *(number(one) for one in numbers), versions)


def _version(one: Disclosure) -> str:
    distance = "not priced" if one.distance is None else number(one.distance)
    return f"{one.version} {one.fate.value} ({distance})"


def _print(
    out: Output,
    shown: list[_Shown],
    report: DisclosureReport,
    epsilon: float | None,
    delta: float | None,
) -> None:
    terms = report.model.meta.config.output_noise
    noise, spent = epsilon is not None, terms is not None
    columns = ("ROW", "DISTANCE>", *["NOISE>"] * noise, *["EPSILON>"] * spent, "VERSIONS")
    out.table(columns, [one.cells(noise=noise, epsilon=spent) for one in shown])
    out.line(f"{counted(report.total, 'row')} disclosed, up to version {report.model.version}")
    out.line(_MEANING)
    if epsilon is not None:
        out.line(
            f"NOISE is what would have hidden the row at ({number(epsilon)}, {number(delta)}): "
            "normal noise on each version, in standard errors of the coefficients."
        )
    if terms is not None:
        out.line(
            "EPSILON is the epsilon that the noise on the output leaves for these versions, at "
            f"delta {number(terms.delta if delta is None else delta)}."
        )
