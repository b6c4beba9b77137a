"""Judges a run by what it left behind: every promise, how often it was looked at, what broke it.

Pure functions of a `History`. Digests and oracles are computed here anew, by code that the product
does not use (`rfc8785`, `hashlib`, `tests.support.oracles`). What others saw or wrote down is
judged in `tests.proof.chaos.witnesses`, theta in `tests.proof.chaos.bound`.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable

import rfc8785

from tests.proof.chaos.erasing import one_combined_receipt, the_erased_stay_away
from tests.proof.chaos.facts import Facts, Verdict, content_of
from tests.proof.chaos.history import History, Json, source_of
from tests.proof.chaos.witnesses import (
    deleted_bytes_are_gone,
    garbage_is_told_once,
    no_mixed_reads,
    no_zombie_writes,
    nobody_left,
    what_was_seen_stands,
)

# -- requests and receipts ----------------------------------------------------------------------


def one_final_receipt(facts: Facts) -> Verdict:
    """Every acknowledged request has exactly one final receipt; others have at most one.

    Of a model that nobody registered nothing is kept, so that each record has an answer of its own:
    at most one if its topic was made again since.
    """
    verdict = Verdict("acknowledged requests without exactly one final receipt")
    for record in facts.sent:
        data = record.data or {}
        name = (data["model_id"], data["request_id"])
        if name[0] not in facts.history.data:
            count = sum(facts.request_of(r) is record for r in facts.finals.get(name, {}).values())
            good = count == 1 or (count == 0 and record.life < 0)
            verdict.check(good, f"{record.source}: {count} answers")
    for name in facts.contents:
        if name[0] not in facts.history.data:
            continue
        count = len(facts.finals.get(name, {}))
        acknowledged = name in facts.acknowledged
        good = count == 1 if acknowledged else count <= 1
        verdict.check(good, lambda name=name, n=count: f"{name}: {n} final receipts")  # type: ignore[misc]  # bound now
        verdict.notes["never acknowledged"] += not acknowledged
    for name in facts.finals:
        if name not in facts.contents:
            verdict.wrong.append(f"{name}: a receipt of a request that nobody sent")
    return verdict


def conflicts_are_told(facts: Facts) -> Verdict:
    """Each record that reuses an id for other rows has one conflict receipt; no other has.

    A record may have none that was lost with its topic.
    """
    verdict = Verdict("records whose repeat or conflict was answered wrongly")
    for record in facts.sent:
        data = record.data or {}
        final = facts.final((data["model_id"], data["request_id"]))
        if data["model_id"] not in facts.history.data:
            told = sum(
                facts.request_of(receipt) is record
                for receipt in facts.conflicts.get(record.source, {}).values()
            )
            verdict.check(told == 0, f"{record.source}: {told} conflict receipts of no model")
            continue
        if final is None:
            continue
        first = facts.request_of(final)
        if first is None or first.data is None:
            verdict.check(good=False, what=f"{data['request_id']}: a receipt names another record")
            continue
        differs = content_of(data) != content_of(first.data)
        conflicts = facts.conflicts.get(record.source, {})
        told = sum(facts.request_of(receipt) is record for receipt in conflicts.values())
        good = told == int(differs) or (told == 0 and record.life < 0)
        verdict.check(good, f"{record.source}: {told} conflict receipts")
        verdict.notes["conflicts"] += differs
    return verdict


def receipts_in_order(facts: Facts) -> Verdict:
    """First receipts of a model's records come in the order of the records."""
    verdict = Verdict("receipts out of order")
    last: dict[tuple[str, str, int, int], int] = {}
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
        topic, partition, offset = source_of(receipt)
        request = facts.request_of(receipt)
        life = 0 if request is None else request.life
        place = (receipt["model_id"], topic, partition, life)
        good = offset > last.get(place, -1)
        verdict.check(good, f"{receipt['request_id']} of {place}: {offset} after {last.get(place)}")
        last[place] = max(offset, last.get(place, -1))
    return verdict


def outcomes_are_right(facts: Facts) -> Verdict:
    """A receipt says what its rows say: applied, unknown, or of an unknown model.

    Rows that come and go are judged at each commit (`tests.proof.live_rows`), and not here.
    """
    verdict = Verdict("receipts that say what is not so")
    for name, finals in facts.finals.items():
        for receipt in finals.values():
            first = facts.request_of(receipt)
            if first is None or first.data is None:
                continue
            model, content = name[0], content_of(first.data)
            code, status = receipt["code"], receipt["status"]
            if model not in facts.history.data:
                verdict.check(code == "UNKNOWN_MODEL", f"{name}: {status} {code}")
                continue
            ledger = facts.history.finals[model].ledger
            rows = facts.rows(model, content)
            if content[2] is not None or (not rows and facts.inserted(model, content)):
                continue
            if not rows:
                verdict.check(code == "UNKNOWN_ROWS", f"{name}: {status} {code}")
                continue
            gone = all(ledger.get(row, 1 << 60) <= (receipt["version"] or 0) for row in rows)
            good = gone and status in ("APPLIED", "ALREADY_APPLIED")
            verdict.check(good, f"{name}: {status} {code}, but some of its rows still live")
    return verdict


def no_row_twice(facts: Facts) -> Verdict:
    """No row's deletion took effect twice."""
    verdict = Verdict("rows whose deletion took effect twice, or that nobody counted")
    for model, final in facts.history.finals.items():
        doubled = [row for row, n in Counter(final.deletions).items() if n > 1]
        verdict.check(not doubled, f"{model}: {doubled[:3]} are listed twice")
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
        verdict.check(not twice, f"{model}: {twice[:3]} made two versions")
    return verdict


def ledger_is_the_union(facts: Facts) -> Verdict:
    """The deleted set in state is the union of what was applied."""
    verdict = Verdict("rows deleted and not asked for, or asked for and not deleted")
    for model, final in facts.history.finals.items():
        asked: set[str] = set()
        for name, finals in facts.finals.items():
            for receipt in finals.values():
                first = facts.request_of(receipt)
                if name[0] == model and receipt["status"] == "APPLIED" and first is not None:
                    content = content_of(first.data or {})
                    asked.update(facts.rows(model, content))
                    asked.update(facts.inserted(model, content) & final.ledger.keys())
        for row in asked | final.ledger.keys():
            verdict.check(row in asked and row in final.ledger, f"{model}: {row}")
        listed = set(final.deletions) <= final.ledger.keys()
        whole = final.deletions_from + len(final.deletions) == len(final.ledger)
        verdict.check(listed and whole, f"{model}: the list of deletions is not the ledger")
        held = final.rows == facts.history.rows[model].live.keys()
        verdict.check(held, f"{model}: stored rows are not those that live")
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
            verdict.check(good, f"{model}: version {version['version']} where {number} should be")
            previous = version if good else previous
    return verdict


def commits_are_a_chain(facts: Facts) -> Verdict:
    """Each version is made by one commit, in order; the store stands at the last commit."""
    verdict = Verdict("commits or versions that do not belong together")
    for model, final in facts.history.finals.items():
        chain = facts.chain(model)
        verdict.notes["commits"] += len(chain)
        last = chain.get(len(chain) - 1)
        same = last is not None and (last.number, last.digest) == (
            final.commit,
            final.commit_digest,
        )
        verdict.check(same, f"{model}: the store is at commit {final.commit} of {len(chain)}")
        made = {link.version: link for link in chain.values() if link.version is not None}
        for version in _distinct(facts.versions[model]):
            link = made.pop(version["version"], None)
            good = link is not None and (version["commit"], version["commit_prev"]) == (
                link.number,
                link.prev,
            )
            verdict.check(good, f"{model}: no commit made version {version['version']}")
        verdict.check(not made, f"{model}: versions {sorted(made)[:3]} were never published")
    return verdict


def state_is_the_log(facts: Facts) -> Verdict:
    """The stored state is what the log says: version, digest, offsets, receipts, nothing left."""
    verdict = Verdict("facts of the stored state that the log does not have, or the other way")
    ends: dict[tuple[str, tuple[str, int]], int] = {}
    for record in (record for record in facts.sent if record.life == 0):
        place = ((record.data or {})["model_id"], record.source[:2])
        ends[place] = max(ends.get(place, 0), record.source[2] + 1)
    for model, final in facts.history.finals.items():
        newest = facts.versions[model][-1] if facts.versions[model] else {}
        last = max(facts.versions[model], key=lambda v: int(v["version"]), default=newest)
        same = (final.version, final.digest) == (last.get("version"), last.get("digest"))
        verdict.check(same, f"{model}: the store holds version {final.version}, not the log's last")
        places = facts.history.places  # of topics that are there: others were made again
        offsets = {places[name]: at for name, at in final.offsets.items() if name in places}
        for (of, partition), end in ends.items():
            if of == model:
                decided = offsets.get(partition, 0)
                verdict.check(decided >= end, f"{model}: {decided} of {end} records are decided")
        for request, (mark, stored) in final.receipts.items():
            said = facts.finals.get((model, request), {})
            good = mark == "F" and stored.encode() in said
            verdict.check(good, f"{model}: the stored receipt of {request} was never published")
        for of, request in facts.finals:
            if of == model:
                verdict.check(request in final.receipts, f"{model}: {request} is not stored")
        for what, count in final.leftovers.items():
            verdict.check(count == 0, f"{model}: {count} {what}")
    return verdict


PROMISES: tuple[Callable[[Facts], Verdict], ...] = (
    one_final_receipt,
    conflicts_are_told,
    outcomes_are_right,
    receipts_in_order,
    no_row_twice,
    ledger_is_the_union,
    one_combined_receipt,
    the_erased_stay_away,
    versions_are_a_chain,
    commits_are_a_chain,
    what_was_seen_stands,
    state_is_the_log,
    no_zombie_writes,
    no_mixed_reads,
    garbage_is_told_once,
    deleted_bytes_are_gone,
    nobody_left,
)


def judge(history: History) -> list[Verdict]:
    """Return the verdict on every promise but that of the bound (`tests.proof.chaos.bound`)."""
    facts = Facts(history)
    return [promise(facts) for promise in PROMISES]
