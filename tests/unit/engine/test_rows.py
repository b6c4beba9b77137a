from __future__ import annotations

import numpy as np
import pytest

from lethe.engine.deletion.generation import Generation
from lethe.engine.errors import InvalidData, UnknownRows
from lethe.engine.fit.classes import one_sided
from lethe.engine.fit.objective import Kind, Objective, Rows
from lethe.engine.rows import Membership, checked_rows, numbers


def _members() -> Membership:
    rows = Rows(np.arange(1.0, 9.0).reshape(4, 2), np.arange(4.0)[:, None] + 1, np.ones(4))
    return Membership.of(Kind.LINEAR, ("a", "b", "c", "d"), rows, rows.X * 10)


def _generation() -> Generation:
    objective = Objective(Kind.LOGISTIC, np.ones(2))
    return Generation(0, objective, np.zeros((2, 1)), 1.0, 1.0, 0.0)


def test_live_rows_are_named_once_and_in_the_order_asked() -> None:
    members = _members()
    assert members.live_among(["c", "a", "c"]) == ("c", "a")
    members.forget(("a",))
    assert members.live_among(["c", "a"]) == ("c",)
    assert members.live_ids() == ("b", "c", "d")
    assert len(members) == 3
    assert members.live_without(("b",)).tolist() == [False, False, True, True]
    assert len(members) == 3


def test_a_row_that_never_was_is_named() -> None:
    with pytest.raises(UnknownRows, match=r"2 of 3 ids .* the first is 'x'"):
        _members().live_among(["a", "x", "y"])
    with pytest.raises(InvalidData, match="not the string 'abc'"):
        _members().live_among("abc")


def test_forgetting_overwrites_what_is_known_of_a_row_and_nothing_else() -> None:
    members = _members()
    members.forget(("b", "d"))
    for array in (members.rows.X, members.rows.y, members.W):
        assert array.any(axis=1).tolist() == [True, False, True, False]
    members.forget(())
    assert len(members) == 2


def test_sentinels_are_live_rows_with_their_own_dual_rows() -> None:
    members = _members()
    members.forget(("a",))
    sentinels = members.sentinels(_generation(), seed=0)
    assert sentinels.ids == ("b", "c", "d")
    np.testing.assert_array_equal(sentinels.W, members.W[1:])
    members.forget(("b",))
    assert sentinels.W[0].any()  # a sample is a copy: it is renewed, never changed


def test_rows_of_each_class_are_counted_as_they_go() -> None:
    y = np.eye(3)[[0, 1, 2, 0]]
    rows = Rows(np.ones((4, 2)), y, np.ones(4))
    members = Membership.of(Kind.LOGISTIC, ("a", "b", "c", "d"), rows, np.ones((4, 6)))
    assert members.counts == (2, 1, 1)
    assert members.counts_without(("a", "b")) == (1, 0, 1)
    members.forget(("a",))
    assert (members.counts, len(members)) == ((1, 1, 1), 3)
    assert members.counts_without(("d",)) == (0, 1, 1)
    assert _members().counts == (4,)  # a linear model has no classes: all rows together


def test_rows_without_a_weight_do_not_count() -> None:
    rows = Rows(np.ones((3, 2)), np.array([[1.0], [0.0], [1.0]]), np.array([1.0, 2.0, 0.0]))
    members = Membership.of(Kind.LOGISTIC, ("a", "b", "c"), rows, np.ones((3, 2)))
    assert (members.counts, members.weighted, len(members)) == ((1, 1), 2, 3)
    assert members.counts_without(("c",)) == (1, 1)


def test_numbers_are_copied_and_their_dimensions_checked() -> None:
    source = np.ones((2, 2))
    copy = numbers(source, "X", (2,))
    copy[:] = 0
    assert source.all()
    with pytest.raises(InvalidData, match="y must have 1 or 2 dimensions, not 3"):
        numbers(np.ones((1, 1, 1)), "y", (1, 2))


def test_ids_default_to_places_and_the_intercept_is_appended() -> None:
    ids, rows, _ = checked_rows(Kind.LINEAR, [[5.0], [6.0]], [1, 2], None, None, intercept=True)
    assert ids == ("0", "1")
    assert rows.X.tolist() == [[5.0, 1.0], [6.0, 1.0]]
    assert rows.y.tolist() == [[1.0], [2.0]]


def test_one_class_is_a_matter_of_logistic_models_only() -> None:
    rows = Rows(np.ones((2, 1)), np.ones((2, 1)), np.ones(2))
    assert one_sided(Kind.LOGISTIC, rows)
    assert not one_sided(Kind.LINEAR, rows)
