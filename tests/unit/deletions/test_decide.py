"""Steps 3 and 4 without I/O: who is applied, who waits, who hears what he heard before."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from lethe.consumers.commits.apply import change_of
from lethe.consumers.commits.commit import LoggedCommit
from lethe.consumers.commits.packed_receipt import pack
from lethe.consumers.commits.publish import messages_of
from lethe.consumers.contract import topics
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.contract.requests import erasure_request_id
from lethe.consumers.deletions.batch_commit import origin_of, requests_transition, unknown_model
from lethe.consumers.deletions.compute import compute
from lethe.consumers.deletions.decide import BatchFacts, decide, rows_named, rows_of_erasures
from lethe.consumers.deletions.decisions import (
    AcceptedDeletion,
    Conflicting,
    Decision,
    Deferred,
    Duplicate,
    DuplicateInBatch,
    Rejected,
)
from lethe.consumers.deletions.validate import Invalid, Valid, validate
from lethe.consumers.log.base import Partition, Record
from lethe.engine.error.sentinels import Sentinels
from lethe.engine.store.apply import Place
from lethe.engine.store.layout.codec import pack_row
from lethe.engine.store.layout.config import LimitsRecord
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.layout.meta import Meta
from lethe.engine.store.layout.records import ErrorRecord
from lethe.engine.store.layout.state import Head, ModelState
from lethe.engine.store.lookup import Lookup
from tests.support.families import Data, make
from tests.support.platform import config_of, row_ids
from tests.support.states import Started, start

NOW = datetime(2026, 1, 2, tzinfo=UTC)
HERE = Partition("lethe.deletions", "id", 0)


def state_of(started: Started) -> ModelState:
    """Return a model at rest, as registration leaves it."""
    data = started.data
    counts = None
    if data.kind == "logistic":
        ones = int(data.y.sum())
        counts = (len(data.X) - ones, ones)
    meta = Meta(
        config=config_of(data, "m", "pru", 0.01, LimitsRecord(floor_rows=4, fraction_of_d=0)),
        status="ACTIVE",
        generation=0,
        generation_key="g",
        dataset_key="g",
        rows_live=len(data.X),
        rows_deleted=0,
        deletions_logged=0,
        class_counts=counts,
        K=0,
        r=0,
        v_trace=0.0,
        least_pivot=1.0,
        residual=0.0,
        carried=0.0,
        completions=0,
        error=ErrorRecord(
            value=0.0, kind="exact", bound=0.0, certified_version=0, budget=0.01, relative=0.0
        ),
        refreshed_at=NOW,
    )
    sentinels = Sentinels((), started.rows.take(slice(0, 0)), started.made.dual_rows[:0])
    return ModelState(
        keys=ModelKeys("m"),
        head=Head(0, "c" * 64),
        version=0,
        digest="d" * 64,
        meta=meta,
        generation=started.generation,
        stream=started.stream,
        sentinels=sentinels,
        offsets={},
        deferred={},
        arrays_id="a",
        rows_generation="g",
    )


class Bench:
    """A model in memory, and requests for it."""

    def __init__(self, data: Data) -> None:
        self.started = start(data)
        self.state = state_of(self.started)
        self.ledger: dict[str, int] = {}
        self.receipts: dict[str, bytes] = {}
        self.retired: frozenset[str] = frozenset()
        self.items: list[Valid | Invalid] = []

    def ask(self, request_id: str, *rows: str, **more: object) -> Bench:
        named = {"row_ids": rows} if rows else {}
        body = {"request_id": request_id, "model_id": "m", **named, **more}
        record = Record(HERE, len(self.items), b"m", json.dumps(body).encode())
        item = validate(record)
        assert isinstance(item, Valid | Invalid)
        self.items.append(item)
        return self

    def lookup(self, subjects: Mapping[str, Sequence[str]]) -> Lookup:
        names = row_ids(self.started.data)
        rows, W = self.started.rows, self.started.made.dual_rows
        records = {
            name: pack_row(rows.X[i], rows.y[i], 1.0, W[i])
            for i, name in enumerate(names)
            if any(name in rows_named(item, subjects) for item in self.items)
            and name not in self.ledger
            and name not in self.retired
        }
        return Lookup(
            self.state.head, self.state.arrays_id, self.receipts, self.ledger, records, self.retired
        )

    def sort(self, subjects: Mapping[str, Sequence[str]] | None = None) -> tuple[Decision, ...]:
        subjects = subjects or {}
        return decide(self.state, self.items, BatchFacts(self.lookup(subjects), subjects))

    def receipts_after(self) -> list[Receipt]:
        """Take the batch through compute and transition; return the receipts as they are sent."""
        lookup = self.lookup({})
        batch = compute(self.state, decide(self.state, self.items, BatchFacts(lookup)), lookup)
        origin = origin_of([item.record for item in self.items])
        self.transition = requests_transition(self.state, batch, origin, now=NOW, clock=0.0)
        sent = messages_of([self.transition.commit])
        return [
            Receipt.model_validate_json(one.value or b"")
            for one in sent
            if one.topic == topics.RECEIPTS
        ]

    @property
    def kept(self) -> dict[str, bytes]:
        """The receipts that the index keeps of the batch."""
        answers = self.transition.commit.answers
        return {answer.receipt.request_id: pack(answer) for answer in answers}


@pytest.fixture
def bench() -> Bench:
    return Bench(make("benign", "linear"))


def test_rows_of_each_kind(bench: Bench) -> None:
    bench.ledger, bench.retired = {"row-1": 4}, frozenset({"row-2"})
    bench.ask("r", "row-0", "row-1", "row-2", "stranger", "row-3")
    [decision] = bench.sort()
    assert isinstance(decision, AcceptedDeletion)
    assert decision.rows == ("row-0", "row-3")
    assert decision.retired == ("row-2",)
    assert decision.asked.rows_unknown == 1


def test_only_strangers_are_unknown_and_only_the_dead_are_applied_already(bench: Bench) -> None:
    bench.ledger = {"row-1": 4}
    bench.ask("strangers", "x", "y").ask("dead", "row-1").ask("both", "row-1", "x")
    bench.ask("nobody", subject_id="s")
    strangers, dead, both, nobody = bench.sort()
    assert isinstance(strangers, Rejected)
    assert (strangers.code, strangers.asked.rows_unknown) == ("UNKNOWN_ROWS", 2)
    assert isinstance(dead, AcceptedDeletion)
    assert isinstance(both, AcceptedDeletion)
    assert (dead.rows, both.rows, both.asked.rows_unknown) == ((), (), 1)
    assert isinstance(nobody, Rejected)
    assert [r.status for r in bench.receipts_after()] == [
        "REJECTED",
        "ALREADY_APPLIED",
        "ALREADY_APPLIED",
        "REJECTED",
    ]
    assert bench.transition.after.version == 0  # nothing was deleted: no version


def test_a_strict_request_with_a_stranger_is_rejected_and_claims_nothing(bench: Bench) -> None:
    bench.ask("r", "row-0", "stranger", strict=True).ask("s", "row-0", strict=True)
    rejected, accepted = bench.sort()
    assert isinstance(rejected, Rejected)
    assert (rejected.code, rejected.asked.rows_unknown) == ("UNKNOWN_ROWS", 1)
    assert isinstance(accepted, AcceptedDeletion)
    assert accepted.rows == ("row-0",)


def test_a_subject_is_its_rows(bench: Bench) -> None:
    [decision] = bench.ask("r", subject_id="s").sort({"s": ["row-4", "row-4", "row-5"]})
    assert isinstance(decision, AcceptedDeletion)
    assert decision.rows == ("row-4", "row-5")


@pytest.mark.parametrize("of_model", [None, "", "crm"])
def test_a_request_names_rows_of_its_own_namespace_only(bench: Bench, of_model: str | None) -> None:
    config = bench.state.meta.config.model_copy(update={"subject_namespace": of_model})
    bench.state = replace(bench.state, meta=bench.state.meta.model_copy(update={"config": config}))
    for number, namespace in enumerate(["", "crm", "CRM"]):
        bench.ask(f"subject-{number}", subject_id="s", namespace=namespace)
        bench.ask(f"rows-{number}", "row-6", namespace=namespace)
    bench.ask("any", subject_id="s")
    ours = {"", "crm"}.intersection([of_model or ""])
    *decisions, anyone = bench.sort({"s": ["row-4", "row-5"]})
    for decision, namespace in zip(decisions, ["", "", "crm", "crm", "CRM", "CRM"], strict=True):
        if namespace in ours:
            assert isinstance(decision, AcceptedDeletion)
        else:
            assert isinstance(decision, Rejected)
            assert (decision.code, decision.unknown) == ("UNKNOWN_ROWS", ())
    assert isinstance(anyone, AcceptedDeletion)


def test_the_namespace_is_part_of_a_requests_content(bench: Bench) -> None:
    bench.ask("r", subject_id="s").ask("r", subject_id="s", namespace="")
    first, second = bench.sort({"s": ["row-4"]})
    assert isinstance(first, AcceptedDeletion)
    assert isinstance(second, Conflicting)


def test_requests_of_one_batch_share_rows_once(bench: Bench) -> None:
    bench.ask("a", "row-0", "row-1").ask("b", "row-1", "row-2").ask("c", "row-0", "row-2")
    first, second, third = bench.receipts_after()
    assert [r.rows_deleted for r in (first, second, third)] == [2, 1, 0]
    assert [r.status for r in (first, second, third)] == ["APPLIED", "APPLIED", "ALREADY_APPLIED"]
    assert bench.transition.commit.deleted == ("row-0", "row-1", "row-2")
    assert bench.transition.after.version == 1


def test_rows_that_two_erasures_name_are_listed_once(bench: Bench) -> None:
    first, second = (erasure_request_id(64 * name) for name in "ab")
    bench.ask(first, "row-0", "row-1").ask(second, "row-1", "row-2").ask("c", "row-3")
    assert rows_of_erasures(bench.items, bench.sort(), {}) == ["row-0", "row-1", "row-2"]


def test_one_id_twice_in_a_batch(bench: Bench) -> None:
    bench.ask("a", "row-0", "row-1").ask("a", "row-1", "row-0").ask("a", "row-2")
    kinds = [type(decision) for decision in bench.sort()]
    assert kinds == [AcceptedDeletion, DuplicateInBatch, Conflicting]
    first, again, conflict = bench.receipts_after()
    assert first.value() == again.value()
    assert conflict.code == "REQUEST_ID_CONFLICT"
    assert conflict.conflicts_with == first.source
    assert list(bench.kept) == ["a"]
    assert bench.transition.commit.deleted == ("row-0", "row-1")


def test_a_stored_receipt_is_repeated_byte_for_byte(bench: Bench) -> None:
    bench.ask("a", "row-0")
    bench.receipts_after()
    [first] = bench.transition.commit.answers
    bench.receipts = bench.kept
    bench.items = []
    bench.ask("a", "row-0").ask("a", "row-9")
    repeated, conflict = bench.sort()
    assert isinstance(repeated, Duplicate)
    assert isinstance(conflict, Conflicting)
    bench.receipts_after()
    assert bench.transition.commit.repeats[0] == first.value
    assert bench.kept == {}


def test_a_refused_record_between_good_ones(bench: Bench) -> None:
    bench.ask("a", "row-0").ask("bad", subject_id="").ask("b", "row-1")
    assert [r.status for r in bench.receipts_after()] == ["APPLIED", "REJECTED", "APPLIED"]


def leveraged() -> Data:
    data = make("benign", "linear")
    X = data.X.copy()
    X[:, 3] = 0.0
    X[0, 3] = 1e5
    return Data(data.name, "linear", X, data.y, data.weight, 1e-5, True, data.deleted)


def test_only_the_offender_waits_and_who_shares_its_rows() -> None:
    bench = Bench(leveraged())
    bench.ask("before", "row-5").ask("offender", "row-0", "row-1").ask("shares", "row-1", "row-2")
    bench.ask("shares its", "row-2").ask("after", "row-6")
    receipts = bench.receipts_after()
    assert [r.status for r in receipts] == [
        "APPLIED", "DEFERRED", "DEFERRED", "DEFERRED", "APPLIED",
    ]  # fmt: skip
    assert [r.code for r in receipts[1:4]] == [
        "ILL_CONDITIONED", "AWAITING_REBUILD", "AWAITING_REBUILD",
    ]  # fmt: skip
    commit, after = bench.transition.commit, bench.transition.after
    assert commit.deleted == ("row-5", "row-6")
    assert {name: kept[:1] for name, kept in bench.kept.items()} == {
        "before": b"F", "offender": b"P", "shares": b"P", "shares its": b"P", "after": b"F",
    }  # fmt: skip
    assert after.deferred_rows == {"row-0", "row-1", "row-2"}
    assert after.meta.pending_job is not None
    # A later batch that names a waiting row waits as well; its neighbour does not
    bench.state, bench.items, bench.ledger = after, [], {"row-5": 1, "row-6": 1}
    bench.ask("late", "row-1", "row-7").ask("fresh", "row-7")
    late, fresh = bench.sort()
    assert isinstance(late, Deferred)
    assert late.stored().row_ids == ("row-1", "row-7")
    assert isinstance(fresh, AcceptedDeletion)


def test_a_model_whose_rows_are_missing_defers_whatever_may_name_one(bench: Bench) -> None:
    """Nobody knows which rows are missing; what was deleted before is known all the same."""
    bench.ledger = {"row-1": 4}
    bench.ask("may be one", "nobody knows").ask("there", "row-0").ask("done", "row-1")
    decisions = decide(bench.state, bench.items, BatchFacts(bench.lookup({}), lost=True))
    one, there, done = decisions
    assert isinstance(one, Deferred)
    assert isinstance(there, Deferred)
    assert (one.code, there.code) == ("DATA_LOST", "DATA_LOST")
    assert isinstance(done, AcceptedDeletion)


def test_a_model_without_its_arrays_defers_what_deletes_rows(bench: Bench) -> None:
    bench.state = replace(bench.state, arrays_id="")
    bench.ledger = {"row-1": 4}
    waits, done = bench.ask("waits", "row-0").ask("done", "row-1").sort()
    assert isinstance(waits, Deferred)
    assert waits.code == "AWAITING_REBUILD"
    assert isinstance(done, AcceptedDeletion)


def test_a_full_generation_defers(bench: Bench) -> None:
    limit = bench.state.meta.config.limits.limits().hard_rows(bench.state.meta.config.d)
    names = row_ids(bench.started.data)
    bench.ask("fits", *names[:limit]).ask("over", names[limit]).ask("done", names[0])
    receipts = bench.receipts_after()
    assert [(r.status, r.code) for r in receipts] == [
        ("APPLIED", None),
        ("DEFERRED", "GENERATION_FULL"),
        ("ALREADY_APPLIED", None),
    ]


def test_a_step_that_overflows_is_deferred_and_never_committed(bench: Bench) -> None:
    far = np.full_like(bench.state.stream.theta_exact, 1e308)
    bench.state = replace(bench.state, stream=bench.state.stream._replace(theta_exact=far))
    with np.errstate(all="ignore"):
        [receipt] = bench.ask("a", "row-0").receipts_after()
    assert (receipt.status, receipt.code) == ("DEFERRED", "ILL_CONDITIONED")
    assert bench.transition.commit.deleted == ()


def test_a_number_that_is_not_finite_is_stopped_before_the_commit(bench: Bench) -> None:
    lookup = bench.ask("a", "row-0").lookup({})
    batch = compute(bench.state, decide(bench.state, bench.items, BatchFacts(lookup)), lookup)
    stream = batch.after.stream
    spoilt_stream = stream._replace(published=stream.published * np.nan)
    spoilt = replace(batch, after=replace(batch.after, stream=spoilt_stream))
    origin = origin_of([item.record for item in bench.items])
    with pytest.raises(AssertionError, match="a step is not finite"):
        requests_transition(bench.state, spoilt, origin, now=NOW, clock=0.0)


def test_the_last_row_empties_the_model(bench: Bench) -> None:
    names = row_ids(bench.started.data)
    bench.ask("most", *names[:-1]).ask("last", names[-1])
    assert [r.status for r in bench.receipts_after()] == ["APPLIED", "APPLIED"]
    after = bench.transition.after
    assert (after.meta.status, after.meta.rows_live, after.meta.K) == ("EMPTY", 0, 0)
    assert not after.stream.published.any()
    assert bench.transition.commit.empties
    change = change_of(
        LoggedCommit(bench.transition.commit, "", "", Place(0)),
        bench.state,
        arrays=bench.transition.arrays,
        live=bench.transition.live,
    )
    assert change.swap is not None
    assert set(bench.state.generation_keys.everything()) <= set(change.swap.unlink)


def test_the_last_of_a_class_waits_for_a_penalised_intercept() -> None:
    data = make("benign", "logistic")
    bench = Bench(data)
    ones = [row_ids(data)[i] for i in np.flatnonzero(data.y[:, 0] == 1)]
    bench.ask("class", *ones)
    [receipt] = bench.receipts_after()
    assert (receipt.status, receipt.code) == ("DEFERRED", "ONE_CLASS_LEFT")
    assert bench.transition.after.meta.class_counts == bench.state.meta.class_counts


def test_a_model_that_was_unregistered_refuses(bench: Bench) -> None:
    meta = bench.state.meta.model_copy(update={"status": "UNREGISTERED"})
    bench.state = replace(bench.state, meta=meta)
    first, again = bench.ask("a", "row-0").ask("a", "row-0").sort()
    assert isinstance(first, Rejected)
    assert first.code == "MODEL_UNREGISTERED"
    assert isinstance(again, DuplicateInBatch)


def test_the_answer_of_a_model_that_was_never_registered_follows_from_the_record() -> None:
    body = json.dumps({"request_id": "a", "model_id": "m", "row_ids": ["x"]}).encode()
    record = Record(HERE, 7, b"m", body, timestamp_ms=1_767_225_600_123)
    item = validate(record)
    assert isinstance(item, Valid)
    first, second = unknown_model(item), unknown_model(item)
    assert first is not None
    assert second is not None
    assert first.value() == second.value()
    assert (first.code, first.source.offset) == ("UNKNOWN_MODEL", 7)
    assert first.completed_at == datetime(2026, 1, 1, 0, 0, 0, 123000, tzinfo=UTC)
