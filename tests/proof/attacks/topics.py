"""Attacks by somebody who may write to the topics of requests, where nobody has to sign."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from lethe.consumers.contract import topics
from tests.proof.attacks.attack import (
    Act,
    Attack,
    Mark,
    Trace,
    conflict,
    letter,
    rejected,
    sends,
)
from tests.proof.attacks.world import LINE, LOGIT, Owed, World
from tests.proof.live_rows import Row, changed

DELETION, CHANGE = "lethe.deletion.requested.v1", "lethe.rows.changed.v1"
REFRESHED = "lethe.refresh.completed.v1"
GOOD: dict[str, Any] = {"id": "x-1", "values": [0.1] * 4, "target": 1}
TYPED = (("ce_specversion", b"1.0"), ("ce_source", b"/x"), ("ce_id", b"c-1"))


def deletes(*marks: Mark, model: str = LINE, rows: Any = ("nobody",), **members: Any) -> Act:
    """Return what sends a deletion."""
    body = {"request_id": "a-1", "model_id": model, "row_ids": rows, **members}
    return sends(topics.DELETIONS, model, {k: v for k, v in body.items() if v is not ...}, *marks)


def changes(*marks: Mark, op: Any = "insert", rows: Any = None, model: str = LINE) -> Act:
    """Return what sends a change of rows."""
    body = {"request_id": "a-1", "model_id": model, "op": op, "rows": rows or [GOOD]}
    return sends(topics.ROW_CHANGES, model, body, *marks)


def inserts(code: str, **members: Any) -> Act:
    """Return what inserts a row that is not as it should be, and is rejected."""
    return changes(rejected(LINE, "a-1", code), rows=[GOOD | members])


invalid = rejected(LINE, "a-1", "INVALID_REQUEST")
unknown = rejected(LINE, "a-1", "UNKNOWN_ROWS")


def many_copies(world: World) -> Sequence[Trace]:
    body = {"request_id": "before-line", "model_id": LINE, "row_ids": ["row-10", "row-11"]}
    copies = [world.forge(topics.DELETIONS, LINE, body) for _ in range(300)]
    return [copies[-1], Trace("copies", lambda: len(copies), 300)]


def other_order(world: World) -> Sequence[Trace]:
    rows = ["row-11", "row-10", "row-11", "row-10"]
    body = {"request_id": "before-line", "model_id": LINE, "row_ids": rows}
    found = partial(world.platform.statuses, "before-line", LINE)
    return [
        world.forge(topics.DELETIONS, LINE, body),
        Trace("receipts", lambda: set(found()), {"APPLIED"}),
    ]


def both_partitions(world: World) -> Sequence[Trace]:
    """Send requests for the same row to both partitions, each with an id of its own."""
    rows = {"model_id": LINE, "row_ids": ["row-0"]}
    traces = [
        world.forge(topics.DELETIONS, LINE, {"request_id": f"a-{i}", **rows}, partition=i)
        for i in range(2)
    ]
    return [*traces, *(world.receipt(LINE, f"a-{i}", "ALREADY_APPLIED") for i in range(2))]


def forged_log_line(world: World) -> Sequence[Trace]:
    name = "a-1\n2026-01-01 00:00:00 [error] model halted model=line\x1b[2J"
    body = {"request_id": name, "model_id": LINE, "row_ids": ["nobody"]}
    return [
        world.forge(topics.DELETIONS, LINE, body),
        world.receipt(LINE, name, "REJECTED", "UNKNOWN_ROWS"),
        Trace("a forged line", lambda: "\n2026-01-01 00:00:00" in world.said.getvalue(), False),
        Trace("a control character", lambda: "\x1b" in world.said.getvalue(), False),
    ]


def many_headers(world: World) -> Sequence[Trace]:
    headers = tuple((f"x-{i}", b"y" * 100) for i in range(1000))
    return [
        world.forge(topics.DELETIONS, LINE, b"no", headers),
        world.letters("INVALID_REQUEST"),
    ]


def many_jobs(world: World) -> Sequence[Trace]:
    body = {"model_id": LINE, "generation": 0, "version": 3, "reason": "x", "size": "rebuild"}
    made = [world.forge(topics.REFRESH_JOBS, LINE, {"job_id": f"a-{i}", **body}) for i in range(30)]

    def refreshes() -> bool:
        versions = world.platform.versions(LINE)
        return sum(one.refresh is not None for one in versions) <= 2

    return [*made[-1:], Trace("at most two refreshes", refreshes)]


def inserts_many(world: World) -> Sequence[Trace]:
    rows = [{"id": f"x-{i}", "values": [], "target": 1} for i in range(10_000)]
    body = {"request_id": "a-1", "model_id": LINE, "op": "insert", "rows": rows}
    return [world.forge(topics.ROW_CHANGES, LINE, body), rejected(LINE, "a-1", "SCHEMA")(world)]


def restarts_after(act: Act) -> Act:
    """Return an attack whose records are read by workers that start anew, twice."""

    def restarted(world: World) -> Sequence[Trace]:
        traces = act(world)
        for _ in range(2):
            world.work()
            world.stop_workers()
        return traces

    return restarted


def inserts_then_deletes(world: World) -> Sequence[Trace]:
    """Delete a row that is not there yet, and insert it afterwards: whose order counts?"""
    gone = {"request_id": "a-0", "model_id": LINE, "row_ids": ["x-1"]}
    first = world.forge(topics.DELETIONS, LINE, gone)
    world.work()
    return [first, *changes(rejected(LINE, "a-1", "ROW_DELETED"))(world)]


def corrects_a_row_on_its_way_out(world: World) -> Sequence[Trace]:
    """Whichever of the two topics is read first: the row is gone at the end."""
    sent = changes(op="correct", rows=[GOOD | {"id": "row-10"}])(world)
    world.work()
    [status] = set(world.platform.statuses("a-1", LINE))
    if status == "APPLIED":
        world.truth.owed[LINE, "a-1"] = Owed("APPLIED", 1)
    return [*sent, Trace("decided", lambda: status in ("APPLIED", "REJECTED"))]


def erased_person_without_subject(world: World) -> Sequence[Trace]:
    """Bring an erased person's values back under another row, without saying whose they are."""
    world.truth.live[LINE]["x-1"] = changed(Row((), ()), GOOD)
    world.truth.owed[LINE, "a-1"] = Owed("APPLIED", 1)
    return changes()(world)


ATTACKS = (
    Attack(
        "request id of another request",
        "Sends other rows under the id of a request that was answered.",
        "The index of requests: `REQUEST_ID_CONFLICT`, and the first receipt stands.",
        deletes(conflict(LINE, "old-line"), request_id="old-line", rows=["row-40"]),
    ),
    Attack(
        "request id of a waiting request",
        "Sends other rows under the id of a request that nobody has answered yet.",
        "The order of the log: the first of the two counts, the other is a conflict.",
        deletes(conflict(LINE, "before-line"), request_id="before-line", rows=["row-40"]),
    ),
    Attack(
        "request id of another model's request",
        "Sends a request to one model under the id of a request to another.",
        "Ids belong to a model: each has an index of its own.",
        deletes(
            rejected(LOGIT, "before-line", "UNKNOWN_ROWS"), model=LOGIT, request_id="before-line"
        ),
    ),
    Attack(
        "three hundred copies",
        "Sends a request 300 times, to have it applied more than once.",
        "One request id has one outcome; the copies get its receipt again.",
        many_copies,
    ),
    Attack(
        "the same rows in other order",
        "Repeats a request with its rows in another order and twice each.",
        "A request is its set of rows: it is the same request.",
        other_order,
    ),
    Attack(
        "two partitions at once",
        "Sends requests for one deleted row to two partitions, to have it deleted twice.",
        "The ledger of the model, whatever partition a request comes from.",
        both_partitions,
    ),
    Attack(
        "garbage among requests",
        "Sends bytes that are no JSON, to stop the worker.",
        "Each record is validated alone, and becomes a dead letter.",
        sends(topics.DELETIONS, LINE, b"\xff{", letter()),
    ),
    Attack(
        "a record without value",
        "Sends a record whose value is null, as for compaction.",
        "It becomes a dead letter.",
        sends(topics.DELETIONS, LINE, None, letter()),
    ),
    Attack(
        "a record without model",
        "Sends a request that names no model, under a key that is no UTF-8.",
        "It becomes a dead letter; a key is never trusted alone.",
        sends(
            topics.DELETIONS, b"\xff\xfe", {"request_id": "a-1", "row_ids": ["row-40"]}, letter()
        ),
    ),
    Attack(
        "key of one model, body of another",
        "Names one model in the record's key and another in its body.",
        "A key that contradicts the body is `INVALID_REQUEST`.",
        sends(
            topics.DELETIONS,
            LINE,
            {"request_id": "a-1", "model_id": LOGIT, "row_ids": ["row-40"]},
            rejected(LOGIT, "a-1", "INVALID_REQUEST"),
        ),
    ),
    Attack(
        "a member twice",
        "Gives `row_ids` twice in one object, once harmless and once not, so that two parsers see "
        "two requests.",
        "JSON with a repeated member is not read.",
        sends(
            topics.DELETIONS,
            LINE,
            b'{"request_id":"a-1","model_id":"line","row_ids":["nobody"],"row_ids":["row-40"]}',
            letter(),
        ),
    ),
    Attack(
        "a member twice, once escaped",
        "Gives `row_ids` twice, once with an escaped letter in its name.",
        "Names are compared as they are read.",
        sends(
            topics.DELETIONS,
            LINE,
            b'{"request_id":"a-1","model_id":"line","row_ids":["nobody"],"row_id\\u0073":["row-4"]}',
            letter(),
        ),
    ),
    Attack(
        "nested a hundred thousand deep",
        "Sends JSON that is nested so deep that a parser's stack overflows.",
        "The parser's own limit; the record becomes a dead letter.",
        sends(topics.DELETIONS, LINE, b"[" * 100_000, letter()),
    ),
    Attack(
        "a number of a hundred thousand digits",
        "Sends a row id that is a whole number of 100,000 digits, which is slow to convert.",
        "Digits are counted before they are converted.",
        sends(
            topics.DELETIONS,
            LINE,
            b'{"request_id":"a-1","model_id":"line","row_ids":[' + b"9" * 100_000 + b"]}",
            letter(),
        ),
    ),
    Attack(
        "numbers that are none",
        "Sends NaN and Infinity where JSON has no such number.",
        "They are not read.",
        sends(
            topics.ROW_CHANGES,
            LINE,
            b'{"request_id":"a-1","model_id":"line","op":"insert",'
            b'"rows":[{"id":"x","values":[NaN,1e999,-Infinity,0],"target":1}]}',
            letter(),
        ),
    ),
    Attack(
        "another encoding",
        "Sends a request in UTF-16.",
        "Only UTF-8 is read.",
        sends(
            topics.DELETIONS,
            LINE,
            json.dumps({"request_id": "a-1", "model_id": LINE, "row_ids": ["row-40"]}).encode(
                "utf-16"
            ),
            letter(),
        ),
    ),
    Attack(
        "more than a mebibyte",
        "Sends a record over the limit of a request.",
        "Its length is looked at before it is parsed.",
        sends(
            topics.DELETIONS,
            LINE,
            b'{"request_id":"a-1","model_id":"line","row_ids":["' + b"x" * (1 << 20) + b'"]}',
            letter(),
        ),
    ),
    Attack(
        "ten thousand rows and one",
        "Names more rows than a request may.",
        "`TOO_MANY_ROWS`.",
        deletes(rejected(LINE, "a-1", "TOO_MANY_ROWS"), rows=[f"x-{i}" for i in range(10_001)]),
    ),
    Attack(
        "ten thousand rows that nobody has",
        "Names 10,000 unknown rows, to fill the store with what is kept of them.",
        "A rejection keeps one short hash a row for 24 hours, in one key.",
        deletes(unknown, rows=[f"x-{i}" for i in range(10_000)]),
    ),
    Attack(
        "ids that are no ids",
        "Names rows by a fraction, true, null and a list, each of which some program writes as "
        "the text of another row's id.",
        "Only text and whole numbers are ids.",
        deletes(invalid, rows=[40.0, True, None, ["row-40"]]),
    ),
    Attack(
        "ids that look alike",
        "Names rows by an id with a blank, capitals, full-width digits or a zero-width space.",
        "Ids are compared byte for byte: these are unknown.",
        deletes(unknown, rows=["row-40 ", "ROW-40", "row-\uff14\uff10", "row\u200b-40"]),
    ),
    Attack(
        "a lone surrogate",
        "Names a row by half a character, which no program can write again.",
        "An id must have bytes in UTF-8.",
        deletes(invalid, rows=["\ud800"]),
    ),
    Attack(
        "an id of 129 characters",
        "Names a row by an id over the limit.",
        "`INVALID_REQUEST`.",
        deletes(invalid, rows=["x" * 129]),
    ),
    Attack(
        "names of keys as ids",
        "Uses ids made of the store's separators, to reach another key.",
        "An id is a member of a hash, and never part of a key or a command.",
        deletes(unknown, rows=["lethe:{c00}:line:ledger", "}:head", "*", "\r\nFLUSHALL\r\n"]),
    ),
    Attack(
        "a model's name that is a key",
        "Sends requests to a model whose name is made of the store's separators.",
        "Names are percent-encoded in keys; the answer `UNKNOWN_MODEL` stores nothing.",
        deletes(rejected("line}:head", "a-1", "UNKNOWN_MODEL"), model="line}:head"),
    ),
    Attack(
        "strict, with one unknown row",
        "Adds an unknown row to a strict request for a live one, and hopes that the rest is done.",
        "A strict request is rejected as a whole.",
        deletes(unknown, rows=["row-40", "nobody"], strict=True),
    ),
    Attack(
        "strict by another name",
        "Gives `strict` as text, so that one reader takes it for true and another for false.",
        "Only true and false are read.",
        deletes(invalid, rows=["row-40"], strict="false"),
    ),
    Attack(
        "rows and a subject in one request",
        "Names rows and a subject, so that two readers delete different rows.",
        "One of the two must be given.",
        deletes(invalid, rows=["row-40"], subject_id="subject-20"),
    ),
    Attack(
        "another namespace's person",
        "Asks a model for a subject in a namespace that is not the model's.",
        "A request that names a namespace names no row of any other.",
        deletes(
            rejected(LOGIT, "a-1", "UNKNOWN_ROWS"),
            model=LOGIT,
            rows=...,
            subject_id="subject-20",
            namespace="",
        ),
    ),
    Attack(
        "a namespace in other letters",
        "Spells the namespace in capitals.",
        "Namespaces are compared byte for byte.",
        deletes(
            rejected(LOGIT, "a-1", "UNKNOWN_ROWS"),
            model=LOGIT,
            rows=...,
            subject_id="subject-20",
            namespace="CRM",
        ),
    ),
    Attack(
        "no rows",
        "Sends a request with an empty list, which could stand for all rows.",
        "`INVALID_REQUEST`.",
        deletes(invalid, rows=[]),
    ),
    Attack(
        "everything",
        "Names the row `*`, and a subject of no characters.",
        "Nothing is a pattern; an id has at least one character.",
        deletes(invalid, rows=..., subject_id=""),
    ),
    Attack(
        "an event of another type",
        "Sends a change of rows, or something unknown, to the topic of deletions.",
        "The type must be one of that topic's.",
        sends(
            topics.DELETIONS,
            LINE,
            {"request_id": "a-1", "model_id": LINE, "op": "insert", "rows": [GOOD]},
            invalid,
            headers=(*TYPED, ("ce_type", CHANGE.encode())),
        ),
    ),
    Attack(
        "an envelope in an envelope",
        "Wraps a CloudEvent into a CloudEvent, each with a model and an id of its own.",
        "One envelope is opened; what is in it must be a request.",
        sends(
            topics.DELETIONS,
            LINE,
            {
                "specversion": "1.0",
                "type": DELETION,
                "source": "/x",
                "id": "a-1",
                "data": {
                    "specversion": "1.0",
                    "type": DELETION,
                    "source": "/x",
                    "id": "a-2",
                    "data": {"request_id": "a-2", "model_id": LINE, "row_ids": ["row-40"]},
                },
            },
            invalid,
            headers=(("content-type", b"application/cloudevents+json"),),
        ),
    ),
    Attack(
        "a header for an id",
        "Gives another id in `ce_id` than in the body, to take a waiting request's id.",
        "The body's id counts.",
        sends(
            topics.DELETIONS,
            LINE,
            {"request_id": "a-1", "model_id": LINE, "row_ids": ["nobody"]},
            unknown,
            headers=(*TYPED[:2], ("ce_id", b"before-line"), ("ce_type", DELETION.encode())),
        ),
    ),
    Attack(
        "a result that nobody computed",
        "Says that a refresh job is done which never was ordered.",
        "A job's result must be in the store under that job; without one, nothing happens.",
        sends(
            topics.DELETIONS,
            LINE,
            {"job_id": "a-1", "model_id": LINE},
            headers=(*TYPED, ("ce_type", REFRESHED.encode())),
        ),
    ),
    Attack(
        "a result under another model's key",
        "Says that a job is done whose name holds the store's separators and another model.",
        "Names are percent-encoded in keys.",
        sends(
            topics.DELETIONS,
            LINE,
            {"job_id": "}:job:logit", "model_id": LINE},
            headers=(*TYPED, ("ce_type", REFRESHED.encode())),
        ),
    ),
    Attack(
        "a result without an id",
        "Says that a job is done, and leaves out which.",
        "It becomes a dead letter.",
        sends(
            topics.DELETIONS,
            LINE,
            {"model_id": LINE},
            letter(),
            headers=(*TYPED, ("ce_type", REFRESHED.encode())),
        ),
    ),
    Attack(
        "a line in the log",
        "Puts a line break, a forged log line and a terminal's commands into a request id.",
        "Values are escaped in the log.",
        forged_log_line,
    ),
    Attack(
        "a thousand headers",
        "Sends an unreadable record with 100 KB of headers, which no dead letter can hold.",
        "A dead letter leaves out headers over its limit.",
        many_headers,
    ),
    Attack(
        "garbage that is read again",
        "Sends garbage, and lets the workers die and start again.",
        "A record that was refused is passed, and refused again the same way.",
        restarts_after(sends(topics.DELETIONS, LINE, b"{]", letter())),
    ),
    Attack(
        "an insert over a live row",
        "Inserts a row under the id of somebody else's live row, to replace it.",
        "`ROW_EXISTS`.",
        changes(rejected(LINE, "a-1", "ROW_EXISTS"), rows=[GOOD | {"id": "row-40"}]),
    ),
    Attack(
        "an insert over a deleted row",
        "Inserts a row that was deleted.",
        "The ledger: `ROW_DELETED`.",
        changes(rejected(LINE, "a-1", "ROW_DELETED"), rows=[GOOD | {"id": "row-0"}]),
    ),
    Attack(
        "a correction of a deleted row",
        "Corrects a row that was deleted.",
        "The ledger: `ROW_DELETED`.",
        changes(rejected(LINE, "a-1", "ROW_DELETED"), op="correct", rows=[GOOD | {"id": "row-0"}]),
    ),
    Attack(
        "a correction of a row on its way out",
        "Corrects a row whose deletion is waiting in the other topic.",
        "Whatever the order, a deleted row stays deleted.",
        corrects_a_row_on_its_way_out,
    ),
    Attack(
        "an insert after its deletion",
        "Has an unknown row deleted, and inserts it afterwards.",
        "A keyed hash of the id is kept for 24 hours: `ROW_DELETED`.",
        inserts_then_deletes,
    ),
    Attack(
        "an insert of an erased person",
        "Inserts a row of a person who was erased.",
        "The suppression list: `SUBJECT_ERASED`.",
        inserts("SUBJECT_ERASED", subject="subject-1"),
    ),
    Attack(
        "an erased person among others",
        "Hides a row of an erased person among rows of others in one insert.",
        "A change is applied as a whole or not at all.",
        changes(
            rejected(LINE, "a-1", "SUBJECT_ERASED"),
            rows=[GOOD, GOOD | {"id": "x-2", "subject": "subject-1"}],
        ),
    ),
    Attack(
        "a correction that gives a row to an erased person",
        "Corrects a live row and names an erased person as its subject.",
        "A correction may not name a subject.",
        changes(
            rejected(LINE, "a-1", "SUBJECT_ERASED"),
            op="correct",
            rows=[GOOD | {"id": "row-40", "subject": "subject-1"}],
        ),
    ),
    Attack(
        "a row of an enormous value",
        "Inserts a row with a value of 1e150, after which no version is near retraining.",
        "`OUT_OF_RANGE`, by what the model was fitted on.",
        inserts("OUT_OF_RANGE", values=[1e150, 0, 0, 0]),
    ),
    Attack(
        "a row of an enormous target",
        "Inserts a row with a target of 1e300.",
        "`OUT_OF_RANGE`.",
        inserts("OUT_OF_RANGE", target=1e300),
    ),
    Attack(
        "a row of an enormous weight",
        "Inserts a row that counts as 1e300 rows.",
        "`OUT_OF_RANGE`.",
        inserts("OUT_OF_RANGE", weight=1e300),
    ),
    Attack(
        "a row of no weight",
        "Inserts a row of negative weight, which takes others out of the model.",
        "A weight is above zero.",
        changes(invalid, rows=[GOOD | {"weight": -1}]),
    ),
    Attack(
        "a row of other features",
        "Inserts a row with a feature too many.",
        "`SCHEMA`.",
        inserts("SCHEMA", values=[0.1] * 5),
    ),
    Attack(
        "a row of features by wrong names",
        "Inserts a row with its features by name, one of them twice removed from the model's.",
        "`SCHEMA`.",
        inserts("SCHEMA", values={"x0": 1, "x1": 1, "x2": 1, "__class__": 1}),
    ),
    Attack(
        "a class that is none",
        "Inserts a row of class 0.5 into a model of two classes.",
        "`SCHEMA`.",
        changes(rejected(LOGIT, "a-1", "SCHEMA"), rows=[GOOD | {"target": 0.5}], model=LOGIT),
    ),
    Attack(
        "an id twice in one insert",
        "Inserts two rows under one id.",
        "`INVALID_REQUEST`.",
        changes(invalid, rows=[GOOD, GOOD]),
    ),
    Attack(
        "ten thousand rows in one insert",
        "Inserts 10,000 rows at once, none of them well formed.",
        "The request is rejected as a whole at the first.",
        inserts_many,
    ),
    Attack(
        "another operation",
        "Asks to upsert rows.",
        "Only `insert` and `correct` are known.",
        changes(invalid, op="upsert"),
    ),
    Attack(
        "an unreadable change with a person's values",
        "Sends an unreadable change of rows, to have its values in the dead letters.",
        "Dead letters of changes hold a digest alone.",
        lambda world: [
            *sends(topics.ROW_CHANGES, LINE, b'{"rows": [{"id": "secret-person"', letter())(world),
            Trace(
                "values in a letter",
                lambda: any(
                    b"secret-person" in (one.value or b"") for one in world.platform.dead_letters()
                ),
                False,
            ),
        ],
    ),
    Attack(
        "garbage among refresh jobs",
        "Sends bytes that are no JSON to the topic of refresh jobs.",
        "They are passed over.",
        sends(topics.REFRESH_JOBS, LINE, b"\xff{"),
    ),
    Attack(
        "a job of an unknown model",
        "Orders a refresh of a model that is not registered.",
        "The job is dropped.",
        sends(
            topics.REFRESH_JOBS,
            "x",
            {"job_id": "a", "model_id": "x", "generation": 0, "version": 0, "reason": "x"},
        ),
    ),
    Attack(
        "thirty jobs at once",
        "Orders 30 rebuilds of one model, to keep the refresh worker busy.",
        "A rebuild is done at most once in a time that grows with its cost.",
        many_jobs,
    ),
    Attack(
        "a row back without its person",
        "Inserts an erased person's values under a new row id, without a subject.",
        "Nothing: row ids are not on the list, and values alone do not say whose they are. Signed "
        "requests restrict who may insert.",
        erased_person_without_subject,
        not_stopped=True,
    ),
)
