"""A fold written apart from the product agrees with what real runs publish and store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka.partitioner.default import murmur2

from lethe.consumers.contract import topics
from lethe.consumers.log.base import Message
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.config import LimitsRecord
from tests.proof import independent_fold
from tests.proof.agreement import check_published, check_store
from tests.proof.independent_fold import Disagreement, fold, partition_of
from tests.support.agreement import check_agreement, commits_of
from tests.support.platform import Platform
from tests.support.tables import registered_table

pytestmark = pytest.mark.redis

SECRET = bytes(range(32))
TIGHT = LimitsRecord(floor_rows=1, fraction_of_d=1e-9)


def _busy(platform: Platform) -> None:
    """Three models; deletions, strangers, repeats, conflicts, refreshes, and what is malformed."""
    platform.send("early", "row-1")
    platform.drain()
    platform.register("m")
    platform.register("early", kind="logistic", method="influence")
    platform.register("n", method="exact")
    for i in range(4):
        for model in ("m", "early", "n"):
            platform.send_index(model, 3 * i, 3 * i + 1)
            platform.send(model, "stranger", request_id=f"{model}-again")
        platform.drain()
    platform.send_index("m", 50, request_id="m-again")
    platform.send_raw(b'{"request_id": "bad", "model_id": "m", "row_ids": []}')
    platform.order("n", RefreshSize.REBUILD)
    platform.drain()


@pytest.mark.parametrize("kind", ["memory", "streams"])
def test_it_agrees_with_a_busy_run(kind: str, platform_on: Callable[..., Platform]) -> None:
    platform = platform_on(kind)
    _busy(platform)
    models = check_agreement(platform)
    assert set(models) == {"m", "early", "n"}
    assert all(model.whole and model.void == 0 for model in models.values())
    assert models["m"].log
    assert len(models["m"].ledger) == 8
    assert models["early"].opening


def test_it_agrees_across_replacements_and_unregistration(memory: Platform) -> None:
    memory.register("m")
    memory.delete("m", 0, 1)
    memory.register("m", replace_model=True, keep=range(2, 40))
    memory.delete("m", 2, 3)
    memory.registrar().unregister("m")
    memory.delete("m", 5)
    memory.register("m")
    memory.delete("m", 6)
    [model] = check_agreement(memory).values()
    assert set(model.ledger) == {f"row-{i}" for i in (0, 1, 2, 3, 6)}
    assert model.retired


def test_it_agrees_while_requests_wait_for_a_rebuild(memory: Platform) -> None:
    memory.register("m", limits=TIGHT)
    memory.send_index("m", 0)
    memory.send_index("m", *range(2, 30))
    memory.turn_until_decided(2)
    memory.pair[0].run_once(0.0)
    memory.pair[0].run_once(0.0)
    [model] = check_agreement(memory).values()
    assert model.deferred
    assert model.deferred == model.waiting.keys()
    memory.drain()
    [model] = check_agreement(memory).values()
    assert not model.deferred


def test_a_record_that_lost_is_void_and_changes_nothing(memory: Platform) -> None:
    memory.register("m")
    memory.delete("m", 0)
    before = fold(commits_of(memory), SECRET)["m"]
    index = partition_of("m")
    for value in commits_of(memory)[index]:
        memory.producer.publish([Message(topics.COMMITS, b"m", value, partition=index)])
    after = fold(commits_of(memory), SECRET)["m"]
    assert after.void == len(before.commits) > 0
    assert after.head == before.head
    memory.delete("m", 1)
    assert check_agreement(memory)["m"].void == after.void


def test_it_agrees_with_inserts_and_corrections(memory: Platform) -> None:
    table = registered_table(memory)
    table.change("insert", table.row("new-1"), table.row("new-2"))
    table.change("correct", table.row("new-1"), table.row("row-1"))
    memory.send_change("m", "insert", table.row("row-2"))
    memory.drain()
    table.delete("new-1", "row-1")
    memory.send("m", "never")
    memory.drain()
    memory.send_change("m", "insert", table.row("new-1"))
    memory.drain()
    [model] = check_agreement(memory).values()
    assert model.inserted == {"new-1", "new-2"}
    assert set(model.ledger) == {"new-1", "row-1"}
    model.ledger["new-2"] = 9
    changed = next(header for _, _, header in model.commits if header.get("changes"))
    with pytest.raises(Disagreement, match="deleted"):
        independent_fold._rows(model, changed)


# -- it can fail ----------------------------------------------------------------------------------


def test_a_forged_receipt_or_version_is_found(memory: Platform) -> None:
    memory.register("m")
    memory.delete("m", 0)
    models = fold(commits_of(memory), SECRET)
    model = models["m"]
    check_published(models, model.sent, model.versions)
    forged = model.sent[0].replace(b"APPLIED", b"REJECTED")
    with pytest.raises(Disagreement, match="in no commit"):
        check_published(models, [*model.sent, forged], model.versions)
    with pytest.raises(Disagreement, match="in no commit"):
        check_published(models, model.sent, [*model.versions, b"{}"])
    with pytest.raises(Disagreement, match="never published"):
        check_published(models, [], model.versions)
    with pytest.raises(Disagreement, match="never published"):
        check_published(models, model.sent, model.versions[:-1])
    check_published(models, [], model.versions[:-1], complete=False)


@pytest.mark.parametrize("field", ["head", "version", "ledger", "offsets", "finals", "deferred"])
def test_a_store_that_says_something_else_is_found(memory: Platform, field: str) -> None:
    memory.register("m")
    memory.delete("m", 0)
    model = fold(commits_of(memory), SECRET)["m"]
    stored: dict[str, Any] = {
        "head": model.head,
        "version": model.version,
        "ledger": model.ledger,
        "offsets": model.offsets,
        "finals": model.finals,
        "deferred": model.deferred,
    }
    check_store(model, **stored)
    wrong: dict[str, Any] = {"head": (9, "x"), "version": 9}
    wrong |= {"deferred": {"r"}, "finals": {"r": b""}}
    with pytest.raises(Disagreement, match="differ"):
        check_store(model, **{**stored, field: wrong.get(field, {"other": 1})})


def test_another_secret_opens_nothing(memory: Platform) -> None:
    memory.register("m")
    with pytest.raises(Disagreement, match="key that was not given"):
        fold(commits_of(memory), bytes(32))


def test_an_altered_record_ends_the_chain(memory: Platform) -> None:
    memory.register("m")
    memory.delete("m", 0)
    commits = commits_of(memory)
    values = commits[partition_of("m")]
    assert values[-1] is not None
    values[-1] = values[-1][:-20] + bytes([values[-1][-20] ^ 1]) + values[-1][-19:]
    with pytest.raises(Disagreement, match="does not open"):
        fold(commits, SECRET)
    number = b'"commit":%d' % (len(values) - 1)
    record = commits_of(memory)[partition_of("m")][-1]
    assert record is not None
    assert number in record
    values[-1] = record.replace(number, b'"commit":%d' % len(values))
    assert fold(commits, SECRET)["m"].gap


@pytest.mark.parametrize("model_id", ["m", "churn", "model-7", "größe", "a" * 127])
def test_partitions_are_those_of_kafka(model_id: str) -> None:
    assert partition_of(model_id) == (murmur2(model_id.encode()) & 0x7FFFFFFF) % 16
