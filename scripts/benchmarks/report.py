"""The report: a table on the terminal, a JSON document, and the page results/bench.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table

FORMAT = 1

_NOTES: Mapping[str, str] = {
    "step": (
        "`engine.deletion.stream.delete` alone. K rows were deleted in the generation before. The "
        "slope is that of log time over log d for d > K; from d = 1000 on, fixed costs hide it "
        "less."
    ),
    "end to end": (
        "One request of k rows at a time (closed loop), the pipelines taking turns in one run: "
        "request produced to version read and checked by a subscriber in another process. The "
        "null pipeline is the same worker with the mathematics taken out "
        "(`scripts/benchmarks/null_worker.py`): the same reads, the same commit with the same "
        "bytes, the same messages in the same stages. Single-node mode is `streams`."
    ),
    "evidence": (
        "The worker with a signing key, its receipt log and its commitments to rows, and the "
        "same worker without any of them (`scripts/benchmarks/plain_worker.py`), in turns in one "
        "run, one request of k rows at a time: request produced to version read and checked. The "
        "subscriber of the first checks signatures as well."
    ),
    "retraining": (
        "scikit-learn retrains without the k rows (with its own tolerance, 1e-4 for the logistic "
        "model); the engine deletes them. Each deletion is the first of its generation (K = 0) "
        "and comes after a retraining, so with cold caches. The precomputation is made once for "
        "all deletions of a generation."
    ),
    "during rebuild": (
        "Single-row deletions at a fixed pace in single-node mode, while the refresh worker, in "
        "a process of its own, rebuilds the same model, and while it does not."
    ),
    "floor": (
        "The worker next to a program on kafka-python and redis-py alone "
        "(`scripts/benchmarks/floor.py`; in single-node mode on redis-py alone, with streams of "
        "its own): the same requests, reads, writes and messages in number and bytes, and no "
        "mathematics, no check and none of our code. d = 1000, K from 0 to 200, no refresh. A "
        "backlog is loaded first, and the time runs from the first receipt to the last, by the "
        "log. A ratio is that of two runs in turns: median, and lowest to highest. The many models "
        "of a backlog have 220 rows each, to fit into memory; the last rows compare models of "
        "10,000 rows with them. `streams` is single-node mode."
    ),
    "costs": (
        "What else a commit costs. Two workers share the models on Kafka: the share of commits "
        "whose place in the log did not continue what their writer knew, so that it had to read "
        "the gap. Memory: used_memory of the store over final requests through the worker (they "
        "name a row that is deleted already, so that nothing but their receipts is new), less the "
        "id. Fold: a store from before the first deletion, and the log with all commits."
    ),
    "throughput": (
        "Single-row requests waiting in the log, spread over several models in random order; one "
        "worker coalesces them. From the first poll to the last version read and checked."
    ),
}


def document(
    command: str,
    seed: int,
    machine: Mapping[str, str],
    records: Sequence[Mapping[str, Any]],
    notes: Sequence[str],
) -> dict[str, Any]:
    """Return the JSON document of a run."""
    return {
        "format": FORMAT,
        "command": command,
        "seed": seed,
        "machine": dict(machine),
        "notes": list(notes),
        "records": list(records),
    }


def show(console: Console, run: Mapping[str, Any]) -> None:
    """Print the tables of a run."""
    for section, records in groupby(run["records"], key=lambda record: record["section"]):
        table = Table(title=section, title_justify="left")
        names, lines = _lines(list(records))
        for name in names:
            left = name == "metric"
            table.add_column(name, justify="left" if left else "right", no_wrap=left)
        for line in lines:
            table.add_row(*line)
        console.print(table)
    for note in run["notes"]:
        console.print(f"note: {note}", markup=False)


def markdown(run: Mapping[str, Any]) -> str:
    """Return the page of a run."""
    parts = [
        "# Measurements\n",
        f"Made by `{run['command']}` (seed {run['seed']}); rendered from `results/bench.json`. "
        "Figures are medians with the distance between the quartiles (IQR); a 99th percentile "
        "is given from 100 samples on. Everything in a section was measured in one run on one "
        "machine, in turns where a ratio is given.\n",
        "| machine | |\n|---|---|",
        *(f"| {name} | {value} |" for name, value in run["machine"].items()),
        "",
    ]
    parts += [f"Note: {note}\n" for note in run["notes"]]
    for section, records in groupby(run["records"], key=lambda record: record["section"]):
        names, lines = _lines(list(records))
        parts += [
            f"## {section.capitalize()}\n",
            _NOTES.get(section, "") + "\n",
            "| " + " | ".join(names) + " |",
            "|" + "---|" * len(names),
            *("| " + " | ".join(line) + " |" for line in lines),
            "",
        ]
    return "\n".join(parts)


def _lines(records: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return column names and lines of one section."""
    parameters = list(dict.fromkeys(name for record in records for name in record["parameters"]))
    names = ["metric", *parameters, "median", "p99", "IQR", "samples", "unit"]
    ranged = any(record["low"] is not None or record["goal"] is not None for record in records)
    if ranged:
        names += ["range", "goal"]
    lines = [
        [
            record["metric"],
            *(str(record["parameters"].get(name, "")) for name in parameters),
            *(number(record[column]) for column in ("median", "p99", "iqr")),
            str(record["n"]),
            record["unit"],
            *((_range(record), record["goal"] or "") if ranged else ()),
        ]
        for record in records
    ]
    return names, lines


def _range(record: Mapping[str, Any]) -> str:
    if record["low"] is None:
        return ""
    return f"{number(record['low'])} to {number(record['high'])}"


def number(value: float | None) -> str:
    """Return three or four digits, no exponent; nothing for None."""
    if value is None:
        return ""
    if abs(value) >= 100:
        return f"{value:.0f}"
    if abs(value) >= 1:
        return f"{value:.3g}"
    return f"{value:.3f}" if abs(value) >= 0.01 else f"{value:.6f}"
