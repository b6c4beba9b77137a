"""The checker catches each defect that it is there for, and finds nothing where there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

import pytest

from lethe.consumers.contract import topics
from tests.proof.chaos.bound import theta_within_its_bound
from tests.proof.chaos.checker import judge
from tests.proof.chaos.facts import Facts
from tests.proof.chaos.history import Asked, History, Live, Read, Record, answered_by, by_source
from tests.proof.chaos.small import MODEL, altered, commit_record, history, moved, rewritten


def verdicts(made: History) -> dict[str, list[str]]:
    """Return what is wrong, by promise."""
    found = judge(made)
    found.append(theta_within_its_bound(Facts(made)))
    return {verdict.promise: verdict.wrong for verdict in found}


def test_a_sound_history_passes_and_every_promise_is_looked_at() -> None:
    """Given a run without a defect, no promise is broken, and none is passed over."""
    made = history()
    found = judge(made)
    found.append(theta_within_its_bound(Facts(made)))

    assert [str(verdict) for verdict in found if verdict.wrong] == []
    looked_at = {verdict.promise: verdict.cases for verdict in found}
    passed_over = [promise for promise, cases in looked_at.items() if cases == 0]
    assert passed_over == []


# -- one defect each -------------------------------------------------------------------------------


def _lost_receipt(made: History) -> None:
    made.topics[topics.RECEIPTS] = [
        r for r in made.topics[topics.RECEIPTS] if (r.data or {})["request_id"] != "b"
    ]


def _second_final_receipt(made: History) -> None:
    first = made.topics[topics.RECEIPTS][1]
    made.topics[topics.RECEIPTS].append(altered(first, completed_at="2026-01-01T00:00:01.000Z"))


def _receipt_of_nobody(made: History) -> None:
    first = made.topics[topics.RECEIPTS][1]
    made.topics[topics.RECEIPTS].append(altered(first, request_id="never sent"))


def _untold_conflict(made: History) -> None:
    made.topics[topics.RECEIPTS] = [
        r for r in made.topics[topics.RECEIPTS] if (r.data or {})["code"] != "REQUEST_ID_CONFLICT"
    ]


def _wrong_outcome(made: History) -> None:
    receipts = made.topics[topics.RECEIPTS]
    changed = altered(receipts[1], status="REJECTED", code="UNKNOWN_ROWS", rows_deleted=0)
    receipts[1] = changed


def _receipts_swapped(made: History) -> None:
    receipts = made.topics[topics.RECEIPTS]
    receipts[0], receipts[1] = receipts[1], receipts[0]


def _doubled_row(made: History) -> None:
    final = made.finals[MODEL]
    made.finals[MODEL] = moved(final, deletions=[*final.deletions, "row-4"])


def _row_counted_twice(made: History) -> None:
    receipts = made.topics[topics.RECEIPTS]
    receipts[2] = altered(receipts[2], rows_deleted=3)


def _request_in_two_versions(made: History) -> None:
    versions = made.topics[topics.VERSIONS]
    versions[3] = altered(versions[3], request_ids=["c", "a"])


def _row_deleted_that_nobody_named(made: History) -> None:
    final = made.finals[MODEL]
    made.finals[MODEL] = moved(final, ledger={**final.ledger, "row-6": 3})


def _row_record_left(made: History) -> None:
    final = made.finals[MODEL]
    made.finals[MODEL] = moved(final, rows=final.rows | {"row-0"})


def _gap(made: History) -> None:
    del made.topics[topics.VERSIONS][2]


def _fork(made: History) -> None:
    versions = made.topics[topics.VERSIONS]
    versions.append(altered(versions[3], request_ids=["x"], digest="f" * 64))


def _reuse(made: History) -> None:
    versions = made.topics[topics.VERSIONS]
    versions.append(altered(versions[1], prev_digest=(versions[3].data or {})["digest"]))


def _altered_version(made: History) -> None:
    versions = made.topics[topics.VERSIONS]
    versions[2] = altered(versions[2], rows_live=99)


def _contradicted(made: History) -> None:
    made.live.append(Live("subscriber", MODEL, 2, "e" * 64))


def _broken_chain_seen(made: History) -> None:
    made.broken.append("model 'm', version 2: two digests")


def _state_behind(made: History) -> None:
    made.finals[MODEL] = moved(made.finals[MODEL], version=2)


def _undecided_record(made: History) -> None:
    made.finals[MODEL] = moved(made.finals[MODEL], offsets={"id/0": 2})


def _unpublished_receipt(made: History) -> None:
    final = made.finals[MODEL]
    made.finals[MODEL] = moved(final, receipts={**final.receipts, "z": ("F", "{}")})


def _rows_missing(made: History) -> None:
    made.finals[MODEL] = moved(made.finals[MODEL], leftovers={"live rows without a record": 1})


def _zombie_commit(made: History) -> None:
    made.diaries.append({**made.diaries[3], "who": "deletions-2", "digest": "d" * 64})


def _commit_that_is_not_in_the_log(made: History) -> None:
    made.diaries.append({**made.diaries[3], "commit": 4})


def _void_commit_was_published(made: History) -> None:
    commits = made.topics[topics.COMMITS]
    commits[3] = commit_record(3, prev="c" * 64)


def _commit_of_no_version(made: History) -> None:
    commits = made.topics[topics.COMMITS]
    number = len(commits)
    commits.append(commit_record(number))
    digest = Facts(made).chain(MODEL)[number].digest
    made.finals[MODEL] = moved(made.finals[MODEL], commit=number, commit_digest=digest)


def _store_behind_the_log(made: History) -> None:
    made.finals[MODEL] = moved(made.finals[MODEL], commit=2)


def _mixed_generations(made: History) -> None:
    version = made.topics[topics.VERSIONS][1].data or {}
    named = (version["digest"], version["parameters_digest"])
    made.reads.append(Read("snapshot", MODEL, 1, *named, mismatch=0.1))


def _theta_of_another_version(made: History) -> None:
    version = made.topics[topics.VERSIONS][1].data or {}
    made.reads.append(Read("state", MODEL, 1, version["digest"], "a" * 64))


def _missing_dead_letter(made: History) -> None:
    made.topics[topics.DEAD_LETTERS] = []


def _dead_letter_altered(made: History) -> None:
    letter = made.topics[topics.DEAD_LETTERS][0]
    altered_letter = Record(letter.source, letter.key, b"other", None, letter.headers)
    made.topics[topics.DEAD_LETTERS].append(altered_letter)


def _dead_letter_of_a_request(made: History) -> None:
    letter = made.topics[topics.DEAD_LETTERS][0]
    source = {"lethe-source": f"{topics.DELETIONS}/0/0".encode()}
    made.topics[topics.DEAD_LETTERS].append(Record(letter.source, letter.key, b"{}", None, source))


def _lost_garbage(made: History) -> None:
    made.garbage[b"no request 2"] = True


def _bytes_left(made: History) -> None:
    made.remains["files of the primary"] = {"live": 3, "deleted": 1}


def _blind_search(made: History) -> None:
    made.remains["files of the primary"] = {"live": 0, "deleted": 0}


def _wrong_bound(made: History) -> None:
    parameters = made.topics[topics.MODELS]
    theta = (parameters[2].data or {})["theta"]
    parameters[2] = altered(parameters[2], theta=[theta[0] + 1e-6, *theta[1:]])


def _combined_receipt_counts_others(made: History) -> None:
    [receipt] = made.topics[topics.ERASURE_RECEIPTS]
    made.topics[topics.ERASURE_RECEIPTS] = [rewritten(receipt, rows_deleted=4)]


def _combined_receipt_comes_twice(made: History) -> None:
    [receipt] = made.topics[topics.ERASURE_RECEIPTS]
    later = rewritten(receipt, completed_at="2026-01-01T00:00:01.000Z")
    made.topics[topics.ERASURE_RECEIPTS].append(later)


def _no_combined_receipt(made: History) -> None:
    made.topics[topics.ERASURE_RECEIPTS].clear()


def _erased_subject_comes_back(made: History) -> None:
    live = made.rows[MODEL].live
    live["row-2"] = replace(live["row-2"], subject="subject-3")


def _erased_subject_taken_off_the_list(made: History) -> None:
    [mark] = made.topics[topics.SUPPRESSIONS]
    made.topics[topics.SUPPRESSIONS].append(rewritten(mark, lifted=True))


def _deserter(made: History) -> None:
    made.deserters.append("deletions-7")


DEFECTS: dict[Callable[[History], None], str] = {
    _lost_receipt: "acknowledged requests without exactly one final receipt",
    _second_final_receipt: "acknowledged requests without exactly one final receipt",
    _receipt_of_nobody: "acknowledged requests without exactly one final receipt",
    _untold_conflict: "records whose repeat or conflict was answered wrongly",
    _wrong_outcome: "receipts that say what is not so",
    _receipts_swapped: "receipts out of order",
    _doubled_row: "rows whose deletion took effect twice, or that nobody counted",
    _row_counted_twice: "rows whose deletion took effect twice, or that nobody counted",
    _request_in_two_versions: "rows whose deletion took effect twice, or that nobody counted",
    _row_deleted_that_nobody_named: "rows deleted and not asked for, or asked for and not deleted",
    _row_record_left: "rows deleted and not asked for, or asked for and not deleted",
    _gap: "versions with a gap, a fork, a reuse or a broken link",
    _fork: "versions with a gap, a fork, a reuse or a broken link",
    _reuse: "versions with a gap, a fork, a reuse or a broken link",
    _altered_version: "versions with a gap, a fork, a reuse or a broken link",
    _contradicted: "published versions contradicted",
    _broken_chain_seen: "published versions contradicted",
    _state_behind: "facts of the stored state that the log does not have, or the other way",
    _undecided_record: "facts of the stored state that the log does not have, or the other way",
    _unpublished_receipt: "facts of the stored state that the log does not have, or the other way",
    _rows_missing: "facts of the stored state that the log does not have, or the other way",
    _zombie_commit: "commits that a store took and the log does not have",
    _commit_that_is_not_in_the_log: "commits that a store took and the log does not have",
    _void_commit_was_published: "commits or versions that do not belong together",
    _commit_of_no_version: "commits or versions that do not belong together",
    _store_behind_the_log: "commits or versions that do not belong together",
    _mixed_generations: "reads of two generations mixed",
    _theta_of_another_version: "reads of two generations mixed",
    _missing_dead_letter: "unreadable records not exactly once in dead letters",
    _dead_letter_altered: "unreadable records not exactly once in dead letters",
    _dead_letter_of_a_request: "unreadable records not exactly once in dead letters",
    _lost_garbage: "unreadable records not exactly once in dead letters",
    _bytes_left: "places that still hold bytes of deleted rows",
    _blind_search: "places that still hold bytes of deleted rows",
    _wrong_bound: "versions whose theta is outside its bound of retraining",
    _combined_receipt_counts_others: "erasures without exactly one true final receipt",
    _combined_receipt_comes_twice: "erasures without exactly one true final receipt",
    _no_combined_receipt: "erasures without exactly one true final receipt",
    _erased_subject_comes_back: "subjects who were erased and have rows, or are not on the list",
    _erased_subject_taken_off_the_list: "subjects who were erased and have rows, or are not on the "
    "list",
    _deserter: "workers that ended by themselves",
}


@pytest.mark.parametrize("spoil", DEFECTS, ids=lambda spoil: spoil.__name__.strip("_"))
def test_each_defect_is_caught(spoil: Callable[[History], None]) -> None:
    """Given a sound history, when one thing in it is wrong, then its promise is broken."""
    made = history()
    spoil(made)

    assert verdicts(made)[DEFECTS[spoil]], f"{spoil.__name__} was not caught"


def test_a_request_that_was_never_acknowledged_may_lack_a_receipt_but_not_have_two() -> None:
    """Given a request whose sending failed, none or one receipt is right, two are not."""
    promise = "acknowledged requests without exactly one final receipt"
    for extra, broken in ((0, False), (1, True)):
        made = history()
        made.asked = [
            a if a.request_id != "b" else type(a)(a.model, "b", a.rows, None, acknowledged=False)
            for a in made.asked
        ]
        for _ in range(extra):
            _second_final_receipt(made)
        assert bool(verdicts(made)[promise]) is broken


@pytest.mark.parametrize("acknowledged", [False, True])
def test_what_was_lost_with_its_topic_is_judged_by_its_request(*, acknowledged: bool) -> None:
    """Given other records at the same places before: a request, a repeat, a stranger's, garbage.

    The request is missed if it was acknowledged, and was not sent again.
    """
    made = history()
    sent = made.topics[topics.DELETIONS]
    former = [
        altered(sent[0], request_id="lost"),
        replace(altered(sent[0]), source=(topics.DELETIONS, 0, 1)),
        replace(altered(sent[0], model_id="nobody"), source=(topics.DELETIONS, 0, 2)),
        replace(sent[-1], value=b"no request 2", source=(topics.DELETIONS, 0, 3)),
    ]
    made.topics[topics.DELETIONS] = [
        *(replace(one, life=-1) for one in former),
        *sent,
    ]
    made.asked.append(Asked(MODEL, "lost", ("row-0", "row-1"), None, acknowledged=acknowledged))
    made.garbage[b"no request 2"] = True
    broken = {promise for promise, wrong in verdicts(made).items() if wrong}
    missed = {"acknowledged requests without exactly one final receipt"}
    assert broken == (missed if acknowledged else set())


def test_a_receipt_answers_the_newest_request_of_its_name_that_came_before_it() -> None:
    """Given at one place, topic after topic: it, it again, the event of a refresh, and it again."""
    made = history()
    request, receipt = made.topics[topics.DELETIONS][0], made.topics[topics.RECEIPTS][0]
    said = receipt.data or {}
    decided = int(datetime.fromisoformat(said["completed_at"]).timestamp() * 1000)
    event = {"job_id": "j", "model_id": MODEL}
    there = [
        replace(request, life=-3, timestamp_ms=decided - 9000),
        replace(request, life=-2, timestamp_ms=decided - 5000),
        replace(request, life=-1, timestamp_ms=decided - 2000, data=event),
        replace(request, life=0, timestamp_ms=decided + 2000),
    ]
    assert answered_by(said, by_source(there)) is there[1]
