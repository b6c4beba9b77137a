"""What --preprocess cannot do is refused before anything is read, with what to do instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from lethe.consumers.cli.maintain.preprocess import preprocess_asked
from lethe.consumers.cli.terminal.output import Output
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Kind

OUT = Output(as_json=False)


def options(path: Path, **changes: Any) -> dict[str, Any]:
    """Return options of ``lethe register``."""
    given = {"features": None, "method": "pru", "certify": None, "no_intercept": False}
    return {**given, "preprocess": path, "ridge": 1.0, "targets": ("y",), **changes}


@pytest.mark.parametrize(
    ("kind", "changes", "named"),
    [
        (Kind.LINEAR, {"method": "influence"}, "--method influence; give a fitted transformer"),
        (Kind.LOGISTIC, {"certify": "terms"}, "a certified model"),
    ],
)
def test_a_model_that_cannot_have_its_preprocessing_inside_is_named(
    tmp_path: Path, kind: Kind, changes: dict[str, Any], named: str
) -> None:
    path = tmp_path / "columns.toml"
    path.write_text('[columns.age]\nstep = "numeric"\n')
    with pytest.raises(InvalidData, match=named):
        preprocess_asked(options(path, **changes), kind, None, OUT)
    assert preprocess_asked(options(path), kind, None, OUT) is not None


def test_no_certificate_covers_a_frozen_transformer(tmp_path: Path) -> None:
    path = tmp_path / "columns.skops"
    with pytest.raises(InvalidData, match="a certificate would not cover a frozen transformer"):
        preprocess_asked(options(path, certify="terms"), Kind.LINEAR, None, OUT)


def test_either_form_names_the_columns_to_learn_from(tmp_path: Path) -> None:
    for name in ("columns.toml", "columns.skops"):
        with pytest.raises(click.UsageError, match="leave out --features"):
            preprocess_asked(options(tmp_path / name, features="age"), Kind.LINEAR, None, OUT)
