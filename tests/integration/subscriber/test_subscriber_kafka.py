"""What strangers see on a real Kafka: programs that know the contract and import nothing of ours.

The topics' names are fixed, and the broker is shared with other tests; so every test has models
of its own, and other models' records lie in between.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

from lethe.consumers import ModelSubscriber
from lethe.consumers.contract import topics
from lethe.consumers.log.base import Log
from lethe.consumers.registration.register import Registrar, TrainingData
from lethe.consumers.workers.deletion_worker import DeletionWorker
from lethe.consumers.workers.refresh_worker import RefreshWorker
from lethe.engine.errors import BrokenChain
from lethe.engine.fit.objective import Kind
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.server.barrier import NoBarrier
from lethe.engine.store.server.connection import connect
from lethe.engine.store.store import ModelStore
from tests.support.kafka_log import kafka_log
from tests.support.oracles import retrain
from tests.support.platform import seals
from tests.support.published import (
    altered,
    parameters_message,
    publish,
    publish_all,
    releases,
    version_message,
)
from tests.unit.contract.test_version_chain import documented

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.xdist_group("kafka"),
]

N, P, RIDGE = 240, 4, 1.5

# Sends two requests by row and one by subject, in the three forms of the contract, and prints the
# receipts once each request has its final one.
STRANGER = """
import json, sys, time, uuid
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
bootstrap, model = sys.argv[1:]

reader = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
places = [TopicPartition("lethe.receipts", p)
          for p in reader.partitions_for_topic("lethe.receipts")]
reader.assign(places)
reader.seek_to_end(*places)
[reader.position(place) for place in places]

producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True)
def send(data, headers=()):
    value = json.dumps(data).encode()
    producer.send("lethe.deletions", value, model.encode(), list(headers)).get(30)
binary = [("ce_specversion", b"1.0"), ("ce_id", b"by-header"), ("ce_source", b"/crm"),
          ("ce_type", b"lethe.deletion.requested.v1"), ("content-type", b"application/json")]
send({"request_id": "rows", "model_id": model, "row_ids": ["r3", "r17", "nobody"]})
send({"model_id": model, "subject_id": "s20"}, binary)
send({"specversion": "1.0", "type": "lethe.deletion.requested.v1", "id": "again", "source": "/crm",
      "data": {"model_id": model, "row_ids": ["r3"]}},
     [("content-type", b"application/cloudevents+json")])
send({"request_id": "unknown", "model_id": model, "row_ids": ["nobody"]})
producer.close()

waiting, found, deadline = {"rows", "by-header", "again", "unknown"}, [], time.monotonic() + 240
while waiting and time.monotonic() < deadline:
    for batch in reader.poll(timeout_ms=500).values():
        for record in batch:
            if record.key == model.encode():
                receipt = json.loads(record.value)
                found.append(receipt)
                if receipt["status"] != "DEFERRED":
                    waiting.discard(receipt["request_id"])
reader.close()
print(json.dumps(found))
"""


def stranger(tmp_path: Path, code: str, *arguments: str) -> str:
    """Run a program in a place where our packages cannot be imported, and return its output."""
    guard = "import sys; sys.modules['lethe'] = None\n"
    program = tmp_path / "stranger.py"
    program.write_text(guard + code, "utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program), *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def workers(log: Log, redis_url: str) -> Iterator[None]:
    """Run a deletion worker and a refresh worker in threads."""
    stop = threading.Event()
    with ExitStack() as stack:
        made = []
        for kind in (DeletionWorker, RefreshWorker):
            client = connect(redis_url)
            stack.callback(client.close)
            store = ModelStore(client, NoBarrier())
            worker: DeletionWorker | RefreshWorker
            if kind is DeletionWorker:
                worker = DeletionWorker(log, store, seals())
            else:
                worker = RefreshWorker(log, store)
            stack.callback(worker.close)
            made.append(threading.Thread(target=worker.run, args=[stop]))
        for thread in made:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in made:
                thread.join(30)


def registered(log: Log, redis_url: str, kind: Kind) -> tuple[str, TrainingData]:
    """Register a model of its own name; return the name and its data."""
    draw = np.random.default_rng(5)
    X = draw.normal(size=(N, P))
    score = X @ np.arange(1.0, P + 1) + 0.7 + draw.normal(size=N)
    y = score if kind is Kind.LINEAR else (score > 0).astype(float)
    names = tuple(f"f{i}" for i in range(P))
    ids = tuple(f"r{i}" for i in range(N))
    subjects: dict[str, list[str]] = {}
    for i, row in enumerate(ids):
        subjects.setdefault(f"s{i // 5}", []).append(row)
    data = TrainingData(ids, X, y[:, None], names, ("y",), subjects)
    model = f"m{uuid.uuid4().hex[:10]}"
    client = connect(redis_url)
    producer, reader = log.producer(), log.reader()
    try:
        store = ModelStore(client, NoBarrier())
        Registrar(store, producer, reader, seals()).register(
            ModelConfig(
                model_id=model,
                kind=kind,
                method="exact",
                ridge=RIDGE,
                fit_intercept=True,
                feature_names=names,
                target_names=("y",),
                error_budget=0.01,
            ),
            data,
        )
    finally:
        producer.close()
        reader.close()
        client.close()
    return model, data


@pytest.fixture
def log(kafka_bootstrap: str, redis_client: redis.Redis) -> Log:
    del redis_client  # the store is empty: it was brought up to date from no other log
    made = kafka_log(kafka_bootstrap, "test-subscriber")
    made.ensure_topics(topics.specs(4))
    return made


@pytest.mark.parametrize("kind", [Kind.LINEAR, Kind.LOGISTIC])
def test_a_stranger_sends_requests_and_reads_what_retraining_gives(
    log: Log, kafka_bootstrap: str, redis_url: str, tmp_path: Path, kind: Kind
) -> None:
    model, data = registered(log, redis_url, kind)
    with workers(log, redis_url):
        answer = stranger(tmp_path, STRANGER, kafka_bootstrap, model)
        receipts: dict[str, dict[str, Any]] = {}
        for receipt in json.loads(answer):
            receipts[receipt["request_id"]] = receipt
    with ModelSubscriber.connect(kafka=kafka_bootstrap) as models:
        latest = models.latest(model)
    assert {name: (r["status"], r["code"]) for name, r in receipts.items()} == {
        "rows": ("APPLIED", None),
        "by-header": ("APPLIED", None),
        "again": ("ALREADY_APPLIED", None),
        "unknown": ("REJECTED", "UNKNOWN_ROWS"),
    }
    counts = (receipts["rows"]["rows_deleted"], receipts["rows"]["rows_unknown"])
    assert counts == (2, 1)
    assert receipts["by-header"]["rows_deleted"] == 5
    # The page's own program, which knows nothing but the page.
    program = documented("third-party")
    assert len(program.splitlines()) <= 50  # columns that are preprocessed take nine
    read = json.loads(stranger(tmp_path, program, kafka_bootstrap, model).splitlines()[-1])
    assert read["version"] >= max(receipts[r]["version"] for r in ("rows", "by-header"))
    assert read == {
        "version": latest.version,
        "theta": latest.theta.tolist(),
        "intercept": latest.intercept,
    }
    deleted = {"r3", "r17", *data.subjects["s20"]}
    live = [i for i, row in enumerate(data.ids) if row not in deleted]
    design = np.column_stack([data.X, np.ones(N)])[live]
    penalty = np.array([RIDGE] * P + [0.0])
    expected = retrain(kind.value, design, data.y[live], np.ones(len(live)), penalty).ravel()
    found = np.append(read["theta"], read["intercept"])
    distance = float(np.linalg.norm(found - expected))
    assert (latest.error.bound is not None) or kind is Kind.LOGISTIC
    if latest.error.bound is not None:
        assert distance <= latest.error.bound
    assert distance <= (1e-9 if kind is Kind.LINEAR else 0.01 * np.linalg.norm(expected))


def test_a_program_that_finds_a_broken_chain_says_so(
    log: Log, kafka_bootstrap: str, tmp_path: Path
) -> None:
    model = f"m{uuid.uuid4().hex[:10]}"
    made = releases(3, model)
    publish_all(log, made[:2])
    message = version_message(made[2].version)
    publish(log, altered(message, lambda data: data.update(rows_live=1)))
    with pytest.raises(AssertionError, match="altered"):
        stranger(tmp_path, documented("third-party"), kafka_bootstrap, model)
    with (
        ModelSubscriber.connect(kafka=kafka_bootstrap) as models,
        pytest.raises(BrokenChain, match=f"model '{model}', version 2: its digest does not"),
    ):
        models.latest(model)


def test_a_subscriber_follows_live_and_at_once(log: Log, kafka_bootstrap: str) -> None:
    model = f"m{uuid.uuid4().hex[:10]}"
    made = releases(40, model)
    publish_all(log, made[:20])
    sent: dict[int, float] = {}

    def later() -> None:
        producer = log.producer()
        for one in made[20:]:
            time.sleep(0.1)
            producer.publish([parameters_message(one.parameters)])
            producer.publish([version_message(one.version)])
            sent[one.version.version] = time.monotonic()
        producer.close()

    waits: list[float] = []
    with (
        ModelSubscriber.connect(kafka=kafka_bootstrap) as models,
        closing(models.follow(model, timeout=120.0)) as versions,
    ):
        assert next(versions).known == (19, made[19].version.digest)
        thread = threading.Thread(target=later)
        thread.start()
        for number in range(20, 40):
            assert next(versions).version == number
            waits.append(time.monotonic() - sent.get(number, time.monotonic()))
        thread.join()
        with pytest.raises(BrokenChain, match="is known as"):
            models.latest(model, known=(5, "0" * 64))
    print(f"median wait {1000 * sorted(waits)[10]:.0f} ms, longest {1000 * max(waits):.0f} ms")  # noqa: T201
    assert sorted(waits)[10] < 0.5
