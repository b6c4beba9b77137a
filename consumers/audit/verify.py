"""An independent check: refit on the live rows by other code, and compare with what is published.

The refit is `consumers.audit.oracle`'s.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from lethe.consumers.audit.oracle import Oracle, gradient_of, refit
from lethe.consumers.audit.pipeline_rows import PipelineRows
from lethe.consumers.subscriber.published import published_of
from lethe.consumers.versions.certificates import certificate_of
from lethe.engine.error.certificate import Certificate
from lethe.engine.errors import NotConverged
from lethe.engine.fit.blocks import outputs
from lethe.engine.fit.fit import fit
from lethe.engine.fit.multinomial import SoftmaxObjective
from lethe.engine.fit.objective import (
    Array,
    Kind,
    Objective,
    Rows,
    RowsInBlocks,
    in_memory,
    norm,
    ridge_penalty,
)
from lethe.engine.fit.precompute import certify_afresh
from lethe.engine.refresh import coupled
from lethe.engine.refresh.blockwise import precompute_blocks, rows_in_block, together
from lethe.engine.store.layout.meta import Meta
from lethe.engine.store.layout.records import ErrorRecord, OutputCertificateRecord
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.offline.live_rows import LiveRows, read_live_rows
from lethe.engine.store.store import ModelStore


@dataclass(frozen=True, slots=True)
class Comparison:
    """Published parameters against the oracle. Distances are absolute unless named otherwise.

    Attributes
    ----------
    distance, relative
        From the published theta to the oracle's, and over the oracle's length.
    bound, bound_from
        The bound that must hold; ``version`` (published) or ``audit`` (computed now).
    argument
        Why it is a bound.
    residual, method
        Those of the oracle.
    """

    distance: float
    relative: float
    bound: float
    bound_from: str
    argument: str
    residual: float
    method: str

    @property
    def holds(self) -> bool:
        """Whether the distance is within the bound, the oracle's own error allowed."""
        return self.distance <= self.bound + self.residual

    @property
    def origin(self) -> str:
        """Where the bound comes from, and why it is one."""
        return f"{'published' if self.bound_from == 'version' else 'audited now'}: {self.argument}"


@dataclass(frozen=True, slots=True)
class Verification(Comparison):
    """A published model of the store against the oracle.

    Attributes
    ----------
    state, rows_live
        What was compared.
    measured
        Of a certified model, what its certificate bounds. With noise in the objective: the norm of
        the gradient at the published theta, summed in extended precision, and at most ``spent``.
        With noise on the output: the distance of theta_exact to the oracle, at most ``alpha``.
    """

    state: ModelState
    rows_live: int
    measured: float | None = None

    @property
    def certified(self) -> bool:
        """Whether what was measured is within what the certificate says; True without one."""
        certificate = certificate_of(self.state)
        if certificate is None or self.measured is None:
            return True
        if isinstance(certificate, OutputCertificateRecord):
            return self.measured <= certificate.alpha + self.residual
        return self.measured <= certificate.spent <= certificate.budget


def verify(store: ModelStore, model_id: str) -> Verification:
    """Refit on the live rows and compare.

    Raises
    ------
    UnknownModel, CorruptState
        The model cannot be read.
    NotConverged
        The oracle or the bound cannot be computed.

    Notes
    -----
    Cost O(n d^2) time. A linear model takes a pass over its rows for the triangle and one for each
    gradient of the refinement: three in all, and a few more where X^T X is near to singular. It
    takes O(d^2) memory beside the rows that are in the store. A logistic model takes a pass for
    each point that the optimiser tries, and where its version has no bound three more for that.
    """
    return read_live_rows(store, model_id, _verified)


def _verified(live: LiveRows) -> Verification:
    state, rows = live.state, live.rows
    _, theta = published_of(state)
    objective, refitted = state.generation.objective, rows
    if state.meta.config.preprocess and len(rows):
        objective, fitted = _refitted_pipeline(state.meta, live)
        rows = fitted.rounded() if live.snapshot is None else fitted.in_memory()
        refitted = fitted if objective.kind is Kind.LINEAR else rows
    oracle = _oracle_of(objective, refitted, theta)
    compared = compare(state.model_id, state.meta.error, objective, rows, theta, oracle)
    measured = _residual(objective, rows, theta)
    if state.meta.config.output_noise is not None:
        measured = norm(state.stream.theta_exact - oracle.theta)
    return Verification(**asdict(compared), state=state, rows_live=len(rows), measured=measured)


def _refitted_pipeline(meta: Meta, live: LiveRows) -> tuple[Objective, PipelineRows]:
    """Return the objective of a pipeline's last step, and its rows: everything is fitted anew."""
    config, intercept = meta.config, meta.config.fit_intercept
    penalised = meta.status == "INTERCEPT_PENALISED"
    fitted = PipelineRows(config.preprocess, live.given, intercept=intercept)
    penalty = ridge_penalty(
        config.ridge, config.d, intercept=intercept, penalise_intercept=penalised
    )
    return Objective(config.kind, penalty), fitted


def _oracle_of(objective: Objective, rows: RowsInBlocks, theta: Array) -> Oracle:
    """Return the refit on rows; without any it is the contract's EMPTY model, theta 0."""
    if len(rows) == 0:
        return Oracle(np.zeros_like(theta), "no rows: zero", 0.0)
    return refit(objective.kind, objective.penalty, rows, objective.linear)


def compare(
    model_id: str,
    error: ErrorRecord,
    objective: Objective,
    rows: RowsInBlocks,
    theta: Array,
    oracle: Oracle | None = None,
) -> Comparison:
    """Refit on rows by code that the engine does not use, and compare ``theta`` with that.

    ``oracle``: the refit, if there is one already.

    Raises
    ------
    NotConverged
        The oracle or the bound cannot be computed.
    """
    oracle = oracle or _oracle_of(objective, rows, theta)
    if len(rows) == 0:
        bound, origin, argument = 0.0, "version", "empty"
    else:
        bound, origin, argument = _bound_at(model_id, error, objective, rows, theta)
    distance, size = norm(theta - oracle.theta), norm(oracle.theta)
    return Comparison(
        distance=distance,
        relative=distance / size if size > 0 else distance,
        bound=bound,
        bound_from=origin,
        argument=argument,
        residual=oracle.residual,
        method=oracle.method,
    )


def _residual(objective: Objective, rows: RowsInBlocks, theta: Array) -> float | None:
    if objective.linear is None or len(rows) == 0:
        return None
    return norm(gradient_of(rows, objective.penalty, theta, objective.kind, objective.linear))


def _bound_at(
    model_id: str, error: ErrorRecord, objective: Objective, rows: RowsInBlocks, theta: Array
) -> tuple[float, str, str]:
    """Return the published bound; without one, measure the gradient over all live rows.

    Raises
    ------
    NotConverged
        No bound can be computed.
    """
    if error.bound is not None:
        return error.bound, "version", error.kind
    certificate = _certified(objective, rows, theta)
    if certificate.bound is not None:
        return certificate.bound, "audit", certificate.argument
    # Too far away for a certificate at theta: certify the optimum, and add the distance to it.
    optimum, certificate = _optimum(objective, rows, theta)
    if certificate.bound is None:
        raise NotConverged(
            f"model {model_id!r}: no bound can be computed at this point or at its optimum; "
            "run `lethe refresh --size rebuild`, and raise the ridge strength if that fails too"
        )
    return (
        norm(theta - optimum) + certificate.bound,
        "audit",
        f"distance to a certified optimum ({certificate.argument})",
    )


def _certified(objective: Objective, rows: RowsInBlocks, theta: Array) -> Certificate:
    """Return a certificate of theta by the Hessian at theta itself."""
    if objective.kind is Kind.SOFTMAX:
        rows = in_memory(rows)
        return coupled.certify_afresh(_of_softmax(objective, rows), rows, theta)
    h = objective.blocks(theta.shape[1])
    return together(
        [
            certify_afresh(objective, rows_in_block(rows, c, h), outputs(theta, c, h))
            for c in range(h)
        ]
    )


def _optimum(objective: Objective, rows: RowsInBlocks, theta: Array) -> tuple[Array, Certificate]:
    """Return the optimum by the engine, from ``theta`` on, and its certificate."""
    if objective.kind is Kind.SOFTMAX:
        rows = in_memory(rows)
        objective = _of_softmax(objective, rows)
        best = fit(objective, rows, theta).theta
        return best, coupled.certify_afresh(objective, rows, best)
    optimum = precompute_blocks(objective, rows, theta)
    return optimum.theta, optimum.certificate


def _of_softmax(objective: Objective, rows: Rows) -> SoftmaxObjective:
    """Return the objective with a gauge: a reader of an evidence bundle does not know any."""
    return SoftmaxObjective.of(objective.penalty, rows)
