"""Registering where the store has lost writes, is damaged, or its process ends too early."""

from __future__ import annotations

import numpy as np
import pytest

from lethe.consumers.contract import topics
from lethe.consumers.registration.training_data import TrainingData
from lethe.engine.errors import CorruptState, FormatTooOld, ModelExists
from lethe.engine.store.layout.config import LimitsRecord
from lethe.engine.store.layout.keys import FORMAT, ModelKeys
from tests.support.invariants import check_model, check_theta, ledger_of
from tests.support.platform import Platform, config_of, training_data

KEYS = ModelKeys("m")


def stored(platform: Platform) -> dict[bytes, bytes]:
    """Return everything that the store holds of the model."""
    raw = platform.raw()
    keys = raw.scan_iter(match=f"lethe:{{{KEYS.partition.tag}}}:*")
    return {key: raw.dump(key) or b"" for key in keys}


def restore(platform: Platform, backup: dict[bytes, bytes]) -> None:
    """Put the model back to what it was, as a server does that lost its newest writes."""
    raw = platform.raw()
    for key in raw.scan_iter(match=f"lethe:{{{KEYS.partition.tag}}}:*"):
        raw.delete(key)
    for key, value in backup.items():
        raw.restore(key, 0, value)


def check_chain(platform: Platform) -> None:
    """Published versions are dense and linked, and the store stands at the newest."""
    versions = platform.versions("m")
    assert [version.version for version in versions] == list(range(len(versions)))
    links = [version.prev_digest for version in versions]
    assert links == ["", *(version.digest for version in versions[:-1])]
    state = platform.load()
    assert (state.version, state.digest) == (versions[-1].version, versions[-1].digest)
    generations = [version.generation for version in versions]
    assert generations == sorted(generations)


def publish_three(platform: Platform) -> None:
    for i in range(3):
        platform.send_index("m", i)
        platform.drain(platform.pair[0])


# -- a store that is behind the log ----------------------------------------------------------------


def test_a_store_that_has_lost_commits_has_them_again_before_anything_is_registered(
    memory: Platform,
) -> None:
    memory.register("m", budget=10.0)
    backup = stored(memory)
    publish_three(memory)
    restore(memory, backup)
    with pytest.raises(ModelExists, match="version 3"):
        memory.register("m", budget=10.0)
    assert memory.load().version == 3
    restore(memory, backup)
    memory.register("m", budget=10.0, replace_model=True)
    assert memory.load().version == 4
    assert memory.load().meta.generation == 1
    check_chain(memory)
    assert set(ledger_of(memory)) == {"row-0", "row-1", "row-2"}
    memory.pair[0].recover()
    request = memory.send_index("m", 7)
    memory.drain()
    assert memory.final(request).version == memory.load().version
    check_chain(memory)
    check_model(memory)


def test_a_store_that_was_wiped_is_replaced_and_no_deleted_row_comes_back(
    memory: Platform,
) -> None:
    """The log still has every commit; only the rows themselves are gone (DATA_LOST)."""
    memory.register("m", budget=10.0)
    publish_three(memory)
    memory.raw().flushall()
    memory.log.ensure_topics(topics.specs(2))
    done = memory.register("m", budget=10.0, replace_model=True)
    assert done.in_ledger == 3
    assert memory.load().version == 4
    check_chain(memory)
    assert set(ledger_of(memory)) == {"row-0", "row-1", "row-2"}
    assert memory.load().meta.rows_live == 117


# -- a damaged model -------------------------------------------------------------------------------


def damage(platform: Platform, what: str) -> None:
    raw, live = platform.raw(), platform.load().generation_keys
    if what == "precomputation":
        raw.delete(live.fixed)
    elif what == "rows":
        raw.delete(live.rows(0), live.rows(1))
    elif what == "V":
        raw.rpush(live.V, b"short")
    elif what == "theta":
        raw.hset(KEYS.head, "theta_exact", b"short")
    elif what == "meta":
        raw.hset(KEYS.head, "meta", b"{")
    elif what == "format":
        raw.hset(KEYS.head, "format", b"x")


@pytest.mark.parametrize("what", ["precomputation", "rows", "V", "theta", "meta", "format"])
def test_a_damaged_model_can_be_replaced(memory: Platform, what: str) -> None:
    limits = LimitsRecord(floor_rows=1, fraction_of_d=0.0)
    memory.register("m", limits=limits, budget=10.0)
    publish_three(memory)
    waiting = memory.send_index("m", *range(20, 30))
    memory.drain(memory.pair[0])
    assert memory.statuses(waiting) == ["DEFERRED"]
    damage(memory, what)
    done = memory.register("m", limits=limits, budget=10.0, replace_model=True, keep=range(110))
    # Then the ledger and the waiting request stand, and rows that the file lacks were members
    assert done.in_ledger == 3
    retired = memory.raw().smembers(KEYS.retired)
    assert retired == {f"row-{i}".encode() for i in range(110, 120)}
    memory.drain()
    assert memory.final(waiting).rows_deleted == 10
    assert ledger_of(memory).keys() == {f"row-{i}" for i in (0, 1, 2, *range(20, 30))}
    assert memory.load().meta.rows_live == 97
    assert memory.versions()[-1].rows_deleted == 13
    check_chain(memory)
    # and nothing of the damaged one is left
    state = memory.load()
    for key in stored(memory):
        name = key.decode()
        if ":gen:" in name or ":data:" in name:
            assert state.meta.generation_key in name or state.meta.dataset_key in name


def test_a_model_of_an_older_lethe_is_not_replaced(memory: Platform) -> None:
    memory.register("m")
    memory.raw().hset(KEYS.head, "format", str(FORMAT - 1))
    with pytest.raises(FormatTooOld, match="an empty store"):
        memory.register("m", replace_model=True)
    assert len(memory.versions()) == 1


def test_without_the_place_of_its_chain_a_model_is_not_replaced(memory: Platform) -> None:
    memory.register("m")
    memory.raw().hset(KEYS.head, "version", "many")
    with pytest.raises(CorruptState, match="restore the store") as refused:
        memory.register("m", replace_model=True)
    assert "\n" not in str(refused.value)
    assert len(memory.versions()) == 1


# -- rows that come and go between files -----------------------------------------------------------


@pytest.mark.parametrize("asked_again", [False, True])
def test_a_waiting_row_that_goes_and_comes_back_between_files_is_deleted(
    memory: Platform, asked_again: bool
) -> None:
    limits = LimitsRecord(floor_rows=1, fraction_of_d=0.0)
    memory.register("m", limits=limits, budget=10.0)
    first = memory.send_index("m", *range(10))
    memory.drain(memory.pair[0])
    memory.register("m", limits=limits, budget=10.0, replace_model=True, keep=range(1, 120))
    memory.register("m", limits=limits, budget=10.0, replace_model=True)
    second = memory.send_index("m", 0, *range(20, 29)) if asked_again else None
    memory.drain()
    assert memory.final(first).rows_deleted == 10
    assert second is None or memory.final(second).rows_deleted == 9
    gone = {*range(10), *(range(20, 29) if asked_again else ())}
    assert ledger_of(memory).keys() == {f"row-{i}" for i in gone}
    assert memory.load().meta.rows_live == 120 - len(gone)
    assert not memory.load().deferred
    check_theta(memory, "m", 1e-8)


def by_subject(platform: Platform, request_id: str, subject: str) -> None:
    body = f'{{"request_id": "{request_id}", "model_id": "m", "subject_id": "{subject}"}}'
    platform.send_raw(body.encode())


def test_a_subject_keeps_the_rows_that_a_replacement_lacks(memory: Platform) -> None:
    # Given Ann with a row that is deleted, one that the next file lacks, and one that it has
    memory.register("m", budget=10.0)
    data, config = memory.data["m"], config_of(memory.data["m"], "m", "pru", 10.0, LimitsRecord())

    def again(keep: range, subjects: dict[str, list[str]]) -> None:
        rows: TrainingData = training_data(data, keep)
        rows = TrainingData(
            rows.ids, rows.X, rows.y, rows.feature_names, rows.target_names, subjects
        )
        memory.registrar().register(config, rows, replace_model=True)

    again(range(120), {"ann": ["row-0", "row-1", "row-2"], "bob": ["row-3"]})
    memory.send_index("m", 0)
    memory.drain()
    again(range(2, 120), {"ann": ["row-2"]})
    [found] = memory.store.subjects([(memory.load(), ["ann", "bob"])])
    assert found == {"ann": ("row-2", "row-0", "row-1")}
    # When she is deleted, then no later file brings any of them back
    by_subject(memory, "ann", "ann")
    memory.drain()
    assert memory.final("ann").status == "APPLIED"
    again(range(120), {})
    assert ledger_of(memory).keys() == {"row-0", "row-1", "row-2"}
    assert memory.load().meta.rows_live == 117
    by_subject(memory, "ann-again", "ann")
    memory.drain()
    assert memory.final("ann-again").status == "ALREADY_APPLIED"
    assert not np.isnan(memory.load().stream.published).any()
