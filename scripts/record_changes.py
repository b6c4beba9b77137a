"""Record what Debezium really writes, in every form that the intake reads: test fixtures.

    .venv/bin/python scripts/record_changes.py [--kafka HOST:PORT] [--out DIRECTORY]

For each form it starts a database and a connector (scripts/cdc), makes the same changes, and writes
what it reads from the topics to DIRECTORY/<form>.jsonl, a record a line. Without --kafka it starts
a broker of its own (scripts/kafka). Times and ids of a run are in the records; no path is.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from local_servers import Problem

HERE = Path(__file__).resolve().parent
FIXTURES = HERE.parent / "tests" / "unit" / "cdc" / "recorded"
PREFIX = "shop"
QUIET_SECONDS = 5.0  # without a record: then the connector has written everything

_JSON = "org.apache.kafka.connect.json.JsonConverter"
_UNWRAP = {
    "transforms": "unwrap",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
    "transforms.unwrap.add.fields": "op,connector,name,db,schema,table,lsn,txId",
}
_SCHEMAS = {
    "key.converter": _JSON,
    "value.converter": _JSON,
    "key.converter.schemas.enable": "true",
    "value.converter.schemas.enable": "true",
}
_CLOUD_EVENTS = {"value.converter": "io.debezium.converters.CloudEventsConverter"}

FORMS = {
    "plain": {},
    "schema": _SCHEMAS,
    "precise": {"decimal.handling.mode": "precise"},
    "precise-schema": {"decimal.handling.mode": "precise", **_SCHEMAS},
    "flattened": {**_UNWRAP, "transforms.unwrap.delete.tombstone.handling.mode": "rewrite"},
    "flattened-tombstones": _UNWRAP,
    "cloudevents": {**_CLOUD_EVENTS, "value.converter.json.schemas.enable": "false"},
    "cloudevents-schema": _CLOUD_EVENTS,
}
"""By name: properties of the connector."""

BEFORE = """
CREATE TABLE customers (
  id integer PRIMARY KEY, household text NOT NULL, region integer NOT NULL,
  fee double precision, active boolean NOT NULL DEFAULT true);
CREATE TABLE orders (
  region text, number integer, amount numeric(10,2), household text,
  PRIMARY KEY (region, number));
ALTER TABLE orders REPLICA IDENTITY FULL;
CREATE TABLE accounts (code numeric(12) PRIMARY KEY, note text);
CREATE TABLE visits (customer integer, note text);
ALTER TABLE visits REPLICA IDENTITY FULL;
INSERT INTO customers VALUES (1, 'h1', 1, 9.5), (2, 'h2', 2, 8), (3, 'h3', 3, 7);
INSERT INTO orders VALUES ('north/a b', 1, 12.5, 'h1'), ('south', 2, 3.1, 'h2');
INSERT INTO accounts VALUES (123456, 'a');
INSERT INTO visits VALUES (1, 'x');
"""

AFTER = """
UPDATE customers SET fee = 10.25 WHERE id = 1;
UPDATE customers SET id = 100 WHERE id = 2;
INSERT INTO customers VALUES (4, 'h4', 4, 6);
DELETE FROM customers WHERE id = 3;
UPDATE orders SET amount = 4 WHERE region = 'south';
UPDATE orders SET number = 9 WHERE region = 'south';
DELETE FROM orders WHERE region = 'north/a b';
DELETE FROM accounts;
DELETE FROM visits;
TRUNCATE visits;
"""


def main(arguments: list[str]) -> int:
    """Record every form."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kafka", metavar="HOST:PORT")
    parser.add_argument("--out", type=Path, default=FIXTURES)
    parser.add_argument("--only", choices=FORMS, action="append")
    chosen = parser.parse_args(arguments)
    chosen.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lethe-record-") as scratch:
        try:
            with broker(Path(scratch) / "kafka", chosen.kafka) as address:
                for form in chosen.only or FORMS:
                    record(form, address, Path(scratch), chosen.out / f"{form}.jsonl")
        except Problem as problem:
            print(f"record_changes: {problem}", file=sys.stderr)
            return problem.exit_code
    return 0


def record(form: str, kafka: str, scratch: Path, out: Path) -> None:
    """Make the changes in one form, and write the records."""
    data, topics = scratch / form, f"{PREFIX}-{form}"
    (scratch / "before.sql").write_text(BEFORE)
    (scratch / "after.sql").write_text(AFTER)
    settings = {"topic.prefix": topics, "skipped.operations": "none", **FORMS[form]}
    sets = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    options = ["--kafka", kafka, "--data", str(data), "--sql", str(scratch / "before.sql")]
    try:
        address = script("cdc", "start", *options, *sets)
        time.sleep(QUIET_SECONDS)  # the snapshot would not see what TRUNCATE removes meanwhile
        subprocess.run(["psql", "-Xq", address, "-f", str(scratch / "after.sql")], check=True)
        records = list(read(kafka, topics))
    finally:
        script("cdc", "stop", "--delete", "--data", str(data))
    text = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in records)
    out.write_text(text.replace(topics, PREFIX))
    print(f"{out.name}: {len(records)} records")


def read(kafka: str, prefix: str) -> Iterator[dict[str, Any]]:
    """Yield the records of the connector's topics, until none comes any more."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from kafka import KafkaConsumer, TopicPartition  # noqa: PLC0415 (warns on Python 3.11)

    time.sleep(QUIET_SECONDS)
    consumer = KafkaConsumer(
        bootstrap_servers=kafka, enable_auto_commit=False, consumer_timeout_ms=QUIET_SECONDS * 1000
    )
    try:
        topics = sorted(name for name in consumer.topics() if name.startswith(f"{prefix}."))
        consumer.assign([TopicPartition(name, 0) for name in topics])
        consumer.seek_to_beginning()
        found = [
            {
                "topic": each.topic,
                "offset": each.offset,
                "key": each.key and each.key.decode(),
                "value": each.value and each.value.decode(),
                "headers": {
                    name: content.decode()
                    for name, content in each.headers
                    if not name.startswith("__debezium.context.")
                },
            }
            for each in consumer
        ]
    finally:
        consumer.close()
    yield from sorted(found, key=lambda each: (each["topic"], each["offset"]))


@contextmanager
def broker(data: Path, given: str | None) -> Iterator[str]:
    """Yield the address of a broker."""
    if given:
        yield given
        return
    try:
        yield script("kafka", "start", "--port", "0", "--data", str(data))
    finally:
        script("kafka", "stop", "--data", str(data))


def script(name: str, *arguments: str) -> str:
    """Run one of the scripts beside this one; return what it prints."""
    done = subprocess.run(
        [sys.executable, str(HERE / name), *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise Problem(f"scripts/{name}: {done.stderr.strip()}", done.returncode)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
