"""A fitted transformer of scikit-learn in front of a model, which stays as it is.

It makes the features once, when the model is registered. What it learnt from rows that are deleted
later stays in it, and each version says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import nan
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.consumers.registration.table.file import TableFile
from lethe.consumers.registration.table.skops_file import EXTRA, read_skops
from lethe.consumers.registration.table.typed import typed_columns
from lethe.consumers.registration.table.values import is_boolean, is_numeric
from lethe.consumers.service.extras import extra
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array
from lethe.engine.preprocess.input.columns import Category, Column, Numeric, OneHot
from lethe.engine.preprocess.input.frozen import FrozenTransformer, transformed
from lethe.engine.preprocess.input.values import is_missing


@dataclass(frozen=True, slots=True)
class Seen:
    """What all blocks of a table hold: how a column is given follows from all of its values.

    Attributes
    ----------
    numeric
        Columns of numbers.
    shown
        Of each other column a value of each type that it has, None of a missing one.
    """

    numeric: frozenset[str]
    shown: Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class FrozenFile:
    """A transformer from a file: what it is, the columns that it takes, and the file's SHA-256.

    ``dropped``: the last step of a Pipeline that had an estimator after its transformers.
    ``categories`` are those that its encoders know, of columns where they are not numbers: what a
    table holds there is one of these, whatever its type. (None and NaN stand for missing.)
    ``seen``: of a table whose blocks it is given, one after another.
    """

    path: Path
    transformer: FrozenTransformer
    columns: tuple[str, ...]
    digest: str
    categories: Mapping[str, Sequence[Any]] = field(default_factory=lambda: MappingProxyType({}))
    seen: Seen | None = None
    dropped: str | None = None

    def for_blocks(self, blocks: Iterable[TableFile], columns: Sequence[str]) -> FrozenFile:
        """Return what is given the blocks of a table as if it were given the table.

        ``columns``: those that the blocks have; the others are numbers by their type.

        Raises
        ------
        InvalidData
            A column holds no categories, or numbers and truth values.
        """
        shown: dict[str, dict[type, Any]] = {name: {} for name in columns}
        spelled, truth = {*self.columns} - {*columns}, set[str]()
        for file in blocks:
            numbers = {n for n in columns if n not in self.categories and is_numeric(file, n)}
            boolean = {name for name in numbers if is_boolean(file, name)}
            spelled |= numbers - boolean
            truth |= boolean
            if spelled & truth:
                raise InvalidData(
                    f"{file.path}, column {min(spelled & truth)!r}: some rows hold true or false, "
                    "others numbers; correct them"
                )
            others: dict[str, Column] = {n: OneHot() for n in columns if n not in numbers}
            typed = typed_columns(file, others, self._known(), complete=False)
            for name, values in typed.items():
                shown[name].update((type(value), value) for value in values.tolist())
        numeric = frozenset(spelled | truth)
        listed = {name: [*each.values()] for name, each in shown.items()}
        return replace(self, seen=Seen(numeric, listed))

    def features(self, file: TableFile) -> tuple[tuple[str, ...], Array]:
        """Return names and numbers of the features that it makes of a table, n x p.

        Raises
        ------
        InvalidData
            It refuses the table, or makes no finite numbers.
        """
        frame = self.frame(file)
        made = np.asarray(transformed(self.transformer, frame))
        if made.shape[:1] != (len(frame),) or made.size == 0:
            raise InvalidData(
                f"{self.path}: the transformer turns {len(frame)} rows into an array of shape "
                f"{made.shape}; it must make at least one feature of each row"
            )
        if made.ndim != 2 or made.dtype.kind not in "biuf" or not np.isfinite(made).all():
            raise InvalidData(
                f"{self.path}: the transformer makes features that are not finite numbers; let it "
                "impute and encode"
            )
        return self._names(made.shape[1]), made.astype(np.float64)

    def frame(self, file: TableFile) -> Any:
        """Return a table as the transformer was fitted to one: with NaN, or None, where missing."""
        with extra(EXTRA, "a frozen transformer"):
            from pandas import DataFrame, Series  # noqa: PLC0415 (an optional extra)

        known, seen = self._known(), self.seen
        numeric = (
            {name for name in self.columns if name not in known and is_numeric(file, name)}
            if seen is None
            else seen.numeric
        )
        kinds: dict[str, Column] = {
            name: Numeric() if name in numeric else OneHot() for name in self.columns
        }
        frame: dict[str, Any] = {}
        for name, values in typed_columns(file, kinds, known, complete=False).items():
            missing = [one for one in self.categories.get(name, ()) if is_missing(one)]
            gap = None if missing == [None] else nan
            like: Any = object if gap is None else None
            if like is None and seen is not None and name not in numeric:
                like = Series([gap if one is None else one for one in seen.shown[name]]).dtype
            listed: Any = values  # numbers have NaN already
            if values.dtype == object:
                listed = [gap if value is None else value for value in values.tolist()]
            frame[name] = Series(listed, dtype=like)
        return DataFrame(frame)

    def _known(self) -> dict[str, list[Category]]:
        return {
            name: [None if is_missing(one) else one for one in categories]
            for name, categories in self.categories.items()
        }

    def _names(self, p: int) -> tuple[str, ...]:
        """Return the names of p features, as the transformer has them or by their place."""
        try:
            names = tuple(map(str, self.transformer.get_feature_names_out()))  # type: ignore[attr-defined]  # not all have it
        except Exception:  # as in `transformed`
            names = ()
        return names if len(set(names)) == p else tuple(f"feature {j}" for j in range(p))


def read_frozen_file(path: Path) -> FrozenFile:
    """Return the fitted transformer in a ``.skops`` file, or that of a whole Pipeline.

    Raises
    ------
    InvalidData
        There is none, it has types that are not trusted, or it was not fitted to named columns.
    """
    loaded, digest = read_skops(path, "a frozen transformer")
    steps = getattr(loaded, "steps", [])
    if len(steps) > 1 and hasattr(steps[-1][1], "predict"):
        return replace(frozen_file(loaded[:-1], path, digest), dropped=steps[-1][0])
    return frozen_file(loaded, path, digest)


def frozen_file(loaded: Any, path: Path, digest: str) -> FrozenFile:
    """Return a fitted transformer as one that makes the features of a table.

    Raises
    ------
    InvalidData
        It is none, or was not fitted to named columns.
    """
    names = getattr(loaded, "feature_names_in_", None)
    if not isinstance(loaded, FrozenTransformer) or names is None:
        raise InvalidData(
            f"{path}: holds no transformer that was fitted to a data frame, whose columns it names"
        )
    found = given_to(loaded, path, digest)
    if not found.columns:
        raise InvalidData(f"{path}: the transformer takes no column: it drops all of them")
    return found


def given_to(loaded: Any, path: Path, digest: str) -> FrozenFile:
    """Return what says how a table is given to an estimator that was fitted to named columns.

    Raises
    ------
    InvalidData
        It is not whole.
    """
    try:
        columns, categories = _columns(loaded), dict(_encoded(loaded))
    except Exception as error:  # of a file that was changed, anything
        raise InvalidData(
            f"{path}: cannot tell which columns the transformer takes ({type(error).__name__}); "
            "was the file changed?"
        ) from None
    return FrozenFile(path, loaded, columns, digest, categories)


def _columns(transformer: Any) -> tuple[str, ...]:
    """Return the columns that a transformer takes: not those that a ColumnTransformer drops."""
    names = np.array([str(name) for name in transformer.feature_names_in_], dtype=object)
    dropped: set[str] = set()
    for _, step, where in getattr(_steps(transformer)[0], "transformers_", ()):
        if isinstance(step, str) and step == "drop":
            dropped.update(_listed(names, where))
    return tuple(name for name in names if name not in dropped)


def _listed(names: NDArray[np.object_], where: Any) -> list[str]:
    """Return the columns of a ColumnTransformer's step: by name, place, mask or slice."""
    if isinstance(where, slice):
        known = names.tolist()
        start, stop = (
            known.index(end) if isinstance(end, str) else end for end in (where.start, where.stop)
        )
        if isinstance(where.stop, str):  # whose column is one of them
            stop += 1
        where = range(len(names))[start : stop : where.step]
    listed = np.atleast_1d(where)
    if listed.dtype.kind in "OU":
        return [str(name) for name in listed]
    return list(names[listed]) if len(listed) else []


def _encoded(transformer: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yield the columns of fitted encoders with their categories, unless these are numbers.

    An encoder may come after other steps of a pipeline, such as one that fills in missing text.
    """
    first = _steps(transformer)[0]
    for one in (transformer, *(step for _, step, _ in getattr(first, "transformers_", ()))):
        steps = _steps(one)
        names = getattr(steps[0], "feature_names_in_", ())
        for step in steps:
            known = getattr(step, "categories_", ())
            if len(known) == len(names):
                for name, categories in zip(names, known, strict=True):
                    if categories.dtype.kind not in "iuf":
                        yield str(name), categories.tolist()


def _steps(transformer: Any) -> list[Any]:
    """Return the steps of a pipeline; of another transformer, itself."""
    return [step for _, step in getattr(transformer, "steps", [("", transformer)])]
