"""The bound of the newest version, checked by an auditor with the training file and no server.

The rows of the file that were not deleted are refitted by `consumers.audit.verify`, and the
published parameters must lie within the bound of the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lethe.consumers.audit.finding import Finding, Result
from lethe.consumers.audit.history import History
from lethe.consumers.audit.verify import bound_at, refit
from lethe.consumers.contract import version_chain
from lethe.consumers.contract.events import Parameters, Version
from lethe.consumers.registration.table.reader import Columns, read_table
from lethe.engine.errors import InvalidData, NotConverged
from lethe.engine.fit.objective import (
    Array,
    Kind,
    Objective,
    Rows,
    norm,
    ridge_penalty,
    with_intercept,
)

_NAME = "bound"


@dataclass(frozen=True, slots=True)
class Holding:
    """What an auditor has: the training file, and which of its rows were deleted.

    ``ridge`` None: the bundle's. ``targets`` empty: those of the parameters.
    """

    path: Path
    id_column: str
    targets: tuple[str, ...] = ()
    deleted: frozenset[str] = frozenset()
    ridge: float | None = None


def read_ids(path: Path) -> frozenset[str]:
    """Return the ids in a file that has one per line.

    Raises
    ------
    InvalidData
        The file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidData(f"{path}: cannot be read ({error.strerror}); check the path") from None
    except UnicodeDecodeError:
        raise InvalidData(f"{path}: is not UTF-8 text with one row id per line") from None
    return frozenset(line.strip("\r") for line in text.split("\n") if line.strip())


def refit_finding(
    history: History, registration: Mapping[str, Any], holding: Holding | None
) -> Finding:
    """Refit, and compare with the published parameters.

    Raises
    ------
    InvalidData
        The training file cannot be used.
    """
    tip, event = history.tip, history.parameters
    if holding is None:
        detail = "needs the training rows: name them with --data, --id and --deleted"
        return Finding(_NAME, Result.NOT_CHECKED, detail)
    usable = event is not None and tip is not None and event.digest == tip.event.digest
    if not usable or event is None or tip is None or event.theta is None:
        return Finding(_NAME, Result.NOT_CHECKED, "the newest version's parameters are missing")
    ridge = registration.get("ridge") if holding.ridge is None else holding.ridge
    if registration.get("certified") or tip.event.certificate is not None:
        detail = "a certified model has a secret term, which only the store holds"
        return Finding(_NAME, Result.NOT_CHECKED, detail)
    if not isinstance(ridge, int | float) or isinstance(ridge, bool):
        return Finding(_NAME, Result.NOT_CHECKED, "the ridge strength is not known: give --ridge")
    return _refitted(tip.event, event, float(ridge), holding)


def _refitted(version: Version, event: Parameters, ridge: float, holding: Holding) -> Finding:
    kind = Kind(version.kind)
    rows = _rows(event, kind, holding)
    if len(rows) != version.rows_live:
        detail = (
            f"{len(rows)} rows of {holding.path} are not deleted, but version {version.version} "
            f"has {version.rows_live} live rows: the file or the list of deleted ids is another one"
        )
        return Finding(_NAME, Result.FAILED, detail)
    theta, d = version_chain.theta_of(event), rows.X.shape[1]
    if len(rows) == 0:
        return _compared(version, norm(theta), 0.0, 0.0, "no row is left: theta is 0")
    penalised = version.status == "INTERCEPT_PENALISED"
    penalty = ridge_penalty(ridge, d, intercept=event.fit_intercept, penalise_intercept=penalised)
    try:
        oracle = refit(kind, penalty, rows)
        bound, origin, argument = bound_at(
            version.model_id, version.error, Objective(kind, penalty), rows, theta
        )
    except NotConverged as error:
        return Finding(_NAME, Result.NOT_CHECKED, str(error))
    source = "published" if origin == "version" else "audited now"
    return _compared(
        version, norm(theta - oracle.theta), bound, oracle.residual, f"{source}: {argument}"
    )


def _rows(event: Parameters, kind: Kind, holding: Holding) -> Rows:
    columns = Columns(
        id=holding.id_column,
        targets=holding.targets or event.target_names,
        features=event.feature_names,
    )
    data = read_table(holding.path, columns, kind).data
    if tuple(data.class_names) != tuple(event.classes):
        raise InvalidData(
            f"{holding.path}: its target has other classes than the model: it is not the file that "
            "the model was registered from"
        )
    keep = np.array([row not in holding.deleted for row in data.ids], dtype=np.bool_)
    X: Array = data.X[keep]
    X = with_intercept(X) if event.fit_intercept else X
    return Rows(np.ascontiguousarray(X), data.y[keep], np.ones(int(keep.sum())))


def _compared(
    version: Version, distance: float, bound: float, residual: float, argument: str
) -> Finding:
    holds = distance <= bound + residual
    detail = (
        f"version {version.version} is {distance:.3g} from retraining on the remaining rows, "
        f"{'within' if holds else 'NOT within'} {bound:.3g} ({argument})"
    )
    return Finding(_NAME, Result.OK if holds else Result.FAILED, detail)
