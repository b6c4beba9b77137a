"""The commit and the fold: which forms hold, and what catches each rule taken away."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tests.proof.model.case import Case, Run, exhaustive, holding, nearest, partly, removed, walks
from tests.proof.model.commit import CommitModel
from tests.proof.model.commit_state import ANY_ORDER, PUBLISH_FIRST, Bounds, Rules

_GROUP = "commit"
_LENGTH = 150
_STATES = 200_000
_ONE_MODEL = (("a1", 0), ("a2", 0))
_TWO_MODELS = (("a1", 0), ("b1", 1))
_SMALL = Bounds(requests=_ONE_MODEL, pairs=False, appends=2, rollbacks=1)
_BIG = Bounds(
    requests=(("a1", 0), ("a2", 0), ("a3", 0), ("b1", 1), ("b2", 1)),
    appends=8,
    crashes=3,
    rollbacks=3,
    lost_answers=3,
    failed_flushes=1,
    log_length=8,
)
_SINGLE_NODE = replace(_BIG, conditional=True)

_EXHAUSTIVE_QUICK = {
    "2 appends, a rollback": _SMALL,
    "2 appends, slow reads of a fold": replace(_SMALL, slow_reads=True),
    "2 appends, published in any order, flushes overlap": replace(
        _SMALL, rollbacks=0, order=ANY_ORDER, overlap=True, failed_flushes=1
    ),
}
_EXHAUSTIVE_FULL = {
    "2 appends, a crash, a rollback": replace(_SMALL, crashes=1),
    "3 appends, a crash, a rollback, a lost answer": replace(
        _SMALL, appends=3, crashes=1, lost_answers=1
    ),
    "2 models, 3 appends, 2 rollbacks": Bounds(requests=_TWO_MODELS, rollbacks=2),
}
_NEAREST = {
    "3 appends, slow reads, a lost answer": replace(
        _SMALL, appends=3, slow_reads=True, lost_answers=1
    ),
    "3 appends, any order, overlap, a failed flush": replace(
        _SMALL, appends=3, order=ANY_ORDER, overlap=True, failed_flushes=1
    ),
    "2 models, single node, 3 appends": replace(
        _SMALL, requests=_TWO_MODELS, appends=3, conditional=True, crashes=1
    ),
}
_WALKED = {
    "walks": _BIG,
    "walks, slow reads": replace(_BIG, slow_reads=True),
    "walks, rows stay erased": replace(_BIG, rows_roll_back=False, slow_reads=True),
    "walks, published before applied": replace(_BIG, order=PUBLISH_FIRST),
    "walks, published in any order": replace(_BIG, order=ANY_ORDER, slow_reads=True),
    "walks, flushes overlap": replace(_BIG, overlap=True, order=ANY_ORDER, slow_reads=True),
    "walks, a reader without a partition": replace(_BIG, reader=True, slow_reads=True),
    "walks, single node": _SINGLE_NODE,
}


def commit_cases() -> list[Case]:
    """Return every case of the commit."""
    cases = []
    for name, bounds in _EXHAUSTIVE_QUICK.items():
        cases.append(holding(_GROUP, name, _all_states(bounds), _all_states(bounds)))
    for name, bounds in _EXHAUSTIVE_FULL.items():
        cases.append(holding(_GROUP, name, _all_states(bounds)))
    for name, bounds in _NEAREST.items():
        run = nearest(partial(CommitModel, bounds), _STATES)
        cases.append(partly(_GROUP, f"{name}, nearest states", run))
    for name, bounds in _WALKED.items():
        cases.append(holding(_GROUP, name, _walks(bounds, 3000), _walks(bounds, 60)))
    slow = replace(_BIG, slow_reads=True)
    cases += [
        _without("gap_read", "believes", _BIG),
        _without("gap_published", "never published", _BIG),
        _without("apply_cursor", "a fresh worker", _BIG),
        _without("prev_compared", "", _BIG),
        _without("arrays_id", "nothing says so", slow),
        _without("refold", "a fresh worker ends", replace(_BIG, rows_roll_back=False), seed=4),
        _without("end_after_heads", "halts", slow),
        _without("one_flush", "versions appear", replace(_BIG, overlap=True)),
        _without("failed_flush_folds", "versions appear", _BIG),
    ]
    return cases + _published_cursor_cases() + _single_node_cases()


def _published_cursor_cases() -> list[Case]:
    """The published cursor stands behind the rule that a failed flush drops the memory."""
    bounds = replace(_BIG, failed_flushes=2, versions_ordered=False)
    kept = Rules(failed_flush_folds=False)
    return [
        holding(
            _GROUP,
            "walks, memory kept after a failed flush",
            _walks(bounds, 2000, kept),
            _walks(bounds, 60, kept),
        ),
        removed(
            _GROUP,
            kept,
            "published_cursor",
            "never published",
            lambda rules: _walks(bounds, 600, rules),
            ", memory kept after a failed flush",
        ),
    ]


def _single_node_cases() -> list[Case]:
    """What the conditional append of single-node mode makes unnecessary, and what it does not."""
    cases = [
        _without(name, broken, _SINGLE_NODE, ", single node")
        for name, broken in (
            ("gap_read", ""),
            ("gap_published", "never published"),
            ("prev_compared", ""),
            ("failed_flush_folds", "versions appear"),
            ("lost_connection", ""),
        )
    ]
    for name in ("apply_cursor", "published_cursor", "arrays_id", "refold"):
        rules = replace(Rules(), **{name: False})
        cases.append(
            holding(
                _GROUP,
                f"walks, single node, even without {name}",
                _walks(_SINGLE_NODE, 1000, rules),
                _walks(_SINGLE_NODE, 20, rules),
            )
        )
    return cases


def _all_states(bounds: Bounds) -> Run:
    return exhaustive(lambda: CommitModel(bounds))


def _walks(bounds: Bounds, number: int, rules: Rules | None = None, seed: int = 11) -> Run:
    return walks(lambda: CommitModel(bounds, rules), number, _LENGTH, seed)


def _without(name: str, broken: str, bounds: Bounds, note: str = "", seed: int = 11) -> Case:
    return removed(
        _GROUP, Rules(), name, broken, lambda rules: _walks(bounds, 600, rules, seed), note
    )
