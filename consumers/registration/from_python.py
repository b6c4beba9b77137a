"""``lethe.register``: a fitted estimator becomes a model of the service, from Python.

What ``lethe register --from`` does with files: the rows go through a table in a directory that only
this user may read, and that is removed at the end.
"""

from __future__ import annotations

import dataclasses
import hashlib
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike
from pyarrow import parquet

from lethe.consumers.registration.checks import (
    can_have_exact_sums,
    check_above_0,
    check_model_name,
    namespace_of,
)
from lethe.consumers.registration.class_weights import weights_of_classes
from lethe.consumers.registration.committing import committing
from lethe.consumers.registration.fitted_estimator import FittedEstimator
from lethe.consumers.registration.register import Registrar, exists
from lethe.consumers.registration.table.foreseen import Columns, foresee, with_preprocessing
from lethe.consumers.registration.table.reader import read_rows
from lethe.consumers.service.configuration.settings import Settings, load_settings
from lethe.consumers.service.connect import open_runtime
from lethe.consumers.service.extras import extra
from lethe.consumers.service.telemetry.progress import no_progress
from lethe.engine.conversion import StepNature
from lethe.engine.errors import InvalidData
from lethe.engine.estimator.columns import dense_features
from lethe.engine.result import Conversion
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.records import ErrorRecord
from lethe.engine.store.server.connection import refuse_eviction

_METHODS = ("pru", "exact", "influence")
_NOT_ARROWS = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError)


@dataclass(frozen=True, slots=True)
class RegisteredModel:
    """What `register` did.

    Attributes
    ----------
    model_id, version, rows
        The model, its version, and how many rows it has.
    error
        How far the version may be from retraining.
    converted_from
        How far the given estimator was from its own optimum.
    steps
        What becomes of each step of a Pipeline.
    """

    model_id: str
    version: int
    rows: int
    error: ErrorRecord
    converted_from: Conversion
    steps: tuple[StepNature, ...]

    def __str__(self) -> str:
        given = self.converted_from
        return (
            f"registered {self.model_id}: version {self.version}, {self.rows} rows; predictions of "
            f"the {given.estimator} moved by {given.largest:.2g} at most"
        )


def register(
    model: str,
    estimator: Any,
    X: Any,
    y: ArrayLike,
    *,
    ids: Sequence[object],
    subjects: Sequence[object] | None = None,
    namespace: str | None = None,
    method: Literal["pru", "exact", "influence"] = "pru",
    error_budget: float = 0.01,
    freeze: bool = False,
    replace: bool = False,
    settings: Settings | None = None,
) -> RegisteredModel:
    """Register a fitted estimator or Pipeline of scikit-learn, and publish version 0.

    Parameters
    ----------
    model
        A name for it.
    estimator
        It, fitted to X and y.
    X, y
        What it was fitted on: a data frame (pandas, polars, pyarrow), or an array or a sparse
        matrix, whose columns are then x0, x1, ...
    ids
        One distinct id a row, by which rows are deleted.
    subjects
        Whose row each is, None of nobody's; ``namespace`` is theirs.
    method, error_budget, replace
        As of ``lethe register``.
    freeze
        Whether steps that have learnt of rows may stay as they are.
    settings
        Which servers; by default as ``lethe`` finds them.

    Returns
    -------
    RegisteredModel
        What was registered. A warning says if predictions moved by more than 1e-3.

    Raises
    ------
    InvalidData
        The estimator becomes no model, or the rows are not those that it was fitted on.
    ModelExists
        There is one of this name, and ``replace`` is False.
    StoreUnavailable, LogUnavailable
        A server is away.
    """
    check_model_name(model)
    check_above_0("error_budget", error_budget)
    if method not in _METHODS:
        raise InvalidData(f"method must be one of {', '.join(_METHODS)}, not {method!r}")
    if namespace is not None and subjects is None:
        raise InvalidData("namespace is that of subjects: give subjects, or leave it out")
    with TemporaryDirectory(prefix="lethe-") as directory, _named_as_given(directory) as path:
        columns, names = _written(path, X, y, ids, subjects)
        named = getattr(estimator, "feature_names_in_", None) is not None
        digest = _digest(estimator) if freeze else None
        fitted = FittedEstimator.of(
            estimator, Path(model), digest, names=None if named else names, freeze=freeze
        )
        if method == "influence" and isinstance(fitted.preprocess, dict):
            raise InvalidData(
                "preprocessing inside a model needs method='pru' or 'exact'; or freeze the fitted "
                "steps with freeze=True"
            )
        features = fitted.columns if fitted.preprocess is None else None
        columns = dataclasses.replace(columns, features=features)
        foreseen = foresee(path, columns, fitted.kind, fitted.preprocess)
        read = read_rows(foreseen, columns, fitted.kind, fitted.preprocess)
        texts = with_preprocessing(columns, fitted.preprocess)[1]
        moved = fitted.conversion(foreseen.opened.whole(texts), read.data)
    data = read.data
    config = ModelConfig(
        model_id=model,
        kind=fitted.kind,
        method=method,
        ridge=fitted.ridge,
        fit_intercept=fitted.fit_intercept,
        feature_names=data.feature_names,
        target_names=data.target_names,
        class_names=data.class_names,
        class_weights=weights_of_classes(fitted.class_weight, fitted.kind, data),
        error_budget=error_budget,
        subject_namespace=None if subjects is None else namespace_of(namespace),
        preprocess=data.preprocess,
        frozen_transformer=data.frozen_transformer,
    )
    config = fitted.configured(config, moved, len(data.ids))
    config = config.model_copy(update={"exact_sums": can_have_exact_sums(config)})
    with open_runtime(settings or load_settings({})) as runtime:
        refuse_eviction(runtime.store().client)
        if not replace and model in runtime.models():
            raise exists(model)
        with committing(Registrar, runtime, runtime.store(), no_progress) as registering:
            done = registering.register(config, data, replace_model=replace)
    if (text := moved.warning) is not None:
        warnings.warn(text, stacklevel=2)
    meta = done.state.meta
    return RegisteredModel(
        model, done.state.version, meta.rows_live, meta.error, moved, fitted.steps
    )


def _written(
    path: Path, X: Any, y: ArrayLike, ids: Sequence[object], subjects: Sequence[object] | None
) -> tuple[Columns, tuple[str, ...]]:
    """Write the rows as a table; return the roles of its columns, and the names of the features.

    Raises
    ------
    InvalidData
        The parts are not of one length, or a column holds what no table does.
    """
    with extra("skops", "lethe.register"):
        from pandas import CategoricalDtype, DataFrame  # noqa: PLC0415 (an optional extra)

    # Frames of polars and pyarrow become those of pandas, and sparse matrices arrays.
    frame = DataFrame(X.to_pandas() if hasattr(X, "to_pandas") else dense_features(X))
    if not hasattr(X, "columns") and not isinstance(X, Mapping):
        frame.columns = [f"x{j}" for j in range(frame.shape[1])]
    names = tuple(map(str, frame.columns))
    [(name, times)] = Counter(names).most_common(1) or [("", 0)]
    if times > 1:
        raise InvalidData(f"X has more than one column {name!r}; rename one")
    parts = {"ids": ids, "y": y} | ({} if subjects is None else {"subjects": subjects})
    wrong = next((n for n, p in parts.items() if _length(p) != len(frame)), None)
    if wrong is not None:
        raise InvalidData(f"{wrong} has another length than X, which has {len(frame)} rows")
    targets = np.asarray(y)
    targets = targets if targets.ndim > 1 else targets[:, None]
    table: dict[str, Any] = {
        name: frame[column].astype(object)
        if isinstance(frame[column].dtype, CategoricalDtype)
        else frame[column]
        for name, column in zip(names, frame.columns, strict=True)
    }
    roles = Columns(_free("id", names), ())
    table[roles.id] = list(ids)
    subject = None
    if subjects is not None:
        subject = _free("subject", names)
        table[subject] = list(subjects)
    wanted = [str(getattr(y, "name", None) or "target")]
    if targets.shape[1] > 1:
        wanted = [f"target{j}" for j in range(targets.shape[1])]
    given = tuple(_free(name, (*names, roles.id, *filter(None, [subject]))) for name in wanted)
    for j, name in enumerate(given):
        column = targets[:, j]
        table[name] = column.astype(np.int64) if column.dtype == np.bool_ else column
    made = pa.table({name: _column(name, one) for name, one in table.items()})
    parquet.write_table(made, path)
    return Columns(roles.id, given, None, subject), names


def _length(part: Any) -> int:
    """Return how many rows a part is of; -1 of what is none, such as None."""
    try:
        return len(part)
    except TypeError:
        return -1


def _column(name: str, values: Any) -> Any:
    """Return a column of a table.

    Raises
    ------
    InvalidData
        It holds values of several types, or of one that no table has.
    """
    try:
        return pa.array(values, from_pandas=True)
    except (*_NOT_ARROWS, OverflowError) as error:
        why = " ".join(str(error).split())
        raise InvalidData(
            f"column {name!r} holds what no table does ({why}); make ids, subjects and each "
            "column of X of one type: numbers, text, or true and false"
        ) from None


@contextmanager
def _named_as_given(directory: str) -> Iterator[Path]:
    """Give a file for the rows, of which messages say what this call does."""
    path = Path(directory) / "rows.parquet"
    try:
        yield path
    except InvalidData as error:
        said = str(error).replace(str(path), "the rows given")
        for option, argument in {"--subject": "subjects", "--id": "ids"}.items():
            said = said.replace(option, argument)
        error.args = (said, *error.args[1:])
        raise


def _free(name: str, taken: Sequence[str]) -> str:
    """Return a name that no column has yet."""
    while name in taken:
        name = f"{name}_"
    return name


def _digest(estimator: Any) -> str:
    """Return the SHA-256 of what ``skops.io.dumps`` makes of an estimator."""
    with extra("skops", "a frozen transformer"):
        from skops.io import dumps  # noqa: PLC0415 (an optional extra)
    return hashlib.sha256(dumps(estimator)).hexdigest()
