"""Exact sums as the store keeps them: what is written is read, and nothing else is believed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lethe.engine.error.drift import sums_fault
from lethe.engine.errors import CorruptState
from lethe.engine.exact.rows import MOST
from lethe.engine.exact.running import Solution
from lethe.engine.exact.sums import Sums
from lethe.engine.fit.objective import Array, Kind, Rows
from lethe.engine.preprocess.input.columns import Columns, Numeric, OneHot, TargetEncode
from lethe.engine.preprocess.input.settings import Settings
from lethe.engine.preprocess.input.table import read_table
from lethe.engine.preprocess.rounded.raw import RawColumns
from lethe.engine.preprocess.rounded.solution import PipelineSolution
from lethe.engine.store.layout.exact_sums import new_fields, packed_whole, read_solution
from lethe.engine.store.layout.preprocessing import layout_of, recorded
from tests.support.pipelines import draw_rows
from tests.support.row_files import InBlocks

D, M = 4, 2
PENALTY = np.full(D, 0.5)


def rows(n: int, seed: int = 0, *, scale: float = 1.0) -> Rows:
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(n, D)) * scale * 10.0 ** np.arange(-3, 2 * D - 3, 2)
    weight: Array = 10.0 ** draw.integers(-8, 8, n).astype(np.float64)
    return Rows(X, draw.normal(size=(n, M)), weight)


def fresh(data: Rows) -> Solution:
    return Solution.of(Sums.of(data), PENALTY).stored()


class Hash(dict[bytes, bytes]):
    """The hash of a store, written as commits write it."""

    def __init__(self, solution: Solution) -> None:
        super().__init__()
        self.take(packed_whole(solution.whole()))

    def take(self, fields: dict[str, bytes], *, whole: bool = False) -> None:
        if whole:
            self.clear()
        self.update({name.encode(): value for name, value in fields.items()})

    def read(self, theta: Array | None = None) -> Solution:
        return read_solution(self, PENALTY, M, "model 'm'", theta)


def test_what_steps_write_is_what_is_read_whole_or_beside() -> None:
    """Also where one step both makes the sums whole and goes on: an insert, then a deletion."""
    live, solution = rows(200), fresh(rows(200))
    stored, whole = Hash(solution), 0
    for step, count in enumerate((1, 3, 40, 30, 2, 33, 1)):
        new, old = rows(count, step + 1, scale=10.0**step), live.take(slice(0, count))
        after = solution.changed(None, new).changed(old, None)
        fields, renews = new_fields(solution, after)
        stored.take(fields, whole=renews)
        whole += renews
        rest = live.take(slice(count, None))
        live = Rows(
            np.vstack([rest.X, new.X]),
            np.vstack([rest.y, new.y]),
            np.concatenate([rest.weight, new.weight]),
        )
        solution = after
        found = stored.read(solution.minimiser.theta)
        assert found.live_sums.equal(Sums.of(live, solution.sums.unit))
        assert np.array_equal(found.minimiser.theta, fresh(live).minimiser.theta)
        assert found.kept is not None
        assert sum(len(part.rows) for part in found.kept.since) <= MOST
        solution = found if step % 2 else solution
    assert whole == 2


def test_a_step_that_moves_nothing_writes_nothing() -> None:
    solution = fresh(rows(20))
    nothing = rows(3, 1)
    weightless = Rows(nothing.X, nothing.y, np.zeros(3))
    assert new_fields(solution, solution.changed(weightless, None)) == ({}, False)
    assert new_fields(None, None) == ({}, False)


def test_sums_that_no_store_keeps_remember_no_row() -> None:
    solution = Solution.of(Sums.of(rows(20)), PENALTY)
    assert solution.changed(rows(20).take(slice(0, 1)), None).kept is None


@pytest.mark.parametrize("damage", ["cut", "longer", "format", "targets", "digit", "missing"])
def test_damaged_sums_are_refused_in_one_line(damage: str) -> None:
    stored = Hash(fresh(rows(20)))
    whole = stored[b"all"]
    stored[b"all"] = {
        "cut": whole[:-1],
        "longer": whole + b"\0\0\0\0",
        "format": b"\2" + whole[1:],
        "targets": whole[:3] + b"\1" + whole[4:],
        "digit": whole[:-1] + b"\x7f",
        "missing": b"",
    }[damage]
    with pytest.raises(CorruptState, match=r"^model 'm', its sums: are damaged.*--replace$"):
        stored.read()


@pytest.mark.parametrize("damage", ["sign", "weight", "width", "nothing", "not finite"])
def test_a_damaged_row_beside_sums_is_refused_in_one_line(damage: str) -> None:
    solution = fresh(rows(20))
    stored = Hash(solution)
    stored.take(new_fields(solution, solution.changed(None, rows(2, 1)))[0])
    numbers = np.frombuffer(stored[b"since:0"]).copy()
    if damage in ("sign", "weight", "not finite"):
        place, value = {"sign": (0, 2.0), "weight": (1, -1.0), "not finite": (3, np.inf)}[damage]
        numbers[place] = value
    cut = {"width": numbers[:-1], "nothing": numbers[:1]}.get(damage, numbers)
    stored[b"since:0"] = cut.tobytes()
    with pytest.raises(CorruptState, match=r"^model 'm', its sums: "):
        stored.read()


def test_sums_that_do_not_give_the_heads_parameters_are_refused() -> None:
    solution = fresh(rows(20))
    theta = solution.minimiser.theta.copy()
    theta[0, 0] = np.nextafter(theta[0, 0], np.inf)
    with pytest.raises(CorruptState, match="do not give the parameters that its head has"):
        Hash(solution).read(theta)


# -- with preprocessing -------------------------------------------------------------------------

COLUMNS: Columns = {"x": Numeric(), "c": OneHot(), "t": TargetEncode()}


def pipeline(n: int, seed: int = 0) -> tuple[RawColumns, Rows]:
    """Return raw rows of a weight of 1, of which every category has one."""
    draw = np.random.default_rng(seed)
    given = draw_rows(COLUMNS, n, draw)
    records, table = recorded(COLUMNS, read_table(COLUMNS, given))
    settings = Settings(COLUMNS, Kind.LINEAR, 1.0, intercept=True, penalise_intercept=False)
    raw = RawColumns(settings, layout_of(records), table.vocabularies)
    return raw, raw.rows(table, draw.normal(size=(n, 1)), np.ones(n))


@pytest.mark.parametrize("weighted", [False, True])
def test_a_pipeline_is_read_as_it_was_written_whole_or_beside(weighted: bool) -> None:
    """With a weight that comes later, too: sums without weights are kept from then on."""
    raw, live = pipeline(120)
    solution = PipelineSolution.of_rows(raw, live).stored()
    stored: dict[bytes, bytes] = {}
    stored |= {name.encode(): value for name, value in packed_whole(solution.whole()).items()}
    rest = live
    for step, count in enumerate((2, 40, 50)):
        part = rest.take(slice(0, count))
        again = Rows(part.X, part.y, np.full(count, 0.5 if weighted else 1.0))
        after = solution.changed(part, again)
        fields, whole = new_fields(solution, after)
        stored = {} if whole else stored
        stored |= {name.encode(): value for name, value in fields.items()}
        rest = Rows(
            np.vstack([rest.X[count:], again.X]),
            np.vstack([rest.y[count:], again.y]),
            np.append(rest.weight[count:], again.weight),
        )
        solution = after
        found = read_solution(
            stored, solution.penalty, 1, "model 'm'", solution.minimiser.theta, raw
        )
        assert (b"plain" in stored) == (weighted and step > 0)
        assert sums_fault(found, rest) is None
        assert np.array_equal(
            found.minimiser.theta, PipelineSolution.of_rows(raw, rest).minimiser.theta
        )


def test_an_audit_adds_up_blocks_of_rows() -> None:
    live = rows(20)
    solution = Solution.of(Sums.of(live), PENALTY)
    assert sums_fault(solution, InBlocks(live, 7)) is None
    assert sums_fault(solution, InBlocks(live.take(slice(19)), 7)) is not None


def test_an_audit_finds_damaged_sums_of_either_kind() -> None:
    raw, live = pipeline(60)
    live.weight[3] = 2.0
    solution = PipelineSolution.of_rows(raw, live)
    other = live.take(np.arange(60) != 5)
    assert sums_fault(solution, live) is None
    assert sums_fault(solution, other) is not None
    plain = PipelineSolution.of_rows(raw, other).plain
    assert sums_fault(replace(solution, plain=plain), live) is not None
    assert sums_fault(replace(solution, plain=None), live) is not None
