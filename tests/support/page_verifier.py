"""The audit page's own script under Node: what the browser runs, without a browser."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lethe.consumers.server.console.offline import MODULES, script_of
from lethe.engine.fit.objective import Array

_DRIVER = """
import { openAsBlob } from "node:fs";
import { basename } from "node:path";
import { createInterface } from "node:readline";
const opened = async (path) => Object.assign(await openAsBlob(path), { name: basename(path) });
async function answered({ path, table, refit, ...options }) {
  if (refit) {
    const theta = await minimiser(...refit);
    const text = (value) => (Object.is(value, -0) ? "-0" : String(value));
    return { theta: theta?.map((row) => row.map(text)) };
  }
  if (table) options.table = { ...table, file: await opened(table.path) };
  const { verdict, findings } = await audit(await opened(path), options);
  return { verdict, checks: findings };
}
for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    answer = await answered(JSON.parse(line));
  } catch (error) {
    const kind = error instanceof Unreadable ? "unreadable" : "crash";
    answer = { [kind]: String(error.stack ?? error) };
  }
  console.log(JSON.stringify(answer));
}
"""


def node() -> str:
    """Return where Node is: on the path, or Playwright's own; else skip (on CI: fail)."""
    found = shutil.which("node")
    spec = find_spec("playwright")
    if found is None and spec is not None and spec.origin is not None:
        found = shutil.which("node", path=str(Path(spec.origin).parent / "driver"))
    if found is not None:
        return found
    reason = "no Node, nor the one of Playwright: make setup-all"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


class PageVerifier:
    """Judges files, one after the other, in one process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(
        self, path: Path, trust: str = "", seen: str = "", table: Path | None = None, **fields: str
    ) -> Any:
        """Return ``verdict`` and ``checks``, or why the file was ``unreadable``, or a ``crash``.

        ``table``: rows to retrain on; ``fields``: ``id``, ``weight`` and ``ridge`` of the form.
        """
        question: dict[str, Any] = {"path": str(path), "trust": trust, "seen": seen}
        if table is not None:
            empty = dict.fromkeys(("id", "weight", "ridge"), "")
            question["table"] = {"path": str(table), **empty, **fields}
        return self._ask(question)

    def minimiser(self, X: Array, y: Array, weight: Array, penalty: Array) -> Array | None:
        """Return what the page's retraining gives; None if there is no single minimiser."""
        given = [part.tolist() for part in (X.T, y.T, weight, penalty)]
        answer = self._ask({"refit": given})
        assert "crash" not in answer, answer["crash"]
        theta = answer.get("theta")
        return None if theta is None else np.array(theta, dtype=np.float64)

    def _ask(self, question: Mapping[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@contextmanager
def page_verifier(folder: Path) -> Iterator[PageVerifier]:
    """Run the script of the page, all but what needs a document."""
    program = folder / "audit.mjs"
    modules = [name for name in MODULES if name != "page"]
    program.write_text(script_of(modules) + _DRIVER, encoding="utf-8")
    with subprocess.Popen(
        [node(), "--no-warnings", str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield PageVerifier(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=60)
