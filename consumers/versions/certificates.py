"""Certified removal in the pipeline: what is requested, what is spent, and what is published.

The mathematics is in `engine.error.certified`; docs/certified.md says what is certified and what
is not.
"""

from __future__ import annotations

from dataclasses import replace

from lethe.engine.deletion.stream import Generation, Stream
from lethe.engine.error.certified import (
    REFRESH_AT,
    Ledger,
    Reference,
    begin_ledger,
    spent,
    with_fresh_noise,
)
from lethe.engine.errors import InvalidData, Uncertified
from lethe.engine.fit.objective import Kind, Objective, Rows
from lethe.engine.fit.precompute import Precomputation
from lethe.engine.refresh.kind import RefreshKind
from lethe.engine.refresh.kinds import NewGeneration
from lethe.engine.refresh.policy import Choice
from lethe.engine.store.records import CertificateRecord
from lethe.engine.store.state import ModelConfig, ModelState


def check_terms(config: ModelConfig) -> None:
    """Refuse terms that cannot be kept.

    Raises
    ------
    InvalidData
        The method is not exact, or the theorem does not cover the numbers.
    """
    if config.certify is None:
        return
    if config.method != "exact":
        raise InvalidData(
            f"--certify needs --method exact, not {config.method}: the certificate is about the "
            "exact answer, and another point would be published"
        )
    config.certify.check()


def noisy(config: ModelConfig, objective: Objective) -> Objective:
    """Return the objective of a new fit: with fresh noise, if the model is certified."""
    if config.certify is None:
        return objective
    return with_fresh_noise(objective, config.m, config.certify.sigma)


def first_ledger(
    config: ModelConfig, objective: Objective, rows: Rows, fit: Precomputation | NewGeneration
) -> Ledger | None:
    """Return the ledger of a fresh fit over ``rows``. Cost O(n d^2) for a certified model."""
    if config.certify is None:
        return None
    theta = fit.theta if isinstance(fit, Precomputation) else fit.generation.theta_b
    return begin_ledger(objective, rows, theta, fit.dual_rows, fit.factor)


def check_first(
    config: ModelConfig, ledger: Ledger | None, generation: Generation, stream: Stream
) -> None:
    """Refuse a fit whose own residual leaves too little of the budget for deletions.

    Raises
    ------
    InvalidData
        The message has the figures, and says what to do.
    """
    if config.certify is None or ledger is None:
        return
    used = spent(ledger, generation, stream)
    if not used <= REFRESH_AT * config.certify.budget:
        raise InvalidData(
            f"model {config.model_id!r}: the fit alone leaves a gradient residual of {used:.1e}, "
            f"and the certificate's budget is {config.certify.budget:.1e}; raise sigma, or bring "
            "the features to a smaller scale"
        )


def fits(config: ModelConfig, ledger: Ledger, generation: Generation, stream: Stream) -> bool:
    """Return whether a stream may be published under the model's terms."""
    terms = config.certify
    return terms is None or spent(ledger, generation, stream) <= terms.budget


def certificate_of(state: ModelState) -> CertificateRecord | None:
    """Return the certificate of a state that is about to be published, or None without terms.

    An ``EMPTY`` model is 0 whatever its rows were, so nothing is spent.

    Raises
    ------
    Uncertified
        The noise would not hide the residual: the state must not be published.
    """
    terms, ledger = state.meta.config.certify, state.meta.ledger
    if terms is None:
        return None
    used = 0.0
    if state.meta.rows_live > 0:
        if ledger is None:
            raise Uncertified(f"model {state.model_id!r} is certified and has no ledger")
        used = spent(ledger, state.generation, state.stream)
    if not used <= terms.budget:
        raise Uncertified(
            f"model {state.model_id!r}: a gradient residual of up to {used:.3g} is more than the "
            f"{terms.budget:.3g} that its noise hides; it is not published"
        )
    return CertificateRecord(
        epsilon=terms.epsilon,
        delta=terms.delta,
        sigma=terms.sigma,
        spent=used,
        budget=terms.budget,
    )


def budget_fraction(state: ModelState) -> float:
    """Return the fraction of the certificate's budget that is spent; 0 without terms."""
    terms, ledger = state.meta.config.certify, state.meta.ledger
    if terms is None or ledger is None or state.meta.rows_live == 0:
        return 0.0
    return spent(ledger, state.generation, state.stream) / terms.budget


def with_certificate_refresh(state: ModelState, choice: Choice) -> Choice:
    """Return a choice that also restores the certificate's budget, where that is needed.

    The first time in a generation a polish is enough. After it, the factor's curvatures are those
    of another point, and each deletion costs more than before: the second time it is a rebuild.
    """
    fraction, ledger = budget_fraction(state), state.meta.ledger
    if fraction <= REFRESH_AT or ledger is None or choice.size is RefreshKind.REBUILD:
        return choice
    can_polish = state.meta.config.kind is Kind.LOGISTIC and ledger.stretch == 0.0
    size = (
        RefreshKind.POLISH
        if can_polish and choice.size is not RefreshKind.COMPACT
        else RefreshKind.REBUILD
    )
    return Choice(size, f"{fraction:.0%} of the certificate's budget is spent")


def renoised(config: ModelConfig, generation: Generation) -> Generation:
    """Return the generation that a rebuild starts from: its objective with fresh noise."""
    return replace(generation, objective=noisy(config, generation.objective))


def polished_enough(config: ModelConfig, reference: Reference) -> bool:
    """Return whether a polish leaves enough of the budget for deletions."""
    terms = config.certify
    return terms is None or reference.ledger.measured <= REFRESH_AT * terms.budget
