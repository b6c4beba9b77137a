"""The commit script itself, on a real server: all or nothing, and only from what was loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis
from redis.crc import key_slot

from engine.errors import CommitConflict, CorruptState, StoreUnavailable
from engine.store import commit as commit_module, staging
from engine.store.commit import Commit, Expected
from engine.store.connection import Barrier, connect, text
from engine.store.keys import ModelKeys
from engine.store.outbox import Entry, Outbox, Stage, encode
from engine.store.store import ModelStore

KEYS = ModelKeys.of_model("a model/ä")
LIVE = KEYS.generation("live")
PARTITION = "topic-id/3"
STANDS = Expected(1, 0, "digest-0", 5)


@pytest.fixture
def store(redis_client: redis.Redis, redis_url: str) -> Iterator[ModelStore]:
    del redis_client  # it has emptied the database
    client = connect(redis_url)
    store = ModelStore(client, Barrier(client, relaxed=False))
    first = Commit(
        keys=KEYS,
        generation=LIVE,
        expected=Expected(0, -1, ""),
        partition=PARTITION,
        next_offset=5,
        head={"version": b"0", "digest": b"digest-0"},
        V_rows=[b"v0"],
        Q_rows=[b"q0"],
        deleted=["gone"],
        deleted_version=0,
        requests={"done": 'F{"x": 1}', "waits": 'P{"x": 1}'},
    )
    assert store.commit(first) == 1
    yield store
    store.close()


def dump(client: redis.Redis) -> dict[bytes, Any]:
    """Everything that the server holds, and when it expires."""
    return {key: (client.dump(key), client.pttl(key)) for key in client.scan_iter(count=1000)}


def whole(**changes: Any) -> Commit:
    """A commit that writes to every key."""
    commit = Commit(
        keys=KEYS,
        generation=LIVE,
        expected=STANDS,
        partition=PARTITION,
        next_offset=9,
        head={"version": b"1", "digest": b"digest-1", "theta": bytes(range(256))},
        V_rows=[b"v1", b"\x00\xff"],
        Q_rows=[b"q1"],
        v_before=1,
        q_before=1,
        deleted=["r1", "r2"],
        deleted_version=1,
        retired=["old"],
        erase=["live/r1", "live/r2"],
        requests={"new": "F{}", "waits": "F{}"},
        deferred={"later": "{}"},
        undeferred=["waits"],
        outbox=[b"first", b"second"],
        parameters=b"parameters",
        discarded=["gen:older"],
        receipt_log=[b"leaf 1", b"\x00\xff"],
    )
    return replace(commit, **changes)


def test_a_commit_writes_everything(store: ModelStore, redis_client: redis.Redis) -> None:
    assert store.commit(whole()) == 2
    client = redis_client
    head = client.hgetall(KEYS.head)
    assert (head[b"commit_seq"], head[b"version"], head[b"digest"]) == (b"2", b"1", b"digest-1")
    assert head[b"theta"] == bytes(range(256))
    assert client.hget(KEYS.offsets, PARTITION) == b"9"
    assert client.lrange(LIVE.V, 0, -1) == [b"v0", b"v1", b"\x00\xff"]
    assert client.lrange(LIVE.Q, 0, -1) == [b"q0", b"q1"]
    assert client.hgetall(KEYS.ledger) == {b"gone": b"0", b"r1": b"1", b"r2": b"1"}
    assert client.lrange(KEYS.deletions, 0, -1) == [b"gone", b"r1", b"r2"]
    assert client.smembers(KEYS.retired) == {b"old"}
    assert client.smembers(KEYS.erase) == {b"live/r1", b"live/r2"}
    assert client.hget(KEYS.requests, "waits") == b"F{}"
    assert client.hgetall(KEYS.deferred) == {b"later": b"{}"}
    assert client.xrange(KEYS.outbox) == [
        (b"2-1", {b"entry": b"first"}),
        (b"2-2", {b"entry": b"second"}),
    ]
    assert client.lrange(KEYS.receipt_log, 0, -1) == [b"leaf 1", b"\x00\xff"]
    assert client.get(KEYS.parameters) == b"parameters"
    assert client.smembers(KEYS.discarded) == {b"gen:older"}


REFUSED: dict[str, dict[str, Any]] = {
    "commit_seq": {"expected": replace(STANDS, commit_seq=0)},
    "version": {"expected": replace(STANDS, version=1)},
    "digest": {"expected": replace(STANDS, digest="another")},
    "next_offset": {"expected": replace(STANDS, next_offset=4)},
    "next_offset of nobody": {"expected": replace(STANDS, next_offset=None)},
    "next_offset of another": {"partition": "topic-id/4"},
    "ledger": {"deleted": ["r1", "gone"]},
    "receipt": {"requests": {"new": "F{}", "done": "F{}"}},
    "rows of V": {"v_before": 0},
    "rows of Q": {"q_before": 2},
    "staged": {"persist": [KEYS.generation("not there").fixed]},
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_refused_commit_writes_nothing(
    store: ModelStore, redis_client: redis.Redis, what: str
) -> None:
    before = dump(redis_client)
    with pytest.raises(
        CommitConflict, match=what.partition(" of nobody")[0].partition(" of an")[0]
    ):
        store.commit(whole(**REFUSED[what]))
    assert dump(redis_client) == before
    assert store.commit(whole()) == 2


@pytest.mark.parametrize("name", ["ledger", "deletions", "requests", "deferred", "outbox", "erase",
                                  "retired", "parameters", "discarded", "receipt_log",
                                  "V", "Q"])  # fmt: skip
def test_a_key_of_another_type_is_refused_before_anything_is_written(
    store: ModelStore, redis_client: redis.Redis, name: str
) -> None:
    key = getattr(LIVE if name in "VQ" else KEYS, name)
    redis_client.delete(key)
    if name == "parameters":
        redis_client.hset(key, "f", "x")
    else:
        redis_client.set(key, "x")
    before = dump(redis_client)
    with pytest.raises(CorruptState, match="type of"):
        store.commit(whole())
    assert dump(redis_client) == before


@pytest.mark.parametrize("published", [False, True], ids=["waiting", "published"])
def test_an_outbox_that_is_ahead_of_the_state_is_refused_before_anything_is_written(
    store: ModelStore, redis_client: redis.Redis, published: bool
) -> None:
    """As after a partial restore: XADD would refuse its id when the rest is written already."""
    ahead = redis_client.xadd(KEYS.outbox, {"entry": b"of commit 2"}, id="2-1")
    if published:
        redis_client.xdel(KEYS.outbox, ahead)
    before = dump(redis_client)
    with pytest.raises(CorruptState, match=r"outbox is 2, .* at commit 1"):
        store.commit(whole())
    with pytest.raises(CorruptState, match="outbox"):
        store.commit(whole(outbox=[]))
    assert dump(redis_client) == before


def test_a_list_of_deletions_that_the_head_does_not_know_is_refused(
    store: ModelStore, redis_client: redis.Redis
) -> None:
    known = replace(STANDS, deletions=1)
    redis_client.rpush(KEYS.deletions, "of a later commit")
    before = dump(redis_client)
    with pytest.raises(CorruptState, match="deletions is 2"):
        store.commit(whole(expected=known))
    assert dump(redis_client) == before
    redis_client.rpop(KEYS.deletions)
    assert store.commit(whole(expected=known)) == 2


def test_a_log_of_receipts_that_the_head_does_not_know_is_refused(
    store: ModelStore, redis_client: redis.Redis
) -> None:
    known = replace(STANDS, receipts=0)
    redis_client.rpush(KEYS.receipt_log, "of a later commit")
    before = dump(redis_client)
    with pytest.raises(CorruptState, match="receipt-log is 1"):
        store.commit(whole(expected=known))
    assert dump(redis_client) == before
    assert store.commit(whole(expected=replace(STANDS, receipts=1), log_kept=0)) == 2
    assert redis_client.lrange(KEYS.receipt_log, 0, -1) == [b"leaf 1", b"\x00\xff"]


def waiting(client: redis.Redis) -> list[str]:
    """The ids of what waits in the outbox."""
    found: Any = client.xrange(KEYS.outbox)
    return [text(entry) for entry, _ in found]


def test_what_is_withdrawn_from_the_outbox_must_be_there(
    store: ModelStore, redis_client: redis.Redis
) -> None:
    """Another worker has published it otherwise, and who withdraws it has to look again."""
    assert store.commit(whole()) == 2
    entries = waiting(redis_client)
    after = replace(STANDS, commit_seq=2, version=1, digest="digest-1", next_offset=9)
    next_one = Commit(
        keys=KEYS, generation=LIVE, expected=after, v_before=3, q_before=2, withdrawn=entries,
        outbox=[b"new"],
    )  # fmt: skip
    redis_client.xdel(KEYS.outbox, entries[1])
    before = dump(redis_client)
    with pytest.raises(CommitConflict, match="outbox"):
        store.commit(next_one)
    assert dump(redis_client) == before
    assert store.commit(replace(next_one, withdrawn=entries[:1])) == 3
    assert waiting(redis_client) == ["3-1"]


def test_a_final_receipt_is_replaced_only_where_that_is_asked_for(
    store: ModelStore, redis_client: redis.Redis
) -> None:
    again = whole(requests={"done": "F{}"})
    with pytest.raises(CommitConflict, match="receipt"):
        store.commit(again)
    assert store.commit(replace(again, replaces_finals=True)) == 2
    assert redis_client.hget(KEYS.requests, "done") == b"F{}"


@pytest.mark.parametrize("kept", [0, 1, 2, None])
def test_the_log_of_receipts_keeps_its_first_entries(
    store: ModelStore, redis_client: redis.Redis, kept: int | None
) -> None:
    redis_client.rpush(KEYS.receipt_log, "one", "two", "three")
    assert store.commit(whole(log_kept=kept)) == 2
    stands = [b"one", b"two", b"three"][:kept]
    assert redis_client.lrange(KEYS.receipt_log, 0, -1) == [*stands, b"leaf 1", b"\x00\xff"]


@pytest.mark.parametrize("more", [-1, 1])
@pytest.mark.usefixtures("store")
def test_a_wrong_number_of_arguments_is_refused(redis_client: redis.Redis, more: int) -> None:
    names, arguments = whole().call()
    arguments = arguments[:-1] if more < 0 else [*arguments, b"more"]
    before = dump(redis_client)
    answer = redis_client.register_script(commit_module.script())(keys=names, args=arguments)
    assert answer[:2] == [b"CONFLICT", b"arguments"]
    assert dump(redis_client) == before


def test_receipts_alone_are_a_commit_too(store: ModelStore, redis_client: redis.Redis) -> None:
    """Otherwise a failover that loses one goes unseen."""
    receipts = Commit(
        keys=KEYS,
        generation=LIVE,
        expected=STANDS,
        partition=PARTITION,
        next_offset=6,
        v_before=1,
        q_before=1,
        requests={"only": "F{}"},
    )
    assert store.commit(receipts) == 2
    with pytest.raises(CommitConflict, match="commit_seq"):
        store.commit(receipts)
    assert redis_client.hget(KEYS.head, "version") == b"0"


def test_ten_thousand_rows_and_many_receipts_in_one_commit(
    store: ModelStore, redis_client: redis.Redis
) -> None:
    rows = [f"row-{i}-\u00e4\x00" for i in range(10_000)]
    store.commit(
        whole(
            deleted=rows,
            erase=[f"live/{row}" for row in rows],
            requests={f"request-{i}": 'F{"body": "ü"}' for i in range(2_500)},
            deferred={f"later-{i}": "{}" for i in range(2_500)},
            V_rows=[bytes(9)] * 3_000,
            Q_rows=[bytes(8)] * 3_000,
            outbox=[b"entry"] * 2_500,
        )
    )
    assert redis_client.hlen(KEYS.ledger) == 10_001
    assert redis_client.lrange(KEYS.deletions, 1, -1) == [row.encode() for row in rows]
    assert redis_client.hlen(KEYS.requests) == 2_502
    assert redis_client.xlen(KEYS.outbox) == 2_500
    assert redis_client.llen(LIVE.V) == 3_001
    with pytest.raises(CommitConflict, match="ledger is new, not what was loaded"):
        store.commit(
            whole(expected=Expected(2, 1, "digest-1", 9), deleted=rows[-1:],
                  v_before=3_001, q_before=3_001)
        )  # fmt: skip


def test_a_new_generation_is_persisted_and_the_old_rows_stay_until_they_are_discarded(
    store: ModelStore, redis_client: redis.Redis
) -> None:
    new = KEYS.generation("new")
    redis_client.set(new.factor, b"L", ex=1000)
    redis_client.hset(new.rows(3), "row", "record")
    redis_client.expire(new.rows(3), 1000)
    persist = staging.staged(redis_client, new.everything())
    assert sorted(persist) == sorted([new.factor, new.rows(3)])
    store.commit(whole(generation=new, persist=persist, v_before=0, q_before=0,
                       discarded=["gen:live"]))  # fmt: skip
    assert redis_client.ttl(new.factor) == redis_client.ttl(new.rows(3)) == -1
    assert redis_client.exists(LIVE.V)
    store.eraser.erase(KEYS)
    assert not redis_client.exists(LIVE.V)
    assert redis_client.exists(new.V)
    assert redis_client.scard(KEYS.discarded) == redis_client.scard(KEYS.erase) == 0


def test_all_keys_of_a_model_share_one_slot() -> None:
    """The script takes them as KEYS: on a cluster, more than one slot is refused."""
    for model_id in ("m", "a{b}c", "{}", "ä/:", "x" * 128):
        keys = ModelKeys.of_model(model_id)
        generation, dataset = keys.generation("g"), keys.dataset("d")
        commit = Commit(keys, generation, STANDS, persist=generation.everything())
        names = [*commit.call()[0], *dataset.everything(), keys.job("j")]
        assert len({key_slot(name.encode()) for name in names}) == 1, model_id


def test_the_outbox_is_trimmed_by_id(store: ModelStore, redis_client: redis.Redis) -> None:
    def entry(n: int) -> Entry:
        return Entry(Stage.RECEIPTS, "topic", b"\xffkey", bytes([n, 10, 0]), (("h", b"\x00"),))

    store.commit(whole(outbox=[encode(entry(1)), encode(entry(2))]))
    outbox = Outbox(redis_client)
    read = outbox.read(KEYS)
    assert [found for _, found in read] == [entry(1), entry(2)]
    # What another worker adds after the reading stays when the first trims what it published
    store.commit(
        whole(expected=Expected(2, 1, "digest-1", 9), deleted=[], requests={}, v_before=3,
              q_before=2, outbox=[encode(entry(3))])
    )  # fmt: skip
    outbox.trim(KEYS, [entry_id for entry_id, _ in read])
    outbox.trim(KEYS, [entry_id for entry_id, _ in read])
    assert [found for _, found in outbox.read(KEYS)] == [entry(3)]
    assert outbox.depth([KEYS]) == 1


def test_a_full_store_writes_nothing_and_says_so(
    store: ModelStore, redis_client: redis.Redis
) -> None:
    before = dump(redis_client)
    redis_client.config_set("maxmemory", 1)
    try:
        with pytest.raises(StoreUnavailable, match="does not take writes"):
            store.commit(whole())
    finally:
        redis_client.config_set("maxmemory", 0)
    assert dump(redis_client) == before
    assert store.commit(whole()) == 2


def test_the_barrier_waits_on_the_connection_that_wrote(
    store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WAITAOF returns at once on a connection that wrote nothing."""
    waited: list[redis.Redis] = []
    ran: list[redis.Redis] = []
    script = store._script

    def run(**given: Any) -> Any:
        ran.append(given["client"])
        return script(**given)

    monkeypatch.setattr(store._barrier, "wait", waited.append)
    monkeypatch.setattr(store, "_script", run)
    store.commit(whole())
    assert waited == ran == [store._writer]
