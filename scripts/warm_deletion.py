"""Count the files and functions of ours that one warm deletion of one row runs through.

A switch is a step, in the order in which functions are first called, from one file to another.

From the poll that reads the request to the publication of its version, in one process, on the log
in memory and a real Valkey: ``python scripts/warm_deletion.py``. ``--names`` lists them in order.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the platform is the tests' own

from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

from lethe.consumers.service.telemetry.logs import configure_logging  # noqa: E402
from tests.support.memory_log import MemoryLog  # noqa: E402
from tests.support.platform import Platform  # noqa: E402
from tests.support.servers import ValkeyProcess  # noqa: E402

OURS = tuple(str((ROOT / name).resolve()) for name in ("engine", "consumers"))


def called(platform: Platform, row: int) -> dict[CodeType, int]:
    """Return what one turn of the worker calls of ours, with how often, in order of first calls."""
    worker, _ = platform.pair
    platform.send_index("m", row)
    found: dict[CodeType, int] = {}

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and Path(frame.f_code.co_filename).resolve().is_relative_to(ROOT):
            name = _file_of(frame.f_code)
            if name is not None and not frame.f_code.co_name.startswith("<"):
                found[frame.f_code] = found.get(frame.f_code, 0) + 1

    sys.setprofile(count)
    try:
        worker.run_once(0.0)
    finally:
        sys.setprofile(None)
    return found


def _file_of(code: CodeType) -> str | None:
    path = Path(code.co_filename).resolve()
    return str(path.relative_to(ROOT)) if str(path).startswith(OURS) else None


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", action="store_true", help="list the functions")
    given = parser.parse_args()
    configure_logging("ERROR")
    with tempfile.TemporaryDirectory() as directory, threadpool_limits(1):
        server = ValkeyProcess(Path(directory))
        server.start()
        try:
            platform = Platform(MemoryLog(), f"{server.url}/0", 2, "")
            platform.register("m", budget=10.0)
            for row in range(5):  # so that everything is loaded, and nothing is due
                platform.send_index("m", row)
                platform.drain()
            found = called(platform, 5)
            platform.close()
        finally:
            server.close()
    console = Console()
    if given.names:
        table = Table("file", "function", "calls")
        for code, times in found.items():
            table.add_row(str(_file_of(code)), code.co_qualname, str(times))
        console.print(table)
    files = [_file_of(code) for code in found]
    switches = sum(one != other for one, other in pairwise(files))
    console.print(
        f"a warm deletion of one row: {len(set(files))} files, {len(found)} functions, "
        f"{sum(found.values())} calls, {switches} switches of file"
    )


if __name__ == "__main__":
    main()
