"""A subscriber yields verified parameters only, and the newest of them."""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

from lethe.consumers import ModelSubscriber
from lethe.consumers.contract import topics
from lethe.consumers.log.base import Message
from lethe.consumers.log.streams.log import StreamsLog
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from lethe.consumers.subscriber.model_version import ModelVersion
from lethe.engine.errors import (
    BrokenChain,
    InvalidData,
    LogUnavailable,
    StoreUnavailable,
    Unavailable,
    UnknownModel,
)
from tests.support.memory_log import MemoryLog
from tests.support.published import (
    Release,
    altered,
    by_uri,
    parameters_message,
    publish,
    publish_all,
    release,
    releases,
    stored,
    version_message,
)

SHORT = 0.3  # long enough for a subscriber to see all that is there


@pytest.fixture
def log() -> MemoryLog:
    made = MemoryLog()
    made.ensure_topics(topics.specs(2))
    return made


def numbers(log: MemoryLog, store: redis.Redis | None = None, **how: Any) -> list[int]:
    """Return the versions that a subscriber yields until nothing new comes."""
    how = {"timeout": SHORT, **how}
    return [v.version for v in ModelSubscriber(log, store).follow("churn", **how)]


# -- what is yielded ------------------------------------------------------------------------------


def test_the_newest_comes_first_and_then_what_is_new(log: MemoryLog) -> None:
    made = releases(6)
    publish_all(log, made[:4])
    publish_all(log, releases(9, "another"))
    with closing(_follow(log)) as versions:
        newest = next(versions)
        assert newest.known == (3, made[3].version.digest)
        assert newest.theta.tolist() == list(made[3].parameters.theta or ())
        assert newest.intercept == made[3].parameters.intercept
        assert newest.error == made[3].version.error
        assert newest.feature_names == ("age", "visits")
        assert not newest.theta.flags.writeable
        publish_all(log, made[4:])
        assert [next(versions).version, next(versions).version] == [4, 5]


def _follow(log: MemoryLog, **how: Any) -> Generator[ModelVersion, None, None]:
    return ModelSubscriber(log).follow("churn", timeout=5.0, **how)


def test_a_model_that_comes_later_is_waited_for() -> None:
    log = MemoryLog()
    made = releases(1)

    def later() -> None:
        time.sleep(0.2)
        log.ensure_topics(topics.specs(2))
        publish_all(log, made)

    thread = threading.Thread(target=later)
    thread.start()
    with closing(_follow(log)) as versions:
        assert next(versions).version == 0
    thread.join()


def test_a_new_version_is_seen_at_once(log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when all partitions are looked at again, which here never happens."""
    monkeypatch.setattr("lethe.consumers.subscriber.history._SWEEP_SECONDS", math.inf)
    made = releases(4)
    publish_all(log, made[:1])
    with closing(_follow(log)) as versions:
        next(versions)
        for one in made[1:]:
            timer = threading.Timer(0.15, publish_all, [log, [one]])
            timer.start()
            assert next(versions).version == one.version.version
            timer.join()


def test_all_versions_that_are_left_can_be_asked_for(log: MemoryLog) -> None:
    made = releases(6)
    for one in made:
        if one.version.version not in (0, 3):  # taken by compaction
            publish(log, parameters_message(one.parameters))
        publish(log, version_message(one.version))
    assert numbers(log, from_version=0) == [1, 2, 4, 5]
    assert numbers(log, from_version=4) == [4, 5]
    assert numbers(log, from_version=9) == []
    assert numbers(log, from_version=0, known=_known(made[2])) == [2, 4, 5]


def _known(one: Release) -> tuple[int, str]:
    return one.version.version, one.version.digest


def test_following_ends_when_it_is_told(log: MemoryLog) -> None:
    publish_all(log, releases(1))
    stop = threading.Event()
    timer = threading.Timer(0.2, stop.set)
    timer.start()
    started = time.monotonic()
    found = [v.version for v in ModelSubscriber(log).follow("churn", stop=stop)]
    timer.join()
    assert found == [0]
    assert time.monotonic() - started < 60.0


def test_the_latest_version_is_returned_once(log: MemoryLog) -> None:
    made = releases(3)
    publish_all(log, made)
    models = ModelSubscriber(log)
    assert models.latest("churn").known == _known(made[2])
    with pytest.raises(UnknownModel, match="'other'"):
        models.latest("other")
    with pytest.raises(UnknownModel):
        ModelSubscriber(MemoryLog()).latest("churn")
    publish(log, version_message(release(made[2], [1.0, 2.0, 3.0]).version))
    with pytest.raises(Unavailable, match="version 3 are not on the topic"):
        models.latest("churn", timeout=SHORT)


# -- topics that are not in step ------------------------------------------------------------------


def test_parameters_that_are_ahead_wait_for_their_version(log: MemoryLog) -> None:
    made = releases(4)
    publish_all(log, made[:2])
    publish(log, *[parameters_message(one.parameters) for one in made[2:]])
    with closing(_follow(log)) as versions:
        assert next(versions).version == 1
        publish(log, version_message(made[2].version))
        assert next(versions).version == 2
        publish(log, version_message(made[3].version))
        assert next(versions).version == 3


def test_only_parameters_that_are_ahead_are_left(log: MemoryLog) -> None:
    made = releases(3)
    publish(log, version_message(made[0].version), version_message(made[1].version))
    publish(log, parameters_message(made[2].parameters))
    assert numbers(log) == []
    publish(log, version_message(made[2].version))
    assert numbers(log) == [2]


def test_versions_whose_parameters_are_gone_are_passed(log: MemoryLog) -> None:
    made = releases(5)
    publish(log, *[version_message(one.version) for one in made])
    publish(log, parameters_message(made[4].parameters))
    assert numbers(log) == [4]


def test_interrupted_publishers_repeat_everything_and_nothing_is_yielded_twice(
    log: MemoryLog,
) -> None:
    made = releases(5)
    for one in made[:3]:
        publish(log, parameters_message(one.parameters))
    with closing(_follow(log, from_version=0)) as versions:
        for batch in (made[:3], made[:3], made[1:5]):
            publish(log, *[parameters_message(one.parameters) for one in batch])
            publish(log, *[version_message(one.version) for one in batch])
        assert [next(versions).version for _ in range(5)] == [0, 1, 2, 3, 4]
    assert numbers(log) == [4]


def test_a_late_repeat_of_older_parameters_behind_newer_ones_is_dropped(log: MemoryLog) -> None:
    made = releases(4)
    publish_all(log, made[:3])
    publish(log, parameters_message(made[1].parameters))
    assert numbers(log) == [2]
    publish_all(log, made[3:])
    assert numbers(log) == [3]


def test_only_a_late_repeat_is_left_so_the_next_version_is_waited_for(log: MemoryLog) -> None:
    made = releases(4)
    publish(log, *[version_message(one.version) for one in made[:3]])
    publish(log, parameters_message(made[1].parameters))
    with closing(_follow(log)) as versions:
        threading.Timer(0.3, publish_all, [log, made[3:]]).start()
        assert next(versions).version == 3


def test_a_topic_of_parameters_that_is_made_again_is_read_again(log: MemoryLog) -> None:
    made = releases(3)
    publish_all(log, made[:2])
    with closing(_follow(log)) as versions:
        assert next(versions).version == 1
        log.delete_topic(topics.MODELS)
        log.ensure_topics(topics.specs(2))
        publish_all(log, made[2:])
        assert next(versions).version == 2


# -- what is refused ------------------------------------------------------------------------------


def _flip_theta(data: dict[str, Any]) -> None:
    data["theta"][0] = math.nextafter(data["theta"][0], math.inf)


def _swap_names(data: dict[str, Any]) -> None:
    data["feature_names"].reverse()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_flip_theta, "do not match their own digest"),
        (_swap_names, "do not match their own digest"),
        (lambda data: data.update(intercept=None), "holds no intercept"),
        (lambda data: data.update(intercept=[0.0, 1.0]), "theta is not of shape"),
        (lambda data: data["theta"].pop(), "theta is not of shape"),
        (lambda data: data.update(kind="logistic"), "the kind of its parameters is not that"),
        (lambda data: data.update(prev_digest=""), "the prev_digest of its parameters is not"),
        (lambda data: data.update(model_id="x"), "not about the model"),
        (lambda data: data.update(theta=None, uri="http://x/"), "not this model's place"),
        (lambda data: data.update(theta=None), "not this model's place"),
        (lambda data: data.update(theta=["one"]), "not a parameters event"),
        (dict.clear, "not about the model"),
    ],
)
def test_altered_parameters_are_refused(log: MemoryLog, change: Any, says: str) -> None:
    made = releases(2)
    publish_all(log, made[:1])
    publish(log, altered(parameters_message(made[1].parameters), change))
    publish(log, version_message(made[1].version))
    with pytest.raises(BrokenChain, match=f"model 'churn'.*{says}"):
        numbers(log)


@pytest.mark.parametrize("value", [None, b"", b"garbage{", b"[]"])
def test_garbage_under_the_models_key_is_refused(log: MemoryLog, value: bytes | None) -> None:
    publish(log, Message(topics.MODELS, b"churn", value))
    publish_all(log, releases(1))
    with pytest.raises(BrokenChain, match=r"model 'churn': the record in lethe.models/\d at offs"):
        numbers(log)


def test_other_parameters_with_their_own_right_digest_are_never_loaded(log: MemoryLog) -> None:
    """Given parameters that no version names, they are passed over (`make chaos`, seed 7)."""
    made = releases(2)
    publish_all(log, made[:1])
    forged = release(made[0], [5.0, 5.0, 5.0])
    publish(log, parameters_message(forged.parameters), version_message(made[1].version))
    assert numbers(log) == []
    publish(log, parameters_message(made[1].parameters))
    publish_all(log, [release(made[1], [1.0, 2.0, 3.0])])
    assert numbers(log) == [2]


def test_of_two_parameters_of_one_number_those_that_the_version_names_count(
    log: MemoryLog,
) -> None:
    made = releases(3)
    publish_all(log, made)
    publish(log, parameters_message(release(made[0], [5.0, 5.0, 5.0]).parameters))
    publish_all(log, [release(made[2], [1.0, 2.0, 3.0])])
    assert numbers(log) == [3]


def test_of_two_futures_the_one_that_comes_true_counts(log: MemoryLog) -> None:
    made = releases(3)
    publish_all(log, made[:1])
    with closing(_follow(log)) as versions:
        assert next(versions).version == 0
        forged = release(made[1], [5.0, 5.0, 5.0])
        publish(log, parameters_message(forged.parameters), parameters_message(made[2].parameters))
        publish(log, version_message(made[1].version))
        publish(log, version_message(made[2].version))
        found = next(versions)
        assert (found.version, found.digest) == (2, made[2].version.digest)


def test_a_history_that_breaks_anywhere_yields_nothing(log: MemoryLog) -> None:
    made = releases(5)
    for one in made:
        publish(log, parameters_message(one.parameters))
        if one.version.version != 1:
            publish(log, version_message(one.version))
    found: list[ModelVersion] = []
    with pytest.raises(BrokenChain, match="version 2: follows version 0"):
        found.extend(ModelSubscriber(log).follow("churn", timeout=SHORT))
    assert found == []


def test_a_break_while_following_is_refused_before_it_is_yielded(log: MemoryLog) -> None:
    made = releases(4)
    publish_all(log, made[:2])
    for bad in (release(made[0], [5.0, 5.0, 5.0]), made[3]):
        with closing(_follow(log)) as versions:
            assert next(versions).version == 1
            publish(log, parameters_message(bad.parameters), version_message(bad.version))
            with pytest.raises(BrokenChain):
                next(versions)
        log.truncate(log.reader().partition_for(topics.VERSIONS, b"churn"), 2)


def test_a_subscriber_that_starts_again_sees_a_rollback(log: MemoryLog) -> None:
    made = releases(4)
    publish_all(log, made[:3])
    assert numbers(log, known=_known(made[2])) == [2]
    with pytest.raises(BrokenChain, match="version 3 is known, but its history ends"):
        numbers(log, known=_known(made[3]))
    other = release(made[2], [5.0, 5.0, 5.0])
    publish_all(log, [other, release(other, [6.0, 6.0, 6.0])])
    with pytest.raises(BrokenChain, match="rolled back or rewritten"):
        ModelSubscriber(log).latest("churn", known=_known(made[3]))
    assert numbers(log, known=_known(other)) == [4]


# -- parameters in the store ----------------------------------------------------------------------


def put(client: redis.Redis, one: Release, **other: bytes) -> None:
    """Leave a release in the store as a commit would."""
    head, fields = stored(one)
    mapping: Any = fields | other
    client.hset(head, mapping=mapping)


def test_large_parameters_without_a_store_say_what_to_do(log: MemoryLog) -> None:
    [one] = releases(1)
    publish(log, parameters_message(by_uri(one)), version_message(one.version))
    with pytest.raises(InvalidData, match=r"version 0.*connect with redis="):
        numbers(log)


@pytest.mark.redis
def test_large_parameters_are_fetched_from_the_store(
    log: MemoryLog, redis_client: redis.Redis
) -> None:
    made = releases(3)
    put(redis_client, made[0])
    publish(log, parameters_message(by_uri(made[0])), version_message(made[0].version))
    found = ModelSubscriber(log, redis_client).latest("churn")
    assert found.theta.tolist() == list(made[0].parameters.theta or ())
    assert found.intercept == made[0].parameters.intercept
    # The store is ahead by the time that the event is read: the next version has what is there.
    put(redis_client, made[2])
    for one in made[1:]:
        publish(log, parameters_message(by_uri(one)), version_message(one.version))
    assert numbers(log, redis_client, from_version=0) == [2]


@pytest.mark.redis
def test_no_bytes_of_the_published_theta_mean_the_exact_one(
    log: MemoryLog, redis_client: redis.Redis
) -> None:
    [one] = releases(1)
    put(redis_client, one, published=b"")
    publish(log, version_message(one.version))
    assert numbers(log, redis_client) == [0]  # the topic has none
    publish(log, parameters_message(by_uri(one)))
    assert numbers(log, redis_client, from_version=0) == [0]


@pytest.mark.redis
@pytest.mark.parametrize("field", ["published", "digest", "short"])
def test_a_store_that_was_altered_is_refused(
    log: MemoryLog, redis_client: redis.Redis, field: str
) -> None:
    [one] = releases(1)
    put(redis_client, one)
    head, fields = stored(one)
    name = "version_digest" if field == "digest" else "published"
    flipped = bytearray(fields[name])
    flipped[3] ^= 1
    redis_client.hset(head, name, bytes(flipped[:-1] if field == "short" else flipped))
    publish(log, parameters_message(by_uri(one)), version_message(one.version))
    with pytest.raises(BrokenChain, match="model 'churn', version 0"):
        numbers(log, redis_client)


@pytest.mark.redis
def test_a_store_that_is_behind_is_waited_for_and_then_refused(
    log: MemoryLog, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = releases(2)
    publish(log, parameters_message(by_uri(made[0])), version_message(made[0].version))
    threading.Timer(0.4, put, [redis_client, made[0]]).start()
    with closing(ModelSubscriber(log, redis_client).follow("churn", timeout=60.0)) as versions:
        assert next(versions).version == 0
        monkeypatch.setattr("lethe.consumers.subscriber.subscriber.STORE_SECONDS", 0.6)
        publish(log, parameters_message(by_uri(made[1])), version_message(made[1].version))
        with pytest.raises(StoreUnavailable, match="which holds version 0"):
            next(versions)


@pytest.mark.redis
def test_parameters_that_the_topic_lost_are_found_in_the_store(
    log: MemoryLog, redis_client: redis.Redis
) -> None:
    made = releases(4)
    publish(log, *[version_message(one.version) for one in made[:3]])
    publish(log, parameters_message(made[1].parameters))  # a late repeat is all that is left
    put(redis_client, made[2])
    assert numbers(log, redis_client) == [2]
    # A store that is ahead says nothing yet: its version is not published.
    put(redis_client, made[3])
    assert numbers(log, redis_client) == []
    publish(log, version_message(made[3].version))
    assert numbers(log, redis_client) == [3]


@pytest.mark.redis
def test_a_store_that_lies_about_lost_parameters_is_refused(
    log: MemoryLog, redis_client: redis.Redis
) -> None:
    made = releases(2)
    publish(log, *[version_message(one.version) for one in made])
    put(redis_client, release(made[0], [5.0, 5.0, 5.0]))
    with pytest.raises(BrokenChain, match="version 1: the digest of its parameters"):
        numbers(log, redis_client)


# -- connecting -----------------------------------------------------------------------------------


@pytest.fixture
def no_environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in [name for name in os.environ if name.startswith("LETHE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LETHE_EMBEDDED_LINGER", "0")
    return monkeypatch


@pytest.mark.redis
def test_it_connects_to_what_is_named_and_to_the_environment(
    redis_client: redis.Redis, redis_url: str, no_environment: pytest.MonkeyPatch
) -> None:
    log = StreamsLog(redis_client)
    log.ensure_topics(topics.specs(2))
    publish_all(log, releases(40))
    before = _contents(redis_client)
    with ModelSubscriber.connect(redis=redis_url) as models:
        assert models.latest("churn").version == 39
    no_environment.setenv("LETHE_REDIS_URL", redis_url)
    with ModelSubscriber.connect() as models:
        assert [v.version for v in models.follow("churn", timeout=SHORT)] == [39]
    assert _contents(redis_client) == before  # it wrote nothing


def _contents(client: redis.Redis) -> dict[bytes | str, bytes | None]:
    return {key: client.dump(key) for key in client.scan_iter()}


@pytest.mark.redis
def test_with_nothing_named_the_embedded_server_is_used(
    tmp_path: Path, no_environment: pytest.MonkeyPatch
) -> None:
    with EmbeddedValkey(tmp_path) as server, redis.Redis.from_url(server.url) as client:
        log = StreamsLog(client)
        log.ensure_topics(topics.specs(2))
        publish_all(log, releases(2))
    no_environment.setenv("LETHE_DATA_DIR", str(tmp_path))
    with ModelSubscriber.connect() as models:
        assert models.latest("churn").version == 1


def test_servers_that_are_not_there_are_named(no_environment: pytest.MonkeyPatch) -> None:
    del no_environment
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1 "):
        ModelSubscriber.connect(redis="redis://:secret@127.0.0.1:1/0")


@pytest.mark.slow
def test_a_kafka_that_is_not_there_is_named(no_environment: pytest.MonkeyPatch) -> None:
    del no_environment
    with pytest.raises(LogUnavailable, match=r"127\.0\.0\.1:1"):
        ModelSubscriber.connect(kafka="127.0.0.1:1")


def test_importing_the_package_is_cheap() -> None:
    code = (
        "import sys, lethe; assert not {'kafka', 'redis', 'numpy'} & set(sys.modules); "
        "assert hasattr(lethe, 'ModelSubscriber') and not hasattr(lethe, 'Nothing')"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=60)


# -- predicting -----------------------------------------------------------------------------------


def _version(kind: str = "linear") -> ModelVersion:
    one = release(None, [2.0, -1.0, 0.5], kind=kind)
    return ModelVersion.of(one.version, ("age", "visits"), ("y",), np.array([[2.0], [-1.0], [0.5]]))


def test_predictions_of_a_linear_model() -> None:
    version = _version()
    assert version.predict([[1.0, 2.0], [3.0, 4.0]]).tolist() == [0.5, 2.5]
    assert version.predict([1.0, 2.0]).tolist() == 0.5
    columns = {"visits": [2.0, 4.0], "other": ["a", "b"], "age": [1, 3]}
    assert version.predict(columns).tolist() == [0.5, 2.5]
    assert version.predict({"visits": 2.0, "age": 1.0}).tolist() == 0.5


def test_a_prediction_past_float64_is_refused() -> None:
    version = _version()
    with pytest.raises(InvalidData, match="overflows float64; rescale"):
        dataclasses.replace(version, theta=version.theta * 1e200).predict([1e200, 1e200])


def test_predictions_from_an_arrow_table_are_by_name() -> None:
    import pyarrow as pa

    table = pa.table({"visits": [2.0, 4.0], "age": [1.0, 3.0]})
    assert _version().predict(table).tolist() == [0.5, 2.5]


def test_predictions_of_a_logistic_model_are_probabilities() -> None:
    expected = [1 / (1 + math.exp(-0.5)), 1 / (1 + math.exp(-2.5))]
    assert _version("logistic").predict([[1.0, 2.0], [3.0, 4.0]]) == pytest.approx(expected)
    assert _version("logistic").predict([[-1e6, 1e6]]).tolist() == [0.0]  # no overflow


def test_predictions_of_a_softmax_model_are_one_softmax() -> None:
    theta = np.array([[1.0, 0.0, -1.0], [0.0, 2.0, 0.0], [0.5, 0.0, 0.0]])
    one = release(None, [0.0], kind="softmax").version
    version = ModelVersion.of(one, ("age", "visits"), ("y",), theta)
    odds = np.exp([[1.5, 2.0, -1.0], [0.5, 0.0, 0.0]])
    expected = odds / odds.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(version.predict([[1.0, 1.0], [0.0, 0.0]]), expected, rtol=1e-15)
    np.testing.assert_allclose(version.predict([1.0, 1.0]), expected[0], rtol=1e-15)
    assert version.predict([1e6, 0.0]).tolist() == [1.0, 0.0, 0.0]  # no overflow


def test_predictions_of_several_targets() -> None:
    parameters = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    version = ModelVersion.of(releases(1)[0].version, ("age", "visits"), ("y", "z"), parameters)
    assert version.theta.shape == (2, 2)
    assert version.predict([[1.0, 1.0]]).tolist() == [[6.0, 60.0]]
    without = ModelVersion.of(releases(1)[0].version, ("age", "visits"), ("y", "z"), parameters[:2])
    assert without.predict([[1.0, 1.0]]).tolist() == [[3.0, 30.0]]


@pytest.mark.parametrize(
    ("X", "says"),
    [
        ([[1.0]], "of shape"),
        ([[1.0, 2.0, 3.0]], "of shape"),
        ({"age": [1.0]}, "needs the columns age, visits; 'visits' is missing"),
        ({"age": [1.0], "visits": ["many"]}, "could not convert"),
        ([[1.0, math.nan]], "non-finite"),
        (1.0, "of shape"),
    ],
)
def test_rows_that_cannot_be_used_are_refused(X: Any, says: str) -> None:
    with pytest.raises(InvalidData, match=says):
        _version().predict(X)
