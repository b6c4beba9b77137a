"""`make model`: check the commit protocol state by state, and see each rule's absence caught.

python -m tests.proof.model                      everything, some minutes on one core
python -m tests.proof.model --quick              what the test-suite runs
python -m tests.proof.model --only lifecycle     the cases whose model or name has this in it
python -m tests.proof.model --only X --trace     with the steps to what does not hold
"""

from __future__ import annotations

import argparse
import sys

from tests.proof.model.case import Case
from tests.proof.model.cases import all_cases
from tests.proof.model.checker import HOLDS, Outcome

_LINE = "{:11s} {:58s} {:>10s} {:>7s}  {:9s} {}"


def main() -> int:
    """Run the cases, print a line of each, and return 1 if one came out otherwise."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="what the test-suite runs")
    parser.add_argument("--only", default="", help="cases whose model or name has this in it")
    parser.add_argument("--trace", action="store_true", help="show how it came to what is broken")
    options = parser.parse_args()
    failed = []
    states = seconds = 0.0
    print(_LINE.format("model", "case", "states", "s", "", "what catches it"))
    for case in all_cases():
        run = case.quick if options.quick else case.full
        if run is None or options.only not in f"{case.group} {case.name}":
            continue
        outcome = run()
        states += outcome.states
        seconds += outcome.seconds
        _show(case, outcome, trace=options.trace)
        if not case.passed(outcome):
            failed.append(f"{case.group}: {case.name}")
    print(f"{states:,.0f} states and steps in {seconds:.0f} s")
    for name in failed:
        print(f"NOT AS EXPECTED: {name}")
    return 1 if failed else 0


def _show(case: Case, outcome: Outcome, *, trace: bool) -> None:
    """Print the line of a case, and its trace where something is broken."""
    line = _LINE.format(
        case.group,
        case.name,
        f"{outcome.states:,}",
        f"{outcome.seconds:.1f}",
        outcome.verdict,
        outcome.broken,
    )
    print(line.rstrip(), flush=True)
    unexpected = not case.passed(outcome) and outcome.verdict != HOLDS
    if trace or unexpected:
        for number, step in enumerate(outcome.trace, 1):
            print(f"    {number:3d} {step}")


if __name__ == "__main__":
    sys.exit(main())
