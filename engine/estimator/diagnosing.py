"""The layer of diagnostics: what single rows and groups do to the model (`engine.diagnostics`)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from lethe.engine.diagnostics import (
    EachLeftOut,
    cooks_distances,
    leave_each_out,
    leave_group_out,
    scale,
    steps,
)
from lethe.engine.errors import InvalidData, UnknownRows
from lethe.engine.estimator.base import overflow_allowed
from lethe.engine.estimator.changing import ChangingModel
from lethe.engine.estimator.targets import taken_back
from lethe.engine.fit.objective import Array, Rows
from lethe.engine.fitted import Fitted
from lethe.engine.ids import ids_of
from lethe.engine.preprocess.library import PreparedModel
from lethe.engine.result import GroupInfluence, LeaveOneOut


class DiagnosableModel(ChangingModel):
    """A model that tells what its rows do to it, without changing.

    Everything is said of the exact parameters: those of retraining, for a linear model, also where
    ``pru`` or ``influence`` publishes others.
    """

    def leverage(self, ids: Iterable[str] | None = None) -> Array:
        """Return the leverage of live rows: the diagonal of the hat matrix, from 0 to 1.

        Parameters
        ----------
        ids
            k live rows, by default all, in the order of `live_ids`.

        Returns
        -------
        leverage
            (k,), or (k, C) for more than two classes. Row i moves its own fitted value by its
            leverage times a change of its target.

        Raises
        ------
        UnknownRows
            Some id is not a live row.

        Notes
        -----
        Cost O(k d), and O(k K d) once K rows have changed since the last compact or rebuild.
        """
        _, each = _left_out_each(self._fitted.diagnosed(), self._live_places(ids))
        return each.leverage[:, 0] if each.leverage.shape[1] == 1 else each.leverage

    @overflow_allowed
    def cooks_distance(self, ids: Iterable[str] | None = None) -> Array:
        """Return Cook's distance of live rows: how far each moves theta, in standard errors.

        Parameters
        ----------
        ids
            k live rows, by default all, in the order of `live_ids`.

        Returns
        -------
        distance
            (k,), or (k, m) for several outputs. NaN where the leverage is too near to 1.

        Raises
        ------
        UnknownRows
            Some id is not a live row.

        Notes
        -----
        `engine.diagnostics` has the definition: with a ridge, the effective degrees of freedom
        stand in place of the number of parameters; for a logistic model it is the one-step
        version. Cost that of `leverage` of all rows, whatever ``ids`` are.
        """
        everything = self._live_places(None)
        state = self._fitted.diagnosed()
        rows, each = _left_out_each(state, everything)
        distances = cooks_distances(each, scale(state.generation, state.stream, rows, each))
        chosen = everything if ids is None else self._live_places(ids)
        return self._shaped(distances[np.searchsorted(everything, chosen)])

    @overflow_allowed
    def leave_one_out(self, ids: Iterable[str] | None = None) -> LeaveOneOut:
        """Return what the model would be, and predict, without each live row alone.

        Exact for a linear model: the same as n refits. For a logistic model it is one Newton step
        from the optimum.

        Parameters
        ----------
        ids
            k live rows, by default all, in the order of `live_ids`.

        Returns
        -------
        LeaveOneOut
            NaN where the leverage is too near to 1 (`engine.deletion.downdate.SMALLEST_PIVOT`).

        Raises
        ------
        UnknownRows
            Some id is not a live row.

        Notes
        -----
        Cost O(k d m), k d m numbers, and O(k K d) once K rows have changed since the last compact
        or rebuild.
        """
        places = self._live_places(ids)
        state = self._fitted.diagnosed()
        rows, each = _left_out_each(state, places)
        margin = rows.X @ state.stream.theta_exact + each.reach * each.q
        predictions = taken_back(self._target, state.generation.objective.mean(margin))
        moved = steps(state.stream, rows, state.members.W[places], each)
        return LeaveOneOut(
            tuple(state.members.ids[i] for i in places),
            self._shaped(predictions),
            self._shaped(taken_back(self._target, rows.y) - predictions),
            moved[:, :, 0] if self._flat else moved,
        )

    @overflow_allowed
    def influence(self, ids: Iterable[str]) -> GroupInfluence:
        """Return what the model would be without a group of live rows; nothing is deleted.

        Exact for a linear model, one Newton step from the optimum for a logistic one: the step
        that `delete` makes with ``method="exact"``.

        Parameters
        ----------
        ids
            k live rows; duplicates count once.

        Raises
        ------
        UnknownRows
            Some id is not a live row.
        InvalidData
            No row with a weight would be left, or none of a class: there is no such step.
        IllConditioned
            The rows' leverage is too near to 1.

        Notes
        -----
        Cost that of the deletion, O(K k d + k^2 d), and that of `leverage` of all rows for Cook's
        distance.
        """
        state = self._fitted
        places = self._live_places(ids)
        names = tuple(state.members.ids[i] for i in places)
        if state.needs_refit(names):
            raise InvalidData(
                "without these rows a class, or the model, would have none left: there is no step; "
                "fit the other rows to see what is left"
            )
        state = state.diagnosed()
        rows, W = state.members.rows.take(places), state.members.W[places]
        step, squares = leave_group_out(state.generation, state.stream, rows, W)
        live, each = _left_out_each(state, self._live_places(None))
        measured = scale(state.generation, state.stream, live, each)
        with np.errstate(divide="ignore"):
            distance = squares / (measured.freedom * measured.variance)
        return GroupInfluence(names, self._shaped(step), distance[0] if self._flat else distance)

    def _live_places(self, ids: Iterable[str] | None) -> NDArray[np.intp]:
        members = self._fitted.members
        if isinstance(self._fitted, PreparedModel) or self.refitted is not None:
            raise InvalidData(
                "diagnostics are of models without preprocessing inside: where a row also moves "
                "means and encodings, its leverage is not all that it does to the others"
            )
        if members.balanced:
            raise InvalidData(
                "diagnostics are of models without balanced class weights: where a row also moves "
                "the weights of others, its leverage is not all that it does to them"
            )
        if ids is None:
            return np.flatnonzero(members.live)
        wanted = tuple(dict.fromkeys(ids_of(ids)))
        for name in wanted:
            if name not in members.place:
                raise UnknownRows(f"row {name!r} was never a row of this model")
            if not members.live[members.place[name]]:
                raise UnknownRows(f"row {name!r} was deleted from this model; name live rows")
        return members.places(wanted)


def _left_out_each(state: Fitted, places: NDArray[np.intp]) -> tuple[Rows, EachLeftOut]:
    rows = state.members.rows.take(places)
    return rows, leave_each_out(state.generation, state.stream, rows, state.members.W[places])
