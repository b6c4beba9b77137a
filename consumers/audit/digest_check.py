"""`lethe verify --digest`: a linear model against a refit by rational arithmetic, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lethe.consumers.audit.pipeline_refit import pipeline_refit
from lethe.consumers.audit.rational_refit import rational_refit
from lethe.consumers.contract.version_chain import digest_of
from lethe.consumers.registration.training_data import TrainingData
from lethe.consumers.subscriber.published import published_of
from lethe.engine.errors import InvalidData
from lethe.engine.exact.rounding import ROUNDED_FEATURES
from lethe.engine.fit.objective import Array, Kind, Rows, with_intercept
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.offline.live_rows import LiveRows, read_live_rows
from lethe.engine.store.offline.snapshot import Snapshot, take_snapshot
from lethe.engine.store.store import ModelStore


@dataclass(frozen=True, slots=True)
class DigestCheck:
    """The digest of a version's parameters against that of a refit by rational arithmetic.

    Attributes
    ----------
    state
        What was compared.
    rows
        Number of rows that were refitted.
    published, refitted
        The two digests (`consumers.contract.version_chain.parameters_digest`).
    differing
        Names of the coefficients that differ.
    other_row
        What the table's first row that is not the model's differs in; None if all are the same.
    """

    state: ModelState
    rows: int
    published: str
    refitted: str
    differing: tuple[str, ...]
    other_row: str | None = None

    @property
    def equal(self) -> bool:
        """Whether the version is what retraining on the rows gives, to the last bit."""
        return self.published == self.refitted


def verify_digest(
    store: ModelStore, model_id: str, table: Callable[[ModelConfig], TrainingData] | None = None
) -> DigestCheck:
    """Refit a linear model by rational arithmetic, and compare the digests of the parameters.

    Parameters
    ----------
    store, model_id
        The model.
    table
        Returns rows of the model's columns; by default the live rows of the store are refitted.

    Raises
    ------
    UnknownModel, CorruptState
        The model cannot be read.
    InvalidData
        Its parameters are never rounded to the last bit, or the rows have no minimiser.

    Notes
    -----
    Without a table, rows in files are read in blocks; with one, all rows are held beside it.
    """
    if table is None:
        return read_live_rows(store, model_id, _checked)
    snapshot = take_snapshot(store, model_id)
    config = snapshot.state.meta.config
    _check_rounded(config)
    given = table(config)
    X = with_intercept(given.X) if config.fit_intercept else given.X
    rows = Rows(X, given.y, config.weights_of(given.y))
    live = LiveRows(snapshot.state, rows, replace(snapshot, table=given.table))
    return _checked(live, given, _other_row(given.ids, rows, snapshot))


def _checked(
    live: LiveRows, given: TrainingData | None = None, other_row: str | None = None
) -> DigestCheck:
    """Compare the digests; ``live`` has the rows that are ``given``, if any are."""
    state, rows, config = live.state, live.rows, live.state.meta.config
    _check_rounded(config)
    event, theta = published_of(state)
    refitted = np.zeros_like(theta)
    if config.preprocess and len(rows):
        refitted = _refitted_pipeline(config, live, given)
    elif len(rows):
        refitted = rational_refit(rows, state.generation.objective.penalty)
    names = config.coefficient_names
    differ = (refitted.view(np.int64) != theta.view(np.int64)).any(axis=1)
    return DigestCheck(
        state=state,
        rows=len(rows),
        published=event.parameters_digest,
        refitted=digest_of(event, refitted),
        differing=tuple(name for name, other in zip(names, differ, strict=True) if other),
        other_row=other_row,
    )


def _refitted_pipeline(config: ModelConfig, live: LiveRows, given: TrainingData | None) -> Array:
    """Return the parameters of a pipeline; 0 for a category that no row has."""
    records, names = config.preprocess, config.coefficient_names
    if given is not None:
        records = given.preprocess
        names = (*given.feature_names, *(("intercept",) if config.fit_intercept else ()))
    theta = pipeline_refit(records, live.given, ridge=config.ridge, intercept=config.fit_intercept)
    place = {name: i for i, name in enumerate(config.coefficient_names)}
    strange = [name for name in names if name not in place]
    if strange:
        raise InvalidData(
            f"model {config.model_id!r}: the table has {strange[0]!r}, which no row of the model "
            "had at registration; give only rows that were registered and remain"
        )
    refitted = np.zeros((len(place), theta.shape[1]))
    refitted[[place[name] for name in names]] = theta
    return refitted


def _check_rounded(config: ModelConfig) -> None:
    why = _not_rounded(config)
    if why is not None:
        raise InvalidData(
            f"model {config.model_id!r}: its parameters are not rounded to the last bit: {why}; "
            f"run `lethe verify {config.model_id}` without --digest"
        )


def _not_rounded(config: ModelConfig) -> str | None:
    if config.kind is not Kind.LINEAR:
        return "only a linear model has a minimiser in closed form"
    if config.preprocess and not config.exact_sums:
        return "a model with preprocessing is rounded if it has exact sums"
    if config.d > ROUNDED_FEATURES:
        return f"it has {config.d} coefficients, and only up to {ROUNDED_FEATURES} are rounded"
    return None if config.certify is None else "they include noise"


def _other_row(ids: Sequence[str], rows: Rows, snapshot: Snapshot) -> str | None:
    """Return how the first row of a table differs from the model's, or None if none does.

    Of a pipeline, ids and targets are compared: a table may spell its columns in other ways.
    """
    config, place = snapshot.state.meta.config, {row: i for i, row in enumerate(snapshot.ids)}
    compared = [(config.target_names, rows.y, snapshot.rows.y)]
    if not config.preprocess:
        compared.insert(0, (config.coefficient_names, rows.X, snapshot.rows.X))
    for i, row in enumerate(ids):
        live = place.pop(row, None)
        if live is None:
            return f"row {row!r} is not a live row of the model"
        for columns, here, there in compared:
            pairs = zip(columns, here[i].tolist(), there[live].tolist(), strict=True)
            for name, value, other in pairs:
                if value != other:
                    return f"row {row!r} has {name} = {value!r}, and {other!r} in the model"
        if rows.weight[i] != snapshot.rows.weight[live]:
            return f"row {row!r} has weight {float(snapshot.rows.weight[live])!r} in the model"
    missing = next(iter(place), None)
    return None if missing is None else f"row {missing!r} of the model is not in the table"
