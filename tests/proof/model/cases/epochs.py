"""A log that loses what it acknowledged: what is seen, and what `recover` needs."""

from __future__ import annotations

from dataclasses import replace

from tests.proof.model.case import Case, Run, exhaustive, holding, removed, walks
from tests.proof.model.epochs import EpochsModel
from tests.proof.model.epochs_state import Bounds, Rules

_GROUP = "epochs"
_LENGTH = 100
_SMALL = Bounds(requests=("r1", "r2"), appends=2)
_LAGS = replace(_SMALL, cursor_lags=True)
_MADE_AGAIN = replace(_SMALL, appends=3, losses=0, remade=1, recoveries=0)
_BIG = Bounds(appends=8, crashes=2, losses=2, elections=1, remade=1, recoveries=2, log_length=9)
_BIG_LAGS = replace(_BIG, cursor_lags=True)
_RESTARTS = replace(_BIG, rollbacks=1, crashes=0)
_FORGED = Bounds(appends=2, losses=0, rollbacks=1, forged=1)
_BIG_FORGED = replace(_BIG, rollbacks=1, forged=2, log_length=12)


def epochs_cases() -> list[Case]:
    """Return every case of leader epochs and of `recover`."""
    cases = []
    for name, bounds in (
        ("2 appends, the log loses one", _SMALL),
        ("3 appends, the topic is made again", _MADE_AGAIN),
    ):
        cases.append(holding(_GROUP, name, _states(bounds), _states(bounds)))
    for name, bounds in (
        ("2 appends, a loss, the apply cursor lags", _LAGS),
        ("2 appends, a record that is ahead, the store goes back", _FORGED),
        ("3 appends, a loss", replace(_SMALL, appends=3)),
        ("2 appends, 2 losses, a crash", replace(_SMALL, losses=2, crashes=1)),
    ):
        cases.append(holding(_GROUP, name, _states(bounds)))
    for name, bounds in (
        ("walks", _BIG),
        ("walks, the apply cursor lags", _BIG_LAGS),
        ("walks, the store goes back, too, and all restart", _RESTARTS),
        ("walks, and others write records that are ahead", _BIG_FORGED),
    ):
        cases.append(holding(_GROUP, name, _walks(bounds, 5000), _walks(bounds, 120)))
    cases.append(
        removed(
            _GROUP,
            Rules(),
            "topic_compared",
            "the log has lost",
            lambda rules: _states(_MADE_AGAIN, rules),
        )
    )
    for name, broken, bounds in (
        ("epoch_compared", "the log has lost", _BIG),
        ("digest_compared", "", _BIG),
        ("head_placed", "the log has lost", _BIG_LAGS),
        ("applied_first", "", _BIG),
        ("same_digest", "two commits", _BIG),
        ("recover_fences", "", _BIG),
        ("moves_compared", "", _BIG),
        ("branch_dropped", "", _BIG),
        ("receipts_carried", "never published", _BIG),
        ("published_asked", "halts nevertheless", _RESTARTS),
        ("versions_asked", "are published", _RESTARTS),
        ("gap_applied", "recover cannot go on", _BIG_FORGED),
    ):
        cases.append(_without(name, broken, bounds))
    even = Rules(ahead_halts=False)
    cases.append(
        holding(
            _GROUP,
            "walks, even without ahead_halts",
            _walks(_BIG, 1000, even),
            _walks(_BIG, 30, even),
        )
    )
    return cases


def _states(bounds: Bounds, rules: Rules | None = None) -> Run:
    return exhaustive(lambda: EpochsModel(bounds, rules))


def _walks(bounds: Bounds, number: int, rules: Rules | None = None) -> Run:
    return walks(lambda: EpochsModel(bounds, rules), number, _LENGTH, seed=2)


def _without(name: str, broken: str, bounds: Bounds) -> Case:
    return removed(_GROUP, Rules(), name, broken, lambda rules: _walks(bounds, 2000, rules))
