"""Registration: the opening, and the life of a model from registration to registration."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tests.proof.model import lifecycle_state as life, opening
from tests.proof.model.case import Case, Run, exhaustive, holding, nearest, partly, removed, walks
from tests.proof.model.lifecycle import LifecycleModel

_LENGTH = 60
_REPLACE = life.Bounds(appends=1, rollbacks=1, registrations=1, deaths=1)
_UNREGISTER = life.Bounds(("d1", "u0"), appends=2, rollbacks=1, registrations=1, deaths=0)
_REFRESH = life.Bounds(appends=3, rollbacks=1, expiries=1, jobs=1, deaths=0)
_CHANGES = life.Bounds(("d3", "i3"), appends=2, rollbacks=1, row_changes_expire=True)
_CORRECT = life.Bounds(("d3", "i3", "c2"), appends=4, rollbacks=2, row_changes_expire=True)
_BESIDE = life.Bounds(("c2", "i3"), appends=3, rollbacks=1, jobs=1, deaths=0)
_INTACT = life.Bounds(("d1", "d2"), appends=6, rollbacks=0, jobs=1, deaths=0)
_INTACT_REPLACE = life.Bounds(rollbacks=0, registrations=1, registrations_expire=True)
_ALL = life.Bounds(
    requests=("d1", "d3", "i3", "c2", "u0"),
    file=(1, 2, 4),
    appends=9,
    rollbacks=2,
    expiries=2,
    jobs=2,
    registrations=2,
    row_changes_expire=True,
    registrations_expire=True,
    log_length=12,
)
_OTHERS = replace(_ALL, requests=("d1", "d2", "i3"), other_people=True)
_DEFERRED = replace(_REPLACE, appends=2, rollbacks=0, other_people=True, awaiting=True)


def opening_cases() -> list[Case]:
    """Return every case of the opening."""
    tiny = opening.Bounds(requests=2, crashes=0)
    small, large = opening.Bounds(requests=2, crashes=1), opening.Bounds()
    cases = [
        holding("opening", "2 requests, a rollback", None, _opening(tiny)),
        holding("opening", "2 requests, a crash, a rollback", _opening(small)),
        holding("opening", "3 requests, 2 crashes, a rollback", _opening(large)),
    ]
    for name, broken in (
        ("log_asked", "UNKNOWN_MODEL"),
        ("end_after_poll", "came after register returned"),
        ("opening", "UNKNOWN_MODEL and APPLIED"),
    ):
        cases.append(
            removed("opening", opening.Rules(), name, broken, lambda rules: _opening(small, rules))
        )
    return cases


def lifecycle_cases() -> list[Case]:
    """Return every case of the life of a model."""
    cases = []
    exhausted = {
        "replace": _REPLACE,
        "replace by other people's rows": replace(_REPLACE, other_people=True),
        "replace, nothing lost": replace(_INTACT_REPLACE, appends=1),
        "unregister": replace(_UNREGISTER, registrations=0),
        "refresh": replace(_REFRESH, rollbacks=0, appends=2),
        "insert and delete a row": _CHANGES,
        "refresh beside a correction": replace(_BESIDE, requests=("c2",), rollbacks=0),
    }
    larger = {
        "2 replaces, 2 rollbacks": replace(_REPLACE, appends=2, rollbacks=2, registrations=2),
        "replace and refresh": replace(_REFRESH, registrations=1, file=(1, 2, 4), expiries=0),
        "refresh of 2 deletions": replace(_REFRESH, requests=("d1", "d2"), rows=(1, 2, 3)),
        "insert, correct, delete": replace(_CHANGES, requests=("d3", "i3", "c2"), appends=3),
    }
    for name, bounds in exhausted.items():
        cases.append(holding("lifecycle", name, _states(bounds), _states(bounds)))
    for name, bounds in (
        ("unregister and register", _UNREGISTER),
        ("replace by other people's rows, a deferral", _DEFERRED),
        ("refresh, a rollback", _REFRESH),
        ("refresh beside changes, a rollback", _BESIDE),
    ):
        cases.append(holding("lifecycle", name, _states(bounds)))
    for name, bounds in larger.items():
        cases.append(partly("lifecycle", f"{name}, nearest states", _nearest(bounds)))
    for name, bounds in (
        ("walks", _ALL),
        ("walks, nothing lost", _INTACT),
        ("walks, other people's rows", _OTHERS),
    ):
        cases.append(holding("lifecycle", name, _walks(bounds, 4000), _walks(bounds, 150)))
    return cases + _lifecycle_without()


def _lifecycle_without() -> list[Case]:
    found = {
        "ledger_of_log": ("was deleted and is live", _states, _REPLACE),
        "ledger_of_prev": ("was deleted and is live", _states, _REPLACE),
        "passed_over_added": ("the ledger is", _states, _REPLACE),
        "staged_until_void": ("rows are missing", _states, _INTACT_REPLACE),
        "registration_ends_job": ("stays pending", _walk, _ALL),
        "result_of_registration": ("nothing says so", _walk, _ALL),
        "missing_result_ends_job": ("stays pending", _states, _REFRESH),
        "own_features": ("rows are missing", _walk, _INTACT),
        "changes_caught_up": ("nothing says so", _states, replace(_BESIDE, requests=("c2",))),
        "deferral_orders": ("never decided", _states, replace(_REFRESH, rollbacks=2)),
        "keyed_by_incarnation": ("lost in silence", _states, _REPLACE),
        "unknown_in_ledger": ("was deleted and is live", _states, _CHANGES),
        "others_answered": ("another person's row", _states, _DEFERRED),
        "lost_derived": ("stays although", _states, _CORRECT),
    }
    return [
        removed("lifecycle", life.Rules(), name, broken, partial(run, bounds))
        for name, (broken, run, bounds) in found.items()
    ]


def _opening(bounds: opening.Bounds, rules: opening.Rules | None = None) -> Run:
    return exhaustive(lambda: opening.OpeningModel(bounds, rules))


def _states(bounds: life.Bounds, rules: life.Rules | None = None) -> Run:
    return exhaustive(lambda: LifecycleModel(bounds, rules))


def _nearest(bounds: life.Bounds) -> Run:
    return nearest(lambda: LifecycleModel(bounds), 100_000)


def _walks(bounds: life.Bounds, number: int, rules: life.Rules | None = None) -> Run:
    return walks(lambda: LifecycleModel(bounds, rules), number, _LENGTH, seed=1)


def _walk(bounds: life.Bounds, rules: life.Rules | None = None) -> Run:
    return _walks(bounds, 2000, rules)
