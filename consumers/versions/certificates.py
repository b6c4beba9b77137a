"""Certified removal in the pipeline: what is requested, what is spent, and what is published.

The mathematics is in `engine.error.certified`; docs/certified.md says what is certified and what
is not.
"""

from __future__ import annotations

from dataclasses import replace

from lethe.engine.deletion.generation import Generation, Stream
from lethe.engine.error.certified import (
    REFRESH_AT,
    Ledger,
    Reference,
    begin_ledger,
    noise_share,
    spent,
    with_fresh_noise,
)
from lethe.engine.error.estimate import ErrorKind, PublishedError
from lethe.engine.error.terms import ObjectiveNoise, gradient_limit
from lethe.engine.errors import InvalidData, Uncertified
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.objective import Array, Kind, Objective, Rows, norm
from lethe.engine.fit.precompute import Precomputation
from lethe.engine.refresh.policy import Choice
from lethe.engine.refresh.refreshes import NewGeneration
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.meta import with_meta
from lethe.engine.store.layout.records import (
    Certificate,
    CertificateRecord,
    OutputCertificateRecord,
)
from lethe.engine.store.layout.state import ModelState

_MOST_NOISE = 10.0
"""Times the length of theta by which noise in the objective may move it."""


def check_terms(config: ModelConfig) -> None:
    """Refuse terms that cannot be kept.

    Raises
    ------
    InvalidData
        The method is not exact, or the theorem does not cover the numbers.
    """
    if config.certify is None:
        return
    if config.kind in (Kind.POISSON, Kind.SOFTMAX):
        raise InvalidData(
            f"certified removal is for linear and logistic models; register a {config.kind} model "
            "without --certify and --certify-output"
        )
    if config.method != "exact":
        raise InvalidData(
            f"certified removal needs --method exact, not {config.method}: the certificate is "
            "about the exact answer, and another point would be published"
        )
    config.certify.check()


def noisy(config: ModelConfig, objective: Objective) -> Objective:
    """Return the objective of a new fit, with fresh noise if the model's objective has any."""
    if not isinstance(config.certify, ObjectiveNoise):
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
    config: ModelConfig,
    ledger: Ledger | None,
    generation: Generation,
    stream: Stream,
    factor: Factor,
) -> None:
    """Refuse a fit that noise drowns, or whose own residual leaves too little for deletions.

    Raises
    ------
    InvalidData
        The message has the figures, and says what to do.
    """
    if config.certify is None or ledger is None:
        return
    used = spent(ledger, generation, stream)
    limit = gradient_limit(config.certify, generation.objective)
    if not used <= REFRESH_AT * limit:
        which = "sigma" if isinstance(config.certify, ObjectiveNoise) else "alpha"
        raise InvalidData(
            f"model {config.model_id!r}: the fit alone leaves a gradient residual of {used:.1e}, "
            f"and the certificate's budget is {limit:.1e}; raise {which}, or bring the features to "
            "a smaller scale"
        )
    share = noise_share(generation.objective, factor, stream.theta_exact)
    if not share <= _MOST_NOISE:
        raise InvalidData(
            f"model {config.model_id!r}: the noise in the objective moves theta by {share:.0e} "
            "times its length, so that nothing of the data is left in it; lower sigma, or raise "
            "the ridge"
        )
    if config.output_noise is None:
        return
    error = output_error(config, stream)
    if error.over(config.error_budget):
        raise InvalidData(
            f"model {config.model_id!r}: the noise alone may move theta by {error.relative:.1e} "
            f"(relative), more than the error budget of {config.error_budget:g}; lower alpha or "
            "the number of versions, or raise the error budget"
        )


def fits(config: ModelConfig, ledger: Ledger, generation: Generation, stream: Stream) -> bool:
    """Return whether a stream may be published under the model's terms."""
    terms = config.certify
    if terms is None:
        return True
    return spent(ledger, generation, stream) <= gradient_limit(terms, generation.objective)


def certificate_of(state: ModelState) -> Certificate | None:
    """Return the certificate of a state that is about to be published, or None without terms.

    An ``EMPTY`` model is 0 whatever its rows were, so nothing is spent.

    Raises
    ------
    Uncertified
        The noise would not hide the residual: the state must not be published.
    """
    terms = state.meta.config.certify
    if terms is None:
        return None
    used, limit = _spent(state), gradient_limit(terms, state.generation.objective)
    if not used <= limit:
        raise Uncertified(
            f"model {state.model_id!r}: a gradient residual of up to {used:.3g} is more than the "
            f"{limit:.3g} that its noise hides; it is not published"
        )
    if isinstance(terms, ObjectiveNoise):
        return CertificateRecord(
            epsilon=terms.epsilon, delta=terms.delta, sigma=terms.sigma, spent=used, budget=limit
        )
    return OutputCertificateRecord(
        epsilon=terms.epsilon,
        delta=terms.delta,
        sigma=terms.sigma,
        alpha=terms.alpha,
        versions=terms.versions,
        noised=state.meta.noised,
        epsilon_spent=terms.epsilon_after(state.meta.noised),
    )


def _spent(state: ModelState) -> float:
    """Return the bound of a certified state's gradient residual; 0 of a model without rows.

    Raises
    ------
    Uncertified
        The state has no ledger.
    """
    if state.meta.rows_live == 0:
        return 0.0
    if state.meta.ledger is None:
        raise Uncertified(f"model {state.model_id!r} is certified and has no ledger")
    return spent(state.meta.ledger, state.generation, state.stream)


def budget_fraction(state: ModelState) -> float:
    """Return the fraction of the certificate's budget that is spent; 0 without terms."""
    terms = state.meta.config.certify
    if terms is None or state.meta.ledger is None:
        return 0.0
    return _spent(state) / gradient_limit(terms, state.generation.objective)


def with_certificate_refresh(state: ModelState, choice: Choice) -> Choice:
    """Return a choice that also restores the certificate's budget, where that is needed.

    The first time in a generation a polish is enough. After it, the factor's curvatures are those
    of another point, and each deletion costs more than before: the second time it is a rebuild.
    """
    fraction, ledger = budget_fraction(state), state.meta.ledger
    if fraction <= REFRESH_AT or ledger is None or choice.size is RefreshSize.REBUILD:
        return choice
    can_polish = state.meta.config.kind is Kind.LOGISTIC and ledger.stretch == 0.0
    size = (
        RefreshSize.POLISH
        if can_polish and choice.size is not RefreshSize.COMPACT
        else RefreshSize.REBUILD
    )
    return Choice(size, f"{fraction:.0%} of the certificate's budget is spent")


def with_new_noise(config: ModelConfig, generation: Generation) -> Generation:
    """Return the generation that a rebuild starts from: its objective with fresh noise."""
    return replace(generation, objective=noisy(config, generation.objective))


def leaves_enough_budget(config: ModelConfig, objective: Objective, reference: Reference) -> bool:
    """Return whether a polish leaves enough of the budget for deletions."""
    terms = config.certify
    if terms is None:
        return True
    return reference.ledger.measured <= REFRESH_AT * gradient_limit(terms, objective)


# -- noise on the output --------------------------------------------------------------------------


def with_noise(state: ModelState, held: Array | None) -> ModelState:
    """Return a state that publishes theta_exact with fresh noise, if its terms say so.

    ``held`` is what the version before published of the same live rows. It is published again: it
    hides as much as before, and other noise would reveal more. Without rows theta is 0.
    """
    terms = state.meta.config.output_noise
    if terms is None or state.meta.rows_live == 0:
        return state
    if held is not None:
        return replace(state, stream=state.stream._replace(published=held))
    exact = state.stream.theta_exact
    published = exact + terms.draw(exact.shape)
    meta = with_meta(state.meta, noised=state.meta.noised + 1)
    return replace(state, stream=state.stream._replace(published=published), meta=meta)


def output_error(config: ModelConfig, stream: Stream) -> PublishedError:
    """Return the error of what is published with noise: alpha and the longest noise.

    A bound that is fixed beforehand. The distance itself would reveal how long the noise is.
    """
    terms = config.output_noise
    if terms is None:
        raise AssertionError(f"model {config.model_id!r} has no noise on its output")
    bound = terms.alpha + terms.radius(stream.published.shape)
    relative = bound / (norm(stream.published) or 1.0)
    return PublishedError(bound, ErrorKind.CERTIFICATE, bound, relative)


def versions_spent(state: ModelState) -> bool:
    """Return whether the model has published as often as its terms allow."""
    terms = state.meta.config.output_noise
    return terms is not None and state.meta.noised >= terms.versions
