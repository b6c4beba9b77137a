"""The page docs/paper.md: the sections of all experiments, from whatever records exist."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reproduction.experiment import Experiment
from reproduction.records import Results

TEMPLATE = Path(__file__).with_name("page.md")
QUICK_NOTE = (
    "**Small sizes.** This page was made by `--quick`: it shows that every experiment runs and "
    "what is exact; its other figures are not comparable with the paper's.\n"
)


def render(experiments: Sequence[Experiment], results: Results) -> str:
    """Return the page. Sections without records say so."""
    document = results.document
    parts = [TEMPLATE.read_text(encoding="utf-8")]
    if document.quick:
        parts.append(QUICK_NOTE)
    for experiment in experiments:
        parts.append(f"## {experiment.title}\n")
        records = results.of(experiment.name)
        missing = missing_cells(experiment, results)
        if missing:
            parts.append(f"Not run yet: {', '.join(missing)}.\n")
        if experiment.absent and not records and not missing:
            parts.append(experiment.absent)
        if records:
            parts.append(experiment.render(records))
            parts += _checks(experiment, results)
            parts.append(_made_on(experiment, results))
    return "\n".join(parts).rstrip() + "\n"


def missing_cells(experiment: Experiment, results: Results) -> list[str]:
    """Return the keys of cells that are planned and not present (whatever the seed)."""
    cells = results.document.cells
    return [
        cell.key
        for cell in experiment.cells(results.document.quick)
        if cell.key not in cells or not results.has(cell.key, cell.plan, cells[cell.key].seed)
    ]


def _checks(experiment: Experiment, results: Results) -> list[str]:
    records = results.of(experiment.name)
    checks = experiment.checks(records)
    if not results.document.quick:
        checks = checks + experiment.timing_checks(records)
    if not checks:
        return []
    lines = [f"- {'pass' if passed else 'FAIL'}: {sentence}" for passed, sentence in checks]
    return ["Checked by the run:\n", "\n".join(lines) + "\n"]


def _made_on(experiment: Experiment, results: Results) -> str:
    """Return a line of what the records were made with."""
    runs = [run for run in results.document.cells.values() if run.table == experiment.name]
    seeds = ", ".join(str(seed) for seed in sorted({run.seed for run in runs}))
    seconds = sum(run.seconds for run in runs)
    machine = results.document.machines.get(experiment.name, {})
    facts = "; ".join(f"{name} {value}" for name, value in machine.items())
    return (
        f"<sub>`.venv/bin/python scripts/paper.py --only {experiment.name}`; seed {seeds}; "
        f"{seconds:.0f} s. {facts}.</sub>\n"
    )
