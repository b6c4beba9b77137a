"""The script of step 7 on a real server: all or nothing, onto what the commit continues."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis
from redis.crc import key_slot

from lethe.engine.errors import StoreUnavailable
from lethe.engine.store.apply import (
    APPLY,
    Applied,
    ArraysChange,
    Place,
    RowsWritten,
    StoreChange,
    Swap,
)
from lethe.engine.store.layout.keys import ModelKeys, shard_of
from lethe.engine.store.server.barrier import Barrier
from lethe.engine.store.server.connection import connect, text
from lethe.engine.store.store import ModelStore

KEYS = ModelKeys("a model/ä")
LIVE = KEYS.generation("live")
PARTITION = "topic-id/3"
FIRST, SECOND, THIRD = "a" * 64, "b" * 64, "c" * 64


@pytest.fixture
def store(redis_client: redis.Redis, redis_url: str) -> Iterator[ModelStore]:
    del redis_client  # it has emptied the database
    client = connect(redis_url)
    store = ModelStore(client, Barrier(client, required=False))
    client.hset(KEYS.generation("live").rows(0), mapping={"kept": b"x"})
    client.hset(LIVE.fixed, mapping={"info": b"{}"})
    for row in ("r1", "r2", "r3"):
        client.hset(LIVE.rows(shard_of(row)), row, b"record of " + row.encode())
    begun = StoreChange(
        keys=KEYS,
        commit=0,
        prev="",
        digest=FIRST,
        place=Place(10, 3, 0, 0),
        live=LIVE,
        head={"version": b"0"},
        offsets={PARTITION: 5},
        deleted=["gone"],
        deleted_version=0,
        requests={"done": b"F done", "waits": b"P waits"},
        deferred={"waits": "{}"},
        arrays=ArraysChange(None, "arrays-0", [b"v0"], [b"q0"]),
        swap=Swap([LIVE.fixed], [], 7),
        jump=True,
    )
    assert applied(store, begun) is Applied.APPLIED
    yield store
    store.close()


def applied(store: ModelStore, change: StoreChange) -> Applied:
    [answer], _ = store.apply([change])
    return answer.applied


def dump(client: redis.Redis) -> dict[bytes, Any]:
    """Everything that the server holds, and when it expires."""
    return {key: (client.dump(key), client.pttl(key)) for key in client.scan_iter(count=1000)}


def whole(**changes: Any) -> StoreChange:
    """A commit that writes to every key."""
    change = StoreChange(
        keys=KEYS,
        commit=1,
        prev=FIRST,
        digest=SECOND,
        place=Place(12, 4, 11, 11),
        live=LIVE,
        dataset="rows",
        rows="live",
        head={"version": b"1", "theta_exact": bytes(range(256))},
        offsets={PARTITION: 9, "topic-id/4": 1},
        deleted=["r1", "r2"],
        deleted_version=1,
        retired=["old"],
        erase=["r1", "r2"],
        requests={"new": b"F new", "waits": b"F waits"},
        deferred={"later": "{}"},
        undeferred=["waits"],
        arrays=ArraysChange("arrays-0", "arrays-1", [b"v1", b"\x00\xff"], [b"q1"], 1, 1),
    )
    return replace(change, **changes)


def test_a_commit_writes_everything(store: ModelStore, redis_client: redis.Redis) -> None:
    assert applied(store, whole()) is Applied.APPLIED
    client = redis_client
    head = client.hgetall(KEYS.head)
    assert (head[b"commit"], head[b"digest"], head[b"version"]) == (b"1", SECOND.encode(), b"1")
    assert (head[b"offset"], head[b"arrays"], head[b"rows"]) == (b"12", b"arrays-1", b"live")
    assert head[b"theta_exact"] == bytes(range(256))
    assert client.hgetall(KEYS.offsets) == {PARTITION.encode(): b"9", b"topic-id/4": b"1"}
    assert client.lrange(LIVE.V, 0, -1) == [b"v0", b"v1", b"\x00\xff"]
    assert client.lrange(LIVE.Q, 0, -1) == [b"q0", b"q1"]
    assert client.hgetall(KEYS.ledger) == {b"gone": b"0", b"r1": b"1", b"r2": b"1"}
    assert client.lrange(KEYS.deletions, 0, -1) == [b"gone", b"r1", b"r2"]
    assert head[b"deletions_from"] == b"7"
    assert client.smembers(KEYS.retired) == {b"old"}
    assert client.hgetall(KEYS.requests) == {
        b"done": b"F done", b"waits": b"F waits", b"new": b"F new",
    }  # fmt: skip
    assert client.hgetall(KEYS.deferred) == {b"later": b"{}"}
    assert client.smembers(KEYS.partition.models) == {KEYS.model_id.encode()}
    rows = {row for shard in LIVE.every_rows() for row in client.hkeys(shard)}
    assert rows == {b"kept", b"r3"}
    assert float(client.hget(KEYS.partition.erasures, "last") or 0) > 1.7e9


def test_the_cursor_passes_voids_and_never_a_valid_record(
    store: ModelStore, redis_client: redis.Redis
) -> None:
    """Given the first commit at offset 10 and nothing below it."""

    def cursors() -> Any:
        return redis_client.hgetall(KEYS.partition.cursors)

    assert (cursors()[b"apply"], cursors()[b"below"]) == (b"11", FIRST.encode())
    # A valid record lies at 11, of another model, and was not applied yet.
    assert applied(store, whole(place=Place(12, 4, 12, 11))) is Applied.APPLIED
    assert cursors()[b"apply"] == b"11"
    # That one is applied, and the second once more: now nothing lies between.
    assert applied(store, whole(place=Place(12, 4, 11, 11))) is Applied.ALREADY
    assert cursors()[b"apply"] == b"13"
    assert (cursors()[b"below"], cursors()[b"epoch"]) == (SECOND.encode(), b"4")


REFUSED: dict[str, tuple[Applied, dict[str, Any]]] = {
    "a commit is missing": (Applied.BEHIND, {"commit": 2, "prev": SECOND, "digest": THIRD}),
    "another predecessor": (Applied.FORK, {"prev": THIRD}),
    "another commit of this number": (Applied.FORK, {"commit": 0, "prev": "", "digest": THIRD}),
    "other arrays": (Applied.ARRAYS, {"arrays": ArraysChange("arrays-7", "x", [b"v"], [], 1, 1)}),
    "another generation": (Applied.ROWS, {"rows": "former"}),
    "what was staged has gone": (
        Applied.STAGED, {"swap": Swap([KEYS.generation("not there").fixed], [], 0)},
    ),
    "a row of the ledger": (Applied.CORRUPT, {"deleted": ["r1", "gone"]}),
    "rows of V": (Applied.CORRUPT, {"arrays": ArraysChange("arrays-0", "x", [b"v"], [], 2, 1)}),
    "rows of Q": (Applied.CORRUPT, {"arrays": ArraysChange("arrays-0", "x", [b"v"], [], 1, 0)}),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_refused_commit_writes_nothing(
    store: ModelStore, redis_client: redis.Redis, what: str
) -> None:
    before = dump(redis_client)
    expected, changes = REFUSED[what]
    assert applied(store, whole(**changes)) is expected
    assert dump(redis_client) == before


def test_a_key_of_another_type_is_refused_before_anything_is_written(
    store: ModelStore, redis_client: redis.Redis
) -> None:
    for key in (KEYS.offsets, KEYS.ledger, KEYS.requests, KEYS.deferred, KEYS.retired, LIVE.Q):
        kept = redis_client.dump(key)
        redis_client.delete(key)
        redis_client.set(key, "by hand")
        before = dump(redis_client)
        assert applied(store, whole()) is Applied.CORRUPT, key
        assert dump(redis_client) == before
        redis_client.delete(key)
        if kept is not None:
            redis_client.restore(key, 0, kept)
    assert applied(store, whole()) is Applied.APPLIED


def test_a_commit_that_the_head_has_adds_what_can_be_repeated_and_nothing_else(
    store: ModelStore, redis_client: redis.Redis
) -> None:
    """A registration may have jumped over it: its rows and requests must not be forgotten."""
    assert applied(store, whole()) is Applied.APPLIED
    redis_client.hdel(KEYS.ledger, "r1")
    redis_client.hdel(KEYS.requests, "new")
    before = {key: dump(redis_client)[key.encode()] for key in (LIVE.V, LIVE.Q, KEYS.deletions)}
    head = redis_client.hgetall(KEYS.head)
    assert applied(store, whole()) is Applied.ALREADY
    assert redis_client.hget(KEYS.ledger, "r1") == b"1"
    assert redis_client.hget(KEYS.requests, "new") == b"F new"
    assert redis_client.hgetall(KEYS.head) == head
    after = dump(redis_client)
    assert {key: after[key.encode()] for key in before} == before


def test_a_final_receipt_never_changes(store: ModelStore, redis_client: redis.Redis) -> None:
    requests = {"done": b"F another", "waits": b"P again"}
    assert applied(store, whole(requests=requests)) is Applied.APPLIED
    assert redis_client.hmget(KEYS.requests, ["done", "waits"]) == [b"F done", b"P waits"]


def test_next_offsets_never_go_back_unless_a_checkpoint_says_so(
    store: ModelStore, redis_client: redis.Redis
) -> None:
    assert applied(store, whole(offsets={PARTITION: 3})) is Applied.APPLIED
    assert redis_client.hget(KEYS.offsets, PARTITION) == b"5"
    lower = whole(
        commit=2, prev=SECOND, digest=THIRD, offsets={PARTITION: 3}, lowers=True,
        deleted=[], erase=[], arrays=None,
    )  # fmt: skip
    assert applied(store, lower) is Applied.APPLIED
    assert redis_client.hget(KEYS.offsets, PARTITION) == b"3"


def test_a_swap_makes_the_staged_live_and_removes_the_former(
    store: ModelStore, redis_client: redis.Redis
) -> None:
    new = KEYS.generation("new")
    redis_client.hset(new.fixed, mapping={"info": b"{}"})
    redis_client.expire(new.fixed, 100)
    for row in ("r2", "r3"):
        redis_client.hset(new.rows(shard_of(row)), row, b"new")
    change = whole(
        live=new,
        rows=None,
        deleted=["r1"],
        erase=["r2"],
        arrays=ArraysChange(None, "arrays-2", [b"n0"], []),
        swap=Swap([new.fixed], LIVE.everything(), 8),
    )
    assert applied(store, change) is Applied.APPLIED
    assert redis_client.ttl(new.fixed) == -1
    assert redis_client.exists(*LIVE.everything()) == 0
    assert redis_client.hmget(KEYS.head, ["rows", "arrays", "deletions_from"]) == [
        b"new", b"arrays-2", b"8",
    ]  # fmt: skip
    assert redis_client.lrange(KEYS.deletions, 0, -1) == [b"r1"]
    assert redis_client.lrange(new.V, 0, -1) == [b"n0"]
    rows = {row for shard in new.every_rows() for row in redis_client.hkeys(shard)}
    assert rows == {b"r3"}


def test_a_jump_needs_only_a_head_that_is_not_beyond_it(store: ModelStore) -> None:
    jump = whole(commit=9, prev=THIRD, jump=True, rows=None, erase=[], arrays=None)
    assert applied(store, jump) is Applied.APPLIED
    assert applied(store, replace(jump, commit=8, digest=FIRST)) is Applied.ALREADY


def test_ten_thousand_rows_and_requests_fit_into_one_script(
    store: ModelStore, redis_client: redis.Redis
) -> None:
    """Lua's unpack fails near 8,000 elements."""
    many = [f"row-{i}" for i in range(10_000)]
    change = whole(
        deleted=many,
        erase=many,
        retired=[f"old-{i}" for i in range(10_000)],
        requests={f"request-{i}": b"F" + b"x" * 100 for i in range(10_000)},
        deferred={f"later-{i}": "{}" for i in range(10_000)},
    )
    assert applied(store, change) is Applied.APPLIED
    assert redis_client.hlen(KEYS.ledger) == 10_001
    assert redis_client.hlen(KEYS.requests) == 10_002
    assert redis_client.llen(KEYS.deletions) == 10_001


def test_all_keys_of_a_partition_lie_in_one_slot() -> None:
    keys, _ = whole(swap=Swap(LIVE.everything(), KEYS.dataset("d").everything(), 0)).call()
    assert len({key_slot(key.encode()) for key in keys}) == 1
    others = [name for name in map(str, range(2000)) if ModelKeys(name).partition == KEYS.partition]
    assert {key_slot(ModelKeys(name).head.encode()) for name in others} == {
        key_slot(KEYS.head.encode())
    }


def test_a_server_that_forgot_the_script_is_told_it(
    store: ModelStore, redis_client: redis.Redis
) -> None:
    redis_client.script_flush()
    assert redis_client.script_exists(APPLY.digest) == [False]
    assert applied(store, whole()) is Applied.APPLIED


def test_a_server_that_is_away_is_unavailable(store: ModelStore) -> None:
    away = connect("redis://127.0.0.1:1")
    with pytest.raises(StoreUnavailable):
        ModelStore(away, Barrier(store.client, required=False)).apply([whole()])
    away.close()


@pytest.mark.parametrize("damaged", [b"[", b"7", b""])
def test_rows_of_a_subject_that_cannot_be_read_change_nothing(
    store: ModelStore, damaged: bytes
) -> None:
    """An insert adds to them: the script must see that it can before it writes anything."""
    dataset = KEYS.dataset("rows")
    store.client.hset(dataset.subjects, "friend", damaged)
    written = RowsWritten(["new-1", "new-2"], {"new-1": b"x", "new-2": b"y"}, {"new-1": "friend"})
    before = dump(store.client)
    assert applied(store, whole(written=written)) is Applied.CORRUPT
    assert dump(store.client) == before


def test_inserted_rows_join_those_of_their_subjects(store: ModelStore) -> None:
    dataset = KEYS.dataset("rows")
    store.client.hset(dataset.subjects, "friend", json.dumps(["old-1"]))
    owners = {"new-1": "friend", "new-2": "s/é", "new-3": "friend"}
    written = RowsWritten(list(owners), dict.fromkeys(owners, b"x"), owners)
    assert applied(store, whole(written=written)) is Applied.APPLIED
    stored = store.client.hgetall(dataset.subjects)
    assert {text(name): json.loads(rows) for name, rows in stored.items()} == {
        "friend": ["old-1", "new-1", "new-3"],
        "s/é": ["new-2"],
    }
