"""An independent check: refit on the live rows by other code, and compare with what is published.

Nothing of `engine.fit.fit` or `engine.fit.objective` is used for the oracle. Linear models: QR of
the augmented system [sqrt(w) X; sqrt(penalty)], which never forms X^T X, a block of rows after the
other (sequential TSQR: Demmel, Grigori, Hoemmen and Langou 2012). Logistic models:
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
from lethe.consumers.subscriber.published import published_of
from lethe.consumers.versions.certificates import certificate_of
from lethe.engine.errors import NotConverged
from lethe.engine.fit.blocks import outputs
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
from lethe.engine.preprocess.input.table import Table
from lethe.engine.refresh.blockwise import precompute_blocks, rows_of, together
from lethe.engine.store.layout.meta import Meta
from lethe.engine.store.layout.records import ErrorRecord, OutputCertificateRecord
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.offline.live_rows import LiveRows, read_live_rows
from lethe.engine.store.store import ModelStore

_REFINEMENTS = 6
_RESIDUAL = 1e-8  # relative to |theta|: an oracle that is further off is rejected
_EPS = float(np.finfo(np.float64).eps)
_SMALLEST = 1e-150  # theta 0: no relative error
_STACKED = 4096  # rows, at least, that are added to a triangle at once
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
    UnknownModel, CorruptState
        The model cannot be read.
    NotConverged
        The oracle or the bound cannot be computed.

    Notes
    -----
    Cost O(n d^2) time. A linear model takes a pass over its rows for the triangle and one for each
    gradient of the refinement: three in all, and a few more where X^T X is near to singular. It
    takes O(d^2) memory beside the rows that are in the store; a logistic one an n x d copy.
    """
    return read_live_rows(store, model_id, _verified)


def _verified(live: LiveRows) -> Verification:
    state, rows = live.state, live.rows
    _, theta = published_of(state)
    objective = state.generation.objective
    if live.table is not None and len(rows):
        objective, rows = _refitted_pipeline(state.meta, live.table, in_memory(rows))
    oracle = _oracle_of(objective, rows, theta)
    compared = compare(state.model_id, state.meta.error, objective, rows, theta, oracle)
    measured = _residual(objective, rows, theta)
    if state.meta.config.output_noise is not None:
        measured = norm(state.stream.theta_exact - oracle.theta)
    return Verification(**asdict(compared), state=state, rows_live=len(rows), measured=measured)


def _refitted_pipeline(meta: Meta, table: Table, rows: Rows) -> tuple[Objective, Rows]:
    """Return the objective of a pipeline's last step, and its rows: everything is fitted anew."""
    config, intercept = meta.config, meta.config.fit_intercept
    penalised = meta.status == "INTERCEPT_PENALISED"
    fitted = pipeline_rows(config.preprocess, table, rows.y, rows.weight, intercept=intercept)
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
    return norm(_gradient(rows, objective.penalty, theta, objective.kind, objective.linear))


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
    if not isinstance(rows, Rows):  # of every version with exact sums it is known
        raise NotConverged(
            f"model {model_id!r}: its newest version has no bound, and its rows are in files; run "
            "`lethe refresh --size rebuild`"
        )
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


def refit(kind: Kind, penalty: Array, rows: RowsInBlocks, noise: Array | None = None) -> Oracle:
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
        held = in_memory(rows)
        columns = [slice(c, c + 1) for c in range(held.y.shape[1])]
        parts = [
            _logistic(
                penalty,
                Rows(held.X, held.y[:, c], held.weight),
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


def _linear(penalty: Array, rows: RowsInBlocks, noise: Array | None) -> Oracle:
    R, right = _triangle(penalty, rows)
    theta: Array = solve_triangular(R, right)
    if noise is not None:
        theta = theta - solve_triangular(R, solve_triangular(R, noise, trans="T"))

    def step_at(point: Array) -> Array:
        gradient = _gradient(rows, penalty, point, Kind.LINEAR, noise)
        step: Array = solve_triangular(R, solve_triangular(R, gradient, trans="T"))
        return step

    theta, residual = _refined(theta, step_at)
    return Oracle(theta, "QR of the augmented system", residual)


def _triangle(penalty: Array, rows: RowsInBlocks) -> tuple[Array, Array]:
    """Return R and Q^T y of the augmented system. Cost O(n d^2); memory O(d^2)."""
    d = len(penalty)
    stack: list[Array] = []
    for block in rows.blocks():
        stack.append(np.sqrt(block.weight)[:, None] * np.hstack([block.X, block.y]))
        if sum(map(len, stack)) >= max(_STACKED, 3 * stack[0].shape[1]):
            stack = [_triangular(stack)]
    # Last: a small penalty above large rows would lose its digits.
    ridge = np.hstack([np.diag(np.sqrt(penalty)), np.zeros((d, stack[0].shape[1] - d))])
    triangle = _triangular([*stack, ridge])
    return triangle[:d, :d], triangle[:d, d:]


def _triangular(stack: list[Array]) -> Array:
    [R] = qr(np.vstack(stack), mode="r", check_finite=False)
    triangle: Array = R[: R.shape[1]]
    return triangle


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
        if norm(step) <= _EPS * norm(theta):
            break
        moved = theta - step
        following = step_at(moved)
        if not norm(following) < norm(step):
            break
        theta, step = moved, following
    # Storing theta rounds each coordinate by half a unit in the last place.
    return theta, norm(step) + _EPS * norm(theta)


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
    rows: RowsInBlocks, penalty: Array, theta: Array, kind: Kind, noise: Array | None = None
) -> Array:
    """Return the gradient, summed in extended precision where the machine has it."""
    point: Long = theta.astype(np.longdouble)
    total: Long = penalty.astype(np.longdouble)[:, None] * point
    if noise is not None:
        total = total + noise
    for block in rows.blocks():
        X: Long = block.X.astype(np.longdouble)
        errors = _means(kind, X @ point) - block.y
        total = total + X.T @ (block.weight[:, None] * errors)
    return np.asarray(total, dtype=np.float64)
