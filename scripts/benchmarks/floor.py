"""The floor: a program on kafka-python and redis-py alone that moves what the worker moves.

It polls requests, reads what they name in one pipelined round trip, appends a record for each model
with one wait, writes a batch for each model with one script (`floor.lua`), all in one pipelined
round trip, and publishes parameters, receipts and a version in one flush that overlaps with the
next poll. Counts and bytes are the worker's (`benchmarks.shape` measures them); the bytes
themselves mean nothing. No mathematics, no check, and none of our code. The two logs are in
`floor_logs`.

Run as ``python -m benchmarks.floor JSON``; it says ``ready``, takes ``pause`` and ``go`` on stdin,
and works until that ends.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import redis

from benchmarks.floor_logs import KafkaEnd, Request, Send, StreamsEnd

SHARDS = 8
_SCRIPT = Path(__file__).with_name("floor.lua").read_text(encoding="utf-8")
_LOAD_ROWS = 100
_MOST_REQUESTS = 256  # of a poll
_SPARE = 400_000  # bytes of row ids in a record, and where rows of V begin


@dataclass(frozen=True, slots=True)
class Job:
    """What to move; see `benchmarks.shape.Shape` for ``shape``."""

    redis_url: str
    kafka: str | None
    prefix: str
    shape: dict[str, Any]
    method: str
    models: int
    n: int
    d: int
    records: int
    partitions: int


@dataclass(frozen=True, slots=True)
class Keys:
    """Names of one model's keys, of the same lengths as the product's."""

    base: str
    shared: str
    generation: str

    @classmethod
    def of(cls, model: str) -> Keys:
        """Return the keys of a model."""
        shared = f"lethe:{{c{crc32(model.encode()) % 16:02d}}}:"
        generation = hashlib.md5(model.encode(), usedforsecurity=False).hexdigest()
        return cls(f"{shared}{model}:", shared, f"{shared}{model}:gen:{generation}:")

    def rows(self, shard: int) -> str:
        """Return the key of a shard of row records."""
        return f"{self.generation}rows:{shard}"

    def written(self) -> list[str]:
        """Return the keys that the script writes."""
        own = [self.base + name for name in ("head", "ledger", "deletions", "requests")]
        own += [self.base + "offsets", self.base + "retired"]
        own += [self.shared + name for name in ("models", "cursors", "erasures")]
        own += [self.generation + "V", self.generation + "Q"]
        return own + [self.rows(shard) for shard in range(SHARDS)]


@dataclass(slots=True)
class Batch:
    """The requests of one poll for one model."""

    model: str
    keys: Keys
    requests: list[Request]

    def rows(self) -> list[str]:
        """Return the rows that they name."""
        return [row for request in self.requests for row in request.rows]


class Floor:
    """Moves bytes."""

    def __init__(self, job: Job) -> None:
        self._shape = job.shape
        self._client = redis.Redis.from_url(job.redis_url)
        self._script = self._client.script_load(_SCRIPT)
        names = {topic: job.prefix + name for topic, name in job.shape["topics"].items()}
        self._end: KafkaEnd | StreamsEnd
        if job.kafka is None:
            self._end = StreamsEnd(job.redis_url, names, job.partitions, job.records)
        else:
            self._end = KafkaEnd(job.kafka, names, job.prefix + "floor", job.records)
        base, each, _ = job.shape["commit"]
        longest = int(max(job.shape["parameters"], base + _MOST_REQUESTS * each))
        self._filler = os.urandom(longest + _SPARE)
        self._keys: dict[str, Keys] = {}
        self._version: dict[str, int] = {}
        self._sent: tuple[Any, list[tuple[str, int]], dict[int, int]] | None = None
        self._load(job)

    def _load(self, job: Job) -> None:
        """Store the row records of all models."""
        record = self._filler[: job.shape["row"]]
        for index in range(job.models):
            keys = Keys.of(f"model-{index}")
            for start in range(0, job.n, _LOAD_ROWS):
                pipeline = self._client.pipeline(transaction=False)
                for row in range(start, min(start + _LOAD_ROWS, job.n)):
                    name = f"row-{row:07d}"
                    pipeline.hset(keys.rows(crc32(name.encode()) % SHARDS), name, record)
                pipeline.execute()
            self._client.hset(keys.base + "head", mapping={"commit": 0, "digest": "", "arrays": ""})

    def run(self, go: threading.Event, stop: threading.Event) -> None:
        """Work until ``stop``."""
        while not stop.is_set():
            go.wait()
            requests = self._end.poll(0.0 if self._sent else 0.5)
            if not requests and self._sent:
                self._advance()
                requests = self._end.poll(0.5)
            if requests:
                self._turn(requests)
        self._end.close()

    def _turn(self, requests: list[Request]) -> None:
        batches = self._grouped(requests)
        self._read(batches)
        commits = [self._commit(batch) for batch in batches]
        places = self._end.wait(self._end.begin(commits))
        self._write(batches, places)
        messages = [message for batch in batches for message in self._published(batch)]
        ends = {request.partition: request.offset + 1 for request in requests}
        places_of = [(b.keys.shared, place) for b, place in zip(batches, places, strict=True)]
        self._sent = self._end.begin(messages), places_of, ends

    def _grouped(self, requests: list[Request]) -> list[Batch]:
        found: dict[str, Batch] = {}
        for request in requests:
            model = request.model
            if model not in found:
                keys = self._keys.setdefault(model, Keys.of(model))
                found[model] = Batch(model, keys, [])
            found[model].requests.append(request)
        return list(found.values())

    def _read(self, batches: list[Batch]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for batch in batches:
            base, rows = batch.keys.base, batch.rows()
            pipeline.hmget(base + "head", ["commit", "digest", "arrays"])
            pipeline.hmget(base + "requests", [request.id for request in batch.requests])
            pipeline.hmget(base + "ledger", rows)
            pipeline.smismember(base + "retired", rows)
            shards: dict[int, list[str]] = {}
            for row in rows:
                shards.setdefault(crc32(row.encode()) % SHARDS, []).append(row)
            for shard, some in shards.items():
                pipeline.hmget(batch.keys.rows(shard), some)
        pipeline.execute()

    def _commit(self, batch: Batch) -> Send:
        base, each, row = self._shape["commit"]
        size = int(base + each * len(batch.requests) + row * len(batch.rows()))
        return Send("commits", batch.model, self._filler[:size], ())

    def _write(self, batches: list[Batch], places: list[int]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for batch, place in zip(batches, places, strict=True):
            keys = batch.keys.written()
            pipeline.evalsha(self._script, len(keys), *keys, *self._arguments(batch, place))
        self._note(pipeline)
        pipeline.execute()

    def _arguments(self, batch: Batch, place: int) -> list[Any]:
        shape, filler, rows = self._shape, self._filler, batch.rows()
        last, version = batch.requests[-1], self._version.get(batch.model, 0)
        q_rows = rows if shape["q"] else []
        arguments: list[Any] = [len(shape["head"]), len(rows), len(batch.requests), len(rows)]
        arguments += [len(q_rows), last.partition, last.offset + 1, place + 1, version, batch.model]
        for name, size in shape["head"].items():
            arguments += (name, filler[:size])
        arguments += rows
        arguments += [crc32(row.encode()) % SHARDS for row in rows]
        for request in batch.requests:
            arguments += (request.id, filler[: shape["packed"]])
        arguments += [filler[i : i + shape["v"]] for i in range(len(rows))]
        return arguments + [filler[i : i + shape["q"]] for i in range(len(q_rows))]

    def _published(self, batch: Batch) -> list[Send]:
        shape, filler = self._shape, self._filler
        headers = tuple((name, filler[:size]) for name, size in shape["headers"])
        self._version[batch.model] = version = self._version.get(batch.model, 0) + 1
        ids = ",".join(f'"{request.id}"' for request in batch.requests)
        parameters = b'{"version":%d,' % version + filler[: shape["parameters"] - 15]
        described = b'{"request_ids":[%s],' % ids.encode() + filler[: shape["version"] - 18]
        sends = [Send("models", batch.model, parameters, headers)]
        for request in batch.requests:
            value = b'{"request_id":"%s",' % request.id.encode() + filler[: shape["receipt"] - 17]
            sends.append(Send("receipts", batch.model, value, headers))
        return [*sends, Send("versions", batch.model, described, headers)]

    def _note(self, pipeline: Any) -> None:
        """Note, behind the next writes, what is acknowledged by then."""
        if self._sent is None:
            return
        flush, places, ends = self._sent
        self._sent = None
        self._end.wait(flush)
        for shared, place in places:
            pipeline.hset(shared + "cursors", "published", place + 1)
        for partition, end in ends.items():
            pipeline.set(f"lethe:watermark:{partition:039d}", end)
        self._end.hint(ends)

    def _advance(self) -> None:
        pipeline = self._client.pipeline(transaction=False)
        self._note(pipeline)
        pipeline.execute()


def main(argument: str, kind: type[Floor] = Floor) -> None:
    """Work."""
    job = Job(**json.loads(argument))
    go, stop = threading.Event(), threading.Event()
    go.set()

    def listen() -> None:
        for line in sys.stdin:
            if line.strip() == "pause":
                go.clear()
            else:
                go.set()
        stop.set()
        go.set()

    threading.Thread(target=listen, daemon=True).start()
    floor = kind(job)
    print("ready", flush=True)
    floor.run(go, stop)
    print("{}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
