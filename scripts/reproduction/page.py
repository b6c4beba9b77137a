"""The pages docs/paper.md and results/paper.md, filled with tables out of records.

page.md holds all that the first says, tables.md the second: all figures, with quartiles and
machines. A line ``<!-- name -->`` begins the section of an experiment, and its ``{placeholders}``
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

from harness.results import where
from reproduction.experiment import Check, Experiment, Method
from reproduction.records import CellRun, Record, Results

NAMES: Mapping[str, str] = {
    Method.INFLUENCE: "inf",
    Method.PRU_PUBLISHED: "PRU as published",
    Method.PRU: "PRU",
    Method.NEWTON: "Newton",
    Method.EXACT: "ours",
    Method.POLISHED: "ours, polished",
}
"""The methods as the page calls them."""

_PAGE, _TABLES = (Path(__file__).with_name(name) for name in ("page.md", "tables.md"))
_QUICK_NOTE = (
    "**Small sizes.** This page was made by `--quick`: it shows that every experiment runs and "
    "what is exact; its other figures are not comparable with the paper's."
)
_FIGURE_SIZE = (7.0, 4.4)
_FIGURE_DOTS = 130

Show: TypeAlias = Callable[[Record], str]
Column: TypeAlias = tuple[str, Show, Mapping[str, Any]]
"""The heading, how a record is shown, and the fields that it has beside those of the row."""

Closing: TypeAlias = Callable[[Experiment, Results], Sequence[str]]
"""Returns the paragraphs that end the section of an experiment."""


def write(
    experiments: Sequence[Experiment], results: Results, *, page: Path, tables: Path, images: Path
) -> None:
    """Write the page, all tables, and the figures."""
    images.mkdir(parents=True, exist_ok=True)
    for experiment in experiments:
        records = results.of(experiment.name)
        if experiment.draw is not None and records:
            experiment.draw(records, images)
    for template, to, closing in ((_PAGE, page, _checked), (_TABLES, tables, _made_on)):
        text = _rendered(template, experiments, results, closing)
        to.write_text(text, encoding="utf-8")


def all_checks(experiment: Experiment, results: Results) -> list[Check]:
    """Return what was checked of the records that exist; times at small sizes say nothing."""
    records = results.of(experiment.name)
    checks = experiment.checks(records) if records else []
    return [check for check in checks if not (check.of_times and results.document.quick)]


def _rendered(
    template: Path, experiments: Sequence[Experiment], results: Results, closing: Closing
) -> str:
    """Return a page. Sections without records say so."""
    head, *rest = re.split(r"<!-- (\w+) -->\n", template.read_text(encoding="utf-8"))
    sections = dict(zip(rest[::2], rest[1::2], strict=True))
    parts = [head.strip(), *[_QUICK_NOTE] * results.document.quick]
    for experiment in experiments:
        parts += _section(sections[experiment.name].strip(), experiment, results, closing)
    return "\n\n".join(parts) + "\n"


def _section(text: str, experiment: Experiment, results: Results, closing: Closing) -> list[str]:
    heading, _, body = text.partition("\n\n")
    records = results.of(experiment.name)
    planned = experiment.cells(results.document.quick)
    missing = [cell.key for cell in planned if not results.has(cell.key, cell.plan)]
    parts = [heading]
    if missing:
        parts.append(f"Not run yet: {', '.join(missing)}.")
    elif not records:
        parts.append(experiment.absent)
    if records:
        samples = [record.samples for record in records]
        values: dict[str, object] = {"n": records[0].n, "d": records[0].d}
        values |= {"samples": max(samples), "fewest": min(samples)}
        filled = body.format_map(values | dict(experiment.tables(records)))
        parts += [filled, *closing(experiment, results)]
    return parts


def _checked(experiment: Experiment, results: Results) -> list[str]:
    """Return what was checked, and the command that makes the section again."""
    checks = [
        f"- {'pass' if check.passed else 'FAIL'}: {check.sentence}"
        for check in all_checks(experiment, results)
    ]
    runs = _cells(experiment, results).values()
    seeds = ", ".join(str(seed) for seed in sorted({run.seed for run in runs}))
    seconds = sum(run.seconds for run in runs)
    command = f"`.venv/bin/python scripts/paper.py --only {experiment.name}`"
    made = f"<sub>{command}; seed {seeds}; {seconds:.0f} s.</sub>"
    return ["Checked by the run:", "\n".join(checks), made]


def _made_on(experiment: Experiment, results: Results) -> list[str]:
    """Return a line of what the records were made with."""
    cells = _cells(experiment, results)
    machine = results.document.machines.get(experiment.name, {})
    facts = "; ".join(f"{name} {value}" for name, value in machine.items())
    for key in cells:
        own = results.document.machines.get(key, {})
        differs = [f"{name} {value}" for name, value in own.items() if machine.get(name) != value]
        facts += f". {key}: {'; '.join(differs)}" if differs else ""
    return [f"<sub>{facts}.</sub>"]


def _cells(experiment: Experiment, results: Results) -> dict[str, CellRun]:
    return {k: run for k, run in results.document.cells.items() if run.table == experiment.name}


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
    lines = [[corner, *(heading for heading, _, _ in columns)], ["---", *["---:"] * len(columns)]]
    for row in rows:
        of = where(records, **row)
        label = ", ".join(NAMES.get(v, v) if isinstance(v, str) else f"{v:g}" for v in row.values())
        found = [(show, find(of, **fields)) for _, show, fields in columns]
        lines.append([label, *(show(record) if record else "-" for show, record in found)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def figure(columns: int = 1) -> tuple[Any, Any]:
    """Return a figure and its axes (an array of them, for several columns)."""
    width, height = _FIGURE_SIZE
    size = (width * (1 + 0.7 * (columns - 1)), height)
    made, axes = plt.subplots(1, columns, figsize=size, sharey=True)
    for one in axes if columns > 1 else [axes]:
        one.grid(visible=True, which="major", alpha=0.3)
    return made, axes


def save(made: Any, stem: Path) -> None:
    """Write stem.png and stem.svg, the same bytes for the same records."""
    made.tight_layout()
    with mpl.rc_context({"svg.hashsalt": "lethe"}):
        made.savefig(stem.with_suffix(".png"), dpi=_FIGURE_DOTS)
        made.savefig(stem.with_suffix(".svg"), metadata={"Date": None})
    plt.close(made)
