"""``make http-fuzz``: generated requests by the thousand, and a table of the answers."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from lethe.consumers.service.telemetry.logs import configure_logging
from tests.proof.http.generated import application, try_all
from tests.support.servers import own_redis


def main() -> int:
    """Send generated requests; print how many of each status each operation answered with."""
    parser = argparse.ArgumentParser(prog="tests.proof.http", description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000)
    given = parser.parse_args()
    configure_logging("ERROR")  # a line for each request says nothing here
    with tempfile.TemporaryDirectory() as directory, own_redis(Path(directory), 0) as url:
        index = Path(directory) / "index"
        index.mkdir()
        with application(url, index) as app:
            answers = try_all(app, given.cases)
    for (operation, status), count in sorted(answers.items()):
        print(f"{operation:50} {status} {count:7d}")
    errors = sum(count for (_, status), count in answers.items() if status >= 500)
    print(f"{answers.total()} requests, {errors} server errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
