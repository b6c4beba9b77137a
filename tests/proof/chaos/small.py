"""A small history in which every promise holds, made by hand: tests of the checker break it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np

from lethe.consumers.contract import topics
from tests.proof.chaos.checker import digest_of
from tests.proof.chaos.erasing import children
from tests.proof.chaos.facts import Link, link_of
from tests.proof.chaos.history import Asked, Final, History, Json, Live, Read, Record
from tests.proof.chaos.load import make
from tests.proof.live_rows import LiveRows, rows_of
from tests.support.oracles import retrain

MODEL = "m"
_ROWS = 12
_AT = "2026-01-01T00:00:00.000Z"
_BATCHES = (("a", ("row-0", "row-1")), ("b", ("row-4",)), ("c", ("row-7", "row-8")))
_CHILD, _SUBJECT, _ROWS_OF_SUBJECT = "erasure-1", "subject-3", ("row-9", "row-10", "row-11")


def history() -> History:
    """Return three applied requests, an erasure, a repeat, a conflict, a stranger, and garbage."""
    made = History()
    data = make(np.random.default_rng(0), "linear", _ROWS, 3)
    made.data[MODEL] = data
    sent: list[Record] = []
    receipts: list[Record] = []
    versions: list[Json] = []
    parameters: list[Record] = []
    ledger: dict[str, int] = {}

    def publish(request_ids: list[str]) -> None:
        live = np.array([f"row-{i}" not in ledger for i in range(_ROWS)])
        theta = retrain("linear", data.design[live], data.y[live], data.weight[live], data.penalty)
        version = _version(versions[-1] if versions else None, request_ids, len(ledger))
        versions.append(version)
        parameters.append(_record(topics.MODELS, len(parameters), _parameters(version, theta)))

    def send(body: Json) -> Record:
        record = _record(topics.DELETIONS, len(sent), body)
        sent.append(record)
        return record

    def answer(record: Record, status: str, **more: Any) -> None:
        receipts.append(_record(topics.RECEIPTS, len(receipts), _receipt(record, status, **more)))

    publish([])
    for name, rows in _BATCHES:
        record = send({"request_id": name, "model_id": MODEL, "row_ids": list(rows)})
        made.asked.append(Asked(MODEL, name, rows, None, acknowledged=True))
        ledger |= dict.fromkeys(rows, len(versions))
        publish([name])
        answer(record, "APPLIED", rows_deleted=len(rows), version=len(versions) - 1)
    child = send({"request_id": _CHILD, "model_id": MODEL, "subject_id": _SUBJECT})
    made.asked += children([child])
    ledger |= dict.fromkeys(_ROWS_OF_SUBJECT, len(versions))
    publish([_CHILD])
    answer(child, "APPLIED", rows_deleted=len(_ROWS_OF_SUBJECT), version=len(versions) - 1)
    again = send({"request_id": "a", "model_id": MODEL, "row_ids": ["row-1", "row-0"]})
    receipts.append(_record(topics.RECEIPTS, len(receipts), receipts[0].data or {}))
    other = send({"request_id": "a", "model_id": MODEL, "row_ids": ["row-9"]})
    made.asked.append(Asked(MODEL, "a", ("row-9",), None, acknowledged=True))
    answer(other, "REJECTED", code="REQUEST_ID_CONFLICT")
    stranger = send({"request_id": "s", "model_id": "nobody", "row_ids": ["row-0"]})
    made.asked.append(Asked("nobody", "s", ("row-0",), None, acknowledged=True))
    answer(stranger, "REJECTED", code="UNKNOWN_MODEL")
    del again
    noise = Record((topics.DELETIONS, 0, len(sent)), b"m", b"no request 1")
    sent.append(noise)
    made.garbage[noise.value] = True
    letter = Record(
        (topics.DEAD_LETTERS, 0, 0), b"m", noise.value, None,
        {"lethe-source": f"{topics.DELETIONS}/0/{noise.source[2]}".encode()},
    )  # fmt: skip
    made.topics = {
        topics.DELETIONS: sent,
        topics.RECEIPTS: receipts,
        topics.VERSIONS: [
            _record(topics.VERSIONS, i, version) for i, version in enumerate(versions)
        ],
        topics.MODELS: parameters,
        topics.DEAD_LETTERS: [letter],
        **_erasure(),
    }
    stored = {}
    for record in receipts:
        receipt = record.data or {}
        if receipt["model_id"] == MODEL and receipt["code"] is None:
            stored[receipt["request_id"]] = ("F", record.value.decode())
    newest = versions[-1]
    made.topics[topics.COMMITS] = commits = [commit_record(i) for i in range(len(versions))]
    made.finals[MODEL] = Final(
        commit=len(versions) - 1,
        commit_digest=_link(commits[-1]).digest,
        version=newest["version"],
        digest=newest["digest"],
        offsets={"id/0": len(sent)},
        ledger=ledger,
        deletions_from=2,
        deletions=list(ledger)[2:],
        receipts=stored,
        rows=frozenset(f"row-{i}" for i in range(_ROWS)) - ledger.keys(),
        leftovers={"requests that wait": 0},
        published=np.zeros((4, 1)),
        theta_exact=np.zeros((4, 1)),
    )
    made.live = [Live("watcher", MODEL, v["version"], v["digest"]) for v in versions]
    made.reads = [Read("state", MODEL, 1, versions[1]["digest"], versions[1]["parameters_digest"])]
    links = enumerate(_link(commit) for commit in commits)
    made.diaries = [_applied(float(i), "deletions-1", link) for i, link in links]
    made.places = {"id/0": (topics.DELETIONS, 0)}
    made.rows[MODEL] = _rows(made, versions)
    made.remains = {"memory of the store": {"live": 21, "deleted": 0}}
    return made


def _erasure() -> dict[str, list[Record]]:
    """Return what lies in the topics of erasures: one that is complete."""
    asked: Json = {"erasure_id": "e", "subject_id": _SUBJECT}
    model: Json = {
        "model_id": MODEL,
        "status": "APPLIED",
        "request_ids": [_CHILD],
        "rows_deleted": len(_ROWS_OF_SUBJECT),
    }
    receipt: Json = {
        "erasure_id": "e",
        "status": "COMPLETE",
        "complete": True,
        "models": [model],
        "rows_deleted": len(_ROWS_OF_SUBJECT),
        "source": {"topic": topics.ERASURES, "partition": 0, "offset": 0},
        "completed_at": _AT,
    }
    mark: Json = {"mark": "k:0", "erasure_id": "e", "lifted": False}
    said = {topics.ERASURES: asked, topics.ERASURE_RECEIPTS: receipt, topics.SUPPRESSIONS: mark}
    return {
        topic: [Record((topic, 0, 0), b"k:0", json.dumps(data).encode(), data)]
        for topic, data in said.items()
    }


def _rows(made: History, versions: list[Json]) -> LiveRows:
    """Return the live rows, version by version, as the commits of a real log would tell them."""
    sent = {record.source: record.data or {} for record in made.topics[topics.DELETIONS]}
    finals = {r.data["request_id"]: r.value for r in made.topics[topics.RECEIPTS][::-1] if r.data}
    rows = LiveRows(
        rows_of(made.data[MODEL]),
        lambda *_: b"",
        lambda receipt: sent[tuple(receipt["source"].values())],
    )
    ledger = made.finals[MODEL].ledger
    for number, version in enumerate(versions):
        header = {
            "kind": "requests" if number else "registration",
            "newest": number,
            "deleted": [row for row, at in ledger.items() if at == number],
        }
        rows.take(header, [finals[name] for name in version["request_ids"]])
    return rows


def altered(record: Record, **changes: Any) -> Record:
    """Return a record with other members in its JSON object."""
    return _record(record.source[0], record.source[2], {**(record.data or {}), **changes})


def rewritten(record: Record, **changes: Any) -> Record:
    """Return a record of erasures with other members in its JSON object."""
    data = {**(record.data or {}), **changes}
    return replace(record, value=json.dumps(data).encode(), data=data)


def moved(final: Final, **changes: Any) -> Final:
    """Return a final state with other facts."""
    return replace(final, **changes)


def _record(topic: str, offset: int, data: Json) -> Record:
    key = str(data["model_id"]).encode()
    return Record((topic, 0, offset), key, json.dumps(data).encode(), data)


def _version(before: Json | None, request_ids: list[str], deleted: int) -> Json:
    number = 0 if before is None else before["version"] + 1
    version: Json = {
        "model_id": MODEL,
        "generation": 0,
        "version": number,
        "prev_digest": "" if before is None else before["digest"],
        "parameters_digest": f"{number:064x}",
        "status": "ACTIVE",
        "rows_live": _ROWS - deleted,
        "rows_deleted": deleted,
        "error": {"value": 0.0, "bound": 1e-9},
        "request_ids": request_ids,
        "refresh": None,
        "commit": number,
        "commit_prev": _link(commit_record(number - 1)).digest if number else "",
    }
    return {**version, "digest": digest_of(version)}


def _parameters(version: Json, theta: Any) -> Json:
    return {
        "model_id": MODEL,
        "generation": 0,
        "version": version["version"],
        "prev_digest": version["prev_digest"],
        "digest": version["digest"],
        "parameters_digest": version["parameters_digest"],
        "method": "exact",
        "kind": "linear",
        "status": "ACTIVE",
        "created_at": _AT,
        "feature_names": ["x0", "x1", "x2"],
        "target_names": ["y0"],
        "fit_intercept": True,
        "intercept": float(theta[-1, 0]),
        "theta": [float(value) for value in theta[:-1, 0]],
    }


def _receipt(record: Record, status: str, **more: Any) -> Json:
    body = record.data or {}
    topic, partition, offset = record.source
    receipt = {
        "request_id": body["request_id"],
        "model_id": body["model_id"],
        "status": status,
        "code": None,
        "rows_deleted": 0,
        "version": None,
        "source": {"topic": topic, "partition": partition, "offset": offset},
        "completed_at": _AT,
    }
    return {**receipt, **more}


def commit_record(number: int, prev: str | None = None, offset: int | None = None) -> Record:
    """Return the record of a commit, each of which makes a version; ``prev`` if it is forged."""
    before = _link(commit_record(number - 1)).digest if number and prev is None else prev or ""
    opened = {"model_id": MODEL, "commit": number, "prev": before, "version": number}
    parts = (json.dumps(opened).encode(), b"sealed", b"")
    framed = b"".join(len(part).to_bytes(4, "little") + part for part in parts)
    source = (topics.COMMITS, 0, number if offset is None else offset)
    return Record(source, MODEL.encode(), b"lethe.commit.v1\n" + framed)


def _link(record: Record) -> Link:
    link = link_of(record)
    assert link is not None
    return link


def _applied(t: float, who: str, link: Link) -> Json:
    return {
        "t": t, "who": who, "what": "commit", "model": MODEL, "commit": link.number,
        "digest": link.digest, "applied": "APPLIED", "partitions": ["id/0"], "deleted": 1,
    }  # fmt: skip
