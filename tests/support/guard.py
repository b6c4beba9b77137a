"""Run a command once nobody holds a lock any more: ``guard.py LIFELINE COMMAND...``.

The processes that use a server hold a shared lock on its lifeline file. The kernel lets go of a
lock when its holder ends, however it ends, so this guard stops the server after a crash or a
``kill -9`` of the test run, too. It detaches itself; the caller gets its exit code at once.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path


def main(lifeline: str, command: list[str]) -> None:
    """Wait, detached, for the exclusive lock; then run ``command`` while holding it."""
    with Path(lifeline).open("a") as handle:
        if os.fork():
            return
        os.setsid()
        fcntl.flock(handle, fcntl.LOCK_EX)
        # The lock is kept meanwhile, and the address forgotten: whoever comes now waits and then
        # starts a new server instead of using a dying one.
        Path(lifeline).with_suffix(".address").unlink(missing_ok=True)
        subprocess.run(command, check=False)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
