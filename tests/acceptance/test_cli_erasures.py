"""``lethe erasures``: erasures are found again by their ids, finished or not, and so by receipt."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from tests.support.command import Within
from tests.support.training import write

# One worker runs the file: its tests share servers.
pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_cli_erasures")]

FIT = ("--id", "id", "--target", "y", "--kind", "linear", "--ridge", "1")


@pytest.fixture(scope="module")
def lethe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Within]:
    """A model with subjects; h1 and nobody are erased, h2 is not yet."""
    data = str(write(tmp_path_factory.mktemp("files") / "rows.parquet", logistic=False))
    with EmbeddedValkey(tmp_path_factory.mktemp("erasures")) as server:
        lethe = Within(server.data_dir)
        lethe("register", "churn", "--data", data, *FIT, "--subject", "household")
        lethe("erase", "h1", "--erasure-id", "done")
        lethe("erase", "nobody", "--erasure-id", "stranger")
        lethe("work", "--until-idle")
        lethe("erase", "h2", "--erasure-id", "waiting", "--namespace", "crm", "--reason", "call")
        yield lethe


def test_the_list_has_what_waits_first_and_then_what_is_finished(lethe: Within) -> None:
    answer = lethe("erasures")
    listed = lethe("erasures", "--json").document["erasures"]

    assert [(one["erasure_id"], one["status"]) for one in listed] == [
        ("waiting", "WAITING"),
        ("done", "COMPLETE"),
        ("stranger", "COMPLETE"),
    ]
    assert listed[0]["namespace"] == "crm"
    assert "h1" not in answer.out  # a receipt does not name the subject
    assert answer.out.splitlines()[1].startswith("waiting ")
    assert lethe("erasures", "--limit", "1", "--json").document["erasures"] == listed[:1]


def test_one_is_shown_with_what_each_model_answered(lethe: Within) -> None:
    answer = lethe("erasures", "done")
    document = lethe("erasures", "done", "--json").document

    assert "erasure done: COMPLETE; " in answer.out
    assert "request: the request itself has expired from the log" in answer.out
    [model] = document["receipt"]["models"]
    assert f"lethe receipt {model['request_ids'][0]} --model churn" in answer.out
    waiting = lethe("erasures", "waiting")
    assert "WAITING: it is in the log and will be processed once a worker runs" in waiting.out
    assert "lethe.erasures/0 at offset 2; namespace crm; reason: call" in waiting.out


def test_receipt_knows_both_kinds_of_id(lethe: Within) -> None:
    """Given the id of an erasure or of one of its requests, `lethe receipt` says what became."""
    [model] = lethe("erasures", "done", "--json").document["receipt"]["models"]
    [request] = model["request_ids"]

    assert lethe("receipt", "done").out == lethe("erasures", "done").out
    assert lethe("receipt", request, "--json").document["model_id"] == "churn"
    refused = lethe("receipt", "done", "--row", "u1", code=2)
    assert "which names a person and no rows" in refused.err


def test_an_id_that_nobody_knows_is_a_negative_answer(lethe: Within) -> None:
    for command in ("erasures", "receipt"):
        answer = lethe(command, "never", code=1)
        assert "'never'" in answer.err
        assert "dead-letters" in answer.err
