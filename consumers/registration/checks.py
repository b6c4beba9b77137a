"""What registration refuses before it fits: models too large, names too long, another shape."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from lethe.consumers.commits.publish import PARAMETERS_LIMIT
from lethe.consumers.contract.events import STEPS, Id
from lethe.consumers.suppression.marks import DEFAULT_NAMESPACE
from lethe.engine.errors import InvalidData
from lethe.engine.exact.rounding import ROUNDED_FEATURES
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.input.columns import keeps_order
from lethe.engine.preprocess.rounded.raw import RAW_COLUMN
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.preprocessing import columns_of, raw_columns

MOST_COEFFICIENTS = 180_000
"""Coefficients of one theta: a commit has up to four thetas, and must fit into 8 MiB."""

MOST_FILE_AGE = 12 * 3600.0
"""Seconds from a deletion to the refresh that writes files without the row; half of what promise 10
gives, so that a lost job can be ordered again."""

_NAMES_LIMIT = PARAMETERS_LIMIT - 16 * 1024
"""Bytes of column names, as JSON: an event may leave out theta but not the names; all the rest of
it takes less than 16 KiB."""

_COLUMN_BYTES, _NUMBER_BYTES = 300, 34
"""Of a fitted column, and of each of its categories, beyond what its configuration takes."""

_MOST_RAW = f"{ROUNDED_FEATURES // RAW_COLUMN} numbers, categories and columns with missing numbers"
_SHOWN = 8  # column names that a message lists


def check_model_name(name: object) -> None:
    """Refuse what is no name of a model.

    Raises
    ------
    InvalidData
        It is not text of 1 to 128 characters, or one that an address or a shell takes amiss.
    """
    try:
        model = TypeAdapter(Id).validate_python(name)
    except ValidationError:
        raise InvalidData("a model's name has 1 to 128 characters") from None
    odd = not model.isprintable() or model != model.strip() or model.startswith("-")
    if odd or model in STEPS:
        raise InvalidData(
            f"{model!r} is not a valid model name: a name has no blanks around it and no control "
            "characters, does not begin with a hyphen, and is not . or .."
        )


def namespace_of(given: str | None) -> str:
    """Return the namespace of a model's subjects; the default one if none is given.

    Raises
    ------
    InvalidData
        It is too long, or empty.
    """
    if given is None:
        return DEFAULT_NAMESPACE
    try:
        return str(TypeAdapter(Id).validate_python(given))
    except ValidationError:
        raise InvalidData("a namespace has 1 to 128 characters") from None


def check_above_0(what: str, value: float) -> None:
    """Refuse what is no finite number above 0.

    Raises
    ------
    InvalidData
        It is none.
    """
    if not (math.isfinite(value) and value > 0):
        raise InvalidData(f"{what} must be a finite number above 0, not {value:g}")


def check_size(config: ModelConfig) -> None:
    """Refuse a model whose thetas do not fit into a commit.

    Raises
    ------
    InvalidData
        It has too many coefficients.
    """
    if config.d * config.m > MOST_COEFFICIENTS:
        raise InvalidData(
            f"model {config.model_id!r}: {config.d} coefficients of {config.m} outputs are "
            f"{config.d * config.m:,} numbers, and a commit has room for {MOST_COEFFICIENTS:,}; "
            "take fewer features, or register it as several models"
        )


def check_names(config: ModelConfig) -> None:
    """Refuse names that do not fit into a parameters event: the commit could never be published.

    Raises
    ------
    InvalidData
        Together they are too long.
    """
    features, targets = config.feature_names, (*config.target_names, *config.class_names)
    size = len(json.dumps([features, targets], ensure_ascii=False).encode())
    size += sum(
        len(column.model_dump_json()) + _COLUMN_BYTES + _NUMBER_BYTES * len(column.categories)
        for column in config.preprocess
    )
    if size > _NAMES_LIMIT:
        raise InvalidData(
            f"model {config.model_id!r}: the names of its {len(features)} features and "
            f"{len(targets)} targets and classes take {size:,} bytes, and an event has room for "
            f"{_NAMES_LIMIT:,}; give the columns shorter names"
        )


def check_same_shape(before: ModelConfig, after: ModelConfig) -> None:
    """Refuse changes that subscribers may not expect: another kind of model, or other columns.

    Raises
    ------
    InvalidData
        It names what would change.
    """
    changes = []
    if before.kind is not after.kind:
        changes.append(f"kind ({before.kind} to {after.kind})")
    for what, old, new in (
        ("targets", before.target_names, after.target_names),
        ("classes", before.class_names, after.class_names),
        ("features", before.feature_names, after.feature_names),
        ("columns", _columns(before), _columns(after)),
    ):
        if old != new:
            changes.append(f"{what} ({_change(old, new)})")
    if changes:
        raise InvalidData(
            f"model {after.model_id!r}: this would change its {' and its '.join(changes)}, which "
            "programs that read it may not expect; name the columns as before (--target, "
            "--features), or pass --allow-change"
        )


def _columns(config: ModelConfig) -> tuple[str, ...]:
    """Return the columns of a model with preprocessing, with what is done to each."""
    return tuple(
        f"{column.name} ({column.step}{f' of {column.of}' if column.of else ''})"
        for column in config.preprocess
    )


def _change(old: Sequence[str], new: Sequence[str]) -> str:
    """Return what was removed and added, a few names of each; if nothing was, the order changed."""
    removed, added = [n for n in old if n not in new], [n for n in new if n not in old]
    parts = []
    for preposition, names in (("without", removed), ("with", added)):
        if names:
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            parts.append(f"{preposition} {', '.join(map(repr, names[:_SHOWN]))}{more}")
    return "; ".join(parts) or "in another order"


def check_exact_sums(config: ModelConfig) -> None:
    """Refuse exact sums of a model that has none yet.

    Raises
    ------
    InvalidData
        The message says which models can have them.
    """
    if config.exact_sums and not can_have_exact_sums(config):
        raise InvalidData(
            f"--exact-sums is for linear models of at most {ROUNDED_FEATURES} coefficients (with "
            f"--preprocess, {_MOST_RAW}, and no medians, modes or extremes), by --method exact or "
            "pru, without --certify and --disclosure"
        )


def check_row_files(config: ModelConfig) -> None:
    """Refuse rows in files of a model for which there is no pass over them.

    Raises
    ------
    InvalidData
        The message says which models can have them.
    """
    parts = urlsplit(config.rows_url or "")
    if parts.username or parts.password or parts.query:
        raise InvalidData(
            "--rows: the URL holds a name, a password or options; it is stored and in commits, so "
            "give those to the workers by the environment of their storage (docs/scale.md)"
        )
    if config.rows_url is not None and config.kind is Kind.SOFTMAX:
        raise InvalidData(
            "--rows: rows in files are not there yet for softmax models; register the model "
            "without it, which keeps its rows in the store, or with --kind logistic"
        )
    age = config.limits.limits().age_seconds
    if config.rows_url is not None and age > MOST_FILE_AGE:
        raise InvalidData(
            f"--rows with --limit age_seconds {age:g}: files are written anew without deleted rows "
            f"by the refresh that this limit orders; at most {MOST_FILE_AGE:g} (12 hours)"
        )


def with_age_of_files(config: ModelConfig) -> ModelConfig:
    """Return a configuration by which files of rows are written anew within promise 10's time."""
    if config.rows_url is None or config.limits.age_seconds is not None:
        return config
    limits = config.limits.model_copy(update={"age_seconds": MOST_FILE_AGE})
    return config.model_copy(update={"limits": limits})


def can_have_exact_sums(config: ModelConfig) -> bool:
    """Return whether a model can have exact sums."""
    return (
        config.kind is Kind.LINEAR
        and config.method != "influence"
        and config.certify is None
        and not config.disclosure
        and not any(keeps_order(column) for column in columns_of(config.preprocess).values())
        and _rounded_columns(config) <= ROUNDED_FEATURES
    )


def _rounded_columns(config: ModelConfig) -> int:
    return RAW_COLUMN * raw_columns(config).width if config.preprocess else config.d
