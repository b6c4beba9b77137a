"""Weights of classes, as a model's configuration has them."""

from __future__ import annotations

import numpy as np

from lethe.consumers.registration.training_data import TrainingData
from lethe.engine.errors import InvalidData
from lethe.engine.fit.class_weights import (
    ClassWeight,
    ClassWeights,
    balanced_weights,
    class_names,
    class_of,
)
from lethe.engine.fit.objective import Kind


def weights_of_classes(
    asked: ClassWeight | None, kind: Kind, data: TrainingData
) -> tuple[float, ...]:
    """Return the weight of each class; empty if none is asked for, or all are 1.

    Raises
    ------
    InvalidData
        A label is none of the classes, a weight is not above 0, or balanced ones are asked for.
    """
    if asked is None:
        return ()
    names = names_of_classes(kind, data.class_names, data.target_names)
    found = ClassWeights.of(kind, asked, names).values
    if found is None:
        raise InvalidData(_balanced(kind, data, names))
    return () if set(found) == {1.0} else found


def names_of_classes(
    kind: Kind, classes: tuple[str, ...], targets: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the names that weights are given by: labels, or of a linear model its targets."""
    return class_names(kind, targets if kind is Kind.LINEAR else classes, len(targets))


def _balanced(kind: Kind, data: TrainingData, names: tuple[str, ...]) -> str:
    """Return why balanced weights are refused, with the present ones if the rows are here."""
    why = "class_weight: balanced weights, which follow each deletion, are in the library only"
    if not len(data.y):
        return f"{why}; give a number for each class"
    counts = np.bincount(class_of(kind, data.y), minlength=len(names))
    present = zip(names, balanced_weights(counts).tolist(), strict=True)
    given = ", ".join(f"{name}={weight:.6g}" for name, weight in present if weight > 0)
    return f"{why}; give numbers, those of these rows are {given}"
