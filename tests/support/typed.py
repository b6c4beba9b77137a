"""Types the commands of a page of documentation, as a reader would, and compares what they print.

A command is an indented line that begins with ``$``; the indented lines below it are what it
prints. Numbers, digests, ids and times may differ, and ``...`` stands for any lines. One shell
types a whole page, so that a page can be followed from top to bottom. A command that ends with
``\\`` goes on in the next line, and one with ``<<'END'`` up to the line ``END``, blank lines
included. The shell's directory has the checkout's ``scripts``.

    python -m tests.support.typed docs/cli.md --write    puts what they print now into the page
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.servers import ROOT, free_port

_INDENT = "    "
_END = "-- end of command"
_SERVER_PORT = "8321"
_HERE_END = "END"
_SECONDS = 600
_PROGRESS = "action=progress"  # said of what takes over a second: on a slow machine
_NOT_ANY_MORE = re.compile(r", \d+ not checked$")  # commits leave a log of ours
_DIFFERS = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"  # a request id
    r"|\d{4}-\d\d-\d\dT[\d:.]+Z|\d\d:\d\d:\d\d"  # a time
    r"|[A-Za-z0-9+/]{43}="  # a key
    r"|(?<![A-Za-z0-9])[0-9a-f]{12,64}(?![A-Za-z0-9])"  # a digest
    r"|-?\d+(?:[.,]\d+)*(?:e[+-]?\d+)?"
)


@dataclass
class Typed:
    """A command of a page: its line there (from 0), its text, and what the page says it prints."""

    line: int
    command: str
    expected: list[str] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """Whether it printed what the page says."""
        return _matches([_masked(one) for one in self.expected], [_masked(x) for x in self.printed])


def commands_of(page: str) -> list[Typed]:
    """Return the commands of a page, in order."""
    found: list[Typed] = []
    inside = here_document = False
    for number, line in enumerate(page.split("\n")):
        if here_document:
            found[-1].command += f"\n{line.removeprefix(_INDENT)}"
            here_document = line != f"{_INDENT}{_HERE_END}"
        elif line.startswith(f"{_INDENT}$ "):
            found.append(Typed(number, line[len(_INDENT) + 2 :]))
            inside = True
            here_document = line.endswith(f"<<'{_HERE_END}'")
        elif inside and line.startswith(_INDENT):
            last, text = found[-1], line[len(_INDENT) :]
            if last.command.endswith("\\") and not last.expected:
                last.command += f"\n{text}"
            else:
                last.expected.append(text)
        else:
            inside = False
    return found


def type_all(commands: Sequence[Typed], directory: Path) -> None:
    """Type commands in one shell that has the data directory below ``directory``."""
    with shell(directory) as type_in:
        for one in commands:
            type_in(one)


@contextmanager
def shell(directory: Path) -> Iterator[Callable[[Typed], None]]:
    """Yield what types a command in a shell and notes what it prints; jobs end with the block.

    Pages name the usual port of `lethe serve`; a free one is typed in its place.
    """
    port = str(free_port())
    (directory / "scripts").symlink_to(ROOT / "scripts")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LETHE_DATA_DIR": str(directory / "data"),
        "LETHE_EMBEDDED_LINGER": "0",
        "LETHE_HTTP_PORT": "0",
        "LETHE_SERVER_PORT": port,
        "COLUMNS": "100",
    }
    with subprocess.Popen(
        ["bash"], cwd=directory, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        guard = threading.Timer(_SECONDS, process.kill)
        guard.start()
        assert process.stdin is not None
        assert process.stdout is not None
        keyboard, screen = process.stdin, process.stdout

        def type_in(one: Typed) -> None:
            typed = one.command.replace(_SERVER_PORT, port)
            command = f"{typed}\nstatus=$?; echo; echo '{_END}'; (exit $status)\n"
            keyboard.write(command)
            keyboard.flush()
            lines = []
            while (line := screen.readline()) and line.rstrip("\n") != _END:
                lines.append(line.rstrip("\n"))
            text = "\n".join(lines).rstrip("\n")
            shown = text.split("\n") if text.strip() else []
            one.printed = [line for line in shown if _PROGRESS not in line]

        try:
            keyboard.write("set +m\ntrap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n")
            yield type_in
        finally:
            keyboard.close()
            process.wait()
            guard.cancel()


def _masked(line: str) -> str:
    return " ".join(_DIFFERS.sub("#", _NOT_ANY_MORE.sub("", line)).split())


def _matches(expected: Sequence[str], printed: Sequence[str]) -> bool:
    """Return whether lines agree; ``...`` stands for any number of lines."""
    if not expected:
        return not printed
    if expected[0] == "...":
        return any(_matches(expected[1:], printed[i:]) for i in range(len(printed) + 1))
    return bool(printed) and expected[0] == printed[0] and _matches(expected[1:], printed[1:])


def main() -> int:
    """Type a page; print what differs, or write it into the page."""
    parser = argparse.ArgumentParser(prog="tests.support.typed", description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    text = given.page.read_text()
    found = commands_of(text)
    with tempfile.TemporaryDirectory() as directory:
        type_all(found, Path(directory))
    differing = [one for one in found if not one.agrees]
    for one in differing:
        sys.stdout.write(
            "\n".join([f"{given.page}:{one.line + 1}: {one.command}", *one.printed, ""])
        )
    if given.write:
        lines = text.split("\n")
        for one in reversed(differing):
            begin = one.line + 1 + one.command.count("\n")
            shown = [_INDENT + line if line else "" for line in one.printed]
            lines[begin : begin + len(one.expected)] = shown
        given.page.write_text("\n".join(lines))
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
