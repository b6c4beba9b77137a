"""`lethe summary`: standard errors and tests of a linear model of the store."""

from __future__ import annotations

import numpy as np

from lethe.engine.errors import InvalidData
from lethe.engine.exact.sums import Sums
from lethe.engine.fit.objective import Kind
from lethe.engine.inference import Summary, summarise
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.offline.snapshot import take_snapshot
from lethe.engine.store.store import ModelStore


def summaries(
    store: ModelStore, model_id: str, *, level: float, covariance: str
) -> tuple[int, dict[str, Summary]]:
    """Return a model's version, and the summary of each of its targets.

    Raises
    ------
    UnknownModel, CorruptState
        The model cannot be read.
    InvalidData
        It has no summary, or a parameter cannot be used.

    Notes
    -----
    Cost O(n d^2). Of rows in files none is read: the state has their sums.
    """
    state = store.load_model(model_id)
    config, solution = state.meta.config, state.stream.solution
    why = _without_summary(config)
    if why is not None:
        raise InvalidData(f"model {model_id!r} has no summary: {why}")
    if not state.meta.rows_live:
        raise InvalidData(f"model {model_id!r} has no summary: every row is deleted")
    if state.meta.row_files is not None and solution is not None:
        sums, rows = solution.live_sums, state.meta.rows_live  # no weight is 0
    else:
        snapshot = take_snapshot(store, model_id)
        state, sums = snapshot.state, Sums.of(snapshot.rows)
        rows = int(np.count_nonzero(snapshot.rows.weight))
    found = summarise(
        sums,
        state.generation.objective.penalty,
        state.stream.theta_exact,
        config.coefficient_names,
        rows=rows,
        intercept=config.fit_intercept,
        level=level,
        covariance=covariance,
    )
    return state.version, dict(zip(config.target_names, found, strict=True))


def _without_summary(config: ModelConfig) -> str | None:
    if config.kind is not Kind.LINEAR:
        return "only linear models have one"
    if config.preprocess:
        return (
            "the statistics of its preprocessing move with the rows, and standard errors of fixed "
            "features would be too small"
        )
    return None if config.certify is None else "its parameters include noise"
