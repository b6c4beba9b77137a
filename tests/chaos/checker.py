"""Judges a run by what it left behind: every promise, how often it was looked at, what broke it.

Pure functions of a `History`. Digests and oracles are computed here anew, by code that the
product does not use (`rfc8785`, `hashlib`, `tests.oracles`).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import rfc8785

from consumers import topics
from tests.chaos.history import Asked, History, Json, Record, Source

_SHOWN = 5
_MIXED = 1e-6


@dataclass
class Verdict:
    """A promise: how many cases were looked at, and what is wrong."""

    promise: str
    cases: int = 0
    wrong: list[str] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)

    def look(self, good: bool, what: Callable[[], str] | str) -> None:
        """Look at one case."""
        self.cases += 1
        if not good:
            self.wrong.append(what if isinstance(what, str) else what())

    def __str__(self) -> str:
        shown = "".join(f"\n    {one}" for one in self.wrong[:_SHOWN])
        more = len(self.wrong) - _SHOWN
        shown += f"\n    and {more} more" if more > 0 else ""
        notes = "".join(f"; {name}: {count}" for name, count in self.notes.items())
        return f"{len(self.wrong)} of {self.cases}  {self.promise}{notes}{shown}"


class Facts:
    """What several promises look at, sorted once."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.contents: dict[tuple[str, str], list[Asked]] = defaultdict(list)
        for asked in history.asked:
            self.contents[asked.model, asked.request_id].append(asked)
        self.acknowledged = {
            (asked.model, asked.request_id) for asked in history.asked if asked.acknowledged
        }
        self.sent = [r for r in history.topics.get(topics.DELETIONS, []) if _is_request(r)]
        self.at = {record.source: record for record in self.sent}
        self.receipts = [
            record for record in history.topics.get(topics.RECEIPTS, []) if record.data is not None
        ]
        self.finals: dict[tuple[str, str], dict[bytes, Json]] = defaultdict(dict)
        self.conflicts: dict[Source, dict[bytes, Json]] = defaultdict(dict)
        for record in self.receipts:
            receipt = record.data or {}
            name = (receipt["model_id"], receipt["request_id"])
            if receipt["code"] == "REQUEST_ID_CONFLICT":
                self.conflicts[_source(receipt)][record.value] = receipt
            elif receipt["status"] != "DEFERRED":
                self.finals[name][record.value] = receipt
        self.versions: dict[str, list[Json]] = defaultdict(list)
        for record in history.topics.get(topics.VERSIONS, []):
            self.versions[record.key.decode()].append(record.data or {})

    def final(self, name: tuple[str, str]) -> Json | None:
        """Return the first of a request's final receipts."""
        return next(iter(self.finals.get(name, {}).values()), None)

    def rows(self, model: str, content: tuple[object, ...]) -> list[str]:
        """Return the member rows that a request names."""
        rows, subject = content
        n = len(self.history.data[model].X)
        if isinstance(subject, str):
            first = 3 * int(subject.rpartition("-")[2])
            return [f"row-{i}" for i in range(first, min(first + 3, n))]
        assert isinstance(rows, tuple)
        kept = (row for row in rows if row.startswith("row-"))
        return [row for row in kept if int(row.rpartition("-")[2]) < n]


def _is_request(record: Record) -> bool:
    data = record.data or {}
    return "request_id" in data and ("row_ids" in data or "subject_id" in data)


def content_of(data: Json) -> tuple[object, ...]:
    """Return what makes two requests the same."""
    rows = data.get("row_ids")
    return (None if rows is None else tuple(sorted(set(rows))), data.get("subject_id"))


def _source(receipt: Json) -> Source:
    where = receipt["source"]
    return where["topic"], where["partition"], where["offset"]


# -- requests and receipts ----------------------------------------------------------------------


def one_final_receipt(facts: Facts) -> Verdict:
    """Every acknowledged request has exactly one final receipt; others have at most one."""
    verdict = Verdict("acknowledged requests without exactly one final receipt")
    for name in facts.contents:
        count = len(facts.finals.get(name, {}))
        acknowledged = name in facts.acknowledged
        good = count == 1 if acknowledged else count <= 1
        verdict.look(good, lambda name=name, n=count: f"{name}: {n} final receipts")  # type: ignore[misc]  # bound now
        verdict.notes["never acknowledged"] += not acknowledged
    for name in facts.finals:
        if name not in facts.contents:
            verdict.wrong.append(f"{name}: a receipt of a request that nobody sent")
    return verdict


def conflicts_are_told(facts: Facts) -> Verdict:
    """Each record that reuses an id for other rows has one conflict receipt; no other has."""
    verdict = Verdict("records whose repeat or conflict was answered wrongly")
    for record in facts.sent:
        data = record.data or {}
        final = facts.final((data["model_id"], data["request_id"]))
        if final is None:
            continue
        first = facts.at.get(_source(final))
        if first is None or first.data is None:
            verdict.look(good=False, what=f"{data['request_id']}: its receipt names another record")
            continue
        differs = content_of(data) != content_of(first.data)
        told = len(facts.conflicts.get(record.source, {}))
        verdict.look(told == int(differs), f"{record.source}: {told} conflict receipts")
        verdict.notes["conflicts"] += differs
    return verdict


def receipts_in_order(facts: Facts) -> Verdict:
    """First receipts of a model's records come in the order of the records."""
    verdict = Verdict("receipts out of order")
    last: dict[tuple[str, int], int] = {}
    seen: set[bytes] = set()
    waited = {
        (r["model_id"], r["request_id"])
        for record in facts.receipts
        for r in [record.data or {}]
        if r["status"] == "DEFERRED"
    }
    for record in facts.receipts:
        receipt = record.data or {}
        if record.value in seen:
            verdict.notes["repeats, byte for byte"] += 1
            continue
        seen.add(record.value)
        if (receipt["model_id"], receipt["request_id"]) in waited and receipt[
            "status"
        ] != "DEFERRED":
            continue  # it came with a rebuild
        _, partition, offset = _source(receipt)
        place = (receipt["model_id"], partition)
        good = offset > last.get(place, -1)
        verdict.look(good, f"{receipt['request_id']} of {place}: {offset} after {last.get(place)}")
        last[place] = max(offset, last.get(place, -1))
    return verdict


def outcomes_are_right(facts: Facts) -> Verdict:
    """A receipt says what its rows say: applied, unknown, or of an unknown model."""
    verdict = Verdict("receipts that say what is not so")
    for name, finals in facts.finals.items():
        for receipt in finals.values():
            first = facts.at.get(_source(receipt))
            if first is None or first.data is None:
                continue
            model, content = name[0], content_of(first.data)
            code, status = receipt["code"], receipt["status"]
            if model not in facts.history.data:
                verdict.look(code == "UNKNOWN_MODEL", f"{name}: {status} {code}")
                continue
            ledger = facts.history.finals[model].ledger
            rows = facts.rows(model, content)
            if not rows:
                verdict.look(code == "UNKNOWN_ROWS", f"{name}: {status} {code}")
                continue
            gone = all(ledger.get(row, 1 << 60) <= (receipt["version"] or 0) for row in rows)
            good = gone and status in ("APPLIED", "ALREADY_APPLIED")
            verdict.look(good, f"{name}: {status} {code}, and its rows are not all deleted by then")
    return verdict


def no_row_twice(facts: Facts) -> Verdict:
    """No row's deletion took effect twice."""
    verdict = Verdict("rows whose deletion took effect twice, or that nobody counted")
    for model, final in facts.history.finals.items():
        doubled = [row for row, n in Counter(final.deletions).items() if n > 1]
        verdict.look(not doubled, f"{model}: {doubled[:3]} are listed twice")
        claimed = sum(
            receipt["rows_deleted"]
            for (of, _), finals in facts.finals.items()
            if of == model
            for receipt in finals.values()
            if receipt["status"] == "APPLIED"
        )
        verdict.cases += len(final.ledger) - 1
        if claimed != len(final.ledger):
            verdict.wrong.append(
                f"{model}: receipts count {claimed} deleted rows, the ledger has "
                f"{len(final.ledger)}"
            )
        named = Counter(
            request
            for version in _distinct(facts.versions[model])
            for request in version["request_ids"]
        )
        twice = [request for request, n in named.items() if n > 1]
        verdict.look(not twice, f"{model}: {twice[:3]} made two versions")
    return verdict


def ledger_is_the_union(facts: Facts) -> Verdict:
    """The deleted set in state is the union of what was applied."""
    verdict = Verdict("rows deleted and not asked for, or asked for and not deleted")
    for model, final in facts.history.finals.items():
        asked: set[str] = set()
        for name, finals in facts.finals.items():
            for receipt in finals.values():
                first = facts.at.get(_source(receipt))
                if name[0] == model and receipt["status"] == "APPLIED" and first is not None:
                    asked.update(facts.rows(model, content_of(first.data or {})))
        for row in asked | final.ledger.keys():
            verdict.look(row in asked and row in final.ledger, f"{model}: {row}")
        listed = set(final.deletions) == final.ledger.keys()
        verdict.look(listed, f"{model}: the list of deletions is not the ledger")
        everything = {f"row-{i}" for i in range(len(facts.history.data[model].X))}
        held = final.rows == everything - final.ledger.keys()
        verdict.look(held, f"{model}: stored rows are not those that live")
    return verdict


# -- versions --------------------------------------------------------------------------------------


def digest_of(version: Json) -> str:
    """Return the digest that a version must have."""
    content = {name: value for name, value in version.items() if name != "digest"}
    return hashlib.sha256(rfc8785.dumps(content)).hexdigest()


def _distinct(versions: Iterable[Json]) -> list[Json]:
    return [json.loads(one) for one in dict.fromkeys(json.dumps(v) for v in versions)]


def versions_are_a_chain(facts: Facts) -> Verdict:
    """Versions are dense, hash-linked, and have one digest each."""
    verdict = Verdict("versions with a gap, a fork, a reuse or a broken link")
    for model in facts.history.data:
        published = facts.versions[model]
        distinct = _distinct(published)
        verdict.notes["repeats, byte for byte"] += len(published) - len(distinct)
        previous: Json | None = None
        for version in distinct:
            number = 0 if previous is None else previous["version"] + 1
            before = "" if previous is None else previous["digest"]
            good = (
                version["version"] == number
                and version["prev_digest"] == before
                and version["digest"] == digest_of(version)
            )
            verdict.look(good, f"{model}: version {version['version']} where {number} should be")
            previous = version if good else previous
    return verdict


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


def state_is_the_log(facts: Facts) -> Verdict:
    """The stored state is what the log says: version, digest, offsets, receipts, nothing left."""
    verdict = Verdict("facts of the stored state that the log does not have, or the other way")
    ends: dict[tuple[str, int], int] = {}
    for record in facts.sent:
        place = ((record.data or {})["model_id"], record.source[1])
        ends[place] = max(ends.get(place, 0), record.source[2] + 1)
    for model, final in facts.history.finals.items():
        newest = facts.versions[model][-1] if facts.versions[model] else {}
        last = max(facts.versions[model], key=lambda v: int(v["version"]), default=newest)
        same = (final.version, final.digest) == (last.get("version"), last.get("digest"))
        verdict.look(same, f"{model}: the store holds version {final.version}, not the log's last")
        for (of, partition), end in ends.items():
            if of == model:
                decided = final.offsets.get(partition, 0)
                verdict.look(decided >= end, f"{model}: {decided} of {end} records are decided")
        for request, (mark, stored) in final.receipts.items():
            said = facts.finals.get((model, request), {})
            good = mark == "F" and stored.encode() in said
            verdict.look(good, f"{model}: the stored receipt of {request} was never published")
        for of, request in facts.finals:
            if of == model:
                verdict.look(request in final.receipts, f"{model}: {request} is not stored")
        for what, count in final.leftovers.items():
            verdict.look(count == 0, f"{model}: {count} {what}")
    return verdict


# -- bad records, zombies, readers, bytes --------------------------------------------------------


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


PROMISES: tuple[Callable[[Facts], Verdict], ...] = (
    one_final_receipt,
    conflicts_are_told,
    outcomes_are_right,
    receipts_in_order,
    no_row_twice,
    ledger_is_the_union,
    versions_are_a_chain,
    what_was_seen_stands,
    state_is_the_log,
    no_zombie_writes,
    no_mixed_reads,
    garbage_is_told_once,
    deleted_bytes_are_gone,
    nobody_left,
)


def judge(history: History) -> list[Verdict]:
    """Return the verdict on every promise but that of the bound (`tests.chaos.bound`)."""
    facts = Facts(history)
    return [promise(facts) for promise in PROMISES]
