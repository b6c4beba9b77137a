"""docs/certificates.md and its figure, from the tables alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from matplotlib.figure import Figure

from certificates.summary import HIGH, LOW
from harness.machine import of_parts
from harness.plots import save, style
from harness.results import Row, where
from harness.tables import machine_table, table

Tables: TypeAlias = Mapping[str, Sequence[Row]]

HEAD = """\
# How tight the certificates are

Written by `python scripts/study.py certificates` from the tables of `results/certificates`.
What the kinds of error are, and why each bound holds, is in [error.md](error.md). The test
that no certificate was below the true error is `tests/proof/properties/test_certificates.py`."""

CERTIFICATES = """\
{number:,} random states, bound over true error. *measured* counts states with a bound and an error
at least ten times what rounding is granted; the others are in *states* and *below* only. *below*
counts bounds under the true error, compared before both are rounded for the results. *fresh*: with
the factor of the Hessian at theta. *stale*: a random point with the factor of the fit before its
deletions, one pass. *audited*: the same at theta_exact. *polished*: to 1e-2, 1e-5 and 1e-8."""

LARGER = """\
256 sentinels stand for many more rows each. Where signed parts of many rows nearly cancel
(anisotropic) what the sample adds by chance is longer than the sum itself: the estimate is then too
large. Where deletions take almost all rows that have a feature (zeros and ones, one corner) the few
that remain make up the sum, and the sample was drawn before they mattered: it can be far too
small."""

POLISH = Path(__file__).with_name("polish.md")
"""What was measured once, and is not measured again."""


def page(tables: Tables, machines: Mapping[str, Mapping[str, str]]) -> str:
    """Return docs/certificates.md."""
    parts = [HEAD, machine_table(of_parts(machines))]
    if found := tables.get("certificates"):
        number = sum(row["states"] for row in where(found, by="state"))
        parts += ["## Certificates", CERTIFICATES.format(number=number)]
        parts += [_certificates(where(found, by=by), by) for by in ("state", "argument", "family")]
        parts.append("![bound over true error](images/certificates.png)")
    if estimates := tables.get("sentinels"):
        usual, larger = (where(estimates, size=size) for size in ("usual", "larger"))
        number = sum(row["states"] for row in where(estimates, of="all"))
        parts += [
            "## Sentinels",
            f"{number:,} estimates over true error: an estimate, never a bound.",
        ]
        parts += _sentinels(usual)
        parts += [f"### {larger[0]['rows']:,} rows", LARGER, *_sentinels(larger)]
    parts.append(POLISH.read_text(encoding="utf-8").strip())
    return "\n\n".join(parts) + "\n"


def _certificates(rows: Sequence[Row], title: str) -> str:
    counts, marks = ("states", "no bound", "below", "measured"), ("median", "90 %", "99 %", "most")
    lines = [
        [
            row["of"],
            *(str(row[name]) for name in counts),
            *("-" if row[name] is None else f"{row[name]:.3g}" for name in marks),
        ]
        for row in rows
    ]
    return table([title, *counts, *marks], lines)


def _sentinels(rows: Sequence[Row]) -> list[str]:
    """Return the tables by family, by order, and of all."""
    marks = ("least", "2.5 %", "median", "97.5 %", "most")
    tables = []
    for by in dict.fromkeys(row["by"] for row in rows):
        lines = []
        for row in where(rows, by=by):
            shares = (1 - row["under"] - row["over"], row["under"], row["over"])
            percents = (f"{100 * share:.1f} %" for share in shares)
            lines.append(
                [row["of"], str(row["states"]), *percents, *(f"{row[mark]:.2f}" for mark in marks)]
            )
        head = ["states", f"within {LOW:g} to {HIGH:g}", f"under {LOW:g}", f"over {HIGH:g}", *marks]
        tables.append(table([by or "", *head], lines))
    return tables


def draw(tables: Tables, path: Path) -> None:
    """Draw bound over error by way and size of the error, and estimate over error by family."""
    with style():
        figure = Figure(figsize=(11, 4), layout="constrained")
        left, right = figure.subplots(1, 2)
        for number, how in enumerate(("fresh", "stale", "audited", "polished")):
            rows = where(tables["errors"], state=how)
            middles = [10.0 ** (row["decade"] + 0.5) for row in rows]
            shade = {"color": f"C{number}"}
            left.loglog(middles, [r["median"] for r in rows], ".-", label=f"{how}: median", **shade)
            left.loglog(middles, [r["99 %"] for r in rows], ".:", label="99 %", **shade)
        left.axhline(1.0, color="black", lw=0.8)
        left.set(xlabel="true error / |theta*|", ylabel="certificate / true error", ylim=(0.7, 1e3))
        left.legend(ncols=4, fontsize=7, loc="upper center")
        ends = {"whislo": "2.5 %", "q1": "25 %", "med": "median", "q3": "75 %", "whishi": "97.5 %"}
        boxes = [
            {"label": row["of"], "fliers": [row["least"], row["most"]]}
            | {end: row[name] for end, name in ends.items()}
            for row in where(tables["sentinels"], by="family")
        ]
        right.bxp(boxes, vert=False, flierprops={"marker": "."})
        for mark in (LOW, 1.0, HIGH):
            right.axvline(mark, color="black", lw=0.8, ls="-" if mark == 1.0 else ":")
        right.set(xlabel="sentinels' estimate / true error", xscale="log", xlim=(0.1, 12))
        save(figure, path)
