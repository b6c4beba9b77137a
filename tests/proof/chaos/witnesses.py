"""Promises judged by what others saw or wrote down: zombies, readers, dead letters, bytes."""

from __future__ import annotations

import hashlib
from collections import defaultdict

from lethe.consumers.contract import topics
from tests.proof.chaos.facts import Facts, Verdict

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
        verdict.check(good, f"the {seen.who} saw {seen.model} {seen.version} {seen.digest[:12]}")
    for broken in facts.history.broken:
        verdict.check(good=False, what=broken)
    return verdict


def garbage_is_told_once(facts: Facts) -> Verdict:
    """Every unreadable record is in dead letters once, byte for byte, and nothing else is.

    Of a change of rows its digest is there. A record need not be there that was lost with its
    topic.
    """
    verdict = Verdict("unreadable records not exactly once in dead letters")
    letters: dict[str, set[bytes]] = defaultdict(set)
    for record in facts.history.topics.get(topics.DEAD_LETTERS, []):
        source = record.headers.get("lethe-source", b"").decode()
        verdict.notes["repeats, byte for byte"] += record.value in letters[source]
        letters[source].add(record.value)
    expected: dict[str, dict[int, bytes]] = defaultdict(dict)
    arrived: set[bytes] = set()
    requests = (topics.DELETIONS, topics.ROW_CHANGES)
    for record in (r for topic in requests for r in facts.history.topics.get(topic, [])):
        if record.value in facts.history.garbage:
            topic, partition, offset = record.source
            changes = topic == topics.ROW_CHANGES  # of these, dead letters have the digest alone
            told = hashlib.sha256(record.value).hexdigest().encode() if changes else record.value
            expected[f"{topic}/{partition}/{offset}"][record.life] = told
            arrived.add(record.value)
    for source, values in expected.items():
        there = letters[source]
        verdict.check(values.get(0) in {None, *there}, f"{source} is not in dead letters")
        there -= set(values.values())
    for source, others in letters.items():
        verdict.check(not others, f"{source} is in dead letters, and was no garbage")
    for value, acknowledged in facts.history.garbage.items():
        if acknowledged:
            verdict.check(value in arrived, f"{value[:40]!r} never arrived")
    return verdict


def no_zombie_writes(facts: Facts) -> Verdict:
    """Whatever a store took as a commit is the one of that number in the log, at any time.

    Also a store that lost writes, or was restored: there is one chain, and no other was ever
    applied anywhere.
    """
    verdict = Verdict("commits that a store took and the log does not have")
    chains = {model: facts.chain(model) for model in facts.history.finals}
    for line in facts.history.diaries:
        if line["what"] != "commit":
            continue
        verdict.notes[f"answered {line['applied']}"] += 1
        if line["applied"] not in ("APPLIED", "ALREADY"):
            continue
        chain = chains.get(line["model"], {})
        counts = chain.get(line["commit"])
        good = counts is not None and counts.digest == line["digest"]
        verdict.check(good, f"{line['model']} {line['commit']}: {line['who']} applied another one")
    return verdict


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
        good = published == read.parameters_digest and read.mismatch < _MIXED
        verdict.check(good, f"{read.who} of {read.model} {read.version}: {read.mismatch:.1e}")
    return verdict


def deleted_bytes_are_gone(facts: Facts) -> Verdict:
    """Numbers of deleted rows are found nowhere, and those of live rows are: the search finds."""
    verdict = Verdict("places that still hold bytes of deleted rows")
    for place, found in facts.history.remains.items():
        verdict.check(found["deleted"] == 0, f"{place}: {found['deleted']} numbers of deleted rows")
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
