"""One harness under atheris, guided by coverage: ``python -m tests.fuzz.guided NAME [OPTION ...]``.

Started by ``python -m tests.fuzz``. Python code is instrumented; what is written in C or Rust
(json's scanner, pydantic-core, Arrow) runs and shows no coverage.
"""

from __future__ import annotations

import random
import sys
import tracemalloc

import atheris

with atheris.instrument_imports(
    include=["consumers", "engine", "rfc8785", "json", "csv", "base64", "kafka.record"]
):
    from tests.fuzz.contract import check
    from tests.fuzz.harnesses import HARNESSES
    from tests.fuzz.hostile import spoil


def _mutate(data: bytes, most: int, seed: int) -> bytes:
    """Change bytes as libFuzzer does, or one value of what is nearly JSON."""
    draw = random.Random(seed)
    if draw.random() < 0.5:
        return bytes(atheris.Mutate(data, most))
    return spoil(data, draw)[:most]


def main() -> None:
    """Fuzz until libFuzzer ends the process."""
    name, *options = sys.argv[1:]
    harness = HARNESSES[name]
    tracemalloc.start()
    for seed in harness.seeds():  # what is made once is no memory of a later input
        check(harness, seed)

    def one(data: bytes) -> None:
        check(harness, data)

    atheris.Setup([sys.argv[0], *options], one, custom_mutator=_mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
