"""A real run for `lethe audit` and `lethe receipt`: exports of it, and of a copy that forked."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from tests.support.command import Within
from tests.support.training import write

FIT = ("--id", "id", "--target", "y", "--subject", "household", "--ridge", "1")
GONE = ("u1", "u2", "u15", "u16", "u17", "u30", "u31", "u40")
"""The rows that the run deletes."""

NEWEST = 4
"""Its newest version: three of deletions, and a polish."""


@dataclass(frozen=True)
class Made:
    """The running model, and what was exported: ``early``, ``late`` and ``fork``, with memories."""

    lethe: Within
    folder: Path

    def path(self, name: str) -> str:
        return str(self.folder / name)


def decide(lethe: Within, *requests: tuple[str, ...]) -> None:
    for request in requests:
        lethe("delete", "churn", *request)
    lethe("work", "--until-idle")


@contextmanager
def real_run(folder: Path) -> Iterator[Made]:
    """Run a model's life, and yield it with its server still up."""
    rows = write(folder / "rows.parquet", logistic=True)
    store, copy = folder / "store", folder / "copy"
    with EmbeddedValkey(store):
        lethe = Within(store)
        lethe("register", "churn", "--data", str(rows), *FIT, "--kind", "logistic")
        decide(
            lethe,
            ("--row", "u1", "u2", "--request-id", "r1", "--reason", "withdrawn"),
            ("--subject", "h5", "--request-id", "r2"),
            ("--row", "u1", "--request-id", "r3"),
            ("--row", "nobody", "--request-id", "r4"),
        )
        decide(lethe, ("--row", "u30", "u31", "--request-id", "r5"))
        _export(lethe, folder, "early")
    shutil.copytree(store, copy, ignore=shutil.ignore_patterns("*.sock"))
    with EmbeddedValkey(copy):
        other = Within(copy)
        decide(other, ("--row", "u60", "--request-id", "other"))
        _export(other, folder, "fork")
    with EmbeddedValkey(store):
        decide(
            lethe,
            ("--row", "u1", "u2", "--request-id", "r1"),
            ("--row", "u70", "--request-id", "r1"),
            ("--row", "u40", "--request-id", "r6"),
        )
        lethe("refresh", "churn", "--size", "polish")
        lethe("work", "--until-idle")
        _export(lethe, folder, "late")
        (folder / "gone.txt").write_text("\n".join(GONE))
        shown = lethe("key", "show", str(store / "signing-key.pem"))
        (folder / "trusted.pub").write_text(shown.out)
        yield Made(lethe, folder)


def _export(lethe: Within, folder: Path, name: str) -> None:
    export = ("audit", "churn", "--export", str(folder / name))
    lethe(*export, "--checkpoint", str(folder / f"{name}.seen"))
