"""Lethe's engine: the mathematics and the state of deletion. No Kafka, no command line.

`engine.models` has the classes to use alone, without servers. `engine.fit` goes from rows to a
fitted model and its precomputation, `engine.deletion` leaves rows out, `engine.error` says how far
that may be from retraining, `engine.refresh` makes it exact again, and `engine.store` keeps it all
in Redis.
"""

from lethe.engine.error.estimate import ErrorKind, PublishedError
from lethe.engine.errors import LetheError
from lethe.engine.models import LinearModel, LogisticModel
from lethe.engine.refresh.policy import Limits, RefreshKind
from lethe.engine.result import DeletionResult

__all__ = [
    "DeletionResult",
    "ErrorKind",
    "LetheError",
    "Limits",
    "LinearModel",
    "LogisticModel",
    "PublishedError",
    "RefreshKind",
]
