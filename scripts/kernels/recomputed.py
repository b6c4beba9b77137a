"""Section ``recomputed``: V and Q made anew by a worker that takes over, and not stored.

It has L and the base dual rows W of the rows that left: B = W A W^T = (W L)(W L)^T, and U = A W for
Q; or it has their features U as well; or V is stored, and Q alone is made anew. Before each request
somebody takes over in each of these ways and decides the request, beside the worker that has V and
Q as they came. Judged in 80-bit arithmetic: theta_exact against the minimiser of the quadratic
model, by the bound that each would publish. docs/decisions/0010 says what follows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from harness.records import Record, Setting
from harness.study import Section, Setup
from kernels.left_rows import Drawn, tables
from lethe.engine.deletion import generation as stream_of
from lethe.engine.deletion.correction import DELETED, INSERTED, Correction
from lethe.engine.deletion.growing import GrowingRows
from lethe.engine.deletion.insertion import base_dual_rows, insert
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.span import extend_basis, project
from lethe.engine.deletion.stream import Generation, Stream, begin, delete
from lethe.engine.errors import LetheError
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.objective import Array, Kind, Objective, Rows
from lethe.engine.fit.precompute import precompute
from lethe.engine.refresh.refreshes import compact
from tests.proof.bounds.oracle import Wide, _inverse, length, widened

STORED, BY_FACTOR = "stored", "of W and L"
BY_FEATURES, BY_V = "of W and features", "V stored, Q of V and L"
MODES = ("", "compacted", "taken over by each", "a long row came and went")
PRU = method_named("pru")


@dataclass(frozen=True, slots=True)
class Plan:
    """Streams of each table, kind and mode."""

    streams: int = 12


def correction_of(U: Array | None, W: Array, s: Array, came: int, L: Array) -> Correction | None:
    """Return V of moved rows, the first ``came`` inserted; None if M is not positive definite.

    By their features U, or else by the factor. Cost O(K^2 d), and by the factor O(K d^2).
    """
    half, root = W @ L, np.sqrt(s)[:, None]
    B = half @ half.T if U is None else U @ W.T
    B, W = 0.5 * (B + B.T) * (root * root.T), root * W
    first, last = slice(0, came), slice(came, None)
    try:
        C = cholesky(np.eye(came) + B[first, first], lower=True)
        Y = solve_triangular(C, B[first, last], lower=True)
        inserted = solve_triangular(C, W[first], lower=True)
        D = cholesky(np.eye(len(W) - came) - B[last, last] + Y.T @ Y, lower=True)
        deleted = solve_triangular(D, W[last] - Y.T @ inserted, lower=True)
    except (LinAlgError, ValueError):
        return None
    return Correction.empty(W.shape[1]).append(inserted, INSERTED).append(deleted)


def features_in(V: Correction, L: Array) -> Array:
    """Return S^1/2 U of all rows that moved, from V and the factor, whatever the batches were.

    V = G S^1/2 W with G lower triangular, J + V A V^T = G J G^T, and S^1/2 U = G^-1 V A.
    """
    half = V.array @ L
    signs = np.full(len(V), DELETED) if V.signs is None else V.signs
    rest, G = np.diag(signs) + half @ half.T, np.zeros((len(V), len(V)))
    for j, sign in enumerate(signs):
        G[j:, j] = rest[j:, j] / np.sqrt(abs(rest[j, j])) * sign
        rest[j:, j:] -= sign * np.outer(G[j:, j], G[j:, j])
    found: Array = solve_triangular(G, half @ L.T, lower=True)
    return found


@dataclass(slots=True)
class _Model:
    """A model under way. Rows by place; the last one is not among those of the fit."""

    rows: Rows
    objective: Objective
    generation: Generation
    factor: Factor
    W: Array
    stream: Stream
    live: NDArray[np.bool_]
    left: list[int] = field(default_factory=list)  # in this generation
    came: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)

    def s(self, places: list[int] | NDArray[np.bool_]) -> Array:
        """Return curvatures."""
        rows = self.rows.take(np.array(places))
        curvatures: Array = self.objective.curvatures(rows, self.generation.theta_b)[:, 0]
        return curvatures

    def taken_over(self, how: str) -> Stream | None:
        """Return the stream of a worker that takes over; None if it cannot be made."""
        places, V, L = [*self.came, *self.left], self.stream.V, self.factor.L
        if how == STORED or not (places and len(V)):
            return self.stream
        U, W = self.rows.X[places], self.W[places]
        if how == BY_V:
            span = features_in(V, L)
        else:
            features = U if how == BY_FEATURES else None
            made = correction_of(features, W, self.s(places), len(self.came), L)
            if made is None:
                return None
            V, span = made, self.factor.product(W.T).T if features is None else U
        Q = GrowingRows.of(extend_basis(self.stream.Q.array[:0], span))
        trace = max(self.stream.v_trace, float(np.sum(V.grown**2)))
        return self.stream._replace(V=V, Q=Q, v_trace=trace)

    def delete(self, stream: Stream | None, places: list[int]) -> Stream | None:
        """Return the stream without these rows; None if a guard refuses."""
        if stream is None:
            return None
        rows, W = self.rows.take(np.array(places)), self.W[places]
        try:
            return delete(self.generation, stream, rows, W, PRU).stream
        except LetheError:
            return None

    def note(self, places: list[int], stream: Stream) -> None:
        """Go on from a stream without these rows. Of one that had come, no dual row is kept."""
        self.stream, self.live[places] = stream, False
        fitted = [place for place in places if place not in self.came]
        self.left, self.gone = self.left + fitted, self.gone + fitted
        self.came = [place for place in self.came if place not in places]

    def insert(self, place: int) -> None:
        """Insert a row."""
        row = self.rows.take(np.array([place]))
        self.W[place], error = base_dual_rows(self.generation, self.factor, row.X)
        W = self.W[[place]]
        self.stream = insert(self.generation, self.stream, row, W, PRU, error).stream
        self.came, self.live[place] = [place], True

    def compact(self) -> None:
        """Fold V away."""
        live = np.flatnonzero(self.live)
        rows, W = self.rows.take(live), self.W[live]
        made = compact(self.generation, self.stream, self.factor, rows, W)
        self.generation, self.stream, self.factor = made.generation, made.stream, made.factor
        self.W[live], self.left = made.dual_rows, []

    def inverse(self) -> Wide:
        """Return G, G G^T the inverse of the live quadratic model's Hessian."""
        root = np.sqrt(widened(self.s(self.live)))[:, None] * widened(self.rows.X[self.live])
        return _inverse(np.vstack([root, np.diag(np.sqrt(widened(self.objective.penalty)))])).G

    def minimiser(self, G: Wide) -> tuple[Wide, float]:
        """Return that of the live quadratic model, and about what it may be wrong by."""
        X, y = widened(self.rows.X[self.live]), widened(self.rows.y[self.live])
        s, penalty = widened(self.s(self.live))[:, None], widened(self.objective.penalty)[:, None]
        wanted, theta = X.T @ (s * y), np.zeros((X.shape[1], y.shape[1]), dtype=np.longdouble)
        if self.objective.kind is not Kind.LINEAR:  # the step from theta_r
            wanted, theta = np.zeros_like(wanted), widened(self.stream.theta_r)
            for places, sign in ((self.gone, 1), (self.came, -1)):
                rows = self.rows.take(np.array(places, dtype=np.intp))
                errors = widened(self.objective.error(rows, self.stream.theta_r))
                wanted = wanted + sign * (widened(rows.X).T @ errors)
        step, last = np.zeros_like(wanted), np.inf
        for _ in range(9):
            more = G @ (G.T @ (wanted - X.T @ (s * (X @ step)) - penalty * step))
            if not float(length(more)) < last / 2:
                break
            step, last = step + more, float(length(more))
        return theta + step, 4.0 * last


class _Found(defaultdict[str, Counter[str]]):
    """What states came to, by how V and Q were had; ``worst`` has largest figures."""

    def __init__(self) -> None:
        super().__init__(Counter)
        self.worst: defaultdict[str, dict[str, float]] = defaultdict(dict)
        self.features: list[float] = []

    def most(self, how: str, what: str, value: float) -> None:
        """Note a figure."""
        self.worst[how][what] = max(self.worst[how].get(what, 0.0), value)


def follow(model: _Model, requests: list[list[int]], mode: str, found: _Found) -> None:
    """Delete request by request; before each, somebody takes over in each of the ways."""
    third, carried_by = len(requests) // 3, BY_FACTOR if mode == MODES[2] else STORED
    if mode == MODES[3]:
        model.insert(len(model.live) - 1)
        requests = [*requests[:third], [len(model.live) - 1], *requests[third:]]
    for number, places in enumerate(requests):
        if mode == MODES[1] and number == third:
            model.compact()
        ways = {how: model.taken_over(how) for how in (STORED, BY_FACTOR, BY_FEATURES, BY_V)}
        if judged := bool(model.left) and not stream_of.has_lost_digits(model.stream):
            _compare(model, ways, found)
        steps = {how: model.delete(stream, places) for how, stream in ways.items()}
        for how, stream in ways.items() if judged else ():
            found[how]["V cannot be made"] += stream is None
            otherwise = stream is not None and (steps[how] is None) != (steps[STORED] is None)
            found[how]["guard decides otherwise"] += otherwise
        if (after := steps[carried_by]) is not None:
            model.note(places, after)
            if judged:
                _judge(model, steps, found)


def _compare(model: _Model, ways: dict[str, Stream | None], found: _Found) -> None:
    """Compare V and Q of one state: dual rows of rows that stay, and what is published."""
    G, stored = model.inverse(), model.stream
    places = np.flatnonzero(model.live)[:40]
    X, W = widened(model.rows.X[places]), widened(model.W[places])
    true = (X @ G) @ G.T
    moved = stored.theta_exact - stored.anchor
    published, size = project(stored.Q.array, moved), float(np.linalg.norm(stored.theta_exact))
    error = stream_of.distance_to_exact(stored) + stream_of.rounding(model.generation, stored)
    alone = _injected(model)
    for how, stream in ways.items():
        if stream is None:
            continue
        V = widened(stream.V.array)
        signs = np.ones(len(V)) if stream.V.signs is None else stream.V.signs
        dual = W + (X @ V.T * signs) @ V
        found.most(how, "error of dual rows, relative", float(length(dual - true) / length(true)))
        other = project(stream.Q.array, moved) - published
        away = float(np.linalg.norm(other))
        if alone:
            found.most(how, "its published weight moves by", _share(other[0], model))
        found[how]["published moves by more than its error"] += away > error
        found.most(how, "published moves by, over theta", away / max(size, 1e-300))
        found[how]["Q of another rank"] += len(stream.Q) != len(stored.Q)
    if stored.V.only_deletions:
        S = np.sqrt(model.s(model.left))[:, None] * model.rows.X[model.left]
        off = np.linalg.norm(features_in(stored.V, model.factor.L) - S)
        found.features.append(float(off / np.linalg.norm(S)))


def _judge(model: _Model, steps: dict[str, Stream | None], found: _Found) -> None:
    """Judge what was decided by the bounds that would be published."""
    theta, unsure = model.minimiser(model.inverse())
    alone = _injected(model)
    for how, stream in steps.items():
        if stream is None or stream_of.has_lost_digits(stream):
            continue
        away = max(float(length(widened(stream.theta_exact) - theta)) - unsure, 0.0)
        found[how]["states"] += 1
        for by, at in (("its bound", stream), ("the bound with V stored", steps[STORED])):
            if at is not None:
                bound = stream_of.rounding(model.generation, at)
                found[how][f"error above {by}"] += away > bound
                found.most(how, f"error over {by}", away / bound)
        if alone:
            found.most(how, "injected weight left", _share(stream.theta_exact[0], model))


def _injected(model: _Model) -> bool:
    """Return whether the first column is an injected feature that nobody has any more."""
    return model.generation.theta_b[0].any() and not model.rows.X[model.live, 0].any()


def _share(weights: Array, model: _Model) -> float:
    """Return what a change of the injected weight is of what that was."""
    return float(np.linalg.norm(weights) / np.linalg.norm(model.generation.theta_b[0]))


def _begun(drawn: Drawn, kind: Kind) -> _Model:
    """Fit all rows but the last."""
    rows, n = drawn.rows, len(drawn.rows) - 1
    objective = Objective(kind, drawn.penalty)
    made = precompute(objective, rows.take(slice(0, n)))
    generation, stream = begin(0, objective, made)
    W = np.vstack([made.dual_rows, np.zeros((1, objective.d))])
    live = np.arange(n + 1) < n
    return _Model(rows, objective, generation, made.factor, W, stream, live)


def run(plan: Plan, setup: Setup) -> Iterator[Record]:
    """Take over, table by table."""
    for kind in (Kind.LINEAR, Kind.LOGISTIC):
        for name, draw in tables(kind).items():
            for mode in MODES:
                found = _Found()
                for seed in range(plan.streams):
                    try:
                        drawn = draw(np.random.default_rng((setup.seed, seed)))
                        with np.errstate(all="ignore"):
                            follow(_begun(drawn, kind), drawn.requests, mode, found)
                    except LetheError:  # a fit, a compact or an insertion refuses
                        found[STORED]["streams that end early"] += 1
                yield from _records({"kind": str(kind), "rows": name, "mode": mode}, found)


def _records(setting: Setting, found: _Found) -> Iterator[Record]:
    for how, count in found.items():
        for what, value in {**count, **found.worst[how]}.items():
            yield Record({**setting, "V and Q": how}, what, "1", value)
    if found.features:
        for name, value in (("median", np.median(found.features)), ("worst", max(found.features))):
            what = f"rows from V and L, relative error, {name}"
            yield Record({**setting, "V and Q": STORED}, what, "1", float(value))


SECTION = Section("recomputed", Plan(), Plan(streams=1), run)
