"""What stands around the commit: halts, keys, losses, parameters, watermarks, two owners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.proof.model import halts, keys, lost, parameters, retention, watermark
from tests.proof.model.case import Case, Run, exhaustive, holding, nearest, partly, removed, walks
from tests.proof.model.checker import HOLDS, VIOLATED, Outcome, rules_of
from tests.proof.model.two_owners import MILLISECOND, Owners, starvation


def halts_cases() -> list[Case]:
    """A halted model beside a busy one, and the keys that halt one."""
    build = halts.HaltsModel
    small, large = halts.Bounds(rollbacks=0), halts.Bounds()
    foreign = halts.Bounds("AFBA", rollbacks=0)
    cases = [
        holding("halts", "AABA", _states(build, small), _states(build, small)),
        holding("halts", "AFBA", _states(build, foreign), _states(build, foreign)),
        holding("halts", "ABA, a rollback", _states(build, halts.Bounds("ABA"))),
        partly("halts", "AABA, a rollback, nearest states", _nearest(build, large)),
    ]
    found = {
        "pair_made": "never applied",
        "made_once": "never applied",
        "own_rule": "never applied",
        "both_reached": "never published",
    }
    cases += _removed("halts", halts.Rules(), found, build, large)
    cases += _removed(
        "halts",
        halts.Rules(),
        {"own_models": "F is halted", "digest_moves": "LOG_RESET"},
        build,
        foreign,
    )
    both = keys.Bounds()
    cases.append(
        holding("keys", "5 records", _states(keys.KeysModel, both), _states(keys.KeysModel, both))
    )
    return cases + _removed(
        "keys", keys.Rules(), {"opened_head": "is halted"}, keys.KeysModel, both
    )


def retention_cases() -> list[Case]:
    """A log that forgets its beginning."""
    build = retention.RetentionModel
    small, large = retention.Bounds(appends=2, rollbacks=0), retention.Bounds()
    cases = [
        holding("retention", "2 appends, a wipe", _states(build, small), _states(build, small)),
        holding("retention", "2 appends, a wipe, a rollback", _states(build, retention.Bounds(2))),
        holding("retention", "walks", _walks(build, large, 10_000), _walks(build, large, 300)),
    ]
    found = {"voids_passed": "is called too old", "digest_published": "nothing says what"}
    cases += _removed("retention", retention.Rules(), found, build, small)
    found = {"ledger_retained": "lies in the log"}
    cases += _removed("retention", retention.Rules(), found, build, large)
    unwiped = retention.Bounds(wipes=0, registrations=0)
    cases += _removed("retention", retention.Rules(), {"too_old_seen": "is void"}, build, unwiped)
    unnamed = retention.Rules(digest_published=False)
    cases.append(
        removed(
            "retention",
            unnamed,
            "anchor_needed",
            "continues the void",
            lambda rules: _states(build, retention.Bounds(2, expiries=1), rules),
            ", digests not published",
        )
    )
    return cases


def lost_cases() -> list[Case]:
    """A store that loses one key of a model."""
    build = lost.LostModel
    small, large = lost.Bounds(), lost.Bounds(losses=2, crashes=1, rollbacks=1, expiries=1)
    expired = lost.Bounds(losses=2, expiries=1)
    found = dict.fromkeys(rules_of(lost.Rules()), "does not restore")
    return [
        holding("lost", "3 requests, a loss", _states(build, small), _states(build, small)),
        holding("lost", "3 requests, 2 losses, a commit expires", _states(build, expired)),
        partly("lost", "2 losses, a crash, a rollback, nearest states", _nearest(build, large)),
        *_removed("lost", lost.Rules(), found, build, small),
    ]


def parameters_cases() -> list[Case]:
    """Parameters in a compacted topic."""
    build = parameters.ParametersModel
    small, large = parameters.Bounds(), parameters.Bounds(commits=4, crashes=2)
    even = parameters.Rules(sent_again=False)
    return [
        holding("parameters", "3 commits", _states(build, small), _states(build, small)),
        holding("parameters", "4 commits, 2 crashes", _states(build, large)),
        holding(
            "parameters",
            "4 commits, 2 crashes, even without sent_again",
            _states(build, large, even),
            _states(build, small, even),
        ),
        *_removed(
            "parameters",
            parameters.Rules(),
            {"read_back": "the topic ends with"},
            build,
            parameters.Bounds(crashes=0),
        ),
    ]


def watermark_cases() -> list[Case]:
    """The watermark of a partition of requests."""
    build = watermark.WatermarkModel
    quick, small = watermark.Bounds("AU", rollbacks=0), watermark.Bounds("AU")
    halted, large = watermark.Bounds("AH", crashes=0, rollbacks=0), watermark.Bounds()
    lossless = watermark.Bounds("AU", losses=0)
    unpublished = watermark.Rules(published=False)
    found = {
        "acknowledged": "will never be answered",
        "published": "will never be answered",
        "halted_open": "(H)",
        "index_asked": "decided twice",
        "lowest_open": "will never be answered",
        "from_watermark": "will never be answered",
    }
    return [
        holding("watermark", "A, U", _states(build, small), _states(build, quick)),
        holding("watermark", "A, H, no crash", _states(build, halted), _states(build, halted)),
        holding("watermark", "A, H", _states(build, watermark.Bounds("AH", rollbacks=0))),
        holding("watermark", "walks", _walks(build, large, 10_000), _walks(build, large, 200)),
        holding(
            "watermark",
            "A, U, even without published: the log loses nothing",
            _states(build, lossless, unpublished),
            _states(build, watermark.Bounds("AU", losses=0, rollbacks=0), unpublished),
        ),
        *_removed("watermark", watermark.Rules(), found, build, large),
        *_removed("watermark", watermark.Rules(), {"flushed": "(U)"}, build, small),
    ]


def owners_cases() -> list[Case]:
    """Two owners of one model."""
    ms = MILLISECOND
    pairs = {
        "equal": (Owners((2 * ms, 2 * ms), 5 * ms, 8 * ms, 3 * ms, ms), 2.0),
        "fast and slow": (Owners((2 * ms, 20 * ms), 5 * ms, 8 * ms, 3 * ms, ms), 2.0),
        "fast and slow, 200 ms": (Owners((20 * ms, 200 * ms), 5 * ms, 8 * ms, 10 * ms, ms), 15.0),
    }
    cases = []
    for name, (owners, longest) in pairs.items():
        run = _owners(owners, longest, random_wait=True)
        cases.append(Case("owners", f"{name}, 120 s", HOLDS, run, run))
    for name in ("fast and slow", "fast and slow, 200 ms"):
        owners, longest = pairs[name]
        run = _owners(owners, longest, random_wait=False)
        says = "the winner who sees a rival's void waits a random time"
        label = f"without random_wait, {name}"
        cases.append(Case("owners", label, VIOLATED, run, run, says, "won ["))
    return cases


def _owners(owners: Owners, longest: float, *, random_wait: bool) -> Callable[[], Outcome]:
    return lambda: starvation(owners, seconds=120, longest=longest, random_wait=random_wait)


def _states(build: Callable[[Any, Any], Any], bounds: Any, rules: Any = None) -> Run:
    return exhaustive(lambda: build(bounds, rules))


def _nearest(build: Callable[[Any, Any], Any], bounds: Any) -> Run:
    return nearest(lambda: build(bounds, None), 500_000)


def _walks(build: Callable[[Any, Any], Any], bounds: Any, number: int) -> Run:
    return walks(lambda: build(bounds, None), number, 60)


def _removed(
    group: str, rules: Any, found: dict[str, str], build: Callable[[Any, Any], Any], bounds: Any
) -> list[Case]:
    return [
        removed(group, rules, name, broken, lambda less: _states(build, bounds, less))
        for name, broken in found.items()
    ]
