"""``--class-weight`` of ``lethe register``: a weight for each class."""

from __future__ import annotations

import numpy as np

from lethe.consumers.cli.terminal.output import number
from lethe.consumers.registration.class_weights import names_of_classes
from lethe.engine.errors import InvalidData
from lethe.engine.fit.class_weights import ClassWeight
from lethe.engine.store.layout.config import ModelConfig


def asked_weights(given: tuple[str, ...] | ClassWeight | None) -> ClassWeight | None:
    """Return the weights by label of what is written, or of an estimator; None without any.

    Raises
    ------
    InvalidData
        It is neither LABEL=NUMBER nor "balanced", or a label is named twice.
    """
    if not isinstance(given, tuple):
        return given
    if "balanced" in given:
        return "balanced"
    weights: dict[str, float] = {}
    for text in given:
        label, _, weight = text.rpartition("=")
        try:
            factor = float(weight)
        except ValueError:
            factor = np.nan
        if not label or np.isnan(factor):
            raise InvalidData(f"--class-weight {text!r} is not LABEL=NUMBER: write yes=5")
        if label in weights:
            raise InvalidData(f"--class-weight names {label!r} twice")
        weights[label] = factor
    return weights or None


def weights_lines(config: ModelConfig) -> list[str]:
    """Return the line that says how much the rows of each class count, if they differ."""
    if not config.class_weights:
        return []
    names = names_of_classes(config.kind, config.class_names, config.target_names)
    each = (
        f"{name} ({number(weight)})"
        for name, weight in zip(names, config.class_weights, strict=True)
    )
    return [f"weights of classes: {', '.join(each)}"]
