"""Streams in which rows are inserted and corrected between deletions.

New rows are like the family's own, and now and then unlike them: scaled, a near-copy of a live row,
or with the target of another one. Many are deleted or corrected again before a refresh: what they
added to the inverse Hessian then has to cancel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.engine.errors import LetheError
from tests.proof.bounds.case import Array, power
from tests.proof.bounds.stream import Run, batches

_UNLIKE = 0.3  # of the new rows are scaled, or are near-copies
_AGAIN = 0.6  # of the later requests name an inserted row
_ANOTHER = 0.3  # have the target of another row
_MOST = 5  # new rows in one request


def changing_bounds(run: Run) -> None:
    """Judge every state, and refresh now and then."""
    run.judge("fit")
    chances = [[1.0, 0.0, 0.0], [0.4, 0.4, 0.2]][int(run.rng.integers(2))]
    for how in _changes(run, chances):
        run.judge(how)
        size = str(run.rng.choice(["complete", "polish", "compact", "rebuild"]))
        if run.rng.random() < run.case.refreshing and (done := run.refresh(size)):
            run.judge(done)


def changing_certificates(run: Run) -> None:
    """Refresh after every request, by what ends in a certificate."""
    run.judge("fit")
    for _ in _changes(run, [0.6, 0.3, 0.1]):
        size = str(run.rng.choice(["polish", "compact", "rebuild"], p=[0.7, 0.1, 0.2]))
        if size == "compact" and run.refresh("compact"):
            size = "polish"
        if done := run.refresh(size):
            run.judge(done)


def _changes(run: Run, chances: list[float]) -> Iterator[str]:
    """Delete, insert and correct; yield how each was done."""
    inserted: list[int] = []
    for batch in batches(run.case, run.rng):
        method = str(run.rng.choice(["exact", "pru", "influence"], p=chances))
        what = str(run.rng.choice(["delete", "insert", "correct"]))
        places = [place for place in batch if run.truth.live[place]]
        if inserted and run.rng.random() < _AGAIN:
            places.append(inserted.pop(int(run.rng.integers(len(inserted)))))
        if what == "delete":
            if run.delete(places, method) is None:
                return
            run.truth.note_penalty()
            yield method
            continue
        count = min(len(places), _MOST)
        if what == "insert":
            first = len(run.truth.X)
            places = list(range(first, first + count))
        else:
            places = places[:count]
        if _change(run, what, places, method):
            inserted += places if what == "insert" else []
            yield f"{method}, {what}"


def _change(run: Run, what: str, places: list[int], method: str) -> bool:
    """Insert or correct rows; False where the engine refuses."""
    X, y, weight = _new_rows(run, len(places))
    return put(run, what, places, X, y, weight, method)


def put(
    run: Run,
    what: str,
    places: list[int],
    X: NDArray[np.floating[Any]],
    y: Array,
    weight: Array | None,
    method: str,
) -> bool:
    """Insert or correct given rows; False where the engine refuses."""
    ids = [str(place) for place in places]
    change = run.model.insert if what == "insert" else run.model.correct
    run.step += 1
    try:
        change(X, y, ids, sample_weight=weight, method=method)
    except LetheError as error:
        run.done.refusals[f"{what}: {error.code}"] += 1
        return False
    run.truth.write(places, X, y, weight)
    run.truth.note_penalty()
    return True


def _new_rows(run: Run, k: int) -> tuple[NDArray[np.floating[Any]], Array, Array | None]:
    case, rng, n = run.case, run.rng, len(run.case.X)
    like = rng.integers(n, size=k)
    X, y = case.X[like].copy(), case.y[like].copy()
    for i in range(k):
        kind = rng.random()
        if kind < _UNLIKE / 2:
            X[i] *= power(rng, -2.0, 5.0)
        elif kind > _UNLIKE:
            X[i] *= 1.0 + 0.3 * rng.standard_normal(X.shape[1])
        else:
            X[i] *= 1.0 + power(rng, -12.0, -3.0)
        if rng.random() < _ANOTHER:
            y[i] = case.y[rng.integers(n)]
    weight = None if case.weight is None else np.asarray(case.weight[like])
    return X, y, weight
