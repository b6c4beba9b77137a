"""`make pipelines`: ordinary pipelines, accepted and right, or refused by name.

python -m tests.proof.pipelines              the table, and what is refused and why
python -m tests.proof.pipelines --seed 7     other rows
"""

from __future__ import annotations

import argparse
import sys

from threadpoolctl import threadpool_limits

from tests.proof.pipelines.corpus import FIRST
from tests.proof.pipelines.judging import judged


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="make pipelines", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="draws the tables and changes (1)")
    given = parser.parse_args()
    with threadpool_limits(1):
        found = [judged(entry, given.seed) for entry in FIRST]
    width = max(len(one.entry.name) for one in found)
    for one in found:
        said = one.said or f"{one.distance:.1e}"
        print(f"{one.entry.name:<{width}}  {one.verdict:<7}  {said}")
    counts = {what: sum(one.verdict == what for one in found) for what in _VERDICTS}
    print(", ".join(f"{count} {what}" for what, count in counts.items()), f"of {len(found)}")
    return 1 if counts["wrong"] or counts["failed"] else 0


_VERDICTS = ("right", "refused", "wrong", "failed")

if __name__ == "__main__":
    sys.exit(main())
