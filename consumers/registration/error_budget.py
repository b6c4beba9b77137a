"""Checks that a fresh fit can keep the error budget, before anything is stored."""

from __future__ import annotations

import math

from lethe.engine.deletion.generation import Generation, Stream
from lethe.engine.errors import InvalidData
from lethe.engine.preprocess.live import LivePipeline
from lethe.engine.refresh.policy import RefreshFacts, facts_of
from lethe.engine.store.layout.config import ModelConfig

_ADVICE = "bring the features to a similar scale, raise the ridge, or raise the error budget"


def check_error_budget(
    config: ModelConfig,
    generation: Generation,
    stream: Stream,
    pipeline: LivePipeline | None = None,
) -> None:
    """Refuse a budget that even a fresh fit exceeds: no refresh could meet it.

    ``pipeline``: of a model with preprocessing, whose error follows from its sums.

    Raises
    ------
    InvalidData
        The message has the figures, and what to do.
    """
    if pipeline is not None:
        error = pipeline.error(generation, stream)
        if error.over(config.error_budget):
            raise InvalidData(
                f"model {config.model_id!r}: the fit itself is uncertain by {error.relative:.1e} "
                f"(relative), more than the error budget of {config.error_budget:g}; no refresh "
                "could meet it: raise the ridge or the error budget"
            )
        return
    facts = _facts(config, generation, stream)
    if not facts.left_within(facts.budget):
        raise InvalidData(
            f"model {config.model_id!r}: the fit itself is uncertain by {_relative(config, facts)}"
            f" (condition number {facts.condition:.0e}), more than the error budget of "
            f"{config.error_budget:g}; no refresh could meet it: {_ADVICE}"
        )


def fit_warnings(config: ModelConfig, generation: Generation, stream: Stream) -> list[str]:
    """Return warnings about a fit that is accepted, one line each."""
    facts, limits = _facts(config, generation, stream), config.limits.limits()
    lines = []
    if facts.condition > limits.condition:
        lines.append(
            f"the data's condition number {facts.condition:.0e} exceeds its limit of "
            f"{limits.condition:.0e}: digits are lost, and more requests will wait for rebuilds; "
            "bring the features to a similar scale, or raise the ridge"
        )
    if not facts.left_within(limits.far_under * facts.budget):
        lines.append(
            f"the fit itself uses {_share(facts):.0%} of the error budget, which "
            f"leaves little for deletions, so that refreshes will be frequent; {_ADVICE}"
        )
    return lines


def _relative(config: ModelConfig, facts: RefreshFacts) -> str:
    return f"{_share(facts) * config.error_budget:.1e} (relative)"


def _share(facts: RefreshFacts) -> float:
    """Return the error that the fit itself leaves, as a share of the budget."""
    return math.inf if facts.remaining is None else facts.remaining / facts.budget


def _facts(config: ModelConfig, generation: Generation, stream: Stream) -> RefreshFacts:
    return facts_of(
        generation, stream, rows_live=0, estimate=0.0, budget_relative=config.error_budget
    )
