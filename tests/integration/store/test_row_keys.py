"""Row records encrypted at rest: what is erased stays erased, also where an old copy comes back."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from lethe.consumers.refresh import swap
from lethe.consumers.service.configuration.settings import Settings
from lethe.consumers.service.connect import open_runtime
from lethe.engine.error.budget import OverBudget
from lethe.engine.errors import CorruptState, InvalidData, StoreUnavailable
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.keys import SHARDS, GenerationKeys, ModelKeys, shard_of
from lethe.engine.store.lookup import LookupRequest
from lethe.engine.store.server.row_keys import SEALED, STAGED_TIME_TO_LIVE, TIME_TO_LIVE
from tests.integration.store.test_erased_data import (
    FOLDED,
    LIVE,
    MARKED,
    PLAIN,
    files_of,
    marked_data,
    memory_of,
    rows_in,
)
from tests.support.crash_lane import check_row_keys
from tests.support.events import settle
from tests.support.invariants import check_model, ledger_of
from tests.support.memory_log import MemoryLog
from tests.support.platform import Platform, store_at
from tests.support.servers import ValkeyProcess
from tests.support.stores import backup, restore

KEYS = ModelKeys("m")


@pytest.fixture
def servers(private_valkey: Callable[..., ValkeyProcess]) -> tuple[ValkeyProcess, ValkeyProcess]:
    """The store, and the store of keys."""
    return private_valkey(rdbcompression="no"), private_valkey()


@pytest.fixture
def sealed(servers: tuple[ValkeyProcess, ValkeyProcess], quick_refresh: None) -> Iterator[Platform]:
    """A platform whose row records are encrypted."""
    del quick_refresh
    platform = Platform(MemoryLog(), servers[0].url, keys_url=servers[1].url)
    yield platform
    platform.close()


def records(platform: Platform, where: GenerationKeys) -> dict[bytes, bytes]:
    """Return the stored records of a generation."""
    found: dict[Any, Any] = {}
    for shard in range(SHARDS):
        found |= platform.raw().hgetall(where.rows(shard))
    return found


def keys_held(platform: Platform) -> set[str]:
    """Return ``<generation>/<row>`` of every key that is held and does not expire."""
    assert platform.store.row_keys is not None
    raw: Any = platform.store.row_keys._client
    return {
        f"{key.decode().split(':')[4]}/{row.decode()}"
        for key in raw.scan_iter(match="*:row-keys:*")
        if raw.ttl(key) < 0
        for row in raw.hkeys(key)
    }


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_a_models_whole_life_with_encrypted_records(sealed: Platform, kind: str) -> None:
    sealed.register("m", "benign", kind, budget=10.0)
    sealed.delete("m", 0, 1)
    for size in (RefreshSize.COMPACT, RefreshSize.REBUILD, RefreshSize.POLISH):
        # Given a deletion between a refresh's snapshot and its swap
        event = sealed.ordered("m", size)
        sealed.compute_refresh(event)
        sealed.delete("m", 2 + 2 * list(RefreshSize).index(size))
        sealed.tell_refreshed(event)
        sealed.drain()
        check_model(sealed)
    sealed.register("m", "benign", kind, budget=10.0, replace_model=True)
    sealed.delete("m", 20)
    check_model(sealed)
    # Then every record is encrypted, and there is a key for each live row and no other
    live = sealed.load().generation_keys
    stored = records(sealed, live)
    assert {record[0] for record in stored.values()} == {SEALED}
    assert keys_held(sealed) == {f"{live.name}/{row.decode()}" for row in stored}


def test_nothing_that_is_stored_can_be_read_without_the_keys(
    sealed: Platform, servers: tuple[ValkeyProcess, ValkeyProcess]
) -> None:
    sealed.register("m", marked_data(), method="exact", budget=10.0)
    sealed.drain()
    assert rows_in(memory_of(sealed.raw())) == set()
    assert rows_in(files_of(servers[0].data)) == set()
    with pytest.raises(CorruptState, match="LETHE_ROW_KEYS_URL"):
        store_at(sealed.url).row_records(sealed.load().generation_keys, ["row-1"])


def test_no_row_lies_beside_exact_sums(
    sealed: Platform, servers: tuple[ValkeyProcess, ValkeyProcess]
) -> None:
    """A commit would write its rows there, in clear: it writes the sums whole."""
    sealed.register("m", marked_data(), method="exact", budget=10.0, exact_sums=True)
    sealed.drain()  # the worker's first turn ends with a look at all models
    for row in (PLAIN, FOLDED):
        sealed.delete("m", row)
        sums = sealed.load().generation_keys.sums
        assert set(sealed.raw().hkeys(sums)) == {b"all"}
        assert rows_in(memory_of(sealed.raw())) == set()
    assert rows_in(files_of(servers[0].data)) == set()
    check_model(sealed)


def test_an_old_copy_of_the_store_cannot_give_a_deleted_row_back(
    sealed: Platform, servers: tuple[ValkeyProcess, ValkeyProcess], tmp_path: Path
) -> None:
    sealed.register("m", marked_data(), method="exact", budget=10.0)
    sealed.drain()
    # Given a copy of all files from before the deletion
    shutil.copytree(servers[0].data, tmp_path / "copy")
    before = backup(sealed, "m")
    sealed.delete("m", PLAIN)
    old = ValkeyProcess(tmp_path / "copy")
    old.start()
    try:
        store = store_at(old.url, keys_url=servers[1].url)
        state = store.load_model("m")
        # Then it has the row's record, which nothing opens,
        [found] = store.look_up([LookupRequest(state, [], [f"row-{PLAIN}", f"row-{LIVE}"])])
        assert found.shredded == {f"row-{PLAIN}"}
        assert set(found.records) == {f"row-{LIVE}"}
        assert store.client.hexists(
            state.generation_keys.rows(shard_of(f"row-{PLAIN}")), f"row-{PLAIN}"
        )
        assert rows_in(files_of(tmp_path / "copy")) == set()
        with pytest.raises(CorruptState, match="1 live rows have an encrypted record"):
            store.row_records(state.generation_keys, [f"row-{PLAIN}"])
        store.close()
    finally:
        old.close()
    # and a store that is restored from it learns of the deletion from the log
    restore(sealed, before, "m")
    settle(sealed)
    assert f"row-{PLAIN}" in ledger_of(sealed)
    later = sealed.delete("m", LIVE)
    assert sealed.final(later).status == "APPLIED"
    check_model(sealed)


def test_a_generation_that_comes_back_can_still_be_read(sealed: Platform) -> None:
    """Given a failover that loses a rebuild's swap and its result, it can be rebuilt again."""
    sealed.register("m", "benign", "linear", budget=10.0)
    sealed.delete("m", 0)
    before = backup(sealed, "m")
    former = sealed.load().generation_keys
    sealed.refresh("m", RefreshSize.REBUILD)
    assert sealed.load().meta.generation == 1
    assert sealed.store.row_keys is not None
    raw = sealed.store.row_keys._client
    left = [raw.ttl(former.row_keys(shard)) for shard in range(SHARDS)]
    assert all(seconds == -2 or 0 < seconds <= TIME_TO_LIVE for seconds in left)
    restore(sealed, before, "m")
    sealed.pair[0].recover()
    later = sealed.delete("m", 5)
    assert sealed.final(later).status == "APPLIED"
    check_model(sealed)


def test_keys_of_a_generation_that_nobody_takes_expire(sealed: Platform) -> None:
    sealed.register("m", "benign", "linear", budget=10.0)
    result = sealed.compute_refresh(sealed.ordered("m", RefreshSize.REBUILD))
    assert result.staged_key is not None
    assert sealed.store.row_keys is not None
    raw, where = sealed.store.row_keys._client, KEYS.generation(result.staged_key)
    left = [raw.ttl(where.row_keys(shard)) for shard in range(SHARDS)]
    assert all(TIME_TO_LIVE < seconds <= STAGED_TIME_TO_LIVE for seconds in left)
    live = sealed.load().generation_keys
    assert all(raw.ttl(live.row_keys(shard)) == -1 for shard in range(SHARDS))


def test_a_lost_key_or_an_exchanged_record_halts_the_model_and_says_why(sealed: Platform) -> None:
    sealed.register("m", "benign", "linear", budget=10.0)
    where = sealed.load().generation_keys
    stored = records(sealed, where)
    assert sealed.store.row_keys is not None
    sealed.store.row_keys.drop(where, ["row-1"])
    with pytest.raises(CorruptState, match="1 live rows have an encrypted record and no key"):
        sealed.store.row_records(where, ["row-1", "row-2"])
    sealed.raw().hset(where.rows(shard_of("row-2")), "row-2", stored[b"row-3"])
    with pytest.raises(CorruptState, match="a row's record does not match its key"):
        sealed.store.row_records(where, ["row-2"])
    request = sealed.send_index("m", 1)
    worker = sealed.pair[0]
    worker.run_once(0.0)
    assert "m" in worker._halts
    assert not sealed.statuses(request)


def test_a_store_of_keys_that_is_away_is_waited_for(
    sealed: Platform, servers: tuple[ValkeyProcess, ValkeyProcess]
) -> None:
    sealed.register("m", "benign", "linear", budget=10.0)
    sealed.delete("m", 1)
    servers[1].kill()
    request = sealed.send_index("m", 2)
    with pytest.raises(StoreUnavailable, match=r"store of row keys at .*LETHE_ROW_KEYS_URL"):
        sealed.pair[0].run_once(0.0)
    servers[1].start()
    sealed.pair[0].recover()
    assert sealed.answer(request).status == "APPLIED"
    sealed.store.close()
    sealed.store = sealed.new_store()
    check_model(sealed)


def test_the_store_itself_is_no_store_of_keys(redis_url: str, tmp_path: Path) -> None:
    url = SecretStr(redis_url)
    settings = Settings(redis_url=url, row_keys_url=url, data_dir=tmp_path)
    with open_runtime(settings) as runtime, pytest.raises(InvalidData, match="the store itself"):
        runtime.store()


def test_marked_rows_are_those_that_the_search_knows() -> None:
    """Paired with the tests that find nothing: the same search finds the rows unencrypted."""
    data = marked_data()
    assert rows_in([data.X[row].tobytes() for row in MARKED]) == set(MARKED)


def test_keys_of_a_result_that_is_held_back_expire(
    sealed: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed.register("m", "benign", "logistic", budget=1e-6, over_budget=OverBudget.HOLD)
    request = sealed.send_index("m", 0)
    monkeypatch.setattr(swap, "_must_hold", lambda *_: True)
    sealed.drain()

    assert sealed.final(request).code == "BUDGET_UNREACHABLE"
    live = sealed.load().generation_keys
    assert {name.partition("/")[0] for name in keys_held(sealed)} == {live.name}


@pytest.mark.parametrize("step", ["append", "apply", "shred", "publish"])
@pytest.mark.parametrize("ends", ["replace", "unregister"])
def test_another_commit_that_overtakes_a_swap_leaves_no_key_for_ever(
    sealed: Platform, step: str, ends: str
) -> None:
    """Given a worker that stalls in a swap, until the model was replaced, or is no more."""
    armed, stalled = False, list[str]()

    def overtake(reached: str) -> None:
        if armed and reached == step and not stalled:
            stalled.append(step)
            if ends == "replace":
                sealed.register("m", "benign", "linear", budget=10.0, replace_model=True)
            else:
                sealed.registrar(sealed.new_store()).unregister("m")

    worker = sealed.deletion_worker(at_step=overtake)
    sealed.register("m", "benign", "linear", budget=10.0)
    sealed.send_index("m", 0)
    sealed.drain(worker)
    event = sealed.ordered("m", RefreshSize.REBUILD)
    sealed.compute_refresh(event)
    sealed.tell_refreshed(event)
    armed = True
    sealed.drain(worker)
    assert stalled == [step]
    if ends == "replace":
        sealed.send_index("m", 1)
        sealed.drain(worker)
        check_row_keys(sealed)
        check_model(sealed)
    else:
        assert not keys_held(sealed)


def test_a_swap_whose_worker_dies_before_the_store_has_it_keeps_its_keys(sealed: Platform) -> None:
    sealed.register("m", "benign", "linear", budget=10.0)
    event = sealed.ordered("m", RefreshSize.REBUILD)
    sealed.compute_refresh(event)
    sealed.tell_refreshed(event)

    def die(reached: str) -> None:
        if reached == "apply":
            raise KeyboardInterrupt

    dying = sealed.deletion_worker(at_step=die)
    with pytest.raises(KeyboardInterrupt):
        sealed.drain(dying)
    dying.close()
    sealed.drain()
    assert sealed.load().meta.generation == 1
    check_row_keys(sealed)


def test_the_keys_of_a_swap_that_the_store_lost_with_its_rows_expire(sealed: Platform) -> None:
    """Given a store that goes back to before the rebuild was staged, they stayed for ever."""
    sealed.register("m", "benign", "linear", budget=10.0)
    sealed.delete("m", 0)
    before = backup(sealed, "m")
    sealed.refresh("m", RefreshSize.REBUILD)
    lost = sealed.load().generation_keys
    restore(sealed, before, "m")
    sealed.pair[0].recover()
    sealed.delete("m", 5)
    live = sealed.load().generation_keys
    assert live.name != lost.name
    check_row_keys(sealed)
    check_model(sealed)


def test_a_rebuild_that_was_made_twice_keeps_the_keys_of_the_one_that_counts(
    sealed: Platform,
) -> None:
    """Given a refresh worker that dies once its event is sent, and one that dies in the swap."""
    sealed.register("m", "benign", "linear", budget=10.0)
    event = sealed.ordered("m", RefreshSize.REBUILD)
    first = sealed.compute_refresh(event)
    sealed.tell_refreshed(event)

    def die(reached: str) -> None:
        if reached == "append":
            raise KeyboardInterrupt

    dying = sealed.deletion_worker(at_step=die)
    with pytest.raises(KeyboardInterrupt):
        sealed.drain(dying)
    dying.close()
    again = sealed.compute_refresh(event)
    sealed.drain()
    assert again.staged_key != first.staged_key
    assert sealed.load().rows_generation == again.staged_key
    check_row_keys(sealed)
