"""Run a study: one of `STUDIES` (scripts/README.md says what each is).

Usage: ``python scripts/study.py NAME [--help]``
"""

from __future__ import annotations

import sys
from importlib import import_module

STUDIES = ("bench", "capacity", "certificates", "kernels", "paper", "stream")


def main(arguments: list[str]) -> int:
    """Run the study that is named; return its exit code."""
    if not arguments or arguments[0] not in STUDIES:
        print(__doc__, file=sys.stderr)
        return 2
    name, *options = arguments
    code: int = import_module(f"{name}.command").main(options)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
