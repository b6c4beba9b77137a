"""Registering and --replace, racing with requests: a deleted row never comes back."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from consumers import candidate
from consumers.checks import check_model as check_stored
from consumers.registration import register
from engine.errors import InvalidData, ModelExists, StoreUnavailable
from engine.policy import Size
from engine.store.commit import Commit
from engine.store.erasing import Moment, pass_by
from engine.store.head import LimitsRecord, ModelConfig
from engine.store.store import ModelStore
from tests.families import make
from tests.support.invariants import check_model, check_theta, check_versions, ledger_of, live_mask
from tests.support.platform import (
    Platform,
    config_of,
    row_ids,
    store_at,
    training_data,
)

KAFKA = pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.xdist_group("kafka")])


def test_replace_never_brings_a_deleted_row_back(platform: Platform) -> None:
    platform.register("m")
    platform.send_index("m", 0, 1, 2)
    platform.drain()
    done = platform.register("m", replace_model=True)
    assert done.left_out == 3
    platform.send_index("m", 2, 3)
    platform.drain()
    assert platform.versions()[2].generation == 1
    assert live_mask(platform).sum() == len(platform.data["m"].X) - 4
    check_model(platform)


def test_rows_that_a_replacement_lacks_were_members_once(memory: Platform) -> None:
    memory.register("m")
    memory.send_index("m", 0)
    memory.drain()
    memory.register("m", replace_model=True, keep=range(20, 120))
    request = memory.send_index("m", 5, 30)
    only_old = memory.send_index("m", 6)
    memory.drain()
    assert memory.final(request).rows_deleted == 1
    assert memory.final(request).rows_unknown == 0
    assert memory.final(only_old).status == "ALREADY_APPLIED"
    # A retired row that was asked for is in the ledger: no later file brings it back
    memory.register("m", replace_model=True)
    assert {"row-0", "row-5", "row-6", "row-30"} == ledger_of(memory).keys()
    assert memory.load().meta.rows_live == 116
    check_versions(memory, "m")


@pytest.mark.parametrize("keep", [range(10, 120), range(120)])
def test_a_request_that_waits_for_a_rebuild_survives_a_replacement(
    memory: Platform, keep: range
) -> None:
    limits = LimitsRecord(floor_rows=1, fraction_of_d=0.0)
    memory.register("m", limits=limits, budget=10.0)
    waiting = memory.send_index("m", *range(12))
    memory.drain(memory.pair[0])
    assert memory.statuses(waiting) == ["DEFERRED"]
    memory.register("m", limits=limits, budget=10.0, replace_model=True, keep=keep)
    memory.drain()
    assert memory.final(waiting).status == "APPLIED"
    assert memory.final(waiting).rows_deleted == len(set(range(12)) & set(keep))
    assert ledger_of(memory).keys() == {f"row-{i}" for i in range(12)}
    assert memory.load().meta.rows_live == 108
    assert not memory.load().deferred
    check_theta(memory, "m", 1e-8)
    check_versions(memory, "m")


def test_a_waiting_request_ends_although_every_other_row_goes(memory: Platform) -> None:
    """Its rows are not in the new file, and then the file's rows are all deleted."""
    limits = LimitsRecord(floor_rows=1, fraction_of_d=0.0)
    memory.register("m", limits=limits, budget=10.0)
    waiting = memory.send_index("m", *range(12))
    memory.drain(memory.pair[0])
    memory.register("m", limits=limits, budget=10.0, replace_model=True, keep=range(12, 120))
    memory.send_index("m", *range(12, 120))
    memory.drain(memory.pair[0])
    assert memory.load().meta.status == "EMPTY"
    memory.drain()
    assert memory.statuses(waiting) == ["DEFERRED", "ALREADY_APPLIED"]


@pytest.mark.parametrize("kind", ["memory", "streams", KAFKA])
def test_replacements_race_with_requests(platform_on: Callable[..., Platform], kind: str) -> None:
    # Given a worker that deletes without a pause
    platform = platform_on(kind)
    platform.register("m", "benign", "linear", budget=0.05)
    worker, refresher = platform.pair
    platform.turn(worker)  # joins here: a Kafka member belongs to one thread after that
    stop = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            while not stop.is_set():
                platform.turn(worker)
                refresher.run_once(0.0)
        except BaseException as error:
            failures.append(error)
            raise

    thread = threading.Thread(target=work)
    thread.start()
    # When the model is replaced again and again
    store, data = store_at(platform.url), platform.data["m"]
    producer, reader = platform.log.producer(), platform.log.reader()
    config = config_of(data, "m", "pru", 0.05, LimitsRecord())
    try:
        for i in range(40):
            platform.send_index("m", 2 * i, 2 * i + 1)
            if i % 8 == 4:
                register(store, producer, reader, config, training_data(data), replace_model=True)
    finally:
        stop.set()
        thread.join()
        producer.close()
        reader.close()
        store.close()
    platform.drain()
    # Then every request was applied once, and no row came back
    assert not failures
    assert {receipt.status for receipt in platform.finals().values()} == {"APPLIED"}
    assert live_mask(platform).sum() == len(data.X) - 80 == platform.load().meta.rows_live
    assert sum(v.refresh is None and not v.request_ids for v in platform.versions()) == 6
    check_model(platform)
    platform.order("m", Size.REBUILD)
    platform.drain()
    check_model(platform)


def test_rows_deleted_while_a_replacement_is_fitted(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.register("m", "benign", "logistic")
    inner = candidate._precompute

    def slow(*arguments: Any) -> Any:
        made = inner(*arguments)
        memory.send_index("m", 3, 4, 5)
        memory.drain()
        return made

    monkeypatch.setattr(candidate, "_precompute", slow)
    memory.register("m", "benign", "logistic", replace_model=True)
    memory.drain()
    assert memory.load().meta.rows_live == 117
    assert ledger_of(memory).keys() == {"row-3", "row-4", "row-5"}
    check_model(memory)


def test_the_last_row_of_a_class_goes_while_a_replacement_is_fitted(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make("benign", "logistic")
    memory.register("m", data)
    ones = [int(i) for i in np.flatnonzero(data.y[:, 0] == 1)]
    zeros = [int(i) for i in np.flatnonzero(data.y[:, 0] == 0)]
    inner = candidate._precompute

    def slow(*arguments: Any) -> Any:
        made = inner(*arguments)
        memory.send_index("m", ones[0])
        memory.drain()
        return made

    monkeypatch.setattr(candidate, "_precompute", slow)
    with pytest.raises(InvalidData, match="register it again"):
        memory.register("m", data, replace_model=True, keep=[ones[0], *zeros])
    monkeypatch.undo()
    check_versions(memory, "m")
    assert memory.load().meta.rows_live == 119
    memory.register("m", data, replace_model=True, keep=[ones[0], *zeros])
    assert memory.load().meta.status == "INTERCEPT_PENALISED"


def test_of_two_registrations_at_once_one_finds_that_the_model_exists(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = candidate._precompute

    def slow(*arguments: Any) -> Any:
        made = inner(*arguments)
        monkeypatch.setattr(candidate, "_precompute", inner)
        memory.register("m")
        return made

    monkeypatch.setattr(candidate, "_precompute", slow)
    with pytest.raises(ModelExists):
        memory.register("m")
    assert memory.load().version == 0
    memory.send_index("m", 1)
    memory.drain()
    check_model(memory)


class Unlucky(ModelStore):
    """A store whose process ends right after a commit, or right before it."""

    before = False

    def commit(self, commit: Commit, committed: Moment = pass_by) -> int:
        if self.before:
            raise StoreUnavailable("gone before the commit")
        return super().commit(commit, committed)

    def settle(self) -> None:
        raise StoreUnavailable("gone after the commit")


@pytest.fixture
def unlucky(memory: Platform) -> Iterator[Unlucky]:
    whole = store_at(memory.url)
    store = Unlucky(whole.client, whole._barrier)
    yield store
    store.close()
    whole.close()


def test_a_registration_that_was_cut_short_is_finished_by_the_next(
    memory: Platform, unlucky: Unlucky
) -> None:
    with pytest.raises(StoreUnavailable):
        memory.register("m", store=unlucky)
    assert memory.store.model_ids() == ["m"]
    assert not memory.versions()
    memory.data["m"] = make("benign", "linear")
    with pytest.raises(ModelExists):
        memory.register("m")
    assert memory.store.model_ids() == ["m"]
    assert [version.version for version in memory.versions()] == [0]
    memory.send_index("m", 1)
    memory.drain()
    check_model(memory)


def test_a_registration_that_was_cut_short_is_published_by_a_worker(
    memory: Platform, unlucky: Unlucky
) -> None:
    with pytest.raises(StoreUnavailable):
        memory.register("m", store=unlucky)
    memory.data["m"] = make("benign", "linear")
    memory.drain()
    assert [version.version for version in memory.versions()] == [0]
    memory.send_index("m", 1)
    memory.drain()
    check_model(memory)


def test_a_registration_that_was_never_committed_is_no_model(
    memory: Platform, unlucky: Unlucky
) -> None:
    unlucky.before = True
    with pytest.raises(StoreUnavailable):
        memory.register("m", store=unlucky)
    assert memory.store.announced() == ["m"]
    assert memory.store.model_ids() == []
    [found] = check_stored(memory.store, memory.log, "m")
    assert not found.ok
    memory.drain()  # a worker takes it over
    memory.register("m")
    assert memory.store.model_ids() == ["m"]
    memory.send_index("m", 1)
    memory.drain()
    check_model(memory)


@pytest.mark.parametrize("kind", ["streams", KAFKA])
def test_names_that_no_event_can_carry_are_refused_before_anything_is_stored(
    platform_on: Callable[..., Platform], kind: str
) -> None:
    platform = platform_on(kind)
    data = platform.data["m"] = make("benign", "linear")
    plain, rows = config_of(data, "m", "pru", 10.0, LimitsRecord()), training_data(data)
    p = len(plain.feature_names)
    overhead = len(json.dumps([[""] * p, plain.target_names]))
    longest = (candidate._NAMES_LIMIT - overhead) // p

    def named(length: int) -> ModelConfig:
        names = tuple(f"{i:04d}".ljust(length, "x") for i in range(p))
        return plain.model_copy(update={"feature_names": names})

    parts = (platform.store, platform.producer, platform.reader)
    with pytest.raises(InvalidData, match="shorter names") as refused:
        register(*parts, named(longest + 1), rows)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 200
    assert not platform.store.announced()
    assert not list(platform.raw().scan_iter(match="lethe:{m.*"))
    # The longest that are allowed do reach the log, now and after deletions
    register(*parts, named(longest), rows)
    platform.send_index("m", 1)
    platform.drain()
    check_model(platform)


def test_a_file_of_deleted_rows_only_is_refused(memory: Platform) -> None:
    memory.register("m")
    memory.send("m", *row_ids(memory.data["m"])[:5])
    memory.drain()
    with pytest.raises(InvalidData, match="every row"):
        memory.register("m", replace_model=True, keep=range(5))
    check_model(memory)
