"""Fuzz every decoder, guided by coverage, one after another; print what was done and found.

    python -m tests.proof.fuzz [--seconds 60] [--only NAME ...]

What was found worth keeping stays in build/fuzz/NAME and is where the next run begins. An input
that breaks its harness is left there as ``crash-...``, ``timeout-...`` or ``oom-...``; give it to
the harness again with ``python -m tests.proof.fuzz --again FILE --only NAME``.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.proof.fuzz import guided  # first: it instruments what is imported
from tests.proof.fuzz.contract import Harness, check
from tests.proof.fuzz.harnesses import HARNESSES
from tests.proof.fuzz.hostile import bombs

WORK = Path(__file__).resolve().parents[3] / "build" / "fuzz"
MAX_LENGTH = 16_384
"""Long enough for every field of every format; sizes are the bombs' subject."""
HANG_SECONDS = 120
"""By the clock on the wall: a busy machine makes no hangs. The cap is `contract.SECONDS`."""
RSS_MEGABYTES = 2048
_GRACE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one harness did."""

    name: str
    executions: int
    edges: int
    peak_megabytes: int
    failure: str = ""


def fuzz(harness: Harness, seconds: int) -> Outcome:
    """Run one harness in a process of its own."""
    corpus = WORK / harness.name
    corpus.mkdir(parents=True, exist_ok=True)
    for data in (*harness.seeds(), *bombs(2048)):
        (corpus / f"seed-{hashlib.sha256(data).hexdigest()[:16]}").write_bytes(data)
    options = [
        *(str(corpus), f"-artifact_prefix={corpus}/", f"-max_total_time={seconds}"),
        *(f"-max_len={MAX_LENGTH}", f"-timeout={HANG_SECONDS}", f"-rss_limit_mb={RSS_MEGABYTES}"),
        *("-print_final_stats=1", "-verbosity=1"),
    ]
    log = WORK / f"{harness.name}.log"
    ended = _in_child(harness.name, options, log, seconds + _GRACE_SECONDS)
    said = log.read_text(encoding="utf-8", errors="replace")
    edges = [int(found) for found in re.findall(r"\bcov: (\d+)", said)]
    failure = ""
    if ended:
        broken = re.findall(r"(?:Broken|Error|ERROR)[^\n]*", said)
        failure = (broken[0] if broken else f"exit code {ended}")[:300] + f" (see {log})"
    return Outcome(
        harness.name,
        _stat(said, "number_of_executed_units"),
        max(edges, default=0),
        _stat(said, "peak_rss_mb"),
        failure,
    )


def _in_child(name: str, options: Sequence[str], log: Path, seconds: float) -> int:
    """Fuzz in a copy of this process, which has everything imported; return its exit code."""
    child = os.fork()
    if child == 0:
        with log.open("wb", buffering=0) as out, Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
        guided.run(name, options)  # ends the process, and writes down what broke it
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -signal.SIGKILL


def _stat(said: str, name: str) -> int:
    found = re.search(rf"stat::{name}:\s+(\d+)", said)
    return int(found[1]) if found else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz; return 1 if a harness was broken."""
    parser = argparse.ArgumentParser(description="Fuzz every decoder, guided by coverage.")
    parser.add_argument("--seconds", type=int, default=60, help="for each harness")
    parser.add_argument("--only", nargs="+", choices=list(HARNESSES), help="these harnesses")
    parser.add_argument("--again", type=Path, help="give this one input to the harness")
    given = parser.parse_args(arguments)
    chosen = [HARNESSES[name] for name in given.only or HARNESSES]
    if given.again is not None:
        for harness in chosen:
            taken = check(harness, given.again.read_bytes())
            print(f"{harness.name}: {'taken' if taken else 'refused'}")
        return 0
    print(f"{'harness':<18} {'executions':>11} {'edges':>6} {'peak MB':>8}  crashes")
    outcomes: list[Outcome] = []
    for harness in chosen:
        done = fuzz(harness, given.seconds)
        outcomes.append(done)
        failed = f"1: {done.failure}" if done.failure else "0"
        print(
            f"{done.name:<18} {done.executions:>11,} {done.edges:>6,} {done.peak_megabytes:>8,}"
            f"  {failed}",
            flush=True,
        )
    total = sum(done.executions for done in outcomes)
    broken = [done.name for done in outcomes if done.failure]
    print(f"{total:,} executions of {len(outcomes)} harnesses; {len(broken)} broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
