"""Decoders of files, settings and of what a client library hands on."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from kafka import errors as kafka_errors
from kafka.record import MemoryRecords, MemoryRecordsBuilder

from lethe.consumers.cdc.mapping import load_mapping
from lethe.consumers.cli.send.lines import read_lines
from lethe.consumers.contract.events import MAX_ROWS
from lethe.consumers.log.base import Partition
from lethe.consumers.log.kafka.reader import to_record
from lethe.consumers.log.kafka.repairs import read_odd_header_names
from lethe.consumers.registration.table.reader import Columns, read_table
from lethe.consumers.service.configuration.settings import load_settings, unknown_variables
from lethe.consumers.service.valkey_server import _read_line, read_pid
from lethe.engine.errors import InvalidData, InvalidRequest
from lethe.engine.fit.objective import Kind
from lethe.engine.store.server.connection import connect, without_secrets
from tests.proof.fuzz.contract import Harness, joined, parts
from tests.proof.fuzz.scratch import written

_HERE = Partition("lethe.deletions", "id", 0)


# -- files that a person names ------------------------------------------------------------------


def _rows_file(data: bytes) -> None:
    for row in read_lines(written(data, "rows.txt"), MAX_ROWS, "row id"):
        assert row
        assert "\n" not in row


def _table(path: Path) -> None:
    for kind in (Kind.LINEAR, Kind.LOGISTIC):
        try:
            read = read_table(path, Columns("id", ("y",), subject="who"), kind)
        except InvalidData:
            if kind is Kind.LOGISTIC:
                raise
            continue
        assert bool(np.isfinite(read.data.X).all())
        assert len(set(read.data.ids)) == len(read.data.ids) == len(read.data.X)


def _csv(data: bytes) -> None:
    _table(written(data, "rows.csv"))


def _parquet(data: bytes) -> None:
    _table(written(data, "rows.parquet"))


def csv_seeds() -> list[bytes]:
    """Return tables with classes, quotes, blank lines, a byte order mark."""
    return [
        b"id,y,x,who\nu1,0,1.5,s1\nu2,1,-2e-3,\nu3,1,+7,s1\n",
        b'\xef\xbb\xbfid,y,x,"w,o"\r\n"u,1",red,true,a\r\nu2,blue,false,b\r\nu3,green,true,c\r\n',
        b"id,y,x,who\n\n\nu1,0,1,\n",
        b"id,y,x,who\n",
    ]


def parquet_seeds() -> list[bytes]:
    """Return tables of several types, compressions and encodings."""
    plain = {
        "id": ["u1", "u2", "u3"],
        "y": [0, 1, 1],
        "x": [1.5, -2.0, 0.0],
        "who": ["a", None, "a"],
    }
    made: list[bytes] = []
    for table, options in (
        (pa.table(plain), {"compression": "none"}),
        (pa.table({**plain, "x": [1, None, 3]}), {"use_dictionary": False}),
        (pa.table({**plain, "id": [1, 2, 3]}), {"compression": "zstd"}),
        (pa.table({**plain, "x": pa.array([1, 2, 3], pa.decimal128(10, 2))}), {}),
        (pa.table({**plain, "nested": [[1.0], [], None]}), {"version": "1.0"}),
    ):
        sink = io.BytesIO()
        pq.write_table(table, sink, **options)
        made.append(sink.getvalue())
    return made


def _small_file(data: bytes) -> None:
    """What the embedded server's own files say."""
    path = written(data, "valkey.pid")
    pid = read_pid(path)
    assert pid is None or pid > 1
    line = _read_line(path)
    assert line is None or ("\n" not in line and "\0" not in line)


# -- settings -----------------------------------------------------------------------------------


def _settings(data: bytes) -> None:
    names = ("replicas", "http_port", "durability", "log_level", "kafka_bootstrap_servers")
    texts = [None if text is None else text.decode("utf-8", "replace") for text in parts(data, 6)]
    settings = load_settings(dict(zip(names, texts, strict=False)))
    assert 0 <= settings.http_port <= 65535
    unknown_variables({f"LETHE_{text}": "" for text in texts if text})


def _mapping(data: bytes) -> None:
    mapping = load_mapping(written(data, "tables.toml"))
    assert mapping.tables
    assert mapping.topics
    assert len(mapping.digest) == 16


def _address(data: bytes) -> None:
    client = connect(data.decode("utf-8", "replace"))
    client.close()
    without_secrets(data.decode("utf-8", "replace"))


# -- what a broker sends ------------------------------------------------------------------------


def _kafka(data: bytes) -> None:
    """A batch of records as it lies in a partition; its checksum is the broker's to check."""
    read_odd_header_names()
    batches = MemoryRecords(data)
    while batches.has_next():
        for record in batches.next_batch():
            ours = to_record(_HERE, _Fetched(record))
            assert all(isinstance(name, str) for name, _ in ours.headers)


class _Fetched:
    """A record as the client's fetcher hands it on."""

    def __init__(self, found: Any) -> None:
        self.offset, self.key, self.value = found.offset, found.key, found.value
        self.headers, self.timestamp, self.leader_epoch = found.headers, found.timestamp, None


def kafka_seeds() -> list[bytes]:
    """Return batches, plain and compressed, one with a header name that is no text."""
    made: list[bytes] = []
    for compression in (0, 1):
        builder = MemoryRecordsBuilder(2, compression, 1 << 20)
        builder.append(1_760_000_000_000, b"m", b'{"a": 1}', [("ce_type", b"x"), ("ab", b"")])
        builder.append(1_760_000_000_001, None, None, [])
        builder.close()
        made.append(bytes(builder.buffer()))
    return [*made, made[0].replace(b"ce_type", b"ce_\xff\xfepe")]


def rows_file_seeds() -> list[bytes]:
    """Return files of row ids."""
    return [b"u1\nu2\r\n\n\xc3\xbc\n", b"\xef\xbb\xbfu1"]


def settings_seeds() -> list[bytes]:
    """Return settings that can be used."""
    return [
        joined(b"0", b"9464", b"required", b"INFO", b"localhost:9092", b"REDIS_URL"),
        joined(b"16", b"0", b"relaxed", b"DEBUG", b"a:1,b:2"),
    ]


def mapping_seeds() -> list[bytes]:
    """Return mappings that can be used."""
    table = b'[[tables]]\ntopic = "a.b"\ntable = "b.c"\nmodels = ["m"]\nkey = { id = "integer" }\n'
    more = b'replica_identity = "full"\nsubject = { s = "text" }\nupdates = "correct"\n'
    return [b'connector = "a"\n' + table, b'connector = "a"\n' + table + more]


def address_seeds() -> list[bytes]:
    """Return addresses of every kind."""
    return [
        b"redis://user:p%40ss@host:6379/2?socket_timeout=5",
        b"rediss://[::1]:6380/0",
        b"unix:///run/valkey.sock?db=1",
    ]


# The client's own decoder, given what no broker sends: brokers check the structure of what they
# take, and the client checks sums. Formats before Kafka 0.11 raise anything when they are damaged.
_CLIENT = (kafka_errors.KafkaError, struct.error, EOFError, OSError, AssertionError, IndexError)

HARNESSES = [
    # Rows: the file is read in one piece of the largest size.
    Harness("rows-file", _rows_file, (InvalidRequest,), rows_file_seeds, fixed=6 << 20),
    # Tables: Arrow reads blocks of a MiB whatever the file's size, and every row becomes an id.
    Harness("csv", _csv, (InvalidData,), csv_seeds, factor=256, fixed=8 << 20),
    Harness("parquet", _parquet, (InvalidData,), parquet_seeds, factor=256, fixed=64 << 20),
    Harness("embedded-files", _small_file, (), lambda: [b"4242\n", b"/run/valkey.sock"]),
    Harness("mapping", _mapping, (InvalidData,), mapping_seeds, fixed=4 << 20),
    Harness("settings", _settings, (InvalidData,), settings_seeds),
    Harness("address", _address, (InvalidData,), address_seeds),
    Harness("kafka-batch", _kafka, _CLIENT, kafka_seeds),
]
