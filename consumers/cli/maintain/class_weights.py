"""``--class-weight`` of ``lethe register``: a weight for each class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lethe.consumers.cli.terminal.output import number
from lethe.consumers.registration.training_data import TrainingData
from lethe.engine.errors import InvalidData
from lethe.engine.fit.class_weights import (
    ClassWeights,
    balanced_weights,
    class_names,
    class_of,
)
from lethe.engine.fit.objective import Kind
from lethe.engine.store.layout.config import ModelConfig


def class_weights_asked(asked: Sequence[str], kind: Kind, data: TrainingData) -> tuple[float, ...]:
    """Return the weight of each class; empty if none is asked for.

    Raises
    ------
    InvalidData
        It is not LABEL=NUMBER, a label is none of the classes or is named twice, a weight is not
        above 0, or balanced ones are asked for.
    """
    if not asked:
        return ()
    names = _names(kind, data.class_names, data.target_names)
    if "balanced" in asked:
        raise InvalidData(_balanced(kind, data, names))
    weights: dict[str, float] = {}
    for text in asked:
        label, _, weight = text.rpartition("=")
        try:
            given = float(weight)
        except ValueError:
            given = np.nan
        if not label or np.isnan(given):
            raise InvalidData(f"--class-weight {text!r} is not LABEL=NUMBER: write yes=5")
        if label in weights:
            raise InvalidData(f"--class-weight names {label!r} twice")
        weights[label] = given
    found = ClassWeights.of(kind, weights, names).values
    return () if found is None or set(found) == {1.0} else found


def weights_line(config: ModelConfig) -> str:
    """Return the line that says how much the rows of each class count."""
    names = _names(config.kind, config.class_names, config.target_names)
    each = (
        f"{name} ({number(weight)})"
        for name, weight in zip(names, config.class_weights, strict=True)
    )
    return f"weights of classes: {', '.join(each)}"


def _names(kind: Kind, classes: tuple[str, ...], targets: tuple[str, ...]) -> tuple[str, ...]:
    linear = kind is Kind.LINEAR
    return class_names(kind, targets if linear else classes, len(targets) if linear else 1)


def _balanced(kind: Kind, data: TrainingData, names: tuple[str, ...]) -> str:
    """Return why balanced weights are refused, with the present ones if the rows are here."""
    why = "--class-weight balanced: weights that follow each deletion are in the library only"
    if not len(data.y):
        return f"{why}; give a number for each class, LABEL=F"
    counts = np.bincount(class_of(kind, data.y), minlength=len(names))
    given = " ".join(
        f"--class-weight {name}={weight:.6g}"
        for name, weight in zip(names, balanced_weights(counts).tolist(), strict=True)
        if weight > 0
    )
    return f"{why}; give those of these rows as numbers: {given}"
