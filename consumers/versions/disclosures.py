"""What the versions of a model disclose of its rows, added to the commits that make them.

docs/disclosure.md says what that means; `engine.disclosure` has the mathematics.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from lethe.consumers.commits.commit import Commit, RowDisclosed
from lethe.consumers.contract.requests import is_of_erasure
from lethe.consumers.versions.draft import Transition
from lethe.engine.deletion.change import RowsAndDuals
from lethe.engine.deletion.generation import Generation, Stream, current_dual_rows
from lethe.engine.disclosure import (
    NOT_KNOWN,
    Changes,
    Price,
    ResidualScale,
    begin_scale,
    disclose,
    dual_error_in,
)
from lethe.engine.error.terms import ObjectiveNoise
from lethe.engine.errors import InvalidData
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.objective import Array, Kind, Rows
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.disclosed import RowFate
from lethe.engine.store.layout.meta import with_meta
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.layout.stored_rows import read_rows


def check_disclosure(config: ModelConfig) -> None:
    """Refuse to keep disclosures of a model for which they cannot be stated.

    Raises
    ------
    InvalidData
        The model is none of those.
    """
    covered = (
        config.kind is Kind.LINEAR
        and config.m == 1
        and config.method == "exact"
        and not config.preprocess
        and not isinstance(config.certify, ObjectiveNoise)
    )
    if config.disclosure and not covered:
        raise InvalidData(
            "--disclosure is for linear models of one target by --method exact, without "
            "--preprocess and --certify: for others it is not known exactly what versions disclose"
        )


def measured_scale(
    config: ModelConfig, generation: Generation, stream: Stream, rows: Rows, dual: Array
) -> ResidualScale | None:
    """Return what distances are measured in after a fit; None if disclosures are not kept.

    Of the rows that it is a fit of, and their dual rows, which are those of the generation.
    """
    if not config.disclosure:
        return None
    return begin_scale(rows, dual, stream.theta_exact, generation.dual_error)


def scale_without(
    state: ModelState, scale: ResidualScale, after: Stream, leaving: RowsAndDuals
) -> ResidualScale:
    """Return the scale of a state once rows are left out of it."""
    after_state = replace(state, stream=after)
    return _priced(state, scale, after_state, leaving, len(leaving.rows))[1]


def with_scale_measured(
    transition: Transition,
    before: ModelState,
    then: ResidualScale | None,
    measured: ResidualScale | None,
    *,
    same: bool,
) -> Transition:
    """Return a transition to a generation whose scale was ``measured`` when it was made.

    Parameters
    ----------
    transition, before
        What changes, and the state before.
    then
        The scale that the state had when the rows were read.
    same
        Whether the generation has had all changes of rows since then.
    """
    now = before.meta.disclosure
    if now is None or then is None or measured is None:
        return transition
    if now.known and then.known:
        scale = now.since(then, measured)
    else:
        scale = measured if same else NOT_KNOWN
    commit, after = transition.commit, transition.after
    meta = with_meta(commit.meta, disclosure=scale)
    return replace(transition, commit=replace(commit, meta=meta), after=replace(after, meta=meta))


def rows_erased(requests: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the rows of those requests, by request id, that erase a person."""
    return [row for request, rows in requests.items() if is_of_erasure(request) for row in rows]


def with_disclosures(
    transition: Transition,
    before: ModelState,
    records: Mapping[str, bytes],
    *,
    erased: Collection[str] = (),
    factor: Factor | None = None,
) -> Transition:
    """Return a transition whose commit also has what its version discloses of rows.

    Parameters
    ----------
    transition, before
        What changes, and the state before.
    records
        The records of rows that it deletes or corrects, as they were before.
    erased
        Rows of people who are erased: nothing is kept of them, also if they were deleted before.
    factor
        That of the generation afterwards, if it is another one.

    Notes
    -----
    Cost O(k^2 d + K k d), that of a step; with a factor O(k d^2) more. Nothing for a model whose
    disclosures are not kept.
    """
    scale, commit = before.meta.disclosure, transition.commit
    if scale is None:
        return transition
    went, came = (*commit.erased, *commit.corrected), (*commit.inserted, *commit.corrected)
    prices: Mapping[str, Price] = {}
    written = {} if transition.written is None else transition.written.records
    known = records.keys() >= set(went) and written.keys() >= set(came)
    if not known:
        scale = NOT_KNOWN
    elif (went or came) and not commit.leaves_no_row:
        lines = [*(records[row] for row in went), *(written[row] for row in came)]
        order = {row: n for n, row in enumerate(dict.fromkeys((*went, *came)))}
        groups: list[list[int]] = [[] for _ in order]
        for line, row in enumerate((*went, *came)):
            groups[order[row]].append(line)
        what = f"model {before.model_id!r}, rows that change"
        moved = read_rows(before.meta.config, None, lines, what).moved
        if factor is not None:
            moved = moved._replace(W=factor.solve(moved.rows.X.T).T)
        found, scale = _priced(before, scale, transition.after, moved, len(went), groups)
        prices = dict(zip(order, found, strict=False))
    meta = with_meta(commit.meta, disclosure=scale)
    disclosed = tuple(
        _disclosed(row, fate, prices.get(row)) for row, fate in _fates(commit) if row not in erased
    )
    commit = replace(commit, meta=meta, disclosed=disclosed, undisclosed=tuple(erased))
    return replace(transition, commit=commit, after=replace(transition.after, meta=meta))


def _fates(commit: Commit) -> list[tuple[str, RowFate]]:
    return [
        *((row, RowFate.DELETED) for row in commit.erased),
        *((row, RowFate.CORRECTED) for row in commit.corrected),
        *((row, RowFate.INSERTED) for row in commit.inserted),
    ]


def _disclosed(row: str, fate: RowFate, price: Price | None) -> RowDisclosed:
    numbers = (None, None) if price is None else (price.distance, price.length)
    finite = (None if n is None or not math.isfinite(n) else n for n in numbers)
    return RowDisclosed(row, fate, *finite)


def _priced(
    before: ModelState,
    scale: ResidualScale,
    after: ModelState,
    moved: RowsAndDuals,
    went: int,
    groups: Sequence[Sequence[int]] = (),
) -> tuple[list[Price], ResidualScale]:
    """Return the price of each group of rows; the first ``went`` are gone afterwards."""
    rows, W = moved.rows, moved.W
    dual = current_dual_rows(after.stream, rows.X, W)
    wrong, earlier, wrong_earlier = dual_error_in(after.generation, after.stream), None, 0.0
    if went < len(rows):
        earlier = current_dual_rows(before.stream, rows.X, W)
        wrong_earlier = dual_error_in(before.generation, before.stream)
    signs = np.repeat([-1.0, 1.0], [went, len(rows) - went])
    changes = Changes(rows, signs, groups, dual, earlier, wrong, wrong_earlier)
    penalty = before.generation.objective.penalty
    old, new = before.stream.theta_exact, after.stream.theta_exact
    with np.errstate(over="ignore", invalid="ignore"):
        return disclose(scale, penalty, old, new, changes)
