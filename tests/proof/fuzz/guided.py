"""One harness under atheris, guided by coverage; ``python -m tests.proof.fuzz`` runs them.

Python code is instrumented as it is imported here; what is written in C or Rust (json's scanner,
pydantic-core, Arrow) runs and shows no coverage.
"""

from __future__ import annotations

import contextlib
import io
import random
import tracemalloc
from collections.abc import Sequence

import atheris

with (
    contextlib.redirect_stderr(io.StringIO()),  # it names every module
    atheris.instrument_imports(include=["lethe", "rfc8785", "json", "csv", "base64"]),
):
    from tests.proof.fuzz.contract import check
    from tests.proof.fuzz.harnesses import HARNESSES
    from tests.proof.fuzz.hostile import spoil


def _mutate(data: bytes, most: int, seed: int) -> bytes:
    """Change bytes as libFuzzer does, or one value of what is nearly JSON."""
    draw = random.Random(seed)
    if draw.random() < 0.5:
        return bytes(atheris.Mutate(data, most))
    return spoil(data, draw)[:most]


def run(name: str, options: Sequence[str]) -> None:
    """Fuzz one harness with libFuzzer's options; it ends the process."""
    harness = HARNESSES[name]
    tracemalloc.start()
    for seed in harness.seeds():  # what is made once is no memory of a later input
        check(harness, seed)

    def one(data: bytes) -> None:
        check(harness, data)

    atheris.Setup([name, *options], one, custom_mutator=_mutate)
    atheris.Fuzz()
