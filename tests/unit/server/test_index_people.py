"""What the console's index says of a person who is named, and of erasures that are due."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lethe.consumers.contract import topics
from lethe.consumers.contract.erasure_events import SUBJECT_ERASURE_REQUESTED
from lethe.consumers.contract.events import rfc3339
from lethe.consumers.log.base import Message
from lethe.consumers.server.index import erasures, records, requests
from lethe.consumers.server.index.erasures import OPEN, ErasureFilters
from lethe.consumers.server.index.schema import IndexFile
from tests.support.long_index import fill_erasures
from tests.unit.server.test_index import NOW, Topics, combined, read_all

DONE = {"status": "COMPLETE", "complete": True, "awaited": [], "completed_at": NOW}
PARTLY = DONE | {"status": "INCOMPLETE", "complete": False}


@pytest.fixture
def written() -> Iterator[Topics]:
    made = Topics(1)
    yield made
    made.producer.close()
    made.reader.close()


@pytest.fixture
def file(tmp_path: Path) -> IndexFile:
    return IndexFile(tmp_path)


def asked(written: Topics, name: str, subject: str, **fields: Any) -> Any:
    body = json.dumps({"erasure_id": name, "subject_id": subject, **fields}).encode()
    return written.send(topics.ERASURES, subject, body, SUBJECT_ERASURE_REQUESTED)


def shown(file: IndexFile, subject: str | None = None, **filters: str) -> list[str]:
    with file.read() as connection:
        page = erasures.erasures_page(connection, 0, ErasureFilters(**filters), subject)
    assert page.total == len(page.rows)
    return [row["erasure_id"] for row in page.rows]


def requests_of(file: IndexFile, subject: str, **options: Any) -> list[str]:
    with file.read() as connection:
        page = requests.requests_of_subject(connection, subject, **options)
    return [row["request_id"] for row in page.rows]


def test_a_person_leads_to_their_erasures_and_requests_in_whatever_order_topics_are_read(
    written: Topics, tmp_path: Path
) -> None:
    mine = asked(written, "mine", "anna")
    asked(written, "in-crm", "anna", namespace="crm")
    asked(written, "mine", "anna")  # a repeat, and a conflict: the first record has the id
    asked(written, "mine", "bert")
    asked(written, "waits", "bert")
    combined(written, "mine", mine, **DONE)
    written.request("churn", "r1", subject_id="anna")
    written.request("churn", "r2", row_ids=["anna"])
    written.request("left", "r3", subject_id="bert")
    several = (topics.ERASURES, topics.ERASURE_RECEIPTS, topics.DELETIONS)
    for i, order in enumerate(itertools.permutations(several)):
        (tmp_path / str(i)).mkdir()
        one = IndexFile(tmp_path / str(i))
        with closing(one.open_for_writing()) as connection:
            for topic in order:
                for partition in written.reader.partitions(topic):
                    for record in written.reader.read(partition, 0, 0.0, 1000)[0]:
                        records.add(connection, record)

        assert sorted(shown(one, "anna")) == ["in-crm", "mine"], order
        assert shown(one, "bert") == ["waits"], order
        assert shown(one, "ann") == [], order
        assert requests_of(one, "anna") == ["r1"], order
        assert requests_of(one, "bert") == ["r3"], order
        assert requests_of(one, "bert", visible=frozenset({"churn"})) == []


def test_two_files_have_different_marks_of_a_person(written: Topics, tmp_path: Path) -> None:
    asked(written, "e", "anna")
    marks = set()
    for name in "ab":
        (tmp_path / name).mkdir()
        read_all(written, IndexFile(tmp_path / name))
        with IndexFile(tmp_path / name).read() as connection:
            marks.add(connection.execute("SELECT mark FROM erasures").fetchone()[0])
    assert len(marks) == 2


def test_what_is_open_comes_first_and_what_is_late_before_it(
    written: Topics, file: IndexFile
) -> None:
    def ago(days: int) -> str:
        return rfc3339(NOW - timedelta(days=days))

    combined(written, "done", asked(written, "done", "a", requested_at=ago(50)), **DONE)
    asked(written, "today", "b")
    asked(written, "later", "b", requested_at=rfc3339(NOW + timedelta(days=9)))
    asked(written, "by-letter", "c", requested_at="2020-02-29")
    asked(written, "no-date", "c", requested_at={"week": 7})
    combined(written, "partly", asked(written, "partly", "d", requested_at=ago(31)), **PARTLY)
    combined(written, "asks", asked(written, "asks", "e", requested_at=ago(40)))
    asked(written, "lifts", "f", lift=True, requested_at=ago(99))
    read_all(written, file)
    before = ago(30)

    every = shown(file)
    assert every[:3] == ["by-letter", "asks", "partly"]
    assert sorted(every[3:6]) == ["later", "no-date", "today"]
    assert sorted(every[6:]) == ["done", "lifts"]
    assert shown(file, status=OPEN) == every[:6]
    assert shown(file, status=OPEN, asked_before=before) == every[:3]
    assert sorted(shown(file, asked_before=before)) == sorted([*every[:3], "done", "lifts"])
    assert shown(file, erasure_id="by") == ["by-letter"]
    assert shown(file, status="INCOMPLETE") == ["partly"]
    with file.read() as connection:
        assert erasures.late_and_open(connection, before) == (3, 6)


def test_what_only_receipts_tell_was_asked_for_before_the_first_of_them(
    written: Topics, file: IndexFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = SimpleNamespace(offset=7)
    for days in (40, 50, 3):
        then = rfc3339(NOW - timedelta(days=days))
        monkeypatch.setattr(records, "_moment", lambda _, then=then: then)
        combined(written, "e", place)
        read_all(written, file)
    assert shown(file, status=OPEN, asked_before=rfc3339(NOW - timedelta(days=45))) == ["e"]
    with file.read() as connection:
        [asked] = connection.execute("SELECT asked FROM erasures").fetchone()
    assert not asked


def test_an_erasure_that_could_not_be_completed_is_answered_by_a_later_one_of_the_same_person(
    written: Topics, file: IndexFile
) -> None:
    later = DONE | {"completed_at": NOW + timedelta(hours=1)}
    for name, subject, fields in (
        ("first", "anna", PARTLY), ("of-bert", "bert", PARTLY), ("after", "anna", later),
        ("last", "anna", PARTLY | {"completed_at": NOW + timedelta(hours=2)}),
    ):  # fmt: skip
        combined(written, name, asked(written, name, subject), **fields)
    elsewhere = asked(written, "elsewhere", "anna", namespace="crm")
    combined(written, "elsewhere", elsewhere, **PARTLY, namespace="crm")
    read_all(written, file)

    assert sorted(shown(file, status=OPEN)) == ["elsewhere", "last", "of-bert"]
    with file.read() as connection:
        found = erasures.erasure_of(connection, "first")
    assert found is not None
    assert found[0]["answered_by"] == "after"


def test_what_nobody_has_answered_is_shown_for_ever(
    written: Topics, file: IndexFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = NOW - timedelta(days=91)
    monkeypatch.setattr(records, "_moment", lambda _record: rfc3339(old))
    asked(written, "waits", "a")
    combined(written, "pending", asked(written, "pending", "b"))
    combined(written, "done", asked(written, "done", "c"), **DONE | {"completed_at": old})
    read_all(written, file)

    assert sorted(shown(file)) == ["pending", "waits"]


def test_an_unsigned_erasure_is_found_by_its_person(written: Topics, file: IndexFile) -> None:
    place = asked(written, "unsigned", "anna")
    source = f"{topics.ERASURES}/0/{place.offset}".encode()
    headers = (("lethe-error-code", b"UNAUTHENTICATED"), ("lethe-source", source))
    written.producer.append([Message(topics.DEAD_LETTERS, b"p", b"x", headers)])
    read_all(written, file)

    assert shown(file, "anna", status="DEAD_LETTER") == ["unsigned"]


def test_100_000_erasures_of_one_person_need_little_processor_time(file: IndexFile) -> None:
    fill_erasures(file, 100_000, "anna")
    ask: tuple[dict[str, str], ...] = (
        {}, {"status": OPEN}, {"status": "COMPLETE"}, {"erasure_id": "erasure-0999"},
        {"asked_before": rfc3339(NOW - timedelta(days=30))},
    )  # fmt: skip
    spent = []
    with file.read() as connection:
        for filters in ask:
            for subject in (None, "anna", "nobody"):
                for first in (0, 90_000):
                    begin = time.process_time()
                    erasures.erasures_page(connection, first, ErasureFilters(**filters), subject)
                    spent.append((time.process_time() - begin, filters, subject, first))
        for first in (0, 90_000):
            begin = time.process_time()
            requests.requests_of_subject(connection, "anna", None, first)
            spent.append((time.process_time() - begin, {}, "requests", first))
    assert max(one[0] for one in spent) < 0.2, sorted(spent, key=lambda one: -one[0])[:5]


def test_a_record_is_added_quickly_to_100_000_of_the_same_person(
    written: Topics, file: IndexFile
) -> None:
    fill_erasures(file, 100_000, "anna")
    for i in range(100):
        combined(written, f"e{i}", asked(written, f"e{i}", "anna"), **PARTLY)
    begin = time.process_time()
    read_all(written, file)
    assert time.process_time() - begin < 5.0
