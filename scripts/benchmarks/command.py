"""What the measuring commands have in common: their options, progress, and where they write."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from one_a_line import one_a_line

_ROOT = Path(__file__).resolve().parents[2]


def options(description: str | None, name: str, sections: Iterable[str]) -> argparse.ArgumentParser:
    """Return a parser with the options of every measuring command.

    Results go to results/NAME.json, all tables to results/NAME.md.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="small sizes, for tests")
    parser.add_argument("--seed", type=int, default=20210413)
    parser.add_argument(
        "--only", action="append", choices=tuple(sections), help="measure this section (repeatable)"
    )
    parser.add_argument("--results", type=Path, default=_ROOT / "results" / f"{name}.json")
    parser.add_argument("--page", type=Path, default=_ROOT / "results" / f"{name}.md")
    return parser


def repeated_by(chosen: argparse.Namespace, name: str) -> str:
    """Return the command that measures the same again."""
    given = [
        *(["--quick"] if chosen.quick else []),
        *(f"--only '{section}'" for section in chosen.only or ()),
    ]
    return " ".join([f"scripts/{name}.py", *given]) if given else f"make {name}"


def say(line: str) -> None:
    """Report progress."""
    print(line, file=sys.stderr, flush=True)


def write(
    chosen: argparse.Namespace,
    run: Mapping[str, Any],
    markdown: Callable[[Mapping[str, Any]], str],
    show: Callable[[Console, Mapping[str, Any]], None],
    width: int,
) -> None:
    """Write the results and the page, and print the tables; ``width`` is for a pipe."""
    for path, text in (
        (chosen.results, one_a_line(run)),
        (chosen.page, markdown(run)),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    console = Console()
    show(console if console.is_terminal else Console(width=width), run)
