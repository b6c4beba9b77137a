"""A damaged store: whatever lies under a model's keys, reading it is a value or a clear error.

And the model that it belongs to halts alone: the others go on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import redis

from lethe.consumers.commits.packed_receipt import Indexed, unpack
from lethe.consumers.refresh.swap import swap
from lethe.consumers.subscriber.published import published
from lethe.consumers.versions.draft import Origin
from lethe.engine.errors import LetheError
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.lookup import LookupRequest, read_heads, read_summary
from lethe.engine.store.membership import models_that_lack_rows, registered_models
from lethe.engine.store.offline.jobs import read_result
from lethe.engine.store.offline.predecessor import read_members, read_predecessor
from lethe.engine.store.offline.snapshot import load_factor, take_snapshot
from lethe.engine.store.store import ModelStore
from tests.proof.fuzz.hostile import TOKENS, spoil
from tests.support.families import make
from tests.support.memory_log import MemoryLog
from tests.support.platform import Platform
from tests.support.stores import neighbour_of

FAMILY = ("benign", "logistic")
_LONG = (b"[" * 3000, b"9" * 5000, b"\0" * 4096)


@pytest.fixture
def platform(redis_url: str, redis_client: redis.Redis) -> Iterator[Platform]:
    del redis_client  # it has emptied the database
    made = Platform(MemoryLog(), redis_url, partitions=1)
    yield made
    made.close()


def _read_everything(platform: Platform, job_id: str) -> None:
    """Read all that workers and commands read of model m; each by itself."""
    store = platform.store
    keys = ModelKeys("m")
    client = store.client

    def loaded(use: Callable[[ModelState], object]) -> Callable[[], object]:
        def run() -> object:
            state = store.load("m")
            return None if state is None else use(state)

        return run

    origin = Origin("id/0", 99, None)
    reads: list[Callable[[], object]] = [
        loaded(
            lambda state: store.look_up([LookupRequest(state, ["r1", "r2"], ["row-1", "row-3"])])
        ),
        loaded(lambda state: store.subjects([(state, ["subject-0", "subject-1"])])),
        loaded(lambda state: load_factor(store, state)),
        lambda: read_result(client, keys, job_id),
        loaded(lambda state: swap(store, state, job_id, origin, datetime.now(UTC))),
        lambda: take_snapshot(store, "m"),
        lambda: published(store, "m"),
        lambda: receipt_of(store, "r1"),
        lambda: read_heads(store.client, ["m"], ModelKeys("m").partition),
        lambda: store.cursors.read(keys.partition),
        lambda: models_that_lack_rows(store.client, ["m"]),
        lambda: read_members(client, read_predecessor(client, keys)),
        lambda: store.rows_in_ledger(keys, ["row-1"]),
        lambda: registered_models(store.client),
        lambda: read_summary(client, "m"),
    ]
    for read in reads:
        said = ""
        try:
            read()
        except LetheError as error:
            said = str(error)
        assert "\n" not in said
        assert len(said) < 2000


def receipt_of(store: ModelStore, request_id: str) -> Indexed | None:
    packed = store.receipt("m", request_id)
    return None if packed is None else unpack(packed, "m", request_id)


def _damage(client: Any, key: bytes, draw: random.Random) -> str:
    """Change one value under a key; return what was done."""
    kind = client.type(key)
    if draw.random() < 0.15:
        client.delete(key)
        if draw.random() < 0.5:
            return "removed"
        other = draw.choice(["string", "hash", "list", "set", "stream"])
        _put(client, other, key, draw.choice(TOKENS))
        return f"{kind} became {other}"
    if kind == b"string":
        client.set(key, _spoilt(client.get(key), draw))
    elif kind == b"hash":
        field, value = draw.choice(sorted(client.hgetall(key).items()))
        if draw.random() < 0.2:
            client.hset(key, _spoilt(field, draw), value)
        else:
            client.hset(key, field, _spoilt(value, draw))
        return f"field {field!r}"
    elif kind == b"list":
        at = draw.randrange(client.llen(key))
        client.lset(key, at, _spoilt(client.lindex(key, at), draw))
    elif kind == b"set":
        client.sadd(key, _spoilt(draw.choice(sorted(client.smembers(key))), draw))
    elif kind == b"stream":
        client.xadd(key, {draw.choice([b"entry", b"x"]): draw.choice(TOKENS) or b"-"})
    return "spoilt"


def _put(client: Any, kind: str, key: bytes, value: bytes) -> None:
    put: dict[str, Callable[[], object]] = {
        "string": lambda: client.set(key, value),
        "hash": lambda: client.hset(key, value, value),
        "list": lambda: client.rpush(key, value),
        "set": lambda: client.sadd(key, value),
        "stream": lambda: client.xadd(key, {b"entry": value}),
    }
    put[kind]()


def _spoilt(value: bytes, draw: random.Random) -> bytes:
    if draw.random() < 0.2:
        return draw.choice((*TOKENS, *_LONG))
    for _ in range(draw.randrange(1, 3)):
        value = spoil(value, draw)
    return value


def _keys_of(client: Any, model_id: str) -> list[bytes]:
    keys = ModelKeys(model_id)
    own = keys.head.removesuffix("head").encode()
    return [*sorted(key for key in client.keys("*") if key.startswith(own))]


def test_no_damage_to_a_models_keys_is_more_than_a_clear_error(platform: Platform) -> None:
    """120 damages, each alone, of every kind of key: none of them may end a worker."""
    platform.register("m", make(*FAMILY), method="pru", budget=1e6)
    platform.send_index("m", 1, 2, request_id="r1")
    platform.send_index("m", 4, request_id="r2")
    platform.drain(platform.deletion_worker())
    event = platform.order("m", RefreshSize.REBUILD)
    platform.compute_refresh(event)
    client: Any = platform.raw()
    cursors = ModelKeys("m").partition.cursors.encode()
    whole = {key: client.dump(key) for key in [*_keys_of(client, "m"), cursors]}
    assert len(whole) > 15
    _read_everything(platform, event.job_id)
    for number in range(120):
        draw = random.Random(number)
        key = draw.choice(sorted(whole))
        done = _damage(client, key, draw)
        try:
            _read_everything(platform, event.job_id)
        except Exception as error:
            pytest.fail(f"damage {number}, {key!r}, {done}: {type(error).__name__}: {error}")
        for again in {key, *_keys_of(client, "m")}:
            if again in whole:
                client.restore(again, 0, whole[again], replace=True)
            else:
                client.delete(again)


@pytest.mark.parametrize(
    "damage",
    [
        lambda client, keys: client.hset(keys.offsets, "id/0", "many"),
        lambda client, keys: client.hset(keys.head, "version", "\xff"),
        lambda client, keys: client.hset(keys.head, "meta", "[" * 3000),
        lambda client, keys: (client.delete(keys.head), client.set(keys.head, "x")),
        lambda client, keys: client.hset(keys.head, "commit", "many"),
        lambda client, keys: client.hset(keys.head, "digest", b"\xff"),
        lambda client, keys: client.hset(keys.head, "theta_exact", bytes(7)),
        lambda client, keys: (client.delete(keys.ledger), client.set(keys.ledger, "x")),
        lambda client, keys: (client.delete(keys.deletions), client.set(keys.deletions, "x")),
        lambda client, keys: (client.delete(keys.requests), client.set(keys.requests, "x")),
        lambda client, keys: client.hset(keys.deferred, "r9", '{"request_id":"r8"}'),
    ],
    ids=[
        "offsets", "version", "meta", "head type", "commit", "digest", "theta", "ledger type",
        "deletions type", "requests type", "deferred",
    ],
)  # fmt: skip
def test_a_damaged_model_halts_alone(platform: Platform, damage: Callable[..., object]) -> None:
    """At a takeover and while it runs: a model of the same partitions is applied all the same."""
    other = neighbour_of("m")
    for model in ("m", other):
        platform.register(model, make(*FAMILY), method="pru", budget=1e6)
    worker = platform.deletion_worker()
    platform.drain(worker)
    damage(platform.raw(), ModelKeys("m"))
    platform.send_index("m", 1, request_id="r1")
    platform.send_index(other, 1, request_id="r2")
    for _ in range(5):  # while it runs
        platform.turn(worker)
    assert platform.final("r2", other).status == "APPLIED"

    worker.close()
    platform.send_index(other, 2, request_id="r3")
    successor = platform.deletion_worker()
    for _ in range(10):  # at a takeover
        platform.turn(successor)
    assert platform.final("r3", other).status == "APPLIED"
    assert platform.receipts("m") == [] or platform.final("r1", "m").status == "APPLIED"
