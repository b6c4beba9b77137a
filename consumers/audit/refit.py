"""The bound of the newest version: its parameters lie within it of a refit.

`consumers.audit.verify` refits on the live rows of the store or, for an auditor without a server,
on those rows of the training file that were not deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lethe.consumers.audit.published.finding import Finding, Result
from lethe.consumers.audit.published.history import History
from lethe.consumers.audit.verify import Comparison, Verification, compare, verify
from lethe.consumers.contract import version_chain
from lethe.consumers.contract.events import Parameters, Version
from lethe.consumers.registration.table.reader import Columns, read_table
from lethe.engine.errors import InvalidData, LetheError, NotConverged, Unavailable, UnknownModel
from lethe.engine.fit.class_weights import ClassWeights, class_names
from lethe.engine.fit.objective import Array, Kind, Objective, Rows, ridge_penalty, with_intercept
from lethe.engine.store.layout.records import CertificateRecord
from lethe.engine.store.store import ModelStore

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


def bound_finding(store: ModelStore, model_id: str) -> Finding:
    """Refit on the live rows of the store, and compare with the published parameters."""
    try:
        verification = verify(store, model_id)
    except NotConverged as error:
        return Finding.passed_over(_NAME, str(error))
    except Unavailable:
        raise
    except UnknownModel:
        return Finding.passed_over(_NAME, "the model was unregistered: it has no rows")
    except LetheError as error:
        return Finding(_NAME, Result.FAILED, str(error))
    rows = f"{verification.rows_live} rows"
    return _finding(verification.state.version, rows, verification, verification.origin)


def refit_finding(
    history: History, registration: Mapping[str, Any], holding: Holding | None
) -> Finding:
    """Refit on the rows of the training file that remain, and compare likewise.

    Raises
    ------
    InvalidData
        The training file cannot be used.
    """
    tip, event = history.tip, history.parameters
    if holding is None:
        detail = "needs the training rows: name them with --data, --id and --deleted"
        return Finding.passed_over(_NAME, detail)
    if event is not None and event.columns:
        detail = "preprocessing is part of the model: `lethe verify` refits it where its rows are"
        return Finding.passed_over(_NAME, detail)
    usable = event is not None and tip is not None and event.digest == tip.event.digest
    if not usable or event is None or tip is None or event.theta is None:
        return Finding.passed_over(_NAME, "the newest version's parameters are missing")
    ridge = registration.get("ridge") if holding.ridge is None else holding.ridge
    certificate = tip.event.certificate
    if isinstance(certificate, CertificateRecord) or (
        registration.get("certified") and certificate is None
    ):
        detail = "a certified model has a secret term, which only the store holds"
        return Finding.passed_over(_NAME, detail)
    if not isinstance(ridge, int | float) or isinstance(ridge, bool):
        return Finding.passed_over(_NAME, "the ridge strength is not known: give --ridge")
    listed = registration.get("class_weights", [])
    return _refitted(tip.event, event, float(ridge), listed, holding)


def _weighed(rows: Rows, listed: Any, kind: Kind, event: Parameters) -> Rows:
    """Return the rows with the weights of classes that a bundle lists.

    Raises
    ------
    InvalidData
        They are not a number above 0 for each class.
    """
    if listed == []:
        return rows
    names = event.target_names if kind is Kind.LINEAR else event.classes
    classes = len(class_names(kind, names, event.outputs))
    numbers = isinstance(listed, list) and all(type(weight) in (int, float) for weight in listed)
    if not numbers or len(listed) != classes or not all(0.0 < w < np.inf for w in listed):
        raise InvalidData(
            f"the bundle's class weights are not a number above 0 for each of {classes} classes; "
            "export it again"
        )
    return ClassWeights(kind, tuple(map(float, listed))).weighed(rows)


def _refitted(
    version: Version, event: Parameters, ridge: float, class_weights: Any, holding: Holding
) -> Finding:
    kind = Kind(version.kind)
    rows = _weighed(_rows(event, kind, holding), class_weights, kind, event)
    if len(rows) != version.rows_live:
        detail = (
            f"{len(rows)} rows of {holding.path} are not deleted, but version {version.version} "
            f"has {version.rows_live} live rows: the file or the list of deleted ids is another one"
        )
        return Finding(_NAME, Result.FAILED, detail)
    penalised = version.status == "INTERCEPT_PENALISED" or version.certificate is not None
    penalty = ridge_penalty(
        ridge, rows.X.shape[1], intercept=event.fit_intercept, penalise_intercept=penalised
    )
    theta, objective = version_chain.theta_of(event), Objective(kind, penalty)
    try:
        compared = compare(version.model_id, version.error, objective, rows, theta)
    except NotConverged as error:
        return Finding.passed_over(_NAME, str(error))
    origin = compared.origin if len(rows) else "no row is left: theta is 0"
    return _finding(version.version, "the remaining rows", compared, origin)


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


def _finding(version: int, rows: str, compared: Comparison, origin: str) -> Finding:
    certified = not isinstance(compared, Verification) or compared.certified
    holds = compared.holds and certified
    detail = (
        f"version {version} is {compared.distance:.3g} from retraining on {rows}, "
        f"{'within' if holds else 'NOT within'} {compared.bound:.3g} ({origin})"
    )
    return Finding(_NAME, Result.OK if holds else Result.FAILED, detail)
