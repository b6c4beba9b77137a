"""`make pipelines`: ordinary pipelines, inside a model or refitted and right, or refused by name.

python -m tests.proof.pipelines              the table, and what is refused and why
python -m tests.proof.pipelines --seed 7     other rows
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from threadpoolctl import threadpool_limits

from tests.proof.pipelines.corpus import FIRST
from tests.proof.pipelines.judging import HOLDS, Judgement, judged
from tests.proof.pipelines.second import SECOND


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="make pipelines", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="draws the tables and changes (1)")
    given = parser.parse_args()
    with threadpool_limits(1):
        halves = [[judged(entry, given.seed) for entry in half] for half in (FIRST, SECOND)]
    first, second = halves
    found = [*first, *second]
    width = max(len(one.entry.name) for one in found)
    for one in found:
        said = one.said or f"{one.distance:.1e}"
        print(f"{one.entry.name:<{width}}  {one.verdict:<8}  {said}")
    print(f"first half: {_counted(first)}; second half: {_counted(second)}")
    print(_counted(found))
    return 0 if all(one.verdict in HOLDS for one in found) else 1


def _counted(found: Sequence[Judgement]) -> str:
    counts = {what: sum(one.verdict == what for one in found) for what in _VERDICTS}
    return ", ".join(f"{count} {what}" for what, count in counts.items()) + f" of {len(found)}"


_VERDICTS = (*HOLDS, "wrong", "failed")

if __name__ == "__main__":
    sys.exit(main())
