"""What people do to a table: they mistype, they correct, they leave, they come back.

A *slip* puts a factor of 10 to 10^9, another sign, or a decimal point elsewhere into one number,
one row, or one column of some rows in a row (a unit that was changed for a week). It is righted or
deleted later, and meanwhile rows with a rare feature go, column by column, a cohort leaves, and
rows that had been deleted come back under other ids.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

from lethe.engine import LinearModel
from tests.proof.bounds.case import Array, Case, Families, power
from tests.proof.bounds.changing import put
from tests.proof.bounds.stream import Run

_STEPS = (5, 16)
_RARE = 0.25  # of the rows at most have a rare feature
_FEWEST = 4  # rows that stay

TABLES, OTHER_TABLES = Families(), Families()
"""Two halves, with seeds apart. The last constant was set after a look at both."""


@dataclass(frozen=True, slots=True)
class _Slip:
    """Rows that hold something else than they should, and what that is."""

    places: list[int]
    X: Array
    y: Array


# -- tables ------------------------------------------------------------------------------------


def _case(rng: Generator, X: Array, y: Array | None = None, **more: Any) -> Case:
    n, d = X.shape
    if y is None:
        y = X @ rng.standard_normal(d) * power(rng, -2, 1) + rng.standard_normal(n)
    intercept = bool(rng.random() < 0.5)
    return Case(X, y, power(rng, -8, 2), intercept=intercept, keep=_FEWEST, **more)


def _with_rare_columns(rng: Generator, X: Array) -> Array:
    """Make some columns 0 but for a few rows."""
    n, d = X.shape
    for j in rng.permutation(d)[: int(rng.integers(1, max(d, 2)))]:
        kept = rng.permutation(n)[: max(1, int(rng.random() * _RARE * n))]
        column = np.zeros(n)
        column[kept] = X[kept, j]
        X[:, j] = column
    return X


def _sizes(rng: Generator) -> tuple[int, int]:
    return int(rng.integers(12, 90)), int(rng.integers(1, 8))


@TABLES
def survey(rng: Generator) -> Case:
    """Normal columns, some of them rare."""
    n, d = _sizes(rng)
    return _case(rng, _with_rare_columns(rng, rng.standard_normal((n, d))))


@TABLES
def membership(rng: Generator) -> Case:
    """A feature that a few rows have, and many rows beside them, with little ridge."""
    n, d = int(rng.integers(60, 200)), int(rng.integers(2, 6))
    X, few = rng.standard_normal((n, d)), int(rng.integers(2, 10))
    X[few:, -1] = 0.0
    X[0, -1] = 1.0
    y = rng.standard_normal(n)
    intercept = bool(rng.random() < 0.5)
    return Case(X, y, power(rng, -6, 0), intercept=intercept, keep=_FEWEST)


@TABLES
def prices(rng: Generator) -> Case:
    """Amounts in cents, of several sizes."""
    n, d = _sizes(rng)
    X = np.round(np.exp(rng.standard_normal((n, d)) * 2), 2) * 10.0 ** rng.integers(-1, 3, d)
    return _case(rng, X)


@TABLES
def answers(rng: Generator) -> Case:
    """Yes and no, and numbers beside them."""
    n, d = _sizes(rng)
    X = rng.standard_normal((n, d))
    asked = rng.integers(0, d + 1)
    X[:, :asked] = rng.random((n, asked)) < rng.uniform(0.02, 0.5, asked)
    return _case(rng, X)


@OTHER_TABLES
def readings(rng: Generator) -> Case:
    """Sensors that see the same thing, with a little noise each."""
    n, d = _sizes(rng)
    X = rng.standard_normal((n, 1)) + power(rng, -3, 0) * rng.standard_normal((n, d))
    return _case(rng, _with_rare_columns(rng, X) if rng.random() < 0.5 else X)


@OTHER_TABLES
def claims(rng: Generator) -> Case:
    """Weighted rows, heavy tails."""
    n, d = _sizes(rng)
    X = rng.standard_t(2.0, size=(n, d))
    return _case(rng, _with_rare_columns(rng, X), weight=10.0 ** rng.uniform(-2, 2, n))


@OTHER_TABLES
def panel(rng: Generator) -> Case:
    """Several targets, and a column far from 0, such as a year."""
    n, d = _sizes(rng)
    X = rng.standard_normal((n, d))
    X[:, 0] = 2000 + np.round(10 * X[:, 0])
    return _case(rng, X, X @ rng.standard_normal((d, 2)) + rng.standard_normal((n, 2)))


def labelled(families: Families) -> Families:
    """Return the same tables with two classes in place of targets."""
    found = Families()
    for name, draw in families.named.items():
        found.named[name] = _labels_of(draw)
    return found


def _labels_of(draw: Callable[[Generator], Case]) -> Callable[[Generator], Case]:
    def drawn(rng: Generator) -> Case:
        case = draw(rng)
        y = case.y if case.y.ndim == 1 else case.y[:, 0]
        cut = np.quantile(y, rng.uniform(0.3, 0.8))
        labels: Array = np.where(y + rng.standard_normal(len(y)) > cut, 1.0, 0.0)
        if len(set(labels.tolist())) == 1:
            labels[0] = 1.0 - labels[0]
        ridge = max(case.ridge, 1e-6)
        return Case(
            case.X, labels, ridge, intercept=case.intercept, weight=case.weight, keep=case.keep
        )

    return drawn


LABELLED, OTHER_LABELLED = labelled(TABLES), labelled(OTHER_TABLES)


# -- what is done ------------------------------------------------------------------------------


def slips(run: Run) -> None:
    """Judge every state, and refresh now and then."""
    run.judge("fit")
    _Doing(run, run.judge).go()


def labelled_slips(run: Run) -> None:
    """After every request, a refresh that ends in a certificate."""

    def certified(_: str) -> None:
        if done := run.refresh(str(run.rng.choice(["polish", "rebuild"]))):
            run.judge(done)

    _Doing(run, certified).go()


class _Doing:
    """A table under way: where rows are, and which of them hold what they should not."""

    def __init__(self, run: Run, look: Callable[[str], object]) -> None:
        self.run, self.rng, self.look = run, run.rng, look
        case = run.case
        self.X, self.y = np.array(case.X, dtype=float), np.array(case.y)
        self.weight = None if case.weight is None else np.array(case.weight)
        self.slips: list[_Slip] = []
        self.gone: list[int] = []
        exact = self.rng.random() < 0.6
        self.methods = ["exact"] if exact else ["exact", "pru", "influence"]

    def go(self) -> None:
        doings = [
            (self._mistype, 0.3), (self._right, 0.2), (self._remove, 0.06), (self._rare, 0.14),
            (self._cohort, 0.06), (self._some, 0.1), (self._return, 0.06), (self._refresh, 0.08),
        ]  # fmt: skip
        chances = np.array([chance for _, chance in doings])
        for _ in range(int(self.rng.integers(*_STEPS))):
            # While a slip stands, rows with a rare feature go, and it is righted.
            weights = chances * ([0.3, 3, 1, 3, 1, 1, 1, 1] if self.slips else [1] * len(chances))
            do, _ = doings[int(self.rng.choice(len(doings), p=weights / weights.sum()))]
            done = do()
            if done == "over":
                return
            if done:
                self.run.truth.note_penalty()
                self.look(done)

    @property
    def live(self) -> list[int]:
        return np.flatnonzero(self.run.truth.live).tolist()

    def _method(self) -> str:
        return str(self.rng.choice(self.methods))

    def _put(self, what: str, places: list[int], X: Array, y: Array) -> str | None:
        method = self._method()
        weight = None if self.weight is None else self.weight[places]
        before = self.run.model.published.tobytes()
        if put(self.run, what, places, X, y, weight, method):
            return f"{method}, {what}"
        if self.run.model.published.tobytes() != before:
            self.run.done.escaped.append(f"step {self.run.step}: a refusal has moved theta")
        return None

    def _mistype(self) -> str | None:
        """One number, one row, or one column for a while."""
        live = self.live
        kind, d = self.rng.random(), self.X.shape[1]
        first = int(self.rng.integers(len(live)))
        places = live[first : first + (int(self.rng.integers(2, 9)) if kind > 0.8 else 1)]
        right = _Slip(places, self.X[places], self.y[places])
        # What a row of 10^9 leaves of a logistic model's curvatures, 80 bits cannot tell.
        most = 10 if self.run.kind is LinearModel else 6
        factor = float(self.rng.choice([-1.0, 10.0 ** self.rng.integers(1, most)], p=[0.1, 0.9]))
        if self.rng.random() < 0.15:
            factor = 1.0 / factor
        wrong, y = self.X[places].copy(), self.y[places].copy()
        if kind < 0.4:
            wrong[:, int(self.rng.integers(d))] *= factor
        elif kind < 0.8:
            wrong *= factor
            if self.run.kind is LinearModel and self.rng.random() < 0.2:
                y = y * factor
        else:
            wrong[:, int(self.rng.integers(d))] *= factor
        if any(set(places) & set(slip.places) for slip in self.slips):
            return None
        done = self._put("correct", places, wrong, y)
        if done:
            self.slips.append(right)
        return done

    def _taken(self) -> _Slip | None:
        return self.slips.pop(int(self.rng.integers(len(self.slips)))) if self.slips else None

    def _right(self) -> str | None:
        slip = self._taken()
        if slip is None:
            return None
        left = [i for i, place in enumerate(slip.places) if self.run.truth.live[place]]
        if not left:
            return None
        places = [slip.places[i] for i in left]
        done = self._put("correct", places, slip.X[left], slip.y[left])
        if done is None and self.run.refresh("rebuild") is None:
            self.slips.append(slip)
        return done

    def _delete(self, places: list[int]) -> str | None:
        live = set(self.live)
        places = [place for place in places if place in live][: len(live) - _FEWEST]
        if not places:
            return None
        done = self.run.delete(places, self._method())
        self.gone += places
        return done or "over"

    def _remove(self) -> str | None:
        slip = self._taken()
        return None if slip is None else self._delete(slip.places)

    def _rare(self) -> str | None:
        """Rows that alone have a feature: some of them, or all."""
        live = self.live
        present = np.count_nonzero(self.X[live], axis=0)
        rare = np.flatnonzero((present > 0) & (present <= _RARE * len(live)))
        if not len(rare):
            return self._some()
        having = [i for i in live if self.X[i, int(self.rng.choice(rare))] != 0]
        most = len(having) if self.rng.random() < 0.6 else int(self.rng.integers(1, 4))
        return self._delete(having[:most])

    def _cohort(self) -> str | None:
        live = self.live
        first = int(self.rng.integers(len(live)))
        return self._delete(live[first : first + len(live) // 3])

    def _some(self) -> str | None:
        return self._delete(
            self.rng.permutation(self.live)[: int(self.rng.integers(1, 4))].tolist()
        )

    def _return(self) -> str | None:
        """A row comes back: as another one to the model."""
        if not self.gone:
            return None
        place, new = int(self.rng.choice(self.gone)), len(self.run.truth.X)
        self.X = np.vstack([self.X, self.X[[place]]])
        self.y = np.concatenate([self.y, self.y[[place]]])
        if self.weight is not None:
            self.weight = np.append(self.weight, self.weight[place])
        return self._put("insert", [new], self.X[[new]], self.y[[new]])

    def _refresh(self) -> str | None:
        sizes = [None, None, "complete", "polish", "compact", "rebuild"]
        return self.run.refresh(sizes[int(self.rng.integers(len(sizes)))])
