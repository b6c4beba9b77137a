"""``python -m consumers.demo``: the demo without the rest of the command line."""

from __future__ import annotations

import sys

from lethe.consumers.demo.command import demo
from lethe.engine.errors import LetheError


def main() -> None:
    """Run the command; an error of Lethe is one line on stderr and its exit code."""
    try:
        demo()
    except LetheError as error:
        sys.stderr.write(f"lethe demo: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
