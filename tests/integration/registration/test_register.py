"""Registering and --replace, racing with requests: a deleted row never comes back."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lethe.consumers.contract import topics
from lethe.consumers.log.base import Message
from lethe.consumers.registration import candidate, checks
from lethe.consumers.registration.register import Registrar
from lethe.consumers.service.telemetry.steps import Step
from lethe.engine.errors import InvalidData, LogUnavailable, ModelExists
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.config import LimitsRecord, ModelConfig
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.membership import every_model, registered_models
from lethe.engine.store.offline import staging
from tests.support.families import make
from tests.support.invariants import check_model, check_theta, check_versions, ledger_of, live_mask
from tests.support.memory_log import HookCall, MemoryLog
from tests.support.platform import Platform, config_of, row_ids, store_at, training_data
from tests.support.tables import Table

KAFKA = pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.xdist_group("kafka")])


def test_replace_never_brings_a_deleted_row_back(platform: Platform) -> None:
    platform.register("m")
    platform.send_index("m", 0, 1, 2)
    platform.drain()
    done = platform.register("m", replace_model=True)
    assert done.in_ledger == 3
    platform.send_index("m", 2, 3)
    platform.drain()
    assert platform.versions()[2].generation == 1
    assert live_mask(platform).sum() == len(platform.data["m"].X) - 4
    check_model(platform)


def test_a_replacement_of_another_shape_must_be_allowed(memory: Platform) -> None:
    """Given subscribers that know its columns, a model does not change them by accident."""
    memory.register("m")
    with pytest.raises(InvalidData, match=r"kind \(linear to logistic\).*pass --allow-change"):
        memory.register("m", "benign", "logistic", replace_model=True, allow_change=False)
    fewer = replace(data := make("benign", "linear"), X=data.X[:, :-1])
    with pytest.raises(InvalidData, match=rf"features \(without 'x{data.X.shape[1] - 1}'\)"):
        memory.register("m", fewer, replace_model=True, allow_change=False)
    memory.register("m", replace_model=True, allow_change=False)
    memory.register("m", "benign", "logistic", replace_model=True)
    assert memory.store.load_model("m").version == 2


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


def test_a_row_inserted_while_a_replacement_commits_was_a_member_once(memory: Platform) -> None:
    """Its deletion is in the ledger, so that no later file, and no insert, brings it back."""
    memory.register("m")
    row = {**Table(memory).row("new-1"), "subject": "friend"}
    seen: list[str] = []

    def inserted_meanwhile(step: str) -> None:
        if step == Step.REGISTER_APPEND and not seen:
            seen.append(memory.send_change("m", "insert", row))
            memory.drain()

    memory.register("m", replace_model=True, at_step=inserted_meanwhile)
    assert memory.final(seen[0]).status == "APPLIED"
    by_subject = {"request_id": "friend", "model_id": "m", "subject_id": "friend"}
    memory.send_raw(json.dumps(by_subject).encode())
    memory.drain()
    assert memory.final("friend").status == "ALREADY_APPLIED"
    assert ledger_of(memory).keys() == {"new-1"}


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
    registrar = Registrar(store, producer, reader, platform.seals)
    config = config_of(data, "m", "pru", 0.05, LimitsRecord())
    try:
        for i in range(40):
            platform.send_index("m", 2 * i, 2 * i + 1)
            if i % 8 == 4:
                registrar.register(config, training_data(data), replace_model=True)
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
    platform.order("m", RefreshSize.REBUILD)
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


class Ended(Exception):
    """A registration ends here, with its process."""


def cut_short(platform: Platform, step: Step, **options: Any) -> None:
    """Register model m, and end before this step."""

    def at_step(reached: str) -> None:
        if reached == step:
            raise Ended(step)

    with pytest.raises(Ended):
        platform.register("m", budget=10.0, at_step=at_step, **options)
    platform.data["m"] = make("benign", "linear")


AFTER_THE_APPEND = (Step.REGISTER_APPLY, Step.REGISTER_OPEN, Step.REGISTER_FINISH)


@pytest.mark.parametrize("step", AFTER_THE_APPEND)
def test_a_registration_that_was_cut_short_is_finished_by_the_next(
    memory: Platform, step: Step
) -> None:
    cut_short(memory, step)
    assert memory.versions() == []
    with pytest.raises(ModelExists):
        memory.register("m")
    assert [version.version for version in memory.versions()] == [0]
    memory.send_index("m", 1)
    memory.drain()
    check_model(memory)


@pytest.mark.parametrize("step", AFTER_THE_APPEND)
@pytest.mark.parametrize("running", [False, True])
def test_a_registration_that_was_cut_short_is_finished_by_a_worker(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, step: Step, running: bool
) -> None:
    """One that takes over, or that runs already and looks around; it is opened by who meets it."""
    monkeypatch.setattr("lethe.consumers.workers.lag._PERIOD_SECONDS", 0.0)
    if running:
        platform.drain()
    early = platform.send("m", "row-1")
    cut_short(platform, step)
    platform.drain()
    for _ in range(5):
        platform.turn(platform.pair[0])
    assert [version.version for version in platform.versions()] == [0]
    first = platform.send_index("m", 2)
    platform.drain()
    # What was asked before it was opened was asked of nobody, unless a worker opened it
    assert platform.final(early).code == "UNKNOWN_MODEL"
    del platform.asked["m", early]
    later = platform.send_index("m", 3)
    platform.drain()
    assert platform.final(later).status == "APPLIED"
    opening = platform.load().opening
    assert opening is not None
    assert platform.final(first).status in ("APPLIED", "REJECTED")
    if platform.final(first).status == "REJECTED":
        del platform.asked["m", first]
    check_model(platform)


def test_what_a_registration_that_was_cut_short_made_live_is_not_swept(memory: Platform) -> None:
    """Given a fold that applied it, and a rebuild since: its rows are others, its data set is not.

    Without that nobody knows which rows are a person's.
    """
    memory.drain()  # the worker has just looked for what to sweep
    cut_short(memory, Step.REGISTER_APPLY)
    with pytest.raises(ModelExists):
        memory.register("m")
    memory.send_index("m", 1)
    memory.drain()
    memory.order("m", RefreshSize.REBUILD)
    memory.drain()
    state = memory.load()
    assert memory.raw().hkeys(state.keys.stagings) == [state.meta.dataset_key.encode()]
    assert state.rows_generation != state.meta.dataset_key
    staging.sweep_registrations(memory.raw(), state.keys, seconds=0)
    assert len(memory.raw().lrange(state.keys.dataset(state.meta.dataset_key).ids, 0, -1)) > 0
    assert memory.raw().hlen(state.keys.stagings) == 0
    check_model(memory)


def test_a_registration_that_was_never_appended_is_no_model(memory: Platform) -> None:
    cut_short(memory, Step.REGISTER_APPEND)
    assert every_model(memory.store.client) == []
    memory.drain()  # a worker takes it over
    assert memory.raw().hlen(ModelKeys("m").stagings) == 1
    memory.register("m")
    assert registered_models(memory.store.client) == ["m"]
    # What the first one staged can never become live, and goes when its registration is over
    assert staging.sweep_registrations(memory.store.client, ModelKeys("m"), seconds=0) == 1
    assert memory.raw().hlen(ModelKeys("m").stagings) == 0
    live = memory.load().rows_generation
    staged = [key for key in memory.raw().keys("lethe:{*}:m:gen:*") if live.encode() not in key]
    assert staged == []
    memory.send_index("m", 1)
    memory.drain()
    check_model(memory)


@pytest.mark.parametrize("replacing", [False, True])
def test_a_registration_that_is_interrupted_while_it_stages_leaves_nothing_behind(
    memory: Platform, replacing: bool
) -> None:
    """Its rows would lie in the store for ever: nothing names them."""
    if replacing:
        memory.register("m")
    before = set(memory.raw().keys("*"))

    def interrupt(reached: str) -> None:
        if reached == Step.REGISTER_STAGE:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        memory.register("m", replace_model=replacing, at_step=interrupt)
    assert set(memory.raw().keys("*:gen:*")) == {key for key in before if b":gen:" in key}
    assert set(memory.raw().keys("*:data:*")) == {key for key in before if b":data:" in key}
    assert memory.raw().hlen(ModelKeys("m").stagings) == 0
    memory.register("m", replace_model=replacing)
    memory.send_index("m", 1)
    memory.drain()
    check_model(memory)


def test_what_a_registration_that_was_killed_has_staged_expires(memory: Platform) -> None:
    """Until it is complete no commit can name it, so that nobody is left to remove it."""
    cut_short(memory, Step.REGISTER_STAGE)
    staged = memory.raw().keys("lethe:{*}:m:gen:*")
    assert len(staged) > 1
    times = [memory.raw().ttl(key) for key in staged]
    assert all(0 < left <= staging.TIME_TO_LIVE for left in times)
    memory.register("m")
    live = memory.load()
    dataset = live.keys.dataset(live.meta.dataset_key)
    keys = [*live.generation_keys.everything(), *dataset.everything()]
    assert {memory.raw().ttl(key) for key in keys if memory.raw().exists(key)} == {-1}


def test_what_a_registration_has_staged_to_the_end_does_not_expire(memory: Platform) -> None:
    """Its append may land although nobody was told, and must find it."""
    cut_short(memory, Step.REGISTER_APPEND)
    staged = [*memory.raw().keys("lethe:{*}:m:gen:*"), *memory.raw().keys("lethe:{*}:m:data:*")]
    assert {memory.raw().ttl(key) for key in staged} == {-1}


def test_a_replacement_whose_append_lands_late_finds_what_it_staged(memory: Platform) -> None:
    """Its answer was lost, and a deletion came between: void; nobody takes it for the model."""
    memory.register("m", budget=10.0)
    kept: list[Message] = []

    def lose(moment: HookCall) -> None:
        ours = [one for one in moment.messages if one.topic == topics.COMMITS]
        if moment.call == "publish" and moment.stage == "before" and ours and not kept:
            kept.extend(ours)
            raise LogUnavailable("no answer")

    assert isinstance(memory.log, MemoryLog)
    memory.log.hook = lose
    with pytest.raises(LogUnavailable):
        memory.register("m", budget=10.0, replace_model=True, keep=range(100))
    memory.log.hook = lambda _: None
    request = memory.send_index("m", 1)
    memory.drain()
    memory.producer.publish(kept)
    memory.pair[0].recover()
    memory.drain()
    assert memory.final(request).status == "APPLIED"
    assert memory.load().meta.rows_live == 119
    assert staging.sweep_registrations(memory.store.client, ModelKeys("m"), seconds=0) == 1
    check_model(memory)


def test_a_replacement_whose_append_landed_though_nobody_was_told_is_the_model(
    memory: Platform,
) -> None:
    memory.register("m", budget=10.0)
    lost: list[bool] = []

    def lose(moment: HookCall) -> None:
        ours = any(one.topic == topics.COMMITS for one in moment.messages)
        if moment.call == "publish" and moment.stage == "after" and ours and not lost:
            lost.append(True)
            raise LogUnavailable("no answer")

    assert isinstance(memory.log, MemoryLog)
    memory.log.hook = lose
    with pytest.raises(LogUnavailable):
        memory.register("m", budget=10.0, replace_model=True, keep=range(100))
    memory.log.hook = lambda _: None
    request = memory.send_index("m", 1)
    memory.drain()
    assert memory.final(request).status == "APPLIED"
    assert memory.load().meta.rows_live == 99
    assert [version.version for version in memory.versions()] == [0, 1, 2]


@pytest.mark.parametrize("kind", ["streams", KAFKA])
def test_names_that_no_event_can_carry_are_refused_before_anything_is_stored(
    platform_on: Callable[..., Platform], kind: str
) -> None:
    platform = platform_on(kind)
    data = platform.data["m"] = make("benign", "linear")
    plain, rows = config_of(data, "m", "pru", 10.0, LimitsRecord()), training_data(data)
    p = len(plain.feature_names)
    overhead = len(json.dumps([[""] * p, plain.target_names]))
    longest = (checks._NAMES_LIMIT - overhead) // p

    def named(length: int) -> ModelConfig:
        names = tuple(f"{i:04d}".ljust(length, "x") for i in range(p))
        return plain.model_copy(update={"feature_names": names})

    register = platform.registrar().register
    with pytest.raises(InvalidData, match="shorter names") as refused:
        register(named(longest + 1), rows)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 200
    assert not list(platform.raw().scan_iter(match="lethe:{*}:m:*"))
    # The longest that are allowed do reach the log, now and after deletions
    register(named(longest), rows)
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
