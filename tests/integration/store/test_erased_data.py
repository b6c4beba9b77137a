"""After its receipt and T, a deleted row's bytes are nowhere: not in a key, not in a file.

A marker is a float64 that stands in one row's features alone, and another in its target. It is
searched as little- and big-endian bytes, as decimal text and as base64, in every value of the
store, in every file of its directory, in Kafka's log directories, and in all that workers wrote.
The servers write without compression here (``rdbcompression no``; Kafka's topics never have it),
because LZF could hide a marker from a search through bytes. Row *ids* are not searched: the ledger
keeps them (docs/erased-data.md).
"""

from __future__ import annotations

import base64
import os
import struct
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

from lethe.consumers.contract import topics
from lethe.consumers.contract.events import RefreshRequested
from lethe.consumers.refresh.age_limit import past_age_limit
from lethe.consumers.refresh.job import run_job
from lethe.consumers.registration.checks import MOST_FILE_AGE
from lethe.consumers.workers.deletion_worker import DeletionWorker
from lethe.consumers.workers.refresh_worker import RefreshWorker
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.offline.staging import TIME_TO_LIVE
from lethe.engine.store.server.rewrite import ERASURE_SECONDS, read_erasures
from tests.integration.conftest import KAFKA, log_of
from tests.integration.deletions.test_deferral import leveraged
from tests.support.command import PROGRAM
from tests.support.events import settle, succeed
from tests.support.families import Data
from tests.support.invariants import check_model, ledger_of
from tests.support.memory_log import MemoryLog
from tests.support.platform import Platform, seal_file
from tests.support.servers import KafkaProcess, ValkeyProcess
from tests.support.stores import backup, restore
from tests.support.tables import Table

WAIT = 20.0
DAY = 86400.0
DEFERRED, PLAIN, IN_SNAPSHOT, IN_ORPHAN, FOLDED, LIVE = 0, 20, 21, 22, 23, 24
MARKED = (DEFERRED, PLAIN, IN_SNAPSHOT, IN_ORPHAN, FOLDED, LIVE)


def markers() -> dict[int, tuple[float, float]]:
    """Return two numbers for each marked row: a feature and its target."""
    drawn = np.random.default_rng(20261121).uniform(0.5, 1.5, (len(MARKED), 2))
    return {row: (float(a), float(b)) for row, (a, b) in zip(MARKED, drawn, strict=True)}


def marked_data() -> Data:
    """Return data with a row that an update cannot leave out, and the markers in their rows."""
    data = leveraged("linear")
    X, y = data.X.copy(), data.y.copy()
    for row, (feature, target) in markers().items():
        X[row, 0], y[row, 0] = feature, target
    return replace(data, X=X, y=y)


def shapes(number: float) -> list[bytes]:
    """Return the forms in which a number may lie somewhere."""
    raw = struct.pack("<d", number)
    # Of base64 at each of three alignments, the characters that are the number's alone
    coded = [
        base64.b64encode(b"\0" * pad + raw)[-(-8 * pad // 6) : (8 * pad + 64) // 6]
        for pad in range(3)
    ]
    return [raw, struct.pack(">d", number), repr(number).encode(), *coded]


def rows_in(contents: Iterable[bytes]) -> set[int]:
    """Return the marked rows of which something is in these bytes."""
    wanted = [(row, s) for row, pair in markers().items() for n in pair for s in shapes(n)]
    return {row for content in contents for row, shape in wanted if shape in content}


def memory_of(client: redis.Redis) -> Iterator[bytes]:
    """Yield every key of the store, with all it holds, uncompressed."""
    reading: dict[bytes, Callable[[bytes], Any]] = {
        b"string": client.get,
        b"hash": client.hgetall,
        b"list": lambda key: client.lrange(key, 0, -1),
        b"set": client.smembers,
        b"zset": lambda key: client.zrange(key, 0, -1),
        b"stream": client.xrange,
    }
    for key in client.scan_iter(count=1000):
        kind: Any = client.type(key)
        if kind != b"none":  # it expired a moment ago
            yield key + b"\n" + b"\n".join(flat(reading[kind](key)))


def flat(value: Any) -> Iterator[bytes]:
    """Yield the strings of a reply, however deep."""
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, dict):
        for pair in value.items():
            yield from flat(pair)
    elif isinstance(value, (list, tuple, set)):
        for one in value:
            yield from flat(one)


def files_of(*directories: Path) -> Iterator[bytes]:
    """Yield the content of every file; one that goes meanwhile holds nothing.

    Without the zeros at its end: a broker makes 20 MB of them for each of its partitions.
    """
    for directory in directories:
        for file in sorted(directory.rglob("*")):
            try:
                if file.is_file():
                    yield file.read_bytes().rstrip(b"\0")
            except FileNotFoundError:
                continue


@dataclass
class Place:
    """A platform on servers of its own, all that they write, and a clock that runs ahead."""

    platform: Platform
    server: ValkeyProcess
    broker: KafkaProcess | None
    written: Path
    ahead: timedelta = field(default_factory=timedelta)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def in_memory(self) -> set[int]:
        return rows_in(memory_of(self.platform.raw()))

    def in_files(self) -> set[int]:
        others = [self.broker.data] if self.broker else []
        return rows_in(files_of(self.server.data, self.written, *others))

    def in_log(self) -> set[int]:
        return rows_in(files_of(self.broker.data)) if self.broker else set()

    def run_the_command(self) -> None:
        """Run ``lethe work`` until nothing is left to do, with everything that it can say."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LETHE_")}
        kafka = {"LETHE_KAFKA_BOOTSTRAP_SERVERS": self.broker.bootstrap} if self.broker else {}
        home = self.written / "home"
        home.mkdir(exist_ok=True)
        environment = {
            **kept, **kafka, "LETHE_REDIS_URL": self.server.url, "LETHE_HTTP_PORT": "0",
            "LETHE_LOG_LEVEL": "DEBUG", "LETHE_LOG_FORMAT": "json",
            "HOME": str(home), "TMPDIR": str(home), "LETHE_DATA_DIR": str(home / "data"),
            "LETHE_SEAL_KEY_FILE": str(seal_file(home)),
        }  # fmt: skip
        with (self.written / "stdout").open("ab") as out, (self.written / "stderr").open("ab") as e:
            subprocess.run(
                [PROGRAM, "work", "--until-idle"], env=environment, cwd=home, stdout=out, stderr=e,
                stdin=subprocess.DEVNULL, check=True, timeout=60,
            )  # fmt: skip

    def look_until(self, worker: DeletionWorker, true: Callable[[], bool]) -> None:
        """Let the worker look at its files, a minute of its clock after the other."""
        end = time.monotonic() + WAIT
        while not true():
            assert time.monotonic() < end, "the store's files were not written anew"
            self.ahead += timedelta(seconds=61)
            worker.run_once(0.0)
            time.sleep(0.05)


@pytest.fixture
def place(
    request: pytest.FixtureRequest, private_valkey: Callable[..., ValkeyProcess], tmp_path: Path
) -> Iterator[Place]:
    # A snapshot schedule as well: what dump.rdb holds has to go too.
    server = private_valkey(rdbcompression="no", save="3600 1000000")
    broker = request.getfixturevalue("private_kafka")() if request.param == "kafka" else None
    bootstrap = broker.bootstrap if broker else ""
    platform = Platform(log_of(request.param, server.url, bootstrap), server.url, 1, bootstrap)
    written = tmp_path / "written"
    written.mkdir()
    yield Place(platform, server, broker, written)
    platform.close()


def save(client: redis.Redis) -> None:
    """Have the server write a snapshot."""
    before = client.lastsave()
    time.sleep(1.0)  # lastsave counts whole seconds
    client.bgsave()
    while client.lastsave() == before:
        time.sleep(0.02)


def test_the_search_knows_a_number_in_every_form() -> None:
    raw = struct.pack("<d", markers()[PLAIN][0])
    hidden = [base64.b64encode(b"a" * i + raw + b"z" * j) for i in range(6) for j in range(6)]
    for content in [b"\x01" + raw + b"\x02", raw[::-1], str(markers()[PLAIN][1]).encode(), *hidden]:
        assert rows_in([content]) == {PLAIN}
    assert rows_in([b"", np.random.default_rng(1).bytes(100_000)]) == set()


@pytest.mark.parametrize("place", ["streams", KAFKA], indirect=True)
def test_the_bytes_of_deleted_rows_are_gone_everywhere_after_t(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    platform, raw = place.platform, place.platform.raw()
    # Given marked rows, in memory, in the append-only file and in a snapshot
    platform.register("m", marked_data(), method="exact", budget=10.0)
    save(raw)
    assert place.in_memory() == set(MARKED)
    assert rows_in([(place.server.data / "dump.rdb").read_bytes()]) == set(MARKED)
    # When one is deleted, and one that has to wait for a rebuild, by `lethe work`
    platform.send_index("m", PLAIN)
    deferred = platform.send_index("m", DEFERRED)
    place.run_the_command()
    assert platform.statuses(deferred) == ["DEFERRED", "APPLIED"]
    # and two that refreshes had read before: one refresh is swapped in, the other one's worker died
    swapped = platform.ordered("m", RefreshSize.REBUILD)
    platform.compute_refresh(swapped)
    orphan = platform.ordered("m", RefreshSize.COMPACT)
    left = platform.compute_refresh(orphan)
    assert left.staged_key is not None
    where = platform.load().keys
    staged = [*where.generation(left.staged_key).everything(), where.job(left.job_id)]
    platform.send_index("m", IN_SNAPSHOT)
    platform.drain(platform.pair[0])
    platform.tell_refreshed(swapped)
    platform.send_index("m", IN_ORPHAN)
    platform.drain(platform.pair[0])
    gone = {PLAIN, DEFERRED, IN_SNAPSHOT, IN_ORPHAN}
    assert raw.exists(*staged) > len(staged) / 2
    for key in staged:
        assert raw.ttl(key) == -2 or 0 < raw.ttl(key) <= TIME_TO_LIVE
    if place.broker:  # in single-node mode the log goes back with the store: nothing to fold
        before = backup(platform)
        platform.delete("m", FOLDED)
        restore(platform, before)
        assert FOLDED in place.in_memory()
        settle(platform)
        gone.add(FOLDED)
    assert {f"row-{row}" for row in gone} == set(ledger_of(platform))
    # Then live keys hold nothing of them, only what the dead refresh staged, which expires
    assert {IN_SNAPSHOT, IN_ORPHAN} <= place.in_memory()
    for key in staged:
        raw.pexpire(key, 1)  # as when six hours have passed
    time.sleep(0.01)
    assert place.in_memory() == set(MARKED) - gone
    check_model(platform)
    # and files still hold all of them, until a worker has them written anew
    assert place.in_files() == set(MARKED)
    assert rows_in(files_of(place.server.data / "appendonlydir")) == set(MARKED)
    late = platform.deletion_worker(now=place.now)
    late.run_once(0.0)
    assert read_erasures(raw).waiting()
    place.ahead = timedelta(seconds=ERASURE_SECONDS * 0.75)
    place.look_until(late, lambda: not read_erasures(raw).waiting())
    assert place.ahead < timedelta(seconds=ERASURE_SECONDS)
    (place.written / "captured").write_text("".join(capfd.readouterr()))
    assert (place.written / "captured").stat().st_size > 0
    assert place.in_memory() == set(MARKED) - gone
    assert place.in_files() == set(MARKED) - gone
    # and what is not deleted is where it was; Kafka never had any of it
    assert LIVE in place.in_files()
    assert place.in_log() == set()
    assert platform.raw().hlen(ModelKeys("m").ledger) == len(gone)


@pytest.mark.parametrize("place", ["streams", KAFKA], indirect=True)
def test_the_bytes_of_rows_in_files_are_gone_everywhere_after_t(place: Place) -> None:
    platform, raw, rows = place.platform, place.platform.raw(), place.written / "rows"
    # Given marked rows in files, of which the store has sums alone
    platform.register(
        "m", marked_data(), method="exact", budget=10.0, exact_sums=True, rows_url=str(rows)
    )
    assert rows_in(files_of(rows)) == set(MARKED)
    assert place.in_memory() == set()
    # When one is deleted, one is corrected, and another is deleted while a refresh writes them anew
    platform.delete("m", PLAIN)
    table = Table(platform)
    table.change("correct", table.row(f"row-{FOLDED}"))
    platform.drain()
    platform.tell_refreshed(age_order(place, lambda: platform.delete("m", IN_SNAPSHOT)))
    platform.drain()
    assert rows_in(files_of(rows)) == set(MARKED) - {PLAIN, FOLDED}
    # and the worker of the next one dies, so that what it wrote stays
    platform.delete("m", IN_ORPHAN)
    age_order(place)
    kept = set(rows.rglob("*"))
    platform.tell_refreshed(age_order(place))
    platform.drain()
    for path in kept & set(rows.rglob("*")):
        if path.is_file():
            os.utime(path, (0, time.time() - MOST_FILE_AGE - 1))
    succeed(platform)
    gone = {PLAIN, FOLDED, IN_SNAPSHOT, IN_ORPHAN}
    # Then no file of rows holds any of them, nor does the store, once its files are written anew
    late = platform.deletion_worker(now=place.now)
    late.run_once(0.0)
    place.look_until(late, lambda: not read_erasures(raw).waiting())
    assert rows_in(files_of(rows)) == set(MARKED) - gone
    assert place.in_memory() == set()
    assert place.in_files() == set(MARKED) - gone
    assert place.in_log() == set()
    table.rows.pop(f"row-{PLAIN}")
    table.rows.pop(f"row-{IN_SNAPSHOT}")
    table.rows.pop(f"row-{IN_ORPHAN}")
    table.check()


def age_order(place: Place, meanwhile: Callable[[], object] = lambda: None) -> RefreshRequested:
    """Do the refresh that the age of model ``m`` orders next, but for the last step."""
    place.ahead += timedelta(seconds=MOST_FILE_AGE + 1)
    [job] = past_age_limit(place.platform.store, place.now())
    run_job(place.platform.store, job, now=place.now())
    meanwhile()
    return job


@dataclass
class Clock:
    """The time, and how far a test has put it forward."""

    ahead: timedelta = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


def deleted_and_left_alone(memory: Platform) -> tuple[Clock, DeletionWorker, RefreshWorker]:
    """Return a clock, and workers that go by it and have deleted two rows of a model."""
    memory.register("m", "benign", "logistic", budget=10.0)
    clock = Clock()
    worker, refresher = memory.deletion_worker(now=clock), memory.refresh_worker(now=clock)
    memory.send_index("m", 1, 2)
    memory.drain(worker, refresher)
    return clock, worker, refresher


def test_an_idle_model_is_rebuilt_when_what_derives_from_deleted_rows_is_too_old(
    memory: Platform,
) -> None:
    """Given no request and no operator, the worker orders it: V, Q and theta_b are purged."""
    clock, worker, refresher = deleted_and_left_alone(memory)
    before = memory.load()
    assert (before.meta.K, before.meta.r, before.meta.config.limits.limits().age_seconds) == (
        2,
        2,
        30 * DAY,
    )
    assert not before.deferred
    # When almost 30 days have passed, nothing happens; when they have, a rebuild
    clock.ahead = timedelta(days=29.9)
    memory.drain(worker, refresher)
    assert memory.load().version == before.version
    clock.ahead = timedelta(days=30.1)
    worker.run_once(0.0)
    worker.run_once(0.0)
    assert len(memory.records(topics.REFRESH_JOBS)) == 1
    memory.drain(worker, refresher)
    after = memory.load()
    assert (after.meta.K, after.meta.r, after.meta.generation) == (0, 0, 1)
    refreshed = memory.versions()[-1].refresh
    assert refreshed is not None
    assert refreshed.reason == ("what derives from deleted rows has reached its age limit")
    assert not np.array_equal(after.generation.theta_b, before.generation.theta_b)
    for key in before.generation_keys.everything():
        assert not memory.raw().exists(key)
    # and once is enough
    clock.ahead = timedelta(days=70)
    memory.drain(worker, refresher)
    assert memory.load().version == after.version
    check_model(memory)


def test_a_compact_does_not_put_off_the_age_limit(memory: Platform) -> None:
    """It empties V and Q, but theta_b was fitted while the deleted rows were there."""
    clock, worker, refresher = deleted_and_left_alone(memory)
    fitted = memory.load().generation.theta_b
    # When a model is compacted twenty days after its first deletion, and gets no more requests
    clock.ahead = timedelta(days=20)
    memory.order("m", RefreshSize.COMPACT)
    memory.drain(worker, refresher)
    compacted = memory.load()
    assert (compacted.meta.K, compacted.meta.generation) == (0, 1)
    assert np.array_equal(compacted.generation.theta_b, fitted)
    # Then it is rebuilt after ten days more
    clock.ahead = timedelta(days=29.9)
    memory.drain(worker, refresher)
    assert memory.load().version == compacted.version
    clock.ahead = timedelta(days=30.1)
    worker.run_once(0.0)
    worker.run_once(0.0)
    memory.drain(worker, refresher)
    assert memory.load().meta.generation == 2
    assert not np.array_equal(memory.load().generation.theta_b, fitted)
    check_model(memory)


def test_a_store_that_cannot_rewrite_its_files_is_told_of(
    private_valkey: Callable[..., ValkeyProcess], capfd: pytest.CaptureFixture[str]
) -> None:
    server = private_valkey()
    with redis.Redis.from_url(server.url) as client:
        client.acl_setuser("weak", enabled=True, nopass=True, commands=["+@all", "-bgrewriteaof"],
                           keys=["*"], channels=["*"])  # fmt: skip
    with closing(
        Platform(MemoryLog(), server.url.replace("redis://", "redis://weak:any@"))
    ) as platform:
        platform.register("m", "benign", "linear", budget=10.0)
        clock = Clock()
        worker = platform.deletion_worker(now=clock)
        platform.send_index("m", 1)
        platform.drain(worker, None)
        clock.ahead = timedelta(days=2)
        worker.run_once(0.0)
        assert "does not let this user rewrite its files" in "".join(capfd.readouterr())
        moment = clock().timestamp()
        assert read_erasures(platform.raw()).overdue(moment)


def test_a_damaged_note_of_erasures_does_not_stop_the_worker(memory: Platform) -> None:
    memory.register("m", "benign", "linear", budget=10.0)
    erasures = ModelKeys("m").partition.erasures
    memory.raw().hset(erasures, mapping={"last": "yesterday", "rewritten": "never"})
    worker = memory.deletion_worker()
    request = memory.send_index("m", 1)
    memory.drain(worker)
    assert memory.final(request).status == "APPLIED"
    memory.raw().delete(erasures)
    memory.raw().set(erasures, "no hash")
    worker = memory.deletion_worker(now=lambda: datetime.now(UTC) + timedelta(minutes=2))
    worker.run_once(0.0)
