"""An independent check: refit on the live rows by other code, and compare with what is published.

Nothing of `engine.fit.fit` or `engine.fit.objective` is used for the oracle. Linear models: QR of
the augmented system [sqrt(w) X; sqrt(penalty)], which never forms X^T X. Logistic models:
``scipy.optimize.minimize`` with loss, gradient and Hessian written here. Both end with Newton steps
whose gradient is summed in extended precision; the length of the last step bounds how far off the
oracle itself may be, and is added to the tolerance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, qr, solve_triangular
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from lethe.consumers.audit.pipeline_rows import pipeline_rows
from lethe.consumers.contract.events import Parameters
from lethe.consumers.subscriber.published import published
from lethe.consumers.versions.certificates import certificate_of
from lethe.engine.errors import CommitConflict, NotConverged
from lethe.engine.fit.blocks import outputs
from lethe.engine.fit.objective import Array, Kind, Objective, Rows, norm, ridge_penalty
from lethe.engine.fit.precompute import certify_afresh
from lethe.engine.preprocess.input.table import Table
from lethe.engine.refresh.blockwise import precompute_blocks, rows_of, together
from lethe.engine.store.layout.meta import Meta
from lethe.engine.store.layout.records import ErrorRecord, OutputCertificateRecord
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.offline.snapshot import Snapshot, take_snapshot
from lethe.engine.store.store import ModelStore

_REFINEMENTS = 6
_RESIDUAL = 1e-8  # relative to |theta|: an oracle that is further off is rejected
_SMALLEST = 1e-150  # theta 0: no relative error
_BLOCK = 4096  # rows held in extended precision at once
_TRIES = 5
_EXACT_LIMIT = 400  # d above which the trust region is solved by a Krylov method
_ITERATIONS = 500

Long: TypeAlias = NDArray[np.longdouble]
_StepAt: TypeAlias = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class Oracle:
    """A refit: its theta (d x m), how it was computed, and how far off it may be itself."""

    theta: Array
    method: str
    residual: float


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
    UnknownModel, CorruptState, CommitConflict
        The model cannot be read.
    NotConverged
        The oracle or the bound cannot be computed.

    Notes
    -----
    Cost O(n d^2) time, X and an n x d copy in memory.
    """
    snapshot, _, theta = read_published(store, model_id)
    state, rows = snapshot.state, snapshot.rows
    objective = state.generation.objective
    if snapshot.table is not None and len(rows):
        objective, rows = _refitted_pipeline(state.meta, snapshot.table, rows)
    oracle = _oracle_of(objective, rows, theta)
    compared = compare(model_id, state.meta.error, objective, rows, theta, oracle)
    measured = _residual(objective, rows, theta)
    if state.meta.config.output_noise is not None:
        measured = norm(state.stream.theta_exact - oracle.theta)
    return Verification(**asdict(compared), state=state, rows_live=len(rows), measured=measured)


def read_published(store: ModelStore, model_id: str) -> tuple[Snapshot, Parameters, Array]:
    """Return the live rows, and the parameters that are published for them.

    Raises
    ------
    UnknownModel, CorruptState, CommitConflict
        The model cannot be read.
    """
    for _ in range(_TRIES):
        snapshot = take_snapshot(store, model_id)
        event, theta = published(store, model_id)
        if event.version == snapshot.state.version:
            return snapshot, event, theta
    raise CommitConflict(
        f"model {model_id!r}: deletions were committed while it was read; try again in a moment"
    )


def _refitted_pipeline(meta: Meta, table: Table, rows: Rows) -> tuple[Objective, Rows]:
    """Return the objective of a pipeline's last step, and its rows: everything is fitted anew."""
    config, intercept = meta.config, meta.config.fit_intercept
    penalised = meta.status == "INTERCEPT_PENALISED"
    fitted = pipeline_rows(config.preprocess, table, rows.y, rows.weight, intercept=intercept)
    penalty = ridge_penalty(
        config.ridge, config.d, intercept=intercept, penalise_intercept=penalised
    )
    return Objective(config.kind, penalty), fitted


def _oracle_of(objective: Objective, rows: Rows, theta: Array) -> Oracle:
    """Return the refit on rows; without any it is the contract's EMPTY model, theta 0."""
    if len(rows) == 0:
        return Oracle(np.zeros_like(theta), "no rows: zero", 0.0)
    return refit(objective.kind, objective.penalty, rows, objective.linear)


def compare(
    model_id: str,
    error: ErrorRecord,
    objective: Objective,
    rows: Rows,
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


def _residual(objective: Objective, rows: Rows, theta: Array) -> float | None:
    if objective.linear is None or len(rows) == 0:
        return None
    return norm(_gradient(rows, objective.penalty, theta, objective.kind, objective.linear))


def _bound_at(
    model_id: str, error: ErrorRecord, objective: Objective, rows: Rows, theta: Array
) -> tuple[float, str, str]:
    """Return the published bound; without one, measure the gradient over all live rows.

    Raises
    ------
    NotConverged
        No bound can be computed.
    """
    if error.bound is not None:
        return error.bound, "version", error.kind
    h = objective.blocks(theta.shape[1])
    certificate = together(
        [certify_afresh(objective, rows_of(rows, c, h), outputs(theta, c, h)) for c in range(h)]
    )
    if certificate.bound is not None:
        return certificate.bound, "audit", certificate.argument
    # Too far away for a certificate at theta: certify the optimum, and add the distance to it.
    optimum = precompute_blocks(objective, rows, theta)
    if optimum.certificate.bound is None:
        raise NotConverged(
            f"model {model_id!r}: no bound can be computed at this point or at its optimum; "
            "run `lethe refresh --size rebuild`, and raise the ridge strength if that fails too"
        )
    return (
        norm(theta - optimum.theta) + optimum.certificate.bound,
        "audit",
        f"distance to a certified optimum ({optimum.certificate.argument})",
    )


# -- the oracle ---------------------------------------------------------------------------------


def refit(kind: Kind, penalty: Array, rows: Rows, noise: Array | None = None) -> Oracle:
    """Return the minimiser over ``rows`` by code that the engine does not use.

    With several classes, each is refitted against the rest. ``noise`` is the linear term of a
    certified model, d x m.

    Raises
    ------
    NotConverged
        The residual is so large that any model would pass.
    """
    if kind is Kind.LINEAR:
        oracle = _linear(penalty, rows, noise)
    else:
        columns = [slice(c, c + 1) for c in range(rows.y.shape[1])]
        parts = [
            _logistic(
                penalty,
                Rows(rows.X, rows.y[:, c], rows.weight),
                None if noise is None else noise[:, c],
            )
            for c in columns
        ]
        theta = np.hstack([part.theta for part in parts])
        residual = norm(np.array([part.residual for part in parts]))
        oracle = Oracle(theta, parts[0].method, residual)
    if not oracle.residual <= _RESIDUAL * norm(oracle.theta) + _SMALLEST:
        raise NotConverged(
            f"the independent refit ({oracle.method}) has not converged ({oracle.residual:.1e} is "
            "left), so it cannot judge the model; raise the ridge strength or rescale the features"
        )
    return oracle


def _linear(penalty: Array, rows: Rows, noise: Array | None) -> Oracle:
    root = np.sqrt(rows.weight)[:, None]
    system = np.vstack([root * rows.X, np.diag(np.sqrt(penalty))])
    right = np.vstack([root * rows.y, np.zeros((len(penalty), rows.y.shape[1]))])
    Q, R = qr(system, mode="economic")
    theta: Array = solve_triangular(R, Q.T @ right)
    if noise is not None:
        theta = theta - solve_triangular(R, solve_triangular(R, noise, trans="T"))

    def step_at(point: Array) -> Array:
        gradient = _gradient(rows, penalty, point, Kind.LINEAR, noise)
        step: Array = solve_triangular(R, solve_triangular(R, gradient, trans="T"))
        return step

    theta, residual = _refined(theta, step_at)
    return Oracle(theta, "QR of the augmented system", residual)


def _logistic(penalty: Array, rows: Rows, noise: Array | None) -> Oracle:
    d = len(penalty)
    target, weight = rows.y[:, 0], rows.weight
    tilt = np.zeros(d) if noise is None else noise[:, 0]

    def value(theta: Array) -> float:
        margin = rows.X @ theta
        log_likelihood = target * log_expit(margin) + (1 - target) * log_expit(-margin)
        return float(-weight @ log_likelihood + 0.5 * penalty @ theta**2 + tilt @ theta)

    def gradient(theta: Array) -> Array:
        slope: Array = rows.X.T @ (weight * (expit(rows.X @ theta) - target)) + penalty * theta
        return slope + tilt

    def hessian(theta: Array) -> Array:
        probability = expit(rows.X @ theta)
        curved: Array = (rows.X.T * (weight * probability * (1 - probability))) @ rows.X
        curved[np.diag_indices(d)] += penalty
        return curved

    method = "trust-exact" if d <= _EXACT_LIMIT else "trust-krylov"
    solution = minimize(
        value,
        np.zeros(d),
        jac=gradient,
        hess=hessian,
        method=method,
        options={"gtol": 1e-8 * max(1.0, norm(gradient(np.zeros(d)))), "maxiter": _ITERATIONS},
    )

    def step_at(point: Array) -> Array:
        slope = _gradient(rows, penalty, point, Kind.LOGISTIC, noise)
        step: Array = cho_solve(cho_factor(hessian(point[:, 0])), slope)
        return step

    theta, residual = _refined(np.asarray(solution.x).reshape(d, 1), step_at)
    return Oracle(theta, f"scipy.optimize {method}", residual)


def _refined(theta: Array, step_at: _StepAt) -> tuple[Array, float]:
    """Take Newton steps while they shrink; return the point and how far off it may be."""
    step = step_at(theta)
    for _ in range(_REFINEMENTS):
        moved = theta - step
        following = step_at(moved)
        if not norm(following) < norm(step):
            break
        theta, step = moved, following
    # Storing theta rounds each coordinate by half a unit in the last place.
    return theta, norm(step) + float(np.finfo(np.float64).eps) * norm(theta)


def _means(kind: Kind, margin: Long) -> Long:
    """Return what a model expects of rows with these margins."""
    match kind:
        case Kind.LINEAR:
            return margin
        case Kind.LOGISTIC:
            return np.asarray(1 / (1 + np.exp(-margin)))
        case Kind.SOFTMAX | Kind.POISSON:
            raise AssertionError("the service keeps none of them")


def _gradient(
    rows: Rows, penalty: Array, theta: Array, kind: Kind, noise: Array | None = None
) -> Array:
    """Return the gradient, summed in extended precision where the machine has it."""
    point: Long = theta.astype(np.longdouble)
    total: Long = penalty.astype(np.longdouble)[:, None] * point
    if noise is not None:
        total = total + noise
    for start in range(0, len(rows), _BLOCK):
        block = slice(start, start + _BLOCK)
        X: Long = rows.X[block].astype(np.longdouble)
        margin = X @ point
        errors = _means(kind, margin) - rows.y[block]
        total = total + X.T @ (rows.weight[block, None] * errors)
    return np.asarray(total, dtype=np.float64)
