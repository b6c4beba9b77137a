"""`make chaos`: run for a while with real faults, then check every promise.

python -m tests.proof.chaos --seconds 60 --seed 1

Exit codes: 0 every promise held, 1 one did not, 2 a server is missing here.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from lethe.engine.store.layout.keys import COMMIT_PARTITIONS
from tests.proof.chaos.agreement import agrees_with_its_commits
from tests.proof.chaos.bound import theta_within_its_bound
from tests.proof.chaos.checker import judge
from tests.proof.chaos.facts import Facts
from tests.proof.chaos.report import figures, report
from tests.proof.chaos.run import Run, Settings
from tests.proof.chaos.store_cluster import StoreCluster
from tests.proof.chaos.store_pair import DURABILITIES
from tests.proof.chaos.table import add_run
from tests.support.platform import SECRET
from tests.support.servers import Missing


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long things go wrong (60)")
    parser.add_argument("--seed", type=int, help="draws models, requests and faults")
    parser.add_argument("--pause", type=float, default=2.0, help="seconds between faults (2)")
    parser.add_argument("--rate", type=float, default=100.0, help="requests a second (100)")
    parser.add_argument(
        "--durability",
        choices=[*DURABILITIES, "mixed"],
        default="mixed",
        help="what the store syncs: always, every second, nothing; a third of the run each (mixed)",
    )
    parser.add_argument(
        "--partitions",
        type=int,
        default=COMMIT_PARTITIONS,
        help=f"of each topic of requests; fewer than {COMMIT_PARTITIONS}: every worker follows all "
        f"commits ({COMMIT_PARTITIONS})",
    )
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="the store is a cluster, whose primaries fail over; --durability has no meaning then",
    )
    parser.add_argument("--keep", action="store_true", help="keep logs and data of a good run, too")
    parser.add_argument(
        "--table", type=Path, metavar="FILE", help="add all figures to this CSV file"
    )
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if given.seed is None else given.seed
    settings = Settings(
        given.seconds,
        seed,
        given.pause,
        given.rate,
        StoreCluster.durability if given.cluster else given.durability,
        given.partitions,
        given.cluster,
    )
    directory = Path(tempfile.mkdtemp(prefix="lethe-chaos-"))
    begin = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - begin:6.1f} s] {text}", file=sys.stderr, flush=True)

    say(f"seed {seed}, {given.seconds:g} s of faults; logs in {directory}")
    try:
        with Run(settings, directory, say) as run:
            outcome = run.run()
            history = run.history
    except Missing as missing:
        print(missing, file=sys.stderr)
        return 2
    say("checking")
    whole = len(history.finals) == len(history.rows) == len(history.data)
    verdicts = judge(history) if whole else []
    if verdicts:
        limit = max(20.0, given.seconds / 4)
        verdicts.append(agrees_with_its_commits(history, SECRET))
        verdicts.append(theta_within_its_bound(Facts(history), limit, seed))
    found = figures(settings, outcome, history, verdicts, time.monotonic() - begin)
    print(report(found))
    if given.table:
        add_run(given.table, found)
    if found["failed"]:
        print(f"seed {seed} failed; logs and data are kept in {directory}")
        return 1
    if not given.keep:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
