from __future__ import annotations

from collections.abc import Callable
from copy import copy, deepcopy

import numpy as np
import pytest

from lethe.engine.deletion.growing import GrowingRows


def test_appending_leaves_the_shorter_matrix_as_it_was() -> None:
    first = GrowingRows.of(np.ones((2, 3)))
    second = first.append(np.full((1, 3), 2.0))
    third = second.append(np.full((40, 3), 3.0))
    assert (len(first), len(second), len(third)) == (2, 3, 43)
    assert first.array.tolist() == [[1.0] * 3] * 2
    assert second.array[2].tolist() == [2.0] * 3
    assert third.array[-1].tolist() == [3.0] * 3


def test_two_futures_of_one_matrix_do_not_meet() -> None:
    base = GrowingRows.of(np.zeros((1, 2)))
    left, right = base.append(np.ones((1, 2))), base.append(np.full((1, 2), 2.0))
    assert left.array[1].tolist() == [1.0, 1.0]
    assert right.array[1].tolist() == [2.0, 2.0]
    assert base.append(np.empty((0, 2))).array.tolist() == [[0.0, 0.0]]


def test_the_view_cannot_be_written_to() -> None:
    rows = GrowingRows.of(np.ones((2, 2)))
    with pytest.raises(ValueError, match="read-only"):
        rows.array[0, 0] = 5.0


def test_the_source_is_copied() -> None:
    source = np.ones((2, 2))
    rows = GrowingRows.of(source)
    source[:] = 7.0
    assert rows.array.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_appending_one_row_at_a_time_seldom_copies() -> None:
    rows, buffers = GrowingRows.empty(2), set()
    for i in range(1000):
        rows = rows.append(np.full((1, 2), float(i)))
        buffers.add(rows.array.__array_interface__["data"][0])
    assert rows.array[:, 0].tolist() == [float(i) for i in range(1000)]
    assert len(buffers) <= 8


@pytest.mark.parametrize("copied", [copy, deepcopy])
def test_a_copy_has_a_buffer_of_its_own(copied: Callable[[GrowingRows], GrowingRows]) -> None:
    base = GrowingRows.of(np.ones((2, 3)))
    other = copied(base)
    left, right = base.append(np.full((1, 3), 2.0)), other.append(np.full((1, 3), 3.0))
    assert left.array[2].tolist() == [2.0] * 3
    assert right.array.tolist() == [[1.0] * 3, [1.0] * 3, [3.0] * 3]
    with pytest.raises(ValueError, match="read-only"):
        right.array[0, 0] = 5.0
