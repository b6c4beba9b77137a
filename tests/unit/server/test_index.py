"""The console's index: the same contents whatever is repeated, killed, damaged or made again."""

from __future__ import annotations

import itertools
import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lethe.consumers.contract import cloudevents, topics, version_chain
from lethe.consumers.contract.erasure_events import (
    SUBJECT_ERASURE_COMPLETED,
    SUBJECT_ERASURE_REQUESTED,
    SubjectErasureCompleted,
)
from lethe.consumers.contract.events import (
    DELETION_RECEIPT,
    DELETION_REQUESTED,
    MODEL_VERSION,
    Source,
    Version,
    rfc3339,
)
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.log.base import Message
from lethe.consumers.server.index import erasures, follower, models, records, requests, schema
from lethe.consumers.server.index.follower import Feed
from lethe.consumers.server.index.requests import Filters
from lethe.consumers.server.index.schema import IndexFile
from lethe.engine.store.layout.records import ErrorRecord
from tests.support.long_index import fill
from tests.support.memory_log import MemoryLog

NOW = datetime.now(UTC).replace(microsecond=0)
ERROR = ErrorRecord(
    value=0.1, kind="estimate", bound=0.2, certified_version=None, budget=0.01, relative=0.004
)
SECRETS = ("u-4711", "person-0815")
"""A row and a subject that requests name, and that the index must not hold."""


class Topics:
    """Topics in memory, to write what workers and platforms write."""

    def __init__(self, partitions: int = 3) -> None:
        self.log = MemoryLog()
        self.log.ensure_topics(topics.specs(partitions))
        self.producer = self.log.producer()
        self.reader = self.log.reader()

    def send(self, topic: str, model: str, value: bytes, kind: str) -> Any:
        headers = cloudevents.headers(kind, "e", NOW, model)
        [appended] = self.producer.append([Message(topic, model.encode(), value, headers)])
        return appended

    def request(self, model: str, request: str, **named: Any) -> Any:
        named = named or {"row_ids": [SECRETS[0]]}
        body = json.dumps({"request_id": request, "model_id": model, **named}).encode()
        return self.send(topics.DELETIONS, model, body, DELETION_REQUESTED)

    def receipt(self, receipt: Receipt) -> None:
        self.send(topics.RECEIPTS, receipt.model_id, receipt.value(), DELETION_RECEIPT)

    def version(self, model: str, number: int, **changes: Any) -> None:
        value = version(model, number, **changes).value()
        self.send(topics.VERSIONS, model, value, MODEL_VERSION)


def receipt(model: str, request: str, status: str = "APPLIED", **changes: Any) -> Receipt:
    fields: dict[str, Any] = {
        "request_id": request, "model_id": model, "status": status, "rows_deleted": 1,
        "version": 1, "generation": 0, "completed_at": NOW,
        "source": Source(topic=topics.DELETIONS, partition=0, offset=0),
    }  # fmt: skip
    return Receipt.model_validate(fields | changes)


def version(model: str, number: int, **changes: Any) -> Version:
    fields: dict[str, Any] = {
        "model_id": model, "generation": 0, "version": number, "prev_digest": "", "digest": "",
        "parameters_digest": "0" * 64, "method": "pru", "kind": "linear", "status": "ACTIVE",
        "rows_live": 100 - number, "rows_deleted": number, "error": ERROR, "created_at": NOW,
        "commit": number, "commit_prev": "",
    }  # fmt: skip
    event = Version.model_validate(fields | changes)
    return event.model_copy(update={"digest": version_chain.version_digest(event)})


def read_all(topics_: Topics, file: IndexFile) -> None:
    with closing(file.open_for_writing()) as connection, closing(topics_.log.reader()) as reader:
        feed = Feed(connection, reader)
        while feed.advance() or feed.behind:
            pass


@pytest.fixture
def written() -> Iterator[Topics]:
    made = Topics()
    yield made
    made.producer.close()
    made.reader.close()


@pytest.fixture
def file(tmp_path: Path) -> IndexFile:
    return IndexFile(tmp_path)


def shown(file: IndexFile, filters: Filters = Filters()) -> Sequence[sqlite3.Row]:  # noqa: B008
    with file.read() as connection:
        return requests.page_of(connection, filters).rows


def a_history(topics_: Topics) -> None:
    sent = topics_.request("churn", "r1")
    place = Source(topic=topics.DELETIONS, partition=sent.partition.index, offset=sent.offset)
    topics_.request("churn", "r2", subject_id=SECRETS[1])
    topics_.receipt(receipt("churn", "r1", source=place))
    topics_.receipt(receipt("churn", "r1", source=place))
    topics_.receipt(receipt("churn", "r3", "DEFERRED", code="GENERATION_FULL"))
    topics_.receipt(receipt("churn", "r3", completed_at=NOW + timedelta(seconds=9)))
    topics_.receipt(receipt("churn", "r3", "DEFERRED", code="GENERATION_FULL"))
    topics_.receipt(receipt("churn", "r1", "REJECTED", code="REQUEST_ID_CONFLICT", version=None))
    topics_.receipt(receipt("churn", "r4", "REJECTED", code="UNKNOWN_ROWS", version=None))
    for number in range(3):
        topics_.version("churn", number)
    topics_.version("churn", 2)


def statuses(file: IndexFile) -> dict[str, str]:
    return {row["request_id"]: row["status"] for row in shown(file)}


def test_each_request_has_one_outcome_however_often_it_is_published(
    written: Topics, file: IndexFile
) -> None:
    a_history(written)
    read_all(written, file)

    assert statuses(file) == {
        "r1": "APPLIED", "r2": records.WAITING, "r3": "APPLIED", "r4": "REJECTED",
    }  # fmt: skip
    with file.read() as connection:
        history = requests.request_history(connection, "churn", "r3")
        assert history is not None
        assert [event["status"] for _, event in history.receipts] == ["DEFERRED", "APPLIED"]
        asked = requests.request_history(connection, "churn", "r2")
        assert asked is not None
        assert [(row["rows"], row["by_subject"]) for row in asked.sent] == [(None, 1)]
        assert [row["version"] for row in models.versions_of(connection, "churn")] == [2, 1, 0]
        newest = models.model_of(connection, "churn")
        assert newest is not None
        assert (newest["version"], newest["error_share"]) == (2, pytest.approx(0.4))


def dump(file: IndexFile) -> list[tuple[Any, ...]]:
    """Return the contents but for row numbers, places and marks, in a fixed order."""
    with file.read() as connection:
        tables = ("requests", "sent", "receipts", "versions", "models")
        queries = (connection.execute(f"SELECT * FROM {name}") for name in tables)  # noqa: S608
        kept = [
            {name: row[name] for name in row.keys() if name not in ("id", "place", "mark")}  # noqa: SIM118
            for rows in queries
            for row in rows
        ]
    return sorted((tuple(sorted(row.items())) for row in kept), key=repr)


def test_topics_read_in_any_order_give_the_same_index(tmp_path: Path, written: Topics) -> None:
    a_history(written)
    place = written.request("churn", "again")
    source = Source(topic=topics.DELETIONS, partition=place.partition.index, offset=place.offset)
    unknown = {"code": "UNKNOWN_MODEL", "version": None, "source": source}
    written.receipt(receipt("churn", "again", "REJECTED", **unknown))
    written.request("churn", "again")
    place = written.request("churn", "unsigned")
    named = f"{topics.DELETIONS}/{place.partition.index}/{place.offset}".encode()
    headers = (("lethe-error-code", b"UNAUTHENTICATED"), ("lethe-source", named))
    written.producer.append([Message(topics.DEAD_LETTERS, b"churn", b"x", headers)])
    seen = []
    several = (topics.DELETIONS, topics.RECEIPTS, topics.VERSIONS, topics.DEAD_LETTERS)
    for i, order in enumerate(itertools.permutations(several)):
        (tmp_path / str(i)).mkdir()
        one = IndexFile(tmp_path / str(i))
        with closing(one.open_for_writing()) as connection:
            for topic in order:
                for partition in written.reader.partitions(topic):
                    for record in written.reader.read(partition, 0, 0.0, 1000)[0]:
                        records.add(connection, record)
        seen.append(dump(one))

    for contents in seen:
        assert contents == seen[0]
    assert len(seen) == 24


def test_a_kill_between_two_batches_loses_and_doubles_nothing(
    written: Topics, file: IndexFile, tmp_path: Path
) -> None:
    for i in range(1200):
        written.receipt(receipt(f"m{i % 7}", f"r{i}"))
    with closing(file.open_for_writing()) as connection, closing(written.log.reader()) as reader:
        Feed(connection, reader).advance()  # one batch a partition, and then it is gone
    assert 0 < len(dump(file)) < 2400
    read_all(written, file)
    (tmp_path / "anew").mkdir()
    anew = IndexFile(tmp_path / "anew")
    read_all(written, anew)

    assert dump(file) == dump(anew)
    with file.read() as connection:
        assert requests.counts_by_status(connection) == {"APPLIED": 1200}


@pytest.mark.parametrize("damage", ["format", "bytes", "no database", "missing table"])
def test_a_file_of_another_format_or_a_damaged_one_is_made_again(
    written: Topics, file: IndexFile, damage: str
) -> None:
    a_history(written)
    read_all(written, file)
    before = dump(file)
    if damage == "format":
        with closing(sqlite3.connect(file.path)) as connection:
            connection.execute(f"PRAGMA user_version = {schema.FORMAT + 1}")
    elif damage == "bytes":
        data = bytearray(file.path.read_bytes())
        data[4096:] = b"\x5a" * (len(data) - 4096)
        file.path.write_bytes(data)
    elif damage == "no database":
        file.path.write_bytes(b"not a database, but text that somebody has put here" * 100)
    else:
        file.path.write_bytes(b"")
    read_all(written, file)

    assert dump(file) == before


def test_a_missing_or_damaged_file_reads_as_empty(file: IndexFile) -> None:
    assert not shown(file)
    file.path.write_bytes(b"nonsense" * 1000)
    assert not shown(file)


def test_the_file_holds_no_row_and_no_subject_and_is_the_owners(
    written: Topics, file: IndexFile
) -> None:
    a_history(written)
    with closing(file.open_for_writing()) as connection, closing(written.log.reader()) as reader:
        feed = Feed(connection, reader)
        while feed.advance():
            pass
        files = list(file.path.parent.glob("console.sqlite*"))
        contents = b"".join(one.read_bytes() for one in files)
        modes = [one.stat().st_mode & 0o077 for one in files]

    assert b"churn" in contents
    assert not [secret for secret in SECRETS if secret.encode() in contents]
    assert modes == [0] * len(files)


def test_a_request_for_an_unknown_model_waits_again_when_it_is_sent_again(
    written: Topics, file: IndexFile
) -> None:
    place = written.request("new", "r")
    source = {"topic": topics.DELETIONS, "partition": place.partition.index}
    written.receipt(
        receipt("new", "r", "REJECTED", code="UNKNOWN_MODEL", source={**source, "offset": 0})
    )
    read_all(written, file)
    assert statuses(file) == {"r": "REJECTED"}
    written.request("new", "r")
    read_all(written, file)
    assert statuses(file) == {"r": records.WAITING}
    written.receipt(receipt("new", "r", source={**source, "offset": 1}))
    read_all(written, file)
    assert statuses(file) == {"r": "APPLIED"}


def test_what_nobody_signed_is_shown_as_a_dead_letter(written: Topics, file: IndexFile) -> None:
    place = written.request("churn", "r1")
    source = f"{topics.DELETIONS}/{place.partition.index}/{place.offset}".encode()
    headers = (("lethe-error-code", b"UNAUTHENTICATED"), ("lethe-source", source))
    written.producer.append([Message(topics.DEAD_LETTERS, b"churn", b"x", headers)])
    read_all(written, file)

    assert statuses(file) == {"r1": records.DEAD_LETTER}


def test_dead_letters_are_seen_by_those_who_see_their_models(
    written: Topics, file: IndexFile
) -> None:
    mine = written.request("churn", "r1")
    for source in (f"{topics.DELETIONS}/{mine.partition.index}/{mine.offset}", "lethe.other/0/7"):
        headers = (("lethe-error-code", b"INVALID_REQUEST"), ("lethe-source", source.encode()))
        written.producer.append([Message(topics.DEAD_LETTERS, b"", b"x", headers)])
    read_all(written, file)

    def seen(visible: frozenset[str] | None) -> set[str]:
        with file.read() as connection:
            return {row["topic"] for row in requests.dead_letters(connection, visible)}

    assert seen(None) == {topics.DELETIONS, "lethe.other"}
    assert seen(frozenset({"churn"})) == {topics.DELETIONS}
    assert seen(frozenset()) == seen(frozenset({"fraud"})) == set()


def erasure(written: Topics, name: str, **fields: Any) -> Any:
    body = json.dumps({"erasure_id": name, "subject_id": SECRETS[1], **fields}).encode()
    return written.send(topics.ERASURES, SECRETS[1], body, SUBJECT_ERASURE_REQUESTED)


def combined(written: Topics, name: str, place: Any, **fields: Any) -> None:
    receipt = SubjectErasureCompleted.model_validate(
        {
            "erasure_id": name, "status": "PENDING", "complete": False,
            "models": [{"model_id": "m", "status": "AWAITED"}], "awaited": ["m"],
            "source": {"topic": topics.ERASURES, "partition": 0, "offset": place.offset},
        } | fields
    )  # fmt: skip
    written.send(topics.ERASURE_RECEIPTS, name, receipt.value(), SUBJECT_ERASURE_COMPLETED)


def test_an_erasure_has_its_first_final_receipt_in_any_order(
    written: Topics, tmp_path: Path
) -> None:
    place = erasure(written, "e1", reason="asked")
    erasure(written, "e2", lift=True)
    unsigned = erasure(written, "e3")
    source = f"{topics.ERASURES}/0/{unsigned.offset}".encode()
    headers = (("lethe-error-code", b"UNAUTHENTICATED"), ("lethe-source", source))
    written.producer.append([Message(topics.DEAD_LETTERS, b"p", b"x", headers)])
    combined(written, "e1", place)
    done = {"status": "COMPLETE", "complete": True, "awaited": [], "completed_at": NOW}
    combined(written, "e1", place, **done)
    combined(written, "e1", place)
    combined(written, "e1", place, **done | {"status": "INCOMPLETE", "complete": False})
    for i, order in enumerate(
        itertools.permutations((topics.ERASURES, topics.ERASURE_RECEIPTS, topics.DEAD_LETTERS))
    ):
        (tmp_path / str(i)).mkdir()
        one = IndexFile(tmp_path / str(i))
        with closing(one.open_for_writing()) as connection:
            for topic in order:
                [partition] = written.reader.partitions(topic)
                for record in written.reader.read(partition, 0, 0.0, 1000)[0]:
                    records.add(connection, record)
        with one.read() as connection:
            page = erasures.erasures_page(connection)
            known = {row["erasure_id"]: (row["op"], row["status"]) for row in page.rows}
            found = erasures.erasure_of(connection, "e1")

        assert known == {
            "e1": ("erase", "COMPLETE"), "e2": ("lift", "WAITING"), "e3": ("erase", "DEAD_LETTER"),
        }  # fmt: skip
        assert found is not None
        assert found[1] is not None
        assert found[1].complete
        assert SECRETS[1].encode() not in one.path.read_bytes()


def test_records_that_cannot_be_read_hold_nothing_back(written: Topics, file: IndexFile) -> None:
    for topic in records.followed():
        for value in (b"", b"{", b"[]", b"{}", b'{"model_id": 7}', b"\xff\xfe", b"[" * 5000):
            written.producer.append([Message(topic, b"churn", value)])
    huge = receipt("churn", "huge", rows_deleted=2**63)  # SQLite's whole numbers end before it
    written.receipt(huge)
    a_history(written)
    altered = version("churn", 3).model_copy(update={"rows_live": 5})
    written.send(topics.VERSIONS, "churn", altered.value(), MODEL_VERSION)
    read_all(written, file)

    assert statuses(file)["r1"] == "APPLIED"
    with file.read() as connection:
        assert len(models.versions_of(connection, "churn")) == 3


def test_old_outcomes_go_with_the_receipts(written: Topics, file: IndexFile) -> None:
    written.receipt(receipt("churn", "old", completed_at=NOW - timedelta(days=91)))
    written.receipt(receipt("churn", "new"))
    written.version("churn", 0, created_at=NOW - timedelta(days=400))
    read_all(written, file)

    assert statuses(file) == {"new": "APPLIED"}
    with file.read() as connection:
        assert len(models.versions_of(connection, "churn")) == 1


def test_a_topic_that_is_made_again_is_read_from_its_beginning(
    written: Topics, file: IndexFile
) -> None:
    a_history(written)
    read_all(written, file)
    other = Topics()
    other.receipt(receipt("churn", "r9"))
    read_all(other, file)
    other.producer.close()
    other.reader.close()

    assert statuses(file).keys() == {"r1", "r2", "r3", "r4", "r9"}


def test_a_page_of_100_000_requests_and_1_000_models_needs_little_processor_time(
    file: IndexFile,
) -> None:
    fill(file, 100_000, 1_000)
    visible = frozenset(f"model-{i:04d}" for i in range(0, 1_000, 3))
    every = (
        Filters(), Filters(model_id="model-0042"), Filters(status="DEFERRED"),
        Filters(code="UNKNOWN_ROWS"), Filters(request_id="request-0999"),
        Filters(status="REJECTED", since=rfc3339(NOW)[:10]), Filters(until="2020"),
    )  # fmt: skip
    begin = time.process_time()
    with file.read() as connection:
        for filters in every:
            requests.page_of(connection, filters)
            requests.page_of(connection, filters, visible)
        requests.counts_by_status(connection)
        requests.codes(connection)
        models.models_page(connection, by_error=True, first=950)
        models.models_page(connection, visible)
        models.troubles(connection)
    spent = time.process_time() - begin

    assert spent < 1.0, f"{2 * len(every) + 5} pages took {spent:.2f} s of processor time"


def test_pages_lead_to_each_other_without_gaps(file: IndexFile) -> None:
    fill(file, 120, 3)
    with file.read() as connection:
        first = requests.page_of(connection, Filters())
        second = requests.page_of(connection, Filters(), before=first.older or "")
        third = requests.page_of(connection, Filters(), before=second.older or "")
        back = requests.page_of(connection, Filters(), after=second.newer or "")

    named = [row["request_id"] for page in (first, second, third) for row in page.rows]
    assert named == [f"request-{i:06d}" for i in reversed(range(120))]
    assert (first.newer, third.older) == (None, None)
    assert [row["id"] for row in back.rows] == [row["id"] for row in first.rows]
    assert back.newer is None


def test_a_defect_is_told_and_the_index_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "_RETRY_SECONDS", 0.01)
    tries: list[int] = []

    def broken(_: object) -> None:
        tries.append(1)
        raise RuntimeError("nobody thought of it")

    monkeypatch.setattr(follower.IndexFollower, "_follow", broken)
    following = follower.IndexFollower(IndexFile(tmp_path), Topics().log, Any, None)  # type: ignore[arg-type]
    end = time.monotonic() + 60
    with following.running():
        while len(tries) < 2:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert following.progress.trouble is not None
        assert "RuntimeError" in following.progress.trouble


def test_a_file_that_somebody_else_writes_to_is_waited_for_and_not_made_again(
    written: Topics, file: IndexFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(follower, "facts_of_models", lambda *_: {})
    monkeypatch.setattr(follower, "models_that_lack_rows", lambda *_: frozenset())
    monkeypatch.setattr(schema, "_BUSY_MS", 10)
    written.receipt(receipt("churn", "before"))
    read_all(written, file)
    same = file.path.stat().st_ino
    following = follower.IndexFollower(file, written.log, SimpleNamespace(client=None), None)  # type: ignore[arg-type]
    with closing(file.open_for_writing()) as other:
        other.execute("BEGIN IMMEDIATE")
        written.receipt(receipt("churn", "after"))
        end = time.monotonic() + 60
        with following.running():
            while "locked" not in (following.progress.trouble or ""):
                assert time.monotonic() < end
                time.sleep(0.01)
            other.execute("COMMIT")
            while statuses(file).keys() != {"before", "after"}:
                assert time.monotonic() < end, statuses(file)
                time.sleep(0.01)
    assert file.path.stat().st_ino == same
