"""What becomes of each of scikit-learn's transformers, for docs/scikit-learn.md.

python -m tests.support.transformer_table    write the table into the page

Each is fitted, and the converter is asked: nothing here says what the answer is.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import Ridge
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
    TargetEncoder,
)
from sklearn.utils import all_estimators

from lethe.engine.conversion import Nature, natures, read_terms
from lethe.engine.errors import LetheError

PAGE = Path(__file__).parents[2] / "docs" / "scikit-learn.md"
BEGIN = "<!-- transformers: python -m tests.support.transformer_table -->\n"
END = "<!-- transformers end -->\n"

N = 30
_DRAW = np.random.default_rng(0)
NUMBERS, GAPS, WORDS, TEXT = ["a", "b"], ["gaps"], ["town"], "note"
FRAME = pd.DataFrame(
    {
        "a": _DRAW.uniform(1.0, 2.0, N),
        "b": _DRAW.uniform(1.0, 2.0, N),
        "gaps": np.where(np.arange(N) % 5, _DRAW.uniform(1.0, 2.0, N), np.nan),
        "town": np.array(["Bonn", "Kiel", "Ulm"])[np.arange(N) ** 2 % 3],
        "note": ["late fee", "slow bill", "good call"] * (N // 3),
    }
)
Y = _DRAW.normal(size=N)

Settings = Sequence[Mapping[str, Any]]

SETTINGS: Mapping[type, tuple[Any, Settings]] = {
    SimpleImputer: (
        GAPS,
        (
            {}, {"strategy": "median"}, {"strategy": "most_frequent"},
            {"strategy": "constant", "fill_value": 0}, {"add_indicator": True},
        ),
    ),
    MissingIndicator: (GAPS, ({}, {"features": "all"})),
    StandardScaler: (NUMBERS, ({}, {"with_mean": False}, {"with_std": False})),
    MinMaxScaler: (NUMBERS, ({}, {"feature_range": (-1, 1)}, {"clip": True})),
    RobustScaler: (NUMBERS, ({}, {"with_centering": False})),
    OneHotEncoder: (
        WORDS,
        (
            {}, {"handle_unknown": "ignore"}, {"handle_unknown": "infrequent_if_exist"},
            {"drop": "first"}, {"drop": "if_binary"}, {"categories": [["Bonn", "Kiel", "Ulm"]]},
            {"min_frequency": 12}, {"max_categories": 2}, {"dtype": np.float32},
        ),
    ),
    OrdinalEncoder: (
        WORDS,
        (
            {}, {"categories": [["Ulm", "Kiel", "Bonn"]]}, {"min_frequency": 12},
            {"handle_unknown": "use_encoded_value", "unknown_value": -1},
        ),
    ),
    TargetEncoder: (WORDS, ({},)),
    PolynomialFeatures: (NUMBERS, ({}, {"degree": 3}, {"interaction_only": True})),
    FunctionTransformer: (NUMBERS, ({"func": np.log1p}, {"func": lambda x: x + 1})),
    SplineTransformer: (
        NUMBERS,
        (
            {"knots": "uniform"}, {"knots": "quantile"},
            {"knots": np.array([[1.0, 1.0], [1.5, 1.5], [2.0, 2.0]])},
            {"knots": np.array([[1.0, 1.0], [2.0, 2.0]]), "degree": 1, "extrapolation": "periodic"},
            {"knots": np.array([[0.0, 0.0], [3.0, 3.0]]), "extrapolation": "error"},
        ),
    ),
    RBFSampler: (NUMBERS, ({}, {"gamma": "scale"})),
    KBinsDiscretizer: (NUMBERS, ({"quantile_method": "averaged_inverted_cdf"},)),
    HashingVectorizer: (TEXT, ({"n_features": 16},)),
    CountVectorizer: (TEXT, ({},)),
    TfidfVectorizer: (TEXT, ({},)),
}  # fmt: skip
"""By class, the columns that it is given, and settings that matter; others with their defaults."""

_WALKED = (ColumnTransformer, FeatureUnion, FeatureHasher)
"""What consists of others, or takes no column of a table."""

COLUMNS = (Nature.INSIDE, Nature.STATELESS, Nature.REFUSED)


def table() -> str:
    """Return the table, and a list of what is refused at every setting."""
    lines = [
        "| transformer | inside: its statistics forget rows | stateless: nothing to forget "
        "| refused; with `refit=True` fitted anew, with `--freeze` frozen |",
        "|---|---|---|---|",
    ]
    refused: list[str] = []
    for kind, columns, settings in _every():
        found: dict[Nature, list[str]] = {nature: [] for nature in COLUMNS}
        for given in settings:
            nature = become(kind, given, columns)
            if nature is not None:
                found[nature].append(_shown(given))
        if found[Nature.INSIDE] or found[Nature.STATELESS]:
            cells = ["; ".join(found[nature]) for nature in COLUMNS]
            lines.append(f"| `{kind.__name__}` | {' | '.join(cells)} |".replace("|  |", "| |"))
        elif found[Nature.REFUSED]:
            refused.append(f"`{kind.__name__}`")
    lines.append(f"| {', '.join(refused)} | | | at every setting tried |")
    return "\n".join(lines) + "\n"


def become(kind: Any, given: Mapping[str, Any], columns: Any) -> Nature | None:
    """Return what becomes of a transformer before a Ridge; None if it cannot be fitted so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            step = ColumnTransformer([("step", kind(**given), columns)])
            whole = Pipeline([("columns", step), ("model", Ridge())]).fit(FRAME, Y)
        except Exception:  # its columns are of another kind, or it has no defaults
            return None
        try:
            read_terms(whole)
        except LetheError:
            return Nature.REFUSED
    [found, *_] = natures(whole)
    return found.nature


def _every() -> Iterator[tuple[type, Any, Settings]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = [kind for _, kind in all_estimators(type_filter="transformer")]
    for kind in sorted({*known, *SETTINGS}, key=lambda kind: kind.__name__):
        if kind in SETTINGS:
            yield (kind, *SETTINGS[kind])
        elif kind not in _WALKED:
            yield kind, NUMBERS, ({},)


def _shown(given: Mapping[str, Any]) -> str:
    """Return settings as one writes them."""
    return (
        " and ".join(f"`{name}={_value(value)}`" for name, value in given.items()) or "by default"
    )


def _value(value: Any) -> str:
    if isinstance(value, np.ndarray | list):
        return "[...]"
    if isinstance(value, np.ufunc | type):
        return f"numpy.{value.__name__}"
    return "lambda x: ..." if callable(value) else repr(value).replace("'", '"')


def written(page: str) -> str:
    """Return the page with the table of now."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main() -> int:
    """Run the command."""
    PAGE.write_text(written(PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
