"""Lethe's engine: the mathematics and the state of deletion. No Kafka, no command line.

`engine.models` and `engine.generalised` have the classes to use alone, without servers.
`engine.fit` goes from rows to a fitted model and its precomputation, `engine.deletion` leaves rows
out, `engine.exact` keeps linear models right to the last bit, `engine.error` states how far the
result may be from retraining, `engine.refresh` makes it exact again, `engine.preprocess` keeps the
preprocessing of a table inside a library model, `engine.store` keeps the state in Redis,
and `engine.rowstore` rows in files.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lethe.engine.error.estimate import ErrorKind, PublishedError
    from lethe.engine.errors import LetheError
    from lethe.engine.generalised import PoissonModel, SoftmaxModel
    from lethe.engine.models import LinearModel, LogisticModel
    from lethe.engine.refresh.policy import Limits
    from lethe.engine.refresh.size import RefreshSize
    from lethe.engine.result import ChangeResult, DeletionResult

__all__ = [
    "ChangeResult",
    "DeletionResult",
    "ErrorKind",
    "LetheError",
    "Limits",
    "LinearModel",
    "LogisticModel",
    "PoissonModel",
    "PublishedError",
    "RefreshSize",
    "SoftmaxModel",
]

_MODULES = {
    "ChangeResult": "result",
    "DeletionResult": "result",
    "ErrorKind": "error.estimate",
    "LetheError": "errors",
    "Limits": "refresh.policy",
    "LinearModel": "models",
    "LogisticModel": "models",
    "PoissonModel": "generalised",
    "PublishedError": "error.estimate",
    "RefreshSize": "refresh.size",
    "SoftmaxModel": "generalised",
}


def __getattr__(name: str) -> Any:
    """Import a class on first access: a command line must not wait for SciPy."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"lethe.engine.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    """Return all names, including those that are not imported yet."""
    return sorted({*globals(), *__all__})
