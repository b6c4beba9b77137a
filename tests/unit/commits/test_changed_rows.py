"""The values of rows, read again from the log for a fold."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import pytest

from lethe.consumers.commits.commit import RowChange
from lethe.consumers.commits.recovery.change_requests import read_changes, request_in
from lethe.consumers.commits.recovery.changed_rows import check_values
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import RowsChanged
from lethe.consumers.log.base import Message, Partition, PartitionReset, Record
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Kind
from lethe.engine.store.layout.config import ModelConfig
from tests.support.memory_log import MemoryLog, MemoryReader


def test_values_are_read_again_only_where_they_are_the_same() -> None:
    log = MemoryLog()
    log.ensure_topics(topics.specs(1))
    rows = [{"id": "a", "values": [1.0, 2.0], "target": 3.0}]
    body = {"request_id": "r", "model_id": "m", "op": "insert", "rows": rows}
    value = json.dumps(body).encode()
    log.producer().publish([Message(topics.ROW_CHANGES, b"m", value)])
    reader = log.reader()
    [partition] = reader.partitions(topics.ROW_CHANGES)
    digest = hashlib.sha256(value).hexdigest()
    change = RowChange(True, ("a",), str(partition), 0, digest)
    [record] = read_changes(reader, [change]).values()
    assert request_in(record).rows[0].values == (1.0, 2.0)
    lost = [
        change._replace(digest=hashlib.sha256(b"other").hexdigest()),
        change._replace(offset=1),
        change._replace(partition="another-topic-of-this-name/0"),
    ]
    assert not read_changes(reader, lost)


class Counting(MemoryReader):
    """A reader that counts its reads, and whose next one finds that records have expired."""

    reads = 0
    expires = False

    def read(
        self, partition: Partition, offset: int, timeout: float, limit: int
    ) -> tuple[Sequence[Record], int]:
        self.reads += 1
        if self.expires:
            self.expires = False
            raise PartitionReset(partition, offset, None)
        return super().read(partition, offset, timeout, limit)


@pytest.mark.parametrize("expires", [False, True])
def test_values_that_lie_close_together_are_read_together(*, expires: bool) -> None:
    log = MemoryLog()
    log.ensure_topics(topics.specs(1))
    values = [_inserting(i) for i in range(1000)]
    log.producer().publish([Message(topics.ROW_CHANGES, b"m", value) for value in values])
    reader = Counting(log)
    reader.expires = expires
    [partition] = reader.partitions(topics.ROW_CHANGES)
    offsets = [7, 3, *range(10, 40, 3), 999, 500]
    changes = [
        RowChange(True, (f"row-{i}",), str(partition), i, hashlib.sha256(values[i]).hexdigest())
        for i in offsets
    ]
    found = read_changes(reader, changes)
    assert {one.offset: request_in(found[one]).row_ids for one in changes} == {
        i: (f"row-{i}",) for i in offsets
    }
    assert reader.reads == (3 if not expires else 3 + 12)


def _inserting(i: int) -> bytes:
    row = {"id": f"row-{i}", "values": [1.0], "target": 3.0}
    body = {"request_id": f"r{i}", "model_id": "m", "op": "insert", "rows": [row]}
    return json.dumps(body).encode()


def test_a_class_that_the_model_does_not_have_is_refused_without_its_name() -> None:
    """The message is the detail of a receipt, which everybody may read."""
    config = ModelConfig(
        model_id="m",
        kind=Kind.LOGISTIC,
        method="pru",
        ridge=1.0,
        fit_intercept=True,
        feature_names=("x",),
        target_names=("y",),
        class_names=("no", "yes"),
        error_budget=0.01,
    )
    row = {"id": "a", "values": [1.0], "target": "bankrupt"}
    request = RowsChanged.model_validate(
        {"request_id": "r", "model_id": "m", "op": "insert", "rows": [row]}
    )
    with pytest.raises(InvalidData, match="none of the classes") as refused:
        check_values(request, config, {})
    assert "bankrupt" not in str(refused.value)
