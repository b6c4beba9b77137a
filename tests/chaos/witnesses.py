"""Promises judged by what others saw or wrote down: zombies, readers, dead letters, bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from consumers import topics
from tests.chaos.facts import Facts, Verdict
from tests.chaos.history import Json

_MIXED = 1e-6


def what_was_seen_stands(facts: Facts) -> Verdict:
    """What watchers and subscribers saw meanwhile is what is there in the end."""
    verdict = Verdict("published versions contradicted")
    there = {
        (model, version["version"], version["digest"])
        for model, versions in facts.versions.items()
        for version in versions
    }
    for seen in facts.history.live:
        good = (seen.model, seen.version, seen.digest) in there
        verdict.look(good, f"the {seen.who} saw {seen.model} {seen.version} {seen.digest[:12]}")
    for broken in facts.history.broken:
        verdict.look(good=False, what=broken)
    return verdict


def garbage_is_told_once(facts: Facts) -> Verdict:
    """Every unreadable record is in dead letters once, byte for byte, and nothing else is."""
    verdict = Verdict("unreadable records not exactly once in dead letters")
    letters: dict[str, set[bytes]] = defaultdict(set)
    for record in facts.history.topics.get(topics.DEAD_LETTERS, []):
        source = record.headers.get("lethe-source", b"").decode()
        verdict.notes["repeats, byte for byte"] += record.value in letters[source]
        letters[source].add(record.value)
    expected: dict[str, bytes] = {}
    for record in facts.history.topics.get(topics.DELETIONS, []):
        if record.value in facts.history.garbage:
            topic, partition, offset = record.source
            expected[f"{topic}/{partition}/{offset}"] = record.value
    for source, value in expected.items():
        verdict.look(letters.pop(source, set()) == {value}, f"{source} is not in dead letters")
    for source in letters:
        verdict.look(good=False, what=f"{source} is in dead letters, and was no garbage")
    arrived = set(expected.values())
    for value, acknowledged in facts.history.garbage.items():
        if acknowledged:
            verdict.look(value in arrived, f"{value[:40]!r} never arrived")
    return verdict


def no_zombie_writes(facts: Facts) -> Verdict:
    """Within a lineage of the store each commit follows the one before it, and only one does.

    A worker that lost its partition holds an older state: a commit of its that was accepted on it
    would take the place of another's, or leave one out.
    """
    verdict = Verdict("accepted writes by zombies")
    accepted: dict[tuple[int, str, int], str] = {}
    for line in facts.history.diaries:
        if line["what"] != "commit":
            continue
        if line["lineage"] is None:
            verdict.notes["commits of an unknown lineage"] += 1
            continue
        follows = line["sequence"] == line["expected"] + 1
        place = (line["lineage"], line["model"], line["sequence"])
        other = accepted.setdefault(place, line["who"])
        good = follows and other == line["who"]
        verdict.look(good, f"{place}: accepted from {other} and from {line['who']}")
    verdict.notes["by a worker after another's, on the newest state"] = _late(facts.history.diaries)
    return verdict


def _late(diaries: Iterable[Json]) -> int:
    """Count commits of workers between another's commit and being assigned the partition again.

    They are valid: such a worker was refused, read the newest state, and decided what was not
    decided. The compare-and-set lets nothing else pass.
    """
    owner: dict[tuple[str, str], str] = {}
    assigned: dict[tuple[str, str], float] = {}
    late = 0
    taken: dict[tuple[str, str], float] = {}
    for line in diaries:
        if line["what"] == "seek":
            assigned[line["who"], line["partition"]] = line["t"]
        elif line["what"] == "commit" and line["partition"]:
            place = (line["model"], line["partition"])
            who = line["who"]
            if owner.get(place, who) != who:
                late += assigned.get((who, line["partition"]), 0.0) < taken.get(place, 0.0)
            if owner.get(place) != who:
                taken[place] = line["t"]
            owner[place] = who
    return late


def no_mixed_reads(facts: Facts) -> Verdict:
    """What a reader got belongs together, and is what was published under its digest."""
    verdict = Verdict("reads of two generations mixed")
    named = {
        (model, version["digest"]): version["parameters_digest"]
        for model, versions in facts.versions.items()
        for version in versions
    }
    for read in facts.history.reads:
        published = named.get((read.model, read.digest))
        if published is None:
            verdict.notes["of versions that the store lost before they were published"] += 1
        good = published in (None, read.parameters_digest) and read.mismatch < _MIXED
        verdict.look(good, f"{read.who} of {read.model} {read.version}: {read.mismatch:.1e}")
    return verdict


def deleted_bytes_are_gone(facts: Facts) -> Verdict:
    """Numbers of deleted rows are found nowhere, and those of live rows are: the search finds."""
    verdict = Verdict("places that still hold bytes of deleted rows")
    for place, found in facts.history.remains.items():
        verdict.look(found["deleted"] == 0, f"{place}: {found['deleted']} numbers of deleted rows")
        verdict.notes["numbers in staged keys, which expire"] = facts.history.staged
        if found["live"] == 0 and place != "kafka":
            verdict.wrong.append(f"{place}: not even live rows are found: the search is broken")
    return verdict


def nobody_left(facts: Facts) -> Verdict:
    """No worker ended by itself."""
    verdict = Verdict("workers that ended by themselves")
    ended = {
        line["who"]: line["reason"] for line in facts.history.diaries if line["what"] == "ended"
    }
    verdict.cases = len({line["who"] for line in facts.history.diaries})
    verdict.wrong = [
        f"{who}: {ended.get(who, 'no reason given')}" for who in facts.history.deserters
    ]
    return verdict
