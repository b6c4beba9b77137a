"""The command ``lethe`` as a subprocess with a data directory of its own."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import structlog

from lethe.consumers.cli.main import run

PROGRAM = Path(sys.executable).with_name("lethe")
_SECONDS = 600


@dataclass(frozen=True)
class Answer:
    """What a call came to."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)


class Lethe:
    """Calls the command. No setting of the caller's environment reaches it."""

    def __init__(self, data_dir: Path, **settings: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LETHE_")}
        self.data_dir = data_dir
        self.environment = {
            **kept,
            "LETHE_DATA_DIR": str(data_dir),
            "LETHE_HTTP_PORT": "0",
            "LETHE_EMBEDDED_LINGER": "0",
            **settings,
        }

    def __call__(self, *arguments: str, code: int = 0, stdin: str | None = None) -> Answer:
        """Run to the end and compare the exit code. No answer ever holds a traceback."""
        done = subprocess.run(
            [PROGRAM, *arguments],
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == code, (
            f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def say(self, *arguments: str) -> str:
        """Run to the end, whatever comes of it; return all that it says."""
        done = subprocess.run(
            [PROGRAM, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        return done.stdout + done.stderr

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Run beside the test; the caller ends it."""
        return subprocess.Popen(
            [PROGRAM, *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @contextlib.contextmanager
    def working(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Have ``lethe work`` run beside the test; it ends with the block."""
        process = self.start("work", *arguments)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()


class Within(Lethe):
    """Calls the command within this process: for many calls, where starting it is not the point."""

    def __call__(self, *arguments: str, code: int = 0, stdin: str | None = None) -> Answer:
        """Run to the end and compare the exit code."""
        assert stdin is None
        out, err = io.StringIO(), io.StringIO()
        handlers = logging.getLogger().handlers[:]
        environment = {**self.environment, "COLUMNS": "80"}
        try:
            with (
                mock.patch.dict(os.environ, environment, clear=True),
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(err),
            ):
                found = run(arguments)
        finally:
            structlog.reset_defaults()
            logging.getLogger().handlers[:] = handlers
        assert found == code, f"{arguments}: {found}\n{out.getvalue()}{err.getvalue()}"
        return Answer(found, out.getvalue(), err.getvalue())
