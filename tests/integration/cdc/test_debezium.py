"""Deletions in a real PostgreSQL reach a model through Debezium, whatever is killed on the way."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from lethe.consumers.contract import topics
from lethe.consumers.log.base import Log
from lethe.engine.store.membership import every_live_row
from tests.conftest import give_up
from tests.support.command import PROGRAM, Lethe
from tests.support.debezium import Debezium
from tests.support.kafka_log import kafka_log
from tests.support.servers import KafkaProcess, Missing, ValkeyProcess

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.xdist_group("kafka"),
]

ROWS, DELETED, PART = 12_000, 10_000, 250
KILLS = 3  # of each: Connect, the worker, the broker
PATIENCE = 600.0

TABLE = f"""
CREATE TABLE customers (
  id integer PRIMARY KEY, a double precision NOT NULL, b double precision NOT NULL,
  c numeric(12, 6) NOT NULL, note text, y double precision NOT NULL);
SELECT setseed(0.5);
INSERT INTO customers
  SELECT i, r.a, r.b, r.c, 'private ' || i, 2 * r.a - r.b + 0.5 * r.c + random()
  FROM (SELECT i, random() a, random() b, random() c FROM generate_series(1, {ROWS}) i) r;
"""  # noqa: S608 (a number of ours)

MAPPING = """
connector = "shop"

[[tables]]
topic = "shop.public.customers"
table = "public.customers"
models = ["churn"]
key = { id = "integer" }
"""

FIT = ("--id", "id", "--target", "y", "--features", "a,b,c", "--kind", "linear", "--ridge", "1")


class Site:
    """A database, a broker, a store and the command, as an operator has them."""

    def __init__(
        self, broker: KafkaProcess, store: ValkeyProcess, debezium: Debezium, directory: Path
    ) -> None:
        self.broker, self.store, self.debezium, self.directory = broker, store, debezium, directory
        self.lethe = Lethe(
            directory / "data",
            LETHE_REDIS_URL=store.url,
            LETHE_KAFKA_BOOTSTRAP_SERVERS=broker.bootstrap,
            LETHE_PARTITIONS="2",
        )
        self.mapping = directory / "tables.toml"
        self.mapping.write_text(MAPPING)
        self.worker: subprocess.Popen[bytes] | None = None

    def export(self) -> Path:
        """Write the table as a file."""
        path = self.directory / "customers.csv"
        rows = self.debezium.execute("COPY customers TO STDOUT (FORMAT csv, HEADER)")
        path.write_text(rows)
        return path

    def start_worker(self) -> None:
        """Start `lethe work --cdc`; its log lines go to a file."""
        with (self.directory / "work.log").open("ab") as log:
            self.worker = subprocess.Popen(
                [PROGRAM, "work", "--cdc", str(self.mapping)],
                env=self.lethe.environment,
                stdout=log,
                stderr=log,
            )

    def kill_worker(self) -> None:
        """Kill it with SIGKILL."""
        assert self.worker is not None
        self.worker.kill()
        self.worker.wait()

    def close(self) -> None:
        """End the worker."""
        if self.worker is not None and self.worker.poll() is None:
            self.worker.send_signal(signal.SIGKILL)
            self.worker.wait()

    def live(self) -> set[str]:
        """Return the model's live rows."""
        with redis.Redis.from_url(self.store.url) as client:
            return set(every_live_row(client, "churn"))

    def values(self, topic: str) -> list[dict[str, Any]]:
        """Return the values of a topic."""
        log: Log = kafka_log(self.broker.bootstrap)
        reader = log.reader()
        try:
            found = []
            for partition in reader.partitions(topic):
                bounds = reader.bounds(partition)
                offset = bounds.begin
                while offset < bounds.end:
                    records, offset = reader.read(partition, offset, 1.0, 500)
                    found += [json.loads(each.value or b"null") for each in records]
            return found
        finally:
            reader.close()
            log.close()


@pytest.fixture
def site(
    private_kafka: Callable[[], KafkaProcess],
    private_valkey: Callable[..., ValkeyProcess],
    tmp_path: Path,
) -> Iterator[Site]:
    """A site whose table is captured, and whose model has the table's rows."""
    with contextlib.ExitStack() as stack:
        broker = private_kafka()
        debezium = Debezium(tmp_path / "cdc", broker.bootstrap)
        stack.callback(debezium.close)
        try:
            debezium.start(TABLE)
        except Missing as missing:
            give_up(missing)
        made = Site(broker, private_valkey(), debezium, tmp_path)
        stack.callback(made.close)
        made.lethe("register", "churn", "--data", str(made.export()), *FIT)
        yield made


def wait_until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.5)


def test_deletes_reach_the_model_once_though_everything_is_killed(site: Site) -> None:
    """Connect, the worker and the broker are each killed several times during 10,000 deletes."""
    draw = random.Random(3)
    rows = draw.sample(range(1, ROWS + 1), DELETED)
    parts = [rows[i : i + PART] for i in range(0, DELETED, PART)]
    kills = [what for what in ("connect", "worker", "broker") for _ in range(KILLS)]
    draw.shuffle(kills)
    at = sorted(draw.sample(range(2, len(parts)), len(kills)))
    site.start_worker()
    site.debezium.wait_for_snapshot()
    for number, part in enumerate(parts):
        named = ", ".join(map(str, part))
        site.debezium.execute(f"DELETE FROM customers WHERE id IN ({named})")  # noqa: S608
        if number not in at:
            continue
        match kills[at.index(number)]:
            case "connect":
                site.debezium.kill_connect()
                site.debezium.start()
            case "worker":
                site.kill_worker()
                site.start_worker()
            case "broker":
                site.broker.kill()
                site.broker.start()
    kept = {str(i) for i in range(1, ROWS + 1)} - {str(row) for row in rows}
    wait_until(lambda: site.live() == kept, "the model has not the table's rows")
    site.kill_worker()
    site.lethe("work", "--cdc", str(site.mapping), "--until-idle")

    requests = site.values(topics.DELETIONS)
    asked = {one["request_id"]: one["row_ids"] for one in requests if "row_ids" in one}
    sent = Counter(one["request_id"] for one in requests if "row_ids" in one)
    assert len(asked) == DELETED
    assert sorted(row for named in asked.values() for row in named) == sorted(map(str, rows))
    assert sent.total() > DELETED  # ids repeat
    receipts = {one["request_id"]: one for one in site.values(topics.RECEIPTS)}
    assert receipts.keys() == asked.keys()
    assert sum(one["rows_deleted"] for one in receipts.values()) == DELETED  # effects do not
    assert site.live() == kept
    site.lethe("verify", "churn")
    assert "private" not in (site.directory / "work.log").read_text()


def test_a_table_reconciles_what_the_stream_never_told(site: Site) -> None:
    """Trap (f): rows deleted while the replication slot was lost are in no record."""
    site.debezium.wait_for_snapshot()
    site.debezium.kill_connect()
    slots = "SELECT count(*) FROM pg_replication_slots WHERE active"
    wait_until(lambda: site.debezium.execute(slots).strip() == "0", "the slot is still in use")
    site.debezium.execute("SELECT pg_drop_replication_slot('debezium')")
    site.debezium.execute("DELETE FROM customers WHERE id <= 40")
    site.debezium.start()
    site.debezium.execute("DELETE FROM customers WHERE id = 41")
    site.start_worker()
    wait_until(lambda: "41" not in site.live(), "the newer deletion did not arrive")
    assert {str(i) for i in range(1, 41)} <= site.live()
    said = (site.directory / "work.log").read_text()
    assert said.count("the connector took a snapshot again") == 1
    path = str(site.export())
    found = site.lethe("reconcile", "churn", "--data", path, "--id", "id", "--yes", "--json")
    assert found.document["rows_missing"] == 40
    wait_until(lambda: len(site.live()) == ROWS - 41, "the rows were not deleted")
    site.kill_worker()
    site.lethe("verify", "churn")
