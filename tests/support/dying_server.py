"""``lethe serve`` that is killed when the log has acknowledged a request, before the answer.

python -m tests.support.dying_server --port 0 --json
"""

from __future__ import annotations

import os
import signal
import sys

from lethe.consumers.cli.main import run
from lethe.consumers.server import appender


def die(*_: object) -> None:
    """Die as by kill -9."""
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    appender._settle = die  # type: ignore[assignment]
    run(["serve", *sys.argv[1:]])
