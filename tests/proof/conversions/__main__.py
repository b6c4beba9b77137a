"""`make conversions`: settings of scikit-learn that become models, or are refused by name.

python -m tests.proof.conversions                   each documented value, and about 1,200 drawn
python -m tests.proof.conversions --seed 7          others drawn
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings

from threadpoolctl import threadpool_limits

from tests.proof.conversions import battery

_SIZE = 600  # drawn pipelines


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="make conversions", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="draws the settings (1)")
    parser.add_argument("--size", type=int, default=_SIZE, help=f"drawn pipelines ({_SIZE})")
    given = parser.parse_args()
    begin = time.perf_counter()
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's, of what stops early or is deprecated
        settings = [*battery.chosen(), *battery.drawn(given.seed, given.size)]
        found = battery.judge_all(settings)
    failed = battery.failures(found)
    print("\n".join([battery.table(found), *(f"FAILED: {line}" for line in failed)]))
    print(f"{time.perf_counter() - begin:.0f} s", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
