"""The figures of a run, and the short report that is printed of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Any

from tests.proof.chaos.facts import Verdict
from tests.proof.chaos.faults import IN_PEACE
from tests.proof.chaos.history import History, Json
from tests.proof.chaos.run import Outcome, Settings
from tests.support.servers import ROOT

Figures = dict[str, Any]


def recoveries(history: History, outcome: Outcome, kind: str) -> list[float]:
    """Return the seconds from each kill of a worker to the next applied request of its partitions.

    Kills of workers that held no partition, and those with nothing applied after, do not count.
    """
    held: dict[str, set[str]] = {}
    applied: dict[str, list[float]] = {}
    kills = {one.whom: one.begin for one in outcome.faults.happened if one.kind == kind}
    for line in history.diaries:
        who = line["who"]
        if line["what"] == "seek" and line["t"] <= kills.get(who, line["t"]):
            held.setdefault(who, set()).add(line["partition"])
        elif line["what"] == "lost":
            held.get(who, set()).difference_update(line["partitions"])
        elif line["what"] == "commit" and line["deleted"]:
            for partition in line["partitions"]:
                applied.setdefault(partition, []).append(line["t"])
    times = []
    for who, moment in kills.items():
        for partition in held.get(who, ()):
            after = [t for t in applied.get(partition, ()) if t > moment]
            if after:
                times.append(min(after) - moment)
    return times


def figures(
    settings: Settings,
    outcome: Outcome,
    history: History,
    verdicts: Sequence[Verdict],
    seconds: float,
) -> Figures:
    """Return everything that is to be told, as plain values."""
    lost = [loss for loss in outcome.store.losses if loss.commits]
    kinds = Counter(loss.how for loss in lost)
    problems = list(outcome.failures) + [f"a fault failed: {e}" for e in outcome.faults.errors]
    problems += [f"recovery: {error}" for error in outcome.operator.errors]
    if not history.topics:
        history.topics["lethe.receipts"] = []
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": _commit(),
        "seed": settings.seed,
        "pause": settings.pause,
        "rate": settings.rate,
        "partitions": settings.partitions,
        "seconds_of_faults": settings.seconds,
        "seconds": round(seconds, 1),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "requests": outcome.producers.sent,
        "requests_distinct": len({(a.model, a.request_id) for a in history.asked}),
        "rows_deleted": sum(len(final.ledger) for final in history.finals.values()),
        "garbage": len(history.garbage),
        "versions": len({(one.model, one.version) for one in history.live}),
        "erasures": outcome.askers.sent,
        "topics_recovered": dict(sorted(outcome.operator.recovered.items())),
        "sent_again": dict(sorted(outcome.operator.sent_again.items())),
        "durability": settings.durability,
        "commits": sum(
            line["what"] == "commit" and line["applied"] == "APPLIED" for line in history.diaries
        ),
        "data_lost": sum(
            (r.data or {}).get("code") == "DATA_LOST" for r in history.topics["lethe.receipts"]
        ),
        "faults": len(outcome.faults.happened),
        "faults_by_kind": dict(sorted(outcome.faults.counts().items())),
        "fault_seconds_by_kind": {
            kind: round(sum(h.end - h.begin for h in outcome.faults.happened if h.kind == kind), 1)
            for kind in sorted(outcome.faults.counts())
        },
        "losses": {
            how: {
                "happened": sum(one.how == how for one in outcome.store.losses),
                "lost commits": kinds[how],
                "commits lost": sum(one.commits for one in lost if one.how == how),
            }
            for how in sorted({one.how for one in outcome.store.losses})
        },
        "losses_by_durability": dict(Counter(one.durability for one in lost)),
        "refreshes": _refreshes(history),
        "recovery_seconds": _spread(recoveries(history, outcome, IN_PEACE)),
        "recovery_seconds_among_other_faults": _spread(
            recoveries(history, outcome, "worker: SIGKILL")
        ),
        "liveness_seconds": None if outcome.liveness is None else round(outcome.liveness, 1),
        "promises": [
            {
                "promise": verdict.promise,
                "broken": len(verdict.wrong),
                "of": verdict.cases,
                "notes": dict(verdict.notes),
                "examples": verdict.wrong[:20],
            }
            for verdict in verdicts
        ],
        "halts": dict(outcome.halts),
        "forks": forks(history),
        "problems": problems,
        "failed": bool(problems or not verdicts or any(verdict.wrong for verdict in verdicts)),
    }


def _commit() -> str | None:
    """Return the commit of the tree that runs; None where it is no clone."""
    git = shutil.which("git")
    if git is None:
        return None
    command = [git, "-C", str(ROOT), "rev-parse", "--short=7", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def forks(history: History) -> list[str]:
    """Return, for each version that was sent with two digests, who sent each and when."""
    sent: dict[tuple[str, int], dict[str, tuple[str, float]]] = {}
    for line in history.diaries:
        if line["what"] == "sending":
            for model, version, digest in line["versions"]:
                sent.setdefault((model, version), {}).setdefault(digest, (line["who"], line["t"]))
    return [
        f"{model} version {version} was sent as "
        + " and as ".join(f"{d[:12]} by {who} at {t:.3f}" for d, (who, t) in digests.items())
        for (model, version), digests in sent.items()
        if len(digests) > 1
    ]


def _spread(times: list[float]) -> dict[str, float | None]:
    return {
        "partitions": len(times),
        "median": round(median(times), 2) if times else None,
        "worst": round(max(times), 2) if times else None,
    }


def _refreshes(history: History) -> dict[str, int]:
    sizes: Counter[str] = Counter()
    seen: set[str] = set()
    for record in history.topics.get("lethe.versions", []):
        version: Json = record.data or {}
        if version.get("refresh") and version["digest"] not in seen:
            seen.add(version["digest"])
            sizes[version["refresh"]["size"]] += 1
    return dict(sizes)


def report(found: Figures) -> str:
    """Return the short report."""
    peace, war = found["recovery_seconds"], found["recovery_seconds_among_other_faults"]
    lines = [
        f"seed {found['seed']}: {found['requests']} requests, {found['erasures']} erasures and "
        f"lifts, {found['versions']} versions, {found['rows_deleted']} rows deleted, "
        f"{found['faults']} faults in {found['seconds_of_faults']:g} s; "
        f"{found['seconds']:g} s in all",
        *(f"  {count:6d}  {kind}" for kind, count in found["faults_by_kind"].items()),
        *(
            f"  {how}: {n['happened']}, {n['lost commits']} lost {n['commits lost']} commits"
            for how, n in found["losses"].items()
        ),
        f"losses by what the store synced: {found['losses_by_durability']}; "
        f"answers DATA_LOST: {found['data_lost']}",
        "refreshes: " + ", ".join(f"{n} {size}" for size, n in found["refreshes"].items()),
        f"from kill -9 of a worker to the next applied request of its partitions: median "
        f"{peace['median']} s, worst {peace['worst']} s (of {peace['partitions']}); while other "
        f"faults went on: {war['median']} s, {war['worst']} s (of {war['partitions']})",
        f"everything decided {found['liveness_seconds']} s after the last fault",
        *(f"  halted {n} times: {reason}" for reason, n in found["halts"].items()),
        *(f"  fork: {fork}" for fork in found["forks"]),
        *(f"  PROBLEM  {problem}" for problem in found["problems"]),
    ]
    for one in found["promises"]:
        notes = "".join(f"; {name}: {n}" for name, n in one["notes"].items())
        mark = "BROKEN" if one["broken"] else "held  "
        lines.append(f"  {mark}  {one['broken']} of {one['of']}  {one['promise']}{notes}")
        lines += [f"            {example}" for example in one["examples"][:5]]
    return "\n".join(lines)
