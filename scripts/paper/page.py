"""docs/paper.md: the prose of page.md, filled with tables out of records.

A line ``<!-- name -->`` begins the section of an experiment, and its ``{placeholders}``
are what the experiment's `tables` return.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt

from harness import plots, tables
from harness.results import where
from paper.experiment import Check, Experiment, Method
from paper.records import Record, Results

NAMES: Mapping[str, str] = {
    Method.INFLUENCE: "inf",
    Method.PRU_PUBLISHED: "PRU as published",
    Method.PRU: "PRU",
    Method.NEWTON: "Newton",
    Method.EXACT: "ours",
    Method.POLISHED: "ours, polished",
}
"""The methods as the page calls them."""

_PAGE = Path(__file__).with_name("page.md")
_QUICK_NOTE = (
    "**Small sizes.** This page was made by `--quick`: it shows that every experiment runs and "
    "what is exact; its other figures are not comparable with the paper's."
)
_FIGURE_SIZE = (7.0, 4.4)
_FIGURE_DOTS = 130

Show: TypeAlias = Callable[[Record], str]
Column: TypeAlias = tuple[str, Show, Mapping[str, Any]]
"""The heading, how a record is shown, and the fields that it has beside those of the row."""


def write(experiments: Sequence[Experiment], results: Results, page: Path, images: Path) -> None:
    """Write the page and the figures."""
    images.mkdir(parents=True, exist_ok=True)
    for experiment in experiments:
        records = results.of(experiment.name)
        if experiment.draw is not None and records:
            experiment.draw(records, images)
    page.write_text(_rendered(experiments, results), encoding="utf-8")


def all_checks(experiment: Experiment, results: Results) -> list[Check]:
    """Return what was checked of the records that exist; times at small sizes say nothing."""
    records = results.of(experiment.name)
    checks = experiment.checks(records) if records else []
    return [check for check in checks if not (check.of_times and results.quick)]


def _rendered(experiments: Sequence[Experiment], results: Results) -> str:
    """Return a page. Sections without records say so."""
    head, *rest = re.split(r"<!-- (\w+) -->\n", _PAGE.read_text(encoding="utf-8"))
    sections = dict(zip(rest[::2], rest[1::2], strict=True))
    parts = [head.strip(), *[_QUICK_NOTE] * results.quick]
    for experiment in experiments:
        parts += _section(sections[experiment.name].strip(), experiment, results)
    return "\n\n".join(parts) + "\n"


def _section(text: str, experiment: Experiment, results: Results) -> list[str]:
    heading, _, body = text.partition("\n\n")
    records = results.of(experiment.name)
    planned = experiment.cells(results.quick)
    missing = [cell.key for cell in planned if not results.has(cell.key, cell.plan)]
    parts = [heading]
    if missing:
        parts.append(f"Not run yet: {', '.join(missing)}.")
    elif not records:
        parts.append(experiment.absent)
    if records:
        samples = [record.samples for record in records]
        values: dict[str, object] = {"n": records[0].n, "d": records[0].d}
        values |= {"samples": max(samples)}
        filled = body.format_map(values | dict(experiment.tables(records)))
        parts += [filled, *_checked(experiment, results)]
    return parts


def _checked(experiment: Experiment, results: Results) -> list[str]:
    """Return what was checked, and the command that makes the section again."""
    checks = [
        f"- {'pass' if check.passed else 'FAIL'}: {check.sentence}"
        for check in all_checks(experiment, results)
    ]
    runs = [run for run in results.cells.values() if run.table == experiment.name]
    seeds = ", ".join(str(seed) for seed in sorted({run.seed for run in runs}))
    seconds = sum(run.seconds for run in runs)
    command = f"`.venv/bin/python scripts/study.py paper --only {experiment.name}`"
    made = f"<sub>{command}; seed {seeds}; {seconds:.0f} s.</sub>"
    return ["Checked by the run:", "\n".join(checks), made]


def find(records: Iterable[Record], **fields: Any) -> Record | None:
    """Return the one record whose fields have these values; None if it was not measured.

    Two such records are a defect of the experiment: ValueError.
    """
    found = where(records, **fields)
    if len(found) > 1:
        raise ValueError(f"{len(found)} records for {fields}")
    return found[0] if found else None


def distinct(records: Iterable[Record], field: str) -> list[Any]:
    """Return the values of a field, each once, as they first appear."""
    return list(dict.fromkeys(getattr(record, field) for record in records))


def settings(records: Sequence[Record], *fields: str) -> list[dict[str, Any]]:
    """Return every combination of the values that the fields have, the first field outermost."""
    values = (distinct(records, field) for field in fields)
    return [dict(zip(fields, setting, strict=True)) for setting in product(*values)]


def two_decimals(record: Record) -> str:
    """Return a ratio as the paper prints it."""
    return _two_decimals(record.value)


def _two_decimals(value: float) -> str:
    return f"{value:.2f}".replace("-0.00", "0.00")


def with_quartiles(record: Record) -> str:
    """Return ``0.82 (0.79 - 0.84)``, or ``0.00`` if all three print so."""
    value, *limits = map(_two_decimals, (record.value, *(record.spread or ())))
    return value if set(limits) <= {value} else f"{value} ({' - '.join(limits)})"


def as_number(form: str) -> Show:
    """Return what shows the value in this format."""
    return lambda record: format(record.value, form)


scientific = as_number(".1e")
"""Show two digits and an exponent, for errors."""


def of_paper(show: Show) -> Show:
    """Return what shows the paper's figure in the same way; a dash where it prints none."""

    def shown(record: Record) -> str:
        if record.paper is None:
            return "-"
        printed = {"value": record.paper, "spread": record.paper_spread}
        return show(record.model_copy(update=printed))

    return shown


def column(
    heading: str,
    method: str | None = None,
    metric: str | None = None,
    show: Show = with_quartiles,
    **fields: Any,
) -> Column:
    """Return a column of the records of this method, metric and other fields."""
    named = {"method": method, "metric": metric}
    fields |= {name: value for name, value in named.items() if value is not None}
    return heading, show, fields


def beside_paper(method: str, metric: str) -> list[Column]:
    """Return two columns: the paper's figure, and the measured one with quartiles."""
    name = NAMES[method]
    printed = of_paper(two_decimals)
    return [column(f"paper {name}", method, metric, printed), column(name, method, metric)]


def table(
    corner: str,
    rows: Iterable[Mapping[str, Any]],
    records: Sequence[Record],
    columns: Sequence[Column],
) -> str:
    """Return a Markdown table: a line for each setting, and a dash where there is no record."""
    lines = []
    for row in rows:
        of = where(records, **row)
        label = ", ".join(NAMES.get(v, v) if isinstance(v, str) else f"{v:g}" for v in row.values())
        found = [(show, find(of, **fields)) for _, show, fields in columns]
        lines.append([label, *(show(record) if record else "-" for show, record in found)])
    return tables.table([corner, *(heading for heading, _, _ in columns)], lines)


def figure(columns: int = 1) -> tuple[Any, Any]:
    """Return a figure and its axes (an array of them, for several columns)."""
    width, height = _FIGURE_SIZE
    size = (width * (1 + 0.7 * (columns - 1)), height)
    made, axes = plt.subplots(1, columns, figsize=size, sharey=True)
    for one in axes if columns > 1 else [axes]:
        one.grid(visible=True, which="major", alpha=0.3)
    return made, axes


def save(made: Any, stem: Path) -> None:
    """Write stem.png, the same bytes for the same records."""
    made.tight_layout()
    plots.save(made, stem.with_suffix(".png"), _FIGURE_DOTS)
    plt.close(made)
