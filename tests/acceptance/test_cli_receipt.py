"""`lethe receipt` on a real run: the whole story, each part of it true, and what it cannot know."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from lethe.engine.merkle import leaf_hash, root_of, verify_inclusion
from lethe.engine.store.layout.keys import ModelKeys, shard_of
from tests.support.command import Within
from tests.support.training import write

# One worker runs the file: its tests share servers, and some build on those before.
pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_cli_receipt")]

FIT = ("--id", "id", "--target", "y", "--subject", "household", "--ridge", "1")


@pytest.fixture(scope="module")
def lethe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Within]:
    data = str(write(tmp_path_factory.mktemp("files") / "rows.parquet", logistic=True))
    with EmbeddedValkey(tmp_path_factory.mktemp("receipt")) as server:
        lethe = Within(server.data_dir, SERVER=server.url)
        for model in ("churn", "spend"):
            lethe("register", model, "--data", data, *FIT, "--kind", "logistic")
        requests = (
            ("churn", "--row", "u1", "u2", "--request-id", "r1", "--reason", "withdrawn"),
            ("churn", "--subject", "h5", "--request-id", "r2"),
            ("churn", "--row", "u3", "--request-id", "twice"),
            ("spend", "--row", "u3", "--request-id", "twice"),
            ("churn", "--row", "nobody", "--request-id", "none"),
            ("nosuch", "--row", "u3", "--request-id", "stranger"),
        )
        for request in requests:
            lethe("delete", *request)
        lethe("work", "--until-idle")
        lethe("delete", "churn", "--row", "u9", "--request-id", "r1")
        lethe("delete", "churn", "--row", "u30", "--request-id", "later")
        lethe("work", "--until-idle")
        yield lethe


def test_a_story_has_every_part_and_anybody_can_check_it(lethe: Within) -> None:
    story = lethe("receipt", "r1", "--row", "u1", "--row", "u2", "--json").document

    assert (story["model_id"], story["status"], story["ok"]) == ("churn", "APPLIED", True)
    (told,) = story["receipts"]
    receipt = json.loads(told["value"])
    assert receipt["rows_deleted"] == 2
    assert receipt["source"]["offset"] == 0
    assert story["version"]["version"] == receipt["version"] == 1
    assert "r1" in story["version"]["request_ids"]
    assert story["commit"] is None  # the server's log keeps it until it is applied and published
    assert story["newest"]["version"] == 2
    assert [one["receipt"]["code"] for one in story["conflicts"]] == ["REQUEST_ID_CONFLICT"]
    proof = story["inclusion"]
    leaf = leaf_hash(told["value"].encode())
    head = story["version"]["receipt_log"]
    path = [bytes.fromhex(node) for node in proof["proof"]]
    root = bytes.fromhex(head["root"])
    assert verify_inclusion(leaf, proof["index"], head["size"], path, root)
    assert story["rows"] == {"u1": True, "u2": True}
    # The commitment, opened by hand with what docs/evidence.md says.
    salt = bytes.fromhex(story["commitment"]["salt"])
    entries = sorted(hmac.new(salt, row, hashlib.sha256).digest() for row in (b"u1", b"u2"))
    opened = root_of([leaf_hash(entry) for entry in entries]).hex()
    assert opened == receipt["rows_commitment"]
    assert story["erased"]["done"] is True


def test_a_row_of_another_request_is_not_among_its_rows(lethe: Within) -> None:
    answer = lethe("receipt", "r2", "--row", "u1", code=1)

    assert "u1: NOT among its rows" in answer.out
    assert lethe("receipt", "r2", "--row", "u15", "--json").document["rows"] == {"u15": True}


def test_a_story_fits_a_terminal_and_names_no_row_unasked(lethe: Within) -> None:
    for request in ("r1", "r2", "none", "later"):
        answer = lethe("receipt", request, "--model", "churn")
        assert all(len(line) <= 80 for line in answer.out.splitlines()), answer.out
        told = answer.out + lethe("receipt", request, "--model", "churn", "--json").out
        for row in ("u1", "u2", "u15", "u16", "u17", "u30", "nobody"):
            assert f'"{row}"' not in told
            assert f" {row} " not in told
            assert f" {row}:" not in told


def test_a_rejected_request_has_a_story_as_well(lethe: Within) -> None:
    answer = lethe("receipt", "none")

    assert "REJECTED; UNKNOWN_ROWS" in answer.out
    assert "erased       nothing was deleted" in answer.out
    stranger = lethe("receipt", "stranger", "--json").document
    assert stranger["receipts"][0]["receipt"]["code"] == "UNKNOWN_MODEL"
    assert stranger["commit"] is None


def test_a_deferred_request_has_both_answers(lethe: Within, tmp_path: Path) -> None:
    lines = [f"v{i},{i % 7},{(i * i) % 5},{int(i < 3)}" for i in range(40)]
    data = tmp_path / "rows.csv"
    data.write_text("\n".join(["id,a,b,y", *lines]))
    fit = ("--id", "id", "--target", "y", "--kind", "logistic", "--ridge", "1")
    lethe("register", "rare", "--data", str(data), *fit)
    lethe("delete", "rare", "--row", "v0", "v1", "v2", "--request-id", "waits")
    lethe("work", "deletions", "--until-idle")
    waiting = lethe("receipt", "waits", "--row", "v1", "--json").document
    not_yet = lethe("receipt", "waits").out
    lethe("work", "--until-idle")
    story = lethe("receipt", "waits", "--row", "v1", "--json").document

    assert (waiting["status"], waiting["erased"], waiting["ok"]) == ("DEFERRED", None, True)
    assert "erased       not yet: its rows wait for a rebuild without them" in not_yet
    answers = [told["receipt"]["status"] for told in story["receipts"]]
    assert answers == ["DEFERRED", "APPLIED"]
    assert story["version"]["refresh"]["size"] == "rebuild"
    assert (story["ok"], story["rows"], story["erased"]["done"]) == (True, {"v1": True}, True)
    lethe("audit", "rare", "--strict")


def test_an_unknown_request_is_1_and_one_line(lethe: Within) -> None:
    for more in ((), ("--model", "churn")):
        answer = lethe("receipt", "nix", *more, "--json", code=1)
        assert len(answer.err.splitlines()) == 1
        assert answer.document["error"]["code"] == "UNKNOWN_REQUEST"


def test_an_id_of_several_models_asks_which(lethe: Within) -> None:
    answer = lethe("receipt", "twice", code=2)

    assert "2 models have a request 'twice': churn, spend; choose one with --model" in answer.err
    assert lethe("receipt", "twice", "--model", "spend", "--json").document["model_id"] == "spend"


def test_a_record_that_is_still_there_is_not_erased(lethe: Within) -> None:
    """The story looks at the records themselves: one that was put back is found."""
    keys = ModelKeys("churn")
    with redis.Redis.from_url(lethe.environment["SERVER"]) as client:
        staged = keys.generation("left-over").rows(shard_of("u30"))
        client.hset(staged, "u30", b"x")
        there = lethe("receipt", "later", "--json").document["erased"]
        client.delete(staged)

    assert (there["done"], there["records"]) == (False, 1)
    assert lethe("receipt", "later", "--json").document["erased"]["done"] is True


def test_a_receipt_that_was_altered_in_the_state_is_found_out(lethe: Within) -> None:
    keys = ModelKeys("churn")
    with redis.Redis.from_url(lethe.environment["SERVER"]) as client:
        kept = client.hget(keys.requests, "later")
        assert isinstance(kept, bytes)
        altered = kept[:-1] + bytes([kept[-1] ^ 1])  # the last byte of its commitment
        client.hset(keys.requests, "later", altered)
        audited = lethe("audit", "churn", "--no-bound", "--json", code=1).document
        client.hset(keys.requests, "later", kept)

    refused = {one["check"] for one in audited["checks"] if one["result"] == "FAILED"}
    assert refused == {"state: receipts"}


def test_a_trusted_key_that_is_another_refuses(lethe: Within, tmp_path: Path) -> None:
    other = tmp_path / "other.pub"
    other.write_text("11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n")
    answer = lethe("receipt", "r1", "--trust", str(other), code=1)

    assert "FAILED: lethe.receipts/" in answer.out
