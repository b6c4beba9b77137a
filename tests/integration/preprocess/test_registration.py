"""Registrations with preprocessing, while rows of theirs are deleted or erased."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from lethe.consumers.audit.verify import verify
from lethe.consumers.contract.topics import specs
from lethe.consumers.service.telemetry.steps import Step
from lethe.consumers.workers.erasure_worker import ErasureWorker
from lethe.engine.preprocess.input.columns import Columns, Numeric, OneHot, Ordinal, TargetEncode
from lethe.engine.store.layout.keys import ModelKeys
from tests.integration.store.test_erased_data import memory_of
from tests.support import erasures
from tests.support.erasures import erase
from tests.support.pipelines import Rows
from tests.support.platform import Platform
from tests.support.prepared import PreparedTable

NUMBERS = [1.0, 2.0, 4.0, 8.0, 16.0, 3.0, 5.0, 7.0]
NAME = "Aldebaran"
"""The category that only the row of one subject has."""


@pytest.fixture
def worker(memory: Platform) -> Iterator[ErasureWorker]:
    with closing(erasures.erasure_worker(memory)) as worker:
        yield worker


def a_table(platform: Platform, columns: Columns, **values: list[Any]) -> PreparedTable:
    """Return a table of eight rows, of which the last one is of subject s."""
    rows: Rows = {name: np.array(given, dtype=object) for name, given in values.items()}
    y = np.arange(8) % 5 + 0.1 * np.arange(8)
    return PreparedTable(platform, columns, rows=rows, y=y, subjects={"s": ["row-7"]})


def named_table(platform: Platform) -> PreparedTable:
    """Return a table with categories of every kind; one is the last row's alone."""
    columns: Columns = {"x": Numeric(), "a": OneHot(), "b": TargetEncode(), "c": Ordinal()}
    letters = ["p", "q", "p", "q", "p", "q", "p", NAME]
    return a_table(platform, columns, x=NUMBERS, a=letters, b=letters, c=letters)


def where_it_stands(platform: Platform, name: str) -> int:
    """Return how many values of the store and messages of the log hold a name."""
    sought = name.encode()
    topics_read = (platform.records(spec.name) for spec in specs())
    messages = [record.value or b"" for records in topics_read for record in records]
    return sum(sought in one for one in [*memory_of(platform.raw()), *messages])


def test_a_name_is_found_where_it_stands(memory: Platform) -> None:
    named_table(memory).register()
    assert where_it_stands(memory, NAME)


def test_no_category_of_an_erased_subject_alone_is_named(
    memory: Platform, worker: ErasureWorker
) -> None:
    table = named_table(memory)
    erase(memory, "s", "e-1")
    erasures.drain(memory, worker)
    assert table.register().erased == 1
    del table.live[7]
    assert where_it_stands(memory, NAME) == 0
    assert memory.load().meta.config.feature_names == ("x", "a_p", "a_q", "b", "c")
    table.check()
    table.delete(0)
    memory.drain()
    table.check()
    assert verify(memory.store, "m").holds


def test_no_category_is_named_of_a_subject_that_is_erased_while_rows_are_staged(
    memory: Platform, worker: ErasureWorker
) -> None:
    table = named_table(memory)
    seen: list[str] = []

    def erased_meanwhile(step: str) -> None:
        if step == Step.REGISTER_STAGE and not seen:
            seen.append(step)
            erase(memory, "s", "e-1")
            erasures.drain(memory, worker)

    assert table.register(at_step=erased_meanwhile).erased == 1
    assert seen
    del table.live[7]
    assert where_it_stands(memory, NAME) == 0
    assert memory.load().version == 0
    table.check()


def test_statistics_that_move_too_far_while_rows_are_staged_are_fitted_again(
    memory: Platform,
) -> None:
    """Without the last row, a column becomes constant: what is staged cannot follow by a step."""
    columns: Columns = {"x": Numeric(), "z": Numeric()}
    table = a_table(memory, columns, x=NUMBERS, z=[0.0] * 7 + [1.0])
    table.register()
    seen: list[str] = []

    def deleted_meanwhile(step: str) -> None:
        if step == Step.REGISTER_STAGE and not seen:
            seen.append(step)
            table.delete(7)
            memory.drain()

    table.register(replace_model=True, at_step=deleted_meanwhile)
    assert seen
    table.check()
    model = ModelKeys("m")
    names = {key.decode() for key in memory.raw().scan_iter(match=f"{model.head[:-4]}gen:*")}
    live = set(memory.load().generation_keys.everything())
    assert names <= live
