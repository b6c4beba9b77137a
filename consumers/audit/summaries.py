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
    Cost O(n d^2).
    """
    snapshot = take_snapshot(store, model_id)
    state, config = snapshot.state, snapshot.state.meta.config
    why = _without_summary(config)
    if why is not None:
        raise InvalidData(f"model {model_id!r} has no summary: {why}")
    if not snapshot.ids:
        raise InvalidData(f"model {model_id!r} has no summary: every row is deleted")
    found = summarise(
        Sums.of(snapshot.rows),
        state.generation.objective.penalty,
        state.stream.theta_exact,
        config.coefficient_names,
        rows=int(np.count_nonzero(snapshot.rows.weight)),
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
