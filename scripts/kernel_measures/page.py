"""The report: tables on the terminal, the JSON document, and the page results/kernels.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table

FORMAT = 1

_NOTES: Mapping[str, str] = {
    "leave out": (
        "k rows drawn anew for each sample out of n = 10 d, all methods in turns, each right "
        "after an untimed call of itself on the rows drawn before. Inside each timer: reading the "
        "rows, their errors, the step, the new theta; of the exact method the gate and the rows "
        "of V too. Not inside: what each method has precomputed (dual rows; the rows of the hat "
        "matrix; the inverse Hessian). `its kernel alone` is "
        "`engine.deletion.downdate.leave_out`, rows and errors given. The PRU by the Gram matrix "
        "is the least work for a projection; it fails on dependent rows, so the product does not "
        "use it: at that least the projection costs about what the exact step does. For one row "
        "the engine's PRU needs no factor either, and the exact step is less than twice as fast. "
        "Functions: `scripts/reproduction/ours.py` and `scripts/reproduction/published.py`."
    ),
    "one row": (
        "A linear model of one output, one row drawn anew for each sample. `kernel` is "
        "`engine.deletion.downdate.leave_out`, row, dual row and error given; `BLAS calls` are "
        "the three that it cannot do without (SciPy's ddot, dscal and daxpy), with the two copies "
        "that their results are; `in place`, without the copies. The methods are "
        "`engine.deletion.stream.delete` with K rows deleted before, all in: errors, gate, the "
        "row of V, what is published, and what rounding adds to the bound, which alone takes "
        "seven more passes over vectors of d numbers. `its error` is "
        "`engine.error.estimate.published_error`."
    ),
    "cost against d": (
        "`engine.deletion.stream.delete` of k rows, the first of a generation. The slope is that "
        "of log time over log d."
    ),
    "cost against n": (
        "Rows and dual rows in memory-mapped files whose pages were all touched before; the "
        "timer contains reading the k random rows from the files."
    ),
    "rebuild": (
        "Operations counted: n d^2 (Hessian) + d^3 / 3 (factor) + 2 n d^2 (dual rows); for a "
        "logistic model Hessian and factor once for each Hessian formed. All else is in the "
        "timer and not in the count: checks, refinement, the verified eigenvalue bound (a second "
        "factorisation), L^-1, what the dual rows are off by, rounding scales. The product is "
        "that of X and a d x d matrix. Into memory that was used before its rate is that of the "
        "arithmetic alone; with a new result it gets its memory from the system first, as the "
        "dual rows must. Memory is the growth of a process of its own at its peak, X counted."
    ),
    "what the bound costs": (
        "Dual rows are two products with L^-1 and are measured with four random directions; one "
        "product with A^-1 is faster, but what it rounds a deletion magnifies, and bounds were "
        "below the truth "
        "([error.md](../docs/error.md#what-had-been-wrong-and-how-it-was-found)). The last ratio "
        "is a precomputation over itself less that difference. Of a deletion, `its residual` "
        "is what it takes to know what rounding has added; of one row it is not computed apart."
    ),
    "compact": (
        "What a deletion costs with K rows in V, what folding V away costs (arithmetic only: a "
        "compact writes the live rows to the store besides), and what a rebuild costs. See "
        "`engine/deletion/crossover.py`."
    ),
}


def document(
    command: str, seed: int, machine: Mapping[str, str], figures: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the JSON document of a run."""
    return {
        "format": FORMAT,
        "command": command,
        "seed": seed,
        "machine": dict(machine),
        "figures": list(figures),
    }


def show(console: Console, run: Mapping[str, Any]) -> None:
    """Print the tables of a run."""
    for section, figures in _sections(run):
        table = Table(title=section, title_justify="left")
        names, lines = _lines(figures)
        for name in names:
            text = name in {"metric", "method"}
            table.add_column(name, justify="left" if text else "right", no_wrap=True)
        for line in lines:
            table.add_row(*line)
        console.print(table)
    for verdict in verdicts(run):
        console.print(verdict, markup=False)


def verdicts(run: Mapping[str, Any]) -> list[str]:
    """Return a line for each number that has a goal: the worst of its figures, and the verdict."""
    lines = []
    asked = [figure for figure in run["figures"] if figure["goal"] is not None]
    asked.sort(key=_number)
    for (section, metric, rival, goal), group in groupby(asked, key=_number):
        figures = list(group)
        values = [figure["value"] for figure in figures]
        worst = min(values) if goal.startswith(">=") else max(values)
        met = sum(figure["met"] for figure in figures)
        verdict = "met" if met == len(figures) else "NOT MET"
        what = f"{section}: {metric}" + (f", {rival}" if rival else "")
        lines.append(
            f"{verdict}: {what}: worst {digits(worst)}, goal {goal}, {met} of {len(figures)} cells"
        )
    return lines


def _number(figure: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Return what figures of one number have in common."""
    method = str(figure["setting"].get("method", figure["setting"].get("kind", "")))
    return figure["section"], figure["metric"], method, figure["goal"]


def markdown(run: Mapping[str, Any]) -> str:
    """Return the page of a run."""
    parts = [
        "# Kernels\n",
        f"Made by `{run['command']}` (seed {run['seed']}); rendered from `results/kernels.json`. "
        "One BLAS thread. Times are medians of the thread's processor time with the distance "
        "between the quartiles (IQR), the median by the wall clock beside them: on a machine "
        "with nothing else to do they are the same. At least 30 samples, of times above 5 s "
        "fewer; the column says how many. Everything that is compared was measured in turns, in "
        "one run.\n",
        "| machine | |\n|---|---|",
        *(f"| {name} | {value} |" for name, value in run["machine"].items()),
        "",
        "## Goals\n",
        *(f"- {line}" for line in verdicts(run)),
        "",
    ]
    for section, figures in _sections(run):
        names, lines = _lines(figures)
        parts += [
            f"## {section.capitalize()}\n",
            _NOTES[section] + "\n",
            "| " + " | ".join(names) + " |",
            "|" + "---|" * len(names),
            *("| " + " | ".join(line) + " |" for line in lines),
            "",
        ]
    return "\n".join(parts)


def _sections(run: Mapping[str, Any]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    grouped = groupby(run["figures"], key=lambda figure: figure["section"])
    return [(section, list(figures)) for section, figures in grouped]


def _lines(figures: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return column names and lines of one section."""
    setting = list(dict.fromkeys(name for figure in figures for name in figure["setting"]))
    names = ["metric", *setting, "value", "IQR", "wall", "samples", "unit", "goal", "met"]
    lines = [
        [
            figure["metric"],
            *(str(figure["setting"].get(name, "")) for name in setting),
            *(digits(figure[column]) for column in ("value", "iqr", "wall")),
            str(figure["samples"]),
            figure["unit"],
            figure["goal"] or "",
            {None: "", True: "yes", False: "NO"}[figure["met"]],
        ]
        for figure in figures
    ]
    return names, lines


def digits(value: float | None) -> str:
    """Return three or four digits; nothing for None."""
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
