"""Captured changes become requests exactly once in effect, on every log, with a real store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lethe.consumers.cdc.mapping import Mapping as TableMapping, intake_watermark
from lethe.consumers.contract import topics
from lethe.consumers.contract.signatures import Signer
from lethe.consumers.deletions.authenticate import parse_request_keys
from lethe.consumers.log.base import Message, TopicSpec
from lethe.consumers.service.telemetry.steps import IntakeStep
from lethe.consumers.workers.intake_worker import IntakeWorker, read_shapes
from lethe.engine.errors import InvalidData
from tests.support.captured import envelope, mapping_of, message
from tests.support.invariants import check_model, ledger_of
from tests.support.platform import Platform
from tests.support.tables import Table

MOVING: dict[str, Any] = {
    "updates": "correct",
    "key_changes": "correct",
    "subject": {"household": "text"},
    "replica_identity": "full",
}
TABLE: dict[str, Any] = {"models": ["m"], "key": {"id": "text"}, "features": {"y0": "target"}}


class Died(Exception):
    """Stands for the end of the process."""


class Capture:
    """A table whose changes a platform captures, and the intake worker that reads them."""

    def __init__(self, platform: Platform, prefix: str, **table: Any) -> None:
        self.platform = platform
        self.topic = f"{prefix}shop.public.customers"
        self.mapping = mapping_of({**TABLE, "topic": self.topic, **table})
        self.lsn = 0
        platform.log.ensure_topics([TopicSpec(self.topic)])

    def write(self, value: Any, key: Any = None, **headers: Any) -> Message:
        """Write a record to the table's topic; return it, to be written again."""
        sent = message(value, key, self.topic, **headers)
        self.platform.producer.publish([sent])
        return sent

    def delete(self, row: str, *, lsn: int | None = None, sequence: str = "1") -> Message:
        """Write the deletion of a row."""
        self.lsn += 1
        value = envelope("d", before={"id": row}, lsn=lsn or self.lsn, sequence=sequence)
        return self.write(value, {"id": row})

    def worker(self, mapping: TableMapping | None = None, **options: Any) -> IntakeWorker:
        """Return a new worker."""
        mapping = mapping or self.mapping
        store = self.platform.new_store()
        shapes = read_shapes(store, mapping)
        return IntakeWorker(self.platform.log, store, mapping, shapes, **options)

    def read(self, mapping: TableMapping | None = None, **options: Any) -> None:
        """Read everything with a new worker."""
        worker = self.worker(mapping, **options)
        while self.waiting(mapping):
            worker.run_once(0.02)
        worker.close()

    def read_until_death(self, step: str) -> None:
        """Read with a worker that ends when it reaches a step."""

        def die(reached: str) -> None:
            if reached == step:
                raise Died

        doomed = self.worker(at_step=die)
        try:
            while True:
                doomed.run_once(0.02)
        except Died:
            doomed.close()

    def waiting(self, mapping: TableMapping | None = None) -> int:
        """Return how many records lie beyond the position in the store."""
        [partition] = self.platform.reader.partitions(self.topic)
        name = intake_watermark(mapping or self.mapping, partition)
        position = self.platform.store.cursors.watermark(name)
        return self.platform.reader.bounds(partition).end - (position or 0)


@pytest.fixture
def capture(platform: Platform, topic_prefix: str) -> Capture:
    """A captured table on each log in turn, and model ``m`` of its rows."""
    platform.register("m")
    return Capture(platform, topic_prefix)


@pytest.fixture
def in_memory(memory: Platform, topic_prefix: str) -> Callable[..., Capture]:
    """Make a captured table on the log in memory."""
    memory.register("m")
    return lambda **table: Capture(memory, topic_prefix, **table)


def test_rows_that_a_table_deletes_are_deleted_once(capture: Capture) -> None:
    rows = [f"row-{i}" for i in range(30)]
    for row in rows:
        capture.delete(row)
    for number, row in enumerate(rows[:10], start=1):  # the connector was killed
        capture.delete(row, lsn=number, sequence="2")
    capture.read()
    capture.platform.drain()
    finals = capture.platform.finals()
    assert len(finals) == 30
    assert sum(receipt.rows_deleted for receipt in finals.values()) == 30
    assert ledger_of(capture.platform).keys() == set(rows)
    check_model(capture.platform)
    assert capture.waiting() == 0


def test_a_worker_that_dies_at_any_step_loses_and_doubles_nothing(
    in_memory: Callable[..., Capture],
) -> None:
    capture = in_memory()
    rows = [f"row-{i}" for i in range(4 * len(IntakeStep))]
    for number, step in enumerate(IntakeStep):
        for row in rows[4 * number : 4 * number + 4]:
            capture.delete(row)
        capture.read_until_death(step)
    sent = len(capture.platform.records(topics.DELETIONS))
    capture.read()
    capture.platform.drain()
    assert len(capture.platform.records(topics.DELETIONS)) > sent
    assert len(capture.platform.records(topics.DELETIONS)) > len(rows)  # some were sent twice
    finals = capture.platform.finals()
    assert len(finals) == len(rows)
    assert sum(receipt.rows_deleted for receipt in finals.values()) == len(rows)
    assert ledger_of(capture.platform).keys() == set(rows)
    check_model(capture.platform)


def test_a_store_that_went_back_makes_no_deletion_twice(
    in_memory: Callable[..., Capture],
) -> None:
    capture = in_memory()
    capture.delete("row-1")
    capture.read()
    capture.platform.drain()
    [partition] = capture.platform.reader.partitions(capture.topic)
    name = intake_watermark(capture.mapping, partition)
    capture.platform.store.cursors.lower_watermarks({name: 0})
    capture.read()
    capture.platform.drain()
    assert len(capture.platform.records(topics.DELETIONS)) == 2
    assert len(capture.platform.finals()) == 1


def test_a_record_that_cannot_be_read_affects_itself_alone(
    in_memory: Callable[..., Capture], capfd: pytest.CaptureFixture[str]
) -> None:
    capture = in_memory()
    private = "Ada Lovelace"
    bad = [
        capture.write({"op": "d", "note": private}, {"id": "row-1"}),
        capture.write(envelope("d", before={"id": private}, table="suppliers"), {"id": "row-1"}),
        capture.write(envelope("d", before={"note": private}), None),
        capture.write(envelope("t")),
    ]
    capture.delete("row-2")
    capture.read()
    capture.platform.drain()
    letters = capture.platform.dead_letters()
    assert len(letters) == len(bad)
    for letter in letters:
        assert private.encode() not in (letter.value or b"")
        assert private not in str(letter.headers)
    codes = [dict(letter.headers)["lethe-error-code"] for letter in letters]
    assert codes == [b"INVALID_CHANGE", b"FOREIGN_CHANGE", b"INVALID_CHANGE", b"TABLE_TRUNCATED"]
    assert private not in "".join(capfd.readouterr())
    assert ledger_of(capture.platform).keys() == {"row-2"}
    check_model(capture.platform)


def test_a_model_that_is_added_gets_the_deletions_before_it(
    in_memory: Callable[..., Capture],
) -> None:
    capture = in_memory()
    capture.platform.register("n")
    capture.delete("row-1")
    capture.read()
    both = mapping_of({**TABLE, "topic": capture.topic, "models": ["m", "n"]})
    capture.read(both)
    capture.platform.drain()
    for model in ("m", "n"):
        assert len(capture.platform.finals(model)) == 1
        assert ledger_of(capture.platform, model).keys() == {"row-1"}


def test_a_model_that_is_not_registered_is_said_before_anything_is_read(
    memory: Platform, topic_prefix: str
) -> None:
    with pytest.raises(InvalidData, match="register it first"):
        Capture(memory, topic_prefix).worker()


def columns_of(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row of a request as the columns of a captured table."""
    features = {f"x{j}": value for j, value in enumerate(row["values"])}
    return {"id": row["id"], "target": row["target"][0], "household": "h", **features}


def test_updates_become_corrections_and_repeats_do_not_undo_them(
    in_memory: Callable[..., Capture],
) -> None:
    capture = in_memory(updates="correct")
    table = Table(capture.platform)
    sent = []
    for lsn in (1, 2):
        row = table.row("row-1")
        after = columns_of(row)
        sent.append((envelope("u", after=after, lsn=lsn), {"id": "row-1"}))
        table.rows["row-1"] = (np.array(row["values"]), np.array(row["target"]), 1.0)
    for value, key in [*sent, *sent]:  # the connector was killed
        capture.write(value, key)
    capture.read()
    capture.platform.drain()
    receipts = list(capture.platform.finals().values())
    assert [receipt.rows_corrected for receipt in receipts] == [1, 1]
    table.check()


def test_a_row_moves_to_its_new_key_but_an_erased_one_does_not_come_back(
    in_memory: Callable[..., Capture],
) -> None:
    capture = in_memory(**MOVING)
    platform, table = capture.platform, Table(capture.platform)
    table.delete("row-2")  # a person asked; the database still has the row
    platform.drain()
    for former in ("row-1", "row-2"):
        capture.lsn += 1
        row = table.row(f"new-{former}")
        key, old = {"id": row["id"]}, {"id": former}
        capture.write(envelope("d", before=old, lsn=capture.lsn), old, newkey=key)
        after = columns_of(row)
        capture.write(envelope("c", after=after, lsn=capture.lsn), key, oldkey=old)
        if former == "row-1":
            del table.rows[former]
            table.rows[row["id"]] = (np.array(row["values"]), np.array(row["target"]), 1.0)
    capture.read()
    platform.drain()
    table.check()


def test_a_row_that_moves_twice_between_two_readings_is_under_its_last_id(
    in_memory: Callable[..., Capture],
) -> None:
    capture = in_memory(**MOVING)
    platform, table = capture.platform, Table(capture.platform)
    for former, name in (("row-1", "new-1"), ("new-1", "new-2")):
        capture.lsn += 1
        row = table.row(name)
        after = columns_of(row)
        capture.write(
            envelope("c", after=after, lsn=capture.lsn), {"id": name}, oldkey={"id": former}
        )
    del table.rows["row-1"]
    table.rows["new-2"] = (np.array(row["values"]), np.array(row["target"]), 1.0)
    capture.read()
    platform.drain()
    table.check()


def test_a_row_whose_key_changes_takes_no_other_row_of_its_subject_along(
    in_memory: Callable[..., Capture],
) -> None:
    capture = in_memory(subject={"household": "text"}, deletes="subject", replica_identity="full")
    before = {"id": "row-4", "household": "subject-1"}
    capture.write(envelope("d", before=before), {"id": "row-4"}, newkey={"id": "new-4"})
    capture.read()
    capture.platform.drain()
    assert ledger_of(capture.platform).keys() == {"row-4"}


def test_a_worker_that_dies_while_a_row_moves_moves_it_once(
    in_memory: Callable[..., Capture],
) -> None:
    capture = in_memory(**MOVING)
    platform, table = capture.platform, Table(capture.platform)
    for number, step in enumerate(IntakeStep):
        row = table.row(f"new-{number}")
        key, old = {"id": row["id"]}, {"id": f"row-{number}"}
        after = columns_of(row)
        capture.write(envelope("c", after=after, lsn=number), key, oldkey=old)
        del table.rows[f"row-{number}"]
        table.rows[row["id"]] = (np.array(row["values"]), np.array(row["target"]), 1.0)
        capture.read_until_death(step)
        platform.drain()  # what it had sent takes effect before the next one reads
    capture.read()
    platform.drain()
    table.check()


def test_changes_that_were_lost_are_said_and_the_others_are_read(
    in_memory: Callable[..., Capture], capfd: pytest.CaptureFixture[str]
) -> None:
    capture = in_memory()
    [partition] = capture.platform.reader.partitions(capture.topic)
    name = intake_watermark(capture.mapping, partition)
    capture.platform.store.cursors.set_watermarks({name: 5})  # the topic was made anew
    capture.delete("row-1")
    worker = capture.worker()
    for _ in range(3):
        worker.run_once(0.02)
    worker.close()
    capture.platform.drain()
    assert "changes_lost" in "".join(capfd.readouterr())
    assert ledger_of(capture.platform).keys() == {"row-1"}


SNAPSHOT = ("first", "true", "last")


@pytest.mark.parametrize(
    ("before", "records", "said"),
    [
        ([], SNAPSHOT, 0),
        ([*SNAPSHOT, "false"], SNAPSHOT, 1),  # those of two snapshots
        (SNAPSHOT, SNAPSHOT, 1),
        ([*SNAPSHOT, "false"], ["incremental", "false", "incremental"], 0),
        ([*SNAPSHOT, "false"], [*SNAPSHOT, "false", "true"], 1),
    ],
    ids=[
        "the first",
        "another one",
        "one after the other",
        "beside the stream",
        "twice in one poll",
    ],
)
def test_a_snapshot_that_is_taken_again_is_said(
    in_memory: Callable[..., Capture],
    capfd: pytest.CaptureFixture[str],
    before: Sequence[str],
    records: Sequence[str],
    said: int,
) -> None:
    capture = in_memory()

    def write(markers: Sequence[str]) -> None:
        for number, marker in enumerate(markers):
            op = "c" if marker == "false" else "r"
            row = {"id": f"another-{number}"}
            capture.write(envelope(op, after=row, lsn=number, snapshot=marker), row)

    write(before)
    capture.read()
    assert "changes_lost" not in "".join(capfd.readouterr())
    write(records)
    capture.read()
    assert "".join(capfd.readouterr()).count("the connector took a snapshot again") == said


def test_changes_of_a_topic_that_was_made_again_are_said_to_be_lost(
    in_memory: Callable[..., Capture], capfd: pytest.CaptureFixture[str]
) -> None:
    capture = in_memory()
    capture.delete("row-1")
    capture.read()
    capture.delete("row-2")  # nobody reads it
    log: Any = capture.platform.log
    log.delete_topic(capture.topic)
    log.ensure_topics([TopicSpec(capture.topic)])
    capture.delete("row-3")
    capture.read()
    capture.platform.drain()
    said = "".join(capfd.readouterr())
    assert said.count("changes_lost") == 1
    assert "was made again" in said
    assert ledger_of(capture.platform).keys() == {"row-1", "row-3"}
    capture.delete("row-4")
    capture.read()
    [loss] = capture.platform.store.topics.losses()
    assert loss.topic.startswith(capture.topic)


def test_a_deleted_row_asks_for_all_rows_of_its_subject_where_the_mapping_says_so(
    in_memory: Callable[..., Capture],
) -> None:
    capture = in_memory(subject={"household": "text"}, deletes="subject", replica_identity="full")
    before = {"id": "row-4", "household": "subject-1"}
    capture.write(envelope("d", before=before), {"id": "row-4"})
    capture.read()
    capture.platform.drain()
    assert ledger_of(capture.platform).keys() == {"row-3", "row-4", "row-5"}
    check_model(capture.platform)


def test_requests_are_signed_where_they_must_be(in_memory: Callable[..., Capture]) -> None:
    capture = in_memory()
    signer = Signer(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
    keys = parse_request_keys(signer.public_text, "keys")
    capture.delete("row-1")
    capture.read(signer=signer)
    capture.platform.drain(capture.platform.deletion_worker(request_keys=keys))
    assert ledger_of(capture.platform).keys() == {"row-1"}


def test_a_row_does_not_lose_its_subject_when_its_key_changes(
    in_memory: Callable[..., Capture],
) -> None:
    capture = in_memory(updates="correct", key_changes="correct")
    with pytest.raises(InvalidData, match="have subjects"):
        capture.worker()
