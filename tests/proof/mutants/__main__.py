"""`make mutants`: take out one guard at a time, and see it caught within two minutes.

python -m tests.proof.mutants                 all; exit 1 if one survives or does not apply
python -m tests.proof.mutants barrier ledger  those whose names hold one of these words

Each mutant is made in a copy of the tree; the tree itself is never touched.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.proof.mutants.catalogue import MUTANTS, SIMULATION, Mutant
from tests.proof.mutants.edits import NotThere, made, named_tests
from tests.support.servers import ROOT

_SECONDS = 110
"""Of the hunter's own CPU time: about two minutes on an idle machine."""
_PATIENCE = 1800.0
_TREE = ("src", "consumers", "engine", "tests", "scripts", "pyproject.toml")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a mutant; ``caught`` None: it survived, or could not be made."""

    mutant: Mutant
    caught: str | None
    seconds: float
    detail: str


def make(mutant: Mutant, where: Path) -> str | None:
    """Copy the tree and change it; return why that cannot be done, or None."""
    for name in _TREE:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "fuzz_corpus")
            shutil.copytree(source, where / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(source, where / name)
    try:
        for path, text in made(mutant.edits).items():
            (where / path).write_text(text, encoding="utf-8")
    except NotThere as reason:
        return str(reason)
    return None


def hunt(mutant: Mutant) -> Outcome:
    """Make a mutant and let loose on it what must catch it."""
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="lethe-mutant-") as directory:
        where = Path(directory)
        problem = make(mutant, where)
        if problem is not None:
            return Outcome(mutant, None, 0.0, f"does not apply: {problem}")
        if mutant.caught_by == SIMULATION:
            command = ["tests.proof.simulation", "--until-failure", str(_SECONDS)]
        else:
            command = [
                "pytest",
                "-q",
                "-x",
                "-p",
                "no:cacheprovider",
                *named_tests(mutant.caught_by),
            ]
        path = os.pathsep.join((str(where / "src"), str(where)))
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}
        try:
            done = subprocess.run(
                [sys.executable, "-m", *command],
                cwd=where,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=_PATIENCE,
            )
        except subprocess.TimeoutExpired:
            return Outcome(mutant, None, _PATIENCE, "no end")
    seconds = time.perf_counter() - begin
    return _judged(mutant, done, seconds)


def _judged(mutant: Mutant, done: subprocess.CompletedProcess[str], seconds: float) -> Outcome:
    last = (done.stdout.strip() or done.stderr.strip() or "it said nothing").splitlines()[-1]
    if mutant.caught_by == SIMULATION:
        seed = re.search(r"^seed (\d+): (.*)", done.stdout, re.MULTILINE)
        if done.returncode == 1 and seed is not None:
            if not _is_sound(seed[1]):
                return Outcome(mutant, None, seconds, f"seed {seed[1]} fails without it, too")
            return Outcome(mutant, f"seed {seed[1]}", seconds, seed[2])
    elif done.returncode == 1 and "failed" in last:
        return Outcome(mutant, mutant.caught_by, seconds, last)
    return Outcome(mutant, None, seconds, last)


def _is_sound(seed: str) -> bool:
    """Return whether the tree as it is passes a seed: only then the mutant was caught."""
    command = [sys.executable, "-m", "tests.proof.simulation", "--seed", seed]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=_PATIENCE)
    return done.returncode == 0


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("words", nargs="*", help="only mutants whose names hold one of these")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    chosen = [m for m in MUTANTS if not given.words or any(w in m.name for w in given.words)]
    survived = 0
    print(f"{'without':<66} {'caught by':<44} {'s':>5}")
    with ThreadPoolExecutor(given.jobs) as pool:
        for outcome in pool.map(hunt, chosen):
            survived += outcome.caught is None
            caught = outcome.caught or "NOBODY"
            print(f"{outcome.mutant.name:<66} {caught:<44} {outcome.seconds:5.0f}", flush=True)
            print(f"    {outcome.detail[:150]}", flush=True)
    print(f"{len(chosen)} mutants, {len(chosen) - survived} caught")
    return 1 if survived or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
