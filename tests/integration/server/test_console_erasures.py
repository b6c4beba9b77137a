"""A privacy officer's work in the console: erase, find again by the person, hand over an answer."""

from __future__ import annotations

import hashlib
import html
import re
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lethe.consumers.audit.auditor import ErasureAudit, audit_bundle
from lethe.consumers.audit.published.finding import Result, Verdict
from lethe.consumers.contract import topics
from lethe.consumers.contract.erasure_events import SUBJECT_ERASURE_COMPLETED
from lethe.consumers.contract.signatures import Signer
from lethe.consumers.log.base import Message
from lethe.consumers.server.console import erasing
from lethe.consumers.server.console.due import due_of
from lethe.consumers.server.index.schema import IndexFile
from lethe.consumers.server.keys import issue_key
from lethe.engine.store.layout.keys import ModelKeys
from tests.integration.server.test_console import SUBJECT, Visitor, sent, visitor_of
from tests.support.erasures import drain, erase, erasure_worker, published, register
from tests.support.long_index import fill_erasures
from tests.support.platform import Platform

__all__ = ["visitor_of"]  # a fixture


def finish(memory: Platform) -> None:
    """Have every erasure asked for and answered."""
    with closing(erasure_worker(memory)) as worker:
        drain(memory, worker)


def texts(page: str) -> str:
    """Return what a page says, without its tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


def test_the_confirmation_names_whom_it_erases_and_where(
    visitor_of: Callable[..., Visitor],
) -> None:
    visitor = visitor_of()
    form = {"subject": SUBJECT, "id": "ticket-7", "asked": "2026-01-31", "reason": "art. 17"}
    page = texts(visitor.post("erase", form).text)
    for said in (
        f"Subject {SUBJECT}", "Namespace none", "Erasure id ticket-7", "Asked on 2026-01-31",
        "Reason art. 17", "2 models know the person now", "m 3 0", "n 3 0", "Together 6",
    ):  # fmt: skip
        assert said in page, said
    crm = texts(visitor.post("erase", form, namespace="crm").text)
    assert "Namespace crm" in crm
    assert "0 models know the person now" in crm
    assert "Erasure id console-" in texts(visitor.post("erase", subject=SUBJECT).text)


@pytest.mark.parametrize("again", ["", "subject-2", "SUBJECT-1", "subject-1 x"])
def test_an_erasure_of_several_models_is_sent_only_if_the_subject_is_typed_again(
    memory: Platform, visitor_of: Callable[..., Visitor], again: str
) -> None:
    visitor = visitor_of()
    assert 'name="again"' in visitor.post("erase", subject=SUBJECT).text
    refused = visitor.post("erase/confirmed", subject=SUBJECT, id="t", again=again)
    assert refused.status_code == 400
    assert "type its id again" in refused.text
    assert "Erase this person?" in refused.text
    assert sent(memory, topics.ERASURES) == []
    done = visitor.post("erase/confirmed", subject=SUBJECT, id="t", again=f" {SUBJECT} ")
    assert done.status_code == 303
    assert [one.erasure_id for one in sent(memory, topics.ERASURES)] == ["t"]


def test_one_model_with_few_rows_needs_no_second_typing_and_one_with_many_does(
    memory: Platform, visitor_of: Callable[..., Visitor], monkeypatch: pytest.MonkeyPatch
) -> None:
    register(memory, "alone", namespace="crm")
    visitor = visitor_of()
    form = {"subject": SUBJECT, "namespace": "crm", "id": "t"}
    assert 'name="again"' not in visitor.post("erase", form).text
    monkeypatch.setattr(erasing, "MANY_ROWS", 2)
    assert 'name="again"' in visitor.post("erase", form).text
    assert visitor.post("erase/confirmed", form).status_code == 400
    monkeypatch.undo()
    assert visitor.post("erase/confirmed", form).status_code == 303


def test_models_that_nobody_can_search_are_named_before_anything_is_sent(
    memory: Platform, visitor_of: Callable[..., Visitor]
) -> None:
    register(memory, "blind", subjects=False)
    page = texts(visitor_of().post("erase", subject=SUBJECT).text)
    assert "It cannot become complete: blind was registered without subjects" in page


@pytest.mark.parametrize("day", ["tomorrow", "2026-02-30", "31.1.2026", "9999-12-31"])
def test_a_day_of_the_request_that_cannot_be_is_refused(
    visitor_of: Callable[..., Visitor], day: str
) -> None:
    answer = visitor_of().post("erase", subject=SUBJECT, asked=day)
    assert answer.status_code == 400
    assert "day of the request" in answer.text


def test_a_person_leads_to_the_erasure_its_requests_and_its_receipt(
    memory: Platform, visitor_of: Callable[..., Visitor]
) -> None:
    visitor = visitor_of()
    visitor.post("erase/confirmed", subject=SUBJECT, id="ticket-7", again=SUBJECT)
    erase(memory, "subject-2", "ticket-8")
    finish(memory)
    visitor.until("Complete:", "erasure", id="ticket-7")
    visitor.until("Complete:", "erasure", id="ticket-8")

    found = visitor.post("lookup", by="subject", named=SUBJECT)
    assert SUBJECT not in str(found.url)
    page = texts(found.text)
    assert "1 erasure of this person" in page
    assert "2 deletion requests name this person" in page
    assert "ticket-8" not in page
    links = re.findall(r'href="([^"]*)"', found.text)
    [erasure] = {link for link in links if link.startswith("/console/erasure?")}
    requests = {link for link in links if link.startswith("/console/request?")}
    assert len(requests) == 2
    for link in (erasure, *requests):
        shown = visitor.client.get(link.replace("&amp;", "&")).text
        assert re.search("As (it was|they were) published", shown), link
    other = texts(visitor.post("lookup", by="subject", named="subject-3").text)
    assert "0 erasures of this person" in other
    assert "erasures of this person" not in texts(
        visitor.post("lookup", by="row", named="row-3").text
    )


def test_what_the_log_has_removed_is_found_by_what_binds_receipts_to_the_person(
    memory: Platform, visitor_of: Callable[..., Visitor], tmp_path: Path
) -> None:
    erase(memory, SUBJECT, "ticket-7")
    erase(memory, "subject-2", "ticket-8")
    visitor = visitor_of(seals=lambda: memory.seals)
    visitor.post("delete/confirmed", model="m", by="subject", named=SUBJECT, id="r1")
    finish(memory)
    for ticket in ("ticket-7", "ticket-8"):
        visitor.until("Complete:", "erasure", id=ticket)
    before = texts(visitor.post("lookup", by="subject", named=SUBJECT).text)
    with closing(IndexFile(tmp_path).open_for_writing()) as connection:
        connection.execute("UPDATE erasures SET mark = NULL")  # as if the requests were gone
        connection.execute("UPDATE requests SET mark = NULL")
    after = texts(visitor.post("lookup", by="subject", named=SUBJECT).text)

    for page in (before, after):
        assert "1 erasure of this person" in page
        assert "ticket-7" in page
        assert "ticket-8" not in page
        assert "deletion requests name this person" in page
    assert "0 erasures" in texts(visitor_of().post("lookup", by="subject", named=SUBJECT).text)


def test_a_key_for_some_models_finds_their_requests_and_no_erasure(
    memory: Platform, visitor_of: Callable[..., Visitor], tmp_path: Path
) -> None:
    key = issue_key(tmp_path / "api.keys", "crm", ["m"], None)
    erase(memory, SUBJECT, "ticket-7")
    finish(memory)
    everybody = visitor_of()
    everybody.until("Complete:", "erasure", id="ticket-7")
    visitor = visitor_of(tmp_path / "api.keys")
    visitor.post("sign-in", token=visitor.token("sign-in"), key=key)
    page = visitor.post("lookup", by="subject", named=SUBJECT).text
    assert "1 deletion request names this person" in texts(page)
    assert "model=n" not in page
    assert "ticket-7" not in page
    assert visitor.get("erasure/answer", id="ticket-7").status_code == 403


def test_erasures_are_searched_by_id_state_and_age_and_the_late_come_first(
    memory: Platform, visitor_of: Callable[..., Visitor]
) -> None:
    def ago(days: int) -> str:
        return (datetime.now(UTC) - timedelta(days=days)).isoformat()

    register(memory, "blind", subjects=False)
    erase(memory, "subject-3", "done-late", requested_at=ago(40))
    finish(memory)
    for name, subject, days in (("new", SUBJECT, 1), ("old", "subject-2", 31), ("soon", "x", 25)):
        erase(memory, subject, name, requested_at=ago(days))
    visitor = visitor_of()
    visitor.until("soon", "erasures")

    def named(**query: str) -> list[str]:
        return re.findall(
            r'scope="row"><a[^>]*>([\w-]+)</a>', visitor.get("erasures", **query).text
        )

    visitor.until("incomplete", "erasures")
    assert named() == ["done-late", "old", "soon", "new"]
    assert named(status="LATE") == ["done-late", "old"]
    assert named(status="OPEN") == ["done-late", "old", "soon", "new"]
    assert named(status="WAITING") == ["old", "soon", "new"]
    assert named(status="INCOMPLETE") == ["done-late"]
    assert named(days="20") == ["done-late", "old", "soon"]
    assert named(status="LATE", days="35") == ["done-late"]
    assert named(id="o") == ["old"]
    assert named(id="none") == []
    page = texts(visitor.get("erasures").text)
    assert "2 late 4 open" in page
    assert "late day 31 of 30" in page
    assert "due soon day 25 of 30" in page
    assert "day 1 of 30" in page


def test_the_limit_is_the_one_that_is_set(
    memory: Platform, visitor_of: Callable[..., Visitor]
) -> None:
    visitor = visitor_of(erasure_days=3)
    four = (datetime.now(UTC) - timedelta(days=4)).isoformat()
    erase(memory, SUBJECT, "e", requested_at=four)
    assert "late day 4 of 3" in texts(visitor.until("day 4", "erasures"))


def test_days_are_counted_to_the_answer_and_not_beyond() -> None:
    now = datetime(2026, 5, 31, 12, tzinfo=UTC)
    row: Any = {"asked_at": "2026-05-01T12:00:00Z", "at": "2026-05-03T11:00:00Z"}
    row |= {"open": 1, "asked": 1}
    assert (due_of(row, 30, now).days, due_of(row, 30, now).late) == (30, False)
    assert due_of(row, 30, now + timedelta(seconds=1)).late
    assert due_of(row, 30, now).on == "2026-05-31"
    assert due_of(row, 30, now - timedelta(days=7)).soon
    assert not due_of(row, 30, now - timedelta(days=8)).soon
    done = due_of(row | {"open": 0}, 30, now + timedelta(days=99))
    assert (done.days, done.late, done.soon) == (1, False, False)
    assert due_of(row | {"asked": 0}, 30, now).at_least
    assert not due_of(row | {"asked_at": "9999-12-31T23:59:59Z"}, 30, now).late


def test_the_requester_gets_what_each_model_answered_and_how_to_verify_it(
    memory: Platform, visitor_of: Callable[..., Visitor]
) -> None:
    register(memory, "blind", subjects=False)
    erase(memory, SUBJECT, "ticket-<7>")
    finish(memory)
    [(receipt, value)] = [one for one in published(memory) if one[0].final]
    visitor = visitor_of()
    visitor.until("cannot be said", "erasure", id="ticket-<7>")
    page = visitor.get("erasure/answer", id="ticket-<7>")
    saved = visitor.get("erasure/answer", id="ticket-<7>", save="yes")

    assert urlsplit(str(page.url)).path == "/console/erasure/answer"
    for one in (page, saved):
        assert SUBJECT not in one.text
        said = texts(one.text)
        assert "at least one model may still hold rows" in said
        assert "3 rows deleted; version 1 does not use them" in said
        assert "blind : It was registered without subjects" in said
        assert hashlib.sha256(value).hexdigest() in said
        command = "lethe erasures 'ticket-<7>' --bundle ticket--7-.bundle --own-copy SUBJECT"
        assert command in html.unescape(said)
        shown = re.search(r'<pre id="receipt">(.*?)</pre>', one.text, re.DOTALL)
        assert shown is not None
        assert html.unescape(shown[1]) == value.decode()
        for model in receipt.models:
            assert all(name in said for name in model.request_ids)
    assert saved.headers["content-disposition"] == 'attachment; filename="erasure-ticket--7-.html"'
    assert not re.findall(r'(?:href|src)="', saved.text), "it needs nothing else"
    assert visitor.get("erasure/answer", id="none").status_code == 404


def test_the_commands_of_the_answer_accept_the_signature_and_nothing_else(
    memory: Platform, visitor_of: Callable[..., Visitor], tmp_path: Path
) -> None:
    erase(memory, SUBJECT, "ticket-7")
    finish(memory)
    [value] = [value for receipt, value in published(memory) if receipt.final]
    signer, other = (Signer(Ed25519PrivateKey.generate()) for _ in range(2))
    headers = signer.signed(SUBJECT_ERASURE_COMPLETED, value, ())
    visitor = visitor_of()
    visitor.until("Complete:", "erasure", id="ticket-7")
    assert "The receipt is not signed" in visitor.get("erasure/answer", id="ticket-7").text
    memory.producer.publish([Message(topics.ERASURE_RECEIPTS, b"ticket-7", value, headers)])
    page = visitor.until(signer.key_id, "erasure/answer", id="ticket-7")
    found = re.search(r'<pre id="check">(.*?)</pre>', page, re.DOTALL)
    assert found is not None
    commands = html.unescape(found[1])

    def accepted(content: bytes, key: Signer) -> bool:
        (tmp_path / "receipt.json").write_bytes(content)
        script = commands.replace("KEY", key.public_text)
        done = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        return done.returncode == 0 and "Signature Verified Successfully" in done.stdout

    assert accepted(value, signer)
    assert not accepted(value, other)
    assert not accepted(value.replace(b'"complete":true', b'"complete":TRUE'), signer)


def test_what_is_awaited_is_named_with_the_models_that_cannot_be_searched(
    memory: Platform, visitor_of: Callable[..., Visitor]
) -> None:
    with closing(erasure_worker(memory)) as worker:
        memory.store.client.hset(ModelKeys("n").head, "config", "damaged")
        erase(memory, SUBJECT, "e")
        for _ in range(20):
            worker.run_once(0.002)
            memory.drain()
    visitor = visitor_of()
    page = texts(visitor.until("1 model has not given the final answer", "erasure", id="e"))
    assert "final answer yet : n ." in page
    answer = texts(visitor.get("erasure/answer", id="e").text)
    assert "Not finished" in answer
    assert "n : It cannot be searched yet" in answer
    assert "1 awaited" in texts(visitor.get("erasures").text)


@pytest.mark.parametrize("read", [True, False])
def test_the_page_of_a_person_with_100_000_erasures_begins_within_300_ms(
    memory: Platform, visitor_of: Callable[..., Visitor], tmp_path: Path, read: bool
) -> None:
    """Whether the index has read the requests, or the receipts alone."""
    visitor = visitor_of(seals=lambda: memory.seals)
    visitor.until("2 models", "models")
    fill_erasures(IndexFile(tmp_path), 100_000, SUBJECT, None if read else memory.seals)
    visitor.until("erasure-099999", "erasures", status="COMPLETE")
    spent = {}
    for place in ({}, {"erasures": "50"}, {"erasures": "99950"}, {"requests": "99950"}):
        form = {"by": "subject", "named": SUBJECT, "token": visitor.token(), **place}
        tries = []
        for _ in range(3):  # the index's own thread may be reading its file again: the least counts
            begin = time.process_time()
            page = visitor.post("lookup", form)
            tries.append(time.process_time() - begin)
        spent[str(place)] = min(tries)
        assert "100,000 erasures of" in page.text if read else "90,000 older receipts" in page.text
        assert len(page.content) < 200_000
    assert max(spent.values()) < 0.3, spent
    assert read or "erasure-000000" in visitor.post("lookup", form, every="yes").text


def test_the_whole_evidence_is_downloaded_and_only_the_persons_own_copy_names_them(
    memory: Platform, visitor_of: Callable[..., Visitor], tmp_path: Path
) -> None:
    visitor = visitor_of(seals=lambda: memory.seals)
    erase(memory, SUBJECT, "ticket/7")
    finish(memory)
    page = visitor.until("The whole evidence", "erasure", id="ticket/7")
    [link] = re.findall(r'download href="([^"]*)"', page)
    anonymous = visitor.client.get(html.unescape(link))
    own = visitor.post("erasure/evidence", id="ticket/7", subject=f" {SUBJECT} ")
    for answer, name, named in ((anonymous, "", None), (own, "-own-copy", SUBJECT)):
        disposition = f'attachment; filename="erasure-ticket-7{name}.bundle"'
        assert answer.headers["content-disposition"] == disposition
        assert (SUBJECT in answer.text) == (named is not None)
        (tmp_path / "file").write_bytes(answer.content)
        audit = audit_bundle(
            tmp_path / "file", model_id=None, trusted=None, remembered=lambda _: None, holding=None
        )
        assert isinstance(audit, ErasureAudit)
        assert audit.verdict is Verdict.NOT_PROVED  # nobody signs here
        assert audit.count(Result.FAILED) == 0
        assert audit.evidence.opened == named
    assert 'id="evidence"' in visitor.get("erasure/answer", id="ticket/7").text
    assert 'id="evidence"' not in visitor.get("erasure/answer", id="ticket/7", save="1").text


def test_a_copy_is_made_for_nobody_else_and_not_before_there_is_a_receipt(
    memory: Platform, visitor_of: Callable[..., Visitor]
) -> None:
    visitor = visitor_of(seals=lambda: memory.seals)
    erase(memory, SUBJECT, "ticket-7")
    visitor.until("Waiting", "erasure", id="ticket-7")
    assert "The whole evidence" not in visitor.get("erasure", id="ticket-7").text
    assert visitor.get("erasure/evidence", id="ticket-7").status_code == 404
    finish(memory)
    for subject in ("subject-2", "", " "):
        refused = visitor.post("erasure/evidence", id="ticket-7", subject=subject)
        assert refused.status_code == 400
        assert "content-disposition" not in refused.headers
    foreign = visitor.post("erasure/evidence", id="ticket-7", subject=SUBJECT, token="0" * 64)
    assert foreign.status_code == 403
